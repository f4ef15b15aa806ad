use schemars::JsonSchema;
use serde::Deserialize;

use llmc_envelope::receipt::Receipt;

use crate::answer::{Answer, Facts};
use crate::cx::Cx;
use crate::error::Result;
use crate::mode;
use crate::tool::{Effect, Tool};

pub(super) struct Init;

/// How to use this server.
///
/// The same words as the MCP instructions, for clients that drop those.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {}

impl Tool for Init {
    const NAME: &'static str = "init";
    const ALIASES: &'static [&'static str] = &["00_INIT"];
    const EFFECT: Effect = Effect::Reads;
    type Args = Args;
    type Output = Answer;

    async fn run(cx: &Cx, _: Args) -> Result<Answer> {
        let words = mode::instructions(cx.app().config());
        Ok(Answer::text(&words, &Receipt::new(), Facts::default()))
    }
}
