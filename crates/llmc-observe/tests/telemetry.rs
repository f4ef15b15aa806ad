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
    CallEvent, CallFilter, CallTotals, EnvelopeMode, GroupBy, Summary, Telemetry,
    TelemetryAnalysis, TelemetryFollower, TelemetryOptions,
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
    let analysis = TelemetryAnalysis::of(telemetry, by, &CallFilter::default()).unwrap();
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
