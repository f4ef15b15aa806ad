//! `linux_proc_stop`: ends a background process and its children.

use std::time::{Duration, Instant};

use llmc_exec::{ExitStatus, Io, ProcessEnd};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::args::SignalNumber;
use super::linux_proc_read::{ending_notes, joined};
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
    #[schemars(extend("x-help" = "default: TERM, then KILL"))]
    signal: Option<SignalNumber>,
}

impl Tool for LinuxProcStop {
    const NAME: &'static str = "linux_proc_stop";
    const ALIASES: &'static [&'static str] = &["linux.proc_stop"];
    const EFFECT: Effect = Effect::Writes;
    const DESTRUCTIVE: bool = true;
    const ERRORS: &'static [ErrorKind] = &[ErrorKind::NotFound];
    const KEYWORDS: &'static str = "terminate kill background";
    type Args = Args;
    type Output = Document<StoppedProcess>;

    fn time_limit(_: &Cx) -> Duration {
        TERM_TIMEOUT + Duration::from_secs(10)
    }

    async fn run(cx: &Cx, args: Args) -> Result<Document<StoppedProcess>> {
        let given = args.signal.map(|signal| signal.0);
        cx.blocking(move |cx, cancel| {
            if let Some(run) = cx.app().processes().run(cx.caller(), &args.proc_id) {
                run.end();
                let deadline = Instant::now() + TERM_TIMEOUT;
                // Its own result is that it was ended.
                let _ = cx.waiting(|| run.wait(cx, Some(deadline), cancel));
                return Ok(Document::new(StoppedProcess::new(cx, None)));
            }
            let entry = cx.app().processes().get(cx.caller(), &args.proc_id)?;
            let signals = match (given, entry.process.io()) {
                (Some(given), _) => vec![given],
                // What a closed terminal does: shells in one do not listen to TERM.
                (None, Io::Terminal) => vec![TERM, HUP],
                (None, _) => vec![TERM],
            };
            let ended = cx.waiting(|| entry.process.stop(&signals, TERM_TIMEOUT));
            let ending = ended.ok_or_else(|| {
                Error::new(
                    ErrorKind::TimedOut,
                    format!("{}: killed, but stuck in the kernel", args.proc_id),
                )
                .hint("look again with linux_proc_list")
            })?;
            cx.app().history_keeper().background().checkpoint(&entry.id);
            Ok(Document::new(StoppedProcess::new(cx, Some(&ending))))
        })
        .await
    }
}

/// How a process ended.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct StoppedProcess {
    ok: bool,
    exit_code: Option<i32>,
    signal: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

impl StoppedProcess {
    /// Of a process whose end is known, or is not.
    pub(super) fn new(cx: &Cx, ending: Option<&ProcessEnd>) -> StoppedProcess {
        let status = ending.map(|ending| ending.status);
        StoppedProcess {
            ok: true,
            exit_code: status.and_then(ExitStatus::exit_code),
            signal: status.and_then(ExitStatus::signal),
            note: ending.and_then(|ending| joined(&ending_notes(cx, ending))),
        }
    }
}
