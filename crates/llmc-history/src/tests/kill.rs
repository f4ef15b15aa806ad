//! A process that is killed while it records or undoes.
//!
//! The test starts itself again as the process to be killed.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use super::{Node, TestHistory, author};
use crate::entry::{EntryFilter, EntryId, HistoryViewer};
use crate::history::HistorySettings;
use crate::undo::UndoTarget;

const CHILD_DIR: &str = "LLMC_HISTORY_KILL_DIR";
const FILES: usize = 12;
/// How often it is killed by default; `LLMC_SOAK` sets another number.
const ROUNDS: u64 = 12;

/// Puts a version of every file in place, each in one step.
fn put_version(root: &Path, version: usize) {
    for number in 0..FILES {
        let new = root.join(format!(".new-{number}"));
        std::fs::write(&new, version.to_string().repeat(2000)).unwrap();
        std::fs::rename(&new, root.join(format!("f{number}"))).unwrap();
    }
}

/// Records and undoes until it is killed; says before and after each step what it does.
#[test]
#[ignore = "started by the test below"]
fn child() {
    let Ok(dir) = std::env::var(CHILD_DIR) else {
        return;
    };
    let test = TestHistory::open(Path::new(&dir), HistorySettings::default());
    for version in 1..100_000 {
        println!("\nwriting");
        let recording = test.history.begin_all(author("child"));
        put_version(&test.root, version % 10);
        let id = recording.finish().unwrap().and_then(|recorded| recorded.id);
        let Some(id) = id else { continue };
        println!("\nrecorded {}", id.0);
        println!("\nundoing");
        let report = test
            .history
            .undo(&test.request(UndoTarget::Entry(id)))
            .unwrap();
        println!("\nundid {}", report.entry.map_or(0, |id| id.0));
    }
}

/// The name of the test above.
fn child_test() -> String {
    let (_, module) = module_path!().split_once("::").unwrap();
    format!("{module}::child")
}

#[test]
fn killed_processes_leave_a_history_that_is_whole() {
    let test = TestHistory::new();
    put_version(&test.root, 0);
    test.command(|| {});
    let rounds = std::env::var("LLMC_SOAK").ok().and_then(|n| n.parse().ok());
    let mut acknowledged: Vec<EntryId> = Vec::new();
    for round in 0..rounds.unwrap_or(ROUNDS) {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([&child_test(), "--exact", "--ignored", "--nocapture"])
            .env(CHILD_DIR, &test.root)
            .envs(super::engine::child_environment())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // Some way into the work, each round further.
        let mut last = String::new();
        let mut left = 2 + round % 7;
        let mut note = |line: String, last: &mut String| {
            let (word, id) = line.split_once(' ').unwrap_or((&line, ""));
            if matches!(word, "recorded" | "undid") && id != "0" {
                acknowledged.push(EntryId(id.parse().unwrap()));
            }
            if matches!(word, "writing" | "recorded" | "undoing" | "undid") {
                *last = word.to_owned();
            }
        };
        while left > 0 {
            let line = lines.next().expect("the child works").unwrap();
            if matches!(line.split(' ').next(), Some("writing" | "undoing")) {
                left -= 1;
            }
            note(line, &mut last);
        }
        for _ in 0..(round * 7919) % 40_000 {
            std::hint::spin_loop();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        for line in lines.map_while(Result::ok) {
            note(line, &mut last);
        }
        super::engine::age_rows(&test.root);
        // The next process finishes an undo; here that is a new server.
        let next = TestHistory::open(&test.root, HistorySettings::default());
        assert!(
            last != "undoing" || is_one_version(&next),
            "round {round}: a half undo"
        );
        for node in next.tree().values() {
            let Node::File(_, content) = node else {
                panic!("{node:?}")
            };
            assert!(content.iter().all(|byte| *byte == content[0]), "torn");
        }
        let check = next.history.check().unwrap();
        assert_eq!(check.problems, Vec::<String>::new(), "round {round}");
        for id in &acknowledged {
            let shown = next.history.show(*id, &HistoryViewer::All);
            assert!(shown.is_ok(), "round {round}: {id} was acknowledged");
        }
        // What was left half written comes from outside, and work goes on.
        next.command(|| {});
        let id = next.command_id(|| next.write("f0", "after the kill"));
        next.undo(id);
        // A kill while the child wrote has left a mixture, which an undo of the next child would restore.
        next.command(|| put_version(&next.root, 0));
    }
    let filter = EntryFilter {
        limit: 100_000,
        ..EntryFilter::default()
    };
    assert!(test.history.list(&filter).unwrap().len() >= acknowledged.len());
    assert!(!acknowledged.is_empty());
}

fn is_one_version(test: &TestHistory) -> bool {
    let tree = test.tree();
    let mut versions = (0..FILES).map(|number| tree.get(format!("f{number}").as_bytes()));
    let first = versions.next().flatten();
    first.is_some() && versions.all(|version| version == first)
}
