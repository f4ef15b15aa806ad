//! Lists of symbols and uses in answers: their beginning, how many there are, and the handle that holds all.

use serde::Serialize;
use serde_json::{Value, json};

use crate::answer::{Answer, Facts};
use crate::cx::Cx;
use crate::error::Result;

/// Uses or nodes that an answer lists which is about nothing else.
pub(super) const LISTED: usize = 100;
/// Relations of each kind that an answer lists beside other things.
pub(super) const FEW: usize = 8;

/// Cuts a list in an object; its length goes beside it, as `…_total`, if that was more than `most`.
pub(super) fn cut(object: &mut Value, list: &str, most: usize) -> bool {
    let Some(items) = object.get_mut(list).and_then(Value::as_array_mut) else {
        return false;
    };
    let total = items.len();
    items.truncate(most);
    if total > most {
        object[format!("{list}_total")] = json!(total);
    }
    total > most
}

/// Seals a document that has lost something against `whole`, which is kept under a handle if there is one.
///
/// `facts.truncated` tells of what is missing for other reasons and no handle can give back.
pub(super) fn seal(
    cx: &Cx,
    kind: &str,
    mut document: Value,
    whole: Option<&impl Serialize>,
    mut facts: Facts,
) -> Result<Answer> {
    if let Some(whole) = whole {
        let (handle, bytes) = cx.keep_json(|draft| draft, kind, whole);
        facts.handle = handle;
        facts.truncated = true;
        facts.withheld_bytes = bytes.saturating_sub(document.to_string().len() as u64);
    }
    if facts.truncated {
        document["truncated"] = json!(true);
    }
    if let Some(handle) = facts.handle {
        document["handle"] = json!(handle.to_string());
    }
    Answer::json(&document, facts)
}

/// What to do about files that were not read.
pub(super) fn hint_at_unread(document: &mut Value, files: usize) {
    if files > 0 {
        document["hint"] = json!(format!(
            "{files} more files mention this name; ask for path#Name, or grep for it"
        ));
    }
}
