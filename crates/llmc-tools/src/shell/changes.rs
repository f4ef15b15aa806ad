//! What a command on a copy-on-write view would have changed, as a list and a diff.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use llmc_enrich::thousands;
use llmc_exec::{LayerChange, LayerChanges, LayerEntry, LayerEntryKind};
use llmc_host::walk::IgnoreLookup;
use llmc_host::{CancelToken, Roots, is_protected_name, names, protected_git_entry};
use schemars::JsonSchema;
use serde::Serialize;

use crate::compare::{Comparison, FILE_LIMIT, Version};
use crate::cx::Cx;
use crate::error::{Error, ErrorKind, Result};

/// Bytes of a ref that are looked at.
const MAX_REF_BYTES: u64 = 256;
/// Digits of a commit that are shown.
const ID_DIGITS: usize = 8;

/// Everything that would have changed.
#[derive(Debug, Default)]
pub(crate) struct ViewChanges {
    /// In the order of their paths.
    pub(crate) list: Vec<ViewChange>,
    /// What differs in text files, as a unified diff.
    pub(crate) diff: String,
    /// Changes that git ignores: build products, caches.
    pub(crate) ignored: u64,
    pub(crate) notes: Vec<String>,
}

/// One change.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ViewChange {
    pub(crate) path: String,
    #[schemars(extend("enum" = ["created", "changed", "deleted", "mode", "link", "git"]))]
    pub(crate) change: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(extend("x-help" = "sizes, modes, a link's target"))]
    pub(crate) detail: String,
}

impl ViewChange {
    /// `mode run.sh (0644 → 0755)`.
    pub(crate) fn line(&self) -> String {
        match self.detail.is_empty() {
            true => format!("{} {}", self.change, self.path),
            false => format!("{} {} ({})", self.change, self.path, self.detail),
        }
    }
}

impl ViewChanges {
    /// Compares what a command wrote with what is there.
    ///
    /// # Errors
    /// The layers cannot be read, or the call was cancelled.
    pub(crate) fn of(
        cx: &Cx,
        changes: &LayerChanges<'_>,
        stop: &CancelToken,
    ) -> Result<ViewChanges> {
        let unreadable = |error: std::io::Error| {
            let message = format!("what the command wrote cannot be read: {error}");
            Error::new(ErrorKind::Internal, message)
        };
        let mut collector = Collector {
            roots: &cx.files().roots,
            changes,
            ignores: Vec::new(),
            found: ViewChanges::default(),
            diff: Comparison::default(),
            elsewhere: 0,
            git: 0,
            protected: Vec::new(),
        };
        let mut gone: Option<&Path> = None;
        for (at, change) in changes.list.iter().enumerate() {
            stop.check()?;
            if change.after.is_none() && gone.is_some_and(|dir| change.path.starts_with(dir)) {
                // Counted with the folder that is deleted.
                continue;
            }
            let later = changes.list[at + 1..].iter();
            let below = later.take_while(|later| later.path.starts_with(&change.path));
            if is_dir(change.before) && change.after.is_none() {
                gone = Some(&change.path);
                let files = below.filter(|below| below.after.is_none() && !is_dir(below.before));
                collector.add_deleted_dir(change, files.count() as u64);
                continue;
            }
            let is_filled = below.clone().any(|below| below.path != change.path);
            collector.add(change, is_filled).map_err(unreadable)?;
        }
        Ok(collector.finish())
    }

    /// `2 created, 1 changed, 3 deleted`.
    pub(crate) fn summary(&self) -> String {
        let mut parts = Vec::new();
        for kind in ["created", "changed", "deleted", "mode", "link", "git"] {
            let count = self
                .list
                .iter()
                .filter(|change| change.change == kind)
                .count();
            if count > 0 {
                parts.push(format!("{} {kind}", thousands(count as u64)));
            }
        }
        if self.ignored > 0 {
            parts.push(format!(
                "{} ignored by git, not listed",
                thousands(self.ignored)
            ));
        }
        match parts.is_empty() {
            true => "nothing".to_owned(),
            false => parts.join(", "),
        }
    }
}

struct Collector<'a> {
    roots: &'a Roots,
    changes: &'a LayerChanges<'a>,
    /// One for each writable place, made when first needed.
    ignores: Vec<Option<IgnoreLookup>>,
    found: ViewChanges,
    diff: Comparison,
    /// Changes in writable places that are no roots.
    elsewhere: u64,
    /// Changes of git's own files.
    git: u64,
    /// Protected names that would have been made.
    protected: Vec<String>,
}

impl Collector<'_> {
    fn add(&mut self, change: &LayerChange, is_filled: bool) -> std::io::Result<()> {
        if !self.roots.paths().any(|root| change.path.starts_with(root)) {
            self.elsewhere += 1;
            return Ok(());
        }
        let shown = self.roots.display_absolute(&change.path);
        let below = change.below();
        let is_git = |part: &OsString| part.as_bytes().eq_ignore_ascii_case(b".git");
        if change.after.is_some() && is_protected(below, change.before.is_none()) {
            self.protected.push(shown.clone());
        }
        if let Some(at) = below.iter().position(is_git) {
            return self.add_git(change, &below[at + 1..], shown);
        }
        if self.is_ignored(change) {
            let is_file = !(is_dir(change.before) || is_dir(change.after));
            self.found.ignored += u64::from(is_file);
            return Ok(());
        }
        match (change.before, change.after) {
            (Some(was), Some(is)) if was.kind == is.kind => {
                self.add_changed(change, was, is, shown)
            }
            (was, Some(is)) => self.add_created(change, was, is, is_filled, shown),
            (Some(was), None) => {
                let detail = match was.kind {
                    LayerEntryKind::File => format!("{} bytes", thousands(was.size)),
                    LayerEntryKind::Link => self.target(change, Side::Before)?,
                    LayerEntryKind::Directory => "folder".to_owned(),
                    LayerEntryKind::Special => "special file".to_owned(),
                };
                self.push("deleted", shown, detail);
                Ok(())
            }
            (None, None) => Ok(()),
        }
    }

    /// A folder that goes with all that is in it.
    fn add_deleted_dir(&mut self, change: &LayerChange, files: u64) {
        let is_git = change.below().iter().any(|part| part == ".git");
        if !self.roots.paths().any(|root| change.path.starts_with(root)) {
            self.elsewhere += files.max(1);
        } else if is_git && change.path.file_name().is_none_or(|name| name != ".git") {
            self.git += files;
        } else if self.is_ignored(change) {
            self.found.ignored += files;
        } else {
            let files = match files {
                1 => "1 file".to_owned(),
                files => format!("{} files", thousands(files)),
            };
            let shown = self.roots.display_absolute(&change.path);
            self.push("deleted", format!("{shown}/"), files);
        }
    }

    fn add_changed(
        &mut self,
        change: &LayerChange,
        was: LayerEntry,
        is: LayerEntry,
        shown: String,
    ) -> std::io::Result<()> {
        if was.kind == LayerEntryKind::Link {
            let (old, new) = (
                self.target(change, Side::Before)?,
                self.target(change, Side::After)?,
            );
            self.push("link", shown, format!("{new}, was {old}"));
            return Ok(());
        }
        if was.mode != is.mode {
            self.push(
                "mode",
                shown.clone(),
                format!("{:04o} → {:04o}", was.mode, is.mode),
            );
        }
        if was.kind != LayerEntryKind::File {
            return Ok(());
        }
        let (old, new) = (
            self.version(change, Side::Before)?,
            self.version(change, Side::After)?,
        );
        if let (Version::Bytes(old), Version::Bytes(new)) = (&old, &new)
            && old == new
        {
            return Ok(());
        }
        let detail = match self.add_diff(&shown, &change.path, &old, &new) {
            true => String::new(),
            false => format!("{} → {} bytes", thousands(was.size), thousands(is.size)),
        };
        self.push("changed", shown, detail);
        Ok(())
    }

    fn add_created(
        &mut self,
        change: &LayerChange,
        was: Option<LayerEntry>,
        is: LayerEntry,
        is_filled: bool,
        shown: String,
    ) -> std::io::Result<()> {
        let mut detail = match is.kind {
            LayerEntryKind::Link => {
                let target = self.target(change, Side::After)?;
                self.push("link", shown, target);
                return Ok(());
            }
            LayerEntryKind::Directory if is_filled && was.is_none() => return Ok(()),
            LayerEntryKind::Directory => "folder".to_owned(),
            LayerEntryKind::Special => "special file".to_owned(),
            LayerEntryKind::File => {
                let new = self.version(change, Side::After)?;
                match self.add_diff(&shown, &change.path, &Version::Absent, &new) {
                    true => String::new(),
                    false => format!("{} bytes", thousands(is.size)),
                }
            }
        };
        if let Some(was) = was {
            let was = match was.kind {
                LayerEntryKind::File => "was a file",
                LayerEntryKind::Directory => "was a folder",
                LayerEntryKind::Link => "was a link",
                LayerEntryKind::Special => "was a special file",
            };
            detail = match detail.is_empty() {
                true => was.to_owned(),
                false => format!("{detail}, {was}"),
            };
        }
        self.push("created", shown, detail);
        Ok(())
    }

    /// Refs are listed with what they would point to; of the rest only the number is given.
    fn add_git(
        &mut self,
        change: &LayerChange,
        inner: &[OsString],
        shown: String,
    ) -> std::io::Result<()> {
        let is_file = |entry: Option<LayerEntry>| {
            entry.is_none_or(|entry| entry.kind == LayerEntryKind::File)
        };
        let name = inner
            .first()
            .map(|part| part.as_bytes())
            .unwrap_or_default();
        let is_ref =
            matches!(name, b"HEAD" | b"refs") && is_file(change.before) && is_file(change.after);
        if !is_ref {
            self.git += u64::from(is_file(change.before) && is_file(change.after));
            return Ok(());
        }
        let value = |content: Option<Vec<u8>>| {
            let text = String::from_utf8_lossy(&content.unwrap_or_default())
                .trim()
                .to_owned();
            match text.len() >= 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                true => text[..ID_DIGITS].to_owned(),
                false if text.is_empty() => "nothing".to_owned(),
                false => names::escape(text.as_bytes()),
            }
        };
        let old = value(self.changes.content_before(change, MAX_REF_BYTES)?);
        let new = value(self.changes.content_after(change, MAX_REF_BYTES)?);
        self.push("git", shown, format!("{old} → {new}"));
        Ok(())
    }

    fn push(&mut self, change: &'static str, path: String, detail: String) {
        self.found.list.push(ViewChange {
            path,
            change,
            detail,
        });
    }

    /// Adds a file to the diff; `false` if its text cannot or may not be shown.
    fn add_diff(&mut self, shown: &str, path: &Path, old: &Version, new: &Version) -> bool {
        let rules = self.roots.rules();
        let is_text = |version: &Version| match version {
            Version::Bytes(bytes) => !llmc_enrich::sniff::is_binary(bytes),
            Version::Absent => true,
            Version::Large(_) => false,
        };
        if (rules.denylist_reads() && rules.is_denylisted(path)) || !is_text(old) || !is_text(new) {
            return false;
        }
        self.diff
            .add((&format!("a/{shown}"), &format!("b/{shown}")), old, new);
        true
    }

    fn version(&self, change: &LayerChange, side: Side) -> std::io::Result<Version> {
        let (entry, content) = match side {
            Side::Before => (
                change.before,
                self.changes.content_before(change, FILE_LIMIT),
            ),
            Side::After => (change.after, self.changes.content_after(change, FILE_LIMIT)),
        };
        let size = entry.map_or(0, |entry| entry.size);
        // A file of the host that cannot be read any more is described by its size.
        Ok(match content {
            Ok(Some(bytes)) => Version::Bytes(bytes),
            Ok(None) | Err(_) => Version::Large(size),
        })
    }

    fn target(&self, change: &LayerChange, side: Side) -> std::io::Result<String> {
        let content = match side {
            Side::Before => self.changes.content_before(change, FILE_LIMIT)?,
            Side::After => self.changes.content_after(change, FILE_LIMIT)?,
        };
        Ok(format!(
            "-> {}",
            names::escape(&content.unwrap_or_default())
        ))
    }

    fn is_ignored(&mut self, change: &LayerChange) -> bool {
        let at = change.place();
        if self.ignores.len() <= at {
            self.ignores.resize_with(at + 1, || None);
        }
        if self.ignores[at].is_none() {
            let dir = self
                .changes
                .place_dir(at)
                .and_then(|dir| dir.try_clone().ok());
            self.ignores[at] = dir.map(IgnoreLookup::new);
        }
        let parts: Vec<&[u8]> = change.below().iter().map(|part| part.as_bytes()).collect();
        let entry = change.after.or(change.before);
        let is_dir = entry.is_some_and(|entry| entry.kind == LayerEntryKind::Directory);
        let ignores = self.ignores[at].as_mut();
        ignores.is_some_and(|ignores| ignores.is_ignored(&parts.join(&b'/'), is_dir))
    }

    fn finish(mut self) -> ViewChanges {
        let mut notes = Vec::new();
        if self.git > 0 {
            notes.push(format!("{} more files in .git", thousands(self.git)));
        }
        if self.elsewhere > 0 {
            notes.push(format!(
                "{} changes in writable places outside the roots are not listed",
                thousands(self.elsewhere)
            ));
        }
        if !self.protected.is_empty() {
            const NAMED: usize = 5;
            let named = self
                .protected
                .iter()
                .take(NAMED)
                .cloned()
                .collect::<Vec<_>>();
            let more = self.protected.len().saturating_sub(NAMED);
            let more = if more > 0 {
                format!(" and {more} more")
            } else {
                String::new()
            };
            notes.push(format!(
                "protected names, of which a real run would keep only what is harmless: {}{more}",
                named.join(", ")
            ));
        }
        if !self.changes.is_complete {
            notes.push(
                "not everything that it changed is listed: too much, or unreadable".to_owned(),
            );
        }
        if self.diff.odd > 0 {
            notes.push("not all UTF-8, odd bytes shown as \u{fffd}".to_owned());
        }
        self.found.diff = self.diff.text;
        self.found.notes = notes;
        self.found
    }
}

fn is_dir(entry: Option<LayerEntry>) -> bool {
    entry.is_some_and(|entry| entry.kind == LayerEntryKind::Directory)
}

#[derive(Debug, Clone, Copy)]
enum Side {
    Before,
    After,
}

/// Whether a path decides over the agent or over what git runs.
fn is_protected(below: &[OsString], is_new: bool) -> bool {
    let parts: Vec<&[u8]> = below.iter().map(|part| part.as_bytes()).collect();
    let git = parts
        .iter()
        .position(|part| part.eq_ignore_ascii_case(b".git"));
    match git {
        Some(at) if at + 1 == parts.len() => is_new,
        // Samples come with every repository.
        Some(at) => {
            protected_git_entry(&parts[at + 1..]).is_some()
                && !parts.last().is_some_and(|name| name.ends_with(b".sample"))
        }
        None => parts.last().is_some_and(|name| is_protected_name(name)),
    }
}
