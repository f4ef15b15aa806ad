//! Logs to standard error: one line per event. JSON has the field names operators search for; text is short, for people
//! who read along in a terminal.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
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

/// How a line is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineFormat {
    Json,
    Text,
}

impl LineFormat {
    /// What the setting means for this process's standard error.
    pub(crate) fn of(setting: LogFormat) -> LineFormat {
        match setting {
            LogFormat::Json => LineFormat::Json,
            LogFormat::Text => LineFormat::Text,
            LogFormat::Auto if std::io::stderr().is_terminal() => LineFormat::Text,
            LogFormat::Auto => LineFormat::Json,
        }
    }

    fn line(self, level: Level, fields: Fields) -> String {
        match self {
            LineFormat::Json => json_line(level, fields),
            LineFormat::Text => text_line(level, &fields),
        }
    }
}

/// Starts logging. Libraries log warnings and errors only.
pub(crate) fn start(format: LineFormat, level: LogLevel, writer: LogWriter) {
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

fn write(line: String, format: LineFormat) {
    let Some(writer) = WRITER.get() else {
        return write_now(&line);
    };
    let dropped = DROPPED_LINES.swap(0, Ordering::Relaxed);
    if dropped > 0 {
        let message = format!("{dropped} log lines dropped: standard error was not read in time");
        let fields = Fields {
            message,
            ..Fields::default()
        };
        let notice = format.line(Level::WARN, fields);
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
    format: LineFormat,
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
        let level = *event.metadata().level();
        write(self.format.line(level, fields), self.format);
    }
}

fn json_line(level: Level, fields: Fields) -> String {
    let now = jiff::Timestamp::now();
    let mut line = Map::new();
    line.insert("ts".to_owned(), format!("{now:.6}").into());
    line.insert("level".to_owned(), level_name(level).into());
    line.insert("msg".to_owned(), fields.message.into());
    line.extend(fields.rest);
    Value::Object(line).to_string()
}

/// The local time, the level unless it is `info`, the message, and the fields that say something.
///
/// The correlation id is for failures: it is what an error message quotes.
fn text_line(level: Level, fields: &Fields) -> String {
    let mut line = jiff::Zoned::now().strftime("%H:%M:%S ").to_string();
    if level != Level::INFO {
        let _ = write!(line, "{} ", level_name(level));
    }
    line.push_str(&fields.message);
    let failed = level <= Level::WARN || fields.rest.contains_key("error_code");
    for (key, value) in &fields.rest {
        let omitted = match key.as_str() {
            CORRELATION_FIELD => !failed,
            "truncated" => value == &Value::Bool(false),
            "status" => value == "ok" || value == "error",
            // A line of its own says it, and better.
            "confinement" => true,
            "tokens_in" => true,
            _ => value == "",
        };
        if !omitted {
            let _ = write!(line, " {key}={}", text_value(value));
        }
    }
    one_line(&line)
}

/// A plain word as it is, anything else as JSON.
fn text_value(value: &Value) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/:@+,".contains(c);
    match value.as_str() {
        Some(text) if !text.is_empty() && text.chars().all(plain) => text.to_owned(),
        _ => value.to_string(),
    }
}

/// Control characters would act on the terminal, or begin a line that looks like another event.
fn one_line(line: &str) -> String {
    line.replace(|c: char| c.is_control(), " ")
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The text line of an event, without its time.
    fn text(level: Level, message: &str, rest: Value) -> String {
        let fields = Fields {
            message: message.to_owned(),
            rest: rest.as_object().unwrap().clone(),
        };
        text_line(level, &fields)["00:00:00 ".len()..].to_owned()
    }

    #[test]
    fn a_call_is_a_short_line() {
        let call = json!({"correlation_id": "c0ffee", "tool": "read_file", "status": "ok", "duration_ms": 1.25, "path": "a b.txt", "truncated": false, "tokens_in": 5, "tokens_out": 18});
        assert_eq!(
            text(Level::INFO, "call", call),
            r#"call tool=read_file duration_ms=1.25 path="a b.txt" tokens_out=18"#
        );
    }

    #[test]
    fn a_failure_has_the_id_that_its_answer_quotes() {
        let call = json!({"correlation_id": "c0ffee", "tool": "read_file", "status": "error", "error_code": "NOT_FOUND", "truncated": true});
        assert_eq!(
            text(Level::INFO, "call", call),
            "call correlation_id=c0ffee tool=read_file error_code=NOT_FOUND truncated=true"
        );
        assert_eq!(
            text(Level::WARN, "odd", json!({"correlation_id": "c0ffee"})),
            "warn odd correlation_id=c0ffee"
        );
    }

    #[test]
    fn no_value_begins_a_line_or_acts_on_the_terminal() {
        let line = text(
            Level::ERROR,
            "a\nb\u{1b}[2J",
            json!({"path": "c\nd\u{1b}[31m", "empty": ""}),
        );
        assert!(!line.contains(|c: char| c.is_control()), "{line}");
        assert_eq!(line, r#"error a b [2J path="c\nd\u001b[31m""#);
    }
}
