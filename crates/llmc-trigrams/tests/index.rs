//! Indexes in real directories: what they find, what a crash leaves, what damage does.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use llmc_trigrams::{
    DocId, Error, IndexedContent, PathHash, TrigramExtractor, TrigramIndex, TrigramQuery,
    TrigramWriter, WalkExtent,
};
use proptest::prelude::*;
use tempfile::TempDir;

/// What stands for the identity of a file in a version.
fn fingerprint(version: u64) -> u64 {
    version << 32
}

/// Adds texts by path and version.
fn add(dir: &Path, texts: &[(&str, u64, &str)], extent: WalkExtent) -> TrigramIndex {
    let mut writer = TrigramWriter::open(dir).unwrap();
    let mut extractor = TrigramExtractor::default();
    for (path, version, text) in texts {
        let trigrams = extractor.of(text.as_bytes());
        let path = PathHash::of(path.as_bytes());
        writer
            .add(path, fingerprint(*version), IndexedContent::Text, trigrams)
            .unwrap();
    }
    writer.finish(extent).unwrap()
}

fn find(index: &TrigramIndex, path: &str, version: u64) -> Option<DocId> {
    index.find(PathHash::of(path.as_bytes()), fingerprint(version))
}

fn query(pattern: &str) -> TrigramQuery {
    TrigramQuery::of(&regex_syntax::parse(pattern).unwrap())
}

/// Which of the files are candidates.
fn candidates(index: &TrigramIndex, pattern: &str, files: &[(&str, u64)]) -> Vec<String> {
    let candidates = index.candidates(&query(pattern)).unwrap();
    let files = files.iter().filter(|(path, version)| {
        find(index, path, *version).is_none_or(|document| candidates.contains(document))
    });
    files.map(|(path, _)| (*path).to_owned()).collect()
}

#[test]
fn only_files_with_the_trigrams_are_candidates() {
    let dir = TempDir::new().unwrap();
    let texts = [
        ("a", 1, "one needle here"),
        ("b", 1, "nothing"),
        ("c", 1, "NEEDLES\n"),
    ];
    add(dir.path(), &texts, WalkExtent::Part);
    let index = TrigramIndex::open(dir.path()).unwrap();
    let files = [("a", 1), ("b", 1), ("c", 1), ("unknown", 1), ("a", 2)];
    let found = |pattern: &str| candidates(&index, pattern, &files);
    assert_eq!(found("needle"), ["a", "c", "unknown", "a"]);
    assert_eq!(found("absent"), ["unknown", "a"]);
    assert_eq!(found(".").len(), 5);
    index.check().unwrap();
}

#[test]
fn a_newer_version_counts_and_gone_files_are_dropped() {
    let dir = TempDir::new().unwrap();
    let first: Vec<(String, String)> = (0..50)
        .map(|number| (format!("f{number}"), format!("word{number} common")))
        .collect();
    let texts = first
        .iter()
        .map(|(path, text)| (path.as_str(), 1, text.as_str()));
    add(dir.path(), &texts.collect::<Vec<_>>(), WalkExtent::Whole);
    for version in 2..30 {
        let texts = [("f1", version, "changed"), ("new", version, "fresh")];
        add(dir.path(), &texts, WalkExtent::Part);
    }
    let index = TrigramIndex::open(dir.path()).unwrap();
    assert!(index.documents() < 110, "{}", index.documents());
    let files = [("f1", 29), ("f2", 1), ("new", 29)];
    assert_eq!(candidates(&index, "changed", &files), ["f1"]);
    // All but three are gone.
    let kept = [
        ("f1", 30, "again"),
        ("f2", 30, "again"),
        ("new", 30, "again"),
    ];
    let index = add(dir.path(), &kept, WalkExtent::Whole);
    assert_eq!(index.documents(), 3);
    assert!(find(&index, "f3", 1).is_none());
    // The list and one segment.
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
}

#[test]
fn a_killed_writer_leaves_the_index_as_it_was() {
    let dir = TempDir::new().unwrap();
    add(dir.path(), &[("a", 1, "needle")], WalkExtent::Part);
    let mut writer = TrigramWriter::open(dir.path()).unwrap();
    let path = PathHash::of(b"b");
    writer
        .add(path, 1, IndexedContent::Text, &[1, 2, 3])
        .unwrap();
    drop(writer);
    // A segment that was written but never listed, and half a list.
    fs::write(dir.path().join("7.seg"), b"half").unwrap();
    fs::write(dir.path().join("segments.new"), b"llmc tri").unwrap();
    let index = TrigramIndex::open(dir.path()).unwrap();
    assert!(find(&index, "a", 1).is_some() && find(&index, "b", 1).is_none());
    let index = add(dir.path(), &[("b", 1, "other")], WalkExtent::Part);
    assert!(find(&index, "a", 1).is_some() && find(&index, "b", 1).is_some());
    assert!(!dir.path().join("7.seg").exists());
}

#[test]
fn every_flipped_bit_and_every_cut_is_found_or_harmless() {
    let dir = TempDir::new().unwrap();
    let files: Vec<(String, String)> = (0..600)
        .map(|number| (format!("f{number}"), format!("abc def{} ghi", number % 3)))
        .collect();
    let texts = files
        .iter()
        .map(|(path, text)| (path.as_str(), 1, text.as_str()));
    add(dir.path(), &texts.collect::<Vec<_>>(), WalkExtent::Part);
    let segment = segments(dir.path()).remove(0);
    let (mut noticed, mut tried) = (0, 0);
    for path in [segment, dir.path().join("segments")] {
        let sound = fs::read(&path).unwrap();
        let step = (sound.len() / 300).max(1);
        for at in (0..sound.len()).step_by(step) {
            let mut flipped = sound.clone();
            flipped[at] ^= 1 << (at % 8);
            for broken in [flipped, sound[..at].to_vec()] {
                tried += 1;
                fs::write(&path, &broken).unwrap();
                let opened = TrigramIndex::open(dir.path());
                let found = opened.and_then(|index| Ok((index.candidates(&query("def1"))?, index)));
                let Ok((found, index)) = found else {
                    noticed += 1;
                    continue;
                };
                for (path, text) in &files {
                    let document = find(&index, path, 1);
                    let is_candidate = document.is_none_or(|document| found.contains(document));
                    assert!(is_candidate || !text.contains("def1"), "{path} at {at}");
                }
            }
        }
        fs::write(&path, &sound).unwrap();
    }
    assert!(noticed * 2 > tried, "{noticed} of {tried}");
    // A writer begins anew where a segment is damaged.
    TrigramWriter::mark_damaged(dir.path());
    assert!(TrigramWriter::is_marked_damaged(dir.path()));
    let index = add(dir.path(), &[("a", 1, "x")], WalkExtent::Part);
    assert_eq!(index.documents(), 1);
    assert!(!TrigramWriter::is_marked_damaged(dir.path()));
}

/// The segments of an index.
fn segments(dir: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(dir).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .filter(|path| path.extension().is_some_and(|end| end == "seg"))
        .collect()
}

#[test]
fn an_index_of_another_version_is_built_again() {
    for version in ["0", "2", "10"] {
        let dir = TempDir::new().unwrap();
        add(dir.path(), &[("a", 1, "needle")], WalkExtent::Part);
        let list = dir.path().join("segments");
        let text = fs::read_to_string(&list).unwrap();
        let body = &text[..text.rfind("sum ").unwrap()];
        let body = body.replacen("trigrams 1", &format!("trigrams {version}"), 1);
        let sum = crc32fast::hash(body.as_bytes());
        fs::write(&list, format!("{body}sum {sum:08x}\n")).unwrap();
        let opened = TrigramIndex::open(dir.path());
        assert!(matches!(opened, Err(Error::Damaged(_))), "{version}");
        let index = add(dir.path(), &[("b", 1, "other")], WalkExtent::Part);
        assert!(find(&index, "a", 1).is_none() && find(&index, "b", 1).is_some());
    }
    // A segment with a sound footer of another version.
    let dir = TempDir::new().unwrap();
    add(dir.path(), &[("a", 1, "needle")], WalkExtent::Part);
    let segment = segments(dir.path()).remove(0);
    let mut bytes = fs::read(&segment).unwrap();
    let footer = bytes.len() - 52;
    bytes[footer + 7] = b'2';
    let sum = crc32fast::hash(&bytes[footer..footer + 48]);
    bytes[footer + 48..].copy_from_slice(&sum.to_le_bytes());
    fs::write(&segment, bytes).unwrap();
    let opened = TrigramIndex::open(dir.path());
    assert!(matches!(opened, Err(Error::Damaged(_))));
    let index = add(dir.path(), &[("b", 1, "other")], WalkExtent::Part);
    assert!(find(&index, "a", 1).is_none() && find(&index, "b", 1).is_some());
}

#[test]
fn two_hundred_thousand_tiny_files() {
    const FILES: u64 = 200_000;
    let dir = TempDir::new().unwrap();
    let mut writer = TrigramWriter::open(dir.path()).unwrap();
    let mut extractor = TrigramExtractor::default();
    let path = |number: u64| PathHash::of(format!("tiny/{number}").as_bytes());
    for number in 0..FILES {
        let text = format!("x{}\n", number % 1000);
        let trigrams = extractor.of(text.as_bytes());
        writer
            .add(path(number), fingerprint(1), IndexedContent::Text, trigrams)
            .unwrap();
    }
    writer.finish(WalkExtent::Whole).unwrap();
    let index = TrigramIndex::open(dir.path()).unwrap();
    assert_eq!(index.documents(), FILES);
    let found = index.candidates(&query("x777")).unwrap();
    for number in 0..FILES {
        let document = index.find(path(number), fingerprint(1)).unwrap();
        assert_eq!(found.contains(document), number % 1000 == 777, "{number}");
    }
    assert_eq!(found.count(), FILES / 1000);
    // What is stored of a file, whatever it holds.
    assert!(index.bytes() < FILES * 24, "{}", index.bytes());
}

#[test]
fn segment_numbers_are_not_used_again() {
    let dir = TempDir::new().unwrap();
    let first = add(dir.path(), &[("a", 1, "needle")], WalkExtent::Part);
    let old = find(&first, "a", 1).unwrap();
    TrigramWriter::mark_damaged(dir.path());
    let second = add(dir.path(), &[("b", 1, "other")], WalkExtent::Part);
    assert_eq!(second.kind(old), None);
    assert!(second.generation() > first.generation());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn no_file_with_a_match_is_left_out(
        rounds in proptest::collection::vec(
            proptest::collection::btree_map(0_u8..20, "[ab ]{0,12}", 0..12), 1..6),
        patterns in proptest::collection::vec("[ab.]{1,5}|\\(ab\\|ba\\)\\+|a\\[ab\\]b", 4),
        whole: bool,
    ) {
        let dir = TempDir::new().unwrap();
        let mut current: BTreeMap<String, (u64, String)> = BTreeMap::new();
        for (round, files) in rounds.iter().enumerate() {
            let version = round as u64 + 1;
            let mut writer = TrigramWriter::open(dir.path()).unwrap();
            let mut extractor = TrigramExtractor::default();
            for (number, text) in files {
                let path = format!("f{number}");
                let hash = PathHash::of(path.as_bytes());
                writer.add(hash, fingerprint(version), IndexedContent::Text, extractor.of(text.as_bytes())).unwrap();
                current.insert(path, (version, text.clone()));
            }
            for path in current.keys() {
                writer.see(PathHash::of(path.as_bytes()));
            }
            let extent = if whole { WalkExtent::Whole } else { WalkExtent::Part };
            writer.finish(extent).unwrap();
        }
        let index = TrigramIndex::open(dir.path()).unwrap();
        index.check().unwrap();
        for pattern in patterns {
            let regex = regex::Regex::new(&pattern).unwrap();
            let found = index.candidates(&query(&pattern)).unwrap();
            for (path, (version, text)) in &current {
                let document = find(&index, path, *version);
                prop_assert!(document.is_some(), "{path} is lost");
                if regex.is_match(text) {
                    prop_assert!(found.contains(document.unwrap()), "{pattern} in {text:?}");
                }
            }
        }
    }
}
