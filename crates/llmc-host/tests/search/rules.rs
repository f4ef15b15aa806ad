//! What a walk leaves out, and how it counts that.

use std::sync::Arc;

use llmc_host::walk::{
    AncestorIgnores, FileGlob, Hidden, IgnoreLookup, SkippedCounts, WalkGuard, WalkOptions,
};
use llmc_host::{Access, FinalLink, PathRules, Roots};

use super::{add, find_with, open, paths, tree};

fn shown(fixture: &str) -> (Vec<String>, SkippedCounts) {
    shown_with(fixture, &WalkOptions::default())
}

fn shown_with(fixture: &str, options: &WalkOptions) -> (Vec<String>, SkippedCounts) {
    let dir = tree(fixture);
    let found = find_with(dir.path(), "*", options);
    assert!(found.complete);
    assert_eq!(found.files_searched, found.total_hits);
    (
        paths(&found).into_iter().map(str::to_owned).collect(),
        found.skipped,
    )
}

fn skipped(ignored: u64, hidden: u64) -> SkippedCounts {
    SkippedCounts {
        ignored,
        hidden,
        ..SkippedCounts::default()
    }
}

#[test]
fn ignore_files_count_without_a_repository() {
    let (files, left_out) = shown(
        "//- .gitignore\n*.log\n/target/\nbuild\n!keep.log\n\
         //- a.log\n//- keep.log\n//- target/x\n//- target/y\n//- sub/target/x\n//- sub/build\n//- src/a.rs\n",
    );
    assert_eq!(files, ["keep.log", "src/a.rs", "sub/target/x"]);
    // a.log, target (one), sub/build; the .gitignore itself is hidden.
    assert_eq!(left_out, skipped(3, 1));
}

#[test]
fn the_nearest_file_wins() {
    let (files, _) = shown(
        "//- .gitignore\n*.txt\n\
         //- a/.gitignore\n!*.txt\n\
         //- a/b/.gitignore\nsecret.txt\n\
         //- x.txt\n//- a/y.txt\n//- a/b/z.txt\n//- a/b/secret.txt\n//- a/c/secret.txt\n",
    );
    assert_eq!(files, ["a/b/z.txt", "a/c/secret.txt", "a/y.txt"]);
}

#[test]
fn dot_ignore_comes_before_gitignore_at_any_level() {
    let (files, _) = shown(
        "//- .ignore\n!kept.log\ndropped.rs\n\
         //- sub/.gitignore\n*.log\n!dropped.rs\n\
         //- sub/kept.log\n//- sub/other.log\n//- sub/dropped.rs\n//- sub/a.rs\n",
    );
    assert_eq!(files, ["sub/a.rs", "sub/kept.log"]);
}

#[test]
fn a_nested_repository_is_its_own() {
    let (files, _) = shown(
        "//- .gitignore\n*.log\n\
         //- .git/info/exclude\nlocal\n\
         //- vendor/.git/info/exclude\nprivate\n\
         //- vendor/.gitignore\n*.tmp\n\
         //- a.log\n//- local\n//- vendor/a.log\n//- vendor/b.tmp\n//- vendor/local\n//- vendor/private\n",
    );
    assert_eq!(files, ["vendor/a.log", "vendor/local"]);
}

#[test]
fn gitignore_comes_before_exclude() {
    let (files, _) = shown(
        "//- .git/info/exclude\n*.o\n\
         //- .gitignore\n!keep.o\n\
         //- keep.o\n//- drop.o\n",
    );
    assert_eq!(files, ["keep.o"]);
}

#[test]
fn a_directory_that_is_ignored_cannot_be_looked_into_again() {
    let (files, left_out) = shown(
        "//- .gitignore\nout/\n!out/keep.txt\n\
         //- out/keep.txt\n//- a.txt\n",
    );
    assert_eq!(files, ["a.txt"]);
    assert_eq!(left_out, skipped(1, 1));
}

#[test]
fn odd_ignore_files_do_no_harm() {
    let dir = tree("//- sub/a.txt\n//- sub/b.log\n//- ok/.gitignore/\n//- ok/c.txt\n");
    let mut text = b"\xef\xbb\xbf*.log\r\n\xff\xfe broken\n[unclosed\n{a\n".to_vec();
    text.extend(b"# filler\n".repeat(200_000));
    text.extend(b"a.txt\n");
    std::fs::write(dir.path().join("sub/.gitignore"), text).unwrap();
    let found = find_with(dir.path(), "*", &WalkOptions::default());
    // The rule for a.txt lies behind the first MiB.
    assert_eq!(paths(&found), ["ok/c.txt", "sub/a.txt"]);
}

#[test]
fn ancestors_hold_for_a_start_further_down() {
    let dir = tree(
        "//- .gitignore\n/a/b/*.log\n*.tmp\nsub\n\
         //- a/.ignore\n!keep.tmp\n\
         //- a/b/x.log\n//- a/b/keep.tmp\n//- a/b/drop.tmp\n//- a/b/c/x.log\n//- a/b/sub/y\n",
    );
    let root = open(dir.path());
    for start in ["a/b", "./a//b/"] {
        let options = WalkOptions {
            ancestors: AncestorIgnores::collect(std::os::fd::AsFd::as_fd(&root), start.as_bytes()),
            ..WalkOptions::default()
        };
        let found = find_with(dir.path().join("a/b"), "*", &options);
        assert_eq!(paths(&found), ["c/x.log", "keep.tmp"]);
        assert_eq!(found.skipped, skipped(3, 0));
    }
    let alone = find_with(dir.path().join("a/b"), "*", &WalkOptions::default());
    assert_eq!(alone.total_hits, 5);
}

#[test]
fn hidden_names_are_left_out_unless_asked_for() {
    let fixture = "//- .env\n//- .github/ci.yml\n//- a/.b/c\n//- d\n//- .git/config\n//- .llmc/token\n//- e/.LLMC/x\n";
    let (files, left_out) = shown(fixture);
    assert_eq!(files, ["d"]);
    assert_eq!(left_out, skipped(0, 6));
    let all = WalkOptions {
        hidden: Hidden::Include,
        ..WalkOptions::default()
    };
    let (files, left_out) = shown_with(fixture, &all);
    assert_eq!(files, [".env", ".github/ci.yml", "a/.b/c", "d"]);
    assert_eq!(left_out, skipped(3, 0));
}

#[test]
fn files_that_are_not_meant_are_not_counted() {
    let only_rs = WalkOptions {
        file_glob: Some(FileGlob::new("*.rs").unwrap()),
        ..WalkOptions::default()
    };
    let (files, left_out) = shown_with(
        "//- .gitignore\nb.*\n//- a.rs\n//- b.rs\n//- b.txt\n//- .c.rs\n//- .d.txt\n//- e/f.rs\n",
        &only_rs,
    );
    assert_eq!(files, ["a.rs", "e/f.rs"]);
    assert_eq!(left_out, skipped(1, 1));
}

#[test]
fn what_the_agent_may_not_read_is_kept_from_walks() {
    let dir = tree("//- a.pem\n//- b.txt\n//- state/db\n//- c/ID_RSA\n");
    add(dir.path(), "//- c/state/db\n");
    let rules = PathRules::new(
        Some(dir.path().canonicalize().unwrap().join("state")),
        Vec::new(),
    )
    .with_denylist(&["*.pem".into(), "id_rsa".into()], true)
    .unwrap();
    let rules = Arc::new(rules);
    let roots = Roots::open(dir.path(), &[dir.path().to_owned()], Arc::clone(&rules)).unwrap();
    let start = roots.resolve(".", FinalLink::Follow, Access::Read).unwrap();
    let options = WalkOptions {
        guard: Some(WalkGuard::new(rules, &start)),
        ..WalkOptions::default()
    };
    let found = find_with(dir.path(), "*", &options);
    assert_eq!(paths(&found), ["b.txt", "c/state/db"]);
    assert_eq!(found.skipped, skipped(3, 0));
}

#[test]
fn single_paths_are_ignored_as_a_walk_ignores_them() {
    let fixture = "//- .gitignore\n*.log\n/target/\n!keep.log\n\
         //- sub/.gitignore\n!*.log\nbuild/\n\
         //- a.log\n//- keep.log\n//- target/x\n//- target/deep/y\n//- sub/b.log\n//- sub/build/z\n//- src/target/x\n";
    let dir = tree(fixture);
    let options = WalkOptions {
        hidden: Hidden::Include,
        ..WalkOptions::default()
    };
    let walked = find_with(dir.path(), "*", &options);
    let walked: Vec<&str> = paths(&walked);
    let mut ignores = IgnoreLookup::new(open(dir.path()).into());
    for line in fixture.lines().filter_map(|line| line.strip_prefix("//- ")) {
        let is_ignored = ignores.is_ignored(line.as_bytes(), false);
        assert_eq!(is_ignored, !walked.contains(&line), "{line}");
    }
    // Names that are not there follow the same rules.
    for (path, is_dir, is_ignored) in [
        ("new.log", false, true),
        ("sub/new.log", false, false),
        ("sub/build", true, true),
        ("sub/build", false, false),
        ("target/new/deep/file", false, true),
        ("new/folder/file", false, false),
        ("new/folder/x.log", false, true),
    ] {
        assert_eq!(
            ignores.is_ignored(path.as_bytes(), is_dir),
            is_ignored,
            "{path}"
        );
    }
}
