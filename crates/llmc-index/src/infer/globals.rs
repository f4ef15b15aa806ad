//! Names of TypeScript that every file knows, because a file declares them so.

use std::collections::HashSet;

use llmc_syntax::BindingKind;

use super::{Place, Resolver, Target, is_script};

/// Files read for the declarations of one global name.
const MAX_GLOBAL_FILES: usize = 150;

impl Resolver<'_, '_, '_> {
    /// What a global name means: one declaration of its type, to which the others add, and its values.
    pub(super) fn global(&mut self, name: &str) -> Vec<Target> {
        let mut has_type = false;
        let mut found = Vec::new();
        for place in self.global_places(name) {
            let is_type = place.kind() == BindingKind::Class;
            if !is_type || !std::mem::replace(&mut has_type, true) {
                found.push(Target::Binding(place, None));
            }
        }
        found
    }

    /// The other declarations of a global type.
    pub(super) fn global_additions(&mut self, class: &Place) -> Vec<Place> {
        let table = class.source.names();
        let binding = table.binding(class.binding);
        if !table.is_global(binding.scope) {
            return Vec::new();
        }
        let mut all = self.global_places(&binding.name);
        all.retain(|one| one.kind() == BindingKind::Class && one.key() != class.key());
        all
    }

    /// How many other declarations of its name stand where a declaration of a script does.
    pub(crate) fn declarations_beside(&mut self, place: &Place) -> usize {
        let table = place.source.names();
        let binding = table.binding(place.binding);
        if !is_script(table.language) {
            return 0;
        }
        let beside = table.named_in(binding.scope, &binding.name).len();
        let global = match table.is_global(binding.scope) {
            true => self.global_places(&binding.name).len(),
            false => 0,
        };
        beside.max(global).saturating_sub(1)
    }

    fn global_places(&mut self, name: &str) -> Vec<Place> {
        if let Some(known) = self.globals.get(name) {
            return known.clone();
        }
        let rows = self.catalog.symbols_named(name, 400).unwrap_or_default();
        let mut files = HashSet::new();
        let mut found = Vec::new();
        for row in rows {
            if files.len() >= MAX_GLOBAL_FILES || !files.insert(row.file) {
                continue;
            }
            let file = self.catalog.file(row.file).ok().flatten();
            let source = file.and_then(|file| self.sources.get(&file.path));
            let Some(source) = source.filter(|source| source.has_globals()) else {
                continue;
            };
            let table = source.names();
            for binding in table.named(name) {
                if table.is_global(table.binding(*binding).scope) {
                    let source = source.clone();
                    let binding = *binding;
                    found.push(Place { source, binding });
                }
            }
        }
        self.globals.insert(name.to_owned(), found.clone());
        found
    }
}
