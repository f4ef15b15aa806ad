//! Searches that use the trigrams answer what a scan of all files answers.

use std::fs;
use std::time::{Duration, SystemTime};

use llmc_host::CancelToken;
use llmc_host::search::{Case, ContentOptions, ContentPattern, NamePattern, PatternSyntax};
use llmc_trigrams::{
    FileIdentity, IndexedContent, PathHash, SETTLE_TIME, TrigramWriter, WalkExtent,
};

use crate::watching::{EndOnDrop, until};
use crate::work::Work;

/// Waits until files that were just written count as settled.
fn let_files_settle(work: &Work) {
    work.write("clock", "");
    let written = fs::metadata(work.path("clock"))
        .unwrap()
        .modified()
        .unwrap();
    while SystemTime::now() < written + SETTLE_TIME + Duration::from_millis(100) {
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn hits(work: &Work, text: &str) -> u64 {
    let pattern = ContentPattern::new(text, PatternSyntax::Literal, Case::Sensitive).unwrap();
    let dir = work.roots.open_dir(".").unwrap();
    let walk = dir.walk_options(&work.roots).unwrap();
    let options = ContentOptions::default();
    let cancel = CancelToken::default();
    let found = work
        .index
        .search_content(&work.roots, &dir, &pattern, &walk, &options, &cancel);
    found.unwrap().total_hits
}

/// Says of a file, as it is now, that it holds nothing.
fn forge(work: &Work, path: &str) {
    let stat = rustix::fs::stat(work.path(path)).unwrap();
    let mut writer = TrigramWriter::open(&work.index_dir().join("trigrams")).unwrap();
    let fingerprint = FileIdentity::of(&stat).fingerprint();
    writer
        .add(
            PathHash::of(path.as_bytes()),
            fingerprint,
            IndexedContent::Text,
            &[],
        )
        .unwrap();
    writer.finish(WalkExtent::Part).unwrap();
}

#[test]
fn a_file_that_the_index_excludes_is_not_read_until_it_changes() {
    let work = Work::new("//- a.rs\none needle\n//- b.rs\nother needle\n");
    assert_eq!(hits(&work, "needle"), 2);
    let_files_settle(&work);
    forge(&work, "a.rs");
    assert_eq!(hits(&work, "needle"), 1);
    // A pattern without trigrams reads every file.
    assert_eq!(hits(&work, "ee"), 2);
    let stop = CancelToken::default();
    std::thread::scope(|scope| {
        let keeper = scope.spawn(|| work.index.keep_current(&work.roots, &stop));
        let end = EndOnDrop(&stop);
        until("watched", || work.index.is_watching());
        assert_eq!(hits(&work, "needle"), 1);
        // The same bytes, written anew: the kernel reports it, and the file is read.
        work.write("a.rs", "one needle\n");
        assert_eq!(hits(&work, "needle"), 2);
        drop(end);
        keeper.join().unwrap();
    });
}

#[test]
fn a_change_without_an_event_is_found_after_a_search() {
    let work = Work::new("//- a.rs\nbefore\n");
    let_files_settle(&work);
    work.update();
    let other = work.base.path().join("other");
    let stop = CancelToken::default();
    std::thread::scope(|scope| {
        let keeper = scope.spawn(|| work.index.keep_current(&work.roots, &stop));
        let end = EndOnDrop(&stop);
        until("watched", || work.index.is_watching());
        assert_eq!(hits(&work, "needle"), 0);
        fs::hard_link(work.path("a.rs"), &other).unwrap();
        fs::write(&other, "needle\n").unwrap();
        until("found", || hits(&work, "needle") == 1);
        drop(end);
        keeper.join().unwrap();
    });
}

#[test]
fn damaged_trigrams_are_noticed_and_built_again() {
    let mut work = Work::new("//- a.rs\none needle\n//- b.rs\nother needle\n");
    let_files_settle(&work);
    work.update();
    assert_eq!(hits(&work, "needle"), 2);
    let dir = work.index_dir().join("trigrams");
    // A list, the dictionary, and the footer.
    for part in [1, 2, 100] {
        let segment = fs::read_dir(&dir)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .find(|path| path.extension().is_some_and(|end| end == "seg"))
            .unwrap();
        let mut broken = fs::read(&segment).unwrap();
        let at = (8 + part * broken.len() / 100).min(broken.len() - 10);
        broken[at] ^= 0x20;
        fs::write(&segment, broken).unwrap();
        // As another process would open it.
        work.index = llmc_index::Index::at(&work.index_dir());
        assert_eq!(hits(&work, "needle"), 2);
        assert!(TrigramWriter::is_marked_damaged(&dir), "{part}");
        work.update();
        assert!(!TrigramWriter::is_marked_damaged(&dir));
        assert_eq!(work.index.content_files(), 3);
        assert_eq!(hits(&work, "needle"), 2);
    }
}

#[test]
fn an_update_writes_only_what_changed() {
    let work = Work::new("//- a.rs\none\n//- b.rs\ntwo\n");
    let_files_settle(&work);
    work.update();
    let list = || fs::read(work.index_dir().join("trigrams/segments")).unwrap();
    let first = list();
    work.update();
    assert_eq!(list(), first);
    work.write("a.rs", "three needle\n");
    assert_eq!(hits(&work, "needle"), 1);
    let_files_settle(&work);
    work.update();
    assert_ne!(list(), first);
    assert_eq!(hits(&work, "needle"), 1);
}

#[test]
fn a_keeper_watches_and_searches_see_every_change_at_once() {
    let work = Work::new("//- src/a.rs\none needle\n//- .gitignore\n*.log\n");
    let_files_settle(&work);
    let stop = CancelToken::default();
    let names = |part: &str| {
        let dir = work.roots.open_dir(".").unwrap();
        let walk = dir.walk_options(&work.roots).unwrap();
        let pattern = NamePattern::new(part).unwrap();
        let cancel = CancelToken::default();
        let found = work
            .index
            .search_files(&work.roots, &dir, &pattern, &walk, 100, &cancel);
        found.unwrap().total_hits
    };
    std::thread::scope(|scope| {
        let keeper = scope.spawn(|| work.index.keep_current(&work.roots, &stop));
        let end = EndOnDrop(&stop);
        until("watched", || work.index.is_watching());
        until("indexed", || work.index.content_files() > 0);
        assert_eq!((hits(&work, "needle"), names(".rs")), (1, 1));
        for round in 0..20 {
            work.write("src/b.rs", "a needle\n");
            assert_eq!((hits(&work, "needle"), names(".rs")), (2, 2), "{round}");
            work.write("src/deep/er/c.rs", "a needle\n");
            assert_eq!((hits(&work, "needle"), names(".rs")), (3, 3), "{round}");
            fs::rename(work.path("src/deep"), work.path("moved")).unwrap();
            work.write("moved/er/c.rs", "none\n");
            assert_eq!((hits(&work, "needle"), names(".rs")), (2, 3), "{round}");
            work.write("moved/.gitignore", "er\n");
            assert_eq!((hits(&work, "needle"), names(".rs")), (2, 2), "{round}");
            fs::remove_dir_all(work.path("moved")).unwrap();
            fs::remove_file(work.path("src/b.rs")).unwrap();
            assert_eq!((hits(&work, "needle"), names(".rs")), (1, 1), "{round}");
        }
        drop(end);
        keeper.join().unwrap();
    });
}
