//! Programs that outlive the call that started them.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use llmc_exec::{
    Confinement, Error, ExecRequest, Io, NotKilled, Process, ProcessOptions, Protection, Result,
    Runner, find_signal_target,
};
use llmc_host::CancelToken;

use crate::endings::{BOTH, descendants, is_written, wait_for_rest, wait_until_written};
use crate::world::{OWNER, World, text};

pub(crate) fn list(add: &mut dyn FnMut(&'static str, fn())) {
    add("a_process_reads_and_writes_through_pipes", pipes);
    add("a_process_has_a_terminal_of_its_own", terminal);
    add("keys_typed_on_a_terminal_are_signals", keys);
    add("a_terminal_refuses_a_line_that_it_would_cut", long_line);
    add("only_the_last_output_is_kept_under_its_numbers", ring);
    add("a_process_that_does_not_read_blocks_no_call", full);
    add("a_stubborn_tree_is_stopped", stubborn);
    add("dropping_a_process_ends_it", dropped);
    add("a_killed_server_ends_its_processes", crash);
    add("an_idle_process_is_ended", idle);
    add("what_a_process_plants_never_lasts_on_the_host", planted);
    add("the_host_knows_a_process_by_its_number", numbers);
    add("only_one_s_own_processes_are_aimed_at", aims);
    add("a_program_that_cannot_start_is_an_error", unstartable);
    add("many_processes_leave_nothing_behind", many);
    add("commands_start_without_blocked_signals", mask);
    add("a_process_gets_three_descriptors", descriptors);
}

const PROCESS_TIMEOUT: Duration = Duration::from_secs(15);
const PIPES: ProcessOptions = ProcessOptions {
    io: Io::Pipes,
    idle: PROCESS_TIMEOUT,
    keep: 1 << 20,
};
const TERMINAL: ProcessOptions = ProcessOptions {
    io: Io::Terminal,
    ..PIPES
};

fn try_start(
    world: &World,
    runner: &Runner,
    argv: &[&str],
    manner: ProcessOptions,
) -> Result<Process> {
    let argv: Vec<String> = argv.iter().map(|&word| word.to_owned()).collect();
    let roots = world.roots();
    let cwd = roots.open_dir(".").unwrap();
    let spec = ExecRequest {
        owner: OWNER,
        ..ExecRequest::new(&argv, &cwd, Duration::MAX)
    };
    runner.spawn(&spec, manner)
}

fn start(world: &World, runner: &Runner, argv: &[&str], manner: ProcessOptions) -> Process {
    try_start(world, runner, argv, manner).unwrap()
}

fn sh(world: &World, runner: &Runner, script: &str, manner: ProcessOptions) -> Process {
    start(world, runner, &["sh", "-c", script], manner)
}

fn send(process: &Process, input: &str) {
    let sent = process.send(input.as_bytes(), PROCESS_TIMEOUT, &CancelToken::default());
    let sent = sent.unwrap();
    assert!(sent.open && sent.bytes == input.len(), "{sent:?}");
}

/// All output so far, once it holds this.
fn until(process: &Process, wanted: &str) -> String {
    let deadline = Instant::now() + PROCESS_TIMEOUT;
    loop {
        let seen = process.look(0, 1 << 20);
        let text = String::from_utf8_lossy(&seen.bytes).into_owned();
        if text.contains(wanted) {
            return text;
        }
        assert!(seen.ending.is_none(), "{wanted:?}: {text:?} {seen:?}");
        assert!(Instant::now() < deadline, "{wanted:?}: {text:?}");
        process.wait(seen.end, Duration::from_millis(100));
    }
}

fn pipes() {
    for confinement in BOTH {
        let world = World::new();
        let runner = world.runner(confinement);
        let script = "echo one; echo two >&2; echo three; test -t 0 || echo none; cat; exit 7";
        let process = sh(&world, &runner, script, PIPES);
        assert_eq!(
            until(&process, "none\n"),
            "one\ntwo\nthree\nnone\n",
            "both outputs in their order"
        );
        send(&process, "hello\n");
        until(&process, "hello\n");
        assert!(process.ending().is_none());
        assert!(
            process
                .close_input(PROCESS_TIMEOUT, &CancelToken::default())
                .unwrap()
                .open
        );
        let ending = process.wait_end(PROCESS_TIMEOUT).unwrap();
        assert_eq!(
            (ending.status.exit_code(), ending.status.signal()),
            (Some(7), None)
        );
        // What it said can still be read, byte by byte, and no more can be said to it.
        let seen = process.look(3, 5);
        assert_eq!((&seen.bytes[..], seen.offset), (&b"\ntwo\n"[..], 3));
        let sent = process
            .send(b"x", PROCESS_TIMEOUT, &CancelToken::default())
            .unwrap();
        assert!(!sent.open && sent.bytes == 0, "{sent:?}");
        assert!(
            !process
                .close_input(PROCESS_TIMEOUT, &CancelToken::default())
                .unwrap()
                .open
        );
    }
}

fn terminal() {
    for confinement in BOTH {
        let world = World::new();
        let runner = world.runner(confinement);
        let script = "test -t 0 && test -t 1 && test -t 2 && echo all three; stty size; \
                      echo ready; read x; echo got $x > /dev/tty; cat; echo end";
        let process = sh(&world, &runner, script, TERMINAL);
        assert_eq!(until(&process, "ready\n"), "all three\n40 120\nready\n");
        send(&process, "wörd\n");
        let text = until(&process, "got");
        assert!(
            !text.contains("wörd\nwörd") && !text.contains('\r'),
            "{text:?}"
        );
        until(&process, "got wörd\n");
        assert!(
            process
                .close_input(PROCESS_TIMEOUT, &CancelToken::default())
                .unwrap()
                .open
        );
        let ending = process.wait_end(PROCESS_TIMEOUT).unwrap();
        assert_eq!(ending.status.exit_code(), Some(0));
        assert!(until(&process, "end").ends_with("got wörd\nend\n"));
    }
}

fn keys() {
    for confinement in BOTH {
        let world = World::new();
        let runner = world.runner(confinement);
        let script = "trap 'echo caught; exit 3' INT; echo ready; while :; do sleep 0.02; done";
        let process = sh(&world, &runner, script, TERMINAL);
        until(&process, "ready\n");
        send(&process, "\u{3}");
        let ending = process.wait_end(PROCESS_TIMEOUT).unwrap();
        assert_eq!(
            ending.status.exit_code(),
            Some(3),
            "{confinement:?}: {ending:?}"
        );
        until(&process, "caught\n");
        // A stop key stops no process: none could be continued.
        let process = start(&world, &runner, &["cat"], TERMINAL);
        send(&process, "a\n\u{1a}b\n");
        until(&process, "b\n");
    }
}

fn long_line() {
    let world = World::new();
    let runner = world.runner(Confinement::Auto);
    let process = start(&world, &runner, &["cat"], TERMINAL);
    let line = "x".repeat(4095);
    send(&process, &format!("{line}\n{line}\n"));
    until(&process, &format!("{line}\n{line}\n"));
    let error = process.send(
        format!("{line}x\n").as_bytes(),
        PROCESS_TIMEOUT,
        &CancelToken::default(),
    );
    let error = error.unwrap_err().to_string();
    assert!(error.contains("4095") && error.contains("pty"), "{error}");
    // A pipe takes anything.
    let process = start(&world, &runner, &["cat"], PIPES);
    let line = "x".repeat(500_000);
    send(&process, &line);
    until(&process, &line);
}

fn ring() {
    let world = World::new();
    let runner = world.runner(Confinement::Auto);
    let manner = ProcessOptions {
        keep: 1000,
        ..PIPES
    };
    let script = "i=1000; while [ $i -lt 3000 ]; do echo $i; i=$((i+1)); done";
    let process = sh(&world, &runner, script, manner);
    process.wait_end(PROCESS_TIMEOUT).unwrap();
    let seen = process.look(0, 1 << 20);
    assert_eq!((seen.offset, seen.end), (9000, 10_000));
    let text = String::from_utf8(seen.bytes).unwrap();
    assert!(
        text.starts_with("2800\n2801\n") && text.ends_with("2999\n"),
        "{text}"
    );
    let seen = process.look(9995, 3);
    assert_eq!((&seen.bytes[..], seen.offset), (&b"299"[..], 9995));
    let seen = process.look(u64::MAX, 3);
    assert!(seen.bytes.is_empty() && seen.offset == 10_000, "{seen:?}");
    // A flood does not take the machine, and the process can still be stopped.
    let process = start(&world, &runner, &["yes"], manner);
    until(&process, "y\n");
    let ending = process.stop(&[15], PROCESS_TIMEOUT).unwrap();
    assert_eq!(ending.status.signal(), Some(15));
}

fn full() {
    for manner in [PIPES, TERMINAL] {
        let world = World::new();
        let runner = world.runner(Confinement::Auto);
        let process = sh(&world, &runner, "echo ready; exec sleep 1000", manner);
        until(&process, "ready");
        let much = "line\n".repeat(200_000);
        let patience = Duration::from_millis(200);
        let sent = process.send(much.as_bytes(), patience, &CancelToken::default());
        let sent = sent.unwrap();
        assert!(sent.open, "{sent:?}");
        assert!(sent.bytes > 0 && sent.bytes < much.len(), "{sent:?}");
        let stop = CancelToken::default();
        stop.cancel();
        let started = Instant::now();
        let again = process
            .send(much.as_bytes(), PROCESS_TIMEOUT, &stop)
            .unwrap();
        assert!(again.bytes < much.len());
        assert!(
            started.elapsed() < PROCESS_TIMEOUT,
            "a caller who goes is let go"
        );
    }
}

fn stubborn() {
    for confinement in BOTH {
        for manner in [PIPES, TERMINAL] {
            let world = World::new();
            let life = world.workspace.join("life");
            let runner = world.runner(confinement);
            let script = "trap '' TERM HUP; (setsid sh -c 'trap \"\" TERM HUP; \
                          while :; do echo x >> life; sleep 0.01; done' &); echo ready; \
                          while :; do sleep 0.01; done";
            let process = sh(&world, &runner, script, manner);
            until(&process, "ready");
            wait_until_written(&life);
            let ending = process.stop(&[15], Duration::from_millis(100)).unwrap();
            assert_eq!(
                (ending.status.exit_code(), ending.status.signal()),
                (None, Some(9))
            );
            assert!(!is_written(&life), "{confinement:?}: something survived");
            // One that listens says how it ended, and takes its children along.
            let script = "trap 'echo bye; exit 5' TERM; (setsid sh -c 'trap \"\" TERM; \
                          while :; do echo x >> second; sleep 0.01; done' &); echo ready; \
                          while :; do sleep 0.01; done";
            let process = sh(&world, &runner, script, manner);
            until(&process, "ready");
            let second = world.workspace.join("second");
            wait_until_written(&second);
            let ending = process.stop(&[15], PROCESS_TIMEOUT).unwrap();
            assert_eq!(
                (ending.status.exit_code(), ending.status.signal()),
                (Some(5), None)
            );
            until(&process, "bye");
            assert!(!is_written(&second), "{confinement:?}: something survived");
        }
    }
}

fn dropped() {
    for confinement in BOTH {
        for manner in [PIPES, TERMINAL] {
            let world = World::new();
            let life = world.workspace.join("life");
            let runner = world.runner(confinement);
            let process = start(&world, &runner, &["attack", "double-fork", "life"], manner);
            wait_until_written(&life);
            drop(process);
            assert!(!is_written(&life), "{confinement:?}: something survived");
        }
    }
}

/// What a server does that is to be killed: it keeps two stubborn processes.
pub(crate) fn keep(world: &World, confinement: Confinement) {
    let runner = world.runner(confinement);
    let argv = ["attack", "double-fork", "life"];
    let first = start(world, &runner, &argv, PIPES);
    let argv = ["attack", "double-fork", "second"];
    let second = start(world, &runner, &argv, TERMINAL);
    for process in [first, second] {
        process.wait_end(Duration::from_secs(60));
    }
}

fn crash() {
    for confinement in ["auto", "off"] {
        let world = World::new();
        let mut server = Command::new(std::env::current_exe().unwrap())
            .args(["__keeper", &text(&world.base), confinement])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let files = ["life", "second"].map(|name| world.workspace.join(name));
        files.iter().for_each(|file| wait_until_written(file));
        server.kill().unwrap();
        server.wait().unwrap();
        let deadline = Instant::now() + PROCESS_TIMEOUT;
        while files.iter().any(|file| is_written(file)) {
            assert!(
                Instant::now() < deadline,
                "{confinement}: something survived the server"
            );
        }
    }
}

fn idle() {
    let world = World::new();
    let runner = world.runner(Confinement::Auto);
    let manner = ProcessOptions {
        idle: Duration::from_millis(300),
        ..PIPES
    };
    // One that prints is not idle, however long its output is unread.
    let script = "for i in 1 2 3 4 5 6 7 8 9 10; do echo $i; sleep 0.1; done; exit 4";
    let process = sh(&world, &runner, script, manner);
    let ending = process.wait_end(PROCESS_TIMEOUT).unwrap();
    assert_eq!((ending.status.exit_code(), ending.idle), (Some(4), false));
    // One that is read is not idle either; once reading stops, it is.
    let process = sh(&world, &runner, "read x; sleep 1000", manner);
    let watched = Instant::now();
    while watched.elapsed() < Duration::from_secs(1) {
        process.wait(0, Duration::from_millis(50));
    }
    assert!(process.ending().is_none());
    let ending = process.wait_end(PROCESS_TIMEOUT).unwrap();
    assert!(
        ending.idle && ending.status.signal() == Some(9),
        "{ending:?}"
    );
}

fn planted() {
    for manner in [PIPES, TERMINAL] {
        let world = World::new();
        let runner = world.runner(Confinement::Auto);
        let file = world.workspace.join(".git/config.worktree");
        let is_there = || std::fs::read_to_string(&file).is_ok_and(|text| text.contains("evil"));
        let script = "printf '[user]\\n\\tname = a\\n[core]\\n\\tfsmonitor = ./evil\\n' > .git/config.worktree
                      echo ready; read line";
        let process = sh(&world, &runner, script, manner);
        until(&process, "ready");
        assert_eq!(is_there(), !runner.level().mountns);
        process.stop(&[9], PROCESS_TIMEOUT).unwrap();
        let ending = process.ending().unwrap();
        if runner.level().protected != Protection::None {
            let left_out = ending.quarantined.iter();
            let left_out: Vec<(&Path, &str)> = left_out
                .map(|one| (&*one.path, one.rejected.as_ref().unwrap().item.as_str()))
                .collect();
            assert_eq!(left_out, [(file.as_path(), "core.fsmonitor")]);
            assert!(!is_there(), "still there");
            let text = std::fs::read_to_string(&file).unwrap();
            assert!(text.contains("name = a"), "{text}");
        }
    }
}

fn numbers() {
    for confinement in BOTH {
        let world = World::new();
        let runner = world.runner(confinement);
        let argv = ["sh", "-c", "echo ready; read x", "by-this-name"];
        let process = start(&world, &runner, &argv, PIPES);
        until(&process, "ready");
        let line = std::fs::read(format!("/proc/{}/cmdline", process.pid())).unwrap();
        let line = String::from_utf8_lossy(&line).into_owned();
        assert!(line.contains("by-this-name"), "{line:?}");
        let below = descendants(u32::try_from(process.helper().unwrap()).unwrap());
        assert!(below.contains(&u32::try_from(process.pid()).unwrap()));
        // Even one that ends at once.
        for _ in 0..20 {
            let process = start(&world, &runner, &["true"], PIPES);
            assert!(process.pid() > 1 && process.helper().is_some());
            assert_eq!(
                process
                    .wait_end(PROCESS_TIMEOUT)
                    .unwrap()
                    .status
                    .exit_code(),
                Some(0)
            );
        }
    }
}

fn aims() {
    for confinement in BOTH {
        let world = World::new();
        let runner = world.runner(confinement);
        let ready = "echo ready; while :; do sleep 0.01; done";
        let (mine, other) = (
            sh(&world, &runner, ready, PIPES),
            sh(&world, &runner, ready, TERMINAL),
        );
        until(&mine, "ready");
        until(&other, "ready");
        let helpers = [mine.helper().unwrap()];
        let at = |pid: i32, strangers| find_signal_target(pid.into(), &helpers, strangers);
        assert_eq!(at(other.pid(), true).unwrap_err(), NotKilled::NotYours);
        assert_eq!(at(helpers[0], true).unwrap_err(), NotKilled::NotYours);
        at(mine.pid(), false).unwrap().fire(15).unwrap();
        assert_eq!(
            mine.wait_end(PROCESS_TIMEOUT).unwrap().status.signal(),
            Some(15)
        );
        assert_eq!(at(mine.pid(), true).unwrap_err(), NotKilled::Gone);
        assert!(other.ending().is_none());
    }
    // A process of the same user that the server did not start, and one of another user.
    let mut host_process = HostProcess::start("sleep", None);
    let pid = host_process.pid();
    assert_eq!(
        find_signal_target(pid, &[], true).unwrap_err(),
        NotKilled::NotYours
    );
    host_process.end();
    // An orphan that the server did not start.
    let orphan = Command::new("sh")
        .args(["-c", "sleep 1000 >&2 & echo $!"])
        .stderr(Stdio::null())
        .output()
        .unwrap();
    let pid: i64 = String::from_utf8(orphan.stdout)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    assert_eq!(
        find_signal_target(pid, &[], false).unwrap_err(),
        NotKilled::HostProcess
    );
    find_signal_target(pid, &[], true).unwrap().fire(9).unwrap();
    if rustix::process::geteuid().is_root() {
        let host_process = HostProcess::start("sleep", Some(65534));
        let why = find_signal_target(host_process.pid(), &[], true).unwrap_err();
        assert_eq!(why, NotKilled::OtherUser);
    }
}

/// A child of this test that no runner knows.
struct HostProcess(std::process::Child);

impl HostProcess {
    fn start(program: &str, user: Option<u32>) -> HostProcess {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new(program);
        command.arg("1000");
        if let Some(user) = user {
            command.uid(user);
        }
        HostProcess(command.spawn().unwrap())
    }

    fn pid(&self) -> i64 {
        self.0.id().into()
    }

    fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for HostProcess {
    fn drop(&mut self) {
        self.end();
    }
}

fn unstartable() {
    for confinement in BOTH {
        for manner in [PIPES, TERMINAL] {
            let world = World::new();
            let broken = world.bin.join("broken");
            std::fs::write(&broken, "#!/no/such/interpreter\n").unwrap();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(&broken, mode).unwrap();
            let mut settings = world.settings(confinement);
            settings.allowlist.push("broken".to_owned());
            let runner = Runner::open(settings).unwrap();
            for argv in [&["broken"][..], &["unknown"], &[], &["cat", "a\0b"]] {
                let error = try_start(&world, &runner, argv, manner).unwrap_err();
                let known = matches!(
                    error,
                    Error::NotExecutable { .. }
                        | Error::CommandDenied { .. }
                        | Error::BadRequest(_)
                );
                assert!(known, "{argv:?}: {error:?}");
            }
            // And the next one runs.
            let process = start(&world, &runner, &["true"], manner);
            assert_eq!(
                process
                    .wait_end(PROCESS_TIMEOUT)
                    .unwrap()
                    .status
                    .exit_code(),
                Some(0)
            );
        }
    }
}

fn many() {
    for confinement in BOTH {
        let world = World::new();
        let runner = world.runner(confinement);
        drop(start(&world, &runner, &["true"], TERMINAL));
        let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
        let count = || (descriptors(), threads());
        wait_for_rest(&runner);
        let before = count();
        for n in 0..60 {
            let manner = if n % 2 == 0 { PIPES } else { TERMINAL };
            let processes =
                ["true", "cat", "yes"].map(|program| start(&world, &runner, &[program], manner));
            processes[0].wait_end(PROCESS_TIMEOUT).unwrap();
        }
        wait_for_rest(&runner);
        let deadline = Instant::now() + PROCESS_TIMEOUT;
        let more = || count().0 > before.0 || count().1 > before.1;
        while crate::roles::is_alone() && more() {
            assert!(Instant::now() < deadline, "{before:?} {:?}", count());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn descriptors() {
    for confinement in BOTH {
        for manner in [PIPES, TERMINAL] {
            let world = World::new();
            let runner = world.runner(confinement);
            let process = start(&world, &runner, &["attack", "descriptors"], manner);
            // 3 is the listing itself.
            assert_eq!(until(&process, "\n"), "0 1 2 3\n", "{confinement:?}");
        }
    }
}

fn mask() {
    for confinement in BOTH {
        let world = World::new();
        let runner = world.runner(confinement);
        let script = "while read name value; do case $name in SigBlk:) echo $value;; esac; done \
                      < /proc/self/status";
        let ran = world.run(&runner, &["sh", "-c", script]);
        assert_eq!(ran.out.trim().trim_matches('0'), "", "{ran:?}");
        for manner in [PIPES, TERMINAL] {
            let process = sh(&world, &runner, script, manner);
            process.wait_end(PROCESS_TIMEOUT).unwrap();
            let text = until(&process, "\n");
            assert_eq!(text.trim().trim_matches('0'), "", "{text:?}");
        }
    }
}
