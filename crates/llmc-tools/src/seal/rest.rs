//! What an answer leaves out: keeping it under a handle, and the call that returns it.

use llmc_enrich::LineGap;
use llmc_envelope::HandleId;
use llmc_envelope::handles::{BYTES_KEPT_LIMIT, Draft, Payload, SourceStamp};
use llmc_host::{CancelToken, MAX_ANSWER_BYTES, sha256_hex};

use crate::cx::{Cx, Surface};
use crate::error::Result;
use crate::render::{FileScope, Rest, RestExtent, RestSource};

/// More lines than this are not suggested in one call, because `read_file` returns all lines that are asked for.
const MAX_LINES_ASKED_AT_ONCE: u64 = 400;

/// A rest that has a handle.
#[derive(Debug)]
pub(super) struct StoredRest {
    pub(super) id: HandleId,
    pub(super) bytes: u64,
    pub(super) extent: RestExtent,
}

/// What a handle returns, and the call that does it.
pub(super) fn rest_note(cx: &Cx, stored: &StoredRest) -> Option<String> {
    rest_note_of(cx, stored.id, stored.extent)
}

pub(super) fn rest_note_of(cx: &Cx, id: HandleId, extent: RestExtent) -> Option<String> {
    let what = match extent {
        RestExtent::Between(lines) => {
            return Some(between_note(cx, id, lines));
        }
        RestExtent::SeveralGaps(gaps) => {
            let ranges = gaps.ranges();
            return Some(match StoredReader::of(cx) {
                StoredReader::Script => {
                    format!("tools.read_file(path=\"{id}:{ranges}\") returns these lines")
                }
                StoredReader::ReadFile => {
                    format!("read_file path={id}:{ranges} returns these lines")
                }
                StoredReader::Shell | StoredReader::Handle => {
                    format!("{} returns the rest", rest_call(cx, id))
                }
            });
        }
        RestExtent::Everything => "returns the rest".to_owned(),
        RestExtent::WholeFile => "returns the whole file".to_owned(),
        RestExtent::First(count) => format!("returns the first {count}"),
        RestExtent::UntilEnded => "returns what was printed until then".to_owned(),
        RestExtent::Known => return None,
    };
    Some(format!("{} {what}", rest_call(cx, id)))
}

/// The call that returns just the lines that are left out, where a reader can ask for lines of a stored result, and what it
/// does.
fn between_note(cx: &Cx, id: HandleId, lines: LineGap) -> String {
    let LineGap { skip, count } = lines;
    let is_few = count <= MAX_LINES_ASKED_AT_ONCE;
    let what = match is_few {
        true => "returns these lines",
        false => "goes on there",
    };
    let slice = |separator: &str| match is_few {
        true => format!("offset_lines={skip}{separator}max_lines={count}"),
        false => format!("offset_lines={skip}"),
    };
    match StoredReader::of(cx) {
        StoredReader::Script => {
            format!("tools.read_file(path=\"{id}\", {}) {what}", slice(", "))
        }
        StoredReader::ReadFile => format!("read_file path={id} {} {what}", slice(" ")),
        StoredReader::Shell | StoredReader::Handle => {
            format!("{} returns the rest", rest_call(cx, id))
        }
    }
}

/// What the reader of an answer reads stored results with.
enum StoredReader {
    Shell,
    Script,
    ReadFile,
    Handle,
}

impl StoredReader {
    fn of(cx: &Cx) -> StoredReader {
        let lists = |name: &str| cx.app().listing().iter().any(|tool| tool.name == name);
        match cx.caller().surface {
            Surface::Cli => StoredReader::Shell,
            Surface::Code => StoredReader::Script,
            Surface::Mcp if !lists("te_handle") => StoredReader::ReadFile,
            Surface::Mcp | Surface::Http => StoredReader::Handle,
        }
    }
}

/// The call that returns a stored result, as the reader of this answer can make it.
pub(super) fn rest_call(cx: &Cx, id: HandleId) -> String {
    match StoredReader::of(cx) {
        StoredReader::Shell => format!("te --handle {id}"),
        StoredReader::Script => format!("tools.read_file(path=\"{id}\")"),
        StoredReader::ReadFile => format!("read_file path={id}"),
        StoredReader::Handle => format!("te_handle handle={id}"),
    }
}

/// Stores what an answer leaves out. `None` when the store cannot take it: an answer is never lost for that.
pub(super) fn store(cx: &Cx, cancel: &CancelToken, rest: Rest<'_>) -> Result<Option<StoredRest>> {
    let Rest {
        source,
        kind,
        about,
        extent,
    } = rest;
    let about = |draft: Draft| {
        about
            .into_iter()
            .fold(draft, |draft, (key, value)| draft.with(key, value))
    };
    let (id, bytes) = match source {
        RestSource::Bytes(bytes) => {
            let id = cx.keep(about, kind, bytes.as_ref());
            (id, bytes.len() as u64)
        }
        RestSource::Written(write) => cx.keep_written(about, kind, write),
        RestSource::File {
            asked,
            scope,
            total_bytes,
            sha256,
        } => (
            keep_file(cx, cancel, scope, &asked, total_bytes, &sha256)?,
            total_bytes,
        ),
        RestSource::Stored(id) => (Some(id), 0),
    };
    Ok(id.map(|id| StoredRest { id, bytes, extent }))
}

/// Keeps a file of which a slice was shown: its bytes when it is small, its name and hash when it is large.
///
/// The file is opened anew, and by now it may be gone or another. Then there is nothing to keep, and the slice is as
/// good as it was.
fn keep_file(
    cx: &Cx,
    cancel: &CancelToken,
    scope: FileScope,
    asked: &str,
    total_bytes: u64,
    sha256: &str,
) -> Result<Option<HandleId>> {
    let roots = match scope {
        FileScope::General => &cx.files().roots,
        FileScope::Linux => &cx.linux().roots,
    };
    let Ok(file) = roots.open_file(asked) else {
        return Ok(None);
    };
    if file.size() != total_bytes {
        return Ok(None);
    }
    let shown = roots.display_path(&file.path);
    let stamp = SourceStamp {
        path: file.path.absolute(),
        size: total_bytes,
        mtime_ns: file.mtime_ns(),
        sha256: sha256.to_owned(),
    };
    if let Some(id) = cx
        .app()
        .handle_keeper()
        .find_file(&cx.caller().principal, cx.tool(), &stamp)
    {
        return Ok(Some(id));
    }
    let about = |draft: Draft| draft.with("path", shown).from_source(stamp.clone());
    let id = if total_bytes > BYTES_KEPT_LIMIT {
        cx.keep(about, "file_content", Payload::File(stamp.clone()))
    } else {
        let bytes = match file.read_all(MAX_ANSWER_BYTES, cancel) {
            Ok(bytes) if sha256_hex(&bytes) == sha256 => bytes,
            Ok(_) => return Ok(None),
            Err(_) => {
                cancel.check()?;
                return Ok(None);
            }
        };
        cx.keep(about, "file_content", bytes.as_slice())
    };
    if let Some(id) = id {
        cx.app()
            .handle_keeper()
            .remember_file(&cx.caller().principal, cx.tool(), &stamp, id);
    }
    Ok(id)
}
