//! The screen of changes: the list of entries, and the diff of the selected one below or beside it.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState};

use super::block;
use crate::changes::{ChangeRow, Changes, DiffLine, LineKind, ListedEntry};
use crate::state::TuiState;
use crate::text::count;
use crate::theme::Theme;

/// From this width on the diff is beside the list.
const MIN_BESIDE_COLUMNS: u16 = 150;
/// Of the lines of the screen, the share of the list.
const LIST_SHARE: (u16, u16) = (2, 5);
/// Columns for what is special about an entry.
const MAX_MARK_COLUMNS: usize = 32;

pub(super) fn draw(
    state: &TuiState,
    changes: &Changes,
    theme: Theme,
    frame: &mut Frame<'_>,
    area: Rect,
) {
    if changes.whole {
        diff(changes, theme, frame, area);
        return;
    }
    let [upper, lower] = if area.width >= MIN_BESIDE_COLUMNS {
        Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(area)
    } else {
        let lines = area.height * LIST_SHARE.0 / LIST_SHARE.1;
        Layout::vertical([Constraint::Length(lines.max(5)), Constraint::Fill(1)]).areas(area)
    };
    list(state, changes, theme, frame, upper);
    diff(changes, theme, frame, lower);
}

fn list(state: &TuiState, changes: &Changes, theme: Theme, frame: &mut Frame<'_>, area: Rect) {
    let entries = count(changes.entries.len() as u64, "change");
    let title = format!("{entries} {}", changes.grouping.name());
    if changes.rows.is_empty() {
        let text = match (&changes.failure, changes.loaded) {
            (Some(failure), _) => failure.as_str(),
            (None, false) => "reading the history …",
            (None, true) => "no changes yet: what calls change appears here",
        };
        let text = Paragraph::new(Span::styled(text, theme.dim()))
            .wrap(ratatui::widgets::Wrap { trim: true })
            .block(block(theme, title, true));
        frame.render_widget(text, area);
        return;
    }
    // Only what can be on the screen is laid out.
    let height = usize::from(area.height).max(1);
    let first = (changes.line + 1).saturating_sub(height.saturating_sub(2).max(1));
    let shown: Vec<_> = changes.rows.iter().skip(first).take(height).collect();
    let entry_of = |row: &&ChangeRow| match row {
        ChangeRow::Heading(_) => None,
        ChangeRow::Entry { at, .. } => changes.entries.get(*at),
    };
    let marks = shown.iter().filter_map(entry_of).map(|entry| entry.marks());
    let marks = marks.map(|mark| mark.chars().count()).max().unwrap_or(0);
    let marks = u16::try_from(marks.min(MAX_MARK_COLUMNS)).unwrap_or_default();
    // Headings take a line of their own, over all columns: they are drawn after the table.
    let rows = shown.iter().map(|row| match entry_of(row) {
        Some(entry) => line(state, theme, entry),
        None => Row::new([Cell::default()]),
    });
    let widths = [
        Constraint::Length(5),
        Constraint::Length(11),
        Constraint::Length(16),
        Constraint::Length(9),
        Constraint::Length(marks),
        Constraint::Fill(1),
    ];
    let frame_of = block(theme, title, true);
    let inner = frame_of.inner(area);
    let table = Table::new(rows, widths)
        .row_highlight_style(theme.chosen())
        .block(frame_of);
    let mut at = TableState::new().with_selected(changes.line.checked_sub(first));
    frame.render_stateful_widget(table, area, &mut at);
    for (row, y) in shown.iter().zip(inner.y..inner.bottom()) {
        if let ChangeRow::Heading(heading) = row {
            let heading = Paragraph::new(Span::styled(heading.as_str(), theme.bold()));
            let area = Rect {
                y,
                height: 1,
                ..inner
            };
            frame.render_widget(heading, area);
        }
    }
}

fn line<'a>(state: &TuiState, theme: Theme, entry: &ListedEntry) -> Row<'a> {
    let time = entry.time.map(|time| {
        let zoned = time.to_zoned(state.zone.clone());
        let today = zoned.date() == state.now.to_zoned(state.zone.clone()).date();
        let form = if today { "%H:%M:%S" } else { "%d %b %H:%M" };
        zoned.strftime(form).to_string()
    });
    let undone = !entry.undone_by.is_empty();
    let what = match entry.source.as_str() {
        _ if undone => theme.dim(),
        "outside" => theme.warning(),
        _ => theme.bold(),
    };
    let marks = if undone && !entry.shared {
        theme.dim()
    } else {
        theme.warning()
    };
    Row::new([
        Cell::from(entry.id.clone()),
        Cell::from(time.unwrap_or_default()).style(theme.dim()),
        Cell::from(entry.what()).style(what),
        Cell::from(entry.counts()),
        Cell::from(entry.marks()).style(marks),
        Cell::from(entry.about()).style(theme.dim()),
    ])
}

fn diff(changes: &Changes, theme: Theme, frame: &mut Frame<'_>, area: Rect) {
    let title = match changes.selected() {
        Some((entry, None)) => format!("{} {}", entry.id, entry.what()),
        Some((entry, Some(path))) => format!("{} {} · {path}", entry.id, entry.what()),
        None => "Diff".to_owned(),
    };
    let frame_of = block(theme, title, changes.whole);
    let inner = frame_of.inner(area);
    frame.render_widget(frame_of, area);
    let lines = match (changes.diff(), &changes.failure) {
        (_, Some(failure)) if !changes.rows.is_empty() => {
            vec![Line::from(Span::styled(failure.as_str(), theme.bad()))]
        }
        (Some(lines), _) => {
            let lines = lines.into_iter().skip(usize::from(changes.scroll));
            let lines = lines.take(usize::from(inner.height));
            lines.map(|line| styled(theme, line)).collect()
        }
        (None, _) => Vec::new(),
    };
    frame.render_widget(Paragraph::new(lines).scroll((0, changes.column)), inner);
}

fn styled<'a>(theme: Theme, line: &'a DiffLine) -> Line<'a> {
    let style = match line.kind {
        LineKind::Note | LineKind::Hunk => theme.dim(),
        LineKind::Warning => theme.warning(),
        LineKind::File => theme.title(),
        LineKind::Added => theme.good(),
        LineKind::Removed => theme.bad(),
        LineKind::Same => Style::new(),
    };
    Line::from(Span::styled(line.text.as_str(), style))
}
