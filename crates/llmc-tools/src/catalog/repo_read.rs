use llmc_enrich::{Condensed, Totals};
use llmc_host::FileSlice;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::args::{Count, READ_ERRORS, bounded};
use crate::cx::Cx;
use crate::error::{ErrorKind, Family, Result};
use crate::render::{AnswerRoom, FileScope, Render, Rendition, Rest};
use crate::shape::te_output;
use crate::tool::{Effect, Tool};

pub(super) struct RepoRead;

/// Read a file up to a number of bytes.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    path: String,
    /// default 65536
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
            let file = roots.open_file(&args.path)?;
            let path = roots.display_path(&file.path);
            let mut bytes = file.read_range(0, usize::try_from(max).unwrap_or(65_536))?;
            // One pass for the totals and the hash, which the handle needs; only the start is kept.
            let whole = file.read_lines(0, 1, stop)?;
            let truncated = (bytes.len() as u64) < whole.total_bytes;
            if truncated && let Some(end) = bytes.iter().rposition(|b| *b == b'\n') {
                bytes.truncate(end + 1);
            }
            Ok(FileStart {
                lines: whole.total_lines,
                size: whole.total_bytes,
                truncated,
                text: String::from_utf8_lossy(&bytes).into_owned(),
                path,
                asked: args.path,
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
    fn render(&self, _: &AnswerRoom<'_>) -> Result<Rendition<'_>> {
        let found = Condensed {
            body: self.text.clone(),
            totals: Totals {
                lines: Some(self.lines),
                size: Some(self.size),
                ..Totals::default()
            },
            shown: self.text.split_inclusive('\n').count() as u64,
            truncated: self.truncated,
            ..Condensed::default()
        };
        let rest = self
            .truncated
            .then(|| Rest::file(FileScope::General, self.asked.as_str(), &self.whole));
        Ok(Rendition::te(RepoRead::NAME, found)
            .path(self.path.as_str())
            .rest(rest))
    }
}
