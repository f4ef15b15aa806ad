//! `run_cmd`: a shell line or a program, confined; what runs longer than the call waits goes on in the background.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::args::{AtLeast, RUN_ERRORS};
use crate::cx::Cx;
use crate::error::{Error, ErrorKind, Result};
use crate::shell::{self, CommandRequest, CommandWords, RunOutput};
use crate::tool::{Effect, Tool};

pub(super) struct RunCmd;

/// Run a shell line or argv, confined.
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
    #[schemars(extend("x-help" = "waits on for that proc_id"))]
    proc: Option<String>,
    #[schemars(extend("x-help" = "standard input"))]
    input: Option<String>,
    #[expect(dead_code, reason = "the call path reads it")]
    #[schemars(extend("x-help" = "of the answer; default: the budget", "x-unlisted" = true))]
    max_tokens: Option<AtLeast<1, 1>>,
}

impl Tool for RunCmd {
    const NAME: &'static str = "run_cmd";
    const EFFECT: Effect = Effect::Runs;
    const DESTRUCTIVE: bool = true;
    const IDEMPOTENT: bool = false;
    const ERRORS: &'static [ErrorKind] = RUN_ERRORS;
    const KEYWORDS: &'static str = "shell execute program subprocess bash build test";
    type Args = Args;
    type Output = RunOutput;

    fn time_limit(cx: &Cx) -> Duration {
        shell::call_limit(cx)
    }

    async fn run(cx: &Cx, args: Args) -> Result<RunOutput> {
        let form = shell::output_form(cx);
        let input = args.input.filter(|input| !input.is_empty());
        cx.blocking(move |cx, cancel| {
            let Some(id) = args.proc.filter(|id| !id.is_empty()) else {
                let request = CommandRequest {
                    words: CommandWords::new(cx, args.command, args.argv)?,
                    cwd: args.cwd,
                    timeout: args.timeout,
                    input,
                    form,
                };
                return shell::answer(cx, request, cancel);
            };
            let starts = args.command.is_some_and(|line| !line.is_empty())
                || args.argv.is_some_and(|argv| !argv.is_empty());
            if starts {
                return Err(Error::bad_args(
                    "proc waits on a command that runs already; leave command and argv out",
                ));
            }
            if let Some(run) = cx.app().processes().run(cx.caller(), &id) {
                return match input {
                    Some(_) => Err(shell::no_input(&run)),
                    None => {
                        let answer = shell::resume_run(cx, &run, args.timeout, cancel)?;
                        Ok(RunOutput::Run(answer))
                    }
                };
            }
            shell::resume(cx, &id, input.as_deref(), args.timeout, form, cancel)
        })
        .await
    }
}
