//! The other servers that share this one's database, and calls that belong to one of them.
//!
//! A background process and a script session live on the server that started them. A call that names one and reaches another
//! server is written into the database for the server that has it; that server carries it out with the rights of
//! its caller and writes the answer, which is passed on as it is. No server connects to another.
//!
//! - `home`: which server a call belongs to
//! - `forward`: sending a call and waiting for its answer
//! - `watcher`: the thread that hears from other servers
//! - `store`: the rows; `wire`: what is written in them
//!
//! A forwarded call is never forwarded again. The server that the client asked counts, audits and records it.

mod forward;
mod home;
mod store;
mod watcher;
mod wire;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use llmc_observe::lock;
use llmc_store::Database;
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::activity::machine_name;
use crate::app::App;
use crate::error::{Error, ErrorKind, Result};

pub(crate) use home::{HomeArgument, on_server};
use store::ServerStore;
pub use store::{LiveServer, live_servers};
use wire::ServerRequest;

/// How long the end of a server waits until its row is removed.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long after an outage of the database heartbeats may come late: two of them.
const SETTLING_TIME: Duration = Duration::from_secs(6);
/// How long another server may take to answer what a surface asks it.
const CONTROL_TIMEOUT: Duration = Duration::from_secs(5);

/// Answers what surfaces of other servers ask. Runs on a thread that may wait.
pub type ControlHandler = Box<dyn Fn(Value) -> Result<Value> + Send + Sync>;

/// What connects this server to the others.
pub(crate) struct ServerLink {
    store: ServerStore,
    own: String,
    machine: String,
    /// How long an unused script session is remembered.
    session_ttl: Duration,
    runtime: Handle,
    /// Calls that other servers carry out for this one.
    awaited: Mutex<HashMap<String, Awaited>>,
    /// Calls that this server carries out for others.
    running: Mutex<HashMap<String, CancellationToken>>,
    /// Calls of others that were carried out last: one whose removal was lost in a crash of the database is not new.
    finished: Mutex<VecDeque<String>>,
    control: OnceLock<ControlHandler>,
    /// Held while a heartbeat is written, so that none follows the removal of the row.
    heartbeat: Mutex<()>,
    has_left: AtomicBool,
    /// Since when the database can be used without a break.
    connected_since: Mutex<Option<Instant>>,
}

/// A call that this server waits for.
#[derive(Debug)]
struct Awaited {
    arrived: oneshot::Sender<Arrival>,
    /// Whether its row has been written.
    is_sent: bool,
}

/// What has become of a call that another server was asked for.
#[derive(Debug)]
enum Arrival {
    Answer(String),
    /// The server is gone.
    ServerGone,
    /// The call is not in the database any more.
    Lost,
    /// The database is away.
    Away(llmc_store::Error),
}

impl fmt::Debug for ServerLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerLink")
            .field("own", &self.own)
            .finish_non_exhaustive()
    }
}

impl ServerLink {
    fn new(database: Database, own: &str, session_ttl: Duration, runtime: Handle) -> ServerLink {
        ServerLink {
            store: ServerStore::new(database, own),
            own: own.to_owned(),
            machine: machine_name(),
            session_ttl,
            runtime,
            awaited: Mutex::default(),
            running: Mutex::default(),
            finished: Mutex::default(),
            control: OnceLock::new(),
            heartbeat: Mutex::default(),
            has_left: AtomicBool::new(false),
            connected_since: Mutex::default(),
        }
    }

    /// Whether all servers have had the time to write a heartbeat since the database was away: until then a server without
    /// one need not be gone.
    fn knows_who_is_gone(&self) -> bool {
        let since = *lock(&self.connected_since);
        since.is_some_and(|since| since.elapsed() > SETTLING_TIME)
    }

    fn has_left(&self) -> bool {
        self.has_left.load(Ordering::SeqCst)
    }

    /// Writes that this server is running, unless it is about to end.
    fn write_heartbeat(&self) -> llmc_store::Result<()> {
        let _writing = lock(&self.heartbeat);
        match self.has_left() {
            true => Ok(()),
            false => self.store.heartbeat(&self.machine, self.session_ttl),
        }
    }

    /// Works with the rows on a thread that may wait.
    async fn with_store<T: Send + 'static>(
        &self,
        work: impl FnOnce(&ServerStore) -> llmc_store::Result<T> + Send + 'static,
    ) -> llmc_store::Result<T> {
        let store = self.store.clone();
        let worked = self.runtime.spawn_blocking(move || work(&store)).await;
        worked.unwrap_or_else(|panicked| Err(llmc_store::Error::Failed(panicked.to_string())))
    }
}

impl App {
    /// Makes this process one of the servers that share the database: others learn that it is running, and calls are
    /// passed on between them. Does nothing without a shared database.
    pub fn join_servers(self: &Arc<App>, runtime: &Handle) {
        let Some(database) = self.database().cloned() else {
            return;
        };
        let ttl = self.config().mcp.handles.ttl();
        let link = ServerLink::new(database, self.server_id(), ttl, runtime.clone());
        let link = self.server_link_cell().get_or_init(|| Arc::new(link));
        self.processes().name_server(self.server_id());
        watcher::start(link.clone(), Arc::downgrade(self));
    }

    /// Removes this server from the list of those that are running. Waits a second at most.
    pub fn leave_servers(&self) {
        let Some(link) = self.server_link().cloned() else {
            return;
        };
        link.has_left.store(true, Ordering::SeqCst);
        let (done, is_done) = sync_channel(1);
        std::thread::spawn(move || {
            let _writing = lock(&link.heartbeat);
            if let Err(error) = link.store.leave() {
                tracing::debug!(%error, "the row of this server stays until it has expired");
            }
            let _ = done.send(());
        });
        let _ = is_done.recv_timeout(LEAVE_TIMEOUT);
    }

    /// The servers that share the database and are running; none without a shared database. Blocks.
    ///
    /// # Errors
    /// The database cannot be used.
    pub fn live_servers(&self) -> Result<Vec<LiveServer>> {
        match self.database() {
            Some(database) => Ok(store::live_servers(database)?),
            None => Ok(Vec::new()),
        }
    }

    /// Answers what surfaces of other servers ask this one with [`App::ask_server`] and [`App::tell_servers`].
    pub fn answer_servers(&self, handler: ControlHandler) {
        if let Some(link) = self.server_link() {
            let _ = link.control.set(handler);
        }
    }

    /// Asks another server something that is no call of a tool. Blocks; must not be called on an async thread.
    ///
    /// # Errors
    /// What it answers, or that it does not.
    pub fn ask_server(&self, server: &str, request: Value) -> Result<Value> {
        let link = self.server_link().ok_or_else(|| {
            Error::new(
                ErrorKind::NotFound,
                "this process shares no store with servers",
            )
        })?;
        let request = ServerRequest::Control(request);
        let text = link.runtime.block_on(async {
            let pending = link.send(server, &request, CONTROL_TIMEOUT).await?;
            pending.answer_within(CONTROL_TIMEOUT).await
        })?;
        wire::read_control_answer(&text)
    }

    /// Tells every other server something, without an answer. Blocks.
    pub fn tell_servers(&self, request: Value) {
        let Some(link) = self.server_link() else {
            return;
        };
        let told = wire::write_request(&ServerRequest::Control(request)).and_then(|request| {
            link.store
                .broadcast(&request, CONTROL_TIMEOUT)
                .map_err(Error::from)
        });
        if let Err(error) = told {
            tracing::debug!(%error, "a message to other servers could not be written");
        }
    }

    pub(crate) fn server_link(&self) -> Option<&Arc<ServerLink>> {
        self.server_link_cell().get()
    }
}
