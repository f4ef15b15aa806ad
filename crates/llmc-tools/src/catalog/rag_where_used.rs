use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::args::bounded;
use crate::answer::{Answer, Facts};
use crate::cx::Cx;
use crate::error::Result;
use crate::rag;
use crate::tool::{Effect, Tool};

/// Uses that an answer lists; the rest is behind a handle.
const LISTED: usize = 100;

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

    async fn run(cx: &Cx, args: Args) -> Result<Answer> {
        cx.blocking(move |cx, stop| {
            let depth = bounded("depth", args.depth, 1, 1..=5)?;
            rag::await_index(cx, stop)?;
            let depth = usize::try_from(depth).unwrap_or(1);
            let roots = &cx.files().roots;
            let mut found = cx
                .app()
                .index()
                .where_used(roots, &args.symbol, depth, stop)?;
            let cut = found.sites.len() > LISTED;
            let handle = if cut {
                let (handle, _) = cx.keep_json(|draft| draft, "rag_where_used", &found);
                handle
            } else {
                None
            };
            found.sites.truncate(LISTED);
            let facts = Facts {
                truncated: cut || found.unread_files > 0,
                handle,
                ..Facts::default()
            };
            let mut document = json!(found);
            if let Some(handle) = handle {
                document["handle"] = json!(handle.to_string());
            }
            if found.unread_files > 0 {
                document["hint"] = json!(format!(
                    "{} more files mention this name; ask for path#Name, or grep for it",
                    found.unread_files
                ));
            }
            Answer::json(&document, facts)
        })
        .await
    }
}
