use schemars::JsonSchema;
use serde::Deserialize;

use super::args::bounded;
use crate::answer::{Answer, Facts};
use crate::cx::Cx;
use crate::error::Result;
use crate::rag;
use crate::tool::{Effect, Tool};

pub(super) struct RagWhereUsed;

/// Every use of a symbol, with line and enclosing symbol.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    symbol: String,
    depth: Option<i64>,
}

impl Tool for RagWhereUsed {
    const NAME: &'static str = "rag_where_used";
    const ALIASES: &'static [&'static str] = &["rag.where_used"];
    const EFFECT: Effect = Effect::Reads;
    type Args = Args;

    async fn run(cx: &Cx, args: Args) -> Result<Answer> {
        cx.blocking(move |cx, stop| {
            let depth = bounded("depth", args.depth, 1, 1..=5)?;
            rag::await_index(cx, stop)?;
            let depth = usize::try_from(depth).unwrap_or(1);
            let roots = &cx.files().roots;
            let found = cx
                .app()
                .index()
                .where_used(roots, &args.symbol, depth, stop)?;
            let facts = Facts {
                truncated: found.sites.len() < found.total,
                ..Facts::default()
            };
            Answer::json(&found, facts)
        })
        .await
    }
}
