use std::fmt::Write as _;

use llmc_host::{CancelToken, Roots};
use llmc_index::Inspection;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::args::INDEX_ERRORS;
use super::relations::{FEW, Related, cut, page_elsewhere};
use super::target::{LineSpan, lines_of};
use crate::cx::Cx;
use crate::error::{Error, ErrorKind, Result};
use crate::rag;
use crate::render::Document;
use crate::tool::{Effect, Tool};

pub(super) struct Inspect;

/// A symbol or file: signature, doc, text, callers, tests.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    #[schemars(extend("x-help" = "either this or path"))]
    symbol: Option<String>,
    path: Option<String>,
}

/// A symbol or file; of each list the first, and how many there are where that is more.
#[derive(Serialize, JsonSchema)]
#[schemars(extend("x-help" = "8 of each list at most"))]
pub(super) struct InspectedSymbol {
    #[serde(flatten)]
    found: Inspection,
    #[serde(skip_serializing_if = "Option::is_none")]
    callers_total: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    callees_total: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tests_total: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    docs_total: Option<usize>,
}

impl InspectedSymbol {
    fn is_cut(&self) -> bool {
        let totals = [
            self.callers_total,
            self.callees_total,
            self.tests_total,
            self.docs_total,
        ];
        totals.iter().any(Option::is_some)
    }
}

impl Tool for Inspect {
    const NAME: &'static str = "inspect";
    const ALIASES: &'static [&'static str] = &["rag.inspect"];
    const EFFECT: Effect = Effect::Reads;
    const RETRIEVES: bool = true;
    const ERRORS: &'static [ErrorKind] = INDEX_ERRORS;
    const KEYWORDS: &'static str = "definition function class explain";
    type Args = Args;
    type Output = Document<Related<InspectedSymbol>>;

    async fn run(cx: &Cx, args: Args) -> Result<Document<Related<InspectedSymbol>>> {
        cx.blocking(move |cx, stop| {
            let budget = cx.app().config().mcp.rag.token_budget;
            let budget = usize::try_from(budget).unwrap_or(usize::MAX);
            let (roots, index) = (&cx.files().roots, cx.app().index());
            let lines = args.path.as_deref().map(|path| lines_of(roots, path));
            let lines = lines.transpose()?.flatten();
            let path = match &lines {
                Some((path, _)) => Some(path),
                None => args.path.as_ref(),
            };
            let mut built = None;
            let mut found = match (&args.symbol, path) {
                (Some(symbol), path) => {
                    built = rag::await_index(cx, stop)?;
                    let id = match path {
                        Some(path) if !symbol.contains('#') => format!("{path}#{symbol}"),
                        _ => symbol.clone(),
                    };
                    rag::found_in(built, index.inspect(roots, &id, budget, stop))?
                }
                (None, Some(path)) => {
                    let mut found = index.inspect_file(roots, path, budget)?;
                    if let Some((_, span)) = &lines {
                        show_lines(roots, &mut found, *span, budget, stop)?;
                    }
                    found
                }
                (None, None) => return Err(Error::bad_args("give symbol or path")),
            };
            let truncated = found.unread_files > 0 || found.lines_total.is_some();
            let (path, unread) = (found.path.clone(), found.unread_files);
            let whole = json!(found);
            let shown = InspectedSymbol {
                callers_total: cut(&mut found.callers, FEW),
                callees_total: cut(&mut found.callees, FEW),
                tests_total: cut(&mut found.tests, FEW),
                docs_total: cut(&mut found.docs, FEW),
                found,
            };
            let whole = shown.is_cut().then_some(whole);
            let answer = Related::answer(Self::NAME, shown, whole, truncated, unread, built);
            Ok(answer.path(path).page(page))
        })
        .await
    }
}

/// Puts the lines that a path names in the place of a file's outline.
fn show_lines(
    roots: &Roots,
    found: &mut Inspection,
    span: LineSpan,
    budget: usize,
    stop: &CancelToken,
) -> Result<()> {
    let (skip, max) = span.slice(0, u64::MAX);
    let slice = roots.open_file(&found.path)?.read_lines(skip, max, stop)?;
    span.check(&found.path, slice.total_lines)?;
    let (end, _) = llmc_tokens::lines_within(&slice.text, budget);
    let shown = slice.text[..end].lines().count() as u64;
    found.src = format!("{}#L{}-L{}", found.path, span.first, skip + shown);
    found.lines_total =
        (shown < slice.lines).then(|| usize::try_from(slice.lines).unwrap_or(usize::MAX));
    found.text = slice.text[..end].to_owned();
    found.doc.clear();
    Ok(())
}

/// What it is and where, its relations, and its text.
fn page(inspected: &Related<InspectedSymbol>) -> String {
    let shown = &inspected.found;
    let found = &shown.found;
    let symbol = found.symbol.as_deref().unwrap_or_default();
    let mut out = format!("{} {symbol} {}\n", found.kind, found.src);
    for (label, list, total) in [
        ("callers", &found.callers, shown.callers_total),
        ("callees", &found.callees, shown.callees_total),
        ("tests", &found.tests, shown.tests_total),
        ("docs", &found.docs, shown.docs_total),
    ] {
        for (nth, related) in list.iter().enumerate() {
            let label = if nth == 0 { label } else { "" };
            let _ = writeln!(out, "{label:>8}  {}  {}", related.symbol, related.src);
        }
        if let Some(total) = total {
            let _ = writeln!(out, "          and {} more", total - list.len());
        }
    }
    page_elsewhere(&mut out, symbol, &found.elsewhere);
    let _ = writeln!(out, "\n{}", found.text);
    if let Some(lines) = found.lines_total {
        let _ = writeln!(out, "… of {lines} lines");
    }
    inspected.page_notes(&mut out, &found.ambiguous);
    out
}
