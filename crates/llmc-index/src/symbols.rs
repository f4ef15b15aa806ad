//! Resolves a symbol name to the definitions it means.
//!
//! A name may be bare (`take`), qualified (`Pool::take`, `Pool.take`, `pool::take` for a module of that
//! file), or with its file (`src/pool.rs#Pool::take`), which is also how answers name symbols that share a name. A line
//! after the file (`src/pool.rs:9#Pool::take`) tells definitions apart that share all of that.

use std::rc::Rc;

use llmc_syntax::{DefinitionKind, Language};

use crate::catalog::{Catalog, SymbolRow};
use crate::classify::{Origin, file_name};
use crate::error::{Error, Result};
use crate::snippet::src;
use crate::source::{Source, Sources};
use crate::units::{Symbol, qualified};
use crate::words::folded;

/// Of one name.
const MAX_DEFINITIONS: usize = 200;
/// Suggestions for a name that does not exist.
const MAX_SUGGESTIONS: usize = 5;

/// A definition, as it is on disk now.
#[derive(Clone)]
pub(crate) struct ResolvedSymbol {
    pub(crate) source: Rc<Source>,
    pub(crate) origin: Origin,
    pub(crate) symbol: Symbol,
}

impl ResolvedSymbol {
    /// The qualified name.
    pub(crate) fn name(&self) -> String {
        qualified(&self.symbol.scope, &self.symbol.name)
    }

    /// The name that means only this definition.
    pub(crate) fn id(&self) -> String {
        format!("{}#{}", self.source.path, self.name())
    }

    pub(crate) fn src(&self) -> String {
        src(&self.source.path, self.symbol.first, self.symbol.last)
    }

    pub(crate) fn language(&self) -> Option<Language> {
        self.source.parts().language
    }

    /// Whether both are the same place.
    pub(crate) fn is(&self, other: &ResolvedSymbol) -> bool {
        self.source.path == other.source.path && self.symbol.line == other.symbol.line
    }
}

/// A symbol name, parsed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SymbolName<'a> {
    pub(crate) path: Option<&'a str>,
    pub(crate) line: Option<u32>,
    pub(crate) around: Vec<&'a str>,
    pub(crate) name: &'a str,
}

impl<'a> SymbolName<'a> {
    pub(crate) fn new(text: &'a str) -> Option<Self> {
        let text = text.trim().trim_end_matches("()");
        let (path, rest) = match text.rsplit_once('#') {
            Some((path, rest)) if !path.is_empty() => (Some(path), rest),
            _ => (None, text.trim_start_matches('#')),
        };
        let in_line = path.and_then(|path| {
            let (path, line) = path.rsplit_once(':')?;
            Some((path, line.parse().ok()?))
        });
        let (path, line) = match in_line {
            Some((path, line)) => (Some(path), Some(line)),
            None => (path, None),
        };
        let mut parts: Vec<&str> = rest
            .split("::")
            .flat_map(|part| part.split('.'))
            .flat_map(|part| part.split("->"))
            .filter(|part| !part.is_empty())
            .collect();
        let name = parts.pop()?;
        (name.len() <= 512).then_some(Self {
            path,
            line,
            around: parts,
            name,
        })
    }
}

/// The definitions that a name means: at least one, those of the workspace's own code first.
pub(crate) fn resolve_name(
    written: &str,
    catalog: &Catalog,
    sources: &mut Sources<'_>,
) -> Result<Vec<ResolvedSymbol>> {
    let nothing = |nearest| Error::NoSymbol {
        name: written.chars().take(80).collect(),
        nearest,
    };
    let parsed = SymbolName::new(written).ok_or_else(|| {
        Error::BadRequest("symbol is empty; give a name such as Pool::take".to_owned())
    })?;
    let mut rows = catalog.symbols_named(parsed.name, MAX_DEFINITIONS)?;
    if rows.is_empty() {
        let wanted = folded(parsed.name);
        let mut other = None;
        catalog.each_name(|name| {
            if other.is_none() && !wanted.is_empty() && folded(name) == wanted {
                other = Some(name.to_owned());
            }
        })?;
        match other {
            Some(name) => rows = catalog.symbols_named(&name, MAX_DEFINITIONS)?,
            None => return Err(nothing(nearest(parsed.name, catalog)?)),
        }
    }
    let all = on_disk(&rows, catalog, sources)?;
    let mut meant: Vec<ResolvedSymbol> = all
        .iter()
        .filter(|found| parsed.means(found))
        .cloned()
        .collect();
    parsed.narrow(&mut meant);
    if meant.is_empty() {
        let ids = all
            .iter()
            .take(MAX_SUGGESTIONS)
            .map(ResolvedSymbol::id)
            .collect();
        return Err(nothing(ids));
    }
    Ok(meant)
}

/// All definitions of a bare name, as they are on disk.
pub(crate) fn definitions_of(
    name: &str,
    catalog: &Catalog,
    sources: &mut Sources<'_>,
) -> Result<Vec<ResolvedSymbol>> {
    let rows = catalog.symbols_named(name, MAX_DEFINITIONS)?;
    on_disk(&rows, catalog, sources)
}

fn on_disk(
    rows: &[SymbolRow],
    catalog: &Catalog,
    sources: &mut Sources<'_>,
) -> Result<Vec<ResolvedSymbol>> {
    let mut all: Vec<ResolvedSymbol> = Vec::new();
    for row in rows {
        let Some(file) = catalog.file(row.file)? else {
            continue;
        };
        let Some(source) = sources.get(&file.path) else {
            continue;
        };
        let same = source.hash == file.hash;
        // In a file that changed, what has the same name and the same names around it has moved.
        let moved = |symbol: &&Symbol| {
            symbol.name == row.symbol.name
                && symbol.scope == row.symbol.scope
                && symbol.kind == row.symbol.kind
        };
        let symbols: Vec<Symbol> = if same {
            vec![row.symbol.clone()]
        } else {
            let cut = source.parts();
            cut.symbols.iter().filter(moved).cloned().collect()
        };
        for symbol in symbols {
            let found = ResolvedSymbol {
                source: source.clone(),
                origin: file.origin,
                symbol,
            };
            if !all.iter().any(|known| known.is(&found)) {
                all.push(found);
            }
        }
    }
    all.sort_by_key(|found| {
        let stands_for_another = !found.symbol.kind.defines();
        let minor = found.symbol.kind.is_member_data();
        let foreign = found.origin != Origin::Own;
        (
            stands_for_another,
            foreign,
            minor,
            found.source.path.clone(),
            found.symbol.line,
        )
    });
    Ok(all)
}

impl SymbolName<'_> {
    /// Leaves what the name means exactly, where it could mean more.
    fn narrow(&self, found: &mut Vec<ResolvedSymbol>) {
        // `pool.rs#take` is the function of that file, and a method only without one.
        let scope = self.around.join("::");
        if self.path.is_some() && found.iter().any(|one| one.symbol.scope == scope) {
            found.retain(|one| one.symbol.scope == scope);
        }
        // A method comes before a field of its name, which the line can still name.
        let methods: Vec<String> = found
            .iter()
            .filter(|one| one.symbol.kind == DefinitionKind::Function)
            .map(ResolvedSymbol::id)
            .collect();
        if self.line.is_none() {
            found.retain(|one| {
                one.symbol.kind != DefinitionKind::Field || !methods.contains(&one.id())
            });
        }
    }

    /// Whether a definition of this name has the qualifiers of this one.
    fn means(&self, found: &ResolvedSymbol) -> bool {
        let path = &found.source.path;
        if let Some(wanted) = self.path
            && path != wanted
            && !path.ends_with(&format!("/{wanted}"))
        {
            return false;
        }
        if self.line.is_some_and(|line| line != found.symbol.line) {
            return false;
        }
        let mut around: Vec<&str> = path.split('/').collect();
        let stem = around
            .pop()
            .map(|name| name.split('.').next().unwrap_or(name));
        around.extend(
            stem.filter(|stem| !matches!(*stem, "mod" | "lib" | "main" | "index" | "__init__")),
        );
        around.extend(
            found
                .symbol
                .scope
                .split("::")
                .filter(|part| !part.is_empty()),
        );
        // `crate::pool::take` and the like: what comes first may be left out of the path.
        let wanted: Vec<&&str> = self
            .around
            .iter()
            .filter(|part| !matches!(**part, "crate" | "self" | "super" | "this" | "global"))
            .collect();
        wanted.len() <= around.len()
            && around
                .iter()
                .rev()
                .zip(wanted.iter().rev())
                .all(|(have, want)| *have == **want)
    }
}

/// Names similar to an undefined name.
fn nearest(name: &str, catalog: &Catalog) -> Result<Vec<String>> {
    let wanted = name.to_lowercase();
    let mut best: Vec<(f64, String)> = Vec::new();
    catalog.each_name(|other| {
        let alike = strsim::jaro_winkler(&wanted, &other.to_lowercase());
        if alike > 0.8 {
            best.push((alike, other.to_owned()));
        }
    })?;
    best.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    Ok(best
        .into_iter()
        .take(MAX_SUGGESTIONS)
        .map(|(_, name)| name)
        .collect())
}

/// Whether code in one language can use definitions of the other.
pub(crate) fn are_compatible(a: Option<Language>, b: Option<Language>) -> bool {
    use Language as L;
    let family = |language: Option<Language>| match language {
        Some(L::TypeScript | L::Tsx | L::Html | L::Vue | L::Svelte) => Some(L::JavaScript),
        Some(L::Cpp) => Some(L::C),
        Some(L::Kotlin | L::Scala) => Some(L::Java),
        other => other,
    };
    family(a) == family(b)
}

/// The name of a file without folders and extension: how imports name it.
pub(crate) fn module_name(path: &str) -> &str {
    let name = file_name(path);
    let stem = name.split('.').next().unwrap_or(name);
    if matches!(stem, "mod" | "lib" | "index" | "__init__") {
        let folder = path.rsplit('/').nth(1);
        return folder.unwrap_or(stem);
    }
    stem
}

pub(crate) fn kind_name(kind: DefinitionKind) -> &'static str {
    use DefinitionKind as D;
    match kind {
        D::Function => "function",
        D::Class => "class",
        D::Struct => "struct",
        D::Enum => "enum",
        D::Interface => "interface",
        D::Type => "type",
        D::Module => "module",
        D::Constant => "constant",
        D::Variable => "variable",
        D::Field => "field",
        D::Variant => "variant",
        D::Macro => "macro",
        D::Impl => "impl",
        D::Declaration => "declaration",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_as_people_write_them() {
        for (text, path, around, name) in [
            ("take", None, &[] as &[&str], "take"),
            ("Pool::take", None, &["Pool"], "take"),
            ("Pool.take()", None, &["Pool"], "take"),
            (
                "src/pool.rs#Pool::take",
                Some("src/pool.rs"),
                &["Pool"],
                "take",
            ),
            ("a::b::c", None, &["a", "b"], "c"),
        ] {
            let written = SymbolName::new(text).expect(text);
            assert_eq!(
                (written.path, written.around.as_slice(), written.name),
                (path, around, name)
            );
            assert_eq!(written.line, None);
        }
        let in_line = SymbolName::new("src/pool.rs:9#Pool::take").expect("a name");
        assert_eq!((in_line.path, in_line.line), (Some("src/pool.rs"), Some(9)));
        for text in ["", "  ", "::", "#"] {
            assert_eq!(SymbolName::new(text), None, "{text}");
        }
    }
}
