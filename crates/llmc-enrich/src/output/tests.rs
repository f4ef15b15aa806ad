use llmc_tokens::count;
use proptest::prelude::*;

use super::*;

fn argv(command: &str) -> Vec<String> {
    command.split_whitespace().map(str::to_owned).collect()
}

fn numbered(lines: usize) -> String {
    (1..=lines)
        .map(|i| format!("this is line {i} of the output\n"))
        .collect()
}

#[test]
fn programs_are_seen_through_launchers() {
    let git = |sub: &str| KnownProgram::Git {
        subcommand: sub.into(),
        args: Vec::new(),
    };
    for (command, want) in [
        ("git log", git("log")),
        ("/usr/bin/git -C /x -c a=b --no-pager status", git("status")),
        ("env A=1 timeout -k 5s 60 git show", KnownProgram::Other),
        ("env A=1 timeout 60 git show", git("show")),
        ("A=1 git", git("")),
        ("git grep x", KnownProgram::Grep),
        ("rg x", KnownProgram::Grep),
        ("nice -n5 find .", KnownProgram::Find),
        ("diff -u a b", KnownProgram::Diff),
        ("cargo t", KnownProgram::Tests("cargo")),
        ("node --test", KnownProgram::Tests("node")),
        ("node server.js", KnownProgram::Other),
        ("npm run test:unit", KnownProgram::Tests("npm")),
        ("npx mocha --reporter dot", KnownProgram::Tests("mocha")),
        ("npm run build", KnownProgram::Other),
        ("npx tape test/*.js", KnownProgram::Tests("tap")),
        ("", KnownProgram::Other),
        ("timeout", KnownProgram::Other),
    ] {
        assert_eq!(KnownProgram::of(&argv(command)), want, "{command}");
    }
}

#[test]
fn a_test_run_of_node_is_condensed_whatever_starts_it() {
    let tap = include_str!("../testrun/samples/node_tap.txt");
    for command in [
        "node --test",
        "npm test",
        "pnpm run test:unit",
        "make check",
    ] {
        let condensed = condense(&argv(command), tap, "", Some(1), 900).expect("condensed");
        assert!(
            condensed
                .body
                .starts_with("node --test: 9 failed, 1 error, 5 passed"),
            "{command}: {}",
            condensed.body
        );
    }
    // What follows the tests of a package may be what failed.
    let green = "TAP version 13\n".to_owned()
        + &"ok 1 - fine\n".repeat(500)
        + "1..500\n# tests 500\n# suites 0\n# pass 500\n# fail 0\n# cancelled 0\n# skipped 0\n# todo 0\n# duration_ms 9.5\n";
    let npm = format!("{green}\n> pkg@1.0.0 check\n> tsc\n\n");
    let condensed = condense(&argv("npm test"), &npm, "", Some(0), 200).expect("condensed");
    assert_eq!(condensed.body, "node --test: 500 passed in 0.01s\n");
    let failed = format!("{npm}a.ts(1,2): something is wrong\n");
    let condensed = condense(&argv("npm test"), &failed, "", Some(2), 200).expect("condensed");
    assert!(
        !condensed.body.starts_with("node --test"),
        "{}",
        condensed.body
    );
    assert!(
        condensed.body.contains("something is wrong"),
        "{}",
        condensed.body
    );
}

#[test]
fn what_fits_or_is_ranked_elsewhere_is_left_alone() {
    assert_eq!(condense(&argv("make"), "short\n", "", Some(0), 100), None);
    assert_eq!(
        condense(&argv("grep x"), &numbered(500), "", Some(0), 100),
        None
    );
}

#[test]
fn the_text_decides_when_the_name_does_not() {
    let tests = include_str!("../testrun/samples/pytest.txt");
    for command in ["python -m pytest", "make check", "uv run pytest"] {
        let condensed = condense(&argv(command), tests, "", Some(1), 500).expect("condensed");
        assert!(
            condensed.body.starts_with("pytest: 5 failed, 2 errors"),
            "{command}"
        );
    }
    let build = include_str!("../testrun/samples/cargo.txt");
    let condensed = condense(&argv("cargo t"), "", build, Some(101), 500).expect("condensed");
    assert!(condensed.body.starts_with("cargo test: 7 failed"));
    let change = diff::unified(
        "a/x",
        &numbered(200),
        "b/x",
        &numbered(200).replace("line 1", "line one"),
        3,
    );
    let condensed = condense(&argv("make patch"), &change, "", Some(0), 200).expect("condensed");
    assert!(condensed.body.starts_with("1 file, "));
    let log = "2025-01-02 12:00:00 INFO fine\n".repeat(200) + "2025-01-02 12:00:01 ERROR bad\n";
    let condensed = condense(&argv("journalctl"), &log, "", Some(0), 200).expect("condensed");
    assert!(
        condensed.body.starts_with("201 lines: 1 ERROR, 200 INFO\n"),
        "{}",
        condensed.body
    );
}

#[test]
fn success_favours_the_head_and_failure_the_tail_and_errors() {
    let lines = |condensed: &Condensed| {
        let head = condensed
            .body
            .lines()
            .take_while(|line| !line.starts_with('…'))
            .count();
        (head, condensed.body.lines().count() - head)
    };
    let text = numbered(1000).replace(
        "this is line 500 of the output",
        "foo.c:3: undefined reference to `bar'",
    );
    let good = condense(&argv("tool"), &text, "", Some(0), 400).expect("condensed");
    let (head, tail) = lines(&good);
    assert!(
        head > tail && !good.body.contains("undefined"),
        "{}",
        good.body
    );
    let bad = condense(&argv("tool"), &text, "", Some(2), 400).expect("condensed");
    let (head, tail) = lines(&bad);
    assert!(
        head < tail
            && bad
                .body
                .contains("\n500: foo.c:3: undefined reference to `bar'\n"),
        "{}",
        bad.body
    );
    assert!(bad.body.ends_with("this is line 1000 of the output\n"));
    assert!(bad.breadcrumbs[0].contains(") left out, "), "{bad:?}");
    assert!(bad.breadcrumbs[0].ends_with(" bytes"), "{bad:?}");
}

#[test]
fn one_long_line_keeps_both_ends_and_says_what_it_lost() {
    let text = format!("start {} end\n", "x,".repeat(20_000));
    for code in [0, 1] {
        let found = condense(&argv("tool"), &text, "", Some(code), 400).expect("condensed");
        assert!(found.body.starts_with("start x,"), "{}", found.body);
        assert!(found.body.ends_with(",x, end\n"), "{}", found.body);
        let lost: usize = text.len() - 501;
        assert!(
            found.body.contains(&format!("…[+{lost} bytes]…")),
            "{}",
            found.body
        );
        let crumb = format!(
            "1 long line clipped, {} bytes left out",
            crate::thousands(lost as u64)
        );
        assert_eq!(found.breadcrumbs, [crumb]);
    }
}

#[test]
fn both_streams_are_shown() {
    let errors = "warning: something\n".repeat(3);
    let both = condense(&argv("tool"), &numbered(1000), &errors, Some(0), 300).expect("condensed");
    assert!(
        both.body.ends_with(&format!("[stderr]\n{errors}")),
        "{}",
        both.body
    );
    assert_eq!(both.totals.lines, Some(1003));
}

#[test]
fn progress_bars_keep_their_last_state() {
    let bar: String = (0..=100).map(|i| format!("\r{i}% downloaded")).collect();
    let text = format!("{bar}\n{}", numbered(300));
    let condensed = condense(&argv("tool"), &text, "", Some(0), 200).expect("condensed");
    assert!(
        condensed
            .body
            .starts_with("100% downloaded\nthis is line 1 "),
        "{}",
        condensed.body
    );
}

proptest! {
    #[test]
    fn lines_shown_and_left_out_are_all_there_are(lines in 0usize..400, every in 1usize..20, code in 0i32..2, budget in 0usize..500) {
        let text: String = (0..lines).map(|i| if i % every == 0 { format!("error number {i}\n") } else { format!("plain line {i}\n") }).collect();
        if let Some(condensed) = condense(&argv("tool"), &text, "", Some(code), budget) {
            prop_assert_eq!(condensed.totals.lines, Some(lines as u64));
            let left = condensed.breadcrumbs.iter().find_map(|crumb| crumb.split_once(" line").filter(|(_, rest)| rest.contains("left out")).and_then(|(n, _)| n.replace(',', "").parse::<u64>().ok()));
            prop_assert_eq!(condensed.shown + left.unwrap_or(0), lines as u64);
            let crumbs: usize = condensed.breadcrumbs.iter().map(|c| count(c) + 5).sum();
            prop_assert!(count(&condensed.body) + crumbs <= budget.max(60));
        }
    }

    #[test]
    fn any_output_is_read_without_panic(out in "(\\PC{0,40}|\n|\r|\x1b\\[1m|error: ){0,40}", err in "(\\PC{0,20}|\n){0,20}", budget in 0usize..100) {
        for command in ["tool", "git log", "git diff", "git status", "diff a b", "cargo test"] {
            condense(&argv(command), &out, &err, None, budget);
        }
    }
}

#[test]
fn a_diff_larger_than_memory_is_listed_by_file_and_hunk() {
    let one = |n: usize| {
        format!(
            "diff --git a/f{n}.rs b/f{n}.rs\n--- a/f{n}.rs\n+++ b/f{n}.rs\n@@ -1 +1 @@\n-old {n}\n+new {n}\n"
        )
    };
    let head: String = (0..400).map(one).collect();
    let tail = one(999);
    let nothing = TextEnds {
        head: "",
        tail: None,
        total_bytes: 0,
        total_lines: 0,
        survey: None,
    };
    let captured = CapturedOutput {
        argv: &argv("git diff v1 v2"),
        stdout: TextEnds {
            head: &head,
            tail: Some(&tail),
            total_bytes: 20 << 20,
            total_lines: 500_000,
            survey: None,
        },
        stderr: nothing,
        error_lines: &ErrorLines::default(),
        exit_code: Some(0),
    };
    let told = condense_command(&captured, |_| None, 500).found;
    let of = format!(
        "(of the first {} of 20,971,520 bytes)\n400 files, 400 hunks",
        crate::budget::thousands(head.len() as u64)
    );
    assert!(told.body.starts_with(&of), "{}", told.body);
    assert_eq!(
        (told.totals.matches, told.totals.files, told.totals.lines),
        (None, None, Some(500_000)),
        "what was counted in a part is no total"
    );
    assert!(told.truncated);
    assert_eq!(told.totals.size, Some(20 << 20));
    let crumbs = told.breadcrumbs.join("\n");
    assert!(
        crumbs.contains("not the 497,600 lines after them"),
        "{crumbs}"
    );
}

#[test]
fn counts_and_names_that_grep_prints_are_no_matches() {
    let lines = "a.rs:12\nb.rs:3\n";
    for (line, matches) in [
        ("grep -rn x .", Some(2)),
        ("grep -rc x .", None),
        ("grep -rlc x .", None),
        ("grep -l x a b", None),
        ("rg --count x", None),
        ("rg --files-with-matches x", None),
        ("grep -rn -A2 x .", None),
        ("git grep --name-only x", None),
        // The value of an option is no option.
        ("grep -rne cl .", Some(2)),
        ("grep -rn -- -c .", Some(2)),
    ] {
        let argv: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let text = |text| TextEnds {
            head: text,
            tail: None,
            total_bytes: text.len() as u64,
            total_lines: text.lines().count() as u64,
            survey: None,
        };
        let captured = CapturedOutput {
            argv: &argv,
            stdout: text(lines),
            stderr: text(""),
            error_lines: &ErrorLines::default(),
            exit_code: Some(0),
        };
        let told = condense_command(&captured, |_| None, 1000);
        assert_eq!(told.found.totals.matches, matches, "{line}");
    }
}

#[test]
fn a_short_run_that_another_program_prints_is_read_to_its_last_line() {
    let run = "running 3 tests\ntest a ... ok\ntest b ... ok\ntest c ... ok\n\ntest result: ok. 3 passed; 0 failed; 0 ignored; \
               0 measured; 0 filtered out; finished in 0.00s\n\n";
    let text = format!("{}\n{run}", numbered(50));
    let found = test_run(&argv("sh build.sh"), &text, Some(0)).unwrap();
    assert_eq!((found.passed, found.notes.as_slice()), (3, &[][..]));
}
