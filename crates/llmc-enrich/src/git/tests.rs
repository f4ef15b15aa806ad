//! git is run here, in a repository of its own with fixed names and dates.

use std::path::Path;
use std::process::Command;

use llmc_tokens::count;
use proptest::prelude::*;

use super::*;

struct Repository(tempfile::TempDir);

impl Repository {
    fn new() -> Self {
        let repository = Self(tempfile::tempdir().expect("a directory"));
        repository.git(&["init", "-q", "-b", "main"]);
        repository
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        std::fs::write(path, text).expect("a file");
    }

    fn git(&self, args: &[&str]) -> String {
        self.git_at("2025-01-02T12:00:00+0000", args)
    }

    fn git_at(&self, date: &str, args: &[&str]) -> String {
        let out = Command::new("git")
            .args(args)
            .current_dir(self.path())
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_SYSTEM", "/dev/null")
            .env("GIT_AUTHOR_NAME", "Ann Author")
            .env("GIT_AUTHOR_EMAIL", "ann@example.com")
            .env("GIT_COMMITTER_NAME", "Carl Committer")
            .env("GIT_COMMITTER_EMAIL", "carl@example.com")
            .env("GIT_AUTHOR_DATE", date)
            .env("GIT_COMMITTER_DATE", date)
            .output()
            .expect("git runs");
        assert!(
            out.status.success(),
            "{args:?}: {}",
            String::from_utf8_lossy(&out.stderr)
        );
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    /// One commit per day, each of which changes a line of one file.
    fn with_history(days: usize) -> Self {
        let repository = Self::new();
        for day in 1..=days {
            let text: String = (0..40)
                .map(|i| format!("line {i} of {}\n", if i < day * 3 { day } else { 0 }))
                .collect();
            repository.write("src/a.txt", &text);
            repository.git(&["add", "-A"]);
            let date = format!("2025-01-{day:02}T12:00:00+0000");
            repository.git_at(
                &date,
                &[
                    "commit",
                    "-qm",
                    &format!("Change number {day}\n\nBecause of {day}."),
                ],
            );
        }
        repository
    }
}

fn tokens(condensed: &Condensed) -> usize {
    count(&condensed.body)
        + condensed
            .breadcrumbs
            .iter()
            .map(|c| count(c) + 5)
            .sum::<usize>()
}

#[test]
fn what_fits_is_untouched() {
    let repository = Repository::with_history(2);
    for args in [
        &["status"][..],
        &["log"],
        &["show"],
        &["branch"],
        &["blame", "src/a.txt"],
    ] {
        let text = repository.git(args);
        let condensed = condense(args[0], &[], &text, 10_000);
        assert_eq!(condensed.body, text);
        assert!(!condensed.truncated && condensed.breadcrumbs.is_empty());
    }
}

#[test]
fn a_log_is_one_line_per_commit() {
    let repository = Repository::with_history(12);
    for (args, extra) in [
        (&["log"][..], ""),
        (&["log", "--stat"], " (1 file, +36 -36)"),
        (&["log", "-p"], " (1 file, +36 -36)"),
        (&["log", "--graph"], ""),
        (&["log", "--date=iso", "--color=always"], ""),
    ] {
        let text = repository.git(args);
        let condensed = condense("log", &[], &text, 220);
        let first = condensed.body.lines().next().expect("a line");
        assert!(
            first.ends_with(&format!(" 2025-01-12 Ann Author: Change number 12{extra}")),
            "{args:?}: {first}"
        );
        assert_eq!(condensed.totals.matches, Some(12), "{args:?}");
        assert_eq!(condensed.body.lines().count() as u64, condensed.shown);
        let left = 12 - condensed.shown;
        assert!(
            condensed.breadcrumbs[0].starts_with(&format!("{left} more commit")),
            "{:?}",
            condensed.breadcrumbs
        );
        assert!(tokens(&condensed) <= 220);
    }
    let text = repository.git(&["log", "--oneline"]);
    let condensed = condense("log", &[], &text, 80);
    assert_eq!(condensed.totals.matches, Some(12));
    assert!(condensed.shown > 0 && condensed.shown < 12);
}

#[test]
fn show_is_the_commit_and_its_diff() {
    let repository = Repository::with_history(9);
    let text = repository.git(&["show"]);
    let condensed = condense("show", &[], &text, 300);
    assert!(condensed.body.starts_with("commit "));
    for part in [
        "Author: Ann Author",
        "Change number 9",
        "1 file, 1 hunk, +27 -27",
        "-line 0 of 8",
    ] {
        assert!(
            condensed.body.contains(part),
            "{part} in\n{}",
            condensed.body
        );
    }
    assert!(tokens(&condensed) <= 300 && condensed.totals.matches == Some(1));
}

#[test]
fn blame_collapses_runs() {
    let repository = Repository::with_history(10);
    let text = repository.git(&["blame", "src/a.txt"]);
    let condensed = condense("blame", &[], &text, 400);
    let first = condensed.body.lines().next().expect("a line");
    assert!(
        first.starts_with("1-30 ") && first.ends_with(" Ann Author 2025-01-10 line 0 of 10"),
        "{first}"
    );
    assert_eq!((condensed.totals.lines, condensed.shown), (Some(40), 40));
    // A name with brackets, code with brackets, a file that was renamed: by hand, in git's form.
    let text =
        "^a1b2c3d4 old name.rs (A (Bot) B 2025-01-02 12:00:00 +0000  9) f(x) 1)\n".repeat(30);
    let condensed = condense("blame", &[], &text, 100);
    assert!(
        condensed
            .body
            .starts_with("9 a1b2c3d4 A (Bot) B 2025-01-02 f(x) 1)\n"),
        "{}",
        condensed.body
    );
}

#[test]
fn status_counts_states_and_groups_paths() {
    let repository = Repository::with_history(1);
    for i in 0..30 {
        repository.write(&format!("new/file number {i}.txt"), "x\n");
        repository.write(&format!("staged/{i}.rs"), "x\n");
    }
    repository.git(&["add", "staged"]);
    repository.write("src/a.txt", "changed\n");
    repository.write("staged/3.rs", "changed again\n");
    for args in [
        &["status", "--porcelain", "-uall", "-b"][..],
        &["status", "--porcelain=v2", "-uall"],
        &["status", "-uall"],
    ] {
        let text = repository.git(args);
        let condensed = condense("status", &[], &text, 200);
        assert!(
            condensed
                .body
                .starts_with("62 paths: 30 staged, 2 not staged, 30 untracked\n"),
            "{args:?}\n{}",
            condensed.body
        );
        for line in ["staged:", "untracked:", "  M src/a.txt", "  M staged/3.rs"] {
            assert!(
                condensed.body.lines().any(|l| l == line),
                "{line} in\n{}",
                condensed.body
            );
        }
        assert_eq!(condensed.totals.files, Some(62));
        let left = 62 - condensed.shown;
        assert_eq!(condensed.breadcrumbs, [format!("{left} more paths")]);
        assert!(tokens(&condensed) <= 200);
    }
}

#[test]
fn the_current_branch_comes_first() {
    let repository = Repository::with_history(1);
    for i in 0..60 {
        repository.git(&["branch", &format!("a/branch-number-{i}")]);
    }
    let condensed = condense("branch", &[], &repository.git(&["branch"]), 100);
    assert!(condensed.body.starts_with("* main\n"), "{}", condensed.body);
    assert_eq!(condensed.totals.lines, Some(61));
}

proptest! {
    #[test]
    fn any_text_is_read_without_panic(
        which in 0usize..7,
        text in "((commit [0-9a-f]{40}|Author: A|Date:   |[0-9a-f]{8} \\(|1 M\\. |\\?\\? |# branch\\.|## |\t|Changes to be committed:|diff --git |    |é)?\\PC{0,20}\n){0,30}",
        budget in 0usize..200,
    ) {
        let command = ["status", "log", "show", "diff", "blame", "branch", "ls-files"][which];
        let condensed = condense(command, &[], &text, budget);
        let total = condensed.totals.matches.or(condensed.totals.lines).or(condensed.totals.files);
        prop_assert!(condensed.shown <= total.unwrap_or(0));
    }
}
