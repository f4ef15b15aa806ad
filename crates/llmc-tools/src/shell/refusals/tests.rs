//! Output in, explanations out: against rules as they hold for a user's home directory with a workspace in it.

use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use llmc_exec::{ConfinementLevel, LayerStore, PrivateLayer, Protection, Settings};
use tempfile::TempDir;

use super::*;

const LEVEL: ConfinementLevel = ConfinementLevel {
    landlock: Some(7),
    userns: true,
    mountns: true,
    pidns: true,
    procfs: true,
    netns: false,
    network: true,
    seccomp: true,
    protected: Protection::Mount,
};

/// A home directory with a workspace, credentials and a neighbour, on a disk that is not `/tmp`.
struct World {
    dir: TempDir,
    level: ConfinementLevel,
    settings: Settings,
}

impl World {
    fn new() -> World {
        let dir = tempfile::Builder::new().tempdir_in("/var/tmp").unwrap();
        let base = std::fs::canonicalize(dir.path()).unwrap();
        let home = base.join("home");
        for folder in ["src/w/sub", "src/sibling", ".ssh", ".cargo/bin"] {
            std::fs::create_dir_all(home.join(folder)).unwrap();
        }
        for (file, text) in [
            ("notes.txt", "a note"),
            (".ssh/id_rsa", "PRIVATE KEY"),
            (".netrc", "password x"),
            (".npmrc", "//r/:_authToken=x\n"),
            ("src/sibling/config.yml", "port: 1"),
            ("src/w/llmc.toml", ""),
            ("src/w/a", "one"),
        ] {
            std::fs::write(home.join(file), text).unwrap();
        }
        symlink(home.join("notes.txt"), home.join("src/w/link")).unwrap();
        let hidden = ["~/.ssh", "~/.netrc", "~/.npmrc", "~/.config/pip/pip.conf"];
        let settings = Settings {
            write_roots: vec![home.join("src/w")],
            hidden: hidden.map(str::to_owned).to_vec(),
            home: Some(home),
            network: true,
            ..Settings::default()
        };
        World {
            dir,
            level: LEVEL,
            settings,
        }
    }

    fn home(&self) -> PathBuf {
        self.settings.home.clone().unwrap()
    }

    /// The causes and subjects that a command and its output are explained by; `HOME/` stands for the home directory.
    fn explain(&self, command: &str, code: i32, printed: &str) -> Vec<(Cause, String)> {
        let found = self.refusals(command, code, printed).into_iter();
        found.map(|one| (one.cause, one.subject)).collect()
    }

    fn refusals(&self, command: &str, code: i32, printed: &str) -> Vec<Refusal> {
        let home = self.home().display().to_string();
        let layers = [PrivateLayer {
            path: self.home(),
            store: Some(LayerStore::Disk),
        }];
        let facts = BoundaryFacts {
            settings: &self.settings,
            level: &self.level,
            layers: &layers,
        };
        let ended = Ended {
            command: &command.replace("HOME/", &format!("{home}/")),
            cwd: &self.home().join("src/w"),
            status: Some(ExitStatus::Exited(code)),
            printed: &printed.replace("HOME/", &format!("{home}/")),
        };
        find(&ended, facts, &|_| true)
    }
}

#[test]
fn a_refused_place_is_named_however_the_program_prints_it() {
    use Cause::*;
    let world = World::new();
    for (command, printed, cause, subject) in [
        (
            "echo x >~/new.txt",
            "bash: line 1: HOME/new.txt: Read-only file system",
            ReadOnlyPlace,
            "~/new.txt",
        ),
        (
            "rm -rf ~/src/sibling",
            "rm: cannot remove 'HOME/src/sibling/config.yml': Read-only file system",
            ReadOnlyPlace,
            "~/src/sibling/config.yml",
        ),
        (
            "sed -i s/1/2/ ../sibling/config.yml",
            "sed: couldn't open temporary file ../sibling/sedQp: Read-only file system",
            ReadOnlyPlace,
            "~/src/sibling/sedQp",
        ),
        (
            "cd ../sibling && touch new.txt",
            "touch: cannot touch 'new.txt': Read-only file system",
            ReadOnlyPlace,
            "~/src/sibling/new.txt",
        ),
        (
            "cargo build",
            "error: failed to open: HOME/src/.cargo-lock\n\nCaused by:\n  Read-only file system (os error 30)",
            ReadOnlyPlace,
            "~/src/.cargo-lock",
        ),
        (
            "sqlite3 ~/notes.txt 'create table t(a)'",
            "Error: attempt to write a readonly database",
            ReadOnlyPlace,
            "~/notes.txt",
        ),
        (
            "echo more >>link",
            "bash: line 1: link: Read-only file system",
            ReadOnlyPlace,
            "link (a link to ~/notes.txt)",
        ),
        (
            "npm config set fund false",
            "npm error rofs EROFS: read-only file system, open 'HOME/.npmrc'",
            UserSettings,
            "~/.npmrc",
        ),
        (
            "pip config set global.timeout 30",
            "PermissionError: [Errno 30] Read-only file system: 'HOME/.config'",
            UserSettings,
            "~/.config",
        ),
        (
            "npm install -g ./dep",
            "npm error enoent ENOENT: no such file or directory, mkdir 'HOME/.npm-prefix/lib/node_modules'",
            ReadOnlyPlace,
            "~/.npm-prefix",
        ),
        (
            "cat ~/.ssh/id_rsa",
            "cat: HOME/.ssh/id_rsa: No such file or directory",
            Hidden,
            "~/.ssh/id_rsa",
        ),
        (
            "git push",
            "git@example.com: Permission denied (publickey).\nfatal: Could not read from remote repository.",
            Hidden,
            "~/.ssh",
        ),
        (
            "sed -i s/a/b/ llmc.toml",
            "sed: cannot rename ./sedQp: Device or resource busy",
            Protected,
            "~/src/w/llmc.toml",
        ),
        (
            "strace true",
            "strace: test_ptrace_get_syscall_info: PTRACE_TRACEME: Operation not permitted",
            Tracing,
            "",
        ),
        (
            "sudo -n true",
            "sudo: The \"no new privileges\" flag is set, which prevents sudo from running as root.",
            SetUidProgram,
            "sudo",
        ),
        (
            "chmod u+s a",
            "chmod: changing permissions of 'a': Operation not permitted",
            SetIdBits,
            "~/src/w/a",
        ),
        (
            "install -m 4755 /usr/bin/id mine",
            "install: cannot change permissions of 'mine': Operation not permitted",
            SetIdBits,
            "mine",
        ),
        (
            "ln ~/notes.txt mine",
            "ln: failed to create hard link 'mine' => 'HOME/notes.txt': Invalid cross-device link",
            Mounts,
            "~/notes.txt",
        ),
    ] {
        assert_eq!(
            world.explain(command, 1, printed),
            [(cause, subject.to_owned())],
            "{command}"
        );
    }
}

#[test]
fn what_the_boundary_does_not_refuse_is_not_explained() {
    let world = World::new();
    for (command, printed) in [
        ("cat missing", "cat: missing: No such file or directory"),
        (
            "cat ~/missing",
            "cat: HOME/missing: No such file or directory",
        ),
        (
            "mkdir ~/no/new",
            "mkdir: cannot create directory 'HOME/no/new': No such file or directory",
        ),
        (
            "node x.js",
            "Error: ENOENT: no such file or directory, mkdir 'HOME/no/new'",
        ),
        (
            "x",
            "OSError: [Errno 30] Read-only file system: 'report.txt'",
        ),
        ("x", "EROFS: read-only file system, open '/app/x'"),
        ("x", "Read-only file system"),
        (
            "cat ~/notes.txt; ./x",
            "OSError: [Errno 30] Read-only file system: 'a'",
        ),
        ("x", "bash: /srv/data: Permission denied"),
        ("x", "cat: HOME/notes.txt: Permission denied"),
        (
            "chown 0 a",
            "chown: changing ownership of 'a': Operation not permitted",
        ),
        ("rm a", "rm: cannot remove 'a': Device or resource busy"),
        (
            "x",
            "ConnectionRefusedError: [Errno 111] Connection refused",
        ),
        (
            "kill 4194300",
            "bash: line 1: kill: (4194300) - No such process",
        ),
        (
            "echo x >/dev/full",
            "bash: echo: write error: No space left on device",
        ),
        (
            "ulimit -n 12; x",
            "OSError: [Errno 24] Too many open files: '/dev/null'",
        ),
        (
            "ulimit -u 1; x",
            "bash: fork: retry: Resource temporarily unavailable",
        ),
        (
            "curl http://nosuch.invalid",
            "curl: (6) Could not resolve host: nosuch.invalid",
        ),
        ("grep 'Too many open files' log", "log: Too many open files"),
        ("echo 'no new privileges'; false", "no new privileges"),
        ("ls", ""),
        ("echo 'see ~/.ssh/config'", "see ~/.ssh/config"),
        ("ls ~/.ssh2 ~/.cargo", ""),
    ] {
        for code in [0, 1] {
            assert_eq!(
                world.explain(command, code, printed),
                [],
                "{command}: {printed}"
            );
        }
    }
}

#[test]
fn a_hidden_place_is_named_though_the_command_says_nothing() {
    let world = World::new();
    let hidden = |path: &str| vec![(Cause::Hidden, path.to_owned())];
    assert_eq!(world.explain("ls ~/.ssh", 0, ""), hidden("~/.ssh"));
    assert_eq!(
        world.explain("cat ${HOME}/.netrc", 0, ""),
        hidden("~/.netrc")
    );
    let python = r#"python3 -c 'import os; print(open(os.path.expanduser("~/.netrc")).read())'"#;
    assert_eq!(world.explain(python, 0, ""), hidden("~/.netrc"));
    let redacted = vec![(Cause::Redacted, "~/.npmrc".to_owned())];
    assert_eq!(world.explain("cat ~/.npmrc", 0, ""), redacted);
    // What is not there is missing for the user too, unless the command seems to have made it.
    let missing = "cat: HOME/.ssh/other: No such file or directory";
    assert_eq!(world.explain("cat ~/.ssh/other", 1, missing), []);
    let made = world.explain("ssh-keygen -f ~/.ssh/other", 0, "");
    assert_eq!(made, hidden("~/.ssh/other"));
    std::fs::write(world.home().join(".npmrc"), "fund=false").unwrap();
    assert_eq!(world.explain("cat ~/.npmrc", 0, ""), []);
}

#[test]
fn the_command_that_allows_it_names_the_place() {
    let world = World::new();
    for (command, printed, allow) in [
        (
            "x",
            "x: ~/new.txt: Read-only file system",
            "--write ~/new.txt",
        ),
        (
            "x",
            "x: ../sibling/new: Read-only file system",
            "--write ~/src/sibling",
        ),
        (
            "x",
            "x: ~/notes.txt: Read-only file system",
            "--write ~/notes.txt",
        ),
        ("cat ~/.ssh/id_rsa", "", "--read ~/.ssh"),
    ] {
        let found = world.refusals(command, 1, printed);
        assert_eq!(
            found[0].allow.as_deref(),
            Some(allow),
            "{command} {printed}"
        );
    }
}

#[test]
fn a_socket_of_the_host_is_told_from_a_dead_one() {
    let world = World::new();
    let path = world.home().join("db.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let printed = "cannot connect to HOME/db.sock: [Errno 111] Connection refused";
    let found = world.refusals("x", 1, printed);
    assert_eq!(found[0].cause, Cause::HostSocket);
    assert_eq!(found[0].allow.as_deref(), Some("--socket ~/db.sock"));
    drop(listener);
    assert_eq!(world.explain("x", 1, printed), []);
}

#[test]
fn a_process_of_the_user_or_of_an_earlier_session_is_named() {
    let world = World::new();
    let own = std::process::id();
    let printed = format!("bash: line 1: kill: ({own}) - No such process");
    let foreign = [(Cause::ForeignProcess, own.to_string())];
    assert_eq!(world.explain(&format!("kill {own}"), 1, &printed), foreign);
    assert_eq!(world.explain("kill $p", 1, &printed), []);
    std::fs::write(world.home().join("src/w/s.pid"), "4194301\n").unwrap();
    let printed = "bash: line 1: kill: (4194301) - No such process";
    let stale = [(Cause::StaleProcess, "4194301 (of s.pid)".to_owned())];
    assert_eq!(world.explain("kill $(cat s.pid)", 1, printed), stale);
}

#[test]
fn nothing_is_explained_without_a_boundary() {
    let mut world = World::new();
    world.level = ConfinementLevel {
        landlock: None,
        mountns: false,
        seccomp: false,
        pidns: false,
        ..LEVEL
    };
    for (command, printed) in [
        ("x", "x: ~/new.txt: Read-only file system"),
        (
            "cat ~/.ssh/id_rsa",
            "cat: HOME/.ssh/id_rsa: Permission denied",
        ),
        ("strace true", "strace: ptrace: Operation not permitted"),
        (
            "chmod u+s a",
            "chmod: changing permissions of 'a': Operation not permitted",
        ),
    ] {
        assert_eq!(world.explain(command, 1, printed), [], "{command}");
    }
}

#[test]
fn landlock_alone_refuses_with_permission_denied() {
    let mut world = World::new();
    world.level = ConfinementLevel {
        mountns: false,
        ..LEVEL
    };
    let found = world.explain("x", 1, "x: HOME/notes.txt: Permission denied");
    assert_eq!(found, [(Cause::ReadOnlyPlace, "~/notes.txt".to_owned())]);
    let found = world.explain("x", 1, "x: HOME/.ssh/id_rsa: Permission denied");
    assert_eq!(found, [(Cause::Hidden, "~/.ssh/id_rsa".to_owned())]);
}

#[test]
fn without_a_network_names_are_not_found() {
    let mut world = World::new();
    world.settings.network = false;
    let printed = "curl: (6) Could not resolve host: example.com";
    assert_eq!(
        world.explain("curl example.com", 6, printed),
        [(Cause::Network, String::new())]
    );
}

#[test]
fn a_flood_of_errors_takes_little_time() {
    let world = World::new();
    let line = "x: cannot open 'HOME/a/b/c/d': No such file or directory\n";
    let printed = line.repeat(SEARCHED_BYTES / line.len());
    assert_eq!(world.explain("x", 1, &printed), []);
    let odd = "'".repeat(SEARCHED_BYTES) + "Permission denied";
    assert_eq!(world.explain("x", 1, &odd), []);
    drop(world.dir);
}

#[test]
fn output_of_a_success_is_searched_where_errors_go() {
    let ends = ["out".to_owned(), "err".to_owned()];
    let of = |command, code| searched(command, Some(ExitStatus::Exited(code)), &ends);
    assert_eq!(of("cat log", 0), "err");
    assert_eq!(of("make 2>&1 | tail", 0), "out\nerr");
    assert_eq!(of("cat log", 1), "out\nerr");
}
