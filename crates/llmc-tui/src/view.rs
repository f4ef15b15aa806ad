//! The state as cells of a terminal.
//!
//! All panels fit from 100 columns and 24 lines on. A smaller terminal shows the focused panel, and below 14 lines nothing
//! else. While changes are shown they have the whole screen, which is made for 80 columns and 24 lines.

mod changes;
mod overlay;
mod panels;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph};

use crate::state::{Panel, TuiState};
use crate::text::legible;
use crate::theme::Theme;

/// From this size on all panels are shown.
const MIN_FULL_COLUMNS: u16 = 100;
const MIN_FULL_LINES: u16 = 24;
/// From this height on totals are shown.
const MIN_TOTALS_LINES: u16 = 14;

/// Keys of each screen, as the last line names them.
const CALL_KEYS: [(&str, &str); 12] = [
    ("q", "quit"),
    ("?", "help"),
    ("Enter", "details"),
    ("a", "agents"),
    ("s", "savings"),
    ("h", "changes"),
    ("/", "filter"),
    ("p", "pause"),
    ("c", "copy handle"),
    ("r", "run again"),
    ("l", "audit"),
    ("Tab", "panel"),
];
const CHANGE_KEYS: [(&str, &str); 7] = [
    ("Esc", "calls"),
    ("↑↓", "entry"),
    ("PgUp PgDn", "diff"),
    ("Enter", "diff alone"),
    ("b", "group"),
    ("?", "help"),
    ("q", "quit"),
];
const DIFF_KEYS: [(&str, &str); 4] = [
    ("Esc", "list"),
    ("↑↓ PgUp PgDn ←→", "move"),
    ("?", "help"),
    ("q", "quit"),
];

pub(crate) fn draw(state: &TuiState, theme: Theme, frame: &mut Frame<'_>) {
    let [head, middle, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(header(state, theme), head);
    frame.render_widget(footer(state, theme, foot.width), foot);
    if let Some(changes) = &state.changes {
        changes::draw(state, changes, theme, frame, middle);
        overlay::draw(state, theme, frame);
        return;
    }
    let all = frame.area().width >= MIN_FULL_COLUMNS && frame.area().height >= MIN_FULL_LINES;
    let top = if frame.area().height >= MIN_TOTALS_LINES {
        6
    } else {
        0
    };
    let bottom = if all {
        (middle.height / 3).clamp(7, 14)
    } else {
        0
    };
    let [top, main, bottom] = Layout::vertical([
        Constraint::Length(top),
        Constraint::Fill(1),
        Constraint::Length(bottom),
    ])
    .areas(middle);
    if top.height > 0 {
        let [totals, tokens] =
            Layout::horizontal([Constraint::Length(42), Constraint::Fill(1)]).areas(top);
        panels::totals(state, theme, frame, totals);
        panels::tokens(state, theme, frame, tokens);
    }
    if all {
        panels::calls(state, theme, frame, main);
        let [tools, sessions, errors] = Layout::horizontal([
            Constraint::Fill(5),
            Constraint::Fill(5),
            Constraint::Fill(3),
        ])
        .areas(bottom);
        panels::tools(state, theme, frame, tools);
        panels::sessions(state, theme, frame, sessions);
        panels::errors(state, theme, frame, errors);
    } else {
        match state.focus {
            Panel::Calls => panels::calls(state, theme, frame, main),
            Panel::Tools => panels::tools(state, theme, frame, main),
            Panel::Sessions => panels::sessions(state, theme, frame, main),
            Panel::Errors => panels::errors(state, theme, frame, main),
        }
    }
    overlay::draw(state, theme, frame);
}

fn header<'a>(state: &'a TuiState, theme: Theme) -> Line<'a> {
    let mut line = vec![Span::styled(" LLMC ", theme.title())];
    line.push(match state.paused_calls() {
        Some(calls) => Span::styled(format!("paused, {calls} waiting "), theme.warning()),
        None if state.failure.is_some() => Span::styled("waiting ", theme.warning()),
        None => Span::styled("live ", theme.good()),
    });
    line.push(Span::raw(legible(&state.watched, 200)));
    line.push(Span::styled(format!(" · {}", state.span), theme.dim()));
    Line::from(line)
}

fn footer<'a>(state: &'a TuiState, theme: Theme, width: u16) -> Paragraph<'a> {
    if let Some(typed) = &state.typing {
        let found = state.shown().count();
        return Paragraph::new(Line::from(vec![
            Span::styled(" filter: ", theme.title()),
            Span::raw(legible(typed, 100)),
            Span::styled("▏", theme.bold()),
            Span::styled(
                format!(" {found} found · Enter applies · Esc cancels"),
                theme.dim(),
            ),
        ]));
    }
    if let Some(notice) = state.notice() {
        return Paragraph::new(Span::styled(format!(" {notice}"), theme.warning()));
    }
    if let Some(failure) = &state.failure {
        return Paragraph::new(Span::styled(format!(" {failure}"), theme.bad()));
    }
    let keys: &[(&str, &str)] = match &state.changes {
        None => &CALL_KEYS,
        Some(changes) if changes.whole => &DIFF_KEYS,
        Some(_) => &CHANGE_KEYS,
    };
    let mut line = Vec::new();
    let mut used = 0;
    for (key, what) in keys {
        // Columns, not bytes: arrows are one column wide.
        used += key.chars().count() + what.len() + 3;
        if used > usize::from(width) {
            break;
        }
        line.push(Span::styled(format!(" {key} "), theme.bold()));
        line.push(Span::styled(format!("{what} "), theme.dim()));
    }
    Paragraph::new(Line::from(line))
}

/// A frame with a title.
fn block<'a>(theme: Theme, title: impl Into<String>, focused: bool) -> Block<'a> {
    Block::bordered()
        .border_style(theme.border(focused))
        .title(Span::styled(
            format!(" {} ", title.into()),
            if focused { theme.title() } else { theme.bold() },
        ))
}

/// The middle of an area, at most this large.
fn centred(area: Rect, width: u16, height: u16) -> Rect {
    let width = width.min(area.width);
    let height = height.min(area.height);
    Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    }
}

#[cfg(test)]
mod tests;
