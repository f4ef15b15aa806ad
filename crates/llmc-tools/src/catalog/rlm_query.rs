use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::cx::Cx;
use crate::error::{Error, ErrorKind, Family, Result};
use crate::rlm::{self, AnalysisOutput};
use crate::tool::{Effect, Tool};

pub(super) struct RlmQuery;

/// Answer a task about a file or text too big to read.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Args {
    pub(crate) task: String,
    /// file, or give context
    pub(crate) path: Option<String>,
    pub(crate) context: Option<String>,
    pub(crate) budget_usd: Option<f64>,
    pub(crate) model: Option<String>,
    pub(crate) max_bytes: Option<i64>,
    pub(crate) timeout_s: Option<i64>,
    pub(crate) max_turns: Option<i64>,
    pub(crate) language: Option<String>,
}

impl Tool for RlmQuery {
    const NAME: &'static str = "rlm_query";
    const ALIASES: &'static [&'static str] = &["rlm.query"];
    const EFFECT: Effect = Effect::SendsOut;
    const FAMILY: Family = Family::Rlm;
    const IDEMPOTENT: bool = false;
    const ERRORS: &'static [ErrorKind] = &[
        ErrorKind::EgressDenied,
        ErrorKind::BudgetExceeded,
        ErrorKind::NoAnswer,
        ErrorKind::ProviderFailed,
    ];
    const KEYWORDS: &'static str = "analyse long document model summarize";
    type Args = Args;
    type Output = AnalysisOutput;

    /// The query keeps its own time; this only has to be longer.
    fn time_limit(_: &Cx) -> Duration {
        rlm::CALL_TIMEOUT
    }

    async fn run(cx: &Cx, args: Args) -> Result<AnalysisOutput> {
        rlm::query(cx, args).await
    }

    async fn refused(cx: &Cx, error: &Error) {
        rlm::write_refused(cx, error).await;
    }
}
