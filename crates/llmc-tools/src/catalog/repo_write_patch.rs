use llmc_enrich::{Condensed, Totals};
use llmc_host::{ExistingDir, PatchAction};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cx::Cx;
use crate::error::{ErrorKind, Family, Result};
use crate::render::{AnswerRoom, Render, Rendition};
use crate::shape::te_output;
use crate::tool::{Effect, Tool};

/// Folders that one patch may add.
const MAX_NEW_FOLDERS: usize = 100;

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
    const ERRORS: &'static [ErrorKind] =
        &[ErrorKind::InvalidPath, ErrorKind::NoMatch, ErrorKind::Busy];
    const KEYWORDS: &'static str = "edit change modify hunks";
    type Args = Args;
    type Output = PatchedFiles;

    async fn run(cx: &Cx, args: Args) -> Result<PatchedFiles> {
        cx.blocking(move |cx, stop| {
            let files = cx.files();
            let apply = || files.apply_patch(&args.patch, &cx.owner(), stop);
            let mut patched = apply();
            // A folder is missing only where every change fits, so none is made for a patch that does not apply.
            for _ in 0..MAX_NEW_FOLDERS {
                let Err(llmc_host::Error::NoParent { path }) = &patched else {
                    break;
                };
                let Some((parent, _)) = path.rsplit_once('/') else {
                    break;
                };
                files.make_dirs(parent, ExistingDir::Accept)?;
                patched = apply();
            }
            let patched = patched?;
            let body: String = patched
                .iter()
                .map(|file| {
                    let how = match file.action {
                        PatchAction::Created => "created",
                        PatchAction::Modified => "modified",
                        PatchAction::Deleted => "deleted",
                        PatchAction::Renamed => "renamed to",
                    };
                    format!("{how} {}\n", files.roots.display_path(&file.path))
                })
                .collect();
            Ok(PatchedFiles {
                text: body,
                hunks: patched.iter().map(|file| file.hunks as u64).sum(),
                files: patched.len() as u64,
            })
        })
        .await
    }
}

/// What a patch changed, a line for each file.
#[derive(Debug, Serialize)]
pub(super) struct PatchedFiles {
    text: String,
    hunks: u64,
    files: u64,
}

te_output!(
    PatchedFiles,
    "one line a file: created, modified, deleted or renamed to, and its path"
);

impl Render for PatchedFiles {
    fn render(&self, _: &AnswerRoom<'_>) -> Result<Rendition<'_>> {
        let found = Condensed {
            body: self.text.clone(),
            totals: Totals {
                matches: Some(self.hunks),
                files: Some(self.files),
                ..Totals::default()
            },
            shown: self.hunks,
            ..Condensed::default()
        };
        Ok(Rendition::te(RepoWritePatch::NAME, found))
    }
}
