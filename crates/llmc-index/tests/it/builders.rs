//! Several servers on one workspace: one builds, all answer.

use std::fs;
use std::time::{Duration, Instant, SystemTime};

use llmc_host::CancelToken;
use llmc_index::{Index, IndexState, SearchRequest, SearchScope};

use crate::parsing::HeldParser;
use crate::work::Work;

fn until(what: &str, mut there: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !there() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Ends the keepers also when the test fails, which would wait for them for ever.
struct EndOnDrop<'s>(&'s [CancelToken]);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        for stop in self.0 {
            stop.cancel();
        }
    }
}

/// A workspace whose index takes a while.
fn large(files: usize) -> Work {
    let work = Work::new("//- a.rs\npub fn alpha_wolf() {}\n");
    for n in 0..files {
        let text: String = (0..60)
            .map(|i| format!("pub fn unit_{n}_{i}() {{\n    call_{i}()\n}}\n"))
            .collect();
        work.write(&format!("src/part_{n}.rs"), &text);
    }
    work
}

/// Plays the builder: holds the role until dropped.
fn occupy(work: &Work) -> fs::File {
    fs::create_dir_all(work.index_dir()).unwrap();
    let role = fs::File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(work.index_dir().join("builder.lock"))
        .unwrap();
    role.lock().unwrap();
    role.set_modified(SystemTime::now()).unwrap();
    role
}

/// Makes the index one whose first build has not finished.
fn make_incomplete(work: &Work) {
    let catalog = rusqlite::Connection::open(work.index_dir().join("catalog.db")).unwrap();
    let changed = catalog.execute("DELETE FROM meta WHERE key = 'complete'", []);
    assert_eq!(changed.unwrap(), 1);
}

#[test]
fn one_of_several_servers_builds_and_another_takes_over() {
    let work = large(60);
    let servers: Vec<Index> = (0..4).map(|_| Index::at(&work.index_dir())).collect();
    let stops: Vec<CancelToken> = servers.iter().map(|_| CancelToken::default()).collect();
    std::thread::scope(|scope| {
        for (server, stop) in servers.iter().zip(&stops) {
            scope.spawn(|| server.keep_current(&work.roots, stop));
        }
        let _end = EndOnDrop(&stops);
        let mut builders = vec![false; servers.len()];
        until("built", || {
            for (server, builds) in servers.iter().zip(&mut builders) {
                *builds |= server.progress().is_running() || server.progress().done() > 0;
            }
            servers[0].state() == IndexState::Ready
        });
        let builder = builders.iter().position(|builds| *builds).unwrap();
        assert_eq!(builders.iter().filter(|builds| **builds).count(), 1);
        let holder = fs::read_to_string(work.index_dir().join("builder.lock")).unwrap();
        assert_eq!(holder.trim(), std::process::id().to_string());
        for server in &servers {
            let found = ask(&work, server, "unit_7_7");
            assert_eq!(found.index, IndexState::Ready);
            assert!(found.snippets[0].text.contains("fn unit_7_7"));
        }
        // Another server takes the role when the builder ends, and finds what happened since.
        stops[builder].cancel();
        work.write("later.rs", "pub fn omega_point() {}\n");
        let knows = |name: &str| {
            let found = servers[(builder + 1) % 4].where_used(
                &work.roots,
                name,
                1,
                &CancelToken::default(),
            );
            found.is_ok()
        };
        until("taken over", || knows("omega_point"));
    });
}

fn ask(work: &Work, server: &Index, query: &str) -> llmc_index::SearchAnswer {
    let request = SearchRequest {
        query,
        scope: SearchScope::Repo,
        k: 3,
        budget: 2000,
    };
    server
        .search(&work.roots, &request, &CancelToken::default())
        .unwrap()
}

#[test]
fn searches_are_answered_while_the_builder_is_held_in_a_file() {
    let work = large(30);
    // A folder is entered after the files beside it.
    work.write("z/held.rs", "pub fn held_heron() {}\n");
    let readers: Vec<Index> = (0..4).map(|_| Index::at(&work.index_dir())).collect();
    let stops = [CancelToken::default()];
    std::thread::scope(|scope| {
        let held = HeldParser::new();
        // A build that is not urgent yet would be taken up again by the first question.
        work.index.request_build();
        scope.spawn(|| work.index.keep_current(&work.roots, &stops[0]));
        let _end = EndOnDrop(&stops);
        // All but the held file are committed without it.
        until("committed", || {
            let note = ask(&work, &readers[0], "alpha_wolf").note;
            note.is_some_and(|note| note.contains("it has 31 of 32 files"))
        });
        std::thread::scope(|asking| {
            for (nth, reader) in readers.iter().enumerate() {
                let work = &work;
                asking.spawn(move || {
                    for unit in 0..10 {
                        let name = format!("unit_{nth}_{unit}");
                        let found = ask(work, reader, &name);
                        assert_eq!(found.index, IndexState::Building);
                        assert!(found.snippets[0].text.contains(&format!("fn {name}(")));
                        let note = found.note.unwrap();
                        assert!(note.contains("it has 31 of 32 files"), "{note}");
                    }
                });
            }
        });
        assert!(work.index.progress().is_running());
        drop(held);
        until("built", || work.index.state() == IndexState::Ready);
        let found = ask(&work, &readers[0], "held_heron");
        assert_eq!(found.snippets[0].src(), "z/held.rs#L1-L1");
        assert_eq!(found.note, None);
    });
}

#[test]
fn a_question_without_a_turn_does_not_wait_for_one() {
    let work = Work::new("//- a.rs\npub fn alpha_wolf() {}\n");
    work.update();
    make_incomplete(&work);
    let _role = occupy(&work);
    // Another server scans all the time.
    let scan = fs::File::create(work.index_dir().join("scan.lock")).unwrap();
    scan.lock().unwrap();
    // Half a second for each would be too long.
    let stop = CancelToken::with_deadline(Instant::now() + Duration::from_secs(30));
    let request = SearchRequest {
        query: "alpha_wolf",
        scope: SearchScope::Repo,
        k: 3,
        budget: 2000,
    };
    for _ in 0..60 {
        let found = work.index.search(&work.roots, &request, &stop).unwrap();
        assert_eq!(found.snippets[0].src(), "a.rs#L1-L1");
    }
}

#[test]
fn a_suspended_builder_does_not_stop_the_others() {
    let work = Work::new("//- a.rs\npub fn alpha_wolf() {}\n");
    let role = occupy(&work);
    role.set_modified(SystemTime::now() - Duration::from_secs(600))
        .unwrap();
    let stops = [CancelToken::default()];
    std::thread::scope(|scope| {
        scope.spawn(|| work.index.keep_current(&work.roots, &stops[0]));
        let _end = EndOnDrop(&stops);
        until("built", || work.index.state() == IndexState::Ready);
    });
}

#[test]
fn a_question_makes_a_running_build_urgent() {
    let work = large(250);
    let asking = Index::at(&work.index_dir());
    let stops = [CancelToken::default()];
    std::thread::scope(|scope| {
        scope.spawn(|| work.index.keep_current(&work.roots, &stops[0]));
        let _end = EndOnDrop(&stops);
        until("running", || work.index.progress().is_running());
        assert!(
            !work.index.progress().is_urgent(),
            "no caller has asked yet"
        );
        let found = ask(&work, &asking, "alpha_wolf");
        assert_eq!(found.snippets[0].src(), "a.rs#L1-L1");
        if found.index != IndexState::Ready {
            until("urgent", || {
                work.index.progress().is_urgent() || work.index.state() == IndexState::Ready
            });
        }
        until("built", || work.index.state() == IndexState::Ready);
        until("over", || !work.index.progress().is_urgent());
    });
    // Nothing was lost when the build was taken up.
    let stats = work.index.stats().unwrap();
    assert_eq!(stats.files, 251);
    assert!(stats.symbols > 250 * 60);
}

#[test]
fn questions_during_a_build_use_what_is_committed_and_the_files() {
    let work = Work::new("//- a.rs\npub fn alpha_wolf() -> u8 {\n    1\n}\n");
    work.update();
    make_incomplete(&work);
    work.write(
        "b.rs",
        "pub fn beta_carotene() -> u8 {\n    alpha_wolf()\n}\n",
    );
    let _role = occupy(&work);
    assert_eq!(work.index.state(), IndexState::Building);
    for (query, place) in [
        ("alpha_wolf", "a.rs#L1-L3"),
        ("beta_carotene", "b.rs#L1-L3"),
    ] {
        let found = work.ask(query, SearchScope::Repo);
        assert_eq!(found.index, IndexState::Building);
        assert_eq!(found.snippets[0].src(), place, "{query}");
        let note = found.note.unwrap();
        assert!(note.contains("being built, it has 1 of 1 files"), "{note}");
        assert!(!note.contains("not all"), "{note}");
    }
    // A file of the index that changed since is read again.
    work.write(
        "a.rs",
        "// moved\n\npub fn alpha_wolf() -> u8 {\n    2\n}\n",
    );
    assert_eq!(work.found("alpha_wolf", SearchScope::Repo)[0], "a.rs#L3-L5");
    let traced = work.ask("panicked at b.rs:2:5: alpha", SearchScope::Repo);
    assert_eq!(traced.snippets[0].path, "b.rs");
}

#[test]
fn questions_during_a_build_end_in_time_and_say_what_they_left_out() {
    let mut work = Work::new("//- a.rs\npub fn alpha_wolf() {}\n//- b.rs\npub fn beta() {}\n");
    let _role = occupy(&work);
    let whole = work.ask("alpha_wolf", SearchScope::Both);
    assert_eq!(whole.snippets[0].src(), "a.rs#L1-L1");
    let note = whole.note.unwrap_or_default();
    assert!(!note.contains("not all files were searched"), "{note}");
    // The time is over before the first file.
    work.index = Index::at(&work.index_dir()).with_scan_time(Duration::ZERO);
    let found = work.ask("alpha_wolf", SearchScope::Both);
    assert_eq!(found.index, IndexState::Building);
    assert!(found.snippets.is_empty(), "{:?}", found.snippets);
    let note = found.note.unwrap();
    assert!(note.contains("not all files were searched"), "{note}");
}

#[test]
fn questions_of_many_servers_do_not_scan_at_the_same_time() {
    let work = Work::new("//- a.rs\npub fn alpha_wolf() {}\n");
    work.update();
    make_incomplete(&work);
    work.write("b.rs", "pub fn beta_carotene() {}\n");
    let _role = occupy(&work);
    // Another server scans all the time.
    let scan = fs::File::create(work.index_dir().join("scan.lock")).unwrap();
    scan.lock().unwrap();
    let found = work.ask("alpha_wolf beta_carotene", SearchScope::Repo);
    assert_eq!(found.index, IndexState::Building);
    assert_eq!(found.snippets[0].src(), "a.rs#L1-L1");
    assert_eq!(found.snippets.len(), 1);
    let note = found.note.unwrap();
    assert!(note.contains("not all files were searched"), "{note}");
    // Where nothing is committed yet, the files are searched nevertheless.
    let catalog = rusqlite::Connection::open(work.index_dir().join("catalog.db")).unwrap();
    catalog
        .execute("UPDATE files SET generation = generation + 1", [])
        .unwrap();
    drop(catalog);
    assert_eq!(
        work.found("beta_carotene", SearchScope::Repo)[0],
        "b.rs#L1-L1"
    );
    drop(scan);
    assert_eq!(
        work.found("beta_carotene", SearchScope::Repo)[0],
        "b.rs#L1-L1"
    );
}

#[test]
fn a_file_that_only_the_catalogue_has_is_still_searched() {
    let work = Work::new("//- a.rs\npub fn alpha_wolf() {}\n");
    work.update();
    make_incomplete(&work);
    // As after the first half of a commit.
    let catalog = rusqlite::Connection::open(work.index_dir().join("catalog.db")).unwrap();
    catalog
        .execute("UPDATE files SET generation = generation + 1", [])
        .unwrap();
    drop(catalog);
    let _role = occupy(&work);
    let found = work.ask("alpha_wolf", SearchScope::Repo);
    assert_eq!(found.index, IndexState::Building);
    let note = found.note.unwrap();
    assert!(note.contains("it has 0 of 1 files"), "{note}");
    assert_eq!(found.snippets[0].src(), "a.rs#L1-L1");
}
