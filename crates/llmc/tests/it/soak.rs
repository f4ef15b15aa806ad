//! Very many commands, well-behaved and not, and nothing left of them. `bench/soak` does the same ten thousand times.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use llmc_testkit::McpClient;
use serde_json::json;

use crate::workspace;

const CALLS: usize = 300;
/// Floods, one after the other; each fills the output's cap.
const FLOODS: usize = 2;
/// How much more the server may hold after hundreds of calls, floods included.
const GROWTH: u64 = 48 << 20;
/// Processes that wait to follow the next run.
const WAITING: usize = 2;
/// The two helpers, two that wait for the next runs, those of a session, and those that wait to follow the runs.
const HELPERS: usize = 8 + WAITING;
/// Calls on the way at the same time.
const ABREAST: usize = 8;
/// How soon nothing may be left.
const SOON: Duration = Duration::from_secs(1);

/// What a call does and how it must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    True,
    Echo,
    /// Ignores signals; the time limit must end it.
    Stubborn,
    /// Out of the session and the family, with the pipe in its hand.
    Daemon,
    /// Both at once.
    StubbornDaemon,
    Flood,
    Cancelled,
}

impl Kind {
    fn of(n: usize) -> Kind {
        match n % 10 {
            0..=3 => Kind::True,
            4 => Kind::Echo,
            5 => Kind::Stubborn,
            6 => Kind::Daemon,
            7 => Kind::StubbornDaemon,
            _ => Kind::Cancelled,
        }
    }

    fn args(self, mark: &str) -> serde_json::Value {
        let script = match self {
            Kind::True => return json!({"argv": ["true"]}),
            Kind::Echo => return json!({"argv": ["echo", "hi"]}),
            Kind::Flood => return json!({"argv": ["yes"]}),
            Kind::Stubborn => format!("trap '' TERM HUP INT; while :; do sleep {mark}; done"),
            Kind::Daemon => format!("(setsid sh -c 'trap \"\" TERM HUP; sleep {mark}' &); echo up"),
            Kind::StubbornDaemon => {
                format!("trap '' TERM; (setsid sleep {mark} &); sleep {mark}")
            }
            Kind::Cancelled => format!("echo on; sleep {mark}"),
        };
        let timeout = match self {
            Kind::Stubborn | Kind::StubbornDaemon => 0.2,
            _ => 30.0,
        };
        json!({"argv": ["sh", "-c", script], "timeout": timeout})
    }

    fn check(self, failed: bool, text: &str) {
        let fine = match self {
            Kind::True => !failed && text.is_empty(),
            Kind::Echo => !failed && text == "hi\n",
            Kind::Daemon => !failed && text.starts_with("up\n"),
            Kind::Stubborn | Kind::StubbornDaemon => failed && text.contains("TIMEOUT"),
            Kind::Flood => !failed && text.contains("MiB of output"),
            Kind::Cancelled => failed && text.contains("CANCELLED"),
        };
        let shown: String = text.chars().take(300).collect();
        assert!(fine, "{self:?}: {failed} {shown}");
    }
}

#[test]
fn hundreds_of_commands_leave_nothing_behind() {
    let workspace = workspace("//- a.txt\none\n");
    let allowed = "mcp.tools.run_cmd_allowlist=[\"sh\", \"true\", \"echo\", \"yes\"]";
    let killed = "mcp.exec.on_timeout=\"kill\"";
    let mut client = workspace.mcp(["--mode", "classic", "--set", allowed, "--set", killed]);
    client.initialize("2025-11-25");
    // A unique number of seconds to sleep, by which its processes are found.
    let mark = format!("98765.{}", std::process::id());
    soak(&mut client, CALLS / 6, &mark);
    let pid = client.process().pid().as_raw_nonzero().get();
    let before = settled(pid, None);
    soak(&mut client, CALLS, &mark);
    let after = settled(pid, Some(&before));
    assert!(after.helpers <= HELPERS, "{after:?}");
    assert!(
        after.descriptors <= before.descriptors + WAITING,
        "{} descriptors were {}",
        after.descriptors,
        before.descriptors
    );
    assert!(
        after.resident < before.resident + GROWTH,
        "{after:?}, was {before:?}"
    );
    assert_eq!(sleepers(&mark), [0; 0], "something outlived its call");
    for _ in 0..FLOODS {
        let (failed, text) = client.call_tool("run_cmd", Kind::Flood.args(&mark));
        Kind::Flood.check(failed, &text);
    }
    let flooded = settled(pid, Some(&before));
    assert!(flooded.helpers <= HELPERS, "{flooded:?}");
    // What floods is read by processes of their own.
    assert!(
        flooded.resident < before.resident + GROWTH,
        "{flooded:?}, was {before:?}"
    );
    assert_eq!(client.finish().code, Some(0));
    let deadline = Instant::now() + SOON;
    while !temporaries(pid).is_empty() {
        assert!(Instant::now() < deadline, "{:?}", temporaries(pid));
        std::thread::yield_now();
    }
    assert_eq!(workspace.tree(), ["a.txt"]);
    assert_eq!(sleepers(&mark), [0; 0], "something outlived the server");
}

fn soak(client: &mut McpClient, calls: usize, mark: &str) {
    let mut going: BTreeMap<i64, Kind> = BTreeMap::new();
    for n in 0..calls {
        let kind = Kind::of(n);
        let id = client.send_call("run_cmd", kind.args(mark));
        if kind == Kind::Cancelled {
            client.notify("notifications/cancelled", json!({"requestId": id}));
            // A cancelled call is not answered.
            continue;
        }
        going.insert(id, kind);
        if going.len() >= ABREAST
            && let Some((id, kind)) = going.pop_first()
        {
            let (failed, text) = client.tool_answer(id);
            kind.check(failed, &text);
        }
    }
    for (id, kind) in going {
        let (failed, text) = client.tool_answer(id);
        kind.check(failed, &text);
    }
}

/// What a server holds.
#[derive(Debug, PartialEq, Eq)]
struct Held {
    helpers: usize,
    descriptors: usize,
    resident: u64,
}

/// What the server holds once everything on the way is over; the issue gives that a second.
fn settled(pid: i32, wanted: Option<&Held>) -> Held {
    let deadline = Instant::now() + SOON;
    loop {
        let (helpers, zombies) = below(pid);
        let held = Held {
            helpers,
            descriptors: fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count),
            resident: resident(pid),
        };
        let few = wanted.is_none_or(|wanted| held.descriptors <= wanted.descriptors + WAITING);
        let done = zombies == 0 && helpers <= HELPERS && few;
        if done || Instant::now() >= deadline {
            assert_eq!(zombies, 0, "zombies");
            return held;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Processes below one, and how many of them are zombies.
fn below(pid: i32) -> (usize, usize) {
    let mut found = vec![pid];
    let mut zombies = 0;
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        next += 1;
        for task in fs::read_dir(format!("/proc/{pid}/task"))
            .into_iter()
            .flatten()
            .flatten()
        {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            found.extend(
                children
                    .split_whitespace()
                    .filter_map(|pid| pid.parse::<i32>().ok()),
            );
        }
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        zombies += usize::from(
            stat.rsplit(") ")
                .next()
                .is_some_and(|rest| rest.starts_with('Z')),
        );
    }
    (found.len() - 1, zombies)
}

fn resident(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: Option<u64> = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
    kib.unwrap_or(0) << 10
}

/// Processes anywhere that sleep for the mark; given the second that everything has to be gone.
fn sleepers(mark: &str) -> Vec<u32> {
    let deadline = Instant::now() + SOON;
    loop {
        let found: Vec<u32> = fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter(|pid: &u32| {
                *pid != std::process::id()
                    && fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| {
                        line.windows(mark.len()).any(|part| part == mark.as_bytes())
                    })
            })
            .collect();
        if found.is_empty() || Instant::now() >= deadline {
            return found;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Directories of a server's runs, which it makes only where there is no mount namespace.
fn temporaries(pid: i32) -> Vec<String> {
    let list = fs::read_dir("/tmp").unwrap().flatten();
    list.map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with(&format!("llmc-run-{pid}-")))
        .collect()
}
