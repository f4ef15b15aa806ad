//! Logs to standard error: one line per event, JSON or text, with the field names operators search for.

use std::io::Write;

use llmc_config::{LogFormat, LogLevel};
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// Starts logging. Libraries are heard only when something is wrong.
pub(crate) fn start(format: LogFormat, level: LogLevel) {
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let others = level.min(LevelFilter::WARN);
    let ours = [
        "llmc",
        "llmc_config",
        "llmc_envelope",
        "llmc_host",
        "llmc_server",
        "llmc_tools",
    ];
    let filter = Targets::new()
        .with_default(others)
        .with_targets(ours.map(|name| (name, level)));
    // A second start (in tests) keeps the first.
    let _ = tracing_subscriber::registry()
        .with(Lines { format }.with_filter(filter))
        .try_init();
}

struct Lines {
    format: LogFormat,
}

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let now = jiff::Timestamp::now();
        let line = match self.format {
            LogFormat::Json => {
                let mut line = Map::new();
                line.insert("ts".to_owned(), format!("{now:.6}").into());
                line.insert("level".to_owned(), name(*event.metadata().level()).into());
                line.insert("msg".to_owned(), fields.message.into());
                line.extend(fields.rest);
                Value::Object(line).to_string()
            }
            LogFormat::Text => {
                let mut line = format!(
                    "{now:.3} {:5} {}",
                    name(*event.metadata().level()),
                    fields.message
                );
                for (key, value) in fields.rest {
                    line.push_str(&format!(" {key}={value}"));
                }
                // JSON strings are escaped; the message is the one place where a line break could hide.
                line.replace(['\n', '\r'], " ")
            }
        };
        // Nobody reading our stderr is no reason to stop.
        let _ = writeln!(std::io::stderr().lock(), "{line}");
    }
}

fn name(level: Level) -> &'static str {
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
