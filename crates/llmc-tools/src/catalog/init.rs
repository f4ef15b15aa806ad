use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use llmc_envelope::receipt::Receipt;

use crate::cx::Cx;
use crate::error::Result;
use crate::mode;
use crate::render::{AnswerRoom, Render, Rendition};
use crate::tool::{Effect, Tool};

pub(super) struct Init;

/// How to use this server.
///
/// The same words as the MCP instructions, for clients that drop those.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {}

/// The text that explains the server.
#[derive(Serialize)]
pub(super) struct Guide(String);

impl Render for Guide {
    fn render(&self, _: &AnswerRoom<'_>) -> Result<Rendition<'_>> {
        Ok(Rendition::text(self.0.as_str(), Receipt::new()))
    }
}

impl Tool for Init {
    const NAME: &'static str = "init";
    const ALIASES: &'static [&'static str] = &["00_INIT"];
    const EFFECT: Effect = Effect::Reads;
    type Args = Args;
    type Output = Guide;

    async fn run(cx: &Cx, _: Args) -> Result<Guide> {
        Ok(Guide(mode::instructions(cx.app().config())))
    }
}
