//! What leaves a call besides its answer: one event, read by everything that watches.
//!
//! Counting tokens, writing logs, audit and telemetry happens on threads of their own, so that a slow disk never slows a
//! call and a full one never fails it. When the queue is full the event is dropped and counted, and the count is shown.

mod audit;
mod histogram;
mod latency;
mod metrics;
mod seen;
mod view;

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use llmc_config::Loaded;
use llmc_envelope::Telemetry;
use llmc_envelope::telemetry::{Mode, Options, Row, Source, mask_secrets};
use serde_json::Value;
use tokio::sync::broadcast;

use crate::app::TELEMETRY;
use crate::call::CallOutcome;
use crate::cx::{Caller, Surface};
use crate::error::Family;
use crate::error::Kind;
use crate::tool::ToolDef;

use audit::Audit;
pub(crate) use audit::Rows;
pub use histogram::Histogram;
pub use latency::Latency;
pub use metrics::{Metrics, Whose};
pub use seen::SeenCall;

/// Events that may wait to be written.
const QUEUE: usize = 1024;
/// Bytes of their texts that may wait; beyond that only sizes are kept.
const QUEUE_BYTES: usize = 32 << 20;
/// How long the end waits for everything, and then for all but telemetry. What is not written by then is lost.
const CLOSE: [Duration; 2] = [Duration::from_millis(320), Duration::from_millis(80)];

/// One finished call, nothing of it copied yet.
#[derive(Debug)]
pub(crate) struct Event<'a> {
    outcome: &'a CallOutcome,
    caller: &'a Caller,
    args: String,
    latency: Duration,
}

impl<'a> Event<'a> {
    pub(crate) fn of(
        outcome: &'a CallOutcome,
        caller: &'a Caller,
        args: String,
        latency: Duration,
    ) -> Event<'a> {
        Event {
            outcome,
            caller,
            args,
            latency,
        }
    }

    /// What the caller reads: a model the text, a program the data where there is no text.
    fn answer(&self) -> Cow<'a, str> {
        match &self.outcome.result {
            Ok(answer) => answer.text(),
            Err(_) => Cow::Owned(self.outcome.text()),
        }
    }

    /// What may wait: with its texts while there is room for them, else with their sizes.
    fn record(self, waiting: &Arc<AtomicUsize>) -> Record {
        let answer = self.answer();
        let room = Room::take(waiting, self.args.len() + answer.len());
        let (args, answer) = if room.is_some() {
            (Text::Whole(self.args), Text::Whole(answer.into_owned()))
        } else {
            (Text::estimated(&self.args), Text::estimated(&answer))
        };
        let Event {
            outcome, caller, ..
        } = self;
        let family = outcome.tool.map_or(Family::Linux, |tool| tool.family);
        let facts = outcome
            .result
            .as_ref()
            .map(|answer| answer.facts().clone())
            .unwrap_or_default();
        let error = outcome.result.as_ref().err();
        Record {
            correlation_id: outcome.correlation_id.clone(),
            surface: caller.surface,
            principal: caller.principal.clone(),
            agent: caller.agent.clone(),
            session: caller.session.clone(),
            model: caller.model.clone(),
            tool: outcome.tool,
            error: error.map(|error| (error.kind, family)),
            // A complaint about arguments quotes them, and a model may have put a file's content into the wrong one; a
            // provider's complaint may quote what it was sent.
            message: error
                .filter(|error| {
                    !matches!(
                        error.kind,
                        Kind::BadArgs | Kind::BadPattern | Kind::ProviderFailed
                    )
                })
                .map(|error| mask_secrets(&error.message)),
            path: facts.path,
            truncated: facts.truncated,
            handle: facts.handle,
            withheld_bytes: facts.withheld_bytes,
            fetched_back: facts.fetched_back,
            program: facts.program,
            latency: self.latency,
            args,
            answer,
            room,
        }
    }
}

/// A call that waits to be written.
#[derive(Debug)]
pub(crate) struct Record {
    correlation_id: String,
    surface: Surface,
    principal: String,
    agent: String,
    session: String,
    model: String,
    tool: Option<&'static ToolDef>,
    error: Option<(Kind, Family)>,
    message: Option<String>,
    path: Option<String>,
    truncated: bool,
    handle: Option<llmc_envelope::HandleId>,
    withheld_bytes: u64,
    fetched_back: bool,
    program: Option<String>,
    latency: Duration,
    args: Text,
    answer: Text,
    room: Option<Room>,
}

impl Record {
    fn tool_name(&self) -> &'static str {
        self.tool.map_or("unknown", |tool| tool.name)
    }
}

/// A text that is still to be counted, or only its counts.
#[derive(Debug)]
enum Text {
    Whole(String),
    Counted { bytes: u64, tokens: u64 },
}

impl Text {
    /// In bounded time, whatever the text.
    fn estimated(text: &str) -> Text {
        Text::Counted {
            bytes: text.len() as u64,
            tokens: llmc_tokens::estimate(text.as_bytes()).tokens as u64,
        }
    }

    fn counts(&self, exact: bool) -> (u64, u64) {
        match self {
            Text::Whole(text) if exact => (text.len() as u64, llmc_tokens::count(text) as u64),
            Text::Whole(text) => Text::estimated(text).counts(false),
            Text::Counted { bytes, tokens } => (*bytes, *tokens),
        }
    }
}

/// A share of what may wait, given back when it is dropped.
#[derive(Debug)]
struct Room {
    waiting: Arc<AtomicUsize>,
    bytes: usize,
}

impl Room {
    fn take(waiting: &Arc<AtomicUsize>, bytes: usize) -> Option<Room> {
        let more = |now: usize| now.checked_add(bytes).filter(|all| *all <= QUEUE_BYTES);
        waiting
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .ok()?;
        Some(Room {
            waiting: waiting.clone(),
            bytes,
        })
    }

    fn shrink(&mut self, bytes: usize) {
        let less = self.bytes.saturating_sub(bytes);
        self.waiting.fetch_sub(less, Ordering::Relaxed);
        self.bytes -= less;
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.waiting.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A record with its tokens counted: what metrics, audit, telemetry and logs read.
#[derive(Debug)]
pub(crate) struct Counted {
    event: Record,
    bytes_in: u64,
    bytes_out: u64,
    tokens_in: u64,
    tokens_out: u64,
    tokens_withheld: u64,
    tokens_fetched_back: u64,
}

impl Counted {
    fn of(event: Record, exact: bool) -> Counted {
        let (bytes_in, tokens_in) = event.args.counts(exact);
        let (bytes_out, tokens_out) = event.answer.counts(exact);
        // What was left out reads like what was shown: its tokens are estimated from the answer's own density.
        let density = if bytes_out == 0 {
            0.25
        } else {
            tokens_out as f64 / bytes_out as f64
        };
        let tokens_withheld = (event.withheld_bytes as f64 * density).round() as u64;
        let tokens_fetched_back = if event.fetched_back { tokens_out } else { 0 };
        Counted {
            event,
            bytes_in,
            bytes_out,
            tokens_in,
            tokens_out,
            tokens_withheld,
            tokens_fetched_back,
        }
    }

    fn error_code(&self) -> Option<&'static str> {
        self.event.error.map(|(kind, family)| kind.code(family))
    }

    fn latency_ms(&self) -> f64 {
        self.event.latency.as_secs_f64() * 1000.0
    }
}

enum Message {
    Event(Box<Record>),
    /// Answered when everything before it is counted.
    Flush(SyncSender<()>),
}

/// The watchers of one application.
pub struct Observer {
    queue: Mutex<Option<SyncSender<Message>>>,
    /// Disconnected when both threads have ended.
    ended: Mutex<Option<Receiver<()>>>,
    metrics: Arc<Metrics>,
    /// Bytes of texts that wait.
    waiting: Arc<AtomicUsize>,
    dropped: Arc<AtomicU64>,
    closing: Arc<AtomicBool>,
}

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Observer")
            .field("metrics", &self.metrics)
            .finish_non_exhaustive()
    }
}

impl Observer {
    /// Starts watching as the configuration says. `state_dir` is where telemetry is kept; in memory without one.
    pub(crate) fn start(loaded: &Loaded, state_dir: Option<&Path>) -> Observer {
        let config = &loaded.config;
        let settings = &config.mcp.observability;
        let observer = Observer {
            queue: Mutex::new(None),
            ended: Mutex::new(None),
            metrics: Arc::default(),
            waiting: Arc::default(),
            dropped: Arc::default(),
            closing: Arc::default(),
        };
        if !settings.enabled {
            return observer;
        }
        let days = u32::try_from(settings.retention_days).unwrap_or(u32::MAX);
        let mut audit = None;
        if settings.csv_token_audit_enabled {
            if config.mcp.docker.persist_token_audit {
                let days = settings.retention_days;
                audit = Some(Audit::new(&loaded.root, &loaded.csv_path(), days));
            } else {
                tracing::warn!(
                    "the token audit is on but not kept: mcp.docker.persist_token_audit is false"
                );
            }
        }
        let telemetry = state_dir
            .filter(|_| config.mcp.docker.persist_telemetry)
            .map(|dir| dir.join(TELEMETRY));
        let (send, receive) = sync_channel(QUEUE);
        let (send_rows, rows) = sync_channel(QUEUE);
        let (alive, ended) = sync_channel(0);
        let mut sinks = Sinks {
            metrics: settings.metrics_enabled.then(|| observer.metrics.clone()),
            audit,
            rows: send_rows,
            dropped: observer.dropped.clone(),
            correlation: settings.include_correlation_id,
            closing: observer.closing.clone(),
        };
        let mut store = Store {
            telemetry: Lazy::Closed(telemetry, days),
            closing: observer.closing.clone(),
        };
        // Two threads: a database that another process has locked holds up neither logs nor audit.
        let also_alive = alive.clone();
        let started = spawn("llmc-observer", move || {
            sinks.run(&receive);
            drop(alive);
        })
        .and_then(|()| {
            spawn("llmc-telemetry", move || {
                store.run(&rows);
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

    /// Hands an event over; never waits, and never counts a long text.
    pub(crate) fn record(&self, event: Event<'_>) {
        let queue = lock(&self.queue).clone();
        let Some(queue) = queue else { return };
        let record = Box::new(event.record(&self.waiting));
        if let Err(TrySendError::Full(_)) = queue.try_send(Message::Event(record)) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until everything recorded so far is counted, at most `limit`.
    pub fn flush(&self, limit: Duration) {
        let queue = lock(&self.queue).clone();
        let Some(queue) = queue else { return };
        let (send, receive) = sync_channel(1);
        let sent = queue.try_send(Message::Flush(send));
        drop(queue);
        if sent.is_ok() {
            let _ = receive.recv_timeout(limit);
        }
    }

    /// Writes what is left, within the time that an end may take; a thread that waits for something else stays behind.
    pub fn close(&self) {
        lock(&self.queue).take();
        let Some(ended) = lock(&self.ended).take() else {
            return;
        };
        for (patience, closing) in CLOSE.into_iter().zip([false, true]) {
            self.closing.store(closing, Ordering::Relaxed);
            if ended.recv_timeout(patience) == Err(RecvTimeoutError::Disconnected) {
                return;
            }
        }
        tracing::warn!("the last calls may be missing from the records");
    }

    /// The in-memory metrics as a document.
    pub fn metrics(&self) -> Value {
        self.flush(Duration::from_secs(1));
        let mut document = self.metrics.document();
        document["events_dropped"] = self.dropped().into();
        document
    }

    /// Every call that ends from now on, as it is counted.
    pub fn watch(&self) -> broadcast::Receiver<Arc<SeenCall>> {
        self.metrics.watch()
    }

    /// What has been seen so far: totals, tools, errors, sessions, the last hour, the last calls.
    pub fn summary(&self, whose: Whose<'_>) -> Value {
        self.metrics.summary(whose)
    }

    /// The totals of the same.
    pub fn totals(&self, whose: Whose<'_>) -> Value {
        self.metrics.totals(whose)
    }

    /// Appends the metrics in the text format of Prometheus; returns the errors by code, which others add to.
    pub fn prometheus(&self, out: &mut String) -> std::collections::BTreeMap<&'static str, u64> {
        self.flush(Duration::from_secs(1));
        self.metrics.prometheus(out)
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

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A store that is opened with the first event, not at start.
enum Lazy {
    Closed(Option<PathBuf>, u32),
    Open(Telemetry),
    Broken,
}

/// Counts, and writes what is quick to write.
struct Sinks {
    metrics: Option<Arc<Metrics>>,
    audit: Option<Audit>,
    rows: SyncSender<Counted>,
    dropped: Arc<AtomicU64>,
    correlation: bool,
    closing: Arc<AtomicBool>,
}

impl Sinks {
    fn run(&mut self, queue: &Receiver<Message>) {
        while let Ok(message) = queue.recv() {
            match message {
                Message::Event(event) => {
                    let exact = !self.closing.load(Ordering::Relaxed);
                    self.write(Counted::of(*event, exact));
                }
                Message::Flush(done) => drop(done.send(())),
            }
        }
    }

    fn write(&mut self, mut counted: Counted) {
        if let Some(metrics) = &self.metrics {
            metrics.add(&counted);
        }
        if let Some(audit) = &mut self.audit {
            audit.add(&counted);
        }
        self.log(&counted);
        // Its text is not needed any more; the arguments are.
        counted.event.answer = Text::Whole(String::new());
        if let Some(room) = &mut counted.event.room {
            room.shrink(usize::try_from(counted.bytes_in).unwrap_or(usize::MAX));
        }
        if let Err(TrySendError::Full(_)) = self.rows.try_send(counted) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn log(&self, counted: &Counted) {
        let event = &counted.event;
        let status = if event.error.is_some() { "error" } else { "ok" };
        let correlation_id = self.correlation.then_some(event.correlation_id.as_str());
        tracing::info!(
            target: "llmc::call",
            correlation_id,
            tool = event.tool_name(),
            status,
            duration_ms = (counted.latency_ms() * 1000.0).round() / 1000.0,
            path = event.path.as_deref(),
            truncated = event.truncated,
            error_code = counted.error_code(),
            reason = event.message.as_deref(),
            tokens_in = counted.tokens_in,
            tokens_out = counted.tokens_out,
            "call"
        );
    }
}

/// Keeps telemetry, which may have to wait for other processes.
struct Store {
    telemetry: Lazy,
    closing: Arc<AtomicBool>,
}

impl Store {
    fn run(&mut self, rows: &Receiver<Counted>) {
        while let Ok(counted) = rows.recv() {
            if !self.closing.load(Ordering::Relaxed) {
                self.keep(&counted);
            }
        }
    }

    fn keep(&mut self, counted: &Counted) {
        if let Lazy::Closed(path, days) = &self.telemetry {
            let options = Options {
                retention_days: *days,
                ..Options::default()
            };
            let opened = match path {
                Some(path) => Telemetry::open(path, options),
                None => Telemetry::in_memory(options),
            };
            self.telemetry = match opened {
                Ok(store) => Lazy::Open(store),
                Err(error) => {
                    tracing::warn!(%error, "telemetry is off");
                    Lazy::Broken
                }
            };
        }
        if let Lazy::Open(store) = &self.telemetry
            && let Err(error) = store.record(&row(counted))
        {
            tracing::warn!(%error, "a telemetry row is lost");
        }
    }
}

fn source(surface: Surface) -> Source {
    match surface {
        Surface::Mcp => Source::Mcp,
        Surface::Http => Source::Http,
        Surface::Cli => Source::Cli,
        Surface::Code => Source::Code,
    }
}

fn row(counted: &Counted) -> Row {
    let event = &counted.event;
    let mode = if event.truncated {
        Mode::Enriched
    } else {
        Mode::Passthrough
    };
    // Of a tool that runs anything, what it ran is the more telling half of the name.
    let cmd = match &event.program {
        Some(program) => format!("{} {program}", event.tool_name()),
        None => event.tool_name().to_owned(),
    };
    let mut row = Row::new(source(event.surface), cmd, mode);
    row.agent = Some(event.agent.clone());
    row.session = Some(event.session.clone());
    row.model = Some(event.model.clone());
    row.bytes_in = counted.bytes_in;
    row.bytes_out = counted.bytes_out;
    row.tokens_in = counted.tokens_in;
    row.tokens_served = counted.tokens_out;
    row.tokens_withheld = counted.tokens_withheld;
    row.tokens_fetched_back = counted.tokens_fetched_back;
    row.latency_ms = counted.latency_ms();
    row.truncated = event.truncated;
    row.handle = event.handle;
    row.error = counted.error_code().map(str::to_owned);
    row.args = kept_args(event);
    row
}

/// The arguments that may be recorded: those the tool has, and of these not what is to be written to a file.
///
/// What a model put under a wrong name, or where another kind of value belongs, may well be a file's content.
fn kept_args(event: &Record) -> Option<String> {
    let refused = matches!(event.error, Some((Kind::BadArgs | Kind::UnknownTool, _)));
    let (Some(tool), Text::Whole(text), false) = (event.tool, &event.args, refused) else {
        return None;
    };
    let Ok(Value::Object(mut args)) = serde_json::from_str(text) else {
        return None;
    };
    let known = tool.schema().get("properties").and_then(Value::as_object)?;
    args.retain(|key, value| known.get(key).is_some_and(|schema| suits(value, schema)));
    let mut args = Value::Object(args);
    leave_content_out(&mut args);
    Some(args.to_string())
}

/// Whether a value is of the kind that the schema asks for.
fn suits(value: &Value, schema: &Value) -> bool {
    let kind = match schema.get("type").and_then(Value::as_str) {
        Some("string") => value.is_string(),
        Some("integer" | "number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        _ => true,
    };
    let choices = schema.get("enum").and_then(Value::as_array);
    kind && choices.is_none_or(|choices| choices.contains(value))
}

/// Puts a size in the place of what is to be written: a file's content is never recorded.
fn leave_content_out(value: &mut Value) {
    const CONTENT: [&str; 8] = [
        "content", "old_text", "new_text", "patch", "input", "code", "context", "task",
    ];
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                if CONTENT.contains(&key.as_str()) {
                    let bytes = value.as_str().map_or(0, str::len);
                    *value = format!("({bytes} bytes)").into();
                } else {
                    leave_content_out(value);
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(leave_content_out),
        _ => {}
    }
}

#[cfg(test)]
#[path = "observe/tests.rs"]
mod tests;
