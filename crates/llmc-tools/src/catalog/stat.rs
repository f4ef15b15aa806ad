use rustix::fs::FileType;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::args::PATH_ERRORS;
use crate::cx::Cx;
use crate::error::{ErrorKind, Result};
use crate::render::Document;
use crate::tool::{Effect, Tool};

pub(super) struct Stat;

/// Size, time, mode and type of a path.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    path: String,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Status {
    size: u64,
    #[schemars(extend("x-help" = "Unix seconds"))]
    mtime: i64,
    #[schemars(extend("x-help" = "as 0644"))]
    mode: String,
    #[serde(rename = "type")]
    #[schemars(extend("enum" = ["file", "dir", "symlink", "other"]))]
    kind: &'static str,
}

impl Tool for Stat {
    const NAME: &'static str = "stat";
    const EFFECT: Effect = Effect::Reads;
    const ERRORS: &'static [ErrorKind] = PATH_ERRORS;
    const KEYWORDS: &'static str = "exists info metadata modified permission";
    type Args = Args;
    type Output = Document<Status>;

    async fn run(cx: &Cx, args: Args) -> Result<Document<Status>> {
        cx.blocking(move |cx, _| {
            let roots = &cx.files().roots;
            let (path, stat) = roots.stat(&args.path)?;
            let status = Status {
                size: u64::try_from(stat.st_size).unwrap_or(0),
                mtime: llmc_host::mtime_ns(&stat).div_euclid(1_000_000_000),
                mode: format!("{:04o}", stat.st_mode & 0o7777),
                kind: match FileType::from_raw_mode(stat.st_mode) {
                    FileType::RegularFile => "file",
                    FileType::Directory => "dir",
                    FileType::Symlink => "symlink",
                    _ => "other",
                },
            };
            Ok(Document::new(status).path(roots.display_path(&path)))
        })
        .await
    }
}
