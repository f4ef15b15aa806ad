//! What holds only where servers on several machines share a database; on SQLite these tests try nothing.

use super::engine::{self, IS_SHARED};
use super::{TestHistory, noise};
use crate::entry::{EntryFilter, HistoryViewer};
use crate::history::{HistorySettings, HistoryState};
use crate::objects::{PackedObject, blob_id};

#[test]
fn a_large_content_is_stored_in_chunks_and_checked() {
    if !IS_SHARED {
        return;
    }
    let test = TestHistory::with(&[("a", "a0")], HistorySettings::default());
    let content = noise((5 << 20) + 17);
    let id = test.command_id(|| std::fs::write(test.path("large"), &content).unwrap());
    std::fs::remove_file(test.path("large")).unwrap();
    test.command(|| {});
    let newest = test.history.list(&EntryFilter::default()).unwrap()[0].id;
    assert_ne!(newest, id);
    test.undo(newest);
    assert!(std::fs::read(test.path("large")).unwrap() == content);
    // Of the same content there is one, however often it is offered.
    let packed = PackedObject::pack(blob_id(&content), content.clone()).into();
    assert!(
        test.history
            .0
            .store
            .add_objects(&[packed], u64::MAX)
            .unwrap()
    );
    engine::sql(
        &test.root,
        "UPDATE llmc.history_chunks SET data = decode('00', 'hex') || substring(data FROM 2) WHERE n = 3 AND object IN \
         (SELECT number FROM llmc.history_objects WHERE WORKSPACE)",
    );
    let problems = test.history.check().unwrap().problems;
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains("is damaged"), "{problems:?}");
}

/// Inode and times of a file may be others on another machine.
#[test]
fn a_status_that_differs_between_machines_makes_no_entry() {
    if !IS_SHARED {
        return;
    }
    let one = TestHistory::with(&[("a", "a0"), ("d/b", "b0")], HistorySettings::default());
    one.let_stamps_age();
    one.command_id(|| one.write("a", "a1"));
    engine::sql(
        &one.root,
        "UPDATE llmc.history_snapshot SET inode = inode + 1, ctime_ns = ctime_ns - 1 WHERE WORKSPACE",
    );
    let other = TestHistory::open(&one.root, HistorySettings::default());
    assert!(other.command(|| {}).is_none());
    assert!(other.tool(&["a"], || {}).is_none());
    assert!(one.command(|| {}).is_none());
    assert_eq!(one.history.list(&EntryFilter::default()).unwrap().len(), 1);
}

/// In containers every workspace is at the same place.
#[test]
fn another_clone_at_the_same_place_has_a_history_of_its_own() {
    if !IS_SHARED {
        return;
    }
    let test = TestHistory::with(&[("a", "a0")], HistorySettings::default());
    let id = test.command_id(|| test.write("a", "a1"));
    std::fs::remove_dir_all(test.path(".llmc")).unwrap();
    let clone = TestHistory::open(&test.root, HistorySettings::default());
    assert!(clone.history.show(id, &HistoryViewer::All).is_err());
    assert!(matches!(
        clone.history.state(),
        HistoryState::Building { .. }
    ));
}

#[test]
fn a_workspace_that_is_not_used_any_more_is_removed() {
    if !IS_SHARED {
        return;
    }
    let old = TestHistory::with(&[("a", "a0")], HistorySettings::default());
    old.command_id(|| old.write("a", "a1"));
    let other = TestHistory::with(&[("a", "a0")], HistorySettings::default());
    other.command_id(|| other.write("a", "a1"));
    other.history.sweep().unwrap();
    assert_eq!(old.history.check().unwrap().entries, 1);
    engine::sql(
        &old.root,
        "UPDATE llmc.history_workspaces SET used_on = used_on - 91 WHERE number = (SELECT number FROM \
         llmc.history_workspaces WHERE KEY)",
    );
    other.history.sweep().unwrap();
    let check = old.history.check().unwrap();
    assert_eq!((check.entries, check.objects), (0, 0));
    assert_eq!(other.history.check().unwrap().entries, 1);
    // A server that comes back to it begins anew.
    assert!(
        old.command(|| {})
            .is_some_and(|said| said.not_undoable.is_some())
    );
    old.history.build().unwrap();
    let id = old.command_id(|| old.write("a", "a2"));
    old.undo(id);
    assert_eq!(old.read("a"), "a1");
}
