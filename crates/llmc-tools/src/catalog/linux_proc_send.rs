//! `linux_proc_send`: input for a background process.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cx::Cx;
use crate::error::{Error, ErrorKind, Result};
use crate::render::Document;
use crate::tool::{Effect, Tool};

/// Bytes that one call takes.
const MAX_INPUT_BYTES: usize = 1 << 20;
/// How long a process may take to read them.
const INPUT_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) struct LinuxProcSend;

/// Write to a process's input; empty closes it.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    proc_id: String,
    input: String,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct SentInput {
    ok: bool,
    bytes: usize,
}

impl Tool for LinuxProcSend {
    const NAME: &'static str = "linux_proc_send";
    const ALIASES: &'static [&'static str] = &["linux.proc_send"];
    const EFFECT: Effect = Effect::Runs;
    const DESTRUCTIVE: bool = true;
    const IDEMPOTENT: bool = false;
    const ERRORS: &'static [ErrorKind] = &[ErrorKind::NotFound];
    const KEYWORDS: &'static str = "stdin type background";
    type Args = Args;
    type Output = Document<SentInput>;

    fn time_limit(_: &Cx) -> Duration {
        // Another call may be writing first.
        2 * INPUT_TIMEOUT + Duration::from_secs(5)
    }

    async fn run(cx: &Cx, args: Args) -> Result<Document<SentInput>> {
        let input = args.input;
        if input.len() > MAX_INPUT_BYTES {
            return Err(Error::bad_args(format!(
                "input is {} bytes; one call takes {MAX_INPUT_BYTES}",
                input.len()
            )));
        }
        cx.blocking(move |cx, cancel| {
            let entry = cx.app().processes().get(cx.caller(), &args.proc_id)?;
            cx.waiting(|| match input.is_empty() {
                true => entry.close_input(INPUT_TIMEOUT, cancel),
                false => entry.send_input(&input, INPUT_TIMEOUT, cancel).map(|_| ()),
            })?;
            Ok(Document::new(SentInput {
                ok: true,
                bytes: input.len(),
            }))
        })
        .await
    }
}
