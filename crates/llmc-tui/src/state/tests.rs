//! Keys and news in, state and actions out.

use super::*;

/// A call that ended at this second, changed as a test needs it.
pub(crate) fn call(second: i64, tool: &str, change: impl FnOnce(&mut Seen)) -> Seen {
    let mut call = Seen {
        time: Timestamp::from_second(second).unwrap(),
        source: "mcp".to_owned(),
        agent: "ann".to_owned(),
        session: "s1".to_owned(),
        model: "m".to_owned(),
        tool: tool.to_owned(),
        error: None,
        ms: 1.0,
        tokens_in: 1,
        served: 10,
        withheld: 0,
        fetched_back: 0,
        truncated: false,
        handle: None,
        about: r#"{"path":"a.txt"}"#.to_owned(),
        args: Some(r#"{"path":"a.txt"}"#.to_owned()),
    };
    change(&mut call);
    call
}

pub(crate) fn handle(text: &str) -> HandleId {
    HandleId::parse(text).unwrap()
}

pub(crate) const HANDLE: &str = "res_01ARZ3NDEKTSV4RRFFQ69G5FAV";

/// A state with these calls, oldest first, and their sums.
pub(crate) fn state(calls: Vec<Seen>) -> State {
    let mut tally = crate::tally::Tally::default();
    for call in &calls {
        tally.add(call);
    }
    let now = calls.last().map_or(Timestamp::UNIX_EPOCH, |call| call.time);
    let mut state = State::new("/w", "last 24 hours", TimeZone::UTC, now);
    state.news(News::Calls(calls));
    state.news(News::Picture(Box::new(tally.picture())));
    state
}

/// Presses keys: characters, or names in angle brackets.
pub(crate) fn press(state: &mut State, keys: &str) -> Vec<Action> {
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

fn tools(state: &State) -> Vec<&str> {
    state.shown().map(|(_, call)| call.tool.as_str()).collect()
}

#[test]
fn the_newest_call_is_on_top_and_a_chosen_one_stays_chosen() {
    let mut state = state(vec![call(1, "a", |_| ()), call(2, "b", |_| ())]);
    assert_eq!(tools(&state), ["b", "a"]);
    assert_eq!(state.line_of_calls(), 0);
    press(&mut state, "<down>");
    assert_eq!(state.line_of_calls(), 1);
    state.news(News::Calls(vec![call(3, "c", |_| ())]));
    assert_eq!(tools(&state), ["c", "b", "a"]);
    assert_eq!(state.selected().unwrap().tool, "a");
    press(&mut state, "g");
    state.news(News::Calls(vec![call(4, "d", |_| ())]));
    assert_eq!(state.selected().unwrap().tool, "d", "the top follows");
    press(&mut state, "<up><end>");
    assert_eq!(state.selected().unwrap().tool, "a");
    press(&mut state, "<down><down>");
    assert_eq!(
        state.selected().unwrap().tool,
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
        state.news(News::Calls(many(n * 600)));
    }
    assert_eq!(state.calls.len(), CALLS);
    press(&mut state, "p");
    for n in 5..10 {
        state.news(News::Calls(many(n * 600)));
    }
    assert_eq!(state.waiting(), Some(3000));
    assert_eq!(state.calls[0].1.tool, "t2999", "the picture stands still");
    assert_eq!(state.held.as_ref().unwrap().calls.len(), CALLS);
    press(&mut state, "p");
    assert_eq!(state.waiting(), None);
    assert_eq!(state.calls[0].1.tool, "t5999");
    assert_eq!(state.calls.len(), CALLS);
}

#[test]
fn a_pause_holds_the_sums_too() {
    let mut state = state(vec![call(1, "a", |_| ())]);
    press(&mut state, "p");
    let mut picture = state.picture.clone();
    picture.sums.calls = 7;
    state.news(News::Picture(Box::new(picture)));
    assert_eq!(state.picture.sums.calls, 1);
    press(&mut state, " ");
    assert_eq!(state.picture.sums.calls, 7);
}

#[test]
fn a_filter_narrows_while_it_is_typed() {
    let mut state = state(vec![
        call(1, "read_file", |_| ()),
        call(2, "stat", |call| call.error = Some("NOT_FOUND".to_owned())),
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
    assert_eq!(state.typing.as_ref().unwrap().len(), FILTER);
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
    let runs = |actions: &[Action], tool: &str| matches!(actions, [Action::Run(again)] if again.tool.name == tool);
    assert!(runs(&press(&mut state, "r"), "read_file"));
    assert_eq!(press(&mut state, "<down>r"), []);
    assert!(matches!(state.overlay, Some(Overlay::Ask(_))));
    assert_eq!(press(&mut state, "<enter>"), [], "anything but y is no");
    assert_eq!(state.overlay, None);
    assert!(runs(&press(&mut state, "ry"), "run_cmd"));
    state.runs("run_cmd");
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
        call(2, "stat", |call| call.error = Some("NOT_FOUND".to_owned())),
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
    assert!(matches!(&state.overlay, Some(Overlay::Details { call, .. }) if call.tool == "stat"));
}

#[test]
fn notices_pass() {
    let mut state = state(Vec::new());
    let at = |second| Timestamp::from_second(second).unwrap();
    state.tick(at(1000));
    state.say("hello");
    assert!(!state.tick(at(1005)));
    assert_eq!(state.notice(), Some("hello"));
    assert!(state.tick(at(1006)));
    assert_eq!(state.notice(), None);
    state.say("hello");
    press(&mut state, "g");
    assert_eq!(state.notice(), None, "with the next key too");
    assert!(
        !state.tick(at(5000)),
        "nothing on the screen depends on the time"
    );
}
