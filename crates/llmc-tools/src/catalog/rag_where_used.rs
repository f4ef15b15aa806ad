use std::fmt::Write as _;

use llmc_index::SymbolUses;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::args::{Count, INDEX_ERRORS, bounded};
use super::relations::{LISTED, Related, page_elsewhere, through};
use crate::cx::Cx;
use crate::error::{ErrorKind, Result};
use crate::rag;
use crate::render::Document;
use crate::tool::{Effect, Tool};

pub(super) struct RagWhereUsed;

/// Every use of a symbol.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    symbol: String,
    #[schemars(extend("x-unlisted" = true))]
    depth: Option<Count<1, 1, 5>>,
}

impl Tool for RagWhereUsed {
    const NAME: &'static str = "rag_where_used";
    const ALIASES: &'static [&'static str] = &["rag.where_used"];
    const EFFECT: Effect = Effect::Reads;
    const RETRIEVES: bool = true;
    const ERRORS: &'static [ErrorKind] = INDEX_ERRORS;
    const KEYWORDS: &'static str = "references callers usages find";
    type Args = Args;
    type Output = Document<Related<SymbolUses>>;

    async fn run(cx: &Cx, args: Args) -> Result<Document<Related<SymbolUses>>> {
        cx.blocking(move |cx, stop| {
            let depth = bounded("depth", args.depth)?;
            let built = rag::await_index(cx, stop)?;
            let depth = usize::try_from(depth).unwrap_or(1);
            let roots = &cx.files().roots;
            let index = cx.app().index();
            let found = index.where_used(roots, &args.symbol, depth, stop);
            let mut found = rag::found_in(built, found)?;
            let whole = (found.sites.len() > LISTED).then(|| json!(found));
            found.sites.truncate(LISTED);
            let truncated = found.unread_files > 0 || found.depth_reached.is_some();
            let unread = found.unread_files;
            let answer = Related::answer(Self::NAME, found, whole, truncated, unread, built);
            Ok(answer.page(page))
        })
        .await
    }
}

/// One use a line, as compilers print places.
fn page(uses: &Related<SymbolUses>) -> String {
    let found = &uses.found;
    let mut out = String::new();
    for site in &found.sites {
        // A use outside of every definition has no symbol around it.
        let within = match site.symbol.as_str() {
            "" => String::new(),
            symbol => format!("[{symbol}] "),
        };
        let through = through(site.through.as_deref());
        let _ = writeln!(
            out,
            "{}:{}: {}  {within}{:.2}{through}",
            site.path, site.line, site.text, site.confidence
        );
    }
    let shown = found.sites.len();
    let uses_of = if found.total == 1 { "use" } else { "uses" };
    let count = format!(
        "{} {uses_of} of {}, {shown} shown",
        found.total, found.symbol
    );
    uses.page_totals(&mut out, &count, found.depth_reached, &found.ambiguous);
    page_elsewhere(&mut out, &found.symbol, &found.elsewhere);
    out
}
