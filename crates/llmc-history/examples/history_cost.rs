//! Measures what history costs on a tree of files; `bench/history/run` prints its figures beside git's.
//!
//! Arguments: a directory that does not exist yet, and the number of files. Prints one JSON object; times in milliseconds,
//! medians. Of a directory that exists, without a number, only the first snapshot is measured; its `.llmc` is removed before.
#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a measurement"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use llmc_history::{ChangeAuthor, History, HistorySettings};
use llmc_host::{Access, FinalLink, PathRules, Roots, Workspace, WriteState};
use rustix::time::{ClockId, clock_gettime};

const FILES_PER_DIR: usize = 20;
const RUNS: usize = 15;
const EDITS: usize = 1000;

fn main() {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().expect("a directory"));
    let Some(files) = args.next() else {
        return first_snapshot(&dir.canonicalize().unwrap());
    };
    let files: usize = files.parse().unwrap();
    std::fs::create_dir(&dir).unwrap();
    let root = dir.canonicalize().unwrap();
    make_tree(&root, files);

    let (workspace, history) = open(&root);
    let build = ms(|| history.build().unwrap());
    // Stamps of files that were just written prove nothing: the first comparison reads them again.
    std::thread::sleep(Duration::from_millis(100));
    command(&history);
    let (unwatched, unwatched_cpu) = median(|| command(&history));
    drop(history);
    let (_, history) = open(&root);
    // As a verb of the command line does it: one walk, and events after the command.
    history.watch_changes();
    let restart = ms(|| command(&history));
    history.start();
    // Until the background thread has compared everything and watches it.
    std::thread::sleep(Duration::from_secs(1));
    command(&history);
    command(&history);
    let (watched, watched_cpu) = median(|| command(&history));

    let text = |n: usize| {
        let lines =
            (0..200).map(|line| format!("let value_{line} = compute({});\n", line * 7 + n % 13));
        lines.collect::<String>() + &format!("// edit {n}\n")
    };
    edit(&workspace, &history, &root, &text(0));
    let before = store_bytes(&root);
    let mut content = 0;
    let mut times = Vec::new();
    for n in 1..=EDITS {
        let text = text(n);
        content += zstd::bulk::compress(text.as_bytes(), 3).unwrap().len();
        times.push(edit(&workspace, &history, &root, &text));
    }
    times.sort_by(f64::total_cmp);
    let grown = store_bytes(&root).saturating_sub(before);
    println!(
        "{{\"files\": {files}, \"build_ms\": {build:.1}, \"restart_ms\": {restart:.1}, \"unwatched_ms\": {unwatched:.2}, \
         \"unwatched_cpu_ms\": {unwatched_cpu:.2}, \"watched_ms\": {watched:.2}, \"watched_cpu_ms\": {watched_cpu:.2}, \
         \"edit_ms\": {:.3}, \"grown_bytes\": {grown}, \"compressed_bytes\": {content}}}",
        times[times.len() / 2]
    );
}

fn first_snapshot(root: &Path) {
    if root.join(".llmc").exists() {
        std::fs::remove_dir_all(root.join(".llmc")).unwrap();
    }
    let (_, history) = open(root);
    let build = ms(|| history.build().unwrap());
    let state = history.state();
    drop(history);
    println!(
        "{{\"state\": \"{state:?}\", \"build_ms\": {build:.1}, \"store_bytes\": {}}}",
        store_bytes(root)
    );
}

/// The size of the store when its log is folded into the file.
fn store_bytes(root: &Path) -> u64 {
    let path = root.join(".llmc/history.db");
    let store = rusqlite::Connection::open(&path).unwrap();
    let is_busy: i64 = store
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))
        .unwrap();
    assert_eq!(is_busy, 0, "the log is in use");
    std::fs::metadata(path).unwrap().len()
}

fn open(root: &Path) -> (Workspace, History) {
    let state = root.join(".llmc");
    let rules = PathRules::new(Some(state.clone()), Vec::new());
    let roots = Roots::open(root, &[PathBuf::from(".")], Arc::new(rules)).unwrap();
    let writes = WriteState::open(&state, Duration::from_secs(30)).unwrap();
    let files = Workspace::new(Arc::new(roots), Some(Arc::new(writes)));
    let history = History::open(&state, files.clone(), HistorySettings::default()).unwrap();
    (files, history)
}

fn make_tree(root: &Path, files: usize) {
    for n in 0..files {
        let dir = root.join(format!(
            "d{}/e{}",
            n / FILES_PER_DIR / 20,
            n / FILES_PER_DIR % 20
        ));
        if n % FILES_PER_DIR == 0 {
            std::fs::create_dir_all(&dir).unwrap();
        }
        let line = format!("fn function_{n}() -> usize {{ {n} }}\n");
        std::fs::write(dir.join(format!("f{n}.rs")), line.repeat(1 + n % 100)).unwrap();
    }
}

/// A command that changes nothing.
fn command(history: &History) {
    let recording = history.begin_all(ChangeAuthor::default());
    assert_eq!(recording.finish().unwrap(), None);
}

/// What history adds to one edit of a file.
fn edit(workspace: &Workspace, history: &History, root: &Path, text: &str) -> f64 {
    let path = workspace
        .roots
        .resolve("d0/e0/f0.rs", FinalLink::NoFollow, Access::Write)
        .unwrap();
    let started = Instant::now();
    let recording = history.begin(ChangeAuthor::default());
    recording.before_write(&path);
    let mut spent = started.elapsed();
    std::fs::write(root.join("d0/e0/f0.rs"), text).unwrap();
    let started = Instant::now();
    recording.finish().unwrap().unwrap();
    spent += started.elapsed();
    spent.as_secs_f64() * 1000.0
}

fn ms(work: impl FnOnce()) -> f64 {
    let started = Instant::now();
    work();
    started.elapsed().as_secs_f64() * 1000.0
}

/// By the clock, and in processor time of all threads, which other programs do not lengthen.
fn median(mut work: impl FnMut()) -> (f64, f64) {
    let processor_ms = || {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        time.tv_sec as f64 * 1000.0 + time.tv_nsec as f64 / 1e6
    };
    let (mut times, mut processor_times) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let before = processor_ms();
        times.push(ms(&mut work));
        processor_times.push(processor_ms() - before);
    }
    times.sort_by(f64::total_cmp);
    processor_times.sort_by(f64::total_cmp);
    (times[RUNS / 2], processor_times[RUNS / 2])
}
