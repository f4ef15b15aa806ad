//! Listings.

use std::fs;
use std::os::unix::net::UnixListener;

use llmc_host::CancelToken;
use llmc_host::walk::{DirListing, FileGlob, FileKind, Hidden, ListDetail, ListOptions, list};

use super::{open, tree};

const ALL: ListOptions = ListOptions {
    depth: 10,
    hidden: Hidden::Include,
    file_glob: None,
    max_entries: 1000,
    guard: None,
    detail: ListDetail::Status,
};

fn listed(root: impl AsRef<std::path::Path>, options: &ListOptions) -> DirListing {
    list(open(root), options, &CancelToken::default()).unwrap()
}

fn names(listing: &DirListing) -> Vec<&str> {
    listing
        .entries
        .iter()
        .map(|entry| str::from_utf8(&entry.path).unwrap())
        .collect()
}

#[test]
fn names_alone_tell_the_same_kinds() {
    let dir = tree("//- a.txt\nhi\n//- b/c.txt\n");
    std::os::unix::fs::symlink("nowhere", dir.path().join("link")).unwrap();
    let _socket = UnixListener::bind(dir.path().join("socket")).unwrap();
    let kinds = |detail| -> Vec<_> {
        let listing = listed(dir.path(), &ListOptions { detail, ..ALL });
        let entries = listing.entries.into_iter();
        entries.map(|entry| (entry.path, entry.kind)).collect()
    };
    assert_eq!(kinds(ListDetail::Name), kinds(ListDetail::Status));
    let names = ListOptions {
        detail: ListDetail::Name,
        ..ALL
    };
    let listing = listed(dir.path(), &names);
    assert!(listing.entries.iter().all(|entry| entry.size.is_none()));
}

#[test]
fn depth_hidden_and_glob() {
    let dir = tree(
        "//- .gitignore\n*.log\n//- a.log\n//- b/c.txt\n//- b/d/e.txt\n//- b/.f/g\n//- .git/config\n//- .llmc/x\n//- b.txt\n",
    );
    let depth = |depth, hidden| ListOptions {
        depth,
        hidden,
        ..ALL
    };
    let shallow = listed(dir.path(), &depth(0, Hidden::Skip));
    assert_eq!(names(&shallow), ["a.log", "b", "b.txt"]);
    assert_eq!(
        (shallow.total, shallow.hidden, shallow.complete),
        (3, 3, true)
    );
    // Order is by bytes: `.` comes before `/`.
    let deeper = listed(dir.path(), &depth(1, Hidden::Skip));
    assert_eq!(names(&deeper), ["a.log", "b", "b.txt", "b/c.txt", "b/d"]);
    let all = listed(dir.path(), &ALL);
    assert_eq!(
        names(&all),
        [
            ".git",
            ".gitignore",
            ".llmc",
            "a.log",
            "b",
            "b.txt",
            "b/.f",
            "b/.f/g",
            "b/c.txt",
            "b/d",
            "b/d/e.txt"
        ]
    );
    let only_text = ListOptions {
        file_glob: Some(FileGlob::new("*.txt").unwrap()),
        ..ALL
    };
    let text = listed(dir.path(), &only_text);
    assert_eq!(names(&text), ["b.txt", "b/c.txt", "b/d/e.txt"]);
    assert_eq!(text.total, 3);
}

#[test]
fn entries_tell_kind_size_and_time() {
    let dir = tree("//- file\nhello//- dir/x\n");
    std::os::unix::fs::symlink("/etc", dir.path().join("link")).unwrap();
    let _socket = UnixListener::bind(dir.path().join("socket")).unwrap();
    let listing = listed(dir.path(), &ALL);
    let kinds: Vec<_> = listing
        .entries
        .iter()
        .map(|entry| (str::from_utf8(&entry.path).unwrap(), entry.kind.as_str()))
        .collect();
    assert_eq!(
        kinds,
        [
            ("dir", "dir"),
            ("dir/x", "file"),
            ("file", "file"),
            ("link", "symlink"),
            ("socket", "other")
        ]
    );
    let file = &listing.entries[2];
    assert_eq!((file.kind, file.size), (FileKind::File, Some(5)));
    let modified = fs::metadata(dir.path().join("file"))
        .unwrap()
        .modified()
        .unwrap();
    let nanos = modified
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_nanos();
    assert_eq!(i128::from(file.mtime_ns.unwrap()), nanos as i128);
}

#[test]
fn a_large_directory_is_counted_and_cut_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let mut all: Vec<String> = (0..20_000)
        .map(|n| format!("{:05}", (n * 7919) % 20_000))
        .collect();
    for name in &all {
        fs::write(dir.path().join(name), "").unwrap();
    }
    all.sort();
    for max_entries in [0, 1, 500, 20_000, 30_000] {
        let listing = listed(dir.path(), &ListOptions { max_entries, ..ALL });
        assert_eq!(listing.total, 20_000);
        assert_eq!(names(&listing), all[..max_entries.min(all.len())]);
        assert!(listing.entries.iter().all(|entry| entry.size == Some(0)));
    }
}

#[test]
fn the_kernels_file_systems_are_listed_but_not_entered() {
    let listing = listed(
        "/",
        &ListOptions {
            depth: 1,
            max_entries: 100_000,
            ..ALL
        },
    );
    let names: Vec<_> = listing
        .entries
        .iter()
        .map(|entry| entry.path.clone())
        .collect();
    assert!(names.contains(&b"proc".to_vec()));
    assert!(
        !names
            .iter()
            .any(|name| name.starts_with(b"proc/") || name.starts_with(b"sys/"))
    );
    assert_eq!(listed("/proc", &ALL).total, 0);
    let found = super::find_with("/proc", "*", &llmc_host::walk::WalkOptions::default());
    assert_eq!((found.total_hits, found.skipped.ignored), (0, 1));
}

#[test]
fn a_listing_can_be_stopped() {
    let dir = tree("//- a/b\n//- c/d\n");
    let cancel = CancelToken::default();
    cancel.cancel();
    let listing = list(open(dir.path()), &ALL, &cancel).unwrap();
    assert!(!listing.complete);
}
