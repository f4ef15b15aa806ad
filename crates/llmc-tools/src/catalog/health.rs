use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::answer::{Answer, Facts};
use crate::confinement::Truth;
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

    async fn run(cx: &Cx, _: Args) -> Result<Answer> {
        cx.blocking(|cx, _| {
            let exec = &cx.app().config().mcp.exec;
            let document = json!({
                "ok": true,
                "version": "v0",
                "confinement": Truth::confinement(cx.app()),
                "profile": exec.profile.as_str(),
                "index": "none",
            });
            Answer::json(&document, Facts::default())
        })
        .await
    }
}
