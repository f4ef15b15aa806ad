//! Where a repository keeps its git directory, and which protected names that holds right now.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use llmc_host::protected_git_entry;
use rustix::fs::{Mode, OFlags};

use super::git_vet::is_judged;

/// Directories of one git directory that are looked into for the git directories of submodules and working trees.
const MAX_GIT_SUBDIRS: usize = 20_000;
/// Names of one git directory that are looked at, and the levels below it.
const MAX_GIT_ENTRIES: usize = 200_000;
const MAX_GIT_DEPTH: usize = 32;
/// Directories of a git directory that hold only objects or refs; what is protected in them has a fixed place.
const PLAIN_DIRS: [&str; 4] = ["objects", "refs", "logs", "lfs"];

/// The git directories of the repository in `home`: `.git` itself, or where a link or a file in its place leads, and the
/// directory that several working trees share. Absolute and free of links; those that exist.
pub(super) fn git_dirs(home: &Path) -> Vec<PathBuf> {
    let dot_git = home.join(".git");
    let Ok(status) = std::fs::symlink_metadata(&dot_git) else {
        return Vec::new();
    };
    let target = match status.is_file() {
        true => first_line(&dot_git)
            .as_deref()
            .and_then(|line| line.strip_prefix(b"gitdir:"))
            .map(|target| home.join(path_of(target.trim_ascii()))),
        false => Some(dot_git),
    };
    let found = target.and_then(|dir| std::fs::canonicalize(dir).ok());
    let Some(dir) = found.filter(|dir| dir.is_dir()) else {
        return Vec::new();
    };
    let common = first_line(&dir.join("commondir"))
        .and_then(|common| std::fs::canonicalize(dir.join(path_of(&common))).ok())
        .filter(|common| common.is_dir());
    [dir].into_iter().chain(common).collect()
}

/// Levels of folders below a root in which `.git` files are followed.
const FOLLOWED_DEPTH: usize = 2;
/// Folders that are looked into for those.
const MAX_FOLLOWED_FOLDERS: usize = 2_000;
/// A larger configuration names no repository that is followed.
const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// The git directories outside the given roots that the user's own files name: the one of the repository around a root, those
/// that `.git` files in the roots lead to if they are known there, and repositories on this machine that are remotes. Only
/// directories of this user.
pub fn followed_git_dirs(roots: &[PathBuf]) -> Vec<PathBuf> {
    let roots: Vec<PathBuf> = roots
        .iter()
        .filter_map(|root| std::fs::canonicalize(root).ok())
        .collect();
    let mut found: Vec<PathBuf> = Vec::new();
    for root in &roots {
        let around = root
            .ancestors()
            .find(|dir| dir.join(".git").symlink_metadata().is_ok());
        let below = repositories_below(root);
        for home in around.map(Path::to_owned).into_iter().chain(below) {
            let dirs = git_dirs(&home);
            if dirs.first().is_some_and(|dir| points_back(dir, &home)) {
                found.extend(dirs);
            }
        }
    }
    let remotes: Vec<PathBuf> = found.iter().flat_map(|dir| path_remotes(dir)).collect();
    found.extend(remotes);
    found.retain(|dir| is_followed(dir, &roots));
    found.sort();
    found.dedup();
    // A working tree's private directory comes with the one that all of them share.
    let all = found.clone();
    found.retain(|dir| {
        !all.iter()
            .any(|outer| dir != outer && dir.starts_with(outer))
    });
    found
}

/// The repositories around the given roots, by their top folders: tools look upward for the workspace that a package belongs
/// to. Only this user's; another one could make a `.git` in a shared folder.
pub(super) fn repositories_around(roots: &[PathBuf]) -> Vec<PathBuf> {
    let own = rustix::process::geteuid().as_raw();
    let is_own = |path: &Path| {
        path.symlink_metadata()
            .is_ok_and(|status| std::os::unix::fs::MetadataExt::uid(&status) == own)
    };
    let around = roots.iter().filter_map(|root| {
        let mut above = root.ancestors();
        above.find(|dir| dir.join(".git").symlink_metadata().is_ok())
    });
    let mut found: Vec<PathBuf> = around
        .filter(|dir| is_own(dir) && is_own(&dir.join(".git")))
        .filter(|dir| dir.parent().is_some() && !roots.iter().any(|root| dir.starts_with(root)))
        .map(Path::to_owned)
        .collect();
    found.sort();
    found.dedup();
    found
}

/// Whether a directory that was followed once still can be.
pub fn is_followed(dir: &Path, roots: &[PathBuf]) -> bool {
    let own = rustix::process::geteuid().as_raw();
    let is_own = std::fs::symlink_metadata(dir)
        .is_ok_and(|status| status.is_dir() && std::os::unix::fs::MetadataExt::uid(&status) == own);
    // A working tree's private directory has its objects in the one that all share.
    let common = first_line(&dir.join("commondir")).map(|line| dir.join(path_of(&line)));
    let objects = common.unwrap_or_else(|| dir.to_owned()).join("objects");
    is_own && objects.is_dir() && !roots.iter().any(|root| dir.starts_with(root))
}

/// Folders near the top of a root that are a repository's.
fn repositories_below(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut level = vec![root.to_owned()];
    let mut left = MAX_FOLLOWED_FOLDERS;
    for _ in 0..FOLLOWED_DEPTH {
        let mut next = Vec::new();
        for dir in level {
            for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
                if left == 0
                    || !entry.file_type().is_ok_and(|kind| kind.is_dir())
                    || entry.file_name() == ".git"
                {
                    continue;
                }
                left -= 1;
                match entry.path().join(".git").symlink_metadata() {
                    Ok(_) => found.push(entry.path()),
                    Err(_) => next.push(entry.path()),
                }
            }
        }
        level = next;
    }
    found
}

/// Whether what a `.git` file leads to is of that working tree: git has written there where the tree is. A `.git` directory
/// needs no such proof.
fn points_back(git_dir: &Path, home: &Path) -> bool {
    let dot_git = home.join(".git");
    if git_dir.starts_with(&dot_git) {
        return true;
    }
    let same = |one: PathBuf, other: &Path| matches!((std::fs::canonicalize(one), std::fs::canonicalize(other)), (Ok(a), Ok(b)) if a == b);
    let of_worktree = first_line(&git_dir.join("gitdir")).map(|line| git_dir.join(path_of(&line)));
    let of_submodule = || {
        config_values(&config_text(git_dir), b"core", b"worktree")
            .pop()
            .map(|path| git_dir.join(path_of(&path)))
    };
    match of_worktree {
        Some(file) => same(file, &dot_git),
        None => of_submodule().is_some_and(|dir| same(dir, home)),
    }
}

/// The git directories of remotes that are paths on this machine.
fn path_remotes(git_dir: &Path) -> Vec<PathBuf> {
    let named = remote_places(&config_text(git_dir), &address_base(git_dir));
    named.iter().flat_map(|place| git_dirs_at(place)).collect()
}

/// The places of this user's repositories that a configuration's remotes name, whether or not commands may use them.
pub(super) fn named_repositories(config: &[u8], git_dir: &Path) -> Vec<PathBuf> {
    let mut places = remote_places(config, &address_base(git_dir));
    places.retain(|place| git_dirs_at(place).iter().any(|dir| is_followed(dir, &[])));
    places
}

/// What relative addresses of remotes are relative to.
fn address_base(git_dir: &Path) -> PathBuf {
    match git_dir.ends_with(".git") {
        true => git_dir.parent().unwrap_or(git_dir).to_owned(),
        false => git_dir.to_owned(),
    }
}

/// Addresses of remotes that are paths.
fn remote_places(config: &[u8], base: &Path) -> Vec<PathBuf> {
    let keys = [
        (&b"remote"[..], &b"url"[..]),
        (b"remote", b"pushurl"),
        (b"submodule", b"url"),
    ];
    let values = keys.map(|(section, key)| config_values(config, section, key));
    let is_path = |value: &Vec<u8>| !value.windows(2).any(|pair| pair == b"::" || pair == b":/");
    let paths = values
        .into_iter()
        .flatten()
        .map(|value| match value.strip_prefix(b"file://") {
            Some(path) => path.to_vec(),
            None => value,
        });
    paths
        .filter(is_path)
        .map(|path| base.join(path_of(&path)))
        .collect()
}

/// The git directories that git would use for an address.
fn git_dirs_at(place: &Path) -> Vec<PathBuf> {
    let with_ending = path_of(&[place.as_os_str().as_bytes(), b".git"].concat());
    let places = [place.join(".git"), place.to_owned(), with_ending];
    let real = places
        .iter()
        .filter_map(|place| std::fs::canonicalize(place).ok());
    real.filter(|dir| dir.join("HEAD").is_file() && dir.join("objects").is_dir())
        .collect()
}

pub(super) fn config_text(git_dir: &Path) -> Vec<u8> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let mut text = Vec::new();
    if let Ok(file) = rustix::fs::open(git_dir.join("config"), flags, Mode::empty()) {
        // What cannot be read names nothing.
        let _ = std::fs::File::from(file)
            .take(MAX_CONFIG_BYTES)
            .read_to_end(&mut text);
    }
    text
}

/// The values of a key in all sections of one kind, as far as they are written plainly. For following only: what is not
/// understood is not followed.
fn config_values(text: &[u8], section: &[u8], key: &[u8]) -> Vec<Vec<u8>> {
    let mut is_in_section = false;
    let mut values = Vec::new();
    for line in text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii) {
        if let Some(header) = line.strip_prefix(b"[") {
            let name = header
                .split(|byte| matches!(byte, b' ' | b']' | b'"'))
                .next();
            is_in_section = name.is_some_and(|name| name.eq_ignore_ascii_case(section));
        } else if let Some(at) = line
            .iter()
            .position(|byte| *byte == b'=')
            .filter(|_| is_in_section)
            && line[..at].trim_ascii().eq_ignore_ascii_case(key)
        {
            let value = line[at + 1..].trim_ascii();
            let quoted = value
                .strip_prefix(b"\"")
                .and_then(|value| value.strip_suffix(b"\""));
            values.push(quoted.unwrap_or(value).to_vec());
        }
    }
    values
}

/// The git directories of submodules in a git directory, at any depth.
pub(super) fn inner_git_dirs(git_dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut next = vec![git_dir.join("modules")];
    let mut left = MAX_GIT_SUBDIRS;
    while let Some(dir) = next.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if !is_dir || left == 0 {
                continue;
            }
            left -= 1;
            let path = entry.path();
            let is_git_dir = path.join("HEAD").is_file() && path.join("objects").is_dir();
            match is_git_dir {
                true => {
                    next.push(path.join("modules"));
                    found.push(path);
                }
                // A submodule's name may have slashes.
                false => next.push(path),
            }
        }
    }
    found
}

/// The private directories of working trees that lie in none of the given places, and in which none of these lies.
pub(super) fn foreign_worktrees(git_dir: &Path, allowed: &[OsString]) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(git_dir.join("worktrees"));
    let dirs = entries
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    let is_foreign = |dir: &PathBuf| {
        let line = first_line(&dir.join("gitdir"));
        let file = line.map(|line| dir.join(path_of(&line)));
        let tree = file.and_then(|file| file.parent().map(Path::to_owned));
        let tree = tree.map(|tree| std::fs::canonicalize(&tree).unwrap_or(tree));
        dir.is_dir()
            && tree.is_some_and(|tree| {
                !allowed
                    .iter()
                    .any(|place| tree.starts_with(place) || Path::new(place).starts_with(&tree))
            })
    };
    dirs.filter(is_foreign).collect()
}

/// The protected names that exist in a git directory.
#[derive(Debug, Default)]
pub(super) struct GitNames {
    pub(super) paths: Vec<PathBuf>,
    /// What is judged too although it is not protected: indexes, addresses in old forms, and links, through which git would
    /// write elsewhere.
    pub(super) others: Vec<PathBuf>,
    /// Whether all of it was looked at.
    pub(super) is_complete: bool,
}

impl GitNames {
    pub(super) fn of(git_dir: &Path) -> GitNames {
        let mut names = GitNames {
            is_complete: true,
            ..GitNames::default()
        };
        let mut left = MAX_GIT_SUBDIRS;
        names.look(git_dir, &mut Vec::new(), &mut left);
        names.paths.sort();
        names.paths.dedup();
        names
    }

    /// The same with [`GitNames::others`], for a git directory that commands write as it is.
    pub(super) fn with_others(git_dir: &Path) -> GitNames {
        let mut names = GitNames::of(git_dir);
        let mut left = MAX_GIT_ENTRIES;
        names.look_for_others(git_dir, &mut Vec::new(), &mut left);
        names
    }

    fn look_for_others(&mut self, dir: &Path, inner: &mut Vec<OsString>, left: &mut usize) {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let Some(rest) = left.checked_sub(1) else {
                self.is_complete = false;
                return;
            };
            *left = rest;
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            inner.push(entry.file_name());
            let parts: Vec<&[u8]> = inner.iter().map(|part| part.as_bytes()).collect();
            // Of objects only these directories hold files that git replaces under their own names.
            let is_objects = matches!(parts.as_slice(), [.., b"objects", name]
                if *name != b"pack" && *name != b"info" && !dir.join("HEAD").is_file());
            let is_protected = protected_git_entry(&parts).is_some();
            let is_link = kind.is_symlink() && !is_trial_link(&entry.path());
            if !is_protected && (is_link || (kind.is_file() && is_judged(&parts))) {
                self.others.push(entry.path());
            } else if kind.is_dir() && !is_protected && !is_objects && inner.len() < MAX_GIT_DEPTH {
                self.look_for_others(&entry.path(), inner, left);
            }
            inner.pop();
        }
    }

    fn look(&mut self, dir: &Path, inner: &mut Vec<OsString>, left: &mut usize) {
        if *left == 0 {
            self.is_complete = false;
            return;
        }
        *left -= 1;
        let entries = match std::fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(error) => {
                self.is_complete &= error.kind() == std::io::ErrorKind::NotFound;
                return;
            }
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            inner.push(name.clone());
            let parts: Vec<&[u8]> = inner.iter().map(|part| part.as_bytes()).collect();
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if protected_git_entry(&parts).is_some() {
                self.paths.push(entry.path());
            } else if is_dir && name == "objects" {
                // Of thousands of objects, only these two files decide anything.
                let info = entry.path().join("info");
                let alternates = ["alternates", "http-alternates"].map(|name| info.join(name));
                let existing = alternates.into_iter().filter(|path| exists(path));
                self.paths.extend(existing);
            }
            let is_plain = PLAIN_DIRS.iter().any(|plain| name == *plain);
            // A submodule may have such a name, but then its own directory lies below `modules`.
            let is_nested = inner.len() > 1 && !entry.path().join("HEAD").is_file();
            if is_dir && protected_git_entry(&parts).is_none() && (!is_plain || is_nested) {
                self.look(&entry.path(), inner, left);
            }
            inner.pop();
        }
    }
}

/// The link that `git init` makes for a moment, to see whether it can. It leads to no name that git uses.
fn is_trial_link(path: &Path) -> bool {
    std::fs::read_link(path).is_ok_and(|target| target == Path::new("testing"))
}

fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes.to_vec()))
}

/// The first line of one of git's small files. A FIFO of that name does not block.
fn first_line(path: &Path) -> Option<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    let mut text = Vec::new();
    let file = std::fs::File::from(file);
    file.take(16 << 10).read_to_end(&mut text).ok()?;
    let line = text.split(|b| *b == b'\n').next()?.trim_ascii();
    (!line.is_empty()).then(|| line.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protected_names_of_submodules_are_found_at_any_depth() {
        let root = tempfile::tempdir().unwrap();
        let git = root.path().join(".git");
        for name in [
            "config",
            "HEAD",
            "refs/heads/config",
            "objects/info/alternates",
            "objects/ab/config",
            "modules/libs/foo/config",
            "modules/libs/foo/HEAD",
            "modules/libs/foo/objects/info/alternates",
            "modules/refs/config",
            "worktrees/w/commondir",
            "rebase-merge/git-rebase-todo",
        ] {
            let file = git.join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, "").unwrap();
        }
        let found = GitNames::of(&git);
        let names: Vec<&Path> = found
            .paths
            .iter()
            .map(|path| path.strip_prefix(&git).unwrap())
            .collect();
        let wanted = [
            "config",
            "modules/libs/foo/config",
            "modules/libs/foo/objects/info/alternates",
            "modules/refs/config",
            "objects/info/alternates",
            "rebase-merge",
            "worktrees/w/commondir",
        ];
        assert_eq!(names, wanted.map(Path::new));
        assert!(found.is_complete);
    }

    #[test]
    fn the_users_own_pointers_are_followed_and_others_are_not() {
        let base = tempfile::tempdir().unwrap();
        let base = std::fs::canonicalize(base.path()).unwrap();
        let git = |dir: &Path, args: &[&str]| {
            let done = std::process::Command::new("git")
                .arg("-C")
                .arg(dir)
                .args(args)
                .output();
            assert!(
                done.as_ref().is_ok_and(|done| done.status.success()),
                "{done:?}"
            );
        };
        let main = base.join("main");
        for dir in [&main, &base.join("other"), &base.join("stranger/sub")] {
            std::fs::create_dir_all(dir).unwrap();
        }
        git(&base, &["init", "-q", "--bare", "origin.git"]);
        git(&base, &["init", "-q", "other"]);
        git(&main, &["init", "-q"]);
        git(
            &main,
            &[
                "-c",
                "user.name=a",
                "-c",
                "user.email=a@b",
                "commit",
                "-q",
                "--allow-empty",
                "-m",
                "x",
            ],
        );
        git(&main, &["remote", "add", "o", "../origin.git"]);
        git(&main, &["worktree", "add", "-q", "../tree"]);
        let main_git = main.join(".git");
        let origin = base.join("origin.git");
        let wanted = vec![main_git.clone(), origin.clone()];
        assert_eq!(
            followed_git_dirs(&[base.join("tree")]),
            wanted,
            "a working tree"
        );
        std::fs::create_dir(main.join("sub")).unwrap();
        assert_eq!(
            followed_git_dirs(&[main.join("sub")]),
            wanted,
            "a folder of a repository"
        );
        assert_eq!(
            followed_git_dirs(std::slice::from_ref(&main)),
            [origin],
            "a remote"
        );
        // A file that leads to a repository which knows nothing of it.
        let file = base.join("stranger/sub/.git");
        std::fs::write(
            file,
            format!("gitdir: {}\n", base.join("other/.git").display()),
        )
        .unwrap();
        assert_eq!(
            followed_git_dirs(&[base.join("stranger")]),
            Vec::<PathBuf>::new()
        );
        assert_eq!(
            followed_git_dirs(&[base.join("stranger/sub")]),
            Vec::<PathBuf>::new()
        );
    }

    #[test]
    fn a_git_directory_is_found_behind_files_and_links() {
        let root = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(root.path()).unwrap();
        for dir in ["store/worktrees/w", "tree", "linked"] {
            std::fs::create_dir_all(root.join(dir)).unwrap();
        }
        std::fs::write(root.join("store/worktrees/w/commondir"), "../..\n").unwrap();
        std::fs::write(root.join("tree/.git"), "gitdir: ../store/worktrees/w\n").unwrap();
        std::os::unix::fs::symlink("../store", root.join("linked/.git")).unwrap();
        let store = root.join("store");
        assert_eq!(
            git_dirs(&root.join("tree")),
            [store.join("worktrees/w"), store.clone()]
        );
        assert_eq!(git_dirs(&root.join("linked")), [store]);
        assert_eq!(git_dirs(&root), Vec::<PathBuf>::new());
    }
}
