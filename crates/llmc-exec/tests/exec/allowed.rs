//! What the user allows while a runner is open.

use std::io::Write;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

use llmc_exec::{
    Confinement, ExecRequest, Io, Process, ProcessOptions, Profile, RunAllowances, Runner, Settings,
};
use llmc_host::CancelToken;

use crate::world::World;

const PROCESS_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) fn list(add: &mut dyn FnMut(&'static str, fn())) {
    add(
        "allowed_places_are_written_until_they_are_taken_back",
        written,
    );
    add("a_repository_in_an_allowed_place_is_guarded", guarded);
    add("what_is_hidden_or_covered_is_shown_when_named", shown);
    add("an_allowed_socket_is_reached", socket);
    add("a_process_keeps_what_it_was_started_with", kept);
    add("the_restricted_profile_is_allowed_nothing_more", restricted);
}

fn settings(world: &World) -> Settings {
    Settings {
        allowlist: vec!["*".to_owned()],
        local_sockets: true,
        ..world.settings(Confinement::Auto)
    }
}

fn writes(path: &Path) -> RunAllowances {
    RunAllowances {
        write: vec![path.to_owned()],
        ..RunAllowances::default()
    }
}

/// Whether a shell line succeeds.
fn succeeds(world: &World, runner: &Runner, line: &str) -> bool {
    let ran = world.run(runner, &["sh", "-c", line]);
    ran.finished.status.is_success()
}

/// Whether this machine keeps commands from writing elsewhere at all.
fn is_bounded(runner: &Runner) -> bool {
    runner.level().mountns || runner.level().landlock.is_some()
}

fn written() {
    let world = World::new();
    let runner = Runner::open(settings(&world)).unwrap();
    let dir = world.outside.join("dir");
    let file = world.outside.join("outside.txt");
    let into_dir = format!("echo x > {}/new", dir.display());
    let into_file = format!("echo y >> {}", file.display());
    let tries = || {
        let one = succeeds(&world, &runner, &into_dir);
        let other = succeeds(&world, &runner, &into_file);
        (one, other)
    };
    let refused = !is_bounded(&runner);
    assert_eq!(tries(), (refused, refused));
    runner.set_allowances(writes(&dir));
    assert_eq!(tries(), (true, refused));
    assert_eq!(std::fs::read_to_string(dir.join("new")).unwrap(), "x\n");
    runner.set_allowances(writes(&file));
    assert_eq!(tries(), (refused, true));
    assert!(std::fs::read_to_string(&file).unwrap().ends_with("y\n"));
    // Another place under the name of the one that was allowed.
    runner.set_allowances(writes(&dir));
    std::fs::rename(&dir, world.outside.join("moved")).unwrap();
    let other = world.outside.join("other");
    std::fs::create_dir(&other).unwrap();
    std::os::unix::fs::symlink(&other, &dir).unwrap();
    assert_eq!(tries(), (refused, refused));
    // The same place again.
    std::fs::remove_file(&dir).unwrap();
    std::fs::rename(world.outside.join("moved"), &dir).unwrap();
    assert_eq!(tries(), (true, refused));
    runner.set_allowances(RunAllowances::default());
    assert_eq!(tries(), (refused, refused));
}

fn guarded() {
    let world = World::new();
    let runner = Runner::open(settings(&world)).unwrap();
    let repository = world.outside.join("repository");
    for dir in ["hooks", "objects", "refs"] {
        std::fs::create_dir_all(repository.join(".git").join(dir)).unwrap();
    }
    std::fs::write(repository.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
    runner.set_allowances(writes(&repository));
    let line = format!(
        "cd {} && echo text > file && echo '#!/bin/sh' > .git/hooks/pre-commit && chmod +x .git/hooks/pre-commit",
        repository.display()
    );
    world.run(&runner, &["sh", "-c", &line]);
    if is_bounded(&runner) {
        assert!(repository.join("file").exists());
        assert!(!repository.join(".git/hooks/pre-commit").exists());
    }
}

fn shown() {
    let world = World::new();
    let secret = world.outside.join("secret");
    std::fs::create_dir(&secret).unwrap();
    std::fs::write(secret.join("key"), "KEY\n").unwrap();
    std::fs::write(secret.join("other"), "OTHER\n").unwrap();
    let covered = tempfile::Builder::new().tempdir_in("/tmp").unwrap();
    std::fs::write(covered.path().join("note"), "NOTE\n").unwrap();
    let runner = Runner::open(Settings {
        hidden: vec![secret.display().to_string()],
        ..settings(&world)
    })
    .unwrap();
    if !runner.level().mountns {
        return;
    }
    let read = |path: &Path| {
        let path = path.display().to_string();
        world.run(&runner, &["cat", &path]).out
    };
    let (key, other) = (secret.join("key"), secret.join("other"));
    let note = covered.path().join("note");
    let all = || [read(&key), read(&other), read(&note)];
    assert_eq!(all(), ["", "", ""]);
    let allow = |places: &[&Path]| {
        runner.set_allowances(RunAllowances {
            read: places.iter().map(|place| place.to_path_buf()).collect(),
            ..RunAllowances::default()
        });
    };
    allow(&[&key]);
    assert_eq!(all(), ["KEY\n", "", ""], "one file of a hidden folder");
    allow(&[&secret, &note]);
    assert_eq!(all(), ["KEY\n", "OTHER\n", "NOTE\n"]);
    let line = format!("echo x > {} || echo x > {}", key.display(), note.display());
    assert!(!succeeds(&world, &runner, &line), "they stay read-only");
    allow(&[covered.path()]);
    assert_eq!(all(), ["", "", "NOTE\n"]);
    // What may be written may be read.
    runner.set_allowances(writes(&secret));
    assert_eq!(all(), ["KEY\n", "OTHER\n", ""]);
    let line = format!("echo x > {}/new", secret.display());
    assert!(succeeds(&world, &runner, &line));
    assert!(secret.join("new").exists());
}

const CONNECT: &str = "import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
print(s.recv(9).decode())";

fn socket() {
    let world = World::new();
    let covered = tempfile::Builder::new().tempdir_in("/tmp").unwrap();
    let sockets = [world.outside.join("s"), covered.path().join("s")];
    let listeners: Vec<UnixListener> = sockets
        .iter()
        .map(|path| UnixListener::bind(path).unwrap())
        .collect();
    for listener in listeners {
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let _ = stream.unwrap().write_all(b"reached");
            }
        });
    }
    // Local sockets need the host's out of reach, so a home with private layers.
    let home = world.base.join("home");
    std::fs::create_dir_all(home.join(".cache")).unwrap();
    let runner = Runner::open(Settings {
        home: Some(home),
        network: true,
        ..settings(&world)
    })
    .unwrap();
    let connect = |path: &Path| {
        let path = path.display().to_string();
        world.run(&runner, &["python3", "-c", CONNECT, &path]).out
    };
    let own = "import socket; socket.socket(socket.AF_UNIX)";
    let has_local = world.run(&runner, &["python3", "-c", own]);
    if !has_local.finished.status.is_success() || !is_bounded(&runner) {
        return;
    }
    for path in &sockets {
        assert_eq!(connect(path), "", "{}", path.display());
        runner.set_allowances(RunAllowances {
            sockets: vec![path.clone()],
            ..RunAllowances::default()
        });
        assert_eq!(connect(path), "reached\n", "{}", path.display());
        runner.set_allowances(RunAllowances::default());
    }
}

fn kept() {
    let world = World::new();
    let runner = Runner::open(settings(&world)).unwrap();
    let dir = world.outside.join("dir");
    let start = || -> Process {
        let argv = [
            "sh".to_owned(),
            "-c".to_owned(),
            format!("read line; echo $line > {}/late", dir.display()),
        ];
        let roots = world.roots();
        let cwd = roots.open_dir(".").unwrap();
        let spec = ExecRequest::new(&argv, &cwd, PROCESS_TIMEOUT);
        let options = ProcessOptions {
            io: Io::Pipes,
            idle: PROCESS_TIMEOUT,
            keep: 1 << 10,
        };
        runner.spawn(&spec, options).unwrap()
    };
    let finish = |process: Process| {
        let stop = CancelToken::default();
        process.send(b"line\n", PROCESS_TIMEOUT, &stop).unwrap();
        let end = process.wait_end(PROCESS_TIMEOUT);
        assert!(end.is_some());
        let late = dir.join("late");
        let is_there = late.exists();
        let _ = std::fs::remove_file(late);
        is_there
    };
    let before = start();
    runner.set_allowances(writes(&dir));
    let meanwhile = start();
    runner.set_allowances(RunAllowances::default());
    assert_eq!(finish(before), !is_bounded(&runner));
    assert!(finish(meanwhile));
    assert_eq!(finish(start()), !is_bounded(&runner));
}

fn restricted() {
    let world = World::new();
    let opened = Runner::open(Settings {
        profile: Profile::Restricted,
        allowlist: vec!["cat".to_owned()],
        ..world.settings(Confinement::Auto)
    });
    // The profile does not open without full confinement.
    let Ok(runner) = opened else { return };
    let file = world.outside.join("outside.txt");
    let path = file.display().to_string();
    runner.set_allowances(RunAllowances {
        read: vec![file.clone()],
        write: vec![world.outside.clone()],
        ..RunAllowances::default()
    });
    assert!(!runner.writable_places().contains(&world.outside));
    let read = world.try_run(&runner, &["cat", &path]);
    assert_eq!(read.map(|ran| ran.out).unwrap_or_default(), "");
}
