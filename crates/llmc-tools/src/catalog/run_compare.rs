//! `run_compare`: a command on the workspace as it was at a base and as it is; what differs between the two runs.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::args::VIEW_ERRORS;
use crate::cx::Cx;
use crate::error::{ErrorKind, Result};
use crate::shell::{self, CompareRequest, ComparisonAnswer};
use crate::tool::{Effect, Tool};

pub(super) struct RunCompare;

/// Run a command at base and now; what differs.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    #[schemars(extend("x-help" = "a shell line; either this or argv"))]
    command: Option<String>,
    #[schemars(extend("x-help" = "words as they are"))]
    argv: Option<Vec<String>>,
    #[schemars(extend("x-help" = "a commit, or h12: before that entry of history; default HEAD"))]
    base: Option<String>,
    #[schemars(extend("x-help" = "default: the workspace root"))]
    cwd: Option<String>,
    #[schemars(extend("x-help" = "seconds to wait; then it goes on as proc_id"))]
    timeout: Option<f64>,
}

impl Tool for RunCompare {
    const NAME: &'static str = "run_compare";
    const EFFECT: Effect = Effect::Runs;
    const ERRORS: &'static [ErrorKind] = VIEW_ERRORS;
    const KEYWORDS: &'static str = "before after regression git stash newly failing tests baseline";
    type Args = Args;
    type Output = ComparisonAnswer;

    fn time_limit(cx: &Cx) -> Duration {
        // The base is read before the runs begin.
        shell::call_limit(cx) + cx.app().config().mcp.exec.wait()
    }

    async fn run(cx: &Cx, args: Args) -> Result<ComparisonAnswer> {
        cx.blocking(move |cx, cancel| {
            let request = CompareRequest {
                command: args.command,
                argv: args.argv,
                base: args.base,
                cwd: args.cwd,
                timeout: args.timeout,
            };
            shell::compare_runs(cx, request, cancel)
        })
        .await
    }
}
