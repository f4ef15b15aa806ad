//! History of the workspace: what every call changed, and how it is taken back.
//!
//! Owns entries, the contents they refer to, and undo. Must not know tools, answers or commands; the agent's files are
//! reached through `llmc-host` alone.
//!
//! A call that may change files holds a [`Recording`] while it runs. What it changed is found by comparing the workspace with
//! the snapshot, the newest state that history knows of every path; the differences become an [`Entry`], and their contents
//! are kept by hash in one SQLite file that all servers of the workspace share, or in the database that a team shares.
//!
//! - [`History`]: the store and the snapshot of one workspace
//! - [`Recording`]: the changes of one call
//! - [`Entry`], [`PathChange`], [`PathState`]: what is recorded
//! - [`UndoRequest`], [`UndoReport`]: taking changes back
//! - `objects`, `store`: contents by git's blob id; rows, on SQLite and on PostgreSQL
//! - `snapshot`, `child_map`: the newest state of every path
//! - `compare`, `listing`, `stamps`, `watch`: which paths differ, and looking at as few of them as possible
//! - `commit`, `restore`, `retention`: writing entries, putting states back, how long entries stay
//! - `keeper`, `server`: the background thread; which servers of the workspace run
//! - `head`: which commit is checked out
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod child_map;
mod commit;
mod compare;
mod entry;
mod error;
mod head;
mod history;
mod keeper;
mod listing;
mod objects;
mod recording;
mod restore;
mod retention;
mod server;
mod snapshot;
mod stamps;
mod store;
mod undo;
mod watch;

#[cfg(test)]
mod tests;

/// The same tests on the database that servers share.
#[cfg(test)]
#[path = "tests/mod.rs"]
#[allow(clippy::duplicate_mod, reason = "one test suite for both engines")]
mod tests_on_postgres;

pub use entry::{
    ChangeAction, ChangeAuthor, ChangeCounts, Entry, EntryDetail, EntryFilter, EntryId,
    EntrySource, HistoryViewer, NotKeptReason, ObjectId, PastState, PathChange, PathState,
};
pub use error::{Error, Result};
pub use history::{History, HistoryCheck, HistorySettings, HistoryState, HistorySwept};
pub use recording::{HeadMove, Recorded, Recording};
pub use store::sqlite::{HISTORY_FILE, HISTORY_VERSION};
pub use undo::{UndoConflict, UndoReport, UndoRequest, UndoTarget};
