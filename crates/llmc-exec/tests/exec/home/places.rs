//! What commands see of the home directory, of the repository around a workspace, of other users and of the host's sockets.

use std::io::Read;
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};

use super::*;

/// What tools keep in folders that the user has not.
pub(super) fn missing_folders() {
    let home = Home::new();
    let runner = home.runner();
    let before = home.state();
    let owner = RunOwner::default();
    let run = |line: &str| shell(&home.world, &runner, owner, line);
    if !runner.level().mountns {
        let (_, out) = run("echo ${GOPATH-unset}");
        assert_eq!(out, "unset\n");
        return;
    }
    let install = "mkdir -p $PYTHONUSERBASE/bin && printf '#!/bin/sh\\necho installed\\n' > $PYTHONUSERBASE/bin/own-tool && chmod +x $PYTHONUSERBASE/bin/own-tool";
    assert_eq!(run(install).0, Some(0));
    assert_eq!(run("own-tool").1, "installed\n");
    // What exists is where it is; a variable of the user's own stays as it is.
    if std::env::var_os("CARGO_HOME").is_none() {
        assert_eq!(run("echo ${CARGO_HOME-unset}").1, "unset\n");
    }
    assert_eq!(run("echo ${XDG_CACHE_HOME-unset}").1, "unset\n");
    let maven = run("echo $MAVEN_ARGS").1;
    assert_eq!(maven, "-Dmaven.repo.local=/run/llmc/home/.m2/repository\n");
    let (code, out) = run("ls -a $HOME");
    assert_eq!(code, Some(0), "{out}");
    for name in [".npm", "go", ".m2", ".local"] {
        assert!(
            !out.lines().any(|line| line == name),
            "{name} is there: {out}"
        );
    }
    assert_eq!(home.state(), before);
    drop(runner);
    let again = home.runner();
    assert_eq!(
        shell(&home.world, &again, owner, "own-tool").1,
        "installed\n"
    );
}

/// A change of the user's is seen while a command runs, also one that replaces the file.
pub(super) fn live() {
    let home = Home::new();
    home.write("notes", "old\n");
    home.write("notes.new", "new\n");
    let runner = home.runner();
    if !runner.level().mountns {
        return;
    }
    let line = "cat $HOME/notes; touch seen; until grep -q new $HOME/notes; do sleep 0.01; done; cat $HOME/notes";
    let (code, out) = std::thread::scope(|scope| {
        let running = scope.spawn(|| shell(&home.world, &runner, RunOwner::default(), line));
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        while !home.world.workspace.join("seen").exists() && std::time::Instant::now() < deadline {
            std::thread::yield_now();
        }
        std::fs::rename(home.dir.join("notes.new"), home.dir.join("notes")).unwrap();
        running.join().unwrap()
    });
    assert_eq!((code, out.as_str()), (Some(0), "old\nnew\n"));
}

/// A home directory that is missing, another user's, or the workspace.
pub(super) fn odd_homes() {
    let home = Home::new();
    let (world, workspace) = (&home.world, home.world.workspace.clone());
    let open = |home: Option<&Path>, settings: Settings| {
        let home = home.map(Path::to_owned);
        Runner::open(Settings { home, ..settings }).unwrap()
    };
    let cache = "mkdir -p \"${XDG_CACHE_HOME:-$HOME/.cache}/x\" && echo works";
    let none = open(None, home.settings(Confinement::Auto));
    if !none.level().mountns {
        return;
    }
    let owner = RunOwner::default();
    assert_eq!(shell(world, &none, owner, cache).1, "works\n");
    let others = open(Some(Path::new("/usr")), home.settings(Confinement::Auto));
    assert_eq!(shell(world, &others, owner, cache).1, "works\n");
    let own = open(Some(&workspace), home.settings(Confinement::Auto));
    assert_eq!(shell(world, &own, owner, cache).1, "works\n");
    assert!(workspace.join(".cache/x").is_dir(), "it is the workspace's");
}

/// Sockets of the host's processes, whatever name they were bound by.
pub(super) fn host_sockets() {
    let home = Home::new();
    let world = &home.world;
    let mut settings = home.settings(Confinement::Auto);
    // Only mounts keep a command from a socket with a path then.
    settings.network = true;
    let runner = Runner::open(settings).unwrap();
    if !runner.level().mountns {
        return;
    }
    let outside = world.base.join("outside");
    let inside = world.workspace.join("host.sock");
    let in_home = home.dir.join("home.sock");
    let renamed = outside.join("renamed.sock");
    let _renamed = UnixListener::bind(outside.join("first.sock")).unwrap();
    std::fs::rename(outside.join("first.sock"), &renamed).unwrap();
    let _listeners = [&inside, &in_home].map(|path| UnixListener::bind(path).unwrap());
    // Another process, since a working directory is one of a whole process.
    let mut relative = Command::new(world.bin.join("attack"))
        .args(["bind", "rel.sock"])
        .current_dir(&outside)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    relative
        .stdout
        .take()
        .unwrap()
        .read_exact(&mut [0])
        .unwrap();
    for socket in [&renamed, &inside, &in_home, &outside.join("rel.sock")] {
        assert!(
            std::os::unix::net::UnixStream::connect(socket).is_ok(),
            "proves nothing"
        );
        let ran = world.run(&runner, &["attack", "connect", &text(socket)]);
        assert_ne!(
            ran.finished.status.exit_code(),
            Some(0),
            "{socket:?}: {ran:?}"
        );
    }
    drop(relative.stdin.take());
    relative.wait().unwrap();
    // A socket of a command's own is no host's.
    let owner = RunOwner {
        principal: "",
        session: "s",
        ..RunOwner::default()
    };
    let line = "attack own-socket made.sock && echo works";
    assert_eq!(shell(world, &runner, owner, line).1, "works\n");
}

/// What only root can read.
pub(super) fn as_root() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let home = Home::new();
    let runner = home.runner();
    if !runner.level().mountns {
        return;
    }
    let mut tried = 0;
    for place in ["/etc/shadow", "/etc/gshadow", "/etc/sudoers"] {
        if std::fs::metadata(place).is_ok_and(|status| status.len() > 0) {
            tried += 1;
            let (_, out) = shell(
                &home.world,
                &runner,
                RunOwner::default(),
                &format!("cat {place}"),
            );
            assert_eq!(out, "", "{place}");
        }
    }
    assert!(tried > 0, "no such file on this system");
    let (_, out) = shell(
        &home.world,
        &runner,
        RunOwner::default(),
        "tr '\\0' '\\n' < /proc/1/environ",
    );
    assert!(!out.contains("poison"), "{out}");
}

/// A workspace that is a folder of a repository in the host's `/tmp`, of which commands have their own.
pub(super) fn around() {
    let world = World::below("/tmp");
    let repository = world.base.clone();
    std::fs::remove_dir_all(world.workspace.join(".git")).unwrap();
    std::fs::create_dir(repository.join(".git")).unwrap();
    std::fs::write(repository.join("Cargo.toml"), "[workspace]\n").unwrap();
    let runner = world.runner(Confinement::Auto);
    if !runner.level().mountns {
        return;
    }
    let line = "cat ../Cargo.toml; echo x > made && cat made; echo y > ../made";
    let ran = world.run(&runner, &["sh", "-c", line]);
    assert_eq!(ran.out, "[workspace]\nx\n", "{ran:?}");
    assert!(ran.err.contains("Read-only file system"), "{ran:?}");
    assert!(world.workspace.join("made").exists() && !repository.join("made").exists());
    // Without a repository nothing of the host's `/tmp` is there.
    std::fs::remove_dir(repository.join(".git")).unwrap();
    let ran = world.run(&runner, &["sh", "-c", "cat ../Cargo.toml"]);
    assert_eq!(ran.out, "", "{ran:?}");
}
