use llmc_host::{ExistingDir, ExpectedHash, TAG_DIGITS, WriteMode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::args::WRITE_ERRORS;
use crate::cx::{Cx, Form, Surface};
use crate::error::{ErrorKind, Result};
use crate::render::Document;
use crate::tool::{Effect, Tool};

pub(super) struct LinuxFsWrite;

/// Create, rewrite or append to a file.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    path: String,
    content: String,
    #[schemars(extend("default" = "rewrite"))]
    mode: Option<Mode>,
    #[schemars(extend("x-help" = "full hash, or a tag of 8 digits or more"))]
    expected_sha256: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Written {
    bytes_written: u64,
    new_sha256: String,
}

#[derive(Deserialize, JsonSchema, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum Mode {
    Rewrite,
    Append,
}

impl Tool for LinuxFsWrite {
    const NAME: &'static str = "linux_fs_write";
    const ALIASES: &'static [&'static str] = &["linux.fs_write"];
    const EFFECT: Effect = Effect::Writes;
    const DESTRUCTIVE: bool = true;
    const IDEMPOTENT: bool = false;
    const ERRORS: &'static [ErrorKind] = WRITE_ERRORS;
    const KEYWORDS: &'static str = "save store overwrite new output";
    type Args = Args;
    type Output = Document<Written>;

    async fn run(cx: &Cx, args: Args) -> Result<Document<Written>> {
        cx.blocking(move |cx, stop| {
            let expected = args
                .expected_sha256
                .as_deref()
                .map(ExpectedHash::parse)
                .transpose()?;
            let mode = match args.mode {
                Some(Mode::Append) => WriteMode::Append,
                _ => WriteMode::Rewrite,
            };
            let files = cx.linux();
            let content = args.content.as_bytes();
            let write = || {
                files.write(
                    &args.path,
                    content,
                    mode,
                    expected.as_ref(),
                    &cx.owner(),
                    stop,
                )
            };
            let written = match write() {
                Err(llmc_host::Error::NoParent { .. }) => {
                    if let Some((parent, _)) = args.path.rsplit_once('/') {
                        files.make_dirs(parent, ExistingDir::Accept)?;
                    }
                    write()?
                }
                written => written?,
            };
            let path = files.roots.display_path(&written.path);
            let written = Written {
                bytes_written: written.bytes_written,
                new_sha256: shown_hash(cx, written.sha256),
            };
            Ok(Document::new(written).path(path))
        })
        .await
    }
}

/// A hash as the caller reads it: a model and a script get the tag that `expected_sha256` takes, a program all of it.
pub(super) fn shown_hash(cx: &Cx, mut sha256: String) -> String {
    let caller = cx.caller();
    if caller.form != Form::Data || caller.surface == Surface::Code {
        sha256.truncate(TAG_DIGITS);
    }
    sha256
}
