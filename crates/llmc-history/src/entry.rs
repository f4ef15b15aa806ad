//! What history records: entries, the changes of each, and the states between which a path changed.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize, Serializer};

use crate::error::Error;

/// An entry's number, printed `h12`. Numbers grow with time and are never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId(pub u64);

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "h{}", self.0)
    }
}

impl FromStr for EntryId {
    type Err = Error;

    /// Accepts `h12` and `12`.
    fn from_str(text: &str) -> Result<EntryId, Error> {
        let digits = text.strip_prefix(['h', 'H']).unwrap_or(text);
        match digits.parse() {
            Ok(id) if digits.bytes().all(|b| b.is_ascii_digit()) => Ok(EntryId(id)),
            _ => Err(Error::BadRequest(format!(
                "`{text}` names no entry; entries are written h12"
            ))),
        }
    }
}

impl Serialize for EntryId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A content's name: the id that git gives a blob with these bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub [u8; 20]);

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Serialize for ObjectId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Why a file's content is not in the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NotKeptReason {
    TooLarge,
    /// Named by the denylist, or protected.
    Denied,
    /// Named by an ignore file.
    Ignored,
    Unreadable,
    /// The store has reached its size, or its disk is full.
    StoreFull,
    /// The first snapshot was not finished.
    Building,
}

impl NotKeptReason {
    /// As a part of a sentence.
    pub fn text(self) -> &'static str {
        match self {
            NotKeptReason::TooLarge => "too large to keep (mcp.history.max_file_bytes)",
            NotKeptReason::Denied => "its name is protected or on the denylist",
            NotKeptReason::Ignored => "ignored files are not kept",
            NotKeptReason::Unreadable => "it cannot be read",
            NotKeptReason::StoreFull => "the history is full (mcp.history.max_bytes)",
            NotKeptReason::Building => "the history is still being built",
        }
    }
}

/// What was at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum PathState {
    /// Nothing that history looks at; a pipe, socket or device counts as nothing.
    Absent,
    File {
        /// Permission bits and the sticky bit.
        mode: u32,
        size: u64,
        content: ObjectId,
    },
    /// A file whose content is not in the history.
    FileNotKept {
        mode: u32,
        size: u64,
        why: NotKeptReason,
    },
    /// A symbolic link; its target is the content.
    Link {
        content: ObjectId,
    },
    Dir {
        mode: u32,
    },
}

impl PathState {
    pub fn content(&self) -> Option<ObjectId> {
        match self {
            PathState::File { content, .. } | PathState::Link { content } => Some(*content),
            _ => None,
        }
    }

    pub fn not_kept(&self) -> Option<NotKeptReason> {
        match self {
            PathState::FileNotKept { why, .. } => Some(*why),
            _ => None,
        }
    }
}

/// Who makes a change, as the entry shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeAuthor {
    pub principal: String,
    pub agent: String,
    pub session: String,
    pub tool: String,
    /// The arguments in short: one line.
    pub args_short: String,
}

/// Where the changes of an entry come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EntrySource {
    /// A call.
    Call,
    /// Found between calls: the user, an editor, another program.
    Outside,
    /// An undo.
    Undo,
}

/// How many paths had which change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ChangeCounts {
    pub created: u64,
    pub changed: u64,
    pub deleted: u64,
    pub moved: u64,
    /// Of these, paths whose content before or after is not in the history.
    pub not_kept: u64,
    /// Beside these, files that git ignores, as far as the watch tells: without one it is 0, and what changes inside of an
    /// ignored directory is not counted.
    pub ignored: u64,
}

/// One recorded call, or what changed between calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entry {
    pub id: EntryId,
    /// Milliseconds since 1970. For display: entries are ordered by id.
    pub time_ms: i64,
    pub source: EntrySource,
    pub author: ChangeAuthor,
    #[serde(flatten)]
    pub counts: ChangeCounts,
    /// Whether another writer was active meanwhile, so that some of the changes may be its.
    pub shared: bool,
    /// What was checked out before and after, when that changed.
    pub head_before: Option<String>,
    pub head_after: Option<String>,
    /// What an undo took back.
    pub undoes: Vec<EntryId>,
    /// Whether all, some or none of the changes have been taken back: by the last undo of one of them.
    pub undone_by: Option<EntryId>,
    /// How many of the changes have been taken back.
    pub undone: u64,
    /// Why (part of) the call cannot be undone.
    pub not_undoable: Option<String>,
}

/// What happened to a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum ChangeAction {
    Created,
    Changed,
    Deleted,
    /// `from` is a path as [`PathChange::path`].
    Moved {
        #[serde(serialize_with = "serialize_path")]
        from: Vec<u8>,
    },
}

/// One path of an entry, before and after.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PathChange {
    /// Relative to the workspace; absolute in another root. Bytes, as names need not be text.
    #[serde(serialize_with = "serialize_path")]
    pub path: Vec<u8>,
    #[serde(flatten)]
    pub action: ChangeAction,
    pub before: PathState,
    pub after: PathState,
    pub shared: bool,
    pub undone_by: Option<EntryId>,
}

/// An entry with its changes, ordered by path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EntryDetail {
    #[serde(flatten)]
    pub entry: Entry,
    pub changes: Vec<PathChange>,
    /// What a script did, one line each.
    pub steps: Vec<String>,
}

/// A path whose state at an earlier time differs from now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PastState {
    #[serde(serialize_with = "serialize_path")]
    pub path: Vec<u8>,
    pub state: PathState,
}

/// Whose entries a request may see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HistoryViewer {
    /// The user: every entry.
    All,
    /// A named token: its own entries.
    Principal(String),
}

/// Which entries [`History::list`](crate::History::list) returns, newest first.
#[derive(Debug, Clone)]
pub struct EntryFilter {
    pub viewer: HistoryViewer,
    /// A path as [`PathChange::path`]; a directory means everything below it too.
    pub path: Option<Vec<u8>>,
    pub session: Option<String>,
    /// Entries older than this one.
    pub before: Option<EntryId>,
    /// Entries not older than this time, in milliseconds since 1970.
    pub since_ms: Option<i64>,
    pub limit: usize,
}

impl Default for EntryFilter {
    fn default() -> EntryFilter {
        EntryFilter {
            viewer: HistoryViewer::All,
            path: None,
            session: None,
            before: None,
            since_ms: None,
            limit: 50,
        }
    }
}

/// A path as the user reads it.
pub(crate) fn serialize_path<S: Serializer>(path: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&llmc_host::names::escape(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_named_by_h_and_a_number() {
        for (text, id) in [("h12", 12), ("12", 12), ("H1", 1)] {
            assert_eq!(text.parse::<EntryId>().unwrap(), EntryId(id));
        }
        for text in ["", "h", "x12", "h-1", "+1", "h1.2", "h99999999999999999999"] {
            assert!(text.parse::<EntryId>().is_err(), "{text}");
        }
        assert_eq!(EntryId(7).to_string(), "h7");
    }
}
