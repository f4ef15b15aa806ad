//! The scopes of one file, with a way to look names up in them.

use std::collections::HashMap;

use llmc_syntax::{Binding, BindingKind, FileScopes, Language, ScopeKind};

use crate::infer::is_script;

/// A file's scopes and bindings by name.
#[derive(Debug, Default)]
pub(crate) struct NameTable {
    pub(crate) language: Option<Language>,
    found: FileScopes,
    by_name: HashMap<String, Vec<usize>>,
    /// The binding that opens a scope.
    openers: HashMap<usize, usize>,
    line_starts: Vec<usize>,
    /// The names of the file itself are known in every file: a declaration file without imports and exports.
    global: bool,
}

impl NameTable {
    pub(crate) fn new(language: Option<Language>, found: FileScopes, text: &str) -> Self {
        let mut by_name: HashMap<String, Vec<usize>> = HashMap::new();
        let mut openers = HashMap::new();
        for (place, binding) in found.bindings.iter().enumerate() {
            by_name.entry(binding.name.clone()).or_default().push(place);
            if let Some(inner) = binding.inner {
                openers.insert(inner, place);
            }
        }
        let ends = memchr::memchr_iter(b'\n', text.as_bytes()).map(|at| at + 1);
        Self {
            language,
            found,
            by_name,
            openers,
            line_starts: std::iter::once(0).chain(ends).collect(),
            global: false,
        }
    }

    /// Makes the names of the file itself global.
    pub(crate) fn with_global_names(mut self) -> Self {
        self.global = true;
        self
    }

    /// Whether the names of a scope are known in every file: those of a `declare global` block.
    pub(crate) fn is_global(&self, scope: usize) -> bool {
        if scope == 0 {
            return self.global;
        }
        let named = |binding: usize| self.found.bindings[binding].name == "global";
        self.kind(scope) == ScopeKind::Namespace
            && is_script(self.language)
            && self.opener(scope).is_some_and(named)
    }

    /// Whether names of this file can be resolved.
    pub(crate) fn is_known(&self) -> bool {
        !self.found.scopes.is_empty()
    }

    pub(crate) fn binding(&self, place: usize) -> &Binding {
        &self.found.bindings[place]
    }

    pub(crate) fn line_of(&self, place: usize) -> u32 {
        let start = self.found.bindings[place].start;
        let line = self.line_starts.partition_point(|known| *known <= start);
        u32::try_from(line).unwrap_or(u32::MAX)
    }

    /// Bindings of a name, in any scope.
    pub(crate) fn named(&self, name: &str) -> &[usize] {
        self.by_name.get(name).map_or(&[], Vec::as_slice)
    }

    /// Bindings of a name that belong to a scope itself.
    pub(crate) fn named_in(&self, scope: usize, name: &str) -> Vec<usize> {
        let named = self.named(name).iter().copied();
        named
            .filter(|place| self.found.bindings[*place].scope == scope)
            .collect()
    }

    /// Every binding that belongs to a scope itself.
    pub(crate) fn bound_in(&self, scope: usize) -> impl Iterator<Item = &Binding> {
        let bindings = self.found.bindings.iter();
        bindings.filter(move |binding| binding.scope == scope)
    }

    /// The names under which the file imports or exports what is called `name` elsewhere.
    pub(crate) fn aliases_of(&self, name: &str) -> Vec<&str> {
        let bindings = self.found.bindings.iter();
        let renamed = bindings.filter(|binding| {
            let kind = matches!(binding.kind, BindingKind::Import | BindingKind::Export);
            let original = binding.chain.rsplit('|').next();
            kind && original == Some(name) && binding.name != name && binding.name != "default"
        });
        renamed.map(|binding| binding.name.as_str()).collect()
    }

    /// The binding whose name starts there.
    pub(crate) fn bound_at(&self, name: &str, start: usize) -> Option<usize> {
        // An import under another name stands at the name that it imports.
        let named = self.named(name).iter().copied();
        let found = named
            .filter(|place| self.found.bindings[*place].start == start)
            .min_by_key(|place| self.found.bindings[*place].kind == BindingKind::Variable);
        found.or_else(|| {
            self.found.bindings.iter().position(|one| {
                one.start == start && matches!(one.kind, BindingKind::Import | BindingKind::Export)
            })
        })
    }

    /// What stands before the member that starts there; empty for a label.
    pub(crate) fn receiver(&self, start: usize) -> Option<&str> {
        let receivers = &self.found.receivers;
        let place = receivers
            .binary_search_by_key(&start, |one| one.start)
            .ok()?;
        Some(&receivers[place].chain)
    }

    /// Whether the name that starts there stands in the place of a type.
    pub(crate) fn is_type_name(&self, start: usize) -> bool {
        self.found.type_names.binary_search(&start).is_ok()
    }

    pub(crate) fn scope_at(&self, offset: usize) -> usize {
        // Later scopes lie inside of earlier ones.
        let inside = |scope: &llmc_syntax::Scope| scope.start <= offset && offset < scope.end;
        self.found.scopes.iter().rposition(inside).unwrap_or(0)
    }

    pub(crate) fn kind(&self, scope: usize) -> ScopeKind {
        self.found.scopes[scope].kind
    }

    pub(crate) fn parent(&self, scope: usize) -> usize {
        self.found.scopes[scope].parent
    }

    pub(crate) fn opener(&self, scope: usize) -> Option<usize> {
        self.openers.get(&scope).copied()
    }

    /// The scope of the innermost class or object around a scope.
    pub(crate) fn members_around(&self, mut scope: usize) -> Option<usize> {
        loop {
            match self.kind(scope) {
                ScopeKind::Members => return Some(scope),
                ScopeKind::Module | ScopeKind::Namespace => return None,
                ScopeKind::Function | ScopeKind::Block => scope = self.parent(scope),
            }
        }
    }

    /// The scope of the innermost module around a scope.
    pub(crate) fn module_around(&self, mut scope: usize) -> usize {
        loop {
            match self.kind(scope) {
                ScopeKind::Module | ScopeKind::Namespace => return scope,
                _ => scope = self.parent(scope),
            }
        }
    }

    /// The bindings that a bare name means in a scope: those of the innermost scope that has any.
    pub(crate) fn lexical(&self, from: usize, name: &str, skip: Option<usize>) -> Vec<usize> {
        let all = self.named(name);
        if all.is_empty() {
            return Vec::new();
        }
        let mut scope = from;
        loop {
            let kind = self.kind(scope);
            let visible = |place: &&usize| {
                let binding = &self.found.bindings[**place];
                if binding.scope != scope || Some(**place) == skip {
                    return false;
                }
                match (binding.kind, kind) {
                    (BindingKind::Impl | BindingKind::Export, _) => false,
                    // The body of a Python class sees its own names; methods do not, and what they assign to
                    // `self` is no name.
                    (kind, ScopeKind::Members) if self.language == Some(Language::Python) => {
                        let attribute = kind == BindingKind::Field && binding.context != scope;
                        scope == from && !attribute
                    }
                    (BindingKind::Variable, ScopeKind::Members) => true,
                    (_, ScopeKind::Members) => false,
                    _ => true,
                }
            };
            let found: Vec<usize> = all.iter().filter(visible).copied().collect();
            if !found.is_empty() {
                return found;
            }
            let ends = match kind {
                ScopeKind::Module => true,
                ScopeKind::Namespace => self.language == Some(Language::Rust),
                _ => false,
            };
            if ends {
                return Vec::new();
            }
            scope = self.parent(scope);
        }
    }
}
