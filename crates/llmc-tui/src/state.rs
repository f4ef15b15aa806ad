//! What is on the screen, and how keys and updates change it.
//!
//! Nothing here knows a terminal, a clock or a file: everything comes in through [`TuiState::key`], [`TuiState::apply`] and
//! [`TuiState::tick`].

use std::collections::VecDeque;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use llmc_envelope::HandleId;
use llmc_observe::{Aggregator, Summary};

use crate::call::ListedCall;
use crate::changes::{Changes, HistoryRequest, HistoryUpdate};
use crate::keys::Key;
use crate::pages::{Page, PageKind};
use crate::rerun::{RepeatAnswer, RepeatCall};
use crate::text::count;
use crate::watch::{MAX_LISTED_CALLS, WatchUpdate};

const MAX_FILTER_CHARS: usize = 80;
/// Lines that a page key moves.
const PAGE_LINES: usize = 10;
const NOTICE_SECONDS: i64 = 6;

/// What the terminal or the application has to do for a key.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Action {
    Quit,
    /// Put a handle into the clipboard.
    Copy(HandleId),
    /// Show the audit file.
    OpenLog,
    Run(RepeatCall),
    /// Cancel the call that was run again.
    Stop,
    Show(PageKind),
}

/// A list with a cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Panel {
    Calls,
    Tools,
    Sessions,
    Errors,
}

impl Panel {
    pub(crate) const ALL: [Panel; 4] = [Panel::Calls, Panel::Tools, Panel::Sessions, Panel::Errors];

    fn next(self, by: usize) -> Panel {
        Panel::ALL[(self as usize + by) % Panel::ALL.len()]
    }
}

/// What is drawn over the panels.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Overlay {
    Help,
    Details {
        call: Box<ListedCall>,
        scroll: u16,
    },
    /// Asks whether to run this call.
    Confirm(RepeatCall),
    Running {
        tool: String,
    },
    Answer {
        answer: RepeatAnswer,
        scroll: u16,
    },
    Page {
        page: Page,
        scroll: u16,
    },
}

/// What came in during a pause.
#[derive(Debug, Default)]
struct PausedUpdates {
    calls: Vec<ListedCall>,
    /// Includes those that were too many to keep.
    count: u64,
    summary: Option<Box<Summary>>,
}

/// Everything that is shown.
#[derive(Debug)]
pub(crate) struct TuiState {
    /// The workspace, or the server's address.
    pub(crate) watched: String,
    pub(crate) span: String,
    pub(crate) zone: TimeZone,
    pub(crate) now: Timestamp,
    /// Numbered, newest first.
    pub(crate) calls: VecDeque<(u64, ListedCall)>,
    numbered: u64,
    pub(crate) summary: Summary,
    /// Present during a pause.
    paused: Option<PausedUpdates>,
    pub(crate) focus: Panel,
    /// The number of the call under the cursor; without one, the newest.
    chosen: Option<u64>,
    /// The cursor in each panel.
    lines: [usize; 4],
    pub(crate) filter: String,
    /// The filter while it is typed.
    pub(crate) typing: Option<String>,
    pub(crate) overlay: Option<Overlay>,
    notice: Option<(String, Timestamp)>,
    /// Why watching fails at present.
    pub(crate) failure: Option<String>,
    copied: Option<HandleId>,
    /// Present while changes are shown in the place of calls.
    pub(crate) changes: Option<Changes>,
}

impl TuiState {
    pub(crate) fn new(
        watched: impl Into<String>,
        span: impl Into<String>,
        zone: TimeZone,
        now: Timestamp,
    ) -> TuiState {
        TuiState {
            watched: watched.into(),
            span: span.into(),
            zone,
            now,
            calls: VecDeque::new(),
            numbered: 0,
            summary: Summary::default(),
            paused: None,
            focus: Panel::Calls,
            chosen: None,
            lines: [0; 4],
            filter: String::new(),
            typing: None,
            overlay: None,
            notice: None,
            failure: None,
            copied: None,
            changes: None,
        }
    }

    /// Sets the time; returns whether that changes what is shown.
    pub(crate) fn tick(&mut self, now: Timestamp) -> bool {
        let step = |time: Timestamp| time.as_second().div_euclid(Aggregator::STEP_SECONDS);
        let moved = step(now) != step(self.now) && !self.summary.over_time.steps.is_empty();
        let notice = self.notice.as_ref();
        let over = notice.is_some_and(|(_, at)| now.as_second() - at.as_second() >= NOTICE_SECONDS);
        if over {
            self.notice = None;
        }
        self.now = now;
        moved || over
    }

    pub(crate) fn apply(&mut self, update: WatchUpdate) {
        if let (WatchUpdate::Calls(calls), Some(changes)) = (&update, &mut self.changes)
            && calls.iter().any(ListedCall::may_change_files)
        {
            changes.refresh();
        }
        match (update, &mut self.paused) {
            (WatchUpdate::Calls(calls), Some(paused)) => {
                paused.count += calls.len() as u64;
                paused.calls.extend(calls);
                let excess = paused.calls.len().saturating_sub(MAX_LISTED_CALLS);
                paused.calls.drain(..excess);
            }
            (WatchUpdate::Calls(calls), None) => self.add(calls),
            (WatchUpdate::Summary(summary), Some(paused)) => paused.summary = Some(summary),
            (WatchUpdate::Summary(summary), None) => self.summary = *summary,
            (WatchUpdate::Failed(reason), _) => self.failure = Some(reason),
            (WatchUpdate::Recovered, _) => self.failure = None,
        }
    }

    pub(crate) fn apply_history(&mut self, update: HistoryUpdate) {
        if let Some(changes) = &mut self.changes {
            changes.apply(update);
        }
    }

    /// What is to be asked of the history, taken.
    pub(crate) fn history_wanted(&mut self) -> Option<HistoryRequest> {
        self.changes.as_mut()?.take_wanted()
    }

    fn add(&mut self, calls: Vec<ListedCall>) {
        for call in calls {
            self.numbered += 1;
            self.calls.push_front((self.numbered, call));
        }
        self.calls.truncate(MAX_LISTED_CALLS);
    }

    /// Shows a text for some seconds.
    pub(crate) fn notify(&mut self, text: impl Into<String>) {
        self.notice = Some((text.into(), self.now));
    }

    pub(crate) fn notice(&self) -> Option<&str> {
        self.notice.as_ref().map(|(text, _)| text.as_str())
    }

    /// How many calls came in during the pause, if there is one.
    pub(crate) fn paused_calls(&self) -> Option<u64> {
        self.paused.as_ref().map(|paused| paused.count)
    }

    /// The handle that was copied last.
    pub(crate) fn copied(&self) -> Option<HandleId> {
        self.copied
    }

    pub(crate) fn show_running(&mut self, tool: &str) {
        self.overlay = Some(Overlay::Running {
            tool: tool.to_owned(),
        });
    }

    /// Shows a page, or its newer version where the person has scrolled to.
    pub(crate) fn show_page(&mut self, page: Page) {
        let scroll = match &self.overlay {
            Some(Overlay::Page {
                page: shown,
                scroll,
            }) if shown.kind == page.kind => *scroll,
            _ => 0,
        };
        self.overlay = Some(Overlay::Page { page, scroll });
    }

    /// Whether the page that is shown changes by itself.
    pub(crate) fn live_page(&self) -> Option<PageKind> {
        match &self.overlay {
            Some(Overlay::Page { page, .. }) if page.kind == PageKind::Agents => Some(page.kind),
            _ => None,
        }
    }

    pub(crate) fn show_answer(&mut self, answer: RepeatAnswer) {
        self.overlay = Some(Overlay::Answer { answer, scroll: 0 });
    }

    /// The latest summary, also when a pause hides it.
    pub(crate) fn into_summary(self) -> Summary {
        let paused = self.paused.and_then(|paused| paused.summary);
        paused.map_or(self.summary, |summary| *summary)
    }

    /// The calls that pass the filter, newest first.
    pub(crate) fn shown(&self) -> impl Iterator<Item = &(u64, ListedCall)> {
        let wanted = self
            .typing
            .as_deref()
            .unwrap_or(&self.filter)
            .to_lowercase();
        self.calls
            .iter()
            .filter(move |(_, call)| call.matches(&wanted))
    }

    /// The cursor among them.
    pub(crate) fn line_of_calls(&self) -> usize {
        let Some(chosen) = self.chosen else { return 0 };
        // Its line, or that of the next older one when it is gone.
        let newer = self.shown().take_while(|(number, _)| *number > chosen);
        newer.count()
    }

    pub(crate) fn line(&self, panel: Panel) -> usize {
        if panel == Panel::Calls {
            return self.line_of_calls();
        }
        self.lines[panel as usize].min(self.length(panel).saturating_sub(1))
    }

    fn length(&self, panel: Panel) -> usize {
        match panel {
            Panel::Calls => self.shown().count(),
            Panel::Tools => self.summary.tools.len(),
            Panel::Sessions => self.summary.sessions.len(),
            Panel::Errors => self.summary.errors.len(),
        }
    }

    fn selected(&self) -> Option<&ListedCall> {
        let line = self.line_of_calls();
        let found = self.shown().nth(line).or_else(|| self.shown().last());
        found.map(|(_, call)| call)
    }

    pub(crate) fn key(&mut self, key: Key) -> Option<Action> {
        if key == Key::Ctrl('c') {
            return Some(Action::Quit);
        }
        // The next key ends it.
        self.notice = None;
        if self.typing.is_some() {
            self.key_while_typing(key);
            return None;
        }
        if let Some(overlay) = self.overlay.take() {
            return self.key_over(overlay, key);
        }
        if let Some(changes) = &mut self.changes
            && !matches!(key, Key::Char('q' | '?'))
        {
            if changes.key(key) {
                self.changes = None;
            }
            return None;
        }
        match key {
            Key::Char('q') => return Some(Action::Quit),
            Key::Char('?') => self.overlay = Some(Overlay::Help),
            Key::Char('h') => self.changes = Some(Changes::new()),
            Key::Char('a') => return Some(Action::Show(PageKind::Agents)),
            Key::Char('s') => return Some(Action::Show(PageKind::Savings)),
            Key::Char('/') => self.typing = Some(self.filter.clone()),
            Key::Char('p' | ' ') => self.toggle_pause(),
            Key::Char('c') => return self.copy(),
            Key::Char('l') => return Some(Action::OpenLog),
            Key::Char('r') => return self.repeat(),
            Key::Enter => self.open(),
            Key::Esc => self.filter.clear(),
            Key::Tab | Key::Right => self.focus = self.focus.next(1),
            Key::BackTab | Key::Left => self.focus = self.focus.next(Panel::ALL.len() - 1),
            Key::Up | Key::Char('k') => self.move_cursor(|line| line.saturating_sub(1)),
            Key::Down | Key::Char('j') => self.move_cursor(|line| line + 1),
            Key::PageUp => self.move_cursor(|line| line.saturating_sub(PAGE_LINES)),
            Key::PageDown => self.move_cursor(|line| line + PAGE_LINES),
            Key::Home | Key::Char('g') => self.move_cursor(|_| 0),
            Key::End | Key::Char('G') => self.move_cursor(|_| usize::MAX),
            _ => {}
        }
        None
    }

    fn key_while_typing(&mut self, key: Key) {
        let Some(typed) = &mut self.typing else {
            return;
        };
        match key {
            Key::Enter => {
                self.filter = std::mem::take(typed);
                self.typing = None;
                self.chosen = None;
                self.focus = Panel::Calls;
            }
            Key::Esc => self.typing = None,
            Key::Backspace => drop(typed.pop()),
            Key::Char(c) if !c.is_control() && typed.chars().count() < MAX_FILTER_CHARS => {
                typed.push(c)
            }
            _ => {}
        }
    }

    fn key_over(&mut self, overlay: Overlay, key: Key) -> Option<Action> {
        match (overlay, key) {
            (Overlay::Confirm(call), Key::Char('y' | 'Y')) => return Some(Action::Run(call)),
            (Overlay::Confirm(call), _) => {
                self.notify(format!("{} was not run", call.tool.name));
            }
            (Overlay::Running { tool }, Key::Esc | Key::Char('q')) => {
                self.overlay = Some(Overlay::Running { tool });
                return Some(Action::Stop);
            }
            (Overlay::Running { tool }, _) => self.overlay = Some(Overlay::Running { tool }),
            (Overlay::Details { .. }, Key::Char('c')) => return self.copy(),
            (Overlay::Details { .. }, Key::Char('r')) => return self.repeat(),
            (Overlay::Details { call, scroll }, Key::Enter) => {
                let number = call.event.seq;
                if number.is_none() {
                    self.notify("this call's arguments and answer are on the server's dashboard");
                }
                self.overlay = Some(Overlay::Details { call, scroll });
                return number.map(|number| Action::Show(PageKind::Call(number)));
            }
            (Overlay::Page { page, scroll }, key) => {
                if let Some(scroll) = scrolled(scroll, key) {
                    let last = page.lines.len().saturating_sub(1);
                    let scroll = scroll.min(u16::try_from(last).unwrap_or(u16::MAX));
                    self.overlay = Some(Overlay::Page { page, scroll });
                }
            }
            (Overlay::Details { call, scroll }, key) => {
                if let Some(scroll) = scrolled(scroll, key) {
                    self.overlay = Some(Overlay::Details { call, scroll });
                }
            }
            (Overlay::Answer { answer, scroll }, key) => {
                if let Some(scroll) = scrolled(scroll, key) {
                    let last = answer.text.lines().count().saturating_sub(1);
                    let scroll = scroll.min(u16::try_from(last).unwrap_or(u16::MAX));
                    self.overlay = Some(Overlay::Answer { answer, scroll });
                }
            }
            (Overlay::Help, _) => {}
        }
        None
    }

    fn toggle_pause(&mut self) {
        let Some(paused) = self.paused.take() else {
            self.paused = Some(PausedUpdates::default());
            return;
        };
        self.add(paused.calls);
        if let Some(summary) = paused.summary {
            self.summary = *summary;
        }
    }

    /// Copies the handle of the selected call, or else the newest one.
    fn copy(&mut self) -> Option<Action> {
        let own = self.selected().and_then(|call| call.event.handle);
        let newest = || self.calls.iter().find_map(|(_, call)| call.event.handle);
        let Some(handle) = own.or_else(newest).or(self.summary.last_handle) else {
            self.notify("no call left anything out yet: there is no handle to copy");
            return None;
        };
        self.copied = Some(handle);
        self.notify(format!("copied {handle}; it is also printed at the end"));
        Some(Action::Copy(handle))
    }

    fn repeat(&mut self) -> Option<Action> {
        let Some(call) = self.selected() else {
            self.notify("there is no call to run again");
            return None;
        };
        match RepeatCall::of(&call.event) {
            Err(reason) => self.notify(format!("this call cannot be run again: {reason}")),
            Ok(call) if call.needs_consent() => self.overlay = Some(Overlay::Confirm(call)),
            Ok(call) => return Some(Action::Run(call)),
        }
        None
    }

    /// Details of a call; in the other panels, the calls that belong to the line.
    fn open(&mut self) {
        let line = self.line(self.focus);
        let wanted = match self.focus {
            Panel::Calls => {
                if let Some(call) = self.selected().cloned() {
                    self.overlay = Some(Overlay::Details {
                        call: Box::new(call),
                        scroll: 0,
                    });
                }
                return;
            }
            Panel::Tools => self.summary.tools.get(line).map(|line| &line.tool),
            Panel::Sessions => self.summary.sessions.get(line).map(|line| &line.session),
            Panel::Errors => self.summary.errors.get(line).map(|error| &error.code),
        };
        if let Some(wanted) = wanted.filter(|wanted| !wanted.is_empty()).cloned() {
            self.filter = wanted;
            self.chosen = None;
            self.focus = Panel::Calls;
            let found = self.shown().count() as u64;
            self.notify(format!("{} shown; Esc shows all", count(found, "call")));
        }
    }

    fn move_cursor(&mut self, to: impl Fn(usize) -> usize) {
        let last = self.length(self.focus).saturating_sub(1);
        let line = to(self.line(self.focus)).min(last);
        if self.focus == Panel::Calls {
            // At the top the cursor stays with the newest.
            let chosen = self.shown().nth(line).map(|(number, _)| *number);
            self.chosen = chosen.filter(|_| line > 0);
        } else {
            self.lines[self.focus as usize] = line;
        }
    }
}

/// The new scroll position; `None` closes the overlay.
fn scrolled(scroll: u16, key: Key) -> Option<u16> {
    Some(match key {
        Key::Up | Key::Char('k') => scroll.saturating_sub(1),
        Key::Down | Key::Char('j') => scroll.saturating_add(1).min(5000),
        Key::PageUp => scroll.saturating_sub(PAGE_LINES as u16),
        Key::PageDown | Key::Char(' ') => scroll.saturating_add(PAGE_LINES as u16).min(5000),
        Key::Home | Key::Char('g') => 0,
        _ => return None,
    })
}

#[cfg(test)]
#[path = "state/tests.rs"]
pub(crate) mod tests;
