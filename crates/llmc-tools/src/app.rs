//! The running application: configuration, workspace, stores, the list of tools.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use llmc_config::{Config, LoadedConfig};
use llmc_envelope::HandleStore;
use llmc_host::{PathRules, Roots, Workspace, WriteState};
use llmc_index::IndexState;
use llmc_observe::{Observer, SharedAudit, Telemetry, TelemetryLocation, TelemetryOptions};
use llmc_store::Database;

use serde_json::{Value, json};

use crate::activity::{self, RunningCalls};
use crate::budget::SessionBudgets;
use crate::catalog::health::HealthReport;
use crate::command_keeper::CommandKeeper;
use crate::error::{Error, ErrorKind, Result};
use crate::handle_keeper::HandleKeeper;
use crate::history_keeper::HistoryKeeper;
use crate::index_keeper::IndexKeeper;
use crate::mode;
use crate::observe;
use crate::processes::Processes;
use crate::resources::Sidecars;
use crate::rlm::{AnalysisShell, AnalysisState};
use crate::script::Scripts;
use crate::shared_audit;
use crate::shared_store::shared_database;
use crate::shell::comparing::BaseResults;
use crate::shell::refusals::Explained;
use crate::slots::CallSlots;
use crate::state;
use crate::tool::ToolDef;
use crate::upstreams::Upstreams;

const ROOTS_KEY: &str = "mcp.tools.allowed_roots";
const LINUX_ROOTS_KEY: &str = "mcp.linux_ops.roots.allowed_roots";

/// Everything that lives as long as the process.
#[derive(Debug)]
pub struct App {
    loaded: LoadedConfig,
    /// Where stores are kept; nowhere when the state directory cannot be used.
    stores: Option<PathBuf>,
    files: Workspace,
    linux: Workspace,
    /// What the servers of a team share; `None` on a machine of its own.
    database: Option<Database>,
    handles: HandleKeeper,
    processes: Processes,
    /// Which refusals of the boundary its answers have explained.
    explained: Explained,
    base_results: BaseResults,
    analyses: AnalysisState,
    commands: CommandKeeper,
    index: IndexKeeper,
    history: HistoryKeeper,
    observer: Observer,
    /// The audit that servers share, if one is kept.
    audit: Option<Arc<SharedAudit>>,
    /// Where calls are recorded, if they are.
    telemetry: Option<TelemetryLocation>,
    /// Tools of this server that the mode lists.
    own_listing: Vec<&'static ToolDef>,
    /// The same, and the promoted tools of upstreams.
    listing: OnceLock<Vec<&'static ToolDef>>,
    upstreams: Upstreams,
    sidecars: Sidecars,
    slots: CallSlots,
    scripts: Scripts,
    sessions: SessionBudgets,
    session_id: String,
    server_id: String,
    running: RunningCalls,
    started: Instant,
}

impl App {
    /// Opens everything. What could not be opened but can be done without is logged as a warning.
    ///
    /// # Errors
    /// A root that is not there (the key is named), or a security switch that cannot be honoured.
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
        let state_dir = loaded.state_dir();
        let database = shared_database(&config.mcp.store)?;
        let state = state::make(&state_dir).and_then(|()| {
            let lease = config.mcp.locks.lease();
            WriteState::open_shared(&state_dir, lease, database.clone()).map_err(Error::from)
        });
        let usable_dir = match &state {
            Ok(_) => Ok(state_dir.clone()),
            Err(error) => Err(error.to_string()),
        };
        let index_dir = usable_dir.clone().map(|dir| dir.join("index"));
        let index = IndexKeeper::new(index_dir);
        let state = match state {
            Ok(state) => Some(Arc::new(state)),
            Err(error) => {
                tracing::warn!(error = %error, "state directory cannot be used: files are read only, handles live in memory");
                None
            }
        };
        let rules = Arc::new(state::rules(&loaded, &state_dir)?);
        let secret_rules = rules.clone();
        let files = open_roots(&loaded, ROOTS_KEY, &loaded.roots(), rules.clone())?;
        let files = Workspace::new(Arc::new(files), state.clone());
        for said in files.take_back_unfinished_patches() {
            tracing::warn!("{said}");
        }
        let home = loaded.home().map(Path::to_owned);
        let linux_key = match config.mcp.linux_ops.roots.allowed_roots {
            Some(_) => LINUX_ROOTS_KEY,
            None => ROOTS_KEY,
        };
        let linux = open_roots(&loaded, linux_key, &loaded.linux_roots(), rules.clone())?;
        let linux = Workspace::new(Arc::new(linux.with_home(home)), state.clone());
        let history = HistoryKeeper::new(
            usable_dir,
            database.clone(),
            all_files(&loaded, &files, rules, state.clone())?,
            &config.mcp.history,
        );
        let upstreams = Upstreams::new(&loaded)?;
        let (own_listing, warnings) = mode::listing(config);
        for warning in warnings.iter().chain(&loaded.warnings) {
            tracing::warn!("{warning}");
        }
        let sidecars = Sidecars::find(&config.mcp.resources.sidecars, &files);
        let stores = state.is_some().then_some(state_dir);
        let server_id = activity::server_id(database.is_some());
        let audit = shared_audit::open(config, database.as_ref(), &server_id);
        let telemetry = observe::telemetry_location(config, stores.as_deref(), database.as_ref());
        let observer = observe::start(
            &loaded,
            telemetry.clone(),
            audit.is_some(),
            &server_id,
            secret_rules,
        );
        Ok(Arc::new(App {
            handles: HandleKeeper::new(stores.clone(), database.clone(), &config.mcp.handles),
            database,
            slots: CallSlots::new(config.mcp.limits.concurrency_per_token),
            stores,
            files,
            linux,
            processes: Processes::default(),
            explained: Explained::default(),
            base_results: BaseResults::default(),
            analyses: AnalysisState::default(),
            commands: CommandKeeper::default(),
            index,
            history,
            observer,
            audit,
            telemetry,
            own_listing,
            listing: OnceLock::new(),
            upstreams,
            sidecars,
            scripts: Scripts::default(),
            sessions: SessionBudgets::default(),
            session_id: uuid::Uuid::new_v4().to_string(),
            server_id,
            running: RunningCalls::default(),
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
        self.listing.get_or_init(|| {
            let promoted = self.promoted_tools().iter();
            self.own_listing.iter().chain(promoted).copied().collect()
        })
    }

    pub(crate) fn upstreams(&self) -> &Upstreams {
        &self.upstreams
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

    /// Names this process among the servers of the workspace.
    pub fn server_id(&self) -> &str {
        &self.server_id
    }

    /// The calls that this process is carrying out.
    pub(crate) fn running(&self) -> &RunningCalls {
        &self.running
    }

    /// Waits until calls have come and none has been in progress for that long.
    pub async fn rest_between_calls(&self, at_least: Duration) {
        self.running.rest(at_least).await;
    }

    /// Where the servers of this workspace have their sockets.
    pub fn servers_dir(&self) -> Option<PathBuf> {
        Some(self.stores.as_ref()?.join("servers"))
    }

    /// Where calls are recorded, if they are.
    pub fn telemetry_location(&self) -> Option<&TelemetryLocation> {
        let is_on = self.config().mcp.observability.enabled;
        self.telemetry.as_ref().filter(|_| is_on)
    }

    pub(crate) fn shared_audit(&self) -> Option<&Arc<SharedAudit>> {
        self.audit.as_ref()
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

    pub(crate) fn command_keeper(&self) -> &CommandKeeper {
        &self.commands
    }

    pub(crate) fn history_keeper(&self) -> &HistoryKeeper {
        &self.history
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

    /// The database that this server shares with others, if it does.
    pub fn database(&self) -> Option<&Database> {
        self.database.as_ref()
    }

    /// Connects to the shared database, if there is one, on a thread of its own: the start does not wait for it, and its
    /// state is in the log before a call needs it.
    pub fn connect_store(&self) {
        if let Some(database) = self.database.clone() {
            std::thread::spawn(move || drop(database.connect()));
        }
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
        self.telemetry_within(None)
    }

    /// The same with another limit on the wait for other processes.
    pub(crate) fn telemetry_within(&self, lock_timeout: Option<Duration>) -> Result<Telemetry> {
        let none = || {
            Error::new(ErrorKind::NotFound, "no telemetry is kept here").hint(
                "the state directory cannot be used, or mcp.docker.persist_telemetry is false",
            )
        };
        let options = TelemetryOptions {
            lock_timeout,
            ..TelemetryOptions::default()
        };
        match self.telemetry.as_ref().ok_or_else(none)? {
            TelemetryLocation::Database(database) => {
                Ok(Telemetry::shared(database.clone(), options))
            }
            TelemetryLocation::File(path) => Telemetry::open(path, options)
                .map_err(|error| Error::new(ErrorKind::Internal, error.to_string())),
        }
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

    /// Which refusals of the boundary its answers have explained.
    pub(crate) fn explained(&self) -> &Explained {
        &self.explained
    }

    /// Results of `run_compare` at bases.
    pub(crate) fn base_results(&self) -> &BaseResults {
        &self.base_results
    }

    /// What recursive analyses share.
    pub(crate) fn analyses(&self) -> &AnalysisState {
        &self.analyses
    }

    /// What the user at the shell asks of the next analysis.
    pub fn analyse_from_shell(&self, shell: AnalysisShell) {
        self.analyses.prepare(shell);
    }
}

/// Files of all tools, general and `linux_*`: what one of them changed can be undone.
fn all_files(
    loaded: &LoadedConfig,
    general: &Workspace,
    rules: Arc<PathRules>,
    state: Option<Arc<WriteState>>,
) -> Result<Workspace> {
    let mut dirs = loaded.roots();
    let further: Vec<PathBuf> = loaded
        .linux_roots()
        .into_iter()
        .filter(|dir| !dirs.contains(dir))
        .collect();
    if further.is_empty() {
        return Ok(general.clone());
    }
    dirs.extend(further);
    let roots = open_roots(loaded, LINUX_ROOTS_KEY, &dirs, rules)?;
    Ok(Workspace::new(Arc::new(roots), state))
}

/// Opens roots; one that cannot be used is a mistake in the configuration, which is named.
fn open_roots(
    loaded: &LoadedConfig,
    key: &str,
    dirs: &[PathBuf],
    rules: Arc<PathRules>,
) -> Result<Roots> {
    Roots::open(&loaded.root, dirs, rules).map_err(|error| match error {
        llmc_host::Error::Unsupported(_) => error.into(),
        error => {
            let entry = loaded.entries().iter().find(|entry| entry.key == key);
            let place = entry.map_or(String::new(), |entry| {
                format!("{}: ", entry.source.describe(loaded.file_label()))
            });
            Error::bad_args(format!("{place}{key}: {error}"))
                .hint("name folders that exist, or leave the key out")
        }
    })
}
