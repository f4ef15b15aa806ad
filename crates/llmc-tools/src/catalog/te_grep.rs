use std::fs::File;
use std::io::Write;

use llmc_enrich::grep::{FoundLine, Matches, condense};
use llmc_enrich::{Condensed, Totals};
use llmc_envelope::HandleId;
use llmc_envelope::handles::{HandleInfo, Kept};
use llmc_host::CancelToken;
use llmc_host::search::{
    Case, ContentMatches, ContentOptions, ContentPattern, PatternSyntax, search_content_of_file,
};
use llmc_host::walk::SkippedCounts;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::json;

use super::linux_fs_list::below;
use super::linux_handle_read::open_source;
use super::target::stored_handle;
use super::te_handle::{about, bytes_at};
use crate::cx::Cx;
use crate::error::{Error, ErrorKind, Family, Result};
use crate::render::{AnswerRoom, Render, Rendition, Rest, RestExtent};
use crate::shape::te_output;
use crate::te;
use crate::tool::{Effect, Tool};

/// How much of a stored result is copied at a time.
const COPY_BLOCK_BYTES: usize = 1 << 20;

pub(super) struct TeGrep;

/// Search file contents by regex; ranked matches.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    #[schemars(extend("x-help" = "a regular expression"))]
    pattern: String,
    #[schemars(extend("default" = ".", "x-help" = "a directory, a file or a handle"))]
    path: Option<String>,
    #[schemars(extend("x-help" = "in file order, without ranking"))]
    raw: Option<bool>,
    count: Option<bool>,
}

impl Tool for TeGrep {
    const NAME: &'static str = "te_grep";
    const EFFECT: Effect = Effect::Reads;
    const FAMILY: Family = Family::Te;
    const ERRORS: &'static [ErrorKind] = &[
        ErrorKind::InvalidPath,
        ErrorKind::NotFound,
        ErrorKind::BadPattern,
    ];
    const KEYWORDS: &'static str = "find text regex rank definition";
    type Args = Args;
    type Output = GrepMatches;

    async fn run(cx: &Cx, args: Args) -> Result<GrepMatches> {
        if args.pattern.is_empty() {
            return Err(Error::bad_args("pattern is empty"));
        }
        cx.blocking(move |cx, stop| {
            let path = args.path.as_deref().unwrap_or(".");
            let found = match stored_handle(path) {
                Some(id) => search_stored(cx, id, &args.pattern, stop)?,
                None => search(cx, path, &args.pattern, stop)?,
            };
            let Found {
                found,
                hits,
                counts,
            } = found;
            Ok(GrepMatches {
                total: found.total_hits,
                files: found.files_matched,
                complete: found.complete,
                clipped: found.hits.iter().filter(|hit| hit.clipped).count(),
                shape: match (args.count, args.raw) {
                    (Some(true), _) => GrepShape::Counts,
                    (_, Some(true)) => GrepShape::Raw,
                    _ => GrepShape::Ranked,
                },
                path: path.to_owned(),
                hits: Matches {
                    hits,
                    total: found.total_hits,
                    files_matched: found.files_matched,
                    counts,
                    files_searched: found.files_searched,
                    skipped: reasons(&found.skipped),
                    pattern: args.pattern,
                },
            })
        })
        .await
    }
}

/// What a search found, with paths as they are shown.
struct Found {
    found: ContentMatches,
    hits: Vec<FoundLine>,
    counts: Vec<(String, u64)>,
}

impl Found {
    /// With each path as `shown` gives it.
    fn new(found: ContentMatches, shown: impl Fn(&[u8]) -> String) -> Found {
        let hits = found.hits.iter().map(|hit| FoundLine {
            path: shown(&hit.path),
            line: hit.line,
            text: hit.snippet.clone(),
        });
        let hits = hits.collect();
        let counts = found.counts.iter();
        let counts = counts.map(|(path, count)| (shown(path), *count)).collect();
        Found {
            found,
            hits,
            counts,
        }
    }
}

/// Every matching line below a directory, or of one file.
fn search(cx: &Cx, path: &str, pattern: &str, stop: &CancelToken) -> Result<Found> {
    let roots = &cx.files().roots;
    let pattern = ContentPattern::new(pattern, PatternSyntax::Regex, Case::Sensitive)?;
    let options = ContentOptions::default();
    let (found, dir, name) = if roots.is_dir(path)? {
        let dir = roots.open_dir(path)?;
        let walk = dir.walk_options(roots)?;
        let index = cx.app().index();
        let found = index.search_content(roots, &dir, &pattern, &walk, &options, stop)?;
        (found, Some(dir.path), String::new())
    } else {
        let file = roots.open_file(path)?;
        let name = roots.display_path(&file.path);
        let found =
            search_content_of_file(file.into_file(), name.as_bytes(), &pattern, &options, stop)?;
        (found, None, name)
    };
    Ok(Found::new(found, |path| match &dir {
        Some(dir) => below(roots, dir, path),
        None => name.clone(),
    }))
}

/// Every matching line of a stored result.
fn search_stored(cx: &Cx, id: HandleId, pattern: &str, stop: &CancelToken) -> Result<Found> {
    let pattern = ContentPattern::new(pattern, PatternSyntax::Regex, Case::Sensitive)?;
    let name = id.to_string();
    let (info, _) = about(cx, &name, stop)?;
    let file = match info.kept {
        Kept::File => open_source(cx, &info)?.into_file(),
        Kept::Bytes => copy_of_stored(cx, &info, stop)?,
    };
    let options = ContentOptions::default();
    let found = search_content_of_file(file, name.as_bytes(), &pattern, &options, stop)?;
    Ok(Found::new(found, |_| name.clone()))
}

/// An unnamed file with the bytes of a stored result: the search reads files.
fn copy_of_stored(cx: &Cx, info: &HandleInfo, stop: &CancelToken) -> Result<File> {
    let failed = |error: std::io::Error| {
        let message = format!("{} cannot be copied to be searched: {error}", info.id);
        Error::new(ErrorKind::Internal, message)
    };
    let file = match cx.app().stores() {
        Some(dir) => tempfile::tempfile_in(dir),
        None => tempfile::tempfile(),
    };
    let mut file = file.map_err(failed)?;
    let mut at = 0;
    while at < info.total_bytes {
        stop.check()?;
        let block = bytes_at(cx, info, at, COPY_BLOCK_BYTES)?;
        if block.is_empty() {
            break;
        }
        at += block.len() as u64;
        file.write_all(&block).map_err(failed)?;
    }
    Ok(file)
}

/// Skipped files with their reasons, for an honest zero.
pub(super) fn reasons(skipped: &SkippedCounts) -> Vec<(u64, &'static str)> {
    vec![
        (skipped.ignored, "ignored"),
        (skipped.hidden, "hidden"),
        (skipped.binary, "binary"),
        (skipped.too_large, "too large"),
        (skipped.unreadable, "unreadable"),
    ]
}

/// Lines that match.
#[derive(Debug, Serialize)]
pub(super) struct GrepMatches {
    path: String,
    total: u64,
    files: u64,
    #[serde(serialize_with = "lines")]
    hits: Matches,
    /// Whether the whole tree was searched in time.
    complete: bool,
    /// Lines of which the search kept a part.
    #[serde(skip)]
    clipped: usize,
    #[serde(skip)]
    shape: GrepShape,
}

/// What is shown of the matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GrepShape {
    Ranked,
    /// In the order in which they were found.
    Raw,
    /// How many there are in each file.
    Counts,
}

fn lines<S: Serializer>(matches: &Matches, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    let hits = matches.hits.iter();
    serializer
        .collect_seq(hits.map(|hit| json!({"path": hit.path, "line": hit.line, "text": hit.text})))
}

impl GrepMatches {
    /// All lines that were kept, as grep prints them.
    fn raw(&self) -> String {
        let hits = self.hits.hits.iter();
        hits.map(|hit| format!("{}:{}:{}\n", hit.path, hit.line, hit.text))
            .collect()
    }

    /// `path: 12`, the files with most matches first.
    fn counts(&self, tokens: usize) -> Condensed {
        let mut files: Vec<&(String, u64)> = self.hits.counts.iter().collect();
        files.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let lines: String = files
            .iter()
            .map(|(path, count)| format!("{path}: {count}\n"))
            .collect();
        let (end, _) = llmc_tokens::lines_within(&lines, tokens);
        let files = if self.files == 1 { "file" } else { "files" };
        let in_all = format!("{} matches in {} {files}", self.total, self.files);
        let counted = self.hits.counts.len() as u64;
        Condensed {
            body: lines[..end].to_owned(),
            totals: Totals {
                matches: Some(self.total),
                files: Some(self.files),
                ..Totals::default()
            },
            shown: self.total,
            truncated: end < lines.len() || counted < self.files,
            breadcrumbs: vec![in_all],
            ..Condensed::default()
        }
    }

    /// Every line that was kept, as far as the session's budget goes.
    fn unranked(&self, tokens: usize) -> Condensed {
        let mut body = self.raw();
        let mut kept = self.hits.hits.len() as u64;
        if !llmc_tokens::fits(&body, tokens) {
            let (end, _) = llmc_tokens::lines_within(&body, tokens);
            body.truncate(end);
            kept = body.lines().count() as u64;
        }
        Condensed {
            body,
            totals: Totals {
                matches: Some(self.total),
                files: Some(self.files),
                ..Totals::default()
            },
            shown: kept,
            truncated: kept < self.total || self.clipped > 0,
            breadcrumbs: (self.clipped > 0)
                .then(|| format!("{} long lines clipped", self.clipped))
                .into_iter()
                .collect(),
            ..Condensed::default()
        }
    }
}

te_output!(GrepMatches);

impl Render for GrepMatches {
    fn render(&self, room: &AnswerRoom<'_>) -> Result<Rendition<'_>> {
        let mut found = if self.shape == GrepShape::Counts && self.total > 0 {
            room.condense(0, |tokens| self.counts(tokens))
        } else if self.shape != GrepShape::Raw {
            let hits = self.hits.hits.iter();
            let bytes = hits.map(|hit| hit.path.len() + hit.text.len()).sum();
            let source = |path: &str| te::source(room.cx, path, room.cancel());
            room.condense(bytes, |tokens| condense(&self.hits, source, tokens))
        } else {
            let room = room.for_chosen_length();
            room.condense(0, |tokens| self.unranked(tokens))
        };
        if !self.complete {
            found.truncated = true;
            found.breadcrumbs.push(format!(
                "time limit: {} files searched, there may be more; narrow path",
                self.hits.files_searched
            ));
        }
        let kept = self.hits.hits.len() as u64;
        let rest = (found.truncated && kept > 0).then(|| {
            let rest = Rest::text("te", self.raw()).about("root", self.path.as_str());
            if kept < self.total {
                rest.extent(RestExtent::First(kept))
            } else {
                rest
            }
        });
        Ok(Rendition::te("grep", found)
            .path(self.path.as_str())
            .rest(rest))
    }
}
