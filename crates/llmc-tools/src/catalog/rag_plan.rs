use std::fmt::Write as _;

use llmc_index::ReadingPlan;
use schemars::JsonSchema;
use serde::Deserialize;

use super::args::INDEX_ERRORS;
use crate::cx::Cx;
use crate::error::{ErrorKind, Result};
use crate::rag;
use crate::render::Document;
use crate::tool::{Effect, Tool};

pub(super) struct RagPlan;

/// What to read for a question, in order.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    #[serde(alias = "q")]
    query: String,
}

impl Tool for RagPlan {
    const NAME: &'static str = "rag_plan";
    const ALIASES: &'static [&'static str] = &["rag.plan"];
    const EFFECT: Effect = Effect::Reads;
    const RETRIEVES: bool = true;
    const ERRORS: &'static [ErrorKind] = INDEX_ERRORS;
    const KEYWORDS: &'static str = "where start";
    type Args = Args;
    type Output = Document<ReadingPlan>;

    async fn run(cx: &Cx, args: Args) -> Result<Document<ReadingPlan>> {
        cx.blocking(move |cx, stop| {
            rag::freshen(cx, stop);
            let plan = cx
                .app()
                .index()
                .plan(&cx.files().roots, &args.query, stop)?;
            Ok(Document::new(plan).page(page))
        })
        .await
    }
}

/// The steps, numbered.
fn page(plan: &ReadingPlan) -> String {
    let mut out = String::new();
    for (nth, step) in plan.steps.iter().enumerate() {
        let _ = writeln!(
            out,
            "{:>2}. {}  {:.2}\n    {}",
            nth + 1,
            step.src,
            step.confidence,
            step.why
        );
    }
    let _ = writeln!(out, "confidence {:.2}", plan.confidence);
    if let Some(note) = &plan.note {
        let _ = writeln!(out, "{note}");
    }
    out
}
