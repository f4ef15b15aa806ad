//! Kill -9 at any moment, and several processes on one file: nothing torn, nothing acknowledged lost, nothing left over.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use llmc_testkit::{McpClient, TestWorkspace};
use rustix::process::Signal;
use serde_json::json;

use crate::{classic, workspace};

/// Kills per kind of write.
const KILLS: usize = 24;
/// Writes to other files that are under way beside each one, so that the kill strikes in the middle of some.
const AHEAD: usize = 6;

/// Version `n` of a file: large enough to be written in several blocks, and torn when its parts do not agree.
fn version(n: usize) -> String {
    let line = format!("version {n} ");
    let mut text = line.repeat(3000);
    text.push_str("end\n");
    text
}

/// Which version this is; fails for anything that is none.
fn number(text: &str) -> usize {
    let n = text
        .split(' ')
        .nth(1)
        .and_then(|word| word.parse().ok())
        .unwrap_or_else(|| panic!("torn: {:.80?} ({} bytes)", text, text.len()));
    assert!(
        text == version(n),
        "torn: version {n}, {} bytes",
        text.len()
    );
    n
}

/// Everything below a folder that looks like an unfinished file.
fn litter(workspace: &TestWorkspace) -> Vec<PathBuf> {
    fn look(dir: &Path, found: &mut Vec<PathBuf>) {
        let entries = match std::fs::read_dir(dir) {
            // The kernel makes an overlay's own folder without permissions, and a kill may come before they are given.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => return,
            entries => entries.unwrap(),
        };
        for entry in entries.flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy().into_owned();
            let in_tmp = path.parent().is_some_and(|dir| dir.ends_with(".llmc/tmp"));
            if in_tmp || name.starts_with(".llmc-") || name.ends_with(".tmp") {
                found.push(path.clone());
            }
            if path.is_dir() {
                look(&path, found);
            }
        }
    }
    let mut found = Vec::new();
    look(&workspace.root(), &mut found);
    found
}

/// Sends writes 1, 2, 3, … and kills the server after `acknowledged` answers; the last acknowledged number.
///
/// `send` sends one write and returns its id. The next is sent when it is answered, so the kill strikes within one.
fn killed_after(
    mut client: McpClient,
    acknowledged: usize,
    mut send: impl FnMut(&mut McpClient, usize) -> i64,
) -> usize {
    let id = send(&mut client, 1);
    let mut waiting = id;
    for n in 1..=acknowledged {
        let (failed, text) = client.tool_answer(waiting);
        assert!(!failed, "write {n}: {text}");
        waiting = send(&mut client, n + 1);
    }
    client.process().signal(Signal::KILL);
    let ended = client.wait();
    assert_eq!(ended.signal, Some(9), "{}", ended.stderr);
    // An answer that was on its way when the kill came is an acknowledgement too.
    let answered = ended.stdout.lines().any(|line| {
        line.ends_with('}')
            && line.contains("new_sha256")
            && line.contains(&format!("\"id\":{waiting}"))
    });
    acknowledged + usize::from(answered)
}

/// The next start works at once: it sweeps, and its first write does not wait for leases of ended processes.
fn starts_clean(workspace: &TestWorkspace, path: &str) {
    let started = Instant::now();
    let mut client = classic(workspace);
    let (failed, text) = client.call_tool(
        "linux_fs_write",
        json!({"path": path, "content": version(0)}),
    );
    assert!(!failed, "the first write after a crash: {text}");
    assert!(
        started.elapsed() < Duration::from_secs(20),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(litter(workspace), Vec::<PathBuf>::new());
    assert_eq!(client.finish().code, Some(0));
    assert_eq!(litter(workspace), Vec::<PathBuf>::new());
}

#[test]
fn a_kill_tears_no_rewrite_and_loses_no_acknowledged_one() {
    let workspace = workspace("//- a\n");
    workspace.write("f.txt", version(0));
    for turn in 0..KILLS {
        let last = killed_after(classic(&workspace), turn % 7, |client, n| {
            // Others in flight, to other files, make the moment of the kill a busy one.
            for other in 0..AHEAD {
                client.send_call(
                    "linux_fs_write",
                    json!({"path": format!("o{other}.txt"), "content": version(n)}),
                );
            }
            client.send_call(
                "linux_fs_write",
                json!({"path": "f.txt", "content": version(n)}),
            )
        });
        let found = number(&workspace.read("f.txt"));
        assert!(
            found == last || found == last + 1,
            "found {found}, acknowledged {last}"
        );
        for other in 0..AHEAD {
            let path = format!("o{other}.txt");
            if workspace.path(&path).exists() {
                number(&workspace.read(&path));
            }
        }
        starts_clean(&workspace, "f.txt");
    }
}

#[test]
fn a_kill_tears_no_edit() {
    let workspace = workspace("//- a\n");
    for turn in 0..KILLS {
        workspace.write("f.txt", version(0));
        let last = killed_after(classic(&workspace), turn % 5, |client, n| {
            let args = json!({
                "path": "f.txt",
                "old_text": format!("version {} ", n - 1),
                "new_text": format!("version {n} "),
                "expected_replacements": 3000,
            });
            client.send_call("linux_fs_edit", args)
        });
        let found = number(&workspace.read("f.txt"));
        assert!(
            found == last || found == last + 1,
            "found {found}, acknowledged {last}"
        );
        starts_clean(&workspace, "f.txt");
    }
}

#[test]
fn a_kill_tears_no_append_and_leaves_no_half_new_file() {
    let workspace = workspace("//- a\n");
    let block = |n: usize| format!("<{n}:{}>", "x".repeat(20_000));
    for turn in 0..KILLS {
        let _ = std::fs::remove_file(workspace.path("log"));
        let last = killed_after(classic(&workspace), turn % 6, |client, n| {
            client.send_call(
                "linux_fs_write",
                json!({"path": "log", "content": block(n), "mode": "append"}),
            )
        });
        let text = std::fs::read_to_string(workspace.path("log")).unwrap_or_default();
        let whole = |count: usize| (1..=count).map(block).collect::<String>();
        assert!(
            text == whole(last) || text == whole(last + 1),
            "{} bytes after {last} acknowledged",
            text.len()
        );
        starts_clean(&workspace, "first.txt");
    }
}

#[test]
fn two_processes_and_sixteen_threads_lose_no_acknowledged_edit() {
    const THREADS: usize = 16;
    const EDITS: usize = 12;
    let workspace = workspace("//- a\n");
    let start: String = (0..THREADS)
        .map(|thread| format!("[{thread}:0]\n"))
        .collect();
    workspace.write("shared.txt", &start);
    // Each process gets eight writers: one pipe, eight calls in flight at any time.
    let done: Vec<[usize; 8]> = std::thread::scope(|scope| {
        let processes: Vec<_> = [0, 8]
            .map(|first| {
                let workspace = &workspace;
                scope.spawn(move || {
                    let mut client = classic(workspace);
                    let mut counts = [0; 8];
                    let send = |client: &mut McpClient, writer: usize, count: usize| {
                        let thread = first + writer;
                        client.send_call(
                            "linux_fs_edit",
                            json!({"path": "shared.txt", "old_text": format!("[{thread}:{count}]"), "new_text": format!("[{thread}:{}]", count + 1)}),
                        )
                    };
                    let mut flying: Vec<i64> = (0..8).map(|writer| send(&mut client, writer, 0)).collect();
                    for _ in 0..EDITS * 20 {
                        if counts.iter().all(|count| *count >= EDITS) {
                            break;
                        }
                        for writer in 0..8 {
                            let (failed, text) = client.tool_answer(flying[writer]);
                            if failed {
                                assert!(text.contains("RESOURCE_BUSY"), "{text}");
                            } else {
                                counts[writer] += 1;
                            }
                            flying[writer] = send(&mut client, writer, counts[writer]);
                        }
                    }
                    for (writer, id) in flying.into_iter().enumerate() {
                        let (failed, _) = client.tool_answer(id);
                        counts[writer] += usize::from(!failed);
                    }
                    assert_eq!(client.finish().code, Some(0));
                    counts
                })
            })
            .into_iter()
            .collect();
        processes
            .into_iter()
            .map(|process| process.join().unwrap())
            .collect()
    });
    let expected: String = done
        .iter()
        .flatten()
        .enumerate()
        .map(|(thread, count)| format!("[{thread}:{count}]\n"))
        .collect();
    assert_eq!(workspace.read("shared.txt"), expected);
    let all: usize = done.iter().flatten().sum();
    assert!(
        all >= THREADS * EDITS,
        "only {all} edits went through: {done:?}"
    );
    assert_eq!(litter(&workspace), Vec::<PathBuf>::new());
}

#[test]
fn a_held_file_answers_busy_with_its_holder_in_half_a_second() {
    let workspace = workspace("//- a.txt\none\n");
    let mut client = classic(&workspace);
    client.json("linux_fs_write", json!({"path": "b.txt", "content": "x"}));
    let locks =
        llmc_host::lease::LeaseTable::open(&workspace.path(".llmc"), Duration::from_secs(60))
            .unwrap();
    let lease = locks
        .acquire(&[workspace.path("a.txt")], "agent-7 (session s)", "a.txt")
        .unwrap();
    for (tool, args) in [
        ("linux_fs_write", json!({"path": "a.txt", "content": "x"})),
        (
            "linux_fs_edit",
            json!({"path": "a.txt", "old_text": "one", "new_text": "x"}),
        ),
        (
            "linux_fs_move",
            json!({"source": "a.txt", "target": "c.txt"}),
        ),
        (
            "linux_fs_move",
            json!({"source": "b.txt", "target": "a.txt"}),
        ),
        ("linux_fs_delete", json!({"path": "a.txt"})),
    ] {
        let started = Instant::now();
        let error = client.error(tool, args.clone());
        let took = started.elapsed();
        let meta = &error["meta"];
        let there = meta["error_code"] == "ALREADY_EXISTS" && args["source"] == "b.txt";
        assert!(
            meta["error_code"] == "RESOURCE_BUSY" || there,
            "{tool}: {error}"
        );
        if !there {
            assert_eq!(meta["holder"], "agent-7 (session s)", "{tool}: {error}");
            assert_eq!(meta["retryable"], true);
            assert!(
                meta["waited_ms"].as_u64().unwrap() <= 5_000,
                "{tool}: {error}"
            );
        }
        assert!(took < Duration::from_secs(10), "{tool}: {took:?}");
    }
    assert_eq!(workspace.read("a.txt"), "one\n");
    // Other files are free meanwhile, and reading is.
    client.json("linux_fs_write", json!({"path": "b.txt", "content": "y"}));
    client.text("read_file", json!({"path": "a.txt"}));
    drop(lease);
    client.json(
        "linux_fs_write",
        json!({"path": "a.txt", "content": "free"}),
    );
}

#[test]
fn a_hung_holder_is_taken_over_after_its_lease_and_cannot_write_late() {
    let workspace = workspace("//- a.txt\none\n");
    let state = workspace.path(".llmc");
    let mut client = classic(&workspace);
    client.json("linux_fs_write", json!({"path": "warm", "content": "x"}));
    let hung = llmc_host::lease::LeaseTable::open(&state, Duration::from_millis(700)).unwrap();
    let lease = hung
        .acquire(&[workspace.path("a.txt")], "hung", "a.txt")
        .unwrap();
    client.assert_code(
        "linux_fs_write",
        json!({"path": "a.txt", "content": "two"}),
        "RESOURCE_BUSY",
    );
    let deadline = Instant::now() + Duration::from_secs(10);
    while client
        .call_tool("linux_fs_write", json!({"path": "a.txt", "content": "two"}))
        .0
    {
        assert!(Instant::now() < deadline, "never taken over");
    }
    assert!(
        lease.commit(|| Ok(())).is_err(),
        "a late holder must not commit"
    );
    assert_eq!(workspace.read("a.txt"), "two");
}

#[test]
fn a_stopped_process_does_not_hold_files_for_ever() {
    let workspace = workspace("//- a.txt\none\n");
    let flags = ["--mode", "classic", "--set", "mcp.locks.lease_s=1"];
    let mut stopped = workspace.mcp(flags);
    stopped.initialize("2025-11-25");
    let mut other = workspace.mcp(flags);
    other.initialize("2025-11-25");
    // Many writes are under way when it is stopped: some lease is likely held.
    for n in 0..200 {
        stopped.send_call(
            "linux_fs_write",
            json!({"path": "a.txt", "content": format!("stopped {n}\n")}),
        );
    }
    stopped.process().signal(Signal::STOP);
    let deadline = Instant::now() + Duration::from_secs(10);
    let write = json!({"path": "a.txt", "content": "other\n"});
    loop {
        let (failed, answer) = other.call_tool("linux_fs_write", write.clone());
        if !failed {
            break;
        }
        assert!(
            Instant::now() < deadline,
            "held by a stopped process: {answer}"
        );
    }
    assert_eq!(workspace.read("a.txt"), "other\n");
    stopped.process().signal(Signal::CONT);
    stopped.process().signal(Signal::KILL);
}

/// A patch that takes a set of files from one version to the next.
fn patch_of_all(from: usize, count: usize) -> String {
    let to = from + 1;
    (0..count)
        .map(|n| format!("--- a/p{n}\n+++ b/p{n}\n@@ -1 +1 @@\n-version {from}\n+version {to}\n"))
        .collect()
}

#[test]
fn a_kill_leaves_a_patch_whole_or_undone() {
    const FILES: usize = 30;
    let workspace = workspace("//- a.txt\nx\n");
    for turn in 0..KILLS {
        for n in 0..FILES {
            workspace.write(format!("p{n}"), "version 0\n");
        }
        let mut client = classic(&workspace);
        client.send_call("repo_write_patch", json!({"patch": patch_of_all(0, FILES)}));
        // The kill strikes after the first files have changed, at another point each time.
        let started = Instant::now();
        let at = (turn * FILES) / KILLS;
        while workspace.read(format!("p{at}")) == "version 0\n" {
            assert!(
                started.elapsed() < Duration::from_secs(20),
                "no patch is applied"
            );
        }
        client.process().signal(Signal::KILL);
        assert_eq!(client.wait().signal, Some(9));
        // The next start takes it back, if it was not complete.
        assert_eq!(classic(&workspace).finish().code, Some(0));
        let versions: std::collections::BTreeSet<String> = (0..FILES)
            .map(|n| workspace.read(format!("p{n}")))
            .collect();
        assert_eq!(versions.len(), 1, "turn {turn}: {versions:?}");
        assert_eq!(litter(&workspace), Vec::<PathBuf>::new());
    }
}
