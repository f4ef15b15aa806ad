//! Lists of symbols and uses in answers: their beginning, how many there are, and the handle that holds all.

use std::fmt::Write as _;

use llmc_index::{IndexedShare, UsesElsewhere};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::rag::building_note;
use crate::render::Document;

/// Uses or nodes that an answer lists which is about nothing else.
pub(super) const LISTED: usize = 100;
/// Relations of each kind that an answer lists beside other things.
pub(super) const FEW: usize = 8;

/// What was found about symbols, and what of it is missing.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Related<T> {
    #[serde(flatten)]
    pub(super) found: T,
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
    /// `truncated` says that something is missing for other reasons, which no handle can return; `unread_files` is one, and
    /// an index of which only a share is `built` another.
    pub(super) fn answer(
        kind: &'static str,
        found: T,
        whole: Option<Value>,
        truncated: bool,
        unread_files: usize,
        built: Option<IndexedShare>,
    ) -> Document<Related<T>> {
        let unread = (unread_files > 0).then(|| {
            format!(
                "{unread_files} more files mention this name; ask for path#Name, or grep for it"
            )
        });
        let hints: Vec<String> = built.map(building_note).into_iter().chain(unread).collect();
        let hint = (!hints.is_empty()).then(|| hints.join("; "));
        let truncated = truncated || built.is_some();
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

impl<T> Related<T> {
    /// Adds to a page how many there are and what was not looked at.
    pub(super) fn page_totals(
        &self,
        out: &mut String,
        count: &str,
        depth_reached: Option<usize>,
        ambiguous: &[String],
    ) {
        let _ = writeln!(out, "{count}");
        if let Some(depth) = depth_reached {
            let _ = writeln!(out, "too many: stopped at step {depth}");
        }
        self.page_notes(out, ambiguous);
    }

    /// Adds to a page the hint and the other definitions of the name, if there are several.
    pub(super) fn page_notes(&self, out: &mut String, ambiguous: &[String]) {
        if let Some(hint) = &self.hint {
            let _ = writeln!(out, "{hint}");
        }
        if !ambiguous.is_empty() {
            out.push_str("several definitions share this name:\n");
            for id in ambiguous {
                let _ = writeln!(out, "  {id}");
            }
        }
    }
}

/// The mark of a use of what the asked member overrides.
pub(super) fn through(base: Option<&str>) -> String {
    base.map_or_else(String::new, |base| format!(" through base {base}"))
}

/// Adds to a page what the uses of the name mean that the answer does not list.
pub(super) fn page_elsewhere(out: &mut String, symbol: &str, elsewhere: &UsesElsewhere) {
    if elsewhere.is_empty() {
        return;
    }
    let name = symbol.rsplit("::").next().unwrap_or(symbol);
    let (total, means) = match elsewhere.total {
        1 => ("1 other use".to_owned(), "means"),
        total => (format!("{total} other uses"), "mean"),
    };
    let named = elsewhere.definitions.iter();
    let mut parts: Vec<String> = named
        .map(|one| format!("{} {} ({})", one.symbol, one.at, one.uses))
        .collect();
    let counted: usize = elsewhere.definitions.iter().map(|one| one.uses).sum();
    if counted < elsewhere.total {
        let rest = elsewhere.total - counted;
        parts.push(format!("others ({rest})"));
    }
    let _ = writeln!(out, "{total} of {name} {means}: {}", parts.join(", "));
}

/// Cuts a list; how many there were if that was more than `most`.
pub(super) fn cut<T>(list: &mut Vec<T>, most: usize) -> Option<usize> {
    let total = list.len();
    list.truncate(most);
    (total > most).then_some(total)
}

#[cfg(test)]
mod tests {
    use llmc_index::OtherDefinition;

    use super::*;

    #[test]
    fn uses_elsewhere_take_one_line() {
        let mut out = String::new();
        page_elsewhere(&mut out, "Option::hint", &UsesElsewhere::default());
        assert_eq!(out, "");
        let base = OtherDefinition {
            symbol: "Parameter::hint".to_owned(),
            at: "core.py:2".to_owned(),
            uses: 3,
        };
        let elsewhere = UsesElsewhere {
            total: 5,
            definitions: vec![base],
        };
        page_elsewhere(&mut out, "Option::hint", &elsewhere);
        assert_eq!(
            out,
            "5 other uses of hint mean: Parameter::hint core.py:2 (3), others (2)\n"
        );
    }
}
