//! Nothing survives, whatever ends a run.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use llmc_exec::{Confinement, Runner};
use llmc_host::CancelToken;

use crate::world::{World, text};

pub(crate) fn list(add: &mut dyn FnMut(&'static str, fn())) {
    add("a_timeout_ends_the_whole_tree", timeout);
    add("a_cancelled_call_ends_the_whole_tree", cancel);
    add("too_much_output_ends_the_whole_tree", cap);
    add("a_command_that_ends_takes_its_children_along", orphans);
    add("a_panicking_caller_ends_the_whole_tree", panic);
    add("a_killed_server_ends_the_whole_tree", crash);
    add("a_grandchild_that_holds_the_pipe_is_not_waited_for", pipes);
    add("many_runs_leave_nothing_behind", many);
    add("runs_side_by_side", parallel);
    add("helpers_that_die_are_replaced", replaced);
    add("any_timeout_will_do", timeouts);
}

pub(crate) const BOTH: [Confinement; 2] = [Confinement::Auto, Confinement::Off];

/// A file that a stubborn process keeps writing to: proof of life.
pub(crate) fn is_written(file: &Path) -> bool {
    let size = || std::fs::metadata(file).map_or(0, |status| status.len());
    let before = size();
    std::thread::sleep(Duration::from_millis(150));
    size() > before
}

pub(crate) fn wait_until_written(file: &Path) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while std::fs::metadata(file).map_or(0, |status| status.len()) == 0 {
        assert!(
            Instant::now() < deadline,
            "the stubborn process never came to life"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn timeout() {
    for confinement in BOTH {
        let world = World::new();
        let life = world.workspace.join("life");
        let runner = world.runner(confinement);
        let started = Instant::now();
        let argv = ["attack", "double-fork", "life"];
        let ran = world
            .try_run_for(
                &runner,
                &argv,
                Duration::from_secs(1),
                1 << 20,
                &CancelToken::default(),
            )
            .unwrap();
        assert!(started.elapsed() < Duration::from_secs(10), "{ran:?}");
        assert!(ran.finished.timed_out && !ran.finished.cancelled, "{ran:?}");
        assert_eq!(
            (
                ran.finished.status.exit_code(),
                ran.finished.status.signal()
            ),
            (None, None)
        );
        assert!(
            life.exists(),
            "the stubborn process never came to life: {ran:?}"
        );
        assert!(!is_written(&life), "{confinement:?}: something survived");
    }
}

fn cancel() {
    for confinement in BOTH {
        let world = World::new();
        let life = world.workspace.join("life");
        let runner = world.runner(confinement);
        let stop = CancelToken::default();
        let ran = std::thread::scope(|scope| {
            scope.spawn(|| {
                wait_until_written(&life);
                stop.cancel();
            });
            let argv = ["attack", "double-fork", "life"];
            world.try_run_for(&runner, &argv, Duration::from_secs(30), 1 << 20, &stop)
        })
        .unwrap();
        assert!(ran.finished.cancelled && !ran.finished.timed_out, "{ran:?}");
        assert!(ran.finished.duration < Duration::from_secs(12), "{ran:?}");
        assert!(!is_written(&life), "{confinement:?}: something survived");
    }
}

fn cap() {
    for confinement in BOTH {
        let world = World::new();
        let runner = world.runner(confinement);
        let started = Instant::now();
        let limit = 300_000;
        let ran = world
            .try_run_for(
                &runner,
                &["yes"],
                Duration::from_secs(30),
                limit,
                &CancelToken::default(),
            )
            .unwrap();
        assert!(ran.finished.output_capped, "{:?}", ran.finished);
        assert_eq!(ran.out.len() as u64, limit);
        assert!(started.elapsed() < Duration::from_secs(20));
        // Exactly at the limit is not above it.
        let argv = ["sh", "-c", "printf 12345"];
        let ran = world
            .try_run_for(
                &runner,
                &argv,
                Duration::from_secs(30),
                5,
                &CancelToken::default(),
            )
            .unwrap();
        assert!(!ran.finished.output_capped, "{ran:?}");
        assert_eq!(ran.out, "12345");
    }
}

fn orphans() {
    for confinement in BOTH {
        let world = World::new();
        let life = world.workspace.join("life");
        let runner = world.runner(confinement);
        let script = "(setsid sh -c 'trap \"\" TERM; while :; do echo x >> life; sleep 0.01; done' &); \
                      while [ ! -s life ]; do sleep 0.01; done; exit 4";
        let ran = world.run(&runner, &["sh", "-c", script]);
        assert_eq!(ran.finished.status.exit_code(), Some(4), "{ran:?}");
        assert!(!is_written(&life), "{confinement:?}: something survived");
    }
}

fn panic() {
    let world = World::new();
    let life = world.workspace.join("life");
    let runner = world.runner(Confinement::Auto);
    let roots = world.roots();
    let cwd = roots.open_dir(".").unwrap();
    let script = "(setsid sh -c 'while :; do echo x >> life; sleep 0.01; done' &); \
                  while [ ! -s life ]; do sleep 0.01; done; echo now; sleep 100";
    let argv = ["sh", "-c", script].map(str::to_owned);
    let spec = llmc_exec::ExecRequest {
        max_output: 100,
        ..llmc_exec::ExecRequest::new(&argv, &cwd, Duration::from_secs(30))
    };
    let run = std::panic::AssertUnwindSafe(|| {
        runner.run(
            &spec,
            &mut |_, _| std::panic::resume_unwind(Box::new(())),
            &CancelToken::default(),
        )
    });
    assert!(std::panic::catch_unwind(run).is_err());
    assert!(!is_written(&life), "something survived");
}

fn crash() {
    for confinement in ["auto", "off"] {
        let world = World::new();
        let life = world.workspace.join("life");
        let mut server = Command::new(std::env::current_exe().unwrap())
            .args(["__server", &text(&world.base), confinement])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        wait_until_written(&life);
        server.kill().unwrap();
        server.wait().unwrap();
        std::thread::sleep(Duration::from_millis(300));
        assert!(
            !is_written(&life),
            "{confinement}: something survived the server"
        );
    }
}

fn pipes() {
    for confinement in BOTH {
        let world = World::new();
        let runner = world.runner(confinement);
        // The background process keeps standard output open for a hundred seconds.
        let ran = world.run(&runner, &["sh", "-c", "setsid sleep 100 & echo done"]);
        assert_eq!(ran.out, "done\n", "{ran:?}");
        assert!(ran.finished.duration < Duration::from_secs(3), "{ran:?}");
    }
}

fn many() {
    for confinement in BOTH {
        let world = World::new();
        let runner = world.runner(confinement);
        world.run(&runner, &["true"]);
        let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        wait_for_rest(&runner);
        let before = descriptors();
        for n in 0..300 {
            let ran = match n % 10 {
                0 => world.run(
                    &runner,
                    &["sh", "-c", "(setsid sleep 100 &) ; sleep 100 & exit 0"],
                ),
                1 => world
                    .try_run_for(
                        &runner,
                        &["sh", "-c", "trap '' TERM; sleep 100"],
                        Duration::from_millis(20),
                        9,
                        &CancelToken::default(),
                    )
                    .unwrap(),
                _ => world.run(&runner, &["true"]),
            };
            assert!(
                ran.finished.status.exit_code() == Some(0) || n % 10 == 1,
                "{ran:?}"
            );
        }
        wait_for_rest(&runner);
        assert!(!crate::roles::is_alone() || descriptors() == before);
    }
}

/// Waits until no process is left but the helpers that are ready for the next run: the outer one, the broker, and the two
/// it keeps; of a session its first process, the leader, and the two for the next run. Beside other trials one cannot tell
/// whose they are.
pub(crate) fn wait_for_rest(runner: &Runner) {
    let ready = if runner.level().pidns { 4 } else { 0 };
    let with_session = ready + if runner.has_sessions() { 4 } else { 0 };
    let deadline = Instant::now() + Duration::from_secs(10);
    while crate::roles::is_alone() {
        let left = descendants(std::process::id()).len();
        if left == ready || left == with_session {
            break;
        }
        assert!(Instant::now() < deadline, "{left} processes");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The processes below one.
pub(crate) fn descendants(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    let mut found = Vec::new();
    for task in tasks.into_iter().flatten().flatten() {
        let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for pid in children.split_ascii_whitespace() {
            let pid = pid.parse().unwrap();
            found.push(pid);
            found.extend(descendants(pid));
        }
    }
    found
}

fn replaced() {
    let world = World::new();
    let runner = world.runner(Confinement::Auto);
    world.run(&runner, &["true"]);
    // Beside other trials one cannot tell whose they are.
    if crate::roles::is_alone() {
        for pid in descendants(std::process::id()) {
            let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        let ran = world.run(&runner, &["true"]);
        assert_eq!(ran.finished.status.exit_code(), Some(0), "{ran:?}");
    }
}

fn timeouts() {
    let world = World::new();
    let runner = world.runner(Confinement::Auto);
    let run = |timeout| {
        let argv = ["sh", "-c", "sleep 0.1"];
        world
            .try_run_for(&runner, &argv, timeout, 10, &CancelToken::default())
            .unwrap()
    };
    assert!(run(Duration::ZERO).finished.timed_out);
    assert!(run(Duration::from_nanos(1)).finished.timed_out);
    assert_eq!(run(Duration::MAX).finished.status.exit_code(), Some(0));
    let past = CancelToken::with_deadline(Instant::now());
    let ran = world.try_run_for(&runner, &["true"], Duration::from_secs(9), 10, &past);
    assert!(ran.unwrap().finished.timed_out);
}

fn parallel() {
    let world = World::new();
    let runner = world.runner(Confinement::Auto);
    std::thread::scope(|scope| {
        for n in 0..8 {
            let (world, runner) = (&world, &runner);
            scope.spawn(move || {
                for m in 0..10 {
                    let word = format!("{n}-{m}");
                    let ran = world.run(
                        runner,
                        &[
                            "sh",
                            "-c",
                            "echo $0; echo x > ${TMPDIR:-/tmp}/same && cat ${TMPDIR:-/tmp}/same",
                            &word,
                        ],
                    );
                    assert!(ran.out.starts_with(&word), "{ran:?}");
                    assert_eq!(ran.finished.status.exit_code(), Some(0), "{ran:?}");
                }
            });
        }
    });
}
