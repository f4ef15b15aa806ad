use llmc_enrich::entries::{FoundPath, FoundPaths, condense_find};
use llmc_host::search::{NamePattern, search_files};
use schemars::JsonSchema;
use serde::Deserialize;

use super::linux_fs_list::below;
use super::te_grep::reasons;
use crate::answer::Answer;
use crate::cx::Cx;
use crate::error::{Error, Family, Result};
use crate::te::{self, Frame};
use crate::tool::{Effect, Tool};

/// Paths kept behind the handle.
const KEPT: usize = 50_000;
/// Results up to this many are asked when they last changed, to show the newest first.
const DATED: usize = 500;

pub(super) struct TeFind;

/// Find files by name: glob or substring.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    pattern: String,
    path: Option<String>,
}

impl Tool for TeFind {
    const NAME: &'static str = "te_find";
    const EFFECT: Effect = Effect::Reads;
    const FAMILY: Family = Family::Te;
    type Args = Args;
    type Output = Answer;

    async fn run(cx: &Cx, args: Args) -> Result<Answer> {
        if args.pattern.is_empty() {
            return Err(Error::bad_args("pattern is empty").hint("use * to find every file"));
        }
        cx.blocking(move |cx, stop| {
            let roots = &cx.files().roots;
            let dir = roots.open_dir(args.path.as_deref().unwrap_or("."))?;
            let pattern = NamePattern::new(&args.pattern)?;
            let found = search_files(&dir.fd, &pattern, &dir.walk_options(roots)?, KEPT, stop)?;
            let dated = found.paths.len() <= DATED;
            let paths: Vec<FoundPath> = found
                .paths
                .iter()
                .map(|path| {
                    let path = below(roots, &dir.path, path);
                    let stat = if dated { roots.stat(&path).ok() } else { None };
                    FoundPath {
                        size: stat
                            .as_ref()
                            .and_then(|(_, stat)| u64::try_from(stat.st_size).ok()),
                        modified: stat
                            .map(|(_, stat)| llmc_host::mtime_ns(&stat).div_euclid(1_000_000_000)),
                        path,
                    }
                })
                .collect();
            let raw: String = paths
                .iter()
                .map(|found| format!("{}\n", found.path))
                .collect();
            let kept = paths.len() as u64;
            let found_paths = FoundPaths {
                paths,
                total: found.total_hits,
                files_searched: found.files_searched,
                skipped: reasons(&found.skipped),
                pattern: args.pattern,
            };
            let mut condensed = condense_find(&found_paths, te::budget(cx));
            if !found.complete {
                condensed.truncated = true;
                condensed
                    .breadcrumbs
                    .push("time limit: there may be more; narrow path".to_owned());
            }
            let root = roots.shown(&dir.path);
            let mut handle = None;
            if condensed.truncated && !raw.is_empty() {
                handle = cx.keep(
                    |draft| draft.with("root", root.clone()),
                    "te",
                    raw.as_bytes(),
                );
                if kept < found.total_hits {
                    condensed.breadcrumbs.push(format!(
                        "the handle has the first {kept} of {}",
                        found.total_hits
                    ));
                }
            }
            let frame = Frame {
                cmd: "find",
                path: Some(root),
                handle,
                withheld_bytes: (raw.len() as u64).saturating_sub(condensed.body.len() as u64),
                ..Frame::default()
            };
            Ok(te::seal(cx, &condensed, frame))
        })
        .await
    }
}
