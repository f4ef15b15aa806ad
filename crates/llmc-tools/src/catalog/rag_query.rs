use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::rag_search::search;
use crate::cx::Cx;
use crate::error::Result;
use crate::rag::Asked;
use crate::render::Document;
use crate::tool::{Effect, Tool};

pub(super) struct RagQuery;

/// The same as rag_search.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    #[serde(alias = "q")]
    query: String,
    scope: Option<String>,
    k: Option<i64>,
    budget_tokens: Option<i64>,
}

impl Tool for RagQuery {
    const NAME: &'static str = "rag_query";
    const ALIASES: &'static [&'static str] = &["rag.query"];
    const EFFECT: Effect = Effect::Reads;
    const RETRIEVES: bool = true;
    type Args = Args;
    type Output = Document<Value>;

    async fn run(cx: &Cx, args: Args) -> Result<Document<Value>> {
        let asked = Asked {
            query: args.query,
            scope: args.scope,
            k: args.k,
            budget_tokens: args.budget_tokens,
        };
        search(cx, asked).await
    }
}
