use llmc_index::{IndexState, RelatedSymbol, Snippet};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::args::{Count, INDEX_ERRORS, bounded};
use super::relations::{self, FEW};
use crate::cx::Cx;
use crate::error::{ErrorKind, Result};
use crate::rag::{self, Asked, FoundSnippets, ShownSnippet};
use crate::render::Document;
use crate::tool::{Effect, Tool};

pub(super) struct RagSearchEnriched;

/// rag_search with callers and callees.
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
    graph_depth: Option<Count<1, 1, 5>>,
}

/// A snippet with what it calls and what calls it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(super) struct EnrichedSnippet {
    #[serde(flatten)]
    snippet: ShownSnippet,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-help" = "8 at most"))]
    neighbours: Option<Vec<RelatedSymbol>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    depth_reached: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unread_files: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    neighbours_total: Option<usize>,
}

impl From<&Snippet> for EnrichedSnippet {
    fn from(snippet: &Snippet) -> EnrichedSnippet {
        EnrichedSnippet {
            snippet: snippet.into(),
            neighbours: None,
            depth_reached: None,
            unread_files: None,
            neighbours_total: None,
        }
    }
}

impl Tool for RagSearchEnriched {
    const NAME: &'static str = "rag_search_enriched";
    const ALIASES: &'static [&'static str] = &["rag.search_enriched"];
    const EFFECT: Effect = Effect::Reads;
    const RETRIEVES: bool = true;
    const ERRORS: &'static [ErrorKind] = INDEX_ERRORS;
    const KEYWORDS: &'static str = "graph context";
    type Args = Args;
    type Output = Document<FoundSnippets<EnrichedSnippet>>;

    async fn run(cx: &Cx, args: Args) -> Result<Document<FoundSnippets<EnrichedSnippet>>> {
        cx.blocking(move |cx, stop| {
            let depth = bounded("graph_depth", args.graph_depth)?;
            let asked = Asked {
                query: args.query,
                scope: args.scope,
                k: args.k,
                budget_tokens: args.budget_tokens,
                explain: false,
            };
            let limits = rag::limited(cx, &asked)?;
            let found = rag::search(cx, &asked.query, &limits, stop)?;
            let mut document: FoundSnippets<EnrichedSnippet> = FoundSnippets::new(&found, &limits);
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
            for (snippet, near) in document.snippets.iter_mut().zip(near) {
                document.truncated |= near.depth_reached.is_some() || near.unread_files > 0;
                snippet.neighbours = Some(near.neighbours);
                snippet.depth_reached = near.depth_reached;
                snippet.unread_files = (near.unread_files > 0).then_some(near.unread_files);
            }
            let truncated = document.truncated;
            let whole = json!(document);
            let mut is_cut = false;
            for snippet in &mut document.snippets {
                let list = snippet.neighbours.as_mut();
                snippet.neighbours_total = list.and_then(|list| relations::cut(list, FEW));
                is_cut |= snippet.neighbours_total.is_some();
            }
            document.truncated |= is_cut;
            Ok(Document::new(document)
                .truncated(truncated)
                .cut_from(Self::NAME, is_cut.then_some(whole)))
        })
        .await
    }
}
