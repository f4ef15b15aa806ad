use llmc_host::ExistingTarget;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cx::Cx;
use crate::error::{ErrorKind, Result};
use crate::render::Document;
use crate::tool::{Effect, Tool};

pub(super) struct LinuxFsMove;

/// Move or rename; never overwrites.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    source: String,
    target: String,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Moved {
    ok: bool,
    source: String,
    target: String,
}

impl Tool for LinuxFsMove {
    const NAME: &'static str = "linux_fs_move";
    const ALIASES: &'static [&'static str] = &["linux.fs_move"];
    const EFFECT: Effect = Effect::Writes;
    const IDEMPOTENT: bool = false;
    const ERRORS: &'static [ErrorKind] = &[
        ErrorKind::InvalidPath,
        ErrorKind::NotFound,
        ErrorKind::AlreadyExists,
        ErrorKind::Busy,
    ];
    const KEYWORDS: &'static str = "mv";
    type Args = Args;
    type Output = Document<Moved>;

    async fn run(cx: &Cx, args: Args) -> Result<Document<Moved>> {
        cx.blocking(move |cx, stop| {
            let files = cx.linux();
            let (from, to) = files.move_path(
                &args.source,
                &args.target,
                ExistingTarget::Refuse,
                &cx.owner(),
                stop,
            )?;
            let (source, target) = (
                files.roots.display_path(&from),
                files.roots.display_path(&to),
            );
            let moved = Moved {
                ok: true,
                source,
                target: target.clone(),
            };
            Ok(Document::new(moved).path(target))
        })
        .await
    }
}
