//! The telemetry store as its users see it: across restarts, time and damage; what does not concern files, on both engines.
#![allow(
    clippy::disallowed_methods,
    reason = "tests look at files from outside"
)]
#![allow(clippy::unwrap_used)]

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use llmc_envelope::{Clock, HandleId};
use llmc_observe::{
    CallContent, CallEvent, CallFilter, CallQuery, CallReader, CallScope, CallTotals, ContentText,
    EnvelopeMode, GroupBy, Summary, Telemetry, TelemetryAnalysis, TelemetryFollower,
    TelemetryLocation, TelemetryOptions,
};
use llmc_store::{Database, DatabaseSettings, DatabaseUrl, Tenant};
use llmc_testdb::TestCluster;
use tempfile::TempDir;

const HOUR: Duration = Duration::from_secs(3600);

/// Where the rows of one test are.
struct Engine {
    location: TelemetryLocation,
    _dir: Option<TempDir>,
}

impl Engine {
    fn sqlite() -> Engine {
        let dir = tempfile::tempdir().unwrap();
        Engine {
            location: dir.path().join("state/te.db").into(),
            _dir: Some(dir),
        }
    }

    /// A database of its own; `None` where there is no PostgreSQL.
    fn postgres() -> Option<Engine> {
        let settings = DatabaseSettings {
            url: DatabaseUrl::parse(&TestCluster::shared()?.database().url()).unwrap(),
            admin_url: None,
            tenant: Tenant::parse("team").unwrap(),
            max_connections: 4,
        };
        Some(Engine {
            location: Database::new(settings).into(),
            _dir: None,
        })
    }

    fn open(&self, options: TelemetryOptions) -> Telemetry {
        match &self.location {
            TelemetryLocation::File(path) => Telemetry::open(path, options).unwrap(),
            TelemetryLocation::Database(database) => Telemetry::shared(database.clone(), options),
        }
    }

    fn usual(&self) -> Telemetry {
        self.open(TelemetryOptions::default())
    }
}

/// Runs each of these functions on a SQLite file and on PostgreSQL.
macro_rules! on_both_engines {
    ($($name:ident)+) => {
        mod sqlite {
            $(#[test]
            fn $name() {
                super::$name(&super::Engine::sqlite());
            })+
        }

        mod postgres {
            $(#[test]
            fn $name() {
                if let Some(engine) = super::Engine::postgres() {
                    super::$name(&engine);
                }
            })+
        }
    };
}

on_both_engines! {
    a_call_comes_back_with_its_secrets_masked
    long_arguments_are_shortened_after_masking
    calls_are_added_up
    rows_leave_after_their_days
    contents_are_masked_cut_and_found
    calls_are_listed_by_what_they_are
    savings_and_sessions_are_added_up
    followers_read_every_call_once_while_others_write
    a_text_may_hold_anything
}

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

fn all(telemetry: &Telemetry) -> Summary {
    telemetry.summary(&CallFilter::default()).unwrap()
}

fn analysis(telemetry: &Telemetry, by: GroupBy) -> serde_json::Value {
    let analysis = TelemetryAnalysis::of(telemetry, by, &CallFilter::default(), &[]).unwrap();
    serde_json::to_value(analysis).unwrap()
}

fn a_call_comes_back_with_its_secrets_masked(engine: &Engine) {
    let clock = clock();
    let options = TelemetryOptions {
        clock: clock.clone(),
        ..TelemetryOptions::default()
    };
    let telemetry = engine.open(options);
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
    let mut follower = TelemetryFollower::new(engine.location.clone(), Timestamp::UNIX_EPOCH);
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

fn long_arguments_are_shortened_after_masking(engine: &Engine) {
    let telemetry = engine.usual();
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

fn calls_are_added_up(engine: &Engine) {
    let telemetry = engine.usual();
    assert_eq!(all(&telemetry).totals, CallTotals::default());
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
}

fn rows_leave_after_their_days(engine: &Engine) {
    let clock = clock();
    let open = |retention_days| {
        engine.open(TelemetryOptions {
            retention_days,
            clock: clock.clone(),
            ..TelemetryOptions::default()
        })
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

fn contents_are_masked_cut_and_found(engine: &Engine) {
    let telemetry = engine.usual();
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
    let reader = CallReader::new(engine.location.clone());
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

fn calls_are_listed_by_what_they_are(engine: &Engine) {
    let telemetry = engine.usual();
    for (tool, agent, server, error) in [
        ("run_cmd", "ann", "one", None),
        ("stat", "ann", "other", Some("NOT_FOUND")),
        ("run_cmd", "bob", "other", None),
        ("run", "bob", "one", None),
    ] {
        let program = (tool == "run_cmd").then(|| "make".to_owned());
        let call = CallEvent {
            server: server.into(),
            error_code: error.map(str::to_owned),
            program,
            ..call(tool, agent, 1.0)
        };
        telemetry.record(&call).unwrap();
    }
    let reader = CallReader::new(engine.location.clone());
    let listed = |query: CallQuery| {
        let page = reader.page(&query, CallScope::All).unwrap();
        let seqs: Vec<_> = page.calls.iter().filter_map(|call| call.seq).collect();
        (seqs, page.next)
    };
    let all = CallQuery {
        limit: 3,
        ..CallQuery::default()
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(listed(all.clone()), (vec![4, 3, 2], Some(2)));
    for (query, seqs) in [
        (
            CallQuery {
                before: Some(2),
                ..all.clone()
            },
            vec![1],
        ),
        (
            CallQuery {
                after: Some(2),
                ..all.clone()
            },
            vec![4, 3],
        ),
        (
            CallQuery {
                tool: some("run_cmd"),
                ..all.clone()
            },
            vec![3, 1],
        ),
        (
            CallQuery {
                tool: some("run"),
                ..all.clone()
            },
            vec![4],
        ),
        (
            CallQuery {
                agent: some("ann"),
                ..all.clone()
            },
            vec![2, 1],
        ),
        (
            CallQuery {
                server: some("other"),
                ..all.clone()
            },
            vec![3, 2],
        ),
        (
            CallQuery {
                failed: true,
                ..all.clone()
            },
            vec![2],
        ),
        (
            CallQuery {
                session: some("x"),
                ..all.clone()
            },
            vec![],
        ),
    ] {
        assert_eq!(listed(query.clone()), (seqs, None), "{query:?}");
    }
}

fn savings_and_sessions_are_added_up(engine: &Engine) {
    let telemetry = engine.usual();
    for (tool, agent, server) in [
        ("grep", "ann", "one"),
        ("grep", "ann", "one"),
        ("cat", "ann", "other"),
        ("cat", "bob", "other"),
    ] {
        let call = CallEvent {
            server: server.into(),
            session: "s".into(),
            principal: agent.into(),
            ..call(tool, agent, 1.0)
        };
        telemetry.record(&call).unwrap();
    }
    let reader = CallReader::new(engine.location.clone());
    let report = reader.savings(24 * HOUR, 0, CallScope::All, &[]).unwrap();
    let groups = |groups: &[llmc_observe::SavingsGroup]| -> Vec<(String, u64, u64)> {
        let group = |group: &llmc_observe::SavingsGroup| {
            let totals = &group.totals;
            (group.name.clone(), totals.calls, totals.tokens.withheld)
        };
        groups.iter().map(group).collect()
    };
    assert_eq!(
        groups(&report.clients),
        [("ann".into(), 3, 270), ("bob".into(), 1, 90)]
    );
    let mut tools = groups(&report.tools);
    tools.sort();
    assert_eq!(tools, [("cat".into(), 2, 180), ("grep".into(), 2, 180)]);
    let days: u64 = report.days.iter().map(|day| day.totals.calls).sum();
    assert_eq!(days, 4);
    assert!(report.days[0].name.starts_with("20"), "{:?}", report.days);
    let own = reader
        .savings(24 * HOUR, 0, CallScope::Principal("bob"), &[])
        .unwrap();
    assert_eq!(groups(&own.clients), [("bob".into(), 1, 90)]);
    let sessions = reader.sessions(24 * HOUR, CallScope::All).unwrap();
    let sessions: Vec<_> = (sessions.iter())
        .map(|session| {
            let last = &session.last;
            (
                last.agent.as_str(),
                last.server.as_str(),
                session.totals.calls,
                last.seq,
            )
        })
        .collect();
    assert_eq!(
        sessions,
        [
            ("bob", "other", 1, Some(4)),
            ("ann", "other", 1, Some(3)),
            ("ann", "one", 2, Some(2)),
        ]
    );
}

fn followers_read_every_call_once_while_others_write(engine: &Engine) {
    const CALLS: usize = 40;
    let telemetry = Arc::new(engine.usual());
    let mut follower = TelemetryFollower::new(engine.location.clone(), Timestamp::UNIX_EPOCH);
    assert_eq!(follower.next(10).unwrap(), []);
    let mut seen = Vec::new();
    std::thread::scope(|scope| {
        for writer in 0..3 {
            let telemetry = telemetry.clone();
            scope.spawn(move || {
                for n in 0..CALLS {
                    telemetry
                        .record(&call(&format!("{writer}-{n}"), "a", 1.0))
                        .unwrap();
                }
            });
        }
        let deadline = std::time::Instant::now() + Duration::from_secs(30);
        while seen.len() < 3 * CALLS {
            assert!(std::time::Instant::now() < deadline, "only {seen:?}");
            seen.extend(follower.next(7).unwrap().into_iter().map(|call| call.tool));
        }
    });
    assert_eq!(follower.next(7).unwrap(), []);
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 3 * CALLS);
}

fn a_text_may_hold_anything(engine: &Engine) {
    let telemetry = engine.usual();
    let text = "'); DROP TABLE llmc.calls; --\u{0}\u{1}\\u0000 \u{10ffff} {\"a\": null}";
    let odd = CallEvent {
        agent: text.into(),
        session: text.into(),
        args: Some(text.into()),
        path: Some(text.into()),
        bytes_in: u64::MAX,
        duration_ms: f64::NAN,
        ..call("x", "a", 1.0)
    };
    telemetry
        .record_with(&odd, Some(&content(text, text)))
        .unwrap();
    let reader = CallReader::new(engine.location.clone());
    let shown = reader.show(1, CallScope::All).unwrap().unwrap();
    let kept = text.replace('\0', "\u{fffd}");
    assert_eq!(shown.call.agent, kept);
    assert_eq!(shown.content.unwrap()[1], (kept.clone(), false));
    let query = CallQuery {
        session: Some(kept),
        text: Some("drop table".to_owned()),
        limit: 5,
        ..CallQuery::default()
    };
    assert_eq!(reader.page(&query, CallScope::All).unwrap().calls.len(), 1);
}

#[test]
fn a_file_of_another_program_is_set_aside() {
    for (version, sql, kept) in [
        (
            2,
            "CREATE TABLE calls (seq INTEGER PRIMARY KEY)",
            "te.db.version2-1",
        ),
        // The right number over other tables, which the first use finds.
        (
            1,
            "CREATE TABLE calls (seq INTEGER PRIMARY KEY)",
            "te.db.corrupt-1",
        ),
        (1, "CREATE VIEW calls AS SELECT 1", "te.db.corrupt-1"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("te.db");
        let other = rusqlite::Connection::open(&path).unwrap();
        other.execute_batch(sql).unwrap();
        other.pragma_update(None, "user_version", version).unwrap();
        drop(other);
        let telemetry = Telemetry::open(&path, TelemetryOptions::default()).unwrap();
        // The first row may be lost to finding out.
        let _ = telemetry.record(&call("x", "a", 1.0));
        telemetry.record(&call("x", "a", 1.0)).unwrap();
        assert!(all(&telemetry).totals.calls > 0, "{sql}");
        assert!(dir.path().join(kept).exists(), "{version}: {sql}");
    }
}
