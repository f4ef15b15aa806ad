//! `linux_proc_read`: new output of a background process.

use std::time::Duration;

use llmc_exec::ProcessEnd;
use llmc_host::search::OutputPattern;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::args::bounded;
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::processes::{ProcessText, ReadRequest};
use crate::render::Document;
use crate::tool::{Effect, Tool};

/// How long a read waits when the call does not say.
const DEFAULT_WAIT_SECONDS: f64 = 5.0;

pub(super) struct LinuxProcRead;

/// Read new output; waits for some or a pattern.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    proc_id: String,
    offset: Option<i64>,
    /// regex
    until: Option<String>,
    /// seconds
    timeout: Option<f64>,
}

impl Tool for LinuxProcRead {
    const NAME: &'static str = "linux_proc_read";
    const ALIASES: &'static [&'static str] = &["linux.proc_read"];
    const EFFECT: Effect = Effect::Reads;
    const IDEMPOTENT: bool = false;
    type Args = Args;
    type Output = Document<Value>;

    fn time_limit(cx: &Cx) -> Duration {
        longest(cx) + Duration::from_secs(10)
    }

    async fn run(cx: &Cx, args: Args) -> Result<Document<Value>> {
        let offset = args
            .offset
            .map(|offset| bounded("offset", Some(offset), 0, 0..=i64::MAX))
            .transpose()?;
        let until = args.until.as_deref().map(OutputPattern::new).transpose()?;
        let seconds = args.timeout.unwrap_or(DEFAULT_WAIT_SECONDS);
        if !(seconds.is_finite() && seconds >= 0.0) {
            return Err(Error::bad_args("timeout must be at least 0 seconds"));
        }
        let asked = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        let request = ReadRequest {
            offset,
            until,
            timeout: asked.min(longest(cx)),
            form: cx.caller().form,
        };
        cx.blocking(move |cx, cancel| {
            let entry = cx.app().processes().get(cx.caller(), &args.proc_id)?;
            let read = entry.read(&request, cancel)?;
            let mut notes = notes(&read);
            if asked > request.timeout {
                let most = request.timeout.as_secs();
                notes.push(format!("timeout lowered to {most} s (mcp.exec.max_wait_s)"));
            }
            let ending = read.ending.as_ref();
            let mut document = json!({
                "output": read.text,
                "offset": read.offset,
                "next_offset": read.next_offset,
                "dropped_bytes": read.dropped,
                "running": ending.is_none(),
                "exit_code": ending.and_then(|ending| ending.status.exit_code()),
                "signal": ending.and_then(|ending| ending.status.signal()),
            });
            if !notes.is_empty() {
                document["note"] = notes.join("; ").into();
            }
            Ok(Document::new(document).truncated(read.dropped > 0))
        })
        .await
    }
}

/// A read waits no longer than a command may run.
fn longest(cx: &Cx) -> Duration {
    cx.app().config().mcp.exec.max_wait()
}

/// What the fields do not say.
fn notes(read: &ProcessText) -> Vec<String> {
    let mut notes = Vec::new();
    if read.left > 0 && read.ending.is_some() {
        notes.push(format!("{} more bytes: read again", read.left));
    }
    notes.extend(read.ending.iter().flat_map(ending_notes));
    notes
}

/// What a caller must know about an end besides its code.
pub(super) fn ending_notes(ending: &ProcessEnd) -> Vec<String> {
    let mut notes = Vec::new();
    if ending.idle {
        notes.push("ended: idle for too long (mcp.tools.proc_idle_timeout)".to_owned());
    }
    for planted in &ending.quarantined {
        notes.push(format!(
            "{} is protected; the change was undone",
            planted.path.display()
        ));
    }
    notes
}
