//! Running a call again, on the one path that every call takes.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use llmc_config::Loaded;
use llmc_envelope::neutral::{Ansi, neutralise};
use llmc_tools::{App, Call, CallOutcome, Caller, Effect, Surface, ToolDef, catalog};
use serde_json::{Map, Value};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use crate::seen::Seen;

/// How much of an answer is shown; the rest is behind its handle, or one `llmc tool` away.
const SHOWN: usize = 64 * 1024;
/// How long the end waits for a call that was told to stop, so that it takes its programs with it.
const LAST: Duration = Duration::from_secs(2);

/// A call that can be made again.
#[derive(Debug, Clone)]
pub struct Again {
    /// The tool.
    pub tool: &'static ToolDef,
    /// Its arguments.
    pub args: Map<String, Value>,
}

impl PartialEq for Again {
    fn eq(&self, other: &Again) -> bool {
        self.tool.name == other.tool.name && self.args == other.args
    }
}

impl Again {
    /// The same call once more.
    ///
    /// # Errors
    /// What was recorded of it is not enough; says why.
    pub fn of(call: &Seen) -> Result<Again, String> {
        let tool = catalog::find(&call.tool)
            .ok_or_else(|| format!("{} is no tool of this version", call.tool))?;
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
        Ok(Again { tool, args })
    }

    /// Whether a person should say yes first: it does more than look.
    pub fn asks(&self) -> bool {
        self.tool.effect != Effect::Reads
    }

    /// What a person can type to do the same; `None` when a terminal could not show it as it is.
    pub fn command(&self) -> Option<String> {
        let args = Value::Object(self.args.clone()).to_string();
        let shown = crate::text::legible(&args, 200);
        (shown == args).then(|| format!("llmc tool {} --args {}", self.tool.name, quoted(&args)))
    }
}

/// What a recorder puts in the place of secrets (`***`) and of contents (`(120 bytes)`).
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

/// For a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// How a call that was run again ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answered {
    /// The tool.
    pub(crate) tool: String,
    /// Whether it failed.
    pub(crate) failed: bool,
    /// What it answered, made safe to show.
    pub(crate) text: String,
}

impl Answered {
    fn of(outcome: &CallOutcome, tool: &'static ToolDef) -> Answered {
        let text = outcome.text();
        let head = &text[..text.floor_char_boundary(SHOWN)];
        let mut shown = neutralise(head, Ansi::Show)
            .replace("\r\n", "\n")
            .replace('\t', "    ");
        if head.len() < text.len() {
            shown.push_str("\n… (the rest is not shown here)");
        }
        Answered {
            tool: tool.name.to_owned(),
            failed: outcome.result.is_err(),
            text: shown,
        }
    }
}

/// What runs calls again, one at a time. The application is opened for the first.
pub(crate) struct Runner {
    loaded: Loaded,
    opened: Option<(Arc<App>, Runtime)>,
    under_way: Option<CancellationToken>,
    send: Sender<Answered>,
    answers: Receiver<Answered>,
}

impl Runner {
    pub(crate) fn new(loaded: Loaded) -> Runner {
        let (send, answers) = channel();
        Runner {
            loaded,
            opened: None,
            under_way: None,
            send,
            answers,
        }
    }

    /// Sets a call going.
    pub(crate) fn start(&mut self, again: Again) -> Result<(), String> {
        if self.under_way.is_some() {
            return Err("another call is still running".to_owned());
        }
        let (app, runtime) = match &mut self.opened {
            Some(opened) => opened,
            None => {
                let app = App::start(self.loaded.clone()).map_err(|error| error.message)?;
                let runtime = tokio::runtime::Builder::new_multi_thread()
                    .worker_threads(1)
                    .thread_name("llmc")
                    .enable_all()
                    .build()
                    .map_err(|error| format!("no runtime: {error}"))?;
                self.opened.insert((app, runtime))
            }
        };
        let cancel = CancellationToken::new();
        self.under_way = Some(cancel.clone());
        let (app, send) = (app.clone(), self.send.clone());
        runtime.spawn(async move {
            let call = Call {
                name: again.tool.name.to_owned(),
                args: again.args,
                caller: Caller::local(Surface::Cli, &app),
                cancel,
                progress: None,
                correlation_id: None,
            };
            let outcome = app.call(call).await;
            let _ = send.send(Answered::of(&outcome, again.tool));
        });
        Ok(())
    }

    /// The answer, once there is one.
    pub(crate) fn answer(&mut self) -> Option<Answered> {
        let answered = self.answers.try_recv().ok()?;
        self.under_way = None;
        Some(answered)
    }

    /// Tells the running call to stop.
    pub(crate) fn cancel(&self) {
        if let Some(cancel) = &self.under_way {
            cancel.cancel();
        }
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        if self.under_way.is_some() {
            self.cancel();
            let _ = self.answers.recv_timeout(LAST);
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

    fn again(tool: &str, args: Option<&str>) -> Result<Again, String> {
        Again::of(&call(0, tool, |call| call.args = args.map(str::to_owned)))
    }

    #[test]
    fn only_whole_calls_can_be_made_again() {
        let whole = again("read_file", Some(r#"{"path":"it's"}"#)).unwrap();
        assert!(!whole.asks());
        assert_eq!(
            whole.command().unwrap(),
            r#"llmc tool read_file --args '{"path":"it'\''s"}'"#
        );
        assert!(
            again("run_cmd", Some(r#"{"command":"ls"}"#))
                .unwrap()
                .asks()
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
            let error = again(tool, args).unwrap_err();
            assert!(error.contains(why), "{tool}: {error}");
        }
        let hidden = again("read_file", Some(r#"{"path":"\u202etxt"}"#)).unwrap();
        assert_eq!(hidden.command(), None, "what is typed must be what is seen");
    }
}
