//! What a symbol calls.

use std::collections::{HashMap, HashSet};

use llmc_host::CancelToken;
use llmc_syntax::{Reference, ReferenceKind};

use super::is_lineage_step;
use crate::catalog::Catalog;
use crate::error::Result;
use crate::infer::{Resolver, Target};
use crate::meaning::binding_of;
use crate::source::Sources;
use crate::symbols::{self, ResolvedSymbol, are_compatible};
use crate::uses::{MAX_GUESS_CONFIDENCE, RESOLVED_CONFIDENCE};

/// Uses of one name that are resolved in one definition.
const MAX_REFERENCES_OF_NAME: usize = 8;

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
