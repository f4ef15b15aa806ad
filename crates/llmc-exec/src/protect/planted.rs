//! What a run has made or changed under protected names, and what becomes of it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use llmc_host::PROTECTED_NAMES;

use super::{Guard, Watch, identity};
use crate::git_dirs::GitNames;
use crate::git_new::{InPlace, leads_into};
use crate::protected_dirs::FoundDirs;
use crate::quarantine::{Copy, Quarantined};

/// When a run is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    WhileRunning,
    AtEnd,
}

impl Look {
    /// Whether git may just have made a file, and writes it now.
    fn is_being_written(self, path: &Path) -> bool {
        let is_empty = |status: std::fs::Metadata| status.is_file() && status.len() == 0;
        self == Look::WhileRunning && path.symlink_metadata().is_ok_and(is_empty)
    }
}

impl Guard {
    /// Judges what was planted: git's own names by what they contain.
    pub(super) fn judge_planted(
        &self,
        planted: &[PathBuf],
        found: &FoundDirs,
        watch: &Watch,
        look: Look,
        removed: &mut Vec<Quarantined>,
    ) {
        let mut git_dirs = watch.git_dirs.clone();
        git_dirs.extend(found.homes.iter().map(|home| home.join(".git")));
        git_dirs.extend(found.bare.iter().cloned());
        for path in planted {
            let Ok(status) = std::fs::symlink_metadata(path) else {
                continue;
            };
            let holder = git_dirs
                .iter()
                .find(|dir| path != *dir && path.starts_with(dir));
            match holder {
                Some(git_dir) => self.in_place(git_dir).judge_new(path, removed),
                None if path.ends_with(".git") && status.is_dir() => {
                    let in_place = self.in_place(path);
                    let names = GitNames::with_others(path);
                    if !names.is_complete {
                        removed.push(self.store.take_away(path.clone()));
                        continue;
                    }
                    for name in names.paths.into_iter().chain(names.others) {
                        in_place.judge_new(&name, removed);
                    }
                }
                None if path.ends_with(".git")
                    && status.is_file()
                    && leads_into(path, &git_dirs) => {}
                None if path.ends_with(".git") && look.is_being_written(path) => {}
                None => removed.push(self.store.take_away(path.clone())),
            }
        }
        for (path, before) in &watch.dot_git_files {
            let now = Copy::of(path);
            let is_changed = now.is_some() && now.as_ref() != Some(before);
            if is_changed && !look.is_being_written(path) && !leads_into(path, &git_dirs) {
                removed.push(self.store.take_away(path.clone()));
                before.put_back(path);
            }
        }
    }

    /// Judges what only a copy protects.
    pub(super) fn judge_changed(&self, watch: &mut Watch, removed: &mut Vec<Quarantined>) {
        for (path, copy) in std::mem::take(&mut watch.copies) {
            let now = Copy::of(&path);
            if now.as_ref() == Some(&copy) {
                continue;
            }
            let holder = watch
                .git_dirs
                .iter()
                .find(|dir| path != **dir && path.starts_with(dir));
            match holder {
                Some(git_dir) => self.in_place(git_dir).judge_changed(&path, &copy, removed),
                None => {
                    removed.push(self.store.take_away(path.clone()));
                    copy.put_back(&path);
                }
            }
        }
    }

    fn in_place<'a>(&'a self, git_dir: &'a Path) -> InPlace<'a> {
        InPlace {
            git_dir,
            allowed: &self.allowed,
            store: &self.store,
        }
    }
}

impl Watch {
    /// Protected names, existing or not, that were not there before the run; those in git directories that it changes
    /// directly aside.
    pub(super) fn planted(&self, found: &FoundDirs) -> BTreeSet<PathBuf> {
        let mut planted = BTreeSet::new();
        // A directory moved away takes its mounts along; what stands in its place is an impostor.
        for home in &self.homes {
            if identity(&home.path) != home.id {
                planted.extend(names_in(&home.path));
            }
            // So is a repository that was made where one was removed.
            let git = home.path.join(".git");
            if home.git_id.is_some() && git.is_dir() && identity(&git) != home.git_id {
                planted.insert(git);
            }
        }
        let known = |home: &PathBuf| self.homes.iter().any(|other| other.path == *home);
        for home in found.homes.iter().filter(|home| !known(home)) {
            planted.extend(names_in(home));
        }
        // A repository that was moved with the directory around it is the one that was covered.
        planted.retain(|path| {
            let id = identity(path).filter(|_| path.ends_with(".git"));
            id.is_none() || !self.homes.iter().any(|home| home.git_id == id)
        });
        for dir in &found.bare {
            let id = identity(dir);
            let before = self.bare.iter().find(|bare| bare.id == id);
            let Some(before) = before else {
                let names = GitNames::with_others(dir);
                planted.extend(names.paths.into_iter().chain(names.others));
                continue;
            };
            let names = below(&GitNames::of(dir).paths, dir);
            let is_new = |name: &&PathBuf| !before.names.contains(*name);
            planted.extend(names.iter().filter(is_new).map(|name| dir.join(name)));
        }
        planted.extend(self.absent.iter().cloned());
        planted
    }
}

/// Every protected name a directory can hold, existing or not.
fn names_in(home: &Path) -> Vec<PathBuf> {
    PROTECTED_NAMES.map(|name| home.join(name)).to_vec()
}

/// The paths relative to a directory that they lie in.
pub(super) fn below(paths: &[PathBuf], dir: &Path) -> BTreeSet<PathBuf> {
    let inner = paths.iter().filter_map(|path| path.strip_prefix(dir).ok());
    inner.map(Path::to_owned).collect()
}
