//! Text put together from pages, slides, sheets or cells.

use crate::{DocumentKind, DocumentPart, DocumentText, MAX_TEXT_BYTES, PartUnit};

/// The most parts of one document.
const MAX_PARTS: usize = 20_000;
/// A document of this many lines is cut as well.
const MAX_LINES: u64 = 1_000_000;

/// A text that grows part by part until it is full.
pub(crate) struct PartsText {
    kind: DocumentKind,
    unit: PartUnit,
    text: String,
    lines: u64,
    parts: Vec<DocumentPart>,
    is_cut: bool,
}

impl PartsText {
    pub(crate) fn new(kind: DocumentKind, unit: PartUnit) -> PartsText {
        PartsText {
            kind,
            unit,
            text: String::new(),
            lines: 0,
            parts: Vec::new(),
            is_cut: false,
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.is_cut
    }

    /// Notes that the document has more than was read.
    pub(crate) fn set_cut(&mut self) {
        self.is_cut = true;
    }

    /// Begins a part. Its heading is a line of the text: `--- page 2 of 7 ---`.
    pub(crate) fn begin(&mut self, name: impl Into<String>, heading: Option<&str>) {
        if self.parts.len() >= MAX_PARTS {
            self.is_cut = true;
            return;
        }
        self.parts.push(DocumentPart {
            name: name.into(),
            first_line: self.lines + 1,
        });
        if let Some(heading) = heading {
            self.line(&format!("--- {heading} ---"));
        }
    }

    /// Adds a line; control characters become spaces, so that one line stays one.
    pub(crate) fn line(&mut self, line: &str) {
        let line = line.trim_end();
        if self.is_cut
            || self.text.len() + line.len() + 1 > MAX_TEXT_BYTES
            || self.lines >= MAX_LINES
        {
            self.is_cut = true;
            return;
        }
        push_clean(&mut self.text, line);
        self.text.push('\n');
        self.lines += 1;
    }

    /// Adds lines; blank ones at the ends are dropped, and several in a row become one.
    pub(crate) fn lines(&mut self, text: &str) {
        let mut blank = false;
        let mut is_first = true;
        for line in text.lines() {
            if line.trim().is_empty() {
                blank = true;
                continue;
            }
            if std::mem::take(&mut blank) && !is_first {
                self.line("");
            }
            is_first = false;
            self.line(line);
        }
    }

    pub(crate) fn finish(mut self) -> DocumentText {
        // A part may begin where the text was full.
        let lines = self.lines.max(1);
        self.parts.retain(|part| part.first_line <= lines);
        DocumentText {
            kind: self.kind,
            unit: self.unit,
            parts: self.parts,
            is_cut: self.is_cut,
            text: self.text,
        }
    }
}

/// Adds text without terminal escapes and control characters.
fn push_clean(out: &mut String, line: &str) {
    let mut chars = line.chars().peekable();
    while let Some(char) = chars.next() {
        if char == '\u{1b}' && chars.peek() == Some(&'[') {
            chars.next();
            for next in chars.by_ref() {
                if ('@'..='~').contains(&next) {
                    break;
                }
            }
        } else if char == '\t' || !char.is_control() {
            out.push(char);
        } else {
            out.push(' ');
        }
    }
}
