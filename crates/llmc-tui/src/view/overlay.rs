//! What is drawn over the panels: help, details, questions, answers.

use ratatui::Frame;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Paragraph, Wrap};

use super::{block, centred};
use crate::call::ListedCall;
use crate::rerun::RepeatCall;
use crate::state::{Overlay, TuiState};
use crate::text::{grouped, legible, span};
use crate::theme::Theme;

const HELP: [(&str, &str); 17] = [
    ("q, Ctrl-C", "quit, and print the summary"),
    ("Tab, ← →", "to the next or previous panel"),
    ("↑ ↓, j k", "move; PgUp, PgDn, g and G go further"),
    (
        "Enter",
        "details of a call; in other panels, the calls behind the line",
    ),
    (
        "/",
        "show only calls that contain a text: tool, agent, code, path, …",
    ),
    ("Esc", "close, or show all calls again"),
    ("p, Space", "pause; calls are counted meanwhile"),
    ("c", "copy the handle of this call, or the newest one"),
    ("r", "run this call again; asks unless it only reads"),
    ("l", "open the token audit in $PAGER"),
    (
        "a",
        "what each agent is doing now; Enter twice on a call: its answer",
    ),
    ("s", "savings by day, client and tool"),
    ("h", "changes of files with their diffs; h or Esc returns"),
    (
        "b",
        "among changes: by call, by file, by session; `llmc undo` takes one back",
    ),
    ("?", "this help"),
    ("", ""),
    ("saved", "withheld tokens that were not fetched back"),
];

pub(super) fn draw(state: &TuiState, theme: Theme, frame: &mut Frame<'_>) {
    let Some(overlay) = &state.overlay else {
        return;
    };
    let (title, lines, scroll) = match overlay {
        Overlay::Help => ("Keys".to_owned(), help(theme), 0),
        Overlay::Details { call, scroll } => (
            "Call: Enter shows the answer, c copies the handle, r runs it again".to_owned(),
            details(state, theme, call),
            *scroll,
        ),
        Overlay::Confirm(call) => ("Run this again?".to_owned(), question(theme, call), 0),
        Overlay::Running { tool } => (
            "Running".to_owned(),
            vec![Line::raw(format!("{tool} is running; Esc stops it"))],
            0,
        ),
        Overlay::Page { page, scroll } => (
            page.title.to_owned(),
            page.lines
                .iter()
                .map(|line| Line::raw(line.as_str()))
                .collect(),
            *scroll,
        ),
        Overlay::Answer { answer, scroll } => {
            let outcome = if answer.failed { "failed" } else { "answered" };
            (
                format!("{} {outcome}: Esc closes", answer.tool),
                answer.text.lines().map(Line::raw).collect(),
                *scroll,
            )
        }
    };
    let area = frame.area();
    let width = area.width.saturating_sub(4).min(110);
    let inner = usize::from(width.saturating_sub(2)).max(1);
    let wrapped: usize = lines
        .iter()
        .map(|line| line.width().div_ceil(inner).max(1))
        .sum();
    let height = u16::try_from(wrapped + 2).unwrap_or(u16::MAX);
    let area = centred(
        area,
        width,
        height.min(area.height.saturating_sub(2)).max(3),
    );
    frame.render_widget(Clear, area);
    let text = Paragraph::new(lines)
        .wrap(Wrap { trim: false })
        .scroll((scroll, 0))
        .block(block(theme, title, true));
    frame.render_widget(text, area);
}

fn help<'a>(theme: Theme) -> Vec<Line<'a>> {
    let line = |(key, what): (&'a str, &'a str)| {
        Line::from(vec![
            Span::styled(format!("{key:>11}  "), theme.bold()),
            Span::raw(what),
        ])
    };
    HELP.into_iter().map(line).collect()
}

fn details<'a>(state: &TuiState, theme: Theme, listed: &'a ListedCall) -> Vec<Line<'a>> {
    let call = &listed.event;
    let number = |number: u64| grouped(i64::try_from(number).unwrap_or(i64::MAX));
    let fields = [
        ("tool", call.tool.clone()),
        ("status", listed.status().to_owned()),
        (
            "time",
            call.time
                .to_zoned(state.zone.clone())
                .strftime("%Y-%m-%d %H:%M:%S %Z")
                .to_string(),
        ),
        ("took", span(call.duration_ms)),
        ("source", call.source.clone()),
        ("agent", call.agent.clone()),
        (
            "client",
            legible(call.client.as_deref().unwrap_or_default(), 200),
        ),
        ("server", legible(&call.server, 80)),
        (
            "changes",
            legible(call.entry.as_deref().unwrap_or_default(), 80),
        ),
        ("session", call.session.clone()),
        ("model", call.model.clone()),
        ("tokens in", number(call.tokens_in)),
        ("served", number(call.tokens_served)),
        ("withheld", number(call.tokens_withheld)),
        ("fetched back", number(call.tokens_fetched_back)),
        (
            "handle",
            call.handle
                .map(|handle| handle.to_string())
                .unwrap_or_default(),
        ),
        match &call.args {
            Some(args) => ("arguments", legible(args, 2000)),
            None => ("about", listed.about.clone()),
        },
    ];
    let line = |(name, value): (&'a str, String)| {
        Line::from(vec![
            Span::styled(format!("{name:>12}  "), theme.dim()),
            Span::raw(value),
        ])
    };
    let present = fields.into_iter().filter(|(_, value)| !value.is_empty());
    present.map(line).collect()
}

fn question<'a>(theme: Theme, call: &RepeatCall) -> Vec<Line<'a>> {
    let args = serde_json::Value::Object(call.args.clone()).to_string();
    vec![
        Line::from(Span::styled(call.tool.name, theme.bold())),
        Line::raw(legible(&args, 2000)),
        Line::raw(""),
        Line::from(vec![
            Span::styled("It may change something. ", theme.warning()),
            Span::styled("y", theme.bold()),
            Span::raw(" runs it, any other key does not"),
        ]),
    ]
}
