//! Which definition a use of a name means, and how sure that is.
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
use crate::symbols::{Defined, module_name};
use crate::units::Symbol;
use crate::words::folded;

/// A use of something else, as far as can be told.
const FOREIGN: f32 = 0.08;

/// What is known about a name in one file that uses it.
pub(crate) struct About<'a> {
    name: &'a str,
    defined: &'a [Defined],
    rivals: usize,
    source: &'a Source,
    /// The file defines what is asked about.
    here: bool,
    /// The file defines something else of that name, outside of any type.
    shadowed: bool,
    imported: bool,
    module_imported: bool,
    near: bool,
    /// What is imported, and on which lines.
    imports: HashMap<&'a str, Vec<u64>>,
    /// The types that each type of this file derives from.
    bases: HashMap<&'a str, HashSet<&'a str>>,
}

/// What stands before a name.
enum Before<'s> {
    Nothing,
    /// `self`, `this`: the type around.
    Itself,
    /// `super`: what the type around derives from.
    Parent,
    Name(&'s str),
    /// The value of some expression.
    Value,
}

impl<'a> About<'a> {
    pub(crate) fn new(
        name: &'a str,
        defined: &'a [Defined],
        rivals: usize,
        source: &'a Source,
    ) -> Self {
        let cut = source.cut();
        let here = defined.iter().any(|one| one.source.path == source.path);
        let defines_itself = |symbol: &Symbol| {
            symbol.name == name && symbol.kind.defines() && symbol.scope.is_empty()
        };
        let mut imports: HashMap<&str, Vec<u64>> = HashMap::new();
        let mut bases: HashMap<&str, HashSet<&str>> = HashMap::new();
        for found in &cut.references {
            let known = found.name.as_str();
            match found.kind {
                ReferenceKind::Import => imports.entry(known).or_default().push(found.line),
                ReferenceKind::Inherit => {
                    if let Some(inner) = type_at(&cut.symbols, found.line) {
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
            shadowed: !here && cut.symbols.iter().any(defines_itself),
            imported: imports.contains_key(name),
            module_imported,
            near: defined
                .iter()
                .any(|one| folder(&one.source.path) == folder(&source.path)),
            imports,
            bases,
        }
    }

    /// How sure it is that a reference means what is asked about.
    pub(crate) fn confidence(&self, reference: &Reference) -> f32 {
        let before = self.before(reference);
        let best = self.defined.iter().map(|one| {
            if outer(one).is_empty() {
                self.of_the_module(one, reference, &before)
            } else {
                self.of_a_type(one, reference, &before)
            }
        });
        best.fold(0.0, f32::max)
    }

    fn before(&self, reference: &Reference) -> Before<'a> {
        let text = &self.source.text;
        match reference.qualifier(text) {
            Some("self" | "this" | "cls" | "Self" | "static") => Before::Itself,
            Some("super" | "parent" | "base") => Before::Parent,
            Some(name) => Before::Name(name),
            None if reference.is_member(text) => {
                let before = text.get(..reference.start).unwrap_or_default();
                let before = before.trim_end_matches(['.', ':', '?', '>', '-']);
                if before.trim_end().ends_with("super()") {
                    Before::Parent
                } else {
                    Before::Value
                }
            }
            None => Before::Nothing,
        }
    }

    /// A use of what a module defines: a function, a type, a constant.
    fn of_the_module(&self, one: &Defined, reference: &Reference, before: &Before<'_>) -> f32 {
        let module = module_name(&one.source.path);
        let in_path = |part: &str| one.source.path.split('/').any(|known| known == part);
        let scoped = matches!(
            self.source.cut().language,
            Some(Language::Rust | Language::Cpp | Language::Php | Language::Ruby)
        );
        match before {
            Before::Name(name) if *name == module => return 0.95,
            Before::Name(name) => {
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
                    return FOREIGN;
                }
                // `crate::net::open` names what is around; `thing.open` is a member of something.
                if !scoped {
                    return self.several() * 0.3;
                }
            }
            // In Rust a module is called so too.
            Before::Itself | Before::Parent if scoped => {}
            Before::Itself | Before::Parent => return FOREIGN,
            Before::Value => return self.several() * 0.3,
            Before::Nothing => {}
        }
        if self.here {
            return 0.95;
        }
        if self.shadowed {
            return self.several() * 0.3;
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
            self.several()
        };
        // A word that is merely mentioned is as likely a local variable.
        if reference.kind == ReferenceKind::Mention {
            sure * 0.5
        } else {
            sure
        }
    }

    /// A use of a member: a method, a field.
    fn of_a_type(&self, one: &Defined, reference: &Reference, before: &Before<'_>) -> f32 {
        let outer = outer(one);
        let around = type_at(&self.source.cut().symbols, reference.line);
        match before {
            Before::Itself => match around {
                Some(around) if around == outer => 0.95,
                Some(around) if self.has_own(around) => FOREIGN,
                Some(around) => self.if_derived(around, outer),
                None => self.several() * 0.5,
            },
            Before::Parent => match around {
                Some(around) if around != outer => self.if_derived(around, outer),
                _ => FOREIGN,
            },
            Before::Name(name) if *name == outer => 0.95,
            Before::Name(name) if name.starts_with(char::is_uppercase) => {
                if self.derives(name, outer) && !self.has_own(name) {
                    0.7
                } else {
                    self.several() * 0.3
                }
            }
            Before::Name(name) => self.of_a_value(outer, Some(name)),
            Before::Value => self.of_a_value(outer, None),
            Before::Nothing if around == Some(outer) => 0.9,
            // Where `this` may be left out.
            Before::Nothing => match (self.source.cut().language, around) {
                (
                    Some(Language::Java | Language::CSharp | Language::Cpp | Language::Ruby),
                    Some(around),
                ) => self.if_derived(around, outer),
                _ if self.imported => 0.8,
                _ => self.several() * 0.3,
            },
        }
    }

    /// A member of some value whose type nobody tells.
    fn of_a_value(&self, outer: &str, name: Option<&str>) -> f32 {
        if name.is_some_and(|name| alike(name, outer)) {
            return 0.8;
        }
        // Other types of this file that have such a member.
        let symbols = self.source.cut().symbols.iter();
        let mut others = symbols
            .filter(|symbol| symbol.name == self.name && !symbol.scope.is_empty())
            .map(|symbol| symbol.scope.rsplit("::").next().unwrap_or(""))
            .filter(|other| *other != outer)
            .peekable();
        let has_others = others.peek().is_some();
        if name.is_some_and(|name| others.any(|other| alike(name, other))) {
            return FOREIGN;
        }
        if has_others && !self.here && !self.module_imported {
            return self.several() * 0.5;
        }
        if self.rivals <= 1 {
            return match (self.here, self.module_imported, self.near) {
                (true, _, _) => 0.85,
                (_, true, _) => 0.75,
                (_, _, true) => 0.7,
                _ => 0.6,
            };
        }
        let likely = self.several();
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
            FOREIGN * 2.0
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

    /// Whether a type of this file has a member of the name asked about.
    fn has_own(&self, around: &str) -> bool {
        let symbols = &self.source.cut().symbols;
        symbols.iter().any(|symbol| {
            symbol.name == self.name && symbol.scope.rsplit("::").next() == Some(around)
        })
    }

    fn several(&self) -> f32 {
        0.6 / self.rivals.max(1) as f32
    }
}

/// Whether a variable is called like a type: `pool` for `Pool`, `conn` for `Connection`.
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
fn outer(one: &Defined) -> &str {
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
