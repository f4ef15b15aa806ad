//! Classes: what they derive from, and their members.

use std::collections::HashSet;
use std::rc::Rc;

use llmc_syntax::{BindingKind, DefinitionKind, Language, ScopeKind};

use super::chains::split_top;
use super::{
    DefinitionId, MemberAccess, Place, Resolver, Target, Value, builtin_member, is_script,
};
use crate::source::Source;

/// Bases above one another that are followed.
const MAX_BASES: usize = 12;

/// A member of a class.
pub(super) enum Member {
    Found(Place),
    Missing,
    /// The class derives from something that is not known.
    Maybe,
}

impl Resolver<'_, '_, '_> {
    /// The class around a scope, or the one whose method is being followed.
    pub(super) fn own_class(&mut self, source: &Rc<Source>, scope: usize) -> Vec<Target> {
        let table = source.names();
        let Some(members) = table.members_around(scope) else {
            return vec![Target::Unknown];
        };
        let Some(opener) = table.opener(members) else {
            return vec![Target::Unknown];
        };
        let class = match table.binding(opener).kind {
            BindingKind::Impl => self.class_of_impl(source, opener),
            _ => Place {
                source: source.clone(),
                binding: opener,
            },
        };
        if let Some(receiver) = self.receiver.clone()
            && self.derives(&receiver, &class, 0)
        {
            return vec![Target::Binding(receiver, None)];
        }
        vec![Target::Binding(class, None)]
    }

    /// The class that a members' scope belongs to.
    pub(crate) fn class_around(&mut self, source: &Rc<Source>, scope: usize) -> Option<Place> {
        let outer = self.receiver.take();
        let found = self.own_class(source, scope);
        self.receiver = outer;
        found.into_iter().find_map(|target| match target {
            Target::Binding(class, _) => Some(class),
            _ => None,
        })
    }

    pub(super) fn own_bases(&mut self, source: &Rc<Source>, scope: usize) -> Vec<Target> {
        let outer = self.receiver.take();
        let own = self.own_class(source, scope);
        self.receiver = outer;
        let mut found = Vec::new();
        for target in own {
            if let Target::Binding(class, _) = target {
                for value in self.bases(&class) {
                    found.push(match value {
                        Value::Object(base) => Target::Binding(base, None),
                        Value::External => Target::External,
                        Value::Builtin(kind) => Target::Builtin(kind),
                        _ => Target::Unknown,
                    });
                }
            }
        }
        found
    }

    pub(super) fn this_module(&mut self, source: &Rc<Source>, scope: usize) -> Vec<Target> {
        let table = source.names();
        let module = table.module_around(scope);
        match table.opener(module) {
            Some(binding) => vec![Target::Binding(
                Place {
                    source: source.clone(),
                    binding,
                },
                None,
            )],
            None => vec![Target::Module(source.clone())],
        }
    }

    pub(super) fn outer_module(&mut self, source: &Rc<Source>, scope: usize) -> Vec<Target> {
        let table = source.names();
        let module = table.module_around(scope);
        if table.kind(module) == ScopeKind::Namespace {
            let outer = table.parent(module);
            return self.this_module(source, outer);
        }
        match self.modules.rust_parent(&source.path, self.catalog) {
            Some(path) => self.file(&path),
            None => vec![Target::External],
        }
    }

    pub(super) fn crate_root(&mut self, source: &Rc<Source>) -> Vec<Target> {
        let root = self.modules.rust_root(&source.path, self.catalog);
        self.module_at(root)
    }

    /// The class that an impl block adds to; the block itself if that is from outside.
    pub(crate) fn class_of_impl(&mut self, source: &Rc<Source>, binding: usize) -> Place {
        let found = source.names().binding(binding);
        let (scope, name) = (found.scope, found.name.clone());
        for target in self.name(source, scope, &name, None) {
            let Target::Binding(place, _) = &target else {
                continue;
            };
            match place.kind() {
                BindingKind::Class => return place.clone(),
                // Another name of a type.
                BindingKind::Variable => {
                    let values = self.values_of(&target);
                    let class = values.into_iter().find_map(|value| match value {
                        Value::Object(class) => Some(class),
                        _ => None,
                    });
                    if let Some(class) = class {
                        return class;
                    }
                }
                _ => {}
            }
        }
        Place {
            source: source.clone(),
            binding,
        }
    }

    /// What a class derives from.
    pub(crate) fn bases(&mut self, class: &Place) -> Vec<Value> {
        let binding = class.source.names().binding(class.binding);
        if binding.chain.is_empty() || !self.step() {
            return Vec::new();
        }
        let chain = binding.chain.clone();
        let scope = binding.scope;
        let outer = self.receiver.take();
        let mut found = Vec::new();
        for base in split_top(&chain, ',') {
            let values = self.chain(&class.source, scope, base);
            found.extend(values.into_iter().filter(|value| match value {
                Value::Object(base) => base.key() != class.key(),
                _ => true,
            }));
        }
        self.receiver = outer;
        found
    }

    /// Whether a class is another one or derives from it.
    pub(crate) fn derives(&mut self, class: &Place, from: &Place, depth: usize) -> bool {
        if class.key() == from.key() {
            return true;
        }
        if depth > 8 {
            return false;
        }
        self.all_bases(class).into_iter().any(|base| match base {
            Value::Object(base) => self.derives(&base, from, depth + 1),
            _ => false,
        })
    }

    /// What a class derives from, with the traits of its impl blocks.
    fn all_bases(&mut self, class: &Place) -> Vec<Value> {
        let mut found = self.bases(class);
        for place in self.impls(class) {
            found.extend(self.bases(&place));
        }
        found
    }

    /// What adds to a class from elsewhere: its impl blocks, the other declarations of a global type.
    fn impls(&mut self, class: &Place) -> Vec<Place> {
        if is_script(class.source.names().language) {
            return self.global_additions(class);
        }
        if class.source.names().language != Some(Language::Rust)
            || class.kind() != BindingKind::Class
        {
            return Vec::new();
        }
        if let Some(known) = self.impls.get(&class.key()) {
            return known.clone();
        }
        let mut found = Vec::new();
        for name in names_of_type(class) {
            let rows = self.catalog.symbols_named(&name, 200).unwrap_or_default();
            let mut files: Vec<u64> = rows
                .iter()
                .filter(|row| row.symbol.kind == DefinitionKind::Impl)
                .map(|row| row.file)
                .collect();
            files.dedup();
            for file in files {
                let Some(row) = self.catalog.file(file).ok().flatten() else {
                    continue;
                };
                let Some(source) = self.sources.get(&row.path) else {
                    continue;
                };
                for binding in source.names().named(&name) {
                    if source.names().binding(*binding).kind == BindingKind::Impl
                        && self.class_of_impl(&source, *binding).key() == class.key()
                    {
                        found.push(Place {
                            source: source.clone(),
                            binding: *binding,
                        });
                    }
                }
            }
        }
        // Out of steps, some may be missing.
        if self.has_steps() {
            self.impls.insert(class.key(), found.clone());
        }
        found
    }

    pub(super) fn class_member(
        &mut self,
        class: &Place,
        name: &str,
        access: MemberAccess,
        depth: usize,
    ) -> Member {
        if depth > MAX_BASES || !self.step() {
            return Member::Maybe;
        }
        let impls = self.impls(class);
        let own = std::iter::once(class).chain(&impls);
        let own = own.filter_map(|place| {
            let member = own_member(place, name)?;
            let other_kind = matches!(
                (access, member.kind()),
                (MemberAccess::Called, BindingKind::Field)
                    | (MemberAccess::Read, BindingKind::Function)
            );
            // A type's own method comes before that of a trait.
            let block = place.source.names().binding(place.binding);
            let of_trait = block.kind == BindingKind::Impl && !block.chain.is_empty();
            Some(((other_kind, of_trait), member))
        });
        if let Some((_, found)) = own.min_by_key(|(order, _)| *order) {
            return Member::Found(found);
        }
        let mut bases = self.bases(class);
        for place in &impls {
            bases.extend(self.bases(place));
        }
        let mut unknown = false;
        for base in bases {
            match base {
                Value::Object(base) => match self.class_member(&base, name, access, depth + 1) {
                    Member::Found(found) => return Member::Found(found),
                    Member::Maybe => unknown = true,
                    Member::Missing => {}
                },
                Value::External | Value::Builtin(_) => {}
                _ => unknown = true,
            }
        }
        if unknown {
            Member::Maybe
        } else {
            Member::Missing
        }
    }

    /// The same member in the classes above: what an override overrides, itself included.
    pub(crate) fn overridden(&mut self, place: &Place) -> Vec<DefinitionId> {
        let table = place.source.names();
        let binding = table.binding(place.binding);
        let name = binding.name.clone();
        let mut found = vec![place.identity()];
        let Some(opener) = table.opener(binding.scope) else {
            return found;
        };
        let own = Place {
            source: place.source.clone(),
            binding: opener,
        };
        let mut next = self.all_bases(&own);
        let mut seen = HashSet::new();
        while let Some(value) = next.pop() {
            let base = match value {
                Value::Object(base) => base,
                Value::Builtin(kind) => {
                    found.push(builtin_member(&kind, &name));
                    continue;
                }
                _ => continue,
            };
            if !seen.insert(base.key()) || seen.len() > 30 {
                continue;
            }
            if let Some(member) = own_member(&base, &name) {
                found.push(member.identity());
            }
            next.extend(self.all_bases(&base));
        }
        found
    }
}

/// The name of a class, and its other names in its own file: `type Pool = Shared;`.
fn names_of_type(class: &Place) -> Vec<String> {
    let table = class.source.names();
    let own = table.binding(class.binding);
    let other = table.bound_in(own.scope).filter(|binding| {
        let names = binding.chain.strip_prefix('<');
        let named = names.and_then(|names| names.strip_prefix(&own.name));
        binding.kind == BindingKind::Variable
            && named.is_some_and(|rest| rest.starts_with(['>', ',']))
    });
    let names = other.map(|binding| binding.name.clone());
    std::iter::once(own.name.clone()).chain(names).collect()
}

/// A member that a class has itself; methods before values of that name.
fn own_member(class: &Place, name: &str) -> Option<Place> {
    let table = class.source.names();
    let inner = table.binding(class.binding).inner?;
    let binding = table
        .named_in(inner, name)
        .into_iter()
        .min_by_key(|place| {
            let kind = table.binding(*place).kind;
            matches!(kind, BindingKind::Field | BindingKind::Variable)
        })?;
    Some(Place {
        source: class.source.clone(),
        binding,
    })
}
