use llmc_enrich::entries::{ListedEntry, ListedKind, condense_ls};
use llmc_host::names::escape;
use llmc_host::walk::{self, Hidden, ListDetail, ListOptions, list};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use super::args::PATH_ERRORS;
use crate::cx::Cx;
use crate::error::{ErrorKind, Family, Result};
use crate::render::{AnswerRoom, Render, Rendition, Rest};
use crate::shape::te_output;
use crate::tool::{Effect, Tool};

/// Entries kept behind the handle.
const MAX_STORED_ENTRIES: usize = 50_000;

pub(super) struct TeLs;

/// List a directory with types and sizes.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    #[schemars(extend("default" = "."))]
    path: Option<String>,
}

impl Tool for TeLs {
    const NAME: &'static str = "te_ls";
    const EFFECT: Effect = Effect::Reads;
    const FAMILY: Family = Family::Te;
    const ERRORS: &'static [ErrorKind] = PATH_ERRORS;
    const KEYWORDS: &'static str = "folder entries";
    type Args = Args;
    type Output = DirEntries;

    async fn run(cx: &Cx, args: Args) -> Result<DirEntries> {
        cx.blocking(move |cx, stop| {
            let roots = &cx.files().roots;
            let dir = roots.open_dir(args.path.as_deref().unwrap_or("."))?;
            let options = ListOptions {
                depth: 0,
                hidden: Hidden::Skip,
                file_glob: None,
                max_entries: MAX_STORED_ENTRIES,
                detail: ListDetail::Status,
                guard: Some(dir.guard(roots)),
            };
            let listing = list(&dir.fd, &options, stop)?;
            stop.check()?;
            let entries: Vec<ListedEntry> = listing.entries.iter().map(entry).collect();
            // The server's own directory is no secret and no news.
            let own = u64::from(cx.app().is_state_dir_of(&dir.path.absolute()));
            Ok(DirEntries {
                path: roots.display_path(&dir.path),
                entries,
                total: listing.total,
                hidden: listing.hidden.saturating_sub(own),
            })
        })
        .await
    }
}

/// The entries of a directory.
#[derive(Debug, Serialize)]
pub(super) struct DirEntries {
    path: String,
    #[serde(serialize_with = "names")]
    entries: Vec<ListedEntry>,
    total: u64,
    hidden: u64,
}

fn names<S: Serializer>(
    entries: &[ListedEntry],
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_seq(
        entries
            .iter()
            .map(|entry| line(entry).trim_end().to_owned()),
    )
}

te_output!(DirEntries);

impl Render for DirEntries {
    fn render(&self, room: &AnswerRoom<'_>) -> Result<Rendition<'_>> {
        let bytes = self.entries.iter().map(|entry| entry.name.len()).sum();
        let found = room.condense(bytes, |tokens| {
            condense_ls(&self.entries, self.total, self.hidden, tokens)
        });
        let rest = found.truncated.then(|| {
            let raw: String = self.entries.iter().map(line).collect();
            Rest::text("te", raw).about("root", self.path.as_str())
        });
        Ok(Rendition::te("ls", found)
            .path(self.path.as_str())
            .rest(rest))
    }
}

fn entry(entry: &walk::ListEntry) -> ListedEntry {
    ListedEntry {
        name: escape(&entry.path),
        kind: match entry.kind {
            walk::FileKind::Dir => ListedKind::Directory,
            walk::FileKind::File => ListedKind::File,
            walk::FileKind::Symlink => ListedKind::Link,
            walk::FileKind::Other => ListedKind::Other,
        },
        size: entry.size,
        modified: entry.mtime_ns.map(|ns| ns.div_euclid(1_000_000_000)),
    }
}

/// One line of the whole listing, as it is kept.
fn line(entry: &ListedEntry) -> String {
    let mark = match entry.kind {
        ListedKind::Directory => "/",
        ListedKind::Link => "@",
        _ => "",
    };
    format!("{}{mark}\n", entry.name)
}
