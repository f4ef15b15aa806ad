//! Files that are no plain text: documents as their text, images as images. They are converted in a confined process.

use llmc_documents::{
    Conversion, ConversionFault, DocumentText, FileFormat, MAX_DOCUMENT_BYTES, PartUnit,
    ScaledImage, convert,
};
use llmc_enrich::{Condensed, Totals};
use llmc_envelope::receipt::Receipt;
use llmc_host::{CancelToken, Encoding, FileSlice, OpenFile, Roots, sha256_hex};
use serde_json::json;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::target::LineSpan;
use crate::budget::{self, SESSION_SPENT};
use crate::cx::{Cx, Form, Surface};
use crate::error::{Error, ErrorKind, Result};
use crate::render::{AnswerImage, AnswerRoom, Rendition};

/// A file that was converted.
#[derive(Debug)]
pub(super) struct ConvertedFile {
    /// As shown.
    pub(super) path: String,
    pub(super) total_bytes: u64,
    pub(super) sha256: String,
    pub(super) conversion: Conversion,
}

/// A file as it was found.
#[derive(Debug)]
pub(super) enum FoundFile {
    /// Text, or bytes of no known format.
    Plain(OpenFile),
    Converted(ConvertedFile),
    /// A document or an image that cannot be read.
    Faulty(ConversionFault),
}

/// Converts a file if it is a document or an image.
pub(super) fn find_conversion(cx: &Cx, asked: &str, cancel: &CancelToken) -> Result<FoundFile> {
    let roots = &cx.files().roots;
    let file = roots.open_file(asked)?;
    let path = roots.display_path(&file.path);
    let head = file.read_range(0, FileFormat::HEAD_BYTES)?;
    let Some(format) = FileFormat::of(&path, &head) else {
        return Ok(FoundFile::Plain(file));
    };
    // A notebook that is no valid one is still a text.
    let unread = |fault| match format {
        FileFormat::Notebook => Ok(FoundFile::Plain(roots.open_file(asked)?)),
        _ => Ok(FoundFile::Faulty(fault)),
    };
    let total_bytes = file.size();
    if total_bytes > MAX_DOCUMENT_BYTES as u64 {
        let most = MAX_DOCUMENT_BYTES >> 20;
        let message =
            format!("it has {total_bytes} bytes, and only files up to {most} MiB are converted");
        return unread(ConversionFault::TooLarge(message));
    }
    let bytes = file.read_all(MAX_DOCUMENT_BYTES, cancel)?;
    match convert(format, &bytes, &|| cancel.check().is_err()) {
        Ok(conversion) => Ok(FoundFile::Converted(ConvertedFile {
            path,
            total_bytes,
            sha256: sha256_hex(&bytes),
            conversion,
        })),
        Err(ConversionFault::Unknown) => Ok(FoundFile::Plain(roots.open_file(asked)?)),
        Err(fault) => {
            // Of a call that has ended its own error says more.
            cancel.check()?;
            unread(fault)
        }
    }
}

/// The error of a call that cannot do without the document.
pub(super) fn fault_error(asked: &str, fault: &ConversionFault) -> Error {
    let message = format!("{asked}: {fault}");
    match fault {
        ConversionFault::Encrypted => Error::bad_args(message)
            .hint("read a copy without a password; run_cmd can decrypt it if a program for that is installed"),
        ConversionFault::TooLarge(_) => Error::new(ErrorKind::TooLarge, message)
            .hint("make a smaller copy with run_cmd and read that"),
        ConversionFault::TimedOut => Error::new(ErrorKind::TimedOut, message)
            .hint("make a smaller copy with run_cmd and read that"),
        ConversionFault::Cancelled => Error::new(ErrorKind::Cancelled, message),
        ConversionFault::Unavailable(_) => Error::new(ErrorKind::IsolationRequired, message)
            .hint("documents and images are read only where the kernel can confine their parsers; llmc doctor says what is missing"),
        ConversionFault::Damaged(_) | ConversionFault::Unknown | ConversionFault::Crashed => {
            Error::bad_args(message).hint("the file may be damaged; run_cmd can look at it with other programs")
        }
    }
}

/// The part of a document that a path names: `report.pdf#page=3`, `plan.ods#sheet=Costs`, `a.ipynb#cell=2-4`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NamedPart {
    pub(super) path: String,
    unit: PartUnit,
    name: String,
}

impl NamedPart {
    /// None where a file has that very name, or no file the other.
    pub(super) fn of(roots: &Roots, named: &str) -> Option<NamedPart> {
        let (path, part) = named.rsplit_once('#')?;
        let (unit, name) = part.split_once('=')?;
        let units = [
            PartUnit::Page,
            PartUnit::Slide,
            PartUnit::Sheet,
            PartUnit::Cell,
        ];
        let unit = units.into_iter().find(|known| known.name() == unit)?;
        if roots.open_file(named).is_ok() || roots.open_file(path).is_err() {
            return None;
        }
        Some(NamedPart {
            path: path.to_owned(),
            unit,
            name: name.to_owned(),
        })
    }

    /// The lines of the part.
    pub(super) fn lines(&self, document: &DocumentText) -> Result<LineSpan> {
        let (unit, count) = (self.unit.name(), document.parts.len());
        let found = match document.unit == self.unit {
            true => document.lines_of(&self.name),
            false => None,
        };
        if let Some((first, last)) = found {
            return Ok(LineSpan { first, last });
        }
        let own = document.unit.name();
        let message = format!("{} has no {unit} {}", self.path, self.name);
        let names: Vec<&str> = document
            .parts
            .iter()
            .map(|part| part.name.as_str())
            .collect();
        let hint = match document.unit {
            PartUnit::Sheet => format!("its sheets: {}", names[..names.len().min(20)].join(", ")),
            _ => format!("it has {count} {own}s: {}#{own}=1", self.path),
        };
        Err(Error::bad_args(message).hint(hint))
    }

    /// The error about a file without parts.
    pub(super) fn refuse(&self) -> Error {
        let unit = self.unit.name();
        Error::bad_args(format!("{} is not divided into {unit}s", self.path))
            .hint(format!("name lines instead: {}:3-9", self.path))
    }
}

/// Lines of a document's text, as a file's lines are read.
pub(super) fn document_slice(text: &str, file: (u64, String), skip: u64, max: u64) -> FileSlice {
    let take = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
    let lines = text.split_inclusive('\n');
    let text: String = lines.clone().skip(take(skip)).take(take(max)).collect();
    FileSlice {
        lines: text.split_inclusive('\n').count() as u64,
        text,
        encoding: Encoding::Utf8,
        first_line: skip + 1,
        total_lines: lines.count() as u64,
        total_bytes: file.0,
        sha256: file.1,
    }
}

/// An image for those who can see it, and one line of facts for all.
#[derive(Debug)]
pub(super) struct ImageView {
    path: String,
    image: ScaledImage,
    total_bytes: u64,
    sha256: String,
}

impl ImageView {
    pub(super) fn new(file: (String, u64, String), image: ScaledImage) -> ImageView {
        let (path, total_bytes, sha256) = file;
        ImageView {
            path,
            image,
            total_bytes,
            sha256,
        }
    }

    /// `PNG image, 640x480, 12345 bytes`.
    pub(super) fn facts(&self) -> String {
        format!("{}, {} bytes", self.image.summary(), self.total_bytes)
    }

    /// Plain text, as `read_file` answers.
    pub(super) fn render(&self, room: &AnswerRoom<'_>) -> Rendition<'_> {
        if room.form() == Form::Data {
            return self.attached(room, Rendition::data());
        }
        let tag = self.sha256.get(..8).unwrap_or_default();
        let receipt = Receipt::new().note(self.facts()).sha(tag);
        self.attached(room, Rendition::text("", receipt))
    }

    /// A Tool Envelope.
    pub(super) fn render_te(&self, room: &AnswerRoom<'_>, cmd: &'static str) -> Rendition<'_> {
        let condensed = Condensed {
            body: format!("{}\n", self.facts()),
            totals: Totals {
                size: Some(self.total_bytes),
                ..Totals::default()
            },
            shown: self.total_bytes,
            ..Condensed::default()
        };
        self.attached(room, Rendition::te(cmd, condensed))
    }

    /// Adds the image: for MCP as content of its own, for REST beside the data. A script can open the file itself.
    fn attached<'a>(&self, room: &AnswerRoom<'_>, mut rendition: Rendition<'a>) -> Rendition<'a> {
        rendition.path = Some(self.path.clone());
        let image = &self.image;
        match room.cx.caller().surface {
            Surface::Http => {
                let image = json!({
                    "mime_type": image.kind.mime_type(),
                    "width": image.width,
                    "height": image.height,
                    "data": STANDARD.encode(&image.bytes),
                });
                rendition.meta.insert("image".to_owned(), image);
            }
            Surface::Mcp
                if budget::image_tokens(image.width, image.height)
                    > budget::session_room(room.cx) =>
            {
                rendition
                    .notes
                    .push(format!("image not sent; {SESSION_SPENT}"));
            }
            Surface::Mcp => {
                rendition.image = Some(AnswerImage {
                    mime_type: image.kind.mime_type(),
                    width: image.width,
                    height: image.height,
                    bytes: image.bytes.clone(),
                });
            }
            Surface::Cli | Surface::Code => {}
        }
        rendition
    }
}
