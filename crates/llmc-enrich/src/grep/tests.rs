use std::time::Duration;

use proptest::prelude::*;

use super::*;
use llmc_syntax::thread_cpu_time;

/// Searches a tree written as one text with `//- path` headers, as the host's search would.
fn search(pattern: &str, tree: &str) -> (Matches, HashMap<String, String>) {
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    let mut path = String::new();
    for line in tree.lines() {
        if let Some(header) = line.strip_prefix("//- ") {
            path = header.to_owned();
        } else {
            let file = files.entry(path.clone()).or_default();
            file.push_str(line);
            file.push('\n');
        }
    }
    let regex = regex::Regex::new(pattern).unwrap();
    let mut matches = Matches {
        pattern: pattern.to_owned(),
        files_searched: files.len() as u64,
        ..Matches::default()
    };
    for (path, text) in &files {
        let mut here = 0;
        for (at, line) in text.lines().enumerate() {
            if regex.is_match(line) {
                here += 1;
                matches.hits.push(FoundLine {
                    path: path.clone(),
                    line: at as u64 + 1,
                    text: line.to_owned(),
                });
            }
        }
        matches.files_matched += u64::from(here > 0);
    }
    matches.total = matches.hits.len() as u64;
    (matches, files.into_iter().collect())
}

fn patient() -> ParseBudget {
    ParseBudget::new(ParseBudget::MAX_BYTES, Duration::from_secs(60))
}

fn answer(pattern: &str, tree: &str, budget: usize) -> Condensed {
    let (matches, files) = search(pattern, tree);
    condense_within(&matches, |path| files.get(path).cloned(), budget, patient())
}

const TREE: &str = r#"//- app/main.rs
use pool::connect;
fn main() {
    let c = pool::connect("a");
    connect("b");
}
//- docs/guide.md
Call connect first, then connect again.
Never connect twice.
And connect once more; connect.
So connect.
And so connect.
//- src/pool.rs
//! How to connect.
pub struct Pool { connected: bool }
pub fn connect(url: &str) -> Pool {
    // fn connect is here
    reconnect(url)
}
#[cfg(test)]
mod tests {
    fn connect_twice() { super::connect("x"); }
}
//- tests/pool.rs
fn can_connect() { connect("x"); }
//- vendor/pg/lib.rs
pub fn connect() {}
//- web/client.py
class Client:
    @retry
    def connect(self):
        return connect(self.url)
"#;

#[test]
fn definitions_then_uses_then_tests_then_vendored() {
    let found = answer("connect", TREE, 2000);
    assert_eq!(
        found.body,
        r##"src/pool.rs:2: pub struct Pool { connected: bool }  # definition
src/pool.rs:3: pub fn connect(url: &str) -> Pool {  # definition
web/client.py:3: def connect(self):  # definition

app/main.rs
  1: use pool::connect;
  3: let c = pool::connect("a");
  4: connect("b");
src/pool.rs
  1: //! How to connect.
  4: // fn connect is here
  5: reconnect(url)
web/client.py:4: return connect(self.url)
docs/guide.md
  1: Call connect first, then connect again.
  2: Never connect twice.
  3: And connect once more; connect.
  4: So connect.
  5: And so connect.

src/pool.rs:9: fn connect_twice() { super::connect("x"); }  # definition
tests/pool.rs:1: fn can_connect() { connect("x"); }  # definition

vendor/pg/lib.rs:1: pub fn connect() {}
"##
    );
    assert_eq!(found.shown, 18);
    assert!(!found.truncated);
    assert_eq!(found.breadcrumbs, Vec::<String>::new());
    assert_eq!(found.hot_zone.as_deref(), Some("src/"));
}

#[test]
fn exact_names_come_before_longer_ones() {
    let tree = "//- a.rs\nfn take_all() {}\nfn take_some() {}\n//- b.rs\nfn take() {}\n";
    let found = answer("take", tree, 1000);
    // In both the match is part of a name; only where it is all of it, it is exact.
    assert!(
        found
            .body
            .starts_with("b.rs:1: fn take() {}  # definition\n"),
        "{}",
        found.body
    );
}

#[test]
fn the_pattern_may_hold_more_than_the_name() {
    for pattern in [
        "fn connect",
        r"connect\(",
        "^pub fn connect",
        "(?i)CONNECT",
        r"\bconnect\b",
    ] {
        let found = answer(pattern, TREE, 2000);
        assert!(
            found
                .body
                .contains("src/pool.rs:3: pub fn connect(url: &str) -> Pool {  # definition"),
            "{pattern}: {}",
            found.body
        );
        assert!(!found.body.contains("here  # definition"), "{pattern}");
    }
}

#[test]
fn a_noisy_file_does_not_drown_the_rest() {
    let mut tree = String::from("//- src/noisy.rs\n");
    tree.push_str(&"    log::emit(x);\n".repeat(800));
    for n in 0..6 {
        tree.push_str(&format!("//- src/quiet{n}.rs\n    log::emit(y);\n"));
    }
    tree.push_str("//- src/log.rs\npub fn emit(x: u8) {}\n");
    let found = answer("emit", &tree, 400);
    assert!(
        found
            .body
            .starts_with("src/log.rs:1: pub fn emit(x: u8) {}  # definition\n")
    );
    for n in 0..6 {
        assert!(
            found.body.contains(&format!("src/quiet{n}.rs:1:")),
            "{}",
            found.body
        );
    }
    assert_eq!(found.hot_zone.as_deref(), Some("src/noisy.rs"));
    let more = 807 - found.shown;
    assert!(
        found
            .body
            .contains(&format!("… {more} more in src/noisy.rs\n")),
        "{}",
        found.body
    );
    assert_eq!(
        found.breadcrumbs,
        [format!("{more} more in the files above")]
    );
    // The more budget, the more of each file.
    let roomy = answer("emit", &tree, 2000);
    assert!(roomy.shown > 3 * found.shown);
}

#[test]
fn what_is_left_out_is_placed() {
    let mut tree = String::new();
    for n in 0..40 {
        tree.push_str(&format!("//- tools/rag/part{n:02}.py\n"));
        tree.push_str(&"    call(database)\n".repeat(10));
    }
    tree.push_str("//- zeta/one.py\n    call(database)\n");
    let (mut matches, files) = search("database", &tree);
    matches.total += 99;
    matches.skipped = vec![(29, "ignored"), (0, "hidden"), (2, "binary")];
    let found = condense_within(&matches, |path| files.get(path).cloned(), 500, patient());
    assert!(found.truncated);
    assert_eq!(found.hot_zone.as_deref(), Some("tools/rag/"));
    let said = &found.breadcrumbs[0];
    assert!(
        said.contains(" in tools/rag/, ") && said.contains(" elsewhere, "),
        "{said}"
    );
    let at_hand = " beyond the first 401";
    assert!(said.ends_with(at_hand), "{said}");
    let placed = said.trim_end_matches(at_hand);
    assert_eq!(numbers(placed) + found.shown, 500, "{said}");
    assert_eq!(
        found.breadcrumbs[1],
        "41 files searched, 31 skipped: 29 ignored, 2 binary"
    );
}

/// The sum of the counts in a remark, which stand at the start of each of its parts.
fn numbers(remark: &str) -> u64 {
    remark
        .split(", ")
        .filter_map(|part| part.split(' ').next()?.parse::<u64>().ok())
        .sum()
}

#[test]
fn nothing_found_says_what_was_searched() {
    let matches = Matches {
        files_searched: 412,
        skipped: vec![(29, "ignored"), (2, "binary")],
        pattern: r"foo\|bar".into(),
        ..Matches::default()
    };
    let found = condense(&matches, |_| None, 1000);
    assert_eq!(
        found.breadcrumbs,
        [
            "0 matches; 412 files searched, 31 skipped: 29 ignored, 2 binary",
            r"\| is a literal bar; alternatives are written a|b",
        ]
    );
    assert_eq!((found.shown, found.truncated), (0, false));
    assert_eq!(found.totals.matches, Some(0));
}

#[test]
fn files_that_say_they_are_generated_come_last() {
    let tree = "//- a/api.go\n// Code generated by x. DO NOT EDIT.\npackage api\nfunc Take() {}\n\
                //- b/use.go\nfunc run() { Take() }\n";
    let found = answer("Take", tree, 1000);
    assert_eq!(
        found.body,
        "b/use.go:1: func run() { Take() }\n\na/api.go:3: func Take() {}\n"
    );
}

#[test]
fn only_likely_files_are_read() {
    let (matches, files) = search("connect", TREE);
    let mut read = Vec::new();
    condense_within(
        &matches,
        |path| {
            read.push(path.to_owned());
            files.get(path).cloned()
        },
        2000,
        patient(),
    );
    assert_eq!(read, ["src/pool.rs", "web/client.py", "tests/pool.rs"]);
}

#[test]
#[ignore = "a measurement: cargo test --release -p llmc-enrich -- --ignored --nocapture"]
fn cost_of_a_thousand_hits() {
    let mut tree = String::new();
    for n in 0..200 {
        tree.push_str(&format!("//- src/part{n:03}/store.rs\n"));
        for k in 0..60 {
            tree.push_str(&format!(
                "/// Part {k}.\npub fn part_{k}(map: &BTreeMap<String, Vec<u8>>, key: &str) -> Option<u8> {{\n    \
                 let found = map.get(key)?;\n    found.iter().copied().filter(|byte| *byte > {k}).max()\n}}\n"
            ));
        }
        tree.push_str("pub fn lookup(key: &str) {}\n");
        tree.push_str(&"    self.seldom(1);\n".repeat(5));
        for _ in 0..4 {
            tree.push_str("fn run() { let x = lookup(\"a\"); }\n");
        }
    }
    tree.push_str("//- src/seldom.rs\npub fn seldom() {}\n");
    for pattern in ["seldom", "lookup", "part_7", "fn "] {
        let (mut matches, files) = search(pattern, &tree);
        matches
            .hits
            .drain(..matches.hits.len().saturating_sub(1000));
        for budget in [1000, 4000, 16_000] {
            let start = thread_cpu_time();
            let found = condense(&matches, |path| files.get(path).cloned(), budget);
            println!(
                "{pattern:8} {} hits, {} KB, budget {budget}: {:?}, {} shown",
                matches.hits.len(),
                tree.len() / 1000,
                thread_cpu_time() - start,
                found.shown
            );
        }
    }
}

fn any_matches() -> impl Strategy<Value = Matches> {
    let path = prop_oneof![
        "[a-c]{1,2}/[a-c]{1,2}\\.(rs|py|md|js)",
        "(tests|vendor|src)/[a-b]\\.rs",
        "[\\PC&&[^,]]{0,12}",
    ];
    let text = prop_oneof![
        "[ \t]{0,4}(fn|def|let|class) [a-d]{1,3}\\(x\\) \\{",
        "\\PC{0,40}",
        "[a-z ]{300,900}",
    ];
    let hit = (path, 0..40_u64, text).prop_map(|(path, line, text)| FoundLine { path, line, text });
    (
        prop::collection::vec(hit, 0..60),
        0..2000_u64,
        prop_oneof![Just("a".to_owned()), Just("fn".to_owned()), "\\PC{0,6}"],
    )
        .prop_map(|(hits, more, pattern)| Matches {
            total: hits.len() as u64 + more,
            files_matched: 3,
            files_searched: 9,
            skipped: vec![(more, "ignored")],
            counts: Vec::new(),
            pattern,
            hits,
        })
}

#[test]
fn matches_beyond_those_at_hand_are_counted_where_they_are() {
    let hits: Vec<FoundLine> = (1..=1000)
        .map(|line| FoundLine {
            path: "big.txt".to_owned(),
            line,
            text: format!("needle {line}"),
        })
        .collect();
    let matches = Matches {
        total: 3000,
        files_matched: 1,
        counts: vec![("big.txt".to_owned(), 3000)],
        pattern: "needle".to_owned(),
        hits,
        ..Matches::default()
    };
    let found = condense(&matches, |_| None, 200);
    let more = 3000 - found.shown;
    assert!(
        found.body.ends_with(&format!("… {more} more in big.txt\n")),
        "{}",
        found.body
    );
    assert_eq!(
        found.breadcrumbs,
        [format!("{more} more in the files above")]
    );
    // Where nothing is known of the files, nothing is said about them.
    let unknown = Matches {
        counts: Vec::new(),
        ..matches
    };
    let found = condense(&unknown, |_| None, 200);
    let above = 1000 - found.shown;
    let said = format!("{above} more in the files above, 2000 beyond the first 1000");
    assert_eq!(found.breadcrumbs, [said]);
}

proptest! {
    #[test]
    fn accounts_for_everything_within_the_budget(
        matches in any_matches(),
        budget in 150..3000_usize,
        source in prop_oneof!["fn a\\(\\) \\{\\}\n", "\\PC{0,200}"],
    ) {
        let found = condense(&matches, |_| Some(source.clone()), budget);
        let lines = found.body.lines();
        let notes: u64 = lines
            .filter_map(|line| line.strip_prefix("… ")?.split_once(" more in ")?.0.parse::<u64>().ok())
            .sum();
        let tokens = count(&found.body);
        prop_assert!(tokens <= budget, "{tokens} tokens");
        prop_assert_eq!(found.totals.matches, Some(matches.total));
        let clipped = found.breadcrumbs.iter().any(|crumb| crumb.ends_with(" clipped"));
        prop_assert_eq!(found.truncated, found.shown < matches.total || clipped);
        if found.shown < matches.total {
            prop_assert_eq!(found.shown + numbers(&found.breadcrumbs[0]), matches.total, "{:?}", found);
        }
        prop_assert!(notes <= matches.total - found.shown);
    }
}
