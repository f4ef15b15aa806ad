//! The workers: started when first needed, kept warm for a while, never shared between owners.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use llmc_exec::{Worker, WorkerEnd};
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::Error;
use crate::session::{Session, Setup};
use crate::worker::WORKER;

/// Blocks that one worker serves before it is let go, so that whatever piles up in one has an end.
const USES: u32 = 500;
/// Memory of a worker beyond its scripts': its own tables, messages under way.
const OWN_MEMORY: u64 = 192 << 20;
/// How long an unused worker is kept.
const IDLE: Duration = Duration::from_secs(60);

/// How many workers there may be.
#[derive(Debug, Clone)]
pub struct Options {
    /// Sessions that are open at the same time; the next one waits.
    pub sessions: usize,
    /// Fresh workers kept ready once there has been a first session.
    pub warm: usize,
    /// Workers that have served and are kept for the same owner.
    pub used: usize,
    /// The most memory that any script is ever allowed; the kernel holds workers to it, too.
    pub memory_bytes: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            sessions: 32,
            warm: 1,
            used: 8,
            memory_bytes: 1 << 30,
        }
    }
}

/// Where sessions come from. Cloning it is cheap and means the same sandbox.
#[derive(Debug, Clone)]
pub struct Sandbox {
    pool: Arc<Pool>,
}

impl Default for Sandbox {
    fn default() -> Sandbox {
        Sandbox::new(Options::default())
    }
}

impl Sandbox {
    /// Starts nothing yet.
    pub fn new(options: Options) -> Sandbox {
        let places = Arc::new(Semaphore::new(options.sessions.max(1)));
        Sandbox {
            pool: Arc::new(Pool {
                options,
                places,
                idle: Mutex::default(),
                looked_after: AtomicBool::new(false),
            }),
        }
    }

    /// Opens a session for `owner`, whose name only decides whose used workers may serve it.
    ///
    /// # Errors
    /// No worker can be started, or the state to begin with cannot be read.
    pub async fn session(&self, owner: &str, setup: Setup) -> Result<Session, Error> {
        Session::open(self.pool.clone(), owner, setup).await
    }
}

/// A worker and the socket to it.
#[derive(Debug)]
pub(crate) struct Hand {
    pub(crate) process: Worker,
    pub(crate) socket: UnixStream,
    /// What has arrived and was not yet taken.
    pub(crate) inbox: Vec<u8>,
    pub(crate) uses: u32,
}

impl Hand {
    fn start(options: &Options) -> std::io::Result<Hand> {
        let memory = options.memory_bytes.saturating_add(OWN_MEMORY);
        let (process, socket) = Worker::start(&[WORKER, &memory.to_string()])?;
        socket.set_nonblocking(true)?;
        Ok(Hand {
            process,
            socket: UnixStream::from_std(socket)?,
            inbox: Vec::new(),
            uses: 0,
        })
    }

    /// Ends it and tells how it ended.
    pub(crate) async fn end(mut self) -> WorkerEnd {
        self.process.kill();
        let waited = tokio::task::spawn_blocking(move || self.process.wait()).await;
        waited.unwrap_or(WorkerEnd::Unknown)
    }

    /// Tells how it ended, which it has: its socket is closed.
    pub(crate) async fn ended(self) -> WorkerEnd {
        let Hand { process, .. } = self;
        let waited = tokio::task::spawn_blocking(move || process.wait()).await;
        waited.unwrap_or(WorkerEnd::Unknown)
    }
}

/// Whether a worker was started just now, or has waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fresh {
    Yes,
    No,
}

#[derive(Debug)]
struct Resting {
    hand: Hand,
    /// Whom it has served; `None` when it is fresh.
    owner: Option<String>,
    since: Instant,
}

#[derive(Debug)]
pub(crate) struct Pool {
    options: Options,
    places: Arc<Semaphore>,
    idle: Mutex<Vec<Resting>>,
    looked_after: AtomicBool,
}

impl Pool {
    /// A place among the open sessions.
    pub(crate) async fn place(&self) -> Result<OwnedSemaphorePermit, Error> {
        let place = self.places.clone().acquire_owned().await;
        place.map_err(|_| Error::Gone)
    }

    /// A worker that has served nobody else.
    pub(crate) fn take(self: &Arc<Pool>, owner: &str) -> Result<(Hand, Fresh), Error> {
        let (found, fresh) = {
            let mut idle = self.idle();
            let own = |resting: &Resting| resting.owner.as_deref() == Some(owner);
            let fresh = |resting: &Resting| resting.owner.is_none();
            let at = idle
                .iter()
                .rposition(own)
                .or_else(|| idle.iter().rposition(fresh));
            let found = at.map(|at| idle.remove(at).hand);
            (found, idle.iter().filter(|resting| fresh(resting)).count())
        };
        if fresh < self.options.warm {
            self.warm_up();
        }
        match found {
            Some(hand) => Ok((hand, Fresh::No)),
            None => {
                let hand = Hand::start(&self.options).map_err(Error::Start)?;
                Ok((hand, Fresh::Yes))
            }
        }
    }

    /// Takes a worker back that is between sessions.
    pub(crate) fn put_back(self: &Arc<Pool>, owner: &str, mut hand: Hand) {
        hand.uses += 1;
        let mut idle = self.idle();
        let used = idle.iter().filter(|resting| resting.owner.is_some());
        if hand.uses >= USES || used.count() >= self.options.used {
            return;
        }
        idle.push(Resting {
            hand,
            owner: Some(owner.to_owned()),
            since: Instant::now(),
        });
        drop(idle);
        self.look_after();
    }

    /// Starts one more fresh worker, while whoever caused it goes on.
    fn warm_up(self: &Arc<Pool>) {
        let pool = self.clone();
        tokio::spawn(async move {
            match Hand::start(&pool.options) {
                Ok(hand) => {
                    let mut idle = pool.idle();
                    let fresh = idle.iter().filter(|resting| resting.owner.is_none());
                    if fresh.count() < pool.options.warm {
                        idle.push(Resting {
                            hand,
                            owner: None,
                            since: Instant::now(),
                        });
                    }
                    drop(idle);
                    pool.look_after();
                }
                Err(error) => tracing::warn!(%error, "no worker can be kept warm"),
            }
        });
    }

    /// Lets go of workers that nobody has wanted for a while; one task does it for all, as long as there are any.
    fn look_after(self: &Arc<Pool>) {
        if self.looked_after.swap(true, Ordering::Relaxed) {
            return;
        }
        let pool = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(IDLE / 4).await;
                let Some(pool) = Weak::upgrade(&pool) else {
                    return;
                };
                let mut idle = pool.idle();
                idle.retain(|resting| resting.since.elapsed() < IDLE);
                if idle.is_empty() {
                    pool.looked_after.store(false, Ordering::Relaxed);
                    return;
                }
            }
        });
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Resting>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
