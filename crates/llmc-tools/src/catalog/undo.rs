//! `undo`: takes recorded changes back. What changed since is kept and reported.

use jiff::{SignedDuration, Timestamp};
use llmc_envelope::receipt::Receipt;
use llmc_history::{
    EntryFilter, EntryId, EntrySource, UndoConflict, UndoReport, UndoRequest, UndoTarget,
};
use llmc_host::names;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::cx::{Cx, Form};
use crate::error::{Error, ErrorKind, Result};
use crate::history_keeper::{HistoryRequest, author, history_path};
use crate::history_text::ListedState;
use crate::recording::short_args;
use crate::render::{AnswerRoom, Render, Rendition};
use crate::tool::{Effect, Tool};

/// Entries among which the newest that can be undone is looked for.
const MAX_SEARCHED_ENTRIES: usize = 200;
/// Paths that a text names; a program gets all.
const MAX_NAMED_PATHS: usize = 40;

pub(super) struct UndoTool;

pub(crate) const NAME: &str = UndoTool::NAME;

/// Undo an entry, a range (h3..h7), a session or since a time.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    #[schemars(extend("x-help" = "h12, or h3..h7; without any, this session's newest"))]
    entry: Option<String>,
    /// this, or an id
    session: Option<String>,
    #[schemars(extend("x-help" = "2026-01-02T03:04:05Z, or 10m, 2h, 1d ago"))]
    to: Option<String>,
    #[schemars(extend("x-help" = "only what is at or below it; also if it is shared"))]
    path: Option<String>,
    dry_run: Option<bool>,
    /// all or nothing
    #[schemars(extend("x-unlisted" = true))]
    atomic: Option<bool>,
}

/// What was taken back, and what was not.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct UndoOutput {
    #[schemars(extend("x-help" = "of the undo itself; null when nothing was restored"))]
    entry: Option<String>,
    undone: Vec<String>,
    restored: Vec<String>,
    conflicts: Vec<ListedConflict>,
    #[schemars(extend("x-help" = "left: another writer was active; path= restores it"))]
    shared: Vec<String>,
    #[schemars(extend("x-help" = "left: what was there is not in the history"))]
    not_kept: Vec<NotKeptPath>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-help" = "what gives HEAD back; undo leaves git alone"))]
    git_command: Option<String>,
    dry_run: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ListedConflict {
    path: String,
    why: String,
    #[schemars(extend("x-help" = "what the undone change left"))]
    expected: Option<ListedState>,
    #[schemars(extend("x-help" = "what is there now, and stays"))]
    found: Option<ListedState>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct NotKeptPath {
    path: String,
    why: &'static str,
}

impl Tool for UndoTool {
    const NAME: &'static str = "undo";
    const EFFECT: Effect = Effect::Writes;
    const DESTRUCTIVE: bool = true;
    const IDEMPOTENT: bool = false;
    const ERRORS: &'static [ErrorKind] = &[
        ErrorKind::NotFound,
        ErrorKind::Conflict,
        ErrorKind::InvalidPath,
        ErrorKind::Unavailable,
    ];
    const KEYWORDS: &'static str = "revert restore take back rollback reset history";
    type Args = Args;
    type Output = UndoOutput;

    fn time_limit(cx: &Cx) -> std::time::Duration {
        // Many files may be written.
        cx.app().config().mcp.exec.max_wait()
    }

    async fn run(cx: &Cx, args: Args) -> Result<UndoOutput> {
        cx.blocking(move |cx, stop| {
            let request = HistoryRequest::of(cx);
            let given = [&args.entry, &args.session, &args.to];
            if given.iter().filter(|arg| arg.is_some()).count() > 1 {
                return Err(Error::bad_args(
                    "entry, session and to exclude each other; give one of them",
                ));
            }
            let paths: Vec<Vec<u8>> = match &args.path {
                Some(path) => vec![history_path(cx, path)?],
                None => Vec::new(),
            };
            let described = short_args(&described(&args));
            let target = match (args.entry, args.session, args.to) {
                (Some(entry), ..) => entry_or_range(&entry)?,
                (_, Some(session), _) => UndoTarget::Session(request.session(session)),
                (.., Some(time)) => {
                    // By the clock that entries have.
                    let now = Timestamp::from_millisecond(cx.app().history()?.now_ms()?);
                    UndoTarget::To(time_ms(&time, now.unwrap_or_else(|_| Timestamp::now()))?)
                }
                _ => UndoTarget::Entry(newest(cx, &request)?),
            };
            let undo = UndoRequest {
                target,
                force_shared: paths.clone(),
                paths,
                dry_run: args.dry_run.unwrap_or(false),
                atomic: args.atomic.unwrap_or(false),
                viewer: request.viewer.clone(),
                author: author(cx.caller(), UndoTool::NAME, described),
                cancel: stop.clone(),
            };
            carry_out(cx, &undo)
        })
        .await
    }
}

/// Takes back what was asked for.
pub(crate) fn carry_out(cx: &Cx, undo: &UndoRequest) -> Result<UndoOutput> {
    let report = cx.app().history()?.undo(undo)?;
    output(report, undo)
}

/// The arguments as the new entry shows them.
fn described(args: &Args) -> serde_json::Map<String, Value> {
    let words = [
        args.entry.clone(),
        args.session.as_ref().map(|id| format!("session {id}")),
        args.to.as_ref().map(|time| format!("to {time}")),
    ];
    let shown: Vec<String> = words.into_iter().flatten().collect();
    let mut map = serde_json::Map::new();
    map.insert("entry".to_owned(), shown.join(" ").into());
    map.extend((args.path.as_ref()).map(|path| ("path".to_owned(), Value::from(path.as_str()))));
    map
}

/// A report as an answer, or as the error that it is when a conflict kept everything as it was.
fn output(report: UndoReport, undo: &UndoRequest) -> Result<UndoOutput> {
    let output = UndoOutput {
        entry: report.entry.map(|id| id.to_string()),
        undone: report.undone.iter().map(ToString::to_string).collect(),
        restored: report
            .restored
            .iter()
            .map(|path| names::escape(path))
            .collect(),
        conflicts: report.conflicts.iter().map(listed).collect(),
        shared: (report.skipped_shared.iter())
            .map(|path| names::escape(path))
            .collect(),
        not_kept: (report.not_kept.into_iter())
            .map(|(path, why)| NotKeptPath {
                path,
                why: why.text(),
            })
            .collect(),
        git_command: report.git_command,
        dry_run: undo.dry_run,
    };
    let has_left = !output.shared.is_empty() || !output.not_kept.is_empty();
    let is_refused = !output.conflicts.is_empty() || (undo.atomic && has_left);
    if is_refused && !undo.dry_run && output.restored.is_empty() {
        let error = Error::new(
            ErrorKind::Conflict,
            match output.conflicts.len() {
                0 => "nothing was undone: not all of it can be".to_owned(),
                1 => "nothing was undone: 1 path is not as the change left it".to_owned(),
                n => format!("nothing was undone: {n} paths are not as the change left them"),
            },
        );
        return Err(error
            .hint("the history of that path shows what changed it; undo that first, or choose by path")
            .with("conflicts", output.left_lines().join("\n"))
            .with("conflict_list", json!({"conflicts": output.conflicts})));
    }
    Ok(output)
}

fn listed(conflict: &UndoConflict) -> ListedConflict {
    ListedConflict {
        path: names::escape(&conflict.path),
        why: conflict.why.clone(),
        expected: ListedState::of(&conflict.expected),
        found: ListedState::of(&conflict.found),
    }
}

/// `h12`, or `h3..h7` with both ends.
fn entry_or_range(text: &str) -> Result<UndoTarget> {
    let Some((first, last)) = text.split_once("..") else {
        return Ok(UndoTarget::Entry(text.trim().parse::<EntryId>()?));
    };
    let (first, last): (EntryId, EntryId) = (first.trim().parse()?, last.trim().parse()?);
    if first > last {
        return Err(Error::bad_args(format!(
            "{first}..{last}: a range begins with the older entry"
        )));
    }
    Ok(UndoTarget::Range(first, last))
}

/// The newest call of this session that has not been undone and is no undo itself; in a user's shell, of any session.
fn newest(cx: &Cx, request: &HistoryRequest<'_>) -> Result<EntryId> {
    let is_user = cx.caller().surface == crate::cx::Surface::Cli;
    let filter = EntryFilter {
        viewer: request.viewer.clone(),
        session: (!is_user).then(|| cx.caller().session.clone()),
        limit: MAX_SEARCHED_ENTRIES,
        ..EntryFilter::default()
    };
    let found = cx.app().history()?.list(&filter)?;
    let newest = found
        .iter()
        .find(|entry| entry.source == EntrySource::Call && entry.undone_by.is_none());
    newest.map(|entry| entry.id).ok_or_else(|| {
        let whose = if is_user { "" } else { " of this session" };
        Error::new(ErrorKind::NotFound, format!("no change{whose} to undo"))
            .hint("history lists the entries; undo entry=h12 takes one back")
    })
}

/// A point in time: as RFC 3339, or how long ago.
fn time_ms(text: &str, now: Timestamp) -> Result<i64> {
    let text = text.trim();
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time.as_millisecond());
    }
    let unit = text.chars().next_back().and_then(|unit| match unit {
        's' => Some(1),
        'm' => Some(60),
        'h' => Some(3_600),
        'd' => Some(86_400),
        _ => None,
    });
    let digits = text.get(..text.len().saturating_sub(1)).unwrap_or_default();
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let seconds = digits
        .parse::<i64>()
        .ok()
        .filter(|_| is_number)
        .zip(unit)
        .and_then(|(count, unit): (i64, i64)| count.checked_mul(unit));
    let ago = seconds.and_then(|seconds| now.checked_sub(SignedDuration::from_secs(seconds)).ok());
    ago.map(|time| time.as_millisecond()).ok_or_else(|| {
        Error::bad_args(format!(
            "{text:?} is no time; give 2026-01-02T03:04:05Z, or how long ago: 10m, 2h, 1d"
        ))
    })
}

impl UndoOutput {
    /// What was left as it is, and why.
    fn left_lines(&self) -> Vec<String> {
        let content = |state: &Option<ListedState>| match state {
            None => "nothing".to_owned(),
            Some(state) => match &state.content {
                Some(id) => format!("{} {}", state.kind, &id[..id.len().min(10)]),
                None => state.kind.to_owned(),
            },
        };
        let conflict = |conflict: &ListedConflict| {
            let (found, expected) = (content(&conflict.found), content(&conflict.expected));
            let versions = match found == expected {
                true => String::new(),
                false => format!(" (is {found}, was {expected})"),
            };
            format!(
                "CONFLICT {}: {}; kept{versions}",
                conflict.path, conflict.why
            )
        };
        let mut lines = named(self.conflicts.iter().map(conflict));
        lines.extend(named(self.shared.iter().map(|path| {
            format!("shared, kept: {path}: another writer was active; name it as path to undo it")
        })));
        lines.extend(named(
            self.not_kept
                .iter()
                .map(|left| format!("not undoable: {}: {}", left.path, left.why)),
        ));
        lines
    }

    fn text(&self) -> String {
        let count = self.restored.len();
        let files = if count == 1 { "path" } else { "paths" };
        let undone = match self.undone.as_slice() {
            [first, .., last] => format!("{last} to {first}"),
            [only] => only.clone(),
            [] => "nothing".to_owned(),
        };
        let mut lines = vec![match (&self.entry, self.dry_run) {
            (_, true) => format!("would undo {undone}: {count} {files}"),
            (Some(entry), _) => format!("undid {undone} as {entry}: {count} {files} restored"),
            (None, _) => format!("undid nothing of {undone}"),
        }];
        lines.extend(named(self.restored.iter().map(|path| format!("  {path}"))));
        lines.extend(self.left_lines());
        lines.extend((self.git_command.iter()).map(|command| {
            format!("HEAD has moved since; git's own state is left alone: {command}")
        }));
        lines.join("\n")
    }
}

/// The first lines, and how many more there are.
fn named(lines: impl ExactSizeIterator<Item = String>) -> Vec<String> {
    let left = lines.len().saturating_sub(MAX_NAMED_PATHS);
    let mut named: Vec<String> = lines.take(MAX_NAMED_PATHS).collect();
    if left > 0 {
        named.push(format!("  … and {left} more"));
    }
    named
}

impl Render for UndoOutput {
    fn render(&self, room: &AnswerRoom<'_>) -> Result<Rendition<'_>> {
        if room.form() == Form::Data {
            return Ok(Rendition {
                printed: room.is_in_script().then(|| self.text()),
                ..Rendition::data()
            });
        }
        Ok(Rendition::text(self.text(), Receipt::new()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_timestamp_or_how_long_ago() {
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let at = |text: &str| time_ms(text, now).ok();
        let ms = |text: &str| text.parse::<Timestamp>().unwrap().as_millisecond();
        assert_eq!(at("2026-01-01T00:00:00Z"), Some(ms("2026-01-01T00:00:00Z")));
        assert_eq!(at("10m"), Some(ms("2026-01-02T02:54:05Z")));
        assert_eq!(at("1d"), Some(ms("2026-01-01T03:04:05Z")));
        for bad in [
            "",
            "m",
            "10",
            "-1m",
            "1w",
            "yesterday",
            "9223372036854775807d",
            "é",
        ] {
            assert_eq!(at(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_range_begins_with_the_older_entry() {
        let target = |text: &str| entry_or_range(text).ok();
        assert_eq!(target("h3"), Some(UndoTarget::Entry(EntryId(3))));
        assert_eq!(
            target("3..h7"),
            Some(UndoTarget::Range(EntryId(3), EntryId(7)))
        );
        for bad in ["h7..h3", "h3..", "..", "x", "h3...h7"] {
            assert_eq!(target(bad), None, "{bad}");
        }
    }
}
