use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::cx::Cx;
use crate::error::Result;
use crate::rag::{self, Asked};
use crate::render::Document;
use crate::tool::{Effect, Tool};

pub(super) struct RagSearch;

/// Find code by words, name or pasted error. Snippets are current.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    #[serde(alias = "q")]
    query: String,
    /// repo, docs or both
    scope: Option<String>,
    k: Option<i64>,
    budget_tokens: Option<i64>,
}

impl Tool for RagSearch {
    const NAME: &'static str = "rag_search";
    const ALIASES: &'static [&'static str] = &["rag.search"];
    const EFFECT: Effect = Effect::Reads;
    const RETRIEVES: bool = true;
    type Args = Args;
    type Output = Document<Value>;

    async fn run(cx: &Cx, args: Args) -> Result<Document<Value>> {
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
        }
    }
}

/// The search that `rag_search` and `rag_query` are.
pub(super) async fn search(cx: &Cx, asked: Asked) -> Result<Document<Value>> {
    cx.blocking(move |cx, stop| {
        let limits = rag::limited(cx, &asked)?;
        let found = rag::search(cx, &asked.query, &limits, stop)?;
        Ok(Document::new(rag::document(&found, &limits)).truncated(found.omitted.is_some()))
    })
    .await
}
