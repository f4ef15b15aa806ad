//! A workspace to run in, a world outside it to attack, and the server between.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use llmc_exec::{Confinement, ExecRequest, Result, RunOwner, RunReport, Runner, Settings, Stream};
use llmc_host::{CancelToken, PathRules, Roots};

/// Whose runs these are. What must hold, holds among the processes of a session too.
pub(crate) const OWNER: RunOwner<'_> = RunOwner {
    principal: "",
    session: "world",
    session_lifetime: None,
};

/// What lies in the workspace.
const FILES: &[(&str, &str)] = &[
    ("inside.txt", "inside\n"),
    ("llmc.toml", "# the operator's\n"),
    (".llmc/token", "TOKEN\n"),
    (".git/HEAD", "ref: refs/heads/main\n"),
    (".git/config", "[core]\n"),
    (".git/hooks/README", "none\n"),
    (".git/objects/README", "none\n"),
    (".git/refs/README", "none\n"),
    (".git/modules/m/config", "[core]\n"),
    ("lib/nested/.git/HEAD", "ref: refs/heads/main\n"),
    ("lib/nested/.git/config", "[core]\n"),
    ("lib/nested/.git/objects/README", "none\n"),
    ("lib/nested/.git/refs/README", "none\n"),
    ("lib/nested/.git/hooks/README", "none\n"),
    ("artifacts/audit.csv", "a,b\n"),
];

/// What lies beside it.
const OUTSIDE: &[(&str, &str)] = &[("outside.txt", "outside\n"), ("dir/file.txt", "outside\n")];

/// One workspace and its surroundings. Not in `/tmp`, where a run's own would hide them.
pub(crate) struct World {
    pub(crate) base: PathBuf,
    /// Deletes it all, in the process that made it.
    _made: Option<tempfile::TempDir>,
    pub(crate) workspace: PathBuf,
    pub(crate) outside: PathBuf,
    pub(crate) bin: PathBuf,
}

/// A run's end and its output.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) finished: RunReport,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl World {
    pub(crate) fn new() -> World {
        World::below("/var/tmp")
    }

    pub(crate) fn below(dir: &str) -> World {
        let made = tempfile::Builder::new()
            .prefix("exec-")
            .tempdir_in(dir)
            .unwrap();
        std::fs::set_permissions(made.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut world = World::at(made.path().to_owned());
        world._made = Some(made);
        for (dir, files) in [(&world.workspace, FILES), (&world.outside, OUTSIDE)] {
            for (name, text) in files {
                let file = dir.join(name);
                std::fs::create_dir_all(file.parent().unwrap()).unwrap();
                std::fs::write(file, text).unwrap();
            }
        }
        std::fs::create_dir(&world.bin).unwrap();
        let attack = world.bin.join("attack");
        // By another process: one that other trials start meanwhile would inherit a descriptor for writing, and a file that
        // is being written cannot be started.
        let copied = Command::new("install")
            .args(["-m", "755"])
            .arg(std::env::current_exe().unwrap())
            .arg(&attack)
            .status();
        assert!(copied.unwrap().success());
        world
    }

    /// A world that exists already.
    pub(crate) fn at(base: PathBuf) -> World {
        World {
            workspace: base.join("ws"),
            outside: base.join("outside"),
            bin: base.join("bin"),
            base,
            _made: None,
        }
    }

    pub(crate) fn settings(&self, confinement: Confinement) -> Settings {
        let mut settings = Settings {
            confinement,
            allowlist: ["attack", "sh", "yes", "cat", "true", "env", "git", "mv"]
                .map(str::to_owned)
                .to_vec(),
            write_roots: vec![self.workspace.clone()],
            protected: vec![self.workspace.join("artifacts/audit.csv")],
            state_dir: Some(self.workspace.join(".llmc")),
            network: confinement == Confinement::Off,
            ..Settings::default()
        };
        settings.search_path.insert(0, self.bin.clone());
        settings
    }

    pub(crate) fn runner(&self, confinement: Confinement) -> Runner {
        Runner::open(self.settings(confinement)).unwrap()
    }

    pub(crate) fn roots(&self) -> Roots {
        let dir = self.workspace.clone();
        Roots::open(
            &dir,
            std::slice::from_ref(&dir),
            Arc::new(PathRules::default()),
        )
        .unwrap()
    }

    /// Runs a command in the workspace.
    pub(crate) fn try_run(&self, runner: &Runner, argv: &[&str]) -> Result<Ran> {
        self.try_run_for(
            runner,
            argv,
            Duration::from_secs(20),
            1 << 20,
            &CancelToken::default(),
        )
    }

    pub(crate) fn run(&self, runner: &Runner, argv: &[&str]) -> Ran {
        self.try_run(runner, argv).unwrap()
    }

    /// As [`World::run`], for a run that belongs to no session.
    pub(crate) fn run_apart(&self, runner: &Runner, argv: &[&str]) -> Ran {
        let stop = CancelToken::default();
        let apart = RunOwner::default();
        self.run_as(apart, runner, argv, Duration::from_secs(20), 1 << 20, &stop)
            .unwrap()
    }

    pub(crate) fn try_run_for(
        &self,
        runner: &Runner,
        argv: &[&str],
        timeout: Duration,
        max_output: u64,
        stop: &CancelToken,
    ) -> Result<Ran> {
        self.run_as(OWNER, runner, argv, timeout, max_output, stop)
    }

    fn run_as(
        &self,
        owner: RunOwner<'_>,
        runner: &Runner,
        argv: &[&str],
        timeout: Duration,
        max_output: u64,
        stop: &CancelToken,
    ) -> Result<Ran> {
        let argv: Vec<String> = argv.iter().map(|&word| word.to_owned()).collect();
        let roots = self.roots();
        let cwd = roots.open_dir(".").unwrap();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut collect = |stream: Stream, bytes: &[u8]| match stream {
            Stream::Stdout => out.extend_from_slice(bytes),
            Stream::Stderr => err.extend_from_slice(bytes),
        };
        let spec = ExecRequest {
            env: &[("TE_AGENT_ID".to_owned(), "agent-7".to_owned())],
            max_output,
            owner,
            ..ExecRequest::new(&argv, &cwd, timeout)
        };
        let finished = runner.run(&spec, &mut collect, stop)?;
        Ok(Ran {
            finished,
            out: String::from_utf8_lossy(&out).into_owned(),
            err: String::from_utf8_lossy(&err).into_owned(),
        })
    }

    pub(crate) fn outside(&self, name: &str) -> String {
        text(&self.outside.join(name))
    }
}

pub(crate) fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// Writes a program, by another process for the same reason as above.
pub(crate) fn script(file: &Path, text: &str) {
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    let written = Command::new("sh")
        .args([
            "-c",
            "printf %s \"$1\" > \"$2\" && chmod 755 \"$2\"",
            "sh",
            text,
        ])
        .arg(file)
        .status();
    assert!(written.unwrap().success());
}
