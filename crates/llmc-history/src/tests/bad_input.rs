//! Trees and clocks that history must put up with.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use llmc_envelope::clock::{Clock, from_millis};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use super::{Node, TestHistory, author};
use crate::commit::CommitRequest;
use crate::entry::{EntryFilter, EntrySource, HistoryViewer, NotKeptReason};
use crate::history::{HistorySettings, HistoryState};
use crate::objects::{PackedObject, blob_id};
use crate::undo::UndoTarget;

const HOUR: Duration = Duration::from_secs(3600);

fn set_clock(test: &mut TestHistory, ms: i64) {
    let inner = Arc::get_mut(&mut test.history.0).expect("no thread holds it");
    inner.store.set_clock(Clock::manual(from_millis(ms)));
}

#[test]
fn a_workspace_that_outgrows_the_limit_keeps_file_tools_undoable() {
    let settings = HistorySettings {
        max_files: 6,
        ..HistorySettings::default()
    };
    let test = TestHistory::with(&[("a", "a0"), ("b", "b0")], settings);
    assert_eq!(test.history.state(), HistoryState::Ready { files: 2 });
    let grown = test.command(|| {
        for n in 0..20 {
            test.write(&format!("new{n}"), "x");
        }
    });
    let grown = grown.expect("the answer says so");
    assert_eq!(grown.id, None);
    let why = grown.not_undoable.expect("a reason");
    assert!(why.contains("more than 6 files"), "{why}");
    let tool = test.tool(&["a"], || test.write("a", "a1")).unwrap();
    test.undo(tool.id.unwrap());
    assert_eq!(test.read("a"), "a0");
    // Below the limit again, commands are recorded again.
    for n in 0..20 {
        fs::remove_file(test.path(&format!("new{n}"))).unwrap();
    }
    let id = test.command_id(|| test.write("b", "b1"));
    test.undo(id);
    assert_eq!(test.read("b"), "b0");
}

#[test]
fn a_file_of_four_gib_is_too_large_to_keep_and_not_read() {
    let test = TestHistory::with(&[("a", "a0")], HistorySettings::default());
    let path = test.path("image");
    let recorded = test.command(|| {
        let file = File::create(&path).unwrap();
        file.set_len(4 << 30).unwrap();
        test.write("a", "a1");
    });
    let recorded = recorded.unwrap();
    assert_eq!((recorded.counts.created, recorded.counts.not_kept), (1, 1));
    let why = recorded.not_undoable.expect("a reason");
    assert!(why.contains("image: too large"), "{why}");
    let id = recorded.id.unwrap();
    let shown = test.history.show(id, &HistoryViewer::All).unwrap();
    let reasons: Vec<_> = shown
        .changes
        .iter()
        .filter_map(|change| change.after.not_kept())
        .collect();
    assert_eq!(reasons, [NotKeptReason::TooLarge]);
    let report = test.undo(id);
    assert_eq!(report.restored, [b"a".to_vec()]);
    assert_eq!(report.not_kept.len(), 1);
    assert_eq!(fs::metadata(&path).unwrap().len(), 4 << 30);
    // Grown by a byte, it is another change.
    let file = File::options().write(true).open(&path).unwrap();
    let grown = test.command(|| file.set_len((4 << 30) + 1).unwrap());
    assert_eq!(grown.unwrap().counts.changed, 1);
}

#[test]
fn what_cannot_be_written_is_reported_and_stays() {
    let test = TestHistory::with(&[("a", "a0"), ("d/b", "b0")], HistorySettings::default());
    let id = test.command_id(|| {
        test.write("a", "a1");
        test.write("d/b", "b1");
    });
    // Capabilities are a thread's own: of root, the right to write everywhere is given up here.
    let mut rights = capabilities(None).unwrap();
    rights.effective.remove(CapabilitySet::DAC_OVERRIDE);
    set_capabilities(None, rights).unwrap();
    let mode = |path: &str, mode| {
        fs::set_permissions(test.path(path), Permissions::from_mode(mode)).unwrap();
    };
    mode("d", 0o555);
    let report = test.undo(id);
    assert_eq!(TestHistory::conflicts(&report), ["d/b"]);
    assert_eq!(report.restored, [b"a".to_vec()]);
    assert_eq!(
        (test.read("a"), test.read("d/b")),
        ("a0".into(), "b1".into())
    );
    // A state directory that cannot be made is an error of the history alone.
    let locked = tempfile::tempdir().unwrap();
    fs::set_permissions(locked.path(), Permissions::from_mode(0o555)).unwrap();
    let opened = crate::History::open(
        &locked.path().join(".llmc"),
        test.files.clone(),
        HistorySettings::default(),
    );
    assert!(opened.is_err());
    mode("d", 0o755);
    test.undo(id);
    assert_eq!(test.read("d/b"), "b0");
}

/// A submodule, a working tree of another repository, a bare one and broken ones, with a file beside or in each.
fn nested_repositories(root: &Path) {
    let write = |path: &str, content: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    };
    write(".git/HEAD", "neither a ref nor a commit");
    write(".git/index", "garbage");
    write("module/.git", "gitdir: ../.git/modules/module\n");
    write("module/file", "0");
    write("tree/.git", "gitdir: /nowhere/at/all\n");
    write("tree/file", "0");
    write("nested/.git/HEAD", "ref: refs/heads/main\n");
    write("nested/.git/config", "[core]\n");
    write("nested/.gitignore", "*.o\n");
    write("nested/file", "0");
    write("loop/.git", "gitdir: .git\n");
    write("loop/file", "0");
    write("bare.git/HEAD", "ref: refs/heads/main\n");
    write("bare.git/config", "[core]\n\tbare = true\n");
    write("bare.git/objects/info/packs", "0");
    write("bare.git/refs/heads/main", &"1".repeat(40));
    symlink("nested/.git", root.join("linked")).unwrap();
}

#[test]
fn repositories_inside_are_left_alone_and_their_files_are_undone() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    nested_repositories(&root);
    let test = TestHistory::open(&root, HistorySettings::default());
    test.history.build().unwrap();
    let before = test.tree();
    let files = ["module/file", "tree/file", "nested/file", "loop/file"];
    let git = [
        "module/.git",
        "tree/.git",
        "loop/.git",
        "nested/.git/HEAD",
        ".git/HEAD",
    ];
    let id = test.command_id(|| {
        for path in files.iter().chain(&git) {
            test.write(path, "changed");
        }
        test.write("nested/x.o", "ignored there");
        test.write("module/x.o", "not ignored here");
    });
    let shown = test.history.show(id, &HistoryViewer::All).unwrap();
    let paths: Vec<String> = shown
        .changes
        .iter()
        .map(|change| llmc_host::names::escape(&change.path))
        .collect();
    assert_eq!(
        paths,
        [
            "loop/file",
            "module/file",
            "module/x.o",
            "nested/file",
            "tree/file"
        ]
    );
    assert_eq!(test.undo(id).conflicts, []);
    for path in git {
        assert_eq!(test.read(path), "changed", "{path} is git's");
    }
    fs::remove_file(test.path("nested/x.o")).unwrap();
    // The tree of this test passes over `.git` as well.
    assert_eq!(test.tree(), before);

    // A bare repository: what makes git run programs is never put back.
    let id = test.command_id(|| {
        test.write("bare.git/config", "[core]\n\tfsmonitor = evil\n");
        test.write("bare.git/refs/heads/main", &"2".repeat(40));
    });
    let report = test.undo(id);
    let left = report.conflicts.len() + report.not_kept.len();
    assert_eq!(left + report.restored.len(), 2, "{report:#?}");
    assert!(test.read("bare.git/config").contains("evil"), "{report:#?}");
}

#[test]
fn a_content_that_retention_removes_while_its_entry_is_made_is_stored_again() {
    let mut test = TestHistory::with(&[("a", "a0")], HistorySettings::default());
    let id = blob_id(b"a1");
    let object = PackedObject::pack(id, b"a1".to_vec()).into();
    let store = &test.history.0.store;
    assert!(store.add_objects(&[object], u64::MAX).unwrap());
    let later_ms = Clock::system().now_ms() + 2 * i64::try_from(HOUR.as_millis()).unwrap();
    set_clock(&mut test, later_ms);
    test.write("a", "a1");
    let inner = &test.history.0;
    let recorded = {
        let work = &mut *llmc_host::lock(&inner.work);
        let findings = inner.look(work).unwrap().findings;
        inner.store.remove_unused(0).unwrap();
        let request = CommitRequest::default();
        inner.commit(work, findings, EntrySource::Outside, &request)
    };
    assert_eq!(recorded.unwrap().unwrap().counts.changed, 1);
    assert_eq!(inner.content(&id).unwrap(), Some(b"a1".to_vec()));
}

#[test]
fn a_clock_that_jumps_back_changes_neither_order_nor_what_is_found() {
    let mut test = TestHistory::with(&[("a", "a0"), ("b", "b0")], HistorySettings::default());
    let now_ms = Clock::system().now_ms();
    let hour_ms = i64::try_from(HOUR.as_millis()).unwrap();
    set_clock(&mut test, now_ms + hour_ms);
    let one = test.command_id(|| test.write("a", "a1"));
    set_clock(&mut test, now_ms - hour_ms);
    let two = test.command_id(|| test.write("a", "a2"));
    let three = test.command_id(|| test.write("b", "b1"));
    let entries = test.history.list(&EntryFilter::default()).unwrap();
    let ids: Vec<_> = entries.iter().map(|entry| entry.id).collect();
    assert_eq!(ids, [three, two, one]);
    assert!(entries[0].time_ms < entries[2].time_ms);
    // Retention goes by the order as well: nothing is old enough.
    assert_eq!(test.history.sweep().unwrap().entries, 0);
    test.history
        .undo(&test.request(UndoTarget::Range(one, three)))
        .unwrap();
    assert_eq!((test.read("a"), test.read("b")), ("a0".into(), "b0".into()));

    // A file of the future: its stamp proves nothing, so that it is read again.
    let touch = |content: &str, time: SystemTime| {
        test.write("a", content);
        let file = File::options().write(true).open(test.path("a")).unwrap();
        file.set_modified(time).unwrap();
    };
    let future = SystemTime::now() + HOUR;
    test.command_id(|| touch("f1", future));
    let id = test.command_id(|| touch("f2", future));
    test.undo(id);
    assert_eq!(test.read("a"), "f1");
    assert!(test.command(|| {}).is_none());
}

#[test]
fn a_file_that_became_a_directory_or_a_link_stays() {
    let test = TestHistory::with(
        &[("a", "a0"), ("b", "b0"), ("c", "c0")],
        HistorySettings::default(),
    );
    let id = test.command_id(|| {
        for name in ["a", "b", "c"] {
            test.write(name, "1");
        }
    });
    for name in ["a", "b", "c"] {
        fs::remove_file(test.path(name)).unwrap();
    }
    test.write("a/inside", "newer");
    symlink("elsewhere", test.path("b")).unwrap();
    test.write("elsewhere", "1");
    let pipe = test.path("c");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    let report = test.undo(id);
    assert_eq!(TestHistory::conflicts(&report), ["a", "b", "c"]);
    assert_eq!((report.entry, report.restored.len()), (None, 0));
    assert_eq!(test.read("a/inside"), "newer");
    assert_eq!(test.read("elsewhere"), "1");
    fs::remove_file(&pipe).unwrap();
    let tree = test.tree();
    assert_eq!(
        tree.get(&b"b"[..]),
        Some(&Node::Link(b"elsewhere".to_vec()))
    );
}

#[test]
fn names_that_are_not_text_are_listed_shown_and_undone() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    let test = TestHistory::with(&[("a", "a0")], HistorySettings::default());
    let name: &[u8] = b"odd\xff\n\x1b[31m";
    let path = test.root.join(OsStr::from_bytes(name));
    let id = test.command_id(|| fs::write(&path, "odd").unwrap());
    let shown = test.history.show(id, &HistoryViewer::All).unwrap();
    assert_eq!(shown.changes[0].path, name);
    let json = serde_json::to_string(&shown).unwrap();
    assert!(
        !json.contains('\u{1b}') && !json.contains("\\u001b"),
        "{json}"
    );
    let filter = EntryFilter {
        path: Some(name.to_vec()),
        ..EntryFilter::default()
    };
    assert_eq!(test.history.list(&filter).unwrap().len(), 1);
    test.undo(id);
    assert!(!path.exists());
}

#[test]
fn a_call_that_is_recorded_twice_at_once_is_one_entry() {
    let test = TestHistory::with(&[("a", "a0")], HistorySettings::default());
    let recording = test.history.begin_all(author("s"));
    test.write("a", "a1");
    let both: Vec<_> = std::thread::scope(|scope| {
        let one = scope.spawn(|| recording.checkpoint().unwrap());
        let two = scope.spawn(|| recording.checkpoint().unwrap());
        [one, two]
            .into_iter()
            .filter_map(|thread| thread.join().unwrap())
            .collect()
    });
    assert_eq!(both.len(), 1);
    assert!(recording.finish().unwrap().is_none());
}

/// What a server that was stopped in a transaction does to the others.
#[test]
fn a_database_that_is_held_costs_a_call_little_and_the_answer_says_what_is_lost() {
    let test = TestHistory::with(&[("a", "a0")], HistorySettings::default());
    if test.history.0.store.is_shared() {
        return;
    }
    let holder = rusqlite::Connection::open(test.path(".llmc/history.db")).unwrap();
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    let begun = std::time::Instant::now();
    let recorded = test.command(|| test.write("a", "a1")).unwrap();
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(3), "{took:?}");
    let why = recorded.not_undoable.expect("a reason");
    assert!(why.contains("the change is not recorded"), "{why}");
    // Those that follow do not wait again.
    let begun = std::time::Instant::now();
    test.command(|| test.write("a", "a2"));
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(1), "{took:?}");
    holder.execute_batch("COMMIT").unwrap();
    let id = test.command_id(|| test.write("a", "a3"));
    test.undo(id);
    assert_eq!(test.read("a"), "a2");
}
