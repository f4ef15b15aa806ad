use llmc_host::DeleteScope;
use schemars::JsonSchema;
use serde::Deserialize;

use super::args::DonePath;
use crate::cx::Cx;
use crate::error::{ErrorKind, Result};
use crate::render::Document;
use crate::tool::{Effect, Tool};

pub(super) struct LinuxFsDelete;

/// Delete a file, or a directory with recursive.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    path: String,
    recursive: Option<bool>,
}

impl Tool for LinuxFsDelete {
    const NAME: &'static str = "linux_fs_delete";
    const ALIASES: &'static [&'static str] = &["linux.fs_delete"];
    const EFFECT: Effect = Effect::Writes;
    const DESTRUCTIVE: bool = true;
    const IDEMPOTENT: bool = false;
    const ERRORS: &'static [ErrorKind] = &[
        ErrorKind::InvalidPath,
        ErrorKind::NotFound,
        ErrorKind::IsDirectory,
        ErrorKind::Busy,
    ];
    const KEYWORDS: &'static str = "remove rm unlink erase";
    type Args = Args;
    type Output = Document<DonePath>;

    async fn run(cx: &Cx, args: Args) -> Result<Document<DonePath>> {
        cx.blocking(move |cx, stop| {
            let files = cx.linux();
            let depth = if args.recursive == Some(true) {
                DeleteScope::Recursive
            } else {
                DeleteScope::FileOnly
            };
            let path = files.delete(&args.path, depth, &cx.owner(), stop)?;
            let shown = files.roots.display_path(&path);
            Ok(Document::new(DonePath::new(&shown)).path(shown))
        })
        .await
    }
}
