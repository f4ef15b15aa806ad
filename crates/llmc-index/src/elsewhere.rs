//! Uses of a name that an answer does not list, because they mean something else.

use std::collections::{BTreeMap, HashSet};

use schemars::JsonSchema;
use serde::Serialize;

use crate::infer::{DefinitionId, Place};
use crate::meaning::binding_of;
use crate::symbols::ResolvedSymbol;

/// Definitions that an answer names.
const MAX_NAMED: usize = 5;

/// Another definition of the name, with its uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct OtherDefinition {
    /// The qualified name.
    pub symbol: String,
    /// path:line
    pub at: String,
    pub uses: usize,
}

/// Uses of the same name that mean something else, by lines.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct UsesElsewhere {
    /// Those of `definitions`, and of local names, further definitions and things outside of the workspace.
    pub total: usize,
    /// The most used first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub definitions: Vec<OtherDefinition>,
}

impl UsesElsewhere {
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }
}

/// Collects what the uses of a name mean that are not listed.
#[derive(Default)]
pub(crate) struct OtherUses {
    /// By line; the first meaning that is known counts.
    lines: BTreeMap<(String, u64), Option<DefinitionId>>,
}

impl OtherUses {
    pub(crate) fn add(&mut self, path: &str, line: u64, place: Option<&Place>) {
        let known = self.lines.entry((path.to_owned(), line)).or_default();
        if known.is_none() {
            *known = place.map(Place::identity);
        }
    }

    /// Without the lines that are listed; `same_name` are all definitions of the name.
    pub(crate) fn without(
        self,
        listed: &HashSet<(&str, u32)>,
        same_name: &[ResolvedSymbol],
    ) -> UsesElsewhere {
        let mut lines = self.lines;
        lines.retain(|(path, line), _| {
            let line = u32::try_from(*line).unwrap_or(u32::MAX);
            !listed.contains(&(path.as_str(), line))
        });
        let mut counts: BTreeMap<DefinitionId, usize> = BTreeMap::new();
        for id in lines.values().flatten() {
            *counts.entry(id.clone()).or_default() += 1;
        }
        let mut definitions: Vec<OtherDefinition> = Vec::new();
        for one in same_name {
            let id = binding_of(one).map(|place| place.identity());
            if let Some(uses) = id.and_then(|id| counts.remove(&id)) {
                definitions.push(OtherDefinition {
                    symbol: one.name(),
                    at: format!("{}:{}", one.source.path, one.symbol.line),
                    uses,
                });
            }
        }
        definitions.sort_by(|a, b| b.uses.cmp(&a.uses).then_with(|| a.at.cmp(&b.at)));
        definitions.truncate(MAX_NAMED);
        UsesElsewhere {
            total: lines.len(),
            definitions,
        }
    }
}
