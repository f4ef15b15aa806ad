//! Which definition a use of a name means, by its name and what stands around it.
//!
//! For languages whose names [`crate::infer`] does not resolve, and for uses whose receiver has an unknown type; there the
//! confidence stays below 0.5.
//!
//! | confidence | because |
//! |---|---|
//! | 0.95 | the type or module that defines it stands before it, or it is used bare in the file that defines it |
//! | 0.9 | inside the type that defines it or one that derives from it; imported by name from the defining module |
//! | 0.8 | imported by name; a variable that is called like the defining type |
//! | 0.75 | the module or type that defines it is imported |
//! | 0.7 | same folder, and no other definition of that name |
//! | 0.6 | the only definition of that name |
//! | less | one of several definitions of that name, or something else stands before it |

use std::collections::{HashMap, HashSet};

use llmc_syntax::{DefinitionKind, Language, Reference, ReferenceKind};

use crate::source::Source;
use crate::symbols::{ResolvedSymbol, module_name};
use crate::units::Symbol;
use crate::words::folded;

/// The confidence of a use that most likely means another definition.
const OTHER_DEFINITION: f32 = 0.08;

/// A name in one file that uses it.
pub(crate) struct NameInFile<'a> {
    name: &'a str,
    defined: &'a [ResolvedSymbol],
    rivals: usize,
    source: &'a Source,
    /// The file has one of the definitions.
    here: bool,
    /// The file has another definition of that name, outside of any type.
    shadowed: bool,
    imported: bool,
    module_imported: bool,
    near: bool,
    /// Imported names with their lines.
    imports: HashMap<&'a str, Vec<u64>>,
    /// The types that each type of this file derives from.
    bases: HashMap<&'a str, HashSet<&'a str>>,
}

/// The expression before a name.
enum Qualifier<'s> {
    Nothing,
    /// `self`, `this`: the type around.
    Itself,
    /// `super`: a base of the type around.
    Parent,
    Name(&'s str),
    /// The value of some expression.
    Value,
}

impl<'a> NameInFile<'a> {
    pub(crate) fn new(
        name: &'a str,
        defined: &'a [ResolvedSymbol],
        rivals: usize,
        source: &'a Source,
    ) -> Self {
        let parts = source.parts();
        let here = defined.iter().any(|one| one.source.path == source.path);
        let defines_itself = |symbol: &Symbol| {
            symbol.name == name && symbol.kind.defines() && symbol.scope.is_empty()
        };
        let mut imports: HashMap<&str, Vec<u64>> = HashMap::new();
        let mut bases: HashMap<&str, HashSet<&str>> = HashMap::new();
        for found in &parts.references {
            let known = found.name.as_str();
            match found.kind {
                ReferenceKind::Import => imports.entry(known).or_default().push(found.line),
                ReferenceKind::Inherit => {
                    if let Some(inner) = type_at(&parts.symbols, found.line) {
                        bases.entry(inner).or_default().insert(known);
                    }
                }
                ReferenceKind::Call | ReferenceKind::Mention => {}
            }
        }
        let module_imported = defined.iter().any(|one| {
            let module = module_name(&one.source.path);
            imports.contains_key(module) || imports.contains_key(outer(one))
        });
        Self {
            name,
            defined,
            rivals,
            source,
            here,
            shadowed: !here && parts.symbols.iter().any(defines_itself),
            imported: imports.contains_key(name),
            module_imported,
            near: defined
                .iter()
                .any(|one| folder(&one.source.path) == folder(&source.path)),
            imports,
            bases,
        }
    }

    /// The confidence that a reference means one of the definitions.
    pub(crate) fn confidence(&self, reference: &Reference) -> f32 {
        let before = self.before(reference);
        let best = self.defined.iter().map(|one| {
            if outer(one).is_empty() {
                self.module_member_confidence(one, reference, &before)
            } else {
                self.type_member_confidence(one, reference, &before)
            }
        });
        best.fold(0.0, f32::max)
    }

    fn before(&self, reference: &Reference) -> Qualifier<'a> {
        let text = &self.source.text;
        match reference.qualifier(text) {
            Some("self" | "this" | "cls" | "Self" | "static") => Qualifier::Itself,
            Some("super" | "parent" | "base") => Qualifier::Parent,
            Some(name) => Qualifier::Name(name),
            None if reference.is_member(text) => {
                let before = text.get(..reference.start).unwrap_or_default();
                let before = before.trim_end_matches(['.', ':', '?', '>', '-']);
                if before.trim_end().ends_with("super()") {
                    Qualifier::Parent
                } else {
                    Qualifier::Value
                }
            }
            None => Qualifier::Nothing,
        }
    }

    /// For a definition of a module: a function, a type, a constant.
    fn module_member_confidence(
        &self,
        one: &ResolvedSymbol,
        reference: &Reference,
        before: &Qualifier<'_>,
    ) -> f32 {
        let module = module_name(&one.source.path);
        let in_path = |part: &str| one.source.path.split('/').any(|known| known == part);
        let scoped = matches!(
            self.source.parts().language,
            Some(Language::Rust | Language::Cpp | Language::Php | Language::Ruby)
        );
        match before {
            Qualifier::Name(name) if *name == module => return 0.95,
            Qualifier::Name(name) => {
                let lines = self.imports.get(name);
                let lines = lines.map_or(&[] as &[u64], Vec::as_slice);
                let ours = |line: &u64| {
                    let mut on_line = self.imports.iter().filter(|(_, at)| at.contains(line));
                    on_line.any(|(known, _)| *known == module || in_path(known))
                };
                if in_path(name) || lines.iter().any(ours) {
                    return 0.85;
                }
                if !lines.is_empty() {
                    return OTHER_DEFINITION;
                }
                // `crate::net::open` names what is around; `thing.open` is a member of something.
                if !scoped {
                    return self.ambiguous_confidence() * 0.3;
                }
            }
            // In Rust a module is called so too.
            Qualifier::Itself | Qualifier::Parent if scoped => {}
            Qualifier::Itself | Qualifier::Parent => return OTHER_DEFINITION,
            Qualifier::Value => return self.ambiguous_confidence() * 0.3,
            Qualifier::Nothing => {}
        }
        if self.here {
            return 0.95;
        }
        if self.shadowed {
            return self.ambiguous_confidence() * 0.3;
        }
        self.by_imports(reference)
    }

    fn by_imports(&self, reference: &Reference) -> f32 {
        if self.imported {
            return if self.module_imported { 0.9 } else { 0.8 };
        }
        if self.module_imported {
            return 0.75;
        }
        let sure = if self.near && self.rivals <= 1 {
            0.7
        } else {
            self.ambiguous_confidence()
        };
        // A word that is merely mentioned is as likely a local variable.
        if reference.kind == ReferenceKind::Mention {
            sure * 0.5
        } else {
            sure
        }
    }

    /// A use of a member: a method, a field.
    fn type_member_confidence(
        &self,
        one: &ResolvedSymbol,
        reference: &Reference,
        before: &Qualifier<'_>,
    ) -> f32 {
        let outer = outer(one);
        let around = type_at(&self.source.parts().symbols, reference.line);
        match before {
            Qualifier::Itself => match around {
                Some(around) if around == outer => 0.95,
                Some(around) if self.has_own(around) => OTHER_DEFINITION,
                Some(around) => self.if_derived(around, outer),
                None => self.ambiguous_confidence() * 0.5,
            },
            Qualifier::Parent => match around {
                Some(around) if around != outer => self.if_derived(around, outer),
                _ => OTHER_DEFINITION,
            },
            Qualifier::Name(name) if *name == outer => 0.95,
            Qualifier::Name(name) if name.starts_with(char::is_uppercase) => {
                if self.derives(name, outer) && !self.has_own(name) {
                    0.7
                } else {
                    self.ambiguous_confidence() * 0.3
                }
            }
            Qualifier::Name(name) => self.value_member_confidence(outer, Some(name)),
            Qualifier::Value => self.value_member_confidence(outer, None),
            Qualifier::Nothing if around == Some(outer) => 0.9,
            // Where `this` may be left out.
            Qualifier::Nothing => match (self.source.parts().language, around) {
                (
                    Some(Language::Java | Language::CSharp | Language::Cpp | Language::Ruby),
                    Some(around),
                ) => self.if_derived(around, outer),
                _ if self.imported => 0.8,
                _ => self.ambiguous_confidence() * 0.3,
            },
        }
    }

    /// For a member of a value of unknown type.
    fn value_member_confidence(&self, outer: &str, name: Option<&str>) -> f32 {
        if name.is_some_and(|name| alike(name, outer)) {
            return 0.8;
        }
        // Other types of this file that have such a member.
        let symbols = self.source.parts().symbols.iter();
        let mut others = symbols
            .filter(|symbol| symbol.name == self.name && !symbol.scope.is_empty())
            .map(|symbol| symbol.scope.rsplit("::").next().unwrap_or(""))
            .filter(|other| *other != outer)
            .peekable();
        let has_others = others.peek().is_some();
        if name.is_some_and(|name| others.any(|other| alike(name, other))) {
            return OTHER_DEFINITION;
        }
        if has_others && !self.here && !self.module_imported {
            return self.ambiguous_confidence() * 0.5;
        }
        if self.rivals <= 1 {
            return match (self.here, self.module_imported, self.near) {
                (true, _, _) => 0.85,
                (_, true, _) => 0.75,
                (_, _, true) => 0.7,
                _ => 0.6,
            };
        }
        let likely = self.ambiguous_confidence();
        if self.module_imported || self.here {
            (likely * 1.5).min(0.75)
        } else {
            likely
        }
    }

    fn if_derived(&self, around: &str, outer: &str) -> f32 {
        if self.derives(around, outer) {
            0.9
        } else {
            OTHER_DEFINITION * 2.0
        }
    }

    /// Whether a type of this file derives from another, as far as this file tells.
    fn derives(&self, from: &str, to: &str) -> bool {
        let mut known: HashSet<&str> = HashSet::new();
        let mut next = vec![from];
        while let Some(one) = next.pop() {
            for base in self.bases.get(one).into_iter().flatten() {
                if *base == to {
                    return true;
                }
                if known.insert(base) {
                    next.push(base);
                }
            }
        }
        false
    }

    /// Whether a type of this file has a member of that name.
    fn has_own(&self, around: &str) -> bool {
        let symbols = &self.source.parts().symbols;
        symbols.iter().any(|symbol| {
            symbol.name == self.name && symbol.scope.rsplit("::").next() == Some(around)
        })
    }

    fn ambiguous_confidence(&self) -> f32 {
        0.6 / self.rivals.max(1) as f32
    }
}

/// Whether a variable has a name like a type: `pool` for `Pool`, `conn` for `Connection`.
fn alike(variable: &str, outer: &str) -> bool {
    let (variable, outer) = (folded(variable), folded(outer));
    let (short, long) = if variable.len() < outer.len() {
        (&variable, &outer)
    } else {
        (&outer, &variable)
    };
    short.len() >= 3 && (long.ends_with(short.as_str()) || long.starts_with(short.as_str()))
}

/// The type around a definition; empty for what belongs to the module.
fn outer(one: &ResolvedSymbol) -> &str {
    one.symbol.scope.rsplit("::").next().unwrap_or("")
}

fn folder(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// The innermost type around a line.
fn type_at(symbols: &[Symbol], line: u64) -> Option<&str> {
    use DefinitionKind as D;
    let around = symbols.iter().filter(|symbol| {
        let is_type = matches!(
            symbol.kind,
            D::Class | D::Struct | D::Enum | D::Interface | D::Impl
        );
        is_type && (u64::from(symbol.first)..=u64::from(symbol.last)).contains(&line)
    });
    let inner = around.min_by_key(|symbol| symbol.last - symbol.first);
    inner.map(|symbol| symbol.name.as_str())
}
