//! What is recorded, and as whose.

use std::os::unix::fs::{PermissionsExt, symlink};

use super::{TestHistory, author};
use crate::entry::{
    ChangeAction, EntryFilter, EntrySource, HistoryViewer, NotKeptReason, PathState,
};
use crate::history::{HistorySettings, HistoryState};

fn list(test: &TestHistory) -> Vec<crate::entry::Entry> {
    test.history.list(&EntryFilter::default()).unwrap()
}

#[test]
fn a_command_leaves_one_entry_with_all_it_did() {
    let test = TestHistory::with(
        &[
            ("a.txt", "one"),
            ("b.txt", "two"),
            ("d/c.txt", "three"),
            ("keep", "k"),
        ],
        HistorySettings::default(),
    );
    let id = test.command_id(|| {
        test.write("a.txt", "other");
        std::fs::remove_file(test.path("b.txt")).unwrap();
        std::fs::rename(test.path("d/c.txt"), test.path("moved.txt")).unwrap();
        test.write("new/x.txt", "x");
        symlink("a.txt", test.path("link")).unwrap();
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(test.path("keep"), mode).unwrap();
    });
    let detail = test.history.show(id, &HistoryViewer::All).unwrap();
    assert_eq!(detail.entry.source, EntrySource::Call);
    assert_eq!(detail.entry.author, author("s"));
    let counts = (
        detail.entry.counts.created,
        detail.entry.counts.changed,
        detail.entry.counts.deleted,
        detail.entry.counts.moved,
    );
    assert_eq!(counts, (3, 2, 1, 1));
    let change = |path: &str| {
        let mut found = detail
            .changes
            .iter()
            .filter(|change| change.path == path.as_bytes());
        found
            .next()
            .unwrap_or_else(|| panic!("{path} in {detail:#?}"))
    };
    assert_eq!(change("a.txt").action, ChangeAction::Changed);
    assert_eq!(change("b.txt").action, ChangeAction::Deleted);
    assert_eq!(change("new").action, ChangeAction::Created);
    let from = b"d/c.txt".to_vec();
    assert_eq!(change("moved.txt").action, ChangeAction::Moved { from });
    let content = |state: &PathState| test.history.content(b"a.txt", state).unwrap().unwrap();
    assert_eq!(content(&change("a.txt").before), b"one");
    assert_eq!(content(&change("a.txt").after), b"other");
    assert_eq!(content(&change("link").after), b"a.txt");
    assert_eq!(list(&test).len(), 1);
    assert!(test.command(|| {}).is_none());
    assert_eq!(list(&test).len(), 1);
}

#[test]
fn changes_between_calls_are_from_outside() {
    let test = TestHistory::with(&[("a", "1")], HistorySettings::default());
    test.write("a", "2");
    let id = test.command_id(|| test.write("b", "x"));
    let entries = list(&test);
    assert_eq!(entries.len(), 2);
    assert_eq!((entries[0].id, entries[0].source), (id, EntrySource::Call));
    assert_eq!(entries[1].source, EntrySource::Outside);
    assert_eq!(
        (entries[1].counts.changed, entries[0].counts.created),
        (1, 1)
    );
}

#[test]
fn a_file_tool_is_recorded_before_the_first_snapshot_too() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    std::fs::write(root.join("a"), "before").unwrap();
    let test = TestHistory::open(&root, HistorySettings::default());
    assert_eq!(test.history.state(), HistoryState::Building { done: 0 });
    let recorded = test.tool(&["a"], || test.write("a", "after")).unwrap();
    assert_eq!(
        (recorded.counts.changed, recorded.not_undoable.clone()),
        (1, None)
    );
    let command = test.command(|| test.write("z", "z")).unwrap();
    assert_eq!(command.id, None);
    assert!(command.not_undoable.unwrap().contains("still being built"));
    test.undo(recorded.id.unwrap());
    assert_eq!(test.read("a"), "before");
    test.history.build().unwrap();
    assert!(test.history.is_ready());
}

#[test]
fn a_file_tool_records_its_paths_and_the_directories_it_made() {
    let test = TestHistory::with(&[("a", "1")], HistorySettings::default());
    let recorded = test
        .tool(&["x/y/z.txt"], || test.write("x/y/z.txt", "new"))
        .unwrap();
    assert_eq!(recorded.counts.created, 3);
    let before = test.tree();
    let gone = test
        .tool(&["x"], || std::fs::remove_dir_all(test.path("x")).unwrap())
        .unwrap();
    assert_eq!(gone.counts.deleted, 3);
    test.undo(gone.id.unwrap());
    assert_eq!(test.tree(), before);
    test.undo(recorded.id.unwrap());
    assert!(!test.path("x").exists());
}

#[test]
fn ignored_denied_and_large_files_are_counted_and_not_kept() {
    let settings = HistorySettings {
        max_file_bytes: 1000,
        ..HistorySettings::default()
    };
    let test = TestHistory::with(&[(".gitignore", "*.log\n"), (".env", "SECRET")], settings);
    let recorded = test.command(|| {
        test.write("big", &"x".repeat(2000));
        test.write(".env", "OTHER");
        test.write("x.log", "ignored");
    });
    let recorded = recorded.unwrap();
    assert_eq!(
        (
            recorded.counts.created,
            recorded.counts.changed,
            recorded.counts.not_kept
        ),
        (1, 1, 2)
    );
    assert!(recorded.not_undoable.is_some());
    let detail = test
        .history
        .show(recorded.id.unwrap(), &HistoryViewer::All)
        .unwrap();
    let reasons: Vec<_> = detail
        .changes
        .iter()
        .map(|change| change.after.not_kept())
        .collect();
    assert_eq!(
        reasons,
        [Some(NotKeptReason::Denied), Some(NotKeptReason::TooLarge)]
    );
    let tool = test
        .tool(&["x.log"], || test.write("x.log", "more of it"))
        .unwrap();
    assert_eq!((tool.counts.changed, tool.counts.not_kept), (1, 1));
    let report = test.undo(recorded.id.unwrap());
    assert!(report.restored.is_empty());
    assert_eq!(report.not_kept.len(), 2);
    assert_eq!(test.read(".env"), "OTHER");
    for secret in ["SECRET", "OTHER"] {
        let id = crate::objects::blob_id(secret.as_bytes());
        assert_eq!(test.history.0.content(&id).unwrap(), None, "{secret}");
    }
    if super::engine::IS_SHARED {
        return;
    }
    let store = std::fs::read(test.path(".llmc/history.db")).unwrap();
    let log = std::fs::read(test.path(".llmc/history.db-wal")).unwrap_or_default();
    for secret in ["SECRET", "OTHER"] {
        let has = |bytes: &[u8]| {
            bytes
                .windows(secret.len())
                .any(|part| part == secret.as_bytes())
        };
        assert!(!has(&store) && !has(&log), "{secret}");
    }
}

#[test]
fn an_ignore_rule_that_goes_does_not_make_its_files_new() {
    let test = TestHistory::with(
        &[
            (".gitignore", "out/\n"),
            ("out/built", "precious"),
            ("a", "1"),
        ],
        HistorySettings::default(),
    );
    // A look that is certainly later than the files.
    std::thread::sleep(std::time::Duration::from_millis(20));
    test.command(|| test.write("a", "2"));
    let id = test.command_id(|| test.write(".gitignore", "nothing\n"));
    let report = test.undo(id);
    assert_eq!(report.restored, [b".gitignore".to_vec()]);
    assert_eq!(test.read("out/built"), "precious");
    // And a rule that comes does not delete.
    let id = test.command_id(|| test.write(".gitignore", "a\nout/\n"));
    let detail = test.history.show(id, &HistoryViewer::All).unwrap();
    assert_eq!(detail.changes.len(), 1, "{detail:#?}");
}

#[test]
fn the_same_size_within_a_tick_is_still_a_change() {
    let test = TestHistory::with(&[("a", "0")], HistorySettings::default());
    for round in 1..10 {
        let content = round.to_string();
        let id = test.command_id(|| test.write("a", &content));
        assert_eq!(test.undo(id).restored.len(), 1);
        assert_eq!(test.read("a"), "0");
    }
}

#[test]
fn a_dropped_recording_records_what_is_there() {
    let test = TestHistory::with(&[("a", "1")], HistorySettings::default());
    let recording = test.history.begin_all(author("s"));
    test.write("a", "2");
    drop(recording);
    let entries = list(&test);
    assert_eq!((entries.len(), entries[0].source), (1, EntrySource::Call));
}

#[test]
fn steps_and_checkpoints() {
    let test = TestHistory::with(&[], HistorySettings::default());
    let recording = test.history.begin_all(author("s"));
    recording.step("fs.write a\nsecond line");
    test.write("a", "1");
    let first = recording.checkpoint().unwrap().unwrap();
    assert!(recording.checkpoint().unwrap().is_none());
    test.write("b", "1");
    let last = recording.finish().unwrap().unwrap();
    assert!(first.id < last.id);
    let detail = test
        .history
        .show(first.id.unwrap(), &HistoryViewer::All)
        .unwrap();
    assert_eq!(detail.steps, ["fs.write a"]);
}

#[test]
fn a_token_sees_its_own_entries() {
    let test = TestHistory::with(&[], HistorySettings::default());
    let mine = test.command_id(|| test.write("a", "1"));
    let other = HistoryViewer::Principal("ci".to_owned());
    let filter = EntryFilter {
        viewer: other.clone(),
        ..EntryFilter::default()
    };
    assert!(test.history.list(&filter).unwrap().is_empty());
    assert!(test.history.show(mine, &other).is_err());
    let mut request = test.request(crate::undo::UndoTarget::Entry(mine));
    request.viewer = other;
    assert!(test.history.undo(&request).is_err());
    assert_eq!(test.read("a"), "1");
}

#[test]
fn entries_are_found_by_path_and_session() {
    let test = TestHistory::with(&[], HistorySettings::default());
    let one = test.command_id(|| test.write("d/a", "1"));
    let two = test.command_id(|| test.write("da", "1"));
    let found = |path: &str| -> Vec<_> {
        let filter = EntryFilter {
            path: Some(path.as_bytes().to_vec()),
            ..EntryFilter::default()
        };
        let entries = test.history.list(&filter).unwrap();
        entries.into_iter().map(|entry| entry.id).collect()
    };
    assert_eq!(found("d"), [one]);
    assert_eq!(found("d/a"), [one]);
    assert_eq!(found("da"), [two]);
    assert_eq!(found(""), [two, one]);
    let session = EntryFilter {
        session: Some("other".to_owned()),
        ..EntryFilter::default()
    };
    assert!(test.history.list(&session).unwrap().is_empty());
}

#[test]
fn too_many_files_leave_file_tools() {
    let settings = HistorySettings {
        max_files: 3,
        ..HistorySettings::default()
    };
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    for n in 0..5 {
        std::fs::write(root.join(n.to_string()), "x").unwrap();
    }
    let test = TestHistory::open(&root, settings);
    assert!(test.history.build().is_err());
    assert!(matches!(test.history.state(), HistoryState::Off { .. }));
    let command = test.command(|| test.write("1", "y")).unwrap();
    assert!(command.not_undoable.unwrap().contains("more than 3 files"));
    let tool = test.tool(&["2"], || test.write("2", "y")).unwrap();
    test.undo(tool.id.unwrap());
    assert_eq!(test.read("2"), "x");
}

#[test]
fn a_full_store_says_so_and_goes_on() {
    let settings = HistorySettings {
        max_bytes: 10,
        ..HistorySettings::default()
    };
    let test = TestHistory::with(&[("a", "1")], settings);
    let recorded = test.command(|| test.write("a", "2")).unwrap();
    assert!(recorded.not_undoable.unwrap().contains("full"));
    assert_eq!(test.read("a"), "2");
}

#[test]
fn the_first_snapshot_leaves_half_of_the_store_to_entries() {
    const FILE_BYTES: usize = 9 << 20;
    const MAX_BYTES: u64 = 32 << 20;
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    for n in 0..5 {
        let mut content = super::noise(FILE_BYTES);
        content[0] = n;
        std::fs::write(root.join(n.to_string()), content).unwrap();
    }
    let settings = HistorySettings {
        max_bytes: MAX_BYTES,
        ..HistorySettings::default()
    };
    let test = TestHistory::open(&root, settings);
    test.history.build().unwrap();
    let used = test.history.check().unwrap().bytes;
    let most = MAX_BYTES / 2 + FILE_BYTES as u64 + (1 << 20);
    assert!(used > FILE_BYTES as u64 && used < most, "{used} bytes");
    // A file that was not kept is kept from its next change on, while there is room.
    let first = test.command(|| test.write("4", "4a")).unwrap();
    assert!(first.not_undoable.unwrap().contains("full"));
    let id = test.command_id(|| test.write("4", "4b"));
    test.undo(id);
    assert_eq!(test.read("4"), "4a");
}

#[test]
fn retention_removes_the_oldest_and_their_contents() {
    let test = TestHistory::with(&[("a", "0")], HistorySettings::default());
    for n in 0..5 {
        test.command(|| test.write("a", &format!("{n} {}", "x".repeat(100))));
    }
    assert_eq!(
        test.history.sweep().unwrap(),
        crate::HistorySwept::default()
    );
    let old = HistorySettings {
        keep_days: 0,
        ..HistorySettings::default()
    };
    let second = TestHistory::open(&test.root, old);
    std::thread::sleep(std::time::Duration::from_millis(5));
    assert_eq!(second.history.sweep().unwrap().entries, 5);
    assert!(list(&test).is_empty());
    assert_eq!(test.history.check().unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_damaged_store_never_stops_a_write() {
    if super::engine::IS_SHARED {
        return;
    }
    let test = TestHistory::with(&[("a", "0")], HistorySettings::default());
    test.command(|| test.write("a", "1"));
    let store = test.path(".llmc/history.db");
    let length = std::fs::metadata(&store).unwrap().len();
    std::fs::write(&store, vec![0x5a; usize::try_from(length).unwrap()]).unwrap();
    let _ = std::fs::write(test.path(".llmc/history.db-wal"), b"");
    for n in 2..6 {
        // Each call succeeds; the first ones say what is wrong.
        test.command(|| test.write("a", &n.to_string()));
    }
    let _ = test.history.build();
    let id = test.command_id(|| test.write("a", "last"));
    test.undo(id);
    assert_eq!(test.read("a"), "5");
}

/// The first snapshot is taken while a file tool writes: what it changed is its entry, not part of the snapshot.
#[test]
fn a_change_during_the_first_snapshot_has_its_entry() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    std::fs::write(root.join("a.txt"), "one").unwrap();
    let test = TestHistory::open(&root, HistorySettings::default());
    let recorded = test.tool(&["a.txt", "new.txt"], || {
        test.write("a.txt", "two");
        test.write("new.txt", "new");
        test.history.build().unwrap();
    });
    let recorded = recorded.expect("something changed");
    assert_eq!((recorded.counts.created, recorded.counts.changed), (1, 1));
    test.undo(recorded.id.expect("recorded"));
    assert_eq!(test.read("a.txt"), "one");
    assert!(!test.path("new.txt").exists());
}

#[test]
fn an_ignored_path_that_is_named_twice_is_recorded_once() {
    let test = TestHistory::with(&[(".gitignore", "*.log\n")], HistorySettings::default());
    let recorded = test.tool(&["a.log", "a.log"], || test.write("a.log", "x"));
    let recorded = recorded.expect("something changed");
    assert_eq!(recorded.counts.not_kept, 1, "{recorded:?}");
}

#[test]
fn ignored_files_that_a_command_changes_are_counted_where_a_watch_tells() {
    let test = TestHistory::with(
        &[(".gitignore", "*.log\nout/\n"), ("a", "1")],
        HistorySettings::default(),
    );
    test.history.watch_changes();
    test.command(|| {});
    let recorded = test.command(|| {
        test.write("a", "2");
        test.write("x.log", "ignored");
        test.write("d/y.log", "in a new directory");
        test.write("out/built", "in an ignored directory, which counts as one");
        test.write("out/too", "not watched");
    });
    let recorded = recorded.unwrap();
    // The new directory `d` is walked when it is first seen: what a walk passes over is not counted.
    assert_eq!((recorded.counts.created, recorded.counts.changed), (1, 1));
    assert_eq!(recorded.counts.ignored, 2, "{recorded:?}");
    let again = test.command(|| {
        test.write("a", "3");
        test.write("d/y.log", "in a directory that is watched by now");
    });
    assert_eq!(again.unwrap().counts.ignored, 1);
    assert_eq!(list(&test)[0].counts.ignored, 1);
    // Ignored files alone are no entry: a test run would leave one each time.
    assert!(test.command(|| test.write("x.log", "more")).is_none());
}
