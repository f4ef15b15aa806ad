//! What a command changed in a git directory, by name: when it is merged, and what need not be.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// One name that the command changed.
pub(super) struct Change {
    pub(super) parts: Vec<OsString>,
    pub(super) kind: ChangeKind,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ChangeKind {
    Directory,
    File,
    Deleted,
}

/// The order in which changes are merged.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    Objects,
    Logs,
    Other,
    PackedRefs,
    Refs,
    Head,
    Index,
    DeletedObjects,
}

impl Change {
    pub(super) fn stage(&self) -> Stage {
        let holds = |name: &str| self.parts.iter().any(|part| part == name);
        let last = self.parts.last().map(OsString::as_os_str);
        let is = |name: &str| last == Some(OsStr::new(name));
        if holds("objects") {
            match self.kind {
                ChangeKind::Deleted => Stage::DeletedObjects,
                _ => Stage::Objects,
            }
        } else if holds("logs") {
            Stage::Logs
        } else if holds("refs") {
            Stage::Refs
        } else if is("packed-refs") {
            Stage::PackedRefs
        } else if is("HEAD") {
            Stage::Head
        } else if is("index") {
            Stage::Index
        } else {
            Stage::Other
        }
    }

    pub(super) fn shown(&self) -> String {
        let path: PathBuf = self.parts.iter().collect();
        path.display().to_string()
    }

    /// Whether its name says what is in it, so that the host's file of that name is the same.
    pub(super) fn is_named_by_content(&self) -> bool {
        let is_hex = |name: &OsStr, digits: &[usize]| {
            let bytes = name.as_bytes();
            digits.contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_hexdigit)
        };
        match self.parts.as_slice() {
            [.., dir, name] if dir == "pack" => name.as_bytes().starts_with(b"pack-"),
            [.., objects, dir, name] if objects == "objects" => {
                is_hex(dir, &[2]) && is_hex(name, &[38, 62])
            }
            _ => false,
        }
    }

    /// What a git that was ended leaves behind.
    pub(super) fn is_left_over(&self) -> bool {
        let name = self.parts.last().map(|name| name.as_bytes());
        let name = name.unwrap_or_default();
        let in_objects = self.parts.iter().any(|part| part == "objects");
        name.ends_with(b".lock") || name == b"gc.pid" || (in_objects && name.starts_with(b"tmp_"))
    }
}
