use proptest::prelude::*;

use super::*;
use crate::sniff::sniff;

fn whole(text: &str) -> TextEnds<'_> {
    TextEnds {
        head: text,
        tail: None,
        total_bytes: text.len() as u64,
        total_lines: text.lines().count() as u64,
        survey: None,
    }
}

#[track_caller]
fn preview_of(path: &str, text: &str, budget: usize) -> Condensed {
    let found = condense(
        path,
        sniff(path, text.as_bytes()),
        &whole(text),
        PreviewPart::Whole,
        budget,
    );
    let lines = text.lines().count() as u64;
    assert!(found.truncated);
    assert!(count(&found.body) <= budget, "{}", count(&found.body));
    let unshown = crate::budget::plural(lines - found.shown, "line");
    assert!(
        found.breadcrumbs[0].starts_with(&format!("{unshown} left out, ")),
        "{:?}",
        found.breadcrumbs
    );
    found
}

#[track_caller]
fn has(found: &Condensed, parts: &[&str]) {
    for part in parts {
        assert!(found.body.contains(part), "no {part:?} in:\n{}", found.body);
    }
}

#[test]
fn what_fits_is_untouched() {
    for text in ["", "one", "one\ntwo\n", "{\"a\":1}", "\r\n\r\n"] {
        let found = condense(
            "x",
            ContentKind::Text,
            &whole(text),
            PreviewPart::Whole,
            500,
        );
        assert_eq!(found.body, text);
        assert!(!found.truncated && found.breadcrumbs.is_empty());
        assert_eq!(found.shown, text.lines().count() as u64);
    }
}

#[test]
fn code_is_an_outline_and_the_head() {
    let mut source = String::from("use std::fmt;\n\npub struct Pool {\n    size: u8,\n}\n");
    for n in 0..90 {
        source.push_str(&format!(
            "\npub fn step_{n}(pool: &Pool) -> u8 {{\n    pool.size\n}}\n"
        ));
    }
    let found = preview_of("src/pool.rs", &source, 900);
    has(
        &found,
        &[
            "91 definitions:\n",
            "3  pub struct Pool\n",
            "7  pub fn step_0(pool: &Pool) -> u8\n",
            " of 365:\nuse std::fmt;\n",
        ],
    );
    assert!(
        found.breadcrumbs[1].ends_with(" more definitions"),
        "{:?}",
        found.breadcrumbs
    );
    assert!(found.shown > 10);
}

#[test]
fn json_is_a_shape_and_a_sample() {
    let items: Vec<_> = (0..300)
        .map(|n| match n % 3 {
            0 => format!("    {{\"id\": {n}, \"tags\": [\"a\", \"b\"], \"note\": null}}"),
            _ => format!("    {{\"id\": {n}, \"tags\": []}}"),
        })
        .collect();
    let text = format!(
        "{{\n  \"name\": \"x\",\n  \"items\": [\n{}\n  ]\n}}\n",
        items.join(",\n")
    );
    let found = preview_of("data.json", &text, 500);
    has(
        &found,
        &[
            "2 keys and 3 nested, object:\n",
            "  name: string\n",
            "  items: array of 300 objects\n",
            "    id: number\n",
            "    tags: 300 arrays of strings, 200 in all\n",
            "    note: null, in 100 of 300\n",
            "\"name\": \"x\"",
        ],
    );
}

#[test]
fn the_keys_at_the_top_of_json_are_shown_before_deeper_ones() {
    let inner: String = (0..20)
        .map(|n| format!("\"a_rather_long_name_{n}\": {{\"deep\": [{n}], \"deeper\": \"x\"}}, "))
        .collect();
    let item = format!("{{{inner}\"end\": 1}},\n");
    let text = format!(
        "{{\"items\": [{}null], \"resolve\": {{}}, \"root\": \"/\"}}",
        item.repeat(300)
    );
    has(
        &preview_of("a.json", &text, 600),
        &[
            "  items: array of 301",
            "  resolve: object\n",
            "  root: string\n",
        ],
    );
}

#[test]
fn json_cut_off_and_json_lines_have_a_shape_too() {
    let text = TextEnds {
        head: "{\"a\": {\"b\": [1, 2, {\"c\": \"d",
        tail: Some("\"}]}}\n"),
        total_bytes: 9_000_000,
        total_lines: 1,
        survey: None,
    };
    let found = condense("x.json", ContentKind::Json, &text, PreviewPart::Whole, 400);
    has(
        &found,
        &[
            "(of the beginning)\n",
            "  a: object\n",
            "    b: array of 2 objects and numbers\n",
        ],
    );
    assert_eq!((found.shown, found.truncated), (1, true));

    let lines = "{\"at\": 1, \"msg\": \"hello there\"}\n".repeat(400);
    let found = preview_of("x.jsonl", &lines, 400);
    has(
        &found,
        &[
            "2 keys, 400 documents:\n",
            "  at: number\n",
            "  msg: string\n",
        ],
    );
}

#[test]
fn json_keys_are_counted_by_kind() {
    let items = vec!["{\"k\": 1, \"v\": 2}"; 500].join(",\n");
    let text = format!("{{\"a\": [{items}], \"zlast\": 1}}\n");
    has(
        &preview_of("x.json", &text, 400),
        &["2 keys and 2 nested, object:\n"],
    );
    // Of a document that is cut off, what is left may hold more.
    let cut = TextEnds {
        tail: Some("1}\n"),
        ..whole(&text[..text.len() - 100])
    };
    let found = condense("x.json", ContentKind::Json, &cut, PreviewPart::Whole, 400);
    has(&found, &["at least 1 key and 2 nested, object:\n"]);
    // Those that are not listed one by one count too.
    let many: Vec<_> = (0..300).map(|n| format!("\"key_{n}\": \"{n}\"")).collect();
    let text = format!("{{{}}}\n", many.join(",\n"));
    has(
        &preview_of("x.json", &text, 600),
        &["300 keys, object:\n", "  … 276 more keys\n"],
    );
}

#[test]
fn the_length_of_a_line_that_is_cut_off_is_the_lines_own() {
    let (head, tail) = ("x".repeat(3000), "x".repeat(2500));
    let cut = |total_lines, head| TextEnds {
        head,
        tail: Some(&tail),
        total_bytes: 5_000_000,
        total_lines,
        survey: None,
    };
    let said = |text: &TextEnds<'_>, asked, says: &str| {
        let found = condense("x.txt", ContentKind::Text, text, asked, 320);
        assert!(
            found.body.contains(says),
            "{asked:?} {says}: {}",
            found.body
        );
        assert!(found.truncated);
    };
    for asked in [
        PreviewPart::Whole,
        PreviewPart::Head(1),
        PreviewPart::Tail(1),
    ] {
        said(&cut(1, &head), asked, "x… [5000000 bytes]");
        said(&whole(&head), asked, "x… [3000 bytes]");
    }
    said(
        &cut(2, &head),
        PreviewPart::Head(1),
        "x… [more than 3000 bytes]",
    );
    said(
        &cut(2, &head),
        PreviewPart::Tail(1),
        "x… [more than 2500 bytes]",
    );
    let ended = head.clone() + "\n";
    said(&cut(2, &ended), PreviewPart::Head(1), "x… [3000 bytes]");
}

#[test]
fn yaml_and_toml_are_keys() {
    let mut yaml = String::from(
        "# config\nname: app\nservices:\n  web:\n    image: x\n    ports:\n      - 80\n      - 81\n  db:\n    image: y\nsteps:\n- run: a\n  with: b\n- run: c\ntext: |\n  not: a key\n",
    );
    yaml.push_str(&"# filler line of words\n".repeat(200));
    let found = preview_of("a.yaml", &yaml, 400);
    has(
        &found,
        &[
            "2  name: string\n",
            "3  services: 2 keys\n",
            "4    web: 2 keys\n",
            "9    db: 1 key\n",
            "11  steps: list of 2\n",
            "15  text: block of text\n",
        ],
    );
    assert!(!found.body.contains("not: string"), "{}", found.body);

    let mut toml = String::from("edition = \"2024\"\ncount = 3\n\n[package]\nname = \"x\"\n");
    toml.push_str(&"\n[[bin]]\nname = \"y\"\npath = \"src/y.rs\"\n".repeat(120));
    toml.push_str("[profile.release]\nlto = true\n");
    let found = preview_of("a.toml", &toml, 400);
    has(
        &found,
        &[
            "1  edition = string\n",
            "2  count = number\n",
            "4  [package]\n",
            "7  [[bin]] 120 times\n",
            "486  [profile.release]\n",
        ],
    );
}

#[test]
fn csv_is_columns_and_rows() {
    let mut text = String::from("id,name,price,on,note\n");
    for n in 0..500 {
        text.push_str(&format!(
            "{n},\"a, b\",{n}.5,2026-01-02,{}\n",
            if n % 5 == 0 { "x" } else { "" }
        ));
    }
    let found = preview_of("a.csv", &text, 400);
    has(
        &found,
        &[
            "5 columns, 500 rows:\n",
            "  id: integer\n",
            "  name: text\n",
            "  price: number\n",
            "  on: date\n",
            "  note: text, 400 of 500 empty\n",
            "id,name,price,on,note\n0,",
        ],
    );
}

#[test]
fn a_log_is_levels_and_errors_and_both_ends() {
    let mut text = String::new();
    for n in 1..=900 {
        let level = match n {
            70 | 400 | 401 | 402 | 403 | 404 | 405 | 406 | 407 | 408 | 409 | 850 => "ERROR",
            n if n % 50 == 0 => "WARN",
            _ => "INFO",
        };
        text.push_str(&format!(
            "2026-01-02T03:04:05Z {level} step {n} of the error count\n"
        ));
    }
    // The condenser of logs does the work; here it is only seen to be asked.
    let found = condense(
        "run.log",
        ContentKind::Log,
        &whole(&text),
        PreviewPart::Whole,
        1200,
    );
    assert!(found.truncated && found.shown < 900);
    assert_eq!(found.totals.lines, Some(900));
    assert!(found.body.contains("ERROR step 70 "), "{}", found.body);
}

#[test]
fn markdown_is_headings_and_the_head() {
    let mut text = String::from("# Title\n\n```sh\n# no heading\n```\n## Part one\n");
    text.push_str(&"Words and words.\n".repeat(300));
    text.push_str("## Part two\n");
    let found = preview_of("a.md", &text, 300);
    has(
        &found,
        &["3 headings:\n1  # Title\n6  ## Part one\n307  ## Part two\n"],
    );
}

#[test]
fn some_lines_are_those_lines() {
    let text: String = (1..=100).map(|n| format!("line {n}\n")).collect();
    let head = condense(
        "x",
        ContentKind::Text,
        &whole(&text),
        PreviewPart::Head(3),
        500,
    );
    assert_eq!(head.body, "line 1\nline 2\nline 3\n");
    assert_eq!((head.shown, head.truncated), (3, false));
    assert_eq!(head.breadcrumbs, ["lines 1-3 of 100"]);
    let tail = condense(
        "x",
        ContentKind::Text,
        &whole(&text),
        PreviewPart::Tail(2),
        500,
    );
    assert_eq!(tail.body, "line 99\nline 100\n");
    assert_eq!(tail.breadcrumbs, ["lines 99-100 of 100"]);
    let all = condense(
        "x",
        ContentKind::Text,
        &whole(&text),
        PreviewPart::Tail(1000),
        5000,
    );
    assert_eq!(
        (all.body.as_str(), all.breadcrumbs.len()),
        (text.as_str(), 0)
    );
    let short = condense(
        "x",
        ContentKind::Text,
        &whole(&text),
        PreviewPart::Tail(90),
        200,
    );
    assert!(short.truncated && short.body.ends_with("line 100\n"));
    assert!(
        short.breadcrumbs[0].ends_with("asked for do not fit"),
        "{:?}",
        short.breadcrumbs
    );
}

#[test]
fn a_gigantic_line_is_clipped() {
    let text = "x".repeat(3_000_000);
    for asked in [
        PreviewPart::Whole,
        PreviewPart::Head(1),
        PreviewPart::Tail(1),
    ] {
        let found = condense("x.txt", ContentKind::Text, &whole(&text), asked, 300);
        assert!(
            found.body.contains("x… [3000000 bytes] …x"),
            "{asked:?}: {}",
            found.body
        );
        assert!(found.truncated && found.shown == 1);
    }
}

#[test]
fn binary_is_type_and_size() {
    let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x02\x80\0\0\x01\xe0";
    let found = condense_binary("a.png", png, 12_345);
    assert_eq!(found.body, "PNG image, 640x480, 12K (12345 bytes)\n");
    assert_eq!(found.totals.size, Some(12_345));
    assert_eq!(
        condense_binary("a.xyz", b"\x01\x02", 2).body,
        "binary data (.xyz), 2 bytes\n"
    );
    assert_eq!(condense_binary("", b"", 0).body, "binary data, 0 bytes\n");
}

const KINDS: [ContentKind; 8] = [
    ContentKind::Code,
    ContentKind::Json,
    ContentKind::Yaml,
    ContentKind::Toml,
    ContentKind::Csv,
    ContentKind::Log,
    ContentKind::Markdown,
    ContentKind::Text,
];

proptest! {
    #[test]
    fn accounts_for_everything_within_the_budget(
        text in prop_oneof![
            "(?s).{0,300}",
            "([ ]{0,4}[-{}\\[\\]\":,a-c#=|>0-9.\n]{0,12}){0,60}",
            "(2026-01-02 (ERROR|INFO|WARN) [a-z ]{0,60}\n){0,80}",
        ],
        cut in any::<bool>(),
        lines in 0..50_u64,
        budget in 150..900_usize,
        path in "[a-c]{1,3}\\.(rs|py|c|tsv|x)",
    ) {
        let middle = (0..=text.len() / 2).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        let given = match cut {
            true => TextEnds {
                head: &text[..middle],
                tail: Some(&text[middle..]),
                total_bytes: 1_000_000,
                total_lines: 10_000,
                survey: None,
            },
            false => whole(&text),
        };
        for kind in KINDS {
            for asked in [PreviewPart::Whole, PreviewPart::Head(lines), PreviewPart::Tail(lines)] {
                let found = condense(&path, kind, &given, asked, budget);
                prop_assert!(count(&found.body) <= budget, "{:?} {:?}: {}", kind, asked, found.body);
                prop_assert!(found.shown <= given.total_lines);
                prop_assert_eq!(found.totals.lines, Some(given.total_lines));
                if found.shown < given.total_lines && asked == PreviewPart::Whole {
                    prop_assert!(found.truncated);
                }
                // Logs account for what they leave out by kind, in their own words.
                if found.shown < given.total_lines && asked == PreviewPart::Whole && kind != ContentKind::Log {
                    let unshown = crate::budget::plural(given.total_lines - found.shown, "line");
                    let start = format!("{unshown} left out, ");
                    prop_assert!(found.breadcrumbs[0].starts_with(&start), "{:?}", found.breadcrumbs);
                }
            }
        }
    }

    #[test]
    fn binary_never_panics(path in "\\PC{0,12}", head in prop::collection::vec(any::<u8>(), 0..300)) {
        condense_binary(&path, &head, head.len() as u64);
    }
}
