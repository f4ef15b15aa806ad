//! The history as the dashboard and the terminal view show it: entries with the names of their files, one entry with a diff
//! of each file, and its undo.

use std::sync::Arc;
use std::time::Instant;

use llmc_history::{
    ChangeAction, Entry, EntryFilter, EntryId, History, PathChange, PathState, UndoRequest,
    UndoTarget,
};
use llmc_host::{CancelToken, names};
use serde_json::{Value, json};

use crate::app::App;
use crate::call::{Call, CallOutcome};
use crate::catalog::undo;
use crate::compare::{Comparison, FILE_LIMIT, Version};
use crate::cx::{Caller, Cx};
use crate::error::{Error, Result};
use crate::history_keeper::{author, check_reader, viewer_of};
use crate::history_text::iso;
use crate::seal::seal;

/// Files that a list names of each entry.
const MAX_LISTED_FILES: usize = 100;
/// Files that an entry is shown with.
const MAX_SHOWN_FILES: usize = 2000;
/// Bytes of one file's diff, and of all diffs of an entry.
const MAX_DIFF_BYTES: usize = 64 << 10;
const MAX_ALL_DIFFS_BYTES: usize = 4 << 20;

/// Which entries are listed.
#[derive(Debug, Clone, Default)]
pub struct HistoryQuery {
    /// Entries older than this one, such as `h12`.
    pub before: Option<String>,
    /// Entries that changed this path or something below it.
    pub path: Option<String>,
    pub session: Option<String>,
    pub limit: usize,
}

/// What of one entry is taken back.
#[derive(Debug, Clone)]
pub struct EntryUndo {
    /// Such as `h12`.
    pub entry: String,
    /// These of its paths, also if they are shared; none means all that are not.
    pub paths: Option<Vec<String>>,
    /// Report what would happen, change nothing.
    pub dry_run: bool,
    /// All or nothing.
    pub atomic: bool,
}

impl App {
    /// A page of the entries that this caller may see, newest first.
    ///
    /// # Errors
    /// There is no history, or the caller may not read it.
    pub fn history_page(&self, caller: &Caller, query: &HistoryQuery) -> Result<Value> {
        check_reader(caller)?;
        let viewer = viewer_of(&caller.principal);
        let before = query.before.as_deref().map(str::parse::<EntryId>);
        let filter = EntryFilter {
            viewer: viewer.clone(),
            path: (query.path.as_deref()).map(|path| names::unescape(path).into_owned()),
            session: query.session.clone(),
            before: before.transpose()?,
            // One more, to know whether there are more.
            limit: query.limit.saturating_add(1),
            ..EntryFilter::default()
        };
        let history = self.history()?;
        let mut found = history.list(&filter)?;
        let has_more = found.len() > query.limit;
        found.truncate(query.limit);
        let next = found.last().filter(|_| has_more);
        let next = next.map(|entry| entry.id.to_string());
        let mut entries = Vec::new();
        for entry in &found {
            // Retention may have removed it since.
            if let Ok(detail) = history.show(entry.id, &viewer) {
                entries.push(listed(entry, &detail.changes));
            }
        }
        Ok(json!({"entries": entries, "next": next}))
    }

    /// One entry with a diff of each of its files.
    ///
    /// # Errors
    /// There is no such entry, or this caller may not see it.
    pub fn history_entry(&self, caller: &Caller, entry: &str) -> Result<Value> {
        check_reader(caller)?;
        let deadline = Instant::now() + self.config().mcp.tools.read_timeout() / 2;
        let history = self.history()?;
        let detail = history.show(entry.parse()?, &viewer_of(&caller.principal))?;
        let mut document = listed(&detail.entry, &detail.changes);
        let mut room = MAX_ALL_DIFFS_BYTES;
        let shown = detail.changes.iter().take(MAX_SHOWN_FILES);
        let changes = shown.map(|change| {
            let has_room = room > 0 && Instant::now() < deadline;
            let (diff, note) = match has_room {
                true => diff_of(history, change),
                false => {
                    let note = format!(
                        "no room for this diff: llmc history show {}",
                        detail.entry.id
                    );
                    (String::new(), Some(note))
                }
            };
            room = room.saturating_sub(diff.len());
            let mut shown = file(change);
            shown["before"] = state(&change.before);
            shown["after"] = state(&change.after);
            shown["shared"] = change.shared.into();
            shown["undone_by"] = json!(change.undone_by.map(|id| id.to_string()));
            shown["diff"] = diff.into();
            shown["note"] = json!(note);
            shown
        });
        document["changes"] = changes.collect();
        document["more_files"] = detail.changes.len().saturating_sub(MAX_SHOWN_FILES).into();
        document["steps"] = json!(detail.steps);
        Ok(document)
    }

    /// Takes an entry back, as a call of the tool `undo`; `call` has its name.
    pub async fn undo_entry(self: &Arc<App>, call: Call, wanted: EntryUndo) -> CallOutcome {
        self.call_with(call, None, move |_, cx, _| {
            Box::pin(async move {
                cx.blocking(move |cx, stop| {
                    let request = undo_request(cx, wanted, stop)?;
                    seal(cx, stop, &undo::carry_out(cx, &request)?)
                })
                .await
            })
        })
        .await
    }
}

/// Paths are found among those of the entry: one that is shown escaped, or is gone, or is a link, is the one meant.
fn undo_request(cx: &Cx, wanted: EntryUndo, stop: &CancelToken) -> Result<UndoRequest> {
    let viewer = viewer_of(&cx.caller().principal);
    let id: EntryId = wanted.entry.parse()?;
    let mut paths = Vec::new();
    if let Some(named) = &wanted.paths {
        let detail = cx.app().history()?.show(id, &viewer)?;
        for name in named {
            let of_change = |change: &PathChange| {
                let from = moved_from(change).filter(|from| names::escape(from) == *name);
                let own = (names::escape(&change.path) == *name).then_some(&change.path);
                own.or(from).cloned()
            };
            let found = detail.changes.iter().find_map(of_change);
            paths.push(found.ok_or_else(|| {
                Error::bad_args(format!("{id} did not change {name:?}"))
                    .hint("name paths as the entry lists them")
            })?);
        }
        if paths.is_empty() {
            return Err(Error::bad_args("paths is empty").hint("leave it out to undo all of them"));
        }
    }
    Ok(UndoRequest {
        target: UndoTarget::Entry(id),
        force_shared: paths.clone(),
        paths,
        dry_run: wanted.dry_run,
        atomic: wanted.atomic,
        viewer,
        author: author(cx.caller(), undo::NAME, wanted.entry),
        cancel: stop.clone(),
    })
}

fn listed(entry: &Entry, changes: &[PathChange]) -> Value {
    let head = match (&entry.head_before, &entry.head_after) {
        (None, None) => None,
        (before, after) => Some(json!({"before": before, "after": after})),
    };
    json!({
        "id": entry.id.to_string(),
        "time": iso(entry.time_ms),
        "agent": entry.author.agent,
        "session": entry.author.session,
        "tool": entry.author.tool,
        "args": entry.author.args_short,
        "source": entry.source,
        "shared": entry.shared,
        "undoes": entry.undoes,
        "undone_by": entry.undone_by,
        "undone": entry.undone,
        "not_undoable": entry.not_undoable,
        "head": head,
        "not_kept": entry.counts.not_kept,
        "ignored": entry.counts.ignored,
        "counts": {
            "created": entry.counts.created,
            "changed": entry.counts.changed,
            "deleted": entry.counts.deleted,
            "moved": entry.counts.moved,
        },
        "files": changes.iter().take(MAX_LISTED_FILES).map(file).collect::<Vec<_>>(),
    })
}

fn file(change: &PathChange) -> Value {
    let action = match &change.action {
        ChangeAction::Created => "created",
        ChangeAction::Changed => "changed",
        ChangeAction::Deleted => "deleted",
        ChangeAction::Moved { .. } => "moved",
    };
    json!({
        "path": names::escape(&change.path),
        "action": action,
        "from": moved_from(change).map(|from| names::escape(from)),
        // Whether undo knows what was there, and what it must find.
        "kept": change.before.not_kept().or(change.after.not_kept()).is_none(),
    })
}

fn moved_from(change: &PathChange) -> Option<&Vec<u8>> {
    match &change.action {
        ChangeAction::Moved { from } => Some(from),
        _ => None,
    }
}

fn state(state: &PathState) -> Value {
    let mode = |mode: &u32| format!("{mode:04o}");
    match state {
        PathState::Absent => json!({"kind": "absent"}),
        PathState::File {
            mode: bits, size, ..
        }
        | PathState::FileNotKept {
            mode: bits, size, ..
        } => {
            json!({"kind": "file", "mode": mode(bits), "size": size})
        }
        PathState::Link { .. } => json!({"kind": "link"}),
        PathState::Dir { mode: bits } => json!({"kind": "dir", "mode": mode(bits)}),
    }
}

/// The diff of one file, and what it does not show.
fn diff_of(history: &History, change: &PathChange) -> (String, Option<String>) {
    let states = [&change.before, &change.after];
    if let Some(why) = states.iter().find_map(|state| state.not_kept()) {
        return (String::new(), Some(format!("not kept: {}", why.text())));
    }
    if states.iter().all(|state| state.content().is_none()) {
        return (String::new(), None);
    }
    let from = moved_from(change).unwrap_or(&change.path);
    let version = |path: &[u8], state: &PathState| match state {
        PathState::File { size, .. } if *size > FILE_LIMIT => Ok(Version::Large(*size)),
        // The rules on names may have become stricter since, and a content may be damaged.
        state => match history.content(path, state) {
            Ok(Some(bytes)) => Ok(Version::Bytes(bytes)),
            Ok(None) => Ok(Version::Absent),
            Err(error) => Err(error.to_string()),
        },
    };
    let versions = version(from, &change.before).and_then(|before| {
        let after = version(&change.path, &change.after)?;
        Ok((before, after))
    });
    let (before, after) = match versions {
        Ok(versions) => versions,
        Err(why) => return (String::new(), Some(why)),
    };
    let names = (names::escape(from), names::escape(&change.path));
    let mut diff = Comparison::default();
    diff.add((&names.0, &names.1), &before, &after);
    let is_odd = diff.odd > 0;
    let mut text = diff.text;
    if text.is_empty() {
        return (text, None);
    }
    if !text.starts_with("--- ") {
        return (String::new(), Some(text.trim_end().to_owned()));
    }
    if !text.lines().any(|line| line.starts_with("@@ ")) {
        return (String::new(), Some("an empty file".to_owned()));
    }
    let mut notes = Vec::new();
    if is_odd {
        notes.push("not all UTF-8, odd bytes shown as \u{fffd}".to_owned());
    }
    if text.len() > MAX_DIFF_BYTES {
        notes.push(format!(
            "the first {MAX_DIFF_BYTES} of {} bytes",
            text.len()
        ));
        let end = text.floor_char_boundary(MAX_DIFF_BYTES);
        let end = text[..end].rfind('\n').map_or(end, |at| at + 1);
        text.truncate(end);
    }
    let note = (!notes.is_empty()).then(|| notes.join("; "));
    (text, note)
}
