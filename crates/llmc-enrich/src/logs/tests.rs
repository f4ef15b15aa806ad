//! Log lines in the forms of the programs named beside them; a real logger (Python's) writes one of them here.

use std::process::Command;

use llmc_tokens::count;
use proptest::prelude::*;

use super::*;

#[test]
fn levels_are_found_in_common_forms() {
    use LogLevel::*;
    for (line, want) in [
        (
            "2025-01-02 12:00:00,123 - app.db - ERROR - lost",
            Some(Error),
        ),
        ("WARNING:root:careful", Some(Warn)),
        (
            "2025-01-02T12:00:00.123456Z  INFO app::server: listening",
            Some(Info),
        ),
        (
            "2025-01-02T12:00:00Z DEBUG ERROR in the message",
            Some(Debug),
        ),
        (
            "{\"time\":1,\"level\":\"error\",\"msg\":\"x\"}",
            Some(Error),
        ),
        ("{\"level\":50,\"msg\":\"pino\"}", Some(Error)),
        ("{\"severity\": \"WARNING\"}", Some(Warn)),
        ("{\"msg\":\"no level, ERROR only in the text\"}", None),
        ("time=2025-01-02T12:00:00Z level=warn msg=\"x\"", Some(Warn)),
        (
            "E0102 15:04:05.678901       1 main.go:12] klog",
            Some(Error),
        ),
        ("<11>Jan  2 12:00:00 host app: syslog", Some(Error)),
        ("Jan  2 12:00:00 host sshd[12]: error: no key", Some(Error)),
        ("Jan  2 12:00:00 host kernel: hello", None),
        (
            "2025/01/02 12:00:00 [error] 12#0: *1 open() failed",
            Some(Error),
        ),
        (
            "[Thu Jan 02 12:00:00 2025] [core:notice] [pid 1] apache",
            None,
        ),
        (
            "1.2.3.4 - - [02/Jan/2025:12:00:00 +0000] \"GET / HTTP/1.1\" 503 12 \"-\" \"ERROR\"",
            Some(ServerError),
        ),
        (
            "1.2.3.4 - - [02/Jan/2025:12:00:00 +0000] \"GET / HTTP/1.1\" 404 12",
            Some(ClientError),
        ),
        (
            "12:00:00.000 [main] WARN  com.example.App - java",
            Some(Warn),
        ),
        ("CRITICAL disk", Some(Fatal)),
        ("an error occurred", None),
        ("MY_ERROR_CODE and ERROR_LIST", None),
        ("", None),
    ] {
        assert_eq!(LogLevel::of(line), want, "{line}");
    }
}

fn long_log() -> String {
    let mut log = String::new();
    for i in 0..600 {
        log.push_str(&format!(
            "2025-01-02T12:{:02}:{:02}Z  INFO app::http: request {i} from 10.0.0.{} took {}ms\n",
            i / 60,
            i % 60,
            i % 250,
            i * 7 % 90
        ));
        if i % 50 == 7 {
            log.push_str(&format!(
                "2025-01-02T12:{:02}:{:02}Z ERROR app::db: connection {i} reset by 10.0.0.{}\n",
                i / 60,
                i % 60,
                i % 9
            ));
            log.push_str("  at app::db::connect\n  at app::main\n");
        }
        if i % 100 == 3 {
            log.push_str(&format!(
                "2025-01-02T12:{:02}:{:02}Z  WARN app::pool: slow pool {i}\n",
                i / 60,
                i % 60
            ));
        }
    }
    log.push_str("2025-01-02T13:00:00Z ERROR app: shutting down: disk full\n");
    log
}

#[test]
fn counts_errors_repeats_and_ends() {
    let log = long_log();
    let condensed = condense(&log, 500);
    let body = &condensed.body;
    assert!(
        body.starts_with(
            "643 lines: 13 ERROR, 6 WARN, 600 INFO, 24 without level\nerrors (13 lines, 2 kinds):\n"
        ),
        "{body}"
    );
    assert!(body.contains("10 ×12 to 598: "), "{body}");
    assert!(
        body.contains("connection 7 reset by 10.0.0.7\n  at app::db::connect\n  at app::main\n"),
        "{body}"
    );
    assert!(body.contains("643: 2025-01-02T13:00:00Z ERROR app: shutting down: disk full\n"));
    assert!(
        body.contains("×600 INFO app::http: request <n> from <ip> took <n>ms\n"),
        "{body}"
    );
    assert!(body.contains("×6 WARN app::pool: slow pool <n>\n"));
    assert!(body.contains("first lines:\n2025-01-02T12:00:00Z  INFO app::http: request 0 "));
    assert!(body.ends_with("shutting down: disk full\n"));
    assert_eq!(condensed.totals.lines, Some(643));
    assert!(
        count(body)
            + condensed
                .breadcrumbs
                .iter()
                .map(|c| count(c) + 5)
                .sum::<usize>()
            <= 500
    );
}

#[test]
fn a_short_log_is_untouched() {
    let log = "2025-01-02 12:00:00 ERROR x\n";
    let condensed = condense(log, 100);
    assert_eq!((condensed.body.as_str(), condensed.truncated), (log, false));
}

#[test]
fn the_unread_middle_is_reported() {
    let log = long_log();
    let text = TextEnds {
        head: &log[..log
            .find("request 100 ")
            .and_then(|at| log[..at].rfind('\n'))
            .expect("a line")
            + 1],
        tail: None,
        total_lines: 643,
        total_bytes: log.len() as u64,
        survey: None,
    };
    let tail = &log[log
        .find("request 500 ")
        .and_then(|at| log[..at].rfind('\n'))
        .expect("a line")
        + 1..];
    let condensed = condense_ends(&text, tail, 400);
    assert!(
        condensed.breadcrumbs[0].ends_with(" lines between head and tail were not read"),
        "{:?}",
        condensed.breadcrumbs
    );
    assert!(
        condensed
            .body
            .contains("643: 2025-01-02T13:00:00Z ERROR app: shutting down"),
        "{}",
        condensed.body
    );
    assert_eq!(
        (condensed.totals.lines, condensed.totals.size),
        (Some(643), Some(log.len() as u64))
    );
}

/// A log's ends of a few lines each, and what was found in pieces of this size.
fn streamed(log: &[u8], size: usize) -> (LogSurvey, String, String) {
    let mut survey = LogSurvey::default();
    log.chunks(size).for_each(|part| survey.feed(part));
    survey.finish();
    let lines: Vec<_> = log.split_inclusive(|byte| *byte == b'\n').collect();
    let text = |lines: &[&[u8]]| String::from_utf8_lossy(&lines.concat()).into_owned();
    (
        survey,
        text(&lines[..5]),
        text(&lines[lines.len() - 5..lines.len()]),
    )
}

fn condense_stream(log: &[u8], size: usize, budget: usize) -> Condensed {
    let (survey, head, tail) = streamed(log, size);
    let text = TextEnds {
        head: &head,
        tail: Some(&tail),
        total_lines: log.split_inclusive(|byte| *byte == b'\n').count() as u64,
        total_bytes: log.len() as u64,
        survey: Some(&survey),
    };
    condense_ends(&text, &tail, budget)
}

#[test]
fn a_streamed_log_condenses_like_one_in_memory() {
    let mut log = long_log().into_bytes();
    log.extend_from_slice(b"2025-01-02T13:00:01Z \x1b[31mERROR\x1b[0m app: odd byte \xff\r\n");
    log.extend_from_slice(b"  at app::main\n");
    log.extend_from_slice(b"2025-01-02T13:00:02Z ERROR app: no line end");
    let whole = condense(&String::from_utf8_lossy(&log), 600);
    let summary = |body: &str| body.split("first lines:").next().map(str::to_owned);
    for size in [1, 7, 4096, log.len()] {
        let found = condense_stream(&log, size, 600);
        assert!(
            found
                .body
                .starts_with("646 lines: 15 ERROR, 6 WARN, 600 INFO, 25 without level\n"),
            "{}",
            found.body
        );
        assert_eq!(
            summary(&found.body),
            summary(&whole.body),
            "pieces of {size}"
        );
    }
}

#[test]
fn one_error_in_the_middle_of_a_long_log_is_counted_and_shown() {
    let line = |n: u32| match n {
        4001 => "10:00:00 ERROR db: the only one\n".to_owned(),
        n => format!("10:00:00 INFO request {n} served\n"),
    };
    let log: String = (1..=6000).map(line).collect();
    let found = condense_stream(log.as_bytes(), 1000, 300);
    assert!(
        found.body.starts_with(
            "6,000 lines: 1 ERROR, 5,999 INFO\nerrors (1 line, 1 kind):\n4,001: 10:00:00 ERROR db: the only one\n"
        ),
        "{}",
        found.body
    );
    assert_eq!(found.breadcrumbs.len(), 1, "{:?}", found.breadcrumbs);
}

#[test]
fn the_last_error_is_shown_where_its_kind_finds_no_room() {
    let log: String = (0..400_u32)
        .map(|n| {
            let name: String = format!("{n:05}")
                .bytes()
                .map(|digit| char::from(digit + 49))
                .collect();
            format!("10:00:00 ERROR unit {name} failed\n10:00:00 INFO next\n")
        })
        .collect();
    let found = condense(&log, 300);
    assert!(
        found.body.contains("errors (400 lines, 400 kinds):\n1: "),
        "{}",
        found.body
    );
    assert!(
        found
            .body
            .contains("\nlast 799: 10:00:00 ERROR unit aadjj failed\n"),
        "{}",
        found.body
    );
}

#[test]
fn errors_are_not_crowded_out_by_lines_of_many_kinds() {
    let mut survey = LogSurvey::default();
    let name = |mut n: u32| {
        let mut name = String::new();
        while n > 0 {
            name.push(char::from(b'a' + (n % 26) as u8));
            n /= 26;
        }
        name
    };
    for n in 0..60_000 {
        survey.read(&format!("INFO z{}\n", name(n)));
    }
    survey.read("ERROR late\n");
    let shown = survey.kinds.iter().find(|kind| kind.is_error());
    assert_eq!(
        shown.map(|kind| (kind.first, kind.line.as_str())),
        Some((60_001, "ERROR late"))
    );
}

#[test]
fn beyond_the_limit_it_is_said_how_much_was_read() {
    // A line of 64 bytes; the limit is 1 MiB in tests.
    let line = |n: u32| match n {
        20_000 => format!("{:<63}\n", "10:00:00 ERROR where nobody looked"),
        29_999 => format!("{:<63}\n", "10:00:00 ERROR near the end"),
        n => format!("{:<63}\n", format!("10:00:00 INFO request {n}")),
    };
    let log: String = (1..=30_000).map(line).collect();
    let found = condense_stream(log.as_bytes(), 5000, 300);
    let read = (1 << 20) / 64 + 5;
    assert!(
        found.body.starts_with(&format!(
            "30,000 lines, only {} of them read: 1 ERROR, {} INFO\n",
            thousands(read),
            thousands(read - 1)
        )),
        "{}",
        found.body
    );
    assert!(
        found.body.contains("\n29,999: 10:00:00 ERROR near the end"),
        "{}",
        found.body
    );
    assert_eq!(
        found.breadcrumbs[0],
        format!(
            "{} lines between head and tail were not read",
            thousands(30_000 - read)
        )
    );
}

#[test]
fn a_line_longer_than_any_buffer_is_one_line() {
    let log = format!("10:00:00 ERROR {}\n10:00:01 INFO x\n", "y".repeat(300_000));
    let mut survey = LogSurvey::default();
    log.as_bytes()
        .chunks(1000)
        .for_each(|part| survey.feed(part));
    survey.finish();
    assert_eq!((survey.lines, survey.errors), (2, 1));
    let shown = &survey.kinds[0].line;
    assert!(shown.ends_with("yy…[+299615 bytes]"), "{shown}");
}

#[test]
fn a_python_traceback_stays_with_its_error() {
    let script = "
import logging
logging.basicConfig(level=logging.INFO, format='%(asctime)s %(levelname)s %(name)s: %(message)s')
for i in range(200):
    logging.info('step %d of many, nothing to see here', i)
    if i == 120:
        try:
            {}['missing']
        except KeyError:
            logging.exception('lookup failed')
";
    let out = Command::new("python3")
        .args(["-c", script])
        .output()
        .expect("python3 runs");
    let log = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(looks_like_log(&log));
    let condensed = condense(&log, 300);
    assert!(
        condensed.body.contains("errors (1 line, 1 kind):\n"),
        "{}",
        condensed.body
    );
    let at = condensed
        .body
        .find("ERROR root: lookup failed\nTraceback (most recent call last):\n");
    assert!(
        at.is_some() && condensed.body.contains("KeyError: 'missing'\n"),
        "{}",
        condensed.body
    );
}

#[test]
fn code_and_prose_are_no_logs() {
    let code = "fn main() {\n    let error = 1;\n}\n".repeat(20);
    let prose = "An error is a thing that happens.\nAt noon, mostly.\n".repeat(20);
    assert!(!looks_like_log(&code) && !looks_like_log(&prose));
    assert!(looks_like_log(&long_log()));
}

#[test]
fn what_stands_out_of_a_log_that_repeats_itself_is_shown() {
    let line = |n: usize| match n {
        700 => "Nov 15 10:00:00 host app[1]: took the spare disk into service\n".to_owned(),
        900 => "Nov 15 10:00:00 host app[1]: WARN clock jumped back\n".to_owned(),
        1200 => {
            "Nov 15 10:00:00 host kernel: Out of memory: Killed process 4711 (app)\n".to_owned()
        }
        n => format!("Nov 15 10:00:00 host app[{n}]: session {n} opened\n"),
    };
    let text: String = (0..2000).map(line).collect();
    let found = condense(&text, 500);
    for part in [
        "1 ERROR",
        "1,201: Nov 15 10:00:00 host kernel: Out of memory: Killed process 4711 (app)\n",
        "rare:\n901: Nov 15 10:00:00 host app[1]: WARN clock jumped back\n701: Nov 15 10:00:00 host app[1]: took the spare",
    ] {
        assert!(found.body.contains(part), "{part:?} in {}", found.body);
    }
    // Where no line is like another, none stands out.
    let prose: String = (0..400u32)
        .map(|n| {
            format!(
                "10:00:00 {}\n",
                "abcdefghijklmnopqrstuvwxyz"
                    .repeat(2)
                    .get(n as usize % 25..n as usize % 25 + 1 + n as usize / 25)
                    .unwrap_or("z")
            )
        })
        .collect();
    assert!(!condense(&prose, 200).body.contains("rare:"));
}

/// Error lines in shown kinds, and those that a breadcrumb counts.
fn account(condensed: &Condensed) -> u64 {
    let mut sum = 0;
    let mut inside = false;
    for line in condensed.body.lines() {
        if line.starts_with("errors (") {
            inside = true;
        } else if ["rare:", "repeated:", "first lines:", "last lines:"].contains(&line) {
            inside = false;
        } else if inside && line.starts_with(|c: char| c.is_ascii_digit()) {
            let (head, _) = line.split_once(": ").expect("a number");
            let times = head
                .split_once('×')
                .map(|(_, rest)| rest.split(' ').next().expect("a count").replace(',', ""));
            sum += times.map_or(1, |times| times.parse::<u64>().expect("a number"));
        }
    }
    let more = condensed.breadcrumbs.iter().find_map(|crumb| {
        let (count, _) = crumb.split_once(" more error line")?;
        count.replace(',', "").parse::<u64>().ok()
    });
    sum + more.unwrap_or(0)
}

proptest! {
    #[test]
    fn every_error_line_is_shown_or_counted(kinds in prop::collection::vec(0usize..30, 30..150), budget in 0usize..700) {
        let mut log = String::new();
        for (i, kind) in kinds.iter().enumerate() {
            let level = if *kind < 20 { "ERROR" } else { "INFO" };
            let word = ["alpha", "beta", "gamma", "delta", "eps"][kind % 5];
            log.push_str(&format!("{level} {}{word} happened {i} times\n", "x".repeat(kind / 5)));
        }
        let condensed = condense(&log, budget);
        if condensed.truncated {
            let errors = kinds.iter().filter(|kind| **kind < 20).count() as u64;
            prop_assert_eq!(account(&condensed), errors, "{}\n{:?}", condensed.body, condensed.breadcrumbs);
            let crumbs: usize = condensed.breadcrumbs.iter().map(|c| count(c) + 5).sum();
            prop_assert!(count(&condensed.body) + crumbs <= budget.max(110));
        }
    }

    #[test]
    fn any_text_is_read_without_panic(text in "((ERROR|<3>|E0102 |\\{\"level\":|level=|\" 500| HTTP/1\\.1|\t|é|\r|[0-9]+)?\\PC{0,16}\n?){0,30}", budget in 0usize..200) {
        let condensed = condense(&text, budget);
        prop_assert!(condensed.shown <= condensed.totals.lines.unwrap_or(0));
        let ends = TextEnds { head: &text, tail: None, total_lines: 5, total_bytes: 9, survey: None };
        condense_ends(&ends, &text, budget);
        looks_like_log(&text);
    }
}
