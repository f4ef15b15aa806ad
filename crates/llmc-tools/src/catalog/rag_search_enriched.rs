use llmc_index::IndexState;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::args::bounded;
use super::relations::{self, FEW};
use crate::cx::Cx;
use crate::error::Result;
use crate::rag::{self, Asked};
use crate::render::Document;
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
    type Output = Document<Value>;

    async fn run(cx: &Cx, args: Args) -> Result<Document<Value>> {
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
                IndexState::Ready => {
                    cx.app()
                        .index()
                        .neighbours(roots, &found.snippets, depth, stop)?
                }
                IndexState::Building | IndexState::None => Vec::new(),
            };
            let mut truncated = found.omitted.is_some();
            for (place, near) in near.into_iter().enumerate() {
                let snippet = &mut document["snippets"][place];
                snippet["neighbours"] = json!(near.neighbours);
                if let Some(depth) = near.depth_reached {
                    snippet["depth_reached"] = json!(depth);
                    truncated = true;
                }
                if near.unread_files > 0 {
                    snippet["unread_files"] = json!(near.unread_files);
                    truncated = true;
                }
            }
            let whole = document.clone();
            let mut cut = false;
            for snippet in document["snippets"].as_array_mut().into_iter().flatten() {
                cut |= relations::cut(snippet, "neighbours", FEW);
            }
            let whole = cut.then_some(whole);
            Ok(relations::answer(Self::NAME, document, whole, truncated))
        })
        .await
    }
}
