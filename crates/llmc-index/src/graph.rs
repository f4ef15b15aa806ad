//! Questions about symbols: who uses one, and what leads to it and from it.

use std::collections::HashSet;

use llmc_host::{CancelToken, Roots};
use llmc_syntax::{DefinitionKind, Reference, ReferenceKind};
use serde::Serialize;

use crate::catalog::Catalog;
use crate::decimals::three_decimals;
use crate::error::{Error, Result};
use crate::index::Index;
use crate::snippet::Snippet;
use crate::source::Sources;
use crate::symbols::{self, Defined, can_meet};
use crate::text::TextSearcher;
use crate::uses::{self, Site};

/// Uses from which on no further step is taken.
const ENOUGH: usize = 1000;
/// Symbols on a lineage from which on no further step is taken: each may mean reading hundreds of files.
const ENOUGH_NODES: usize = 100;
/// Neighbours of a snippet from which on no further step is taken.
const ENOUGH_NEAR: usize = 8;
/// How far a question may reach.
const DEEPEST: usize = 5;
/// From here on a name that is only mentioned is meant.
const SURE: f32 = 0.7;

/// One use of a symbol.
#[derive(Debug, Clone, Serialize)]
pub struct UseSite {
    /// The file.
    pub path: String,
    /// The line, counted from 1.
    pub line: u32,
    /// The definition it stands in; empty outside of any.
    pub symbol: String,
    /// The line's text.
    pub text: String,
    /// From 0 to 1.
    #[serde(serialize_with = "three_decimals")]
    pub confidence: f32,
    /// How many steps away from the symbol asked about, when more than one.
    #[serde(skip_serializing_if = "is_direct")]
    pub depth: usize,
}

pub(crate) fn is_none(count: &usize) -> bool {
    *count == 0
}

fn is_direct(depth: &usize) -> bool {
    *depth <= 1
}

/// Who uses a symbol.
#[derive(Debug, Clone, Serialize)]
pub struct WhereUsed {
    /// The symbol, with what is around it.
    pub symbol: String,
    /// The uses, the surest first.
    pub sites: Vec<UseSite>,
    /// How many there are.
    pub total: usize,
    /// The last step taken, where there were too many uses to go as far as asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth_reached: Option<usize>,
    /// Files that mention the name and were not read, because too many do; the nearest were.
    #[serde(skip_serializing_if = "is_none")]
    pub unread_files: usize,
    /// The definitions that share the name, when there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ambiguous: Vec<String>,
}

/// Which way a lineage goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// To those who call it.
    Callers,
    /// To those it calls.
    Callees,
}

/// A symbol on a lineage.
#[derive(Debug, Clone, Serialize)]
pub struct Node {
    /// Its name with what is around it.
    pub symbol: String,
    /// Its lines.
    pub src: String,
    /// Steps from the start.
    pub depth: usize,
    /// From 0 to 1; the product of the steps.
    #[serde(serialize_with = "three_decimals")]
    pub confidence: f32,
}

/// What leads to a symbol, or from it.
#[derive(Debug, Clone, Serialize)]
pub struct Lineage {
    /// The symbol, with what is around it.
    pub symbol: String,
    /// Which way.
    pub direction: Direction,
    /// Nearest first.
    pub nodes: Vec<Node>,
    /// How many there are.
    pub total: usize,
    /// The last step taken, where there were too many symbols to go as far as asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth_reached: Option<usize>,
    /// Files that mention one of the names and were not read, because too many do; the nearest were.
    #[serde(skip_serializing_if = "is_none")]
    pub unread_files: usize,
    /// The definitions that share the name, when there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ambiguous: Vec<String>,
}

/// A symbol or place that has to do with another.
#[derive(Debug, Clone, Serialize)]
pub struct Related {
    /// Its name; absent for text.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub symbol: String,
    /// Its lines.
    pub src: String,
}

/// The symbols near a snippet.
#[derive(Debug, Clone, Default)]
pub struct Near {
    /// The surest first, nearer steps before farther ones.
    pub neighbours: Vec<Related>,
    /// The last step taken, where there were too many to go as far as asked.
    pub depth_reached: Option<usize>,
    /// Files that may hold more and were not read, because too many do.
    pub unread_files: usize,
}

impl Index {
    /// Who uses a symbol, and who uses those, up to `depth` steps.
    ///
    /// # Errors
    /// No such symbol (with the nearest names), no index, or the time was up.
    pub fn where_used(
        &self,
        roots: &Roots,
        symbol: &str,
        depth: usize,
        stop: &CancelToken,
    ) -> Result<WhereUsed> {
        self.with(|catalog, text| {
            let mut sources = Sources::new(roots);
            let asked = symbols::defined(symbol, catalog, &mut sources)?;
            let name = asked.first().map(Defined::name).unwrap_or_default();
            let mut all: Vec<UseSite> = Vec::new();
            let mut unread = 0;
            let mut depth_reached = None;
            let deepest = depth.clamp(1, DEEPEST);
            let mut done: HashSet<String> = asked.iter().map(Defined::id).collect();
            let mut level = vec![(asked.clone(), 1.0)];
            for depth in 1..=deepest {
                let mut next = Vec::new();
                for (defined, sure) in level {
                    let sites = uses::sites(&defined, catalog, text, &mut sources, stop)?;
                    unread += sites.unread;
                    for site in sites.found {
                        let known = all
                            .iter()
                            .any(|known| known.line == site.line && known.path == site.source.path);
                        if known {
                            continue;
                        }
                        let sure = sure * site.confidence;
                        if let Some(user) = site.user().filter(|_| site.kind == ReferenceKind::Call)
                            && done.insert(user.id())
                        {
                            next.push((vec![user], sure));
                        }
                        all.push(used(&site, depth, sure));
                    }
                }
                level = next;
                if all.len() > ENOUGH && !level.is_empty() && depth < deepest {
                    depth_reached = Some(depth);
                    break;
                }
            }
            Ok(WhereUsed {
                symbol: name,
                total: all.len(),
                sites: all,
                depth_reached,
                unread_files: unread,
                ambiguous: ambiguous(&asked),
            })
        })
    }

    /// What leads to a symbol or from it, by calls.
    ///
    /// # Errors
    /// As for [`Index::where_used`].
    pub fn lineage(
        &self,
        roots: &Roots,
        symbol: &str,
        direction: Direction,
        depth: usize,
        stop: &CancelToken,
    ) -> Result<Lineage> {
        self.with(|catalog, text| {
            let mut sources = Sources::new(roots);
            let asked = symbols::defined(symbol, catalog, &mut sources)?;
            let mut nodes = Vec::new();
            let mut unread = 0;
            let mut depth_reached = None;
            let deepest = depth.clamp(1, DEEPEST);
            let mut done: HashSet<String> = asked.iter().map(Defined::id).collect();
            let mut level: Vec<(Defined, f32)> =
                asked.iter().map(|one| (one.clone(), 1.0)).collect();
            for depth in 1..=deepest {
                let mut next: Vec<(Defined, f32)> = Vec::new();
                for (from, sure) in level {
                    let steps = match direction {
                        Direction::Callers => {
                            let found = callers(&from, catalog, text, &mut sources, stop)?;
                            unread += found.unread;
                            found.users
                        }
                        Direction::Callees => callees(&from, catalog, &mut sources, stop)?,
                    };
                    for (to, step) in steps {
                        if done.insert(to.id()) {
                            next.push((to, sure * step));
                        }
                    }
                }
                next.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.id().cmp(&b.0.id())));
                for (to, sure) in &next {
                    nodes.push(Node {
                        symbol: to.name(),
                        src: to.src(),
                        depth,
                        confidence: *sure,
                    });
                }
                level = next;
                if nodes.len() >= ENOUGH_NODES && !level.is_empty() && depth < deepest {
                    depth_reached = Some(depth);
                    break;
                }
            }
            Ok(Lineage {
                symbol: asked.first().map(Defined::name).unwrap_or_default(),
                direction,
                total: nodes.len(),
                nodes,
                depth_reached,
                unread_files: unread,
                ambiguous: ambiguous(&asked),
            })
        })
    }

    /// For each snippet the symbols near it: who calls it and what it calls, up to `depth` steps.
    ///
    /// # Errors
    /// As for [`Index::where_used`].
    pub fn neighbours(
        &self,
        roots: &Roots,
        snippets: &[Snippet],
        depth: usize,
        stop: &CancelToken,
    ) -> Result<Vec<Near>> {
        self.with(|catalog, text| {
            let mut sources = Sources::new(roots);
            let near = snippets.iter().map(|snippet| {
                let Some(symbol) = &snippet.symbol else {
                    return Ok(Near::default());
                };
                let id = format!("{}#{symbol}", snippet.path);
                match symbols::defined(&id, catalog, &mut sources) {
                    Ok(defined) => around(&defined, depth, catalog, text, &mut sources, stop),
                    // A section of text is no symbol.
                    Err(Error::NoSymbol { .. } | Error::BadRequest(_)) => Ok(Near::default()),
                    Err(error) => Err(error),
                }
            });
            near.collect()
        })
    }
}

/// Who calls a symbol and what it calls, step by step.
fn around(
    of: &[Defined],
    depth: usize,
    catalog: &Catalog,
    text: &TextSearcher,
    sources: &mut Sources<'_>,
    stop: &CancelToken,
) -> Result<Near> {
    let mut all: Vec<Defined> = Vec::new();
    let mut found = Near::default();
    let deepest = depth.clamp(1, DEEPEST);
    let mut done: HashSet<String> = of.iter().map(Defined::src).collect();
    let mut level: Vec<Defined> = of.iter().take(1).cloned().collect();
    for depth in 1..=deepest {
        let mut near: Vec<(Defined, f32)> = Vec::new();
        for one in &level {
            let callers = callers(one, catalog, text, sources, stop)?;
            found.unread_files += callers.unread;
            near.extend(callers.users);
            near.extend(callees(one, catalog, sources, stop)?);
        }
        near.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.id().cmp(&b.0.id())));
        near.retain(|(one, _)| done.insert(one.src()));
        level = near.into_iter().map(|(one, _)| one).collect();
        all.extend(level.iter().cloned());
        if all.len() >= ENOUGH_NEAR && !level.is_empty() && depth < deepest {
            found.depth_reached = Some(depth);
            break;
        }
    }
    found.neighbours = related(all.into_iter());
    Ok(found)
}

fn used(site: &Site, depth: usize, sure: f32) -> UseSite {
    UseSite {
        path: site.source.path.clone(),
        line: site.line,
        symbol: site.user().map(|user| user.name()).unwrap_or_default(),
        text: site.text(),
        confidence: sure,
        depth,
    }
}

/// The definitions of one name, unless they are one thing: a type and the blocks that add to it.
pub(crate) fn ambiguous(defined: &[Defined]) -> Vec<String> {
    let mut ids: Vec<String> = defined
        .iter()
        .filter(|one| one.symbol.kind.defines())
        .map(Defined::id)
        .collect();
    ids.dedup();
    if ids.len() > 1 { ids } else { Vec::new() }
}

/// Whether a use is a step of a lineage: a call, a derivation, or a function handed on by its name.
pub(crate) fn leads(to: &Defined, kind: ReferenceKind, confidence: f32) -> bool {
    match kind {
        ReferenceKind::Call | ReferenceKind::Inherit => true,
        ReferenceKind::Mention => {
            let function = matches!(
                to.symbol.kind,
                DefinitionKind::Function | DefinitionKind::Macro
            );
            function && confidence >= SURE
        }
        ReferenceKind::Import => false,
    }
}

/// Those who call a symbol or derive from it.
struct Callers {
    /// With how sure that is.
    users: Vec<(Defined, f32)>,
    /// Files that may hold more, and were not read.
    unread: usize,
}

fn callers(
    of: &Defined,
    catalog: &Catalog,
    text: &TextSearcher,
    sources: &mut Sources<'_>,
    stop: &CancelToken,
) -> Result<Callers> {
    let sites = uses::sites(std::slice::from_ref(of), catalog, text, sources, stop)?;
    let calls = sites
        .found
        .into_iter()
        .filter(|site| leads(of, site.kind, site.confidence));
    let mut users: Vec<(Defined, f32)> = Vec::new();
    let mut known: HashSet<(String, u32)> = HashSet::new();
    for site in calls {
        if let Some(user) = site.user()
            && !user.is(of)
            && known.insert((user.source.path.clone(), user.symbol.line))
        {
            users.push((user, site.confidence));
        }
    }
    Ok(Callers {
        users,
        unread: sites.unread,
    })
}

/// Those a symbol calls, with how sure that is: for each name the likeliest definition.
pub(crate) fn callees(
    of: &Defined,
    catalog: &Catalog,
    sources: &mut Sources<'_>,
    stop: &CancelToken,
) -> Result<Vec<(Defined, f32)>> {
    let cut = of.source.cut();
    let inside = of.symbol.first..=of.symbol.last;
    let mut names: Vec<(&Reference, Option<&str>)> = Vec::new();
    for found in &cut.references {
        let line = u32::try_from(found.line).unwrap_or(u32::MAX);
        let known = names.iter().any(|(known, _)| known.name == found.name);
        if found.kind != ReferenceKind::Import && inside.contains(&line) && !known {
            names.push((found, found.qualifier(&of.source.text)));
        }
    }
    let imports: HashSet<&str> = cut
        .references
        .iter()
        .filter(|found| found.kind == ReferenceKind::Import)
        .map(|found| found.name.as_str())
        .collect();
    let mut found = Vec::new();
    for (reference, qualifier) in names {
        stop.check()?;
        let name = reference.name.as_str();
        let candidates: Vec<Defined> = symbols::named(name, catalog, sources)?
            .into_iter()
            .filter(|one| {
                let kind = one.symbol.kind;
                let callable = kind.defines() && !kind.is_member_data();
                callable && can_meet(one.language(), cut.language)
            })
            .collect();
        let rivals = candidates.len();
        let likeliest = candidates
            .into_iter()
            .map(|one| {
                let sure = likelihood(of, &one, qualifier, &imports, rivals);
                (one, sure)
            })
            .max_by(|a, b| a.1.total_cmp(&b.1).then_with(|| b.0.id().cmp(&a.0.id())));
        if let Some((one, sure)) = likeliest
            && sure >= 0.1
            && !one.is(of)
            && leads(&one, reference.kind, sure)
        {
            found.push((one, sure));
        }
    }
    Ok(found)
}

/// How sure it is that a call from one definition reaches the other; the table is in [`uses`].
fn likelihood(
    from: &Defined,
    to: &Defined,
    qualifier: Option<&str>,
    imports: &HashSet<&str>,
    rivals: usize,
) -> f32 {
    let outer = to.symbol.scope.rsplit("::").next().unwrap_or("");
    let module = symbols::module_name(&to.source.path);
    let same_file = from.source.path == to.source.path;
    match qualifier {
        Some("self" | "this" | "Self" | "cls") => {
            let from_outer = from.symbol.scope.rsplit("::").next().unwrap_or("");
            return if !outer.is_empty() && outer == from_outer {
                0.95
            } else {
                0.3 / rivals as f32
            };
        }
        Some(qualifier) if qualifier == outer || qualifier == module => return 0.95,
        Some(qualifier) if qualifier.starts_with(char::is_uppercase) => return 0.05,
        _ => {}
    }
    if same_file {
        return if qualifier.is_none() == outer.is_empty() {
            0.95
        } else {
            0.6
        };
    }
    if imports.contains(to.symbol.name.as_str()) {
        return if imports.contains(module) { 0.9 } else { 0.8 };
    }
    if imports.contains(module) || imports.contains(outer) {
        return 0.75;
    }
    0.6 / rivals.max(1) as f32
}

/// The same as answers give them, each place once.
pub(crate) fn related(defined: impl Iterator<Item = Defined>) -> Vec<Related> {
    let mut known: HashSet<String> = HashSet::new();
    let related = defined.map(|one| Related {
        symbol: one.name(),
        src: one.src(),
    });
    related
        .filter(|one| known.insert(one.src.clone()))
        .collect()
}
