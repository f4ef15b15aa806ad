//! Fuzz targets: no path and no patch reaches beyond the roots.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use llmc_fuzz::{FuzzInput, check};

use crate::rules::Access;
use crate::{CancelToken, FinalLink, PathRules, Roots, Workspace, WriteState, names};

const SECRET: &str = "outside the roots";

/// A root with links of every kind in it, and a secret beside it.
struct Fixture {
    dir: tempfile::TempDir,
    top: PathBuf,
    workspace: Workspace,
}

impl Fixture {
    fn new() -> Fixture {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        fs::create_dir_all(top.join("w/.llmc")).unwrap();
        fs::create_dir_all(top.join("outside")).unwrap();
        fs::write(top.join("outside/secret"), SECRET).unwrap();
        let state = WriteState::open(&top.join("w/.llmc"), Duration::from_secs(30)).unwrap();
        let rules = Arc::new(PathRules::new(Some(top.join("w/.llmc")), Vec::new()));
        let roots = Roots::open(&top.join("w"), &[PathBuf::from(".")], rules).unwrap();
        let workspace = Workspace::new(Arc::new(roots), Some(Arc::new(state)));
        let fixture = Fixture {
            dir,
            top,
            workspace,
        };
        fixture.fill();
        fixture
    }

    fn root(&self) -> PathBuf {
        self.top.join("w")
    }

    /// Puts the files and links of the root where they belong, and nothing else.
    fn fill(&self) {
        let root = self.root();
        for entry in fs::read_dir(&root).unwrap() {
            let path = entry.unwrap().path();
            if path.ends_with(".llmc") {
                continue;
            }
            if path.is_dir() && !path.is_symlink() {
                fs::remove_dir_all(path).unwrap();
            } else {
                fs::remove_file(path).unwrap();
            }
        }
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/b/f"), "one\ntwo\nthree\n").unwrap();
        fs::write(root.join("g"), "g\n").unwrap();
        symlink("a", root.join("in")).unwrap();
        symlink("../outside", root.join("out")).unwrap();
        symlink("../../../outside/secret", root.join("a/b/deep")).unwrap();
        symlink("/etc", root.join("etc")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
    }

    /// The files and links of the root with their content, without the state directory.
    fn state(&self) -> BTreeMap<PathBuf, String> {
        let mut found = BTreeMap::new();
        let mut todo = vec![self.root()];
        while let Some(dir) = todo.pop() {
            for entry in fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                let content = match fs::read_link(&path) {
                    Ok(target) => format!("-> {}", target.display()),
                    Err(_) if path.ends_with(".llmc") => continue,
                    Err(_) if path.is_dir() => {
                        todo.push(path);
                        continue;
                    }
                    Err(_) => String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned(),
                };
                found.insert(path, content);
            }
        }
        found
    }
}

#[test]
fn paths() {
    let fixture = Fixture::new();
    let root = fixture.root();
    let fixture = std::panic::AssertUnwindSafe(&fixture);
    check!("paths", |bytes: &[u8]| {
        let roots = &fixture.workspace.roots;
        let mut input = FuzzInput::new(bytes);
        let last = *input.one_of(&[FinalLink::Follow, FinalLink::NoFollow]);
        let access = *input.one_of(&[Access::Read, Access::Write]);
        let requested = String::from_utf8_lossy(input.rest());
        let Ok(path) = roots.resolve(&requested, last, access) else {
            return;
        };
        let absolute = path.absolute();
        assert!(absolute.starts_with(&root), "{absolute:?}");
        let plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
        assert!(absolute.components().all(plain), "{absolute:?}");
        // What the kernel makes of the name lies inside too, as far as it exists.
        let dir = absolute.parent().filter(|dir| dir.starts_with(&root));
        if let Some(dir) = dir.and_then(|dir| dir.canonicalize().ok()) {
            assert!(dir.starts_with(&root), "{dir:?}");
        }
        let cancel = CancelToken::default();
        if let Ok(slice) = roots.read_lines(&requested, 0, 10, &cancel) {
            assert_ne!(slice.text.trim_end(), SECRET);
        }
        // A printed path that exists leads back to the file.
        if path.lstat().is_ok() {
            let shown = roots.display_path(&path);
            let again = roots.resolve(&shown, FinalLink::NoFollow, access);
            assert_eq!(again.unwrap().absolute(), absolute, "{shown:?}");
        }
    });
}

#[test]
fn file_names() {
    check!("file_names", |bytes: &[u8]| {
        let shown = names::escape(bytes);
        assert_eq!(*names::unescape(&shown), *bytes);
        assert!(!shown.contains(char::is_control), "{shown:?}");
    });
}

#[test]
fn patches() {
    let fixture = Fixture::new();
    let fixture = std::panic::AssertUnwindSafe(&fixture);
    let before = fixture.state();
    check!("patches", |bytes: &[u8]| {
        let patch = String::from_utf8_lossy(bytes);
        let cancel = CancelToken::default();
        let applied = fixture.workspace.apply_patch(&patch, "fuzz", &cancel);
        let after = fixture.state();
        let secret = fs::read_to_string(fixture.top.join("outside/secret")).unwrap();
        assert_eq!(secret, SECRET);
        assert_eq!(
            fs::read_dir(fixture.top.join("outside")).unwrap().count(),
            1
        );
        assert_eq!(fs::read_dir(fixture.dir.path()).unwrap().count(), 2);
        let differs = |path: &&PathBuf| before.get(*path) != after.get(*path);
        let changed = || before.keys().chain(after.keys()).filter(differs);
        match applied {
            Err(_) => assert_eq!(changed().next(), None, "a refused patch changed a file"),
            Ok(files) => {
                // A renamed file is reported under its new name; its old one is gone.
                let named = |path: &Path| files.iter().any(|file| file.path.absolute() == path);
                let stray = changed().find(|path| !named(path) && after.contains_key(*path));
                assert_eq!(stray, None, "a file that is not reported changed");
            }
        }
        if changed().next().is_some() {
            fixture.fill();
        }
    });
}
