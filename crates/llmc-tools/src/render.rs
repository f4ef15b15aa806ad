//! How a tool's output reads, described as data.
//!
//! A tool returns its output and never a text. [`Render`] says how that output is laid out, what of it fits a number
//! of tokens, what there was in all, and where the rest comes from. The seal turns this description into an answer:
//! it stores the rest under a handle, writes header or receipt, escapes the body and keeps the budget. No tool does any of
//! that itself.

use std::borrow::Cow;
use std::io::{self, Write};

use llmc_enrich::{Condensed, LineGap, Totals};
use llmc_envelope::HandleId;
use llmc_envelope::cut::Cut;
use llmc_envelope::neutral::{Ansi, neutralise};
use llmc_envelope::receipt::Receipt;
use llmc_envelope::te::ContentType;
use llmc_host::{CancelToken, FileSlice};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::budget;
use crate::cx::{Cx, Form, Surface};
use crate::error::Result;
use crate::seal::body_room;

/// Text with more bytes a token than this is not expected: a longer one is not tried whole.
const MAX_BYTES_PER_TOKEN: usize = 8;

/// How an output reads.
pub(crate) trait Render {
    /// Describes the answer for a reader with this much room.
    ///
    /// # Errors
    /// What the output refers to (a file, a stored result) cannot be read any more, or the call was cancelled.
    fn render(&self, room: &AnswerRoom<'_>) -> Result<Rendition<'_>>;
}

/// What an answer may take, and what rendering may ask for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AnswerRoom<'a> {
    /// Tokens of the body and its notes where something is left out, which takes a header or a receipt.
    pub(crate) tokens: usize,
    /// The same where nothing is left out.
    pub(crate) whole_tokens: usize,
    pub(crate) cx: &'a Cx,
    pub(crate) cancel: &'a CancelToken,
}

impl AnswerRoom<'_> {
    /// In which form the caller takes the answer.
    pub(crate) fn form(&self) -> Form {
        self.cx.caller().form
    }

    /// Whether a script gets the answer: a value that it can print.
    pub(crate) fn is_in_script(&self) -> bool {
        self.cx.caller().surface == Surface::Code
    }

    /// Fits `bytes` of text into the room: all of it where a whole answer may take that much, else what fits beside the
    /// frame of a cut one.
    pub(crate) fn fit<T>(&self, bytes: usize, fit: impl Fn(usize) -> Fitted<T>) -> T {
        if bytes <= self.whole_tokens.saturating_mul(MAX_BYTES_PER_TOKEN)
            && let Fitted::Whole(whole) = fit(self.whole_tokens)
        {
            return whole;
        }
        match fit(self.tokens) {
            Fitted::Whole(fitted) | Fitted::Cut(fitted) => fitted,
        }
    }

    /// The same for a condenser.
    pub(crate) fn condense(
        &self,
        bytes: usize,
        condense: impl Fn(usize) -> Condensed,
    ) -> Condensed {
        self.fit(bytes, |tokens| {
            let found = condense(tokens);
            if found.truncated {
                Fitted::Cut(found)
            } else {
                Fitted::Whole(found)
            }
        })
    }

    /// The room of an answer whose length the caller has chosen (lines, a chunk, everything): only the session's budget
    /// limits it.
    pub(crate) fn for_chosen_length(&self) -> AnswerRoom<'_> {
        let left = budget::session_room(self.cx);
        if left <= self.answer_budget() {
            // It limits every answer already.
            return *self;
        }
        AnswerRoom {
            tokens: body_room(left),
            whole_tokens: left,
            ..*self
        }
    }

    /// Tokens of one answer to this agent, whatever its session has left.
    pub(crate) fn answer_budget(&self) -> usize {
        usize::try_from(budget::answer_budget(self.cx)).unwrap_or(usize::MAX)
    }

    /// Whether the call was cancelled or ran out of time.
    pub(crate) fn cancel(&self) -> &CancelToken {
        self.cancel
    }
}

/// Whether all of something fit.
#[derive(Debug)]
pub(crate) enum Fitted<T> {
    Whole(T),
    Cut(T),
}

/// One output, laid out.
#[derive(Debug, Default)]
pub(crate) struct Rendition<'a> {
    /// The form of the text.
    pub(crate) layout: Layout,
    /// What there was in all.
    pub(crate) totals: Totals,
    /// How much of the first total present is in the body.
    pub(crate) shown: u64,
    /// Whether anything was left out.
    pub(crate) truncated: bool,
    /// Facts for the reader that fit nowhere else.
    pub(crate) notes: Vec<String>,
    /// The path the answer is about, as shown.
    pub(crate) path: Option<String>,
    /// What a handle returns; the seal stores it.
    pub(crate) rest: Option<Rest<'a>>,
    /// Bytes that are not shown, where that is not what the rest has beyond the body.
    pub(crate) withheld_bytes: Option<u64>,
    /// Whether this answer returns what an earlier one left out.
    pub(crate) fetched_back: bool,
    /// The program that a command ran.
    pub(crate) program: Option<String>,
    /// How bytes that are not plain UTF-8 were turned into text.
    pub(crate) encoding: Option<&'static str>,
    /// What the tool itself says beside its data.
    pub(crate) meta: Map<String, Value>,
    /// What a program gets in place of the serialized output.
    pub(crate) data: Option<Value>,
    /// What the data prints as in a script; its JSON where there is none.
    pub(crate) printed: Option<String>,
    /// Whether that text is shorter than the data, so that it names the call for the rest.
    pub(crate) is_printed_short: bool,
    /// An image beside the text.
    pub(crate) image: Option<AnswerImage>,
    /// What the reader of a script's output has to know about data that the script got.
    pub(crate) warning: Option<String>,
}

/// An image that a model sees.
#[derive(Debug, Clone)]
pub struct AnswerImage {
    pub mime_type: &'static str,
    pub width: u32,
    pub height: u32,
    pub bytes: Vec<u8>,
}

/// The form of an answer's text.
#[derive(Debug, Default)]
pub(crate) enum Layout {
    /// The serialized output, as one JSON document.
    #[default]
    Document,
    /// The serialized output, for a program that asked for data; there is no text.
    Data,
    /// Plain text with a receipt under it.
    Text {
        /// What is shown.
        body: String,
        /// The line under it; an empty receipt is none.
        receipt: Receipt,
    },
    /// A Tool Envelope: header, body, breadcrumbs.
    Te(TeLayout),
}

/// What only a Tool Envelope has.
#[derive(Debug, Default)]
pub(crate) struct TeLayout {
    /// The command's name, as the header gives it.
    pub(crate) cmd: &'static str,
    /// What is shown.
    pub(crate) body: String,
    /// What the body is.
    pub(crate) content_type: Option<ContentType>,
    /// The path where most of the matches are.
    pub(crate) hot_zone: Option<String>,
    /// Which chunk of a stored result this is.
    pub(crate) chunk: Option<ChunkPosition>,
}

/// Where a chunk stands in its stored result.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChunkPosition {
    /// Its number, from 0.
    pub(crate) number: u64,
    /// How many there are, if that is known.
    pub(crate) count: Option<u64>,
    /// Whether the file that the result came from has changed since.
    pub(crate) stale: bool,
}

/// What an answer leaves out, and how the handle store gets it.
#[derive(Debug)]
pub(crate) struct Rest<'a> {
    pub(crate) source: RestSource<'a>,
    /// The kind of result, as the handle store lists it.
    pub(crate) kind: &'static str,
    /// Facts about it: `path`, `root`, `command`.
    pub(crate) about: Vec<(&'static str, String)>,
    pub(crate) extent: RestExtent,
}

/// Writes a rest into the store, piece by piece.
pub(crate) type RestWriter<'a> = Box<dyn FnOnce(&mut dyn Write) -> io::Result<()> + Send + 'a>;

/// Where the bytes of a rest come from.
pub(crate) enum RestSource<'a> {
    Bytes(Cow<'a, [u8]>),
    /// Written into the store piece by piece, so that it never stands in memory twice.
    Written(RestWriter<'a>),
    /// A file of the workspace in the state in which it was read.
    File {
        asked: String,
        scope: FileScope,
        total_bytes: u64,
        sha256: String,
    },
    /// Stored already.
    Stored(HandleId),
}

impl std::fmt::Debug for RestSource<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            RestSource::Bytes(_) => "Bytes",
            RestSource::Written(_) => "Written",
            RestSource::File { .. } => "File",
            RestSource::Stored(_) => "Stored",
        })
    }
}

/// Whose roots a path is resolved against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileScope {
    /// The roots of general tools.
    General,
    /// The roots of `linux_*` tools.
    Linux,
}

/// How much a handle returns, as the receipt says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum RestExtent {
    /// All there was.
    #[default]
    Everything,
    /// All there was, of which these lines in the middle are not shown.
    Between(LineGap),
    /// All there was, of which lines in several places are not shown.
    SeveralGaps(LineGaps),
    /// The whole file of which lines are shown.
    WholeFile,
    /// The first of more than were kept in memory.
    First(u64),
    /// What was printed before the command was ended for printing too much.
    UntilEnded,
    /// The reader knows the handle already.
    Known,
}

/// Gaps that a receipt names, so that one call returns all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LineGaps {
    list: [LineGap; MAX_GAPS],
    count: usize,
}

/// Gaps that are named; further ones are part of the last.
const MAX_GAPS: usize = 8;

impl LineGaps {
    fn new(gaps: &[(u64, u64)]) -> LineGaps {
        let none = LineGap { skip: 0, count: 0 };
        let mut list = [none; MAX_GAPS];
        for (at, (skip, count)) in gaps.iter().enumerate() {
            match list.get_mut(at) {
                Some(gap) => {
                    *gap = LineGap {
                        skip: *skip,
                        count: *count,
                    }
                }
                None => {
                    let last = &mut list[MAX_GAPS - 1];
                    last.count = skip + count - last.skip;
                }
            }
        }
        LineGaps {
            list,
            count: gaps.len().min(MAX_GAPS),
        }
    }

    /// `11-40,90-120`
    pub(crate) fn ranges(&self) -> String {
        let ranges = self.list[..self.count]
            .iter()
            .map(|gap| format!("{}-{}", gap.skip + 1, gap.skip + gap.count));
        ranges.collect::<Vec<_>>().join(",")
    }
}

impl RestExtent {
    /// What the handle of a text returns of which both ends are shown.
    pub(crate) fn of_cut(text: &str, cut: &Cut<'_>) -> RestExtent {
        if cut.clipped > 0 || cut.left.lines == 0 {
            return RestExtent::Everything;
        }
        let skip = memchr::memchr_iter(b'\n', &text.as_bytes()[..cut.next]).count();
        let gap = LineGap {
            skip: skip as u64,
            count: cut.first_gap,
        };
        match cut.has_several_gaps {
            true => RestExtent::SeveralGaps(LineGaps::new(&cut.gaps)),
            false => RestExtent::Between(gap),
        }
    }
}

impl<'a> Rest<'a> {
    /// These bytes.
    pub(crate) fn bytes(kind: &'static str, bytes: impl Into<Cow<'a, [u8]>>) -> Rest<'a> {
        Rest::new(kind, RestSource::Bytes(bytes.into()))
    }

    /// This text.
    pub(crate) fn text(kind: &'static str, text: impl Into<String>) -> Rest<'a> {
        Rest::bytes(kind, text.into().into_bytes())
    }

    /// This value as JSON.
    pub(crate) fn json<T: Serialize + Sync + ?Sized>(kind: &'static str, value: &'a T) -> Rest<'a> {
        Rest::written(kind, move |out| {
            serde_json::to_writer(out, value).map_err(io::Error::from)
        })
    }

    /// What this function writes.
    pub(crate) fn written(
        kind: &'static str,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()> + Send + 'a,
    ) -> Rest<'a> {
        Rest::new(kind, RestSource::Written(Box::new(write)))
    }

    /// The whole of a file of which a slice was read: its bytes when it is small, its name and hash when it is large.
    pub(crate) fn file(scope: FileScope, asked: impl Into<String>, slice: &FileSlice) -> Rest<'a> {
        let source = RestSource::File {
            asked: asked.into(),
            scope,
            total_bytes: slice.total_bytes,
            sha256: slice.sha256.clone(),
        };
        Rest::new("file_content", source)
    }

    /// A result that is stored already.
    pub(crate) fn stored(id: HandleId) -> Rest<'a> {
        Rest::new("", RestSource::Stored(id)).extent(RestExtent::Known)
    }

    fn new(kind: &'static str, source: RestSource<'a>) -> Rest<'a> {
        Rest {
            source,
            kind,
            about: Vec::new(),
            extent: RestExtent::Everything,
        }
    }

    /// Adds a fact about it: `path`, `root` or `command`.
    pub(crate) fn about(mut self, key: &'static str, value: impl Into<String>) -> Rest<'a> {
        self.about.push((key, value.into()));
        self
    }

    /// Says how much of everything it is.
    pub(crate) fn extent(mut self, extent: RestExtent) -> Rest<'a> {
        self.extent = extent;
        self
    }
}

impl<'a> Rendition<'a> {
    /// The serialized output as one document.
    pub(crate) fn document() -> Rendition<'a> {
        Rendition::default()
    }

    /// The serialized output for a program.
    pub(crate) fn data() -> Rendition<'a> {
        Rendition {
            layout: Layout::Data,
            ..Rendition::default()
        }
    }

    /// Plain text with its receipt.
    pub(crate) fn text(body: impl Into<String>, receipt: Receipt) -> Rendition<'a> {
        Rendition {
            layout: Layout::Text {
                body: body.into(),
                receipt,
            },
            ..Rendition::default()
        }
    }

    /// A Tool Envelope around what a condenser made.
    pub(crate) fn te(cmd: &'static str, condensed: Condensed) -> Rendition<'a> {
        Rendition {
            layout: Layout::Te(TeLayout {
                cmd,
                body: condensed.body,
                hot_zone: condensed.hot_zone,
                ..TeLayout::default()
            }),
            totals: condensed.totals,
            shown: condensed.shown,
            truncated: condensed.truncated,
            notes: condensed.breadcrumbs,
            ..Rendition::default()
        }
    }

    /// Names the path that the answer is about.
    pub(crate) fn path(mut self, path: impl Into<String>) -> Rendition<'a> {
        self.path = Some(path.into());
        self
    }

    /// Says whether something is missing.
    pub(crate) fn truncated(mut self, truncated: bool) -> Rendition<'a> {
        self.truncated = truncated;
        self
    }

    /// Says what a handle is to return.
    pub(crate) fn rest(mut self, rest: impl Into<Option<Rest<'a>>>) -> Rendition<'a> {
        self.rest = rest.into();
        self
    }

    /// Says what an envelope's body is.
    pub(crate) fn content_type(mut self, kind: ContentType) -> Rendition<'a> {
        if let Layout::Te(te) = &mut self.layout {
            te.content_type = Some(kind);
        }
        self
    }

    /// Adds a fact for the reader.
    pub(crate) fn note(mut self, note: impl Into<String>) -> Rendition<'a> {
        self.notes.push(note.into());
        self
    }
}

/// An output that is one JSON document, and the path it is about.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct Document<T> {
    document: T,
    #[serde(skip)]
    path: Option<String>,
    #[serde(skip)]
    truncated: bool,
    #[serde(skip)]
    whole: Option<(&'static str, Value)>,
    #[serde(skip)]
    page: Option<Page<T>>,
}

/// Makes the text that a person reads in a terminal of a document.
pub(crate) type Page<T> = fn(&T) -> String;

impl<T: Serialize> Document<T> {
    /// A whole document.
    pub(crate) fn new(document: T) -> Document<T> {
        Document {
            document,
            path: None,
            truncated: false,
            whole: None,
            page: None,
        }
    }

    /// Says how a person reads it in a terminal.
    pub(crate) fn page(mut self, page: Page<T>) -> Document<T> {
        self.page = Some(page);
        self
    }

    /// Names the path it is about.
    pub(crate) fn path(mut self, path: impl Into<String>) -> Document<T> {
        self.path = Some(path.into());
        self
    }

    /// Says whether something is missing from it.
    pub(crate) fn truncated(mut self, truncated: bool) -> Document<T> {
        self.truncated = truncated;
        self
    }

    /// Gives the document before it was cut, of the kind that the handle store lists.
    pub(crate) fn cut_from(mut self, kind: &'static str, whole: Option<Value>) -> Document<T> {
        self.truncated |= whole.is_some();
        self.whole = whole.map(|whole| (kind, whole));
        self
    }
}

impl<T: Serialize> Render for Document<T> {
    fn render(&self, room: &AnswerRoom<'_>) -> Result<Rendition<'_>> {
        let rest = self
            .whole
            .as_ref()
            .map(|(kind, whole)| Rest::json(kind, whole));
        let form = match (room.form(), self.page) {
            (Form::Page, Some(page)) => {
                let page = page(&self.document);
                Rendition::text(neutralise(&page, Ansi::Show), Receipt::new())
            }
            _ => Rendition::document(),
        };
        Ok(Rendition {
            path: self.path.clone(),
            truncated: self.truncated,
            rest,
            ..form
        })
    }
}
