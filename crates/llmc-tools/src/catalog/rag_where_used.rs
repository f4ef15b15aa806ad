use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::args::bounded;
use super::relations::{self, LISTED};
use crate::cx::Cx;
use crate::error::Result;
use crate::rag;
use crate::render::Document;
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
    const RETRIEVES: bool = true;
    type Args = Args;
    type Output = Document<Value>;

    async fn run(cx: &Cx, args: Args) -> Result<Document<Value>> {
        cx.blocking(move |cx, stop| {
            let depth = bounded("depth", args.depth, 1, 1..=5)?;
            rag::await_index(cx, stop)?;
            let depth = usize::try_from(depth).unwrap_or(1);
            let roots = &cx.files().roots;
            let mut found = cx
                .app()
                .index()
                .where_used(roots, &args.symbol, depth, stop)?;
            let whole = (found.sites.len() > LISTED).then(|| json!(found));
            found.sites.truncate(LISTED);
            let truncated = found.unread_files > 0 || found.depth_reached.is_some();
            let mut document = json!(found);
            relations::hint_at_unread(&mut document, found.unread_files);
            Ok(relations::answer(Self::NAME, document, whole, truncated))
        })
        .await
    }
}
