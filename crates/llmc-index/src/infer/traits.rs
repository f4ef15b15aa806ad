//! Rust: methods that a trait brings to types which are not known, macros, and the fields of variants.

use std::rc::Rc;

use llmc_syntax::{BindingKind, DefinitionKind};

use super::classes::Member;
use super::{MemberAccess, Place, Resolver, Target, Value};
use crate::source::Source;

/// Methods of the standard library that common types have: such a name says nothing about a trait of the workspace.
const STD_METHODS: &[&str] = &[
    "abs",
    "all",
    "and_then",
    "any",
    "append",
    "as_bytes",
    "as_deref",
    "as_mut",
    "as_ref",
    "as_slice",
    "as_str",
    "borrow",
    "borrow_mut",
    "bytes",
    "chain",
    "chars",
    "chunks",
    "clear",
    "clone",
    "cloned",
    "cmp",
    "collect",
    "concat",
    "contains",
    "contains_key",
    "copied",
    "count",
    "cycle",
    "dedup",
    "default",
    "deref",
    "deref_mut",
    "display",
    "drain",
    "drop",
    "ends_with",
    "entry",
    "enumerate",
    "eq",
    "err",
    "expect",
    "extend",
    "extend_from_slice",
    "fill",
    "filter",
    "filter_map",
    "find",
    "find_map",
    "first",
    "flat_map",
    "flatten",
    "flush",
    "fmt",
    "fold",
    "for_each",
    "from",
    "fuse",
    "ge",
    "get",
    "get_mut",
    "gt",
    "hash",
    "index",
    "insert",
    "inspect",
    "into",
    "into_inner",
    "into_iter",
    "is_empty",
    "is_err",
    "is_none",
    "is_ok",
    "is_some",
    "iter",
    "iter_mut",
    "join",
    "keys",
    "last",
    "le",
    "len",
    "lines",
    "lock",
    "lt",
    "map",
    "map_err",
    "map_or",
    "max",
    "max_by",
    "max_by_key",
    "min",
    "min_by",
    "min_by_key",
    "ne",
    "next",
    "next_back",
    "nth",
    "ok",
    "ok_or",
    "or_else",
    "parse",
    "partial_cmp",
    "partition",
    "peek",
    "peekable",
    "poll",
    "pop",
    "position",
    "pow",
    "product",
    "push",
    "push_str",
    "read",
    "read_to_end",
    "read_to_string",
    "recv",
    "reduce",
    "remove",
    "repeat",
    "replace",
    "reserve",
    "resize",
    "retain",
    "rev",
    "reverse",
    "rposition",
    "scan",
    "seek",
    "send",
    "size_hint",
    "skip",
    "skip_while",
    "sort",
    "sort_by",
    "sort_by_key",
    "source",
    "splice",
    "split",
    "split_at",
    "split_at_mut",
    "split_off",
    "starts_with",
    "step_by",
    "sub",
    "sum",
    "swap",
    "swap_remove",
    "take",
    "take_while",
    "to_owned",
    "to_string",
    "to_vec",
    "trim",
    "truncate",
    "try_fold",
    "try_from",
    "try_into",
    "unwrap",
    "unwrap_or",
    "unwrap_or_default",
    "unwrap_or_else",
    "unzip",
    "values",
    "windows",
    "with_capacity",
    "wrapping_add",
    "write",
    "write_all",
    "write_fmt",
    "write_str",
    "zip",
];
/// Definitions of one name that are looked at.
const MAX_METHODS: usize = 200;

/// The methods of one name in the workspace.
pub(super) struct MethodsOfName {
    /// Methods of traits, with their traits.
    of_traits: Vec<(Place, Place)>,
    /// Whether a type has such a method itself.
    inherent: bool,
}

impl Resolver<'_, '_, '_> {
    /// The targets of a method call; if its receiver is not known to have the method, that of the one trait in scope which has
    /// it: a trait is often implemented for types from outside, for all iterators, or by a macro.
    pub(super) fn or_trait_method(
        &mut self,
        source: &Rc<Source>,
        scope: usize,
        name: &str,
        values: &[Value],
        found: Vec<Target>,
    ) -> Vec<Target> {
        let missing = |target: &Target| matches!(target, Target::External | Target::Unknown);
        let is_module = |value: &Value| matches!(value, Value::Module(_) | Value::Folder(_));
        if !found.iter().all(missing)
            || values.iter().any(is_module)
            || STD_METHODS.binary_search(&name).is_ok()
        {
            return found;
        }
        let unknown = values.is_empty() || found.iter().any(|one| matches!(one, Target::Unknown));
        match self.trait_method(source, scope, name, unknown) {
            Some(place) => vec![Target::Binding(place, None)],
            None => found,
        }
    }

    fn trait_method(
        &mut self,
        source: &Rc<Source>,
        scope: usize,
        name: &str,
        unknown: bool,
    ) -> Option<Place> {
        let methods = self.methods_named(name);
        // A type of the workspace that has such a method itself may be what is not known.
        if methods.inherent && unknown {
            return None;
        }
        let mut in_scope = Vec::new();
        for (method, of) in &methods.of_traits {
            let trait_name = of.source.names().binding(of.binding).name.clone();
            let named = self.name(source, scope, &trait_name, None);
            let visible = named.iter().any(
                |target| matches!(target, Target::Binding(place, _) if place.key() == of.key()),
            );
            if visible {
                in_scope.push(method.clone());
            }
        }
        match in_scope.as_slice() {
            [one] => Some(one.clone()),
            _ => None,
        }
    }

    fn methods_named(&mut self, name: &str) -> Rc<MethodsOfName> {
        if let Some(known) = self.methods.get(name) {
            return known.clone();
        }
        let mut found = MethodsOfName {
            of_traits: Vec::new(),
            inherent: false,
        };
        let rows = self.catalog.symbols_named(name, MAX_METHODS);
        for row in rows.unwrap_or_default() {
            if row.symbol.kind != DefinitionKind::Function || row.symbol.scope.is_empty() {
                continue;
            }
            let file = self.catalog.file(row.file).ok().flatten();
            let file = file.filter(|file| file.path.ends_with(".rs"));
            let Some(source) = file.and_then(|file| self.sources.get(&file.path)) else {
                continue;
            };
            let table = source.names();
            let mut named = table.named(name).iter().copied();
            let binding = named.find(|binding| table.line_of(*binding) == row.symbol.line);
            let opener = binding.and_then(|binding| {
                let opener = table.opener(table.binding(binding).scope)?;
                Some((binding, opener))
            });
            let Some((binding, opener)) = opener else {
                continue;
            };
            let place = |binding| Place {
                source: source.clone(),
                binding,
            };
            match table.binding(opener).kind {
                // Of all types only a trait has its methods in its own braces.
                BindingKind::Class => found.of_traits.push((place(binding), place(opener))),
                BindingKind::Impl => found.inherent |= table.binding(opener).chain.is_empty(),
                _ => {}
            }
        }
        let found = Rc::new(found);
        self.methods.insert(name.to_owned(), found.clone());
        found
    }

    /// What `name!` means: by scopes and imports, else the only macro of that name in the crate, since macros are known in the
    /// modules below and behind them.
    pub(super) fn macro_named(
        &mut self,
        source: &Rc<Source>,
        scope: usize,
        name: &str,
    ) -> Vec<Target> {
        let found = self.name(source, scope, name, None);
        let is_function = |target: &Target| matches!(target, Target::Binding(place, _) if place.kind() == BindingKind::Function);
        if found.iter().any(is_function) {
            return found;
        }
        let root = self.modules.rust_root(&source.path, self.catalog);
        let mut macros = Vec::new();
        let rows = self.catalog.symbols_named(name, MAX_METHODS);
        for row in rows.unwrap_or_default() {
            let file = self.catalog.file(row.file).ok().flatten();
            let file = file.filter(|_| row.symbol.kind == DefinitionKind::Macro);
            let Some(file) = file.filter(|file| file.path.ends_with(".rs")) else {
                continue;
            };
            if self.modules.rust_root(&file.path, self.catalog) != root {
                continue;
            }
            let Some(source) = self.sources.get(&file.path) else {
                continue;
            };
            let table = source.names();
            let mut named = table.named(name).iter().copied();
            if let Some(binding) = named.find(|one| table.line_of(*one) == row.symbol.line) {
                macros.push(Place {
                    source: source.clone(),
                    binding,
                });
            }
        }
        match macros.as_slice() {
            [one] => vec![Target::Binding(one.clone(), None)],
            _ => found,
        }
    }

    /// A field of variants and structs, as a pattern names it.
    pub(super) fn fields_of(&mut self, owners: &[Target], field: &str) -> Vec<Target> {
        let mut found = Vec::new();
        for owner in owners {
            let Target::Binding(place, _) = owner else {
                found.push(owner.clone());
                continue;
            };
            let table = place.source.names();
            let binding = table.binding(place.binding);
            if binding.kind == BindingKind::Field {
                let name = format!("{}#{field}", binding.name);
                let fields = table.named_in(binding.scope, &name);
                found.extend(fields.into_iter().map(|binding| {
                    let source = place.source.clone();
                    Target::Binding(Place { source, binding }, None)
                }));
                continue;
            }
            for value in self.values_of(owner) {
                let Value::Object(class) = value else {
                    found.push(Target::Unknown);
                    continue;
                };
                match self.class_member(&class, field, MemberAccess::Read, 0) {
                    Member::Found(place) => found.push(Target::Binding(place, None)),
                    _ => found.push(Target::Unknown),
                }
            }
        }
        found
    }
}
