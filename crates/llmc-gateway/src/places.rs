//! Whether a program lies where agents write.

use std::path::{Path, PathBuf};

/// The system's own folders. A root around them, as `/` is, does not make them the agent's.
const SYSTEM: [&str; 7] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib64",
    "/nix/store",
    "/gnu/store",
];

/// Whether a path, or what it leads to, lies in one of these folders.
pub fn lies_in(path: &Path, folders: &[PathBuf]) -> bool {
    let real = path.canonicalize();
    let mut paths = std::iter::once(path).chain(real.as_deref().ok());
    paths.any(|path| {
        let is_systems = |folder: &Path| {
            let mut system = SYSTEM.iter().map(Path::new);
            system.any(|dir| dir != folder && dir.starts_with(folder) && path.starts_with(dir))
        };
        let mut folders = folders.iter();
        folders.any(|folder| path.starts_with(folder) && !is_systems(folder))
    })
}

/// Programs that run the first thing they are given, which may be a folder.
const INTERPRETERS: [&str; 4] = ["python", "node", "bun", "deno"];

/// The first argument that names a file which agents can write: a script, a module, a configuration. `--name=FILE` counts, too.
/// Folders, which servers for files are given to work on, count where an interpreter would run them.
pub(crate) fn planted_argument(
    argv: &[String],
    cwd: &Path,
    folders: &[PathBuf],
) -> Option<PathBuf> {
    let (program, args) = argv.split_first()?;
    let program = program.rsplit('/').next().unwrap_or_default();
    let runs_folders = INTERPRETERS.iter().any(|name| program.starts_with(name));
    let first = args.iter().position(|arg| !arg.starts_with('-'));
    let named = args.iter().enumerate().flat_map(|(at, arg)| {
        let value = arg.split_once('=').map(|(_, value)| value);
        let values = std::iter::once(arg.as_str()).chain(value);
        values.map(move |value| (at, value))
    });
    let mut paths = named.map(|(at, value)| {
        let path = cwd.join(value.strip_prefix("file://").unwrap_or(value));
        let is_run = path.is_file() || (path.is_dir() && runs_folders && first == Some(at));
        (is_run, path)
    });
    let found = paths.find(|(is_run, path)| *is_run && lies_in(path, folders));
    found.map(|(_, path)| path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_into_a_folder_lie_there_and_the_system_is_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let (inside, outside) = (dir.join("ws"), dir.join("bin"));
        for folder in [&inside, &outside] {
            std::fs::create_dir(folder).unwrap();
        }
        std::fs::write(inside.join("tool"), "").unwrap();
        std::fs::write(outside.join("own"), "").unwrap();
        std::os::unix::fs::symlink(inside.join("tool"), outside.join("tool")).unwrap();
        let folders = [inside.clone()];
        assert!(lies_in(&inside.join("not/there/yet"), &folders));
        assert!(lies_in(&outside.join("tool"), &folders));
        assert!(!lies_in(&outside.join("own"), &folders));
        let all = [PathBuf::from("/")];
        assert!(lies_in(&outside.join("own"), &all));
        assert!(!lies_in(Path::new("/usr/bin/env"), &all));
        assert!(lies_in(Path::new("/usr/bin/env"), &["/usr".into()]));
    }

    #[test]
    fn files_of_agents_are_found_among_arguments() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let (inside, outside) = (dir.join("ws"), dir.join("bin"));
        for folder in [&inside, &outside] {
            std::fs::create_dir(folder).unwrap();
            std::fs::write(folder.join("s.py"), "").unwrap();
        }
        std::os::unix::fs::symlink(inside.join("s.py"), outside.join("link.py")).unwrap();
        let folders = [inside.clone()];
        let found_by = |program: &str, args: &[&str], cwd: &Path| {
            let args = std::iter::once(&program).chain(args);
            let args: Vec<String> = args.map(|arg| (*arg).to_owned()).collect();
            planted_argument(&args, cwd, &folders).is_some()
        };
        let found = |args: &[&str], cwd: &Path| found_by("/usr/bin/python3", args, cwd);
        let text = |path: PathBuf| path.display().to_string();
        assert!(found(&["-u", &text(inside.join("s.py"))], &outside));
        assert!(found(&[&text(outside.join("link.py"))], &outside));
        assert!(found(&["s.py"], &inside));
        assert!(found(&["../ws/s.py"], &outside));
        assert!(found(
            &[&format!("--config={}", text(inside.join("s.py")))],
            &outside
        ));
        assert!(!found(&["s.py", "gone.py", "--flag"], &outside));
        // A server for files works on the workspace; an interpreter would run it.
        let folder = text(inside.clone());
        assert!(!found_by(
            "npx",
            &["-y", "server-filesystem", &folder],
            &outside
        ));
        assert!(!found(&["s.py", &folder], &outside));
        assert!(found(&["-u", &folder], &outside));
    }
}
