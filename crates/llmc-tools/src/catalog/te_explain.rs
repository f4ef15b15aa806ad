use std::fmt::Write;

use llmc_enrich::{Condensed, Totals, thousands};
use llmc_index::{IndexedShare, Inspection, RelatedSymbol};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::args::INDEX_ERRORS;
use super::relations::{FEW, page_elsewhere};
use crate::cx::Cx;
use crate::error::{ErrorKind, Family, Result};
use crate::rag;
use crate::render::{AnswerRoom, Fitted, Render, Rendition, Rest};
use crate::shape::te_output;
use crate::tool::{Effect, Tool};

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
    const ERRORS: &'static [ErrorKind] = INDEX_ERRORS;
    const KEYWORDS: &'static str = "definition documentation callers function class";
    type Args = Args;
    type Output = Explanation;

    async fn run(cx: &Cx, args: Args) -> Result<Explanation> {
        cx.blocking(move |cx, stop| {
            let built = rag::await_index(cx, stop)?;
            let roots = &cx.files().roots;
            let index = cx.app().index();
            let found = index.inspect(roots, &args.symbol, usize::MAX, stop);
            let found = rag::found_in(built, found)?;
            Ok(Explanation { found, built })
        })
        .await
    }
}

/// A symbol and what it is related to.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(super) struct Explanation {
    found: Inspection,
    /// How much of the index is built, if not all of it.
    #[serde(skip)]
    built: Option<IndexedShare>,
}

te_output!(Explanation);

impl Render for Explanation {
    fn render(&self, room: &AnswerRoom<'_>) -> Result<Rendition<'_>> {
        let found = &self.found;
        let (whole, brief) = (told(found, Lists::Whole), told(found, Lists::Cut));
        let body = room.fit(whole.len(), |tokens| {
            let (bytes, _) = llmc_tokens::lines_within(&brief, tokens);
            let body = brief[..bytes].trim_end().to_owned();
            if body == whole.trim_end() {
                Fitted::Whole(body)
            } else {
                Fitted::Cut(body)
            }
        });
        let lines = whole.trim_end().lines().count() as u64;
        let cut = body != whole.trim_end();
        let unread = (found.unread_files > 0).then(|| {
            let files = thousands(found.unread_files as u64);
            format!("{files} more files mention this name and were not read")
        });
        let condensed = Condensed {
            truncated: cut || unread.is_some() || self.built.is_some(),
            shown: body.lines().count() as u64,
            body,
            breadcrumbs: unread
                .into_iter()
                .chain(self.built.map(rag::building_note))
                .collect(),
            totals: Totals {
                lines: Some(lines),
                ..Totals::default()
            },
            ..Condensed::default()
        };
        Ok(Rendition::te("explain", condensed)
            .path(found.path.as_str())
            .rest(cut.then(|| Rest::text("te", whole))))
    }
}

/// How long lists are shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lists {
    /// Their beginning, and how many there are.
    Cut,
    /// To the end, one a line.
    Whole,
}

/// Relations first: they are short, and the text may be long.
fn told(found: &Inspection, lists: Lists) -> String {
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
        let names = |most: usize, between: &str| {
            let names = related.iter().take(most).map(name);
            names.collect::<Vec<_>>().join(between)
        };
        let total = thousands(related.len() as u64);
        let _ = match (related.len(), lists) {
            (0, _) => Ok(()),
            (..=FEW, _) => writeln!(out, "{what}: {}", names(FEW, ", ")),
            (_, Lists::Cut) => writeln!(out, "{what} ({FEW} of {total}): {}", names(FEW, ", ")),
            (_, Lists::Whole) => {
                writeln!(out, "{what} ({total}):\n  {}", names(usize::MAX, "\n  "))
            }
        };
    }
    page_elsewhere(&mut out, symbol, &found.elsewhere);
    let _ = write!(out, "\n{}", found.text);
    out
}

fn name(related: &RelatedSymbol) -> String {
    if related.symbol.is_empty() {
        related.src.clone()
    } else {
        format!("{} {}", related.symbol, related.src)
    }
}
