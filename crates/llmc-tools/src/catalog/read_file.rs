//! `read_file`: lines of a file, of a document, of a definition, or of a stored result; or an image.

use std::borrow::Cow;
use std::fmt::Write;

use llmc_documents::{Conversion, DocumentText};
use llmc_envelope::HandleId;
use llmc_envelope::cut::{CutLimits, cut};
use llmc_envelope::handles::{HandleInfo, Kept};
use llmc_envelope::receipt::Receipt;
use llmc_host::{CancelToken, Encoding, FileSlice, MAX_ANSWER_BYTES};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize, Serializer};

use super::args::{AtLeast, Count, DOCUMENT_ERRORS, bounded};
use super::converted::{
    FoundFile, ImageView, NamedPart, document_slice, fault_error, find_conversion,
};
use super::linux_handle_read::open_source;
use super::several::{SeveralTexts, listed_places, read_several};
use super::target::{LineSpan, PathTarget};
use super::te_handle::{about, bytes_at};
use crate::budget::SESSION_SPENT;
use crate::cx::{Cx, Form};
use crate::error::{Error, ErrorKind, Result};
use crate::render::{AnswerRoom, FileScope, Render, Rendition, Rest, RestExtent};
use crate::tool::{Effect, Tool};

/// Lines above this many bytes are shown clipped; the handle has them whole.
pub(super) const MAX_LINE_BYTES: usize = 4096;
/// Tokens that ranges and definitions may take which a caller has named.
pub(super) const MAX_PLACE_TOKENS: usize = 20_000;
/// How many budgets an answer may take when no number of lines was asked for.
pub(super) const MAX_BUDGETS_UNASKED: usize = 5;
/// Lines of a file when no number was asked for.
const DEFAULT_LINES: i64 = 200;
/// How much of a stored result is read at a time.
const BLOCK_BYTES: usize = 1 << 20;

pub(super) struct ReadFile;

/// Read a file, image or handle; several: a.py:10-40,60-90,b.py::Class.method.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    path: String,
    #[schemars(extend("x-help" = "lines to skip"))]
    offset_lines: Option<AtLeast<0, 0>>,
    #[schemars(extend("default" = null, "x-help" = "default: the whole file"))]
    max_lines: Option<Count<DEFAULT_LINES, 1, 100_000>>,
    #[schemars(extend("x-unlisted" = true))]
    line_numbers: Option<bool>,
    #[expect(dead_code, reason = "the call path reads it")]
    #[schemars(extend("x-help" = "of the answer; default: the budget", "x-unlisted" = true))]
    max_tokens: Option<AtLeast<1, 1>>,
}

impl Tool for ReadFile {
    const NAME: &'static str = "read_file";
    const EFFECT: Effect = Effect::Reads;
    const ERRORS: &'static [ErrorKind] = DOCUMENT_ERRORS;
    const KEYWORDS: &'static str = "open load cat content";
    type Args = Args;
    type Output = ReadAnswer;

    async fn run(cx: &Cx, args: Args) -> Result<ReadAnswer> {
        let skip = bounded("offset_lines", args.offset_lines)?;
        let mut max = bounded("max_lines", args.max_lines)?;
        let whole = args.offset_lines.is_none() && args.max_lines.is_none();
        if whole && cx.caller().form == Form::Data {
            // A program that asks for no slice gets the file.
            max = u64::MAX;
        }
        cx.blocking(move |cx, cancel| {
            if let Some(places) = listed_places(cx, &args.path)? {
                if args.offset_lines.is_some() || args.max_lines.is_some() {
                    return Err(
                        Error::bad_args("offset_lines and max_lines are for one path")
                            .hint("name lines in the path: a.py:10-40,b.py:5-9"),
                    );
                }
                return Ok(ReadAnswer::Several(read_several(cx, &places, cancel)?));
            }
            let lines = args.max_lines.is_some() || max == u64::MAX;
            let answer = read_one(cx, &args.path, skip, lines.then_some(max), cancel)?;
            let ReadAnswer::Text(mut text) = answer else {
                return Ok(answer);
            };
            if args.max_lines.is_some() {
                text.asked = AskedLength::Lines;
            }
            if args.line_numbers == Some(true) && text.slice.encoding != Encoding::Binary {
                text.slice.text = numbered(&text.slice);
            }
            Ok(ReadAnswer::Text(text))
        })
        .await
    }
}

/// Reads what one path names: `max` lines of it, or all of a range or definition and the first lines of a file.
pub(super) fn read_one(
    cx: &Cx,
    named: &str,
    skip: u64,
    max: Option<u64>,
    cancel: &CancelToken,
) -> Result<ReadAnswer> {
    let of_place = max.unwrap_or(u64::MAX);
    let of_whole = max.unwrap_or(DEFAULT_LINES.unsigned_abs());
    match PathTarget::of(cx, named, cancel)? {
        PathTarget::File => of_file(cx, named, Place::Whole, skip, of_whole, cancel),
        PathTarget::Lines { path, first, last } => {
            let place = Place::Lines(LineSpan { first, last });
            of_file(cx, &path, place, skip, of_place, cancel)
        }
        PathTarget::Part(part) => {
            of_file(cx, &part.path, Place::Part(&part), skip, of_place, cancel)
        }
        PathTarget::Handle(id) => Ok(ReadAnswer::Text(of_handle(cx, id, skip, of_whole, cancel)?)),
        PathTarget::HandleLines(id, span) => {
            let (from, take) = span.slice(skip, of_place);
            let mut text = of_handle(cx, id, from, take, cancel)?;
            span.check(named, text.slice.total_lines)?;
            text.end = Some(span.last.min(text.slice.total_lines));
            text.base = span.first - 1;
            text.asked = AskedLength::Place;
            Ok(ReadAnswer::Text(text))
        }
    }
}

/// What a path turned out to be.
#[derive(Debug)]
pub(super) enum ReadAnswer {
    Text(FileText),
    Image(ImageView),
    Several(SeveralTexts),
}

/// What a caller has said about the length of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AskedLength {
    Nothing,
    /// It named a range or a definition.
    Place,
    /// It named a number of lines.
    Lines,
}

/// Lines of a file, of a document's text or of a stored result.
#[derive(Debug)]
pub(super) struct FileText {
    origin: Origin,
    path: Option<String>,
    slice: FileSlice,
    /// The lines before those that the offset counts from.
    base: u64,
    /// The last line that was asked for, where not the end of the text is.
    end: Option<u64>,
    asked: AskedLength,
}

#[derive(Debug)]
enum Origin {
    File {
        asked: String,
    },
    Document {
        asked: String,
        document: Box<DocumentText>,
    },
    Stored {
        id: HandleId,
        stale: bool,
    },
}

/// Which lines of a file are meant.
#[derive(Debug, Clone, Copy)]
enum Place<'p> {
    Whole,
    Lines(LineSpan),
    Part(&'p NamedPart),
}

/// Lines of a file or of a document's text, or an image.
fn of_file(
    cx: &Cx,
    asked: &str,
    place: Place<'_>,
    skip: u64,
    max: u64,
    cancel: &CancelToken,
) -> Result<ReadAnswer> {
    let roots = &cx.files().roots;
    let (path, origin, span, slice) = match find_conversion(cx, asked, cancel)? {
        FoundFile::Faulty(fault) => return Err(fault_error(asked, &fault)),
        FoundFile::Plain(file) => {
            let span = match place {
                Place::Whole => None,
                Place::Lines(span) => Some(span),
                Place::Part(part) => return Err(part.refuse()),
            };
            let path = roots.display_path(&file.path);
            let (from, take) = span.map_or((skip, max), |span| span.slice(skip, max));
            let slice = file.read_lines(from, take, cancel)?;
            let asked = asked.to_owned();
            (path, Origin::File { asked }, span, slice)
        }
        FoundFile::Converted(file) => match file.conversion {
            Conversion::Image(image) => {
                let facts = (file.path, file.total_bytes, file.sha256);
                return Ok(ReadAnswer::Image(ImageView::new(facts, image)));
            }
            Conversion::Text(document) => {
                let span = match place {
                    Place::Whole => None,
                    Place::Lines(span) => Some(span),
                    Place::Part(part) => Some(part.lines(&document)?),
                };
                let (from, take) = span.map_or((skip, max), |span| span.slice(skip, max));
                let facts = (file.total_bytes, file.sha256);
                let slice = document_slice(&document.text, facts, from, take);
                let (asked, document) = (asked.to_owned(), Box::new(document));
                (file.path, Origin::Document { asked, document }, span, slice)
            }
        },
    };
    if let Some(span) = span {
        span.check(&path, slice.total_lines)?;
    }
    Ok(ReadAnswer::Text(FileText {
        origin,
        path: Some(path),
        end: span.map(|span| span.last.min(slice.total_lines)),
        slice,
        base: span.map_or(0, |span| span.first - 1),
        asked: match span {
            Some(_) => AskedLength::Place,
            None => AskedLength::Nothing,
        },
    }))
}

/// Lines of a stored result.
fn of_handle(cx: &Cx, id: HandleId, skip: u64, max: u64, cancel: &CancelToken) -> Result<FileText> {
    let (info, stale) = about(cx, &id.to_string(), cancel)?;
    let slice = match info.kept {
        Kept::File => open_source(cx, &info)?.read_lines(skip, max, cancel)?,
        Kept::Bytes => stored_lines(cx, &info, skip, max, cancel)?,
    };
    let path = info.meta.get("path").and_then(|path| path.as_str());
    Ok(FileText {
        origin: Origin::Stored { id, stale },
        path: path.map(str::to_owned),
        slice,
        base: 0,
        end: None,
        asked: AskedLength::Nothing,
    })
}

/// Passes over a stored result once: the wanted lines, and how many there are.
fn stored_lines(
    cx: &Cx,
    info: &HandleInfo,
    skip: u64,
    max: u64,
    cancel: &CancelToken,
) -> Result<FileSlice> {
    let end = skip.saturating_add(max);
    let (mut kept, mut line, mut is_open, mut at) = (Vec::new(), 0, false, 0);
    while at < info.total_bytes {
        cancel.check()?;
        let block = bytes_at(cx, info, at, BLOCK_BYTES)?;
        if block.is_empty() {
            break;
        }
        at += block.len() as u64;
        for part in block.split_inclusive(|byte| *byte == b'\n') {
            if (skip..end).contains(&line) {
                if kept.len() + part.len() > MAX_ANSWER_BYTES {
                    let message = if line == skip {
                        format!("line {} is longer than 8 MiB", line + 1)
                    } else {
                        let (first, last) = (skip + 1, line + 1);
                        format!("lines {first} to {last} are more than 8 MiB; ask for fewer")
                    };
                    return Err(Error::new(ErrorKind::TooLarge, message));
                }
                kept.extend_from_slice(part);
            }
            is_open = !part.ends_with(b"\n");
            line += u64::from(!is_open);
        }
    }
    let total_lines = line + u64::from(is_open);
    let (text, encoding) = match String::from_utf8(kept) {
        Ok(text) => (text, Encoding::Utf8),
        Err(error) => {
            let bytes = error.as_bytes();
            let encoding = if bytes.contains(&0) {
                Encoding::Binary
            } else {
                Encoding::Lossy
            };
            (String::from_utf8_lossy(bytes).into_owned(), encoding)
        }
    };
    Ok(FileSlice {
        text,
        encoding,
        first_line: skip + 1,
        lines: total_lines.min(end).saturating_sub(skip),
        total_lines,
        total_bytes: info.total_bytes,
        sha256: String::new(),
    })
}

/// The text with the number of each line before it.
fn numbered(slice: &FileSlice) -> String {
    let mut out = String::with_capacity(slice.text.len() + slice.text.len() / 4);
    for (number, line) in (slice.first_line..).zip(slice.text.split_inclusive('\n')) {
        // Writing to a string cannot fail.
        let _ = write!(out, "{number}: {line}");
    }
    out
}

impl JsonSchema for ReadAnswer {
    fn schema_name() -> Cow<'static, str> {
        "ReadAnswer".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "x-help": "the text, whole unless a slice is asked for, without a tag line; of an image one line of facts",
        })
    }
}

impl Serialize for ReadAnswer {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self {
            ReadAnswer::Text(text) => serializer.serialize_str(&text.slice.text),
            ReadAnswer::Image(image) => serializer.serialize_str(&image.facts()),
            ReadAnswer::Several(several) => serializer.serialize_str(several.text()),
        }
    }
}

impl Render for ReadAnswer {
    fn render(&self, room: &AnswerRoom<'_>) -> Result<Rendition<'_>> {
        match self {
            ReadAnswer::Text(text) => text.render(room),
            ReadAnswer::Image(image) => Ok(image.render(room)),
            ReadAnswer::Several(_) if room.form() == Form::Data => Ok(Rendition::data()),
            ReadAnswer::Several(several) => Ok(several.render(room)),
        }
    }
}

impl FileText {
    /// What was read.
    pub(super) fn text(&self) -> &str {
        match self.is_binary() {
            true => "",
            false => &self.slice.text,
        }
    }

    pub(super) fn shown_lines(&self) -> u64 {
        self.slice.lines
    }

    /// Which lines of how many, and the tag of the file: `lines 3-9 of 20, sha 1a2b3c4d`.
    pub(super) fn extent(&self) -> String {
        let slice = &self.slice;
        let last = (slice.first_line - 1) + slice.lines;
        let lines = match (slice.first_line, last) {
            _ if self.is_binary() => format!("binary file of {} bytes", slice.total_bytes),
            (1, last) if last >= slice.total_lines => format!("{last} lines"),
            (first, last) => format!("lines {first}-{last} of {}", slice.total_lines),
        };
        match self.origin {
            Origin::Stored { .. } => lines,
            Origin::File { .. } | Origin::Document { .. } => {
                format!("{lines}, sha {}", slice.tag())
            }
        }
    }

    /// Whether lines that were asked for follow line `last` of the text.
    fn goes_on_after(&self, last: u64) -> bool {
        last < self.end.unwrap_or(self.slice.total_lines)
    }

    fn is_binary(&self) -> bool {
        self.slice.encoding == Encoding::Binary
    }
}

impl Render for FileText {
    fn render(&self, room: &AnswerRoom<'_>) -> Result<Rendition<'_>> {
        let slice = &self.slice;
        let skip = slice.first_line - 1;
        let described = |rendition| Rendition {
            encoding: slice.encoding.label(),
            path: self.path.clone(),
            fetched_back: matches!(self.origin, Origin::Stored { .. }),
            ..rendition
        };
        if room.form() == Form::Data {
            let truncated = self.goes_on_after(skip + slice.lines);
            return Ok(described(Rendition::data()).truncated(truncated));
        }
        // Bytes that are no text cost tokens and tell a model nothing.
        let text = if self.is_binary() { "" } else { &slice.text };
        // A caller who asks for lines gets them; one who does not should not be flooded by two hundred long ones.
        let most = match self.asked {
            AskedLength::Lines => usize::MAX,
            AskedLength::Place => MAX_PLACE_TOKENS,
            AskedLength::Nothing => room.answer_budget().saturating_mul(MAX_BUDGETS_UNASKED),
        };
        let most = room.cx.asked_tokens().map_or(most, |_| room.whole_tokens);
        let session = room.for_chosen_length();
        let is_within_session = llmc_tokens::fits(text, session.whole_tokens);
        let left = match is_within_session {
            true => session.whole_tokens,
            false => session.tokens,
        };
        let limits = CutLimits {
            tokens: most.min(left),
            line_bytes: MAX_LINE_BYTES,
        };
        let shown = cut(text, limits);
        let lines = if text.is_empty() {
            slice.lines
        } else {
            shown.kept.lines
        };
        let last = skip + lines;
        let truncated =
            self.goes_on_after(last) || text.len() != slice.text.len() || !shown.is_whole();
        let clipped_bytes = shown.next as u64 - shown.kept.bytes;
        let mut receipt = self
            .receipt(lines)
            .clipped_lines(shown.clipped, clipped_bytes);
        if !is_within_session && left < most {
            receipt = receipt.note(SESSION_SPENT);
        }
        if self.goes_on_after(last) && !text.is_empty() {
            receipt = receipt.next(format!("offset_lines={}", last - self.base));
        }
        let rest = match &self.origin {
            Origin::File { asked } => truncated.then(|| {
                Rest::file(FileScope::General, asked.as_str(), slice).extent(RestExtent::WholeFile)
            }),
            Origin::Document { asked, document } => truncated.then(|| {
                Rest::bytes("document", document.text.as_bytes()).about("path", asked.as_str())
            }),
            Origin::Stored { id, .. } => Some(Rest::stored(*id)),
        };
        let answer = Rendition::text(shown.text, receipt);
        Ok(described(answer).truncated(truncated).rest(rest))
    }
}

impl FileText {
    /// What was shown, of how much, under which tag.
    fn receipt(&self, lines: u64) -> Receipt {
        let slice = &self.slice;
        let skip = slice.first_line - 1;
        let last = skip + lines;
        let total = slice.total_lines;
        let receipt = match &self.origin {
            Origin::Document { document, .. } => Receipt::new().note(document.summary()),
            Origin::File { .. } | Origin::Stored { .. } => Receipt::new(),
        };
        let receipt = if self.is_binary() {
            let bytes = slice.total_bytes;
            receipt.note(format!("binary file of {bytes} bytes, not shown"))
        } else if skip == 0 && last >= total {
            receipt.total(total, "lines")
        } else if lines == 0 && slice.lines > 0 {
            receipt.note(format!("0 of {total} lines"))
        } else if lines == 0 {
            receipt.note(format!("no lines after {skip}; the file has {total}"))
        } else {
            receipt.note(format!("lines {}-{last} of {total}", skip + 1))
        };
        let mut receipt = match self.origin {
            Origin::File { .. } => receipt.sha(slice.tag()),
            Origin::Document { ref document, .. } => {
                let receipt = receipt.sha(slice.tag());
                match document.is_cut {
                    true => receipt.note("the text is longer than is read of a document"),
                    false => receipt,
                }
            }
            Origin::Stored { stale: true, .. } => receipt.note("the file has changed since"),
            Origin::Stored { .. } => receipt,
        };
        if self.is_binary() {
            return receipt;
        }
        if last == total && lines > 0 && !slice.text.ends_with('\n') {
            receipt = receipt.note("no newline at the end");
        }
        match slice.encoding.label() {
            Some(label) => receipt.note(label),
            None => receipt,
        }
    }
}
