use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::cx::Cx;
use crate::error::Result;
use crate::rag;
use crate::render::Document;
use crate::tool::{Effect, Tool};

pub(super) struct RagStats;

/// Size and state of the code index.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {}

impl Tool for RagStats {
    const NAME: &'static str = "rag_stats";
    const ALIASES: &'static [&'static str] = &["rag.stats"];
    const EFFECT: Effect = Effect::Reads;
    type Args = Args;
    type Output = Document<Value>;

    async fn run(cx: &Cx, args: Args) -> Result<Document<Value>> {
        cx.blocking(move |cx, stop| {
            let Args {} = args;
            rag::freshen(cx, stop);
            Ok(Document::new(rag::stats(cx)?))
        })
        .await
    }
}
