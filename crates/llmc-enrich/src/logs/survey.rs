//! One pass over a log of any length, in bounded memory.

use std::borrow::Cow;
use std::collections::HashMap;

use memchr::{memchr, memrchr};

use super::MAX_LINE_BYTES;
use super::level::{self, LogLevel};
use super::template::fingerprint;
use crate::budget::{LineBlock, clip, plural, thousands};
use crate::terminal::settled;

/// Lines kept of what stands under an error: a stack trace.
const MAX_TRACE_LINES: usize = 12;
/// Kinds of lines that are distinguished; lines of further kinds are only counted.
const MAX_GROUPS: usize = 50_000;
/// The same for errors, which no number of other kinds may crowd out.
const MAX_ERROR_GROUPS: usize = 10_000;
/// What is read of a log that streams by; beyond it the time would be worth more than the counts.
const MAX_SURVEY_BYTES: u64 = if cfg!(test) { 1 << 20 } else { 256 << 20 };
/// What is looked at of a line that does not fit one block.
const MAX_CARRY_BYTES: usize = 64 << 10;

/// Lines that say the same thing.
#[derive(Debug, Clone)]
pub(super) struct LineGroup {
    pub(super) level: Option<LogLevel>,
    pub(super) count: u64,
    /// The number of the first.
    pub(super) first: u64,
    /// The number of the last.
    last: u64,
    /// The first itself, clipped.
    pub(super) line: String,
    /// What stands under the first of them.
    trace: Vec<String>,
    untraced: usize,
}

/// The last error line.
#[derive(Debug, Clone, Default)]
pub(super) struct LastError {
    pub(super) number: u64,
    /// Itself, clipped.
    pub(super) line: String,
    /// Its kind, if it is the first of it.
    pub(super) first_of: Option<usize>,
}

/// All that one pass over a log finds.
///
/// Fed with a log block by block it takes memory for what it tells apart, whatever the log's length.
#[derive(Debug, Clone, Default)]
pub struct LogSurvey {
    levels: [u64; LogLevel::ALL.len()],
    unlevelled: u64,
    pub(super) kinds: Vec<LineGroup>,
    known: HashMap<u64, usize>,
    error_kinds: usize,
    pub(super) errors: u64,
    /// The last error.
    pub(super) last_error: Option<LastError>,
    /// The kind whose trace is being read, and whether it is kept.
    open: Option<(usize, bool)>,
    /// The number of the last line.
    pub(super) lines: u64,
    /// How many lines were read.
    pub(super) read: u64,
    carry: Vec<u8>,
    /// Bytes of the carried line that were dropped.
    uncarried: usize,
    fed: u64,
}

impl LogSurvey {
    /// Reads the next block; the first 256 MiB are read, the rest is passed over.
    pub fn feed(&mut self, block: &[u8]) {
        let room = usize::try_from(MAX_SURVEY_BYTES.saturating_sub(self.fed)).unwrap_or(usize::MAX);
        self.fed += block.len() as u64;
        let mut block = &block[..block.len().min(room)];
        if !self.carry.is_empty() {
            let end = memchr(b'\n', block);
            let (part, rest) = block.split_at(end.unwrap_or(block.len()));
            self.carry(part);
            if end.is_none() {
                return;
            }
            self.carried();
            block = &rest[1..];
        }
        let whole = memrchr(b'\n', block).map_or(0, |at| at + 1);
        self.read(&String::from_utf8_lossy(&block[..whole]));
        self.carry(&block[whole..]);
    }

    /// Reads a last line that has no end.
    pub fn finish(&mut self) {
        if !self.is_full() && !self.carry.is_empty() {
            self.carried();
        }
    }

    /// Whether it takes no more.
    pub fn is_full(&self) -> bool {
        self.fed >= MAX_SURVEY_BYTES
    }

    fn carry(&mut self, part: &[u8]) {
        let kept = part
            .len()
            .min(MAX_CARRY_BYTES - self.carry.len().min(MAX_CARRY_BYTES));
        self.carry.extend_from_slice(&part[..kept]);
        self.uncarried += part.len() - kept;
    }

    fn carried(&mut self) {
        let carry = std::mem::take(&mut self.carry);
        let uncarried = std::mem::take(&mut self.uncarried);
        self.line(&settled(&String::from_utf8_lossy(&carry)), uncarried);
    }

    /// Reads whole lines.
    pub(super) fn read(&mut self, text: &str) {
        for line in settled(text).lines() {
            self.line(line, 0);
        }
    }

    /// Passes over lines that are not at hand.
    pub(super) fn skip(&mut self, lines: u64) {
        self.lines += lines;
        self.open = None;
    }

    /// Reads a line, or the beginning of one with `more` bytes.
    fn line(&mut self, line: &str, more: usize) {
        self.lines += 1;
        self.read += 1;
        let number = self.lines;
        let level = LogLevel::of(line);
        if let Some((kind, keep)) = self.open
            && level.is_none()
            && !line.is_empty()
            && !level::has_time(line)
        {
            if keep {
                self.kinds[kind].trace(line);
            }
            self.unlevelled += 1;
            return;
        }
        let level = level.or_else(|| LogLevel::of_crash(line));
        match level {
            Some(level) => self.levels[level as usize] += 1,
            None => self.unlevelled += 1,
        }
        self.open = None;
        let is_error = level.is_some_and(LogLevel::is_error);
        self.errors += u64::from(is_error);
        if line.trim().is_empty() {
            return;
        }
        let at = self.kind(line, level, is_error, more);
        let mut is_first = false;
        if let Some(at) = at {
            let kind = &mut self.kinds[at];
            kind.count += 1;
            kind.last = number;
            is_first = kind.count == 1;
        }
        if is_error {
            self.open = at.map(|at| (at, is_first));
            let last = self.last_error.get_or_insert_default();
            last.number = number;
            last.line.clear();
            last.line.push_str(&clipped(line, more));
            last.first_of = at.filter(|_| is_first);
        }
    }

    /// The place of the line's kind, which may be a new one; nothing where there are too many.
    fn kind(
        &mut self,
        line: &str,
        level: Option<LogLevel>,
        is_error: bool,
        more: usize,
    ) -> Option<usize> {
        let key = fingerprint(line, level);
        if let Some(kind) = self.known.get(&key) {
            return Some(*kind);
        }
        let room = if is_error {
            self.error_kinds < MAX_ERROR_GROUPS
        } else {
            self.kinds.len() - self.error_kinds < MAX_GROUPS
        };
        if !room {
            return None;
        }
        self.error_kinds += usize::from(is_error);
        self.known.insert(key, self.kinds.len());
        self.kinds.push(LineGroup {
            level,
            count: 0,
            first: self.lines,
            last: self.lines,
            line: clipped(line, more).into_owned(),
            trace: Vec::new(),
            untraced: 0,
        });
        Some(self.kinds.len() - 1)
    }

    /// `1,204 lines: 12 ERROR, 30 WARN, 1,162 INFO`; how many were read where that is not all of them.
    pub(super) fn counts(&self, lines: u64) -> String {
        let mut parts: Vec<String> = LogLevel::ALL
            .iter()
            .filter(|level| self.levels[**level as usize] > 0)
            .map(|level| {
                format!(
                    "{} {}",
                    thousands(self.levels[*level as usize]),
                    level.name()
                )
            })
            .collect();
        if self.unlevelled > 0 && !parts.is_empty() {
            parts.push(format!("{} without level", thousands(self.unlevelled)));
        }
        let mut out = plural(lines, "line");
        if self.read < lines {
            out.push_str(&format!(", only {} of them read", thousands(self.read)));
        }
        if !parts.is_empty() {
            out.push_str(": ");
            out.push_str(&parts.join(", "));
        }
        out
    }
}

impl LineGroup {
    pub(super) fn is_error(&self) -> bool {
        self.level.is_some_and(LogLevel::is_error)
    }

    fn trace(&mut self, line: &str) {
        if self.trace.len() < MAX_TRACE_LINES {
            self.trace.push(clip(line, MAX_LINE_BYTES).into_owned());
        } else {
            self.untraced += 1;
        }
    }

    pub(super) fn block(&self) -> LineBlock<'_> {
        let Self { line, first, .. } = self;
        let first = match self.count {
            1 => format!("{}: {line}", thousands(*first)),
            n => format!(
                "{} ×{} to {}: {line}",
                thousands(*first),
                thousands(n),
                thousands(self.last)
            ),
        };
        let mut lines = vec![Cow::Owned(first)];
        lines.extend(self.trace.iter().map(|line| Cow::Borrowed(line.as_str())));
        LineBlock {
            lines,
            dropped: self.untraced,
        }
    }
}

/// A line as it is shown, of which `more` bytes are not at hand.
fn clipped(line: &str, more: usize) -> Cow<'_, str> {
    let line = line.trim_end();
    if more == 0 {
        return clip(line, MAX_LINE_BYTES);
    }
    let keep = line.floor_char_boundary(MAX_LINE_BYTES);
    let left_out = line.len() - keep + more;
    format!("{}…[+{left_out} bytes]", &line[..keep]).into()
}
