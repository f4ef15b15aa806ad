use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::answer::Answer;
use crate::cx::Cx;
use crate::error::{Family, Result};
use crate::shell::wrap::Shape;
use crate::shell::{self, Asked};
use crate::tool::{Effect, Tool};

pub(super) struct TeRun;

/// Run an allowed command; output condensed.
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
    type Output = Answer;

    fn time_limit(cx: &Cx) -> Duration {
        shell::time_limit(cx)
    }

    async fn run(cx: &Cx, args: Args) -> Result<Answer> {
        let argv = shell::words(args.command, args.argv)?;
        cx.blocking(move |cx, stop| {
            let asked = Asked {
                argv,
                cwd: args.cwd,
                timeout: args.timeout,
                shape: Shape::Envelope,
            };
            shell::answer(cx, asked, stop)
        })
        .await
    }
}
