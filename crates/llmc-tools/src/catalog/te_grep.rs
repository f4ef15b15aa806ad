use llmc_enrich::grep::{FoundLine, Matches, condense};
use llmc_enrich::{Condensed, Totals};
use llmc_host::search::{
    Case, ContentFound, ContentOptions, ContentPattern, Syntax, search_content,
    search_content_of_file,
};
use llmc_host::walk::Skipped;
use llmc_host::{CancelToken, Roots};
use schemars::JsonSchema;
use serde::Deserialize;

use super::linux_fs_list::below;
use crate::answer::Answer;
use crate::cx::Cx;
use crate::error::{Error, Family, Result};
use crate::te::{self, Frame};
use crate::tool::{Effect, Tool};

pub(super) struct TeGrep;

/// Search file contents. Returns ranked matches.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// regex
    pattern: String,
    path: Option<String>,
    /// no ranking
    raw: Option<bool>,
}

impl Tool for TeGrep {
    const NAME: &'static str = "te_grep";
    const EFFECT: Effect = Effect::Reads;
    const FAMILY: Family = Family::Te;
    type Args = Args;
    type Output = Answer;

    async fn run(cx: &Cx, args: Args) -> Result<Answer> {
        if args.pattern.is_empty() {
            return Err(Error::bad_args("pattern is empty"));
        }
        cx.blocking(move |cx, stop| {
            let roots = &cx.files().roots;
            let path = args.path.as_deref().unwrap_or(".");
            let (found, hits) = search(roots, path, &args.pattern, stop)?;
            let raw: String = hits
                .iter()
                .map(|hit| format!("{}:{}:{}\n", hit.path, hit.line, hit.text))
                .collect();
            let kept = hits.len() as u64;
            let mut condensed = if args.raw == Some(true) {
                unranked(&raw, &found, kept)
            } else {
                let matches = Matches {
                    hits,
                    total: found.total_hits,
                    files_matched: found.files_matched,
                    files_searched: found.files_searched,
                    skipped: reasons(&found.skipped),
                    densest: None,
                    pattern: args.pattern,
                };
                condense(&matches, |path| te::source(cx, path, stop), te::budget(cx))
            };
            if !found.complete {
                condensed.truncated = true;
                let crumb = format!(
                    "time limit: {} files searched, there may be more; narrow path",
                    found.files_searched
                );
                condensed.breadcrumbs.push(crumb);
            }
            let mut handle = None;
            if condensed.truncated && !raw.is_empty() {
                handle = cx.keep(|draft| draft.with("root", path), "te", raw.as_bytes());
                if kept < found.total_hits {
                    condensed.breadcrumbs.push(format!(
                        "the handle has the first {kept} of {}",
                        found.total_hits
                    ));
                }
            }
            let frame = Frame {
                cmd: "grep",
                path: Some(path.to_owned()),
                handle,
                withheld_bytes: (raw.len() as u64).saturating_sub(condensed.body.len() as u64),
                ..Frame::default()
            };
            Ok(te::seal(cx, &condensed, frame))
        })
        .await
    }
}

/// Every matching line below a directory, or of one file.
fn search(
    roots: &Roots,
    path: &str,
    pattern: &str,
    stop: &CancelToken,
) -> Result<(ContentFound, Vec<FoundLine>)> {
    let pattern = ContentPattern::new(pattern, Syntax::Regex, Case::Sensitive)?;
    let options = ContentOptions::default();
    let (found, dir, name) = if roots.is_dir(path)? {
        let dir = roots.open_dir(path)?;
        let found = search_content(&dir.fd, &pattern, &dir.walk_options(roots)?, &options, stop)?;
        (found, Some(dir.path), String::new())
    } else {
        let file = roots.open_file(path)?;
        let name = roots.shown(&file.path);
        let found =
            search_content_of_file(file.into_file(), name.as_bytes(), &pattern, &options, stop)?;
        (found, None, name)
    };
    let hits = found
        .hits
        .iter()
        .map(|hit| FoundLine {
            path: dir
                .as_ref()
                .map_or_else(|| name.clone(), |dir| below(roots, dir, &hit.path)),
            line: hit.line,
            text: hit.snippet.clone(),
        })
        .collect();
    Ok((found, hits))
}

/// Skipped files with their reasons, for an honest zero.
pub(super) fn reasons(skipped: &Skipped) -> Vec<(u64, &'static str)> {
    vec![
        (skipped.ignored, "ignored"),
        (skipped.hidden, "hidden"),
        (skipped.binary, "binary"),
        (skipped.too_large, "too large"),
        (skipped.unreadable, "unreadable"),
    ]
}

fn unranked(raw: &str, found: &ContentFound, kept: u64) -> Condensed {
    Condensed {
        body: raw.to_owned(),
        totals: Totals {
            matches: Some(found.total_hits),
            files: Some(found.files_matched),
            ..Totals::default()
        },
        shown: kept,
        truncated: kept < found.total_hits,
        ..Condensed::default()
    }
}
