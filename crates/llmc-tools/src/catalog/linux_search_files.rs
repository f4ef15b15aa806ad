use llmc_host::search::NamePattern;
use llmc_host::walk::WalkOptions;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::args::{Count, PATH_ERRORS, bounded, glob_note, parse_glob};
use super::linux_fs_list::below;
use super::pages::{ListPage, SearchHits};
use crate::cx::Cx;
use crate::error::{Error, ErrorKind, Result};
use crate::tool::{Effect, Tool};

/// Paths kept behind the handle.
const MAX_STORED_PATHS: usize = 100_000;

pub(super) struct LinuxSearchFiles;

/// Find files by name: glob or substring.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    root: String,
    #[schemars(extend("x-help" = "a glob if it has * ? [ {, else part of the name in any case"))]
    pattern: String,
    file_glob: Option<String>,
    max_results: Option<Count<200, 1, 2000>>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Hit {
    path: String,
}

impl Tool for LinuxSearchFiles {
    const NAME: &'static str = "linux_search_files";
    const ALIASES: &'static [&'static str] = &["linux.search_files"];
    const EFFECT: Effect = Effect::Reads;
    const ERRORS: &'static [ErrorKind] = PATH_ERRORS;
    const KEYWORDS: &'static str = "locate glob filename";
    type Args = Args;
    type Output = SearchHits<Hit>;

    async fn run(cx: &Cx, args: Args) -> Result<SearchHits<Hit>> {
        let max = usize::try_from(bounded("max_results", args.max_results)?).unwrap_or(200);
        if args.pattern.is_empty() {
            return Err(Error::bad_args("pattern is empty").hint("use * to find every file"));
        }
        cx.blocking(move |cx, stop| {
            let roots = &cx.linux().roots;
            let dir = roots.open_dir(&args.root)?;
            let glob = parse_glob(args.file_glob.as_deref())?;
            let options = WalkOptions {
                file_glob: glob.clone(),
                ..dir.walk_options(roots)?
            };
            let found = cx.app().index().search_files(
                roots,
                &dir,
                &NamePattern::new(&args.pattern)?,
                &options,
                MAX_STORED_PATHS,
                stop,
            )?;
            if !found.complete {
                stop.check()?;
                return Err(unfinished(found.files_searched, found.total_hits));
            }
            let root = roots.display_path(&dir.path);
            let all: Vec<Hit> = found
                .paths
                .iter()
                .map(|path| Hit {
                    path: below(roots, &dir.path, path),
                })
                .collect();
            let counts = (found.total_hits, found.files_searched, found.skipped);
            let note = glob_note(
                args.file_glob.as_deref(),
                glob.as_ref(),
                found.files_searched,
            );
            Ok(SearchHits::new(root, ListPage::new(all, max), counts).note(note))
        })
        .await
    }
}

/// A search that ran out of time says how far it came.
pub(super) fn unfinished(files: u64, hits: u64) -> Error {
    Error::new(
        ErrorKind::TimedOut,
        format!("time limit reached after {files} files with {hits} hits"),
    )
    .hint("narrow it: a smaller root, a file_glob, a more selective pattern")
    .with("files_searched", files)
    .with("hits_so_far", hits)
}
