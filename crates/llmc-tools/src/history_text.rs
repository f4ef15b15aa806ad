//! Entries of the history as answers show them.

use jiff::Timestamp;
use llmc_history::{ChangeAction, Entry, EntryDetail, EntrySource, History, PathChange, PathState};
use llmc_host::{CancelToken, names};
use schemars::JsonSchema;
use serde::Serialize;

use crate::compare::{Comparison, FILE_LIMIT, Version};
use crate::error::Result;

/// An entry in a list.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct ListedEntry {
    pub(crate) entry: String,
    pub(crate) time_iso: String,
    #[schemars(with = "String", extend("enum" = ["call", "outside", "undo"]))]
    pub(crate) source: EntrySource,
    pub(crate) agent: String,
    pub(crate) session: String,
    pub(crate) tool: String,
    pub(crate) args: String,
    pub(crate) created: u64,
    pub(crate) changed: u64,
    pub(crate) deleted: u64,
    pub(crate) moved: u64,
    #[schemars(extend("x-help" = "paths whose content is not kept"))]
    pub(crate) not_kept: u64,
    #[schemars(extend("x-help" = "changed files that git ignores, which are not recorded"))]
    pub(crate) ignored: u64,
    #[schemars(extend("x-help" = "another writer was active meanwhile"))]
    pub(crate) shared: bool,
    #[schemars(extend("x-help" = "changes taken back so far"))]
    pub(crate) undone: u64,
    pub(crate) undone_by: Option<String>,
    pub(crate) undoes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-help" = "the commits before and after, where HEAD moved"))]
    pub(crate) head: Option<[String; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) not_undoable: Option<String>,
}

impl ListedEntry {
    pub(crate) fn of(entry: &Entry) -> ListedEntry {
        let head = match (&entry.head_before, &entry.head_after) {
            (None, None) => None,
            (before, after) => Some([
                before.clone().unwrap_or_default(),
                after.clone().unwrap_or_default(),
            ]),
        };
        let author = &entry.author;
        ListedEntry {
            entry: entry.id.to_string(),
            time_iso: iso(entry.time_ms),
            source: entry.source,
            agent: author.agent.clone(),
            session: author.session.clone(),
            tool: author.tool.clone(),
            args: author.args_short.clone(),
            created: entry.counts.created,
            changed: entry.counts.changed,
            deleted: entry.counts.deleted,
            moved: entry.counts.moved,
            not_kept: entry.counts.not_kept,
            ignored: entry.counts.ignored,
            shared: entry.shared,
            undone: entry.undone,
            undone_by: entry.undone_by.map(|id| id.to_string()),
            undoes: entry.undoes.iter().map(ToString::to_string).collect(),
            head,
            not_undoable: entry.not_undoable.clone(),
        }
    }

    /// `h12 2026-01-02T03:04:05Z claude run_cmd(make fmt): 2 changed, 1 deleted`
    pub(crate) fn line(&self) -> String {
        let by = match self.source {
            EntrySource::Outside => "outside".to_owned(),
            EntrySource::Undo => format!("{} undid {}", self.agent, self.undoes.join(", ")),
            EntrySource::Call => format!("{} {}({})", self.agent, self.tool, self.args),
        };
        format!(
            "{} {} {by}: {}",
            self.entry,
            self.time_iso,
            self.counts().join(", ")
        )
    }

    /// What happened, in words.
    pub(crate) fn counts(&self) -> Vec<String> {
        let mut counts: Vec<String> = [
            (self.created, "created"),
            (self.changed, "changed"),
            (self.deleted, "deleted"),
            (self.moved, "moved"),
            (self.not_kept, "not kept"),
            (self.ignored, "ignored not recorded"),
        ]
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{count} {word}"))
        .collect();
        if self.shared {
            counts.push("shared".to_owned());
        }
        if let Some([before, after]) = &self.head {
            counts.push(format!("HEAD {} to {}", short(before), short(after)));
        }
        if let Some(by) = &self.undone_by {
            counts.push(format!("undone by {by}"));
        }
        if let Some(why) = &self.not_undoable {
            counts.push(format!("not undoable: {why}"));
        }
        if counts.is_empty() {
            counts.push("nothing changed".to_owned());
        }
        counts
    }
}

/// One changed path of an entry.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ListedChange {
    pub(crate) path: String,
    #[schemars(extend("enum" = ["created", "changed", "deleted", "moved"]))]
    pub(crate) action: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) from: Option<String>,
    pub(crate) before: Option<ListedState>,
    pub(crate) after: Option<ListedState>,
    pub(crate) shared: bool,
    pub(crate) undone_by: Option<String>,
}

/// What was at a path.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ListedState {
    #[schemars(extend("enum" = ["file", "link", "dir"]))]
    pub(crate) kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mode: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-help" = "git's id of the content"))]
    pub(crate) content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) not_kept: Option<String>,
}

impl ListedState {
    pub(crate) fn of(state: &PathState) -> Option<ListedState> {
        let listed = |kind, mode: Option<u32>| ListedState {
            kind,
            mode: mode.map(|mode| format!("{mode:04o}")),
            size: None,
            content: state.content().map(|id| id.to_string()),
            not_kept: state.not_kept().map(|why| why.text().to_owned()),
        };
        Some(match state {
            PathState::Absent => return None,
            PathState::File { mode, size, .. } | PathState::FileNotKept { mode, size, .. } => {
                ListedState {
                    size: Some(*size),
                    ..listed("file", Some(*mode))
                }
            }
            PathState::Link { .. } => listed("link", None),
            PathState::Dir { mode } => listed("dir", Some(*mode)),
        })
    }
}

impl ListedChange {
    pub(crate) fn of(change: &PathChange) -> ListedChange {
        let (action, from) = match &change.action {
            ChangeAction::Created => ("created", None),
            ChangeAction::Changed => ("changed", None),
            ChangeAction::Deleted => ("deleted", None),
            ChangeAction::Moved { from } => ("moved", Some(names::escape(from))),
        };
        ListedChange {
            path: names::escape(&change.path),
            action,
            from,
            before: ListedState::of(&change.before),
            after: ListedState::of(&change.after),
            shared: change.shared,
            undone_by: change.undone_by.map(|id| id.to_string()),
        }
    }

    /// `moved a.txt to b.txt`, with what a diff of contents does not show.
    pub(crate) fn line(&self) -> String {
        let kind = |state: &Option<ListedState>| match state.as_ref().map(|state| state.kind) {
            Some("dir") => "/",
            Some("link") => "@",
            _ => "",
        };
        let mark = match &self.after {
            Some(_) => kind(&self.after),
            None => kind(&self.before),
        };
        let mut line = match &self.from {
            Some(from) => format!("{} {from} to {}{mark}", self.action, self.path),
            None => format!("{} {}{mark}", self.action, self.path),
        };
        if let (Some(before), Some(after)) = (&self.before, &self.after) {
            if before.kind != after.kind {
                line.push_str(&format!(", {} became {}", before.kind, after.kind));
            } else if before.mode != after.mode {
                let mode = |state: &ListedState| state.mode.clone().unwrap_or_default();
                line.push_str(&format!(", mode {} to {}", mode(before), mode(after)));
            }
        }
        let states = [&self.before, &self.after];
        if let Some(why) = states
            .iter()
            .find_map(|state| state.as_ref()?.not_kept.as_ref())
        {
            line.push_str(&format!(", not kept: {why}"));
        }
        if self.shared {
            line.push_str(", shared");
        }
        if let Some(by) = &self.undone_by {
            line.push_str(&format!(", undone by {by}"));
        }
        line
    }
}

/// The contents of an entry's files before and after it, as one diff.
pub(crate) fn diff_of(
    history: &History,
    detail: &EntryDetail,
    stop: &CancelToken,
) -> Result<Comparison> {
    let mut diff = Comparison::default();
    for change in &detail.changes {
        stop.check()?;
        let from = match &change.action {
            ChangeAction::Moved { from } => from,
            _ => &change.path,
        };
        let version = |path: &[u8], state: &PathState| -> Option<Version> {
            match state {
                PathState::Absent => Some(Version::Absent),
                PathState::File { size, .. } if *size > FILE_LIMIT => Some(Version::Large(*size)),
                // The rules on names may have become stricter since, and a content may be damaged: the change is listed
                // all the same.
                state => (history.content(path, state).ok()?).map(Version::Bytes),
            }
        };
        let before = version(from, &change.before);
        let after = version(&change.path, &change.after);
        if let (Some(before), Some(after)) = (before, after) {
            let names = (names::escape(from), names::escape(&change.path));
            diff.add((&names.0, &names.1), &before, &after);
        }
    }
    Ok(diff)
}

/// A commit's id as people write it; a branch's name stays.
fn short(commit: &str) -> &str {
    let is_id = commit.len() >= 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_id { &commit[..10] } else { commit }
}

/// A time as answers write it.
pub(crate) fn iso(time_ms: i64) -> String {
    Timestamp::from_millisecond(time_ms).map_or_else(
        |_| "unknown".to_owned(),
        |time| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    )
}
