use schemars::JsonSchema;
use serde::Deserialize;

use super::args::INDEX_ERRORS;
use super::rag_search::search;
use crate::cx::Cx;
use crate::error::{ErrorKind, Result};
use crate::rag::Asked;
use crate::rag::FoundSnippets;
use crate::render::Document;
use crate::tool::{Effect, Tool};

pub(super) struct RagQuery;

/// The same as rag_search.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    #[serde(alias = "q")]
    query: String,
    #[schemars(extend("x-help" = "repo, docs or both", "x-unlisted" = true))]
    scope: Option<String>,
    #[schemars(extend("x-help" = "at most mcp.rag.top_k", "x-unlisted" = true))]
    k: Option<i64>,
    #[schemars(extend("x-help" = "at most mcp.rag.token_budget", "x-unlisted" = true))]
    budget_tokens: Option<i64>,
}

impl Tool for RagQuery {
    const NAME: &'static str = "rag_query";
    const ALIASES: &'static [&'static str] = &["rag.query"];
    const EFFECT: Effect = Effect::Reads;
    const RETRIEVES: bool = true;
    const ERRORS: &'static [ErrorKind] = INDEX_ERRORS;
    type Args = Args;
    type Output = Document<FoundSnippets>;

    async fn run(cx: &Cx, args: Args) -> Result<Document<FoundSnippets>> {
        let asked = Asked {
            query: args.query,
            scope: args.scope,
            k: args.k,
            budget_tokens: args.budget_tokens,
            explain: false,
        };
        search(cx, asked).await
    }
}
