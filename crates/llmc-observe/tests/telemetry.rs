//! The telemetry store as its users see it: across restarts, time and damage.
#![allow(
    clippy::disallowed_methods,
    reason = "tests look at files from outside"
)]
#![allow(clippy::unwrap_used)]

use std::fs;
use std::time::Duration;

use jiff::Timestamp;
use llmc_envelope::{Clock, HandleId};
use llmc_observe::{
    CallContent, CallEvent, CallFilter, CallQuery, CallReader, CallScope, CallTotals, ContentText,
    EnvelopeMode, GroupBy, Summary, Telemetry, TelemetryAnalysis, TelemetryFollower,
    TelemetryOptions,
};

const HOUR: Duration = Duration::from_secs(3600);

fn clock() -> Clock {
    Clock::manual(Timestamp::from_second(1_800_000_000).unwrap())
}

fn call(tool: &str, agent: &str, duration_ms: f64) -> CallEvent {
    CallEvent {
        source: "mcp".into(),
        tool: tool.into(),
        agent: agent.into(),
        mode: EnvelopeMode::Enriched,
        tokens_served: 10,
        tokens_withheld: 90,
        tokens_fetched_back: 5,
        duration_ms,
        ..CallEvent::default()
    }
}

fn in_memory() -> Telemetry {
    Telemetry::in_memory(TelemetryOptions::default()).unwrap()
}

fn all(telemetry: &Telemetry) -> Summary {
    telemetry.summary(&CallFilter::default()).unwrap()
}

fn analysis(telemetry: &Telemetry, by: GroupBy) -> serde_json::Value {
    let analysis = TelemetryAnalysis::of(telemetry, by, &CallFilter::default(), &[]).unwrap();
    serde_json::to_value(analysis).unwrap()
}

#[test]
fn a_call_comes_back_with_its_secrets_masked() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("te.db");
    let clock = clock();
    let options = TelemetryOptions {
        clock: clock.clone(),
        ..TelemetryOptions::default()
    };
    let telemetry = Telemetry::open(&path, options).unwrap();
    let full = CallEvent {
        session: "s1".into(),
        model: "m".into(),
        program: Some("curl".into()),
        bytes_in: 1,
        bytes_out: 2,
        tokens_in: 3,
        truncated: true,
        handle: HandleId::parse("res_01ARZ3NDEKTSV4RRFFQ69G5FAV"),
        error_code: Some("timeout".into()),
        args: Some(r#"{"argv":["curl","--token","abcdef"]}"#.into()),
        principal: "ann".into(),
        server: "12-a".into(),
        client: Some("editor 1.2".into()),
        correlation_id: "id".into(),
        path: Some("src/a.rs".into()),
        entry: Some("h12".into()),
        ..call("run", "a", 1.5)
    };
    telemetry.record(&full).unwrap();
    let mut follower = TelemetryFollower::new(&path, Timestamp::UNIX_EPOCH);
    assert_eq!(
        follower.next(5).unwrap(),
        [CallEvent {
            time: clock.now(),
            tool: "run curl".into(),
            program: None,
            args: Some(r#"{"argv":["curl","--token","***"]}"#.into()),
            seq: Some(1),
            ..full
        }]
    );
}

#[test]
fn long_arguments_are_shortened_after_masking() {
    let telemetry = in_memory();
    let args = format!("{} password={}", "é".repeat(900), "s3cret".repeat(1000));
    let late = format!(
        "-----BEGIN PRIVATE KEY-----{}-----END PRIVATE KEY----- AKIAIOSFODNN7EXAMPLE",
        "k".repeat(65_480)
    );
    for args in [args, late] {
        telemetry
            .record(&CallEvent {
                args: Some(args),
                ..call("x", "a", 1.0)
            })
            .unwrap();
    }
    let calls = analysis(&telemetry, GroupBy::Cmd)["slowest"].clone();
    for call in calls.as_array().unwrap() {
        let kept = call["args"].as_str().unwrap();
        assert!(kept.len() < 2100, "{kept}");
        for secret in ["s3cret", "kkkk", "AKIAI"] {
            assert!(!kept.contains(secret), "{kept}");
        }
    }
}

#[test]
fn calls_are_added_up() {
    let telemetry = in_memory();
    for n in 1..=100 {
        telemetry.record(&call("grep", "a", f64::from(n))).unwrap();
    }
    let failed = CallEvent {
        error_code: Some("not_found".into()),
        source: "cli".into(),
        session: "s".into(),
        ..call("cat", "b", 7.0)
    };
    telemetry.record(&failed).unwrap();
    let totals = all(&telemetry).totals;
    let sums = (totals.calls, totals.errors, totals.tokens.withheld);
    assert_eq!(sums, (101, 1, 9090));
    let by_cmd = analysis(&telemetry, GroupBy::Cmd);
    let groups = &by_cmd["groups"];
    assert_eq!(groups[0]["name"], "grep");
    assert_eq!(
        (&groups[0]["p50_ms"], &groups[0]["p95_ms"]),
        (&50.0.into(), &95.0.into())
    );
    assert_eq!(
        (&groups[1]["p50_ms"], &groups[1]["p95_ms"]),
        (&7.0.into(), &7.0.into())
    );
    assert_eq!(groups[1]["net_saved"], 85);
    assert_eq!(by_cmd["slowest"][0]["latency_ms"], 100.0);
    for (by, names) in [
        (GroupBy::Agent, ["a", "b"]),
        (GroupBy::Source, ["mcp", "cli"]),
        (GroupBy::Session, ["", "s"]),
    ] {
        let groups = &analysis(&telemetry, by)["groups"];
        assert_eq!([&groups[0]["name"], &groups[1]["name"]], names);
    }
    for (session, calls) in [("s", 1), ("x", 0)] {
        let only = CallFilter {
            session: Some(session.into()),
            ..CallFilter::default()
        };
        assert_eq!(telemetry.summary(&only).unwrap().totals.calls, calls);
    }
    assert_eq!(all(&in_memory()).totals, CallTotals::default());
}

#[test]
fn rows_leave_after_their_days() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state/te_telemetry.db");
    let clock = clock();
    let open = |retention_days| {
        Telemetry::open(
            &path,
            TelemetryOptions {
                retention_days,
                clock: clock.clone(),
                ..TelemetryOptions::default()
            },
        )
        .unwrap()
    };
    open(0).record(&call("old", "a", 1.0)).unwrap();
    clock.advance(48 * HOUR);
    let telemetry = open(3);
    telemetry.record(&call("new", "a", 1.0)).unwrap();
    assert_eq!(all(&telemetry).totals.calls, 2);
    clock.advance(25 * HOUR + Duration::from_secs(1));
    telemetry.record(&call("newer", "a", 1.0)).unwrap();
    let left: Vec<_> = (all(&telemetry).recent.into_iter())
        .map(|call| call.tool)
        .collect();
    assert_eq!(left, ["newer", "new"]);
    assert_eq!(all(&open(0)).totals.calls, 2);
    let since = CallFilter {
        since: Some(clock.now()),
        ..CallFilter::default()
    };
    assert_eq!(telemetry.summary(&since).unwrap().totals.calls, 1);
}

#[test]
fn a_ruined_file_is_started_anew() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("te_telemetry.db");
    fs::write(&path, "garbage ".repeat(1000)).unwrap();
    let telemetry = Telemetry::open(&path, TelemetryOptions::default()).unwrap();
    telemetry.record(&call("x", "a", 1.0)).unwrap();
    assert_eq!(all(&telemetry).totals.calls, 1);
    assert!(dir.path().join("te_telemetry.db.corrupt-1").exists());
}

fn content(args: &str, answer: &str) -> CallContent {
    let text = |text: &str| ContentText {
        text: text.to_owned(),
        is_cut: false,
    };
    CallContent {
        args: text(args),
        answer: text(answer),
    }
}

#[test]
fn contents_are_masked_cut_and_found() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("te.db");
    let telemetry = Telemetry::open(&path, TelemetryOptions::default()).unwrap();
    let long = "é".repeat(20_000);
    let texts = [
        (
            "{\"pattern\":\"one\"}",
            "the NEEDLE, token=abcdef0123456789",
        ),
        ("{}", long.as_str()),
    ];
    for (at, (args, answer)) in texts.iter().enumerate() {
        let call = CallEvent {
            principal: ["ann", "bob"][at].into(),
            ..call("te_grep", "a", 1.0)
        };
        let content = content(args, answer);
        telemetry.record_with(&call, Some(&content)).unwrap();
    }
    telemetry.record(&call("stat", "a", 1.0)).unwrap();
    let reader = CallReader::new(&path);
    let shown = |seq, scope| reader.show(seq, scope).unwrap();
    let first = shown(1, CallScope::All).unwrap().content.unwrap();
    assert_eq!(first[0], (texts[0].0.to_owned(), false));
    assert_eq!(first[1], ("the NEEDLE, token=***".to_owned(), false));
    let second = shown(2, CallScope::All).unwrap().content.unwrap();
    let (answer, is_cut) = &second[1];
    assert!(*is_cut && long.starts_with(answer.as_str()) && answer.len() == 16 << 10);
    assert!(shown(3, CallScope::All).unwrap().content.is_none());
    assert!(shown(4, CallScope::All).is_none());
    assert!(shown(1, CallScope::Principal("bob")).is_none(), "another's");
    let found = |text: &str, scope| -> Vec<i64> {
        let query = CallQuery {
            text: Some(text.to_owned()),
            limit: 10,
            ..CallQuery::default()
        };
        let page = reader.page(&query, scope).unwrap();
        page.calls.iter().filter_map(|call| call.seq).collect()
    };
    assert_eq!(found("needle", CallScope::All), [1]);
    assert_eq!(found("needle", CallScope::Principal("bob")), [0; 0]);
    assert_eq!(found("TE_GREP", CallScope::All), [2, 1]);
    assert_eq!(found("abcdef0123456789", CallScope::All), [0; 0], "masked");
    assert_eq!(found("%", CallScope::All), [0; 0], "no pattern");
}

#[test]
fn a_file_of_the_version_before_keeps_its_rows() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("te.db");
    let before = rusqlite::Connection::open(&path).unwrap();
    let schema = include_str!("telemetry-v1.sql");
    before.execute_batch(schema).unwrap();
    before
        .execute_batch(
            "INSERT INTO calls VALUES (7, 1800000000000, 'mcp', 'a', 's', 'm', 'grep', 'enriched', 1, 2, 3, 4, 5, 6, 1.5, 0, \
             NULL, NULL, '{}'); PRAGMA user_version = 1;",
        )
        .unwrap();
    drop(before);
    let telemetry = Telemetry::open(&path, TelemetryOptions::default()).unwrap();
    telemetry.record(&call("cat", "b", 1.0)).unwrap();
    assert_eq!(all(&telemetry).totals.calls, 2);
    let names: Vec<_> = dir.path().read_dir().unwrap().collect();
    assert!(names.len() <= 4, "nothing was moved aside: {names:?}");
    // Opened again it is as it is.
    drop(telemetry);
    let telemetry = Telemetry::open(&path, TelemetryOptions::default()).unwrap();
    assert_eq!(all(&telemetry).totals.calls, 2);
    let page = CallReader::new(&path).page(
        &CallQuery {
            limit: 10,
            ..CallQuery::default()
        },
        CallScope::All,
    );
    let seqs: Vec<_> = page.unwrap().calls.iter().map(|call| call.seq).collect();
    assert_eq!(seqs, [Some(8), Some(7)]);
}

#[test]
fn a_foreign_file_with_the_number_of_the_version_before_is_not_upgraded() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("te.db");
    let foreign = rusqlite::Connection::open(&path).unwrap();
    foreign
        .execute_batch("CREATE VIEW calls AS SELECT 1; PRAGMA user_version = 1;")
        .unwrap();
    drop(foreign);
    let telemetry = Telemetry::open(&path, TelemetryOptions::default()).unwrap();
    telemetry.record(&call("x", "a", 1.0)).unwrap();
    assert_eq!(all(&telemetry).totals.calls, 1);
    assert!(dir.path().join("te.db.version1-1").exists());
}
