//! Several servers and several calls on one workspace.

use super::{TestHistory, author};
use crate::entry::{EntryFilter, EntrySource, HistoryViewer};
use crate::history::HistorySettings;
use crate::undo::UndoTarget;

fn pair() -> (TestHistory, TestHistory) {
    let one = TestHistory::with(&[("a", "a0"), ("b", "b0")], HistorySettings::default());
    let two = TestHistory::open(&one.root, HistorySettings::default());
    (one, two)
}

#[test]
fn what_one_server_recorded_the_other_does_not_record_again() {
    let (one, two) = pair();
    let first = one.command_id(|| one.write("a", "a1"));
    assert!(two.command(|| {}).is_none());
    let second = two.command_id(|| two.write("a", "a2"));
    assert!(one.command(|| {}).is_none());
    let entries = one.history.list(&EntryFilter::default()).unwrap();
    let ids: Vec<_> = entries.iter().map(|entry| entry.id).collect();
    assert_eq!(ids, [second, first]);
    assert!(
        entries
            .iter()
            .all(|entry| entry.source == EntrySource::Call)
    );
    one.undo(second);
    two.undo(first);
    assert_eq!(one.read("a"), "a0");
}

/// Another server may compare the workspace between the change of a call and its end.
#[test]
fn what_another_server_recorded_of_a_call_becomes_the_entry_of_the_call() {
    let (one, two) = pair();
    let recorded = one.tool(&["a", "deep/new"], || {
        one.write("a", "a1");
        one.write("deep/new", "1");
        assert!(two.command(|| {}).is_none());
    });
    let recorded = recorded.expect("an entry");
    assert_eq!((recorded.counts.created, recorded.counts.changed), (2, 1));
    assert!(!recorded.shared);
    let entries = two.history.list(&EntryFilter::default()).unwrap();
    assert_eq!(entries.len(), 1, "{entries:?}");
    assert_eq!(entries[0].source, EntrySource::Call);
    assert_eq!(entries[0].author, author("s"));
    two.undo(recorded.id.unwrap());
    assert_eq!(one.read("a"), "a0");
    // A call that changes nothing has no entry, whatever happened to the path before.
    assert!(one.tool(&["a"], || {}).is_none());
    // With another change in it, it stays what it is.
    let recorded = one.tool(&["a"], || {
        one.write("a", "a2");
        one.write("b", "b2");
        two.command(|| {});
    });
    let recorded = recorded.expect("an entry");
    assert!(recorded.shared);
    let shown = two
        .history
        .show(recorded.id.unwrap(), &HistoryViewer::All)
        .unwrap();
    assert_eq!(shown.entry.source, EntrySource::Outside);
}

#[test]
fn calls_at_the_same_time_are_shared_and_undo_asks() {
    let (one, two) = pair();
    let long = one.history.begin_all(author("long"));
    let short = two.history.begin_all(author("short"));
    one.write("a", "a1");
    two.write("b", "b1");
    let short = short.finish().unwrap().unwrap();
    one.write("a", "a2");
    let long = long.finish().unwrap().unwrap();
    assert!(short.shared && long.shared);
    assert_eq!((short.counts.changed, long.counts.changed), (2, 1));
    let report = one.undo(long.id.unwrap());
    assert_eq!(
        (report.skipped_shared, report.entry),
        (vec![b"a".to_vec()], None)
    );
    assert_eq!(one.read("a"), "a2");
    let mut request = one.request(UndoTarget::Entry(long.id.unwrap()));
    request.force_shared = vec![b"a".to_vec()];
    assert_eq!(one.history.undo(&request).unwrap().restored.len(), 1);
    assert_eq!(one.read("a"), "a1");
    // Later calls are alone again.
    let alone = two.command(|| two.write("b", "b2")).unwrap();
    assert!(!alone.shared);
}

#[test]
fn a_file_tool_beside_a_command_records_its_own_change() {
    let (one, two) = pair();
    let command = one.history.begin_all(author("command"));
    let tool = two.tool(&["a"], || two.write("a", "by the tool")).unwrap();
    let own = one.tool(&["b"], || one.write("b", "by the tool")).unwrap();
    assert!(!tool.shared && !own.shared);
    assert!(command.finish().unwrap().is_none());
    two.undo(tool.id.unwrap());
    one.undo(own.id.unwrap());
    assert_eq!((one.read("a"), one.read("b")), ("a0".into(), "b0".into()));
}

#[test]
fn a_command_that_ends_during_a_file_tool_leaves_the_tool_its_change() {
    let (one, _) = pair();
    let command = one.history.begin_all(author("command"));
    let tool = one.history.begin(author("tool"));
    let path = one
        .files
        .roots
        .exact_path(b"a", llmc_host::Access::Write)
        .unwrap();
    tool.before_write(&path);
    one.write("a", "by the tool");
    assert!(command.finish().unwrap().is_none());
    let tool = tool.finish().unwrap().unwrap();
    assert_eq!(tool.counts.changed, 1);
    assert!(one.command(|| {}).is_none());
}

#[test]
fn a_server_that_ended_is_no_writer() {
    let (one, two) = pair();
    let left = two.history.begin_all(author("left"));
    two.end_as_if_killed();
    let recorded = one.command(|| one.write("a", "a1")).unwrap();
    assert!(!recorded.shared);
    drop(left);
}

#[test]
fn many_writers_lose_nothing() {
    let one = TestHistory::with(&[], HistorySettings::default());
    let servers: Vec<TestHistory> = (0..4)
        .map(|_| TestHistory::open(&one.root, HistorySettings::default()))
        .collect();
    let ids: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = servers
            .iter()
            .enumerate()
            .map(|(number, server)| {
                scope.spawn(move || {
                    let mut ids = Vec::new();
                    for round in 0..25 {
                        let path = format!("f{number}");
                        let content = format!("{number} {round}");
                        let done = server.tool(&[&path], || server.write(&path, &content));
                        ids.push(done.unwrap().id.unwrap());
                    }
                    ids
                })
            })
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    });
    assert_eq!(ids.len(), 100);
    let filter = EntryFilter {
        limit: 1000,
        ..EntryFilter::default()
    };
    let entries = one.history.list(&filter).unwrap();
    assert_eq!(entries.len(), 100);
    for id in ids {
        assert!(one.history.show(id, &HistoryViewer::All).is_ok());
    }
    let report = one
        .history
        .undo(&one.request(UndoTarget::Session("s".to_owned())))
        .unwrap();
    assert_eq!(report.conflicts, []);
    assert!(one.tree().is_empty());
}

#[test]
fn a_snapshot_is_kept_from_one_server_to_the_next() {
    let (one, two) = pair();
    drop(two);
    one.command(|| one.write("c", "c0"));
    let root = one.root.clone();
    let dir = one._dir;
    drop((one.history, one.files));
    std::fs::write(root.join("c"), "by hand").unwrap();
    std::fs::remove_file(root.join("b")).unwrap();
    let three = TestHistory::open(&root, HistorySettings::default());
    assert!(three.history.is_ready());
    assert!(three.command(|| {}).is_none());
    let entries = three.history.list(&EntryFilter::default()).unwrap();
    assert_eq!(entries[0].source, EntrySource::Outside);
    assert_eq!(
        (entries[0].counts.changed, entries[0].counts.deleted),
        (1, 1)
    );
    three.undo(entries[0].id);
    assert_eq!(
        (three.read("b"), three.read("c")),
        ("b0".into(), "c0".into())
    );
    drop(dir);
}

#[test]
fn a_watch_finds_what_a_walk_finds() {
    let test = TestHistory::with(&[("a", "a0"), ("d/x", "x0")], HistorySettings::default());
    test.history.watch_changes();
    test.command(|| {});
    assert!(llmc_host::lock(&test.history.0.work).watch.is_some());
    let before = test.tree();
    let id = test.command_id(|| {
        test.write("a", "a1");
        std::fs::rename(test.path("d"), test.path("e")).unwrap();
        test.write("e/deep/er/file", "new");
        test.write("e/deep/other", "new");
        std::fs::hard_link(test.path("a"), test.path("e/hard")).unwrap();
    });
    let walks = TestHistory::open(&test.root, HistorySettings::default());
    assert!(walks.command(|| {}).is_none(), "a walk finds no more");
    // In directories that are new, and through another name of a file.
    let second = test.command_id(|| {
        test.write("e/deep/er/file", "changed");
        std::fs::write(test.path("e/hard"), "through the link").unwrap();
    });
    let shown = test.history.show(second, &HistoryViewer::All).unwrap();
    assert_eq!(shown.changes.len(), 3, "{shown:#?}");
    test.undo(second);
    assert_eq!(test.undo(id).conflicts, []);
    assert_eq!(test.tree(), before);
    assert!(walks.command(|| {}).is_none());
}

/// Events tell of the new name only; what is done through it has happened to the old one as well.
#[test]
fn a_watch_finds_what_happens_through_a_link_made_by_the_same_command() {
    let test = TestHistory::with(&[("a", "a0"), ("d/x", "x0")], HistorySettings::default());
    test.history.watch_changes();
    test.command(|| {});
    let before = test.tree();
    let id = test.command_id(|| {
        std::fs::hard_link(test.path("d/x"), test.path("linked")).unwrap();
        std::fs::write(test.path("linked"), "x1").unwrap();
    });
    let shown = test.history.show(id, &HistoryViewer::All).unwrap();
    assert_eq!(shown.changes.len(), 2, "{shown:#?}");
    test.undo(id);
    assert_eq!(test.tree(), before);
}

#[test]
fn the_background_thread_builds_and_ends() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    std::fs::write(root.join("a"), "a0").unwrap();
    let test = TestHistory::open(&root, HistorySettings::default());
    test.history.start();
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !test.history.is_ready() {
        assert!(
            std::time::Instant::now() < until,
            "{:?}",
            test.history.state()
        );
        std::thread::yield_now();
    }
    let id = test.command_id(|| test.write("a", "a1"));
    test.undo(id);
    assert_eq!(test.read("a"), "a0");
}

/// A path that a call creates while another server takes the first snapshot is that call's, whenever the snapshot comes to it.
#[test]
fn the_first_snapshot_takes_nothing_from_the_calls_of_other_servers() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    std::fs::write(root.join("old"), "0").unwrap();
    let one = TestHistory::open(&root, HistorySettings::default());
    // Opened before and after the call says what it will change.
    let early = TestHistory::open(&root, HistorySettings::default());
    early.history.watch_changes();
    let recorded = one.tool(&["new", "deep/er/new", "old"], || {
        one.write("new", "1");
        one.write("deep/er/new", "1");
        one.write("old", "1");
        let late = TestHistory::open(&root, HistorySettings::default());
        early.history.build().unwrap();
        late.history.build().unwrap();
    });
    let recorded = recorded.expect("an entry");
    assert_eq!((recorded.counts.created, recorded.counts.changed), (4, 1));
    // The builder does not take it for a change from outside either.
    assert!(early.command(|| {}).is_none());
    let entries = early.history.list(&EntryFilter::default()).unwrap();
    assert_eq!(entries.len(), 1, "{entries:?}");
    assert_eq!(early.undo(recorded.id.unwrap()).conflicts, []);
    assert_eq!(one.read("old"), "0");
    assert!(!one.path("new").exists() && !one.path("deep").exists());
}

/// A call that said it would create a file and then ended without an entry: the file is found later, as a change from outside.
#[test]
fn what_a_killed_call_created_during_the_first_snapshot_is_from_outside() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let one = TestHistory::open(&root, HistorySettings::default());
    let call = one.history.begin(author("killed"));
    let path = one
        .files
        .roots
        .exact_path(b"new", llmc_host::Access::Write)
        .unwrap();
    call.before_write(&path);
    one.write("new", "1");
    // As a killed process: nothing of it runs any more.
    std::mem::forget(call);
    let two = TestHistory::open(&root, HistorySettings::default());
    two.history.build().unwrap();
    assert!(two.command(|| {}).is_none());
    let entries = two.history.list(&EntryFilter::default()).unwrap();
    assert_eq!(entries.len(), 1, "{entries:?}");
    assert_eq!(entries[0].source, EntrySource::Outside);
    two.undo(entries[0].id);
    assert!(!two.path("new").exists());
}
