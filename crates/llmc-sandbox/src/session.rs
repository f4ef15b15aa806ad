//! One interpreter whose variables and functions last from one block of code to the next.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, StreamExt};
use llmc_exec::WorkerEnd;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::host::{Host, HostCall, HostError};
use crate::limits::{Budget, Limit, Limits};
use crate::names::Names;
use crate::outcome::{Ending, Outcome, Trouble, TroubleKind};
use crate::pool::{Fresh, Hand, Pool};
use crate::wire::{self, Bounds, Reply, Said, Told, Why};

/// How long a worker may go on past a limit, or past being told to end, before it is killed.
const GRACE: Duration = Duration::from_millis(100);
/// How long calls that nobody waits for any more may take to notice.
const FAREWELL: Duration = Duration::from_secs(1);
/// How long a worker may take to come up, or to write down its state.
const PATIENCE: Duration = Duration::from_secs(10);
/// Calls of one block that run at the same time; the others wait.
const AT_ONCE: usize = 8;

/// How a session begins.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    /// What its scripts find beside Python.
    pub names: Names,
    /// The state to begin with, from [`Session::dump`]; empty otherwise.
    pub state: Option<Vec<u8>>,
    /// What all its blocks may spend together.
    pub budget: Budget,
    /// Writes the state down after each block, so that a session whose worker had to be ended goes back to the block
    /// before rather than to its beginning. Costs time with every block that leaves much behind.
    pub checkpoints: bool,
}

/// One interpreter. Dropping it gives its worker back.
#[derive(Debug)]
pub struct Session {
    pool: Arc<Pool>,
    owner: String,
    setup: Setup,
    hand: Option<Hand>,
    spent: Spent,
    _place: OwnedSemaphorePermit,
}

#[derive(Debug, Default)]
struct Spent {
    cpu: Duration,
    calls: u64,
    output: u64,
}

impl Session {
    pub(crate) async fn open(pool: Arc<Pool>, owner: &str, setup: Setup) -> Result<Session, Error> {
        let place = pool.place().await?;
        let mut session = Session {
            pool,
            owner: owner.to_owned(),
            setup,
            hand: None,
            spent: Spent::default(),
            _place: place,
        };
        session.begin().await?;
        Ok(session)
    }

    /// Runs one block of code. What it binds is there for the next one, also when it fails.
    ///
    /// Does not fail: whatever happens to the script, and to its worker, is in the outcome.
    pub async fn run<H: Host>(
        &mut self,
        code: &str,
        limits: &Limits,
        host: &H,
        cancel: &CancellationToken,
    ) -> Outcome {
        let started = Instant::now();
        let limits = self.within_budget(limits);
        let hand = match self.ready().await {
            Ok(hand) => hand,
            Err(error) => return broken(started, &error),
        };
        let block = Block {
            hand,
            limits: &limits,
            host,
            cancel,
            started,
            output: String::new(),
            calls: 0,
            cpu: Duration::ZERO,
        };
        let (mut outcome, kept) = block.run(code).await;
        self.spent.cpu += outcome.cpu;
        self.spent.calls += outcome.calls;
        self.spent.output += outcome.output.len() as u64;
        self.hand = kept;
        outcome.rolled_back = self.hand.is_none();
        if self.setup.checkpoints && !outcome.rolled_back {
            match self.dump(wire::TAIL_LIMIT as u64).await {
                Ok(state) => self.setup.state = Some(state),
                Err(error) => tracing::debug!(%error, "no checkpoint"),
            }
        }
        outcome
    }

    /// The session as bytes, from which another can begin.
    ///
    /// # Errors
    /// It takes more than `max_bytes`, or its worker is gone.
    pub async fn dump(&mut self, max_bytes: u64) -> Result<Vec<u8>, Error> {
        let mut hand = self.ready().await?;
        let told = Told::Dump { max_bytes };
        let asked = tokio::time::timeout(PATIENCE, ask(&mut hand, &told, &[])).await;
        match asked {
            Ok(Ok((Said::Dumped, state))) => {
                self.hand = Some(hand);
                Ok(state)
            }
            Ok(Ok((Said::NotDumped(why), _))) => {
                self.hand = Some(hand);
                Err(Error::NotDumped(why))
            }
            _ => {
                hand.end().await;
                Err(Error::Gone)
            }
        }
    }

    /// The process that runs its blocks, between them.
    pub fn worker_id(&self) -> Option<u32> {
        self.hand.as_ref()?.process.id()
    }

    /// The worker, begun again from the last state if it was lost.
    async fn ready(&mut self) -> Result<Hand, Error> {
        if self.hand.is_none() {
            self.begin().await?;
        }
        self.hand.take().ok_or(Error::Gone)
    }

    async fn begin(&mut self) -> Result<(), Error> {
        let told = Told::Begin(self.setup.names.clone());
        let state = self.setup.state.as_deref().unwrap_or_default();
        loop {
            let (mut hand, fresh) = self.pool.take(&self.owner)?;
            let begun = tokio::time::timeout(PATIENCE, ask(&mut hand, &told, state)).await;
            match begun {
                Ok(Ok((Said::Begun, _))) => {
                    self.hand = Some(hand);
                    return Ok(());
                }
                Ok(Ok((Said::NotBegun(why), _))) => return Err(Error::BadState(why)),
                Ok(Ok((Said::Refused(why), _))) => return Err(Error::Refused(why)),
                // A worker that waited in the pool may have died there; then the next one gets its chance.
                _ if fresh == Fresh::No => drop(hand),
                _ => {
                    let end = hand.end().await;
                    tracing::warn!(?end, "a worker did not come up");
                    return Err(Error::Gone);
                }
            }
        }
    }

    fn within_budget(&self, limits: &Limits) -> Limits {
        let (budget, spent) = (&self.setup.budget, &self.spent);
        let mut limits = limits.clone();
        if let Some(cpu) = budget.cpu {
            limits.cpu = limits.cpu.min(cpu.saturating_sub(spent.cpu));
        }
        if let Some(calls) = budget.calls {
            limits.calls = limits.calls.min(calls.saturating_sub(spent.calls));
        }
        if let Some(bytes) = budget.output_bytes {
            let left = bytes.saturating_sub(spent.output);
            limits.output_bytes = limits.output_bytes.min(left);
        }
        limits
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(hand) = self.hand.take() {
            self.pool.put_back(&self.owner, hand);
        }
    }
}

/// A block while it runs. Owns the worker: a caller that stops waiting for the block ends both.
struct Block<'a, H> {
    hand: Hand,
    limits: &'a Limits,
    host: &'a H,
    cancel: &'a CancellationToken,
    started: Instant,
    output: String,
    calls: u64,
    cpu: Duration,
}

impl<H: Host> Block<'_, H> {
    async fn run(mut self, code: &str) -> (Outcome, Option<Hand>) {
        let calls_over = self.cancel.child_token();
        let (ending, alive) = {
            let _over = calls_over.clone().drop_guard();
            self.drive(code, &calls_over).await
        };
        let (ending, hand) = match (ending, alive) {
            (Some(ending), Alive::Yes) => (ending, Some(self.hand)),
            (Some(ending), Alive::No) => {
                drop(self.hand);
                (ending, None)
            }
            // Nobody told it to end.
            (None, _) => {
                let end = self.hand.ended().await;
                (Ending::Failed(died(end, self.limits)), None)
            }
        };
        let outcome = Outcome {
            ending,
            output: self.output,
            calls: self.calls,
            elapsed: self.started.elapsed(),
            cpu: self.cpu,
            rolled_back: false,
        };
        (outcome, hand)
    }

    /// Carries messages until the block has ended. `None` if the worker died.
    async fn drive(
        &mut self,
        code: &str,
        calls_over: &CancellationToken,
    ) -> (Option<Ending>, Alive) {
        let bounds = Bounds {
            cpu_us: u64::try_from(self.limits.cpu.as_micros()).unwrap_or(u64::MAX),
            memory_bytes: self.limits.memory_bytes,
            output_bytes: self.limits.output_bytes,
            recursion: self.limits.recursion,
        };
        let Ok(mut outbox) = wire::pack(&Told::Run(bounds), code.as_bytes()) else {
            return (None, Alive::No);
        };
        let (host, cancel) = (self.host, self.cancel);
        let places = Semaphore::new(AT_ONCE);
        let mut running = FuturesUnordered::new();
        let far = Duration::from_secs(365 * 24 * 3600);
        let deadline = self.started + self.limits.wall.min(far);
        let mut told: Option<Why> = None;
        let mut kill_at = deadline + GRACE;
        // Since when the worker has had nothing to wait for, and how long that was before.
        let (mut computing, mut computed) = (Instant::now(), Duration::ZERO);
        let mut ending = loop {
            // A native operation that no check interrupts is ended from here.
            let cpu_end = match running.is_empty() {
                true => computing + (self.limits.cpu + GRACE).saturating_sub(computed).min(far),
                false => Instant::now() + far,
            };
            let (reader, writer) = self.hand.socket.split();
            let (mut reader, mut writer) = (reader, writer);
            tokio::select! {
                // Who has to stop is told before an answer that came at the same time.
                biased;
                () = cancel.cancelled(), if told.is_none() => {
                    told = Some(Why::Cancelled);
                    outbox.extend(abort(Why::Cancelled));
                    kill_at = Instant::now() + GRACE;
                }
                () = tokio::time::sleep_until(deadline.into()), if told.is_none() => {
                    told = Some(Why::Limit(Limit::Wall));
                    outbox.extend(abort(Why::Limit(Limit::Wall)));
                }
                () = tokio::time::sleep_until(kill_at.into()) => {
                    let why = told.unwrap_or(Why::Limit(Limit::Wall));
                    break Some((self.ended_for(why), Alive::No));
                }
                () = tokio::time::sleep_until(cpu_end.into()) => {
                    break Some((self.ended_for(Why::Limit(Limit::Cpu)), Alive::No));
                }
                read = reader.read_buf(&mut self.hand.inbox) => {
                    if !matches!(read, Ok(1..)) {
                        break None;
                    }
                }
                wrote = writer.write(&outbox), if !outbox.is_empty() => match wrote {
                    Ok(bytes) => { outbox.drain(..bytes); }
                    // It may have left word why.
                    Err(_) => outbox.clear(),
                },
                Some((id, reply)) = running.next() => {
                    if running.is_empty() {
                        computing = Instant::now();
                    }
                    let reply = match reply {
                        Ok(value) => Reply::Value(value),
                        Err(HostError::Raise(exception, message)) => Reply::Raise(exception, message),
                        Err(HostError::Stop) => Reply::Stop,
                    };
                    match wire::pack(&Told::Answer { id, reply }, &[]) {
                        Ok(bytes) => outbox.extend(bytes),
                        Err(_) => break None,
                    }
                }
            }
            let heard = loop {
                let (said, tail) = match wire::take::<Said>(&mut self.hand.inbox) {
                    Ok(Some(message)) => message,
                    Ok(None) => break None,
                    Err(_) => break Some(None),
                };
                match said {
                    Said::Printed => {
                        if let Some(over) = self.print(&tail) {
                            break Some(Some(over));
                        }
                    }
                    Said::Call {
                        id,
                        name,
                        args,
                        kwargs,
                    } => {
                        if running.is_empty() {
                            computed += computing.elapsed();
                        }
                        if self.calls >= self.limits.calls && told.is_none() {
                            let why = Why::Limit(Limit::Calls);
                            told = Some(why);
                            kill_at = Instant::now() + GRACE;
                            outbox.extend(abort(why));
                        }
                        if told.is_some() {
                            continue;
                        }
                        self.calls += 1;
                        let call = HostCall {
                            name,
                            args,
                            kwargs,
                            cancel: calls_over.clone(),
                        };
                        let places = &places;
                        running.push(async move {
                            let _place = places.acquire().await;
                            (id, host.call(call).await)
                        });
                    }
                    said => break Some(self.last_word(said)),
                }
            };
            if let Some(end) = heard {
                break end;
            }
        };
        // What still runs is told, and gets the time to say so in its own records.
        calls_over.cancel();
        let _ =
            tokio::time::timeout(FAREWELL, async { while running.next().await.is_some() {} }).await;
        match ending.take() {
            Some((ending, alive)) => (Some(ending), alive),
            None => (None, Alive::No),
        }
    }

    /// The message that ends a block.
    fn last_word(&mut self, said: Said) -> Option<(Ending, Alive)> {
        match said {
            Said::Done { shown, cpu_us } => {
                self.cpu = Duration::from_micros(cpu_us);
                Some((Ending::Value(shown), Alive::Yes))
            }
            Said::Failed { trouble, cpu_us } => {
                self.cpu = Duration::from_micros(cpu_us);
                // An interpreter that ran into a limit is in a state nobody has tried.
                let alive = match trouble.kind {
                    TroubleKind::Limit(limit) if limit != Limit::Recursion => Alive::No,
                    _ => Alive::Yes,
                };
                Some((Ending::Failed(self.named(trouble)), alive))
            }
            Said::Aborted {
                why,
                trouble,
                cpu_us,
            } => {
                self.cpu = Duration::from_micros(cpu_us);
                let ending = match why {
                    Why::Stopped => Ending::Stopped,
                    Why::Cancelled => self.ended_for(why),
                    Why::Limit(_) => Ending::Failed(self.named(trouble)),
                };
                Some((ending, Alive::Yes))
            }
            // Out of turn: nothing that this worker says can be believed.
            _ => None,
        }
    }

    /// Puts the limit into words, which the worker leaves to this side.
    fn named(&self, mut trouble: Trouble) -> Trouble {
        if let TroubleKind::Limit(limit) = trouble.kind {
            trouble.message = self.limits.told(limit);
            trouble.hint = trouble.hint.or_else(|| Some(advice(limit).to_owned()));
        }
        trouble
    }

    fn ended_for(&self, why: Why) -> Ending {
        match why {
            Why::Stopped => Ending::Stopped,
            Why::Cancelled => Ending::Failed(Trouble::new(TroubleKind::Cancelled, "cancelled")),
            Why::Limit(limit) => {
                let trouble = Trouble::new(TroubleKind::Limit(limit), "");
                Ending::Failed(self.named(trouble))
            }
        }
    }

    /// Takes what was printed. A worker keeps the limit itself; one that does not is ended.
    fn print(&mut self, tail: &[u8]) -> Option<(Ending, Alive)> {
        let text = String::from_utf8_lossy(tail);
        let left = usize::try_from(self.limits.output_bytes)
            .unwrap_or(usize::MAX)
            .saturating_sub(self.output.len());
        if text.len() > left {
            let why = Why::Limit(Limit::Output);
            return Some((self.ended_for(why), Alive::No));
        }
        self.output.push_str(&text);
        self.host.printed(&text);
        None
    }
}

/// Whether the worker can serve another block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Alive {
    Yes,
    No,
}

/// Sends one message to an idle worker and waits for the answer.
async fn ask(hand: &mut Hand, told: &Told, tail: &[u8]) -> io::Result<(Said, Vec<u8>)> {
    hand.socket.write_all(&wire::pack(told, tail)?).await?;
    loop {
        match wire::take(&mut hand.inbox)? {
            Some((Said::Ready, _)) => {}
            Some(message) => return Ok(message),
            None => {
                if hand.socket.read_buf(&mut hand.inbox).await? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
        }
    }
}

fn abort(why: Why) -> Vec<u8> {
    wire::pack(&Told::Abort(why), &[]).unwrap_or_default()
}

/// What a worker's death means.
fn died(end: WorkerEnd, limits: &Limits) -> Trouble {
    let limit = match end {
        WorkerEnd::Exited(monty_types::OOM_EXIT_CODE) => Limit::Memory,
        WorkerEnd::Killed(signal) if signal == rustix::process::Signal::XCPU.as_raw() => Limit::Cpu,
        _ => {
            let mut trouble = Trouble::new(
                TroubleKind::Crashed,
                "the interpreter ended unexpectedly and was replaced",
            );
            trouble.hint = Some("try again; if it happens again, write it differently (less nesting, smaller values)".to_owned());
            return trouble;
        }
    };
    let mut trouble = Trouble::new(TroubleKind::Limit(limit), limits.told(limit));
    trouble.hint = Some(advice(limit).to_owned());
    trouble
}

fn broken(started: Instant, error: &Error) -> Outcome {
    Outcome {
        ending: Ending::Failed(Trouble::new(TroubleKind::Crashed, error.to_string())),
        output: String::new(),
        calls: 0,
        elapsed: started.elapsed(),
        cpu: Duration::ZERO,
        rolled_back: true,
    }
}

/// What to do about a limit.
pub(crate) fn advice(limit: Limit) -> &'static str {
    match limit {
        Limit::Wall => "do less in one script, or await calls together with asyncio.gather",
        Limit::Cpu => "look for a loop that does not end; let tools search rather than the script",
        Limit::Memory => "work on parts: read by lines or ranges and keep only what is needed",
        Limit::Output => "print only the result; summarise or count instead",
        Limit::Calls => "use one search instead of many reads, or several scripts",
        Limit::Recursion => "use a loop with a list as its stack",
    }
}
