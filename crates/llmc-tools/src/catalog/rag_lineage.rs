use std::fmt::Write as _;

use llmc_index::{Lineage, LineageDirection};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::args::{Count, INDEX_ERRORS, bounded};
use super::relations::{LISTED, Related, page_elsewhere, through};
use crate::cx::Cx;
use crate::error::{Error, ErrorKind, Result};
use crate::rag;
use crate::render::Document;
use crate::tool::{Effect, Tool};

pub(super) struct RagLineage;

/// Callers or callees of a symbol, transitively.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    symbol: String,
    /// callers or callees
    #[schemars(extend("default" = "callers", "x-help" = "or callees"))]
    direction: Option<String>,
    #[schemars(extend("x-unlisted" = true))]
    depth: Option<Count<2, 1, 5>>,
}

impl Tool for RagLineage {
    const NAME: &'static str = "rag_lineage";
    const ALIASES: &'static [&'static str] = &["rag.lineage"];
    const EFFECT: Effect = Effect::Reads;
    const RETRIEVES: bool = true;
    const ERRORS: &'static [ErrorKind] = INDEX_ERRORS;
    const KEYWORDS: &'static str = "graph dependencies impact";
    type Args = Args;
    type Output = Document<Related<Lineage>>;

    async fn run(cx: &Cx, args: Args) -> Result<Document<Related<Lineage>>> {
        cx.blocking(move |cx, stop| {
            let depth = bounded("depth", args.depth)?;
            let direction = match args.direction.as_deref() {
                None | Some("callers") => LineageDirection::Callers,
                Some("callees") => LineageDirection::Callees,
                Some(other) => {
                    return Err(Error::bad_args(format!(
                        "direction must be callers or callees, not {other:?}"
                    )));
                }
            };
            let built = rag::await_index(cx, stop)?;
            let depth = usize::try_from(depth).unwrap_or(1);
            let roots = &cx.files().roots;
            let index = cx.app().index();
            let found = index.lineage(roots, &args.symbol, direction, depth, stop);
            let mut found = rag::found_in(built, found)?;
            let whole = (found.nodes.len() > LISTED).then(|| json!(found));
            found.nodes.truncate(LISTED);
            let truncated = found.unread_files > 0 || found.depth_reached.is_some();
            let unread = found.unread_files;
            let answer = Related::answer(Self::NAME, found, whole, truncated, unread, built);
            Ok(answer.page(page))
        })
        .await
    }
}

/// The symbols as a tree, by their distance from the first.
fn page(lineage: &Related<Lineage>) -> String {
    let found = &lineage.found;
    let mut out = format!("{}\n", found.symbol);
    for node in &found.nodes {
        let _ = writeln!(
            out,
            "{:indent$}{}  {}  {:.2}{}",
            "",
            node.symbol,
            node.src,
            node.confidence,
            through(node.through.as_deref()),
            indent = 2 * node.depth
        );
    }
    let direction = match found.direction {
        LineageDirection::Callers => "callers",
        LineageDirection::Callees => "callees",
    };
    let count = format!(
        "{} {direction} of {}, {} shown",
        found.total,
        found.symbol,
        found.nodes.len()
    );
    lineage.page_totals(&mut out, &count, found.depth_reached, &found.ambiguous);
    page_elsewhere(&mut out, &found.symbol, &found.elsewhere);
    out
}
