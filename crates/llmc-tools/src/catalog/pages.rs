//! Keeping what an answer leaves out.

use llmc_envelope::HandleId;
use llmc_envelope::handles::{BYTES_KEPT_LIMIT, Payload, SourceStamp};
use llmc_host::walk::Skipped;
use llmc_host::{ANSWER_LIMIT, CancelToken, Roots, Slice, sha256_hex};
use serde::Serialize;
use serde_json::{Value, json};

use crate::answer::{Answer, Facts};
use crate::cx::Cx;
use crate::error::Result;

/// Keeps a file whose slice was shown: its bytes when it is small, its name and hash when it is large.
///
/// The file is opened anew, and by now it may be gone or another. Then there is nothing to keep, and the slice is as
/// good as it was.
pub(super) fn keep_file(
    cx: &Cx,
    roots: &Roots,
    asked: &str,
    slice: &Slice,
    stop: &CancelToken,
) -> Result<Option<HandleId>> {
    let Ok(file) = roots.open_file(asked) else {
        return Ok(None);
    };
    if file.size() != slice.total_bytes {
        return Ok(None);
    }
    let shown = roots.shown(&file.path);
    let stamp = SourceStamp {
        path: file.path.absolute(),
        size: slice.total_bytes,
        mtime_ns: file.mtime_ns(),
        sha256: slice.sha256.clone(),
    };
    if let Some(id) = cx.app().kept_file(&cx.caller().principal, &stamp) {
        return Ok(Some(id));
    }
    let about =
        |draft: llmc_envelope::handles::Draft| draft.with("path", shown).from_source(stamp.clone());
    let id = if slice.total_bytes > BYTES_KEPT_LIMIT {
        cx.keep(about, "file_content", Payload::File(stamp.clone()))
    } else {
        let bytes = match file.read_all(ANSWER_LIMIT, stop) {
            Ok(bytes) if sha256_hex(&bytes) == slice.sha256 => bytes,
            Ok(_) => return Ok(None),
            Err(_) => {
                stop.check()?;
                return Ok(None);
            }
        };
        cx.keep(about, "file_content", bytes.as_slice())
    };
    if let Some(id) = id {
        cx.app().remember_file(&cx.caller().principal, &stamp, id);
    }
    Ok(id)
}

/// A list cut to one page: what is shown, and the handle that has the rest.
pub(super) struct Page<'a, T> {
    /// What is shown.
    pub(super) items: &'a [T],
    /// How many the handle holds, when there is one and it does not hold all.
    pub(super) kept_of_more: Option<usize>,
    /// For the envelope.
    pub(super) facts: Facts,
}

/// Shows the first `max` of a list of `total`, of which `all` were kept in memory, and stores the rest as JSON.
pub(super) fn page<'a, T: Serialize>(
    cx: &Cx,
    kind: &str,
    root: &str,
    all: &'a [T],
    max: usize,
    total: u64,
) -> Page<'a, T> {
    let items = &all[..all.len().min(max)];
    let truncated = total > items.len() as u64;
    let mut facts = Facts {
        path: Some(root.to_owned()),
        truncated,
        ..Facts::default()
    };
    let mut kept_of_more = None;
    if truncated {
        let (handle, bytes) = cx.keep_json(|draft| draft.with("root", root), kind, all);
        facts.handle = handle;
        let left = all.len() - items.len();
        facts.withheld_bytes = bytes * left as u64 / all.len().max(1) as u64;
        kept_of_more = ((all.len() as u64) < total).then_some(all.len());
    }
    Page {
        items,
        kept_of_more,
        facts,
    }
}

/// A search's hits as one document: a page of them, the true total, and what was not searched.
pub(super) fn hits(
    cx: &Cx,
    root: &str,
    all: &[impl Serialize],
    max: usize,
    (total, files_searched, skipped): (u64, u64, &Skipped),
) -> Result<Answer> {
    let page = page(cx, "search_hits", root, all, max, total);
    let mut document = json!({
        "hits": page.items,
        "total_hits": total,
        "truncated": page.facts.truncated,
        "handle": handle_value(page.facts.handle),
        "files_searched": files_searched,
        "skipped": skipped,
    });
    if let Some(kept) = page.kept_of_more {
        document["handle_hits"] = kept.into();
    }
    Answer::json(&document, page.facts)
}

/// A handle as JSON: its text, or null.
pub(super) fn handle_value(id: Option<HandleId>) -> Value {
    id.map_or(Value::Null, |id| id.to_string().into())
}
