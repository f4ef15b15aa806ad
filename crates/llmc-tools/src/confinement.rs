//! What bounds commands, in one line.
//!
//! A list of allowed names says which programs may be started; the kernel bounds what they can touch. The line
//! tells both apart and never calls the list safe. It goes into the log at start, into `health` and into `llmc doctor`.

use std::path::Path;
use std::sync::Arc;

use llmc_config::ExecProfile;
use llmc_exec::{ConfinementLevel, Runner, is_interpreter};

use crate::app::App;
use crate::error::Result;

/// What bounds the commands of one server.
#[derive(Debug, Clone)]
pub struct ConfinementSummary {
    /// `unrestricted` or `restricted`.
    pub profile: &'static str,
    /// What the list of allowed programs is worth.
    pub list: String,
    /// What the kernel enforces, or why no command runs.
    pub kernel: String,
    /// Where commands may write, and whether they have a network.
    pub reach: String,
}

impl ConfinementSummary {
    /// What is known without asking the kernel.
    fn of_settings(app: &App) -> ConfinementSummary {
        let mcp = &app.config().mcp;
        let network = match mcp.exec.network {
            true => "on",
            false => "off",
        };
        ConfinementSummary {
            profile: mcp.exec.profile.as_str(),
            list: list(app),
            kernel: format!("confinement {}", mcp.exec.confinement.as_str()),
            reach: format!("write roots [{}]; network {network}", write_roots(app)),
        }
    }

    /// Asks the kernel, which takes a few milliseconds the first time.
    pub fn of(app: &App) -> ConfinementSummary {
        let uid = rustix::process::geteuid().as_raw();
        let kernel = match app.look_at_commands().map(Runner::level) {
            Ok(level) => format!("commands run as uid {uid} with {}", words(level)),
            Err(error) => format!("commands are refused: {}", error.message),
        };
        ConfinementSummary {
            kernel,
            ..ConfinementSummary::of_settings(app)
        }
    }

    /// The value of `confinement` in `health`: the level first, for programs; the rest for people. It does not change
    /// while the server runs.
    pub fn confinement(app: &App) -> &str {
        app.command_keeper().confinement.get_or_init(|| {
            let summary = ConfinementSummary::of_settings(app);
            let level = match app.look_at_commands().map(Runner::level) {
                Ok(level) => level.to_string(),
                Err(error) => format!("commands are refused: {}", error.message),
            };
            format!("{level}; {}; {}", summary.reach, summary.list)
        })
    }
}

impl std::fmt::Display for ConfinementSummary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ConfinementSummary {
            profile,
            list,
            kernel,
            reach,
        } = self;
        write!(f, "{profile}: {list}; {kernel}; {reach}")
    }
}

impl App {
    /// Logs what bounds commands: what the settings decide at once, and what the kernel enforces when it is known, from
    /// a thread of its own, which then reads the folders that commands may change.
    pub fn announce_commands(self: &Arc<App>) {
        tracing::info!("{}", ConfinementSummary::of_settings(self));
        let app = self.clone();
        // Left behind when the process ends first; the helpers it has started then end by themselves.
        let asked = std::thread::Builder::new()
            .name("llmc-kernel".to_owned())
            .spawn(move || {
                tracing::info!("{}", ConfinementSummary::of(&app));
                if let Ok(runner) = app.look_at_commands() {
                    runner.read_folders();
                }
            });
        if let Err(error) = asked {
            tracing::warn!(%error, "the kernel is asked about confinement when a command runs");
        }
    }

    /// The runner, opened if need be but with no helper kept waiting.
    fn look_at_commands(&self) -> Result<&Runner> {
        self.open_commands(Runner::rest)
    }

    /// Opens the runner if the configuration demands something of the kernel, which must not be found out by a first call.
    pub(crate) fn meet_demands(&self) -> Result<()> {
        match self.command_settings().demands_proof() {
            true => self.look_at_commands().map(drop),
            false => Ok(()),
        }
    }
}

fn words(level: &ConfinementLevel) -> String {
    match level.to_string().as_str() {
        "none" => "no confinement (mcp.exec.confinement is off)".to_owned(),
        level => level.to_owned(),
    }
}

/// What the list of allowed programs is worth as a boundary: nothing, or what argument checks make of it.
fn list(app: &App) -> String {
    let mcp = &app.config().mcp;
    if !mcp.tools.enable_run_cmd {
        return "run_cmd is switched off".to_owned();
    }
    if mcp.exec.profile == ExecProfile::Restricted {
        return "arguments are checked per program".to_owned();
    }
    let names = mcp.tools.run_cmd_allowlist.iter();
    if names.clone().any(|name| name == "*") {
        return "any program may run".to_owned();
    }
    let found: Vec<&str> = names
        .map(String::as_str)
        .filter(|name| is_interpreter(name))
        .collect();
    let why = match found.is_empty() {
        true => "arguments are not checked".to_owned(),
        false => format!("interpreter: {}", found.join(", ")),
    };
    format!("allowlist is not a security boundary ({why})")
}

fn write_roots(app: &App) -> String {
    let settings = app.command_settings();
    let allowed = app.allowed_writes();
    let places = settings.write_roots.iter().chain(&settings.extra_write);
    let shown = places.chain(&allowed).map(|path| shown(path, app.root()));
    shown.collect::<Vec<_>>().join(", ")
}

/// A path as answers print it: relative inside the workspace.
fn shown(path: &Path, root: &Path) -> String {
    match path.strip_prefix(root) {
        Ok(rest) if rest.as_os_str().is_empty() => ".".to_owned(),
        Ok(rest) => rest.display().to_string(),
        Err(_) => path.display().to_string(),
    }
}
