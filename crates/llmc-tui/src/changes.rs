//! The history of the workspace's changes: entries by call, by file or by session, and the diff of the selected one.
//!
//! Entries come as the JSON that `GET /history` and the tool `history` return. Their texts are made legible as they come in.

mod entry;
mod reader;

use std::collections::HashMap;

use crate::keys::Key;
pub(crate) use entry::{DiffLine, EntryPage, EntryText, LineKind, ListedEntry};
pub(crate) use reader::HistoryReader;

/// Entries in the list.
const MAX_LISTED_ENTRIES: usize = 1000;
/// Lines and columns that a page key or an arrow moves the diff.
const PAGE_LINES: u16 = 10;
const STEP_COLUMNS: u16 = 8;

/// What is asked of the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HistoryRequest {
    /// The newest entries.
    Newest,
    /// Entries older than this one.
    Before(String),
    /// One entry with its diffs.
    Show(String),
}

/// What came of a request.
#[derive(Debug)]
pub(crate) struct HistoryUpdate {
    pub(crate) request: HistoryRequest,
    pub(crate) answer: Result<HistoryAnswer, String>,
}

#[derive(Debug)]
pub(crate) enum HistoryAnswer {
    Page(EntryPage),
    Entry(Box<EntryText>),
}

/// How the list is ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grouping {
    Call,
    File,
    Session,
}

impl Grouping {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Grouping::Call => "by call",
            Grouping::File => "by file",
            Grouping::Session => "by session",
        }
    }

    fn next(self) -> Grouping {
        match self {
            Grouping::Call => Grouping::File,
            Grouping::File => Grouping::Session,
            Grouping::Session => Grouping::Call,
        }
    }
}

/// A line of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ChangeRow {
    /// A file or a session; the entries below it are its own.
    Heading(String),
    Entry {
        /// Its place among the entries.
        at: usize,
        /// The only file whose diff is shown.
        path: Option<String>,
    },
}

/// The screen of changes.
#[derive(Debug)]
pub(crate) struct Changes {
    pub(crate) entries: Vec<ListedEntry>,
    /// Where older entries begin, when there are any.
    next: Option<String>,
    pub(crate) grouping: Grouping,
    pub(crate) rows: Vec<ChangeRow>,
    /// The selected line; never a heading.
    pub(crate) line: usize,
    /// The entry and the file that the user has moved to; without, the newest.
    chosen: Option<(String, Option<String>)>,
    /// The entry whose diff is here.
    pub(crate) text: Option<EntryText>,
    /// Why there is no list or no diff.
    pub(crate) failure: Option<String>,
    pub(crate) scroll: u16,
    pub(crate) column: u16,
    /// Whether the diff has the whole screen.
    pub(crate) whole: bool,
    /// Whether the first answer is there.
    pub(crate) loaded: bool,
    list_wanted: Option<HistoryRequest>,
    entry_wanted: Option<String>,
}

impl Changes {
    pub(crate) fn new() -> Changes {
        Changes {
            entries: Vec::new(),
            next: None,
            grouping: Grouping::Call,
            rows: Vec::new(),
            line: 0,
            chosen: None,
            text: None,
            failure: None,
            scroll: 0,
            column: 0,
            whole: false,
            loaded: false,
            list_wanted: Some(HistoryRequest::Newest),
            entry_wanted: None,
        }
    }

    /// What is to be asked next, taken: the entry that is looked at before the list.
    pub(crate) fn take_wanted(&mut self) -> Option<HistoryRequest> {
        let entry = self.entry_wanted.take().map(HistoryRequest::Show);
        entry.or_else(|| self.list_wanted.take())
    }

    /// Calls have ended: the list may be longer now.
    pub(crate) fn refresh(&mut self) {
        self.list_wanted.get_or_insert(HistoryRequest::Newest);
    }

    pub(crate) fn selected(&self) -> Option<(&ListedEntry, Option<&str>)> {
        match self.rows.get(self.line)? {
            ChangeRow::Heading(_) => None,
            ChangeRow::Entry { at, path } => Some((self.entries.get(*at)?, path.as_deref())),
        }
    }

    /// The lines that are shown for the selected line, once they are there.
    pub(crate) fn diff(&self) -> Option<Vec<&DiffLine>> {
        let (entry, path) = self.selected()?;
        let text = self.text.as_ref().filter(|text| text.id == entry.id)?;
        let lines = text.lines.iter();
        let wanted = lines.filter(|line| match (&line.path, path) {
            (Some(own), Some(path)) => own.is(path),
            _ => true,
        });
        Some(wanted.collect())
    }

    pub(crate) fn apply(&mut self, update: HistoryUpdate) {
        self.failure = None;
        match (update.request, update.answer) {
            (_, Err(reason)) => self.failure = Some(reason),
            (HistoryRequest::Newest, Ok(HistoryAnswer::Page(page))) => self.replace_newest(page),
            (_, Ok(HistoryAnswer::Page(page))) => {
                self.next = page.next;
                self.entries.extend(page.entries);
                self.entries.truncate(MAX_LISTED_ENTRIES);
                self.arrange();
            }
            (_, Ok(HistoryAnswer::Entry(text))) => {
                let selected = self.selected().map(|(entry, _)| &entry.id);
                // The cursor may have moved on meanwhile.
                if selected == Some(&text.id) {
                    self.text = Some(*text);
                }
            }
        }
        self.loaded = true;
    }

    /// The newest page again; older entries stay if the page reaches them.
    fn replace_newest(&mut self, page: EntryPage) {
        let is_new = |entry: &ListedEntry| page.entries.iter().any(|new| new.id == entry.id);
        let joins = page.next.is_some() && self.entries.iter().any(is_new);
        let older = match joins {
            true => {
                let old = std::mem::take(&mut self.entries);
                old.into_iter().filter(|entry| !is_new(entry)).collect()
            }
            false => Vec::new(),
        };
        if older.is_empty() {
            self.next = page.next;
        }
        self.entries = page.entries;
        self.entries.extend(older);
        self.entries.truncate(MAX_LISTED_ENTRIES);
        self.arrange();
    }

    /// Makes the lines of the list. The chosen entry stays selected, else the newest is.
    fn arrange(&mut self) {
        self.rows = rows(&self.entries, self.grouping);
        let is_chosen = |row: &ChangeRow| match (row, &self.chosen) {
            (ChangeRow::Entry { at, path }, Some((id, chosen))) => {
                let same_path = path == chosen || path.is_none() || chosen.is_none();
                same_path && self.entries.get(*at).is_some_and(|entry| entry.id == *id)
            }
            _ => false,
        };
        let found = self.rows.iter().position(is_chosen);
        if found.is_none() {
            self.chosen = None;
        }
        let first = self.rows.iter().position(is_entry);
        self.line = found.or(first).unwrap_or(0);
        self.want_text();
    }

    /// Asks for the diff of the selected line, unless it is there.
    fn want_text(&mut self) {
        let Some((entry, _)) = self.selected() else {
            return;
        };
        let text = self.text.as_ref();
        let is_there = text.is_some_and(|text| text.id == entry.id);
        let is_current = text.is_some_and(|text| text.undone_by == entry.undone_by);
        if !is_there || !is_current {
            let id = entry.id.clone();
            self.entry_wanted = Some(id);
        }
        if !is_there {
            (self.scroll, self.column) = (0, 0);
        }
    }

    fn select(&mut self, line: usize) {
        self.line = line;
        let chosen = self.selected();
        let chosen = chosen.map(|(entry, path)| (entry.id.clone(), path.map(str::to_owned)));
        // At the top the cursor stays with the newest.
        let is_top = self.rows.iter().position(is_entry) == Some(line);
        self.chosen = chosen.filter(|_| !is_top);
        (self.scroll, self.column) = (0, 0);
        self.want_text();
    }

    /// Handles a key; returns whether the screen of changes is to be closed.
    pub(crate) fn key(&mut self, key: Key) -> bool {
        match key {
            Key::Esc if self.whole => self.whole = false,
            Key::Esc | Key::Char('h') => return true,
            Key::Enter => {
                self.whole = !self.whole && self.selected().is_some();
                // What is read stays, even when it was the newest.
                let read = self.selected();
                self.chosen = read.map(|(entry, path)| (entry.id.clone(), path.map(str::to_owned)));
            }
            Key::Char('b') => {
                self.grouping = self.grouping.next();
                (self.scroll, self.column) = (0, 0);
                self.arrange();
            }
            Key::Up | Key::Char('k') if self.whole => self.scroll_by(-1),
            Key::Down | Key::Char('j') if self.whole => self.scroll_by(1),
            Key::Home | Key::Char('g') if self.whole => self.scroll = 0,
            Key::End | Key::Char('G') if self.whole => self.scroll_by(i32::from(u16::MAX)),
            Key::Up | Key::Char('k') => self.step(true),
            Key::Down | Key::Char('j') => self.step(false),
            Key::Home | Key::Char('g') => self.select_end(true),
            Key::End | Key::Char('G') => self.select_end(false),
            Key::PageUp => self.scroll_by(-i32::from(PAGE_LINES)),
            Key::PageDown | Key::Char(' ') => self.scroll_by(i32::from(PAGE_LINES)),
            Key::Left => self.column = self.column.saturating_sub(STEP_COLUMNS),
            Key::Right => self.column = self.column.saturating_add(STEP_COLUMNS).min(1000),
            _ => {}
        }
        false
    }

    fn scroll_by(&mut self, lines: i32) {
        let last = self.diff().map_or(0, |lines| lines.len().saturating_sub(1));
        let last = i32::try_from(last).unwrap_or(i32::MAX);
        let to = (i32::from(self.scroll) + lines).clamp(0, last);
        self.scroll = u16::try_from(to).unwrap_or(u16::MAX);
    }

    /// To the next entry up or down, past headings.
    fn step(&mut self, up: bool) {
        let found = if up {
            self.rows.iter().take(self.line).rposition(is_entry)
        } else {
            let below = self.rows.iter().skip(self.line + 1).position(is_entry);
            below.map(|further| self.line + 1 + further)
        };
        match found {
            Some(line) => self.select(line),
            None if !up => self.want_older(),
            None => {}
        }
    }

    fn select_end(&mut self, first: bool) {
        let mut rows = self.rows.iter();
        let found = if first {
            rows.position(is_entry)
        } else {
            rows.rposition(is_entry)
        };
        if let Some(line) = found {
            self.select(line);
        }
        if !first {
            self.want_older();
        }
    }

    fn want_older(&mut self) {
        if self.entries.len() < MAX_LISTED_ENTRIES
            && let Some(next) = self.next.clone()
        {
            self.list_wanted = Some(HistoryRequest::Before(next));
        }
    }
}

fn is_entry(row: &ChangeRow) -> bool {
    matches!(row, ChangeRow::Entry { .. })
}

/// The lines of the list: of each file or session the entries, the one that changed last first.
fn rows(entries: &[ListedEntry], grouping: Grouping) -> Vec<ChangeRow> {
    let mut groups: Vec<Vec<ChangeRow>> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    let mut add = |heading: String, at: usize, path: Option<String>| {
        let row = ChangeRow::Entry { at, path };
        let group = *known.entry(heading).or_insert_with_key(|heading| {
            groups.push(match grouping {
                Grouping::Call => Vec::new(),
                Grouping::File | Grouping::Session => vec![ChangeRow::Heading(heading.clone())],
            });
            groups.len() - 1
        });
        if groups[group].last() != Some(&row) {
            groups[group].push(row);
        }
    };
    for (at, entry) in entries.iter().enumerate() {
        match grouping {
            Grouping::Call => add(String::new(), at, None),
            Grouping::Session => add(entry.session_heading(), at, None),
            Grouping::File => {
                for file in &entry.files {
                    let names = [Some(&file.path), file.from.as_ref()];
                    for name in names.into_iter().flatten() {
                        add(name.clone(), at, Some(name.clone()));
                    }
                }
            }
        }
    }
    groups.into_iter().flatten().collect()
}

#[cfg(test)]
pub(crate) mod tests;
