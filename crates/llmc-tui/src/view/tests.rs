//! States in, cells out.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;
use serde_json::json;

use llmc_observe::{CallEvent, CallTotals, TimeStep, TokenCounts};

use super::*;
use crate::call::ListedCall;
use crate::changes::tests::{entry, serve};
use crate::state::tests::{HANDLE, call, handle, press, state};
use crate::watch::WatchUpdate;

fn screen(state: &TuiState, width: u16, height: u16) -> Terminal<TestBackend> {
    screen_in(Theme::Colour, state, width, height)
}

fn screen_in(theme: Theme, state: &TuiState, width: u16, height: u16) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(state, theme, frame)).unwrap();
    terminal
}

fn lines(state: &TuiState, width: u16, height: u16) -> Vec<String> {
    let terminal = screen(state, width, height);
    let buffer = terminal.backend().buffer();
    let rows = buffer.content().chunks(usize::from(width));
    rows.map(|row| row.iter().map(|cell| cell.symbol()).collect())
        .collect()
}

fn text(state: &TuiState, width: u16, height: u16) -> String {
    lines(state, width, height).join("\n")
}

fn busy() -> TuiState {
    state(vec![
        call(3600, "read_file", |_| ()),
        call(3601, "stat", |call| {
            call.error_code = Some("NOT_FOUND".to_owned())
        }),
        call(3605, "te_cat", |call| {
            call.duration_ms = 1234.0;
            call.tokens_served = 12_345;
            call.tokens_withheld = 987_654;
            call.truncated = true;
            call.handle = Some(handle(HANDLE));
            call.agent = "reviewer".to_owned();
        }),
    ])
}

#[test]
fn all_panels_are_there() {
    let lines = lines(&busy(), 120, 30);
    let screen = lines.join("\n");
    for expected in [
        "LLMC live /w · last 24 hours",
        "CallTotals",
        "3 calls  1 error ",
        "12.4k served",
        "988k withheld",
        "saved 987,654 (99 %) tokens",
        "Tokens, last hour",
        "Calls 3",
        "Latency",
        "Sessions",
        "Errors",
        "q quit",
    ] {
        assert!(screen.contains(expected), "{expected:?} in\n{screen}");
    }
    let row = |tool: &str| {
        let found = lines
            .iter()
            .find(|line| line.contains(tool) && line.contains("mcp"));
        found.unwrap_or_else(|| panic!("{tool} in\n{screen}"))
    };
    let words: Vec<_> = row("te_cat").split_whitespace().collect();
    assert_eq!(
        words,
        [
            "│01:00:05",
            "mcp",
            "reviewer",
            "te_cat",
            "ok,",
            "cut",
            "1.2",
            "s",
            "12.3k",
            "988k",
            "0",
            "path=a.txt",
            "│"
        ]
    );
    assert!(row("stat").contains("NOT_FOUND"));
    let order: Vec<_> = ["te_cat", "stat", "read_file"]
        .map(|tool| lines.iter().position(|line| line == row(tool)).unwrap())
        .into();
    assert!(order.is_sorted(), "newest on top");
}

#[test]
fn a_small_terminal_shows_the_panel_one_is_in() {
    let mut state = busy();
    let small = text(&state, 60, 20);
    assert!(
        small.contains("Calls 3") && small.contains("CallTotals"),
        "{small}"
    );
    assert!(!small.contains("Sessions"), "{small}");
    press(&mut state, "<tab><tab>");
    let small = text(&state, 60, 12);
    assert!(
        small.contains("Sessions") && !small.contains("CallTotals"),
        "{small}"
    );
    assert!(small.contains("reviewer"), "{small}");
    // Any size at all, in any state.
    for keys in ["", "?", "<esc><enter>", "<esc>/x"] {
        press(&mut state, keys);
        for (width, height) in [(1, 1), (2, 3), (10, 4), (39, 9), (100, 24), (300, 100)] {
            screen(&state, width, height);
        }
    }
}

#[test]
fn hostile_texts_stay_in_their_cells() {
    let evil =
        "\x1b]0;owned\x07\x1b[2J\u{202e}gnp\r\n\t日本語 שלום z\u{301}\u{301}\u{301}\u{301}\u{301}";
    let mut state = state(vec![ListedCall::new(CallEvent {
        time: jiff::Timestamp::from_second(3600).unwrap(),
        source: "mcp".to_owned(),
        tool: evil.to_owned(),
        agent: evil.to_owned(),
        session: evil.to_owned(),
        error_code: Some(evil.to_owned()),
        args: Some(evil.to_owned()),
        ..CallEvent::default()
    })]);
    state.apply(WatchUpdate::Failed(crate::text::legible(evil, 100)));
    for keys in ["", "<enter>", "<esc><tab>"] {
        press(&mut state, keys);
        for (width, height) in [(160, 40), (61, 20)] {
            let terminal = screen(&state, width, height);
            let buffer = terminal.backend().buffer();
            for cell in buffer.content() {
                let symbol = cell.symbol();
                assert!(symbol.chars().count() <= 4, "{symbol:?}");
                assert!(
                    !symbol.chars().any(|c| c.is_control() || c == '\u{202e}'),
                    "{symbol:?}"
                );
            }
            let last = usize::from(width) - 1;
            let rows = buffer.content().chunks(usize::from(width));
            let edges: Vec<_> = rows.map(|row| row[last].symbol()).collect();
            assert!(
                edges[1..usize::from(height) - 1]
                    .iter()
                    .all(|edge| ["│", "┐", "┘", " "].contains(edge)),
                "the frame is whole: {edges:?}"
            );
        }
    }
    press(&mut state, "<esc>");
    assert!(text(&state, 160, 40).contains("\\x1b]0;owned"));
}

#[test]
fn without_colours_nothing_is_coloured_and_nothing_is_lost() {
    let mut state = busy();
    press(&mut state, "<enter>");
    let plain = screen_in(Theme::Plain, &state, 120, 30);
    let cells = plain.backend().buffer().content();
    assert!(
        cells
            .iter()
            .all(|cell| (cell.fg, cell.bg) == (Color::Reset, Color::Reset))
    );
    let coloured = screen(&state, 120, 30);
    let same = cells
        .iter()
        .zip(coloured.backend().buffer().content())
        .all(|(plain, coloured)| plain.symbol() == coloured.symbol());
    assert!(same);
    assert!(
        coloured
            .backend()
            .buffer()
            .content()
            .iter()
            .any(|cell| cell.fg != Color::Reset)
    );
}

#[test]
fn a_long_list_scrolls_to_the_call_that_is_looked_at() {
    let mut state = state(
        (0..500)
            .map(|n| call(n, &format!("tool{n}"), |_| ()))
            .collect(),
    );
    assert!(text(&state, 120, 30).contains("tool499"));
    press(&mut state, "<end>");
    let end = lines(&state, 120, 30);
    let row = end
        .iter()
        .find(|line| line.contains("tool0 "))
        .expect("the oldest");
    assert!(row.contains("00:00:00"));
    assert!(!end.join("\n").contains("tool499 "));
}

#[test]
fn what_lies_over_the_panels() {
    let mut state = busy();
    press(&mut state, "<enter>");
    let details = text(&state, 120, 30);
    for expected in [
        "handle  res_01ARZ",
        "withheld  987,654",
        "1970-01-01 01:00:05 UTC",
    ] {
        assert!(details.contains(expected), "{expected:?} in\n{details}");
    }
    press(&mut state, "<esc>?");
    assert!(text(&state, 120, 30).contains("run this call again"));
    press(&mut state, "<esc>/not");
    let typing = text(&state, 120, 30);
    assert!(typing.contains("filter: not▏ 1 found"), "{typing}");
    press(&mut state, "<enter>");
    assert!(text(&state, 120, 30).contains("Calls 1 of 3 with \"not\""));
    press(&mut state, "p");
    state.apply(WatchUpdate::Calls(vec![call(3700, "x", |_| ())]));
    assert!(text(&state, 120, 30).contains("paused, 1 waiting"));
    press(&mut state, "/zzz<enter>");
    assert!(text(&state, 120, 30).contains("no call matches"));
    state.apply(WatchUpdate::Failed("cannot be read".to_owned()));
    assert!(text(&state, 120, 30).contains("cannot be read"));
}

/// A screen of changes with one of every kind.
fn changed(evil: &str) -> TuiState {
    let diff = format!("@@ -1,2 +1,2 @@\n same\n-old {evil}\n+new {evil}\n");
    let path = format!("src/{evil}");
    let entries = [
        entry(
            5,
            json!({"source": "undo", "undoes": ["h1"], "tool": "undo", "args": ""}),
        ),
        entry(
            4,
            json!({
                "source": "outside", "tool": "", "args": "", "agent": "", "session": "",
                "files": [{"path": path, "action": "changed"}, {"path": "gone", "action": "deleted"}],
            }),
        ),
        entry(
            3,
            json!({
                "tool": "run_cmd", "args": format!("sh -c '{evil}'"), "shared": true, "agent": evil, "session": evil,
                "files": [{"path": path, "action": "changed"}, {"path": "new", "action": "created"}],
                "changes": [{"path": path, "action": "changed", "diff": diff, "note": evil}],
            }),
        ),
        entry(2, json!({"not_kept": 3})),
        entry(1, json!({"undone_by": "h5", "undone": 1})),
    ];
    let mut state = busy();
    press(&mut state, "h");
    let changes = state.changes.as_mut().unwrap();
    serve(changes, &entries, 50);
    press(&mut state, "jj");
    let changes = state.changes.as_mut().unwrap();
    serve(changes, &entries, 50);
    state
}

#[test]
fn changes_and_a_diff_fit_a_small_terminal() {
    let mut state = changed("it");
    let lines = lines(&state, 80, 24);
    let screen = lines.join("\n");
    let row = |start: &str| {
        let found = lines
            .iter()
            .find(|line| line.starts_with(&format!("│{start} ")));
        let words = found.unwrap_or_else(|| panic!("{start} in\n{screen}"));
        words.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(row("h5"), "│h5 01:00:05 undo of h1 ~1 a.txt │");
    assert_eq!(
        row("h4"),
        "│h4 01:00:04 (outside) ~1 -1 outside src/it, gone │"
    );
    assert_eq!(row("h3"), "│h3 01:00:03 run_cmd +1 ~1 shared sh -c 'it' │");
    assert_eq!(
        row("h2"),
        "│h2 01:00:02 write_file ~1 3 not kept path=a.txt │"
    );
    assert_eq!(
        row("h1"),
        "│h1 01:00:01 write_file ~1 undone by h5 path=a.txt │"
    );
    for expected in [
        "5 changes by call",
        "h3 run_cmd",
        "agent it · session it",
        "changed src/it",
        "-old it",
        "+new it",
        "another writer was active meanwhile",
        "Esc calls",
        "q quit",
    ] {
        assert!(screen.contains(expected), "{expected:?} in\n{screen}");
    }
    press(&mut state, "<enter>");
    let alone = text(&state, 80, 24);
    assert!(
        alone.contains("+new it") && !alone.contains("undo of h1"),
        "{alone}"
    );
    press(&mut state, "<esc>b");
    let by_file = text(&state, 80, 24);
    assert!(by_file.contains("5 changes by file"), "{by_file}");
    assert!(by_file.contains("│src/it  "), "{by_file}");
    press(&mut state, "h");
    assert!(text(&state, 80, 24).contains("Calls 3"));
    press(&mut state, "h");
    assert!(text(&state, 80, 24).contains("reading the history"));
}

#[test]
fn hostile_changes_stay_in_their_cells() {
    let evil = "\x1b]0;owned\x07\x1b[2J\u{202e}gnp\r日本語 שלום z\u{301}\u{301}\u{301}\u{301}";
    for keys in ["", "b", "bb", "<enter>", "?"] {
        let mut state = changed(evil);
        press(&mut state, keys);
        for (width, height) in [(80, 24), (200, 40), (1, 1), (12, 5), (40, 9)] {
            let terminal = screen(&state, width, height);
            for cell in terminal.backend().buffer().content() {
                let symbol = cell.symbol();
                assert!(symbol.chars().count() <= 4, "{symbol:?}");
                assert!(
                    !symbol.chars().any(|c| c.is_control() || c == '\u{202e}'),
                    "{symbol:?}"
                );
            }
        }
        let rows = lines(&state, 80, 24);
        let is_whole = |line: &String| ["│", "┐", "┘"].iter().any(|edge| line.ends_with(edge));
        assert!(
            keys == "?" || rows[1..23].iter().all(is_whole),
            "{}",
            rows.join("\n")
        );
    }
    assert!(text(&changed(evil), 80, 24).contains("\\x1b]0;owned"));
}

#[test]
fn an_empty_view_is_labelled() {
    assert!(text(&state(Vec::new()), 100, 24).contains("no calls yet"));
}

#[test]
fn an_hour_fits_any_width() {
    let step = |at, served| TimeStep {
        at,
        totals: CallTotals {
            tokens: TokenCounts {
                served,
                ..TokenCounts::default()
            },
            ..CallTotals::default()
        },
    };
    let now = 7205;
    let steps = [
        step(0, 1),
        step(3600, 1),
        step(3610, 2),
        step(7200, 4),
        step(99_000, 8),
    ];
    let pick = |step: &TimeStep| step.totals.tokens.served;
    assert_eq!(
        panels::bars_of(&steps, now, 1, pick),
        [6],
        "older and later ones do not count"
    );
    assert_eq!(panels::bars_of(&steps, now, 2, pick), [2, 4]);
    let wide = panels::bars_of(&steps, now, 720, pick);
    assert_eq!((wide[0], wide[718]), (2, 4));
    assert!(panels::bars_of(&steps, now, 0, pick).is_empty());
}

#[test]
fn pages_are_readable_at_eighty_columns() {
    let mut state = busy();
    state.show_page(crate::pages::tests::agents_page());
    let shown = text(&state, 80, 24);
    for expected in [
        "Agents now",
        "stdio, process 12",
        "now   ann: run_cmd, 1.5 s",
        "runs  p_1",
        "last stat NOT_FOUND",
    ] {
        assert!(shown.contains(expected), "{expected:?} in\n{shown}");
    }
    press(&mut state, "<esc>");
    assert!(!text(&state, 80, 24).contains("process 12"));
    assert!(text(&state, 80, 24).contains("a agents"));
}
