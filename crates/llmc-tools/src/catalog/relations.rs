//! Lists of symbols and uses in answers: their beginning, how many there are, and the handle that holds all.

use serde_json::{Value, json};

use crate::render::Document;

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

/// The answer of a document that was cut from `whole`, if that is given.
///
/// `truncated` says that something is missing for other reasons, which no handle can return.
pub(super) fn answer(
    kind: &'static str,
    mut document: Value,
    whole: Option<Value>,
    truncated: bool,
) -> Document<Value> {
    if truncated || whole.is_some() {
        document["truncated"] = json!(true);
    }
    Document::new(document)
        .truncated(truncated)
        .cut_from(kind, whole)
}

/// What to do about files that were not read.
pub(super) fn hint_at_unread(document: &mut Value, files: usize) {
    if files > 0 {
        document["hint"] = json!(format!(
            "{files} more files mention this name; ask for path#Name, or grep for it"
        ));
    }
}
