use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::cx::Cx;
use crate::error::Result;
use crate::render::Document;
use crate::tool::{Effect, Tool};

pub(super) struct GetMetrics;

/// Calls, errors, latency and tokens since start.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {}

impl Tool for GetMetrics {
    const NAME: &'static str = "get_metrics";
    const EFFECT: Effect = Effect::Reads;
    type Args = Args;
    type Output = Document<Value>;

    async fn run(cx: &Cx, _: Args) -> Result<Document<Value>> {
        cx.blocking(|cx, _| {
            let mut document = cx.app().observer().metrics();
            document["uptime_s"] = cx.app().started().elapsed().as_secs().into();
            if let Ok(usage) = cx.app().handles().and_then(|store| Ok(store.usage()?)) {
                document["handles"] =
                    serde_json::json!({"count": usage.count, "bytes": usage.bytes});
            }
            Ok(Document::new(document))
        })
        .await
    }
}
