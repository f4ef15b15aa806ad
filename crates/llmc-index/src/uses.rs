//! Who uses a name: places, what is around them, and how sure that is.
//!
//! The index says which units mention a name; the files, read and parsed for this answer, say where. Which definition
//! a mention means is told by scope and imports first and by the name last; the confidence of each use says by which:
//!
//! | confidence | because |
//! |---|---|
//! | 0.95 | defined in the same file, or the name before it is the type or module that defines it |
//! | 0.9 | imported by name, from the module that defines it |
//! | 0.8 | imported by name |
//! | 0.75 | the module or type that defines it is imported |
//! | 0.7 | same folder |
//! | 0.6 | the only definition of that name |
//! | less | one of several definitions of that name |

use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;

use llmc_enrich::syntax::{DefinitionKind, Reference, ReferenceKind};
use llmc_host::Stop;

use crate::catalog::{Catalog, FileRow, file_of};
use crate::classify::{Origin, Realm};
use crate::error::Result;
use crate::source::{Source, Sources};
use crate::symbols::{Defined, can_meet, module_name};
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

/// Every use of what these definitions define, the surest first. They all have one name.
pub(crate) fn sites(
    defined: &[Defined],
    catalog: &Catalog,
    text: &TextSearcher,
    sources: &mut Sources<'_>,
    stop: &Stop,
) -> Result<Vec<Site>> {
    let Some(first) = defined.first() else {
        return Ok(Vec::new());
    };
    let name = first.symbol.name.as_str();
    let rivals = crate::symbols::named(name, catalog, sources)?;
    let rivals = rivals
        .iter()
        .filter(|rival| rival.symbol.kind.defines())
        .count();
    let mut found = Vec::new();
    for file in files_using(name, defined, catalog, text)? {
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
            let confidence = about.confidence(reference, inside.as_ref());
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
    Ok(found)
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
    Ok(files.into_values().take(MOST_FILES).collect())
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

/// What is known about a name in one file that uses it.
struct About<'a> {
    defined: &'a [Defined],
    rivals: usize,
    source: &'a Source,
    here: bool,
    shadowed: bool,
    imported: bool,
    module_imported: bool,
    near: bool,
}

impl<'a> About<'a> {
    fn new(name: &str, defined: &'a [Defined], rivals: usize, source: &'a Source) -> Self {
        let cut = source.cut();
        let folder = |path: &str| {
            path.rsplit_once('/')
                .map_or("", |(folder, _)| folder)
                .to_owned()
        };
        let here = defined.iter().any(|one| one.source.path == source.path);
        let defines_itself = |symbol: &Symbol| symbol.name == name && symbol.kind.defines();
        let imports: HashSet<&str> = cut
            .references
            .iter()
            .filter(|found| found.kind == ReferenceKind::Import)
            .map(|found| found.name.as_str())
            .collect();
        let module_imported = defined.iter().any(|one| {
            let outer = one.symbol.scope.rsplit("::").next().unwrap_or("");
            imports.contains(module_name(&one.source.path)) || imports.contains(outer)
        });
        Self {
            defined,
            rivals,
            source,
            here,
            shadowed: !here && cut.symbols.iter().any(defines_itself),
            imported: imports.contains(name),
            module_imported,
            near: defined
                .iter()
                .any(|one| folder(&one.source.path) == folder(&source.path)),
        }
    }

    fn confidence(&self, reference: &Reference, inside: Option<&Symbol>) -> f32 {
        let qualifier = reference.qualifier(&self.source.text);
        let by_qualifier = qualifier.is_some_and(|qualifier| {
            self.defined.iter().any(|one| {
                let outer = one.symbol.scope.rsplit("::").next().unwrap_or("");
                let itself = matches!(qualifier, "self" | "this" | "Self" | "cls")
                    && self.here
                    && inside.is_some_and(|inside| inside.scope.starts_with(&one.symbol.scope));
                itself || qualifier == outer || qualifier == module_name(&one.source.path)
            })
        });
        if by_qualifier {
            return 0.95;
        }
        let several = 0.6 / self.rivals.max(1) as f32;
        // A type or module is named that does not define it: some other thing of that name.
        if let Some(qualifier) = qualifier
            && qualifier.starts_with(char::is_uppercase)
            && self.defined.iter().all(|one| !one.symbol.scope.is_empty())
            && !self.here
        {
            return several * 0.3;
        }
        let is_method = self.defined.iter().any(|one| !one.symbol.scope.is_empty());
        let bare = qualifier.is_none();
        if self.here {
            return if bare || is_method { 0.95 } else { 0.6 };
        }
        if self.shadowed {
            return several * 0.3;
        }
        if self.imported && bare {
            return if self.module_imported { 0.9 } else { 0.8 };
        }
        if self.module_imported {
            return 0.75;
        }
        let sure = if self.near && self.rivals <= 1 {
            0.7
        } else {
            several
        };
        // The bare name of a method, or a word that is merely mentioned, is as likely a local variable.
        let vague = bare && is_method || reference.kind == ReferenceKind::Mention;
        if vague { sure * 0.5 } else { sure }
    }
}
