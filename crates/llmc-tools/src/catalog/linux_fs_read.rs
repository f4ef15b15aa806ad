use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{args::bounded, pages};
use crate::answer::{Answer, Facts};
use crate::cx::Cx;
use crate::error::Result;
use crate::tool::{Effect, Tool};

pub(super) struct LinuxFsRead;

/// Read lines of a file as JSON.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    path: String,
    offset_lines: Option<i64>,
    max_lines: Option<i64>,
}

impl Tool for LinuxFsRead {
    const NAME: &'static str = "linux_fs_read";
    const ALIASES: &'static [&'static str] = &["linux.fs_read"];
    const EFFECT: Effect = Effect::Reads;
    type Args = Args;
    type Output = Answer;

    async fn run(cx: &Cx, args: Args) -> Result<Answer> {
        let skip = bounded("offset_lines", args.offset_lines, 0, 0..=i64::MAX)?;
        let max = bounded("max_lines", args.max_lines, 200, 1..=2000)?;
        cx.blocking(move |cx, stop| {
            let roots = &cx.linux().roots;
            let file = roots.open_file(&args.path)?;
            let shown = roots.shown(&file.path);
            let slice = file.read_lines(skip, max, stop)?;
            let mut facts = Facts { path: Some(shown.clone()), truncated: slice.truncated(), ..Facts::default() };
            if facts.truncated {
                facts.withheld_bytes = slice.total_bytes.saturating_sub(slice.text.len() as u64);
                facts.handle = pages::keep_file(cx, roots, &args.path, &slice, stop)?;
            }
            let mut meta = json!({
                "path": shown,
                "total_lines": slice.total_lines,
                "truncated": slice.truncated(),
                "sha256": slice.tag(),
            });
            if let Some(label) = slice.encoding.label() {
                meta["encoding"] = label.into();
            }
            let document = json!({"content": slice.text, "handle": pages::handle_value(facts.handle), "meta": meta});
            Answer::json(&document, facts)
        })
        .await
    }
}
