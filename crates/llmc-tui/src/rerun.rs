//! Runs a recorded call again, through `App::call`.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use llmc_config::LoadedConfig;
use llmc_envelope::neutral::{Ansi, neutralise};
use llmc_observe::CallEvent;
use llmc_tools::{App, Call, CallOutcome, Caller, Effect, Surface, ToolDef, catalog};
use serde_json::{Map, Value};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

/// How much of an answer is shown; its handle or `llmc tool` returns the rest.
const MAX_SHOWN_BYTES: usize = 64 * 1024;
/// How long the end waits for a cancelled call, so that it can end its programs.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);

/// A call that can be made again.
#[derive(Debug, Clone)]
pub(crate) struct RepeatCall {
    pub(crate) tool: &'static ToolDef,
    pub(crate) args: Map<String, Value>,
}

impl PartialEq for RepeatCall {
    fn eq(&self, other: &RepeatCall) -> bool {
        self.tool.name == other.tool.name && self.args == other.args
    }
}

impl RepeatCall {
    /// # Errors
    /// What was recorded is not enough to repeat the call; the text says why.
    pub(crate) fn of(call: &CallEvent) -> Result<RepeatCall, String> {
        // Telemetry puts the program after the tool.
        let name = call.tool.split(' ').next().unwrap_or_default();
        let tool =
            catalog::find(name).ok_or_else(|| format!("{name} is no tool of this version"))?;
        let args = call
            .args
            .as_deref()
            .ok_or("its arguments were not recorded")?;
        let Ok(Value::Object(args)) = serde_json::from_str(args) else {
            return Err("its arguments were shortened when they were recorded".to_owned());
        };
        if args.values().any(is_hidden) {
            return Err(
                "some of its arguments were left out or masked when they were recorded".to_owned(),
            );
        }
        Ok(RepeatCall { tool, args })
    }

    /// Whether a person has to agree first, because it does more than read.
    pub(crate) fn needs_consent(&self) -> bool {
        self.tool.effect != Effect::Reads
    }

    /// The shell command for the same call; `None` when a terminal could not show it as it is.
    pub(crate) fn command(&self) -> Option<String> {
        let args = Value::Object(self.args.clone()).to_string();
        let shown = crate::text::legible(&args, 200);
        (shown == args).then(|| {
            format!(
                "llmc tool {} --args {}",
                self.tool.name,
                shell_quoted(&args)
            )
        })
    }
}

/// Whether telemetry put `***` in the place of a secret or `(120 bytes)` in the place of content.
fn is_hidden(value: &Value) -> bool {
    match value {
        Value::String(text) => {
            let bytes = text
                .strip_prefix('(')
                .and_then(|text| text.strip_suffix(" bytes)"));
            text.contains("***")
                || bytes.is_some_and(|bytes| bytes.bytes().all(|b| b.is_ascii_digit()))
        }
        Value::Array(list) => list.iter().any(is_hidden),
        Value::Object(map) => map.values().any(is_hidden),
        _ => false,
    }
}

fn shell_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// How a repeated call ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RepeatAnswer {
    pub(crate) tool: String,
    pub(crate) failed: bool,
    /// The answer, made safe to show.
    pub(crate) text: String,
}

impl RepeatAnswer {
    fn of(outcome: &CallOutcome, tool: &'static ToolDef) -> RepeatAnswer {
        let text = outcome.text();
        let head = &text[..text.floor_char_boundary(MAX_SHOWN_BYTES)];
        let mut shown = neutralise(head, Ansi::Show)
            .replace("\r\n", "\n")
            .replace('\t', "    ");
        if head.len() < text.len() {
            shown.push_str("\n… (the rest is not shown here)");
        }
        RepeatAnswer {
            tool: tool.name.to_owned(),
            failed: outcome.result.is_err(),
            text: shown,
        }
    }
}

/// Runs calls again, one at a time. The application is opened for the first.
pub(crate) struct RepeatRunner {
    loaded: LoadedConfig,
    opened: Option<(Arc<App>, Runtime)>,
    running: Option<CancellationToken>,
    send: Sender<RepeatAnswer>,
    answers: Receiver<RepeatAnswer>,
}

impl RepeatRunner {
    pub(crate) fn new(loaded: LoadedConfig) -> RepeatRunner {
        let (send, answers) = channel();
        RepeatRunner {
            loaded,
            opened: None,
            running: None,
            send,
            answers,
        }
    }

    pub(crate) fn start(&mut self, call: RepeatCall) -> Result<(), String> {
        if self.running.is_some() {
            return Err("another call is still running".to_owned());
        }
        let cancel = CancellationToken::new();
        let (running, send) = (cancel.clone(), self.send.clone());
        let (app, runtime) = self.open()?;
        let app = app.clone();
        runtime.spawn(async move {
            let request = Call {
                name: call.tool.name.to_owned(),
                args: call.args,
                caller: Caller::local(Surface::Cli, &app),
                cancel,
                progress: None,
                correlation_id: None,
                ask_user: None,
                slot: None,
            };
            let outcome = app.call(request).await;
            let _ = send.send(RepeatAnswer::of(&outcome, call.tool));
        });
        self.running = Some(running);
        Ok(())
    }

    /// The application and what runs its calls, opened the first time.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn open(&mut self) -> Result<&(Arc<App>, Runtime), String> {
        if self.opened.is_none() {
            let app = App::start(self.loaded.clone()).map_err(|error| error.message)?;
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .thread_name("llmc")
                .enable_all()
                .build()
                .map_err(|error| format!("the runtime cannot be started: {error}"))?;
            self.opened = Some((app, runtime));
        }
        let opened = self.opened.as_ref();
        opened.ok_or_else(|| "the application cannot be started".to_owned())
    }

    /// The answer, once there is one.
    pub(crate) fn answer(&mut self) -> Option<RepeatAnswer> {
        let answered = self.answers.try_recv().ok()?;
        self.running = None;
        Some(answered)
    }

    pub(crate) fn cancel(&self) {
        if let Some(cancel) = &self.running {
            cancel.cancel();
        }
    }
}

impl Drop for RepeatRunner {
    fn drop(&mut self) {
        if self.running.is_some() {
            self.cancel();
            let _ = self.answers.recv_timeout(CANCEL_TIMEOUT);
        }
        if let Some((app, runtime)) = self.opened.take() {
            runtime.shutdown_background();
            app.observer().close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tests::call;

    fn repeat(tool: &str, args: Option<&str>) -> Result<RepeatCall, String> {
        RepeatCall::of(&call(0, tool, |event| event.args = args.map(str::to_owned)).event)
    }

    #[test]
    fn only_whole_calls_can_be_made_again() {
        let whole = repeat("read_file", Some(r#"{"path":"it's"}"#)).unwrap();
        assert!(!whole.needs_consent());
        assert_eq!(
            whole.command().unwrap(),
            r#"llmc tool read_file --args '{"path":"it'\''s"}'"#
        );
        assert!(
            repeat("run_cmd", Some(r#"{"command":"ls"}"#))
                .unwrap()
                .needs_consent()
        );
        for (tool, args, why) in [
            ("read_file", None, "not recorded"),
            ("no_such", Some("{}"), "no tool"),
            ("read_file", Some(r#"{"path":"lon…"#), "shortened"),
            ("read_file", Some("[]"), "shortened"),
            ("run_cmd", Some(r#"{"command":"x --token ***"}"#), "masked"),
            (
                "linux_fs_write",
                Some(r#"{"path":"a","content":"(12 bytes)"}"#),
                "left out",
            ),
            (
                "linux_fs_edit",
                Some(r#"{"edits":[{"new_text":"(0 bytes)"}]}"#),
                "left out",
            ),
        ] {
            let error = repeat(tool, args).unwrap_err();
            assert!(error.contains(why), "{tool}: {error}");
        }
        let hidden = repeat("read_file", Some(r#"{"path":"\u202etxt"}"#)).unwrap();
        assert_eq!(
            hidden.command(),
            None,
            "the command typed must be the command shown"
        );
    }
}
