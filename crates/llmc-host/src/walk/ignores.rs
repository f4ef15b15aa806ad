//! Which entries the ignore files of a tree leave out.
//!
//! The rules are those of git, applied whether or not there is a repository: `.gitignore` in every directory, the
//! nearest one with a matching rule wins, and `.git/info/exclude` decides where none matches. A `.ignore`
//! file at any level comes before them all. A directory that holds `.git` is its own repository, so the `.gitignore`
//! files above it do not count inside.

use std::collections::HashMap;
use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::fstat;

use super::dir::{open_below, open_dir, read_small};
use crate::rules::STATE_DIR;
use crate::sync::lock;

/// The part of an ignore file that is read.
const MAX_IGNORE_FILE_BYTES: u64 = 1024 * 1024;

/// The ignore files above the start of a walk, up to the workspace root.
#[derive(Clone, Debug, Default)]
pub struct AncestorIgnores {
    /// The start of the walk, relative to the workspace root.
    pub(super) start: Vec<u8>,
    /// Directories that hold ignore files, the root first; the start itself is not among them.
    levels: Vec<(Vec<u8>, IgnoreFiles)>,
}

/// The ignore files of one directory.
#[derive(Clone, Debug, Default)]
struct IgnoreFiles {
    dot_ignore: Option<Vec<u8>>,
    git_ignore: Option<Vec<u8>>,
    git_exclude: Option<Vec<u8>>,
    repository: bool,
}

impl AncestorIgnores {
    /// The walk starts at the workspace root.
    pub fn none() -> Self {
        Self::default()
    }

    /// Reads the ignore files of `root` and of each directory on the way down to `start`, a path relative to it.
    ///
    /// `start` may be a directory or a file. A step that cannot be opened as a directory ends the reading: what lies
    /// above it still counts.
    pub fn collect(root: BorrowedFd<'_>, start: &[u8]) -> Self {
        let steps: Vec<&[u8]> = start
            .split(|byte| *byte == b'/')
            .filter(|step| !step.is_empty() && *step != b".")
            .collect();
        let mut found = Self {
            start: steps.join(&b'/'),
            levels: Vec::new(),
        };
        let mut fd = None;
        for (index, step) in steps.iter().enumerate() {
            let at = fd.as_ref().map_or(root, AsFd::as_fd);
            let Ok(stat) = fstat(at) else { break };
            let files = IgnoreFiles::read(at, stat.st_dev, &IgnoreFilesPresent::Unknown);
            if let Some(files) = files {
                found.levels.push((steps[..index].join(&b'/'), files));
            }
            match open_dir(at, *step) {
                Ok(below) => fd = Some(below),
                Err(_) => break,
            }
        }
        found
    }

    /// The start of the walk, relative to the root.
    pub(crate) fn start(&self) -> &[u8] {
        &self.start
    }

    /// The rules that hold at the start of the walk, but for its own ignore files.
    pub(super) fn rules(&self, compiler: &IgnoreCompiler) -> Option<Arc<IgnoreRules>> {
        let mut rules = None;
        for (dir, files) in &self.levels {
            rules = Some(IgnoreRules::new(rules.as_ref(), dir, files, compiler));
        }
        rules
    }
}

/// Says of single paths whether a walk from the root would leave them out. Each directory's ignore files are read once.
#[derive(Debug)]
pub struct IgnoreLookup {
    root: OwnedFd,
    compiler: IgnoreCompiler,
    /// The rules inside the directories asked about so far.
    dirs: HashMap<Vec<u8>, Option<Arc<IgnoreRules>>>,
}

impl IgnoreLookup {
    pub fn new(root: OwnedFd) -> IgnoreLookup {
        IgnoreLookup {
            root,
            compiler: IgnoreCompiler::default(),
            dirs: HashMap::new(),
        }
    }

    /// Whether the path, relative to the root, or a directory on its way is ignored or never entered.
    pub fn is_ignored(&mut self, path: &[u8], is_dir: bool) -> bool {
        let ends: Vec<usize> = (0..path.len()).filter(|at| path[*at] == b'/').collect();
        let mut dir: &[u8] = b"";
        for end in ends.into_iter().chain([path.len()]) {
            let here = &path[..end];
            let name = super::file_name(here);
            if name == b".git" || name.eq_ignore_ascii_case(STATE_DIR.as_bytes()) {
                return true;
            }
            let kind = match is_dir || end < path.len() {
                true => IgnoreTarget::Dir,
                false => IgnoreTarget::File,
            };
            let rules = self.rules(dir);
            if rules.is_some_and(|rules| rules.ignore(here, kind)) {
                return true;
            }
            dir = here;
        }
        false
    }

    /// The rules inside `dir`, whose parent has been asked for before.
    fn rules(&mut self, dir: &[u8]) -> Option<Arc<IgnoreRules>> {
        if let Some(known) = self.dirs.get(dir) {
            return known.clone();
        }
        let parent = dir.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        let above = match dir.is_empty() {
            true => None,
            false => self.dirs.get(&dir[..parent]).cloned().flatten(),
        };
        let opened = match dir.is_empty() {
            true => open_dir(self.root.as_fd(), "."),
            false => open_below(self.root.as_fd(), dir),
        };
        let rules = match opened.and_then(|fd| Ok((fstat(&fd)?, fd))) {
            Ok((stat, fd)) => IgnoreRules::inside(
                above.as_ref(),
                fd.as_fd(),
                stat.st_dev,
                dir,
                &IgnoreFilesPresent::Unknown,
                &self.compiler,
            ),
            Err(_) => above,
        };
        self.dirs.insert(dir.to_vec(), rules.clone());
        rules
    }
}

/// The ignore files seen in a directory's listing.
pub(super) enum IgnoreFilesPresent {
    /// The listing is whole: these are there and no others.
    Known {
        dot_ignore: bool,
        git_ignore: bool,
        git: bool,
    },
    /// The listing is too long to wait for.
    Unknown,
}

impl IgnoreFiles {
    /// Reads a directory's ignore files, if it has any.
    fn read(dir: BorrowedFd<'_>, device: u64, present: &IgnoreFilesPresent) -> Option<Self> {
        let (dot_ignore, git_ignore, git) = match present {
            IgnoreFilesPresent::Known {
                dot_ignore,
                git_ignore,
                git,
            } => (*dot_ignore, *git_ignore, *git),
            IgnoreFilesPresent::Unknown => (true, true, true),
        };
        let read = |name: &CStr| read_small(dir, name, device, MAX_IGNORE_FILE_BYTES);
        let mut files = Self {
            dot_ignore: dot_ignore.then(|| read(c".ignore")).flatten(),
            git_ignore: git_ignore.then(|| read(c".gitignore")).flatten(),
            ..Self::default()
        };
        if git {
            let stat = rustix::fs::statat(dir, c".git", rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
            files.repository = stat.is_ok();
            files.git_exclude = open_dir(dir, c".git")
                .and_then(|git| open_dir(git.as_fd(), c"info"))
                .ok()
                .and_then(|info| {
                    read_small(info.as_fd(), c"exclude", device, MAX_IGNORE_FILE_BYTES)
                });
        }
        let silent = files.dot_ignore.is_none() && files.git_ignore.is_none() && !files.repository;
        (!silent).then_some(files)
    }
}

/// The rules that hold inside one directory: its own, and those of the directories above.
#[derive(Debug)]
pub(super) struct IgnoreRules {
    parent: Option<Arc<IgnoreRules>>,
    /// Bytes of a path that name the directory of these rules, its slash included.
    strip: usize,
    dot_ignore: Option<Arc<Gitignore>>,
    git_ignore: Option<Arc<Gitignore>>,
    git_exclude: Option<Arc<Gitignore>>,
    repository: bool,
    /// Whether a directory further up has a `.ignore` file, which would come first.
    dot_ignore_above: bool,
}

impl IgnoreRules {
    /// The rules inside `dir`, given those above it.
    pub(super) fn inside(
        above: Option<&Arc<IgnoreRules>>,
        fd: BorrowedFd<'_>,
        device: u64,
        path: &[u8],
        present: &IgnoreFilesPresent,
        compiler: &IgnoreCompiler,
    ) -> Option<Arc<IgnoreRules>> {
        match IgnoreFiles::read(fd, device, present) {
            Some(files) => Some(Self::new(above, path, &files, compiler)),
            None => above.cloned(),
        }
    }

    fn new(
        above: Option<&Arc<IgnoreRules>>,
        path: &[u8],
        files: &IgnoreFiles,
        compiler: &IgnoreCompiler,
    ) -> Arc<IgnoreRules> {
        let compile =
            |text: &Option<Vec<u8>>| text.as_deref().and_then(|text| compiler.compile(text));
        Arc::new(IgnoreRules {
            parent: above.cloned(),
            strip: if path.is_empty() { 0 } else { path.len() + 1 },
            dot_ignore: compile(&files.dot_ignore),
            git_ignore: compile(&files.git_ignore),
            git_exclude: compile(&files.git_exclude),
            repository: files.repository,
            dot_ignore_above: above
                .is_some_and(|rules| rules.dot_ignore.is_some() || rules.dot_ignore_above),
        })
    }

    /// Whether the entry at `path`, relative to the workspace root, is left out.
    pub(super) fn ignore(&self, path: &[u8], kind: IgnoreTarget) -> bool {
        let mut from_git = None;
        let mut from_exclude = None;
        let mut in_repository = true;
        let mut next = Some(self);
        while let Some(rules) = next {
            let relative = &path[rules.strip..];
            if let Some(match_rules) = match_rules(&rules.dot_ignore, relative, kind) {
                return match_rules;
            }
            if in_repository && from_git.is_none() {
                from_git = match_rules(&rules.git_ignore, relative, kind);
                if from_exclude.is_none() {
                    from_exclude = match_rules(&rules.git_exclude, relative, kind);
                }
            }
            in_repository &= !rules.repository;
            if !rules.dot_ignore_above && (from_git.is_some() || !in_repository) {
                break;
            }
            next = rules.parent.as_deref();
        }
        from_git.or(from_exclude).unwrap_or(false)
    }
}

/// Whether a rule is matched against a directory; rules that end in `/` apply to those only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IgnoreTarget {
    Dir,
    File,
}

fn match_rules(rules: &Option<Arc<Gitignore>>, path: &[u8], kind: IgnoreTarget) -> Option<bool> {
    match rules.as_ref()?.matched(
        Path::new(OsStr::from_bytes(path)),
        kind == IgnoreTarget::Dir,
    ) {
        Match::None => None,
        Match::Ignore(_) => Some(true),
        Match::Whitelist(_) => Some(false),
    }
}

/// Turns the text of ignore files into matchers, each text once.
///
/// Matchers take paths relative to their directory, so one serves every directory whose file reads the same, as the
/// packages of a vendored tree tend to.
#[derive(Debug, Default)]
pub(super) struct IgnoreCompiler {
    known: Mutex<HashMap<Vec<u8>, Option<Arc<Gitignore>>>>,
}

impl IgnoreCompiler {
    /// Texts longer than this, and more than so many of them, are compiled each time.
    const MAX_CACHED_TEXT_BYTES: usize = 4096;
    const MAX_CACHED_TEXTS: usize = 1024;

    fn compile(&self, text: &[u8]) -> Option<Arc<Gitignore>> {
        if let Some(known) = lock(&self.known).get(text) {
            return known.clone();
        }
        let rules = build_matcher(text);
        let mut known = lock(&self.known);
        if text.len() <= Self::MAX_CACHED_TEXT_BYTES && known.len() < Self::MAX_CACHED_TEXTS {
            known.insert(text.to_vec(), rules.clone());
        }
        rules
    }
}

/// Lines that make no glob are passed over, as git does.
fn build_matcher(text: &[u8]) -> Option<Arc<Gitignore>> {
    let mut builder = GitignoreBuilder::new("");
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    for line in text.split(|byte| *byte == b'\n') {
        if let Ok(line) = str::from_utf8(line) {
            let _ = builder.add_line(None, line);
        }
    }
    let rules = builder.build().ok()?;
    (!rules.is_empty()).then(|| Arc::new(rules))
}
