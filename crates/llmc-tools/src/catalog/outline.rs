//! `outline`: what a file defines, each with its lines, in place of a look at the whole file.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::args::PATH_ERRORS;
use crate::cx::{Cx, Form};
use crate::error::{ErrorKind, Result};
use crate::render::{AnswerRoom, Fitted, Render, Rendition, Rest, RestExtent};
use crate::tool::{Effect, Tool};
use llmc_envelope::cut::{CutLimits, cut};
use llmc_envelope::receipt::Receipt;

pub(super) struct Outline;

/// List what a file defines, with lines.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    path: String,
}

/// The definitions of a file, one a line.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(transparent)]
#[schemars(extend("x-help" = "one definition a line"))]
pub(super) struct OutlineText(String);

impl Tool for Outline {
    const NAME: &'static str = "outline";
    const EFFECT: Effect = Effect::Reads;
    const ERRORS: &'static [ErrorKind] = PATH_ERRORS;
    const KEYWORDS: &'static str = "definitions structure symbols functions classes of a file";
    type Args = Args;
    type Output = OutlineText;

    async fn run(cx: &Cx, args: Args) -> Result<OutlineText> {
        cx.blocking(move |cx, _| {
            let index = cx.app().index();
            let found = index.inspect_file(&cx.files().roots, &args.path, usize::MAX)?;
            let mut text = found.text;
            if !text.ends_with('\n') {
                text.push('\n');
            }
            Ok(OutlineText(text))
        })
        .await
    }
}

impl Render for OutlineText {
    fn render(&self, room: &AnswerRoom<'_>) -> Result<Rendition<'_>> {
        if room.form() == Form::Data {
            return Ok(Rendition::data());
        }
        let shown = room.fit(self.0.len(), |tokens| {
            let shown = cut(&self.0, CutLimits::tokens(tokens));
            match shown.is_whole() {
                true => Fitted::Whole(shown),
                false => Fitted::Cut(shown),
            }
        });
        if shown.is_whole() {
            return Ok(Rendition::text(shown.text, Receipt::new()));
        }
        let receipt = Receipt::new()
            .cut(shown.kept, shown.left, shown.clipped)
            .rest();
        let extent = RestExtent::of_cut(&self.0, &shown);
        let rest = Rest::text("outline", self.0.as_str()).extent(extent);
        Ok(Rendition::text(shown.text, receipt)
            .truncated(true)
            .rest(rest))
    }
}
