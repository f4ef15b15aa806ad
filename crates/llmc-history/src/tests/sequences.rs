//! Random sequences of changes and undos: the tree is as it was, byte for byte, or a conflict says where it is not.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::Permissions;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::git::{COMMIT, git};
use super::{Node, TestHistory, Tree, author};
use crate::entry::{EntryId, HistoryViewer};
use crate::error::Error;
use crate::history::HistorySettings;
use crate::snapshot::{is_within, parent};
use crate::undo::{UndoReport, UndoTarget};

/// Sequences by default; `LLMC_SOAK` sets another number, and `LLMC_SOAK_FROM` the first seed.
const SEQUENCES: u64 = 150;
/// Sequences between two lines that say how far a soak has come.
const SEQUENCES_PER_LINE: u64 = 250;

/// Commands that run a shell, which takes longer than all else.
const SHELL_PERCENT: usize = 10;

/// Few names, so that changes meet.
const NAMES: [&[u8]; 12] = [
    b"a",
    b"b",
    b".c",
    b"d",
    b"d/x",
    b"d/y",
    b"d/e",
    b"d/e/z",
    b"n\xff\xfe",
    b"n\xff\xfe/\n",
    b"back\\slash",
    b"f",
];

/// What shells do to whole trees. The state directory and the repository are hidden from `*`.
const SHELL_COMMANDS: [&str; 12] = [
    "rm -rf ./*",
    "rm -rf ./* .c; mkdir -p d/e; echo z > d/e/z",
    "for x in *; do mv -- \"$x\" \"$x.bak\"; done",
    "cp -a d d2; rm -rf d; mv d2 d",
    "mv a swap; mv b a; mv swap b",
    "chmod -R u=rwX,go= ./*",
    "find . -path ./.llmc -prune -o -path ./.git -prune -o -type f -exec truncate -s 0 {} +",
    "find . -path ./.llmc -prune -o -path ./.git -prune -o -type f -exec sh -c 'for x; do printf x >> \"$x\"; done' sh {} +",
    "ln -sfn . d; ln -f a f; ln -sf f a",
    "touch -d @0 ./*; touch ./*",
    "rm -rf d; ln -s nowhere d; rm -rf a; mkdir a; mkdir a/a; cp .c a/a/c",
    "i=0; while [ $i -lt 40 ]; do echo $i > many$i; i=$((i+1)); done; rm many1*",
];

/// What git does to a working tree. Some of it fails, depending on what is there.
const GIT_COMMANDS: [&str; 7] = [
    "git add -A && git commit -q -m more",
    "git reset -q --hard",
    "git checkout -q -f HEAD~1",
    "git checkout -q -f main",
    "git stash -q -u; git stash drop -q",
    "git reset -q --hard HEAD~1",
    "git rm -rfq . && git commit -q -m gone && git reflog expire --expire=now --all && git gc -q --prune=now",
];

/// Sequences that begin in a repository, and those in which stamps get old enough to be relied on.
const REPOSITORY_PERCENT: usize = 20;
const SLOW_PERCENT: usize = 6;
const GIT_PERCENT: usize = 40;
const RESTART_PERCENT: usize = 8;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit
    }

    fn name(&mut self) -> &'static [u8] {
        NAMES[self.below(NAMES.len())]
    }

    fn is(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

/// One entry of a sequence with the trees around it, as this test saw them.
struct Step {
    id: EntryId,
    before: Tree,
    after: Tree,
}

#[test]
fn random_undo_restores_or_reports() {
    let number = |name| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let default = match super::engine::IS_SHARED {
        true => SEQUENCES / 5,
        false => SEQUENCES,
    };
    let count = number("LLMC_SOAK").unwrap_or(default);
    let first = number("LLMC_SOAK_FROM").unwrap_or(1);
    let started = std::time::Instant::now();
    let mut failed = Vec::new();
    for done in 1..=count {
        let seed = first + done - 1;
        if std::panic::catch_unwind(|| sequence(seed)).is_err() {
            failed.push(seed);
        }
        if done % SEQUENCES_PER_LINE == 0 {
            let seconds = started.elapsed().as_secs();
            println!("{done} sequences in {seconds} s, failed: {failed:?}");
        }
    }
    assert!(failed.is_empty(), "seeds that failed: {failed:?}");
}

fn sequence(seed: u64) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let is_repository = random.is(REPOSITORY_PERCENT);
    let is_slow = random.is(SLOW_PERCENT);
    let test = match is_repository {
        true => repository(&mut random),
        false => TestHistory::new(),
    };
    for _ in 0..random.below(6) {
        change(&test.root, &mut random);
    }
    if random.is(50) {
        test.history.watch_changes();
    }
    let mut second = TestHistory::open(&test.root, HistorySettings::default());
    let mut steps: Vec<Step> = Vec::new();
    for _ in 0..3 + random.below(8) {
        if is_slow {
            test.let_stamps_age();
        }
        if random.is(20) {
            change(&test.root, &mut random);
        }
        if random.is(RESTART_PERCENT) {
            second = TestHistory::open(&test.root, HistorySettings::default());
        }
        let server = if random.is(25) { &second } else { &test };
        if !steps.is_empty() && random.is(45) {
            let chosen = random.below(steps.len());
            undo(server, &mut steps, chosen);
            continue;
        }
        let before = test.tree();
        let recorded = if random.is(30) {
            named_change(server, &mut random)
        } else {
            server.command(|| {
                if random.is(SHELL_PERCENT) {
                    shell(
                        &test.root,
                        SHELL_COMMANDS[random.below(SHELL_COMMANDS.len())],
                    );
                }
                for _ in 0..1 + random.below(4) {
                    change(&test.root, &mut random);
                }
                if is_repository && random.is(GIT_PERCENT) {
                    git(&test.root, GIT_COMMANDS[random.below(GIT_COMMANDS.len())]);
                }
            })
        };
        let after = test.tree();
        // In a repository HEAD may have moved without a change.
        let is_recorded = recorded.is_some();
        assert!(is_recorded || before == after, "a change is recorded");
        assert!(
            is_repository || !is_recorded || before != after,
            "nothing changed"
        );
        if let Some(recorded) = recorded.filter(|_| before != after) {
            assert_eq!(recorded.not_undoable, None);
            let id = recorded.id.unwrap();
            steps.push(Step { id, before, after });
        }
    }
    // From the newest back.
    for chosen in (0..steps.len()).rev() {
        undo(&test, &mut steps, chosen);
    }
    assert_eq!(test.history.check().unwrap().problems, Vec::<String>::new());
}

/// A workspace of random files that are all committed.
fn repository(random: &mut Random) -> TestHistory {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    for _ in 0..10 {
        change(&root, random);
    }
    assert!(git(&root, COMMIT));
    let mut test = TestHistory::open(&root, HistorySettings::default());
    test.history.build().unwrap();
    test._dir = Some(dir);
    test
}

/// Undoes one entry and checks every path of the tree.
fn undo(server: &TestHistory, steps: &mut Vec<Step>, chosen: usize) {
    let id = steps[chosen].id;
    let before = server.tree();
    let found = server.history.0.store.entry(id, &HistoryViewer::All);
    let rows = found.unwrap().unwrap().changes;
    let done: BTreeSet<Vec<u8>> = rows
        .iter()
        .filter(|row| row.undone_by.is_some())
        .map(|row| row.path.clone())
        .collect();
    let undone = server.history.undo(&server.request(UndoTarget::Entry(id)));
    let after = server.tree();
    let report = match undone {
        Ok(report) => report,
        Err(Error::AlreadyUndone { .. }) => {
            assert_eq!(done.len(), rows.len());
            assert_eq!(before, after);
            return;
        }
        Err(error) => panic!("{error}"),
    };
    check(&steps[chosen], &before, &after, &done, &report);
    if let Some(id) = report.entry {
        steps.push(Step { id, before, after });
    } else {
        assert_eq!(before, after);
    }
}

fn check(step: &Step, before: &Tree, after: &Tree, done: &BTreeSet<Vec<u8>>, report: &UndoReport) {
    let paths: BTreeSet<&Vec<u8>> = [&step.before, &step.after, before, after]
        .into_iter()
        .flat_map(|tree| tree.keys())
        .collect();
    for path in paths {
        let shown = llmc_host::names::escape(path);
        let is_changed = step.before.get(path) != step.after.get(path);
        let conflict = report
            .conflicts
            .iter()
            .find(|conflict| conflict.path == *path);
        if !is_changed || done.contains(path) {
            assert_eq!(
                before.get(path),
                after.get(path),
                "{shown} is not part of it"
            );
            assert!(conflict.is_none(), "{shown} is not part of it");
        } else if let Some(conflict) = conflict {
            assert_eq!(
                before.get(path),
                after.get(path),
                "{shown}: newer content stays"
            );
            let holds = after
                .keys()
                .any(|other| other != path && is_within(other, path));
            let has_parent =
                parent(path).is_none_or(|dir| matches!(after.get(dir), Some(Node::Dir(_))));
            let is_newer = before.get(path) != step.after.get(path);
            let is_blocked = holds || !has_parent;
            assert!(
                is_newer || is_blocked,
                "{shown}: {conflict:?} without a reason"
            );
        } else {
            assert_eq!(
                after.get(path),
                step.before.get(path),
                "{shown} is restored"
            );
        }
    }
    assert!(report.skipped_shared.is_empty() && report.not_kept.is_empty());
}

fn at(root: &Path, name: &[u8]) -> PathBuf {
    root.join(OsStr::from_bytes(name))
}

fn remove(path: &Path) {
    match path.symlink_metadata() {
        Ok(found) if found.is_dir() => std::fs::remove_dir_all(path).unwrap(),
        Ok(_) => std::fs::remove_file(path).unwrap(),
        Err(_) => {}
    }
}

/// Some of it may fail, depending on what is there.
fn shell(root: &Path, command: &str) {
    let ran = std::process::Command::new("sh")
        .args(["-c", command])
        .current_dir(root)
        .stdin(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status();
    assert!(ran.unwrap().code().is_some(), "{command}");
}

/// One random change, of whatever is there.
fn change(root: &Path, random: &mut Random) {
    let name = random.name();
    let path = at(root, name);
    let is_reachable = path
        .parent()
        .is_some_and(|dir| dir.symlink_metadata().is_ok_and(|found| found.is_dir()));
    if !is_reachable {
        return;
    }
    let found = path.symlink_metadata().ok();
    let is_file = found.as_ref().is_some_and(std::fs::Metadata::is_file);
    let is_dir = found.as_ref().is_some_and(std::fs::Metadata::is_dir);
    match random.below(9) {
        0 | 1 => {
            if !is_file {
                remove(&path);
            }
            let content = vec![b'a' + random.below(26) as u8; random.below(4)];
            std::fs::write(&path, content).unwrap();
        }
        2 => remove(&path),
        3 => {
            if !is_dir {
                remove(&path);
                std::fs::create_dir(&path).unwrap();
            }
        }
        4 => {
            let to = at(root, random.name());
            let is_place = to
                .parent()
                .is_some_and(|dir| dir.symlink_metadata().is_ok_and(|found| found.is_dir()));
            if found.is_some() && is_place && !to.starts_with(&path) && !path.starts_with(&to) {
                remove(&to);
                std::fs::rename(&path, &to).unwrap();
            }
        }
        5 => {
            let modes = match is_dir {
                true => [0o755, 0o700, 0o1777],
                false => [0o644, 0o755, 0o600],
            };
            if is_dir || is_file {
                let mode = Permissions::from_mode(modes[random.below(3)]);
                std::fs::set_permissions(&path, mode).unwrap();
            }
        }
        6 => {
            remove(&path);
            let targets: [&[u8]; 3] = [b"a", b"../outside", b"nowhere\xff"];
            symlink(OsStr::from_bytes(targets[random.below(3)]), &path).unwrap();
        }
        7 => {
            // As editors do it: a new file takes the name.
            if !is_dir {
                let new = root.join("new~");
                std::fs::write(&new, [b'0' + random.below(10) as u8]).unwrap();
                std::fs::rename(&new, &path).unwrap();
            }
        }
        _ => {
            let other = at(root, random.name());
            if is_file && other.symlink_metadata().is_err() && !other.starts_with(&path) {
                let _ = std::fs::hard_link(&path, &other);
            }
        }
    }
}

/// A file tool's change: the path is named first.
fn named_change(server: &TestHistory, random: &mut Random) -> Option<crate::Recorded> {
    let name = random.name();
    let path = at(&server.root, name);
    let rooted = server
        .files
        .roots
        .exact_path(name, llmc_host::Access::Write)
        .unwrap();
    let recording = server.history.begin(author("tool"));
    recording.before_write(&rooted);
    // Tools resolve links before they name a path.
    let is_plain = path
        .ancestors()
        .skip(1)
        .take_while(|dir| *dir != server.root)
        .all(|dir| dir.symlink_metadata().map_or(true, |found| found.is_dir()));
    if is_plain && std::fs::create_dir_all(path.parent().unwrap()).is_ok() {
        remove(&path);
        if random.is(70) {
            std::fs::write(&path, [b'A' + random.below(26) as u8]).unwrap();
        }
    }
    recording.finish().unwrap()
}
