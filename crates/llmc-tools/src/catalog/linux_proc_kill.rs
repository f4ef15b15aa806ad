//! `linux_proc_kill`: a signal to a process by its pid.

use std::time::Duration;

use llmc_config::ExecProfile;
use llmc_exec::{NotKilled, find_signal_target};
use schemars::JsonSchema;
use serde::Deserialize;

use super::args::SignalNumber;
use super::linux_proc_stop::StoppedProcess;
use crate::cx::Cx;
use crate::error::{Error, ErrorKind, Result};
use crate::render::Document;
use crate::tool::{Effect, Tool};

const TERM: i32 = 15;
/// How long the end of one's own process is waited for, to tell how it ended.
const END_TIMEOUT: Duration = Duration::from_secs(1);

pub(super) struct LinuxProcKill;

/// Send a signal to one process by pid.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    pid: i64,
    #[schemars(with = "Option<String>")]
    signal: Option<SignalNumber>,
}

impl Tool for LinuxProcKill {
    const NAME: &'static str = "linux_proc_kill";
    const ALIASES: &'static [&'static str] = &["linux.proc_kill"];
    const EFFECT: Effect = Effect::Writes;
    const DESTRUCTIVE: bool = true;
    const IDEMPOTENT: bool = false;
    const ERRORS: &'static [ErrorKind] = &[
        ErrorKind::NotFound,
        ErrorKind::PermissionDenied,
        ErrorKind::CommandDenied,
    ];
    const KEYWORDS: &'static str = "terminate";
    type Args = Args;
    type Output = Document<StoppedProcess>;

    async fn run(cx: &Cx, args: Args) -> Result<Document<StoppedProcess>> {
        let signal = args.signal.map_or(TERM, |signal| signal.0);
        cx.blocking(move |cx, _| {
            let own = cx.app().processes().list(cx.caller());
            let helpers: Vec<i32> = own
                .iter()
                .filter(|entry| entry.process.ending().is_none())
                .filter_map(|entry| entry.process.helper())
                .collect();
            let mcp = &cx.app().config().mcp;
            let strangers = mcp.tools.kill_any && mcp.exec.profile == ExecProfile::Unrestricted;
            let refused = |why| refusal(args.pid, why);
            let aimed = find_signal_target(args.pid, &helpers, strangers).map_err(refused)?;
            let running = own
                .iter()
                .filter(|entry| entry.process.ending().is_none())
                .find(|entry| i64::from(entry.process.pid()) == args.pid);
            aimed.fire(signal).map_err(refused)?;
            let ending = running.and_then(|entry| entry.process.wait_command(END_TIMEOUT));
            Ok(Document::new(StoppedProcess::new(cx, ending.as_ref())))
        })
        .await
    }
}

fn refusal(pid: i64, why: NotKilled) -> Error {
    let kind = match why {
        NotKilled::Gone => ErrorKind::NotFound,
        NotKilled::Refused => ErrorKind::PermissionDenied,
        _ => ErrorKind::CommandDenied,
    };
    Error::new(kind, format!("pid {pid}: {why}"))
        .hint("linux_proc_list shows the processes you started")
}
