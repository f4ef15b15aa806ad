//! A workspace that is not watched is compared by its known names, as long as that is enough.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};

use super::{TestHistory, author};
use crate::entry::HistoryViewer;
use crate::history::HistorySettings;

const FILES: [(&str, &str); 6] = [
    ("a", "a0"),
    ("d/b", "b0"),
    ("d/e/c", "c0"),
    ("d/e/f/g", "g0"),
    (".gitignore", "*.o\nbuild/\n"),
    ("x/.gitignore", "*.tmp\n"),
];

/// A workspace that has been looked at so often that its names need not be read again.
fn known() -> TestHistory {
    let test = TestHistory::with(&FILES, HistorySettings::default());
    settle(&test);
    test
}

fn settle(test: &TestHistory) {
    test.let_stamps_age();
    assert_eq!(test.command(|| {}), None);
    assert!(is_by_names(test), "the second look reads no names");
}

/// Whether a look at the workspace as it is now reads no directory and needs no walk.
fn is_by_names(test: &TestHistory) -> bool {
    let mut work = llmc_host::lock(&test.history.0.work);
    let compared = test
        .history
        .0
        .compare(&mut work, |comparer, _| comparer.by_names())
        .unwrap();
    compared.is_some_and(|compared| compared.listings.is_empty())
}

/// What a command changed.
fn changed(test: &TestHistory, work: impl FnOnce()) -> Vec<String> {
    let id = test.command_id(work);
    let shown = test.history.show(id, &HistoryViewer::All).unwrap();
    let paths = shown.changes.iter();
    paths
        .map(|change| llmc_host::names::escape(&change.path))
        .collect()
}

#[test]
fn changes_of_every_kind_are_found_and_undone() {
    let test = known();
    let before = test.tree();
    let mut ids = Vec::new();
    for work in [
        &(|| test.write("d/e/f/g", "g1")) as &dyn Fn(),
        &|| test.write("d/e/f/new", "n"),
        &|| fs::remove_file(test.path("d/b")).unwrap(),
        &|| fs::rename(test.path("d/e"), test.path("moved")).unwrap(),
        &|| fs::set_permissions(test.path("moved/f"), Permissions::from_mode(0o700)).unwrap(),
        &|| symlink("a", test.path("d/link")).unwrap(),
        &|| {
            fs::remove_file(test.path("a")).unwrap();
            test.write("a/now/a/directory", "1");
        },
        &|| {
            fs::remove_dir_all(test.path("moved")).unwrap();
            symlink("d", test.path("moved")).unwrap();
        },
        &|| fs::create_dir(test.path("d/empty")).unwrap(),
        &|| test.write("d/empty/no more", "1"),
    ] {
        ids.push(test.command_id(work));
        settle(&test);
    }
    for id in ids.into_iter().rev() {
        assert_eq!(TestHistory::conflicts(&test.undo(id)), [""; 0]);
    }
    assert_eq!(test.tree(), before);
}

#[test]
fn ignored_names_stay_out_and_rules_that_change_count() {
    let test = known();
    let found = changed(&test, || {
        test.write("d/x.o", "1");
        test.write("build/y", "1");
        test.write("x/z.tmp", "1");
        test.write("d/kept", "1");
    });
    assert_eq!(found, ["d/kept"]);
    settle(&test);
    // The rule goes: what it hid was there before.
    let found = changed(&test, || test.write("x/.gitignore", ""));
    assert_eq!(found, ["x/.gitignore"]);
    settle(&test);
    let found = changed(&test, || test.write("x/z.tmp", "2"));
    assert_eq!(found, ["x/z.tmp"]);
    settle(&test);
    // A rule comes, in a directory that had none, together with what it hides.
    let found = changed(&test, || {
        test.write("d/e/.ignore", "*.log\n");
        test.write("d/e/f/1.log", "1");
        test.write("d/e/f/1.txt", "1");
    });
    assert_eq!(found, ["d/e/.ignore", "d/e/f/1.txt"]);
    settle(&test);
    // A repository of its own: the rules above it do not count inside.
    let found = changed(&test, || {
        fs::create_dir(test.path("d/.git")).unwrap();
        test.write("d/new.o", "1");
    });
    assert!(found.contains(&"d/new.o".to_owned()), "{found:?}");
    settle(&test);
    let found = changed(&test, || {
        test.write("d/.git/info/exclude", "*.x\n");
        test.write("d/e/1.x", "1");
        test.write("d/e/1.y", "1");
    });
    assert_eq!(found, ["d/e/1.y"]);
}

#[test]
fn what_was_not_recorded_is_found_by_the_next_look() {
    let test = known();
    // A file tool that is about to write a new file; a command ends meanwhile and must leave that file to it.
    let rooted = test
        .files
        .roots
        .resolve(
            "d/new",
            llmc_host::FinalLink::NoFollow,
            llmc_host::Access::Write,
        )
        .unwrap();
    let recording = test.history.begin(author("tool"));
    recording.before_write(&rooted);
    let other = changed(&test, || {
        test.write("d/new", "1");
        test.write("d/other", "1");
    });
    assert_eq!(other, ["d/other"]);
    test.let_stamps_age();
    test.command(|| {});
    assert!(!is_by_names(&test), "d holds a name that is not known");
    let recorded = recording.finish().unwrap().expect("it is the tool's");
    assert_eq!(recorded.counts.created, 1);
    settle(&test);
}

#[test]
fn what_another_server_recorded_is_known() {
    let test = known();
    let second = TestHistory::open(&test.root, HistorySettings::default());
    second.command_id(|| test.write("d/n/new", "1"));
    let id = test.command_id(|| test.write("d/n/new", "2"));
    settle(&test);
    test.undo(id);
    assert_eq!(test.read("d/n/new"), "1");
}
