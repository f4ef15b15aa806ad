use llmc_envelope::HandleId;
use llmc_envelope::cut::{CutLimits, cut};
use llmc_host::FileSlice;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::args::{AtLeast, Count, READ_ERRORS, bounded};
use super::read_file::{MAX_BUDGETS_UNASKED, MAX_LINE_BYTES};
use super::target::lines_of;
use crate::budget::answer_budget;
use crate::cx::{Cx, Form};
use crate::error::{ErrorKind, Result};
use crate::render::{AnswerRoom, FileScope, Render, Rendition, Rest};
use crate::tool::{Effect, Tool};

/// The most lines of one answer.
const MAX_LINES: u64 = 2000;

pub(super) struct LinuxFsRead;

/// Read lines of a file as JSON.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    path: String,
    #[schemars(extend("x-help" = "lines to skip"))]
    offset_lines: Option<AtLeast<0, 0>>,
    max_lines: Option<Count<200, 1, { MAX_LINES as i64 }>>,
}

/// The document: the lines, and what they are of.
#[derive(Serialize, JsonSchema)]
pub(super) struct FileLines {
    content: String,
    /// Filled in by the seal.
    #[schemars(with = "Option<String>")]
    handle: Option<HandleId>,
    meta: LinesMeta,
    #[serde(skip)]
    asked: String,
    #[serde(skip)]
    slice: FileSlice,
}

#[derive(Serialize, JsonSchema)]
struct LinesMeta {
    path: String,
    total_lines: u64,
    truncated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-help" = "shown in part"))]
    clipped_lines: Option<u64>,
    #[schemars(extend("x-help" = "the tag for expected_sha256"))]
    sha256: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    encoding: Option<&'static str>,
}

impl Render for FileLines {
    fn render(&self, _: &AnswerRoom<'_>) -> Result<Rendition<'_>> {
        let slice = &self.slice;
        let truncated = self.meta.truncated;
        let rest = truncated.then(|| Rest::file(FileScope::Linux, self.asked.as_str(), slice));
        // The document is larger than the lines in it.
        let withheld_bytes =
            (rest.as_ref()).map(|_| slice.total_bytes.saturating_sub(self.content.len() as u64));
        Ok(Rendition {
            withheld_bytes,
            ..Rendition::document()
                .path(self.meta.path.as_str())
                .truncated(truncated)
                .rest(rest)
        })
    }
}

impl Tool for LinuxFsRead {
    const NAME: &'static str = "linux_fs_read";
    const ALIASES: &'static [&'static str] = &["linux.fs_read"];
    const EFFECT: Effect = Effect::Reads;
    const ERRORS: &'static [ErrorKind] = READ_ERRORS;
    const KEYWORDS: &'static str = "open load content hash";
    type Args = Args;
    type Output = FileLines;

    async fn run(cx: &Cx, args: Args) -> Result<FileLines> {
        let skip = bounded("offset_lines", args.offset_lines)?;
        let max = bounded("max_lines", args.max_lines)?;
        cx.blocking(move |cx, stop| {
            let roots = &cx.linux().roots;
            let named = lines_of(roots, &args.path)?;
            let (path, (from, take)) = match &named {
                // Lines that are named are all wanted, unless a number is.
                Some((path, span)) => {
                    let max = if args.max_lines.is_some() {
                        max
                    } else {
                        MAX_LINES
                    };
                    (path.as_str(), span.slice(skip, max))
                }
                None => (args.path.as_str(), (skip, max)),
            };
            let file = roots.open_file(path)?;
            let shown = roots.display_path(&file.path);
            let slice = file.read_lines(from, take, stop)?;
            if let Some((path, span)) = &named {
                span.check(path, slice.total_lines)?;
            }
            let end = named.as_ref().map_or(u64::MAX, |(_, span)| span.last);
            let follows = slice.first_line - 1 + slice.lines < end.min(slice.total_lines);
            // A program gets its lines whole; to a model a line of megabytes is of no use.
            let limits = CutLimits {
                tokens: match args.max_lines {
                    None => usize::try_from(answer_budget(cx))
                        .unwrap_or(usize::MAX)
                        .saturating_mul(MAX_BUDGETS_UNASKED),
                    Some(_) => usize::MAX,
                },
                line_bytes: MAX_LINE_BYTES,
            };
            let (content, clipped, is_whole) = match cx.caller().form {
                Form::Data => (slice.text.clone(), 0, true),
                Form::Text | Form::Page => {
                    let shown = cut(&slice.text, limits);
                    let is_whole = shown.is_whole();
                    (shown.text.into_owned(), shown.clipped, is_whole)
                }
            };
            Ok(FileLines {
                handle: None,
                meta: LinesMeta {
                    total_lines: slice.total_lines,
                    truncated: follows || !is_whole,
                    clipped_lines: (clipped > 0).then_some(clipped),
                    sha256: slice.tag().to_owned(),
                    encoding: slice.encoding.label(),
                    path: shown,
                },
                asked: path.to_owned(),
                content,
                slice,
            })
        })
        .await
    }
}
