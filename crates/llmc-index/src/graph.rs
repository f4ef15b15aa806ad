//! Questions about symbols: where one is used, its callers and its callees.

mod callees;

use std::cmp::Ordering;
use std::collections::HashSet;

use llmc_host::{CancelToken, Roots};
use llmc_syntax::{DefinitionKind, ReferenceKind};
use schemars::JsonSchema;
use serde::Serialize;

use crate::catalog::Catalog;
use crate::decimals::three_decimals;
use crate::elsewhere::UsesElsewhere;
use crate::error::{Error, Result};
use crate::index::Index;
use crate::snippet::Snippet;
use crate::source::Sources;
use crate::symbols::{self, ResolvedSymbol};
use crate::text::TextSearcher;
use crate::uses::{self, FoundUse};

pub(crate) use self::callees::callees;

/// No further step is taken beyond this many uses,
const MAX_USES: usize = 1000;
/// this many symbols on a lineage (each may mean reading hundreds of files),
const MAX_LINEAGE_NODES: usize = 100;
/// or this many neighbours of a snippet.
const MAX_NEIGHBOURS: usize = 8;
const MAX_DEPTH: usize = 5;
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
    /// The base's member that it is a use of; the asked override may be what it reaches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub through: Option<String>,
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
    /// Uses of the name that are not among the sites.
    #[serde(skip_serializing_if = "UsesElsewhere::is_empty")]
    pub elsewhere: UsesElsewhere,
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
    /// The base's member that it calls; the override may be what it reaches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub through: Option<String>,
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
    /// Uses of the name that are not of this symbol.
    #[serde(skip_serializing_if = "UsesElsewhere::is_empty")]
    pub elsewhere: UsesElsewhere,
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
            let mut elsewhere = UsesElsewhere::default();
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
                    if depth == 1 {
                        elsewhere = sites.elsewhere;
                    }
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
                elsewhere,
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
            let mut elsewhere = UsesElsewhere::default();
            let mut unread = 0;
            let mut depth_reached = None;
            let deepest = depth.clamp(1, MAX_DEPTH);
            let mut done: HashSet<String> = asked.iter().map(ResolvedSymbol::id).collect();
            let mut level: Vec<(ResolvedSymbol, f32)> =
                asked.iter().map(|one| (one.clone(), 1.0)).collect();
            for depth in 1..=deepest {
                let mut next: Vec<LineageStep> = Vec::new();
                for (from, sure) in level {
                    let steps = match direction {
                        LineageDirection::Callers => {
                            let found = callers(&from, catalog, text, &mut sources, stop)?;
                            unread += found.unread;
                            // Of several definitions each has uses of the others.
                            if depth == 1 && asked.len() == 1 {
                                elsewhere = found.elsewhere;
                            }
                            found.users
                        }
                        LineageDirection::Callees => {
                            let called = callees(&from, catalog, &mut sources, stop)?;
                            let steps = called.into_iter();
                            steps.map(|(to, step)| LineageStep::new(to, step)).collect()
                        }
                    };
                    for mut step in steps {
                        if done.insert(step.to.id()) {
                            step.confidence *= sure;
                            next.push(step);
                        }
                    }
                }
                next.sort_by(LineageStep::surest_first);
                for step in &next {
                    nodes.push(LineageNode {
                        symbol: step.to.name(),
                        src: step.to.src(),
                        depth,
                        confidence: step.confidence,
                        through: step.through.clone(),
                    });
                }
                let steps = next.into_iter();
                level = steps.map(|step| (step.to, step.confidence)).collect();
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
                elsewhere,
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
        let mut near: Vec<LineageStep> = Vec::new();
        for one in &level {
            let callers = callers(one, catalog, text, sources, stop)?;
            found.unread_files += callers.unread;
            near.extend(callers.users);
            let called = callees(one, catalog, sources, stop)?.into_iter();
            near.extend(called.map(|(to, step)| LineageStep::new(to, step)));
        }
        near.sort_by(LineageStep::surest_first);
        near.retain(|step| done.insert(step.to.src()));
        level = near.into_iter().map(|step| step.to).collect();
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
        through: site.through.clone(),
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
    users: Vec<LineageStep>,
    elsewhere: UsesElsewhere,
    /// Files that were not read.
    unread: usize,
}

/// A symbol that is one step away.
struct LineageStep {
    to: ResolvedSymbol,
    confidence: f32,
    through: Option<String>,
}

impl LineageStep {
    fn new(to: ResolvedSymbol, confidence: f32) -> Self {
        Self {
            to,
            confidence,
            through: None,
        }
    }

    fn surest_first(a: &Self, b: &Self) -> Ordering {
        let surer = b.confidence.total_cmp(&a.confidence);
        surer.then_with(|| a.to.id().cmp(&b.to.id()))
    }
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
    let mut users: Vec<LineageStep> = Vec::new();
    let mut known: HashSet<(String, u32)> = HashSet::new();
    for site in calls {
        if let Some(user) = site.user()
            && !user.is(of)
            && known.insert((user.source.path.clone(), user.symbol.line))
        {
            users.push(LineageStep {
                to: user,
                confidence: site.confidence,
                through: site.through,
            });
        }
    }
    Ok(Callers {
        users,
        elsewhere: sites.elsewhere,
        unread: sites.unread,
    })
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
