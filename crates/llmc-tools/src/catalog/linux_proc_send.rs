use std::time::Duration;

use llmc_exec::Sent;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cx::Cx;
use crate::error::{Error, Kind, Result};
use crate::render::Document;
use crate::tool::{Effect, Tool};

/// Bytes that one call takes.
const MOST: usize = 1 << 20;
/// How long a process may take to read them.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) struct LinuxProcSend;

/// Write to a process's input; empty closes it.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    proc_id: String,
    input: String,
}

impl Tool for LinuxProcSend {
    const NAME: &'static str = "linux_proc_send";
    const ALIASES: &'static [&'static str] = &["linux.proc_send"];
    const EFFECT: Effect = Effect::Runs;
    const DESTRUCTIVE: bool = true;
    const IDEMPOTENT: bool = false;
    type Args = Args;
    type Output = Document<Value>;

    fn time_limit(_: &Cx) -> Duration {
        // Another call may be at it first.
        2 * PATIENCE + Duration::from_secs(5)
    }

    async fn run(cx: &Cx, args: Args) -> Result<Document<Value>> {
        let input = args.input;
        if input.len() > MOST {
            return Err(Error::bad_args(format!(
                "input is {} bytes; one call takes {MOST}",
                input.len()
            )));
        }
        cx.blocking(move |cx, stop| {
            let entry = cx.app().processes().get(cx.caller(), &args.proc_id)?;
            let Sent { bytes, open } = match input.is_empty() {
                true => entry.process.close_input(PATIENCE, stop)?,
                false => entry.process.send(input.as_bytes(), PATIENCE, stop)?,
            };
            stop.check()?;
            if !open {
                return Err(gone(&args.proc_id, &entry.process).with("bytes", bytes));
            }
            if bytes < input.len() {
                let message = format!(
                    "{}: read only {bytes} of {} bytes within {} s",
                    args.proc_id,
                    input.len(),
                    PATIENCE.as_secs()
                );
                return Err(Error::new(Kind::TimedOut, message)
                    .hint("look at its output with linux_proc_read, then send the rest")
                    .with("bytes", bytes));
            }
            let document = json!({"ok": true, "bytes": bytes});
            Ok(Document::new(document))
        })
        .await
    }
}

fn gone(id: &str, process: &llmc_exec::Process) -> Error {
    match process.ending() {
        Some(_) => Error::new(Kind::NotFound, format!("{id}: the process has ended"))
            .hint("linux_proc_read tells its last output and exit code"),
        None => Error::new(Kind::NotFound, format!("{id}: its input is closed"))
            .hint("start it again with linux_proc_start"),
    }
}
