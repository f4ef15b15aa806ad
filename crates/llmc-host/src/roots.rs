//! Root directories, opened once; every access to the agent's files starts at one of them.
//!
//! A path from outside is text. Comparing that text with a root and then opening the text leaks: between the two steps
//! a directory can become a link. So a path is first resolved to a [`RootedPath`], which is free of links and dots, and
//! every later step hands that to the kernel with `openat2` relative to the root's own descriptor and
//! `RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS`. If anything on the way has become a link by then, the open fails; it never
//! goes somewhere else. Links are followed here, one at a time, and only while they stay inside the roots.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::names;
use crate::rules::{Access, PathRules};

/// How many links one path may go through; the kernel's own limit.
const MAX_LINKS: usize = 40;
/// `PATH_MAX` without its NUL.
const MAX_PATH_BYTES: usize = 4095;

/// One allowed directory and the descriptor that stands for it.
#[derive(Debug)]
pub(crate) struct Root {
    path: PathBuf,
    configured: PathBuf,
    fd: RwLock<Arc<OwnedFd>>,
    /// Whether the directory of that path takes its place once it is deleted.
    is_replaceable: bool,
}

/// The allowed directories, the workspace they belong to, and the rules on names inside them.
#[derive(Debug)]
pub struct Roots {
    workspace: PathBuf,
    list: Vec<Arc<Root>>,
    /// A directory that may only be read, and only by its path.
    private: Option<Arc<Root>>,
    home: Option<PathBuf>,
    rules: Arc<PathRules>,
}

/// A path inside a root with no link and no `..` in it. Only [`Roots::resolve`] makes one.
#[derive(Debug, Clone)]
pub struct RootedPath {
    root: Arc<Root>,
    rel: Vec<u8>,
    requested: String,
}

/// Whether a link in the last position of a path is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinalLink {
    Follow,
    /// Stay at the link itself (stat, move, delete). One that leads out of the roots can be moved and deleted, but not
    /// looked at.
    NoFollow,
}

impl Roots {
    /// Opens the roots. `dirs` are as configured: absolute, or relative to the workspace; none means nothing is allowed.
    ///
    /// # Errors
    /// A root that is missing or no directory, or a kernel without `openat2`.
    pub fn open(workspace: &Path, dirs: &[PathBuf], rules: Arc<PathRules>) -> Result<Roots> {
        let mut list = Vec::new();
        for dir in dirs {
            let root = Root::open(&workspace.join(dir))?;
            if !list.iter().any(|other: &Arc<Root>| other.path == root.path) {
                list.push(Arc::new(root));
            }
        }
        // The innermost root wins, so that a file has one name however the roots nest.
        list.sort_by_key(|root| std::cmp::Reverse(root.path.components().count()));
        Ok(Roots {
            workspace: workspace.to_owned(),
            list,
            private: None,
            home: None,
            rules,
        })
    }

    /// The same roots, and a directory that may be read under a path where others find another one, by those who name that
    /// path. Walks and searches of the roots do not go there, nor do links. A root that holds the path keeps it.
    #[must_use]
    pub fn with_private_dir(&self, path: &Path, dir: OwnedFd) -> Roots {
        let is_free =
            !self.list.is_empty() && !self.list.iter().any(|root| path.starts_with(&root.path));
        let private = Root {
            path: path.to_owned(),
            configured: path.to_owned(),
            fd: RwLock::new(Arc::new(dir)),
            is_replaceable: false,
        };
        Roots {
            workspace: self.workspace.clone(),
            list: self.list.clone(),
            private: is_free.then(|| Arc::new(private)),
            home: self.home.clone(),
            rules: self.rules.clone(),
        }
    }

    /// Lets paths start with `~`, as the `linux_*` tools do.
    #[must_use]
    pub fn with_home(mut self, home: Option<PathBuf>) -> Roots {
        self.home = home;
        self
    }

    /// The workspace root, canonical.
    pub fn workspace(&self) -> &Path {
        &self.workspace
    }

    /// The roots' canonical paths, innermost first.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.list.iter().map(|root| root.path.as_path())
    }

    pub fn rules(&self) -> &PathRules {
        &self.rules
    }

    pub(crate) fn shared_rules(&self) -> Arc<PathRules> {
        self.rules.clone()
    }

    /// Resolves a path from outside: finds its root, follows links that stay inside, applies the rules on names.
    ///
    /// The last part may be missing; what comes before it is checked as far as it exists.
    pub fn resolve(&self, requested: &str, last: FinalLink, access: Access) -> Result<RootedPath> {
        self.rules.check_requested(requested)?;
        let path = match self.resolve_bytes(requested, requested.as_bytes(), last, access) {
            // A listing shows odd names with escapes; such a name is tried literally first, then as what it stands for.
            Ok(path) if requested.contains('\\') && path.lstat().is_err() => {
                match self.resolve_bytes(requested, &names::unescape(requested), last, access) {
                    Ok(other) if other.lstat().is_ok() => other,
                    _ => path,
                }
            }
            other => other?,
        };
        self.rules.check(&path.absolute(), requested, access)?;
        Ok(path)
    }

    /// A path by its bytes, relative to the workspace or absolute, for what already knows which entry it means: no
    /// link on the way is followed when it is used, and the denylist is for the caller to apply.
    pub fn exact_path(&self, bytes: &[u8], access: Access) -> Result<RootedPath> {
        let requested = names::escape(bytes);
        let absolute = self.workspace.join(OsStr::from_bytes(bytes));
        let (root, parts) = self.locate(&requested, absolute.as_os_str().as_bytes())?;
        if parts.iter().any(|part| part == b"..") {
            return Err(Error::BadPath {
                path: requested,
                why: "an exact path has no `..` in it",
            });
        }
        let path = RootedPath {
            root,
            rel: parts.join(&b'/'),
            requested,
        };
        self.rules
            .check_name(&path.absolute(), &path.requested, access)?;
        Ok(path)
    }

    /// How a path is printed: relative to the workspace when inside it, absolute otherwise.
    pub fn display_path(&self, path: &RootedPath) -> String {
        self.display_absolute(&path.absolute())
    }

    /// [`Roots::display_path`] for an absolute path.
    pub fn display_absolute(&self, path: &Path) -> String {
        match path.strip_prefix(&self.workspace) {
            Ok(rel) if rel.as_os_str().is_empty() => ".".to_owned(),
            Ok(rel) => names::escape(rel.as_os_str().as_bytes()),
            Err(_) => names::escape(path.as_os_str().as_bytes()),
        }
    }

    /// Whether this is a root, or holds one: such a directory is never moved or deleted.
    pub(crate) fn contains_root(&self, path: &RootedPath) -> bool {
        let path = path.absolute();
        self.workspace.starts_with(&path)
            || self.list.iter().any(|root| root.path.starts_with(&path))
    }

    pub(crate) fn resolve_bytes(
        &self,
        requested: &str,
        bytes: &[u8],
        last: FinalLink,
        access: Access,
    ) -> Result<RootedPath> {
        let (root, parts) = match self.locate(requested, bytes) {
            Err(Error::OutsideRoots { .. }) if access == Access::Read => self
                .below_private_dir(bytes)
                .ok_or_else(|| Error::OutsideRoots {
                    path: requested.to_owned(),
                })?,
            located => located?,
        };
        self.rules
            .check_name(&self.absolute_name(bytes), requested, access)?;
        self.rules
            .check_name(&root.name_of(&parts, []), requested, access)?;
        let plain = !parts.iter().any(|part| part == b"..");
        if plain {
            let path = RootedPath {
                root: root.clone(),
                rel: parts.join(&b'/'),
                requested: requested.to_owned(),
            };
            let flags = OFlags::PATH | OFlags::NOFOLLOW;
            match path.root.openat(&path.rel, flags, Mode::empty()) {
                Ok(fd) if !is_link(&fd) => return Ok(path),
                Ok(_) | Err(Errno::LOOP) => {}
                Err(Errno::NOENT) => return Ok(path),
                Err(errno) => return Err(Error::from_errno(requested, errno)),
            }
        }
        let path = self.follow(requested, root.clone(), parts.clone(), last, access)?;
        if last == FinalLink::NoFollow
            && access == Access::Read
            && path
                .lstat()
                .is_ok_and(|stat| file_type(&stat) == FileType::Symlink)
        {
            // Looking at a link that leads outside is refused; deleting or moving it touches the link alone.
            self.follow(requested, root, parts, FinalLink::Follow, Access::Read)?;
        }
        Ok(path)
    }

    /// The root a path lies under by its text, and the parts below it (which may still hold `..`).
    fn locate(&self, requested: &str, bytes: &[u8]) -> Result<(Arc<Root>, Vec<Vec<u8>>)> {
        let bad = |why| {
            Err(Error::BadPath {
                path: clip_path(requested),
                why,
            })
        };
        if bytes.is_empty() {
            return bad("the path is empty");
        }
        if bytes.contains(&0) {
            return bad("the path holds a NUL character");
        }
        if bytes.len() > MAX_PATH_BYTES || bytes.split(|b| *b == b'/').any(|part| part.len() > 255)
        {
            return bad("path or file name is too long");
        }
        if self.list.is_empty() {
            return Err(Error::NoRoots {
                path: requested.to_owned(),
            });
        }
        self.locate_absolute(&self.absolute_parts(bytes))
            .ok_or_else(|| Error::OutsideRoots {
                path: requested.to_owned(),
            })
    }

    /// The parts below the private directory of an absolute path that names it; `..` and links never lead there.
    fn below_private_dir(&self, bytes: &[u8]) -> Option<(Arc<Root>, Vec<Vec<u8>>)> {
        let private = self.private.as_ref()?;
        let path = Path::new(OsStr::from_bytes(bytes));
        let rest = path.strip_prefix(&private.path).ok()?;
        let rest = parts(rest.as_os_str().as_bytes());
        // A folder on the way to a root has other entries for the user.
        let top = rest
            .first()
            .map(|first| private.path.join(OsStr::from_bytes(first)));
        let leads_to_root =
            top.is_some_and(|top| self.list.iter().any(|root| root.path.starts_with(&top)));
        let is_plain = !leads_to_root && rest.iter().all(|part| part != b"..");
        is_plain.then(|| (private.clone(), rest))
    }

    /// The parts of a path from outside, from `/` on, as its text has them.
    fn absolute_parts(&self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let absolute = match (bytes, &self.home) {
            (b"~", Some(home)) => home.clone(),
            ([b'~', b'/', rest @ ..], Some(home)) => home.join(OsStr::from_bytes(rest)),
            _ => self.workspace.join(OsStr::from_bytes(bytes)),
        };
        parts(absolute.as_os_str().as_bytes())
    }

    /// What a path from outside is called before any link is followed. For rules; never to be opened.
    fn absolute_name(&self, bytes: &[u8]) -> PathBuf {
        let parts = resolve_dots(&self.absolute_parts(bytes)).join(&b'/');
        Path::new("/").join(OsStr::from_bytes(&parts))
    }

    fn locate_absolute(&self, path: &[Vec<u8>]) -> Option<(Arc<Root>, Vec<Vec<u8>>)> {
        let below = |path: &[Vec<u8>]| {
            self.list.iter().find_map(|root| {
                [&root.path, &root.configured].into_iter().find_map(|dir| {
                    let rest = path.strip_prefix(parts(dir.as_os_str().as_bytes()).as_slice())?;
                    Some((root.clone(), rest.to_vec()))
                })
            })
        };
        below(path).or_else(|| below(&resolve_dots(path)))
    }

    /// Follows links part by part, staying inside the roots.
    fn follow(
        &self,
        requested: &str,
        root: Arc<Root>,
        path: Vec<Vec<u8>>,
        last: FinalLink,
        access: Access,
    ) -> Result<RootedPath> {
        let outside = || Error::OutsideRoots {
            path: requested.to_owned(),
        };
        let mut root = root;
        let mut todo = VecDeque::from(path);
        let mut done: Vec<Vec<u8>> = Vec::new();
        let mut hops = 0;
        let mut missing = false;
        while let Some(part) = todo.pop_front() {
            if part == b".." {
                if missing {
                    return Err(Error::NotFound {
                        path: requested.to_owned(),
                    });
                }
                if done.pop().is_none() {
                    let mut above = parts(root.path.as_os_str().as_bytes());
                    above.pop();
                    above.extend(todo.drain(..));
                    let (other, rest) = self.locate_absolute(&above).ok_or_else(outside)?;
                    (root, todo) = (other, rest.into());
                }
                continue;
            }
            done.push(part);
            if missing {
                continue;
            }
            let fd = match root.openat(
                &done.join(&b'/'),
                OFlags::PATH | OFlags::NOFOLLOW,
                Mode::empty(),
            ) {
                Ok(fd) => fd,
                Err(Errno::NOENT) => {
                    missing = true;
                    continue;
                }
                Err(errno) => return Err(Error::from_errno(requested, errno)),
            };
            if !is_link(&fd) || (todo.is_empty() && last == FinalLink::NoFollow) {
                continue;
            }
            refuse_kernel_file_system(&fd, requested)?;
            // A protected name stays protected when it is a link.
            self.rules
                .check_name(&root.name_of(&done, &todo), requested, access)?;
            hops += 1;
            if hops > MAX_LINKS {
                return Err(Error::from_errno(requested, Errno::LOOP));
            }
            let target = fs::readlinkat(&fd, "", Vec::new())
                .map_err(|errno| Error::from_errno(requested, errno))?;
            let mut next = parts(target.as_bytes());
            next.extend(todo.drain(..));
            done.pop();
            if target.as_bytes().starts_with(b"/") {
                let (other, rest) = self.locate_absolute(&next).ok_or_else(outside)?;
                (root, todo) = (other, rest.into());
                done.clear();
            } else {
                todo = next.into();
            }
        }
        Ok(RootedPath {
            root,
            rel: done.join(&b'/'),
            requested: requested.to_owned(),
        })
    }
}

impl Root {
    fn open(configured: &Path) -> Result<Root> {
        let shown = configured.display().to_string();
        let path = std::fs::canonicalize(configured).map_err(|source| Error::Io {
            path: shown.clone(),
            source,
        })?;
        let fd = open_root(&path).map_err(|errno| match errno {
            Errno::NOSYS => Error::Unsupported(
                "this kernel has no openat2 (Linux 5.6), without which paths cannot be kept inside the roots".to_owned(),
            ),
            errno => Error::from_errno(&shown, errno),
        })?;
        Ok(Root {
            path,
            configured: configured.to_owned(),
            fd: RwLock::new(Arc::new(fd)),
            is_replaceable: true,
        })
    }

    /// What parts below this root are called, without dots.
    fn name_of<'a>(
        &self,
        done: &'a [Vec<u8>],
        todo: impl IntoIterator<Item = &'a Vec<u8>>,
    ) -> PathBuf {
        let mut path = parts(self.path.as_os_str().as_bytes());
        path.extend(done.iter().chain(todo).cloned());
        Path::new("/").join(OsStr::from_bytes(&resolve_dots(&path).join(&b'/')))
    }

    /// Opens below this root; a link anywhere on the way is `ELOOP`.
    fn openat(&self, rel: &[u8], flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        let rel = if rel.is_empty() { b"." } else { rel };
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let mut reopened = false;
        loop {
            let fd = self
                .fd
                .read()
                .unwrap_or_else(PoisonError::into_inner)
                .clone();
            let opened = fs::openat2(&*fd, rel, flags | OFlags::CLOEXEC, mode, resolve);
            match opened {
                // The kernel could not tell because of a rename elsewhere; asking again is the documented answer.
                Err(Errno::AGAIN | Errno::INTR) => {}
                // The root was deleted (its descriptor still opens as an empty directory): if it has been made anew,
                // that is the root now.
                Ok(_) | Err(Errno::NOENT)
                    if !reopened
                        && self.is_replaceable
                        && (rel == b"." || opened.is_err())
                        && fs::fstat(&*fd).is_ok_and(|stat| stat.st_nlink == 0) =>
                {
                    reopened = true;
                    let fresh = open_root(&self.path)?;
                    *self.fd.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(fresh);
                }
                other => return other,
            }
        }
    }
}

/// Opens a root directory by its canonical path, which by then may hold no link.
fn open_root(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    fs::openat2(
        fs::CWD,
        path,
        flags,
        Mode::empty(),
        ResolveFlags::NO_SYMLINKS,
    )
}

impl RootedPath {
    /// The path as the caller wrote it, for messages.
    pub fn requested(&self) -> &str {
        &self.requested
    }

    /// The path below its root; empty for the root itself.
    pub fn below_root(&self) -> &[u8] {
        &self.rel
    }

    /// The root that it lies in, as a canonical absolute path.
    pub fn root_path(&self) -> &Path {
        &self.root.path
    }

    /// The canonical absolute path. For rules, locks and display; never to be opened.
    pub fn absolute(&self) -> PathBuf {
        if self.rel.is_empty() {
            return self.root.path.clone();
        }
        self.root.path.join(OsStr::from_bytes(&self.rel))
    }

    pub fn open(&self, flags: OFlags) -> Result<OwnedFd> {
        self.root
            .openat(&self.rel, flags, Mode::empty())
            .map_err(|errno| self.error(errno))
    }

    /// Status of the path; a final link is not followed.
    pub fn lstat(&self) -> Result<Stat> {
        let fd = self.open(OFlags::PATH | OFlags::NOFOLLOW)?;
        fs::fstat(&fd).map_err(|errno| self.error(errno))
    }

    /// The directory that holds it, opened, and its name there. A root has neither.
    pub(crate) fn parent(&self) -> Result<(OwnedFd, &OsStr)> {
        let (dir, name) = match self.rel.iter().rposition(|b| *b == b'/') {
            Some(slash) => (&self.rel[..slash], &self.rel[slash + 1..]),
            None => (&b""[..], &self.rel[..]),
        };
        if name.is_empty() {
            return Err(Error::Protected {
                path: self.requested.clone(),
                what: "a root".to_owned(),
            });
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        match self.root.openat(dir, flags, Mode::empty()) {
            Ok(fd) => {
                refuse_kernel_file_system(&fd, &self.requested)?;
                Ok((fd, OsStr::from_bytes(name)))
            }
            Err(Errno::NOENT) => Err(Error::NoParent {
                path: self.requested.clone(),
            }),
            Err(errno) => Err(self.error(errno)),
        }
    }

    /// This path's root, opened, for walks that start there.
    pub(crate) fn root_dir(&self) -> Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        self.root
            .openat(b"", flags, Mode::empty())
            .map_err(|errno| self.error(errno))
    }

    /// The paths of all directories between the root and this path, and the path itself.
    pub(crate) fn ancestors_below_root(&self) -> impl Iterator<Item = &[u8]> {
        let ends = self
            .rel
            .iter()
            .enumerate()
            .filter(|(_, b)| **b == b'/')
            .map(|(at, _)| at);
        ends.chain((!self.rel.is_empty()).then_some(self.rel.len()))
            .map(|end| &self.rel[..end])
    }

    /// One of [`RootedPath::ancestors_below_root`].
    pub(crate) fn ancestor(&self, rel: &[u8]) -> RootedPath {
        RootedPath {
            rel: rel.to_owned(),
            ..self.clone()
        }
    }

    /// Opens one of [`RootedPath::ancestors_below_root`].
    pub(crate) fn open_ancestor(&self, rel: &[u8]) -> Result<OwnedFd, Errno> {
        self.root
            .openat(rel, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty())
    }

    fn error(&self, errno: Errno) -> Error {
        match errno {
            Errno::LOOP => Error::BadPath {
                path: self.requested.clone(),
                why: "became a link while it was being opened",
            },
            errno => Error::from_errno(&self.requested, errno),
        }
    }
}

pub fn file_type(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

fn is_link(fd: &OwnedFd) -> bool {
    fs::fstat(fd).is_ok_and(|stat| file_type(&stat) == FileType::Symlink)
}

/// Refuses procfs, sysfs and other kernel file systems: their files hold the server's own secrets or have side effects when opened.
pub fn refuse_kernel_file_system(fd: impl AsFd, requested: &str) -> Result<()> {
    let stat = fs::fstatfs(fd).map_err(|errno| Error::from_errno(requested, errno))?;
    if crate::walk::is_kernel_file_system(&stat) {
        return Err(Error::SpecialFile {
            path: requested.to_owned(),
            what: "file of the kernel",
        });
    }
    Ok(())
}

/// Splits into parts, dropping empty ones and `.`.
fn parts(path: &[u8]) -> Vec<Vec<u8>> {
    path.split(|b| *b == b'/')
        .filter(|part| !part.is_empty() && *part != b".")
        .map(<[u8]>::to_vec)
        .collect()
}

fn resolve_dots(path: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut out: Vec<Vec<u8>> = Vec::new();
    for part in path {
        if part == b".." {
            out.pop();
        } else {
            out.push(part.clone());
        }
    }
    out
}

fn clip_path(requested: &str) -> String {
    match requested.char_indices().nth(80) {
        Some((end, _)) => format!("{}…", &requested[..end]),
        None => requested.to_owned(),
    }
}

/// Status without following a final link, by descriptor and name.
pub(crate) fn lstat_at(dir: impl AsFd, name: &OsStr) -> Result<Stat, Errno> {
    fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
}
