use llmc_host::machine::snapshot;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cx::Cx;
use crate::error::Result;
use crate::render::Document;
use crate::tool::{Effect, Tool};

pub(super) struct LinuxSysSnapshot;

/// Load, memory, disks, uptime.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {}

#[derive(Serialize, JsonSchema)]
pub(super) struct Machine {
    cpu_count: usize,
    #[schemars(extend("x-help" = "1, 5 and 15 minutes"))]
    load: [f64; 3],
    mem_total_bytes: u64,
    mem_available_bytes: u64,
    disk: Vec<Disk>,
    uptime_s: u64,
}

#[derive(Serialize, JsonSchema)]
struct Disk {
    path: String,
    total_bytes: u64,
    free_bytes: u64,
}

impl Tool for LinuxSysSnapshot {
    const NAME: &'static str = "linux_sys_snapshot";
    const ALIASES: &'static [&'static str] = &["linux.sys_snapshot"];
    const EFFECT: Effect = Effect::Reads;
    const KEYWORDS: &'static str = "cpu ram free space machine system";
    type Args = Args;
    type Output = Document<Machine>;

    async fn run(cx: &Cx, _: Args) -> Result<Document<Machine>> {
        cx.blocking(|cx, _| {
            let roots = &cx.linux().roots;
            let seen = snapshot(roots.paths());
            let disk = seen
                .disks
                .iter()
                .map(|disk| Disk {
                    path: roots.display_absolute(&disk.path),
                    total_bytes: disk.total_bytes,
                    free_bytes: disk.free_bytes,
                })
                .collect();
            Ok(Document::new(Machine {
                cpu_count: seen.cpu_count,
                load: seen.load,
                mem_total_bytes: seen.mem_total_bytes,
                mem_available_bytes: seen.mem_available_bytes,
                disk,
                uptime_s: seen.uptime_s,
            }))
        })
        .await
    }
}
