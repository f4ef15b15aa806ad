use std::fs;
use std::time::Duration;

use llmc_envelope::telemetry::{Filter, Group, Mode, Options, Row, Source, Telemetry, Totals};

use crate::{HOUR, clock};

fn row(cmd: &str, agent: &str, latency_ms: f64) -> Row {
    Row {
        agent: Some(agent.into()),
        tokens_served: 10,
        tokens_withheld: 90,
        tokens_fetched_back: 5,
        latency_ms,
        ..Row::new(Source::Mcp, cmd, Mode::Enriched)
    }
}

#[test]
fn a_row_comes_back_with_its_secrets_masked() {
    let clock = clock();
    let telemetry = Telemetry::in_memory(Options {
        clock: clock.clone(),
        ..Options::default()
    })
    .unwrap();
    let full = Row {
        session: Some("s1".into()),
        model: Some("m".into()),
        bytes_in: 1,
        bytes_out: 2,
        tokens_in: 3,
        truncated: true,
        handle: llmc_envelope::HandleId::parse("res_01ARZ3NDEKTSV4RRFFQ69G5FAV"),
        error: Some("timeout".into()),
        args: Some(r#"{"argv":["curl","--token","abcdef"]}"#.into()),
        ..row("run", "a", 1.5)
    };
    telemetry.record(&full).unwrap();
    let back = telemetry.recent(5).unwrap();
    assert_eq!(back.len(), 1);
    assert_eq!(back[0].time, clock.now());
    assert_eq!(
        back[0].row,
        Row {
            args: Some(r#"{"argv":["curl","--token","***"]}"#.into()),
            ..full
        }
    );
}

#[test]
fn long_arguments_are_shortened_after_masking() {
    let telemetry = Telemetry::in_memory(Options::default()).unwrap();
    let args = format!("{} password={}", "é".repeat(900), "s3cret".repeat(1000));
    telemetry
        .record(&Row {
            args: Some(args),
            ..row("x", "a", 1.0)
        })
        .unwrap();
    // A secret right where the looking ends.
    telemetry
        .record(&Row {
            args: Some(format!(
                "{}AKIAIOSFODNN7EXAMPLE",
                "-----BEGIN PRIVATE KEY-----".to_owned()
                    + &"k".repeat(65_480)
                    + "-----END PRIVATE KEY----- "
            )),
            ..row("y", "a", 1.0)
        })
        .unwrap();
    let kept = telemetry.recent(1).unwrap()[0].row.args.clone().unwrap();
    assert!(!kept.contains("kkkk") && !kept.contains("AKIAI"), "{kept}");
    let kept = telemetry.recent(2).unwrap()[1].row.args.clone().unwrap();
    assert!(kept.len() < 2100 && !kept.contains("s3cret"));
}

#[test]
fn calls_are_added_up() {
    let telemetry = Telemetry::in_memory(Options::default()).unwrap();
    for n in 1..=100 {
        telemetry.record(&row("grep", "a", f64::from(n))).unwrap();
    }
    let failed = Row {
        error: Some("not_found".into()),
        source: Source::Cli,
        ..row("cat", "b", 7.0)
    };
    telemetry.record(&failed).unwrap();
    let all = telemetry.summary(&Filter::default()).unwrap();
    assert_eq!((all.calls, all.errors, all.tokens_withheld), (101, 1, 9090));
    let by_cmd = telemetry.by(Group::Cmd, &Filter::default()).unwrap();
    assert_eq!(by_cmd[0].0, "grep");
    assert_eq!((by_cmd[0].1.p50_ms, by_cmd[0].1.p95_ms), (50.0, 95.0));
    assert_eq!((by_cmd[1].1.p50_ms, by_cmd[1].1.p95_ms), (7.0, 7.0));
    assert_eq!(by_cmd[1].1.tokens_fetched_back, 5);
    for (group, names) in [(Group::Agent, ["a", "b"]), (Group::Source, ["mcp", "cli"])] {
        let found: Vec<_> = telemetry.by(group, &Filter::default()).unwrap();
        assert_eq!(
            found.iter().map(|(n, _)| n.as_str()).collect::<Vec<_>>(),
            names
        );
    }
    let sessions = telemetry.by(Group::Session, &Filter::default()).unwrap();
    assert_eq!((sessions[0].0.as_str(), sessions[0].1.calls), ("", 101));
    let only = Filter {
        source: Some(Source::Cli),
        ..Filter::default()
    };
    assert_eq!(telemetry.summary(&only).unwrap().calls, 1);
    let nobody = Filter {
        agent: Some("x".into()),
        ..Filter::default()
    };
    assert_eq!(telemetry.summary(&nobody).unwrap(), Totals::default());
}

#[test]
fn rows_leave_after_their_days() {
    let tmp = tempfile::tempdir().unwrap();
    let path = tmp.path().join("state/te_telemetry.db");
    let clock = clock();
    let open = |retention_days| {
        Telemetry::open(
            &path,
            Options {
                retention_days,
                clock: clock.clone(),
            },
        )
        .unwrap()
    };
    open(0).record(&row("old", "a", 1.0)).unwrap();
    clock.advance(48 * HOUR);
    let telemetry = open(3);
    telemetry.record(&row("new", "a", 1.0)).unwrap();
    assert_eq!(telemetry.recent(9).unwrap().len(), 2);
    clock.advance(25 * HOUR + Duration::from_secs(1));
    telemetry.record(&row("newer", "a", 1.0)).unwrap();
    let left: Vec<_> = telemetry
        .recent(9)
        .unwrap()
        .into_iter()
        .map(|r| r.row.cmd)
        .collect();
    assert_eq!(left, ["newer", "new"]);
    assert_eq!(open(0).recent(9).unwrap().len(), 2);
    let since = Filter {
        since: Some(clock.now()),
        ..Filter::default()
    };
    assert_eq!(telemetry.summary(&since).unwrap().calls, 1);
}

#[test]
fn a_ruined_file_is_started_anew() {
    let tmp = tempfile::tempdir().unwrap();
    let path = tmp.path().join("te_telemetry.db");
    fs::write(&path, "garbage ".repeat(1000)).unwrap();
    let telemetry = Telemetry::open(&path, Options::default()).unwrap();
    telemetry.record(&row("x", "a", 1.0)).unwrap();
    assert_eq!(telemetry.recent(9).unwrap().len(), 1);
    assert!(tmp.path().join("te_telemetry.db.corrupt-1").exists());
}
