//! Who uses a name: places, what is around them, and how sure that is.
//!
//! The index says which units mention a name; the files, read and parsed for this answer, say where. Which definition
//! a mention means is told by scope and imports first and by the name last; [`crate::resolve`] says how sure that is.

use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;

use llmc_host::CancelToken;
use llmc_syntax::{DefinitionKind, Reference, ReferenceKind};

use crate::catalog::{Catalog, FileRow, file_of};
use crate::classify::{Origin, Realm};
use crate::error::Result;
use crate::resolve::About;
use crate::source::{Source, Sources};
use crate::symbols::{Defined, can_meet};
use crate::text::{TextSearcher, Use};
use crate::units::Symbol;

/// Files that are parsed for one name.
const MOST_FILES: usize = 300;
/// Uses less likely than this are of something else.
const UNLIKELY: f32 = 0.1;

/// One use of a symbol.
pub(crate) struct Site {
    pub(crate) source: Rc<Source>,
    pub(crate) origin: Origin,
    pub(crate) line: u32,
    pub(crate) kind: ReferenceKind,
    /// The definition it stands in.
    pub(crate) inside: Option<Symbol>,
    pub(crate) confidence: f32,
}

impl Site {
    /// The definition around it as a symbol of its own.
    pub(crate) fn user(&self) -> Option<Defined> {
        Some(Defined {
            source: self.source.clone(),
            origin: self.origin,
            symbol: self.inside.clone()?,
        })
    }

    /// The line itself.
    pub(crate) fn text(&self) -> String {
        let text = self.source.lines().trimmed(self.line);
        text.chars().take(200).collect()
    }
}

/// The uses of a name.
#[derive(Default)]
pub(crate) struct Sites {
    /// The surest first.
    pub(crate) found: Vec<Site>,
    /// Files that mention the name and were not read, because too many do.
    pub(crate) unread: usize,
}

/// Every use of what these definitions define. They all have one name.
pub(crate) fn sites(
    defined: &[Defined],
    catalog: &Catalog,
    text: &TextSearcher,
    sources: &mut Sources<'_>,
    stop: &CancelToken,
) -> Result<Sites> {
    let Some(first) = defined.first() else {
        return Ok(Sites::default());
    };
    let name = first.symbol.name.as_str();
    let rivals = crate::symbols::named(name, catalog, sources)?;
    let rivals = rivals
        .iter()
        .filter(|rival| rival.symbol.kind.defines())
        .count();
    let mut found = Vec::new();
    let mut files = files_using(name, defined, catalog, text)?;
    let unread = files.len().saturating_sub(MOST_FILES);
    files.truncate(MOST_FILES);
    for file in files {
        stop.check()?;
        let Some(source) = sources.get(&file.path) else {
            continue;
        };
        let cut = source.cut();
        if !defined
            .iter()
            .any(|one| can_meet(one.language(), cut.language))
        {
            continue;
        }
        let about = About::new(name, defined, rivals, &source);
        for reference in cut.references.iter().filter(|found| found.name == name) {
            let inside = innermost(&cut.symbols, reference);
            let confidence = about.confidence(reference);
            if confidence < UNLIKELY {
                continue;
            }
            found.push(Site {
                source: source.clone(),
                origin: file.origin,
                line: u32::try_from(reference.line).unwrap_or(u32::MAX),
                kind: reference.kind,
                inside,
                confidence,
            });
        }
    }
    found.sort_by(|a, b| {
        b.confidence
            .total_cmp(&a.confidence)
            .then_with(|| (&a.source.path, a.line).cmp(&(&b.source.path, b.line)))
    });
    found.dedup_by(|a, b| a.line == b.line && a.source.path == b.source.path);
    Ok(Sites { found, unread })
}

/// The files of code that mention a name, the nearest to its definitions first.
fn files_using(
    name: &str,
    defined: &[Defined],
    catalog: &Catalog,
    text: &TextSearcher,
) -> Result<Vec<FileRow>> {
    let ids: HashSet<u64> = text
        .users(&Use::ALL, name)?
        .into_iter()
        .map(file_of)
        .collect();
    let mut files = BTreeMap::new();
    for id in ids {
        let Some(file) = catalog.file(id)?.filter(|file| file.realm == Realm::Repo) else {
            continue;
        };
        let near = defined
            .iter()
            .map(|one| distance(&one.source.path, &file.path))
            .min();
        files.insert((near, file.path.clone()), file);
    }
    Ok(files.into_values().collect())
}

/// How many folders lie between two files.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<&str>, Vec<&str>) = (a.split('/').collect(), b.split('/').collect());
    let shared = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    a.len() + b.len() - 2 * shared
}

/// The smallest definition around a use that somebody could ask about.
pub(crate) fn innermost(symbols: &[Symbol], reference: &Reference) -> Option<Symbol> {
    let line = u32::try_from(reference.line).unwrap_or(u32::MAX);
    let around = symbols.iter().filter(|symbol| {
        let holds = !matches!(
            symbol.kind,
            DefinitionKind::Field | DefinitionKind::Variant | DefinitionKind::Declaration
        );
        holds && (symbol.first..=symbol.last).contains(&line)
    });
    around
        .min_by_key(|symbol| symbol.last - symbol.first)
        .cloned()
}
