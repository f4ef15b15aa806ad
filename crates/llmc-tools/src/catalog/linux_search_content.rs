use llmc_host::search::{
    Case, ContentOptions, ContentPattern, PatternSyntax, search_content_of_file,
};
use llmc_host::walk::WalkOptions;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::args::{Count, OnUnlessFalse, bounded, glob_note, parse_glob};
use super::linux_fs_list::below;
use super::linux_search_files::unfinished;
use super::pages::{ListPage, SearchHits};
use crate::cx::Cx;
use crate::error::{Error, ErrorKind, Result};
use crate::tool::{Effect, Tool};

pub(super) struct LinuxSearchContent;

/// Search file contents; regex unless literal.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    root: String,
    pattern: String,
    #[schemars(extend("x-help" = "such as *.py"))]
    file_glob: Option<String>,
    literal: Option<bool>,
    /// default true
    ignore_case: Option<OnUnlessFalse>,
    #[schemars(extend("x-help" = "0 makes snippet the line alone"))]
    context_lines: Option<Count<3, 0, 10>>,
    max_results: Option<Count<100, 1, 1000>>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Hit {
    path: String,
    line: u64,
    snippet: String,
}

impl Tool for LinuxSearchContent {
    const NAME: &'static str = "linux_search_content";
    const ALIASES: &'static [&'static str] = &["linux.search_content"];
    const EFFECT: Effect = Effect::Reads;
    const ERRORS: &'static [ErrorKind] = &[
        ErrorKind::InvalidPath,
        ErrorKind::NotFound,
        ErrorKind::BadPattern,
    ];
    const KEYWORDS: &'static str = "grep rg ripgrep find text pattern match occurrence todo";
    type Args = Args;
    type Output = SearchHits<Hit>;

    async fn run(cx: &Cx, args: Args) -> Result<SearchHits<Hit>> {
        let context = bounded("context_lines", args.context_lines)?;
        let max = usize::try_from(bounded("max_results", args.max_results)?).unwrap_or(100);
        if args.pattern.is_empty() {
            return Err(Error::bad_args("pattern is empty"));
        }
        cx.blocking(move |cx, stop| {
            let roots = &cx.linux().roots;
            let syntax = if args.literal == Some(true) {
                PatternSyntax::Literal
            } else {
                PatternSyntax::Regex
            };
            let case = if !OnUnlessFalse::is_on(args.ignore_case) {
                Case::Sensitive
            } else {
                Case::Ignore
            };
            let pattern = ContentPattern::new(&args.pattern, syntax, case)?;
            let options = ContentOptions {
                context_lines: usize::try_from(context).unwrap_or(0),
                ..ContentOptions::default()
            };
            let glob = parse_glob(args.file_glob.as_deref())?;
            let (found, root, dir) = if roots.is_dir(&args.root)? {
                let dir = roots.open_dir(&args.root)?;
                let walk = WalkOptions {
                    file_glob: glob.clone(),
                    ..dir.walk_options(roots)?
                };
                let index = cx.app().index();
                let found = index.search_content(roots, &dir, &pattern, &walk, &options, stop)?;
                (found, roots.display_path(&dir.path), Some(dir.path))
            } else {
                let file = roots.open_file(&args.root)?;
                let shown = roots.display_path(&file.path);
                let found = search_content_of_file(
                    file.into_file(),
                    shown.as_bytes(),
                    &pattern,
                    &options,
                    stop,
                )?;
                (found, shown, None)
            };
            if !found.complete {
                stop.check()?;
                return Err(unfinished(found.files_searched, found.total_hits));
            }
            let clipped = found
                .hits
                .iter()
                .take(max)
                .filter(|hit| hit.clipped)
                .count();
            let all: Vec<Hit> = found
                .hits
                .into_iter()
                .map(|hit| Hit {
                    path: match &dir {
                        Some(dir) => below(roots, dir, &hit.path),
                        None => root.clone(),
                    },
                    line: hit.line,
                    snippet: hit.snippet,
                })
                .collect();
            let counts = (found.total_hits, found.files_searched, found.skipped);
            let given = args.file_glob.as_deref();
            let note = match (&dir, given) {
                (None, Some(_)) => Some("root is a file; file_glob is not used".to_owned()),
                _ => {
                    let looked_at =
                        found.files_searched + found.skipped.binary + found.skipped.too_large;
                    glob_note(given, glob.as_ref(), looked_at)
                }
            };
            let hits = SearchHits::new(root, ListPage::new(all, max), counts);
            Ok(hits.clipped(clipped).note(note))
        })
        .await
    }
}
