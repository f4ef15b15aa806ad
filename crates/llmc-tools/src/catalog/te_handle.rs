use llmc_enrich::Totals;
use llmc_envelope::HandleId;
use llmc_envelope::handles::{Chunker, HandleInfo, Kept};
use llmc_host::CancelToken;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::linux_handle_read::{is_stale, open_source};
use crate::budget::SESSION_SPENT;
use crate::cx::Cx;
use crate::error::{Error, ErrorKind, Family, Result};
use crate::handle_access::open_handle;
use crate::render::{AnswerRoom, ChunkPosition, Fitted, Layout, Render, Rendition, Rest, TeLayout};
use crate::shape::te_output;
use crate::te;
use crate::tool::{Effect, Tool};

/// Results up to this size have their chunks counted at once; beyond it that takes its time.
const MAX_COUNTED_BYTES: u64 = 2 << 20;

pub(super) struct TeHandle;

/// A stored result by handle.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    handle: String,
    #[schemars(extend("default" = 0, "x-help" = "from 0"))]
    chunk: Option<i64>,
}

impl Tool for TeHandle {
    const NAME: &'static str = "te_handle";
    const EFFECT: Effect = Effect::Reads;
    const FAMILY: Family = Family::Te;
    const ERRORS: &'static [ErrorKind] = &[ErrorKind::HandleExpired, ErrorKind::InvalidPath];
    const KEYWORDS: &'static str = "rest more";
    type Args = Args;
    type Output = HandleChunk;

    async fn run(cx: &Cx, args: Args) -> Result<HandleChunk> {
        cx.blocking(move |cx, stop| retrieve(cx, &args.handle, args.chunk, stop))
            .await
    }
}

/// One chunk of a stored result, the first unless told otherwise.
pub(crate) fn retrieve(
    cx: &Cx,
    handle: &str,
    chunk: Option<i64>,
    stop: &CancelToken,
) -> Result<HandleChunk> {
    let mut piece = piece(cx, handle, chunk.unwrap_or(0), stop)?;
    if piece.chunks.is_none() && piece.info.total_bytes <= MAX_COUNTED_BYTES {
        piece.chunks = Some(count(cx, &piece.info, te::chunk_budget(cx), stop)?);
    }
    let path = piece.info.meta.get("path").and_then(Value::as_str);
    Ok(HandleChunk {
        handle: piece.info.id,
        path: path.map(str::to_owned),
        number: piece.number,
        count: piece.chunks,
        size: piece.info.total_bytes,
        shown: piece.bytes.len() as u64,
        text: String::from_utf8_lossy(&piece.bytes).into_owned(),
        stale: piece.stale,
    })
}

/// A chunk of a stored result.
#[derive(Debug, Serialize)]
pub(crate) struct HandleChunk {
    handle: HandleId,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    number: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    size: u64,
    #[serde(skip)]
    shown: u64,
    text: String,
    stale: bool,
}

te_output!(HandleChunk);

impl Render for HandleChunk {
    fn render(&self, room: &AnswerRoom<'_>) -> Result<Rendition<'_>> {
        let last = self.count == Some(self.number + 1);
        // A session that has spent its budget still learns what there is.
        let fitted = room.for_chosen_length().fit(0, |tokens| {
            if llmc_tokens::fits(&self.text, tokens) {
                return Fitted::Whole(self.text.as_str());
            }
            let (end, _) = llmc_tokens::lines_within(&self.text, tokens);
            Fitted::Cut(&self.text[..end])
        });
        let is_cut = fitted.len() < self.text.len();
        let shown = match is_cut {
            true => fitted.len() as u64,
            false => self.shown,
        };
        let layout = TeLayout {
            cmd: "handle",
            body: fitted.to_owned(),
            chunk: Some(ChunkPosition {
                number: self.number,
                count: self.count,
                stale: self.stale,
            }),
            ..TeLayout::default()
        };
        let rendition = Rendition {
            layout: Layout::Te(layout),
            totals: Totals {
                size: Some(self.size),
                ..Totals::default()
            },
            shown,
            truncated: !last || is_cut,
            path: self.path.clone(),
            rest: Some(Rest::stored(self.handle)),
            fetched_back: true,
            ..Rendition::default()
        };
        Ok(if is_cut {
            rendition.note(SESSION_SPENT)
        } else if last {
            rendition
        } else {
            rendition.note(format!("more: chunk {}", self.number + 1))
        })
    }
}

/// A chunk, and what is known about the result it is from.
pub(crate) struct Piece {
    pub(crate) info: HandleInfo,
    pub(crate) number: u64,
    pub(crate) bytes: Vec<u8>,
    /// How many there are, once that is known.
    pub(crate) chunks: Option<u64>,
    pub(crate) stale: bool,
}

/// What is known about a stored result, and whether the file it came from has changed.
pub(crate) fn about(cx: &Cx, handle: &str, stop: &CancelToken) -> Result<(HandleInfo, bool)> {
    let id = HandleId::parse(handle)
        .ok_or_else(|| Error::from(llmc_envelope::handles::Error::Unknown))?;
    let (_, info) = open_handle(cx.app(), cx.caller(), id)?;
    let source = info.source.as_ref();
    let stale = source.is_some_and(|source| is_stale(cx, source, stop));
    if stale && info.kept == Kept::File {
        return Err(Error::new(
            ErrorKind::HandleExpired,
            "the file has changed since the handle was made",
        )
        .hint("read the file again"));
    }
    Ok((info, stale))
}

/// Chunk `wanted` of a stored result.
pub(crate) fn piece(cx: &Cx, handle: &str, wanted: i64, stop: &CancelToken) -> Result<Piece> {
    let (info, stale) = about(cx, handle, stop)?;
    let budget = te::chunk_budget(cx);
    let past = |count: u64| {
        Error::bad_args(format!(
            "chunk {wanted} is not there; chunks are 0 to {}",
            count.saturating_sub(1)
        ))
    };
    let Ok(number) = u64::try_from(wanted) else {
        return Err(past(count(cx, &info, budget, stop)?));
    };
    let (bytes, chunks) = match info.kept {
        Kept::Bytes => {
            let store = cx.app().handles()?;
            match store.chunk(&cx.caller().principal, info.id, number, budget) {
                Ok(chunk) => (chunk.bytes, chunk.chunks),
                Err(llmc_envelope::handles::Error::BadRange { count, .. }) => {
                    return Err(past(count));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Kept::File => {
            let file = open_source(cx, &info)?;
            let mut chunker = Chunker::new(info.total_bytes, budget);
            let mut seen = 0;
            loop {
                stop.check()?;
                let span = chunker.next_span(|at| file.read_range(at, 256 << 10))?;
                match span {
                    None => return Err(past(seen)),
                    Some(span) if span.index == number => {
                        let len = usize::try_from(span.len).unwrap_or(0);
                        let chunks = chunker.is_done().then_some(number + 1);
                        break (file.read_range(span.offset, len)?, chunks);
                    }
                    Some(span) => seen = span.index + 1,
                }
            }
        }
    };
    Ok(Piece {
        info,
        number,
        bytes,
        chunks,
        stale,
    })
}

/// `limit` bytes of a stored result from `offset` on.
pub(crate) fn bytes_at(cx: &Cx, info: &HandleInfo, offset: u64, limit: usize) -> Result<Vec<u8>> {
    match info.kept {
        Kept::Bytes => {
            let store = cx.app().handles()?;
            Ok(store
                .read(&cx.caller().principal, info.id, offset, limit)?
                .bytes)
        }
        Kept::File => Ok(open_source(cx, info)?.read_range(offset, limit)?),
    }
}

/// How many chunks there are, for the message of a call that asked for one that is not.
fn count(cx: &Cx, info: &HandleInfo, budget: usize, stop: &CancelToken) -> Result<u64> {
    if info.kept == Kept::Bytes {
        return Ok(cx
            .app()
            .handles()?
            .chunk_count(&cx.caller().principal, info.id, budget)?);
    }
    let file = open_source(cx, info)?;
    let mut chunker = Chunker::new(info.total_bytes, budget);
    let mut count = 0;
    while let Some(span) = chunker.next_span(|at| file.read_range(at, 256 << 10))? {
        stop.check()?;
        count = span.index + 1;
    }
    Ok(count)
}
