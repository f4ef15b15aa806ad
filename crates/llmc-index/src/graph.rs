//! Questions about symbols: where one is used, its callers and its callees.

use std::collections::{HashMap, HashSet};

use llmc_host::{CancelToken, Roots};
use llmc_syntax::{DefinitionKind, Reference, ReferenceKind};
use schemars::JsonSchema;
use serde::Serialize;

use crate::catalog::Catalog;
use crate::decimals::three_decimals;
use crate::error::{Error, Result};
use crate::index::Index;
use crate::infer::{Resolver, Target};
use crate::meaning::binding_of;
use crate::snippet::Snippet;
use crate::source::Sources;
use crate::symbols::{self, ResolvedSymbol, are_compatible};
use crate::text::TextSearcher;
use crate::uses::{self, FoundUse, MAX_GUESS_CONFIDENCE, RESOLVED_CONFIDENCE};

/// No further step is taken beyond this many uses,
const MAX_USES: usize = 1000;
/// this many symbols on a lineage (each may mean reading hundreds of files),
const MAX_LINEAGE_NODES: usize = 100;
/// or this many neighbours of a snippet.
const MAX_NEIGHBOURS: usize = 8;
const MAX_DEPTH: usize = 5;
/// Uses of one name that are resolved in one definition.
const MAX_REFERENCES_OF_NAME: usize = 8;
/// From this confidence on a function that is only mentioned counts as used.
const MIN_MENTION_CONFIDENCE: f32 = 0.7;

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct UseSite {
    pub path: String,
    /// From 1.
    pub line: u32,
    /// The definition around it; empty if there is none.
    pub symbol: String,
    /// The line.
    pub text: String,
    /// From 0 to 1.
    #[serde(serialize_with = "three_decimals")]
    pub confidence: f32,
    /// Steps from the symbol, if more than one.
    #[serde(skip_serializing_if = "is_direct")]
    pub depth: usize,
}

pub(crate) fn is_zero(count: &usize) -> bool {
    *count == 0
}

fn is_direct(depth: &usize) -> bool {
    *depth <= 1
}

/// Where a symbol is used.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct SymbolUses {
    /// The qualified name.
    pub symbol: String,
    /// The uses, the surest first.
    pub sites: Vec<UseSite>,
    pub total: usize,
    /// The last step, if too many uses kept the search from the requested depth.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth_reached: Option<usize>,
    /// Files that mention the name and were not read because there are too many; the nearest were.
    #[serde(skip_serializing_if = "is_zero")]
    pub unread_files: usize,
    /// The definitions that share the name, when there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ambiguous: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LineageDirection {
    Callers,
    Callees,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct LineageNode {
    /// The qualified name.
    pub symbol: String,
    pub src: String,
    /// Steps from the start.
    pub depth: usize,
    /// From 0 to 1; the product of the steps.
    #[serde(serialize_with = "three_decimals")]
    pub confidence: f32,
}

/// The callers or callees of a symbol, over several steps.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Lineage {
    /// The qualified name.
    pub symbol: String,
    pub direction: LineageDirection,
    /// Nearest first.
    pub nodes: Vec<LineageNode>,
    pub total: usize,
    /// The last step, if too many symbols kept the search from the requested depth.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth_reached: Option<usize>,
    /// Files that mention one of the names and were not read because there are too many; the nearest were.
    #[serde(skip_serializing_if = "is_zero")]
    pub unread_files: usize,
    /// The definitions that share the name, when there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ambiguous: Vec<String>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct RelatedSymbol {
    /// Absent for text.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub symbol: String,
    pub src: String,
}

/// Callers and callees of a snippet's symbol.
#[derive(Debug, Clone, Default)]
pub struct SnippetNeighbours {
    /// The surest first, nearer steps before farther ones.
    pub neighbours: Vec<RelatedSymbol>,
    /// The last step, if too many symbols kept the search from the requested depth.
    pub depth_reached: Option<usize>,
    /// Files that may hold more and were not read because there are too many.
    pub unread_files: usize,
}

impl Index {
    /// Where a symbol is used, and where its users are used, up to `depth` steps.
    ///
    /// # Errors
    /// No such symbol (with the nearest names); no index; cancelled or timed out.
    pub fn where_used(
        &self,
        roots: &Roots,
        symbol: &str,
        depth: usize,
        stop: &CancelToken,
    ) -> Result<SymbolUses> {
        self.with(|catalog, text| {
            let mut sources = Sources::new(roots);
            let asked = symbols::resolve_name(symbol, catalog, &mut sources)?;
            let name = asked.first().map(ResolvedSymbol::name).unwrap_or_default();
            let mut all: Vec<UseSite> = Vec::new();
            let mut unread = 0;
            let mut depth_reached = None;
            let deepest = depth.clamp(1, MAX_DEPTH);
            let mut done: HashSet<String> = asked.iter().map(ResolvedSymbol::id).collect();
            let mut level = vec![(asked.clone(), 1.0)];
            for depth in 1..=deepest {
                let mut next = Vec::new();
                for (defined, sure) in level {
                    let sites = uses::find_uses(&defined, catalog, text, &mut sources, stop)?;
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
                        all.push(use_site(&site, depth, sure));
                    }
                }
                level = next;
                if all.len() > MAX_USES && !level.is_empty() && depth < deepest {
                    depth_reached = Some(depth);
                    break;
                }
            }
            Ok(SymbolUses {
                symbol: name,
                total: all.len(),
                sites: all,
                depth_reached,
                unread_files: unread,
                ambiguous: ambiguous(&asked),
            })
        })
    }

    /// The callers or callees of a symbol, up to `depth` steps.
    ///
    /// # Errors
    /// As for [`Index::where_used`].
    pub fn lineage(
        &self,
        roots: &Roots,
        symbol: &str,
        direction: LineageDirection,
        depth: usize,
        stop: &CancelToken,
    ) -> Result<Lineage> {
        self.with(|catalog, text| {
            let mut sources = Sources::new(roots);
            let asked = symbols::resolve_name(symbol, catalog, &mut sources)?;
            let mut nodes = Vec::new();
            let mut unread = 0;
            let mut depth_reached = None;
            let deepest = depth.clamp(1, MAX_DEPTH);
            let mut done: HashSet<String> = asked.iter().map(ResolvedSymbol::id).collect();
            let mut level: Vec<(ResolvedSymbol, f32)> =
                asked.iter().map(|one| (one.clone(), 1.0)).collect();
            for depth in 1..=deepest {
                let mut next: Vec<(ResolvedSymbol, f32)> = Vec::new();
                for (from, sure) in level {
                    let steps = match direction {
                        LineageDirection::Callers => {
                            let found = callers(&from, catalog, text, &mut sources, stop)?;
                            unread += found.unread;
                            found.users
                        }
                        LineageDirection::Callees => callees(&from, catalog, &mut sources, stop)?,
                    };
                    for (to, step) in steps {
                        if done.insert(to.id()) {
                            next.push((to, sure * step));
                        }
                    }
                }
                next.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.id().cmp(&b.0.id())));
                for (to, sure) in &next {
                    nodes.push(LineageNode {
                        symbol: to.name(),
                        src: to.src(),
                        depth,
                        confidence: *sure,
                    });
                }
                level = next;
                if nodes.len() >= MAX_LINEAGE_NODES && !level.is_empty() && depth < deepest {
                    depth_reached = Some(depth);
                    break;
                }
            }
            Ok(Lineage {
                symbol: asked.first().map(ResolvedSymbol::name).unwrap_or_default(),
                direction,
                total: nodes.len(),
                nodes,
                depth_reached,
                unread_files: unread,
                ambiguous: ambiguous(&asked),
            })
        })
    }

    /// For each snippet the callers and callees of its symbol, up to `depth` steps.
    ///
    /// # Errors
    /// As for [`Index::where_used`].
    pub fn neighbours(
        &self,
        roots: &Roots,
        snippets: &[Snippet],
        depth: usize,
        stop: &CancelToken,
    ) -> Result<Vec<SnippetNeighbours>> {
        self.with(|catalog, text| {
            let mut sources = Sources::new(roots);
            let near = snippets.iter().map(|snippet| {
                let Some(symbol) = &snippet.symbol else {
                    return Ok(SnippetNeighbours::default());
                };
                let id = format!("{}#{symbol}", snippet.path);
                match symbols::resolve_name(&id, catalog, &mut sources) {
                    Ok(defined) => {
                        callers_and_callees(&defined, depth, catalog, text, &mut sources, stop)
                    }
                    // A section of text is not a symbol.
                    Err(Error::NoSymbol { .. } | Error::BadRequest(_)) => {
                        Ok(SnippetNeighbours::default())
                    }
                    Err(error) => Err(error),
                }
            });
            near.collect()
        })
    }
}

/// Callers and callees, step by step.
fn callers_and_callees(
    of: &[ResolvedSymbol],
    depth: usize,
    catalog: &Catalog,
    text: &TextSearcher,
    sources: &mut Sources<'_>,
    stop: &CancelToken,
) -> Result<SnippetNeighbours> {
    let mut all: Vec<ResolvedSymbol> = Vec::new();
    let mut found = SnippetNeighbours::default();
    let deepest = depth.clamp(1, MAX_DEPTH);
    let mut done: HashSet<String> = of.iter().map(ResolvedSymbol::src).collect();
    let mut level: Vec<ResolvedSymbol> = of.iter().take(1).cloned().collect();
    for depth in 1..=deepest {
        let mut near: Vec<(ResolvedSymbol, f32)> = Vec::new();
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
        if all.len() >= MAX_NEIGHBOURS && !level.is_empty() && depth < deepest {
            found.depth_reached = Some(depth);
            break;
        }
    }
    found.neighbours = related(all.into_iter());
    Ok(found)
}

fn use_site(site: &FoundUse, depth: usize, sure: f32) -> UseSite {
    UseSite {
        path: site.source.path.clone(),
        line: site.line,
        symbol: site.user().map(|user| user.name()).unwrap_or_default(),
        text: site.text(),
        confidence: sure,
        depth,
    }
}

/// The ids of several definitions of one name; empty for one type and its impl blocks.
pub(crate) fn ambiguous(defined: &[ResolvedSymbol]) -> Vec<String> {
    let mut ids: Vec<String> = defined
        .iter()
        .filter(|one| one.symbol.kind.defines())
        .map(ResolvedSymbol::id)
        .collect();
    ids.dedup();
    if ids.len() > 1 { ids } else { Vec::new() }
}

/// Whether a use is a step of a lineage: a call, a derivation, or a function passed by name.
pub(crate) fn is_lineage_step(to: &ResolvedSymbol, kind: ReferenceKind, confidence: f32) -> bool {
    match kind {
        ReferenceKind::Call | ReferenceKind::Inherit => true,
        ReferenceKind::Mention => {
            let function = matches!(
                to.symbol.kind,
                DefinitionKind::Function | DefinitionKind::Macro
            );
            function && confidence >= MIN_MENTION_CONFIDENCE
        }
        ReferenceKind::Import => false,
    }
}

/// Definitions that call a symbol or derive from it.
struct Callers {
    /// With the confidence.
    users: Vec<(ResolvedSymbol, f32)>,
    /// Files that were not read.
    unread: usize,
}

fn callers(
    of: &ResolvedSymbol,
    catalog: &Catalog,
    text: &TextSearcher,
    sources: &mut Sources<'_>,
    stop: &CancelToken,
) -> Result<Callers> {
    let sites = uses::find_uses(std::slice::from_ref(of), catalog, text, sources, stop)?;
    let calls = sites
        .found
        .into_iter()
        .filter(|site| is_lineage_step(of, site.kind, site.confidence));
    let mut users: Vec<(ResolvedSymbol, f32)> = Vec::new();
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

/// What a symbol calls, with the confidence: for each name the likeliest definition.
pub(crate) fn callees(
    of: &ResolvedSymbol,
    catalog: &Catalog,
    sources: &mut Sources<'_>,
    stop: &CancelToken,
) -> Result<Vec<(ResolvedSymbol, f32)>> {
    let parts = of.source.parts();
    let inside = of.symbol.first..=of.symbol.last;
    let mut names: Vec<&str> = Vec::new();
    let mut by_name: HashMap<&str, Vec<&Reference>> = HashMap::new();
    for found in &parts.references {
        let line = u32::try_from(found.line).unwrap_or(u32::MAX);
        if found.kind != ReferenceKind::Import && inside.contains(&line) {
            let known = by_name.entry(&found.name).or_insert_with(|| {
                names.push(&found.name);
                Vec::new()
            });
            if known.len() < MAX_REFERENCES_OF_NAME {
                known.push(found);
            }
        }
    }
    let imports: HashSet<&str> = parts
        .references
        .iter()
        .filter(|found| found.kind == ReferenceKind::Import)
        .map(|found| found.name.as_str())
        .collect();
    let mut found: Vec<(ResolvedSymbol, f32)> = Vec::new();
    for name in names {
        stop.check()?;
        let candidates: Vec<ResolvedSymbol> = symbols::definitions_of(name, catalog, sources)?
            .into_iter()
            .filter(|one| {
                let kind = one.symbol.kind;
                let callable = kind.defines() && !kind.is_member_data();
                callable && are_compatible(one.language(), parts.language) && !one.is(of)
            })
            .collect();
        if candidates.is_empty() {
            continue;
        }
        let mut callees = Callees::default();
        for reference in &by_name[name] {
            callees.add(of, reference, &candidates, &imports, catalog, sources);
        }
        found.extend(callees.likeliest());
    }
    Ok(found)
}

/// What the uses of one name call.
#[derive(Default)]
struct Callees {
    resolved: Vec<ResolvedSymbol>,
    guessed: Option<(ResolvedSymbol, f32)>,
}

impl Callees {
    fn add(
        &mut self,
        of: &ResolvedSymbol,
        reference: &Reference,
        candidates: &[ResolvedSymbol],
        imports: &HashSet<&str>,
        catalog: &Catalog,
        sources: &mut Sources<'_>,
    ) {
        let known = of.source.names().is_known();
        if known {
            let mut resolver = Resolver::new(catalog, sources);
            let targets = resolver.targets(&of.source, reference);
            let means = |one: &&ResolvedSymbol| {
                let place = binding_of(one).map(|place| place.identity());
                place.is_some_and(|place| {
                    targets.iter().any(|target| match target {
                        Target::Binding(found, _) => found.identity() == place,
                        _ => false,
                    })
                })
            };
            if let Some(one) = candidates.iter().find(means) {
                let step = is_lineage_step(one, reference.kind, RESOLVED_CONFIDENCE);
                if step && !self.resolved.iter().any(|known| known.is(one)) {
                    self.resolved.push(one.clone());
                }
                return;
            }
            let unknown = targets.iter().any(|one| matches!(one, Target::Unknown));
            if !unknown && !targets.is_empty() {
                return;
            }
        }
        let qualifier = reference.qualifier(&of.source.text);
        let likeliest = candidates
            .iter()
            .map(|one| {
                let sure = likelihood(of, one, qualifier, imports, candidates.len());
                let most = if known { MAX_GUESS_CONFIDENCE } else { 1.0 };
                (one, sure.min(most))
            })
            .max_by(|a, b| a.1.total_cmp(&b.1).then_with(|| b.0.id().cmp(&a.0.id())));
        if let Some((one, sure)) = likeliest
            && sure >= 0.1
            && is_lineage_step(one, reference.kind, sure)
            && self.guessed.as_ref().is_none_or(|(_, known)| *known < sure)
        {
            self.guessed = Some((one.clone(), sure));
        }
    }

    fn likeliest(self) -> Vec<(ResolvedSymbol, f32)> {
        if self.resolved.is_empty() {
            return self.guessed.into_iter().collect();
        }
        let resolved = self.resolved.into_iter();
        resolved.map(|one| (one, RESOLVED_CONFIDENCE)).collect()
    }
}

/// The confidence that a call from one definition reaches the other; the table is in [`crate::resolve`].
fn likelihood(
    from: &ResolvedSymbol,
    to: &ResolvedSymbol,
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

/// Symbols as answers list them, each place once.
pub(crate) fn related(defined: impl Iterator<Item = ResolvedSymbol>) -> Vec<RelatedSymbol> {
    let mut known: HashSet<String> = HashSet::new();
    let related = defined.map(|one| RelatedSymbol {
        symbol: one.name(),
        src: one.src(),
    });
    related
        .filter(|one| known.insert(one.src.clone()))
        .collect()
}
