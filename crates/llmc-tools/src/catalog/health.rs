use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::cx::Cx;
use crate::error::Result;
use crate::render::Document;
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
    type Output = Document<Value>;

    async fn run(cx: &Cx, _: Args) -> Result<Document<Value>> {
        cx.blocking(|cx, _| Ok(Document::new(cx.app().health())))
            .await
    }
}
