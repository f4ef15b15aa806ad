use schemars::JsonSchema;
use serde::Deserialize;

use crate::answer::{Answer, Facts};
use crate::cx::Cx;
use crate::error::Result;
use crate::tool::{Effect, Tool};

pub(super) struct Health;

/// Server health and confinement.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {}

impl Tool for Health {
    const NAME: &'static str = "health";
    const EFFECT: Effect = Effect::Reads;
    type Args = Args;
    type Output = Answer;

    async fn run(cx: &Cx, _: Args) -> Result<Answer> {
        cx.blocking(|cx, _| Answer::json(&cx.app().health(), Facts::default()))
            .await
    }
}
