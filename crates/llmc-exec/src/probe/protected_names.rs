//! Planting configuration and hooks where the real ones are.

use std::path::{Path, PathBuf};

use super::trial::{Attempt, Test, Trial};
use super::{Probe, ProbeResult, Prober};
use crate::level::Protection;
use llmc_host::CONFIG_FILE;

const CONFIG: &str = "change or plant llmc.toml";
const HOOKS: &str = "plant a git hook";

impl Prober<'_> {
    pub(super) fn protected(&self) -> Vec<Test<'_>> {
        let root = self.cwd.path.absolute();
        let (git, hooks) = (root.join(".git"), root.join(".git/hooks"));
        let hook = match git.is_dir() || !exists(&git) {
            true if hooks.is_dir() => self.real(HOOKS, || self.plant(HOOKS, &hooks, Place::There)),
            true if exists(&hooks) => self.real(HOOKS, || self.open(HOOKS, &hooks)),
            true => self.planted(HOOKS, || self.plant(HOOKS, &hooks, Place::New)),
            // In a linked worktree it is a file that says where the repository is.
            false => self.real(HOOKS, || self.open(HOOKS, &git)),
        };
        let file = root.join(CONFIG_FILE);
        let config = if exists(&file) {
            self.real(CONFIG, || self.open(CONFIG, &file))
        } else {
            self.planted(CONFIG, || self.create(&file))
        };
        vec![config, hook]
    }

    /// Something of the user's: only where the kernel itself is to refuse, since undoing would mean moving it about.
    fn real<'t>(&self, what: &'static str, attempt: impl FnOnce() -> Test<'t>) -> Test<'t> {
        match self.runner.level().protected {
            Protection::Mount => attempt(),
            Protection::Detect if self.writes_nothing() => attempt(),
            Protection::Detect => open(what, "no mntns; undone after each run"),
            Protection::None => self.planted(what, attempt),
        }
    }

    /// Whether the rules on files leave a run no place of the user's to write.
    fn writes_nothing(&self) -> bool {
        let mut writable = self.runner.settings().writable();
        writable.next().is_none() && self.runner.level().landlock.is_some()
    }

    /// Something that is not there yet.
    fn planted<'t>(&self, what: &'static str, attempt: impl FnOnce() -> Test<'t>) -> Test<'t> {
        match self.runner.level().protected {
            Protection::None => open(what, "confinement is off"),
            Protection::Mount | Protection::Detect => attempt(),
        }
    }

    /// Opens a file for writing and writes nothing.
    fn open(&self, what: &'static str, file: &Path) -> Test<'_> {
        let words = ["append", &file.display().to_string()];
        Trial::at_real_place(what, file, &words, |attempt| attempt.refused.is_none())
    }

    fn create(&self, file: &Path) -> Test<'_> {
        let text = format!("# {}\n", self.mark);
        let words = ["write", &file.display().to_string(), &text];
        let (place, planted) = (file.to_owned(), text.clone());
        Trial::at_real_place(CONFIG, file, &words, move |attempt| {
            for taken in moved(attempt) {
                remove_file(&taken, &planted);
            }
            remove_file(&place, &planted)
        })
    }

    fn plant(&self, what: &'static str, hooks: &Path, place: Place) -> Test<'_> {
        let text = self.mark.as_str();
        let words = ["plant", &hooks.display().to_string(), text, text];
        let dir = hooks.to_owned();
        Trial::at_real_place(what, hooks, &words, move |attempt| {
            if place == Place::New {
                // What was taken away is the hook, its directory, or the repository around it.
                for taken in moved(attempt) {
                    remove_file(&taken, text);
                    for hooks in [taken.clone(), taken.join("hooks")] {
                        remove_file(&hooks.join(text), text);
                        let _ = std::fs::remove_dir(hooks);
                    }
                    let _ = std::fs::remove_dir(taken);
                }
            }
            let stays = remove_file(&dir.join(text), text);
            if place == Place::New {
                // Only if empty.
                let _ = std::fs::remove_dir(&dir);
                let _ = dir.parent().map(std::fs::remove_dir);
            }
            stays
        })
    }
}

fn open<'t>(what: &'static str, why: &str) -> Test<'t> {
    let result = ProbeResult::Open(why.to_owned());
    Probe { what, result }.into()
}

/// Whether the directory to plant in was there before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    There,
    New,
}

fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

fn moved(attempt: &Attempt) -> Vec<PathBuf> {
    let taken = attempt.quarantined.iter();
    taken.filter_map(|taken| taken.moved_to.clone()).collect()
}

/// Removes a file if it is the one that was planted; whether it was.
#[expect(
    clippy::disallowed_methods,
    reason = "a file that a probe planted, known by what it says"
)]
fn remove_file(path: &Path, text: &str) -> bool {
    let ours = std::fs::read(path).is_ok_and(|found| found == text.as_bytes());
    ours && std::fs::remove_file(path).is_ok()
}
