use llmc_enrich::{Condensed, Totals};
use llmc_envelope::cut::{CutLimits, cut};
use llmc_host::FileSlice;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::args::{Count, READ_ERRORS, bounded};
use super::target::lines_of;
use crate::budget::SESSION_SPENT;
use crate::cx::Cx;
use crate::error::{ErrorKind, Family, Result};
use crate::render::{AnswerRoom, FileScope, Fitted, Render, Rendition, Rest};
use crate::shape::te_output;
use crate::tool::{Effect, Tool};

pub(super) struct RepoRead;

/// Read a file up to a number of bytes.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    path: String,
    #[schemars(extend("x-help" = "bytes"))]
    max_bytes: Option<Count<65_536, 1, { llmc_host::MAX_ANSWER_BYTES as i64 }>>,
}

impl Tool for RepoRead {
    const NAME: &'static str = "repo_read";
    const EFFECT: Effect = Effect::Reads;
    const FAMILY: Family = Family::Te;
    const ERRORS: &'static [ErrorKind] = READ_ERRORS;
    const KEYWORDS: &'static str = "open content";
    type Args = Args;
    type Output = FileStart;

    async fn run(cx: &Cx, args: Args) -> Result<FileStart> {
        let max = bounded("max_bytes", args.max_bytes)?;
        cx.blocking(move |cx, stop| {
            let roots = &cx.files().roots;
            let named = lines_of(roots, &args.path)?;
            let asked = named.as_ref().map_or(&args.path, |(path, _)| path).clone();
            let file = roots.open_file(&asked)?;
            let path = roots.display_path(&file.path);
            let max = usize::try_from(max).unwrap_or(65_536);
            let (mut bytes, wanted, whole) = match named {
                Some((path, span)) => {
                    let (from, take) = span.slice(0, u64::MAX);
                    let mut slice = file.read_lines(from, take, stop)?;
                    span.check(&path, slice.total_lines)?;
                    let mut bytes = std::mem::take(&mut slice.text).into_bytes();
                    let wanted = bytes.len() as u64;
                    bytes.truncate(max);
                    (bytes, wanted, slice)
                }
                None => {
                    let bytes = file.read_range(0, max)?;
                    // One pass for the totals and the hash, which the handle needs; nothing of it is kept.
                    let whole = file.read_lines(0, 0, stop)?;
                    (bytes, whole.total_bytes, whole)
                }
            };
            let truncated = (bytes.len() as u64) < wanted;
            if truncated && let Some(end) = bytes.iter().rposition(|b| *b == b'\n') {
                bytes.truncate(end + 1);
            }
            Ok(FileStart {
                lines: whole.total_lines,
                size: whole.total_bytes,
                truncated,
                text: String::from_utf8_lossy(&bytes).into_owned(),
                path,
                asked,
                whole,
            })
        })
        .await
    }
}

/// The beginning of a file.
#[derive(Debug, Serialize)]
pub(super) struct FileStart {
    path: String,
    text: String,
    lines: u64,
    size: u64,
    truncated: bool,
    #[serde(skip)]
    asked: String,
    #[serde(skip)]
    whole: FileSlice,
}

te_output!(FileStart);

impl Render for FileStart {
    fn render(&self, room: &AnswerRoom<'_>) -> Result<Rendition<'_>> {
        let shown = room.for_chosen_length().fit(0, |tokens| {
            let cut = cut(&self.text, CutLimits::tokens(tokens));
            match cut.is_whole() {
                true => Fitted::Whole(cut),
                false => Fitted::Cut(cut),
            }
        });
        let truncated = self.truncated || !shown.is_whole();
        let found = Condensed {
            breadcrumbs: (!shown.is_whole())
                .then(|| SESSION_SPENT.to_owned())
                .into_iter()
                .collect(),
            body: shown.text.clone().into_owned(),
            totals: Totals {
                lines: Some(self.lines),
                size: Some(self.size),
                ..Totals::default()
            },
            shown: shown.kept.lines,
            truncated,
            ..Condensed::default()
        };
        let rest =
            truncated.then(|| Rest::file(FileScope::General, self.asked.as_str(), &self.whole));
        Ok(Rendition::te(RepoRead::NAME, found)
            .path(self.path.as_str())
            .rest(rest))
    }
}
