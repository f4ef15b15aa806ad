//! Carrying one name over from one side of a mirror to the other.

use std::io;
use std::path::Path;
use std::time::Duration;

use super::side::{Entry, Side, parts};
use super::sync::{Base, Sync};
use super::transfer::{
    HOST_LOCK_TIMEOUT, Problem, Source, copy_link, empty, make_dir, place, remove,
};
use crate::git_new::{judged, max_judged_bytes};
use crate::git_vet::{Verdict, is_judged, vet_deletion};

impl Sync<'_> {
    /// The user's side changed: the copy, which was as `copy`, becomes the same.
    pub(super) fn update_copy(
        &mut self,
        path: &Path,
        host: Option<Entry>,
        copy: Option<Entry>,
    ) -> Result<(), Problem> {
        let (from, to) = (&self.mirror.host, &self.mirror.copy);
        self.state.made.remove(path);
        let mut copy = copy;
        if let Some(old) = copy
            && host.is_none_or(|host| host.is_dir() != old.is_dir())
        {
            match host {
                // A folder made way for a file.
                Some(_) if old.is_dir() => empty(&to.dir(path)?)?,
                None if old.is_dir() => self.drop_rejected(path),
                _ => {}
            }
            remove(to, path, old)?;
            copy = None;
        }
        let made = match host {
            None | Some(Entry::Other) => None,
            Some(Entry::Directory) => {
                make_dir(to, path)?;
                Some(Entry::Directory)
            }
            Some(Entry::Link(_)) => {
                copy_link(from, to, path)?;
                to.entry(path)
            }
            Some(Entry::File(_)) => {
                // A file that is judged must never be the same file on both sides.
                let source = match is_judged(&parts(path)) {
                    true => Source::Copied(from, path),
                    false => Source::Linked(from, path),
                };
                match place(to, path, &source, copy, Duration::ZERO) {
                    // A command is changing it: what it makes of it is looked at then.
                    Err(Problem::Locked | Problem::Changed) => return Ok(()),
                    placed => placed?,
                }
            }
        };
        self.settle_as(path, host, made);
        Ok(())
    }

    /// A command changed the copy.
    pub(super) fn update_host(
        &mut self,
        path: &Path,
        host: Option<Entry>,
        copy: Option<Entry>,
    ) -> Result<(), Problem> {
        let (to, from) = (&self.mirror.host, &self.mirror.copy);
        let placed = match copy {
            None => return self.delete_on_host(path, host),
            Some(Entry::Directory) => {
                if let Some(host) = host {
                    remove(to, path, host)?;
                }
                make_dir(to, path)?;
                Some(Entry::Directory)
            }
            // No program that can be asked outlives the run.
            Some(Entry::Other) => host,
            Some(Entry::Link(_)) => {
                self.reject(path, "a link", "links are not taken over");
                host
            }
            Some(Entry::File(_)) if is_judged(&parts(path)) => return self.judge(path, host, copy),
            Some(Entry::File(_)) => place(
                to,
                path,
                &Source::Linked(from, path),
                host,
                HOST_LOCK_TIMEOUT,
            )?,
        };
        self.settle_as(path, placed, copy);
        Ok(())
    }

    pub(super) fn delete_on_host(
        &mut self,
        path: &Path,
        host: Option<Entry>,
    ) -> Result<(), Problem> {
        if let Some(entry) = host {
            let rejection = vet_deletion(&parts(path)).filter(|_| !entry.is_dir());
            if let Some(rejection) = rejection {
                self.report(rejection);
                return self.update_copy(path, host, None);
            }
            remove(&self.mirror.host, path, entry)?;
        }
        // A directory with something in it that is not mirrored stays.
        let left = self
            .mirror
            .host
            .entry(path)
            .filter(|_| host.is_some_and(Entry::is_dir));
        self.settle_as(path, left, None);
        Ok(())
    }

    /// Judges a file by its content and takes over what is harmless.
    pub(super) fn judge(
        &mut self,
        path: &Path,
        host: Option<Entry>,
        copy: Option<Entry>,
    ) -> Result<(), Problem> {
        let read = |side: &Side| side.read(path, max_judged_bytes(path));
        let new = match read(&self.mirror.copy) {
            Ok(new) => new,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(_) => {
                self.reject(path, "the file", "it is too large to be judged");
                return self.keep_own(path, host, copy);
            }
        };
        let before = self.before(path, host);
        let (git_dir, allowed) = (&self.mirror.git_dir, &self.mirror.allowed.get());
        let verdict = judged(git_dir, path, &new, before.as_deref(), allowed);
        let (content, rejected) = match verdict {
            Verdict::Harmless => (Some(new), Vec::new()),
            Verdict::Filtered { content, rejected } => (Some(content), rejected),
            Verdict::Refused(rejected) => (None, rejected),
        };
        if host.is_none() {
            // What was said of an earlier version, such as a file that was still being written, no longer holds.
            self.withdraw(path);
        }
        let is_whole = rejected.is_empty();
        rejected
            .into_iter()
            .for_each(|rejection| self.report(rejection));
        let Some(content) = content else {
            return self.keep_own(path, host, copy);
        };
        let source = match copy {
            Some(copy) => Source::Judged(&content, copy),
            None => Source::Bytes(&content),
        };
        let placed = place(&self.mirror.host, path, &source, host, HOST_LOCK_TIMEOUT)?;
        if host.is_none() {
            self.state.made.insert(path.to_owned());
        }
        self.settle_as(path, placed, copy);
        match is_whole {
            true => Ok(()),
            false => self.update_copy(path, placed, copy),
        }
    }

    /// What the user's side has of a file that is judged. Git moves lines of a rebase from one list to another, so each is
    /// compared with both.
    pub(super) fn before(&self, path: &Path, host: Option<Entry>) -> Option<Vec<u8>> {
        let read = |path: &Path| self.mirror.host.read(path, max_judged_bytes(path)).ok();
        if path.ends_with("rebase-merge/git-rebase-todo") || path.ends_with("rebase-merge/done") {
            let lists = ["done", "git-rebase-todo"].map(|name| read(&path.with_file_name(name)));
            let lists: Vec<Vec<u8>> = lists.into_iter().flatten().collect();
            return (!lists.is_empty()).then(|| lists.concat());
        }
        host.filter(|_| !self.state.made.contains(path))
            .and_then(|_| read(path))
    }

    /// The user's version is shown again; without one the command's stays in the copy alone.
    pub(super) fn keep_own(
        &mut self,
        path: &Path,
        host: Option<Entry>,
        copy: Option<Entry>,
    ) -> Result<(), Problem> {
        match host {
            Some(_) => self.update_copy(path, host, copy),
            None => {
                self.settle_as(path, None, copy);
                Ok(())
            }
        }
    }

    /// Deletes what stayed in the copy alone below a directory that the user's side no longer has.
    pub(super) fn drop_rejected(&mut self, dir: &Path) {
        let copy = &self.mirror.copy;
        self.state.base.retain(|path, base| {
            let is_own = base.host.is_none() && path != dir && path.starts_with(dir);
            let rejected = base
                .copy
                .filter(|entry| is_own && !entry.is_dir() && copy.entry(path) == Some(*entry));
            rejected.is_none_or(|entry| remove(copy, path, entry).is_err())
        });
    }

    /// Takes note of what both sides are, as far as it is known: either may have been changed again since.
    pub(super) fn settle_as(&mut self, path: &Path, host: Option<Entry>, copy: Option<Entry>) {
        let opened = || self.mirror.host.open(path).ok();
        match path.to_str() {
            Some("index") => self.state.index = opened(),
            Some("packed-refs") => self.state.packed_refs = opened(),
            _ => {}
        }
        if host.is_none() {
            self.state.made.remove(path);
        }
        match host.is_none() && copy.is_none() {
            true => self.state.base.remove(path),
            false => self.state.base.insert(path.to_owned(), Base { host, copy }),
        };
    }
}
