//! Keys and updates in, state and actions out.

use std::sync::Arc;

use llmc_observe::CallEvent;

use super::*;
use crate::call::legible_summary;

/// A call that ended at this second, changed as a test needs it.
pub(crate) fn call(second: i64, tool: &str, change: impl FnOnce(&mut CallEvent)) -> ListedCall {
    let mut call = CallEvent {
        time: Timestamp::from_second(second).unwrap(),
        source: "mcp".to_owned(),
        agent: "ann".to_owned(),
        session: "s1".to_owned(),
        model: "m".to_owned(),
        tool: tool.to_owned(),
        duration_ms: 1.0,
        tokens_in: 1,
        tokens_served: 10,
        args: Some(r#"{"path":"a.txt"}"#.to_owned()),
        ..CallEvent::default()
    };
    change(&mut call);
    ListedCall::new(call)
}

pub(crate) fn handle(text: &str) -> HandleId {
    HandleId::parse(text).unwrap()
}

pub(crate) const HANDLE: &str = "res_01ARZ3NDEKTSV4RRFFQ69G5FAV";

/// A state with these calls, oldest first, and their sums.
pub(crate) fn state(calls: Vec<ListedCall>) -> TuiState {
    let mut aggregator = Aggregator::default();
    for call in &calls {
        aggregator.add(&Arc::new(call.event.clone()));
    }
    let last = calls.last();
    let now = last.map_or(Timestamp::UNIX_EPOCH, |call| call.event.time);
    let mut state = TuiState::new("/w", "last 24 hours", TimeZone::UTC, now);
    state.apply(WatchUpdate::Calls(calls));
    let summary = legible_summary(aggregator.summary(now));
    state.apply(WatchUpdate::Summary(Box::new(summary)));
    state
}

/// Presses keys: characters, or names in angle brackets.
pub(crate) fn press(state: &mut TuiState, keys: &str) -> Vec<Action> {
    let mut actions = Vec::new();
    let mut rest = keys;
    while !rest.is_empty() {
        let (key, length) = match rest.strip_prefix('<').and_then(|rest| rest.split_once('>')) {
            Some((name, _)) => {
                let key = match name {
                    "enter" => Key::Enter,
                    "esc" => Key::Esc,
                    "tab" => Key::Tab,
                    "backtab" => Key::BackTab,
                    "up" => Key::Up,
                    "down" => Key::Down,
                    "end" => Key::End,
                    "back" => Key::Backspace,
                    name => panic!("no key {name}"),
                };
                (key, name.len() + 2)
            }
            None => {
                let c = rest.chars().next().unwrap();
                (Key::Char(c), c.len_utf8())
            }
        };
        rest = &rest[length..];
        actions.extend(state.key(key));
    }
    actions
}

fn tools(state: &TuiState) -> Vec<&str> {
    state
        .shown()
        .map(|(_, call)| call.event.tool.as_str())
        .collect()
}

#[test]
fn the_newest_call_is_on_top_and_a_chosen_one_stays_chosen() {
    let mut state = state(vec![call(1, "a", |_| ()), call(2, "b", |_| ())]);
    assert_eq!(tools(&state), ["b", "a"]);
    assert_eq!(state.line_of_calls(), 0);
    press(&mut state, "<down>");
    assert_eq!(state.line_of_calls(), 1);
    state.apply(WatchUpdate::Calls(vec![call(3, "c", |_| ())]));
    assert_eq!(tools(&state), ["c", "b", "a"]);
    assert_eq!(state.selected().unwrap().event.tool, "a");
    press(&mut state, "g");
    state.apply(WatchUpdate::Calls(vec![call(4, "d", |_| ())]));
    assert_eq!(state.selected().unwrap().event.tool, "d", "the top follows");
    press(&mut state, "<up><end>");
    assert_eq!(state.selected().unwrap().event.tool, "a");
    press(&mut state, "<down><down>");
    assert_eq!(
        state.selected().unwrap().event.tool,
        "a",
        "no further than the end"
    );
}

#[test]
fn memory_is_bounded_whether_paused_or_not() {
    let mut state = state(Vec::new());
    let many = |from: i64| {
        (from..from + 600)
            .map(|n| call(n, &format!("t{n}"), |_| ()))
            .collect()
    };
    for n in 0..5 {
        state.apply(WatchUpdate::Calls(many(n * 600)));
    }
    assert_eq!(state.calls.len(), MAX_LISTED_CALLS);
    press(&mut state, "p");
    for n in 5..10 {
        state.apply(WatchUpdate::Calls(many(n * 600)));
    }
    assert_eq!(state.paused_calls(), Some(3000));
    assert_eq!(state.calls[0].1.event.tool, "t2999", "a pause");
    assert_eq!(state.paused.as_ref().unwrap().calls.len(), MAX_LISTED_CALLS);
    press(&mut state, "p");
    assert_eq!(state.paused_calls(), None);
    assert_eq!(state.calls[0].1.event.tool, "t5999");
    assert_eq!(state.calls.len(), MAX_LISTED_CALLS);
}

#[test]
fn a_pause_freezes_the_sums() {
    let mut state = state(vec![call(1, "a", |_| ())]);
    press(&mut state, "p");
    let mut summary = state.summary.clone();
    summary.totals.calls = 7;
    state.apply(WatchUpdate::Summary(Box::new(summary)));
    assert_eq!(state.summary.totals.calls, 1);
    press(&mut state, " ");
    assert_eq!(state.summary.totals.calls, 7);
}

#[test]
fn a_filter_narrows_while_it_is_typed() {
    let mut state = state(vec![
        call(1, "read_file", |_| ()),
        call(2, "stat", |call| {
            call.error_code = Some("NOT_FOUND".to_owned())
        }),
        call(3, "stat", |call| call.agent = "Bob".to_owned()),
    ]);
    press(&mut state, "/not_");
    assert_eq!(tools(&state), ["stat"]);
    press(&mut state, "<back><back><back><back>bob");
    assert_eq!(tools(&state), ["stat"]);
    press(&mut state, "<enter>");
    assert_eq!((state.filter.as_str(), &state.typing), ("bob", &None));
    assert_eq!(
        press(&mut state, "/q<esc>"),
        [],
        "q is a letter while typing"
    );
    assert_eq!(state.filter, "bob", "given up");
    press(&mut state, "<esc>");
    assert_eq!(state.shown().count(), 3);
    press(&mut state, &format!("/{}", "x".repeat(500)));
    assert_eq!(state.typing.as_ref().unwrap().len(), MAX_FILTER_CHARS);
    assert_eq!(state.selected(), None);
}

#[test]
fn quitting_and_helping() {
    let mut state = state(Vec::new());
    assert_eq!(press(&mut state, "q"), [Action::Quit]);
    press(&mut state, "?");
    assert_eq!(state.overlay, Some(Overlay::Help));
    assert_eq!(press(&mut state, "q"), [], "closes the help");
    let interrupt = Key::Ctrl('c');
    press(&mut state, "/");
    assert_eq!(state.key(interrupt), Some(Action::Quit), "always");
    for keys in [
        "<enter>",
        "c",
        "r",
        "<down>",
        "<up>",
        "<end>",
        "<tab><enter>",
    ] {
        state.typing = None;
        assert_eq!(press(&mut state, keys), [], "{keys} with nothing there");
    }
}

#[test]
fn the_handle_that_is_looked_at_is_copied_or_else_the_newest() {
    let other = "res_01BX5ZZKBKACTAV9WEVGEMMVRZ";
    let mut state = state(vec![
        call(1, "a", |call| call.handle = Some(handle(HANDLE))),
        call(2, "b", |call| call.handle = Some(handle(other))),
        call(3, "c", |_| ()),
    ]);
    assert_eq!(press(&mut state, "c"), [Action::Copy(handle(other))]);
    assert_eq!(press(&mut state, "<end>c"), [Action::Copy(handle(HANDLE))]);
    assert_eq!(state.copied(), Some(handle(HANDLE)));
}

#[test]
fn only_a_look_is_run_again_without_asking() {
    let mut state = state(vec![
        call(1, "run_cmd", |call| {
            call.args = Some(r#"{"command":"ls"}"#.to_owned())
        }),
        call(2, "read_file", |_| ()),
    ]);
    let runs = |actions: &[Action], tool: &str| matches!(actions, [Action::Run(call)] if call.tool.name == tool);
    assert!(runs(&press(&mut state, "r"), "read_file"));
    assert_eq!(press(&mut state, "<down>r"), []);
    assert!(matches!(state.overlay, Some(Overlay::Confirm(_))));
    assert_eq!(press(&mut state, "<enter>"), [], "anything but y is no");
    assert_eq!(state.overlay, None);
    assert!(runs(&press(&mut state, "ry"), "run_cmd"));
    state.show_running("run_cmd");
    assert_eq!(press(&mut state, "x"), []);
    assert_eq!(press(&mut state, "<esc>"), [Action::Stop]);
    assert!(
        matches!(state.overlay, Some(Overlay::Running { .. })),
        "until it has ended"
    );
}

#[test]
fn a_line_of_another_panel_leads_to_its_calls() {
    let mut state = state(vec![
        call(1, "read_file", |_| ()),
        call(2, "stat", |call| {
            call.error_code = Some("NOT_FOUND".to_owned())
        }),
        call(3, "read_file", |call| call.session = "s2".to_owned()),
    ]);
    press(&mut state, "<tab><down><enter>");
    assert_eq!((state.filter.as_str(), state.focus), ("stat", Panel::Calls));
    assert_eq!(tools(&state), ["stat"]);
    press(&mut state, "<tab><tab><enter>");
    assert_eq!(state.filter, "s2", "the latest session");
    press(&mut state, "<backtab><enter>");
    assert_eq!(state.filter, "NOT_FOUND");
    press(&mut state, "<enter>");
    assert!(
        matches!(&state.overlay, Some(Overlay::Details { call, .. }) if call.event.tool == "stat")
    );
}

#[test]
fn notices_pass() {
    let mut state = state(Vec::new());
    let at = |second| Timestamp::from_second(second).unwrap();
    state.tick(at(1000));
    state.notify("hello");
    assert!(!state.tick(at(1005)));
    assert_eq!(state.notice(), Some("hello"));
    assert!(state.tick(at(1006)));
    assert_eq!(state.notice(), None);
    state.notify("hello");
    press(&mut state, "g");
    assert_eq!(state.notice(), None, "with the next key too");
    assert!(
        !state.tick(at(5000)),
        "nothing on the screen depends on the time"
    );
}
