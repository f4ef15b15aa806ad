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
use crate::host::{ScriptCall, ScriptCallError, ScriptHost};
use crate::limits::{ScriptLimit, ScriptLimits, SessionBudget};
use crate::names::ScriptNames;
use crate::outcome::{ScriptEnd, ScriptError, ScriptErrorKind, ScriptOutcome};
use crate::pool::{Pool, WorkerAge, WorkerHandle};
use crate::wire::{self, AbortReason, CallReply, WorkerLimits, WorkerReport, WorkerRequest};

/// From a limit or an abort request until the worker is killed.
const KILL_DELAY: Duration = Duration::from_millis(100);
/// For cancelled calls to end and be recorded.
pub(crate) const CALLS_END_TIMEOUT: Duration = Duration::from_secs(1);
/// For a worker to start, or to dump its state.
const WORKER_REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// Of one block; further calls wait.
pub(crate) const MAX_CONCURRENT_CALLS: usize = 8;

#[derive(Debug, Clone, Default)]
pub struct SessionSetup {
    pub names: ScriptNames,
    /// A dump to begin with, from [`Session::dump`].
    pub state: Option<Vec<u8>>,
    pub budget: SessionBudget,
    /// Dumps the state after each block, so that a session that loses its worker continues from the block before rather
    /// than from its beginning. Costs time with every block that leaves large values.
    pub checkpoints: bool,
}

/// One interpreter. Dropping it returns its worker to the pool.
#[derive(Debug)]
pub struct Session {
    pool: Arc<Pool>,
    owner: String,
    setup: SessionSetup,
    worker: Option<WorkerHandle>,
    spent: SessionSpending,
    _permit: OwnedSemaphorePermit,
}

#[derive(Debug, Default)]
struct SessionSpending {
    cpu: Duration,
    calls: u64,
    output: u64,
}

impl Session {
    pub(crate) async fn open(
        pool: Arc<Pool>,
        owner: &str,
        setup: SessionSetup,
    ) -> Result<Session, Error> {
        let permit = pool.permit().await?;
        let mut session = Session {
            pool,
            owner: owner.to_owned(),
            setup,
            worker: None,
            spent: SessionSpending::default(),
            _permit: permit,
        };
        session.begin().await?;
        Ok(session)
    }

    /// Runs one block of code. Its variables stay for the next one, also when it fails. Failures of the script and of its
    /// worker are in the outcome.
    pub async fn run<H: ScriptHost>(
        &mut self,
        code: &str,
        limits: &ScriptLimits,
        host: &H,
        cancel: &CancellationToken,
    ) -> ScriptOutcome {
        let started = Instant::now();
        let limits = self.within_budget(limits);
        let worker = match self.take_worker().await {
            Ok(worker) => worker,
            Err(error) => return no_worker(started, &error),
        };
        let block = BlockRun {
            worker,
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
        self.worker = kept;
        outcome.rolled_back = self.worker.is_none();
        if self.setup.checkpoints && !outcome.rolled_back {
            match self.dump(wire::MAX_TAIL_BYTES as u64).await {
                Ok(state) => self.setup.state = Some(state),
                Err(error) => tracing::debug!(%error, "no checkpoint"),
            }
        }
        outcome
    }

    /// The session as bytes, to begin another session with.
    ///
    /// # Errors
    /// It takes more than `max_bytes`, or the worker ended.
    pub async fn dump(&mut self, max_bytes: u64) -> Result<Vec<u8>, Error> {
        let mut worker = self.take_worker().await?;
        let dump = WorkerRequest::Dump { max_bytes };
        match tokio::time::timeout(WORKER_REPLY_TIMEOUT, ask(&mut worker, &dump, &[])).await {
            Ok(Ok((WorkerReport::Dumped, state))) => {
                self.worker = Some(worker);
                Ok(state)
            }
            Ok(Ok((WorkerReport::NotDumped(why), _))) => {
                self.worker = Some(worker);
                Err(Error::NotDumped(why))
            }
            _ => {
                worker.kill().await;
                Err(Error::Gone)
            }
        }
    }

    /// The id of the worker process; `None` while a block runs.
    pub fn worker_id(&self) -> Option<u32> {
        self.worker.as_ref()?.process.id()
    }

    /// The worker; a new one with the last checkpoint if it was lost.
    async fn take_worker(&mut self) -> Result<WorkerHandle, Error> {
        if self.worker.is_none() {
            self.begin().await?;
        }
        self.worker.take().ok_or(Error::Gone)
    }

    async fn begin(&mut self) -> Result<(), Error> {
        let begin = WorkerRequest::Begin(self.setup.names.clone());
        let state = self.setup.state.as_deref().unwrap_or_default();
        loop {
            let (mut worker, age) = self.pool.take(&self.owner)?;
            let begun =
                tokio::time::timeout(WORKER_REPLY_TIMEOUT, ask(&mut worker, &begin, state)).await;
            match begun {
                Ok(Ok((WorkerReport::Begun, _))) => {
                    self.worker = Some(worker);
                    return Ok(());
                }
                Ok(Ok((WorkerReport::NotBegun(why), _))) => return Err(Error::BadState(why)),
                Ok(Ok((WorkerReport::Refused(why), _))) => return Err(Error::Refused(why)),
                // A worker may have died in the pool; the next one is tried.
                _ if age == WorkerAge::FromPool => drop(worker),
                _ => {
                    let end = worker.kill().await;
                    tracing::warn!(?end, "a worker did not start");
                    return Err(Error::Gone);
                }
            }
        }
    }

    fn within_budget(&self, limits: &ScriptLimits) -> ScriptLimits {
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
        if let Some(worker) = self.worker.take() {
            self.pool.put_back(&self.owner, worker);
        }
    }
}

/// A running block. Owns the worker: dropping the future ends both.
struct BlockRun<'a, H> {
    worker: WorkerHandle,
    limits: &'a ScriptLimits,
    host: &'a H,
    cancel: &'a CancellationToken,
    started: Instant,
    output: String,
    calls: u64,
    cpu: Duration,
}

impl<H: ScriptHost> BlockRun<'_, H> {
    async fn run(mut self, code: &str) -> (ScriptOutcome, Option<WorkerHandle>) {
        let calls_over = self.cancel.child_token();
        let (ending, state) = {
            let _over = calls_over.clone().drop_guard();
            self.exchange(code, &calls_over).await
        };
        let (ending, worker) = match (ending, state) {
            (Some(ending), WorkerState::Usable) => (ending, Some(self.worker)),
            (Some(ending), WorkerState::Lost) => {
                drop(self.worker);
                (ending, None)
            }
            // The worker ended by itself.
            (None, _) => {
                let end = self.worker.wait().await;
                (ScriptEnd::Failed(worker_loss(end, self.limits)), None)
            }
        };
        let outcome = ScriptOutcome {
            ending,
            output: self.output,
            output_parts: Vec::new(),
            calls: self.calls,
            elapsed: self.started.elapsed(),
            cpu: self.cpu,
            rolled_back: false,
        };
        (outcome, worker)
    }

    /// Exchanges messages until the block has ended. `None` if the worker ended by itself.
    async fn exchange(
        &mut self,
        code: &str,
        calls_over: &CancellationToken,
    ) -> (Option<ScriptEnd>, WorkerState) {
        let limits = WorkerLimits {
            cpu_us: u64::try_from(self.limits.cpu.as_micros()).unwrap_or(u64::MAX),
            memory_bytes: self.limits.memory_bytes,
            output_bytes: self.limits.output_bytes,
            recursion: self.limits.recursion,
        };
        let Ok(mut outbox) = wire::pack(&WorkerRequest::Run(limits), code.as_bytes()) else {
            return (None, WorkerState::Lost);
        };
        let (host, cancel) = (self.host, self.cancel);
        let permits = Semaphore::new(MAX_CONCURRENT_CALLS);
        let mut running = FuturesUnordered::new();
        let far = Duration::from_secs(365 * 24 * 3600);
        // The clock of the script stands still while it has calls under way, which have a clock of their own.
        let mut deadline = self.started + self.limits.wall.min(far);
        let mut calls_left = self.limits.calls_wall.min(far);
        let mut calls_since: Option<Instant> = None;
        let mut aborted: Option<AbortReason> = None;
        let mut kill_at: Option<Instant> = None;
        // Since when the worker waits for no call, and the computing time before that.
        let (mut computing, mut computed) = (Instant::now(), Duration::ZERO);
        let mut ending = loop {
            // A native operation that no check interrupts is ended from here.
            let cpu_end = if running.is_empty() {
                computing
                    + (self.limits.cpu + KILL_DELAY)
                        .saturating_sub(computed)
                        .min(far)
            } else {
                Instant::now() + far
            };
            let wall_end = calls_since.map_or(deadline, |since| since + calls_left);
            let killed_at = kill_at.unwrap_or(wall_end + KILL_DELAY);
            let (mut reader, mut writer) = self.worker.socket.split();
            tokio::select! {
                // An abort goes before an answer that arrives at the same time.
                biased;
                () = cancel.cancelled(), if aborted.is_none() => {
                    aborted = Some(AbortReason::Cancelled);
                    outbox.extend(abort(AbortReason::Cancelled));
                    kill_at = Some(Instant::now() + KILL_DELAY);
                }
                () = tokio::time::sleep_until(wall_end.into()), if aborted.is_none() => {
                    aborted = Some(AbortReason::Limit(ScriptLimit::Wall));
                    kill_at = Some(Instant::now() + KILL_DELAY);
                    outbox.extend(abort(AbortReason::Limit(ScriptLimit::Wall)));
                }
                () = tokio::time::sleep_until(killed_at.into()) => {
                    let why = aborted.unwrap_or(AbortReason::Limit(ScriptLimit::Wall));
                    break Some((self.end_for(why), WorkerState::Lost));
                }
                () = tokio::time::sleep_until(cpu_end.into()) => {
                    break Some((self.end_for(AbortReason::Limit(ScriptLimit::Cpu)), WorkerState::Lost));
                }
                read = reader.read_buf(&mut self.worker.inbox) => {
                    if !matches!(read, Ok(1..)) {
                        break None;
                    }
                }
                wrote = writer.write(&outbox), if !outbox.is_empty() => match wrote {
                    Ok(bytes) => { outbox.drain(..bytes); }
                    // Its last report may still be in the socket.
                    Err(_) => outbox.clear(),
                },
                Some((id, reply)) = running.next() => {
                    if running.is_empty() {
                        computing = Instant::now();
                        let spent = calls_since.take().map_or(Duration::ZERO, |since| since.elapsed());
                        deadline += spent;
                        calls_left = calls_left.saturating_sub(spent);
                    }
                    let reply = match reply {
                        Ok(value) => CallReply::Value(value),
                        Err(ScriptCallError::Raise(exception, message)) => CallReply::Raise(exception, message),
                        Err(ScriptCallError::Stop) => CallReply::Stop,
                    };
                    match wire::pack(&WorkerRequest::Answer { id, reply }, &[]) {
                        Ok(bytes) => outbox.extend(bytes),
                        Err(_) => break None,
                    }
                }
            }
            let received = loop {
                let (report, tail) = match wire::take::<WorkerReport>(&mut self.worker.inbox) {
                    Ok(Some(message)) => message,
                    Ok(None) => break None,
                    Err(_) => break Some(None),
                };
                match report {
                    WorkerReport::Printed => {
                        if let Some(over) = self.print(&tail) {
                            break Some(Some(over));
                        }
                    }
                    WorkerReport::Call {
                        id,
                        name,
                        args,
                        kwargs,
                    } => {
                        if running.is_empty() {
                            computed += computing.elapsed();
                        }
                        calls_since.get_or_insert_with(Instant::now);
                        if self.calls >= self.limits.calls && aborted.is_none() {
                            let why = AbortReason::Limit(ScriptLimit::Calls);
                            aborted = Some(why);
                            kill_at = Some(Instant::now() + KILL_DELAY);
                            outbox.extend(abort(why));
                        }
                        if aborted.is_some() {
                            continue;
                        }
                        self.calls += 1;
                        let call = ScriptCall {
                            name,
                            args,
                            kwargs,
                            cancel: calls_over.clone(),
                        };
                        let permits = &permits;
                        running.push(async move {
                            let _permit = permits.acquire().await;
                            (id, host.call(call).await)
                        });
                    }
                    report => break Some(self.end_of_block(report)),
                }
            };
            if let Some(end) = received {
                break end;
            }
        };
        // Calls that still run are cancelled and get time to record that.
        calls_over.cancel();
        let _ = tokio::time::timeout(CALLS_END_TIMEOUT, async {
            while running.next().await.is_some() {}
        })
        .await;
        match ending.take() {
            Some((ending, state)) => (Some(ending), state),
            None => (None, WorkerState::Lost),
        }
    }

    /// The message that ends a block.
    fn end_of_block(&mut self, report: WorkerReport) -> Option<(ScriptEnd, WorkerState)> {
        match report {
            WorkerReport::Done { value, cpu_us } => {
                self.cpu = Duration::from_micros(cpu_us);
                Some((ScriptEnd::Value(value), WorkerState::Usable))
            }
            WorkerReport::Failed { error, cpu_us } => {
                self.cpu = Duration::from_micros(cpu_us);
                // The state of an interpreter that was stopped by a limit is not trusted.
                let state = match error.kind {
                    ScriptErrorKind::Limit(limit) if limit != ScriptLimit::Recursion => {
                        WorkerState::Lost
                    }
                    _ => WorkerState::Usable,
                };
                Some((ScriptEnd::Failed(self.with_limit_message(error)), state))
            }
            WorkerReport::Aborted { why, error, cpu_us } => {
                self.cpu = Duration::from_micros(cpu_us);
                let ending = match why {
                    AbortReason::Stopped => ScriptEnd::Stopped,
                    AbortReason::Cancelled => self.end_for(why),
                    AbortReason::Limit(_) => ScriptEnd::Failed(self.with_limit_message(error)),
                };
                Some((ending, WorkerState::Usable))
            }
            // A report out of turn: the worker is not trusted any more.
            _ => None,
        }
    }

    /// The worker reports which limit was reached; the message is added here.
    fn with_limit_message(&self, mut error: ScriptError) -> ScriptError {
        if let ScriptErrorKind::Limit(limit) = error.kind {
            error.message = self.limits.describe(limit);
            error.hint = error.hint.or_else(|| Some(limit.hint().to_owned()));
        }
        error
    }

    fn end_for(&self, why: AbortReason) -> ScriptEnd {
        match why {
            AbortReason::Stopped => ScriptEnd::Stopped,
            AbortReason::Cancelled => {
                ScriptEnd::Failed(ScriptError::new(ScriptErrorKind::Cancelled, "cancelled"))
            }
            AbortReason::Limit(limit) => ScriptEnd::Failed(ScriptError::limit(limit, self.limits)),
        }
    }

    /// Adds printed text. The worker enforces the limit; one that does not is ended.
    fn print(&mut self, tail: &[u8]) -> Option<(ScriptEnd, WorkerState)> {
        let text = String::from_utf8_lossy(tail);
        let left = usize::try_from(self.limits.output_bytes)
            .unwrap_or(usize::MAX)
            .saturating_sub(self.output.len());
        if text.len() > left {
            let why = AbortReason::Limit(ScriptLimit::Output);
            return Some((self.end_for(why), WorkerState::Lost));
        }
        self.output.push_str(&text);
        self.host.printed(&text);
        None
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WorkerState {
    /// Can run another block.
    Usable,
    Lost,
}

/// Sends one message to an idle worker and waits for the answer.
async fn ask(
    worker: &mut WorkerHandle,
    request: &WorkerRequest,
    tail: &[u8],
) -> io::Result<(WorkerReport, Vec<u8>)> {
    worker.socket.write_all(&wire::pack(request, tail)?).await?;
    loop {
        match wire::take(&mut worker.inbox)? {
            Some((WorkerReport::Ready, _)) => {}
            Some(message) => return Ok(message),
            None => {
                if worker.socket.read_buf(&mut worker.inbox).await? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
        }
    }
}

fn abort(why: AbortReason) -> Vec<u8> {
    wire::pack(&WorkerRequest::Abort(why), &[]).unwrap_or_default()
}

/// The error of a block whose worker ended by itself.
fn worker_loss(end: WorkerEnd, limits: &ScriptLimits) -> ScriptError {
    match end {
        WorkerEnd::Exited(monty_types::OOM_EXIT_CODE) => {
            ScriptError::limit(ScriptLimit::Memory, limits)
        }
        WorkerEnd::Killed(signal) if signal == rustix::process::Signal::XCPU.as_raw() => {
            ScriptError::limit(ScriptLimit::Cpu, limits)
        }
        _ => ScriptError {
            hint: Some("try again; if it happens again, write it differently (less nesting, smaller values)".to_owned()),
            ..ScriptError::new(
                ScriptErrorKind::Crashed,
                "the interpreter ended unexpectedly and was replaced",
            )
        },
    }
}

fn no_worker(started: Instant, error: &Error) -> ScriptOutcome {
    ScriptOutcome {
        ending: ScriptEnd::Failed(ScriptError::new(
            ScriptErrorKind::Crashed,
            error.to_string(),
        )),
        output: String::new(),
        output_parts: Vec::new(),
        calls: 0,
        elapsed: started.elapsed(),
        cpu: Duration::ZERO,
        rolled_back: true,
    }
}
