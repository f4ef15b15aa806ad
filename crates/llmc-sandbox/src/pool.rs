//! Worker processes: started when first needed, kept idle for a while, never shared between owners.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use llmc_exec::{Worker, WorkerEnd};
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::Error;
use crate::session::{Session, SessionSetup};
use crate::worker::WORKER_ARGUMENT;

/// Sessions that one worker serves before it is replaced, which bounds anything that accumulates in it.
const MAX_WORKER_USES: u32 = 500;
/// Memory of a worker beyond its scripts': its own tables, messages in flight.
const WORKER_OVERHEAD_BYTES: u64 = 192 << 20;
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug, Clone)]
pub struct SandboxOptions {
    /// Sessions open at the same time; further ones wait.
    pub sessions: usize,
    /// New workers kept ready after the first session.
    pub warm: usize,
    /// Used workers that are kept for their owners.
    pub used: usize,
    /// The largest memory limit of any script; the kernel enforces it on workers, too.
    pub memory_bytes: u64,
}

impl Default for SandboxOptions {
    fn default() -> SandboxOptions {
        SandboxOptions {
            sessions: 32,
            warm: 1,
            used: 8,
            memory_bytes: 1 << 30,
        }
    }
}

/// Opens sessions. Clones share the workers.
#[derive(Debug, Clone)]
pub struct Sandbox {
    pool: Arc<Pool>,
}

impl Default for Sandbox {
    fn default() -> Sandbox {
        Sandbox::new(SandboxOptions::default())
    }
}

impl Sandbox {
    /// Starts nothing yet.
    pub fn new(options: SandboxOptions) -> Sandbox {
        let permits = Arc::new(Semaphore::new(options.sessions.max(1)));
        Sandbox {
            pool: Arc::new(Pool {
                options,
                permits,
                idle: Mutex::default(),
                reaper_runs: AtomicBool::new(false),
            }),
        }
    }

    /// Opens a session for `owner`; used workers serve the same owner only.
    ///
    /// # Errors
    /// No worker can be started, or the initial state cannot be read.
    pub async fn session(&self, owner: &str, setup: SessionSetup) -> Result<Session, Error> {
        Session::open(self.pool.clone(), owner, setup).await
    }
}

/// A worker and the socket to it.
#[derive(Debug)]
pub(crate) struct WorkerHandle {
    pub(crate) process: Worker,
    pub(crate) socket: UnixStream,
    /// Received bytes that are not a whole message yet.
    pub(crate) inbox: Vec<u8>,
    pub(crate) uses: u32,
}

impl WorkerHandle {
    fn start(options: &SandboxOptions) -> std::io::Result<WorkerHandle> {
        let memory = options.memory_bytes.saturating_add(WORKER_OVERHEAD_BYTES);
        let (process, socket) = Worker::start(&[WORKER_ARGUMENT, &memory.to_string()])?;
        socket.set_nonblocking(true)?;
        Ok(WorkerHandle {
            process,
            socket: UnixStream::from_std(socket)?,
            inbox: Vec::new(),
            uses: 0,
        })
    }

    /// Kills the process and returns how it ended.
    pub(crate) async fn kill(mut self) -> WorkerEnd {
        self.process.kill();
        let waited = tokio::task::spawn_blocking(move || self.process.wait()).await;
        waited.unwrap_or(WorkerEnd::Unknown)
    }

    /// How the process ended; its socket is closed already.
    pub(crate) async fn wait(self) -> WorkerEnd {
        let waited = tokio::task::spawn_blocking(move || self.process.wait()).await;
        waited.unwrap_or(WorkerEnd::Unknown)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkerAge {
    New,
    FromPool,
}

#[derive(Debug)]
struct IdleWorker {
    worker: WorkerHandle,
    /// `None` for a worker that has served no session.
    owner: Option<String>,
    since: Instant,
}

#[derive(Debug)]
pub(crate) struct Pool {
    options: SandboxOptions,
    permits: Arc<Semaphore>,
    idle: Mutex<Vec<IdleWorker>>,
    reaper_runs: AtomicBool,
}

impl Pool {
    /// Waits for one of the permits for open sessions.
    pub(crate) async fn permit(&self) -> Result<OwnedSemaphorePermit, Error> {
        let permit = self.permits.clone().acquire_owned().await;
        permit.map_err(|_| Error::Gone)
    }

    /// A worker that has served no other owner.
    pub(crate) fn take(self: &Arc<Pool>, owner: &str) -> Result<(WorkerHandle, WorkerAge), Error> {
        let (found, fresh) = {
            let mut idle = self.idle();
            let own = |idle_worker: &IdleWorker| idle_worker.owner.as_deref() == Some(owner);
            let fresh = |idle_worker: &IdleWorker| idle_worker.owner.is_none();
            let at = idle
                .iter()
                .rposition(own)
                .or_else(|| idle.iter().rposition(fresh));
            let found = at.map(|at| idle.remove(at).worker);
            (
                found,
                idle.iter().filter(|idle_worker| fresh(idle_worker)).count(),
            )
        };
        if fresh < self.options.warm {
            self.warm_up();
        }
        match found {
            Some(worker) => Ok((worker, WorkerAge::FromPool)),
            None => {
                let worker = WorkerHandle::start(&self.options).map_err(Error::Start)?;
                Ok((worker, WorkerAge::New))
            }
        }
    }

    /// Takes back a worker whose session is over.
    pub(crate) fn put_back(self: &Arc<Pool>, owner: &str, mut worker: WorkerHandle) {
        worker.uses += 1;
        let mut idle = self.idle();
        let used = idle
            .iter()
            .filter(|idle_worker| idle_worker.owner.is_some());
        if worker.uses >= MAX_WORKER_USES || used.count() >= self.options.used {
            return;
        }
        idle.push(IdleWorker {
            worker,
            owner: Some(owner.to_owned()),
            since: Instant::now(),
        });
        drop(idle);
        self.start_reaper();
    }

    /// Starts one more new worker in a task of its own.
    fn warm_up(self: &Arc<Pool>) {
        let pool = self.clone();
        tokio::spawn(async move {
            match WorkerHandle::start(&pool.options) {
                Ok(worker) => {
                    let mut idle = pool.idle();
                    let fresh = idle
                        .iter()
                        .filter(|idle_worker| idle_worker.owner.is_none());
                    if fresh.count() < pool.options.warm {
                        idle.push(IdleWorker {
                            worker,
                            owner: None,
                            since: Instant::now(),
                        });
                    }
                    drop(idle);
                    pool.start_reaper();
                }
                Err(error) => tracing::warn!(%error, "no idle worker can be started"),
            }
        });
    }

    /// Ends workers that are idle for too long; one task does it for all, as long as there are any.
    fn start_reaper(self: &Arc<Pool>) {
        if self.reaper_runs.swap(true, Ordering::Relaxed) {
            return;
        }
        let pool = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(IDLE_TIMEOUT / 4).await;
                let Some(pool) = Weak::upgrade(&pool) else {
                    return;
                };
                let mut idle = pool.idle();
                idle.retain(|idle_worker| idle_worker.since.elapsed() < IDLE_TIMEOUT);
                if idle.is_empty() {
                    pool.reaper_runs.store(false, Ordering::Relaxed);
                    return;
                }
            }
        });
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<IdleWorker>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
