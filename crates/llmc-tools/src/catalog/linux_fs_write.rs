use llmc_host::{ExpectedHash, WriteMode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cx::Cx;
use crate::error::Result;
use crate::render::Document;
use crate::tool::{Effect, Tool};

pub(super) struct LinuxFsWrite;

/// Create, rewrite or append to a file atomically.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    path: String,
    content: String,
    mode: Option<Mode>,
    /// sha tag from read
    expected_sha256: Option<String>,
}

#[derive(Serialize)]
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
            let written = files.write(
                &args.path,
                content,
                mode,
                expected.as_ref(),
                &cx.owner(),
                stop,
            )?;
            let path = files.roots.display_path(&written.path);
            let written = Written {
                bytes_written: written.bytes_written,
                new_sha256: written.sha256,
            };
            Ok(Document::new(written).path(path))
        })
        .await
    }
}
