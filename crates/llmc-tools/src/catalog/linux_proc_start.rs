//! `linux_proc_start`: a program that outlives the call, talked to through pipes or a terminal.

use std::time::Duration;

use llmc_exec::{Io, ProcessOptions};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cx::Cx;
use crate::error::{ErrorKind, Result};
use crate::render::Document;
use crate::shell::{self, CommandWords};
use crate::tool::{Effect, Tool};

/// Bytes of output that are kept of one process.
const RING_BYTES: usize = 1 << 20;

pub(super) struct LinuxProcStart;

/// Start a long-running program or REPL.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    #[schemars(extend("x-help" = "either this or argv"))]
    command: Option<String>,
    argv: Option<Vec<String>>,
    #[schemars(extend("x-help" = "default: the workspace root"))]
    cwd: Option<String>,
    /// for REPLs
    pty: Option<bool>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct StartedProcess {
    proc_id: String,
    pid: i32,
}

impl Tool for LinuxProcStart {
    const NAME: &'static str = "linux_proc_start";
    const ALIASES: &'static [&'static str] = &["linux.proc_start"];
    const EFFECT: Effect = Effect::Runs;
    const DESTRUCTIVE: bool = true;
    const IDEMPOTENT: bool = false;
    const ERRORS: &'static [ErrorKind] = &[
        ErrorKind::CommandDenied,
        ErrorKind::IsolationRequired,
        ErrorKind::InvalidPath,
        ErrorKind::RateLimited,
    ];
    const KEYWORDS: &'static str = "background daemon server spawn launch interactive";
    type Args = Args;
    type Output = Document<StartedProcess>;

    async fn run(cx: &Cx, args: Args) -> Result<Document<StartedProcess>> {
        let io = match args.pty {
            Some(true) => Io::Terminal,
            _ => Io::Pipes,
        };
        cx.blocking(move |cx, _| {
            let words = CommandWords::new(cx, args.command, args.argv)?;
            let cwd = cx
                .linux()
                .roots
                .open_dir(args.cwd.as_deref().unwrap_or("."))?;
            shell::refusals::git::check(cx, &words, &cwd.path.absolute())?;
            let (app, caller) = (cx.app(), cx.caller());
            let env = caller.environment();
            let spec = caller.exec_request(&words.argv, &cwd, &env);
            let manner = ProcessOptions {
                io,
                idle: app
                    .config()
                    .mcp
                    .tools
                    .proc_idle_timeout()
                    .unwrap_or(Duration::MAX),
                keep: RING_BYTES,
            };
            let entry = app.processes().start(caller, words.clone(), || {
                Ok(cx.recorded_commands()?.spawn(&spec, manner)?)
            })?;
            if let Some(recording) = cx.recording() {
                recording.continue_with(&entry);
            }
            Ok(Document::new(StartedProcess {
                proc_id: entry.id.clone(),
                pid: entry.process.pid(),
            }))
        })
        .await
    }
}
