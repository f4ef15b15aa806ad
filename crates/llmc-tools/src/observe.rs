//! What observers learn of a call: names and sizes; contents only for the store, where the configuration keeps them.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use llmc_config::{Config, LoadedConfig};
use llmc_host::PathRules;
use llmc_observe::{
    AuditOptions, CallEvent, EnvelopeMode, Observer, ObserverOptions, SecretNames,
    TelemetryLocation, UncountedCall,
};
use llmc_store::Database;
use serde_json::{Map, Value};

use crate::app::App;
use crate::call::CallOutcome;
use crate::cx::{Caller, Surface};
use crate::error::{ErrorKind, Family};
use crate::tool::{Effect, ToolDef};

/// The record of calls, in the state directory.
pub(crate) const TELEMETRY: &str = "te_telemetry.db";
/// Arguments whose values are contents: their size is recorded instead.
const CONTENT_ARGS: [&str; 8] = [
    "content", "old_text", "new_text", "patch", "input", "code", "context", "task",
];

/// Starts the observer as the configuration says. Telemetry is in memory if it is kept nowhere.
pub(crate) fn start(
    loaded: &LoadedConfig,
    telemetry: Option<TelemetryLocation>,
    has_shared_audit: bool,
    server: &str,
    rules: Arc<PathRules>,
) -> Observer {
    let settings = &loaded.config.mcp.observability;
    let keeps_file = keeps_audit(&loaded.config) && !has_shared_audit;
    Observer::start(ObserverOptions {
        enabled: settings.enabled,
        metrics: settings.metrics_enabled,
        telemetry,
        audit: keeps_file.then(|| AuditOptions {
            root: loaded.root.clone(),
            path: loaded.csv_path(),
        }),
        retention_days: settings.retention_days,
        log_correlation_id: settings.include_correlation_id,
        server: server.to_owned(),
        secret_names: SecretNames::new(move |name| rules.is_denylisted(Path::new(name))),
    })
}

/// Where calls are recorded, if they are: in the shared database, or else in the state directory.
pub fn telemetry_location(
    config: &Config,
    state_dir: Option<&Path>,
    database: Option<&Database>,
) -> Option<TelemetryLocation> {
    if !config.mcp.docker.persist_telemetry {
        return None;
    }
    match database {
        Some(database) => Some(database.clone().into()),
        None => state_dir.map(|dir| dir.join(TELEMETRY).into()),
    }
}

/// Whether a token audit is written.
pub(crate) fn keeps_audit(config: &Config) -> bool {
    let settings = &config.mcp.observability;
    let is_on = settings.enabled && settings.csv_token_audit_enabled;
    if is_on && !config.mcp.docker.persist_token_audit {
        tracing::warn!(
            "the token audit is on but not kept: mcp.docker.persist_token_audit is false"
        );
    }
    is_on && config.mcp.docker.persist_token_audit
}

/// The arguments of a call as observers need them, taken before the tool consumes them.
#[derive(Debug, Clone)]
pub(crate) struct ObservedArgs {
    /// All of them, to be counted.
    text: String,
    /// Those that may be recorded.
    pub(crate) recorded: Option<String>,
}

impl ObservedArgs {
    pub(crate) fn new(tool: Option<&ToolDef>, args: &Map<String, Value>) -> ObservedArgs {
        ObservedArgs {
            // As one JSON document.
            text: serde_json::to_string(args).unwrap_or_default(),
            recorded: tool.map(|tool| recordable(tool, args)),
        }
    }
}

/// Hands a finished call to the observer.
pub(crate) fn record(
    app: &App,
    outcome: &CallOutcome,
    caller: &Caller,
    args: ObservedArgs,
    entry: Option<String>,
    latency: Duration,
) {
    let mut call = event(outcome, caller, args, latency);
    call.event.entry = entry;
    // What an analysis is given and finds is not traced unless the user asks for that.
    let is_analysis = outcome
        .tool
        .is_some_and(|tool| tool.effect == Effect::SendsOut);
    call.keeps_content = app.config().mcp.observability.keep_contents && !is_analysis;
    app.observer().record(call);
}

pub(crate) fn event<'a>(
    outcome: &'a CallOutcome,
    caller: &Caller,
    args: ObservedArgs,
    latency: Duration,
) -> UncountedCall<'a> {
    let (error, facts) = match &outcome.result {
        Ok(answer) => (None, answer.facts().clone()),
        Err(error) => (Some(error), Default::default()),
    };
    let family = outcome.tool.map_or(Family::Linux, |tool| tool.family);
    // A refusal of arguments quotes them, and a model may have put a file's content into the wrong one; a provider's
    // error may quote what it was sent.
    let quotes_content = |kind| {
        matches!(
            kind,
            ErrorKind::BadArgs | ErrorKind::BadPattern | ErrorKind::ProviderFailed
        )
    };
    let misunderstood = error
        .is_some_and(|error| matches!(error.kind, ErrorKind::BadArgs | ErrorKind::UnknownTool));
    let in_script = caller.surface == Surface::Code;
    UncountedCall {
        event: CallEvent {
            time: Timestamp::now(),
            correlation_id: outcome.correlation_id.clone(),
            source: source(caller.surface).to_owned(),
            principal: caller.principal.clone(),
            agent: caller.agent.clone(),
            session: caller.session.clone(),
            model: caller.model.clone(),
            client: caller.client.clone(),
            tool: outcome
                .tool
                .map_or("unknown", ToolDef::full_name)
                .to_owned(),
            // Commands pass the envelope whatever their tool is called.
            is_te: family == Family::Te || facts.program.is_some(),
            error_code: error.map(|error| error.kind.code(family).to_owned()),
            duration_ms: (latency.as_secs_f64() * 1_000_000.0).round() / 1000.0,
            path: facts.path,
            truncated: facts.truncated,
            handle: facts.handle,
            program: facts.program,
            mode: if facts.truncated {
                EnvelopeMode::Enriched
            } else {
                EnvelopeMode::Passthrough
            },
            args: args.recorded.filter(|_| !misunderstood),
            ..CallEvent::default()
        },
        // What a script reads does not reach the model: tokens are counted once, for `execute_code` itself.
        args: if in_script { String::new() } else { args.text },
        answer: if in_script {
            Cow::Borrowed("")
        } else {
            answer(outcome)
        },
        withheld_bytes: if in_script { 0 } else { facts.withheld_bytes },
        // But a client of an upstream reads the whole answer, so its ledger tells what scripts read in its place.
        script_bytes: match outcome.tool.and_then(|tool| tool.origin) {
            Some(_) if in_script => facts.withheld_bytes,
            _ => 0,
        },
        fetched_back: facts.fetched_back && !in_script,
        error_message: error
            .filter(|error| !quotes_content(error.kind))
            .map(|error| error.message.clone()),
        keeps_content: false,
    }
}

fn source(surface: Surface) -> &'static str {
    match surface {
        Surface::Mcp => "mcp",
        Surface::Http => "http",
        Surface::Cli => "cli",
        Surface::Code => "code",
    }
}

fn answer(outcome: &CallOutcome) -> Cow<'_, str> {
    match &outcome.result {
        Ok(answer) => answer.text(),
        Err(_) => Cow::Owned(outcome.text()),
    }
}

/// The arguments that may be recorded: those the tool has, with contents left out.
///
/// What a model put under a wrong name, or where another type belongs, may well be a file's content.
fn recordable(tool: &ToolDef, args: &Map<String, Value>) -> String {
    let schema = tool.schema();
    let known = schema.get("properties").and_then(Value::as_object);
    let recorded: Map<String, Value> = (args.iter())
        .filter(|(key, value)| {
            let schema = known.and_then(|known| known.get(*key));
            schema.is_some_and(|schema| has_type(value, schema))
        })
        .map(|(key, value)| (key.clone(), without_content(key, value)))
        .collect();
    Value::Object(recorded).to_string()
}

/// Whether a value has the type that the schema asks for.
fn has_type(value: &Value, schema: &Value) -> bool {
    let is_type = match schema.get("type").and_then(Value::as_str) {
        Some("string") => value.is_string(),
        Some("integer" | "number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        _ => true,
    };
    let choices = schema.get("enum").and_then(Value::as_array);
    is_type && choices.is_none_or(|choices| choices.contains(value))
}

/// The value with a size in the place of contents.
fn without_content(key: &str, value: &Value) -> Value {
    if CONTENT_ARGS.contains(&key) {
        let bytes = value.as_str().map_or(0, str::len);
        return format!("({bytes} bytes)").into();
    }
    match value {
        Value::Object(map) => (map.iter())
            .map(|(key, value)| (key.clone(), without_content(key, value)))
            .collect(),
        Value::Array(list) => (list.iter())
            .map(|value| without_content("", value))
            .collect(),
        value => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::catalog;
    use crate::cx::Form;
    use crate::error::{Error, Result};
    use crate::seal::Sealed;

    fn observed<T>(
        tool: &str,
        result: Result<Sealed>,
        args: Value,
        look: impl FnOnce(UncountedCall<'_>) -> T,
    ) -> T {
        let caller = Caller {
            surface: Surface::Mcp,
            form: Form::Text,
            principal: "local".to_owned(),
            agent: "agent".to_owned(),
            session: "session".to_owned(),
            model: "model".to_owned(),
            client: None,
            read_only: false,
            tools: None,
            remote: false,
        };
        let outcome = CallOutcome {
            correlation_id: "id".to_owned(),
            tool: catalog::find(tool),
            result,
        };
        let args = ObservedArgs::new(outcome.tool, args.as_object().unwrap());
        look(event(&outcome, &caller, args, Duration::ZERO))
    }

    fn recorded_args(tool: &str, result: Result<Sealed>, args: Value) -> Option<String> {
        observed(tool, result, args, |call| call.event.args)
    }

    fn failed(kind: ErrorKind) -> Result<Sealed> {
        Err(Error::new(kind, "no"))
    }

    fn data(data: Value) -> Result<Sealed> {
        Ok(Sealed::for_test(
            "",
            Some(data).filter(|data| !data.is_null()),
        ))
    }

    #[test]
    fn arguments_that_were_not_understood_are_not_recorded() {
        let misnamed = json!({"path": "a", "contents": "SECRET"});
        let misplaced = json!({"path": "a", "mode": "SECRET", "content": ["SECRET"]});
        for (tool, kind, args, recorded) in [
            ("linux_fs_write", ErrorKind::BadArgs, &misnamed, None),
            ("linux_fs_write", ErrorKind::UnknownTool, &misnamed, None),
            ("no_such_tool", ErrorKind::UnknownTool, &misnamed, None),
            // Refused before the arguments were read.
            (
                "linux_fs_write",
                ErrorKind::CommandDenied,
                &misnamed,
                Some(r#"{"path":"a"}"#),
            ),
            (
                "linux_fs_write",
                ErrorKind::CommandDenied,
                &misplaced,
                Some(r#"{"path":"a"}"#),
            ),
        ] {
            let args = recorded_args(tool, failed(kind), args.clone());
            assert_eq!(args.as_deref(), recorded, "{tool} {kind:?}");
        }
    }

    #[test]
    fn content_is_recorded_as_its_size() {
        let args = json!({"path": "a", "content": "SECRET", "mode": "append"});
        let recorded = recorded_args("linux_fs_write", data(Value::Null), args).unwrap();
        assert_eq!(
            serde_json::from_str::<Value>(&recorded).unwrap(),
            json!({"path": "a", "content": "(6 bytes)", "mode": "append"})
        );
    }

    #[test]
    fn messages_that_may_quote_content_are_not_logged() {
        for (kind, logged) in [(ErrorKind::BadArgs, false), (ErrorKind::NotFound, true)] {
            let message = observed("stat", failed(kind), json!({}), |call| call.error_message);
            assert_eq!(message.is_some(), logged, "{kind:?}");
        }
    }

    #[test]
    fn answers_for_programs_are_counted_too() {
        for (answer, read) in [
            (json!("one two three"), "one two three"),
            (json!({"a": [1, 2]}), r#"{"a":[1,2]}"#),
            (Value::Null, ""),
        ] {
            observed("stat", data(answer), json!({}), |call| {
                assert_eq!(call.answer, read);
            });
        }
    }
}
