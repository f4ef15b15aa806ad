use llmc_index::State;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::args::bounded;
use crate::answer::{Answer, Facts};
use crate::cx::Cx;
use crate::error::Result;
use crate::rag::{self, Asked};
use crate::tool::{Effect, Tool};

pub(super) struct RagSearchEnriched;

/// rag_search with callers and callees of each snippet.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    #[serde(alias = "q")]
    query: String,
    scope: Option<String>,
    k: Option<i64>,
    budget_tokens: Option<i64>,
    graph_depth: Option<i64>,
}

impl Tool for RagSearchEnriched {
    const NAME: &'static str = "rag_search_enriched";
    const ALIASES: &'static [&'static str] = &["rag.search_enriched"];
    const EFFECT: Effect = Effect::Reads;
    const RETRIEVES: bool = true;
    type Args = Args;

    async fn run(cx: &Cx, args: Args) -> Result<Answer> {
        cx.blocking(move |cx, stop| {
            let depth = bounded("graph_depth", args.graph_depth, 1, 1..=5)?;
            let asked = Asked {
                query: args.query,
                scope: args.scope,
                k: args.k,
                budget_tokens: args.budget_tokens,
            };
            let limits = rag::limited(cx, &asked)?;
            let found = rag::search(cx, &asked.query, &limits, stop)?;
            let mut document = rag::document(&found, &limits);
            let depth = usize::try_from(depth).unwrap_or(1);
            let roots = &cx.files().roots;
            let near = match found.index {
                State::Ready => cx
                    .app()
                    .index()
                    .neighbours(roots, &found.snippets, depth, stop)?,
                State::Building | State::None => Vec::new(),
            };
            for (place, near) in near.into_iter().enumerate() {
                document["snippets"][place]["neighbours"] = json!(near);
            }
            Answer::json(&document, Facts::default())
        })
        .await
    }
}
