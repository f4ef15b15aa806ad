//! Lists of which an answer shows the first items and a handle holds all.

use std::borrow::Cow;
use std::collections::BTreeMap;

use llmc_envelope::HandleId;
use llmc_host::walk::SkippedCounts;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, Serializer};

use crate::error::Result;
use crate::render::{AnswerRoom, Render, Rendition, Rest};

/// A list, as an answer shows it: its first items.
#[derive(Debug)]
pub(super) struct ListPage<T> {
    items: Vec<T>,
    shown: usize,
}

impl<T: Serialize> ListPage<T> {
    pub(super) fn new(items: Vec<T>, max: usize) -> ListPage<T> {
        let shown = items.len().min(max);
        ListPage { items, shown }
    }

    /// Whether items of `total` are not shown.
    pub(super) fn is_cut(&self, total: u64) -> bool {
        total > self.shown as u64
    }

    /// How many items the handle holds, where there is one and it does not hold all.
    pub(super) fn stored(&self, total: u64) -> Option<usize> {
        let stored = self.items.len();
        (self.is_cut(total) && (stored as u64) < total).then_some(stored)
    }
}

impl<T: Serialize + Sync> ListPage<T> {
    /// The answer of a document that holds this page of `total` items below `root`.
    pub(super) fn render(&self, kind: &'static str, root: &str, total: u64) -> Rendition<'_> {
        let cut = self.is_cut(total);
        let rest = cut.then(|| Rest::json(kind, &self.items).about("root", root));
        Rendition::document().path(root).truncated(cut).rest(rest)
    }
}

impl<T: Serialize> Serialize for ListPage<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        self.items[..self.shown].serialize(serializer)
    }
}

impl<T: JsonSchema> JsonSchema for ListPage<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        Vec::<T>::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Vec::<T>::json_schema(generator)
    }
}

/// A search's hits as one document: a page of them, the true total, and what was not searched.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct SearchHits<T: Serialize> {
    hits: ListPage<T>,
    total_hits: u64,
    truncated: bool,
    /// Filled in by the seal.
    #[schemars(with = "Option<String>")]
    handle: Option<HandleId>,
    files_searched: u64,
    #[schemars(with = "BTreeMap<String, u64>", extend("x-help" = "counts by reason"))]
    skipped: SkippedCounts,
    #[serde(skip_serializing_if = "Option::is_none")]
    handle_hits: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-help" = "hits with a line shown in part"))]
    clipped_hits: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    #[serde(skip)]
    root: String,
}

impl<T: Serialize> SearchHits<T> {
    pub(super) fn new(
        root: String,
        hits: ListPage<T>,
        (total_hits, files_searched, skipped): (u64, u64, SkippedCounts),
    ) -> SearchHits<T> {
        SearchHits {
            truncated: hits.is_cut(total_hits),
            handle: None,
            handle_hits: hits.stored(total_hits),
            clipped_hits: None,
            note: None,
            hits,
            total_hits,
            files_searched,
            skipped,
            root,
        }
    }

    /// Says of how many hits a line is shown in part.
    pub(super) fn clipped(mut self, hits: usize) -> SearchHits<T> {
        self.clipped_hits = (hits > 0).then_some(hits);
        self.truncated |= hits > 0;
        self
    }
}

impl<T: Serialize> SearchHits<T> {
    /// Adds what is to be said about the arguments.
    pub(super) fn note(mut self, note: Option<String>) -> SearchHits<T> {
        self.note = note;
        self
    }
}

impl<T: Serialize + Sync> Render for SearchHits<T> {
    fn render(&self, _: &AnswerRoom<'_>) -> Result<Rendition<'_>> {
        let rendition = self.hits.render("search_hits", &self.root, self.total_hits);
        Ok(rendition.truncated(self.truncated))
    }
}
