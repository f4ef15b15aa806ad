//! Patches, moves, deletions and attributes.

use super::*;

const PATCH: &str = "\
--- a/one.txt
+++ b/one.txt
@@ -1,3 +1,3 @@
 alpha
-beta
+BETA
 gamma
--- /dev/null
+++ b/new/../made.txt
@@ -0,0 +1,2 @@
+first
+second
--- a/gone.txt
+++ /dev/null
@@ -1 +0,0 @@
-bye
";

#[test]
fn a_patch_changes_all_its_files_or_none() {
    let f = Fixture::new();
    fs::write(f.path("one.txt"), "alpha\nbeta\ngamma\n").unwrap();
    fs::write(f.path("gone.txt"), "bye\n").unwrap();
    let apply = |patch: &str| f.ws.apply_patch(patch, "test", &CancelToken::default());
    let patch = PATCH.replace("new/../", "");
    let done = apply(&patch).unwrap();
    assert_eq!(done.len(), 3);
    assert_eq!(
        fs::read_to_string(f.path("one.txt")).unwrap(),
        "alpha\nBETA\ngamma\n"
    );
    assert_eq!(
        fs::read_to_string(f.path("made.txt")).unwrap(),
        "first\nsecond\n"
    );
    assert!(!f.path("gone.txt").exists());
    // The same again fits nowhere, and says where it first does not.
    match apply(&patch) {
        Err(Error::NoMatch {
            path,
            summary,
            nearest,
            ..
        }) => {
            assert_eq!(path, "one.txt");
            assert!(
                summary.starts_with("hunk 1 of 1 does not apply"),
                "{summary}"
            );
            assert!(nearest.contains("2: BETA"), "{nearest}");
        }
        other => panic!("{other:?}"),
    }
    // The second file is refused, so the first one stays too.
    let escaping = "--- a/one.txt\n+++ b/one.txt\n@@ -2 +2 @@\n-BETA\n+X\n--- a/../outside/canary\n+++ b/../outside/canary\n@@ -1 +1 @@\n-canary\n+x\n";
    assert!(denied(apply(escaping)));
    let protected = "--- a/one.txt\n+++ b/one.txt\n@@ -2 +2 @@\n-BETA\n+X\n--- /dev/null\n+++ b/.git/hooks/pre-commit\n@@ -0,0 +1 @@\n+x\n";
    assert!(denied(apply(protected)));
    assert_eq!(
        fs::read_to_string(f.path("one.txt")).unwrap(),
        "alpha\nBETA\ngamma\n"
    );
    for nonsense in ["", "hello", "@@ -1 +1 @@", "--- a\n+++ b\n"] {
        assert!(
            matches!(apply(nonsense), Err(Error::BadPatch(_))),
            "{nonsense:?}"
        );
    }
    f.assert_no_litter();
}

#[test]
fn a_patch_renames_and_sets_the_run_bit() {
    let f = Fixture::new();
    fs::write(f.path("old.sh"), "echo a\n").unwrap();
    let patch = "diff --git a/old.sh b/new.sh\nsimilarity index 50%\nrename from old.sh\nrename to new.sh\n--- a/old.sh\n+++ b/new.sh\n@@ -1 +1 @@\n-echo a\n+echo b\ndiff --git a/run b/run\nnew file mode 100755\n--- /dev/null\n+++ b/run\n@@ -0,0 +1 @@\n+#!/bin/sh\n";
    let done =
        f.ws.apply_patch(patch, "test", &CancelToken::default())
            .unwrap();
    assert_eq!(done.len(), 2);
    assert!(!f.path("old.sh").exists());
    assert_eq!(fs::read_to_string(f.path("new.sh")).unwrap(), "echo b\n");
    assert_eq!(fs::metadata(f.path("run")).unwrap().mode() & 0o111, 0o111);
}

#[test]
fn a_move_replaces_only_what_is_of_its_kind() {
    let f = Fixture::new();
    let replace = |source: &str, target: &str| {
        let cancel = CancelToken::default();
        f.ws.move_path(source, target, ExistingTarget::Replace, "t", &cancel)
    };
    f.write("a", "new").unwrap();
    f.write("b", "old").unwrap();
    replace("a", "b").unwrap();
    assert_eq!(fs::read_to_string(f.path("b")).unwrap(), "new");
    assert!(!f.path("a").exists());
    replace("b", "b").unwrap();
    for dir in ["d", "full", "empty"] {
        std::fs::create_dir(f.path(dir)).unwrap();
    }
    f.write("full/x", "x").unwrap();
    assert!(matches!(replace("b", "d"), Err(Error::IsDirectory { .. })));
    assert!(matches!(
        replace("d", "b"),
        Err(Error::NotADirectory { .. })
    ));
    assert!(matches!(
        replace("d", "full"),
        Err(Error::AlreadyExists { .. })
    ));
    replace("full", "empty").unwrap();
    assert_eq!(fs::read_to_string(f.path("empty/x")).unwrap(), "x");
    f.write("llmc.toml", "").unwrap_err();
    assert!(matches!(
        replace("b", "llmc.toml"),
        Err(Error::Protected { .. })
    ));
}

#[test]
fn an_empty_directory_is_deleted_and_a_full_one_stays() {
    let f = Fixture::new();
    let rmdir = |path: &str| {
        f.ws.delete(path, DeleteScope::EmptyDir, "t", &CancelToken::default())
    };
    std::fs::create_dir(f.path("d")).unwrap();
    f.write("d/x", "x").unwrap();
    assert!(matches!(rmdir("d"), Err(Error::AlreadyExists { .. })));
    assert!(matches!(rmdir("d/x"), Err(Error::NotADirectory { .. })));
    f.delete("d/x").unwrap();
    rmdir("d").unwrap();
    assert!(matches!(rmdir("d"), Err(Error::NotFound { .. })));
}

#[test]
fn attributes_are_set_but_no_new_right_to_act_as_the_owner() {
    use std::os::unix::fs::MetadataExt;
    let f = Fixture::new();
    f.write("a", "x").unwrap();
    let set = |path: &str, new| f.ws.set_attributes(path, new, "t", &CancelToken::default());
    let mode = |mode| NewAttributes {
        mode: Some(mode),
        ..NewAttributes::default()
    };
    set("a", mode(0o750)).unwrap();
    set(
        "a",
        NewAttributes {
            times_ns: Some((1_500_000_000, -1)),
            ..NewAttributes::default()
        },
    )
    .unwrap();
    let stat = std::fs::metadata(f.path("a")).unwrap();
    assert_eq!(stat.mode() & 0o7777, 0o750);
    assert_eq!((stat.atime(), stat.atime_nsec()), (1, 500_000_000));
    assert_eq!((stat.mtime(), stat.mtime_nsec()), (-1, 999_999_999));
    assert!(matches!(
        set("a", mode(0o4755)),
        Err(Error::Permission { .. })
    ));
    assert!(matches!(
        set("../a", mode(0o755)),
        Err(Error::OutsideRoots { .. })
    ));
    assert!(matches!(
        set("llmc.toml", mode(0o755)),
        Err(Error::Protected { .. })
    ));
}

#[test]
fn new_content_drops_the_right_to_act_as_the_owner() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let f = Fixture::new();
    let cancel = CancelToken::default();
    let patch = "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-x\n+y\n";
    let changes: [(&str, &dyn Fn() -> bool); 4] = [
        ("write", &|| f.write("f", "new\n").is_ok()),
        ("append", &|| {
            let done = f.ws.write("f", b"z", WriteMode::Append, None, "t", &cancel);
            done.is_ok()
        }),
        ("edit", &|| f.edit("f", "x", "y").is_ok()),
        ("patch", &|| f.ws.apply_patch(patch, "t", &cancel).is_ok()),
    ];
    for (name, change) in changes {
        std::fs::write(f.path("f"), "x\n").unwrap();
        let mode = std::fs::Permissions::from_mode(0o6755);
        std::fs::set_permissions(f.path("f"), mode).unwrap();
        let before = std::fs::metadata(f.path("f")).unwrap().mode();
        assert_eq!(before & 0o7777, 0o6755, "the test's own subject");
        assert!(change(), "{name}");
        let after = std::fs::metadata(f.path("f")).unwrap().mode();
        assert_eq!(after & 0o7777, 0o755, "{name}");
    }
}

#[test]
fn directories_are_made_moved_and_deleted() {
    let f = Fixture::new();
    f.ws.make_dirs("a/b/c", ExistingDir::Refuse).unwrap();
    f.ws.make_dirs("a/b/c", ExistingDir::Accept).unwrap();
    assert!(matches!(
        f.ws.make_dirs("a/b/c", ExistingDir::Refuse),
        Err(Error::AlreadyExists { .. })
    ));
    f.write("a/file", "x").unwrap();
    assert!(matches!(
        f.ws.make_dirs("a/file/d", ExistingDir::Accept),
        Err(Error::NotADirectory { .. })
    ));
    assert!(matches!(
        f.ws.make_dirs("a/file", ExistingDir::Accept),
        Err(Error::AlreadyExists { .. })
    ));
    f.rename("a", "z").unwrap();
    assert!(matches!(f.rename("gone", "y"), Err(Error::NotFound { .. })));
    f.write("y", "").unwrap();
    assert!(matches!(
        f.rename("z", "y"),
        Err(Error::AlreadyExists { .. })
    ));
    assert!(matches!(f.rename("z", "z/b/in"), Err(Error::BadRequest(_))));
    assert!(matches!(
        f.rename("y", "no/dir"),
        Err(Error::NoParent { .. })
    ));
    let file_only =
        f.ws.delete("z", DeleteScope::FileOnly, "t", &CancelToken::default());
    assert!(matches!(file_only, Err(Error::IsDirectory { .. })));
    symlink("../y", f.path("z/link")).unwrap();
    f.delete("z").unwrap();
    assert!(f.path("y").exists() && !f.path("z").exists());
}
