use llmc_envelope::receipt::Receipt;
use llmc_host::names::shown;
use llmc_host::walk::{Detail, EntryKind, Hidden, ListOptions, list};
use llmc_tokens::lines_within;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::answer::{Answer, Facts};
use crate::cx::{Cx, Form, Surface};
use crate::error::{Error, Kind, Result};
use crate::tool::{Effect, Tool};

/// The most names that are kept behind the handle.
const KEPT: usize = 200_000;

pub(super) struct ListDir;

/// List a directory.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    path: String,
    include_hidden: Option<bool>,
}

impl Tool for ListDir {
    const NAME: &'static str = "list_dir";
    const EFFECT: Effect = Effect::Reads;
    type Args = Args;
    type Output = Answer;

    async fn run(cx: &Cx, args: Args) -> Result<Answer> {
        cx.blocking(move |cx, stop| {
            let roots = &cx.files().roots;
            let dir = roots.open_dir(&args.path)?;
            let options = ListOptions {
                depth: 0,
                hidden: if args.include_hidden == Some(true) {
                    Hidden::Include
                } else {
                    Hidden::Skip
                },
                file_glob: None,
                max_entries: KEPT,
                guard: Some(dir.guard(roots)),
                detail: Detail::Name,
            };
            let listing = list(&dir.fd, &options, stop)?;
            if !listing.complete {
                stop.check()?;
                return Err(Error::new(
                    Kind::TimedOut,
                    format!("{}: the directory could not be read in time", args.path),
                ));
            }
            let root = roots.shown(&dir.path);
            let mut facts = Facts {
                path: Some(root.clone()),
                truncated: listing.entries.len() as u64 != listing.total,
                ..Facts::default()
            };
            if cx.caller().form == Form::Data && cx.caller().surface != Surface::Code {
                let names = listing.entries.iter().map(|entry| shown(&entry.path));
                return Ok(Answer::data(names.collect::<Vec<String>>(), facts));
            }
            let names = listing.entries.iter().map(|entry| match entry.kind {
                EntryKind::Dir => shown(&entry.path) + "/",
                _ => shown(&entry.path),
            });
            if cx.caller().form == Form::Data {
                return Ok(Answer::data(names.collect::<Vec<String>>(), facts));
            }
            let lines: String = names.map(|name| name + "\n").collect();
            let budget = cx.app().config().mcp.te.budget_for(&cx.caller().agent);
            let (fits, _) = lines_within(&lines, usize::try_from(budget).unwrap_or(usize::MAX));
            facts.truncated |= fits < lines.len();
            let mut receipt = Receipt::new();
            if facts.truncated {
                facts.withheld_bytes = (lines.len() - fits) as u64;
                facts.handle = cx.keep(
                    |draft| draft.with("root", root),
                    "fs_list",
                    lines.as_bytes(),
                );
                let page = lines[..fits].lines().count() as u64;
                receipt = receipt.shown(page, listing.total, "entries");
                let kept = listing.entries.len() as u64;
                receipt = match facts.handle {
                    Some(id) if kept == listing.total => receipt.handle(id),
                    Some(id) => receipt.note(format!("handle {id} has the first {kept}")),
                    None => receipt,
                };
            }
            // The server's own directory is no secret and no news.
            let own = u64::from(cx.app().is_state_dir_of(&dir.path.absolute()));
            if listing.hidden > own {
                receipt = receipt.note(format!("{} hidden", listing.hidden - own));
            }
            let body = lines[..fits].trim_end_matches('\n');
            Ok(Answer::text(body, &receipt, facts))
        })
        .await
    }
}
