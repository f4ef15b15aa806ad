//! `te_run`: as `run_cmd`, always condensed.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::cx::Cx;
use crate::error::{Family, Result};
use crate::shell::{self, CommandRequest, CommandWords, OutputForm, RunOutput};
use crate::tool::{Effect, Tool};

pub(super) struct TeRun;

/// Run a command; output condensed.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    command: Option<String>,
    argv: Option<Vec<String>>,
    cwd: Option<String>,
    timeout: Option<f64>,
}

impl Tool for TeRun {
    const NAME: &'static str = "te_run";
    const EFFECT: Effect = Effect::Runs;
    const DESTRUCTIVE: bool = true;
    const IDEMPOTENT: bool = false;
    const FAMILY: Family = Family::Te;
    type Args = Args;
    type Output = RunOutput;

    fn time_limit(cx: &Cx) -> Duration {
        shell::call_limit(cx)
    }

    async fn run(cx: &Cx, args: Args) -> Result<RunOutput> {
        cx.blocking(move |cx, cancel| {
            let request = CommandRequest {
                words: CommandWords::new(cx, args.command, args.argv)?,
                cwd: args.cwd,
                timeout: args.timeout,
                input: None,
                form: OutputForm::Envelope,
            };
            shell::answer(cx, request, cancel)
        })
        .await
    }
}
