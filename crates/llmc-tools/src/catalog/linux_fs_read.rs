use llmc_envelope::HandleId;
use llmc_host::FileSlice;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use super::args::bounded;
use crate::cx::Cx;
use crate::error::Result;
use crate::render::{AnswerRoom, FileScope, Render, Rendition, Rest};
use crate::tool::{Effect, Tool};

pub(super) struct LinuxFsRead;

/// Read lines of a file as JSON.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    path: String,
    offset_lines: Option<i64>,
    max_lines: Option<i64>,
}

/// The document: the lines, and what they are of.
#[derive(Serialize)]
pub(super) struct FileLines {
    #[serde(serialize_with = "only_text")]
    content: FileSlice,
    /// Filled in by the seal.
    handle: Option<HandleId>,
    meta: LinesMeta,
    #[serde(skip)]
    asked: String,
}

#[derive(Serialize)]
struct LinesMeta {
    path: String,
    total_lines: u64,
    truncated: bool,
    sha256: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    encoding: Option<&'static str>,
}

fn only_text<S: Serializer>(
    slice: &FileSlice,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(&slice.text)
}

impl Render for FileLines {
    fn render(&self, _: &AnswerRoom<'_>) -> Result<Rendition<'_>> {
        let slice = &self.content;
        let rest = slice
            .truncated()
            .then(|| Rest::file(FileScope::Linux, self.asked.as_str(), slice));
        // The document is larger than the lines in it.
        let withheld_bytes =
            (rest.as_ref()).map(|_| slice.total_bytes.saturating_sub(slice.text.len() as u64));
        Ok(Rendition {
            withheld_bytes,
            ..Rendition::document()
                .path(self.meta.path.as_str())
                .truncated(slice.truncated())
                .rest(rest)
        })
    }
}

impl Tool for LinuxFsRead {
    const NAME: &'static str = "linux_fs_read";
    const ALIASES: &'static [&'static str] = &["linux.fs_read"];
    const EFFECT: Effect = Effect::Reads;
    type Args = Args;
    type Output = FileLines;

    async fn run(cx: &Cx, args: Args) -> Result<FileLines> {
        let skip = bounded("offset_lines", args.offset_lines, 0, 0..=i64::MAX)?;
        let max = bounded("max_lines", args.max_lines, 200, 1..=2000)?;
        cx.blocking(move |cx, stop| {
            let roots = &cx.linux().roots;
            let file = roots.open_file(&args.path)?;
            let shown = roots.display_path(&file.path);
            let slice = file.read_lines(skip, max, stop)?;
            Ok(FileLines {
                handle: None,
                meta: LinesMeta {
                    path: shown,
                    total_lines: slice.total_lines,
                    truncated: slice.truncated(),
                    sha256: slice.tag().to_owned(),
                    encoding: slice.encoding.label(),
                },
                asked: args.path,
                content: slice,
            })
        })
        .await
    }
}
