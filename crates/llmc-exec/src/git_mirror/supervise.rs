//! Renames in a mirror, carried out on the user's side before the call returns.
//!
//! Git replaces a file by renaming `NAME.lock` onto it. A run's filter hands these calls to the server, which puts the file in
//! place on both sides or lets the rename fail: so what git acknowledges is in the repository, and what was not taken makes git
//! fail. Removing a directory that is a mount is carried out here too, since the run cannot do it.
//!
//! In the directories of a repository that commands use as they are, no symbolic link is made: the user's git appends to logs
//! and replaces files there through a link, wherever it leads. All other links are made here, with the run's view of mounts.
//!
//! The caller's arguments may change while they are read. What is done here is done from directories that were looked up
//! once; a call that is passed on can do no more than the run could without a supervisor.

use std::ffi::{CStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use llmc_supervise::{Answer, CallListener, WaitingCall};
use nix::libc;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{self as rfs, AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::{Mirrors, lock};

/// Bytes of a path, as the kernel has it.
const MAX_PATH_BYTES: usize = 4096;
/// What git's temporary files end with that are renamed onto the file itself.
const REPLACING_ENDINGS: [&[u8]; 2] = [b".lock", b".new"];

/// A directory, by what no other has.
pub(super) type DirId = (u64, u64);

/// Answers the calls of one run until its last process has ended.
pub(in super::super) fn supervise(mirrors: &Arc<Mirrors>, descriptor: OwnedFd) {
    let mirrors = mirrors.clone();
    let listener = CallListener::new(descriptor);
    let answering = move || {
        loop {
            let mut watched = [PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN)];
            match poll(&mut watched, None) {
                Err(Errno::INTR) => continue,
                Err(_) => return,
                Ok(_) => {}
            }
            if !watched[0].revents().contains(PollFlags::IN) {
                return;
            }
            // The caller may be gone by now.
            if let Ok(call) = listener.receive() {
                let answer = Request {
                    listener: &listener,
                    call: &call,
                }
                .answer(&mirrors);
                let _ = listener.answer(&call, answer.unwrap_or(Answer::Pass));
            }
        }
    };
    let name = "llmc-renames".to_owned();
    // Without the thread the descriptor is closed, and the run's renames fail.
    let _ = std::thread::Builder::new().name(name).spawn(answering);
}

/// A call and how its arguments are read.
struct Request<'a> {
    listener: &'a CallListener,
    call: &'a WaitingCall,
}

impl Request<'_> {
    /// The answer; nothing for a call that concerns no mirror.
    fn answer(&self, mirrors: &Mirrors) -> Option<Answer> {
        let [a, b, c, d, flags, _] = self.call.arguments;
        let here = libc::AT_FDCWD as u64;
        match self.call.number {
            #[cfg(target_arch = "x86_64")]
            libc::SYS_rename => self
                .fills_emptied(mirrors, (here, a), (here, b))
                .or_else(|| self.rename(mirrors, (here, a), (here, b))),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_rmdir => self.remove_dir(mirrors, here, a),
            libc::SYS_renameat => self
                .fills_emptied(mirrors, (a, b), (c, d))
                .or_else(|| self.rename(mirrors, (a, b), (c, d))),
            libc::SYS_renameat2 => match self.fills_emptied(mirrors, (a, b), (c, d)) {
                Some(answer) => Some(answer),
                None if flags == 0 => self.rename(mirrors, (a, b), (c, d)),
                None => None,
            },
            libc::SYS_unlinkat => self.remove_dir(mirrors, a, b),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_symlink => Some(answer_of(self.make_link(mirrors, a, (here, b)))),
            libc::SYS_symlinkat => Some(answer_of(self.make_link(mirrors, a, (b, c)))),
            _ => None,
        }
    }

    /// Refuses what is moved into a git directory that was removed and is still shown, empty, for the state in it: a program that
    /// moves another repository to its place finds a directory there, and would put it inside.
    fn fills_emptied(&self, mirrors: &Mirrors, from: (u64, u64), to: (u64, u64)) -> Option<Answer> {
        let known: Vec<_> = lock(&mirrors.known).values().cloned().collect();
        if !known.iter().any(|mirror| mirror.is_emptied()) {
            return None;
        }
        let (from_path, to_path) = (self.path(from.1)?, self.path(to.1)?);
        let from_dir = id_of(&self.parent(from.0, &from_path)?)?;
        let to_dir = id_of(&self.parent(to.0, &to_path)?)?;
        let is_filled = |mirror: &Arc<super::Mirror>| mirror.is_emptied() && mirror.is_top(to_dir);
        let is_refused = from_dir != to_dir && known.iter().any(is_filled);
        (is_refused && self.listener.is_waiting(self.call)).then(|| answer_of(Err(Errno::BUSY)))
    }

    fn rename(&self, mirrors: &Mirrors, from: (u64, u64), to: (u64, u64)) -> Option<Answer> {
        let (from_path, to_path) = (self.path(from.1)?, self.path(to.1)?);
        let (from_name, to_name) = (from_path.file_name()?, to_path.file_name()?);
        let is_replacing = REPLACING_ENDINGS
            .iter()
            .any(|ending| from_name.as_bytes().strip_suffix(*ending) == Some(to_name.as_bytes()));
        if !is_replacing {
            return None;
        }
        let from_dir = self.parent(from.0, &from_path)?;
        let to_dir = self.parent(to.0, &to_path)?;
        let dir = id_of(&to_dir)?;
        if id_of(&from_dir)? != dir || !self.listener.is_waiting(self.call) {
            return None;
        }
        let known: Vec<_> = lock(&mirrors.known).values().cloned().collect();
        let done = known
            .iter()
            .find_map(|mirror| mirror.replace(dir, from_name, to_name))?;
        Some(answer_of(done))
    }

    fn remove_dir(&self, mirrors: &Mirrors, dir: u64, path: u64) -> Option<Answer> {
        let path = self.path(path)?;
        let parent = self.parent(dir, &path)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let removed = rfs::openat(&parent, path.file_name()?, flags, Mode::empty()).ok()?;
        let removed = id_of(&removed)?;
        if !self.listener.is_waiting(self.call) {
            return None;
        }
        let known: Vec<_> = lock(&mirrors.known).values().cloned().collect();
        let done = known
            .iter()
            .find_map(|mirror| mirror.remove_mounted(removed))?;
        Some(answer_of(done))
    }

    /// Makes a symbolic link. Passed on it could be made in another place than was looked at.
    fn make_link(&self, mirrors: &Mirrors, target: u64, to: (u64, u64)) -> Result<(), Errno> {
        let target = self.path(target).ok_or(Errno::FAULT)?;
        let path = self.path(to.1).ok_or(Errno::FAULT)?;
        // Empty, or with a slash at the end: the kernel knows what to say of it.
        let (dir, name) = match path.as_os_str().as_bytes() {
            [] | [.., b'/'] => return Err(Errno::NOENT),
            _ => (self.open_parent(to.0, &path)?, path.file_name()),
        };
        let name = name.ok_or(Errno::EXIST)?;
        if !self.listener.is_waiting(self.call) {
            return Err(Errno::INTR);
        }
        let known: Vec<_> = lock(&mirrors.known).values().cloned().collect();
        if is_below(&dir, |id| known.iter().any(|mirror| mirror.is_direct(id)))? {
            return Err(Errno::PERM);
        }
        rfs::symlinkat(&target, &dir, name)?;
        self.give_to_caller(&dir, name);
        Ok(())
    }

    /// A link that root's server has made for a command of another user is that user's.
    fn give_to_caller(&self, dir: &OwnedFd, name: &std::ffi::OsStr) {
        let own = rustix::process::geteuid();
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        if let Ok(caller) = rfs::stat(format!("/proc/{}", self.call.pid))
            && caller.st_uid != own.as_raw()
            && let Ok(link) = rfs::openat(dir, name, flags, Mode::empty())
            && rfs::fstat(&link)
                .is_ok_and(|status| FileType::from_raw_mode(status.st_mode).is_symlink())
        {
            let user = rfs::Uid::from_raw(caller.st_uid);
            let group = rfs::Gid::from_raw(caller.st_gid);
            // It leads to the same place if it stays root's.
            let _ = rfs::chownat(&link, "", Some(user), Some(group), AtFlags::EMPTY_PATH);
        }
    }

    /// The path at an address of the caller's memory.
    fn path(&self, address: u64) -> Option<PathBuf> {
        #[expect(
            clippy::disallowed_methods,
            reason = "a file of the kernel, not of the agent"
        )]
        let memory = File::open(format!("/proc/{}/mem", self.call.pid)).ok()?;
        let mut bytes = vec![0; MAX_PATH_BYTES];
        let mut read = 0;
        // Up to the end of a page: what follows may not be there.
        while read < bytes.len() {
            let at = address.checked_add(read as u64)?;
            let page = usize::try_from(4096 - at % 4096).ok()?;
            let end = (read + page).min(bytes.len());
            let got = memory
                .read_at(&mut bytes[read..end], at)
                .ok()
                .filter(|got| *got > 0)?;
            read += got;
            if let Ok(text) = CStr::from_bytes_until_nul(&bytes[..read]) {
                return Some(OsString::from_vec(text.to_bytes().to_vec()).into());
            }
        }
        None
    }

    /// The directory that a path of the caller's lies in.
    fn parent(&self, dir: u64, path: &Path) -> Option<OwnedFd> {
        self.open_parent(dir, path).ok()
    }

    fn open_parent(&self, dir: u64, path: &Path) -> Result<OwnedFd, Errno> {
        let parent = path.parent().ok_or(Errno::EXIST)?;
        let pid = self.call.pid;
        // The kernel takes the lower half.
        let dir = dir as u32 as i32;
        let (base, resolve) = match path.is_absolute() {
            true => (format!("/proc/{pid}/root"), ResolveFlags::IN_ROOT),
            false if dir == libc::AT_FDCWD => (format!("/proc/{pid}/cwd"), ResolveFlags::empty()),
            false => (format!("/proc/{pid}/fd/{dir}"), ResolveFlags::empty()),
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let base = rfs::openat(CWD, base, flags, Mode::empty())?;
        let parent = match parent == Path::new("") {
            true => Path::new("."),
            false => parent,
        };
        let resolve = resolve | ResolveFlags::NO_MAGICLINKS;
        rfs::openat2(base, parent, flags, Mode::empty(), resolve)
    }
}

fn answer_of(done: Result<(), Errno>) -> Answer {
    match done {
        Ok(()) => Answer::Done,
        Err(errno) => Answer::Failed(errno.raw_os_error()),
    }
}

/// Whether a directory, or one that it lies in as the caller sees it, is one of some.
fn is_below(dir: &OwnedFd, is_one: impl Fn(DirId) -> bool) -> Result<bool, Errno> {
    let mut last = None;
    let mut dir = dir.try_clone().map_err(|_| Errno::MFILE)?;
    loop {
        let id = id_of(&dir).ok_or(Errno::IO)?;
        if is_one(id) {
            return Ok(true);
        }
        if last == Some(id) {
            return Ok(false);
        }
        last = Some(id);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        dir = rfs::openat(&dir, "..", flags, Mode::empty())?;
    }
}

pub(super) fn id_of(dir: impl AsFd) -> Option<DirId> {
    let status = rfs::fstat(dir).ok()?;
    Some((status.st_dev, status.st_ino))
}
