//! What is left when a move or a deletion is disturbed.

use super::*;
use crate::roots::Roots;
use crate::write::WriteState;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn a_source_that_changed_while_it_was_copied_stays() {
    let dir = tempfile::tempdir().unwrap();
    let top = dir.path().canonicalize().unwrap();
    let state = WriteState::open(&top.join(".llmc"), Duration::from_secs(30)).unwrap();
    let roots = Roots::open(&top, &[".".into()], Arc::default()).unwrap();
    for name in ["from", "to"] {
        std::fs::write(top.join(name), "old").unwrap();
    }
    let from = roots
        .resolve("from", FinalLink::NoFollow, Access::Replace)
        .unwrap();
    let to = roots
        .resolve("to", FinalLink::NoFollow, Access::Replace)
        .unwrap();
    let leases = state
        .locks
        .acquire(&[from.absolute()], "t", "from")
        .unwrap();
    let (copied, made) = (from.lstat().unwrap(), to.lstat().unwrap());
    std::fs::write(top.join("from"), "newer").unwrap();
    let taken = remove_source(&from, &copied, &leases);
    assert!(matches!(taken, Err(Error::Busy { .. })), "{taken:?}");
    assert_eq!(std::fs::read_to_string(top.join("from")).unwrap(), "newer");
    remove_copy(&to, &copied);
    assert!(top.join("to").exists(), "not the copy that was made");
    remove_copy(&to, &made);
    assert!(!top.join("to").exists());
    remove_source(&from, &from.lstat().unwrap(), &leases).unwrap();
    assert!(!top.join("from").exists());
}

#[test]
fn a_deletion_that_stops_half_way_says_what_is_gone_and_what_remains() {
    let dir = tempfile::tempdir().unwrap();
    let top = dir.path().canonicalize().unwrap();
    let tree = top.join("t");
    std::fs::create_dir(&tree).unwrap();
    for n in 0..5 {
        std::fs::write(tree.join(format!("f{n}")), "").unwrap();
    }
    // The entry that is reached last becomes protected after the first check.
    let last = std::fs::read_dir(&tree).unwrap().last().unwrap().unwrap();
    let rules = crate::rules::PathRules::new(None, vec![last.path()]);
    let state = WriteState::open(&top.join(".llmc"), Duration::from_secs(30)).unwrap();
    let roots = Roots::open(&top, &[".".into()], Arc::new(rules)).unwrap();
    let workspace = Workspace::new(Arc::new(roots), Some(Arc::new(state)));
    let cancel = CancelToken::default();
    let whole = workspace.delete("t", DeleteScope::Recursive, "t", &cancel);
    assert!(matches!(whole, Err(Error::Protected { .. })), "{whole:?}");
    assert_eq!(
        std::fs::read_dir(&tree).unwrap().count(),
        5,
        "refused before"
    );
    let path = workspace
        .roots
        .resolve("t", FinalLink::NoFollow, Access::Read)
        .unwrap();
    let (top_dir, _) = path.parent().unwrap();
    let operation = TreeOperation {
        workspace: &workspace,
        locks: &workspace.state("t").unwrap().locks,
        requested: "t",
        cancel: &cancel,
    };
    let stopped = operation.delete(&top_dir, OsStr::new("t"), &tree);
    let Err(Error::PartlyDeleted {
        deleted,
        deleted_names,
        remaining,
        remaining_names,
        cause,
        ..
    }) = stopped
    else {
        panic!("{stopped:?}");
    };
    assert_eq!((deleted, deleted_names.len(), remaining), (4, 4, 1));
    let name = last.file_name().into_string().unwrap();
    assert_eq!(remaining_names, [format!("t/{name}")]);
    assert!(matches!(*cause, Error::Protected { .. }), "{cause:?}");
}
