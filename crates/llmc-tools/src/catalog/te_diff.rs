//! `te_diff`: two paths, or one against the last commit, compared in this process.

use std::collections::{BTreeSet, HashMap};

use llmc_enrich::{Condensed, Totals, diff};
use llmc_host::search::{NamePattern, search_files};
use llmc_host::walk::Hidden;
use llmc_host::{Access, CancelToken, FinalLink, OpenDir, Roots};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use super::args::READ_ERRORS;
use super::linux_fs_list::below;
use super::target::{LineSpan, lines_of};
use crate::committed::{CommitTree, Committed, Reach, is_same};
use crate::compare::{Comparison, FILE_LIMIT, Version};
use crate::cx::Cx;
use crate::error::{Error, ErrorKind, Family, Result};
use crate::render::{AnswerRoom, Render, Rendition, Rest};
use crate::shape::te_output;
use crate::tool::{Effect, Tool};

/// How the hunks of a comparison of lines are numbered.
const NUMBERED_FROM_FIRST: &str =
    "only the lines that were named are compared, counted from the first of each";
/// Files below one directory that are compared.
const MAX_COMPARED_FILES: usize = 50_000;

pub(super) struct TeDiff;

/// Compare two paths, or one with HEAD.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    a: String,
    #[schemars(extend("x-help" = "default: HEAD"))]
    b: Option<String>,
}

impl Tool for TeDiff {
    const NAME: &'static str = "te_diff";
    const EFFECT: Effect = Effect::Reads;
    const FAMILY: Family = Family::Te;
    const ERRORS: &'static [ErrorKind] = READ_ERRORS;
    const KEYWORDS: &'static str = "changes difference uncommitted";
    type Args = Args;
    type Output = DiffOutput;

    fn time_limit(cx: &Cx) -> std::time::Duration {
        let mcp = &cx.app().config().mcp;
        mcp.tools.read_timeout() + mcp.exec.wait()
    }

    async fn run(cx: &Cx, args: Args) -> Result<DiffOutput> {
        cx.blocking(move |cx, stop| {
            let (a, b) = (args.a.as_str(), args.b.as_deref());
            let roots = &cx.files().roots;
            let (old, new) = (
                Side::of(roots, a)?,
                b.map(|b| Side::of(roots, b)).transpose()?,
            );
            let found = match new {
                Some(new) => two_paths(cx, &old, &new, stop)?,
                None => with_head(cx, &old, stop)?,
            };
            let Compared { diff, mut notes } = found;
            if diff.odd > 0 {
                notes.push("not all UTF-8, odd bytes shown as \u{fffd}".to_owned());
            }
            Ok(DiffOutput {
                a: a.to_owned(),
                b: b.unwrap_or("HEAD").to_owned(),
                text: diff.text,
                files: diff.files,
                notes,
            })
        })
        .await
    }
}

/// One side of a comparison: a path, or lines of a file.
#[derive(Debug, Clone)]
struct Side {
    path: String,
    lines: Option<LineSpan>,
}

impl Side {
    fn of(roots: &Roots, named: &str) -> Result<Side> {
        Ok(match lines_of(roots, named)? {
            Some((path, span)) => Side {
                path,
                lines: Some(span),
            },
            None => Side::whole(named),
        })
    }

    fn whole(path: impl Into<String>) -> Side {
        Side {
            path: path.into(),
            lines: None,
        }
    }

    /// The version with only the lines that this side names.
    fn cut(&self, version: Version) -> Result<Version> {
        let (Some(span), Version::Bytes(bytes)) = (self.lines, &version) else {
            return Ok(version);
        };
        let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
        span.check(&self.path, lines.len() as u64)?;
        let at = |line: u64| usize::try_from(line).unwrap_or(usize::MAX).min(lines.len());
        Ok(Version::Bytes(
            lines[at(span.first - 1)..at(span.last)].concat(),
        ))
    }
}

/// A comparison with what is to be said about it.
#[derive(Default)]
struct Compared {
    diff: Comparison,
    notes: Vec<String>,
}

impl Compared {
    /// Says how many files below the compared directories were passed over, and why.
    fn note_left_out(&mut self, ignored: u64, unreadable: u64) {
        if ignored > 0 {
            self.notes.push(format!("{ignored} ignored, not compared"));
        }
        if unreadable > 0 {
            self.notes
                .push(format!("{unreadable} unreadable, not compared"));
        }
    }
}

/// A diff, or that there is none.
#[derive(Debug)]
pub(super) struct DiffOutput {
    a: String,
    b: String,
    text: String,
    files: u64,
    notes: Vec<String>,
}

te_output!(DiffOutput);

impl Render for DiffOutput {
    fn render(&self, room: &AnswerRoom<'_>) -> Result<Rendition<'_>> {
        let (a, b) = (&self.a, &self.b);
        let mut found = if self.files == 0 {
            Condensed {
                body: format!("identical: {a} and {b}\n"),
                totals: Totals {
                    matches: Some(0),
                    ..Totals::default()
                },
                ..Condensed::default()
            }
        } else {
            diff::condense(&self.text, room.tokens)
        };
        found.breadcrumbs.extend(self.notes.iter().cloned());
        let rest = found.truncated.then(|| {
            Rest::bytes("te", self.text.as_bytes()).about("command", format!("diff {a} {b}"))
        });
        Ok(Rendition::te("diff", found).path(a.clone()).rest(rest))
    }
}

/// What a program gets is the text.
impl Serialize for DiffOutput {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

fn two_paths(cx: &Cx, a: &Side, b: &Side, stop: &CancelToken) -> Result<Compared> {
    let roots = &cx.files().roots;
    let is_dir = |side: &Side| {
        let is_dir = roots.is_dir(&side.path);
        is_dir.map_err(|error| only_paths(error.into()))
    };
    let beside = |dir: &Side, file: &Side| {
        let path = inside(roots, &dir.path, &file.path)?;
        Ok::<_, Error>(Side {
            path,
            ..file.clone()
        })
    };
    match (is_dir(a)?, is_dir(b)?) {
        (true, true) => two_directories(cx, &a.path, &b.path, stop),
        // As diff does: the file of the same name in the directory.
        (true, false) => two_files(roots, &beside(a, b)?, b, stop),
        (false, true) => two_files(roots, a, &beside(b, a)?, stop),
        (false, false) => two_files(roots, a, b, stop),
    }
}

fn two_files(roots: &Roots, a: &Side, b: &Side, stop: &CancelToken) -> Result<Compared> {
    let mut found = Compared::default();
    add_pair(&mut found.diff, roots, (a, b), stop)?;
    if a.lines.is_some() || b.lines.is_some() {
        found.notes.push(NUMBERED_FROM_FIRST.to_owned());
    }
    Ok(found)
}

fn inside(roots: &Roots, dir: &str, file: &str) -> Result<String> {
    let file = roots.open_file(file)?.path;
    let name = file.below_root().rsplit(|byte| *byte == b'/').next();
    let dir = roots.open_dir(dir)?;
    Ok(below(roots, &dir.path, name.unwrap_or_default()))
}

/// Adds two files to a diff.
fn add_pair(
    diff: &mut Comparison,
    roots: &Roots,
    pair: (&Side, &Side),
    stop: &CancelToken,
) -> Result<()> {
    let open = |side: &Side| {
        let file = roots.open_file(&side.path);
        file.map_err(|error| only_paths(error.into()))
    };
    let (old, new) = (open(pair.0)?, open(pair.1)?);
    let (a, b) = (roots.display_path(&old.path), roots.display_path(&new.path));
    let (size, same_size) = (old.size(), old.size() == new.size());
    let (old, new) = if size > FILE_LIMIT && same_size {
        if old.sha256(stop)? == new.sha256(stop)? {
            return Ok(());
        }
        (Version::Large(size), Version::Large(size))
    } else {
        (
            pair.0.cut(Version::of(old, stop)?)?,
            pair.1.cut(Version::of(new, stop)?)?,
        )
    };
    diff.add((&a, &b), &old, &new);
    Ok(())
}

fn two_directories(cx: &Cx, a: &str, b: &str, stop: &CancelToken) -> Result<Compared> {
    let roots = &cx.files().roots;
    let (a, b) = (roots.open_dir(a)?, roots.open_dir(b)?);
    let (in_a, ignored_a) = files_below(cx, &a, MAX_COMPARED_FILES, stop)?;
    let (in_b, ignored_b) = files_below(cx, &b, MAX_COMPARED_FILES, stop)?;
    let mut found = Compared::default();
    let mut unreadable = 0;
    for name in in_a.union(&in_b) {
        stop.check()?;
        let (old, new) = (below(roots, &a.path, name), below(roots, &b.path, name));
        let added = match (in_a.contains(name), in_b.contains(name)) {
            (true, true) => {
                let sides = (Side::whole(&old), Side::whole(&new));
                add_pair(&mut found.diff, roots, (&sides.0, &sides.1), stop)
            }
            (true, false) => version(roots, &old, stop)
                .map(|was| found.diff.add((&old, &new), &was, &Version::Absent)),
            (false, _) => version(roots, &new, stop)
                .map(|is| found.diff.add((&old, &new), &Version::Absent, &is)),
        };
        unreadable += u64::from(added.is_err());
    }
    stop.check()?;
    found.note_left_out(ignored_a + ignored_b, unreadable);
    Ok(found)
}

fn version(roots: &Roots, path: &str, stop: &CancelToken) -> Result<Version> {
    Version::of(roots.open_file(path)?, stop)
}

/// The files below a directory, hidden ones too, and how many ignored ones were passed over.
pub(crate) fn files_below(
    cx: &Cx,
    dir: &OpenDir,
    max_files: usize,
    stop: &CancelToken,
) -> Result<(BTreeSet<Vec<u8>>, u64)> {
    let roots = &cx.files().roots;
    let mut options = dir.walk_options(roots)?;
    options.hidden = Hidden::Include;
    let all = NamePattern::new("*")?;
    let found = search_files(&dir.fd, &all, &options, max_files, stop)?;
    stop.check()?;
    if found.total_hits > max_files as u64 || !found.complete {
        return Err(Error::new(
            ErrorKind::TooLarge,
            format!(
                "{}: {} files, {max_files} can be compared",
                dir.path.requested(),
                found.total_hits
            ),
        )
        .hint("compare a smaller directory or single files"));
    }
    // That git's own directory and the server's are not compared is no news.
    let own = u64::from(
        roots
            .is_dir(&below(roots, &dir.path, b".git"))
            .unwrap_or(false),
    ) + u64::from(cx.app().is_state_dir_of(&dir.path.absolute()));
    let ignored = found.skipped.ignored.saturating_sub(own) + found.skipped.unreadable;
    // In a linked working tree `.git` is a file, and tells where the repository is.
    let is_git = |path: &Vec<u8>| path.rsplit(|byte| *byte == b'/').next() == Some(b".git");
    let paths = found.paths.into_iter().filter(|path| !is_git(path));
    Ok((paths.collect(), ignored))
}

fn with_head(cx: &Cx, a: &Side, stop: &CancelToken) -> Result<Compared> {
    let roots = &cx.files().roots;
    match roots.is_dir(&a.path) {
        Ok(true) => directory_with_head(cx, &a.path, stop),
        Ok(false) | Err(llmc_host::Error::NotFound { .. }) => {
            let mut found = file_with_head(cx, &a.path, stop)?;
            if let Some(span) = a.lines {
                found.diff.keep_hunks(span.first, span.last);
                let lines = format!("only what touches lines {} to {}", span.first, span.last);
                found.notes.push(lines);
            }
            Ok(found)
        }
        Err(error) => Err(error.into()),
    }
}

fn file_with_head(cx: &Cx, a: &str, stop: &CancelToken) -> Result<Compared> {
    let roots = &cx.files().roots;
    let path = roots.resolve(a, FinalLink::Follow, Access::Read)?;
    let absolute = path.absolute();
    let missing = || only_paths(llmc_host::Error::NotFound { path: a.to_owned() }.into());
    let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
        return Err(missing());
    };
    let dir = roots
        .open_dir(&roots.display_absolute(parent))
        .map_err(|_| missing())?;
    let file = match roots.open_file(a) {
        Ok(file) => Some(file),
        Err(llmc_host::Error::NotFound { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    let head = CommitTree::head(cx, &dir, stop)?;
    let listed = match head.list(Reach::Here, stop) {
        // For a revision or a typing error that message helps more than a missing repository does.
        Err(error) if file.is_none() && error.kind == ErrorKind::NotFound => return Err(missing()),
        listed => listed?,
    };
    let mut found = Compared::default();
    if listed.is_none() {
        found.notes.push("there is no commit yet".to_owned());
    }
    let was = listed.and_then(|mut list| list.remove(name.as_encoded_bytes()));
    let was = was.filter(Committed::is_file);
    let shown = roots.display_path(&path);
    let names = (format!("a/{shown}"), format!("b/{shown}"));
    let old = match (&file, &was) {
        (None, None) => return Err(missing()),
        (Some(file), Some(was)) if is_same(file, was, stop)? => return Ok(found),
        (_, None) => {
            found
                .notes
                .push(format!("{shown} is not in HEAD, all of it is new"));
            Version::Absent
        }
        (_, Some(was)) => old_version(was, &head.contents(&small(&[was]), stop)?),
    };
    let new = file.map_or(Ok(Version::Absent), |file| Version::of(file, stop))?;
    found.diff.add((&names.0, &names.1), &old, &new);
    Ok(found)
}

fn directory_with_head(cx: &Cx, a: &str, stop: &CancelToken) -> Result<Compared> {
    let roots = &cx.files().roots;
    let dir = roots.open_dir(a)?;
    let head = CommitTree::head(cx, &dir, stop)?;
    let mut found = Compared::default();
    let listed = head.list(Reach::All, stop)?.unwrap_or_else(|| {
        found.notes.push("there is no commit yet".to_owned());
        HashMap::new()
    });
    let (there, ignored) = files_below(cx, &dir, MAX_COMPARED_FILES, stop)?;
    let names: BTreeSet<&Vec<u8>> = listed.keys().chain(&there).collect();
    let (mut links, mut unreadable, mut new_files) = (0_u64, 0_u64, 0_u64);
    let mut changed: Vec<(String, Option<&Committed>)> = Vec::new();
    for name in names {
        stop.check()?;
        let (path, was) = (below(roots, &dir.path, name), listed.get(name));
        match (was, roots.open_file(&path)) {
            (Some(was), _) if !was.is_file() => links += 1,
            (Some(was), Ok(file)) if is_same(&file, was, stop)? => {}
            (was, Ok(_)) | (was @ Some(_), Err(llmc_host::Error::NotFound { .. })) => {
                new_files += u64::from(was.is_none());
                changed.push((path, was));
            }
            (_, Err(_)) => unreadable += 1,
        }
    }
    let old: Vec<&Committed> = changed.iter().filter_map(|(_, was)| *was).collect();
    // What the diff will have no room for need not be fetched.
    let contents = head.contents(&small(&old), stop)?;
    for (path, was) in &changed {
        stop.check()?;
        let old = was.map_or(Version::Absent, |was| old_version(was, &contents));
        let new = match roots.open_file(path) {
            Ok(file) => Version::of(file, stop)?,
            Err(_) => Version::Absent,
        };
        found
            .diff
            .add((&format!("a/{path}"), &format!("b/{path}")), &old, &new);
    }
    if new_files > 0 {
        found
            .notes
            .push(format!("{new_files} not in HEAD, shown as new"));
    }
    if links > 0 {
        found
            .notes
            .push(format!("{links} linked or of a submodule, not compared"));
    }
    found.note_left_out(ignored, unreadable);
    Ok(found)
}

/// Those of the old contents that are small enough to be shown.
fn small<'a>(wanted: &[&'a Committed]) -> Vec<&'a Committed> {
    let mut room = 4 * FILE_LIMIT;
    wanted
        .iter()
        .filter(|entry| {
            let fits = entry.size <= FILE_LIMIT.min(room);
            room -= if fits { entry.size } else { 0 };
            fits
        })
        .copied()
        .collect()
}

fn old_version(was: &Committed, contents: &HashMap<String, Vec<u8>>) -> Version {
    match contents.get(&was.id) {
        Some(bytes) => Version::Bytes(bytes.clone()),
        None => Version::Large(was.size),
    }
}

/// A path that is not there may have been meant as a revision.
fn only_paths(error: Error) -> Error {
    match error.kind {
        ErrorKind::NotFound => error.hint("a and b are paths; te_git compares revisions"),
        _ => error,
    }
}
