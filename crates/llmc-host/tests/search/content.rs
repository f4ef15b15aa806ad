//! Searches by content.

use std::fs;

use llmc_host::CancelToken;
use llmc_host::search::{
    Case, ContentOptions, ContentPattern, PatternSyntax, search_content_of_file,
};
use llmc_host::walk::{SkippedCounts, WalkOptions};
use proptest::prelude::*;

use super::{grep, grep_with, lines, open, regex, tree};

fn with_context(context_lines: usize) -> ContentOptions {
    ContentOptions {
        context_lines,
        ..ContentOptions::default()
    }
}

#[test]
fn one_hit_a_line_in_order() {
    let dir =
        tree("//- b.txt\nfoo foo\nbar\nfoo\n//- a/z.txt\nfoo//- a.txt\nno\n//- a/.hidden\nfoo\n");
    let found = grep(dir.path(), "foo");
    assert_eq!(
        lines(&found),
        ["a/z.txt:1:foo", "b.txt:1:foo foo", "b.txt:3:foo"]
    );
    assert_eq!(
        (found.total_hits, found.files_searched, found.files_matched),
        (3, 3, 2)
    );
    assert!(found.complete);
}

#[test]
fn context_is_each_hits_own() {
    let dir = tree("//- f\n1\n2 x\n3 x\n4\n5\n6\n7\n8 x\n9\n");
    let options = with_context(2);
    let found = grep_with(dir.path(), "x", &WalkOptions::default(), &options);
    assert_eq!(
        lines(&found),
        [
            "f:2:1\n2 x\n3 x\n4",
            "f:3:1\n2 x\n3 x\n4\n5",
            "f:8:6\n7\n8 x\n9"
        ]
    );
    let firsts: Vec<u64> = found.hits.iter().map(|hit| hit.first_line).collect();
    assert_eq!(firsts, [1, 1, 6]);
}

#[test]
fn case_and_literals() {
    let dir = tree("//- f\na.b(c)\nA.B(C)\naxb(c)\nÄrger\n");
    let count = |pattern: &str, syntax, case| {
        let pattern = ContentPattern::new(pattern, syntax, case).unwrap();
        let options = (&WalkOptions::default(), &ContentOptions::default());
        llmc_host::search::search_content(
            open(dir.path()),
            &pattern,
            options.0,
            options.1,
            &CancelToken::default(),
        )
        .unwrap()
        .total_hits
    };
    assert_eq!(count("a.b(c)", PatternSyntax::Literal, Case::Sensitive), 1);
    assert_eq!(count("a.b(c)", PatternSyntax::Literal, Case::Ignore), 2);
    assert_eq!(count(r"a.b\(c\)", PatternSyntax::Regex, Case::Sensitive), 2);
    assert_eq!(count("ärger", PatternSyntax::Literal, Case::Ignore), 1);
}

#[test]
fn line_ends() {
    let dir = tree("//- dos\nfoo;\r\nfoo; bar\r\n\r\nend\r\n//- unix\nfoo;\n\nend");
    for (pattern, expected) in [
        ("foo;$", &["dos:1:foo;", "unix:1:foo;"][..]),
        ("^$", &["dos:3:", "unix:2:"]),
        ("^end$", &["dos:4:end", "unix:3:end"]),
        (
            r"\r",
            &["dos:1:foo;", "dos:2:foo; bar", "dos:3:", "dos:4:end"],
        ),
        (r"\Afoo;\z", &["unix:1:foo;"]),
        (r"bar\s*$", &["dos:2:foo; bar"]),
    ] {
        assert_eq!(lines(&grep(dir.path(), pattern)), expected, "{pattern}");
    }
}

#[test]
fn files_that_are_not_text_are_skipped_whole() {
    let dir = tree("//- text\nneedle\n");
    fs::write(dir.path().join("early"), b"\0needle\n").unwrap();
    fs::write(
        dir.path().join("late"),
        [b"needle\n".repeat(20_000), vec![0]].concat(),
    )
    .unwrap();
    fs::write(
        dir.path().join("huge"),
        [b"needle\n".repeat(200_000), vec![0]].concat(),
    )
    .unwrap();
    let found = grep(dir.path(), "needle");
    assert_eq!(lines(&found), ["text:1:needle"]);
    assert_eq!((found.total_hits, found.files_searched), (1, 1));
    assert_eq!(
        found.skipped,
        SkippedCounts {
            binary: 3,
            ..SkippedCounts::default()
        }
    );
}

#[test]
fn other_encodings_with_a_mark_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let text = "über\nneedle ☃\n";
    let utf16 = |order: fn(u16) -> [u8; 2]| -> Vec<u8> {
        std::iter::once(0xfeff)
            .chain(text.encode_utf16())
            .flat_map(order)
            .collect()
    };
    fs::write(dir.path().join("be"), utf16(u16::to_be_bytes)).unwrap();
    fs::write(dir.path().join("le"), utf16(u16::to_le_bytes)).unwrap();
    fs::write(dir.path().join("utf8"), format!("\u{feff}{text}")).unwrap();
    fs::write(dir.path().join("odd"), b"needle \xff\n").unwrap();
    let found = grep(dir.path(), "needle");
    assert_eq!(
        lines(&found),
        [
            "be:2:needle ☃",
            "le:2:needle ☃",
            "odd:1:needle \u{fffd}",
            "utf8:2:needle ☃"
        ]
    );
    assert_eq!(grep(dir.path(), "^über").total_hits, 3);
}

#[test]
fn long_lines_are_clipped_and_endless_ones_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let long = format!("{}needle{}\n", "a".repeat(1_000_000), "b".repeat(2_000_000));
    fs::write(dir.path().join("long"), long).unwrap();
    fs::write(dir.path().join("endless"), "needle".repeat(4_000_000)).unwrap();
    let found = grep(dir.path(), "needle");
    assert_eq!((found.total_hits, found.skipped.too_large), (1, 1));
    let snippet = &found.hits[0].snippet;
    assert!(
        snippet.starts_with("[999488 bytes+] aaa") && snippet.ends_with("bbb [+1996422 bytes]"),
        "{snippet}"
    );
    assert!(snippet.contains("needle") && snippet.len() < 4200);
}

#[test]
fn files_above_the_limit_are_skipped() {
    let dir = tree("//- large\nneedle needle\n//- small\nneedle\n");
    let options = ContentOptions {
        max_file_size: 10,
        ..ContentOptions::default()
    };
    let found = grep_with(dir.path(), "needle", &WalkOptions::default(), &options);
    assert_eq!(lines(&found), ["small:1:needle"]);
    assert_eq!(found.skipped.too_large, 1);
}

#[test]
fn a_single_file() {
    let dir = tree("//- .hidden\none\ntwo\n");
    let file = open(dir.path().join(".hidden"));
    let search = |file: &fs::File| {
        search_content_of_file(
            file,
            b"x/.hidden",
            &regex("t.o"),
            &with_context(1),
            &CancelToken::default(),
        )
    };
    // Twice, since reading must not depend on the position that the descriptor shares with its duplicates.
    for _ in 0..2 {
        let found = search(&file).unwrap();
        assert_eq!(lines(&found), ["x/.hidden:2:one\ntwo"]);
        assert_eq!((found.files_searched, found.complete), (1, true));
    }
    fs::write(dir.path().join(".hidden"), b"two\0").unwrap();
    assert_eq!(search(&file).unwrap().skipped.binary, 1);
    assert!(search(&open(dir.path())).is_err());
}

/// A tree with hits of many sizes in many files.
fn varied() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for index in 0_usize..300 {
        let path = dir
            .path()
            .join(format!("{}/{}/{index}.txt", index % 7, index % 3));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let text: String = (0..index % 23)
            .map(|line| match (index + line) % 3 {
                0 => format!("needle {}\n", "x".repeat((index * line) % 90)),
                _ => format!("hay {line}\n"),
            })
            .collect();
        fs::write(path, text).unwrap();
    }
    dir
}

#[test]
fn the_answer_does_not_depend_on_the_threads() {
    let dir = varied();
    let run = |threads, max_hits, max_bytes| {
        let walk = WalkOptions {
            threads,
            ..WalkOptions::default()
        };
        let options = ContentOptions {
            max_hits,
            max_bytes,
            ..with_context(1)
        };
        grep_with(dir.path(), "needle", &walk, &options)
    };
    let all = run(1, usize::MAX, usize::MAX);
    assert!(
        all.hits
            .is_sorted_by_key(|hit| (hit.path.clone(), hit.line))
    );
    assert_eq!(all.hits.len() as u64, all.total_hits);
    for (max_hits, max_bytes) in [
        (0, 1000),
        (1, 1 << 20),
        (50, 1 << 20),
        (10_000, 3000),
        (200, 20_000),
        (10_000, 0),
    ] {
        let mut limits = max_bytes;
        let expected: Vec<_> = all
            .hits
            .iter()
            .take(max_hits)
            .take_while(|hit| {
                let size = hit.snippet.len() + hit.path.len();
                let fits = size <= limits;
                limits = limits.saturating_sub(size);
                fits
            })
            .cloned()
            .collect();
        for round in 0..24 {
            let found = run(1 + round % 8, max_hits, max_bytes);
            assert_eq!(found.hits, expected, "{max_hits} hits, {max_bytes} bytes");
            assert_eq!(
                (found.total_hits, found.files_matched, found.files_searched),
                (all.total_hits, all.files_matched, all.files_searched)
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Small files are searched in one piece, large ones in many: both must agree with a search line by line.
    #[test]
    fn agrees_with_a_search_line_by_line(
        parts in proptest::collection::vec("[ab\r]{0,6}", 0..60),
        filler in prop_oneof![Just(0_usize), 20_000..60_000_usize],
        ended in any::<bool>(),
        context in 0..4_usize,
        pattern in prop_oneof![Just("ab"), Just("^a"), Just("b$"), Just("^$"), Just("a|b"), Just("(?-m)^a")],
    ) {
        let mut text = parts.join("\n");
        // Far more than fits into any buffer, in the middle of the text.
        let middle = text.find('\n').map_or(0, |at| at + 1);
        text.insert_str(middle, &"filler line\n".repeat(filler));
        if ended {
            text.push('\n');
        }
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("f"), &text).unwrap();
        let found = grep_with(dir.path(), pattern, &WalkOptions::default(), &with_context(context));

        let anchored = ::regex::RegexBuilder::new(pattern).multi_line(true).crlf(true).build().unwrap();
        let mut all: Vec<&str> = text.split('\n').collect();
        if text.ends_with('\n') || text.is_empty() {
            all.pop();
        }
        let trimmed = |line: &str| line.strip_suffix('\r').unwrap_or(line).to_owned();
        let expected: Vec<String> = all
            .iter()
            .enumerate()
            .filter(|(at, line)| {
                let ended = *at + 1 < all.len() || text.ends_with('\n');
                let whole = format!("{line}{}", if ended { "\n" } else { "" });
                anchored.find_iter(&whole).any(|found| found.start() <= line.len())
            })
            .map(|(at, _)| {
                let around = at.saturating_sub(context)..(at + context + 1).min(all.len());
                let snippet: Vec<String> = all[around].iter().map(|line| trimmed(line)).collect();
                format!("f:{}:{}", at + 1, snippet.join("\n"))
            })
            .collect();
        prop_assert_eq!(lines(&found), expected);
    }
}
