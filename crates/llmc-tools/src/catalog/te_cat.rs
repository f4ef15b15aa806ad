use llmc_documents::{Conversion, DocumentText};
use llmc_enrich::logs::LogSurvey;
use llmc_enrich::preview::{PreviewPart, TextEnds, condense, condense_binary};
use llmc_enrich::sniff::{ContentKind, is_binary, sniff};
use llmc_enrich::{Condensed, Totals};
use llmc_host::{CancelToken, FileSlice, OpenFile};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use super::args::{AtLeast, DOCUMENT_ERRORS, bounded};
use super::converted::{
    ConvertedFile, FoundFile, ImageView, NamedPart, document_slice, fault_error, find_conversion,
};
use super::read_file::MAX_PLACE_TOKENS;
use super::several::{SeveralTexts, listed_places, read_several};
use super::target::{LineSpan, PathTarget, lines_of};
use crate::cx::{Cx, Form};
use crate::error::{ErrorKind, Family, Result};
use crate::render::{AnswerRoom, FileScope, Layout, Render, Rendition, Rest};
use crate::shape::te_output;
use crate::tool::{Effect, Tool};

/// How much of a file's beginning is looked at for a preview.
const MAX_HEAD_BYTES: usize = 2 << 20;
/// The same for JSON, whose shape shows only when it is read to its end.
const MAX_JSON_BYTES: usize = 8 << 20;
/// And of its end, when that does not reach.
const MAX_TAIL_BYTES: usize = 512 << 10;

pub(super) struct TeCat;

/// View a file, or its outline.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    path: String,
    #[schemars(extend("default" = null, "x-help" = "that many from the start; default: a preview"))]
    lines: Option<AtLeast<1, 1>>,
}

impl Tool for TeCat {
    const NAME: &'static str = "te_cat";
    const EFFECT: Effect = Effect::Reads;
    const FAMILY: Family = Family::Te;
    const ERRORS: &'static [ErrorKind] = DOCUMENT_ERRORS;
    const KEYWORDS: &'static str = "read show print";
    type Args = Args;
    type Output = CatAnswer;

    async fn run(cx: &Cx, args: Args) -> Result<CatAnswer> {
        let asked = match args.lines {
            None => PreviewPart::Whole,
            lines => PreviewPart::Head(bounded("lines", lines)?),
        };
        cx.blocking(move |cx, cancel| {
            if let Some(places) = listed_places(cx, &args.path)? {
                return Ok(CatAnswer::Several(read_several(cx, &places, cancel)?));
            }
            let view = match asked {
                PreviewPart::Whole => view_place(cx, &args.path, cancel),
                asked => view_part(cx, "cat", &args.path, asked, cancel),
            };
            Ok(CatAnswer::One(Box::new(view?)))
        })
        .await
    }
}

/// Shows what a path names.
fn view_place(cx: &Cx, named: &str, cancel: &CancelToken) -> Result<FileView> {
    match PathTarget::of(cx, named, cancel)? {
        PathTarget::Lines { path, first, last } => {
            view_lines(cx, "cat", &path, LineSpan { first, last }, cancel)
        }
        PathTarget::Part(part) => view_named_part(cx, "cat", &part, cancel),
        PathTarget::File | PathTarget::Handle(_) | PathTarget::HandleLines(..) => {
            view_part(cx, "cat", named, PreviewPart::Whole, cancel)
        }
    }
}

/// One file, or several places.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum CatAnswer {
    One(Box<FileView>),
    #[serde(serialize_with = "several_as_text")]
    Several(SeveralTexts),
}

te_output!(CatAnswer);

fn several_as_text<S: Serializer>(
    several: &SeveralTexts,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(several.text())
}

impl Render for CatAnswer {
    fn render(&self, room: &AnswerRoom<'_>) -> Result<Rendition<'_>> {
        match self {
            CatAnswer::One(view) => view.render(room),
            CatAnswer::Several(_) if room.form() == Form::Data => Ok(Rendition::data()),
            CatAnswer::Several(several) => {
                let shown = several.render(room);
                let Layout::Text { body, .. } = shown.layout else {
                    return Ok(shown);
                };
                let lines = several.lines();
                let condensed = Condensed {
                    shown: lines,
                    truncated: shown.truncated,
                    totals: Totals {
                        lines: Some(lines),
                        ..Totals::default()
                    },
                    body,
                    ..Condensed::default()
                };
                Ok(Rendition::te("cat", condensed).rest(shown.rest))
            }
        }
    }
}

/// Shows the first or the last lines of a file, or of the lines that a path names.
pub(super) fn view_part(
    cx: &Cx,
    cmd: &'static str,
    named: &str,
    asked: PreviewPart,
    cancel: &CancelToken,
) -> Result<FileView> {
    let Some((path, span)) = lines_of(&cx.files().roots, named)? else {
        return view(cx, cmd, named, asked, cancel);
    };
    let span = match asked {
        PreviewPart::Head(lines) => LineSpan {
            last: span.last.min(span.first.saturating_add(lines) - 1),
            ..span
        },
        PreviewPart::Tail(lines) => {
            // A span may end behind the file.
            let total = cx
                .files()
                .roots
                .read_lines(&path, 0, 0, cancel)?
                .total_lines;
            let last = span.last.min(total.max(span.first));
            LineSpan {
                first: span.first.max((last + 1).saturating_sub(lines)),
                last,
            }
        }
        _ => span,
    };
    view_lines(cx, cmd, &path, span, cancel)
}

/// Shows a file, or some of its lines, in the form that says most within the budget.
fn view(
    cx: &Cx,
    cmd: &'static str,
    path: &str,
    asked: PreviewPart,
    stop: &CancelToken,
) -> Result<FileView> {
    let roots = &cx.files().roots;
    let (file, fault) = match find_conversion(cx, path, stop)? {
        FoundFile::Plain(file) => (file, None),
        FoundFile::Converted(file) => return Ok(view_converted(cmd, path, file, asked)),
        // A preview says what the file is, and why there is no more.
        FoundFile::Faulty(why) => (roots.open_file(path)?, Some(why.to_string())),
    };
    let shown = roots.display_path(&file.path);
    let size = file.size();
    let mut head = file.read_range(0, MAX_HEAD_BYTES)?;
    if sniff(&shown, &head) == ContentKind::Json
        && (MAX_HEAD_BYTES as u64..=MAX_JSON_BYTES as u64).contains(&size)
    {
        head = file.read_range(0, MAX_JSON_BYTES)?;
    }
    let tail = if size > head.len() as u64 {
        cut_to_lines(&mut head, Side::End);
        let mut tail = file.read_range(size - MAX_TAIL_BYTES as u64, MAX_TAIL_BYTES)?;
        cut_to_lines(&mut tail, Side::Start);
        Some(String::from_utf8_lossy(&tail).into_owned())
    } else {
        None
    };
    let kind = sniff(&shown, &head);
    let survey = match (kind, asked) {
        (ContentKind::Log, PreviewPart::Whole) if tail.is_some() => Some(survey(&file, stop)?),
        _ => None,
    };
    // One pass over everything: true totals, and the hash that a handle is checked against.
    let whole = file.read_lines(0, 0, stop)?;
    Ok(FileView {
        cmd,
        path: shown,
        asked: path.to_owned(),
        lines: asked,
        kind,
        head,
        tail,
        survey,
        whole,
        conversion: fault.map(ConversionFacts::Fault),
    })
}

/// Shows a document or an image.
fn view_converted(
    cmd: &'static str,
    asked: &str,
    file: ConvertedFile,
    lines: PreviewPart,
) -> FileView {
    let facts = (file.total_bytes, file.sha256.clone());
    let (head, whole, conversion) = match file.conversion {
        Conversion::Text(document) => {
            let whole = document_slice(&document.text, facts, 0, 0);
            let head = document.text.clone().into_bytes();
            let facts = ConversionFacts::Document(Box::new(document));
            (head, whole, facts)
        }
        Conversion::Image(image) => {
            let whole = document_slice("", facts, 0, 0);
            let facts = (file.path.clone(), file.total_bytes, file.sha256);
            let image = ImageView::new(facts, image);
            let head = image.facts().into_bytes();
            (head, whole, ConversionFacts::Image(Box::new(image)))
        }
    };
    FileView {
        cmd,
        path: file.path,
        asked: asked.to_owned(),
        lines,
        kind: ContentKind::Text,
        head,
        tail: None,
        survey: None,
        whole,
        conversion: Some(conversion),
    }
}

/// A file, or some of its lines, as far as a preview looks at it.
#[derive(Debug, Serialize)]
pub(super) struct FileView {
    path: String,
    #[serde(rename = "text", serialize_with = "as_text")]
    head: Vec<u8>,
    #[serde(skip)]
    tail: Option<String>,
    #[serde(skip)]
    cmd: &'static str,
    #[serde(skip)]
    asked: String,
    #[serde(skip)]
    lines: PreviewPart,
    #[serde(skip)]
    kind: ContentKind,
    #[serde(skip)]
    survey: Option<LogSurvey>,
    /// The totals and the hash of the file.
    #[serde(skip)]
    whole: FileSlice,
    #[serde(skip)]
    conversion: Option<ConversionFacts>,
}

/// What is known of a file that is no plain text.
#[derive(Debug)]
enum ConversionFacts {
    Document(Box<DocumentText>),
    Image(Box<ImageView>),
    /// Why it is shown as bytes.
    Fault(String),
}

fn as_text<S: Serializer>(bytes: &[u8], serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(&String::from_utf8_lossy(bytes))
}

te_output!(FileView);

impl Render for FileView {
    fn render(&self, room: &AnswerRoom<'_>) -> Result<Rendition<'_>> {
        if let Some(ConversionFacts::Image(image)) = &self.conversion {
            return Ok(image.render_te(room, self.cmd));
        }
        let whole = &self.whole;
        let found = if is_binary(&self.head) {
            condense_binary(&self.path, &self.head, whole.total_bytes)
        } else {
            let text = TextEnds {
                head: &String::from_utf8_lossy(&self.head),
                tail: self.tail.as_deref(),
                total_bytes: match self.document() {
                    Some(document) => document.text.len() as u64,
                    None => whole.total_bytes,
                },
                total_lines: whole.total_lines,
                survey: self.survey.as_ref(),
            };
            let bytes = match self.lines {
                PreviewPart::Whole => usize::try_from(whole.total_bytes).unwrap_or(usize::MAX),
                _ => 0,
            };
            // Lines that were asked for are not cut.
            let room = match self.lines {
                PreviewPart::From(_) => AnswerRoom {
                    whole_tokens: room.for_chosen_length().whole_tokens.min(MAX_PLACE_TOKENS),
                    ..*room
                },
                _ => *room,
            };
            room.condense(bytes, |tokens| {
                condense(&self.path, self.kind, &text, self.lines, tokens)
            })
        };
        let rest = found.truncated.then(|| match self.document() {
            Some(document) => {
                Rest::bytes("document", document.text.as_bytes()).about("path", self.asked.as_str())
            }
            None => Rest::file(FileScope::General, self.asked.as_str(), whole),
        });
        // Lines outside a place are not withheld.
        let of_place = matches!(self.lines, PreviewPart::From(_));
        let withheld = of_place.then(|| self.head.len().saturating_sub(found.body.len()) as u64);
        let rendition = Rendition {
            withheld_bytes: withheld,
            ..Rendition::te(self.cmd, found)
        };
        let rendition = match &self.conversion {
            Some(ConversionFacts::Document(document)) => rendition.note(document.summary()),
            Some(ConversionFacts::Fault(why)) => rendition.note(format!("not read: {why}")),
            Some(ConversionFacts::Image(_)) | None => rendition,
        };
        Ok(rendition
            .content_type(crate::shell::condense::content_type(self.kind))
            .path(self.path.as_str())
            .rest(rest))
    }
}

impl FileView {
    fn document(&self) -> Option<&DocumentText> {
        match &self.conversion {
            Some(ConversionFacts::Document(document)) => Some(document),
            _ => None,
        }
    }
}

/// All that a log holds, however long it is.
fn survey(file: &OpenFile, stop: &CancelToken) -> Result<LogSurvey> {
    const BLOCK: usize = 1 << 20;
    let (mut survey, mut at) = (LogSurvey::default(), 0);
    while at < file.size() && !survey.is_full() {
        stop.check()?;
        let block = file.read_range(at, BLOCK)?;
        if block.is_empty() {
            break;
        }
        at += block.len() as u64;
        survey.feed(&block);
    }
    survey.finish();
    Ok(survey)
}

/// Shows lines of a file, counted from 1, as many as fit.
fn view_lines(
    cx: &Cx,
    cmd: &'static str,
    path: &str,
    span: LineSpan,
    stop: &CancelToken,
) -> Result<FileView> {
    let roots = &cx.files().roots;
    let file = match find_conversion(cx, path, stop)? {
        FoundFile::Plain(file) => file,
        FoundFile::Converted(file) => return view_document_lines(cmd, path, file, |_| Ok(span)),
        FoundFile::Faulty(_) => roots.open_file(path)?,
    };
    let shown = roots.display_path(&file.path);
    let start = file.read_range(0, 8 << 10)?;
    if is_binary(&start) {
        return view(cx, cmd, path, PreviewPart::Whole, stop);
    }
    let kind = sniff(&shown, &start);
    let (from, take) = span.slice(0, u64::MAX);
    let slice = file.read_lines(from, take, stop)?;
    span.check(path, slice.total_lines)?;
    Ok(FileView {
        cmd,
        path: shown,
        asked: path.to_owned(),
        lines: PreviewPart::From(span.first),
        kind,
        head: slice.text.clone().into_bytes(),
        tail: None,
        survey: None,
        whole: slice,
        conversion: None,
    })
}

/// Shows a page, sheet or cell.
fn view_named_part(
    cx: &Cx,
    cmd: &'static str,
    part: &NamedPart,
    stop: &CancelToken,
) -> Result<FileView> {
    match find_conversion(cx, &part.path, stop)? {
        FoundFile::Plain(_) => Err(part.refuse()),
        FoundFile::Faulty(fault) => Err(fault_error(&part.path, &fault)),
        FoundFile::Converted(file) => {
            view_document_lines(cmd, &part.path, file, |document| part.lines(document))
        }
    }
}

/// Shows lines of a document's text.
fn view_document_lines(
    cmd: &'static str,
    path: &str,
    file: ConvertedFile,
    span: impl Fn(&DocumentText) -> Result<LineSpan>,
) -> Result<FileView> {
    let facts = (file.total_bytes, file.sha256.clone());
    let mut view = view_converted(cmd, path, file, PreviewPart::Whole);
    let Some(document) = view.document() else {
        return Ok(view);
    };
    let span = span(document)?;
    let (from, take) = span.slice(0, u64::MAX);
    let slice = document_slice(&document.text, facts, from, take);
    span.check(path, slice.total_lines)?;
    view.lines = PreviewPart::From(span.first);
    view.head = slice.text.clone().into_bytes();
    view.whole = slice;
    Ok(view)
}

#[derive(PartialEq)]
enum Side {
    Start,
    End,
}

/// Drops the part of a line that a cut left at one side, unless it is all there is.
fn cut_to_lines(bytes: &mut Vec<u8>, side: Side) {
    let mut ends = bytes.iter();
    if side == Side::End {
        if let Some(end) = ends.rposition(|b| *b == b'\n') {
            bytes.truncate(end + 1);
        }
    } else if let Some(end) = ends.position(|b| *b == b'\n')
        && end + 1 < bytes.len()
    {
        bytes.drain(..=end);
    }
}
