//! The shared database as stores use it: from any thread, bounded in time, and away at times.
//!
//! Nothing starts before the first use: then one thread for the connections, and connections as they are needed. When
//! the database is away a caller learns so after at most [`OPERATION_TIMEOUT`], the next ones within a second learn it at
//! once, and the first one after that tries again. A database that accepts no further connections is not away: callers take
//! turns on those that are open.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use deadpool_postgres::{
    Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime as PoolRuntime,
    TimeoutType,
};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::{sleep, timeout};
use tokio_postgres::Client;

use crate::block_on::block_on;
use crate::listen::Listener;
use crate::report::{self, DatabaseReport};
use crate::schema::{self, CreationReport};
use crate::tls::TlsMaker;
use crate::transaction::{CONNECTION_LIMITS, TenantTransaction};
use crate::url::CONNECT_TIMEOUT;
use crate::{DatabaseUrl, Error, Result, Tenant};

/// How long one use of the database may take, connecting included: less than a call on files may.
pub(crate) const OPERATION_TIMEOUT: Duration = Duration::from_secs(6);
/// How long a caller waits for a connection that others use.
const CONNECTION_WAIT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long the database counts as away after a connection failed.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// How long no further connection is asked for after the database has refused one: each attempt costs it a process.
const REFUSAL_PAUSE: Duration = Duration::from_millis(500);
/// How often a caller looks meanwhile whether an open connection is free.
const FREE_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Which database, as whom, and how much of it.
#[derive(Debug, Clone)]
pub struct DatabaseSettings {
    pub url: DatabaseUrl,
    /// The role that creates tables, when it is not that of `url`.
    pub admin_url: Option<DatabaseUrl>,
    /// Whose rows these servers read and write.
    pub tenant: Tenant,
    pub max_connections: usize,
}

impl DatabaseSettings {
    /// Where tables are created from.
    pub(crate) fn creation_url(&self) -> &DatabaseUrl {
        self.admin_url.as_ref().unwrap_or(&self.url)
    }
}

/// The database of a team. Clones share its connections.
#[derive(Clone)]
pub struct Database(Arc<Inner>);

struct Inner {
    settings: DatabaseSettings,
    started: OnceLock<Result<Connections>>,
    /// Since when, and why, the database cannot be used.
    away: Mutex<Option<(Instant, Error)>>,
    /// When, and why, the database last refused a further connection.
    refused: Mutex<Option<(Instant, Error)>>,
}

/// What exists from the first use on.
struct Connections {
    /// `None` while it is being dropped.
    runtime: Option<Runtime>,
    pool: Pool,
}

impl Database {
    /// Remembers the settings; connects to nothing.
    pub fn new(settings: DatabaseSettings) -> Database {
        Database(Arc::new(Inner {
            settings,
            started: OnceLock::new(),
            away: Mutex::new(None),
            refused: Mutex::new(None),
        }))
    }

    pub fn settings(&self) -> &DatabaseSettings {
        &self.0.settings
    }

    /// Does something in one transaction, all or nothing.
    ///
    /// After a connection was lost the work is done once more on another one. The first transaction may have been
    /// committed even so, which the work has to allow for.
    ///
    /// # Errors
    /// What the work itself says, or why the database cannot be used.
    pub fn transaction<T, E: From<Error> + IsLost>(
        &self,
        work: impl AsyncFn(&TenantTransaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.transaction_within(OPERATION_TIMEOUT, work)
    }

    /// The same for work that may take longer, such as many rows at once; see [`TenantTransaction::allow_statements`].
    ///
    /// # Errors
    /// What the work itself says, or why the database cannot be used.
    pub fn transaction_within<T, E: From<Error> + IsLost>(
        &self,
        limit: Duration,
        work: impl AsyncFn(&TenantTransaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.check_pause()?;
        let connections = self.connections()?;
        let runtime = connections.runtime()?.handle();
        block_on(runtime, async {
            let bounded = timeout(limit, async {
                match self.attempt(&connections.pool, &work).await {
                    Err(error) if error.is_lost() => {
                        // The free ones are probably lost as well, and not all have been noticed yet.
                        connections.pool.retain(|_, _| false);
                        self.attempt(&connections.pool, &work).await
                    }
                    done => done,
                }
            });
            match bounded.await {
                Ok(done) => done,
                Err(_) => Err(self.note_away(Error::TooSlow).into()),
            }
        })
    }

    /// Listens for notifications on this channel, on a connection of its own. Connects to nothing yet.
    pub fn listener(&self, channel: impl Into<String>) -> Listener {
        Listener::new(self.clone(), channel.into())
    }

    pub(crate) fn runtime_handle(&self) -> Result<Handle> {
        Ok(self.connections()?.runtime()?.handle().clone())
    }

    /// Connects, so that the log has the state of the database.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn connect(&self) -> Result<()> {
        self.transaction(async |_| Ok(()))
    }

    /// Creates the tables, once, however many servers try it at the same time.
    ///
    /// # Errors
    /// The schema is of another program, or the role may not do it.
    pub fn create_tables(&self) -> Result<CreationReport> {
        let runtime = self.connections()?.runtime()?.handle();
        let created = block_on(runtime, schema::create(&self.0.settings))?;
        self.note_back();
        Ok(created)
    }

    /// Looks at the database and changes nothing.
    ///
    /// # Errors
    /// The first thing that keeps it from being used.
    pub fn check(&self) -> Result<DatabaseReport> {
        let runtime = self.connections()?.runtime()?.handle();
        block_on(runtime, async {
            timeout(OPERATION_TIMEOUT, report::check(&self.0.settings))
                .await
                .map_err(|_| Error::TooSlow)?
        })
    }

    async fn attempt<T, E: From<Error> + IsLost>(
        &self,
        pool: &Pool,
        work: &impl AsyncFn(&TenantTransaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let client = self.connection(pool).await?;
        // Taken out of the pool for the case that this future is dropped: an open transaction must not go back there.
        let mut lent = LentConnection(Some(client));
        let Some(client) = &lent.0 else {
            return Err(Error::Lost.into());
        };
        let tx = TenantTransaction::begin(client, &self.0.settings.tenant);
        match work(&tx).await {
            Ok(value) => {
                tx.commit().await?;
                lent.give_back();
                Ok(value)
            }
            Err(error) => {
                if !error.is_lost() && tx.roll_back().await.is_ok() {
                    lent.give_back();
                }
                Err(error)
            }
        }
    }

    /// A connection to a database that this program can use.
    async fn connection(&self, pool: &Pool) -> Result<Object> {
        let started = Instant::now();
        loop {
            let refused = match self.recent_refusal() {
                Some(why) if pool.status().available == 0 => why,
                _ => match self.open_or_free(pool, started).await {
                    Ok(client) => {
                        self.note_back();
                        return Ok(client);
                    }
                    // The others are fine, and so is the database.
                    Err(Error::Busy) => return Err(Error::Busy),
                    Err(why @ Error::NoConnection(_)) => self.note_refusal(why),
                    Err(error) => return Err(self.note_away(error)),
                },
            };
            if started.elapsed() >= CONNECTION_WAIT_TIMEOUT {
                return Err(match pool.status().size {
                    0 => self.note_away(refused),
                    _ => refused,
                });
            }
            sleep(FREE_POLL_INTERVAL).await;
        }
    }

    /// A free connection, or a new one.
    async fn open_or_free(&self, pool: &Pool, started: Instant) -> Result<Object> {
        let mut timeouts = pool.timeouts();
        timeouts.wait = Some(CONNECTION_WAIT_TIMEOUT.saturating_sub(started.elapsed()));
        let client = pool.timeout_get(&timeouts).await.map_err(of_pool)?;
        if Object::metrics(&client).recycle_count > 0 {
            return Ok(client);
        }
        // A new connection: since the last one the database may have become another.
        let mut lent = LentConnection(Some(client));
        if let Some(client) = &lent.0 {
            self.make_usable(client).await?;
        }
        lent.0.take().ok_or(Error::Lost)
    }

    async fn make_usable(&self, client: &Client) -> Result<()> {
        match schema::check_usable(client).await {
            Err(Error::NoSchema) => {
                if schema::create(&self.0.settings).await?.created_tables {
                    tracing::info!("the tables of the shared store were created");
                }
                schema::check_usable(client).await
            }
            checked => checked,
        }?;
        // Preparing a statement waits for a locked table, and a transaction prepares its first one before it begins.
        Ok(client.batch_execute(CONNECTION_LIMITS).await?)
    }

    fn connections(&self) -> Result<&Connections> {
        let started = self
            .0
            .started
            .get_or_init(|| Connections::start(&self.0.settings));
        started.as_ref().map_err(Clone::clone)
    }

    fn check_pause(&self) -> Result<()> {
        let away = self.0.away.lock().unwrap_or_else(PoisonError::into_inner);
        match &*away {
            Some((since, why)) if since.elapsed() < RETRY_PAUSE => Err(why.clone()),
            _ => Ok(()),
        }
    }

    fn recent_refusal(&self) -> Option<Error> {
        let refused = (self.0.refused.lock()).unwrap_or_else(PoisonError::into_inner);
        let (at, why) = refused.as_ref()?;
        (at.elapsed() < REFUSAL_PAUSE).then(|| why.clone())
    }

    fn note_refusal(&self, why: Error) -> Error {
        let mut refused = (self.0.refused.lock()).unwrap_or_else(PoisonError::into_inner);
        if refused.as_ref().is_none_or(|(_, before)| *before != why) {
            tracing::warn!(%why, hint = why.hint(), "calls wait for a connection to the shared store");
        }
        *refused = Some((Instant::now(), why.clone()));
        why
    }

    fn note_away(&self, why: Error) -> Error {
        let mut away = self.0.away.lock().unwrap_or_else(PoisonError::into_inner);
        if away.as_ref().is_none_or(|(_, before)| *before != why) {
            tracing::warn!(%why, hint = why.hint(), "the shared store is unavailable");
        }
        *away = Some((Instant::now(), why.clone()));
        why
    }

    fn note_back(&self) {
        let mut away = self.0.away.lock().unwrap_or_else(PoisonError::into_inner);
        if away.take().is_some() {
            tracing::info!("the shared store is available again");
        }
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Database({})", self.0.settings.url)
    }
}

/// Whether an error of the work means that the connection was lost.
pub trait IsLost {
    fn is_lost(&self) -> bool;
}

impl IsLost for Error {
    fn is_lost(&self) -> bool {
        self.is_worth_a_retry()
    }
}

impl Connections {
    fn start(settings: &DatabaseSettings) -> Result<Connections> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("llmc-store")
            .enable_all()
            .build()
            .map_err(|error| Error::Failed(format!("no thread for connections: {error}")))?;
        let config = ManagerConfig {
            recycling_method: RecyclingMethod::Fast,
        };
        let tls = TlsMaker::new(&settings.url)?;
        let manager = Manager::from_config(settings.url.config().clone(), tls, config);
        let pool = Pool::builder(manager)
            .max_size(settings.max_connections.max(1))
            .runtime(PoolRuntime::Tokio1)
            .wait_timeout(Some(CONNECTION_WAIT_TIMEOUT))
            .create_timeout(Some(CONNECT_TIMEOUT))
            .recycle_timeout(Some(CONNECT_TIMEOUT))
            .build()
            .map_err(|error| Error::Failed(error.to_string()))?;
        Ok(Connections {
            runtime: Some(runtime),
            pool,
        })
    }

    fn runtime(&self) -> Result<&Runtime> {
        self.runtime.as_ref().ok_or(Error::Lost)
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        self.pool.close();
        // Waiting for the thread would panic where the last user is a thread of another runtime.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// A connection that is closed on drop instead of used again, unless it was given back.
struct LentConnection(Option<Object>);

impl LentConnection {
    fn give_back(&mut self) {
        self.0 = None;
    }
}

impl Drop for LentConnection {
    fn drop(&mut self) {
        if let Some(client) = self.0.take() {
            drop(Object::take(client));
        }
    }
}

fn of_pool(error: PoolError) -> Error {
    match error {
        PoolError::Timeout(TimeoutType::Wait) => Error::Busy,
        PoolError::Timeout(_) => Error::Unreachable("no answer in time".to_owned()),
        PoolError::Backend(error) => error.into(),
        other => Error::Failed(other.to_string()),
    }
}
