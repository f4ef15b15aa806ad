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
}
