//! Lists of symbols and uses in answers: their beginning, how many there are, and the handle that holds all.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::render::Document;

/// Uses or nodes that an answer lists which is about nothing else.
pub(super) const LISTED: usize = 100;
/// Relations of each kind that an answer lists beside other things.
pub(super) const FEW: usize = 8;

/// What was found about symbols, and what of it is missing.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Related<T> {
    #[serde(flatten)]
    found: T,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    truncated: bool,
    /// Filled in by the seal.
    #[serde(skip_serializing_if = "Option::is_none")]
    handle: Option<String>,
}

impl<T: Serialize> Related<T> {
    /// The answer of what was cut from `whole`, if that is given.
    ///
    /// `truncated` says that something is missing for other reasons, which no handle can return; `unread_files` is one.
    pub(super) fn answer(
        kind: &'static str,
        found: T,
        whole: Option<Value>,
        truncated: bool,
        unread_files: usize,
    ) -> Document<Related<T>> {
        let hint = (unread_files > 0).then(|| {
            format!(
                "{unread_files} more files mention this name; ask for path#Name, or grep for it"
            )
        });
        let related = Related {
            found,
            hint,
            truncated: truncated || whole.is_some(),
            handle: None,
        };
        Document::new(related)
            .truncated(truncated)
            .cut_from(kind, whole)
    }
}

/// Cuts a list; how many there were if that was more than `most`.
pub(super) fn cut<T>(list: &mut Vec<T>, most: usize) -> Option<usize> {
    let total = list.len();
    list.truncate(most);
    (total > most).then_some(total)
}
