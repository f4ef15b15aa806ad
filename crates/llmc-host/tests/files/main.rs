//! The file layer on a real file system: what it does and what it refuses.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod changes;
mod contents;
mod races;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use llmc_host::edit::Replacement;
use llmc_host::{
    CancelToken, DeleteScope, Error, ExistingDir, ExistingTarget, ExpectedHash, NewAttributes,
    PathRules, Roots, Workspace, WriteMode, WriteState, sha256_hex,
};

/// A workspace in a temporary folder, with a canary beside it that nothing may ever reach.
struct Fixture {
    dir: tempfile::TempDir,
    ws: Workspace,
}

impl Fixture {
    fn new() -> Fixture {
        Fixture::with_roots(&["."])
    }

    fn with_roots(roots: &[&str]) -> Fixture {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        fs::create_dir_all(top.join("w/.llmc")).unwrap();
        fs::create_dir_all(top.join("outside")).unwrap();
        fs::write(top.join("outside/canary"), "canary").unwrap();
        let state = WriteState::open(&top.join("w/.llmc"), Duration::from_secs(30)).unwrap();
        let roots: Vec<PathBuf> = roots.iter().map(PathBuf::from).collect();
        let rules = Arc::new(PathRules::new(Some(top.join("w/.llmc")), Vec::new()));
        let roots = Roots::open(&top.join("w"), &roots, rules).unwrap();
        Fixture {
            ws: Workspace::new(Arc::new(roots), Some(Arc::new(state))),
            dir,
        }
    }

    fn path(&self, rel: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join("w").join(rel)
    }

    fn read(&self, requested: &str) -> Result<String, Error> {
        self.ws
            .roots
            .read_lines(requested, 0, 2000, &CancelToken::default())
            .map(|slice| slice.text)
    }

    fn write(&self, requested: &str, text: &str) -> Result<String, Error> {
        let written = self.ws.write(
            requested,
            text.as_bytes(),
            WriteMode::Rewrite,
            None,
            "test",
            &CancelToken::default(),
        );
        written.map(|written| written.sha256)
    }

    fn append(&self, requested: &str, text: &str) -> Result<String, Error> {
        let written = self.ws.write(
            requested,
            text.as_bytes(),
            WriteMode::Append,
            None,
            "test",
            &CancelToken::default(),
        );
        written.map(|written| written.sha256)
    }

    fn edit(&self, requested: &str, old_text: &str, new_text: &str) -> Result<String, Error> {
        let change = Replacement {
            old_text,
            new_text,
            count: 1,
        };
        self.ws
            .edit(requested, &change, None, "test", &CancelToken::default())
            .map(|written| written.sha256)
    }

    fn delete(&self, requested: &str) -> Result<(), Error> {
        self.ws
            .delete(
                requested,
                DeleteScope::Recursive,
                "test",
                &CancelToken::default(),
            )
            .map(drop)
    }

    fn rename(&self, source: &str, target: &str) -> Result<(), Error> {
        self.ws
            .move_path(
                source,
                target,
                ExistingTarget::Refuse,
                "test",
                &CancelToken::default(),
            )
            .map(drop)
    }

    /// Nothing temporary may stay behind, neither beside the files nor in the state directory.
    fn assert_no_litter(&self) {
        let mut found = Vec::new();
        litter(&self.path(""), &mut found);
        assert_eq!(found, Vec::<PathBuf>::new());
    }
}

fn litter(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(".llmc-") || dir.ends_with(".llmc/tmp") || name.starts_with("f-") {
            found.push(path.clone());
        }
        if entry.file_type().unwrap().is_dir() {
            litter(&path, found);
        }
    }
}

fn denied(result: Result<impl Sized, Error>) -> bool {
    use Error::{BadPath, Denylisted, NoRoots, OutsideRoots, Protected, SpecialFile};
    matches!(
        result,
        Err(OutsideRoots { .. }
            | BadPath { .. }
            | SpecialFile { .. }
            | Protected { .. }
            | Denylisted { .. }
            | NoRoots { .. })
    )
}

#[test]
fn hostile_paths_are_refused_and_change_nothing() {
    let f = Fixture::new();
    fs::write(f.path("file"), "x").unwrap();
    fs::create_dir(f.path("d")).unwrap();
    fs::create_dir(f.path("../wx")).unwrap();
    fs::write(f.path("../wx/secret"), "s").unwrap();
    let outside = f.path("../outside").canonicalize().unwrap();
    symlink(&outside, f.path("abs")).unwrap();
    symlink("../outside", f.path("rel")).unwrap();
    symlink("rel", f.path("chain")).unwrap();
    symlink("loop", f.path("loop")).unwrap();
    symlink("/proc/self/root", f.path("magic")).unwrap();
    symlink("/nowhere/at/all", f.path("dangling-out")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, f.path("fifo"), rustix::fs::Mode::RWXU).unwrap();
    let socket = std::os::unix::net::UnixListener::bind(f.path("socket")).unwrap();
    let sibling = format!(
        "{}x/secret",
        f.path("").display().to_string().trim_end_matches('/')
    );
    let long = "a/".repeat(2049);
    let name = "n".repeat(300);
    for path in [
        "..",
        "../outside/canary",
        "d/../../outside/canary",
        "/etc/passwd",
        &sibling,
        "",
        "a\0b",
        &long,
        &name,
        "abs/canary",
        "rel/canary",
        "chain/canary",
        "loop",
        "loop/x",
        "magic/etc/passwd",
        "dangling-out",
        "fifo",
        "socket",
        "/dev/null",
        "/proc/self/environ",
        "/proc/self/fd/0",
        "rel/../outside/canary",
        ".llmc/token",
        "rel",
        "abs",
    ] {
        assert!(denied(f.read(path)), "read {path:?}: {:?}", f.read(path));
        assert!(
            denied(f.write(path, "x")),
            "write {path:?}: {:?}",
            f.write(path, "x")
        );
        assert!(denied(f.edit(path, "canary", "x")), "edit {path:?}");
        // A link itself can be deleted and moved, wherever it leads.
        if !f.path(path).is_symlink() {
            assert!(
                denied(f.delete(path)),
                "delete {path:?}: {:?}",
                f.delete(path)
            );
            assert!(denied(f.rename(path, "new")), "move {path:?}");
        }
        assert!(
            denied(f.ws.make_dirs(path, ExistingDir::Refuse).map(drop))
                || matches!(path, "fifo" | "socket"),
            "mkdirs {path:?}"
        );
    }
    assert_eq!(
        fs::read_to_string(outside.join("canary")).unwrap(),
        "canary"
    );
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    assert!(!f.path("new").exists());
    f.assert_no_litter();
    drop(socket);
}

#[test]
fn unusual_paths_inside_the_root_work() {
    let f = Fixture::new();
    for name in [
        "a b",
        "-rf",
        "$HOME",
        "%2e%2e",
        "back\\slash",
        "new\nline",
        "ünï",
        "~user",
        "file:x",
    ] {
        f.write(name, name).unwrap();
        assert_eq!(f.read(name).unwrap(), name);
    }
    fs::create_dir_all(f.path("d/e")).unwrap();
    f.write("d//e/./x", "1").unwrap();
    assert_eq!(f.read("d/e/../e/x").unwrap(), "1");
    assert_eq!(f.read(f.path("d/e/x").to_str().unwrap()).unwrap(), "1");
    // A name that JSON cannot carry is opened by the form in which listings show it.
    use std::os::unix::ffi::OsStrExt;
    fs::write(
        f.path("").join(std::ffi::OsStr::from_bytes(b"caf\xe9")),
        "odd",
    )
    .unwrap();
    assert_eq!(f.read("caf\\xe9").unwrap(), "odd");
    assert!(matches!(f.read("nothing"), Err(Error::NotFound { .. })));
    assert!(matches!(f.read("d"), Err(Error::IsDirectory { .. })));
    assert!(matches!(f.read("a b/x"), Err(Error::NotADirectory { .. })));
    assert!(matches!(f.read("a b/"), Err(Error::NotADirectory { .. })));
    assert!(matches!(
        f.write("no/such/dir", ""),
        Err(Error::NoParent { .. })
    ));
}

#[test]
fn links_that_stay_inside_are_followed_and_kept() {
    let f = Fixture::new();
    fs::create_dir(f.path("real")).unwrap();
    fs::write(f.path("real/a"), "old").unwrap();
    symlink("real/a", f.path("link")).unwrap();
    symlink(f.path("real"), f.path("absolute")).unwrap();
    symlink("real/made", f.path("dangling")).unwrap();
    f.write("link", "new").unwrap();
    assert!(f.path("link").is_symlink());
    assert_eq!(f.read("absolute/a").unwrap(), "new");
    f.write("dangling", "made").unwrap();
    assert_eq!(fs::read_to_string(f.path("real/made")).unwrap(), "made");
    f.delete("link").unwrap();
    assert!(!f.path("link").is_symlink() && f.path("real/a").exists());
}

#[test]
fn roots_decide_and_an_empty_list_denies_everything() {
    let f = Fixture::with_roots(&[]);
    fs::write(f.path("a"), "x").unwrap();
    assert!(denied(f.read("a")));
}

#[test]
fn several_roots_and_links_between_them() {
    let dir = tempfile::tempdir().unwrap();
    let top = dir.path().canonicalize().unwrap();
    for sub in ["w", "other", "third"] {
        fs::create_dir(top.join(sub)).unwrap();
        fs::write(top.join(sub).join("f"), sub).unwrap();
    }
    symlink("../other", top.join("w/to-other")).unwrap();
    symlink("../third", top.join("w/to-third")).unwrap();
    let roots = Roots::open(
        &top.join("w"),
        &[".".into(), top.join("other")],
        Arc::default(),
    )
    .unwrap();
    let read = |path: &str| {
        roots
            .read_lines(path, 0, 10, &CancelToken::default())
            .map(|slice| slice.text)
    };
    assert_eq!(read("to-other/f").unwrap(), "other");
    assert_eq!(read("../other/f").unwrap(), "other");
    assert!(denied(read("to-third/f")));
    assert!(denied(read("../third/f")));
}

#[test]
fn the_whole_disk_as_root_still_refuses_the_kernel_and_devices() {
    let dir = tempfile::tempdir().unwrap();
    let top = dir.path().canonicalize().unwrap();
    fs::write(top.join("f"), "ok").unwrap();
    let roots = Roots::open(&top, &["/".into()], Arc::default()).unwrap();
    let read = |path: &str| {
        roots
            .read_lines(path, 0, 10, &CancelToken::default())
            .map(|slice| slice.text)
    };
    assert_eq!(read("f").unwrap(), "ok");
    assert_eq!(read(top.join("f").to_str().unwrap()).unwrap(), "ok");
    let state = WriteState::open(&top.join("state"), Duration::from_secs(30)).unwrap();
    let whole = Workspace::new(Arc::new(roots), Some(Arc::new(state)));
    let roots = &whole.roots;
    let cancel = CancelToken::default();
    for path in ["/proc", "/proc/self", "/sys", "/sys/kernel"] {
        for scope in [
            DeleteScope::FileOnly,
            DeleteScope::EmptyDir,
            DeleteScope::Recursive,
        ] {
            let gone = whole.delete(path, scope, "t", &cancel);
            assert!(denied(gone.map(drop)), "{path} {scope:?}");
        }
        let target = top.join("new").display().to_string();
        let moved = whole.move_path(path, &target, ExistingTarget::Refuse, "t", &cancel);
        assert!(denied(moved.map(drop)), "{path}");
    }
    let read = |path: &str| {
        roots
            .read_lines(path, 0, 10, &CancelToken::default())
            .map(|slice| slice.text)
    };
    for path in [
        "/proc/self/environ",
        "/proc/1/root/etc/passwd",
        "/sys/kernel/uevent_seqnum",
        "/dev/zero",
        "/dev/stdin",
    ] {
        assert!(denied(read(path)), "{path}: {:?}", read(path));
    }
}

#[test]
fn a_link_that_leads_outside_can_be_deleted_and_moved_but_not_followed() {
    let f = Fixture::new();
    for name in ["gone", "moved"] {
        symlink("../outside", f.path(name)).unwrap();
    }
    f.delete("gone").unwrap();
    f.rename("moved", "there").unwrap();
    assert!(!f.path("gone").is_symlink() && !f.path("moved").is_symlink());
    assert_eq!(
        fs::read_link(f.path("there")).unwrap().to_str(),
        Some("../outside")
    );
    let inside = "there/canary";
    assert!(f.delete(inside).is_err() && f.rename(inside, "x").is_err());
    assert!(denied(f.read("there/canary")));
    let canary = f.path("../outside/canary");
    assert_eq!(fs::read_to_string(canary).unwrap(), "canary");
}

#[test]
fn a_root_that_vanishes_is_not_found_and_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let top = dir.path().canonicalize().unwrap().join("w");
    fs::create_dir(&top).unwrap();
    let roots = Roots::open(&top, &[".".into()], Arc::default()).unwrap();
    fs::remove_dir(&top).unwrap();
    let read = || {
        roots
            .read_lines("f", 0, 10, &CancelToken::default())
            .map(|slice| slice.text)
    };
    assert!(matches!(read(), Err(Error::NotFound { .. })));
    fs::create_dir(&top).unwrap();
    fs::write(top.join("f"), "back").unwrap();
    assert_eq!(read().unwrap(), "back");
}

#[test]
fn protected_names_cannot_be_written_created_moved_or_deleted() {
    let f = Fixture::new();
    fs::create_dir_all(f.path("sub/.git/hooks")).unwrap();
    fs::write(f.path("sub/.git/config"), "x").unwrap();
    fs::write(f.path("evil"), "x").unwrap();
    fs::create_dir_all(f.path("evildir/hooks")).unwrap();
    symlink("sub/.git", f.path("g")).unwrap();
    for path in [
        "llmc.toml",
        "sub/llmc.toml",
        ".llmc/x",
        "sub/.git/config",
        "sub/.git/hooks/pre-commit",
        "g/config",
        "g/hooks/x",
        ".git",
    ] {
        assert!(denied(f.write(path, "x")), "{path}");
        assert!(denied(f.rename("evil", path)), "{path}");
    }
    assert!(denied(f.rename("evildir", "new/.git")));
    assert!(denied(f.rename("sub/.git", "elsewhere")));
    assert!(
        denied(f.delete("sub")),
        "a tree that holds git's configuration stays"
    );
    assert_eq!(fs::read_to_string(f.path("sub/.git/config")).unwrap(), "x");
    f.write("sub/.git/info-like", "fine").unwrap();
}

#[test]
fn roots_and_what_holds_them_are_neither_moved_nor_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let top = dir.path().canonicalize().unwrap();
    fs::create_dir_all(top.join("a/w/inner")).unwrap();
    let state = WriteState::open(&top.join("state"), Duration::from_secs(30)).unwrap();
    let roots = Roots::open(
        &top.join("a/w"),
        &[top.clone(), "inner".into()],
        Arc::default(),
    )
    .unwrap();
    let ws = Workspace::new(Arc::new(roots), Some(Arc::new(state)));
    for path in [
        ".",
        "inner",
        top.to_str().unwrap(),
        top.join("a").to_str().unwrap(),
        "../../a",
        "/",
    ] {
        assert!(
            denied(ws.delete(path, DeleteScope::Recursive, "t", &CancelToken::default())),
            "{path}"
        );
        assert!(
            denied(ws.move_path(
                path,
                "x",
                ExistingTarget::Refuse,
                "t",
                &CancelToken::default()
            )),
            "{path}"
        );
    }
}
