//! What is on the screen, and what keys and news make of it.
//!
//! No terminal, no clock and no file in here: everything comes in through [`State::key`], [`State::news`] and
//! [`State::tick`], so a test can play any of it.

use std::collections::VecDeque;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use llmc_envelope::HandleId;

use crate::again::{Again, Answered};
use crate::feed::{CALLS, News};
use crate::keys::Key;
use crate::picture::{Picture, STEP_S};
use crate::seen::Seen;
use crate::text::count;

/// Characters of a filter.
const FILTER: usize = 80;
/// Lines that a page key moves.
const PAGE: usize = 10;
/// Seconds that a notice stays.
const NOTICE: i64 = 6;

/// What the terminal or the application has to do for a key.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// End.
    Quit,
    /// Put a handle into the clipboard.
    Copy(HandleId),
    /// Show the audit file.
    OpenLog,
    /// Make a call again.
    Run(Again),
    /// Stop the call that was made again.
    Stop,
}

/// A list that can be moved in.
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

/// What lies over the panels.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Overlay {
    Help,
    Details {
        call: Box<Seen>,
        scroll: u16,
    },
    /// May this be run?
    Ask(Again),
    Running {
        tool: String,
    },
    Answer {
        answered: Answered,
        scroll: u16,
    },
}

/// What came in while the picture stood still.
#[derive(Debug, Default)]
struct Held {
    calls: Vec<Seen>,
    /// Also those that were too many to keep.
    count: u64,
    picture: Option<Box<Picture>>,
}

/// Everything that is shown.
#[derive(Debug)]
pub struct State {
    pub(crate) place: String,
    pub(crate) span: String,
    pub(crate) zone: TimeZone,
    pub(crate) now: Timestamp,
    /// Numbered, newest first.
    pub(crate) calls: VecDeque<(u64, Seen)>,
    numbered: u64,
    pub(crate) picture: Picture,
    held: Option<Held>,
    pub(crate) focus: Panel,
    /// The call that is looked at; without one, the newest.
    chosen: Option<u64>,
    /// The line that is looked at in each panel.
    lines: [usize; 4],
    pub(crate) filter: String,
    /// The filter while it is typed.
    pub(crate) typing: Option<String>,
    pub(crate) overlay: Option<Overlay>,
    notice: Option<(String, Timestamp)>,
    pub(crate) trouble: Option<String>,
    copied: Option<HandleId>,
}

impl State {
    /// Nothing seen yet, of this place and span of time.
    pub fn new(
        place: impl Into<String>,
        span: impl Into<String>,
        zone: TimeZone,
        now: Timestamp,
    ) -> State {
        State {
            place: place.into(),
            span: span.into(),
            zone,
            now,
            calls: VecDeque::new(),
            numbered: 0,
            picture: Picture::default(),
            held: None,
            focus: Panel::Calls,
            chosen: None,
            lines: [0; 4],
            filter: String::new(),
            typing: None,
            overlay: None,
            notice: None,
            trouble: None,
            copied: None,
        }
    }

    /// Time goes on; whether that changes what is shown.
    pub fn tick(&mut self, now: Timestamp) -> bool {
        let step = |time: Timestamp| time.as_second().div_euclid(STEP_S);
        let moved = step(now) != step(self.now) && !self.picture.steps.is_empty();
        let told = self.notice.as_ref();
        let over = told.is_some_and(|(_, at)| now.as_second() - at.as_second() >= NOTICE);
        if over {
            self.notice = None;
        }
        self.now = now;
        moved || over
    }

    /// Takes in what a feed tells.
    pub fn news(&mut self, news: News) {
        match (news, &mut self.held) {
            (News::Calls(calls), Some(held)) => {
                held.count += calls.len() as u64;
                held.calls.extend(calls);
                let excess = held.calls.len().saturating_sub(CALLS);
                held.calls.drain(..excess);
            }
            (News::Calls(calls), None) => self.add(calls),
            (News::Picture(picture), Some(held)) => held.picture = Some(picture),
            (News::Picture(picture), None) => self.picture = *picture,
            (News::Trouble(text), _) => self.trouble = Some(text),
            (News::Well, _) => self.trouble = None,
        }
    }

    fn add(&mut self, calls: Vec<Seen>) {
        for call in calls {
            self.numbered += 1;
            self.calls.push_front((self.numbered, call));
        }
        self.calls.truncate(CALLS);
    }

    /// Tells the person something, for a while.
    pub fn say(&mut self, text: impl Into<String>) {
        self.notice = Some((text.into(), self.now));
    }

    pub(crate) fn notice(&self) -> Option<&str> {
        self.notice.as_ref().map(|(text, _)| text.as_str())
    }

    /// How many calls wait while the picture stands still.
    pub(crate) fn waiting(&self) -> Option<u64> {
        self.held.as_ref().map(|held| held.count)
    }

    /// The handle that was copied last.
    pub(crate) fn copied(&self) -> Option<HandleId> {
        self.copied
    }

    /// A call that was run again is under way.
    pub(crate) fn runs(&mut self, tool: &str) {
        self.overlay = Some(Overlay::Running {
            tool: tool.to_owned(),
        });
    }

    /// It has ended.
    pub(crate) fn answered(&mut self, answered: Answered) {
        self.overlay = Some(Overlay::Answer {
            answered,
            scroll: 0,
        });
    }

    /// What was seen, also what was held back by a pause.
    pub(crate) fn into_picture(self) -> Picture {
        let held = self.held.and_then(|held| held.picture);
        held.map_or(self.picture, |picture| *picture)
    }

    /// The calls that pass the filter, newest first.
    pub(crate) fn shown(&self) -> impl Iterator<Item = &(u64, Seen)> {
        let wanted = self
            .typing
            .as_deref()
            .unwrap_or(&self.filter)
            .to_lowercase();
        self.calls
            .iter()
            .filter(move |(_, call)| call.matches(&wanted))
    }

    /// Which of them is looked at.
    pub(crate) fn line_of_calls(&self) -> usize {
        let Some(chosen) = self.chosen else { return 0 };
        // Its place, or that of the next older one when it is gone.
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
            Panel::Tools => self.picture.tools.len(),
            Panel::Sessions => self.picture.sessions.len(),
            Panel::Errors => self.picture.errors.len(),
        }
    }

    fn selected(&self) -> Option<&Seen> {
        let line = self.line_of_calls();
        let found = self.shown().nth(line).or_else(|| self.shown().last());
        found.map(|(_, call)| call)
    }

    /// Takes in a key.
    pub fn key(&mut self, key: Key) -> Option<Action> {
        if key == Key::Ctrl('c') {
            return Some(Action::Quit);
        }
        // Read, or not wanted.
        self.notice = None;
        if self.typing.is_some() {
            self.key_while_typing(key);
            return None;
        }
        if let Some(overlay) = self.overlay.take() {
            return self.key_over(overlay, key);
        }
        match key {
            Key::Char('q') => return Some(Action::Quit),
            Key::Char('?') => self.overlay = Some(Overlay::Help),
            Key::Char('/') => self.typing = Some(self.filter.clone()),
            Key::Char('p' | ' ') => self.pause_or_go_on(),
            Key::Char('c') => return self.copy(),
            Key::Char('l') => return Some(Action::OpenLog),
            Key::Char('r') => return self.run_again(),
            Key::Enter => self.open(),
            Key::Esc => self.filter.clear(),
            Key::Tab | Key::Right => self.focus = self.focus.next(1),
            Key::BackTab | Key::Left => self.focus = self.focus.next(Panel::ALL.len() - 1),
            Key::Up | Key::Char('k') => self.go(|line| line.saturating_sub(1)),
            Key::Down | Key::Char('j') => self.go(|line| line + 1),
            Key::PageUp => self.go(|line| line.saturating_sub(PAGE)),
            Key::PageDown => self.go(|line| line + PAGE),
            Key::Home | Key::Char('g') => self.go(|_| 0),
            Key::End | Key::Char('G') => self.go(|_| usize::MAX),
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
            Key::Char(c) if !c.is_control() && typed.chars().count() < FILTER => typed.push(c),
            _ => {}
        }
    }

    fn key_over(&mut self, overlay: Overlay, key: Key) -> Option<Action> {
        match (overlay, key) {
            (Overlay::Ask(again), Key::Char('y' | 'Y')) => return Some(Action::Run(again)),
            (Overlay::Ask(again), _) => {
                self.say(format!("{} was not run", again.tool.name));
            }
            (Overlay::Running { tool }, Key::Esc | Key::Char('q')) => {
                self.overlay = Some(Overlay::Running { tool });
                return Some(Action::Stop);
            }
            (Overlay::Running { tool }, _) => self.overlay = Some(Overlay::Running { tool }),
            (Overlay::Details { .. }, Key::Char('c')) => return self.copy(),
            (Overlay::Details { .. }, Key::Char('r')) => return self.run_again(),
            (Overlay::Details { call, scroll }, key) => {
                if let Some(scroll) = scrolled(scroll, key) {
                    self.overlay = Some(Overlay::Details { call, scroll });
                }
            }
            (Overlay::Answer { answered, scroll }, key) => {
                if let Some(scroll) = scrolled(scroll, key) {
                    let last = answered.text.lines().count().saturating_sub(1);
                    let scroll = scroll.min(u16::try_from(last).unwrap_or(u16::MAX));
                    self.overlay = Some(Overlay::Answer { answered, scroll });
                }
            }
            (Overlay::Help, _) => {}
        }
        None
    }

    fn pause_or_go_on(&mut self) {
        let Some(held) = self.held.take() else {
            self.held = Some(Held::default());
            return;
        };
        self.add(held.calls);
        if let Some(picture) = held.picture {
            self.picture = *picture;
        }
    }

    /// Copies the handle of the call that is looked at, or else the newest one.
    fn copy(&mut self) -> Option<Action> {
        let own = self.selected().and_then(|call| call.handle);
        let newest = || self.calls.iter().find_map(|(_, call)| call.handle);
        let Some(handle) = own.or_else(newest).or(self.picture.last_handle) else {
            self.say("no call left anything out yet: there is no handle to copy");
            return None;
        };
        self.copied = Some(handle);
        self.say(format!("copied {handle}; it is also printed at the end"));
        Some(Action::Copy(handle))
    }

    fn run_again(&mut self) -> Option<Action> {
        let Some(call) = self.selected() else {
            self.say("there is no call to run again");
            return None;
        };
        match Again::of(call) {
            Err(why) => self.say(format!("this call cannot be run again: {why}")),
            Ok(again) if again.asks() => self.overlay = Some(Overlay::Ask(again)),
            Ok(again) => return Some(Action::Run(again)),
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
            Panel::Tools => self.picture.tools.get(line).map(|line| &line.tool),
            Panel::Sessions => self.picture.sessions.get(line).map(|line| &line.session),
            Panel::Errors => self.picture.errors.get(line).map(|(code, _)| code),
        };
        if let Some(wanted) = wanted.filter(|wanted| !wanted.is_empty()).cloned() {
            self.filter = wanted;
            self.chosen = None;
            self.focus = Panel::Calls;
            let found = self.shown().count() as u64;
            self.say(format!("{} shown; Esc shows all", count(found, "call")));
        }
    }

    fn go(&mut self, to: impl Fn(usize) -> usize) {
        let last = self.length(self.focus).saturating_sub(1);
        let line = to(self.line(self.focus)).min(last);
        if self.focus == Panel::Calls {
            // At the top means: stay with the newest.
            let chosen = self.shown().nth(line).map(|(number, _)| *number);
            self.chosen = chosen.filter(|_| line > 0);
        } else {
            self.lines[self.focus as usize] = line;
        }
    }
}

/// Where a key scrolls to; `None` closes.
fn scrolled(scroll: u16, key: Key) -> Option<u16> {
    Some(match key {
        Key::Up | Key::Char('k') => scroll.saturating_sub(1),
        Key::Down | Key::Char('j') => scroll.saturating_add(1).min(5000),
        Key::PageUp => scroll.saturating_sub(PAGE as u16),
        Key::PageDown | Key::Char(' ') => scroll.saturating_add(PAGE as u16).min(5000),
        Key::Home | Key::Char('g') => 0,
        _ => return None,
    })
}

#[cfg(test)]
#[path = "state/tests.rs"]
pub(crate) mod tests;
