//! Protected names: paths that tools may not change or read although they lie inside a root.
//!
//! The agent must never change what controls its own rights: the configuration, the state directory, the audit file,
//! git's hooks and configuration (which run programs on the user's next `git status`). These are matched on the path as
//! requested, on every link on the way and on the resolved path, at any depth and in any case, so neither a link nor a
//! nested repository nor a case-folding file system circumvents them.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use crate::bare_repository::bare_repository_part;
use crate::error::{Error, Result};
use crate::git_config::included_git_configs;

/// The state directory's name inside a workspace.
pub const STATE_DIR: &str = ".llmc";
/// What it is called in a git directory.
pub const GIT_STATE_DIR: &str = "llmc";
/// The configuration file's name.
pub const CONFIG_FILE: &str = "llmc.toml";

/// Names that a directory of the workspace may hold and that tools and commands may not create: the server's, and a
/// repository's.
pub const PROTECTED_NAMES: [&str; 3] = [CONFIG_FILE, STATE_DIR, ".git"];

/// What inside a git directory makes git run programs or read another repository's files. An unfinished rebase runs the
/// `exec` lines of its list; `commondir` and `gitdir` lead git to other directories, and thereby to their `config`.
const PROTECTED_GIT_ENTRIES: [&str; 6] = [
    "hooks",
    "config",
    "config.worktree",
    "commondir",
    "gitdir",
    "sequencer",
];
/// How the names of unfinished rebases begin (`rebase-merge`, `rebase-apply`).
const PROTECTED_GIT_PREFIX: &str = "rebase-";
/// The same for files that only count in their directory.
const PROTECTED_GIT_PATHS: [&[&str]; 3] = [
    &["info", "attributes"],
    &["objects", "info", "alternates"],
    &["objects", "info", "http-alternates"],
];
/// What git alone writes: a checkout writes where the index says, git appends to logs through links, and takes addresses from
/// the others.
const GIT_DATA: [&str; 4] = ["index", "logs", "remotes", "branches"];
const SHARED_INDEX_PREFIX: &str = "sharedindex.";
/// Directories of a git directory in which further git directories lie, at any depth: a submodule's name may have slashes.
const NESTED_GIT_DIRS: [&str; 2] = ["modules", "worktrees"];
/// Directories of a git directory in which names are those of branches and tags, so that none is protected.
const REF_DIRS: [&str; 2] = ["refs", "logs"];
/// How many links one name may go through; the kernel's own limit.
const MAX_LINKS: usize = 40;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Read its content or status.
    Read,
    /// Create it or change its content.
    Write,
    /// Move it away, move something onto it, or delete it.
    Replace,
}

/// The protected names and the denylist of one server.
#[derive(Debug, Default)]
pub struct PathRules {
    state_dirs: Vec<PathBuf>,
    protected: Vec<PathBuf>,
    git_dirs: Vec<PathBuf>,
    git_configs: Vec<PathBuf>,
    roots: Vec<PathBuf>,
    denylist: GlobSet,
    denied_names: Vec<String>,
    denylist_reads: bool,
}

impl PathRules {
    /// Rules for a state directory and further protected files (configuration, audit, policy), all absolute. Where a
    /// name leads through links, each of its names is protected.
    pub fn new(state_dir: Option<PathBuf>, protected: Vec<PathBuf>) -> PathRules {
        PathRules {
            state_dirs: state_dir.iter().flat_map(|dir| alias_paths(dir)).collect(),
            protected: protected
                .iter()
                .flat_map(|file| alias_paths(file))
                .collect(),
            ..PathRules::default()
        }
    }

    /// Adds the roots of every set of tools, absolute: none is moved or deleted through another set's roots. The git
    /// directories of the repositories they lie in are protected wherever `.git` leads.
    #[must_use]
    pub fn with_roots(mut self, roots: &[PathBuf]) -> PathRules {
        for root in roots {
            let names = alias_paths(root);
            let canonical = names.last().unwrap_or(root);
            for dir in canonical.ancestors() {
                self.add_repository(dir);
            }
            self.roots.extend(names);
        }
        self.roots.sort();
        self.roots.dedup();
        self.git_dirs.sort();
        self.git_dirs.dedup();
        self
    }

    /// Finds the git directories of a repository: `.git`, what a link or a file in its place leads to, and the directory
    /// that several working trees share.
    fn add_repository(&mut self, dir: &Path) {
        let dot_git = dir.join(".git");
        let names = alias_paths(&dot_git);
        let Some(found) = names.last().cloned() else {
            return;
        };
        let line = if found.is_dir() {
            None
        } else {
            first_line(&found)
        };
        if let Some(line) = line {
            self.protected.extend(names);
            if let Some(target) = line.strip_prefix(b"gitdir:") {
                let names = alias_paths(&dir.join(OsStr::from_bytes(target.trim_ascii())));
                if let Some(git_dir) = names.last().cloned() {
                    self.add_common_dir(&git_dir);
                }
                self.git_dirs.extend(names);
            }
        } else {
            // `.git` itself is protected by its name.
            self.git_dirs.extend(names.into_iter().skip(1));
            self.add_common_dir(&found);
        }
    }

    fn add_common_dir(&mut self, git_dir: &Path) {
        self.add_included_files(git_dir);
        if let Some(common) = first_line(&git_dir.join("commondir")) {
            let names = alias_paths(&git_dir.join(OsStr::from_bytes(&common)));
            if let Some(common) = names.last() {
                self.add_included_files(common);
            }
            self.git_dirs.extend(names);
        }
    }

    /// Files that the repository's configuration includes are as good as the configuration itself.
    fn add_included_files(&mut self, git_dir: &Path) {
        let files = included_git_configs(git_dir);
        self.git_configs
            .extend(files.iter().flat_map(|file| alias_paths(file)));
    }

    /// Adds the denylist. Globs match the file name alone, in any case; `on_reads` applies them to every file tool.
    ///
    /// # Errors
    /// A glob that does not parse.
    pub fn with_denylist(mut self, globs: &[String], on_reads: bool) -> Result<PathRules> {
        let mut set = GlobSetBuilder::new();
        for glob in globs {
            let name = glob.rsplit('/').next().unwrap_or(glob);
            if on_reads {
                self.denied_names.push(name.to_owned());
            }
            let glob = GlobBuilder::new(name).case_insensitive(true).build();
            set.add(glob.map_err(|error| Error::BadPattern(error.to_string()))?);
        }
        self.denylist = set
            .build()
            .map_err(|error| Error::BadPattern(error.to_string()))?;
        self.denylist_reads = on_reads;
        Ok(self)
    }

    /// Whether the denylist names this file.
    pub fn is_denylisted(&self, path: &Path) -> bool {
        path.file_name()
            .is_some_and(|name| self.denylist.is_match(name))
    }

    /// Globs of file names whose content is kept from every tool.
    pub fn denied_names(&self) -> &[String] {
        &self.denied_names
    }

    /// Whether content of denylisted files is kept from every tool.
    pub fn denylist_reads(&self) -> bool {
        self.denylist_reads
    }

    /// The part of the check that needs only the requested path's text.
    pub(crate) fn check_requested(&self, requested: &str) -> Result<()> {
        if self.denylist_reads && self.is_denylisted(Path::new(requested)) {
            return Err(Error::Denylisted {
                path: requested.to_owned(),
            });
        }
        Ok(())
    }

    /// Checks an absolute path free of dots that leads to what is about to be changed, before its links are followed.
    pub(crate) fn check_name(&self, path: &Path, requested: &str, access: Access) -> Result<()> {
        if access == Access::Read {
            return Ok(());
        }
        self.refuse_protected(path, requested, access)
    }

    /// Checks a resolved absolute path.
    pub(crate) fn check(&self, path: &Path, requested: &str, access: Access) -> Result<()> {
        if self.denylist_reads && self.is_denylisted(path) {
            return Err(Error::Denylisted {
                path: requested.to_owned(),
            });
        }
        self.refuse_protected(path, requested, access)
    }

    fn refuse_protected(&self, path: &Path, requested: &str, access: Access) -> Result<()> {
        let by_name = self.protected_part(path, access);
        match by_name.or_else(|| bare_repository_part(path, access)) {
            Some(what) => Err(Error::Protected {
                path: requested.to_owned(),
                what,
            }),
            None => Ok(()),
        }
    }

    /// The protected thing that this access would touch.
    pub(crate) fn protected_part(&self, path: &Path, access: Access) -> Option<String> {
        let parts: Vec<&[u8]> = path
            .components()
            .map(|part| part.as_os_str().as_bytes())
            .collect();
        let state = || "the state directory".to_owned();
        if let Some(at) = parts.iter().position(|part| eq_name(part, STATE_DIR)) {
            // Stubs are written there for the agent to read; everything else in it is the server's.
            let stub = parts.get(at + 1).is_some_and(|part| eq_name(part, "stubs"));
            if access != Access::Read || !stub {
                return Some(format!("the state directory {STATE_DIR}"));
            }
        }
        let in_git = self.inside_git(path, &parts);
        let is_state = |inner: &Vec<&[u8]>| {
            inner
                .first()
                .is_some_and(|part| eq_name(part, GIT_STATE_DIR))
        };
        if let Some(inner) = in_git.as_ref().filter(|inner| is_state(inner)) {
            let stub = inner.get(1).is_some_and(|part| eq_name(part, "stubs"));
            if access != Access::Read || !stub {
                return Some(state());
            }
        }
        let inside = self.state_dirs.iter().find_map(|dir| below(path, dir));
        if access == Access::Read {
            let stub = |rest: &Path| {
                let first = rest.components().next();
                first.is_some_and(|part| eq_name(part.as_os_str().as_bytes(), "stubs"))
            };
            return inside.filter(|rest| !stub(rest)).map(|_| state());
        }
        let holds = |file: &PathBuf| access == Access::Replace && below(file, path).is_some();
        if self.roots.iter().any(holds) {
            return Some("a root".to_owned());
        }
        if inside.is_some() || self.state_dirs.iter().any(holds) {
            return Some(state());
        }
        if parts.iter().any(|part| eq_name(part, CONFIG_FILE)) {
            return Some(format!("the configuration {CONFIG_FILE}"));
        }
        if let Some(inner) = in_git {
            if inner.is_empty() {
                return Some("the repository's .git".to_owned());
            }
            let holder = || protected_git_holder(&inner).filter(|_| access == Access::Replace);
            if let Some(name) = git_entry_of_tools(&inner).or_else(holder) {
                return Some(format!("git's {name}"));
            }
        }
        if self.git_dirs.iter().any(holds) {
            return Some("the repository's git directory".to_owned());
        }
        let same = |file: &PathBuf| below(path, file).is_some_and(|rest| rest == Path::new(""));
        let is_touched = |files: &[PathBuf]| files.iter().any(|file| same(file) || holds(file));
        if is_touched(&self.git_configs) {
            return Some("a file that git's config includes".to_owned());
        }
        is_touched(&self.protected).then(|| "a file of the server".to_owned())
    }

    /// The parts of a path below the outermost git directory on its way.
    fn inside_git<'a>(&self, path: &'a Path, parts: &[&'a [u8]]) -> Option<Vec<&'a [u8]>> {
        if let Some(at) = parts.iter().position(|part| eq_name(part, ".git")) {
            return Some(parts[at + 1..].to_vec());
        }
        let rest = self.git_dirs.iter().find_map(|dir| below(path, dir))?;
        let rest = rest.components();
        Some(rest.map(|part| part.as_os_str().as_bytes()).collect())
    }

    /// Whether a path is or lies in a git directory.
    pub(crate) fn is_in_git(&self, path: &Path) -> bool {
        let parts: Vec<&[u8]> = path
            .components()
            .map(|part| part.as_os_str().as_bytes())
            .collect();
        self.inside_git(path, &parts).is_some()
    }
}

/// The protected thing at a place inside a git directory, given by the parts of its path below that directory: what it is
/// called, or `None`. Everything below a protected directory is protected, and the same names are in the directories of
/// submodules and working trees.
pub fn protected_git_entry(inner: &[&[u8]]) -> Option<&'static str> {
    let first = inner.first()?;
    if REF_DIRS.iter().any(|name| eq_name(first, name)) {
        return None;
    }
    let path = PROTECTED_GIT_PATHS.iter().find_map(|path| {
        let same = |parts: &[&[u8]]| {
            parts
                .iter()
                .zip(*path)
                .all(|(part, name)| eq_name(part, name))
        };
        let found = inner.windows(path.len()).any(same);
        found.then(|| path.last().copied()).flatten()
    });
    if path.is_some() || eq_name(first, "objects") {
        return path;
    }
    inner.iter().find_map(|part| {
        let entry = PROTECTED_GIT_ENTRIES
            .into_iter()
            .find(|name| eq_name(part, name));
        let prefix = part
            .get(..PROTECTED_GIT_PREFIX.len())
            .filter(|start| eq_name(start, PROTECTED_GIT_PREFIX));
        entry.or(prefix.map(|_| "rebase"))
    })
}

/// The same for tools, with which nothing that git alone writes is written.
pub(crate) fn git_entry_of_tools(inner: &[&[u8]]) -> Option<&'static str> {
    let data = |part: &&[u8]| {
        let mut names = GIT_DATA.into_iter();
        names.find(|name| eq_name(part, name)).or_else(|| {
            let start = part.get(..SHARED_INDEX_PREFIX.len())?;
            eq_name(start, SHARED_INDEX_PREFIX).then_some("index")
        })
    };
    let is_ref = inner.first().is_some_and(|first| eq_name(first, "refs"));
    let own = || inner.iter().find_map(data).filter(|_| !is_ref);
    protected_git_entry(inner).or_else(own)
}

/// Whether a directory's entry of this name decides over the agent or runs programs, in any case.
pub fn is_protected_name(name: &[u8]) -> bool {
    PROTECTED_NAMES.iter().any(|other| eq_name(name, other))
}

/// What a directory inside a git directory holds that must stay where it is: a crafted one could be put in its place.
fn protected_git_holder(inner: &[&[u8]]) -> Option<&'static str> {
    let first = inner.first()?;
    if let Some(name) = NESTED_GIT_DIRS
        .into_iter()
        .find(|name| eq_name(first, name))
    {
        return Some(name);
    }
    PROTECTED_GIT_PATHS.iter().find_map(|path| {
        let holds = inner.len() < path.len()
            && inner
                .iter()
                .zip(*path)
                .all(|(part, name)| eq_name(part, name));
        holds.then(|| path.last().copied()).flatten()
    })
}

pub(crate) fn eq_name(part: &[u8], name: &str) -> bool {
    part.eq_ignore_ascii_case(name.as_bytes())
}

/// The rest of a path below a directory, in any case; empty for the directory itself.
fn below<'a>(path: &'a Path, dir: &Path) -> Option<&'a Path> {
    let mut rest = path.components();
    for part in dir.components() {
        let own = rest.next()?.as_os_str().as_bytes();
        if !own.eq_ignore_ascii_case(part.as_os_str().as_bytes()) {
            return None;
        }
    }
    Some(rest.as_path())
}

/// The names a path goes by: one for each link on its way, and at the end the canonical one. What is missing stays as
/// it is written.
fn alias_paths(path: &Path) -> Vec<PathBuf> {
    let split = |path: &Path| -> VecDeque<OsString> {
        let parts = path.components();
        parts.map(|part| part.as_os_str().to_owned()).collect()
    };
    let mut names = Vec::new();
    let mut todo = split(path);
    let mut done = PathBuf::from("/");
    let mut links = 0;
    while let Some(part) = todo.pop_front() {
        match Path::new(&part).components().next() {
            Some(Component::RootDir) => done = PathBuf::from("/"),
            Some(Component::ParentDir) => {
                done.pop();
            }
            Some(Component::Normal(_)) => {
                let here = done.join(&part);
                match std::fs::read_link(&here) {
                    Ok(target) if links < MAX_LINKS => {
                        links += 1;
                        let mut name = here;
                        for part in &todo {
                            if part == ".." {
                                name.pop();
                            } else {
                                name.push(part);
                            }
                        }
                        names.push(name);
                        let mut next = split(&target);
                        next.append(&mut todo);
                        todo = next;
                    }
                    _ => done = here,
                }
            }
            _ => {}
        }
    }
    names.push(done);
    names
}

/// The first line of one of git's small files.
fn first_line(path: &Path) -> Option<Vec<u8>> {
    let mut options = std::fs::OpenOptions::new();
    let file = options.read(true);
    // A FIFO with that name must not block the server's start.
    let file = std::os::unix::fs::OpenOptionsExt::custom_flags(
        file,
        i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0),
    );
    let file = file.open(path).ok()?;
    let mut text = Vec::new();
    file.take(16 << 10).read_to_end(&mut text).ok()?;
    let line = text.split(|b| *b == b'\n').next()?.trim_ascii();
    (!line.is_empty()).then(|| line.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touched(path: &str, access: Access) -> bool {
        let rules = PathRules::new(Some("/state".into()), vec!["/w/artifacts/audit.csv".into()]);
        rules.protected_part(Path::new(path), access).is_some()
    }

    #[test]
    fn files_that_govern_the_agent_cannot_be_written() {
        for path in [
            "/w/llmc.toml",
            "/w/deep/er/LLMC.toml",
            "/w/.llmc",
            "/w/sub/.llmc/token",
            "/w/.git/hooks/pre-commit",
            "/w/sub/.git/config",
            "/w/.git/modules/x/config",
            "/w/.GIT/Hooks",
            "/w/.git/commondir",
            "/w/.git/gitdir",
            "/w/.git/worktrees/x/gitdir",
            "/w/.git/worktrees/x/config.worktree",
            "/w/.git/info/attributes",
            "/w/.git/modules/x/objects/info/alternates",
            "/w/.git/rebase-merge/git-rebase-todo",
            "/w/.git/rebase-apply",
            "/w/.git/index",
            "/w/.git/sharedindex.0123",
            "/w/.git/modules/libs/foo/index",
            "/w/.git/worktrees/w/index",
            "/w/.git/logs/HEAD",
            "/w/.git/remotes/origin",
            "/w/.git/sequencer/todo",
            "/w/.git/objects/info/alternates",
            "/w/.git/modules/libs/foo/config",
            "/w/.git/modules/refs/config",
            "/w/.git/modules/libs/foo/objects/info/alternates",
            "/w/.git/modules/libs/foo/worktrees/w/commondir",
            "/w/.git/worktrees/w/commondir",
            "/w/.git",
            "/w/artifacts/audit.csv",
            "/w/Artifacts/Audit.csv",
            "/state/handles.db",
        ] {
            assert!(touched(path, Access::Write), "{path}");
            assert!(touched(path, Access::Replace), "{path}");
        }
        for path in [
            "/w/a.txt",
            "/w/.git/info/exclude",
            "/w/.git/refs/heads/config",
            "/w/.git/refs/heads/index",
            "/w/.git/refs/remotes/origin/logs",
            "/w/.git/objects/info/commit-graph",
            "/w/.git/modules/libs/foo/HEAD",
            "/w/.gitignore",
            "/w/hooks/x",
            "/w/config",
            "/w/commondir",
            "/w/info/attributes",
            "/w/artifacts",
        ] {
            assert!(!touched(path, Access::Write), "{path}");
        }
    }

    #[test]
    fn a_folder_that_holds_a_protected_file_stays_where_it_is() {
        assert!(touched("/w/artifacts", Access::Replace));
        assert!(!touched("/w/other", Access::Replace));
        let rules = PathRules::new(Some("/w/data/state".into()), Vec::new())
            .with_roots(&["/w/other/root".into()]);
        for path in ["/w/data", "/w/other", "/w/other/root"] {
            let path = Path::new(path);
            assert!(rules.protected_part(path, Access::Replace).is_some());
            assert!(rules.protected_part(path, Access::Write).is_none());
        }
    }

    #[test]
    fn a_crafted_directory_cannot_take_the_place_of_gits_own() {
        for path in [
            "/w/.git/info",
            "/w/.git/objects",
            "/w/.git/objects/info",
            "/w/.git/modules",
            "/w/.git/modules/libs",
            "/w/.git/worktrees/w",
        ] {
            assert!(touched(path, Access::Replace), "{path}");
            assert!(!touched(path, Access::Write), "{path}");
        }
        assert!(!touched("/w/.git/refs/heads/x", Access::Replace));
        assert!(!touched("/w/.git/objects/ab", Access::Replace));
    }

    #[test]
    fn the_state_directory_is_read_only_where_it_holds_stubs() {
        assert!(touched("/w/.llmc/token", Access::Read));
        assert!(touched("/w/.llmc", Access::Read));
        assert!(touched("/state/token", Access::Read));
        assert!(!touched("/w/.llmc/stubs/tools.pyi", Access::Read));
        assert!(!touched("/state/stubs/tools.pyi", Access::Read));
        assert!(!touched("/w/llmc.toml", Access::Read));
    }

    #[test]
    fn the_denylist_matches_names_in_any_case() {
        let globs = ["**/.env", "**/*.pem", "**/id_rsa*"].map(str::to_owned);
        let rules = PathRules::default().with_denylist(&globs, true).unwrap();
        for path in ["/w/.env", "/w/.ENV", "/w/x/Key.PEM", "/w/id_rsa.pub"] {
            assert!(rules.is_denylisted(Path::new(path)), "{path}");
        }
        assert!(!rules.is_denylisted(Path::new("/w/.envrc")));
    }
}
