//! The workspace as it was: which files a view has to show, and which to hide, so that a command finds the tracked files of a
//! base, and environments, build folders and everything else that git ignores as they are now.
//!
//! Only what differs is shown. Contents come from git's objects without any filter, so a repository runs nothing here; names
//! come from the repository and are checked before they are used.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use llmc_exec::BaseLayer;
use llmc_history::{EntryId, History, PastState, PathState};
use llmc_host::walk::{FileKind, Hidden, ListDetail, ListOptions, list};
use llmc_host::{CancelToken, OpenDir, Roots};

use crate::base_inputs::ignored_inputs;
use crate::catalog::{below, files_below};
use crate::committed::{CommitTree, Committed, CommittedKind, Reach, is_same};
use crate::cx::Cx;
use crate::environment_folders::EnvironmentFolders;
use crate::error::{Error, ErrorKind, Result};
use crate::history_keeper::{check_reader, viewer_of};
use crate::shell::is_test_path;

/// Files that a base may differ in.
const MAX_SHOWN_FILES: usize = 20_000;
/// Files that git does not ignore, environments included.
const MAX_WALKED_FILES: usize = 200_000;
/// A larger file of a base is not shown.
const MAX_SHOWN_BYTES: u64 = 64 << 20;
/// Entries of a new folder that are looked at before it is hidden as a whole.
const MAX_FOLDER_ENTRIES: usize = 10_000;
/// A longer source is shown without the tests of now.
const MAX_SPLICED_BYTES: usize = 4 << 20;
/// Contents that are in memory at the same time.
const BATCH_BYTES: u64 = 16 << 20;
/// How git-lfs begins what it puts in place of a file.
const LFS_POINTER: &[u8] = b"version https://git-lfs.github.com/spec/";
/// What an interpreter writes beside its sources.
const BYTECODE_DIR: &[u8] = b"__pycache__";

/// What a command is to see of a base.
pub(crate) struct BaseView<'a> {
    /// The base as an answer calls it: `HEAD (1a2b3c4d)`, `before h12`.
    pub(crate) name: String,
    /// git's name of the commit, or the entry's.
    pub(crate) id: String,
    source: BaseSource<'a>,
    dir: PathBuf,
    /// What a reader should know about the view.
    pub(crate) notes: Vec<String>,
    /// A checksum over names, sizes and times of the ignored files, which a run at the base sees as they are; none where they
    /// are not known.
    pub(crate) inputs: Option<u64>,
}

/// Where the contents of a base come from.
enum BaseSource<'a> {
    Commit(Box<CommitBase<'a>>),
    /// What was where before an entry of the history, of paths that are not so now.
    Entry(&'a History, Vec<PastState>),
}

/// What of a commit differs from what is there.
struct CommitBase<'a> {
    tree: CommitTree<'a>,
    shown: Vec<(Vec<u8>, Committed)>,
    hidden: Vec<Vec<u8>>,
    /// Files that the base does not have.
    absent: Vec<Vec<u8>>,
    inputs: Option<u64>,
}

impl<'a> BaseView<'a> {
    /// Turns a caller's `base` into a view: a commit of the repository that `dir` belongs to, or what the workspace was
    /// before an entry of the history.
    ///
    /// # Errors
    /// No such base, no repository, or a base that differs in too much.
    pub(crate) fn of(
        cx: &'a Cx,
        dir: &'a OpenDir,
        base: &str,
        stop: &CancelToken,
    ) -> Result<BaseView<'a>> {
        // No commit is called so: `h` is no hexadecimal digit. A branch may be, and is then named in full.
        if base.starts_with('h')
            && let Ok(entry) = base.parse()
        {
            return BaseView::of_entry(cx, entry);
        }
        let tree = CommitTree::at(cx, dir, base, stop).map_err(for_base)?;
        let listed = tree.list(Reach::All, stop).map_err(for_base)?;
        let id = tree.revision().to_owned();
        let name = format!("{base} ({})", &id[..8]);
        let mut commit = CommitBase {
            tree,
            shown: Vec::new(),
            hidden: Vec::new(),
            absent: Vec::new(),
            inputs: None,
        };
        let notes = commit.compare(cx, dir, &name, listed.unwrap_or_default(), stop)?;
        Ok(BaseView {
            name,
            id,
            dir: dir.path.absolute(),
            notes,
            inputs: commit.inputs,
            source: BaseSource::Commit(Box::new(commit)),
        })
    }

    fn of_entry(cx: &'a Cx, entry: EntryId) -> Result<BaseView<'a>> {
        check_reader(cx.caller())?;
        let history = cx.app().history()?;
        let mut states = history.tree_at(entry, &viewer_of(&cx.caller().principal))?;
        // Paths in other roots are absolute.
        states.retain(|past| is_plain(&past.path));
        let roots = &cx.files().roots;
        let dir = roots.open_dir(&roots.display_absolute(cx.app().root()))?;
        let mut environments = EnvironmentFolders::default();
        states.retain(|past| {
            // The folder itself, too, which the entry may have made.
            let path = [past.path.as_slice(), b"/"].concat();
            !environments.hold(roots, &dir, &path, |_| false)
        });
        states.sort_by(|a, b| a.path.cmp(&b.path));
        let not_kept = |past: &&PastState| matches!(past.state, PathState::FileNotKept { .. });
        let mut notes: Vec<String> = environments.note().into_iter().collect();
        match states.iter().filter(not_kept).count() {
            0 => {}
            count => notes.push(format!(
                "{count} files of the base are not in the history and are as they are now"
            )),
        }
        Ok(BaseView {
            name: format!("before {entry}"),
            id: entry.to_string(),
            source: BaseSource::Entry(history, states),
            dir: cx.app().root().to_owned(),
            notes,
            inputs: None,
        })
    }

    /// The files that differ from the base, in the order of their names; nothing for a base that is an entry.
    pub(crate) fn changed(&self) -> Vec<String> {
        let BaseSource::Commit(commit) = &self.source else {
            return Vec::new();
        };
        let shown = commit
            .shown
            .iter()
            .filter(|(_, was)| was.kind != CommittedKind::Link);
        let names = shown.map(|(name, _)| name).chain(&commit.absent);
        let mut names: Vec<String> = names
            .map(|name| String::from_utf8_lossy(name).into_owned())
            .collect();
        names.sort();
        names
    }

    /// Puts the view over what is there, except for tests that are to stay as they are now. Returns what a reader should know
    /// beside [`BaseView::notes`].
    ///
    /// # Errors
    /// The base cannot be read, or the view does not fit.
    pub(crate) fn fill(
        &self,
        layer: &BaseLayer<'_>,
        sources: BaseSources<'_>,
        stop: &CancelToken,
    ) -> Result<Vec<String>> {
        let place = BasePlace {
            layer,
            dir: &self.dir,
            base: &self.name,
            sources,
        };
        match &self.source {
            BaseSource::Commit(commit) => commit.fill(&place, stop),
            BaseSource::Entry(history, states) => {
                fill_past(&place, history, states, stop)?;
                Ok(Vec::new())
            }
        }
    }
}

/// Where a base is shown.
struct BasePlace<'a> {
    layer: &'a BaseLayer<'a>,
    dir: &'a Path,
    /// What the base is called.
    base: &'a str,
    sources: BaseSources<'a>,
}

/// What of a base is shown.
#[derive(Debug, Clone, Copy)]
pub(crate) enum BaseSources<'a> {
    All,
    /// Files of tests, and tests in Rust sources, are as they are now.
    WithTestsOf(&'a Roots),
}

impl BasePlace<'_> {
    /// Whether a path is shown as it is now.
    fn stays(&self, name: &[u8]) -> bool {
        matches!(self.sources, BaseSources::WithTestsOf(_)) && is_test_path(name)
    }

    /// A source of the base with its tests as they are now; none where it is shown as it was.
    fn with_tests_now(&self, name: &[u8], old: &[u8], stop: &CancelToken) -> Option<Vec<u8>> {
        let BaseSources::WithTestsOf(roots) = self.sources else {
            return None;
        };
        if !name.ends_with(b".rs") {
            return None;
        }
        let path = roots.display_absolute(&self.path(name));
        let now = roots.open_file(&path).ok()?;
        let now = now.read_all(MAX_SPLICED_BYTES, stop).ok()?;
        with_inline_tests(old, &now)
    }

    fn path(&self, name: &[u8]) -> PathBuf {
        self.dir.join(OsStr::from_bytes(name))
    }

    fn unfilled(&self, error: &io::Error) -> Error {
        match error.kind() {
            io::ErrorKind::StorageFull => Error::new(
                ErrorKind::TooLarge,
                format!("{} differs in more than a view can hold", self.base),
            )
            .hint("give a base that is nearer"),
            _ => Error::new(
                ErrorKind::Internal,
                format!("{} cannot be shown: {error}", self.base),
            ),
        }
    }
}

/// Shows what was where before an entry.
fn fill_past(
    place: &BasePlace<'_>,
    history: &History,
    states: &[PastState],
    stop: &CancelToken,
) -> Result<()> {
    // Nothing can be shown below a file, a link or a hidden path.
    let mut covered: HashSet<&[u8]> = HashSet::new();
    for PastState { path, state } in states {
        stop.check()?;
        if place.stays(path) || folders(path).any(|folder| covered.contains(folder)) {
            continue;
        }
        let shown = place.path(path);
        let made = match state {
            PathState::Dir { .. } | PathState::FileNotKept { .. } => continue,
            PathState::Absent => place.layer.hide(&shown),
            PathState::File { mode, .. } => match history.content(path, state)? {
                Some(content) => place.layer.show_file(&shown, &content, mode & 0o111 != 0),
                None => continue,
            },
            PathState::Link { .. } => match history.content(path, state)? {
                Some(target) => place.layer.show_link(&shown, &target),
                None => continue,
            },
        };
        made.map_err(|error| place.unfilled(&error))?;
        covered.insert(path);
    }
    Ok(())
}

impl CommitBase<'_> {
    /// Finds out what differs from what is there.
    fn compare(
        &mut self,
        cx: &Cx,
        dir: &OpenDir,
        base: &str,
        listed: HashMap<Vec<u8>, Committed>,
        stop: &CancelToken,
    ) -> Result<Vec<String>> {
        let roots = &cx.files().roots;
        let (there, _) = files_below(cx, dir, MAX_WALKED_FILES, stop).map_err(for_base)?;
        let (mut refused, mut large) = (0_u64, 0_u64);
        let mut submodules: BTreeSet<&[u8]> = BTreeSet::new();
        for (name, was) in &listed {
            stop.check()?;
            if !is_plain(name) {
                refused += 1;
                continue;
            }
            let is_shown = match was.kind {
                CommittedKind::Submodule => {
                    submodules.insert(name);
                    false
                }
                CommittedKind::Directory => false,
                CommittedKind::Link => true,
                CommittedKind::File | CommittedKind::Executable => {
                    !is_there(roots, dir, name, was, stop)?
                }
            };
            match is_shown {
                true if was.size > MAX_SHOWN_BYTES => large += 1,
                true => self.shown.push((name.clone(), was.clone())),
                false => {}
            }
        }
        if self.shown.len() > MAX_SHOWN_FILES {
            let message = format!(
                "{base}: {} files differ, {MAX_SHOWN_FILES} can be shown",
                self.shown.len()
            );
            return Err(Error::new(ErrorKind::TooLarge, message).hint("give a base that is nearer"));
        }
        self.shown.sort_by(|a, b| a.0.cmp(&b.0));
        let tracked: HashSet<&[u8]> = listed.keys().flat_map(|name| folders(name)).collect();
        let mut nested = NestedRepositories::default();
        let mut environments = EnvironmentFolders::default();
        let absent = there.iter().filter(|name| {
            !listed.contains_key(*name)
                && !folders(name).any(|folder| submodules.contains(folder))
                && !environments.hold(roots, dir, name, |folder| tracked.contains(folder))
                && !nested.holds(roots, dir, name)
        });
        let absent: BTreeSet<&[u8]> = absent.map(Vec::as_slice).collect();
        self.hidden = hidden_names(dir, &listed, &tracked, &absent, stop)?;
        self.absent = absent.iter().map(|name| name.to_vec()).collect();
        self.inputs = ignored_inputs(dir, &there, stop)?;
        let mut notes: Vec<String> = environments.note().into_iter().collect();
        for (count, what) in [
            (submodules.len() as u64, "submodules are as they are now"),
            (
                refused,
                "names of the base are no plain paths and are left out",
            ),
            (
                large,
                "files of the base are too large and are as they are now",
            ),
        ] {
            if count > 0 {
                notes.push(format!("{count} {what}"));
            }
        }
        Ok(notes)
    }

    fn fill(&self, place: &BasePlace<'_>, stop: &CancelToken) -> Result<Vec<String>> {
        let layer = place.layer;
        let mut pointers = 0_u64;
        let mut rest = self.shown.as_slice();
        while !rest.is_empty() {
            stop.check()?;
            let mut bytes = 0;
            let fits = |(_, was): &&(Vec<u8>, Committed)| {
                let is_first = bytes == 0;
                bytes += was.size.max(1);
                is_first || bytes <= BATCH_BYTES
            };
            let (batch, later) = rest.split_at(rest.iter().take_while(fits).count().max(1));
            rest = later;
            let wanted: Vec<&Committed> = batch.iter().map(|(_, was)| was).collect();
            let contents = self.tree.contents(&wanted, stop).map_err(for_base)?;
            for (name, was) in batch {
                if place.stays(name) {
                    continue;
                }
                let Some(content) = contents.get(&was.id) else {
                    continue;
                };
                let path = place.path(name);
                let made = match was.kind {
                    CommittedKind::Link => layer.show_link(&path, content),
                    _ if content.starts_with(LFS_POINTER) => {
                        pointers += 1;
                        Ok(())
                    }
                    kind => {
                        let spliced = place.with_tests_now(name, content, stop);
                        let content = spliced.as_deref().unwrap_or(content);
                        layer.show_file(&path, content, kind == CommittedKind::Executable)
                    }
                };
                made.map_err(|error| place.unfilled(&error))?;
            }
        }
        for name in self.hidden.iter().filter(|name| !place.stays(name)) {
            let hidden = layer.hide(&place.path(name));
            hidden.map_err(|error| place.unfilled(&error))?;
        }
        let note = format!("{pointers} files that git-lfs keeps elsewhere are as they are now");
        Ok((pointers > 0).then_some(note).into_iter().collect())
    }
}

/// A Rust source with the tests at its end, `#[cfg(test)] mod … { … }`, of another version of it.
fn with_inline_tests(old: &[u8], now: &[u8]) -> Option<Vec<u8>> {
    let tests = &now[inline_tests_start(now)?..];
    let code = &old[..inline_tests_start(old).unwrap_or(old.len())];
    Some([code, tests].concat())
}

/// Where the module of tests begins that ends a source, with its attributes.
fn inline_tests_start(source: &[u8]) -> Option<usize> {
    if !source.trim_ascii_end().ends_with(b"\n}") {
        return None;
    }
    let mut start = None;
    let mut attributes = None;
    let mut offset = 0;
    for line in source.split_inclusive(|byte| *byte == b'\n') {
        if line.starts_with(b"#[") {
            let (_, are_of_tests) = attributes.get_or_insert((offset, false));
            *are_of_tests |= line.starts_with(b"#[cfg(") && contains(line, b"test");
        } else {
            let is_module = line.starts_with(b"mod ") || line.starts_with(b"pub(crate) mod ");
            let opens = line.trim_ascii_end().ends_with(b"{");
            if let (Some((at, true)), true) = (attributes, is_module && opens) {
                start = Some(at);
            }
            attributes = None;
        }
        offset += line.len();
    }
    start
}

fn contains(line: &[u8], word: &[u8]) -> bool {
    line.windows(word.len()).any(|part| part == word)
}

/// The directory whose repository a base is looked for in: the nearest one upwards with a repository of its own.
///
/// # Errors
/// The directory has vanished.
pub(crate) fn repository_dir(roots: &Roots, cwd: &OpenDir) -> Result<OpenDir> {
    let start = cwd.path.absolute();
    let root = roots
        .paths()
        .filter(|root| start.starts_with(root))
        .min_by_key(|root| root.components().count())
        .unwrap_or(&start)
        .to_owned();
    let inside = start.ancestors().take_while(|dir| dir.starts_with(&root));
    let own = inside
        .map(|dir| roots.display_absolute(dir))
        .find(|dir| roots.stat(&format!("{dir}/.git")).is_ok());
    Ok(roots.open_dir(&own.unwrap_or_else(|| roots.display_absolute(&root)))?)
}

/// Hints of other tools would lead elsewhere.
fn for_base(error: Error) -> Error {
    match error.kind {
        ErrorKind::NotFound => {
            error.hint("base is a commit of the repository around cwd; default HEAD")
        }
        ErrorKind::TimedOut | ErrorKind::TooLarge | ErrorKind::Internal => {
            error.hint("the repository is too large or damaged to be compared")
        }
        _ => error,
    }
}

/// Whether a name of a commit is a path below the directory, outside of git's own.
fn is_plain(name: &[u8]) -> bool {
    let path = Path::new(OsStr::from_bytes(name));
    let is_normal = |part: Component<'_>| match part {
        Component::Normal(part) => !part.as_bytes().eq_ignore_ascii_case(b".git"),
        _ => false,
    };
    !name.is_empty()
        && !name.ends_with(b"/")
        && !name.contains(&0)
        && path.components().all(is_normal)
        && path.as_os_str().len() == path.components().collect::<PathBuf>().as_os_str().len()
}

/// Whether the file is there as the commit has it.
fn is_there(
    roots: &Roots,
    dir: &OpenDir,
    name: &[u8],
    was: &Committed,
    stop: &CancelToken,
) -> Result<bool> {
    let Ok(file) = roots.open_file(&below(roots, &dir.path, name)) else {
        return Ok(false);
    };
    let is_executable = was.kind == CommittedKind::Executable;
    Ok(file.is_executable() == is_executable && is_same(&file, was, stop)?)
}

/// The folders that a path is in, outermost first.
pub(crate) fn folders(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    ends.map(|(at, _)| &path[..at])
}

/// Remembers which folders are repositories of their own, whose files no other tracks.
#[derive(Default)]
struct NestedRepositories {
    known: HashMap<Vec<u8>, bool>,
}

impl NestedRepositories {
    fn holds(&mut self, roots: &Roots, dir: &OpenDir, path: &[u8]) -> bool {
        folders(path).any(|folder| {
            *self.known.entry(folder.to_vec()).or_insert_with(|| {
                let git = [folder, b"/.git"].concat();
                roots.stat(&below(roots, &dir.path, &git)).is_ok()
            })
        })
    }
}

/// What to hide for these files not to be there: a folder that the base does not have goes as a whole, or it could still be
/// imported as a package, unless something in it is ignored and therefore stays.
fn hidden_names(
    dir: &OpenDir,
    listed: &HashMap<Vec<u8>, Committed>,
    known: &HashSet<&[u8]>,
    absent: &BTreeSet<&[u8]>,
    stop: &CancelToken,
) -> Result<Vec<Vec<u8>>> {
    let mut whole: BTreeMap<Vec<u8>, bool> = BTreeMap::new();
    let mut hidden = BTreeSet::new();
    for name in absent {
        stop.check()?;
        // Where the base has a file for one of its folders, or a folder of its own name, that is shown over it.
        if known.contains(name) || folders(name).any(|folder| listed.contains_key(folder)) {
            continue;
        }
        let Some(folder) = folders(name).find(|folder| !known.contains(folder)) else {
            hidden.insert(name.to_vec());
            continue;
        };
        let is_whole = match whole.get(folder) {
            Some(is_whole) => *is_whole,
            None => {
                let is_whole = holds_only(dir, folder, absent, stop)?;
                whole.insert(folder.to_vec(), is_whole);
                is_whole
            }
        };
        hidden.insert(match is_whole {
            true => folder.to_vec(),
            false => name.to_vec(),
        });
    }
    Ok(hidden.into_iter().collect())
}

/// Whether everything in a folder is among these files, bytecode aside.
fn holds_only(
    dir: &OpenDir,
    folder: &[u8],
    absent: &BTreeSet<&[u8]>,
    stop: &CancelToken,
) -> Result<bool> {
    use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let path = OsStr::from_bytes(folder);
    let Ok(inner) = openat2(&dir.fd, path, flags, Mode::empty(), resolve) else {
        return Ok(false);
    };
    let options = ListOptions {
        depth: usize::MAX,
        hidden: Hidden::Include,
        file_glob: None,
        max_entries: MAX_FOLDER_ENTRIES,
        guard: None,
        detail: ListDetail::Name,
    };
    let found = list(&inner, &options, stop)?;
    stop.check()?;
    let is_known = |path: &[u8]| {
        let whole = [folder, b"/", path].concat();
        let is_bytecode = path
            .split(|byte| *byte == b'/')
            .any(|part| part == BYTECODE_DIR);
        is_bytecode || absent.contains(whole.as_slice())
    };
    let is_whole = found.complete && found.total <= MAX_FOLDER_ENTRIES as u64;
    let mut files = found
        .entries
        .iter()
        .filter(|entry| entry.kind != FileKind::Dir);
    Ok(is_whole && files.all(|entry| is_known(&entry.path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_paths_of_a_commit_are_used() {
        for name in ["a", "a/b.py", "..a/b", "dir/.github/x", "\u{e9}", " "] {
            assert!(is_plain(name.as_bytes()), "{name:?}");
        }
        assert!(is_plain(b"\xff\xfe"));
        for name in [
            "",
            "/etc/passwd",
            "../x",
            "a/../../x",
            "a/./b",
            ".git",
            ".git/config",
            "a/.GIT/hooks/x",
            "a//b",
            "a/",
            ".",
            "a\0b",
        ] {
            assert!(!is_plain(name.as_bytes()), "{name:?}");
        }
    }

    #[test]
    fn a_rust_source_takes_the_tests_of_another_version() {
        let spliced = |old: &str, now: &str| {
            let text = with_inline_tests(old.as_bytes(), now.as_bytes())?;
            Some(String::from_utf8(text).unwrap())
        };
        let tests = |body: &str| {
            format!("\n#[cfg(test)]\n#[cfg(feature = \"x\")]\nmod tests {{\n    {body}\n}}\n")
        };
        let source = |code: &str, body: &str| format!("{code}\n{}", tests(body));
        assert_eq!(
            spliced(&source("old", "a"), &source("new", "b")),
            Some(source("old", "b"))
        );
        assert_eq!(
            spliced("old\n", &source("new", "b")),
            Some(format!("old{}", tests("b")))
        );
        // Nothing that ends the source, and a module in a file of its own.
        for now in [
            "new\n",
            "new\n\n#[cfg(test)]\nmod tests;\n",
            "\n#[cfg(test)]\nfn help() {}\n\nfn more() {\n}\n",
        ] {
            assert_eq!(spliced("old\n", now), None, "{now:?}");
        }
    }

    #[test]
    fn folders_of_a_path_come_outermost_first() {
        let all: Vec<&[u8]> = folders(b"a/b/c").collect();
        assert_eq!(all, [b"a".as_slice(), b"a/b"]);
        assert_eq!(folders(b"c").count(), 0);
    }
}
