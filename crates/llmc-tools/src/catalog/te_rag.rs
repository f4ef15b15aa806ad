use llmc_enrich::{Condensed, Totals};
use llmc_index::SearchAnswer;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use crate::cx::Cx;
use crate::error::{Family, Result};
use crate::rag::{self, Asked};
use crate::render::{AnswerRoom, Render, Rendition};
use crate::te;
use crate::tool::{Effect, Tool};

/// Tokens of the header and of the line above each snippet.
const HEADER: usize = 60;
const HEADING: usize = 40;

pub(super) struct TeRag;

/// Find code by words or names.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    query: String,
}

impl Tool for TeRag {
    const NAME: &'static str = "te_rag";
    const EFFECT: Effect = Effect::Reads;
    const RETRIEVES: bool = true;
    const FAMILY: Family = Family::Te;
    type Args = Args;
    type Output = RankedSnippets;

    async fn run(cx: &Cx, args: Args) -> Result<RankedSnippets> {
        cx.blocking(move |cx, stop| {
            let mut limits = rag::limited(cx, &Asked::default())?;
            limits.budget = te::budget(cx)
                .saturating_sub(HEADER + HEADING * limits.k)
                .max(1);
            let found = rag::search(cx, &args.query, &limits, stop)?;
            Ok(RankedSnippets(found))
        })
        .await
    }
}

/// The snippets that fit a query best.
#[derive(Debug)]
pub(super) struct RankedSnippets(SearchAnswer);

impl Serialize for RankedSnippets {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.snippets.iter().map(rag::shown))
    }
}

impl Render for RankedSnippets {
    fn render(&self, _: &AnswerRoom<'_>) -> Result<Rendition<'_>> {
        let found = &self.0;
        let mut body = String::new();
        for snippet in &found.snippets {
            let symbol = snippet.symbol.as_deref().unwrap_or_default();
            let kind = snippet.kind.unwrap_or_default();
            let heading = format!("{} {:.2} {kind} {symbol}", snippet.src(), snippet.score);
            body.push_str(heading.trim_end());
            body.push('\n');
            body.push_str(&snippet.text);
            body.push_str("\n\n");
        }
        let mut breadcrumbs = Vec::new();
        breadcrumbs.extend(found.note.clone());
        if !found.unverified.is_empty() {
            breadcrumbs.push(format!(
                "changed meanwhile: {}",
                found.unverified.join(", ")
            ));
        }
        let shown = found.snippets.len() as u64;
        let left_out = found.omitted.as_ref().map_or(0, |left| left.hits as u64);
        let condensed = Condensed {
            body: body.trim_end().to_owned(),
            totals: Totals {
                matches: Some(shown + left_out),
                ..Totals::default()
            },
            shown,
            truncated: left_out > 0,
            breadcrumbs,
            ..Condensed::default()
        };
        Ok(Rendition::te("rag", condensed))
    }
}
