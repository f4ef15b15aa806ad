//! What is known about a stored result besides its bytes.

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::HandleId;

/// Free-form facts about a result, such as the `path` and `root` it came from.
pub type Meta = Map<String, Value>;

/// What the caller says about a result before it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Draft {
    /// The principal that may read it back.
    pub owner: String,
    /// What kind of result it is: `file_content`, `fs_list`, `search_hits`, `command`, `te`, …
    pub kind: String,
    /// Kept and given back as it is.
    pub meta: Meta,
    /// The file that the bytes were read from, so that a reader can see whether it changed since.
    pub source: Option<SourceStamp>,
    /// Under which rules it was made; kept for who checks them at a read, and never part of `meta`.
    pub rules: Option<Value>,
    /// How long to keep it, when not the store's own time.
    pub ttl: Option<Duration>,
}

impl Draft {
    /// A draft with no facts but these two.
    pub fn new(owner: impl Into<String>, kind: impl Into<String>) -> Self {
        Self {
            owner: owner.into(),
            kind: kind.into(),
            meta: Meta::new(),
            source: None,
            rules: None,
            ttl: None,
        }
    }

    /// Adds one fact.
    pub fn with(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.meta.insert(key.into(), value.into());
        self
    }

    /// Says which state of which file the bytes came from.
    pub fn from_source(mut self, source: SourceStamp) -> Self {
        self.source = Some(source);
        self
    }

    /// Says under which rules it was made.
    pub fn under(mut self, rules: Value) -> Self {
        self.rules = Some(rules);
        self
    }

    /// Sets its own time to live.
    pub fn living(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }
}

/// One state of one file. Equal stamps mean the same content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceStamp {
    /// As the caller will open it again.
    pub path: PathBuf,
    /// Length in bytes.
    pub size: u64,
    /// Modification time, nanoseconds since the epoch.
    pub mtime_ns: i64,
    /// 64 hex digits.
    pub sha256: String,
}

/// What a handle stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload<'a> {
    /// These bytes, kept in the store.
    Bytes(&'a [u8]),
    /// A file too large to copy (above [`BYTES_KEPT_LIMIT`](super::BYTES_KEPT_LIMIT)), kept by name and stamp only.
    File(SourceStamp),
}

impl<'a> From<&'a [u8]> for Payload<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Payload::Bytes(bytes)
    }
}

impl<'a> From<&'a str> for Payload<'a> {
    fn from(text: &'a str) -> Self {
        Payload::Bytes(text.as_bytes())
    }
}

impl From<SourceStamp> for Payload<'_> {
    fn from(stamp: SourceStamp) -> Self {
        Payload::File(stamp)
    }
}

/// A stored result as its owner sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct HandleInfo {
    /// Its name.
    pub id: HandleId,
    /// As the draft said.
    pub kind: String,
    /// As the draft said.
    pub meta: Meta,
    /// Length of the whole result.
    pub total_bytes: u64,
    /// When it was complete.
    pub created: Timestamp,
    /// From this moment on it is gone.
    pub expires: Timestamp,
    /// The file it came from, or stands for.
    pub source: Option<SourceStamp>,
    /// As the draft said.
    pub rules: Option<Value>,
    /// Where its bytes are.
    pub kept: Kept,
}

/// Where the bytes of a handle are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// In the store.
    Bytes,
    /// In the file that [`HandleInfo::source`] names, if it is still the same.
    File,
}

/// A stretch of a stored result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The bytes, no more than asked for.
    pub bytes: Vec<u8>,
    /// Where they start.
    pub offset: u64,
    /// Length of the whole result.
    pub total_bytes: u64,
    /// Whether they reach the end.
    pub eof: bool,
}

/// How full the store is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Results that can be read.
    pub count: u64,
    /// Bytes they take, compressed, with those still being written.
    pub bytes: u64,
}

/// What a sweep removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
    /// Expired results, and unfinished writes.
    pub expired: u64,
    /// Results that had to make room.
    pub evicted: u64,
}
