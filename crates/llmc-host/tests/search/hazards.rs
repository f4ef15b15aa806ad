//! Trees that move, bite or never end.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use llmc_host::CancelToken;
use llmc_host::search::{ContentOptions, search_content};
use llmc_host::walk::{Hidden, ListDetail, ListOptions, SkippedCounts, WalkOptions, list};
use rustix::fs::{CWD, FileType, Mode, RenameFlags, mkdirat, mknodat, openat, renameat_with};

use super::{find_with, grep, grep_with, lines, open, paths, regex, tree};

#[test]
fn links_are_not_followed() {
    let outside = tree("//- secret\nneedle\n");
    let dir = tree("//- a/file\nneedle\n");
    symlink(outside.path(), dir.path().join("out")).unwrap();
    symlink(outside.path().join("secret"), dir.path().join("a/secret")).unwrap();
    symlink("..", dir.path().join("a/loop")).unwrap();
    symlink("self", dir.path().join("self")).unwrap();
    symlink("nowhere", dir.path().join("dangling")).unwrap();
    symlink(outside.path().join("secret"), dir.path().join(".gitignore")).unwrap();
    let found = grep(dir.path(), "needle");
    assert_eq!(lines(&found), ["a/file:1:needle"]);
    assert_eq!(found.skipped, SkippedCounts::default());
    assert_eq!(
        paths(&find_with(dir.path(), "*", &WalkOptions::default())),
        ["a/file"]
    );
}

#[test]
fn nothing_blocks_on_special_files() {
    let dir = tree("//- file\nneedle\n//- sub/file\nneedle\n");
    mknodat(CWD, dir.path().join("fifo"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    mknodat(
        CWD,
        dir.path().join(".ignore"),
        FileType::Fifo,
        Mode::RWXU,
        0,
    )
    .unwrap();
    mknodat(
        CWD,
        dir.path().join("sub/.gitignore"),
        FileType::Fifo,
        Mode::RWXU,
        0,
    )
    .unwrap();
    let _socket = UnixListener::bind(dir.path().join("socket")).unwrap();
    // Needs privileges, and is worth a try: a terminal would block and /dev/zero never end.
    let zero = rustix::fs::makedev(1, 5);
    let _ = mknodat(
        CWD,
        dir.path().join("zero"),
        FileType::CharacterDevice,
        Mode::RWXU,
        zero,
    );
    let found = grep(dir.path(), "needle");
    assert_eq!(lines(&found), ["file:1:needle", "sub/file:1:needle"]);
}

/// While one directory is exchanged with a link to the outside, over and over, no walk may ever get there.
#[test]
fn a_directory_swapped_for_a_link_leads_nowhere() {
    const WALKS: usize = 20_000;
    let outside = tree("//- f\ncanary\n//- canary-name\n//- sub/f\ncanary\n//- .gitignore\nf\n");
    let dir = tree("//- d/f\nplain\n//- d/sub/f\nplain\n//- still\nplain\n");
    symlink(outside.path(), dir.path().join("l")).unwrap();
    let ended = Arc::new(AtomicBool::new(false));
    let swapper = {
        let (root, ended) = (open(dir.path()), Arc::clone(&ended));
        thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                renameat_with(&root, "d", &root, "l", RenameFlags::EXCHANGE).unwrap();
            }
        })
    };
    let root = open(dir.path());
    let pattern = regex("canary|plain");
    let mut seen = [0_usize; 4];
    for round in 0..WALKS {
        let walk = WalkOptions {
            threads: 1 + round % 2,
            ..WalkOptions::default()
        };
        let found = search_content(
            &root,
            &pattern,
            &walk,
            &ContentOptions::default(),
            &CancelToken::default(),
        )
        .unwrap();
        seen[found.hits.len()] += 1;
        assert!(
            found.hits.iter().all(|hit| hit.snippet == "plain"),
            "{found:?}"
        );
        if round % 16 == 0 {
            let options = ListOptions {
                depth: 3,
                hidden: Hidden::Include,
                file_glob: None,
                max_entries: 100,
                guard: None,
                detail: ListDetail::Status,
            };
            let listing = list(&root, &options, &CancelToken::default()).unwrap();
            assert!(
                !listing
                    .entries
                    .iter()
                    .any(|entry| entry.path.ends_with(b"canary-name")),
                "{listing:?}"
            );
        }
    }
    // The race is real only if it changes what is found, and if opening by path finds the wrong file.
    assert!(
        seen.iter().filter(|count| **count > 0).count() > 1,
        "{seen:?}"
    );
    let led_astray =
        (0..WALKS).any(|_| fs::read(dir.path().join("d/f")).is_ok_and(|text| text == b"canary\n"));
    ended.store(true, Ordering::Relaxed);
    swapper.join().unwrap();
    assert!(led_astray);
}

#[test]
fn a_tree_that_vanishes_is_reported_not_fatal() {
    let dir = tempfile::tempdir().unwrap();
    let ended = Arc::new(AtomicBool::new(false));
    let churner = {
        let (root, ended) = (dir.path().to_owned(), Arc::clone(&ended));
        thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                for index in 0..20 {
                    let _ = fs::create_dir(root.join(format!("d{index}")));
                    let _ = fs::write(root.join(format!("d{index}/f")), "needle\n");
                    let _ = fs::write(root.join(format!("f{index}")), "needle\n");
                }
                for index in 0..20 {
                    let _ = fs::remove_dir_all(root.join(format!("d{index}")));
                    let _ = fs::remove_file(root.join(format!("f{index}")));
                }
            }
        })
    };
    let mut unreadable = 0;
    for _ in 0..20_000 {
        let found = grep(dir.path(), "needle");
        assert!(found.complete && found.files_matched <= found.files_searched);
        unreadable += found.skipped.unreadable;
        if unreadable > 0 {
            break;
        }
    }
    ended.store(true, Ordering::Relaxed);
    churner.join().unwrap();
    assert!(unreadable > 0);
}

#[test]
fn what_may_not_be_opened_is_counted() {
    use std::os::unix::fs::PermissionsExt;
    if rustix::process::geteuid().is_root() {
        return; // For root nothing is closed.
    }
    let dir = tree("//- open\nneedle\n//- shut\nneedle\n//- dir/file\nneedle\n");
    for name in ["shut", "dir"] {
        fs::set_permissions(dir.path().join(name), fs::Permissions::from_mode(0o000)).unwrap();
    }
    let found = grep(dir.path(), "needle");
    fs::set_permissions(dir.path().join("dir"), fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!((found.total_hits, found.skipped.unreadable), (1, 2));
}

/// Makes `depth` levels of directories, each with a side arm and two files.
fn comb(root: &Path, depth: usize) {
    let mut dir: std::os::fd::OwnedFd = open(root).into();
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY;
    let create = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY;
    for _ in 0..depth {
        for name in ["a", "z"] {
            mkdirat(&dir, name, Mode::RWXU).unwrap();
        }
        let arm = openat(&dir, "z", flags, Mode::empty()).unwrap();
        for at in [dir.as_fd(), arm.as_fd()] {
            let file = openat(at, "f", create, Mode::RWXU).unwrap();
            rustix::io::write(file, b"needle\n").unwrap();
        }
        dir = openat(&dir, "a", flags, Mode::empty()).unwrap();
    }
}

#[test]
fn deep_trees_need_few_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = Rlimit {
        current: Some(1024),
        maximum: getrlimit(Resource::Nofile).maximum,
    };
    setrlimit(Resource::Nofile, limit).unwrap();
    let dir = tempfile::tempdir().unwrap();
    comb(dir.path(), 3000);
    for threads in [1, 4] {
        let walk = WalkOptions {
            threads,
            ..WalkOptions::default()
        };
        let found = grep_with(dir.path(), "needle", &walk, &ContentOptions::default());
        assert_eq!((found.total_hits, found.files_searched), (6000, 6000));
        assert_eq!(found.skipped, SkippedCounts::default());
        assert!(found.complete);
    }
    let options = ListOptions {
        depth: usize::MAX,
        hidden: Hidden::Skip,
        file_glob: None,
        max_entries: 10,
        guard: None,
        detail: ListDetail::Status,
    };
    let listing = list(open(dir.path()), &options, &CancelToken::default()).unwrap();
    assert_eq!((listing.total, listing.unreadable), (12_000, 0));
    // Too deep for the standard library to remove.
    std::process::Command::new("rm")
        .arg("-rf")
        .arg(dir.path().join("a"))
        .status()
        .unwrap();
}

#[test]
fn matches_without_number_on_one_line_are_one_hit() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("f"), "A".repeat(1_000_000)).unwrap();
    let started = Instant::now();
    let found = grep(dir.path(), ".*[^A-Z]|[A-Z]");
    assert_eq!(found.total_hits, 1);
    assert!(
        started.elapsed() < Duration::from_secs(20),
        "{:?}",
        started.elapsed()
    );
}

#[test]
fn the_deadline_holds_even_inside_the_regex_engine() {
    let dir = tree("//- a/f\n1\n//- z/\n");
    // Lines on which the engine needs minutes.
    let bits: String = (0..2_000_000_u32)
        .map(|n| match n.wrapping_mul(2_654_435_761) >> 31 {
            _ if n % 2_000 == 1_999 => '\n',
            0 => '0',
            _ => '1',
        })
        .collect();
    fs::write(dir.path().join("z/f"), bits).unwrap();
    let pattern = regex("[01]*1[01]{1900}[^01]|^1$");
    let walk = WalkOptions {
        threads: 2,
        ..WalkOptions::default()
    };
    let started = Instant::now();
    let cancel = CancelToken::with_deadline(started + Duration::from_millis(300));
    let found = search_content(
        open(dir.path()),
        &pattern,
        &walk,
        &ContentOptions::default(),
        &cancel,
    )
    .unwrap();
    assert!(
        started.elapsed() < Duration::from_secs(20),
        "{:?}",
        started.elapsed()
    );
    assert!(!found.complete);
    assert_eq!(lines(&found), ["a/f:1:1"]);
}

#[test]
fn a_line_that_is_too_long_for_a_costly_pattern_is_counted_and_not_tried() {
    let dir = tree("//- a/f\n1\n//- z/\n");
    fs::write(dir.path().join("z/f"), "01".repeat(500_000)).unwrap();
    let search = |pattern: &str| {
        search_content(
            open(dir.path()),
            &regex(pattern),
            &WalkOptions::default(),
            &ContentOptions::default(),
            &CancelToken::default(),
        )
        .unwrap()
    };
    let costly = search("[01]*1[01]{3900}[^01]|^1$");
    assert!(costly.complete);
    assert_eq!((costly.total_hits, costly.skipped.too_large), (1, 1));
    // Patterns as people write them are tried on every line.
    let usual = search("(?i)[a-z0]+1.{0,60}$");
    assert_eq!((usual.total_hits, usual.skipped.too_large), (1, 0));
}

#[test]
fn a_search_can_be_cancelled() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("f"), "needle\n".repeat(20_000_000)).unwrap();
    let cancel = CancelToken::default();
    let canceller = {
        let cancel = cancel.clone();
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(30));
            cancel.cancel();
        })
    };
    let started = Instant::now();
    let options = ContentOptions {
        max_hits: 10,
        ..ContentOptions::default()
    };
    let found = search_content(
        open(dir.path()),
        &regex("needle"),
        &WalkOptions::default(),
        &options,
        &cancel,
    )
    .unwrap();
    let elapsed = started.elapsed();
    canceller.join().unwrap();
    assert!(
        !found.complete && elapsed < Duration::from_secs(10),
        "{elapsed:?}"
    );
    assert_eq!(found.files_searched, 0);
    assert_eq!(found.hits.len(), 10);

    let found = search_content(
        open(dir.path()),
        &regex("needle"),
        &WalkOptions::default(),
        &options,
        &cancel,
    )
    .unwrap();
    assert!(!found.complete && found.hits.is_empty());
}

#[test]
fn a_visitor_that_panics_does_not_hang_the_walk() {
    use llmc_host::walk::{FileVisitor, VisitOutcome, WalkFile, walk};
    struct Panics;
    impl FileVisitor for Panics {
        fn visit(&mut self, _: &WalkFile<'_>) -> VisitOutcome {
            panic!("on purpose")
        }
    }
    let dir = tree("//- a/b\n//- c/d\n//- e\n");
    let walked = std::panic::catch_unwind(|| {
        walk(
            open(dir.path()),
            &WalkOptions::default(),
            &CancelToken::default(),
            || Panics,
        )
    });
    assert!(walked.is_err());
}

#[test]
fn a_visitor_that_stops_ends_the_walk() {
    use llmc_host::walk::{FileVisitor, VisitOutcome, WalkFile, walk};
    struct Stops(Arc<AtomicUsize>);
    impl FileVisitor for Stops {
        fn visit(&mut self, _: &WalkFile<'_>) -> VisitOutcome {
            self.0.fetch_add(1, Ordering::Relaxed);
            VisitOutcome::Stopped
        }
    }
    let dir = tempfile::tempdir().unwrap();
    for n in 0..50 {
        let folder = dir.path().join(format!("d{n}"));
        fs::create_dir(&folder).unwrap();
        for m in 0..10 {
            fs::write(folder.join(format!("f{m}")), "").unwrap();
        }
    }
    let visited = Arc::new(AtomicUsize::new(0));
    let options = WalkOptions {
        threads: 2,
        ..WalkOptions::default()
    };
    let walked = walk(open(dir.path()), &options, &CancelToken::default(), || {
        Stops(visited.clone())
    })
    .unwrap();
    assert!(!walked.complete);
    // One file for each thread.
    assert!((1..=2).contains(&visited.load(Ordering::Relaxed)));
}
