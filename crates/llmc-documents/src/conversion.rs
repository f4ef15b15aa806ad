//! What comes out of a document or an image, and why nothing does.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A converted file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Conversion {
    Text(DocumentText),
    Image(ScaledImage),
}

/// The text of a document and where its parts begin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DocumentText {
    pub kind: DocumentKind,
    pub unit: PartUnit,
    /// The parts in the order of the text.
    pub parts: Vec<DocumentPart>,
    /// Whether the document has more than is in the text.
    pub is_cut: bool,
    /// Whole lines.
    #[serde(skip)]
    pub text: String,
}

/// A page, slide, sheet or cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DocumentPart {
    /// Its number or, of a sheet, its name.
    pub name: String,
    /// Its first line in the text, from 1; its heading included.
    pub first_line: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DocumentKind {
    Pdf,
    Word,
    Slides,
    Workbook,
    OpenText,
    OpenSlides,
    OpenSheet,
    Notebook,
}

/// What a document is divided into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PartUnit {
    Page,
    Slide,
    Sheet,
    Cell,
}

/// An image in a form that models take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScaledImage {
    pub kind: ImageKind,
    pub width: u32,
    pub height: u32,
    /// What the file held.
    pub source: ImageKind,
    pub source_width: u32,
    pub source_height: u32,
    #[serde(skip)]
    pub bytes: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ImageKind {
    Png,
    Jpeg,
    Gif,
    WebP,
}

/// Why a file was not converted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum ConversionFault {
    #[error("it is encrypted and needs a password")]
    Encrypted,
    /// The reason is for people: what the parser said.
    #[error("it is damaged: {0}")]
    Damaged(String),
    /// What there is too much of.
    #[error("{0}")]
    TooLarge(String),
    #[error("it holds no document of a known kind")]
    Unknown,
    #[error("its parser crashed or ran out of memory")]
    Crashed,
    #[error("its parser did not finish in time")]
    TimedOut,
    #[error("cancelled")]
    Cancelled,
    /// Files are parsed in a confined process only, and there is none.
    #[error("no confined process can read it: {0}")]
    Unavailable(String),
}

impl ConversionFault {
    /// A damaged file, with at most a line of what the parser said.
    pub(crate) fn damaged(reason: impl fmt::Display) -> ConversionFault {
        const MAX_REASON_CHARS: usize = 160;
        let reason = reason.to_string();
        let line = reason.lines().next().unwrap_or_default();
        ConversionFault::Damaged(line.chars().take(MAX_REASON_CHARS).collect())
    }
}

impl DocumentKind {
    pub fn label(self) -> &'static str {
        match self {
            DocumentKind::Pdf => "PDF",
            DocumentKind::Word => "Word document",
            DocumentKind::Slides => "PowerPoint slides",
            DocumentKind::Workbook => "Excel workbook",
            DocumentKind::OpenText => "OpenDocument text",
            DocumentKind::OpenSlides => "OpenDocument slides",
            DocumentKind::OpenSheet => "OpenDocument spreadsheet",
            DocumentKind::Notebook => "Jupyter notebook",
        }
    }
}

impl PartUnit {
    pub fn name(self) -> &'static str {
        match self {
            PartUnit::Page => "page",
            PartUnit::Slide => "slide",
            PartUnit::Sheet => "sheet",
            PartUnit::Cell => "cell",
        }
    }
}

impl ImageKind {
    pub fn label(self) -> &'static str {
        match self {
            ImageKind::Png => "PNG",
            ImageKind::Jpeg => "JPEG",
            ImageKind::Gif => "GIF",
            ImageKind::WebP => "WebP",
        }
    }

    pub fn mime_type(self) -> &'static str {
        match self {
            ImageKind::Png => "image/png",
            ImageKind::Jpeg => "image/jpeg",
            ImageKind::Gif => "image/gif",
            ImageKind::WebP => "image/webp",
        }
    }

    /// Whether these bytes begin like an image of this kind.
    pub fn begins(self, bytes: &[u8]) -> bool {
        match self {
            ImageKind::Png => bytes.starts_with(b"\x89PNG\r\n\x1a\n"),
            ImageKind::Jpeg => bytes.starts_with(b"\xff\xd8\xff"),
            ImageKind::Gif => bytes.starts_with(b"GIF8"),
            ImageKind::WebP => bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP"),
        }
    }
}

impl DocumentText {
    /// `PDF, 3 pages`.
    pub fn summary(&self) -> String {
        let (kind, unit) = (self.kind.label(), self.unit.name());
        match self.parts.len() {
            1 => format!("{kind}, 1 {unit}"),
            count => format!("{kind}, {count} {unit}s"),
        }
    }

    /// The first and the last line of these parts, from 1: `3`, `2-4`, or a sheet's name.
    pub fn lines_of(&self, named: &str) -> Option<(u64, u64)> {
        let (first, last) = match self.position(named) {
            Some(only) => (only, only),
            None => {
                let (first, last) = named.split_once('-')?;
                (self.position(first)?, self.position(last)?)
            }
        };
        let end = match self.parts.get(last.checked_add(1)?) {
            Some(next) => next.first_line.saturating_sub(1),
            None => self.text.lines().count() as u64,
        };
        let first = self.parts.get(first)?.first_line;
        (first <= end).then_some((first, end))
    }

    fn position(&self, named: &str) -> Option<usize> {
        let by_name = self.parts.iter().position(|part| part.name == named);
        by_name.or_else(|| {
            let number: usize = named.parse().ok()?;
            let index = number.checked_sub(1)?;
            (index < self.parts.len()).then_some(index)
        })
    }

    /// Whether a process that may be taken over has sent a consistent text.
    pub fn is_sound(&self) -> bool {
        let lines = self.text.lines().count() as u64;
        self.text.len() <= crate::MAX_TEXT_BYTES
            && self
                .parts
                .iter()
                .all(|part| (1..=lines.max(1)).contains(&part.first_line))
            && self.parts.is_sorted_by_key(|part| part.first_line)
    }
}

impl ScaledImage {
    /// `PNG image, 3000x2000, scaled to 1568x1045`.
    pub fn summary(&self) -> String {
        let (label, width, height) = (self.source.label(), self.source_width, self.source_height);
        let mut summary = format!("{label} image, {width}x{height}");
        if (self.width, self.height) != (width, height) {
            summary.push_str(&format!(", scaled to {}x{}", self.width, self.height));
        }
        summary
    }

    /// Whether a process that may be taken over has sent what it says.
    pub fn is_sound(&self) -> bool {
        let sides = [self.width, self.height];
        self.bytes.len() <= crate::MAX_IMAGE_BYTES
            && self.kind.begins(&self.bytes)
            && sides
                .iter()
                .all(|side| (1..=crate::MAX_IMAGE_SIDE).contains(side))
    }
}
