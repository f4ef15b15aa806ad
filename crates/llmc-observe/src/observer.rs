//! Takes finished calls off their callers' threads and records them everywhere.
//!
//! Counting tokens, logging, the audit and telemetry happen on two threads of their own, so that a slow disk never slows
//! a call and a full one never fails it. When a queue is full the event is dropped and counted, and the count is shown.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::broadcast;

use crate::audit::TokenAudit;
use crate::content::{CallContent, ContentText, SecretNames};
use crate::event::{CallEvent, UncountedCall};
use crate::live::{CallScope, LiveSummaries};
use crate::lock::lock;
use crate::mask::mask_secrets;
use crate::summary::{CallTotals, Summary};
use crate::telemetry::TelemetryLocation;
use crate::telemetry_thread::TelemetryThread;
use crate::upstreams::UpstreamList;

/// Events that may wait in each queue.
const MAX_QUEUED_EVENTS: usize = 1024;
/// Bytes of their texts that may wait; beyond that only estimates of their sizes are queued.
const MAX_QUEUED_BYTES: usize = 32 << 20;
/// How long closing waits while the threads are at work, which takes long only on a machine that is very busy.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long it waits while another process has locked the telemetry.
const CLOSE_TIMEOUT_WHEN_LOCKED: Duration = Duration::from_secs(1);
/// From then on sizes are estimated, not counted.
const EXACT_COUNT_TIMEOUT: Duration = Duration::from_millis(320);
/// How long it then waits for all but telemetry. What is not written by then is lost.
const CLOSE_TIMEOUT_WITHOUT_TELEMETRY: Duration = Duration::from_millis(80);
const CLOSE_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How long reading the metrics waits for calls that are queued.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Calls that come faster than this are taken together, after a pause: waking a thread takes longer than recording a call.
const BURST_INTERVAL: Duration = Duration::from_millis(2);
const BURST_PAUSE: Duration = Duration::from_millis(5);

/// What an observer records.
#[derive(Debug, Default)]
pub struct ObserverOptions {
    /// Without it nothing is recorded at all.
    pub enabled: bool,
    pub metrics: bool,
    /// Where telemetry is kept; in memory without it.
    pub telemetry: Option<TelemetryLocation>,
    pub audit: Option<AuditOptions>,
    /// Days that telemetry and audit keep; 0 keeps everything.
    pub retention_days: u64,
    /// Whether log lines carry the correlation id.
    pub log_correlation_id: bool,
    /// Names this process in telemetry.
    pub server: String,
    /// Files whose content is not kept.
    pub secret_names: SecretNames,
}

/// Where the token audit is written.
#[derive(Debug)]
pub struct AuditOptions {
    /// Links below this directory are not followed.
    pub root: PathBuf,
    pub path: PathBuf,
}

/// The observer of one application's calls.
pub struct Observer {
    queue: Mutex<Option<SyncSender<Message>>>,
    /// Disconnected when both threads have ended.
    ended: Mutex<Option<Receiver<()>>>,
    live: Arc<LiveSummaries>,
    queued_bytes: Arc<AtomicUsize>,
    dropped: Arc<AtomicU64>,
    closing: Arc<ClosingState>,
}

/// What closing and the threads tell each other.
#[derive(Debug, Default)]
pub(crate) struct ClosingState {
    /// Sizes are estimated from now on.
    estimates: AtomicBool,
    /// Telemetry is not written any more.
    pub(crate) without_telemetry: AtomicBool,
    /// Another process has locked the telemetry, or its database is away.
    pub(crate) is_locked: AtomicBool,
}

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Observer").finish_non_exhaustive()
    }
}

impl Observer {
    pub fn start(options: ObserverOptions) -> Observer {
        let observer = Observer {
            queue: Mutex::new(None),
            ended: Mutex::new(None),
            live: Arc::default(),
            queued_bytes: Arc::default(),
            dropped: Arc::default(),
            closing: Arc::default(),
        };
        if !options.enabled {
            return observer;
        }
        let (send, receive) = sync_channel(MAX_QUEUED_EVENTS);
        let (send_rows, rows) = sync_channel(MAX_QUEUED_EVENTS);
        let (alive, ended) = sync_channel(0);
        let audit = options.audit.as_ref();
        let mut counter = CountingThread {
            live: options.metrics.then(|| observer.live.clone()),
            audit: audit.map(|audit| TokenAudit::open(audit, options.retention_days)),
            rows: send_rows,
            dropped: observer.dropped.clone(),
            log_correlation_id: options.log_correlation_id,
            closing: observer.closing.clone(),
            queued_bytes: observer.queued_bytes.clone(),
            server: options.server,
            secret_names: options.secret_names,
        };
        let writer = TelemetryThread {
            location: options.telemetry,
            retention_days: u32::try_from(options.retention_days).unwrap_or(u32::MAX),
            closing: observer.closing.clone(),
            dropped: observer.dropped.clone(),
        };
        // Two threads: a database that another process has locked holds up neither logs nor audit.
        let also_alive = alive.clone();
        let started = spawn("llmc-observer", move || {
            counter.run(&receive);
            drop(alive);
        })
        .and_then(|()| {
            spawn("llmc-telemetry", move || {
                writer.run(&rows);
                drop(also_alive);
            })
        });
        match started {
            Ok(()) => {
                *lock(&observer.queue) = Some(send);
                *lock(&observer.ended) = Some(ended);
            }
            Err(error) => tracing::error!(%error, "calls are not recorded"),
        }
        observer
    }

    /// Queues a call; never waits, and never counts a long text.
    pub fn record(&self, call: UncountedCall<'_>) {
        let queue = lock(&self.queue).clone();
        let Some(queue) = queue else { return };
        let call = Box::new(QueuedCall::new(call, &self.queued_bytes));
        if let Err(TrySendError::Full(_)) = queue.try_send(Message::Call(call)) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until every call recorded so far is counted, at most `timeout`.
    pub fn flush(&self, timeout: Duration) {
        let queue = lock(&self.queue).clone();
        let Some(queue) = queue else { return };
        let (send, receive) = sync_channel(1);
        let sent = queue.try_send(Message::Flush(send));
        drop(queue);
        if sent.is_ok() {
            let _ = receive.recv_timeout(timeout);
        }
    }

    /// Writes what is queued, within the time that the end of the process may take.
    pub fn close(&self) {
        lock(&self.queue).take();
        let Some(ended) = lock(&self.ended).take() else {
            return;
        };
        let is_ended = |timeout| ended.recv_timeout(timeout) == Err(RecvTimeoutError::Disconnected);
        let begun = Instant::now();
        loop {
            if is_ended(CLOSE_POLL_INTERVAL) {
                return;
            }
            let timeout = match self.closing.is_locked.load(Ordering::Relaxed) {
                true => CLOSE_TIMEOUT_WHEN_LOCKED,
                false => CLOSE_TIMEOUT,
            };
            let elapsed = begun.elapsed();
            if elapsed >= timeout {
                break;
            }
            if elapsed >= EXACT_COUNT_TIMEOUT {
                self.closing.estimates.store(true, Ordering::Relaxed);
            }
        }
        self.closing
            .without_telemetry
            .store(true, Ordering::Relaxed);
        if !is_ended(CLOSE_TIMEOUT_WITHOUT_TELEMETRY) {
            tracing::warn!("the last calls may be missing from the records");
        }
    }

    /// Every call that ends from now on, once it is counted.
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<CallEvent>> {
        self.live.subscribe()
    }

    pub fn summary(&self, scope: CallScope<'_>, lists: &[UpstreamList]) -> Summary {
        self.live.summary(scope, lists)
    }

    pub fn totals(&self, scope: CallScope<'_>) -> CallTotals {
        self.live.read(scope, |aggregator| aggregator.totals())
    }

    /// The document that `get_metrics` answers with.
    pub fn metrics(&self, lists: &[UpstreamList]) -> Value {
        self.flush(FLUSH_TIMEOUT);
        let mut metrics = self.summary(CallScope::All, lists).metrics();
        metrics["events_dropped"] = self.dropped().into();
        metrics
    }

    /// Appends the metrics in the text format of Prometheus; returns the errors by code, which the server adds to.
    pub fn prometheus(&self, out: &mut String, lists: &[UpstreamList]) -> BTreeMap<String, u64> {
        self.flush(FLUSH_TIMEOUT);
        self.live.read(CallScope::All, |aggregator| {
            aggregator.prometheus(out, lists)
        })
    }

    /// Events that found the queue full.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(work).map(drop)
}

enum Message {
    Call(Box<QueuedCall>),
    /// Answered when everything before it is counted.
    Flush(SyncSender<()>),
}

#[derive(Debug)]
struct QueuedCall {
    event: CallEvent,
    args: QueuedText,
    answer: QueuedText,
    withheld_bytes: u64,
    script_bytes: u64,
    fetched_back: bool,
    error_message: Option<String>,
    keeps_content: bool,
    /// Held until the texts are dropped.
    _reservation: Option<QueueReservation>,
}

impl QueuedCall {
    /// Keeps the texts while there is room for them in the queue, else estimates of their sizes.
    fn new(call: UncountedCall<'_>, queued_bytes: &Arc<AtomicUsize>) -> QueuedCall {
        let bytes = call.args.len() + call.answer.len();
        let reservation = QueueReservation::take(queued_bytes, bytes);
        let (args, answer) = if reservation.is_some() {
            (
                QueuedText::Whole(call.args),
                QueuedText::Whole(call.answer.into_owned()),
            )
        } else {
            (
                QueuedText::estimated(&call.args),
                QueuedText::estimated(&call.answer),
            )
        };
        QueuedCall {
            event: call.event,
            args,
            answer,
            withheld_bytes: call.withheld_bytes,
            script_bytes: call.script_bytes,
            fetched_back: call.fetched_back,
            error_message: call.error_message,
            keeps_content: call.keeps_content,
            _reservation: reservation,
        }
    }

    /// The starts of the texts, if they may be kept and there is room for them in the next queue.
    fn content(
        &self,
        queued_bytes: &Arc<AtomicUsize>,
        secret_names: &SecretNames,
    ) -> Option<QueuedContent> {
        let (QueuedText::Whole(args), QueuedText::Whole(answer)) = (&self.args, &self.answer)
        else {
            return None;
        };
        if !self.keeps_content || (args.is_empty() && answer.is_empty()) {
            return None;
        }
        let content = secret_names.hide_in(CallContent {
            args: ContentText::start_of(args),
            answer: ContentText::start_of(answer),
        });
        QueuedContent::new(content, queued_bytes)
    }

    fn count(self, exact: bool) -> CallEvent {
        let mut event = self.event;
        (event.bytes_in, event.tokens_in) = self.args.counts(exact);
        (event.bytes_out, event.tokens_served) = self.answer.counts(exact);
        event.estimate_withheld(self.withheld_bytes, self.fetched_back);
        event.bytes_out = event.bytes_out.saturating_add(self.script_bytes);
        event
    }
}

/// What of a call's texts telemetry keeps, on its way there.
#[derive(Debug)]
pub(crate) struct QueuedContent {
    pub(crate) content: CallContent,
    _reservation: QueueReservation,
}

impl QueuedContent {
    /// The content, if there is room for it in the queue.
    pub(crate) fn new(
        content: CallContent,
        queued_bytes: &Arc<AtomicUsize>,
    ) -> Option<QueuedContent> {
        let bytes = content.args.text.len() + content.answer.text.len();
        Some(QueuedContent {
            _reservation: QueueReservation::take(queued_bytes, bytes)?,
            content,
        })
    }
}

/// A row on its way to telemetry.
#[derive(Debug)]
pub(crate) struct QueuedRow {
    pub(crate) call: CallEvent,
    pub(crate) content: Option<QueuedContent>,
}

/// A text that is still to be counted, or its counts alone.
#[derive(Debug)]
enum QueuedText {
    Whole(String),
    Counted { bytes: u64, tokens: u64 },
}

impl QueuedText {
    /// Takes bounded time, whatever the text.
    fn estimated(text: &str) -> QueuedText {
        QueuedText::Counted {
            bytes: text.len() as u64,
            tokens: llmc_tokens::estimate(text.as_bytes()).tokens as u64,
        }
    }

    /// Bytes and tokens.
    fn counts(&self, exact: bool) -> (u64, u64) {
        match self {
            QueuedText::Whole(text) if exact => {
                (text.len() as u64, llmc_tokens::count(text) as u64)
            }
            QueuedText::Whole(text) => QueuedText::estimated(text).counts(false),
            QueuedText::Counted { bytes, tokens } => (*bytes, *tokens),
        }
    }
}

/// Bytes of queued texts, given back on drop.
#[derive(Debug)]
struct QueueReservation {
    queued_bytes: Arc<AtomicUsize>,
    bytes: usize,
}

impl QueueReservation {
    fn take(queued_bytes: &Arc<AtomicUsize>, bytes: usize) -> Option<QueueReservation> {
        let add = |now: usize| {
            now.checked_add(bytes)
                .filter(|sum| *sum <= MAX_QUEUED_BYTES)
        };
        queued_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
            .ok()?;
        Some(QueueReservation {
            queued_bytes: queued_bytes.clone(),
            bytes,
        })
    }
}

impl Drop for QueueReservation {
    fn drop(&mut self) {
        self.queued_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The next of what is queued; `woken` is when the thread last had to wait for one.
pub(crate) fn next_in_burst<T>(queue: &Receiver<T>, woken: &mut Option<Instant>) -> Option<T> {
    if let Ok(next) = queue.try_recv() {
        return Some(next);
    }
    let next = queue.recv().ok()?;
    let now = Instant::now();
    if woken.is_some_and(|before| now.duration_since(before) < BURST_INTERVAL + BURST_PAUSE) {
        std::thread::sleep(BURST_PAUSE);
    }
    *woken = Some(now);
    Some(next)
}

/// Counts, and writes what is quick to write.
struct CountingThread {
    live: Option<Arc<LiveSummaries>>,
    audit: Option<TokenAudit>,
    rows: SyncSender<QueuedRow>,
    dropped: Arc<AtomicU64>,
    log_correlation_id: bool,
    closing: Arc<ClosingState>,
    queued_bytes: Arc<AtomicUsize>,
    server: String,
    secret_names: SecretNames,
}

impl CountingThread {
    fn run(&mut self, queue: &Receiver<Message>) {
        let mut woken = None;
        while let Some(message) = next_in_burst(queue, &mut woken) {
            match message {
                Message::Call(call) => self.write(*call),
                Message::Flush(done) => drop(done.send(())),
            }
        }
    }

    fn write(&mut self, mut call: QueuedCall) {
        // Only telemetry keeps the arguments.
        let args = call.event.args.take();
        let content = call.content(&self.queued_bytes, &self.secret_names);
        let message = call.error_message.take();
        let exact = !self.closing.estimates.load(Ordering::Relaxed);
        let event = Arc::new(call.count(exact));
        if let Some(live) = &self.live {
            live.add(&event);
        }
        if let Some(audit) = &mut self.audit {
            audit.add(&event);
        }
        self.log(&event, message.as_deref());
        let call = CallEvent {
            args,
            server: self.server.clone(),
            ..Arc::unwrap_or_clone(event)
        };
        let row = QueuedRow { call, content };
        if let Err(TrySendError::Full(_)) = self.rows.try_send(row) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn log(&self, call: &CallEvent, message: Option<&str>) {
        let correlation_id = self
            .log_correlation_id
            .then_some(call.correlation_id.as_str());
        tracing::info!(
            target: "llmc::call",
            correlation_id,
            tool = call.tool.as_str(),
            status = call.status(),
            duration_ms = call.duration_ms,
            path = call.path.as_deref(),
            truncated = call.truncated,
            error_code = call.error_code.as_deref(),
            reason = message.map(mask_secrets).as_deref(),
            tokens_in = call.tokens_in,
            tokens_out = call.tokens_served,
            "call"
        );
    }
}

#[cfg(test)]
#[path = "observer_tests.rs"]
mod tests;
