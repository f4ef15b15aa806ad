use llmc_envelope::receipt::Receipt;
use llmc_host::names::escape;
use llmc_host::walk::{FileKind, Hidden, ListDetail, ListOptions, list};
use llmc_tokens::lines_within;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::args::PATH_ERRORS;
use crate::cx::{Cx, Form, Surface};
use crate::error::{Error, ErrorKind, Result};
use crate::render::{AnswerRoom, Render, Rendition, Rest, RestExtent};
use crate::tool::{Effect, Tool};

/// The most names that are kept behind the handle.
const MAX_STORED_NAMES: usize = 200_000;

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
    const ERRORS: &'static [ErrorKind] = PATH_ERRORS;
    const KEYWORDS: &'static str = "ls folder entries files";
    type Args = Args;
    type Output = DirNames;

    async fn run(cx: &Cx, args: Args) -> Result<DirNames> {
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
                max_entries: MAX_STORED_NAMES,
                guard: Some(dir.guard(roots)),
                detail: ListDetail::Name,
            };
            let listing = list(&dir.fd, &options, stop)?;
            if !listing.complete {
                stop.check()?;
                return Err(Error::new(
                    ErrorKind::TimedOut,
                    format!("{}: the directory could not be read in time", args.path),
                ));
            }
            let root = roots.display_path(&dir.path);
            // REST gives bare names; a reader of text and a script see which are directories.
            let marked = cx.caller().form != Form::Data || cx.caller().surface == Surface::Code;
            let names = listing.entries.iter().map(|entry| match entry.kind {
                FileKind::Dir if marked => escape(&entry.path) + "/",
                _ => escape(&entry.path),
            });
            // The server's own directory is no secret and no news.
            let own = u64::from(cx.app().is_state_dir_of(&dir.path.absolute()));
            Ok(DirNames {
                root,
                names: names.collect(),
                total: listing.total,
                hidden: listing.hidden.saturating_sub(own),
            })
        })
        .await
    }
}

/// The names in a directory.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(transparent)]
#[schemars(extend("x-help" = "names; those of directories end in /"))]
pub(super) struct DirNames {
    names: Vec<String>,
    #[serde(skip)]
    root: String,
    /// How many entries there are, names that were not kept included.
    #[serde(skip)]
    total: u64,
    #[serde(skip)]
    hidden: u64,
}

impl Render for DirNames {
    fn render(&self, room: &AnswerRoom<'_>) -> Result<Rendition<'_>> {
        let kept = self.names.len() as u64;
        let incomplete = kept != self.total;
        if room.form() == Form::Data {
            return Ok(Rendition::data()
                .path(self.root.as_str())
                .truncated(incomplete));
        }
        let lines: String = self.names.iter().map(|name| format!("{name}\n")).collect();
        let (fits, _) = lines_within(&lines, room.answer_budget());
        let truncated = incomplete || fits < lines.len();
        let mut receipt = Receipt::new();
        if truncated {
            let page = lines[..fits].lines().count() as u64;
            receipt = receipt.shown(page, self.total, "entries").rest();
        }
        if self.hidden > 0 {
            receipt = receipt.note(format!("{} hidden", self.hidden));
        }
        let body = lines[..fits].trim_end_matches('\n').to_owned();
        let rest = truncated.then(|| {
            let extent = if incomplete {
                RestExtent::First(kept)
            } else {
                RestExtent::Everything
            };
            Rest::text("fs_list", lines)
                .about("root", self.root.as_str())
                .extent(extent)
        });
        Ok(Rendition::text(body, receipt)
            .path(self.root.as_str())
            .truncated(truncated)
            .rest(rest))
    }
}
