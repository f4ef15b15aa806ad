//! Where a name is used.
//!
//! The index knows which units mention a name; the files, read and parsed for this answer, show where. In Python,
//! JavaScript, TypeScript and Rust a mention is followed through scopes, imports and the types of receivers to its
//! definition; see [`crate::meaning`]. Elsewhere the name decides; see [`crate::resolve`].

use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;

use llmc_host::CancelToken;
use llmc_syntax::{DefinitionKind, Reference, ReferenceKind};

use crate::catalog::{Catalog, FileRow, file_of};
use crate::classify::{Origin, Realm};
use crate::elsewhere::{OtherUses, UsesElsewhere};
use crate::error::Result;
use crate::infer::is_script;
use crate::meaning::{Meaning, Verdict};
use crate::resolve::NameInFile;
use crate::source::{Source, Sources};
use crate::symbols::{ResolvedSymbol, are_compatible};
use crate::text::{TextSearcher, UseKind};
use crate::units::Symbol;

/// Parsed for one name.
const MAX_PARSED_FILES: usize = 300;
const MIN_CONFIDENCE: f32 = 0.1;
/// Of a use that scopes, imports or the receiver's type resolve.
pub(crate) const RESOLVED_CONFIDENCE: f32 = 0.95;
/// Of a use whose receiver has an unknown type: the name alone speaks for it.
pub(crate) const MAX_GUESS_CONFIDENCE: f32 = 0.45;
/// Of a use of what the asked member overrides, which may reach that member.
const THROUGH_BASE_CONFIDENCE: f32 = 0.4;
/// The same in scripts, where language servers count it as a use.
const THROUGH_SCRIPT_BASE_CONFIDENCE: f32 = 0.6;
/// Other names under which a symbol is imported, whose uses are followed.
const MAX_ALIASES: usize = 4;
/// Read for one other name.
const MAX_ALIAS_FILES: usize = 60;

/// One use of a symbol.
pub(crate) struct FoundUse {
    pub(crate) source: Rc<Source>,
    pub(crate) origin: Origin,
    pub(crate) line: u32,
    pub(crate) kind: ReferenceKind,
    /// The definition around it.
    pub(crate) inside: Option<Symbol>,
    pub(crate) confidence: f32,
    /// What it is a use of, if that is a member which the asked one overrides.
    pub(crate) through: Option<String>,
}

impl FoundUse {
    pub(crate) fn user(&self) -> Option<ResolvedSymbol> {
        Some(ResolvedSymbol {
            source: self.source.clone(),
            origin: self.origin,
            symbol: self.inside.clone()?,
        })
    }

    /// The line, clipped.
    pub(crate) fn text(&self) -> String {
        let text = self.source.lines().trimmed(self.line);
        text.chars().take(200).collect()
    }
}

/// The uses of a name.
#[derive(Default)]
pub(crate) struct FoundUses {
    /// The surest first.
    pub(crate) found: Vec<FoundUse>,
    /// Uses of the name that are not listed.
    pub(crate) elsewhere: UsesElsewhere,
    /// Files that mention the name and were not read because there are too many.
    pub(crate) unread: usize,
}

/// Every use of these definitions, which all have one name.
pub(crate) fn find_uses(
    defined: &[ResolvedSymbol],
    catalog: &Catalog,
    text: &TextSearcher,
    sources: &mut Sources<'_>,
    stop: &CancelToken,
) -> Result<FoundUses> {
    let Some(first) = defined.first() else {
        return Ok(FoundUses::default());
    };
    let name = first.symbol.name.as_str();
    let same_name = crate::symbols::definitions_of(name, catalog, sources)?;
    let rivals = same_name
        .iter()
        .filter(|rival| rival.symbol.kind.defines())
        .count();
    let mut found = Vec::new();
    let mut others = OtherUses::default();
    let mut aliases: Vec<String> = Vec::new();
    let mut files = files_using(name, defined, catalog, text)?;
    let unread = files.len().saturating_sub(MAX_PARSED_FILES);
    files.truncate(MAX_PARSED_FILES);
    let mut meaning = Meaning::new(defined, catalog, sources);
    for file in files {
        stop.check()?;
        let Some(source) = meaning.resolver.sources.get(&file.path) else {
            continue;
        };
        let parts = source.parts();
        if !defined
            .iter()
            .any(|one| are_compatible(one.language(), parts.language))
        {
            continue;
        }
        let name_in_file = NameInFile::new(name, defined, rivals, &source);
        for reference in parts.references.iter().filter(|found| found.name == name) {
            let mut through = None;
            let confidence = match meaning.verdict(&source, reference) {
                Verdict::Means => RESOLVED_CONFIDENCE,
                Verdict::Through(base) => {
                    through = Some(base);
                    if is_script(source.names().language) {
                        THROUGH_SCRIPT_BASE_CONFIDENCE
                    } else {
                        THROUGH_BASE_CONFIDENCE
                    }
                }
                Verdict::Other(place) => {
                    others.add(&source.path, reference.line, place.as_ref());
                    continue;
                }
                Verdict::Unknown if source.names().is_known() && !meaning.is_incomplete() => {
                    name_in_file.confidence(reference).min(MAX_GUESS_CONFIDENCE)
                }
                Verdict::Unknown => name_in_file.confidence(reference),
            };
            if confidence < MIN_CONFIDENCE {
                others.add(&source.path, reference.line, None);
                continue;
            }
            found.push(FoundUse {
                source: source.clone(),
                origin: file.origin,
                line: u32::try_from(reference.line).unwrap_or(u32::MAX),
                kind: reference.kind,
                inside: innermost(&parts.symbols, reference),
                confidence,
                through,
            });
        }
        if is_script(source.names().language) {
            for (start, line) in crate::doc_links::named_in_comments(&source.text, name) {
                if meaning.is_meant_in_comment(&source, start, name) {
                    found.push(FoundUse {
                        source: source.clone(),
                        origin: file.origin,
                        line,
                        kind: ReferenceKind::Mention,
                        inside: None,
                        confidence: RESOLVED_CONFIDENCE,
                        through: None,
                    });
                }
            }
        }
        for alias in source.names().aliases_of(name) {
            if aliases.len() < MAX_ALIASES && !aliases.iter().any(|known| known == alias) {
                aliases.push(alias.to_owned());
            }
        }
    }
    for alias in aliases {
        let files = files_using(&alias, defined, catalog, text)?;
        for file in files.into_iter().take(MAX_ALIAS_FILES) {
            stop.check()?;
            found.extend(uses_under(&alias, &file, &mut meaning));
        }
    }
    for one in &same_name {
        let adds = match one.symbol.kind {
            DefinitionKind::Impl => meaning.has_impl(one),
            _ => meaning.is_overridden_by(one) || meaning.is_declared_again(one),
        };
        stop.check()?;
        if !adds {
            continue;
        }
        let kind = match one.symbol.kind {
            DefinitionKind::Impl => ReferenceKind::Mention,
            _ => ReferenceKind::Inherit,
        };
        found.push(FoundUse {
            source: one.source.clone(),
            origin: one.origin,
            line: one.symbol.line,
            kind,
            inside: Some(one.symbol.clone()),
            confidence: RESOLVED_CONFIDENCE,
            through: None,
        });
    }
    found.sort_by(|a, b| {
        b.confidence
            .total_cmp(&a.confidence)
            .then_with(|| (&a.source.path, a.line).cmp(&(&b.source.path, b.line)))
    });
    found.dedup_by(|a, b| a.line == b.line && a.source.path == b.source.path);
    let listed = found.iter().map(|one| (one.source.path.as_str(), one.line));
    let elsewhere = others.without(&listed.collect(), &same_name);
    Ok(FoundUses {
        found,
        elsewhere,
        unread,
    })
}

/// Uses in a file under another name, which an import or an export gives.
fn uses_under(alias: &str, file: &FileRow, meaning: &mut Meaning<'_, '_, '_>) -> Vec<FoundUse> {
    let Some(source) = meaning.resolver.sources.get(&file.path) else {
        return Vec::new();
    };
    let parts = source.parts();
    let named = parts.references.iter().filter(|found| found.name == alias);
    let mut found = Vec::new();
    for reference in named {
        if matches!(meaning.verdict(&source, reference), Verdict::Means) {
            found.push(FoundUse {
                source: source.clone(),
                origin: file.origin,
                line: u32::try_from(reference.line).unwrap_or(u32::MAX),
                kind: reference.kind,
                inside: innermost(&parts.symbols, reference),
                confidence: RESOLVED_CONFIDENCE,
                through: None,
            });
        }
    }
    found
}

/// Files of code that mention a name, the nearest to its definitions first.
fn files_using(
    name: &str,
    defined: &[ResolvedSymbol],
    catalog: &Catalog,
    text: &TextSearcher,
) -> Result<Vec<FileRow>> {
    let ids: HashSet<u64> = text
        .users(&UseKind::ALL, name)?
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

/// The number of folders between two files.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<&str>, Vec<&str>) = (a.split('/').collect(), b.split('/').collect());
    let shared = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    a.len() + b.len() - 2 * shared
}

/// The smallest definition around a use, without fields and variants.
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
