//! `linux_proc_read`: new output of a background process.

use std::time::Duration;

use llmc_exec::ProcessEnd;
use llmc_host::search::OutputPattern;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::args::{AtLeast, bounded};
use crate::cx::Cx;
use crate::error::{Error, ErrorKind, Result};
use crate::processes::{Entry, ProcessText, ReadRequest};
use crate::render::Document;
use crate::shell::{self, refusals};
use crate::tool::{Effect, Tool};

/// How long a read waits when the call does not say.
const DEFAULT_WAIT_SECONDS: f64 = 5.0;

pub(super) struct LinuxProcRead;

/// Read new output; waits for some or a pattern.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    proc_id: String,
    #[schemars(extend("default" = null, "x-help" = "default: where the last read ended"))]
    offset: Option<AtLeast<0, 0>>,
    /// regex
    #[schemars(extend("x-help" = "a regular expression to wait for"))]
    until: Option<String>,
    /// seconds
    #[schemars(extend("x-help" = "seconds to wait"))]
    timeout: Option<f64>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct ProcessOutput {
    output: String,
    offset: u64,
    next_offset: u64,
    dropped_bytes: u64,
    running: bool,
    exit_code: Option<i32>,
    signal: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

impl Tool for LinuxProcRead {
    const NAME: &'static str = "linux_proc_read";
    const ALIASES: &'static [&'static str] = &["linux.proc_read"];
    const EFFECT: Effect = Effect::Reads;
    const IDEMPOTENT: bool = false;
    const ERRORS: &'static [ErrorKind] = &[ErrorKind::NotFound];
    const KEYWORDS: &'static str = "stdout background wait";
    type Args = Args;
    type Output = Document<ProcessOutput>;

    fn time_limit(cx: &Cx) -> Duration {
        longest(cx) + Duration::from_secs(10)
    }

    async fn run(cx: &Cx, args: Args) -> Result<Document<ProcessOutput>> {
        let offset = args
            .offset
            .map(|offset| bounded("offset", Some(offset)))
            .transpose()?;
        let until = args.until.as_deref().map(OutputPattern::new).transpose();
        let until = until.map_err(|error| Error::from(error).about_argument("until"))?;
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
            let read = cx.waiting(|| entry.read(&request, cancel))?;
            let mut notes = notes(cx, &read);
            notes.extend(refused(cx, &entry, &read));
            if asked > request.timeout {
                let most = request.timeout.as_secs();
                notes.push(format!("timeout lowered to {most} s (mcp.exec.max_wait_s)"));
            }
            let ending = read.ending.as_ref();
            let output = ProcessOutput {
                offset: read.offset,
                next_offset: read.next_offset,
                dropped_bytes: read.dropped,
                running: ending.is_none(),
                exit_code: ending.and_then(|ending| ending.status.exit_code()),
                signal: ending.and_then(|ending| ending.status.signal()),
                note: joined(&notes),
                output: read.text,
            };
            Ok(Document::new(output).truncated(read.dropped > 0))
        })
        .await
    }
}

/// A read waits no longer than a command may run.
fn longest(cx: &Cx) -> Duration {
    cx.app().config().mcp.exec.max_wait()
}

/// What the fields do not say.
fn notes(cx: &Cx, read: &ProcessText) -> Vec<String> {
    let mut notes = Vec::new();
    if read.left > 0 && read.ending.is_some() {
        notes.push(format!("{} more bytes: read again", read.left));
    }
    let ending = read.ending.iter();
    notes.extend(ending.flat_map(|ending| ending_notes(cx, ending)));
    notes
}

/// What the boundary refused the process, by what this read returns. Its outputs come as one.
fn refused(cx: &Cx, entry: &Entry, read: &ProcessText) -> Vec<String> {
    let status = read.ending.as_ref().map(|ending| ending.status);
    let ends = [String::new(), refusals::end_of(&read.text)];
    let command = &entry.words.text;
    refusals::notes(cx, command, entry.cwd.as_deref(), status, &ends)
}

/// Notes as one field, if there are any.
pub(super) fn joined(notes: &[String]) -> Option<String> {
    (!notes.is_empty()).then(|| notes.join("; "))
}

/// What a caller must know about an end besides its code.
pub(super) fn ending_notes(cx: &Cx, ending: &ProcessEnd) -> Vec<String> {
    let mut notes = Vec::new();
    if ending.idle {
        notes.push("ended: idle for too long (mcp.tools.proc_idle_timeout)".to_owned());
    }
    notes.extend(shell::taken_away(cx, &ending.quarantined));
    notes.extend(ending.notes.iter().cloned());
    notes
}
