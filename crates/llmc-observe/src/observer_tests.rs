use std::path::Path;
use std::time::Instant;

use super::*;
use crate::telemetry::Telemetry;

fn call(answer: &str) -> UncountedCall<'_> {
    UncountedCall {
        event: CallEvent {
            tool: "stat".to_owned(),
            args: Some("{}".to_owned()),
            ..CallEvent::default()
        },
        args: "{}".to_owned(),
        answer: answer.into(),
        withheld_bytes: 0,
        script_bytes: 0,
        fetched_back: false,
        error_message: None,
        keeps_content: false,
    }
}

fn observer(dir: &Path, audit: bool) -> Observer {
    Observer::start(ObserverOptions {
        enabled: true,
        metrics: true,
        telemetry: Some(dir.join("te.db").into()),
        audit: audit.then(|| AuditOptions {
            root: dir.to_owned(),
            path: dir.join("artifacts/audit.csv"),
        }),
        ..ObserverOptions::default()
    })
}

#[test]
fn long_texts_wait_uncounted_until_there_is_no_room() {
    let queued_bytes = Arc::default();
    let long = "some words of an answer\n".repeat(10_000);
    let exact = llmc_tokens::count(&long) as u64;
    let first = QueuedCall::new(call(&long), &queued_bytes);
    assert!(matches!(&first.answer, QueuedText::Whole(text) if text.len() == 240_000));
    assert_eq!(queued_bytes.load(Ordering::Relaxed), 240_002);
    assert_eq!(first.count(true).tokens_served, exact);
    let left = queued_bytes.load(Ordering::Relaxed);
    assert_eq!(left, 0, "the reservation is given back");

    let all = QueueReservation::take(&queued_bytes, MAX_QUEUED_BYTES - 10).unwrap();
    let crowded = QueuedCall::new(call(&long), &queued_bytes);
    let QueuedText::Counted { bytes, tokens } = crowded.answer else {
        panic!("a text above the limit");
    };
    assert_eq!(bytes, 240_000);
    assert!(tokens.abs_diff(exact) < exact / 20, "{tokens}, not {exact}");
    drop(all);
    assert_eq!(queued_bytes.load(Ordering::Relaxed), 0);
}

#[test]
fn recording_does_not_count_on_the_callers_thread() {
    let dir = tempfile::tempdir().unwrap();
    let observer = observer(dir.path(), false);
    let long = "x".repeat(6 << 20);
    let started = Instant::now();
    for _ in 0..4 {
        observer.record(call(&long));
    }
    let took = started.elapsed();
    assert!(took < Duration::from_millis(500), "{took:?}");
    let started = Instant::now();
    observer.close();
    let took = started.elapsed();
    assert!(took < Duration::from_secs(30), "{took:?}");
}

/// The calls that a telemetry file has.
fn rows(dir: &Path) -> u64 {
    let telemetry = Telemetry::open(&dir.join("te.db"), Default::default()).unwrap();
    telemetry.summary(&Default::default()).unwrap().totals.calls
}

#[test]
fn closing_loses_no_call_while_rows_are_being_written() {
    let dir = tempfile::tempdir().unwrap();
    let observer = observer(dir.path(), false);
    // Looking for secrets in this much takes longer than writing the row.
    let args = format!("{{\"content\":\"{}\"}}", "some words = 1; ".repeat(4000));
    for _ in 0..400 {
        let mut call = call("one");
        call.event.args = Some(args.clone());
        observer.record(call);
    }
    observer.close();
    assert_eq!((rows(dir.path()), observer.dropped()), (400, 0));
}

#[test]
fn a_store_that_was_locked_is_used_once_it_is_free() {
    let dir = tempfile::tempdir().unwrap();
    Telemetry::open(&dir.path().join("te.db"), Default::default()).unwrap();
    let other = rusqlite::Connection::open(dir.path().join("te.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let observer = observer(dir.path(), false);
    observer.record(call("one"));
    let locked = &observer.closing.is_locked;
    let end = Instant::now() + Duration::from_secs(60);
    while !locked.load(Ordering::Relaxed) {
        assert!(Instant::now() < end, "it never waits for the lock");
        std::thread::yield_now();
    }
    other.execute_batch("COMMIT").unwrap();
    observer.close();
    assert_eq!(rows(dir.path()), 1);
    // One that stays locked does not hold up the end for long.
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let observer = self::observer(dir.path(), false);
    observer.record(call("two"));
    let started = Instant::now();
    observer.close();
    assert!(started.elapsed() < CLOSE_TIMEOUT + Duration::from_secs(10));
}

#[test]
fn one_event_reaches_every_record() {
    for audit in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let observer = observer(dir.path(), audit);
        let mut events = observer.subscribe();
        let mut failed = call("one two three");
        failed.event.error_code = Some("NOT_FOUND".to_owned());
        failed.withheld_bytes = 13;
        observer.record(failed);
        observer.flush(Duration::from_secs(5));
        let event = events.try_recv().unwrap();
        assert_eq!((event.tokens_served, event.tokens_withheld), (3, 3));
        assert_eq!(event.args, None, "arguments are for telemetry alone");
        assert_eq!(observer.metrics(&[])["errors_by_code"]["NOT_FOUND"], 1);
        let mut text = String::new();
        assert_eq!(observer.prometheus(&mut text, &[])["NOT_FOUND"], 1);
        assert!(text.contains("llmc_tool_calls_total{tool=\"stat\"} 1"));
        observer.close();
        let telemetry = Telemetry::open(&dir.path().join("te.db"), Default::default()).unwrap();
        let summary = telemetry.summary(&Default::default()).unwrap();
        assert_eq!(summary.totals.tokens.served, 3);
        let file = dir.path().join("artifacts/audit.csv");
        let line = std::fs::read_to_string(file).unwrap_or_default();
        assert_eq!(line.contains(",stat,1,3,3,0,0.000,NOT_FOUND"), audit);
    }
}
