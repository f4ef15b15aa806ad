//! The folders in which programs are looked up.
//!
//! - `mcp.exec.path = "auto"`, profile `unrestricted`: [`tool_search_path`], what the user's own shell would search.
//! - profile `restricted`: [`SYSTEM_SEARCH_PATH`], which no environment variable moves.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use llmc_config::{LinkPolicy, RegularFile, read_regular_file};

use super::settings::{Profile, Settings};

/// The system's program folders. Fixed, so that no environment moves them.
pub const SYSTEM_SEARCH_PATH: [&str; 6] = [
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
];

/// Program folders of the workspace. They stay on the path while they do not exist: a command may create them.
const WORKSPACE_BIN_DIRS: [&str; 3] = [".venv/bin", "venv/bin", "node_modules/.bin"];

/// Program folders of tools that install themselves for one user.
const USER_BIN_DIRS: [&str; 7] = [
    ".cargo/bin",
    ".local/bin",
    "go/bin",
    ".pyenv/shims",
    ".volta/bin",
    ".bun/bin",
    ".deno/bin",
];

/// Program folders outside the home directory that installers leave off the `PATH` of services.
const EXTRA_BIN_DIRS: [&str; 1] = ["/usr/local/go/bin"];

/// The search path of the user's shell in a workspace: the workspace's own program folders, `path` (the `PATH` this
/// process was started with), and the per-user tool folders that exist.
///
/// Of `path`, relative entries (they mean another folder in every directory), entries that are no readable folder and
/// folders that every user of the machine can write are left out. Without `path` the system's folders take its place.
pub fn tool_search_path(
    workspace: &Path,
    path: Option<&OsStr>,
    home: Option<&Path>,
) -> Vec<PathBuf> {
    let own = WORKSPACE_BIN_DIRS.map(|dir| workspace.join(dir));
    let mut inherited: Vec<PathBuf> = path
        .map(|path| std::env::split_paths(path).collect())
        .unwrap_or_default();
    inherited.retain(|dir| dir.is_absolute() && is_usable_dir(dir));
    if inherited.is_empty() {
        inherited = SYSTEM_SEARCH_PATH.map(PathBuf::from).to_vec();
    }
    let mut user: Vec<PathBuf> = Vec::new();
    if let Some(home) = home {
        user.extend(USER_BIN_DIRS.map(|dir| home.join(dir)));
        user.extend(nvm_bin_dir(&home.join(".nvm")));
    }
    user.extend(EXTRA_BIN_DIRS.map(PathBuf::from));
    user.retain(|dir| is_usable_dir(dir));
    let mut known = BTreeSet::new();
    let mut dirs: Vec<PathBuf> = own.into_iter().chain(inherited).chain(user).collect();
    dirs.retain(|dir| known.insert(dir.clone()));
    dirs
}

/// The `python3` that `python` stands for: the first one on the search path, where no folder has a `python`.
///
/// The program folders of the workspace do not count: what they hold changes, and they are searched first.
pub(super) fn python_in_place(settings: &Settings) -> Option<PathBuf> {
    let is_own = |dir: &Path| settings.homes.iter().any(|home| dir.starts_with(home));
    let dirs = || settings.search_path.iter().filter(|dir| !is_own(dir));
    if settings.profile != Profile::Unrestricted || dirs().any(|dir| dir.join("python").exists()) {
        return None;
    }
    dirs()
        .map(|dir| dir.join("python3"))
        .find(|path| path.is_file())
}

/// Whether programs can be looked up in a folder that other users of the machine cannot fill.
fn is_usable_dir(dir: &Path) -> bool {
    std::fs::metadata(dir)
        .is_ok_and(|status| status.is_dir() && status.permissions().mode() & 0o1002 != 0o002)
}

/// The programs of nvm's default Node.js, or of the newest one that is installed.
fn nvm_bin_dir(nvm: &Path) -> Option<PathBuf> {
    let versions = nvm.join("versions/node");
    let mut installed: Vec<(Vec<u64>, PathBuf)> = std::fs::read_dir(&versions)
        .ok()?
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name();
            Some((version_numbers(name.to_str()?)?, entry.path().join("bin")))
        })
        .collect();
    installed.sort();
    let wanted = read_regular_file(&nvm.join("alias/default"), 4096, LinkPolicy::Follow)
        .and_then(RegularFile::into_text)
        .unwrap_or_default();
    let wanted = version_numbers(wanted.trim());
    let default = wanted.and_then(|wanted| {
        let mut newest_first = installed.iter().rev();
        newest_first.find(|(version, _)| version.starts_with(&wanted))
    });
    default.or(installed.last()).map(|(_, dir)| dir.clone())
}

/// `v20.11.1` as numbers, so that 20 comes after 9.
fn version_numbers(name: &str) -> Option<Vec<u64>> {
    let numbers = name.strip_prefix('v').unwrap_or(name).split('.');
    numbers.map(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_holds_the_workspace_the_inherited_folders_and_the_tool_folders_in_this_order() {
        let dir = tempfile::tempdir().unwrap();
        let make = |path: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(&path).unwrap();
            path
        };
        let (workspace, home) = (make("ws"), make("home"));
        let (first, open) = (make("first"), make("open"));
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let cargo = make("home/.cargo/bin");
        for version in ["v9.1.0", "v20.11.1", "v18.0.0"] {
            make(&format!("home/.nvm/versions/node/{version}/bin"));
        }
        let entries = [
            first.clone(),
            PathBuf::from("relative/bin"),
            PathBuf::from(""),
            dir.path().join("missing"),
            file,
            open,
            cargo.clone(),
            first.clone(),
        ];
        let path = std::env::join_paths(entries).unwrap();
        let node = |version: &str| home.join(format!(".nvm/versions/node/{version}/bin"));
        let found = tool_search_path(&workspace, Some(&path), Some(&home));
        let mut wanted = WORKSPACE_BIN_DIRS.map(|dir| workspace.join(dir)).to_vec();
        wanted.extend([first, cargo, node("v20.11.1")]);
        let extra = EXTRA_BIN_DIRS.map(PathBuf::from);
        wanted.extend(extra.into_iter().filter(|dir| is_usable_dir(dir)));
        assert_eq!(found, wanted);

        std::fs::create_dir_all(home.join(".nvm/alias")).unwrap();
        std::fs::write(home.join(".nvm/alias/default"), "18\n").unwrap();
        let found = tool_search_path(&workspace, Some(&path), Some(&home));
        assert!(found.contains(&node("v18.0.0")), "{found:?}");
        assert!(!found.contains(&node("v20.11.1")), "{found:?}");
    }

    #[test]
    fn without_a_usable_path_the_system_folders_are_searched() {
        for path in [
            None,
            Some(OsStr::new("")),
            Some(OsStr::new("bin:/no/such/dir")),
        ] {
            let found = tool_search_path(Path::new("/ws"), path, None);
            assert!(
                found.contains(&PathBuf::from("/usr/bin")),
                "{path:?}: {found:?}"
            );
        }
    }
}
