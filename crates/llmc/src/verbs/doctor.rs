//! `llmc doctor`: is the installation sound, and what really holds the commands it runs?

mod page;

use std::process::ExitCode;
use std::sync::Arc;

use indicatif::HumanBytes;
use llmc_config::{LoadedConfig, LogLevel, SettingSource};
use llmc_exec::{
    Confinement, ConfinementLevel, PrivateLayer, Probe, ProbeResult, Profile, Program, Runner,
    Settings, ToolChain, Unresolved, check_tool_chains, is_interpreter, run_probes,
};
use llmc_sandbox::ParserConfinement;
use llmc_store::DatabaseReport;
use llmc_tools::state::{self, Store};
use llmc_tools::{App, ConfinementSummary, ErrorKind, mode};

use super::{Failure, config_warnings, load, print, tools};
use crate::cli::Common;
use crate::log;

/// What was found.
struct Findings {
    app: Arc<App>,
    executable: String,
    kernel: String,
    uid: u32,
    /// Tools of the mode, and their tokens.
    listed: (usize, usize),
    /// How many keys were set where.
    sources: Vec<(usize, &'static str)>,
    /// Why the state directory cannot be used.
    unusable: Option<String>,
    stores: Vec<Store>,
    /// The shared database, in words.
    database: Option<DatabaseFinding>,
    /// The history of changes, in words.
    history: String,
    confinement: ConfinementSummary,
    /// What runs scripts.
    scripts: String,
    /// What confines the parsers of source files.
    parsers: &'static str,
    /// What this kernel gives if everything is asked for.
    offered: Option<ConfinementLevel>,
    /// What the configuration makes of it; `None` if it makes nothing of it because its demands are not met.
    level: Option<ConfinementLevel>,
    programs: Vec<Program>,
    unresolved: Vec<Unresolved>,
    probes: Vec<Probe>,
    tool_chains: Vec<ToolChain>,
    /// Folders that commands write copy-on-write.
    limits_by: &'static str,
    layers: Vec<PrivateLayer>,
    /// What the private layers hold on the disk, and what each principal's may.
    layer_bytes: u64,
    layer_max_bytes: u64,
    /// Likely not meant, but allowed.
    warnings: Vec<String>,
    /// What the configuration demands and does not get.
    problems: Vec<String>,
}

/// The database of `mcp.store.url`.
struct DatabaseFinding {
    /// User, host and name.
    address: String,
    tenant: String,
    state: Result<DatabaseReport, llmc_store::Error>,
}

impl DatabaseFinding {
    fn of(app: &App) -> Option<DatabaseFinding> {
        app.database().map(|database| DatabaseFinding {
            address: database.settings().url.to_string(),
            tenant: database.settings().tenant.to_string(),
            state: database.check(),
        })
    }

    fn is_usable(&self) -> bool {
        self.state.is_ok()
    }
}

pub(super) fn run(common: &Common, json: bool) -> Result<ExitCode, Failure> {
    let loaded = load_quietly(common)?;
    let stores = state::stores(&loaded.state_dir());
    let found = examine(&App::open(loaded)?, stores);
    print(&match json {
        true => page::document(&found),
        false => page::text(&found),
    })?;
    Ok(match found.problems.is_empty() {
        true => exit_code(found.database.as_ref()),
        false => ExitCode::from(ErrorKind::IsolationRequired.row().exit),
    })
}

/// `llmc doctor --store`.
pub(super) fn run_store(common: &Common, json: bool) -> Result<ExitCode, Failure> {
    let app = App::open(load_quietly(common)?)?;
    let found = DatabaseFinding::of(&app);
    print(&match json {
        true => page::store_document(found.as_ref()),
        false => page::store_text(found.as_ref()),
    })?;
    Ok(exit_code(found.as_ref()))
}

fn exit_code(database: Option<&DatabaseFinding>) -> ExitCode {
    match database.is_none_or(DatabaseFinding::is_usable) {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(ErrorKind::Unavailable.row().exit),
    }
}

/// The configuration; what is logged is errors only, unless the caller asks for more.
fn load_quietly(common: &Common) -> Result<LoadedConfig, Failure> {
    let loaded = load(common)?;
    let observability = &loaded.config.mcp.observability;
    let level = match common.log_level {
        Some(_) => observability.log_level,
        None => LogLevel::Error,
    };
    let format = log::LineFormat::of(observability.log_format);
    log::start(format, level, log::LogWriter::Direct);
    Ok(loaded)
}

fn examine(app: &Arc<App>, stores: Vec<Store>) -> Findings {
    let loaded = app.loaded();
    let (list, mut warnings) = mode::listing(&loaded.config);
    warnings.extend(loaded.warnings.iter().cloned());
    warnings.extend(config_warnings::all(loaded));
    let unusable = state::unusable(&loaded.state_dir());
    if let Some(why) = &unusable {
        warnings.push(format!(
            "the state directory cannot be used ({why}): files are read only, handles live in memory"
        ));
    }
    for store in &stores {
        if let Some(damage) = &store.damage {
            warnings.push(format!(
                "{} is {damage}; a server keeps it beside and begins a new one",
                store.name
            ));
        }
    }
    for file in state::moved_aside(&loaded.state_dir()) {
        warnings.push(format!(
            "{file} was kept because it could not be used; delete it when you need it no more"
        ));
    }
    let database = DatabaseFinding::of(app);
    let (history, damage) = history(app, database.as_ref());
    warnings.extend(damage);
    let parsers = llmc_sandbox::check_parsers();
    warnings.extend(parsers.weakness());
    let mut problems = Vec::new();
    let opened = app.commands();
    if let Err(error) = &opened {
        let hint = error.hint.as_deref().unwrap_or_default();
        problems.push(format!("commands are refused: {}; {hint}", error.message));
    }
    let offered = relaxed(app.command_settings());
    // Where the demands are not met, what there is can still be tried.
    let runner = opened.as_ref().ok().copied().or(offered.as_ref());
    let probes = runner.map_or_else(Vec::new, |runner| escape_tests(app, runner));
    let tool_chains = runner.map_or_else(Vec::new, |runner| tool_chains(app, runner));
    for tool in &tool_chains {
        if let Err(why) = &tool.version {
            let program = tool.program.display();
            warnings.push(format!("{program} does not start confined: {why}"));
        }
    }
    let escapes = probes.iter().filter(|t| t.result == ProbeResult::Escaped);
    problems.extend(escapes.map(|probe| format!("escaped: {}", probe.what)));
    let (programs, unresolved) = match runner {
        Some(runner) => (runner.programs().to_vec(), runner.unresolved().to_vec()),
        None => Default::default(),
    };
    Findings {
        executable: std::env::current_exe().map_or_else(
            |error| format!("unknown: {error}"),
            |path| path.display().to_string(),
        ),
        kernel: kernel(),
        uid: rustix::process::geteuid().as_raw(),
        listed: (list.len(), tools::cost(&list).0),
        sources: sources(app),
        unusable,
        stores,
        database,
        history,
        confinement: ConfinementSummary::of(app),
        scripts: app.script_backend(),
        parsers: match parsers {
            ParserConfinement::Confined => "in confined processes",
            ParserConfinement::ProcessOnly(_) => "in processes that the kernel does not confine",
            ParserConfinement::Unavailable(_) => "not at all",
        },
        offered: offered.as_ref().map(|runner| *runner.level()),
        level: opened.ok().map(|runner| *runner.level()),
        programs,
        unresolved,
        probes,
        tool_chains,
        limits_by: runner.map_or("", Runner::limits_by),
        layers: runner.map_or_else(Vec::new, |runner| runner.layers().to_vec()),
        layer_bytes: runner.map_or(0, Runner::layer_bytes),
        layer_max_bytes: runner.map_or(0, |runner| runner.settings().cache_max_bytes),
        warnings,
        problems,
        app: app.clone(),
    }
}

/// What the history holds, and what is wrong with it.
fn history(app: &App, database: Option<&DatabaseFinding>) -> (String, Vec<String>) {
    if !app.config().mcp.history.enabled {
        return ("switched off (mcp.history.enabled)".to_owned(), Vec::new());
    }
    match database.map(|database| &database.state) {
        Some(Err(why)) => return (format!("none: {why}"), Vec::new()),
        // Looking must not make the tables.
        Some(Ok(found)) if found.schema.is_none() => {
            let told = "none yet: the next server makes its tables";
            return (told.to_owned(), Vec::new());
        }
        _ => {}
    }
    let checked = app
        .history()
        .map_err(|error| error.message)
        .and_then(|history| history.check().map_err(|error| error.to_string()));
    match checked {
        Ok(found) => {
            let kept = format!(
                "{} entries, {} contents, {}",
                found.entries,
                found.objects,
                HumanBytes(found.bytes)
            );
            let damaged = (found.problems.iter()).map(|problem| format!("history: {problem}"));
            (kept, damaged.collect())
        }
        Err(why) => {
            let warning = format!("changes cannot be undone: {why}");
            (format!("none: {why}"), vec![warning])
        }
    }
}

/// A runner that demands nothing and asks for everything.
fn relaxed(settings: Settings) -> Option<Runner> {
    let settings = Settings {
        profile: Profile::Unrestricted,
        confinement: Confinement::Auto,
        ..settings
    };
    let without_network = Settings {
        network: false,
        ..settings.clone()
    };
    let network = Settings {
        network: true,
        ..settings
    };
    Runner::open(without_network)
        .or_else(|_| Runner::open(network))
        .ok()
}

fn escape_tests(app: &App, runner: &Runner) -> Vec<Probe> {
    match working_directory(app) {
        Ok(cwd) => run_probes(runner, &cwd),
        Err(error) => vec![Probe {
            what: "run something in a root",
            result: ProbeResult::Untried(error.to_string()),
        }],
    }
}

/// In the restricted profile the list of programs, not the search path, says what can run.
fn tool_chains(app: &App, runner: &Runner) -> Vec<ToolChain> {
    match working_directory(app) {
        Ok(cwd) if app.command_settings().profile == Profile::Unrestricted => {
            check_tool_chains(runner, &cwd)
        }
        _ => Vec::new(),
    }
}

fn working_directory(app: &App) -> llmc_host::Result<llmc_host::OpenDir> {
    let roots = &app.files().roots;
    let first = roots.paths().next().map(|path| path.display().to_string());
    roots
        .open_dir(".")
        .or_else(|error| first.map_or(Err(error), |path| roots.open_dir(&path)))
}

fn sources(app: &App) -> Vec<(usize, &'static str)> {
    let entries = app.loaded().entries().iter();
    let (mut user, mut file, mut env, mut cli) = (0, 0, 0, 0);
    for entry in entries {
        match entry.source {
            SettingSource::UserFile { .. } => user += 1,
            SettingSource::File { .. } => file += 1,
            SettingSource::Env(_) => env += 1,
            SettingSource::Cli(_) => cli += 1,
            SettingSource::Default | SettingSource::Rule(_) => {}
        }
    }
    let all = [
        (user, "in your own file"),
        (file, "in the file"),
        (env, "in the environment"),
        (cli, "by flags"),
    ];
    all.into_iter().filter(|(count, _)| *count > 0).collect()
}

fn kernel() -> String {
    #[expect(
        clippy::disallowed_methods,
        reason = "a file of the kernel, not of the agent"
    )]
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("Linux {} {}", release.trim(), std::env::consts::ARCH)
}

fn interpreters(found: &Findings) -> Vec<&str> {
    let names = found.programs.iter().map(|program| program.name.as_str());
    names.filter(|name| is_interpreter(name)).collect()
}
