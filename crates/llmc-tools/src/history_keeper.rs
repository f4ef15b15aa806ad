//! The history of the workspace as calls use it: opened when first needed, kept current by a thread of its own in servers.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use llmc_config::HistoryConfig;
use llmc_history::{ChangeAuthor, History, HistorySettings, HistoryState, HistoryViewer};
use llmc_host::{Access, FinalLink, Workspace};
use llmc_store::Database;

use crate::app::App;
use crate::background_recordings::BackgroundRecordings;
use crate::cx::{Caller, Cx};
use crate::error::{Error, ErrorKind, Result};

/// The principal that sees and undoes the entries of all others.
const USER: &str = "local";
/// The tool whose callers may read it.
const HISTORY_TOOL: &str = "history";
/// A workspace of which fewer files were read so far may be a small one.
const SMALL_WORKSPACE_FILES: u64 = 2000;
/// How often a call looks whether the first snapshot is there.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

pub(crate) struct HistoryKeeper {
    /// Where the store lies, or why there is none.
    place: Result<HistoryPlace, NoHistory>,
    files: Workspace,
    settings: HistorySettings,
    history: OnceLock<Result<History, String>>,
    is_started: AtomicBool,
    has_waited: AtomicBool,
    background: BackgroundRecordings,
}

/// Where a history is kept.
#[derive(Debug, Clone)]
enum HistoryPlace {
    /// A state directory.
    Dir(PathBuf),
    /// What the servers of a team share.
    Database(Database),
}

/// Why no history is kept.
#[derive(Debug, Clone)]
pub(crate) enum NoHistory {
    /// The operator switched it off, which answers need not say.
    SwitchedOff,
    Unusable(String),
}

impl HistoryKeeper {
    /// `dir` is the state directory, or why it cannot be used; a database comes before it.
    pub(crate) fn new(
        dir: Result<PathBuf, String>,
        database: Option<Database>,
        files: Workspace,
        config: &HistoryConfig,
    ) -> HistoryKeeper {
        let place = match (dir, database) {
            _ if !config.enabled => Err(NoHistory::SwitchedOff),
            (_, Some(database)) => Ok(HistoryPlace::Database(database)),
            (Ok(dir), None) => Ok(HistoryPlace::Dir(dir)),
            (Err(why), None) => Err(NoHistory::Unusable(why)),
        };
        HistoryKeeper {
            place,
            files,
            settings: HistorySettings {
                max_bytes: config.max_bytes,
                keep_days: u32::try_from(config.keep_days).unwrap_or(u32::MAX),
                max_file_bytes: config.max_file_bytes,
                ..HistorySettings::default()
            },
            history: OnceLock::new(),
            is_started: AtomicBool::new(false),
            has_waited: AtomicBool::new(false),
            background: BackgroundRecordings::default(),
        }
    }

    /// Whether changes are to be recorded.
    pub(crate) fn is_on(&self) -> bool {
        !matches!(self.place, Err(NoHistory::SwitchedOff))
    }

    pub(crate) fn background(&self) -> &BackgroundRecordings {
        &self.background
    }

    /// The history, or why there is none.
    pub(crate) fn history(&self) -> Result<&History, String> {
        let opened = self.history.get_or_init(|| {
            let (files, settings) = (self.files.clone(), self.settings.clone());
            let opened = match &self.place {
                Ok(HistoryPlace::Dir(dir)) => History::open(dir, files, settings),
                Ok(HistoryPlace::Database(database)) => {
                    Ok(History::open_shared(database.clone(), files, settings))
                }
                Err(NoHistory::SwitchedOff) => {
                    return Err("it is switched off (mcp.history.enabled)".to_owned());
                }
                Err(NoHistory::Unusable(why)) => return Err(why.clone()),
            };
            opened.map_err(|error| {
                tracing::warn!(error = %error, "no history is kept");
                error.to_string()
            })
        });
        opened.as_ref().map_err(Clone::clone)
    }

    /// The history, with its first snapshot if that is there in time.
    pub(crate) fn with_snapshot(&self, wait: &SnapshotWait) -> Result<&History, String> {
        let history = self.history()?;
        history.watch_changes();
        let building = || match history.state() {
            HistoryState::Building { done } => Some(done),
            _ => None,
        };
        if building().is_none() || self.has_waited.load(Ordering::Relaxed) {
            return Ok(history);
        }
        history.start();
        let started = Instant::now();
        while let Some(done) = building() {
            let limit = match done < SMALL_WORKSPACE_FILES {
                true => wait.small,
                false => wait.large,
            };
            if started.elapsed() >= limit {
                // Once is enough: calls that follow do not wait for a large workspace.
                self.has_waited.store(wait.is_last, Ordering::Relaxed);
                break;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(history)
    }
}

/// How long a call waits for the first snapshot.
pub(crate) struct SnapshotWait {
    /// While few files are read, which takes long on a busy machine only.
    pub(crate) small: Duration,
    /// Once more than that are.
    pub(crate) large: Duration,
    /// Whether calls that follow do without.
    pub(crate) is_last: bool,
}

impl fmt::Debug for HistoryKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HistoryKeeper")
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

impl App {
    /// What calls changed in the workspace.
    ///
    /// # Errors
    /// It is switched off, or its store cannot be used.
    pub fn history(&self) -> Result<&History> {
        self.history_keeper().history().map_err(|why| {
            Error::new(
                ErrorKind::Unavailable,
                format!("no history is kept here: {why}"),
            )
            .retry(false)
        })
    }

    /// Begins to keep the history current in the background, for a process that goes on; asking again changes nothing.
    pub fn keep_history(self: &Arc<App>) {
        let keeper = self.history_keeper();
        if keeper.place.is_err() || keeper.is_started.swap(true, Ordering::Relaxed) {
            return;
        }
        let app = Arc::clone(self);
        let spawned = std::thread::Builder::new()
            .name("history".to_owned())
            .spawn(move || {
                if let Ok(history) = app.history_keeper().history() {
                    history.start();
                }
            });
        if let Err(error) = spawned {
            tracing::warn!(error = %error, "no thread to open the history");
        }
    }

    /// Records what background processes have changed so far. For the end of the process, when they have ended.
    pub fn finish_recordings(&self) {
        self.history_keeper().background().close();
    }
}

/// Refuses a token whose list of tools does not have the history.
pub(crate) fn check_reader(caller: &Caller) -> Result<()> {
    let tools = caller.tools.as_deref();
    if tools.is_none_or(|tools| tools.iter().any(|name| name == HISTORY_TOOL)) {
        return Ok(());
    }
    let message = format!("{HISTORY_TOOL} is not among this token's tools");
    Err(Error::new(ErrorKind::CommandDenied, message))
}

/// Whose entries a principal may see and undo.
pub(crate) fn viewer_of(principal: &str) -> HistoryViewer {
    match principal {
        USER => HistoryViewer::All,
        name => HistoryViewer::Principal(name.to_owned()),
    }
}

/// Who asks for a part of the history.
#[derive(Debug)]
pub(crate) struct HistoryRequest<'a> {
    pub(crate) viewer: HistoryViewer,
    caller: &'a Caller,
}

impl HistoryRequest<'_> {
    pub(crate) fn of(cx: &Cx) -> HistoryRequest<'_> {
        HistoryRequest {
            viewer: viewer_of(&cx.caller().principal),
            caller: cx.caller(),
        }
    }

    /// The session that is meant: `this` is the caller's own.
    pub(crate) fn session(&self, named: String) -> String {
        match named.as_str() {
            "this" => self.caller.session.clone(),
            _ => named,
        }
    }
}

/// The author of what a caller changes.
pub(crate) fn author(caller: &Caller, tool: &str, args_short: String) -> ChangeAuthor {
    ChangeAuthor {
        principal: caller.principal.clone(),
        agent: caller.agent.clone(),
        session: caller.session.clone(),
        tool: tool.to_owned(),
        args_short,
    }
}

/// A path as the history has it.
pub(crate) fn history_path(cx: &Cx, requested: &str) -> Result<Vec<u8>> {
    let resolve = |files: &Workspace| {
        files
            .roots
            .resolve(requested, FinalLink::Follow, Access::Read)
    };
    let path = match resolve(cx.files()) {
        Ok(path) => path,
        Err(error) => resolve(cx.linux()).map_err(|_| error)?,
    };
    Ok(cx.app().history()?.path_of(&path))
}

impl From<llmc_history::Error> for Error {
    fn from(error: llmc_history::Error) -> Error {
        use llmc_history::Error as History;
        let message = error.to_string();
        match error {
            History::UnknownEntry(_) => {
                Error::new(ErrorKind::NotFound, message).hint("history lists the entries")
            }
            History::AlreadyUndone { .. } => Error::new(ErrorKind::Conflict, message),
            History::BadRequest(_) => Error::bad_args(message),
            History::Unavailable(_) | History::TooManyFiles(_) => {
                Error::new(ErrorKind::Unavailable, message)
            }
            History::DamagedContent(_) => {
                Error::new(ErrorKind::Internal, message).hint("llmc doctor checks the history")
            }
            History::Host(error) => error.into(),
        }
    }
}
