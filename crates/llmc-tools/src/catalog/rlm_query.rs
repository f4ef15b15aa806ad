use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::answer::Answer;
use crate::cx::Cx;
use crate::error::{Family, Result};
use crate::rlm::{self, Asked};
use crate::tool::{Effect, Tool};

pub(super) struct RlmQuery;

/// Answer a task about a file or text too big to read.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    task: String,
    /// file, or give context
    path: Option<String>,
    context: Option<String>,
    budget_usd: Option<f64>,
    model: Option<String>,
    max_bytes: Option<i64>,
    timeout_s: Option<i64>,
    max_turns: Option<i64>,
    language: Option<String>,
}

impl Tool for RlmQuery {
    const NAME: &'static str = "rlm_query";
    const ALIASES: &'static [&'static str] = &["rlm.query"];
    const EFFECT: Effect = Effect::SendsOut;
    const FAMILY: Family = Family::Rlm;
    const IDEMPOTENT: bool = false;
    type Args = Args;
    type Output = Answer;

    /// The query keeps its own time; this only has to be longer.
    fn time_limit(_: &Cx) -> Duration {
        rlm::LONGEST
    }

    async fn run(cx: &Cx, args: Args) -> Result<Answer> {
        let asked = Asked {
            task: args.task,
            path: args.path,
            context: args.context,
            budget_usd: args.budget_usd,
            model: args.model,
            max_bytes: args.max_bytes,
            timeout_s: args.timeout_s,
            max_turns: args.max_turns,
            language: args.language,
        };
        rlm::query(cx, asked).await
    }
}
