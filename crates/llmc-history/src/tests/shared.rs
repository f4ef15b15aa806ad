//! Contents that are left in the packs of the workspace's repository: what is copied, and when.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use super::TestHistory;
use crate::entry::{HistoryViewer, NotKeptReason};
use crate::history::HistorySettings;

/// Runs git without the user's settings; `script` is for a shell.
pub(super) fn git(root: &Path, script: &str) -> bool {
    let ran = Command::new("sh")
        .args(["-c", script])
        .current_dir(root)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_AUTHOR_NAME", "a")
        .env("GIT_AUTHOR_EMAIL", "a@example.org")
        .env("GIT_COMMITTER_NAME", "a")
        .env("GIT_COMMITTER_EMAIL", "a@example.org")
        .status();
    ran.unwrap().success()
}

/// Everything in one pack.
pub(super) const COMMIT_AND_PACK: &str = "git init -q -b main . && git config gc.auto 0 && \
    echo .llmc >> .git/info/exclude && git add -A && git commit -q --allow-empty -m one && git gc -q --prune=now";

/// Leaves a commit without files, and nothing that leads to another one.
const FORGET_ALL: &str = "git checkout -q --orphan empty && git rm -rq --cached . && git commit -q --allow-empty -m two && \
    git branch -D main && git reflog expire --expire=now --all && git gc -q --prune=now";

const FILES: [(&str, &str); 4] = [
    ("a", "a0\n"),
    ("b", "b0\n"),
    ("d/long", LONG),
    ("d/longer", LONGER),
];
const LONG: &str = include_str!("mod.rs");
/// Git stores one of the two as a delta to the other.
const LONGER: &str = concat!(include_str!("mod.rs"), "// one more line\n");

/// A workspace that is a repository, before the first snapshot.
fn repository(script: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("d")).unwrap();
    for (path, content) in FILES {
        fs::write(dir.path().join(path), content).unwrap();
    }
    assert!(git(dir.path(), script), "{script}");
    dir
}

fn open(dir: &tempfile::TempDir) -> TestHistory {
    let root = dir.path().canonicalize().unwrap();
    let test = TestHistory::open(&root, HistorySettings::default());
    test.history.build().unwrap();
    test
}

fn stored(test: &TestHistory) -> u64 {
    let check = test.history.check().unwrap();
    assert_eq!(check.problems, Vec::<String>::new());
    check.objects
}

#[test]
fn what_the_commit_has_in_a_pack_is_copied_when_an_entry_needs_it() {
    let dir = repository(COMMIT_AND_PACK);
    fs::write(dir.path().join("b"), "not committed\n").unwrap();
    fs::write(dir.path().join("new"), "new\n").unwrap();
    let test = open(&dir);
    assert_eq!(stored(&test), 2, "b and new");
    let before = test.tree();
    let id = test.command_id(|| {
        test.write("d/longer", "1");
        fs::remove_file(test.path("d/long")).unwrap();
        fs::rename(test.path("a"), test.path("c")).unwrap();
    });
    assert_eq!(stored(&test), 2 + 4);
    // From here on the repository is not needed.
    fs::remove_dir_all(test.path(".git")).unwrap();
    let report = test.undo(id);
    assert_eq!(TestHistory::conflicts(&report), [""; 0]);
    assert_eq!(test.tree(), before);
}

#[test]
fn a_file_that_is_only_touched_or_gets_another_mode_is_not_lost() {
    use std::os::unix::fs::PermissionsExt;

    let dir = repository(COMMIT_AND_PACK);
    let test = open(&dir);
    assert_eq!(stored(&test), 0);
    let same = test.command(|| test.write("a", "a0\n"));
    assert_eq!(same, None);
    assert_eq!(stored(&test), 0);
    let id = test.command_id(|| {
        fs::set_permissions(test.path("a"), fs::Permissions::from_mode(0o600)).unwrap();
    });
    assert_eq!(stored(&test), 1);
    test.command_id(|| test.write("b", "b1"));
    test.undo(id);
    assert_ne!(
        fs::metadata(test.path("a")).unwrap().permissions().mode() & 0o777,
        0o600
    );
}

#[test]
fn git_gc_inside_of_the_recorded_command_takes_no_content_away() {
    let dir = repository(COMMIT_AND_PACK);
    let test = open(&dir);
    assert_eq!(stored(&test), 0);
    let before = test.tree();
    let id = test.command_id(|| {
        assert!(git(&test.root, FORGET_ALL));
        fs::remove_dir_all(test.path("d")).unwrap();
        test.write("a", "a1");
    });
    // What the command did not change was copied as well, while the old pack was still open.
    assert_eq!(stored(&test), 5);
    test.undo(id);
    assert_eq!(test.tree(), before);
}

#[test]
fn what_git_removed_while_no_server_ran_is_copied_from_unchanged_files() {
    let dir = repository(COMMIT_AND_PACK);
    drop(open(&dir));
    assert!(git(dir.path(), FORGET_ALL));
    let test = open(&dir);
    let before = test.tree();
    let id = test.command_id(|| fs::remove_dir_all(test.path("d")).unwrap());
    test.undo(id);
    assert_eq!(test.tree(), before);
    assert_eq!(stored(&test), 4);
}

#[test]
fn what_is_lost_is_said_and_the_rest_is_undone() {
    let dir = repository(COMMIT_AND_PACK);
    drop(open(&dir));
    assert!(git(dir.path(), FORGET_ALL));
    fs::write(dir.path().join("a"), "from outside\n").unwrap();
    let test = open(&dir);
    let id = test.command_id(|| {
        test.write("a", "a2");
        test.write("b", "b2");
    });
    // The change from outside is its own entry: what was before it is lost.
    let outside = crate::entry::EntryId(id.0 - 1);
    let shown = test.history.show(outside, &HistoryViewer::All).unwrap();
    let lost: Vec<_> = shown
        .changes
        .iter()
        .map(|change| change.before.not_kept())
        .collect();
    assert_eq!(lost, [Some(NotKeptReason::GitRemoved)]);
    test.undo(id);
    assert_eq!(
        (test.read("a"), test.read("b")),
        ("from outside\n".into(), "b0\n".into())
    );
    assert_eq!(test.undo(outside).not_kept.len(), 1);
    assert_eq!(test.read("a"), "from outside\n");
    stored(&test);
}

#[test]
fn a_pack_that_the_command_overwrites_costs_what_it_changed_and_no_more() {
    let dir = repository(COMMIT_AND_PACK);
    let test = open(&dir);
    let recorded = test.command(|| {
        assert!(git(
            &test.root,
            "cd .git/objects/pack && chmod +w *.pack && truncate -s 0 *.pack"
        ));
        test.write("a", "a1");
        test.write("new", "1");
    });
    let recorded = recorded.unwrap();
    assert!(
        recorded
            .not_undoable
            .unwrap()
            .contains("git has removed it")
    );
    let report = test.undo(recorded.id.unwrap());
    assert_eq!(report.restored, [b"new".to_vec()]);
    assert_eq!(
        (report.not_kept.len(), test.read("a")),
        (1, "a1".to_owned())
    );
    // What it left alone can be undone from now on: a change of it finds the content in no pack, but in the file.
    let id = test.command_id(|| test.write("b", "b1"));
    test.undo(id);
    assert_eq!(test.read("b"), "b0\n");
    stored(&test);
}

#[test]
fn repositories_without_usable_packs_are_copied() {
    let loose = "git init -q . && git config gc.auto 0 && git add -A && git commit -q -m one";
    let sha256 = COMMIT_AND_PACK.replace("-b main", "-b main --object-format=sha256");
    let worktree = format!(
        "mkdir .main && mv a b d .main && cd .main && {COMMIT_AND_PACK} && \
        git worktree add -q -b other ../tree && cd .. && mv tree/.git tree/a tree/b tree/d . && \
        printf 'gitdir: %s/.main/.git/worktrees/tree' \"$PWD\" > .git && mv .main ../main$$"
    );
    let alternates = format!(
        "mkdir .main && mv a b d .main && cd .main && {COMMIT_AND_PACK} && cd .. && \
        git clone -q --shared .main tree && mv tree/.git tree/a tree/b tree/d . && test ! -e .git/objects/pack/*.pack"
    );
    let linked = format!(
        "{COMMIT_AND_PACK} && mv .git/objects/pack .git/packs && ln -s ../packs .git/objects/pack"
    );
    let damaged = format!(
        "{COMMIT_AND_PACK} && cd .git/objects/pack && chmod +w *.pack && \
        dd if=/dev/zero of=$(echo *.pack) bs=1 seek=12 count=4000 conv=notrunc"
    );
    let cut = format!(
        "{COMMIT_AND_PACK} && cd .git/objects/pack && chmod +w *.idx && truncate -s 1100 *.idx"
    );
    let unborn = format!("{COMMIT_AND_PACK} && git checkout -q --orphan unborn");
    for (name, script) in [
        ("loose", loose),
        ("sha256", &sha256),
        ("worktree", &worktree),
        ("alternates", &alternates),
        ("linked", &linked),
        ("damaged", &damaged),
        ("cut", &cut),
        ("unborn", &unborn),
    ] {
        let parent = tempfile::tempdir().unwrap();
        let dir = tempfile::tempdir_in(parent.path()).unwrap();
        fs::create_dir(dir.path().join("d")).unwrap();
        for (path, content) in FILES {
            fs::write(dir.path().join(path), content).unwrap();
        }
        assert!(git(dir.path(), script), "{name}");
        let test = open(&dir);
        assert!(stored(&test) >= 4, "{name}");
        let id = test.command_id(|| test.write("d/longer", "1"));
        test.undo(id);
        assert_eq!(test.read("d/longer"), LONGER, "{name}");
    }
}

#[test]
fn commits_that_are_not_packed_yet_share_what_older_packs_have() {
    let script = format!("{COMMIT_AND_PACK} && echo a1 > a && git commit -q -a -m two");
    let dir = repository(&script);
    let test = open(&dir);
    assert_eq!(stored(&test), 1, "a is loose");
}

#[test]
fn nothing_of_the_repository_is_written() {
    let dir = repository(COMMIT_AND_PACK);
    let stamps = || {
        let mut stamps = std::collections::BTreeMap::new();
        add(&dir.path().join(".git"), &mut stamps);
        stamps
    };
    let before = stamps();
    let test = open(&dir);
    let id = test.command_id(|| test.write("a", "1"));
    test.undo(id);
    assert_eq!(stamps(), before);
}

fn add(
    dir: &Path,
    stamps: &mut std::collections::BTreeMap<std::path::PathBuf, (u64, std::time::SystemTime)>,
) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let found = path.symlink_metadata().unwrap();
        if found.is_dir() {
            add(&path, stamps);
        }
        stamps.insert(path, (found.len(), found.modified().unwrap()));
    }
}

#[test]
fn a_pack_whose_time_git_renews_is_still_relied_on() {
    let dir = repository(COMMIT_AND_PACK);
    let test = open(&dir);
    assert_eq!(stored(&test), 0);
    // Git does this when something is added that a pack has already.
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(3600);
    for entry in fs::read_dir(dir.path().join(".git/objects/pack")).unwrap() {
        let file = fs::File::open(entry.unwrap().path()).unwrap();
        file.set_modified(later).unwrap();
    }
    test.command_id(|| test.write("a", "1\n"));
    assert_eq!(stored(&test), 2, "a, before and after");
}
