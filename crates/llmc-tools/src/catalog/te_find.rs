use llmc_enrich::entries::{FoundPath, FoundPaths, condense_find};
use llmc_host::search::NamePattern;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use super::args::PATH_ERRORS;
use super::linux_fs_list::below;
use super::te_grep::reasons;
use crate::cx::Cx;
use crate::error::{Error, ErrorKind, Family, Result};
use crate::render::{AnswerRoom, Render, Rendition, Rest};
use crate::shape::te_output;
use crate::tool::{Effect, Tool};

/// Paths kept behind the handle.
const MAX_STORED_PATHS: usize = 50_000;
/// Results up to this many are asked when they last changed, to show the newest first.
const MAX_DATED_PATHS: usize = 500;

pub(super) struct TeFind;

/// Find files by name: glob or substring.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    pattern: String,
    #[schemars(extend("default" = "."))]
    path: Option<String>,
}

impl Tool for TeFind {
    const NAME: &'static str = "te_find";
    const EFFECT: Effect = Effect::Reads;
    const FAMILY: Family = Family::Te;
    const ERRORS: &'static [ErrorKind] = PATH_ERRORS;
    const KEYWORDS: &'static str = "locate filename";
    type Args = Args;
    type Output = FileNames;

    async fn run(cx: &Cx, args: Args) -> Result<FileNames> {
        if args.pattern.is_empty() {
            return Err(Error::bad_args("pattern is empty").hint("use * to find every file"));
        }
        cx.blocking(move |cx, stop| {
            let roots = &cx.files().roots;
            let dir = roots.open_dir(args.path.as_deref().unwrap_or("."))?;
            let pattern = NamePattern::new(&args.pattern)?;
            let found = cx.app().index().search_files(
                roots,
                &dir,
                &pattern,
                &dir.walk_options(roots)?,
                MAX_STORED_PATHS,
                stop,
            )?;
            let dated = found.paths.len() <= MAX_DATED_PATHS;
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
            Ok(FileNames {
                found: FoundPaths {
                    paths,
                    total: found.total_hits,
                    files_searched: found.files_searched,
                    skipped: reasons(&found.skipped),
                    pattern: args.pattern,
                },
                total: found.total_hits,
                complete: found.complete,
                root: roots.display_path(&dir.path),
            })
        })
        .await
    }
}

/// Files whose names match.
#[derive(Debug, Serialize)]
pub(super) struct FileNames {
    root: String,
    total: u64,
    #[serde(rename = "paths", serialize_with = "paths")]
    found: FoundPaths,
    /// Whether the whole tree was searched in time.
    complete: bool,
}

fn paths<S: Serializer>(found: &FoundPaths, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_seq(found.paths.iter().map(|found| &found.path))
}

te_output!(FileNames);

impl Render for FileNames {
    fn render(&self, room: &AnswerRoom<'_>) -> Result<Rendition<'_>> {
        let bytes = self.found.paths.iter().map(|found| found.path.len()).sum();
        let mut found = room.condense(bytes, |tokens| condense_find(&self.found, tokens));
        if !self.complete {
            found.truncated = true;
            found
                .breadcrumbs
                .push("time limit: there may be more; narrow path".to_owned());
        }
        let paths = &self.found.paths;
        let rest = (found.truncated && !paths.is_empty()).then(|| {
            let raw: String = paths
                .iter()
                .map(|found| format!("{}\n", found.path))
                .collect();
            Rest::text("te", raw).about("root", self.root.as_str())
        });
        if rest.is_some() && (paths.len() as u64) < self.total {
            found.breadcrumbs.push(format!(
                "the handle has the first {} of {}",
                paths.len(),
                self.total
            ));
        }
        Ok(Rendition::te("find", found)
            .path(self.root.as_str())
            .rest(rest))
    }
}
