//! The running application: configuration, doors to the files, stores, the list of tools.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use llmc_config::{CachePolicy, Config, ExecProfile, LoadedConfig};
use llmc_envelope::HandleStore;
use llmc_envelope::handles::Options;
use llmc_exec::{
    CacheMode, Confinement, HIDDEN_PLACES, Profile, Runner, SYSTEM_SEARCH_PATH, Settings,
    tool_search_path, user_home,
};
use llmc_host::{CONFIG_FILE, PathRules, Roots, STATE_DIR, Workspace, WriteState};
use llmc_index::IndexState;
use llmc_observe::{Observer, Telemetry};

use serde_json::{Value, json};

use crate::budget::SessionBudgets;
use crate::catalog::health::HealthReport;
use crate::error::{Error, ErrorKind, Result};
use crate::handle_keeper::HandleKeeper;
use crate::index_keeper::IndexKeeper;
use crate::mode;
use crate::observe;
use crate::processes::Processes;
use crate::resources::Sidecars;
use crate::rlm::{AnalysisShell, AnalysisState};
use crate::script::Scripts;
use crate::slots::CallSlots;
use crate::tool::ToolDef;

/// The record of calls, in the state directory.
pub(crate) const TELEMETRY: &str = "te_telemetry.db";
/// Everything that lives as long as the process.
#[derive(Debug)]
pub struct App {
    loaded: LoadedConfig,
    /// Where stores are kept; nowhere when the state directory cannot be used.
    stores: Option<PathBuf>,
    files: Workspace,
    linux: Workspace,
    handles: HandleKeeper,
    processes: Processes,
    analyses: AnalysisState,
    commands: OnceLock<Result<Runner>>,
    index: IndexKeeper,
    observer: Observer,
    listing: Vec<&'static ToolDef>,
    sidecars: Sidecars,
    slots: CallSlots,
    scripts: Scripts,
    sessions: SessionBudgets,
    session_id: String,
    started: Instant,
}

impl App {
    /// Opens everything. What could not be opened but can be done without is logged as a warning.
    ///
    /// # Errors
    /// A root that is not there, or a security switch that cannot be honoured.
    pub fn start(loaded: LoadedConfig) -> Result<Arc<App>> {
        let app = App::open(loaded)?;
        app.meet_demands()?;
        Ok(app)
    }

    /// The same for a process that does not serve: confinement that is required and missing is found by the first
    /// command only.
    ///
    /// # Errors
    /// A root that is not there.
    pub fn open(loaded: LoadedConfig) -> Result<Arc<App>> {
        let config = &loaded.config;
        let root = loaded.root.clone();
        let state_dir = loaded.state_dir();
        let state = make_state_dir(&state_dir).and_then(|()| {
            WriteState::open(&state_dir, config.mcp.locks.lease()).map_err(Error::from)
        });
        let index = IndexKeeper::new(match &state {
            Ok(_) => Ok(state_dir.join("index")),
            Err(error) => Err(error.to_string()),
        });
        let state = match state {
            Ok(state) => Some(Arc::new(state)),
            Err(error) => {
                tracing::warn!(error = %error, "state directory cannot be used: files are read only, handles live in memory");
                None
            }
        };
        let rules = Arc::new(rules(&loaded, &state_dir)?);
        let files = Roots::open(&root, &loaded.roots(), rules.clone())?;
        let files = Workspace::new(Arc::new(files), state.clone());
        let home = loaded.home().map(Path::to_owned);
        let linux = Roots::open(&root, &loaded.linux_roots(), rules)?.with_home(home);
        let linux = Workspace::new(Arc::new(linux), state.clone());
        let (listing, warnings) = mode::listing(config);
        for warning in warnings.iter().chain(&loaded.warnings) {
            tracing::warn!("{warning}");
        }
        let sidecars = Sidecars::find(&config.mcp.resources.sidecars, &files);
        let stores = state.is_some().then_some(state_dir);
        let observer = observe::start(&loaded, stores.as_deref());
        Ok(Arc::new(App {
            handles: HandleKeeper::new(stores.clone(), handle_options(config)),
            slots: CallSlots::new(config.mcp.limits.concurrency_per_token),
            stores,
            files,
            linux,
            processes: Processes::default(),
            analyses: AnalysisState::default(),
            commands: OnceLock::new(),
            index,
            observer,
            listing,
            sidecars,
            scripts: Scripts::default(),
            sessions: SessionBudgets::default(),
            session_id: uuid::Uuid::new_v4().to_string(),
            started: Instant::now(),
            loaded,
        }))
    }

    /// The effective configuration.
    pub fn config(&self) -> &Config {
        &self.loaded.config
    }

    /// The configuration with the source of every value.
    pub fn loaded(&self) -> &LoadedConfig {
        &self.loaded
    }

    /// The workspace root.
    pub fn root(&self) -> &Path {
        &self.loaded.root
    }

    /// Files of general tools.
    pub fn files(&self) -> &Workspace {
        &self.files
    }

    /// Files of `linux_*` tools.
    pub fn linux(&self) -> &Workspace {
        &self.linux
    }

    /// What an MCP client is listed, in order.
    pub fn listing(&self) -> &[&'static ToolDef] {
        &self.listing
    }

    /// Metrics, audit, telemetry.
    pub fn observer(&self) -> &Observer {
        &self.observer
    }

    /// Documents offered as resources.
    pub fn sidecars(&self) -> &Sidecars {
        &self.sidecars
    }

    /// The session of callers that bring none: one per process.
    pub fn session_id(&self) -> &str {
        &self.session_id
    }

    pub(crate) fn slots(&self) -> &CallSlots {
        &self.slots
    }

    pub(crate) fn sessions(&self) -> &SessionBudgets {
        &self.sessions
    }

    pub(crate) fn handle_keeper(&self) -> &HandleKeeper {
        &self.handles
    }

    pub(crate) fn index_keeper(&self) -> &IndexKeeper {
        &self.index
    }

    /// Since when the process serves.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// The state directory, if it can be used.
    pub(crate) fn stores(&self) -> Option<&Path> {
        self.stores.as_deref()
    }

    /// Whether the state directory is an entry of this directory.
    pub(crate) fn is_state_dir_of(&self, dir: &Path) -> bool {
        self.stores.as_deref().and_then(Path::parent) == Some(dir)
    }

    /// The handle store.
    ///
    /// # Errors
    /// The store cannot be opened, not even in memory.
    pub fn handles(&self) -> Result<&HandleStore> {
        self.handles.store()
    }

    /// The record of calls, for reading; what this process itself is doing may not be in it yet.
    ///
    /// # Errors
    /// There is none, or it cannot be opened.
    pub fn telemetry(&self) -> Result<Telemetry> {
        let none = || {
            Error::new(ErrorKind::NotFound, "no telemetry is kept here").hint(
                "the state directory cannot be used, or mcp.docker.persist_telemetry is false",
            )
        };
        let dir = self.stores.as_ref().ok_or_else(none)?;
        if !self.config().mcp.docker.persist_telemetry {
            return Err(none());
        }
        Telemetry::open(&dir.join(TELEMETRY), Default::default())
            .map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))
    }

    /// What runs commands, opened when first needed: finding out what the kernel gives takes a few milliseconds. Where
    /// the operator demands something of it, it is opened at start.
    ///
    /// # Errors
    /// The configuration demands more confinement than this kernel gives.
    pub fn commands(&self) -> Result<&Runner> {
        self.open_commands(|_| ())
    }

    /// The same; applies `first` to a runner that this call opens.
    pub(crate) fn open_commands(&self, first: fn(&mut Runner)) -> Result<&Runner> {
        let opened = self.commands.get_or_init(|| {
            let mut runner = Runner::open(self.command_settings())?;
            first(&mut runner);
            Ok(runner)
        });
        opened.as_ref().map_err(Clone::clone)
    }

    /// The body of `GET /health`: what this server is and what holds its programs.
    pub fn health(&self) -> Value {
        json!(HealthReport::of(self))
    }

    /// Whether the index is ready, as of a moment ago.
    pub(crate) fn index_state(&self) -> IndexState {
        self.index.state(self.config())
    }

    /// What scripts need that outlives them.
    pub(crate) fn scripts(&self) -> &Scripts {
        &self.scripts
    }

    /// Programs that outlive the call that started them.
    pub fn processes(&self) -> &Processes {
        &self.processes
    }

    /// What recursive analyses share.
    pub(crate) fn analyses(&self) -> &AnalysisState {
        &self.analyses
    }

    /// What the user at the shell asks of the next analysis.
    pub fn analyse_from_shell(&self, shell: AnalysisShell) {
        self.analyses.prepare(shell);
    }

    /// What the configuration says about commands.
    pub fn command_settings(&self) -> Settings {
        let (loaded, mcp) = (&self.loaded, &self.loaded.config.mcp);
        let roots = loaded.roots();
        let (write_roots, read_roots) = if mcp.tools.read_only {
            (Vec::new(), roots)
        } else {
            (roots, Vec::new())
        };
        let profile = match mcp.exec.profile {
            ExecProfile::Unrestricted => Profile::Unrestricted,
            ExecProfile::Restricted => Profile::Restricted,
        };
        let home = user_home();
        let search_path = match (profile, mcp.exec.path.as_str()) {
            (Profile::Restricted, _) => SYSTEM_SEARCH_PATH.map(PathBuf::from).to_vec(),
            (Profile::Unrestricted, "auto") => {
                let path = std::env::var_os("PATH");
                tool_search_path(&loaded.root, path.as_deref(), home.as_deref())
            }
            (Profile::Unrestricted, folders) => {
                let folders = folders.split(':');
                folders.map(|folder| loaded.resolve(folder)).collect()
            }
        };
        let hidden = mcp.exec.hidden.clone().unwrap_or_else(|| {
            let places = HIDDEN_PLACES.iter();
            places.map(|&place| place.to_owned()).collect()
        });
        Settings {
            profile,
            home,
            search_path,
            local_sockets: profile == Profile::Unrestricted,
            hidden,
            caches: match mcp.exec.caches {
                CachePolicy::Private => CacheMode::Private,
                CachePolicy::Shared => CacheMode::Shared,
                CachePolicy::Off => CacheMode::Off,
            },
            cache_max_bytes: mcp.exec.cache_max_bytes,
            env: mcp.exec.env.clone(),
            confinement: match mcp.exec.confinement {
                llmc_config::ConfinementMode::Auto => Confinement::Auto,
                llmc_config::ConfinementMode::Full => Confinement::Full,
                llmc_config::ConfinementMode::Off => Confinement::Off,
            },
            allowlist: mcp.tools.run_cmd_allowlist.clone(),
            policy_file: mcp
                .exec
                .policy_file
                .as_deref()
                .map(|path| loaded.resolve(path)),
            roots: Some(self.files.roots.clone()),
            write_roots,
            read_roots,
            homes: vec![loaded.root.clone()],
            extra_write: mcp
                .exec
                .extra_write
                .iter()
                .map(|path| loaded.resolve(path))
                .collect(),
            protected: server_files(loaded),
            state_dir: self.stores.clone(),
            network: mcp.exec.network,
            ..Settings::default()
        }
    }
}

fn handle_options(config: &Config) -> Options {
    let handles = &config.mcp.handles;
    Options {
        ttl: handles.ttl(),
        max_bytes: handles.max_bytes,
        ..Options::default()
    }
}

/// Files that decide over the agent: configuration, audit, policy.
fn server_files(loaded: &LoadedConfig) -> Vec<PathBuf> {
    let mut files = vec![loaded.root.join(CONFIG_FILE), loaded.csv_path()];
    files.extend(loaded.file.as_deref().map(|file| loaded.root.join(file)));
    let policy = loaded.config.mcp.exec.policy_file.iter();
    files.extend(policy.map(|path| loaded.resolve(path)));
    let script = Some(&loaded.config.mcp.te.script_path).filter(|path| !path.is_empty());
    files.extend(script.map(|path| loaded.resolve(path)));
    files
}

fn rules(loaded: &LoadedConfig, state_dir: &Path) -> Result<PathRules> {
    let config = &loaded.config;
    let protected = server_files(loaded);
    let mut roots = vec![loaded.root.clone()];
    roots.extend(loaded.roots());
    roots.extend(loaded.linux_roots());
    let tools = &config.mcp.tools;
    let rules = PathRules::new(Some(state_dir.to_owned()), protected)
        .with_roots(&roots)
        .with_denylist(&tools.denylist_globs, tools.denylist_reads)?;
    Ok(rules)
}

/// Makes the state directory, closed to others and invisible to git.
fn make_state_dir(dir: &Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    let failed = |error: std::io::Error| {
        Error::new(
            ErrorKind::WriteFailed,
            format!("{STATE_DIR} cannot be made: {error}"),
        )
    };
    if dir.is_symlink() {
        return Err(Error::new(
            ErrorKind::InvalidPath,
            format!("{STATE_DIR} is a link; it must be a directory"),
        ));
    }
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(failed)?;
    // A new file only: through a link that came with the repository it would be written elsewhere.
    let ignore = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(dir.join(".gitignore"));
    match ignore {
        Ok(mut file) => std::io::Write::write_all(&mut file, b"*\n").map_err(failed),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(failed(error)),
    }
}
