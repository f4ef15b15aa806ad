//! `te_run`: as `run_cmd`, always condensed.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::args::RUN_ERRORS;
use crate::cx::Cx;
use crate::error::{ErrorKind, Family, Result};
use crate::render::{AnswerRoom, Render, Rendition};
use crate::shape::te_output;
use crate::shell::{self, CommandRequest, CommandWords, OutputForm, RunOutput};
use crate::tool::{Effect, Tool};

pub(super) struct TeRun;

/// Run a command; output condensed.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    #[schemars(extend("x-help" = "either this or argv"))]
    command: Option<String>,
    argv: Option<Vec<String>>,
    #[schemars(extend("x-help" = "default: the workspace root"))]
    cwd: Option<String>,
    #[schemars(extend("x-help" = "seconds"))]
    timeout: Option<f64>,
}

/// What a command printed, as an envelope.
#[derive(Serialize)]
#[serde(transparent)]
pub(super) struct CommandEnvelope(RunOutput);

te_output!(CommandEnvelope);

impl Render for CommandEnvelope {
    fn render(&self, room: &AnswerRoom<'_>) -> Result<Rendition<'_>> {
        self.0.render(room)
    }
}

impl Tool for TeRun {
    const NAME: &'static str = "te_run";
    const EFFECT: Effect = Effect::Runs;
    const DESTRUCTIVE: bool = true;
    const IDEMPOTENT: bool = false;
    const FAMILY: Family = Family::Te;
    const ERRORS: &'static [ErrorKind] = RUN_ERRORS;
    const KEYWORDS: &'static str = "shell execute program";
    type Args = Args;
    type Output = CommandEnvelope;

    fn time_limit(cx: &Cx) -> Duration {
        shell::call_limit(cx)
    }

    async fn run(cx: &Cx, args: Args) -> Result<CommandEnvelope> {
        cx.blocking(move |cx, cancel| {
            let request = CommandRequest {
                words: CommandWords::new(cx, args.command, args.argv)?,
                cwd: args.cwd,
                timeout: args.timeout,
                input: None,
                form: OutputForm::Envelope,
            };
            Ok(CommandEnvelope(shell::answer(cx, request, cancel)?))
        })
        .await
    }
}
