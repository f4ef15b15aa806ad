use llmc_host::machine::snapshot;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cx::Cx;
use crate::error::Result;
use crate::render::Document;
use crate::tool::{Effect, Tool};

pub(super) struct LinuxSysSnapshot;

/// Processors, load, memory, disks, uptime.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {}

impl Tool for LinuxSysSnapshot {
    const NAME: &'static str = "linux_sys_snapshot";
    const ALIASES: &'static [&'static str] = &["linux.sys_snapshot"];
    const EFFECT: Effect = Effect::Reads;
    type Args = Args;
    type Output = Document<Value>;

    async fn run(cx: &Cx, _: Args) -> Result<Document<Value>> {
        cx.blocking(|cx, _| {
            let roots = &cx.linux().roots;
            let seen = snapshot(roots.paths());
            let disks: Vec<Value> = seen
                .disks
                .iter()
                .map(|disk| {
                    json!({
                        "path": roots.display_absolute(&disk.path),
                        "total_bytes": disk.total_bytes,
                        "free_bytes": disk.free_bytes,
                    })
                })
                .collect();
            let document = json!({
                "cpu_count": seen.cpu_count,
                "load": seen.load,
                "mem_total_bytes": seen.mem_total_bytes,
                "mem_available_bytes": seen.mem_available_bytes,
                "disk": disks,
                "uptime_s": seen.uptime_s,
            });
            Ok(Document::new(document))
        })
        .await
    }
}
