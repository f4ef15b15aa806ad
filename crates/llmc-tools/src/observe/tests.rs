#![allow(
    clippy::disallowed_methods,
    reason = "tests look at files from outside"
)]

use std::time::Instant;

use serde_json::json;

use super::*;
use crate::catalog;
use crate::cx::Form;
use crate::error::Error;
use crate::seal::Sealed;

fn caller() -> Caller {
    Caller {
        surface: Surface::Mcp,
        form: Form::Text,
        principal: "local".to_owned(),
        agent: "agent".to_owned(),
        session: "session".to_owned(),
        model: "model".to_owned(),
        read_only: false,
        tools: None,
        remote: false,
    }
}

fn outcome(tool: &str, result: crate::error::Result<Sealed>) -> CallOutcome {
    CallOutcome {
        correlation_id: "id".to_owned(),
        tool: catalog::find(tool),
        result,
    }
}

fn text(text: impl Into<String>) -> Sealed {
    Sealed::for_test(text, None)
}

fn recorded(outcome: &CallOutcome, args: &Value, waiting: &Arc<AtomicUsize>) -> Counted {
    let event = Event::of(outcome, &caller(), args.to_string(), Duration::ZERO).record(waiting);
    Counted::of(event, true)
}

fn args_kept(tool: &str, result: crate::error::Result<Sealed>, args: Value) -> Option<String> {
    row(&recorded(&outcome(tool, result), &args, &Arc::default())).args
}

#[test]
fn arguments_that_were_not_understood_are_not_recorded() {
    let error = |kind| Err(Error::new(kind, "no"));
    let misnamed = json!({"path": "a", "contents": "SECRET"});
    for kind in [Kind::BadArgs, Kind::UnknownTool] {
        assert_eq!(
            args_kept("linux_fs_write", error(kind), misnamed.clone()),
            None
        );
    }
    assert_eq!(
        args_kept("no_such_tool", error(Kind::UnknownTool), misnamed.clone()),
        None
    );
    // Refused before anyone looked at the arguments.
    let denied = |args| args_kept("linux_fs_write", error(Kind::CommandDenied), args).unwrap();
    assert_eq!(denied(misnamed), r#"{"path":"a"}"#);
    let misplaced = json!({"path": "a", "mode": "SECRET", "content": ["SECRET"]});
    assert_eq!(denied(misplaced), r#"{"path":"a"}"#);
}

#[test]
fn content_is_recorded_as_its_size() {
    let args = json!({"path": "a", "content": "SECRET", "mode": "append"});
    let kept = args_kept("linux_fs_write", Ok(text("ok")), args).unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(&kept).unwrap(),
        json!({"path": "a", "content": "(6 bytes)", "mode": "append"})
    );
}

#[test]
fn answers_for_programs_are_counted_too() {
    for (data, read) in [
        (json!("one two three"), "one two three".to_owned()),
        (json!({"a": [1, 2]}), r#"{"a":[1,2]}"#.to_owned()),
        (Value::Null, String::new()),
    ] {
        let outcome = outcome(
            "stat",
            Ok(Sealed::for_test(
                "",
                Some(data).filter(|data| !data.is_null()),
            )),
        );
        let counted = recorded(&outcome, &json!({}), &Arc::default());
        assert_eq!(counted.tokens_out, llmc_tokens::count(&read) as u64);
        assert_eq!(counted.bytes_out, read.len() as u64);
    }
}

#[test]
fn long_texts_wait_uncounted_until_there_is_no_room() {
    let waiting = Arc::default();
    let long = "some words of an answer\n".repeat(10_000);
    let exact = llmc_tokens::count(&long) as u64;
    let long = outcome("stat", Ok(text(long)));
    let event =
        |args: &str| Event::of(&long, &caller(), args.to_owned(), Duration::ZERO).record(&waiting);
    let first = event("{}");
    assert!(matches!(&first.answer, Text::Whole(text) if text.len() == 240_000));
    assert_eq!(waiting.load(Ordering::Relaxed), 240_002);
    assert_eq!(Counted::of(first, true).tokens_out, exact);
    assert_eq!(waiting.load(Ordering::Relaxed), 0, "room is given back");

    let all = Room::take(&waiting, QUEUE_BYTES - 10).unwrap();
    let crowded = event("{}");
    let Text::Counted { bytes, tokens } = crowded.answer else {
        panic!("a text above the limit");
    };
    assert_eq!(bytes, 240_000);
    assert!(tokens.abs_diff(exact) < exact / 20, "{tokens}, not {exact}");
    drop(all);
    assert_eq!(waiting.load(Ordering::Relaxed), 0);
}

fn observer(dir: &Path, sets: &[&str]) -> Observer {
    let inputs = llmc_config::Inputs {
        root_flag: Some(dir.to_owned()),
        cwd: dir.to_owned(),
        sets: sets.iter().map(|set| (*set).to_owned()).collect(),
        ..llmc_config::Inputs::default()
    };
    let loaded = llmc_config::load(&inputs).unwrap();
    Observer::start(&loaded, Some(dir))
}

#[test]
fn recording_does_not_count_on_the_callers_thread() {
    let dir = tempfile::tempdir().unwrap();
    let observer = observer(dir.path(), &[]);
    let outcome = outcome("stat", Ok(text("x".repeat(6 << 20))));
    let started = Instant::now();
    for _ in 0..4 {
        observer.record(Event::of(
            &outcome,
            &caller(),
            "{}".to_owned(),
            Duration::ZERO,
        ));
    }
    let took = started.elapsed();
    assert!(took < Duration::from_millis(500), "{took:?}");
    let started = Instant::now();
    observer.close();
    let took = started.elapsed();
    assert!(took < Duration::from_millis(800), "{took:?}");
}

#[test]
fn an_audit_that_is_not_to_be_kept_leaves_no_file() {
    for (keep, there) in [("true", true), ("false", false)] {
        let dir = tempfile::tempdir().unwrap();
        let keep = format!("mcp.docker.persist_token_audit={keep}");
        let observer = observer(
            dir.path(),
            &["mcp.observability.csv_token_audit_enabled=true", &keep],
        );
        let outcome = outcome("stat", Ok(text("ok")));
        observer.record(Event::of(
            &outcome,
            &caller(),
            "{}".to_owned(),
            Duration::ZERO,
        ));
        observer.close();
        assert_eq!(dir.path().join("artifacts").exists(), there);
    }
}
