use llmc_enrich::{Condensed, Totals};
use schemars::JsonSchema;
use serde::Deserialize;

use super::args::bounded;
use super::pages;
use crate::answer::Answer;
use crate::cx::Cx;
use crate::error::{Family, Result};
use crate::te::{self, Frame};
use crate::tool::{Effect, Tool};

pub(super) struct RepoRead;

/// Read a file up to a number of bytes.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    path: String,
    /// default 65536
    max_bytes: Option<i64>,
}

impl Tool for RepoRead {
    const NAME: &'static str = "repo_read";
    const EFFECT: Effect = Effect::Reads;
    const FAMILY: Family = Family::Te;
    type Args = Args;
    type Output = Answer;

    async fn run(cx: &Cx, args: Args) -> Result<Answer> {
        let max = bounded(
            "max_bytes",
            args.max_bytes,
            65_536,
            1..=llmc_host::ANSWER_LIMIT as i64,
        )?;
        cx.blocking(move |cx, stop| {
            let roots = &cx.files().roots;
            let file = roots.open_file(&args.path)?;
            let path = roots.shown(&file.path);
            let mut bytes = file.read_range(0, usize::try_from(max).unwrap_or(65_536))?;
            // One pass for the totals and the hash, which the handle needs; only the start is kept.
            let whole = file.read_lines(0, 1, stop)?;
            let truncated = (bytes.len() as u64) < whole.total_bytes;
            if truncated && let Some(end) = bytes.iter().rposition(|b| *b == b'\n') {
                bytes.truncate(end + 1);
            }
            let handle = if truncated {
                pages::keep_file(cx, roots, &args.path, &whole, stop)?
            } else {
                None
            };
            let found = Condensed {
                body: String::from_utf8_lossy(&bytes).into_owned(),
                totals: Totals {
                    lines: Some(whole.total_lines),
                    size: Some(whole.total_bytes),
                    ..Totals::default()
                },
                shown: bytes.split_inclusive(|b| *b == b'\n').count() as u64,
                truncated,
                ..Condensed::default()
            };
            let frame = Frame {
                cmd: Self::NAME,
                path: Some(path),
                handle,
                withheld_bytes: whole.total_bytes - bytes.len() as u64,
                ..Frame::default()
            };
            Ok(te::seal(cx, &found, frame))
        })
        .await
    }
}
