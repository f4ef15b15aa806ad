use llmc_host::ExpectedHash;
use llmc_host::edit::Replacement;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::args::{Count, bounded};
use super::linux_fs_write::shown_hash;
use crate::cx::Cx;
use crate::error::{ErrorKind, Result};
use crate::render::Document;
use crate::tool::{Effect, Tool};

pub(super) struct LinuxFsEdit;

/// Replace exact text in a file.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    path: String,
    old_text: String,
    new_text: String,
    #[schemars(extend("x-help" = "must be the true count"))]
    expected_replacements: Option<Count<1, 1, 1_000_000>>,
    #[schemars(extend("x-help" = "full hash, or a tag of 8 digits or more"))]
    expected_sha256: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Edited {
    replacements: u64,
    bytes_written: u64,
    new_sha256: String,
}

impl Tool for LinuxFsEdit {
    const NAME: &'static str = "linux_fs_edit";
    const ALIASES: &'static [&'static str] = &["linux.fs_edit"];
    const EFFECT: Effect = Effect::Writes;
    const DESTRUCTIVE: bool = true;
    const IDEMPOTENT: bool = false;
    const ERRORS: &'static [ErrorKind] = &[
        ErrorKind::InvalidPath,
        ErrorKind::NotFound,
        ErrorKind::NoMatch,
        ErrorKind::PreconditionFailed,
        ErrorKind::Busy,
        ErrorKind::WriteFailed,
    ];
    const KEYWORDS: &'static str = "change modify substitute rename update sed";
    type Args = Args;
    type Output = Document<Edited>;

    async fn run(cx: &Cx, args: Args) -> Result<Document<Edited>> {
        let count = bounded("expected_replacements", args.expected_replacements)?;
        cx.blocking(move |cx, stop| {
            let expected = args
                .expected_sha256
                .as_deref()
                .map(ExpectedHash::parse)
                .transpose()?;
            let files = cx.linux();
            let change = Replacement {
                old_text: &args.old_text,
                new_text: &args.new_text,
                count: usize::try_from(count).unwrap_or(usize::MAX),
            };
            let written = files.edit(&args.path, &change, expected.as_ref(), &cx.owner(), stop)?;
            let path = files.roots.display_path(&written.path);
            let edited = Edited {
                replacements: count,
                bytes_written: written.bytes_written,
                new_sha256: shown_hash(cx, written.sha256),
            };
            Ok(Document::new(edited).path(path))
        })
        .await
    }
}
