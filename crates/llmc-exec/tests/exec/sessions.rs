//! Runs of one session: the same processes, terminals, sockets and `/tmp`, and an end for all of them.

use std::time::{Duration, Instant};

use llmc_exec::{
    Confinement, ExecRequest, ExitStatus, Io, Process, ProcessEnd, ProcessOptions, RunOwner, Runner,
};

use crate::endings::wait_until_written;
use crate::world::{World, text};

pub(crate) fn list(add: &mut dyn FnMut(&'static str, fn())) {
    add("runs_of_a_session_see_and_signal_each_other", shared);
    add("what_a_command_leaves_goes_on_and_is_read", left);
    add(
        "a_program_that_ended_before_anybody_waited_has_ended",
        left_early,
    );
    add("the_end_of_a_run_ends_what_is_below_it_alone", ended_alone);
    add("a_run_without_its_first_process_leaves_nothing", orphaned);
    add("the_end_of_a_session_ends_all_of_it", session_end);
    add("a_session_that_was_killed_begins_anew", killed_session);
    add("a_session_has_terminals", terminals);
    add("sessions_are_apart", apart);
}

const LIMIT: Duration = Duration::from_secs(20);

fn owner(session: &str) -> RunOwner<'_> {
    RunOwner {
        principal: "p",
        session,
        ..RunOwner::default()
    }
}

/// Whether runs of a session share their processes here.
fn has_sessions(runner: &Runner) -> bool {
    let level = runner.level();
    level.mountns && level.pidns && level.procfs
}

fn start(world: &World, runner: &Runner, session: &str, line: &str) -> Process {
    let argv = ["sh", "-c", line].map(str::to_owned);
    let roots = world.roots();
    let cwd = roots.open_dir(".").unwrap();
    let spec = ExecRequest {
        owner: owner(session),
        ..ExecRequest::new(&argv, &cwd, Duration::MAX)
    };
    let options = ProcessOptions {
        io: Io::NoInput,
        idle: LIMIT,
        keep: 1 << 20,
    };
    runner.spawn(&spec, options).unwrap()
}

/// Waits until the program has ended, with or without what it has started: its exit code and output.
fn finish(process: &Process) -> (Option<i32>, String) {
    let status = command_end(process).and_then(ExitStatus::exit_code);
    (status, output(process))
}

fn command_end(process: &Process) -> Option<ExitStatus> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let end = process
            .ending()
            .or_else(|| process.left_by())
            .map(|end| end.status);
        if end.is_some() || Instant::now() > deadline {
            return end;
        }
        process.wait(u64::MAX, Duration::from_millis(20));
    }
}

fn output(process: &Process) -> String {
    String::from_utf8_lossy(&process.look(0, 1 << 20).bytes).into_owned()
}

fn sh(world: &World, runner: &Runner, session: &str, line: &str) -> (Option<i32>, String) {
    finish(&start(world, runner, session, line))
}

fn shared() {
    let world = World::new();
    let runner = world.runner(Confinement::Auto);
    if !has_sessions(&runner) {
        return;
    }
    let server = start(
        &world,
        &runner,
        "s",
        "trap 'echo stopped > stopped; exit 0' TERM; echo $$ > pid; while :; do sleep 0.05; done",
    );
    wait_until_written(&world.workspace.join("pid"));
    let (code, seen) = sh(
        &world,
        &runner,
        "s",
        "cat /proc/$(cat pid)/cmdline | tr '\\0' ' '; readlink /proc/$(cat pid)/cwd",
    );
    assert!(code == Some(0) && seen.contains("trap"), "{code:?} {seen}");
    assert!(seen.contains(&text(&world.workspace)), "{seen}");
    // What `lsof` reads.
    let (code, fds) = sh(&world, &runner, "s", "ls -l /proc/$(cat pid)/fd");
    assert!(
        code == Some(0) && fds.contains("/dev/null"),
        "{code:?} {fds}"
    );
    assert_eq!(sh(&world, &runner, "s", "kill $(cat pid)").0, Some(0));
    let end = server.wait_end(LIMIT).unwrap();
    assert_eq!(end.status.exit_code(), Some(0), "{end:?}");
    assert!(world.workspace.join("stopped").exists());
    let (_, tmp) = sh(
        &world,
        &runner,
        "s",
        "echo x > /tmp/kept; echo y > /dev/shm/kept",
    );
    assert_eq!(tmp, "");
    assert_eq!(
        sh(&world, &runner, "s", "cat /tmp/kept /dev/shm/kept").1,
        "x\ny\n"
    );
}

fn left_early() {
    let world = World::new();
    let runner = world.runner(Confinement::Auto);
    if !has_sessions(&runner) {
        return;
    }
    let process = start(&world, &runner, "s", "sleep 1000 & exit 3");
    assert_eq!(
        command_end(&process).and_then(ExitStatus::exit_code),
        Some(3)
    );
    let first = process
        .wait_untold(LIMIT)
        .and_then(|end| end.status.exit_code());
    assert_eq!(first, Some(3));
    let next = process.wait_untold(Duration::from_millis(1));
    assert!(next.is_none(), "what is left goes on: {next:?}");
    process.end();
    assert!(process.wait_untold(LIMIT).is_some());
}

fn left() {
    let world = World::new();
    let runner = world.runner(Confinement::Auto);
    if !has_sessions(&runner) {
        return;
    }
    let line = "(while [ ! -e go ]; do sleep 0.05; done; echo later; echo late > late) & echo $! > pid; echo first; exit 3";
    let process = start(&world, &runner, "s", line);
    assert_eq!(finish(&process), (Some(3), "first\n".to_owned()));
    assert!(process.ending().is_none(), "something goes on");
    assert_eq!(
        sh(&world, &runner, "s", "kill -0 $(cat pid) && touch go").0,
        Some(0)
    );
    let end: ProcessEnd = process.wait_end(LIMIT).unwrap();
    assert_eq!(end.status.exit_code(), Some(3), "{end:?}");
    assert_eq!(output(&process), "first\nlater\n");
    assert!(world.workspace.join("late").exists());
    // In a session of its own and without a pipe, as daemons do it.
    let line =
        "setsid sh -c 'echo $$ > daemon; exec sleep 1000' </dev/null >/dev/null 2>&1 & sleep 0.2";
    let process = start(&world, &runner, "s", line);
    assert_eq!(finish(&process).0, Some(0));
    wait_until_written(&world.workspace.join("daemon"));
    assert_eq!(sh(&world, &runner, "s", "kill $(cat daemon)").0, Some(0));
    assert!(process.wait_end(LIMIT).is_some());
}

fn ended_alone() {
    let world = World::new();
    let runner = world.runner(Confinement::Auto);
    if !has_sessions(&runner) {
        return;
    }
    let other = start(&world, &runner, "s", "echo $$ > other; exec sleep 1000");
    wait_until_written(&world.workspace.join("other"));
    let line = "setsid sh -c 'trap \"\" TERM INT HUP; echo $$ > below; while :; do sleep 0.05; done' & echo $$ > top; wait";
    let process = start(&world, &runner, "s", line);
    wait_until_written(&world.workspace.join("below"));
    drop(process);
    let look = "kill -0 $(cat below) 2>/dev/null && echo below; kill -0 $(cat other) && echo other";
    assert_eq!(sh(&world, &runner, "s", look).1, "other\n");
    other.end();
    assert!(other.wait_end(LIMIT).is_some());
}

fn orphaned() {
    let world = World::new();
    let runner = world.runner(Confinement::Auto);
    if !has_sessions(&runner) {
        return;
    }
    let _other = start(&world, &runner, "s", "echo $$ > other; exec sleep 1000");
    wait_until_written(&world.workspace.join("other"));
    let line = "setsid sh -c 'echo $$ > below; while :; do sleep 0.05; done' & while [ ! -s below ]; do sleep 0.02; done; kill -9 $PPID; sleep 1000";
    let process = start(&world, &runner, "s", line);
    let end = process.wait_end(LIMIT).unwrap();
    assert!(!end.status.is_success(), "{end:?}");
    let look = "until ! kill -0 $(cat below) 2>/dev/null; do sleep 0.02; done; kill -0 $(cat other) && echo other";
    assert_eq!(
        sh(&world, &runner, "s", look),
        (Some(0), "other\n".to_owned())
    );
}

fn session_end() {
    let world = World::new();
    let runner = world.runner(Confinement::Auto);
    if !has_sessions(&runner) {
        return;
    }
    // A length of sleep that no other process has.
    let mark = format!("1000.{}", std::process::id());
    let line = format!(
        "for n in 1 2 3; do setsid sleep {mark} </dev/null >/dev/null 2>&1 & done; echo up > up"
    );
    let process = start(&world, &runner, "s", &line);
    assert_eq!(finish(&process).0, Some(0));
    wait_for_processes(&mark, 3);
    runner.sessions().end("p", "s");
    assert!(process.wait_end(LIMIT).is_some());
    wait_for_processes(&mark, 0);
}

/// Waits until so many processes of the host have a word among their arguments.
fn wait_for_processes(word: &str, count: usize) {
    let deadline = Instant::now() + LIMIT;
    loop {
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
        let found = lines.filter(|line| {
            line.split(|byte| *byte == 0)
                .any(|arg| arg == word.as_bytes())
        });
        let found = found.count();
        if found == count {
            return;
        }
        assert!(Instant::now() < deadline, "{found} of {count} processes");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn killed_session() {
    let world = World::new();
    let runner = world.runner(Confinement::Auto);
    if !has_sessions(&runner) {
        return;
    }
    // Everything that a command may signal, the helpers of its own run included; not before the server knows the process.
    let signalling = |signal: &str| {
        let go = world.workspace.join(format!("go{signal}"));
        let line =
            format!("until [ -e go{signal} ]; do sleep 0.01; done; kill {signal} -1; sleep 1000");
        let process = start(&world, &runner, "s", &line);
        std::fs::write(go, "").unwrap();
        process
    };
    let process = signalling("-9");
    assert!(process.wait_end(LIMIT).is_some());
    assert_eq!(sh(&world, &runner, "s", "echo again").1, "again\n");
    let process = signalling("-STOP");
    let stopped = Instant::now();
    drop(process);
    assert!(stopped.elapsed() < 3 * LIMIT, "{:?}", stopped.elapsed());
    assert_eq!(sh(&world, &runner, "s", "echo and again").1, "and again\n");
}

fn terminals() {
    let world = World::new();
    let mut settings = world.settings(Confinement::Auto);
    settings.allowlist = vec!["*".to_owned()];
    let runner = Runner::open(settings).unwrap();
    if !has_sessions(&runner) {
        return;
    }
    let line = "python3 -c 'import os, pty; m, s = pty.openpty(); print(os.ttyname(s)); os.write(s, b\"x\"); print(os.read(m, 1))'";
    let (code, out) = sh(&world, &runner, "s", line);
    assert!(
        code == Some(0) && out.starts_with("/dev/pts/"),
        "{code:?} {out}"
    );
}

fn apart() {
    let world = World::new();
    let runner = world.runner(Confinement::Auto);
    if !has_sessions(&runner) {
        return;
    }
    let process = start(
        &world,
        &runner,
        "one",
        "echo $$ > pid; echo x > /tmp/one; exec sleep 1000",
    );
    wait_until_written(&world.workspace.join("pid"));
    let look = "kill -0 $(cat pid) 2>/dev/null && tr '\\0' ' ' < /proc/$(cat pid)/cmdline; cat /tmp/one 2>/dev/null; echo end";
    let (_, seen) = sh(&world, &runner, "two", look);
    assert!(
        !seen.contains("sleep 1000") && seen.ends_with("end\n"),
        "{seen}"
    );
    assert!(!seen.contains('x'), "{seen}");
    drop(process);
}
