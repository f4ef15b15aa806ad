use llmc_enrich::{Condensed, Totals};
use llmc_index::{SearchAnswer, Snippet};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use super::args::INDEX_ERRORS;
use crate::cx::Cx;
use crate::error::{ErrorKind, Family, Result};
use crate::rag::{self, Asked, ShownSnippet};
use crate::render::{AnswerRoom, Fitted, Render, Rendition, Rest};
use crate::shape::te_output;
use crate::tool::{Effect, Tool};

/// Tokens of all snippets of one answer; what does not fit the caller's budget is stored.
const MAX_FOUND_TOKENS: usize = 64_000;

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
    const ERRORS: &'static [ErrorKind] = INDEX_ERRORS;
    const KEYWORDS: &'static str = "semantic search snippets";
    type Args = Args;
    type Output = RankedSnippets;

    async fn run(cx: &Cx, args: Args) -> Result<RankedSnippets> {
        cx.blocking(move |cx, stop| {
            let mut limits = rag::limited(cx, &Asked::default())?;
            limits.budget = MAX_FOUND_TOKENS;
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
        serializer.collect_seq(self.0.snippets.iter().map(ShownSnippet::from))
    }
}

te_output!(RankedSnippets);

impl Render for RankedSnippets {
    fn render(&self, room: &AnswerRoom<'_>) -> Result<Rendition<'_>> {
        let found = &self.0;
        let parts: Vec<String> = found.snippets.iter().map(with_heading).collect();
        let whole = parts.join("\n\n");
        let (body, shown) = room.fit(whole.len(), |tokens| fitting(&parts, tokens));
        let mut breadcrumbs = Vec::new();
        breadcrumbs.extend(found.note.clone());
        if !found.unverified.is_empty() {
            breadcrumbs.push(format!(
                "changed meanwhile: {}",
                found.unverified.join(", ")
            ));
        }
        let left_out = found.omitted.as_ref().map_or(0, |left| left.hits);
        let condensed = Condensed {
            truncated: body.len() < whole.len() || left_out > 0,
            body,
            totals: Totals {
                matches: Some((parts.len() + left_out) as u64),
                ..Totals::default()
            },
            shown: shown as u64,
            breadcrumbs,
            ..Condensed::default()
        };
        let rest = condensed.truncated.then(|| Rest::text("te", whole));
        Ok(Rendition::te("rag", condensed).rest(rest))
    }
}

fn with_heading(snippet: &Snippet) -> String {
    let symbol = snippet.symbol.as_deref().unwrap_or_default();
    let kind = snippet.kind.unwrap_or_default();
    let heading = format!("{} {:.2} {kind} {symbol}", snippet.src(), snippet.score);
    format!("{}\n{}", heading.trim_end(), snippet.text.trim_end())
}

/// As many snippets as fit, the last of them cut between lines; and how many there are, whole or cut.
fn fitting(parts: &[String], tokens: usize) -> Fitted<(String, usize)> {
    let mut body = String::new();
    for (n, part) in parts.iter().enumerate() {
        let before = body.len();
        if n > 0 {
            body.push_str("\n\n");
        }
        body.push_str(part);
        if !llmc_tokens::fits(&body, tokens) {
            let (end, _) = llmc_tokens::lines_within(&body, tokens);
            // A heading alone tells nothing.
            let lines = body
                .get(before..end)
                .map_or(0, |shown| shown.trim().lines().count());
            let (end, shown) = if lines > 1 { (end, n + 1) } else { (before, n) };
            body.truncate(end);
            let end = body.trim_end().len();
            body.truncate(end);
            return Fitted::Cut((body, shown));
        }
    }
    Fitted::Whole((body, parts.len()))
}
