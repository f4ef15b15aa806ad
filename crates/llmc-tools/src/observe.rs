//! What leaves a call besides its answer: one event, read by everything that watches.
//!
//! Counting tokens, writing logs, audit and telemetry happens on a thread of its own, so that a slow disk never slows a
//! call and a full one never fails it. When the queue is full the event is dropped and counted, and the count is shown.

mod audit;
mod metrics;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use llmc_config::Loaded;
use llmc_envelope::Telemetry;
use llmc_envelope::telemetry::{Mode, Options, Row, Source, mask_secrets};
use serde_json::Value;

use crate::call::Outcome;
use crate::cx::{Caller, Surface};
use crate::error::Family;
use crate::error::Kind;

use audit::Audit;
pub use metrics::Metrics;

/// Events that may wait to be written.
const QUEUE: usize = 1024;
/// Texts above this are counted before they wait, so that the queue stays small.
const TEXT_IN_QUEUE: usize = 64 << 10;

/// One finished call.
#[derive(Debug)]
pub(crate) struct Event {
    correlation_id: String,
    surface: Surface,
    agent: String,
    session: String,
    model: String,
    tool: String,
    error: Option<(Kind, Family)>,
    message: Option<String>,
    path: Option<String>,
    truncated: bool,
    handle: Option<llmc_envelope::HandleId>,
    withheld_bytes: u64,
    fetched_back: bool,
    latency: Duration,
    args: Text,
    answer: Text,
}

/// A text that is still to be counted, or only its counts.
#[derive(Debug)]
enum Text {
    Whole(String),
    Counted { bytes: u64, tokens: u64 },
}

impl Text {
    fn of(text: String) -> Text {
        if text.len() > TEXT_IN_QUEUE {
            return Text::Counted {
                bytes: text.len() as u64,
                tokens: llmc_tokens::count(&text) as u64,
            };
        }
        Text::Whole(text)
    }

    fn counts(&self) -> (u64, u64) {
        match self {
            Text::Whole(text) => (text.len() as u64, llmc_tokens::count(text) as u64),
            Text::Counted { bytes, tokens } => (*bytes, *tokens),
        }
    }
}

impl Event {
    pub(crate) fn of(outcome: &Outcome, caller: &Caller, args: String, latency: Duration) -> Event {
        let family = outcome.tool.map_or(Family::Linux, |tool| tool.family);
        let facts = outcome
            .result
            .as_ref()
            .map(|answer| answer.facts.clone())
            .unwrap_or_default();
        let error = outcome.result.as_ref().err();
        Event {
            correlation_id: outcome.correlation_id.clone(),
            surface: caller.surface,
            agent: caller.agent.clone(),
            session: caller.session.clone(),
            model: caller.model.clone(),
            tool: outcome.tool.map_or("unknown", |tool| tool.name).to_owned(),
            error: error.map(|error| (error.kind, family)),
            // A complaint about arguments quotes them, and a model may have put a file's content into the wrong one.
            message: error
                .filter(|error| !matches!(error.kind, Kind::BadArgs | Kind::BadPattern))
                .map(|error| mask_secrets(&error.message)),
            path: facts.path,
            truncated: facts.truncated,
            handle: facts.handle,
            withheld_bytes: facts.withheld_bytes,
            fetched_back: facts.fetched_back,
            latency,
            args: Text::of(args),
            answer: Text::of(outcome.text()),
        }
    }
}

/// An event with its tokens counted: what metrics, audit, telemetry and logs read.
#[derive(Debug)]
pub(crate) struct Counted {
    event: Event,
    bytes_in: u64,
    bytes_out: u64,
    tokens_in: u64,
    tokens_out: u64,
    tokens_withheld: u64,
    tokens_fetched_back: u64,
}

impl Counted {
    fn of(event: Event) -> Counted {
        let (bytes_in, tokens_in) = event.args.counts();
        let (bytes_out, tokens_out) = event.answer.counts();
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
    Event(Box<Event>),
    /// Answered when everything before it is written.
    Flush(SyncSender<()>),
}

/// The watchers of one application.
pub struct Observer {
    queue: Mutex<Option<SyncSender<Message>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    metrics: Arc<Metrics>,
    dropped: AtomicU64,
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
        let metrics = Arc::new(Metrics::default());
        let settings = &config.mcp.observability;
        let observer = Observer {
            queue: Mutex::new(None),
            thread: Mutex::new(None),
            metrics: metrics.clone(),
            dropped: AtomicU64::new(0),
        };
        if !settings.enabled {
            return observer;
        }
        let audit_path = settings.csv_token_audit_enabled.then(|| loaded.csv_path());
        let telemetry = state_dir
            .filter(|_| config.mcp.docker.persist_telemetry)
            .map(|dir| dir.join("te_telemetry.db"));
        let days = u32::try_from(settings.retention_days).unwrap_or(u32::MAX);
        let sinks = Sinks {
            metrics: settings.metrics_enabled.then_some(metrics),
            audit: audit_path.map(|path| Audit::new(path, days)),
            telemetry: Lazy::Closed(telemetry, days),
            correlation: settings.include_correlation_id,
        };
        let (send, receive) = sync_channel(QUEUE);
        let thread = std::thread::Builder::new()
            .name("llmc-observer".to_owned())
            .spawn(move || sinks.run(&receive));
        match thread {
            Ok(thread) => {
                *lock(&observer.queue) = Some(send);
                *lock(&observer.thread) = Some(thread);
            }
            Err(error) => tracing::error!(%error, "calls are not recorded"),
        }
        observer
    }

    /// Hands an event over; never waits.
    pub(crate) fn record(&self, event: Event) {
        let queue = lock(&self.queue).clone();
        if let Some(queue) = queue
            && let Err(TrySendError::Full(_)) = queue.try_send(Message::Event(Box::new(event)))
        {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until everything recorded so far is written, at most `limit`.
    pub fn flush(&self, limit: Duration) {
        let queue = lock(&self.queue).clone();
        let Some(queue) = queue else { return };
        let (send, receive) = sync_channel(1);
        if queue.try_send(Message::Flush(send)).is_ok() {
            let _ = receive.recv_timeout(limit);
        }
    }

    /// Writes what is left and ends the thread.
    pub fn close(&self) {
        self.flush(Duration::from_secs(2));
        lock(&self.queue).take();
        if let Some(thread) = lock(&self.thread).take() {
            let _ = thread.join();
        }
    }

    /// The in-memory metrics as a document.
    pub fn metrics(&self) -> Value {
        self.flush(Duration::from_secs(1));
        let mut document = self.metrics.document();
        document["events_dropped"] = self.dropped.load(Ordering::Relaxed).into();
        document
    }
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

struct Sinks {
    metrics: Option<Arc<Metrics>>,
    audit: Option<Audit>,
    telemetry: Lazy,
    correlation: bool,
}

impl Sinks {
    fn run(mut self, queue: &Receiver<Message>) {
        while let Ok(message) = queue.recv() {
            match message {
                Message::Event(event) => self.write(&Counted::of(*event)),
                Message::Flush(done) => drop(done.send(())),
            }
        }
    }

    fn write(&mut self, counted: &Counted) {
        if let Some(metrics) = &self.metrics {
            metrics.add(counted);
        }
        if let Some(audit) = &mut self.audit {
            audit.add(counted);
        }
        self.record_telemetry(counted);
        self.log(counted);
    }

    fn record_telemetry(&mut self, counted: &Counted) {
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

    fn log(&self, counted: &Counted) {
        let event = &counted.event;
        let status = if event.error.is_some() { "error" } else { "ok" };
        let correlation_id = self.correlation.then_some(event.correlation_id.as_str());
        tracing::info!(
            target: "llmc::call",
            correlation_id,
            tool = event.tool,
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

fn row(counted: &Counted) -> Row {
    let event = &counted.event;
    let source = match event.surface {
        Surface::Mcp => Source::Mcp,
        Surface::Http => Source::Http,
        Surface::Cli => Source::Cli,
        Surface::Code => Source::Code,
    };
    let mode = if event.truncated {
        Mode::Enriched
    } else {
        Mode::Passthrough
    };
    let mut row = Row::new(source, event.tool.as_str(), mode);
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
    row.args = match &event.args {
        Text::Whole(text) => Some(without_content(text)),
        Text::Counted { .. } => None,
    };
    row
}

/// Arguments without what is to be written: a file's content is never recorded.
fn without_content(args: &str) -> String {
    let Ok(Value::Object(mut args)) = serde_json::from_str(args) else {
        return String::new();
    };
    for key in [
        "content", "old_text", "new_text", "patch", "input", "code", "context",
    ] {
        if let Some(value) = args.get_mut(key) {
            let bytes = value.as_str().map_or(0, str::len);
            *value = format!("({bytes} bytes)").into();
        }
    }
    Value::Object(args).to_string()
}
