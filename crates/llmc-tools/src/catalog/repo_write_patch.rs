use llmc_enrich::{Condensed, Totals};
use llmc_host::PatchedHow;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::answer::Answer;
use crate::cx::Cx;
use crate::error::{Family, Result};
use crate::te::{self, Frame};
use crate::tool::{Effect, Tool};

pub(super) struct RepoWritePatch;

/// Apply a unified diff; all files or none.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    patch: String,
}

impl Tool for RepoWritePatch {
    const NAME: &'static str = "repo_write_patch";
    const EFFECT: Effect = Effect::Writes;
    const FAMILY: Family = Family::Te;
    const DESTRUCTIVE: bool = true;
    const IDEMPOTENT: bool = false;
    type Args = Args;
    type Output = Answer;

    async fn run(cx: &Cx, args: Args) -> Result<Answer> {
        cx.blocking(move |cx, stop| {
            let files = cx.files();
            let patched = files.apply_patch(&args.patch, &cx.owner(), stop)?;
            let body: String = patched
                .iter()
                .map(|file| {
                    let how = match file.how {
                        PatchedHow::Created => "created",
                        PatchedHow::Modified => "modified",
                        PatchedHow::Deleted => "deleted",
                        PatchedHow::Renamed => "renamed to",
                    };
                    format!("{how} {}\n", files.roots.shown(&file.path))
                })
                .collect();
            let hunks = patched.iter().map(|file| file.hunks as u64).sum();
            let found = Condensed {
                body,
                totals: Totals {
                    matches: Some(hunks),
                    files: Some(patched.len() as u64),
                    ..Totals::default()
                },
                shown: hunks,
                ..Condensed::default()
            };
            Ok(te::seal(
                cx,
                &found,
                Frame {
                    cmd: Self::NAME,
                    ..Frame::default()
                },
            ))
        })
        .await
    }
}
