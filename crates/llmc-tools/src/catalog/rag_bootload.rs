use schemars::JsonSchema;
use serde::Deserialize;

use super::args::INDEX_ERRORS;
use crate::bootload::{self, TaskStart};
use crate::cx::Cx;
use crate::error::{Error, ErrorKind, Result};
use crate::rag;
use crate::render::Document;
use crate::tool::{Effect, Tool};

pub(super) struct RagBootload;

/// Plan and snippets to start a task.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    session_id: String,
    task_id: String,
}

impl Tool for RagBootload {
    const NAME: &'static str = "rag_bootload";
    const ALIASES: &'static [&'static str] = &["rag.bootload"];
    const EFFECT: Effect = Effect::Reads;
    const RETRIEVES: bool = true;
    const ERRORS: &'static [ErrorKind] = INDEX_ERRORS;
    const KEYWORDS: &'static str = "begin contract rules";
    type Args = Args;
    type Output = Document<TaskStart>;

    async fn run(cx: &Cx, args: Args) -> Result<Document<TaskStart>> {
        cx.blocking(move |cx, stop| {
            if args.session_id.trim().is_empty() || args.task_id.trim().is_empty() {
                return Err(Error::bad_args("session_id and task_id must not be empty"));
            }
            rag::freshen(cx, stop);
            Ok(Document::new(bootload::document(cx, &args.task_id, stop)?))
        })
        .await
    }
}
