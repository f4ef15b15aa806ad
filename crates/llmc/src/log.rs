//! Logs to standard error: one line per event, JSON or text, with the field names operators search for.

use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use llmc_config::{LogFormat, LogLevel};
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

/// The field that ties the lines of one request together.
const CORRELATION_FIELD: &str = "correlation_id";

/// What is logged to this target is written at any log level.
pub(crate) const ALWAYS: &str = "llmc::always";

/// Lines that may wait for the reader of standard error; further lines are dropped and counted.
const MAX_QUEUED_LINES: usize = 8192;
const FLUSH_TIMEOUT: Duration = Duration::from_millis(200);

/// Queue of the writer thread, once it runs.
static WRITER: OnceLock<SyncSender<WriterMessage>> = OnceLock::new();
/// Lines dropped because the queue was full.
static DROPPED_LINES: AtomicU64 = AtomicU64::new(0);

enum WriterMessage {
    Line(String),
    /// Answered when every line before it is written.
    Flush(SyncSender<()>),
}

/// Which thread writes the lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogWriter {
    /// The one that logs: for short-lived verbs.
    Direct,
    /// A separate one: a server's work must not wait for the reader of standard error.
    Thread,
}

/// Starts logging. Libraries log warnings and errors only.
pub(crate) fn start(format: LogFormat, level: LogLevel, writer: LogWriter) {
    if writer == LogWriter::Thread {
        start_writer();
    }
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let others = level.min(LevelFilter::WARN);
    let filter = Targets::new()
        .with_default(others)
        // A prefix: every crate of the workspace.
        .with_target("llmc", level)
        .with_target(ALWAYS, level.max(LevelFilter::INFO));
    // A second start (in tests) keeps the first.
    let _ = tracing_subscriber::registry()
        .with(LineLayer { format }.with_filter(filter))
        .try_init();
}

fn start_writer() {
    let (send, receive) = sync_channel(MAX_QUEUED_LINES);
    let thread = std::thread::Builder::new().name("llmc-log".to_owned());
    let started = thread.spawn(move || {
        while let Ok(message) = receive.recv() {
            match message {
                WriterMessage::Line(line) => write_now(&line),
                WriterMessage::Flush(done) => drop(done.send(())),
            }
        }
    });
    if started.is_ok() {
        // A second start (in tests) keeps the first.
        let _ = WRITER.set(send);
    }
}

fn write(line: String) {
    let Some(writer) = WRITER.get() else {
        return write_now(&line);
    };
    let dropped = DROPPED_LINES.swap(0, Ordering::Relaxed);
    if dropped > 0 {
        let notice = format!(
            r#"{{"level":"warn","msg":"{dropped} log lines dropped: standard error was not read in time"}}"#
        );
        if writer.try_send(WriterMessage::Line(notice)).is_err() {
            DROPPED_LINES.fetch_add(dropped, Ordering::Relaxed);
        }
    }
    if writer.try_send(WriterMessage::Line(line)).is_err() {
        DROPPED_LINES.fetch_add(1, Ordering::Relaxed);
    }
}

fn write_now(line: &str) {
    // A closed standard error does not stop the program.
    let _ = std::io::stderr()
        .lock()
        .write_all(format!("{line}\n").as_bytes());
}

/// Waits until everything logged so far is written, at most [`FLUSH_TIMEOUT`].
pub(crate) fn flush() {
    let Some(writer) = WRITER.get() else {
        return;
    };
    let (send, receive) = sync_channel(1);
    if writer.try_send(WriterMessage::Flush(send)).is_ok() {
        let _ = receive.recv_timeout(FLUSH_TIMEOUT);
    }
}

struct LineLayer {
    format: LogFormat,
}

/// The id of the call or request that a span stands for.
struct Correlation(Value);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for LineLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let (Some(id), Some(span)) = (fields.rest.remove(CORRELATION_FIELD), context.span(id)) {
            span.extensions_mut().insert(Correlation(id));
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        if !fields.rest.contains_key(CORRELATION_FIELD) {
            let mut spans = context.event_scope(event).into_iter().flatten();
            let id = spans.find_map(|span| {
                let found = span.extensions().get::<Correlation>()?.0.clone();
                Some(found)
            });
            fields
                .rest
                .extend(id.map(|id| (CORRELATION_FIELD.to_owned(), id)));
        }
        let now = jiff::Timestamp::now();
        let line = match self.format {
            LogFormat::Json => {
                let mut line = Map::new();
                line.insert("ts".to_owned(), format!("{now:.6}").into());
                line.insert(
                    "level".to_owned(),
                    level_name(*event.metadata().level()).into(),
                );
                line.insert("msg".to_owned(), fields.message.into());
                line.extend(fields.rest);
                Value::Object(line).to_string()
            }
            LogFormat::Text => {
                let mut line = format!(
                    "{now:.3} {:5} {}",
                    level_name(*event.metadata().level()),
                    fields.message
                );
                for (key, value) in fields.rest {
                    line.push_str(&format!(" {key}={value}"));
                }
                // JSON strings are escaped; the message is the one place where a line break could hide.
                line.replace(['\n', '\r'], " ")
            }
        };
        write(line);
    }
}

fn level_name(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warn",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    rest: Map<String, Value>,
}

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        match field.name() {
            "message" => {
                self.message = value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned)
            }
            name => drop(self.rest.insert(name.to_owned(), value)),
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.put(field, format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }
}
