use llmc_enrich::entries::{Entry, EntryKind, condense_ls};
use llmc_host::names::shown;
use llmc_host::walk::{self, Detail, Hidden, ListOptions, list};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::answer::Answer;
use crate::cx::Cx;
use crate::error::{Family, Result};
use crate::te::{self, Frame};
use crate::tool::{Effect, Tool};

/// Entries kept behind the handle.
const KEPT: usize = 50_000;

pub(super) struct TeLs;

/// List a directory with types and sizes.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    path: Option<String>,
}

impl Tool for TeLs {
    const NAME: &'static str = "te_ls";
    const EFFECT: Effect = Effect::Reads;
    const FAMILY: Family = Family::Te;
    type Args = Args;
    type Output = Answer;

    async fn run(cx: &Cx, args: Args) -> Result<Answer> {
        cx.blocking(move |cx, stop| {
            let roots = &cx.files().roots;
            let dir = roots.open_dir(args.path.as_deref().unwrap_or("."))?;
            let options = ListOptions {
                depth: 0,
                hidden: Hidden::Skip,
                file_glob: None,
                max_entries: KEPT,
                detail: Detail::Status,
                guard: Some(dir.guard(roots)),
            };
            let listing = list(&dir.fd, &options, stop)?;
            stop.check()?;
            let entries: Vec<Entry> = listing.entries.iter().map(entry).collect();
            let raw: String = entries.iter().map(line).collect();
            // The server's own directory is no secret and no news.
            let own = u64::from(cx.app().is_state_dir_of(&dir.path.absolute()));
            let hidden = listing.hidden.saturating_sub(own);
            let condensed = condense_ls(&entries, listing.total, hidden, te::budget(cx));
            let root = roots.shown(&dir.path);
            let mut handle = None;
            if condensed.truncated {
                handle = cx.keep(
                    |draft| draft.with("root", root.clone()),
                    "te",
                    raw.as_bytes(),
                );
            }
            let frame = Frame {
                cmd: "ls",
                path: Some(root),
                handle,
                withheld_bytes: (raw.len() as u64).saturating_sub(condensed.body.len() as u64),
                ..Frame::default()
            };
            Ok(te::seal(cx, &condensed, frame))
        })
        .await
    }
}

fn entry(entry: &walk::Entry) -> Entry {
    Entry {
        name: shown(&entry.path),
        kind: match entry.kind {
            walk::EntryKind::Dir => EntryKind::Directory,
            walk::EntryKind::File => EntryKind::File,
            walk::EntryKind::Symlink => EntryKind::Link,
            walk::EntryKind::Other => EntryKind::Other,
        },
        size: entry.size,
        modified: entry.mtime_ns.map(|ns| ns.div_euclid(1_000_000_000)),
    }
}

/// One line of the whole listing, as it is kept.
fn line(entry: &Entry) -> String {
    let mark = match entry.kind {
        EntryKind::Directory => "/",
        EntryKind::Link => "@",
        _ => "",
    };
    format!("{}{mark}\n", entry.name)
}
