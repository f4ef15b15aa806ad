use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::relations::{self, FEW};
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::rag;
use crate::render::Document;
use crate::tool::{Effect, Tool};

pub(super) struct Inspect;

/// A symbol or file: signature, doc, text, callers, callees, tests.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    symbol: Option<String>,
    path: Option<String>,
}

impl Tool for Inspect {
    const NAME: &'static str = "inspect";
    const ALIASES: &'static [&'static str] = &["rag.inspect"];
    const EFFECT: Effect = Effect::Reads;
    const RETRIEVES: bool = true;
    type Args = Args;
    type Output = Document<Value>;

    async fn run(cx: &Cx, args: Args) -> Result<Document<Value>> {
        cx.blocking(move |cx, stop| {
            let budget = cx.app().config().mcp.rag.token_budget;
            let budget = usize::try_from(budget).unwrap_or(usize::MAX);
            let (roots, index) = (&cx.files().roots, cx.app().index());
            let found = match (&args.symbol, &args.path) {
                (Some(symbol), path) => {
                    rag::await_index(cx, stop)?;
                    let id = match path {
                        Some(path) if !symbol.contains('#') => format!("{path}#{symbol}"),
                        _ => symbol.clone(),
                    };
                    index.inspect(roots, &id, budget, stop)?
                }
                (None, Some(path)) => index.inspect_file(roots, path, budget)?,
                (None, None) => return Err(Error::bad_args("give symbol or path")),
            };
            let truncated = found.unread_files > 0 || found.lines_total.is_some();
            let mut document = json!(found);
            relations::hint_at_unread(&mut document, found.unread_files);
            let lists = ["callers", "callees", "tests", "docs"];
            let cut = lists.map(|list| relations::cut(&mut document, list, FEW));
            let whole = cut.contains(&true).then(|| json!(found));
            Ok(relations::answer(Self::NAME, document, whole, truncated).path(found.path))
        })
        .await
    }
}
