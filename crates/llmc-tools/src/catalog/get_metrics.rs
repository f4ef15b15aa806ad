use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cx::Cx;
use crate::error::Result;
use crate::render::Document;
use crate::tool::{Effect, Tool};

pub(super) struct GetMetrics;

/// Calls, errors and tokens since start.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {}

/// What was called since the start, and what is stored.
#[derive(Serialize, JsonSchema)]
#[schemars(extend("x-help" = "also calls, errors, latency_ms, errors_by_code, tokens, events_dropped; tools: {name: {calls, errors, latency_ms}}; upstreams: [{upstream, list_tokens, list_avoided, calls, errors, tokens, read_by_scripts}]"))]
pub(super) struct Metrics {
    #[serde(flatten)]
    #[schemars(with = "serde_json::Map<String, Value>")]
    calls: Value,
    uptime_s: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    handles: Option<StoredHandles>,
}

#[derive(Serialize, JsonSchema)]
struct StoredHandles {
    count: u64,
    bytes: u64,
}

impl Tool for GetMetrics {
    const NAME: &'static str = "get_metrics";
    const EFFECT: Effect = Effect::Reads;
    const KEYWORDS: &'static str = "statistics usage performance";
    type Args = Args;
    type Output = Document<Metrics>;

    async fn run(cx: &Cx, _: Args) -> Result<Document<Metrics>> {
        cx.blocking(|cx, _| {
            let usage = cx.app().handles().and_then(|store| Ok(store.usage()?));
            Ok(Document::new(Metrics {
                calls: (cx.app().observer()).metrics(cx.app().upstream_lists()),
                uptime_s: cx.app().started().elapsed().as_secs(),
                handles: usage.ok().map(|usage| StoredHandles {
                    count: usage.count,
                    bytes: usage.bytes,
                }),
            }))
        })
        .await
    }
}
