use std::os::unix::ffi::OsStrExt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use llmc_envelope::HandleId;
use llmc_envelope::handles::{HandleInfo, Kept, Page, SourceStamp};
use llmc_host::{CancelToken, MAX_ANSWER_BYTES, OpenFile, names};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::args::{AtLeast, Count, bounded};
use crate::cx::Cx;
use crate::error::{Error, ErrorKind, Result};
use crate::handle_access::open_handle;
use crate::render::{AnswerRoom, Render, Rendition, Rest};
use crate::tool::{Effect, Tool};

pub(super) struct LinuxHandleRead;

/// Read bytes of a stored result by handle.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    handle: String,
    #[schemars(extend("x-help" = "bytes"))]
    offset: Option<AtLeast<0, 0>>,
    /// bytes, default 65536
    #[schemars(extend("x-help" = "bytes"))]
    limit: Option<Count<65_536, 1, { MAX_ANSWER_BYTES as i64 }>>,
}

impl Tool for LinuxHandleRead {
    const NAME: &'static str = "linux_handle_read";
    const ALIASES: &'static [&'static str] = &["linux.handle_read"];
    const EFFECT: Effect = Effect::Reads;
    const ERRORS: &'static [ErrorKind] = &[ErrorKind::HandleExpired, ErrorKind::InvalidPath];
    const KEYWORDS: &'static str = "rest truncated more";
    type Args = Args;
    type Output = HandlePage;

    async fn run(cx: &Cx, args: Args) -> Result<HandlePage> {
        let offset = bounded("offset", args.offset)?;
        let limit = bounded("limit", args.limit)?;
        cx.blocking(move |cx, stop| page(cx, &args.handle, offset, limit, stop))
            .await
    }
}

/// A page of a stored result.
pub(crate) fn page(
    cx: &Cx,
    handle: &str,
    offset: u64,
    limit: u64,
    stop: &CancelToken,
) -> Result<HandlePage> {
    let id = HandleId::parse(handle)
        .ok_or_else(|| Error::from(llmc_envelope::handles::Error::Unknown))?;
    let owner = &cx.caller().principal;
    let (store, info) = open_handle(cx.app(), cx.caller(), id)?;
    let stale = match &info.source {
        Some(source) => is_stale(cx, source, stop),
        None => false,
    };
    let limit = usize::try_from(limit).unwrap_or(MAX_ANSWER_BYTES);
    let mut page = match info.kept {
        Kept::Bytes => store.read(owner, id, offset, limit)?,
        Kept::File => read_file(cx, &info, offset, limit, stale)?,
    };
    let gone = stale && info.kept == Kept::File;
    let encoding = text_or_bytes(&mut page.bytes);
    let length = page.bytes.len() as u64;
    let data = match encoding {
        "utf-8" => String::from_utf8_lossy(&page.bytes).into_owned(),
        _ => STANDARD.encode(&page.bytes),
    };
    let fact = |key: &str| info.meta.get(key).cloned();
    Ok(HandlePage {
        data,
        encoding,
        offset: page.offset,
        length,
        total_bytes: page.total_bytes,
        // What is gone has no further pages, or a client that asks until the end would ask for ever.
        eof: gone || page.offset + length >= page.total_bytes,
        stale,
        meta: PageMeta {
            path: fact("path"),
            root: fact("root"),
            kind: info.kind,
        },
        id,
    })
}

/// The document: bytes of a stored result, and where they stand in it.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct HandlePage {
    data: String,
    #[schemars(extend("enum" = ["utf-8", "base64"]))]
    encoding: &'static str,
    offset: u64,
    length: u64,
    total_bytes: u64,
    eof: bool,
    stale: bool,
    meta: PageMeta,
    #[serde(skip)]
    id: HandleId,
}

#[derive(Debug, Serialize, JsonSchema)]
struct PageMeta {
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    root: Option<Value>,
}

impl Render for HandlePage {
    fn render(&self, _: &AnswerRoom<'_>) -> Result<Rendition<'_>> {
        let path = self.meta.path.as_ref().and_then(Value::as_str);
        Ok(Rendition {
            path: path.map(str::to_owned),
            truncated: self.offset + self.length < self.total_bytes,
            rest: Some(Rest::stored(self.id)),
            fetched_back: true,
            ..Rendition::document()
        })
    }
}

/// Whether the file is no longer what it was when the handle was made. Unreadable counts as changed.
pub(super) fn is_stale(cx: &Cx, source: &SourceStamp, stop: &CancelToken) -> bool {
    let path = shown(source);
    let roots = [&cx.linux().roots, &cx.files().roots];
    let Some(file) = roots.iter().find_map(|roots| roots.open_file(&path).ok()) else {
        return true;
    };
    if file.size() != source.size {
        return true;
    }
    if file.mtime_ns() == source.mtime_ns {
        return false;
    }
    // Touched, but perhaps not changed.
    file.sha256(stop)
        .map_or(true, |sha256| sha256 != source.sha256)
}

/// Opens the file behind a handle that keeps no bytes, with the checks of any other read.
pub(super) fn open_source(cx: &Cx, info: &HandleInfo) -> Result<OpenFile> {
    let path = info.source.as_ref().map(shown);
    let path = path.ok_or_else(|| Error::from(llmc_envelope::handles::Error::Unknown))?;
    let roots = [&cx.linux().roots, &cx.files().roots];
    let [linux, files] = roots.map(|roots| roots.open_file(&path));
    Ok(linux.or(files)?)
}

/// The file's name in the form that opens it again, whatever its bytes.
fn shown(source: &SourceStamp) -> String {
    names::escape(source.path.as_os_str().as_bytes())
}

/// A page of a file that was too large to copy. Once it has changed, its old bytes are gone, and so is the page.
fn read_file(cx: &Cx, info: &HandleInfo, offset: u64, limit: usize, stale: bool) -> Result<Page> {
    let total_bytes = info.total_bytes;
    if offset > total_bytes {
        return Err(Error::bad_args(format!(
            "offset {offset} is past the end, {total_bytes}"
        )));
    }
    let bytes = if stale {
        Vec::new()
    } else {
        open_source(cx, info)?.read_range(offset, limit)?
    };
    let eof = offset + bytes.len() as u64 >= total_bytes;
    Ok(Page {
        bytes,
        offset,
        total_bytes,
        eof,
    })
}

/// Decides between text and base64. A character cut by the end of the page goes to the next one.
fn text_or_bytes(bytes: &mut Vec<u8>) -> &'static str {
    match std::str::from_utf8(bytes) {
        Ok(_) => "utf-8",
        Err(error) if error.error_len().is_none() && error.valid_up_to() > 0 => {
            bytes.truncate(error.valid_up_to());
            "utf-8"
        }
        Err(_) => "base64",
    }
}
