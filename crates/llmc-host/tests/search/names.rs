//! Searches by name.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use llmc_host::CancelToken;
use llmc_host::search::{NamePattern, search_files};
use llmc_host::walk::WalkOptions;

use super::{find_with, open, paths, tree};

#[test]
fn patterns() {
    let dir = tree(
        "//- README.md\n//- src/main.rs\n//- src/readme_test.rs\n//- src/deep/Main.java\n//- Straße/ÄPFEL.txt\n//- src/a+b(1).c\n",
    );
    for (pattern, expected) in [
        ("readme", &["README.md", "src/readme_test.rs"][..]),
        ("MAIN", &["src/deep/Main.java", "src/main.rs"]),
        ("src/m", &["src/main.rs"]),
        ("SRC/DEEP", &["src/deep/Main.java"]),
        ("*.rs", &["src/main.rs", "src/readme_test.rs"]),
        ("main.*", &["src/main.rs"]),
        ("src/*.rs", &["src/main.rs", "src/readme_test.rs"]),
        ("**/deep/*", &["src/deep/Main.java"]),
        ("[mM]ain.{rs,java}", &["src/deep/Main.java", "src/main.rs"]),
        ("äpfel", &["Straße/ÄPFEL.txt"]),
        ("a+b(1)", &["src/a+b(1).c"]),
        ("deep", &[]),
        ("nothing", &[]),
    ] {
        let found = find_with(dir.path(), pattern, &WalkOptions::default());
        assert_eq!(paths(&found), expected, "{pattern}");
        assert_eq!(found.files_searched, 6);
        assert_eq!(found.total_hits, expected.len() as u64);
    }
    assert!(NamePattern::new("a[").is_err());
}

#[test]
fn the_smallest_paths_are_kept_and_all_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let mut all = Vec::new();
    for index in 0..3000 {
        let path = format!("{}/{}.x", (index * 7919) % 37, (index * 104_729) % 9973);
        std::fs::create_dir_all(dir.path().join(&path).parent().unwrap()).unwrap();
        std::fs::write(dir.path().join(&path), "").unwrap();
        all.push(path.into_bytes());
    }
    all.sort();
    all.dedup();
    let pattern = NamePattern::new("*.x").unwrap();
    for (max, threads) in [(0, 2), (1, 3), (7, 1), (100, 8), (2999, 4), (5000, 2)] {
        let options = WalkOptions {
            threads,
            ..WalkOptions::default()
        };
        let found = search_files(
            open(dir.path()),
            &pattern,
            &options,
            max,
            &CancelToken::default(),
        )
        .unwrap();
        assert_eq!(found.paths, all[..max.min(all.len())]);
        assert_eq!(found.total_hits, all.len() as u64);
    }
}

#[test]
fn names_are_bytes() {
    let dir = tempfile::tempdir().unwrap();
    for name in [&b"b\xff\xfe.txt"[..], b"a\nb.txt", b"\xc3.txt", b"z.txt"] {
        std::fs::write(dir.path().join(OsStr::from_bytes(name)), "x\n").unwrap();
    }
    let found = find_with(dir.path(), ".TXT", &WalkOptions::default());
    assert_eq!(
        found.paths,
        [&b"a\nb.txt"[..], b"b\xff\xfe.txt", b"z.txt", b"\xc3.txt"]
    );
    let hits = super::grep(dir.path(), "x").hits;
    let order: Vec<&[u8]> = hits.iter().map(|hit| &hit.path[..]).collect();
    assert_eq!(order, found.paths);
}
