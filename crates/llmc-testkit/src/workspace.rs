//! A workspace in a temporary folder, made from one string.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::client::McpClient;
use crate::http::HttpServer;
use crate::process::{ProcessOutput, TestProcess};

/// Content of the file outside the roots; a test that finds it in an answer has found a leak.
const CANARY: &str = "canary-do-not-leak";

/// A workspace, a home, and an outside that nothing may touch.
#[derive(Debug)]
pub struct TestWorkspace {
    base: tempfile::TempDir,
    program: PathBuf,
    env: Vec<(String, String)>,
    trust: ConfigAcceptance,
}

/// Whether the user of a workspace accepts what its `llmc.toml` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConfigAcceptance {
    /// Whatever it is when a program is started, as with `llmc trust --yes`.
    Always,
    Never,
}

impl TestWorkspace {
    /// Makes the files of a fixture: each begins with a line `//- path`, and its content runs to the next such line.
    pub fn from_fixture(program: impl Into<PathBuf>, fixture: &str) -> TestWorkspace {
        // Canonical, so that paths in answers can be compared with paths in tests.
        let base = tempfile::tempdir().unwrap();
        let workspace = TestWorkspace {
            base,
            program: program.into(),
            env: Vec::new(),
            trust: ConfigAcceptance::Always,
        };
        for dir in ["w", "home", "outside"] {
            fs::create_dir(workspace.base().join(dir)).unwrap();
        }
        fs::write(workspace.outside("canary"), CANARY).unwrap();
        let mut file: Option<(&str, String)> = None;
        for line in fixture.split_inclusive('\n') {
            if let Some(path) = line.strip_prefix("//- ") {
                if let Some((path, text)) = file.replace((path.trim(), String::new())) {
                    workspace.write(path, text);
                }
            } else if let Some((_, text)) = &mut file {
                text.push_str(line);
            }
        }
        if let Some((path, text)) = file {
            workspace.write(path, text);
        }
        workspace
    }

    /// The same with an environment variable set for every process it starts.
    #[must_use]
    pub fn with_env(mut self, name: &str, value: &str) -> TestWorkspace {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same with a user who has not looked at `llmc.toml`.
    #[must_use]
    pub fn untrusted(mut self) -> TestWorkspace {
        self.trust = ConfigAcceptance::Never;
        self
    }

    /// The folder that holds everything.
    pub fn base(&self) -> PathBuf {
        self.base.path().canonicalize().unwrap()
    }

    /// The workspace root.
    pub fn root(&self) -> PathBuf {
        self.base().join("w")
    }

    /// A path inside the workspace.
    pub fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.root().join(relative)
    }

    /// A path outside of it.
    pub fn outside(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.base().join("outside").join(relative)
    }

    /// Writes a file, with its folders.
    pub fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub fn read(&self, path: impl AsRef<Path>) -> String {
        let path = self.path(path);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Every file and folder below the root, sorted; without the state folder.
    pub fn tree(&self) -> Vec<String> {
        let mut found = Vec::new();
        collect(&self.root(), &self.root(), &mut found);
        let is_state = |path: &str, dir: &str| path == dir || path.starts_with(&format!("{dir}/"));
        found.retain(|path| !is_state(path, ".llmc") && !is_state(path, ".git/llmc"));
        found.sort();
        found
    }

    /// Fails when the outside has changed.
    pub fn assert_outside_untouched(&self) {
        let names: Vec<_> = fs::read_dir(self.outside(""))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names, ["canary"], "the outside has changed");
        assert_eq!(
            fs::read_to_string(self.outside("canary")).unwrap(),
            CANARY,
            "the canary has changed"
        );
    }

    /// Fails when a text holds what only the outside knows.
    pub fn assert_no_leak(&self, text: &str) {
        assert!(!text.contains(CANARY), "the canary leaked: {text}");
    }

    /// The program with a clean environment, in the workspace, before any of its arguments.
    pub fn command(&self) -> Command {
        self.command_of(&self.program)
    }

    /// Another program in the same surroundings.
    pub fn command_of(&self, program: impl AsRef<OsStr>) -> Command {
        if self.trust == ConfigAcceptance::Always {
            self.accept_configuration();
        }
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("HOME", self.base().join("home"))
            .env("PATH", "/usr/bin:/bin")
            .envs(self.env.iter().cloned())
            .current_dir(self.root());
        command
    }

    /// Records trust in the workspace's file as it is now; one that is broken cannot be trusted.
    fn accept_configuration(&self) {
        let home = self.base().join("home").display().to_string();
        let mut env: BTreeMap<String, String> = self.env.iter().cloned().collect();
        env.entry("HOME".to_owned()).or_insert(home);
        let inputs = llmc_config::ConfigInputs {
            env,
            cwd: self.root(),
            ..llmc_config::ConfigInputs::default()
        };
        if let Ok(loaded) = llmc_config::load(&inputs)
            && matches!(loaded.trust.state, llmc_config::TrustState::Untrusted(_))
        {
            loaded.trust.record().unwrap();
        }
    }

    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Runs the program to its end, with nothing on standard input.
    pub fn llmc<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> ProcessOutput {
        let mut command = self.command();
        command.args(args);
        TestProcess::start(command).finish()
    }

    /// Starts `llmc serve` on a free port with limits that no test reaches, and waits until it listens.
    pub fn serve<S: AsRef<OsStr>>(&self, flags: impl IntoIterator<Item = S>) -> HttpServer {
        let mut command = self.command();
        command.args(["serve", "--port", "0"]);
        for limit in ["rate_limit_rps", "rate_limit_burst"] {
            command.args(["--set", &format!("mcp.limits.{limit}=100000")]);
        }
        command.args(flags);
        HttpServer::new(TestProcess::start(command))
    }

    /// Starts `llmc mcp`, without a handshake, with further flags.
    pub fn mcp<S: AsRef<OsStr>>(&self, flags: impl IntoIterator<Item = S>) -> McpClient {
        let mut command = self.command();
        command.arg("mcp").args(flags);
        McpClient::new(TestProcess::start(command))
    }
}

fn collect(dir: &Path, root: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        found.push(
            path.strip_prefix(root)
                .unwrap()
                .to_string_lossy()
                .into_owned(),
        );
        if path.is_dir() && !path.is_symlink() {
            collect(&path, root, found);
        }
    }
}
