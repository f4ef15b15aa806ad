use llmc_host::ExistingDir;
use schemars::JsonSchema;
use serde::Deserialize;

use super::args::{DonePath, OnUnlessFalse};
use crate::cx::Cx;
use crate::error::{ErrorKind, Result};
use crate::render::Document;
use crate::tool::{Effect, Tool};

pub(super) struct LinuxFsMkdirs;

/// Create a directory and its parents.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    path: String,
    exist_ok: Option<OnUnlessFalse>,
}

impl Tool for LinuxFsMkdirs {
    const NAME: &'static str = "linux_fs_mkdirs";
    const ALIASES: &'static [&'static str] =
        &["linux.fs_mkdirs", "linux_fs_mkdir", "linux.fs_mkdir"];
    const EFFECT: Effect = Effect::Writes;
    const ERRORS: &'static [ErrorKind] = &[
        ErrorKind::InvalidPath,
        ErrorKind::AlreadyExists,
        ErrorKind::NotADirectory,
    ];
    const KEYWORDS: &'static str = "mkdir folder make new";
    type Args = Args;
    type Output = Document<DonePath>;

    async fn run(cx: &Cx, args: Args) -> Result<Document<DonePath>> {
        cx.blocking(move |cx, _| {
            let files = cx.linux();
            let if_there = if !OnUnlessFalse::is_on(args.exist_ok) {
                ExistingDir::Refuse
            } else {
                ExistingDir::Accept
            };
            let path = files.make_dirs(&args.path, if_there)?;
            let shown = files.roots.display_path(&path);
            Ok(Document::new(DonePath::new(&shown)).path(shown))
        })
        .await
    }
}
