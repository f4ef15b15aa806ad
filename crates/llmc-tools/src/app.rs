//! The running application: configuration, doors to the files, stores, the list of tools.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use llmc_config::{Config, ExecProfile, Loaded};
use llmc_envelope::handles::{Options, SourceStamp};
use llmc_envelope::{HandleId, HandleStore, Telemetry};
use llmc_exec::{Confinement, Profile, Runner, Settings};
use llmc_host::{CONFIG_FILE, CancelToken, Roots, Rules, STATE_DIR, Workspace, WriteState};
use llmc_index::{Index, State};

use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::confinement::Truth;
use crate::cx::Caller;
use crate::embedding;
use crate::error::{Error, Kind, Result};
use crate::mode;
use crate::observe::Observer;
use crate::processes::Processes;
use crate::resources::Sidecars;
use crate::rlm::{self, Analyses};
use crate::script::Scripts;
use crate::shell;
use crate::tool::{Effect, ToolDef};

/// Sessions whose budgets are tracked at the same time.
const SESSIONS: usize = 4096;
/// How long `health` says the same about the index.
const INDEX_SEEN: Duration = Duration::from_millis(200);
/// The record of calls, in the state directory.
pub(crate) const TELEMETRY: &str = "te_telemetry.db";
/// How many stored files are remembered, so that paging through one stores it once.
const KEPT_FILES: usize = 64;

/// A stored file: whose, in which state, under which handle.
#[derive(Debug)]
struct KeptFile {
    principal: String,
    stamp: SourceStamp,
    id: HandleId,
}

/// Everything that lives as long as the process.
#[derive(Debug)]
pub struct App {
    loaded: Loaded,
    /// Where stores are kept; nowhere when the state directory cannot be used.
    stores: Option<PathBuf>,
    files: Workspace,
    linux: Workspace,
    handles: OnceLock<Result<HandleStore>>,
    processes: Processes,
    analyses: Analyses,
    commands: OnceLock<Result<Runner>>,
    index: OnceLock<Index>,
    keeping_index: AtomicBool,
    /// What `health` last said about the index.
    index_seen: Mutex<Option<(Instant, State)>>,
    kept_files: Mutex<VecDeque<KeptFile>>,
    observer: Observer,
    listing: Vec<&'static ToolDef>,
    sidecars: Sidecars,
    /// Places for calls that run at the same time, for each principal: one cannot keep another waiting. Scripts have
    /// their own, or many of them would keep every other call waiting.
    running: Mutex<BTreeMap<(String, bool), Arc<Semaphore>>>,
    scripts: Scripts,
    served: Mutex<BTreeMap<(String, String), u64>>,
    session_id: String,
    started: Instant,
}

impl App {
    /// Opens everything. What could not be opened but can be done without is logged as a warning.
    ///
    /// # Errors
    /// A root that is not there, or a security switch that cannot be honoured.
    pub fn start(loaded: Loaded) -> Result<Arc<App>> {
        let app = App::open(loaded)?;
        app.meet_demands()?;
        Ok(app)
    }

    /// The same for whoever looks rather than serves: confinement that is demanded and not there is found by the first
    /// command only.
    ///
    /// # Errors
    /// A root that is not there.
    pub fn open(loaded: Loaded) -> Result<Arc<App>> {
        let config = &loaded.config;
        let root = loaded.root.clone();
        let state_dir = loaded.state_dir();
        let state = make_state_dir(&state_dir).and_then(|()| {
            WriteState::open(&state_dir, config.mcp.locks.lease()).map_err(Error::from)
        });
        let index = OnceLock::new();
        let state = match state {
            Ok(state) => Some(Arc::new(state)),
            Err(error) => {
                tracing::warn!(error = %error, "state directory cannot be used: files are read only, handles live in memory");
                let _ = index.set(Index::nowhere(error.to_string()));
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
        let observer = Observer::start(&loaded, stores.as_deref());
        Ok(Arc::new(App {
            stores,
            files,
            linux,
            handles: OnceLock::new(),
            processes: Processes::default(),
            analyses: Analyses::default(),
            commands: OnceLock::new(),
            index,
            keeping_index: AtomicBool::new(false),
            index_seen: Mutex::default(),
            kept_files: Mutex::default(),
            observer,
            listing,
            sidecars,
            running: Mutex::default(),
            scripts: Scripts::default(),
            served: Mutex::default(),
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
    pub fn loaded(&self) -> &Loaded {
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

    /// This principal's places for calls that run at the same time; the others wait their turn.
    pub(crate) fn running(&self, principal: &str, effect: Effect) -> Arc<Semaphore> {
        let key = (principal.to_owned(), effect == Effect::Scripts);
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(places) = running.get(&key) {
            return places.clone();
        }
        let places = self.config().mcp.limits.concurrency_per_token;
        let places = usize::try_from(places).unwrap_or(Semaphore::MAX_PERMITS);
        let places = Arc::new(Semaphore::new(places.clamp(1, Semaphore::MAX_PERMITS)));
        running.insert(key, places.clone());
        places
    }

    /// Tokens that a session has been served by budgeted tools.
    pub(crate) fn served_to(&self, caller: &Caller) -> u64 {
        let served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        served.get(&session_of(caller)).copied().unwrap_or(0)
    }

    pub(crate) fn count_served(&self, caller: &Caller, tokens: u64) {
        let session = session_of(caller);
        let mut served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        if served.len() >= SESSIONS && !served.contains_key(&session) {
            served.pop_first();
        }
        *served.entry(session).or_default() += tokens;
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

    /// The handle store, opened when first needed so that a start costs nothing for it.
    ///
    /// # Errors
    /// The store cannot be opened, not even in memory.
    pub fn handles(&self) -> Result<&HandleStore> {
        let opened = self.handles.get_or_init(|| {
            let keep = &self.config().mcp.handles;
            let options = Options {
                ttl: keep.ttl(),
                max_bytes: keep.max_bytes,
                ..Options::default()
            };
            if let Some(dir) = &self.stores {
                match shell::open_store(dir, options.clone()) {
                    Ok(store) => return Ok(store),
                    Err(why) => tracing::warn!(why, "handle store falls back to memory"),
                }
            }
            HandleStore::in_memory(options).map_err(Error::from)
        });
        opened.as_ref().map_err(Clone::clone)
    }

    /// The record of calls, for reading; what this process itself is doing may not be in it yet.
    ///
    /// # Errors
    /// There is none, or it cannot be opened.
    pub fn telemetry(&self) -> Result<Telemetry> {
        let none = || {
            Error::new(Kind::NotFound, "no telemetry is kept here").hint(
                "the state directory cannot be used, or mcp.docker.persist_telemetry is false",
            )
        };
        let dir = self.stores.as_ref().ok_or_else(none)?;
        if !self.config().mcp.docker.persist_telemetry {
            return Err(none());
        }
        Telemetry::open(&dir.join(TELEMETRY), Default::default())
            .map_err(|error| Error::new(Kind::Internal, error.to_string()))
    }

    /// What runs commands, opened when first needed: finding out what the kernel gives takes a few milliseconds. Where
    /// the operator demands something of it, it is opened at start.
    ///
    /// # Errors
    /// The configuration demands more confinement than this kernel gives.
    pub fn commands(&self) -> Result<&Runner> {
        self.open_commands(|_| ())
    }

    /// The same; whoever opens it does this to it first.
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
        let mut health = json!({
            "ok": true,
            "version": "v0",
            "confinement": Truth::confinement(self),
            "profile": self.config().mcp.exec.profile.as_str(),
            "index": self.index_state(),
        });
        if let Some(progress) = self.index_progress() {
            health["index_progress"] = progress;
        }
        if let Some(why) = self.index().failure() {
            health["index_trouble"] = why.into();
        }
        health
    }

    /// The state of the index, looked up now and then: `health` is asked often, and this reads files.
    fn index_state(&self) -> State {
        let seen = self.index_seen.lock();
        let mut seen = seen.unwrap_or_else(PoisonError::into_inner);
        match *seen {
            Some((at, state)) if at.elapsed() < INDEX_SEEN => state,
            _ => {
                let state = self.index().state();
                *seen = Some((Instant::now(), state));
                state
            }
        }
    }

    /// How far this process is with looking at the whole tree, while it does.
    pub fn index_progress(&self) -> Option<Value> {
        let progress = self.index().progress();
        let (done, total) = (progress.done(), progress.total());
        progress
            .is_at_work()
            .then(|| json!({"done": done, "total": total.max(done)}))
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
    pub(crate) fn analyses(&self) -> &Analyses {
        &self.analyses
    }

    /// What whoever sits at the shell asks of the next analysis.
    pub fn analyse_from_shell(&self, shell: rlm::Shell) {
        self.analyses.prepare(shell);
    }

    /// The index of the workspace; without a state directory there is none, and searches go over the files.
    pub fn index(&self) -> &Index {
        self.index.get_or_init(|| {
            let index = match &self.stores {
                Some(dir) => Index::at(&dir.join("index")),
                None => Index::nowhere("there is no state directory".to_owned()),
            };
            match embedding::embedder(self.config()) {
                Some(embedder) => index.with_embedder(embedder),
                None => index,
            }
        })
    }

    /// Begins to keep the index where questions are to be expected: tools that need it are offered, and the workspace
    /// is a repository or has an index already. Elsewhere (a home directory, a mode without retrieval) the first
    /// question begins it.
    pub fn expect_questions(self: &Arc<App>) {
        let offered = self.listing.iter().any(|tool| tool.retrieves);
        let worth_it = || self.root().join(".git").exists() || self.index().bytes() > 0;
        if offered && !self.keeping_index.load(Ordering::Relaxed) && worth_it() {
            self.keep_index();
        }
    }

    /// Keeps the index current in the background from now on; asking again changes nothing.
    pub fn keep_index(self: &Arc<App>) {
        if self.keeping_index.swap(true, Ordering::Relaxed) {
            return;
        }
        let app = Arc::clone(self);
        let spawned = std::thread::Builder::new()
            .name("index".to_owned())
            .spawn(move || {
                let roots = app.files().roots.clone();
                app.index().keep_current(&roots, &CancelToken::default());
            });
        if let Err(error) = spawned {
            tracing::warn!(error = %error, "no thread to keep the index");
        }
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
        Settings {
            profile: match mcp.exec.profile {
                ExecProfile::Unrestricted => Profile::Unrestricted,
                ExecProfile::Restricted => Profile::Restricted,
            },
            confinement: match mcp.exec.confinement {
                llmc_config::Confinement::Auto => Confinement::Auto,
                llmc_config::Confinement::Full => Confinement::Full,
                llmc_config::Confinement::Off => Confinement::Off,
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

    /// The handle under which this principal already has this state of this file.
    pub(crate) fn kept_file(&self, principal: &str, stamp: &SourceStamp) -> Option<HandleId> {
        let kept = self
            .kept_files
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let found = kept
            .iter()
            .find(|kept| kept.principal == principal && kept.stamp == *stamp)?
            .id;
        drop(kept);
        self.handles()
            .ok()?
            .info(principal, found)
            .ok()
            .map(|_| found)
    }

    pub(crate) fn remember_file(&self, principal: &str, stamp: &SourceStamp, id: HandleId) {
        let mut kept = self
            .kept_files
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        kept.truncate(KEPT_FILES - 1);
        kept.push_front(KeptFile {
            principal: principal.to_owned(),
            stamp: stamp.clone(),
            id,
        });
    }
}

/// A session belongs to its principal: another's session of the same name is another session.
fn session_of(caller: &Caller) -> (String, String) {
    (caller.principal.clone(), caller.session.clone())
}

/// Files that decide over the agent: configuration, audit, policy.
fn server_files(loaded: &Loaded) -> Vec<PathBuf> {
    let mut files = vec![loaded.root.join(CONFIG_FILE), loaded.csv_path()];
    files.extend(loaded.file.as_deref().map(|file| loaded.root.join(file)));
    let policy = loaded.config.mcp.exec.policy_file.iter();
    files.extend(policy.map(|path| loaded.resolve(path)));
    let script = Some(&loaded.config.mcp.te.script_path).filter(|path| !path.is_empty());
    files.extend(script.map(|path| loaded.resolve(path)));
    files
}

fn rules(loaded: &Loaded, state_dir: &Path) -> Result<Rules> {
    let config = &loaded.config;
    let protected = server_files(loaded);
    let mut roots = vec![loaded.root.clone()];
    roots.extend(loaded.roots());
    roots.extend(loaded.linux_roots());
    let tools = &config.mcp.tools;
    let rules = Rules::new(Some(state_dir.to_owned()), protected)
        .with_roots(&roots)
        .with_denylist(&tools.denylist_globs, tools.denylist_reads)?;
    Ok(rules)
}

/// Makes the state directory, closed to others and invisible to git.
fn make_state_dir(dir: &Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    let failed = |error: std::io::Error| {
        Error::new(
            Kind::WriteFailed,
            format!("{STATE_DIR} cannot be made: {error}"),
        )
    };
    if dir.is_symlink() {
        return Err(Error::new(
            Kind::InvalidPath,
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
