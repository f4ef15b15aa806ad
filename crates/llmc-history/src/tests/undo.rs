//! Taking changes back.

use std::os::unix::fs::{PermissionsExt, symlink};

use super::{TestHistory, author};
use crate::entry::{EntryId, EntrySource, HistoryViewer};
use crate::error::Error;
use crate::history::HistorySettings;
use crate::undo::UndoTarget;

fn project() -> TestHistory {
    TestHistory::with(
        &[("a", "a0"), ("b", "b0"), ("d/x", "x0"), ("d/e/y", "y0")],
        HistorySettings::default(),
    )
}

#[test]
fn everything_a_command_did_is_taken_back_and_done_again() {
    let test = project();
    let before = test.tree();
    let id = test.command_id(|| {
        test.write("a", "a1");
        std::fs::remove_dir_all(test.path("d")).unwrap();
        std::fs::write(test.path("d"), "a file now").unwrap();
        std::fs::remove_file(test.path("b")).unwrap();
        std::fs::create_dir(test.path("b")).unwrap();
        symlink("nowhere", test.path("b/link")).unwrap();
        test.write("n/m/o", "new");
        let mode = std::fs::Permissions::from_mode(0o444);
        std::fs::set_permissions(test.path("n/m/o"), mode).unwrap();
        let mode = std::fs::Permissions::from_mode(0o555);
        std::fs::set_permissions(test.path("n/m"), mode).unwrap();
    });
    let after = test.tree();
    let report = test.undo(id);
    assert_eq!(report.conflicts, []);
    assert_eq!(test.tree(), before);
    assert!(matches!(
        test.history.undo(&test.request(UndoTarget::Entry(id))),
        Err(Error::AlreadyUndone { .. })
    ));
    let undo = report.entry.unwrap();
    let shown = test.history.show(undo, &HistoryViewer::All).unwrap();
    assert_eq!(
        (shown.entry.source, shown.entry.undoes),
        (EntrySource::Undo, vec![id])
    );
    let again = test.undo(undo);
    assert_eq!(again.conflicts, []);
    assert_eq!(test.tree(), after);
    test.undo(id);
    assert_eq!(test.tree(), before);
}

#[test]
fn newer_content_stays_and_the_rest_is_undone() {
    let test = project();
    let id = test.command_id(|| {
        test.write("a", "a1");
        test.write("b", "b1");
    });
    test.write("a", "by hand");
    let mut request = test.request(UndoTarget::Entry(id));
    request.atomic = true;
    let report = test.history.undo(&request).unwrap();
    assert_eq!((report.entry, report.restored.len()), (None, 0));
    assert_eq!(test.read("b"), "b1");
    request.atomic = false;
    request.dry_run = true;
    let report = test.history.undo(&request).unwrap();
    assert_eq!((report.entry, report.restored), (None, vec![b"b".to_vec()]));
    assert_eq!(test.read("b"), "b1");
    let report = test.undo(id);
    assert_eq!(TestHistory::conflicts(&report), ["a"]);
    assert_eq!(
        (test.read("a"), test.read("b")),
        ("by hand".into(), "b0".into())
    );
    let conflict = &report.conflicts[0];
    let found = test
        .history
        .content(b"a", &conflict.found)
        .unwrap()
        .unwrap();
    let expected = test
        .history
        .content(b"a", &conflict.expected)
        .unwrap()
        .unwrap();
    assert_eq!((found, expected), (b"by hand".to_vec(), b"a1".to_vec()));
}

#[test]
fn single_paths_ranges_sessions_and_times() {
    let test = project();
    let start = test.tree();
    let one = test.command_id(|| {
        test.write("a", "a1");
        test.write("d/x", "x1");
    });
    let mut request = test.request(UndoTarget::Entry(one));
    request.paths = vec![b"d".to_vec()];
    test.history.undo(&request).unwrap();
    assert_eq!(
        (test.read("a"), test.read("d/x")),
        ("a1".into(), "x0".into())
    );
    test.undo(one);
    assert_eq!(test.tree(), start);

    let first = test.command_id(|| test.write("a", "a2"));
    let last = test.command_id(|| test.write("a", "a3"));
    test.history
        .undo(&test.request(UndoTarget::Range(last, first)))
        .unwrap();
    assert_eq!(test.tree(), start);

    test.command_id(|| test.write("a", "a4"));
    let other = test.history.begin_all(author("other"));
    test.write("b", "b4");
    other.finish().unwrap();
    test.history
        .undo(&test.request(UndoTarget::Session("other".to_owned())))
        .unwrap();
    assert_eq!((test.read("a"), test.read("b")), ("a4".into(), "b0".into()));

    let now = llmc_envelope::clock::Clock::system().now_ms();
    std::thread::sleep(std::time::Duration::from_millis(3));
    test.command_id(|| test.write("d/e/y", "y5"));
    test.write("d/x", "by hand");
    test.command_id(|| test.write("d/e/y", "y6"));
    let report = test
        .history
        .undo(&test.request(UndoTarget::To(now)))
        .unwrap();
    assert_eq!(report.conflicts, []);
    assert_eq!(
        (test.read("d/e/y"), test.read("a")),
        ("y0".into(), "a4".into())
    );
    assert_eq!(test.read("d/x"), "by hand");
}

#[test]
fn an_older_entry_does_not_take_a_newer_one_with_it() {
    let test = project();
    let old = test.command_id(|| test.write("a", "a1"));
    let new = test.command_id(|| test.write("a", "a2"));
    let report = test.undo(old);
    assert_eq!(TestHistory::conflicts(&report), ["a"]);
    assert_eq!(report.entry, None);
    test.undo(new);
    test.undo(old);
    assert_eq!(test.read("a"), "a0");
}

#[test]
fn directories_with_newer_files_stay() {
    let test = project();
    let id = test.command_id(|| test.write("n/a", "1"));
    test.write("n/b", "by hand");
    let report = test.undo(id);
    assert_eq!(TestHistory::conflicts(&report), ["n"]);
    assert_eq!(report.restored, [b"n/a".to_vec()]);
    assert_eq!(test.read("n/b"), "by hand");
    // A file whose directory is gone.
    let file = test.command_id(|| std::fs::remove_file(test.path("d/e/y")).unwrap());
    let dir = test.command_id(|| std::fs::remove_dir(test.path("d/e")).unwrap());
    assert_eq!(TestHistory::conflicts(&test.undo(file)), ["d/e/y"]);
    test.undo(dir);
    test.undo(file);
    assert_eq!(test.read("d/e/y"), "y0");
}

#[test]
fn links_are_not_followed_when_undoing() {
    let test = project();
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("x"), "x1").unwrap();
    let id = test.command_id(|| test.write("d/x", "x1"));
    std::fs::rename(test.path("d"), test.path("elsewhere")).unwrap();
    symlink(outside.path(), test.path("d")).unwrap();
    let report = test.undo(id);
    assert_eq!(TestHistory::conflicts(&report), ["d/x"]);
    assert_eq!(std::fs::read(outside.path().join("x")).unwrap(), b"x1");
}

#[test]
fn protected_names_are_never_restored() {
    let test = project();
    let id = test.command_id(|| {
        test.write("llmc.toml", "[mcp]");
        test.write("a", "a1");
    });
    let report = test.undo(id);
    assert_eq!(report.not_kept.len(), 1);
    assert_eq!(test.read("llmc.toml"), "[mcp]");
    assert_eq!(test.read("a"), "a0");
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let test = project();
    let undo = |target| test.history.undo(&test.request(target));
    assert!(matches!(
        undo(UndoTarget::Entry(EntryId(99))),
        Err(Error::UnknownEntry(_))
    ));
    assert!(matches!(
        undo(UndoTarget::Entry(EntryId(u64::MAX))),
        Err(Error::UnknownEntry(_))
    ));
    assert!(matches!(
        undo(UndoTarget::Session("x".into())),
        Err(Error::BadRequest(_))
    ));
    assert!(matches!(
        undo(UndoTarget::To(i64::MAX)),
        Err(Error::BadRequest(_))
    ));
}

#[test]
fn the_tree_before_an_entry_is_known() {
    let test = project();
    let one = test.command_id(|| test.write("a", "a1"));
    test.command_id(|| test.write("a", "a2"));
    test.command_id(|| test.write("b", "b1"));
    test.command_id(|| test.write("b", "b0"));
    let past = test.history.tree_at(one, &HistoryViewer::All).unwrap();
    assert_eq!(past.len(), 1);
    let content = test.history.content(&past[0].path, &past[0].state).unwrap();
    assert_eq!(
        (past[0].path.as_slice(), content),
        (&b"a"[..], Some(b"a0".to_vec()))
    );
}

#[test]
fn head_is_named_and_never_moved() {
    let test = project();
    let (one, two) = ("1".repeat(40), "2".repeat(40));
    let head = |text: &str| test.write(".git/HEAD", text);
    head("ref: refs/heads/main\n");
    test.write(".git/refs/heads/main", &format!("{one}\n"));
    test.command(|| {});
    let id = test.command_id(|| {
        test.write("a", "a1");
        test.write(".git/refs/heads/main", &format!("{two}\n"));
    });
    let shown = test.history.show(id, &HistoryViewer::All).unwrap().entry;
    assert_eq!(shown.head_before, Some(format!("main@{one}")));
    let report = test.undo(id);
    assert_eq!(report.git_command, Some(format!("git reset --soft {one}")));
    assert_eq!(test.read(".git/refs/heads/main"), format!("{two}\n"));
}
