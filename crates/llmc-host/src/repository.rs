//! Where git reads when it is started in a directory: refused unless all of it lies inside the roots.
//!
//! A repository can lead git to other repositories of the user's: by a `.git` file, a `commondir`, a list of further
//! object directories (`objects/info/alternates`), or a link in the place of any of its files. An agent that may write
//! in the workspace, or an archive that was unpacked in it, could so make git show what the file tools refuse. Every
//! repository that git could find from a directory upwards is therefore checked, without starting git.
//!
//! The check is made before git runs and again after it: [`RepositoryStamp`]s that differ mean that what was checked is
//! not what git read.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{self, FileType, OFlags, Stat};

use crate::cancel::CancelToken;
use crate::error::{Error, Result};
use crate::git_config::without_dots;
use crate::read::{OpenDir, open_regular};
use crate::roots::{FinalLink, RootedPath, Roots, file_type};
use crate::rules::Access;

/// Entries of git directories that are looked at; a repository with more is refused.
const MAX_ENTRIES: usize = 500_000;
/// How deep directories and alternates may nest.
const MAX_DEPTH: usize = 16;
/// Bytes of one of git's small files; git itself reads no more of a `.git` file.
const MAX_SMALL_FILE_BYTES: usize = 64 << 10;
/// Entries of a git directory that reading the repository itself does not need.
const UNREAD_ENTRIES: [&str; 4] = ["modules", "worktrees", "hooks", "lfs"];

/// What identifies the state of the checked repositories: equal stamps mean that git was led nowhere else between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepositoryStamp(Vec<EntryStamp>);

/// Device, inode and, where git seldom writes, the time of the last change.
type EntryStamp = (u64, u64, Option<(i64, i64)>);

impl Roots {
    /// Checks the repositories that git could find from a directory upwards, as far as they lie inside the roots.
    ///
    /// # Errors
    /// [`Error::ForeignRepository`] when git would be led outside the roots.
    pub fn check_repositories(
        &self,
        dir: &OpenDir,
        cancel: &CancelToken,
    ) -> Result<RepositoryStamp> {
        let mut check = RepositoryCheck {
            roots: self,
            requested: dir.path.requested(),
            cancel,
            seen: HashSet::new(),
            entries: 0,
            stamp: Vec::new(),
        };
        let start = dir.path.absolute();
        for place in start.ancestors() {
            // What lies above the roots is not the agent's to change.
            if self.paths().any(|root| place.starts_with(root)) {
                check.working_tree(place)?;
            }
        }
        Ok(RepositoryStamp(check.stamp))
    }
}

struct RepositoryCheck<'a> {
    roots: &'a Roots,
    requested: &'a str,
    cancel: &'a CancelToken,
    seen: HashSet<(u64, u64)>,
    entries: usize,
    stamp: Vec<EntryStamp>,
}

impl RepositoryCheck<'_> {
    /// One directory that may be the top of a working tree.
    fn working_tree(&mut self, top: &Path) -> Result<()> {
        let name = top.join(".git");
        let dot_git = self.inside(&name, ".git")?;
        let Ok(stat) = dot_git.lstat() else {
            return Ok(());
        };
        match file_type(&stat) {
            FileType::Directory => self.git_dir(&name, &dot_git, 0),
            FileType::RegularFile => {
                let text = self.small_file(&dot_git)?;
                let Some(target) = text.strip_prefix(b"gitdir:") else {
                    return Ok(());
                };
                self.add(&stat, StampTime::Included);
                let target = top.join(OsStr::from_bytes(target.trim_ascii()));
                let git_dir = self.inside(
                    &target,
                    "the repository of this worktree or submodule (its .git file)",
                )?;
                self.git_dir(&target, &git_dir, 0)
            }
            _ => Ok(()),
        }
    }

    /// A git directory, and the one that it shares with other working trees.
    fn git_dir(&mut self, name: &Path, dir: &RootedPath, depth: usize) -> Result<()> {
        let Some(stat) = self.enter(dir, depth)? else {
            return Ok(());
        };
        self.add(&stat, StampTime::LeftOut);
        self.entries_below(name, dir, depth, &UNREAD_ENTRIES)?;
        let common_file = self.inside(&name.join("commondir"), "commondir")?;
        if let Ok(stat) = common_file.lstat()
            && file_type(&stat) == FileType::RegularFile
        {
            self.add(&stat, StampTime::Included);
            let text = self.small_file(&common_file)?;
            let common = name.join(OsStr::from_bytes(text.trim_ascii()));
            let dir = self.inside(&common, "commondir")?;
            self.git_dir(&common, &dir, depth + 1)?;
        }
        let objects = name.join("objects");
        let dir = self.inside(&objects, "objects")?;
        self.objects(&objects, &dir, depth + 1)
    }

    /// A directory of objects, and those that its list of alternates names.
    fn objects(&mut self, name: &Path, dir: &RootedPath, depth: usize) -> Result<()> {
        self.refuse_depth(depth)?;
        let Ok(stat) = dir.lstat() else {
            return Ok(());
        };
        self.add(&stat, StampTime::Included);
        let info = self.inside(&name.join("info"), "objects/info")?;
        if let Ok(stat) = info.lstat() {
            self.add(&stat, StampTime::Included);
        }
        // Named by a link or an alternate it has not been walked yet.
        if self.enter(dir, depth)?.is_some() {
            self.entries_below(name, dir, depth, &[])?;
        }
        const WHAT: &str = "objects/info/alternates";
        let list = self.inside(&name.join("info/alternates"), WHAT)?;
        let Ok(stat) = list.lstat() else {
            return Ok(());
        };
        self.add(&stat, StampTime::Included);
        for line in self.small_file(&list)?.split(|byte| *byte == b'\n') {
            let line = line.trim_ascii_end();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            if line.starts_with(b"\"") {
                return Err(self.foreign(WHAT));
            }
            // git drops `..` from the text; where a link is on the way, the file system would not.
            for base in [name.to_owned(), dir.absolute()] {
                let other = base.join(OsStr::from_bytes(line));
                for other in [without_dots(&other), other] {
                    let dir = self.inside(&other, WHAT)?;
                    if dir.lstat().is_ok_and(|stat| !self.has_seen(&stat)) {
                        self.objects(&other, &dir, depth + 1)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Follows every link below a directory.
    fn entries_below(
        &mut self,
        name: &Path,
        dir: &RootedPath,
        depth: usize,
        leave_out: &[&str],
    ) -> Result<()> {
        self.refuse_depth(depth)?;
        let fd = dir.open(OFlags::RDONLY | OFlags::DIRECTORY)?;
        let failed = |errno| Error::from_errno(self.requested, errno);
        for entry in fs::Dir::new(fd).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let own = entry.file_name().to_bytes();
            if own == b"." || own == b".." {
                continue;
            }
            self.count()?;
            if leave_out.iter().any(|out| own == out.as_bytes()) {
                continue;
            }
            let name = name.join(OsStr::from_bytes(own));
            let kind = match entry.file_type() {
                FileType::Unknown => match self.child(dir, own)?.lstat() {
                    Ok(stat) => file_type(&stat),
                    Err(_) => continue,
                },
                known => known,
            };
            match kind {
                FileType::Directory => {
                    let dir = self.child(dir, own)?;
                    if self.enter(&dir, depth + 1)?.is_some() {
                        self.entries_below(&name, &dir, depth + 1, &[])?;
                    }
                }
                FileType::Symlink => {
                    let target = self.inside(&name, "a link in its git directory")?;
                    let is_dir = target
                        .lstat()
                        .is_ok_and(|stat| file_type(&stat) == FileType::Directory);
                    if is_dir && self.enter(&target, depth + 1)?.is_some() {
                        self.entries_below(&name, &target, depth + 1, &[])?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Where a path leads. The path may be missing; outside the roots it may not lie.
    fn inside(&self, path: &Path, what: &str) -> Result<RootedPath> {
        match self.follow(path) {
            Err(Error::OutsideRoots { .. } | Error::NoRoots { .. }) => Err(self.foreign(what)),
            other => other,
        }
    }

    fn follow(&self, path: &Path) -> Result<RootedPath> {
        self.roots.resolve_bytes(
            self.requested,
            path.as_os_str().as_bytes(),
            FinalLink::Follow,
            Access::Read,
        )
    }

    fn child(&self, dir: &RootedPath, name: &[u8]) -> Result<RootedPath> {
        self.follow(&dir.absolute().join(OsStr::from_bytes(name)))
    }

    fn foreign(&self, what: &str) -> Error {
        Error::ForeignRepository {
            path: self.requested.to_owned(),
            what: what.to_owned(),
        }
    }

    /// The directory's status when it has not been walked yet.
    fn enter(&mut self, dir: &RootedPath, depth: usize) -> Result<Option<Stat>> {
        self.refuse_depth(depth)?;
        let Ok(stat) = dir.lstat() else {
            return Ok(None);
        };
        let is_new =
            file_type(&stat) == FileType::Directory && self.seen.insert((stat.st_dev, stat.st_ino));
        Ok(is_new.then_some(stat))
    }

    fn has_seen(&self, stat: &Stat) -> bool {
        self.seen.contains(&(stat.st_dev, stat.st_ino))
    }

    fn refuse_depth(&self, depth: usize) -> Result<()> {
        if depth <= MAX_DEPTH {
            return Ok(());
        }
        Err(self.too_large(format!("its git directory nests deeper than {MAX_DEPTH}")))
    }

    fn count(&mut self) -> Result<()> {
        self.cancel.check()?;
        self.entries += 1;
        if self.entries <= MAX_ENTRIES {
            return Ok(());
        }
        Err(self.too_large(format!(
            "its git directory has more than {MAX_ENTRIES} entries; git gc packs them"
        )))
    }

    fn too_large(&self, why: String) -> Error {
        Error::TooLarge {
            path: self.requested.to_owned(),
            why,
        }
    }

    fn small_file(&self, path: &RootedPath) -> Result<Vec<u8>> {
        use std::io::Read;
        let (file, _) = open_regular(path)?;
        let mut text = Vec::new();
        let limit = MAX_SMALL_FILE_BYTES as u64 + 1;
        let read = file.take(limit).read_to_end(&mut text);
        read.map_err(|source| Error::Io {
            path: self.requested.to_owned(),
            source,
        })?;
        if text.len() > MAX_SMALL_FILE_BYTES {
            return Err(self.too_large("a list in its git directory is too long".to_owned()));
        }
        Ok(text)
    }

    fn add(&mut self, stat: &Stat, time: StampTime) {
        let changed = match time {
            StampTime::Included => Some((
                stat.st_ctime,
                i64::try_from(stat.st_ctime_nsec).unwrap_or(i64::MAX),
            )),
            StampTime::LeftOut => None,
        };
        self.stamp.push((stat.st_dev, stat.st_ino, changed));
    }
}

/// Whether a stamp tells one change of an entry from another.
enum StampTime {
    Included,
    /// git writes there all the time.
    LeftOut,
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;
    use std::sync::Arc;

    use super::*;

    struct Fixture {
        base: tempfile::TempDir,
    }

    impl Fixture {
        /// A repository in the root `w` and one outside.
        fn new() -> Fixture {
            let fixture = Fixture {
                base: tempfile::tempdir().unwrap(),
            };
            for top in ["w", "w/sub", "outside"] {
                for dir in ["refs/heads", "objects/info", "objects/pack", "objects/ab"] {
                    std::fs::create_dir_all(fixture.path(&format!("{top}/.git/{dir}"))).unwrap();
                }
                fixture.write(&format!("{top}/.git/HEAD"), "ref: refs/heads/main\n");
            }
            fixture
        }

        fn path(&self, path: &str) -> PathBuf {
            self.base.path().canonicalize().unwrap().join(path)
        }

        fn write(&self, path: &str, text: &str) {
            std::fs::create_dir_all(self.path(path).parent().unwrap()).unwrap();
            std::fs::write(self.path(path), text).unwrap();
        }

        fn check(&self, dir: &str) -> Result<RepositoryStamp> {
            let roots = Roots::open(&self.path("w"), &[".".into()], Arc::default()).unwrap();
            let dir = roots.open_dir(dir).unwrap();
            roots.check_repositories(&dir, &CancelToken::default())
        }

        fn refused(&self, dir: &str) {
            let checked = self.check(dir);
            assert!(
                matches!(checked, Err(Error::ForeignRepository { .. })),
                "{checked:?}"
            );
        }
    }

    #[test]
    fn a_repository_inside_the_roots_is_fine_in_all_its_forms() {
        let f = Fixture::new();
        f.check(".").unwrap();
        f.check("sub").unwrap();
        f.write(
            "w/.git/objects/info/alternates",
            "# none\n../../sub/.git/objects\n",
        );
        f.write("w/tree/.git", "gitdir: ../.git/worktrees/tree\n");
        f.write("w/.git/worktrees/tree/commondir", "../..\n");
        symlink("../../sub/.git/objects/pack", f.path("w/.git/objects/cd")).unwrap();
        f.check(".").unwrap();
        f.check("tree").unwrap();
    }

    #[test]
    fn alternates_that_lead_outside_are_refused() {
        let f = Fixture::new();
        let outside = f.path("outside/.git/objects").display().to_string();
        for line in [
            outside.as_str(),
            "../../../outside/.git/objects",
            "../../sub/../../outside/.git/objects",
            "\"/quoted\"",
        ] {
            f.write("w/.git/objects/info/alternates", &format!("{line}\n"));
            f.refused(".");
            f.refused("sub");
        }
        // Through another repository's list.
        f.write("w/.git/objects/info/alternates", "../../sub/.git/objects\n");
        f.check(".").unwrap();
        f.write("w/sub/.git/objects/info/alternates", &outside);
        f.refused(".");
    }

    #[test]
    fn files_that_lead_git_outside_are_refused() {
        let outside = |f: &Fixture| f.path("outside/.git").display().to_string();
        for file in ["w/tree/.git", "w/.git/worktrees/t/commondir"] {
            let f = Fixture::new();
            f.write("w/t/.git", "gitdir: ../.git/worktrees/t\n");
            f.check("t").unwrap();
            let prefix = if file.ends_with(".git") {
                "gitdir: "
            } else {
                ""
            };
            f.write(file, &format!("{prefix}{}\n", outside(&f)));
            f.refused(if file.ends_with(".git") { "tree" } else { "t" });
        }
        let f = Fixture::new();
        f.write("w/.git/commondir", "../../outside/.git\n");
        f.refused(".");
    }

    #[test]
    fn links_that_lead_outside_are_refused() {
        for (link, target) in [
            ("w/.git/objects", "outside/.git/objects"),
            ("w/.git/objects/ab", "outside/.git/objects/ab"),
            (
                "w/.git/objects/pack/p.pack",
                "outside/.git/objects/pack/p.pack",
            ),
            ("w/.git/refs/heads/main", "outside/.git/refs/heads/main"),
            ("w/.git/HEAD", "outside/.git/HEAD"),
            ("w/.git/logs", "outside/.git/logs"),
            ("w/.git", "outside/.git"),
            ("w/sub/.git", "outside/.git"),
        ] {
            let f = Fixture::new();
            let (link, target) = (f.path(link), f.path(target));
            if link.is_dir() {
                std::fs::remove_dir_all(&link).unwrap();
            } else if link.exists() {
                std::fs::remove_file(&link).unwrap();
            }
            symlink(&target, &link).unwrap();
            f.refused("sub");
        }
    }

    #[test]
    fn a_stamp_tells_whether_alternates_came_and_went() {
        let f = Fixture::new();
        let before = f.check(".").unwrap();
        assert_eq!(before, f.check(".").unwrap());
        // What git itself writes all the time does not count.
        f.write("w/.git/index.lock", "");
        assert_eq!(before, f.check(".").unwrap());
        f.write("w/.git/objects/info/alternates", "/nowhere\n");
        std::fs::remove_file(f.path("w/.git/objects/info/alternates")).unwrap();
        assert_ne!(before, f.check(".").unwrap());
    }
}
