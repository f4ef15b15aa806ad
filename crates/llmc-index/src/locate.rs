//! Where a symbol is defined.

use llmc_host::Roots;

use crate::Index;
use crate::error::Result;
use crate::graph::ambiguous;
use crate::source::Sources;
use crate::symbols;

/// The lines of one definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefinitionPlace {
    pub path: String,
    /// Its first line, counted from 1.
    pub first_line: u64,
    pub last_line: u64,
    /// The ids (`path#Name`) of all definitions that share the name, when there are several.
    pub ambiguous: Vec<String>,
}

impl Index {
    /// Where a symbol is defined, as its file is now.
    ///
    /// # Errors
    /// No such symbol, or no index.
    pub fn locate(&self, roots: &Roots, symbol: &str) -> Result<DefinitionPlace> {
        self.with(|catalog, _| {
            let mut sources = Sources::new(roots);
            let found = symbols::resolve_name(symbol, catalog, &mut sources)?;
            let first = found
                .iter()
                .find(|one| one.symbol.kind.defines())
                .or(found.first())
                .ok_or(crate::Error::Missing)?;
            Ok(DefinitionPlace {
                path: first.source.path.clone(),
                first_line: u64::from(first.symbol.first),
                last_line: u64::from(first.symbol.last),
                ambiguous: ambiguous(&found),
            })
        })
    }
}
