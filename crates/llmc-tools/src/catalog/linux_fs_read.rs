use llmc_envelope::HandleId;
use llmc_host::FileSlice;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use super::args::{AtLeast, Count, READ_ERRORS, bounded};
use crate::cx::Cx;
use crate::error::{ErrorKind, Result};
use crate::render::{AnswerRoom, FileScope, Render, Rendition, Rest};
use crate::tool::{Effect, Tool};

pub(super) struct LinuxFsRead;

/// Read lines of a file as JSON.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    path: String,
    #[schemars(extend("x-help" = "lines to skip"))]
    offset_lines: Option<AtLeast<0, 0>>,
    max_lines: Option<Count<200, 1, 2000>>,
}

/// The document: the lines, and what they are of.
#[derive(Serialize, JsonSchema)]
pub(super) struct FileLines {
    #[serde(serialize_with = "only_text")]
    #[schemars(with = "String")]
    content: FileSlice,
    /// Filled in by the seal.
    #[schemars(with = "Option<String>")]
    handle: Option<HandleId>,
    meta: LinesMeta,
    #[serde(skip)]
    asked: String,
}

#[derive(Serialize, JsonSchema)]
struct LinesMeta {
    path: String,
    total_lines: u64,
    truncated: bool,
    #[schemars(extend("x-help" = "the tag for expected_sha256"))]
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
    const ERRORS: &'static [ErrorKind] = READ_ERRORS;
    const KEYWORDS: &'static str = "open load content hash";
    type Args = Args;
    type Output = FileLines;

    async fn run(cx: &Cx, args: Args) -> Result<FileLines> {
        let skip = bounded("offset_lines", args.offset_lines)?;
        let max = bounded("max_lines", args.max_lines)?;
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
