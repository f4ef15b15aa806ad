use llmc_enrich::preview::PreviewPart;
use schemars::JsonSchema;
use serde::Deserialize;

use super::args::{AtLeast, DOCUMENT_ERRORS, bounded};
use super::te_cat::{FileView, view_part};
use crate::cx::Cx;
use crate::error::{ErrorKind, Family, Result};
use crate::tool::{Effect, Tool};

pub(super) struct TeTail;

/// Last lines of a file.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    path: String,
    lines: Option<AtLeast<10, 1>>,
}

impl Tool for TeTail {
    const NAME: &'static str = "te_tail";
    const EFFECT: Effect = Effect::Reads;
    const FAMILY: Family = Family::Te;
    const ERRORS: &'static [ErrorKind] = DOCUMENT_ERRORS;
    const KEYWORDS: &'static str = "end bottom log";
    type Args = Args;
    type Output = FileView;

    async fn run(cx: &Cx, args: Args) -> Result<FileView> {
        let lines = bounded("lines", args.lines)?;
        cx.blocking(move |cx, stop| {
            view_part(cx, "tail", &args.path, PreviewPart::Tail(lines), stop)
        })
        .await
    }
}
