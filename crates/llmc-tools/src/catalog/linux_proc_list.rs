//! `linux_proc_list`: the caller's background processes.

use llmc_observe::mask_secrets;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cx::Cx;
use crate::error::Result;
use crate::render::Document;
use crate::tool::{Effect, Tool};

/// Characters of a command line that are shown.
const MAX_COMMAND_CHARS: usize = 200;

pub(super) struct LinuxProcList;

/// List your processes.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {}

#[derive(Serialize, JsonSchema)]
pub(super) struct ProcessList {
    processes: Vec<ListedProcess>,
}

#[derive(Serialize, JsonSchema)]
struct ListedProcess {
    proc_id: String,
    #[schemars(extend("x-help" = "null: a comparison, preview or test run"))]
    pid: Option<i32>,
    command: String,
    running: bool,
    started_iso: String,
}

impl Tool for LinuxProcList {
    const NAME: &'static str = "linux_proc_list";
    const ALIASES: &'static [&'static str] = &["linux.proc_list"];
    const EFFECT: Effect = Effect::Reads;
    const KEYWORDS: &'static str = "background running jobs ps";
    type Args = Args;
    type Output = Document<ProcessList>;

    async fn run(cx: &Cx, _: Args) -> Result<Document<ProcessList>> {
        let list = cx.app().processes().list(cx.caller());
        let mut processes: Vec<ListedProcess> = list
            .iter()
            .map(|entry| ListedProcess {
                proc_id: entry.id.clone(),
                pid: Some(entry.process.pid()),
                command: shortened(&mask_secrets(&entry.words.text)),
                running: entry.process.ending().is_none(),
                started_iso: entry.started.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            })
            .collect();
        let runs = cx.app().processes().runs(cx.caller());
        processes.extend(runs.iter().map(|run| ListedProcess {
            proc_id: run.id.clone(),
            pid: None,
            command: shortened(&mask_secrets(&format!("{} {}", run.tool, run.command))),
            running: run.is_running(),
            started_iso: run.started.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        }));
        Ok(Document::new(ProcessList { processes }))
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_COMMAND_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
