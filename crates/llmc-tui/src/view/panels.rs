//! The panels.

use llmc_observe::{Aggregator, TimeStep};
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Cell, Paragraph, Row, Sparkline, Table, TableState};

use super::block;
use crate::state::{Panel, TuiState};
use crate::text::{clock, count, grouped, short, span};
use crate::theme::Theme;

/// From this width on calls also show their source and agent.
const MIN_AGENT_COLUMNS: u16 = 90;

pub(super) fn totals(state: &TuiState, theme: Theme, frame: &mut Frame<'_>, area: Rect) {
    let totals = &state.summary.totals;
    let tokens = &totals.tokens;
    let saved = match totals.saved_percent() {
        Some(percent) => format!("{} ({percent:.0} %)", grouped(totals.net_saved())),
        None => grouped(totals.net_saved()),
    };
    let errors = if totals.errors == 0 {
        theme.dim()
    } else {
        theme.bad()
    };
    let quantiles = &state.summary.latency_ms;
    let latency = match (quantiles.p50, quantiles.p95) {
        (Some(p50), Some(p95)) => format!("p50 {} · p95 {}", span(p50), span(p95)),
        _ => "no calls yet".to_owned(),
    };
    let text = vec![
        Line::from(vec![
            Span::styled(format!("{:>7} ", short(totals.calls)), theme.bold()),
            Span::raw("calls  "),
            Span::styled(count(totals.errors, "error"), errors),
        ]),
        Line::from(vec![
            Span::styled(format!("{:>7} ", short(tokens.served)), theme.served()),
            Span::raw("served "),
            Span::styled(format!("{:>6} ", short(tokens.withheld)), theme.withheld()),
            Span::raw("withheld "),
            Span::raw(format!("{} back", short(tokens.fetched_back))),
        ]),
        Line::from(vec![
            Span::styled("  saved ", theme.dim()),
            Span::styled(saved, theme.good()),
            Span::raw(" tokens"),
        ]),
        Line::from(Span::styled(format!("latency {latency}"), theme.dim())),
    ];
    frame.render_widget(
        Paragraph::new(text).block(block(theme, "CallTotals", false)),
        area,
    );
}

/// Which tokens of a step are shown.
type StepTokens = fn(&TimeStep) -> u64;

/// Tokens over the last hour, one bar a column.
pub(super) fn tokens(state: &TuiState, theme: Theme, frame: &mut Frame<'_>, area: Rect) {
    let frame_of = block(theme, "Tokens, last hour", false);
    let inner = frame_of.inner(area);
    frame.render_widget(frame_of, area);
    let rows = Layout::vertical([Constraint::Fill(1), Constraint::Fill(1)]).split(inner);
    let series: [(&str, Style, StepTokens); 2] = [
        ("served", theme.served(), |step| step.totals.tokens.served),
        ("withheld", theme.withheld(), |step| {
            step.totals.tokens.withheld
        }),
    ];
    for ((name, style, pick), row) in series.into_iter().zip(rows.iter()) {
        let [label, bars] =
            Layout::horizontal([Constraint::Length(15), Constraint::Fill(1)]).areas(*row);
        let data = bars_of(
            &state.summary.over_time.steps,
            state.now.as_second(),
            bars.width,
            pick,
        );
        let highest = data.iter().copied().max().unwrap_or(0);
        let text = Text::from(vec![
            Line::from(Span::styled(name, theme.bold())),
            Line::from(Span::styled(
                format!("most {}", short(highest)),
                theme.dim(),
            )),
        ]);
        frame.render_widget(Paragraph::new(text), label);
        frame.render_widget(Sparkline::default().data(data).style(style), bars);
    }
}

/// The hour before `now` in so many columns, the latest on the right.
pub(super) fn bars_of(steps: &[TimeStep], now: i64, columns: u16, pick: StepTokens) -> Vec<u64> {
    let columns = usize::from(columns);
    let step_seconds = Aggregator::STEP_SECONDS;
    let hour = step_seconds * Aggregator::MAX_STEPS as i64;
    let first = now.div_euclid(step_seconds) * step_seconds + step_seconds - hour;
    let mut bars = vec![0u64; columns];
    for step in steps {
        let Ok(offset) = usize::try_from(step.at - first) else {
            continue;
        };
        if let Some(bar) = bars.get_mut(offset * columns / hour as usize) {
            *bar = bar.saturating_add(pick(step));
        }
    }
    bars
}

pub(super) fn calls(state: &TuiState, theme: Theme, frame: &mut Frame<'_>, area: Rect) {
    let roomy = area.width >= MIN_AGENT_COLUMNS;
    let shown = state.shown().count();
    let mut title = format!("Calls {shown}");
    if !state.filter.is_empty() {
        title = format!(
            "Calls {shown} of {} with \"{}\"",
            state.calls.len(),
            state.filter
        );
    }
    let line = state.line(Panel::Calls).min(shown.saturating_sub(1));
    // Only what can be on the screen is laid out.
    let height = usize::from(area.height).max(1);
    let first = (line + 1).saturating_sub(height);
    let rows = state.shown().skip(first).take(height).map(|(_, listed)| {
        let call = &listed.event;
        let status = if call.error_code.is_some() {
            theme.bad()
        } else if call.truncated {
            theme.warning()
        } else {
            theme.good()
        };
        let zero_is_dim = |number: u64, style| if number == 0 { theme.dim() } else { style };
        let mut cells = vec![Cell::from(clock(call.time, &state.zone)).style(theme.dim())];
        if roomy {
            cells.push(Cell::from(call.source.as_str()));
            cells.push(Cell::from(call.agent.as_str()));
        }
        cells.extend([
            Cell::from(call.tool.as_str()).style(theme.bold()),
            Cell::from(listed.status()).style(status),
            right(span(call.duration_ms), Style::new()),
            right(
                short(call.tokens_served),
                zero_is_dim(call.tokens_served, theme.served()),
            ),
            right(
                short(call.tokens_withheld),
                zero_is_dim(call.tokens_withheld, theme.withheld()),
            ),
            right(
                short(call.tokens_fetched_back),
                zero_is_dim(call.tokens_fetched_back, theme.warning()),
            ),
            Cell::from(listed.about.as_str()).style(theme.dim()),
        ]);
        Row::new(cells)
    });
    let mut header = vec![Cell::from("time")];
    let mut widths = vec![Constraint::Length(8)];
    if roomy {
        header.extend([Cell::from("from"), Cell::from("agent")]);
        widths.extend([Constraint::Length(4), Constraint::Length(12)]);
    }
    header.extend([Cell::from("tool"), Cell::from("status")]);
    header.extend(
        ["took", "served", "held", "back"].map(|name| right(name.to_owned(), Style::new())),
    );
    header.push(Cell::from("about"));
    widths.extend([20, 14, 8, 6, 6, 6].map(Constraint::Length));
    widths.push(Constraint::Fill(1));
    let table = Table::new(rows, widths)
        .header(Row::new(header).style(theme.dim()))
        .row_highlight_style(theme.chosen())
        .block(block(theme, title, state.focus == Panel::Calls));
    let mut at = TableState::new().with_selected((shown > 0).then_some(line - first));
    frame.render_stateful_widget(table, area, &mut at);
    if shown == 0 {
        let text = if state.calls.is_empty() {
            "no calls yet: they appear here as agents make them"
        } else {
            "no call matches the filter; Esc shows all"
        };
        let inner = Rect {
            y: area.y + area.height / 2,
            height: 1.min(area.height),
            ..area
        };
        frame.render_widget(
            Paragraph::new(Span::styled(text, theme.dim())).alignment(Alignment::Center),
            inner,
        );
    }
}

pub(super) fn tools(state: &TuiState, theme: Theme, frame: &mut Frame<'_>, area: Rect) {
    let rows = state.summary.tools.iter().map(|tool| {
        let quantile = |ms: Option<f64>| right(ms.map(span).unwrap_or_default(), Style::new());
        Row::new([
            Cell::from(tool.tool.as_str()),
            right(short(tool.totals.calls), theme.bold()),
            quantile(tool.latency_ms.p50),
            quantile(tool.latency_ms.p95),
        ])
    });
    let widths = [
        Constraint::Fill(1),
        Constraint::Length(6),
        Constraint::Length(8),
        Constraint::Length(8),
    ];
    let header = ["tool", "calls", "p50", "p95"];
    list(
        state,
        theme,
        frame,
        area,
        Panel::Tools,
        "Latency",
        header,
        rows,
        widths,
    );
}

pub(super) fn sessions(state: &TuiState, theme: Theme, frame: &mut Frame<'_>, area: Rect) {
    let rows = state.summary.sessions.iter().map(|session| {
        Row::new([
            Cell::from(session.agent.as_str()),
            Cell::from(session.session.as_str()).style(theme.dim()),
            right(short(session.totals.calls), theme.bold()),
            right(short(session.totals.tokens.served), theme.served()),
            right(clock(session.last, &state.zone), theme.dim()),
        ])
    });
    let widths = [
        Constraint::Fill(2),
        Constraint::Fill(2),
        Constraint::Length(5),
        Constraint::Length(6),
        Constraint::Length(8),
    ];
    let header = ["agent", "session", "calls", "served", "last"];
    list(
        state,
        theme,
        frame,
        area,
        Panel::Sessions,
        "Sessions",
        header,
        rows,
        widths,
    );
}

pub(super) fn errors(state: &TuiState, theme: Theme, frame: &mut Frame<'_>, area: Rect) {
    let rows = state.summary.errors.iter().map(|error| {
        Row::new([
            Cell::from(error.code.as_str()).style(theme.bad()),
            right(short(error.count), theme.bold()),
        ])
    });
    let widths = [Constraint::Fill(1), Constraint::Length(6)];
    list(
        state,
        theme,
        frame,
        area,
        Panel::Errors,
        "Errors",
        ["code", "count"],
        rows,
        widths,
    );
}

/// A list with a title, a header and a cursor.
#[allow(clippy::too_many_arguments, reason = "the parts of one list")]
fn list<'a, const N: usize>(
    state: &TuiState,
    theme: Theme,
    frame: &mut Frame<'_>,
    area: Rect,
    panel: Panel,
    title: &str,
    header: [&'static str; N],
    rows: impl Iterator<Item = Row<'a>>,
    widths: [Constraint; N],
) {
    let focused = state.focus == panel;
    let names = header.map(|name| match name {
        "calls" | "p50" | "p95" | "served" | "last" | "count" => {
            right(name.to_owned(), Style::new())
        }
        _ => Cell::from(name),
    });
    let mut table = Table::new(rows, widths)
        .header(Row::new(names).style(theme.dim()))
        .block(block(theme, title, focused));
    if focused {
        table = table.row_highlight_style(theme.chosen());
    }
    let mut at = TableState::new().with_selected(state.line(panel));
    frame.render_stateful_widget(table, area, &mut at);
}

fn right<'a>(text: String, style: Style) -> Cell<'a> {
    Cell::from(Text::from(text).alignment(Alignment::Right)).style(style)
}
