use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::args::AtLeast;
use crate::cx::Cx;
use crate::error::Result;
use crate::script::{self, Script, ScriptOutput};
use crate::tool::{Effect, Tool};

pub(super) struct ExecuteCode;

/// Run Python calling tools.NAME(...); returns what it prints.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    code: String,
    /// keeps variables
    session: Option<String>,
    timeout: Option<f64>,
    #[expect(dead_code, reason = "the call path reads it")]
    #[schemars(extend("x-help" = "of the answer; default: the budget"))]
    max_tokens: Option<AtLeast<1, 1>>,
}

impl Tool for ExecuteCode {
    const NAME: &'static str = "execute_code";
    const EFFECT: Effect = Effect::Scripts;
    const DESTRUCTIVE: bool = true;
    const IDEMPOTENT: bool = false;
    type Args = Args;
    type Output = ScriptOutput;

    fn time_limit(cx: &Cx) -> Duration {
        // The script's own limit ends it first; this one is for work around the script that hangs.
        let script = Duration::from_secs(cx.app().config().mcp.code_execution.timeout);
        script + script::MAX_TIME_IN_CALLS + script::MAX_QUEUE_WAIT + Duration::from_secs(10)
    }

    async fn run(cx: &Cx, args: Args) -> Result<ScriptOutput> {
        let script = Script {
            code: args.code,
            session: args.session,
            timeout: args.timeout,
        };
        script::run(cx, script).await
    }
}
