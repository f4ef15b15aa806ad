//! Real repositories for tests with git: made by the host's git, looked at by it, and commands between.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use llmc_exec::{
    Confinement, ExecRequest, GitAccess, Io, Process, ProcessEnd, ProcessOptions, Quarantined,
    Runner,
};

use crate::world::{Ran, World};

/// Runs a script that leaves nothing out and has nothing to say.
pub(crate) fn ok(world: &World, runner: &Runner, script: &str) -> Ran {
    let ran = world.run(runner, &["sh", "-c", script]);
    assert!(ran.finished.status.is_success(), "{script}: {ran:?}");
    assert!(ran.finished.quarantined.is_empty(), "{script}: {ran:?}");
    assert!(ran.finished.notes.is_empty(), "{script}: {ran:?}");
    ran
}

/// Scripts of one run each, and what the host's git says after it.
pub(crate) type Step = (
    &'static str,
    &'static [(&'static [&'static str], &'static str)],
);

pub(crate) fn play(world: &World, runner: &Runner, steps: &[Step]) {
    for (script, looks) in steps {
        ok(world, runner, script);
        for (args, wanted) in *looks {
            assert_eq!(git(&world.workspace, args), *wanted, "{script}: {args:?}");
        }
    }
}

pub(crate) fn assert_reported(quarantined: &[Quarantined], path: &Path) {
    let mut reports = quarantined.iter();
    let is_reported = reports.any(|one| {
        path.starts_with(&one.path) && (one.rejected.is_some() || one.moved_to.is_some())
    });
    assert!(is_reported, "{path:?} is not reported: {quarantined:?}");
}

/// The contents of all files below a directory, the state directory aside.
pub(crate) fn texts_below(dir: &Path) -> String {
    let mut found = String::new();
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() && entry.file_name() != ".llmc" {
            found.push_str(&texts_below(&entry.path()));
        } else if kind.is_file() {
            found.push_str(&std::fs::read_to_string(entry.path()).unwrap_or_default());
        }
    }
    found
}

/// Says that it is this far, and goes on when it may.
pub(crate) const WAIT: &str = "touch ready; while [ ! -e go ]; do sleep 0.02; done";

pub(crate) fn start(world: &World, runner: &Runner, script: &str, git: GitAccess) -> Process {
    let argv = ["sh", "-c", script].map(str::to_owned);
    let roots = world.roots();
    let cwd = roots.open_dir(".").unwrap();
    let spec = ExecRequest {
        git,
        ..ExecRequest::new(&argv, &cwd, Duration::from_secs(60))
    };
    let options = ProcessOptions {
        io: Io::NoInput,
        idle: Duration::from_secs(60),
        keep: 1 << 16,
    };
    runner.spawn(&spec, options).unwrap()
}

pub(crate) fn wait_for(path: &Path) {
    wait_until(|| path.exists(), &format!("{path:?} does not appear"));
}

pub(crate) fn wait_until(is_so: impl Fn() -> bool, otherwise: &str) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < deadline, "{otherwise}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub(crate) fn let_go_on(world: &World, process: &Process) -> ProcessEnd {
    std::fs::write(world.workspace.join("go"), "").unwrap();
    process.wait_end(Duration::from_secs(30)).unwrap()
}

/// Makes the workspace a real repository; `None` without git.
pub(crate) fn repository(world: &World) -> Option<Runner> {
    let dir = &world.workspace;
    std::fs::remove_dir_all(dir.join(".git")).unwrap();
    std::fs::remove_dir_all(dir.join("lib")).unwrap();
    make_repository(dir).then(|| world.runner(Confinement::Auto))
}

/// The same, if commands see copies of git directories.
pub(crate) fn mirrored(world: &World) -> Option<Runner> {
    repository(world).filter(|runner| runner.level().mountns)
}

/// A repository with one commit; whether there is a git to make it.
pub(crate) fn make_repository(dir: &Path) -> bool {
    if Command::new("git").arg("--version").output().is_err() {
        return false;
    }
    git(dir, &["init", "-q", "-b", "main"]);
    for (key, value) in [("user.name", "a"), ("user.email", "a@b"), ("gc.auto", "0")] {
        git(dir, &["config", key, value]);
    }
    let ignored =
        "ready\ngo\ndone\n.llmc\nartifacts\nllmc.toml\n/tree\n/made\n/cloned\n/many\n/sub\n";
    std::fs::write(dir.join(".git/info/exclude"), ignored).unwrap();
    std::fs::write(dir.join("inside.txt"), "inside\n").unwrap();
    git(dir, &["add", "inside.txt"]);
    git(dir, &["commit", "-qm", "start"]);
    true
}

/// The host's git.
pub(crate) fn git(dir: &Path, args: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "safe.directory=*"])
        .args(args)
        .current_dir(dir)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", "/nonexistent")
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git {args:?}: {err}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
