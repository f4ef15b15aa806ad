use llmc_envelope::cut::{Limits, cut};
use llmc_envelope::receipt::Receipt;
use llmc_host::{Encoding, FileSlice};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use super::args::bounded;
use crate::cx::{Cx, Form};
use crate::error::Result;
use crate::render::{AnswerRoom, FileScope, Render, Rendition, Rest, RestExtent};
use crate::tool::{Effect, Tool};

/// Lines above this many bytes are shown clipped; the handle has them whole.
const MAX_LINE_BYTES: usize = 4096;
/// How many budgets an answer may take when no number of lines was asked for.
const MAX_BUDGETS_UNASKED: usize = 5;

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
    type Output = FileText;

    async fn run(cx: &Cx, args: Args) -> Result<FileText> {
        let skip = bounded("offset_lines", args.offset_lines, 0, 0..=i64::MAX)?;
        let mut max = bounded("max_lines", args.max_lines, 200, 1..=100_000)?;
        let whole = args.offset_lines.is_none() && args.max_lines.is_none();
        if whole && cx.caller().form == Form::Data {
            // A program that asks for no slice gets the file.
            max = u64::MAX;
        }
        cx.blocking(move |cx, stop| {
            let roots = &cx.files().roots;
            let file = roots.open_file(&args.path)?;
            Ok(FileText {
                path: roots.display_path(&file.path),
                slice: file.read_lines(skip, max, stop)?,
                skip,
                lines_asked: args.max_lines.is_some(),
                asked: args.path,
            })
        })
        .await
    }
}

/// Lines of a file.
#[derive(Debug)]
pub(super) struct FileText {
    asked: String,
    path: String,
    slice: FileSlice,
    skip: u64,
    /// Whether the caller said how many lines it wants.
    lines_asked: bool,
}

impl Serialize for FileText {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.slice.text)
    }
}

impl Render for FileText {
    fn render(&self, room: &AnswerRoom<'_>) -> Result<Rendition<'_>> {
        let slice = &self.slice;
        let described = |layout| Rendition {
            encoding: slice.encoding.label(),
            ..Rendition::path(layout, self.path.as_str())
        };
        if room.form() == Form::Data {
            return Ok(described(Rendition::data()).truncated(slice.truncated()));
        }
        // Bytes that are no text cost tokens and tell a model nothing.
        let text = if slice.encoding == Encoding::Binary {
            ""
        } else {
            &slice.text
        };
        // A caller who asks for lines gets them; one who does not should not be flooded by two hundred long ones.
        let limits = Limits {
            tokens: if self.lines_asked {
                usize::MAX
            } else {
                room.answer_budget().saturating_mul(MAX_BUDGETS_UNASKED)
            },
            line_bytes: MAX_LINE_BYTES,
        };
        let shown = cut(text, limits);
        let truncated = slice.truncated() || text.len() != slice.text.len() || !shown.is_whole();
        let lines = if text.is_empty() {
            slice.lines
        } else {
            shown.kept.lines
        };
        let mut receipt = describe(slice, self.skip, lines).clipped(shown.clipped);
        let next = self.skip + lines;
        if truncated && next < slice.total_lines && !text.is_empty() {
            receipt = receipt.next(format!("offset_lines={next}"));
        }
        let rest = truncated.then(|| {
            Rest::file(FileScope::General, self.asked.as_str(), slice).extent(RestExtent::WholeFile)
        });
        let answer = Rendition::text(shown.text, receipt);
        Ok(described(answer).truncated(truncated).rest(rest))
    }
}

/// What was shown, of how much, under which tag.
fn describe(slice: &FileSlice, skip: u64, lines: u64) -> Receipt {
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
