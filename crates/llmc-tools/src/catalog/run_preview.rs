//! `run_preview`: a command on a copy-on-write view; its output and the diff of what it would have changed.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::args::VIEW_ERRORS;
use crate::cx::Cx;
use crate::error::{ErrorKind, Result};
use crate::shell::{self, PreviewAnswer, PreviewRequest};
use crate::tool::{Effect, Tool};

pub(super) struct RunPreview;

/// Run a command without changing anything; output and diff.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    #[schemars(extend("x-help" = "a shell line; either this or argv"))]
    command: Option<String>,
    #[schemars(extend("x-help" = "words as they are"))]
    argv: Option<Vec<String>>,
    #[schemars(extend("x-help" = "default: the workspace root"))]
    cwd: Option<String>,
    #[schemars(extend("x-help" = "seconds to wait; then it goes on as proc_id"))]
    timeout: Option<f64>,
}

impl Tool for RunPreview {
    const NAME: &'static str = "run_preview";
    const EFFECT: Effect = Effect::Runs;
    const ERRORS: &'static [ErrorKind] = VIEW_ERRORS;
    const KEYWORDS: &'static str = "dry run simulate what would change diff try copy-on-write";
    type Args = Args;
    type Output = PreviewAnswer;

    fn time_limit(cx: &Cx) -> Duration {
        shell::call_limit(cx)
    }

    async fn run(cx: &Cx, args: Args) -> Result<PreviewAnswer> {
        cx.blocking(move |cx, cancel| {
            let request = PreviewRequest {
                command: args.command,
                argv: args.argv,
                cwd: args.cwd,
                timeout: args.timeout,
            };
            shell::preview(cx, request, cancel)
        })
        .await
    }
}
