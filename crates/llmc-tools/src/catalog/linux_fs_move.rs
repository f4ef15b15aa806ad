use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::answer::{Answer, Facts};
use crate::cx::Cx;
use crate::error::Result;
use crate::tool::{Effect, Tool};

pub(super) struct LinuxFsMove;

/// Move or rename a file or directory; never overwrites.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    source: String,
    target: String,
}

impl Tool for LinuxFsMove {
    const NAME: &'static str = "linux_fs_move";
    const ALIASES: &'static [&'static str] = &["linux.fs_move"];
    const EFFECT: Effect = Effect::Writes;
    const IDEMPOTENT: bool = false;
    type Args = Args;
    type Output = Answer;

    async fn run(cx: &Cx, args: Args) -> Result<Answer> {
        cx.blocking(move |cx, stop| {
            let files = cx.linux();
            let (from, to) = files.move_path(&args.source, &args.target, &cx.owner(), stop)?;
            let (source, target) = (files.roots.shown(&from), files.roots.shown(&to));
            let facts = Facts {
                path: Some(target.clone()),
                ..Facts::default()
            };
            Answer::json(
                &json!({"ok": true, "source": source, "target": target}),
                facts,
            )
        })
        .await
    }
}
