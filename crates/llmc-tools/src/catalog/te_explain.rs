use std::fmt::Write;

use llmc_enrich::{Condensed, Totals};
use llmc_index::{Inspected, Related};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::answer::Answer;
use crate::cx::Cx;
use crate::error::{Family, Result};
use crate::rag;
use crate::te::{self, Frame};
use crate::tool::{Effect, Tool};

/// Tokens of the header.
const HEADER: usize = 60;

pub(super) struct TeExplain;

/// Explain a symbol.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    symbol: String,
}

impl Tool for TeExplain {
    const NAME: &'static str = "te_explain";
    const EFFECT: Effect = Effect::Reads;
    const RETRIEVES: bool = true;
    const FAMILY: Family = Family::Te;
    type Args = Args;

    async fn run(cx: &Cx, args: Args) -> Result<Answer> {
        cx.blocking(move |cx, stop| {
            rag::await_index(cx, stop)?;
            let budget = te::budget(cx).saturating_sub(HEADER).max(1);
            let roots = &cx.files().roots;
            let found = cx
                .app()
                .index()
                .inspect(roots, &args.symbol, budget, stop)?;
            let whole = told(&found);
            let (bytes, _) = llmc_tokens::lines_within(&whole, budget);
            let body = whole[..bytes].trim_end().to_owned();
            let lines = whole.trim_end().lines().count() as u64;
            let condensed = Condensed {
                truncated: body.len() < whole.trim_end().len(),
                shown: body.lines().count() as u64,
                body,
                totals: Totals {
                    lines: Some(lines),
                    ..Totals::default()
                },
                ..Condensed::default()
            };
            let handle = if condensed.truncated {
                cx.keep(|draft| draft, "te", whole.as_bytes())
            } else {
                None
            };
            let frame = Frame {
                cmd: "explain",
                path: Some(found.path.clone()),
                handle,
                withheld_bytes: (whole.len() - condensed.body.len()) as u64,
                ..Frame::default()
            };
            Ok(te::seal(cx, &condensed, frame))
        })
        .await
    }
}

/// Relations first: they are short, and the text may be long.
fn told(found: &Inspected) -> String {
    let mut out = String::new();
    let symbol = found.symbol.as_deref().unwrap_or(&found.path);
    let _ = writeln!(out, "{} {symbol} {}", found.kind, found.src);
    if !found.ambiguous.is_empty() {
        let _ = writeln!(out, "also: {}", found.ambiguous.join(", "));
    }
    for (what, related) in [
        ("callers", &found.callers),
        ("calls", &found.callees),
        ("tests", &found.tests),
        ("docs", &found.docs),
    ] {
        if !related.is_empty() {
            let names = related.iter().map(name);
            let _ = writeln!(out, "{what}: {}", names.collect::<Vec<_>>().join(", "));
        }
    }
    let _ = write!(out, "\n{}", found.text);
    out
}

fn name(related: &Related) -> String {
    if related.symbol.is_empty() {
        related.src.clone()
    } else {
        format!("{} {}", related.symbol, related.src)
    }
}
