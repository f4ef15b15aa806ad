//! What the tests of this folder share: one place, real git, random numbers.

use std::path::{Path, PathBuf};

use super::{Verdict, VetPlace, vet_file};

pub(super) fn parts_of(path: &str) -> Vec<&[u8]> {
    path.split('/').map(str::as_bytes).collect()
}

/// Judges a file of the repository `/w/repo`, where everything below `/w` is the workspace.
pub(super) fn vet(path: &str, new: &str, before: Option<&str>) -> Verdict {
    vet_bytes(path, new.as_bytes(), before.map(str::as_bytes))
}

pub(super) fn vet_bytes(path: &str, new: &[u8], before: Option<&[u8]>) -> Verdict {
    let place = VetPlace {
        git_dir: Path::new("/w/repo/.git"),
        allowed: &[PathBuf::from("/w")],
        hash_bytes: 20,
    };
    vet_file(&parts_of(path), new, before, &place)
}

/// Git without a user's configuration.
pub(super) fn git(dir: &Path) -> std::process::Command {
    let mut git = std::process::Command::new("git");
    git.current_dir(dir)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", dir)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null");
    for role in ["AUTHOR", "COMMITTER"] {
        git.env(format!("GIT_{role}_NAME"), "A O'B");
        git.env(format!("GIT_{role}_EMAIL"), "a@example.org");
    }
    git
}

/// Random numbers of a fixed sequence.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).unwrap() % bound.max(1)
    }

    pub(super) fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }
}
