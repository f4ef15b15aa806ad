//! The diffs are made by git and by `diff -u`, run here on files written here.

use std::path::Path;
use std::process::Command;

use llmc_tokens::count;
use proptest::prelude::*;

use super::*;

fn run(dir: &Path, program: &str, args: &[&str]) -> String {
    let out = Command::new(program)
        .args(args)
        .current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .output()
        .expect("the program runs");
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// What git says of two trees: names with their old and new text.
fn git_diff(files: &[(&str, Option<&str>, Option<&str>)]) -> String {
    let dir = tempfile::tempdir().expect("a directory");
    for (name, old, new) in files {
        for (side, text) in [("a", old), ("b", new)] {
            if let Some(text) = text {
                let path = dir.path().join(side).join(name);
                std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
                std::fs::write(path, text).expect("a file");
            }
        }
        for side in ["a", "b"] {
            std::fs::create_dir_all(dir.path().join(side)).expect("a directory");
        }
    }
    // Without prefixes of its own, git's names start with those of the two directories, a/ and b/, as usual.
    run(
        dir.path(),
        "git",
        &["diff", "--no-index", "--no-prefix", "a", "b"],
    )
}

fn function(name: &str, lines: usize) -> String {
    let body: String = (0..lines)
        .map(|i| format!("    let {name}_{i} = compute({i});\n"))
        .collect();
    format!("fn {name}() {{\n{body}}}\n\n")
}

#[test]
fn what_fits_is_untouched_and_counted() {
    let text = git_diff(&[
        ("a.rs", Some("one\n"), Some("two\n")),
        ("b.rs", None, Some("new\n")),
    ]);
    let condensed = condense(&text, 1000);
    assert_eq!(condensed.body, text);
    assert_eq!(
        (condensed.totals.matches, condensed.totals.files),
        (Some(2), Some(2))
    );
    assert!(!condensed.truncated && condensed.shown == 2);
}

#[test]
fn hunks_stand_under_file_and_symbol() {
    let old = function("alpha", 20) + &function("beta", 20);
    let new = old
        .replace("alpha_15 = compute(15)", "alpha_15 = other(15)")
        .replace("beta_12 = compute(12)", "beta_12 = none()");
    let condensed = condense(&git_diff(&[("src/lib.rs", Some(&old), Some(&new))]), 150);
    assert!(
        condensed
            .body
            .starts_with("1 file, 2 hunks, +2 -2\nsrc/lib.rs +2 -2\n@@ 17 @@ fn alpha() {\n"),
        "{}",
        condensed.body
    );
    assert!(
        condensed
            .body
            .contains("-    let alpha_15 = compute(15);\n+    let alpha_15 = other(15);\n")
    );
    assert!(condensed.body.contains("@@ 37 @@ fn beta() {\n"));
    assert_eq!((condensed.shown, condensed.totals.matches), (2, Some(2)));
}

#[test]
fn moved_blocks_are_listed_once() {
    let moving = function("moving", 12);
    let text = git_diff(&[
        (
            "from.rs",
            Some(&(function("stay", 3) + &moving)),
            Some(&function("stay", 3)),
        ),
        (
            "to.rs",
            Some("fn first() {}\n"),
            Some(&format!("fn first() {{}}\n{moving}")),
        ),
    ]);
    let condensed = condense(&text, 250);
    assert!(
        condensed
            .body
            .contains("moved from.rs:7-21 -> to.rs:2-16\n"),
        "{}",
        condensed.body
    );
    assert!(condensed.body.contains("(moved here from from.rs:7-21)\n"));
    assert!(!condensed.body.contains("moving_3"));
}

#[test]
fn white_space_generated_and_binary_files_are_said_in_a_line() {
    let old = function("f", 30);
    let lock: String = (0..60).map(|i| format!("name = \"p{i}\"\n")).collect();
    let text = git_diff(&[
        ("Cargo.lock", Some(&lock), Some(&lock.replace("p1", "q1"))),
        ("bin.dat", Some("a\0b"), Some("a\0c")),
        (
            "src/f.rs",
            Some(&old),
            Some(&old.replace("    let f_9 ", "\tlet f_9  ")),
        ),
        ("src/g.rs", Some(&old), Some(&old.replace("f_9", "g_9"))),
    ]);
    let condensed = condense(&text, 260);
    assert!(
        condensed.body.contains("(whitespace only, 2 lines)\n"),
        "{}",
        condensed.body
    );
    assert!(condensed.body.contains("bin.dat (binary)\n"));
    let (source, lock) = (
        condensed.body.find("src/g.rs"),
        condensed.body.find("Cargo.lock +11 -11 (generated, "),
    );
    assert!(lock.is_some() && source < lock, "{}", condensed.body);
    assert_eq!(condensed.breadcrumbs, ["2 more hunks in generated files"]);
}

#[test]
fn plain_diffs_renames_modes_and_missing_line_ends() {
    let dir = tempfile::tempdir().expect("a directory");
    let file =
        |name: &str, text: &str| std::fs::write(dir.path().join(name), text).expect("a file");
    file("old.sql", "-- a comment\nselect 1;\nend");
    file("new.sql", "select 2;\nend\n");
    let text = run(dir.path(), "diff", &["-u", "old.sql", "new.sql"]);
    let diff = Diff::parse(&text);
    assert_eq!((diff.files.len(), diff.hunks(), diff.outside), (1, 1, 0));
    assert_eq!(
        (
            diff.files[0].path(),
            diff.files[0].added(),
            diff.files[0].removed()
        ),
        ("new.sql", 2, 3)
    );

    let git = |args: &[&str]| run(dir.path(), "git", args);
    git(&["init", "-q"]);
    file("a b.txt", &"line\n".repeat(30));
    file("x.sh", "echo\n");
    git(&["add", "."]);
    git(&[
        "-c",
        "user.name=n",
        "-c",
        "user.email=e",
        "commit",
        "-qm",
        "m",
    ]);
    std::fs::rename(dir.path().join("a b.txt"), dir.path().join("c d.txt")).expect("a rename");
    git(&["add", "-A"]);
    git(&["update-index", "--chmod=+x", "x.sh"]);
    git(&["rm", "-q", "--cached", "old.sql"]);
    let text = git(&["diff", "--cached", "-M", "--binary"]);
    let diff = Diff::parse(&text);
    let files: Vec<_> = diff
        .files
        .iter()
        .map(|f| (f.path(), f.notes.join(", ")))
        .collect();
    assert_eq!(
        files,
        [
            ("c d.txt", "renamed from a b.txt".to_owned()),
            ("old.sql", "deleted".to_owned()),
            ("x.sh", "mode 100644 -> 100755".to_owned())
        ]
    );
    assert_eq!(diff.outside, 0);
}

#[test]
fn a_combined_diff_keeps_its_lines() {
    // By hand: what `git show` prints of a merge.
    let text = "diff --cc a.txt\nindex 1,2..3\n--- a/a.txt\n+++ b/a.txt\n@@@ -1,3 -1,3 +1,4 @@@ here\n  same\n- one\n -two\n++both\n++more\n  end\ndiff --git a/b b/b\n";
    let diff = Diff::parse(text);
    assert_eq!((diff.files.len(), diff.hunks(), diff.outside), (2, 1, 0));
    assert_eq!((diff.files[0].added(), diff.files[0].removed()), (2, 2));
    assert_eq!(diff.files[0].hunks[0].symbol, "here");
}

#[test]
fn unified_is_what_diff_prints_and_patch_takes() {
    let cases = [
        ("a\nb\nc\n", "a\nB\nc\n"),
        ("a\nb", "a\nb\n"),
        ("", "new\n"),
        ("old\n", ""),
        ("a\rb\nc\n", "a\rb\nd\n"),
    ];
    let dir = tempfile::tempdir().expect("a directory");
    for (old, new) in cases {
        std::fs::write(dir.path().join("old"), old).expect("a file");
        std::fs::write(dir.path().join("new"), new).expect("a file");
        let theirs = run(
            dir.path(),
            "diff",
            &["-u", "--label", "old", "--label", "new", "old", "new"],
        );
        let ours = unified("old", old, "new", new, 3);
        let bare: Vec<_> = ours
            .lines()
            .map(|l| {
                l.split_once("@@ ").map_or(l.to_owned(), |_| {
                    l[..l.rfind("@@").map_or(l.len(), |i| i + 2)].to_owned()
                })
            })
            .collect();
        assert_eq!(bare, theirs.lines().collect::<Vec<_>>(), "{old:?} {new:?}");
    }
    assert_eq!(unified("a", "same\n", "b", "same\n", 3), "");
    let old = function("alpha", 20);
    let ours = unified("a", &old, "b", &old.replace("alpha_15", "beta_15"), 1);
    assert!(ours.contains("@@ -16,3 +16,3 @@ fn alpha() {\n"), "{ours}");
}

/// Hunks that are shown by their header, and those that a breadcrumb counts.
fn account(condensed: &Condensed) -> u64 {
    let shown = condensed
        .body
        .lines()
        .filter(|line| line.starts_with("@@ "))
        .count() as u64;
    assert_eq!(shown, condensed.shown);
    let more = condensed.breadcrumbs.iter().find_map(|crumb| {
        let (count, _) = crumb.split_once(" more hunk")?;
        count.replace(',', "").parse::<u64>().ok()
    });
    shown + more.unwrap_or(0)
}

proptest! {
    #[test]
    fn every_hunk_is_shown_or_counted(
        files in prop::collection::vec((0usize..4, prop::collection::vec(0usize..60, 0..8)), 1..8),
        budget in 0usize..900,
    ) {
        let base = function("f", 70);
        let mut text = String::new();
        for (i, (kind, changes)) in files.iter().enumerate() {
            let mut lines: Vec<String> = base.lines().map(str::to_owned).collect();
            for change in changes {
                lines[*change] = if *kind == 1 { format!("\t{}", lines[*change]) } else { format!("changed {change} in {i}") };
            }
            let name = if *kind == 2 { format!("p{i}/Cargo.lock") } else { format!("src/f{i}.rs") };
            let one = unified(&format!("a/{name}"), &base, &format!("b/{name}"), &(lines.join("\n") + "\n"), 3);
            text.push_str(&one);
        }
        let condensed = condense(&text, budget);
        let total = Diff::parse(&text).hunks();
        prop_assert_eq!(condensed.totals.matches, Some(total));
        if condensed.truncated && total > 0 {
            prop_assert_eq!(account(&condensed), total, "{}\n{:?}", condensed.body, condensed.breadcrumbs);
            let crumbs: usize = condensed.breadcrumbs.iter().map(|c| count(c) + 5).sum();
            prop_assert!(count(&condensed.body) + crumbs <= budget.max(60));
        }
    }

    #[test]
    fn any_text_is_read_without_panic(
        text in "((diff --git a/x b/y|diff --cc x|--- |\\+\\+\\+ |@@ -1,2 \\+1 @@|@@@|@@ -|Binary files | differ|rename from |old mode 1|\\\\ No|[-+ ]|é|\r)?\\PC{0,12}\n){0,30}",
        budget in 0usize..200,
    ) {
        let condensed = condense(&text, budget);
        prop_assert!(condensed.shown <= condensed.totals.matches.or(condensed.totals.lines).unwrap_or(0));
    }

    #[test]
    fn a_unified_diff_has_all_the_changes(old in "([a-d]{0,2}\n){0,20}[a-d]?", new in "([a-d]{0,2}\n){0,20}[a-d]?") {
        let diff = unified("a", &old, "b", &new, 1000);
        let diff = Diff::parse(&diff);
        if old == new {
            prop_assert!(diff.files.is_empty());
        } else {
            let side = |sign: Sign| diff.files[0].hunks.iter().flat_map(|h| &h.lines).filter(|l| l.sign == sign || l.sign == Sign::Context).map(|l| l.text).collect::<Vec<_>>();
            prop_assert_eq!(side(Sign::Removed), old.split_inclusive('\n').map(|l| l.trim_end_matches('\n')).collect::<Vec<_>>());
            prop_assert_eq!(side(Sign::Added), new.split_inclusive('\n').map(|l| l.trim_end_matches('\n')).collect::<Vec<_>>());
        }
    }
}
