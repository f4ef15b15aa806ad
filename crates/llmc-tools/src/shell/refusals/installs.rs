//! Programs and packages that a command has installed for the user, and files that it has changed by name, which only commands
//! see.
//!
//! What is installed is found by what appears where tool chains put programs, not by the command's name: many programs install
//! others. Other files of the user's are looked for where the command names them: `echo more >>~/.local/share/notes.txt`.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Where tool chains keep what was installed, below a private layer; `*` is any name.
const INSTALL_DIRS: [&str; 40] = [
    ".local/bin",
    ".local/lib/*/site-packages",
    ".local/share/pipx/venvs",
    ".local/share/uv/tools",
    ".local/share/uv/python",
    ".local/share/pnpm",
    ".local/share/gem/ruby/*/bin",
    ".local/share/applications",
    ".local/share/fonts",
    ".local/share/jupyter/kernels",
    ".local/share/bash-completion/completions",
    ".cargo/bin",
    ".rustup/toolchains",
    "go/bin",
    ".nvm/versions/node",
    ".nvm/versions/node/*/bin",
    ".yarn/bin",
    ".bun/bin",
    ".deno/bin",
    ".volta/bin",
    ".dotnet/tools",
    ".gem/ruby/*/bin",
    ".rbenv/versions",
    ".rbenv/versions/*/bin",
    ".pyenv/versions",
    ".pyenv/versions/*/bin",
    ".pyenv/versions/*/lib/*/site-packages",
    ".conda/envs",
    ".composer/vendor/bin",
    ".pub-cache/bin",
    ".cabal/bin",
    ".ghcup/bin",
    ".opam/*/bin",
    ".sdkman/candidates/*",
    ".mix/escripts",
    // Below a folder of one tool chain, which a variable names.
    "bin",
    "toolchains",
    "versions/*/bin",
    "versions/node/*/bin",
    "lib/*/site-packages",
];
/// Names that are no program or package of their own.
const NOT_INSTALLED: [&str; 2] = ["__pycache__", ".lock"];
/// Names that one explanation lists.
const MAX_NAMED: usize = 3;
/// Files that are remembered as they were.
const MAX_REMEMBERED: usize = 4096;
/// Folders that one pattern may stand for.
const MAX_DIRS: usize = 64;
/// The clock of files may be this much behind the system's.
const FILE_CLOCK_TICK_NS: i128 = 20_000_000;

/// When something was last installed, by principal.
#[derive(Debug)]
pub(super) struct InstallWatch {
    began: i128,
    seen: Mutex<BTreeMap<String, Seen>>,
}

/// What is known about the layers of one principal.
#[derive(Debug, Default)]
struct Seen {
    /// The newest change of an entry that was looked at.
    newest: i128,
    /// When each folder was changed last.
    dirs: BTreeMap<PathBuf, i128>,
    /// When each file that a command named was changed last.
    named: BTreeMap<PathBuf, i128>,
}

impl Default for InstallWatch {
    fn default() -> InstallWatch {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |now| i128::try_from(now.as_nanos()).unwrap_or(0));
        InstallWatch {
            began: now - FILE_CLOCK_TICK_NS,
            seen: Mutex::default(),
        }
    }
}

impl InstallWatch {
    /// What has appeared in the layers of a principal since the last look, as the user's paths. `layers` are the user's folders,
    /// each with the folder that holds what commands have written there.
    pub(super) fn look(&self, principal: &str, layers: &[(PathBuf, PathBuf)]) -> Vec<PathBuf> {
        let mut all = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = all.entry(principal.to_owned()).or_default();
        let since = seen.newest.max(self.began);
        let mut found = Vec::new();
        for (user_dir, upper) in layers {
            for dir in install_dirs(user_dir, upper) {
                let Ok(status) = dir.symlink_metadata() else {
                    continue;
                };
                let changed = changed_at(&status);
                if seen.dirs.insert(dir.clone(), changed) == Some(changed) {
                    continue;
                }
                for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
                    let Ok(status) = entry.metadata() else {
                        continue;
                    };
                    let name = entry.file_name();
                    // A deleted file of the user's is a device in the layer.
                    let kind = status.file_type();
                    let is_thing = kind.is_file() || kind.is_dir() || kind.is_symlink();
                    let changed = changed_at(&status);
                    seen.newest = seen.newest.max(changed);
                    if changed > since && is_thing && is_installed(&name.to_string_lossy()) {
                        let inside = dir.strip_prefix(upper).unwrap_or(&dir);
                        found.push(user_dir.join(inside).join(name));
                    }
                }
            }
        }
        found
    }

    /// Which of the places that a command names it has changed in the layers, or removed there. A cache is for commands to
    /// change.
    pub(super) fn look_at_named(
        &self,
        principal: &str,
        layers: &[(PathBuf, PathBuf)],
        named: &[PathBuf],
    ) -> Vec<PathBuf> {
        let mut all = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = all.entry(principal.to_owned()).or_default();
        if seen.named.len() > MAX_REMEMBERED {
            seen.named.clear();
        }
        let mut found = Vec::new();
        let layers = layers.iter().filter(|(dir, _)| !dir.ends_with(".cache"));
        for (user_dir, upper) in layers {
            for place in named {
                let inside = place.strip_prefix(user_dir);
                let Some(inside) = inside.ok().filter(|inside| *inside != Path::new("")) else {
                    continue;
                };
                let written = upper.join(inside);
                let Ok(status) = written.symlink_metadata() else {
                    continue;
                };
                let changed = changed_at(&status);
                let is_new = seen.named.insert(written, changed) != Some(changed);
                if is_new && changed > self.began && !status.is_dir() && !found.contains(place) {
                    found.push(place.clone());
                }
            }
        }
        found
    }
}

/// The folders of a layer where programs and packages are. A layer may be the home directory, or one of its tool folders.
fn install_dirs(user_dir: &Path, upper: &Path) -> Vec<PathBuf> {
    let name = user_dir.file_name().and_then(|name| name.to_str());
    let of_folder = INSTALL_DIRS.iter().filter_map(|pattern| {
        let (first, rest) = pattern.split_once('/')?;
        (Some(first) == name).then_some(rest)
    });
    let mut patterns: Vec<&str> = of_folder.collect();
    if patterns.is_empty() {
        patterns.extend(INSTALL_DIRS);
    }
    let dirs = patterns.into_iter();
    dirs.flat_map(|pattern| expand(upper, pattern)).collect()
}

/// What was installed, as the subject of an explanation.
pub(super) fn subject(found: &[PathBuf], shown: impl Fn(&Path) -> String) -> String {
    let named: Vec<String> = found
        .iter()
        .take(MAX_NAMED)
        .map(|path| shown(path))
        .collect();
    match found.len().saturating_sub(MAX_NAMED) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

fn is_installed(name: &str) -> bool {
    !name.ends_with(".dist-info")
        && !name.ends_with(".pyc")
        && !name.starts_with('~')
        && !NOT_INSTALLED.contains(&name)
}

fn changed_at(status: &std::fs::Metadata) -> i128 {
    i128::from(status.ctime()) * 1_000_000_000 + i128::from(status.ctime_nsec())
}

/// The folders that a pattern stands for.
fn expand(base: &Path, pattern: &str) -> Vec<PathBuf> {
    let mut dirs = vec![base.to_owned()];
    for part in pattern.split('/') {
        dirs = match part {
            "*" => {
                let entries = dirs
                    .iter()
                    .flat_map(|dir| std::fs::read_dir(dir).into_iter().flatten().flatten());
                entries.take(MAX_DIRS).map(|entry| entry.path()).collect()
            }
            part => dirs.into_iter().map(|dir| dir.join(part)).collect(),
        };
    }
    dirs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_installed_is_reported_once() {
        let dir = tempfile::tempdir().unwrap();
        let upper = dir.path().join("upper");
        let site = upper.join(".local/lib/python3.13/site-packages");
        std::fs::create_dir_all(&site).unwrap();
        std::fs::create_dir_all(upper.join(".cargo/registry")).unwrap();
        let watch = InstallWatch::default();
        let layers = [(PathBuf::from("/home/u"), upper.clone())];
        let look = || watch.look("local", &layers);
        assert_eq!(look(), Vec::<PathBuf>::new());
        std::fs::write(upper.join(".cargo/registry/index"), "").unwrap();
        assert_eq!(look(), Vec::<PathBuf>::new());
        std::fs::create_dir(site.join("tiny")).unwrap();
        std::fs::create_dir(site.join("tiny-1.0.dist-info")).unwrap();
        std::fs::create_dir(upper.join(".cargo/bin")).unwrap();
        std::fs::write(upper.join(".cargo/bin/tool"), "x").unwrap();
        let package = "/home/u/.local/lib/python3.13/site-packages/tiny";
        let wanted = [package, "/home/u/.cargo/bin/tool"].map(PathBuf::from);
        assert_eq!(look(), wanted);
        assert_eq!(look(), Vec::<PathBuf>::new());
        assert_eq!(
            subject(&[wanted.clone(), wanted].concat(), |path| path
                .display()
                .to_string()),
            format!("{package}, /home/u/.cargo/bin/tool, {package} and 1 more")
        );
    }

    #[test]
    fn what_a_command_changes_by_name_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let watch = InstallWatch::default();
        let layers = [("/home/u/.local".into(), dir.path().to_owned())];
        let named =
            ["/home/u/.local/share/todo.txt", "/home/u/.local", "/etc/x"].map(PathBuf::from);
        let look = || watch.look_at_named("local", &layers, &named);
        assert_eq!(look(), Vec::<PathBuf>::new());
        std::fs::create_dir(dir.path().join("share")).unwrap();
        std::fs::write(dir.path().join("share/todo.txt"), "more").unwrap();
        assert_eq!(look(), named[..1]);
        assert_eq!(look(), Vec::<PathBuf>::new(), "only read this time");
    }

    #[test]
    fn a_layer_may_be_a_tool_folder() {
        let dir = tempfile::tempdir().unwrap();
        let watch = InstallWatch::default();
        let tools = dir.path().join("share/uv/tools/ruff");
        std::fs::create_dir_all(&tools).unwrap();
        let layers = [("/home/u/.local".into(), dir.path().to_owned())];
        let wanted = PathBuf::from("/home/u/.local/share/uv/tools/ruff");
        assert_eq!(watch.look("local", &layers), [wanted]);
    }

    #[test]
    fn what_an_earlier_server_installed_is_not_reported() {
        let dir = tempfile::tempdir().unwrap();
        let bin = dir.path().join(".cargo/bin");
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::write(bin.join("tool"), "x").unwrap();
        let watch = InstallWatch {
            began: i128::MAX,
            ..InstallWatch::default()
        };
        let layers = [("/home/u".into(), dir.path().to_owned())];
        assert_eq!(watch.look("local", &layers), Vec::<PathBuf>::new());
    }
}
