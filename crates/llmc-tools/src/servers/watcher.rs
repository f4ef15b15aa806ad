//! The thread that hears from other servers: it writes heartbeats, starts the calls that others ask for, and hands out the
//! answers that have arrived.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use llmc_observe::lock;
use llmc_store::{Error as StoreError, ListenOutcome, Listener};
use tokio_util::sync::CancellationToken;

use super::store::{AwaitedCall, HEARTBEAT_INTERVAL, IncomingCall};
use super::wire::{self, ServerRequest};
use super::{Arrival, ServerLink};
use crate::app::App;
use crate::error::{Error, ErrorKind, Result};

/// How long the thread waits for a notification before it looks by itself.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How long after a failure it tries again.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// How long the database may be away before the calls that wait for other servers fail.
const AWAY_TIMEOUT: Duration = Duration::from_secs(10);
/// Calls of other servers that are carried out at the same time; further ones wait.
const MAX_RUNNING_CALLS: usize = 256;

/// Attempts to write an answer for which the database needed too long, before an error takes its place.
const MAX_SLOW_ATTEMPTS: u32 = 3;
/// Calls that are remembered when they have been carried out: more than can be in one second before a crash.
const MAX_FINISHED_CALLS: usize = 1024;

/// Starts the thread. It ends when the server has left.
pub(super) fn start(link: Arc<ServerLink>, app: Weak<App>) {
    let listener = link.store.database().listener(link.store.channel());
    let watcher = Watcher {
        link,
        app,
        listener,
        heartbeat_at: None,
        away_since: None,
    };
    let thread = std::thread::Builder::new().name("llmc-servers".to_owned());
    if let Err(error) = thread.spawn(move || watcher.run()) {
        tracing::error!(%error, "other servers cannot pass calls on to this one");
    }
}

struct Watcher {
    link: Arc<ServerLink>,
    app: Weak<App>,
    listener: Listener,
    heartbeat_at: Option<Instant>,
    away_since: Option<Instant>,
}

impl Watcher {
    fn run(mut self) {
        while !self.link.has_left() {
            match self.turn() {
                Ok(()) => {
                    self.away_since = None;
                    lock(&self.link.connected_since).get_or_insert_with(Instant::now);
                }
                Err(error) => {
                    tracing::debug!(%error, "other servers cannot be heard");
                    *lock(&self.link.connected_since) = None;
                    let since = *self.away_since.get_or_insert_with(Instant::now);
                    if since.elapsed() > AWAY_TIMEOUT {
                        self.give_up(&error);
                    }
                    std::thread::sleep(RETRY_PAUSE);
                }
            }
        }
    }

    /// Waits for a notification and does what there is to do.
    fn turn(&mut self) -> llmc_store::Result<()> {
        let outcome = match self.listener.wait(LOOK_INTERVAL) {
            // Connections that are open still work. Without heartbeats this server would count as gone.
            Err(StoreError::NoConnection(_)) => {
                std::thread::sleep(RETRY_PAUSE);
                ListenOutcome::Notified
            }
            heard => heard?,
        };
        let is_due = |at: Instant| at.elapsed() >= HEARTBEAT_INTERVAL;
        if self.heartbeat_at.is_none_or(is_due) {
            let now = Instant::now();
            self.link.write_heartbeat()?;
            self.heartbeat_at = Some(now);
        }
        let running: Vec<String> = lock(&self.link.running).keys().cloned().collect();
        let (awaited, sent): (Vec<String>, Vec<bool>) = (lock(&self.link.awaited).iter())
            .map(|(id, awaited)| (id.clone(), awaited.is_sent))
            .unzip();
        if outcome == ListenOutcome::Unchanged && running.is_empty() && awaited.is_empty() {
            return Ok(());
        }
        let room = MAX_RUNNING_CALLS.saturating_sub(running.len());
        let found = self.link.store.exchange(&running, room, &awaited)?;
        for id in found.abandoned {
            if let Some(cancel) = lock(&self.link.running).get(&id) {
                cancel.cancel();
            }
        }
        for (id, state) in found.awaited {
            // A row that was not written before this look may be there now.
            let at = awaited.iter().position(|known| *known == id);
            let was_sent = at.is_some_and(|at| sent[at]);
            match state {
                AwaitedCall::Pending => {}
                AwaitedCall::Lost if !was_sent => {}
                AwaitedCall::Lost => self.hand_out(&id, Arrival::Lost),
                AwaitedCall::ServerGone if !self.link.knows_who_is_gone() => {}
                AwaitedCall::ServerGone => self.hand_out(&id, Arrival::ServerGone),
                AwaitedCall::Answered(text) => self.hand_out(&id, Arrival::Answer(text)),
            }
        }
        for call in found.incoming {
            let is_finished = lock(&self.link.finished).contains(&call.id);
            if !is_finished {
                self.begin(call);
            }
        }
        Ok(())
    }

    fn hand_out(&self, id: &str, arrival: Arrival) {
        if let Some(waiting) = lock(&self.link.awaited).remove(id) {
            let _ = waiting.arrived.send(arrival);
        }
    }

    /// Ends the wait of all calls that other servers were asked for.
    fn give_up(&self, error: &llmc_store::Error) {
        let waiting: Vec<_> = lock(&self.link.awaited).drain().collect();
        for (_, waiting) in waiting {
            let _ = waiting.arrived.send(Arrival::Away(error.clone()));
        }
    }

    /// Carries out a call of another server on the server's runtime.
    fn begin(&self, call: IncomingCall) {
        let Some(app) = self.app.upgrade() else {
            return;
        };
        let cancel = CancellationToken::new();
        lock(&self.link.running).insert(call.id.clone(), cancel.clone());
        let link = self.link.clone();
        self.link.runtime.spawn(async move {
            let deadline = Instant::now() + call.limit;
            let answer = carry_out(&link, &app, &call.request, cancel.clone()).await;
            drop(app);
            deliver(&link, &call, answer, deadline, &cancel).await;
            let mut finished = lock(&link.finished);
            finished.truncate(MAX_FINISHED_CALLS);
            finished.push_front(call.id.clone());
            drop(finished);
            lock(&link.running).remove(&call.id);
        });
    }
}

/// The answer to a request, as it is written.
async fn carry_out(
    link: &Arc<ServerLink>,
    app: &Arc<App>,
    request: &str,
    cancel: CancellationToken,
) -> String {
    match wire::read_request(request) {
        Ok(ServerRequest::Call(sent)) => {
            wire::write_answer(app.call_for_other_server(*sent, cancel).await)
        }
        Ok(ServerRequest::Control(request)) => {
            let asked = link.clone();
            let work = move || -> Result<serde_json::Value> {
                let none = || Error::new(ErrorKind::NotFound, "this server answers no questions");
                (asked.control.get().ok_or_else(none)?)(request)
            };
            let failed = |_| Error::new(ErrorKind::Internal, "the question was not answered");
            let answered = link.runtime.spawn_blocking(work).await.map_err(failed);
            wire::write_control_answer(answered.flatten())
        }
        Err(error) => wire::write_answer(Err(error)),
    }
}

/// Writes an answer, and tries again while the database is away and the call is still wanted.
async fn deliver(
    link: &Arc<ServerLink>,
    call: &IncomingCall,
    answer: String,
    deadline: Instant,
    cancel: &CancellationToken,
) {
    let mut answer: Arc<str> = answer.into();
    let mut slow_attempts = 0;
    loop {
        let (id, text) = (call.id.clone(), answer.clone());
        let wants_answer = !call.origin.is_empty();
        let written = link.with_store(move |store| match wants_answer {
            true => store.answer(&id, &text).map(drop),
            false => store.remove(&id, None),
        });
        let Err(error) = written.await else {
            return;
        };
        slow_attempts += u32::from(error == llmc_store::Error::TooSlow);
        if slow_attempts == MAX_SLOW_ATTEMPTS {
            let message = format!(
                "its answer of {} bytes cannot be sent in time",
                answer.len()
            );
            let error = Error::new(ErrorKind::Unavailable, message).retry(false);
            answer = wire::write_answer(Err(error)).into();
        }
        if Instant::now() >= deadline || cancel.is_cancelled() {
            tracing::warn!(%error, "an answer for another server could not be written");
            return;
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}
