use llmc_index::IndexState;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::app::App;
use crate::confinement::ConfinementSummary;
use crate::cx::Cx;
use crate::error::Result;
use crate::render::Document;
use crate::tool::{Effect, Tool};
use crate::upstreams::UpstreamSummary;

pub(super) struct Health;

/// Server health and confinement.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {}

/// The body of `GET /health`: what this server is and what holds its programs.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct HealthReport {
    ok: bool,
    version: &'static str,
    confinement: String,
    profile: &'static str,
    /// Which settings of the workspace's file are ignored, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    config_warning: Option<String>,
    index: IndexState,
    #[serde(skip_serializing_if = "Option::is_none")]
    index_progress: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    index_error: Option<String>,
    /// Why the parsers of source files are not confined.
    #[serde(skip_serializing_if = "Option::is_none")]
    parsers: Option<String>,
    /// Other servers behind this one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    upstreams: Vec<UpstreamState>,
}

/// How an upstream is doing, in few words: the route needs no token.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct UpstreamState {
    name: String,
    tools: usize,
    #[schemars(extend("enum" = ["idle", "running", "failing", "not accepted"]))]
    state: &'static str,
    /// Tools that changed since the user accepted them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    withheld: Vec<String>,
}

impl UpstreamState {
    fn of(summary: UpstreamSummary) -> UpstreamState {
        let health = summary.health;
        UpstreamState {
            state: match (summary.missing, health.running, health.last_error) {
                (Some(_), ..) => "not accepted",
                (None, true, _) => "running",
                (None, false, Some(_)) => "failing",
                (None, false, None) => "idle",
            },
            name: summary.name,
            tools: summary.tools,
            withheld: health.withheld,
        }
    }
}

impl HealthReport {
    pub(crate) fn of(app: &App) -> HealthReport {
        HealthReport {
            ok: true,
            version: "v0",
            confinement: ConfinementSummary::confinement(app).to_owned(),
            profile: app.config().mcp.exec.profile.as_str(),
            config_warning: app.loaded().trust.ignored(),
            index: app.index_state(),
            index_progress: app.index_progress(),
            index_error: app.index().failure(),
            parsers: llmc_sandbox::parser_confinement().and_then(|found| found.weakness()),
            upstreams: app
                .upstream_summaries()
                .into_iter()
                .map(UpstreamState::of)
                .collect(),
        }
    }
}

impl Tool for Health {
    const NAME: &'static str = "health";
    const EFFECT: Effect = Effect::Reads;
    const KEYWORDS: &'static str = "status alive";
    type Args = Args;
    type Output = Document<HealthReport>;

    async fn run(cx: &Cx, _: Args) -> Result<Document<HealthReport>> {
        cx.blocking(|cx, _| Ok(Document::new(HealthReport::of(cx.app()))))
            .await
    }
}
