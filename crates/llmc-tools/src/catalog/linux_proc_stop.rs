//! `linux_proc_stop`: ends a background process and its children.

use std::time::Duration;

use llmc_exec::{Io, ProcessEnd};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::args::SignalNumber;
use super::linux_proc_read::ending_notes;
use crate::cx::Cx;
use crate::error::{Error, ErrorKind, Result};
use crate::render::Document;
use crate::tool::{Effect, Tool};

const HUP: i32 = 1;
const TERM: i32 = 15;
/// How long a process may take to end by itself before it is killed.
const TERM_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) struct LinuxProcStop;

/// End a process and its children.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    proc_id: String,
    #[schemars(with = "Option<String>")]
    signal: Option<SignalNumber>,
}

impl Tool for LinuxProcStop {
    const NAME: &'static str = "linux_proc_stop";
    const ALIASES: &'static [&'static str] = &["linux.proc_stop"];
    const EFFECT: Effect = Effect::Writes;
    const DESTRUCTIVE: bool = true;
    type Args = Args;
    type Output = Document<Value>;

    fn time_limit(_: &Cx) -> Duration {
        TERM_TIMEOUT + Duration::from_secs(10)
    }

    async fn run(cx: &Cx, args: Args) -> Result<Document<Value>> {
        let given = args.signal.map(|signal| signal.0);
        cx.blocking(move |cx, _| {
            let entry = cx.app().processes().get(cx.caller(), &args.proc_id)?;
            let signals = match (given, entry.process.io()) {
                (Some(given), _) => vec![given],
                // What a closed terminal does: shells in one do not listen to TERM.
                (None, Io::Terminal) => vec![TERM, HUP],
                (None, _) => vec![TERM],
            };
            let ending = entry.process.stop(&signals, TERM_TIMEOUT).ok_or_else(|| {
                Error::new(
                    ErrorKind::TimedOut,
                    format!("{}: killed, but stuck in the kernel", args.proc_id),
                )
                .hint("look again with linux_proc_list")
            })?;
            Ok(Document::new(ended(&ending)))
        })
        .await
    }
}

/// `{ok, exit_code, signal}`.
pub(super) fn ended(ending: &ProcessEnd) -> Value {
    let mut document = json!({"ok": true, "exit_code": ending.status.exit_code(), "signal": ending.status.signal()});
    let notes = ending_notes(ending);
    if !notes.is_empty() {
        document["note"] = notes.join("; ").into();
    }
    document
}
