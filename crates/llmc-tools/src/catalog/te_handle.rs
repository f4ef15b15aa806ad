use llmc_envelope::HandleId;
use llmc_envelope::handles::{Chunker, Kept};
use llmc_envelope::te::TeHeader;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::linux_handle_read::{is_stale, open_source};
use crate::answer::{Answer, Facts};
use crate::cx::Cx;
use crate::error::{Error, Family, Kind, Result};
use crate::te;
use crate::tool::{Effect, Tool};

pub(super) struct TeHandle;

/// Retrieve a truncated result by handle.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    handle: String,
    chunk: Option<i64>,
}

impl Tool for TeHandle {
    const NAME: &'static str = "te_handle";
    const EFFECT: Effect = Effect::Reads;
    const FAMILY: Family = Family::Te;
    type Args = Args;

    async fn run(cx: &Cx, args: Args) -> Result<Answer> {
        let wanted = args.chunk.unwrap_or(0);
        cx.blocking(move |cx, stop| {
            let id = HandleId::parse(&args.handle)
                .ok_or_else(|| Error::from(llmc_envelope::handles::Error::Unknown))?;
            let owner = &cx.caller().principal;
            let store = cx.app().handles()?;
            let info = store.info(owner, id)?;
            let stale = info
                .source
                .as_ref()
                .is_some_and(|source| is_stale(cx, source, stop));
            // A chunk is asked for by somebody who knows what it costs: the answer's budget, not what is left of a session's.
            let budget = usize::try_from(cx.app().config().mcp.te.budget_for(&cx.caller().agent))
                .unwrap_or(2000);
            let past = |count: u64| {
                Error::bad_args(format!(
                    "chunk {wanted} is not there; chunks are 0 to {}",
                    count.saturating_sub(1)
                ))
            };
            let Ok(number) = u64::try_from(wanted) else {
                return Err(past(count(cx, &info, id, budget, stop)?));
            };
            let (bytes, chunks) = match info.kept {
                Kept::Bytes => match store.chunk(owner, id, number, budget) {
                    Ok(chunk) => (chunk.bytes, chunk.chunks),
                    Err(llmc_envelope::handles::Error::BadRange { count, .. }) => {
                        return Err(past(count));
                    }
                    Err(error) => return Err(error.into()),
                },
                Kept::File if stale => {
                    return Err(Error::new(
                        Kind::HandleExpired,
                        "the file has changed since the handle was made",
                    )
                    .hint("read the file again"));
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
            let mut header = TeHeader::new("handle");
            header.size = Some(info.total_bytes);
            header.shown = Some(bytes.len() as u64);
            header.handle = Some(id);
            header.chunk = Some(number);
            header.chunks = chunks;
            header.truncated = chunks != Some(number + 1);
            header.stale = stale;
            let facts = Facts {
                path: info
                    .meta
                    .get("path")
                    .and_then(Value::as_str)
                    .map(str::to_owned),
                truncated: header.truncated,
                handle: Some(id),
                fetched_back: true,
                ..Facts::default()
            };
            let mut crumbs = Vec::new();
            if header.truncated {
                crumbs.push(format!("more: chunk {}", number + 1));
            }
            Ok(te::answer(
                cx,
                &header,
                &String::from_utf8_lossy(&bytes),
                &crumbs,
                facts,
            ))
        })
        .await
    }
}

/// How many chunks there are, for the message of a call that asked for one that is not.
fn count(
    cx: &Cx,
    info: &llmc_envelope::handles::HandleInfo,
    id: HandleId,
    budget: usize,
    stop: &llmc_host::Stop,
) -> Result<u64> {
    if info.kept == Kept::Bytes {
        return Ok(cx
            .app()
            .handles()?
            .chunk_count(&cx.caller().principal, id, budget)?);
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
