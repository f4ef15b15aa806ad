//! Patches that stop half way.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::roots::Roots;

fn workspace(top: &Path) -> Workspace {
    let state = WriteState::open(&top.join(".llmc"), Duration::from_secs(30)).unwrap();
    let roots = Roots::open(top, &[".".into()], Arc::default()).unwrap();
    Workspace::new(Arc::new(roots), Some(Arc::new(state)))
}

const PATCH: &str = "--- a/one\n+++ b/one\n@@ -1 +1 @@\n-1\n+one\n\
    --- a/two\n+++ /dev/null\n@@ -1 +0,0 @@\n-2\n\
    --- /dev/null\n+++ b/three\n@@ -0,0 +1 @@\n+three\n";

/// Applies the first steps of the patch as a process does that is killed then.
fn apply_and_die(top: &Path, count: usize) {
    let workspace = workspace(top);
    let state = workspace.state("patch").unwrap();
    let cancel = CancelToken::default();
    let mut steps = Vec::new();
    for file in &parse(PATCH).unwrap() {
        let resolve = |name: &Option<String>| {
            let resolve = |name: &String| {
                let roots = &workspace.roots;
                roots
                    .resolve(name, FinalLink::Follow, Access::Write)
                    .unwrap()
            };
            name.as_ref().map(resolve)
        };
        plan(
            file,
            resolve(&file.from),
            resolve(&file.to),
            &mut steps,
            &cancel,
        )
        .unwrap();
    }
    let keys: Vec<PathBuf> = steps.iter().map(|step| step.path.absolute()).collect();
    let leases = state.locks.acquire(&keys, "t", "patch").unwrap();
    let _stays = begin_journal(state, &steps).unwrap();
    for step in &steps[..count] {
        step.execute(state, &leases).unwrap();
    }
}

fn content(top: &Path) -> [Option<String>; 3] {
    ["one", "two", "three"].map(|name| std::fs::read_to_string(top.join(name)).ok())
}

#[test]
fn a_patch_that_stopped_half_way_is_taken_back_at_the_next_start() {
    use std::os::unix::fs::PermissionsExt;
    for count in 0..=3 {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        std::fs::write(top.join("one"), "1\n").unwrap();
        std::fs::write(top.join("two"), "2\n").unwrap();
        let mode = std::fs::Permissions::from_mode(0o750);
        std::fs::set_permissions(top.join("two"), mode.clone()).unwrap();
        let before = content(&top);
        apply_and_die(&top, count);
        assert_eq!(content(&top) == before, count == 0);
        let said = workspace(&top).take_back_unfinished_patches();
        assert_eq!(said.len(), count, "{said:?}");
        assert_eq!(content(&top), before);
        let two = std::fs::metadata(top.join("two")).unwrap();
        assert_eq!(two.permissions().mode() & 0o777, mode.mode() & 0o777);
        // Nothing is left to be done.
        assert!(workspace(&top).take_back_unfinished_patches().is_empty());
    }
}

#[test]
fn what_was_changed_since_is_left_alone_and_running_patches_too() {
    let dir = tempfile::tempdir().unwrap();
    let top = dir.path().canonicalize().unwrap();
    std::fs::write(top.join("one"), "1\n").unwrap();
    std::fs::write(top.join("two"), "2\n").unwrap();
    apply_and_die(&top, 1);
    std::fs::write(top.join("one"), "newer\n").unwrap();
    let said = workspace(&top).take_back_unfinished_patches();
    assert!(
        said.len() == 1 && said[0].contains("left as it is"),
        "{said:?}"
    );
    assert_eq!(content(&top)[0].as_deref(), Some("newer\n"));
    // A journal of a process that still runs is not touched.
    let running = workspace(&top);
    let journal = running.state("patch").unwrap().journals.begin(&[]).unwrap();
    assert!(workspace(&top).take_back_unfinished_patches().is_empty());
    journal.end();
}

#[test]
fn a_complete_patch_leaves_no_journal() {
    let dir = tempfile::tempdir().unwrap();
    let top = dir.path().canonicalize().unwrap();
    std::fs::write(top.join("one"), "1\n").unwrap();
    std::fs::write(top.join("two"), "2\n").unwrap();
    let cancel = CancelToken::default();
    workspace(&top).apply_patch(PATCH, "t", &cancel).unwrap();
    assert_eq!(content(&top)[2].as_deref(), Some("three\n"));
    let left = std::fs::read_dir(top.join(".llmc/journal"))
        .unwrap()
        .count();
    assert_eq!(left, 0);
    assert!(workspace(&top).take_back_unfinished_patches().is_empty());
}
