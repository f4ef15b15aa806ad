use llmc_envelope::HandleId;
use llmc_host::names::escape;
use llmc_host::walk::{Hidden, ListDetail, ListEntry, ListOptions, list};
use llmc_host::{RootedPath, Roots};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::args::{Count, PATH_ERRORS, bounded, glob_note, parse_glob};
use super::pages::ListPage;
use crate::cx::Cx;
use crate::error::{Error, ErrorKind, Result};
use crate::render::{AnswerRoom, Render, Rendition};
use crate::tool::{Effect, Tool};

/// Entries in one answer.
const MAX_SHOWN_ENTRIES: usize = 500;
/// Entries kept behind the handle.
const MAX_STORED_ENTRIES: usize = 50_000;

pub(super) struct LinuxFsList;

/// List a directory tree as JSON.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    path: String,
    #[schemars(extend("x-help" = "0 is the directory's own entries"))]
    depth: Option<Count<2, 0, 10>>,
    include_hidden: Option<bool>,
    #[schemars(extend("x-help" = "on file names"))]
    file_glob: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct Listed {
    path: String,
    #[serde(rename = "type")]
    kind: &'static str,
    size_bytes: Option<u64>,
    mtime_iso: Option<String>,
}

/// The document: entries in the order of their paths, and how many there are.
#[derive(Serialize, JsonSchema)]
#[schemars(extend("x-help" = "500 entries at most"))]
pub(super) struct Listing {
    entries: ListPage<Listed>,
    total_entries: u64,
    truncated: bool,
    /// Filled in by the seal.
    #[schemars(with = "Option<String>")]
    handle: Option<HandleId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    handle_entries: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unreadable: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    #[serde(skip)]
    root: String,
}

impl Render for Listing {
    fn render(&self, _: &AnswerRoom<'_>) -> Result<Rendition<'_>> {
        Ok(self
            .entries
            .render("fs_list", &self.root, self.total_entries))
    }
}

impl Tool for LinuxFsList {
    const NAME: &'static str = "linux_fs_list";
    const ALIASES: &'static [&'static str] = &["linux.fs_list"];
    const EFFECT: Effect = Effect::Reads;
    const ERRORS: &'static [ErrorKind] = PATH_ERRORS;
    const KEYWORDS: &'static str = "walk recursive folder files ls";
    type Args = Args;
    type Output = Listing;

    async fn run(cx: &Cx, args: Args) -> Result<Listing> {
        let depth = bounded("depth", args.depth)?;
        cx.blocking(move |cx, stop| {
            let roots = &cx.linux().roots;
            let dir = roots.open_dir(&args.path)?;
            let glob = parse_glob(args.file_glob.as_deref())?;
            let options = ListOptions {
                depth: usize::try_from(depth).unwrap_or(0),
                hidden: if args.include_hidden == Some(true) {
                    Hidden::Include
                } else {
                    Hidden::Skip
                },
                file_glob: glob.clone(),
                max_entries: MAX_STORED_ENTRIES,
                guard: Some(dir.guard(roots)),
                detail: ListDetail::Status,
            };
            let listing = list(&dir.fd, &options, stop)?;
            if !listing.complete {
                stop.check()?;
                return Err(Error::new(
                    ErrorKind::TimedOut,
                    format!("{}: listed {} entries in time", args.path, listing.total),
                )
                .hint("lower depth or list a subdirectory"));
            }
            let root = roots.display_path(&dir.path);
            let entries: Vec<Listed> = listing
                .entries
                .iter()
                .map(|entry| listed(roots, &dir.path, entry))
                .collect();
            let entries = ListPage::new(entries, MAX_SHOWN_ENTRIES);
            Ok(Listing {
                total_entries: listing.total,
                truncated: entries.is_cut(listing.total),
                handle: None,
                handle_entries: entries.stored(listing.total),
                unreadable: (listing.unreadable > 0).then_some(listing.unreadable),
                note: glob_note(args.file_glob.as_deref(), glob.as_ref(), listing.total),
                entries,
                root,
            })
        })
        .await
    }
}

fn listed(roots: &Roots, dir: &RootedPath, entry: &ListEntry) -> Listed {
    let time = entry
        .mtime_ns
        .and_then(|ns| jiff::Timestamp::from_nanosecond(i128::from(ns)).ok());
    Listed {
        path: below(roots, dir, &entry.path),
        kind: entry.kind.as_str(),
        size_bytes: entry.size,
        mtime_iso: time.map(|time| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
    }
}

/// A path found below a directory, printed like every other path.
pub(crate) fn below(roots: &Roots, dir: &RootedPath, path: &[u8]) -> String {
    use std::os::unix::ffi::OsStrExt;
    let base = roots.display_path(dir);
    if base == "." {
        return escape(path);
    }
    roots.display_absolute(&dir.absolute().join(std::ffi::OsStr::from_bytes(path)))
}
