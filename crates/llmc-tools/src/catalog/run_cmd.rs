use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::answer::Answer;
use crate::cx::{Cx, Form};
use crate::error::Result;
use crate::shell::wrap::Shape;
use crate::shell::{self, Asked};
use crate::tool::{Effect, Tool};

pub(super) struct RunCmd;

/// Run an allowed command, confined, without a shell.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    command: Option<String>,
    argv: Option<Vec<String>>,
    cwd: Option<String>,
    /// seconds
    timeout: Option<f64>,
}

impl Tool for RunCmd {
    const NAME: &'static str = "run_cmd";
    const EFFECT: Effect = Effect::Runs;
    const DESTRUCTIVE: bool = true;
    const IDEMPOTENT: bool = false;
    type Args = Args;
    type Output = Answer;

    fn time_limit(cx: &Cx) -> Duration {
        shell::time_limit(cx)
    }

    async fn run(cx: &Cx, args: Args) -> Result<Answer> {
        let argv = shell::words(args.command, args.argv)?;
        let shape = match cx.caller().form {
            Form::Data => Shape::Raw,
            Form::Text if !cx.app().config().mcp.te.enabled => Shape::Plain,
            Form::Text => Shape::Fit,
        };
        cx.blocking(move |cx, stop| {
            let asked = Asked {
                argv,
                cwd: args.cwd,
                timeout: args.timeout,
                shape,
            };
            shell::answer(cx, asked, stop)
        })
        .await
    }
}
