use llmc_envelope::cut::{Limits, cut};
use llmc_envelope::receipt::Receipt;
use llmc_host::{Encoding, Slice};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{args::bounded, pages};
use crate::answer::{Answer, Facts};
use crate::cx::{Cx, Form};
use crate::error::Result;
use crate::tool::{Effect, Tool};

/// Lines above this many bytes are shown clipped; the handle has them whole.
const LONG_LINE: usize = 4096;
/// How many budgets an answer may take when no number of lines was asked for.
const UNASKED: usize = 5;

pub(super) struct ReadFile;

/// Read a text file; returns lines and a sha tag.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    path: String,
    /// lines to skip
    offset_lines: Option<i64>,
    /// default 200
    max_lines: Option<i64>,
}

impl Tool for ReadFile {
    const NAME: &'static str = "read_file";
    const EFFECT: Effect = Effect::Reads;
    type Args = Args;
    type Output = Answer;

    async fn run(cx: &Cx, args: Args) -> Result<Answer> {
        let skip = bounded("offset_lines", args.offset_lines, 0, 0..=i64::MAX)?;
        let mut max = bounded("max_lines", args.max_lines, 200, 1..=100_000)?;
        let data = cx.caller().form == Form::Data;
        if data && args.offset_lines.is_none() && args.max_lines.is_none() {
            // A program that asks for no slice gets the file.
            max = u64::MAX;
        }
        cx.blocking(move |cx, stop| {
            let roots = &cx.files().roots;
            let file = roots.open_file(&args.path)?;
            let mut facts = Facts {
                path: Some(roots.shown(&file.path)),
                ..Facts::default()
            };
            let slice = file.read_lines(skip, max, stop)?;
            facts.encoding = slice.encoding.label();
            if data {
                facts.truncated = slice.truncated();
                return Ok(Answer::data(slice.text, facts));
            }
            // Bytes that are no text cost tokens and tell a model nothing.
            let text = if slice.encoding == Encoding::Binary {
                ""
            } else {
                &slice.text
            };
            // Who asks for lines gets them; who does not should not be flooded by two hundred long ones.
            let te = &cx.app().config().mcp.te;
            let budget = usize::try_from(te.budget_for(&cx.caller().agent)).unwrap_or(usize::MAX);
            let limits = Limits {
                tokens: if args.max_lines.is_some() {
                    usize::MAX
                } else {
                    budget.saturating_mul(UNASKED)
                },
                line_bytes: LONG_LINE,
            };
            let shown = cut(text, limits);
            facts.truncated =
                slice.truncated() || text.len() != slice.text.len() || !shown.is_whole();
            let lines = if text.is_empty() {
                slice.lines
            } else {
                shown.kept.lines
            };
            let mut receipt = describe(&slice, skip, lines).clipped(shown.clipped);
            if facts.truncated {
                facts.withheld_bytes = slice.total_bytes.saturating_sub(shown.text.len() as u64);
                facts.handle = pages::keep_file(cx, roots, &args.path, &slice, stop)?;
                if skip + lines < slice.total_lines && !text.is_empty() {
                    receipt = receipt.next(format!("offset_lines={}", skip + lines));
                }
                if let Some(id) = facts.handle {
                    receipt = receipt.note(format!("handle {id} has the whole file"));
                }
            }
            Ok(Answer::text(&shown.text, &receipt, facts))
        })
        .await
    }
}

/// What was shown, of how much, under which tag.
fn describe(slice: &Slice, skip: u64, lines: u64) -> Receipt {
    let last = skip + lines;
    let whole = skip == 0 && last >= slice.total_lines;
    let receipt = Receipt::new();
    let receipt = if slice.encoding == Encoding::Binary {
        receipt.note(format!(
            "binary file of {} bytes, not shown",
            slice.total_bytes
        ))
    } else if whole {
        receipt.total(slice.total_lines, "lines")
    } else if lines == 0 {
        receipt.note(format!(
            "no lines after {skip}; the file has {}",
            slice.total_lines
        ))
    } else {
        receipt.note(format!(
            "lines {}-{last} of {}",
            skip + 1,
            slice.total_lines
        ))
    };
    let mut receipt = receipt.sha(slice.tag());
    if slice.encoding == Encoding::Binary {
        return receipt;
    }
    if last == slice.total_lines && lines > 0 && !slice.text.ends_with('\n') {
        receipt = receipt.note("no newline at the end");
    }
    match slice.encoding.label() {
        Some(label) => receipt.note(label),
        None => receipt,
    }
}
