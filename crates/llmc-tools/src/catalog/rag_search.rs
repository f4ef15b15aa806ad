use schemars::JsonSchema;
use serde::Deserialize;

use super::args::INDEX_ERRORS;
use crate::cx::Cx;
use crate::error::{ErrorKind, Result};
use crate::rag::{self, Asked, FoundSnippets};
use crate::render::Document;
use crate::tool::{Effect, Tool};

pub(super) struct RagSearch;

/// Find code by words, name or pasted error.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    #[serde(alias = "q")]
    query: String,
    #[schemars(extend("x-help" = "repo, docs or both"))]
    scope: Option<String>,
    #[schemars(extend("x-help" = "at most mcp.rag.top_k"))]
    k: Option<i64>,
    #[schemars(extend("x-help" = "at most mcp.rag.token_budget"))]
    budget_tokens: Option<i64>,
    /// For `llmc rag search --explain`; not listed, since it is for people.
    #[serde(default)]
    #[schemars(skip)]
    explain: bool,
}

impl Tool for RagSearch {
    const NAME: &'static str = "rag_search";
    const ALIASES: &'static [&'static str] = &["rag.search"];
    const EFFECT: Effect = Effect::Reads;
    const RETRIEVES: bool = true;
    const ERRORS: &'static [ErrorKind] = INDEX_ERRORS;
    const KEYWORDS: &'static str = "semantic where implemented retrieval";
    type Args = Args;
    type Output = Document<FoundSnippets>;

    async fn run(cx: &Cx, args: Args) -> Result<Document<FoundSnippets>> {
        search(cx, args.into()).await
    }
}

impl From<Args> for Asked {
    fn from(args: Args) -> Asked {
        Asked {
            query: args.query,
            scope: args.scope,
            k: args.k,
            budget_tokens: args.budget_tokens,
            explain: args.explain,
        }
    }
}

/// The search that `rag_search` and `rag_query` are.
pub(super) async fn search(cx: &Cx, asked: Asked) -> Result<Document<FoundSnippets>> {
    cx.blocking(move |cx, stop| {
        let limits = rag::limited(cx, &asked)?;
        let found = rag::search(cx, &asked.query, &limits, stop)?;
        let mut document = FoundSnippets::new(&found, &limits);
        if asked.explain {
            document = document.explain(&found);
        }
        Ok(Document::new(document)
            .truncated(found.omitted.is_some())
            .page(FoundSnippets::page))
    })
    .await
}
