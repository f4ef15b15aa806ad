//! What names and expressions mean, over the files of the workspace, as far as syntax tells.
//!
//! A type is a set of classes: an annotation means every class that it names, so `list[Pool]`, `Optional[Pool]` and
//! `Pool` are the same, and an element, a call or an `await` of it as well. That is enough to find the class of a
//! member's receiver. Instances and classes are not told apart. What the workspace does not define is
//! [`Value::External`]; what cannot be known is [`Value::Unknown`].

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use llmc_syntax::{BindingKind, DefinitionKind, Language, Reference, ScopeKind};

use crate::catalog::Catalog;
use crate::modules::{ModulePath, Modules, folder_of};
use crate::source::{Source, Sources};

/// Steps to resolve one name; code that needs more is generated.
const MAX_STEPS: usize = 4000;
/// Expressions in one another.
const MAX_INFER_DEPTH: usize = 40;
/// Values that one expression may have.
const MAX_VALUES: usize = 12;
/// Methods that return what they are called on, or what it wraps.
const RUST_WRAPPER_METHODS: &[&str] = &[
    "unwrap",
    "expect",
    "clone",
    "as_ref",
    "as_mut",
    "iter",
    "iter_mut",
    "into_iter",
    "borrow",
    "borrow_mut",
    "lock",
    "read",
    "write",
    "to_owned",
    "unwrap_or_default",
    "unwrap_or",
    "take",
    "cloned",
    "copied",
    "get",
    "get_mut",
    "first",
    "last",
    "next",
    "pop",
    "ok",
    "unwrap_or_else",
    "deref",
    "as_deref",
    "filter",
    "rev",
    "peekable",
    "skip",
    "by_ref",
    "or_else",
    "map_err",
    "ok_or",
    "ok_or_else",
    "await",
    "remove",
    "collect",
    "insert",
    "as_deref_mut",
    "to_vec",
];

/// Types whose members are those of their arguments.
const TRANSPARENT_TYPES: &[&str] = &[
    "Optional",
    "Union",
    "Type",
    "type",
    "ClassVar",
    "Final",
    "Annotated",
    "Callable",
    "Readonly",
    "Partial",
    "Required",
    "NonNullable",
    "Omit",
    "Pick",
    "InstanceType",
    "Box",
    "Rc",
    "Arc",
    "Cow",
    "Ref",
    "RefMut",
    "MutexGuard",
    "RwLockReadGuard",
    "RwLockWriteGuard",
    "Pin",
];

/// A binding in a file.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) source: Rc<Source>,
    pub(crate) binding: usize,
}

impl Place {
    fn key(&self) -> (String, usize) {
        (self.source.path.clone(), self.binding)
    }

    /// What all definitions of one name in one scope share.
    pub(crate) fn identity(&self) -> (String, usize, String) {
        let binding = self.source.names().binding(self.binding);
        (
            self.source.path.clone(),
            binding.scope,
            binding.name.clone(),
        )
    }

    pub(crate) fn kind(&self) -> BindingKind {
        self.source.names().binding(self.binding).kind
    }
}

#[derive(Clone)]
pub(crate) enum Value {
    /// A class, or an instance of it.
    Object(Place),
    /// With the class that it was found on.
    Function(Place, Option<Place>),
    /// An instance of some other type that holds such objects.
    Holder(Place),
    Module(Rc<Source>),
    Folder(String),
    External,
    Unknown,
}

/// What a name stands for.
#[derive(Clone)]
pub(crate) enum Target {
    Binding(Place, Option<Place>),
    Module(Rc<Source>),
    Folder(String),
    External,
    Unknown,
}

/// A member of a class.
enum Member {
    Found(Place),
    Missing,
    /// The class derives from something that is not known.
    Maybe,
}

pub(crate) struct Resolver<'c, 's, 'r> {
    pub(crate) catalog: &'c Catalog,
    pub(crate) sources: &'s mut Sources<'r>,
    modules: Modules,
    values: HashMap<(String, usize), Vec<Value>>,
    open: HashSet<(String, usize)>,
    /// The class whose method is followed, which `self` then means.
    receiver: Option<Place>,
    steps: usize,
    depth: usize,
}

impl<'c, 's, 'r> Resolver<'c, 's, 'r> {
    pub(crate) fn new(catalog: &'c Catalog, sources: &'s mut Sources<'r>) -> Self {
        Self {
            catalog,
            sources,
            modules: Modules::default(),
            values: HashMap::new(),
            open: HashSet::new(),
            receiver: None,
            steps: 0,
            depth: 0,
        }
    }

    /// Starts the count of steps anew, for the next name.
    pub(crate) fn begin(&mut self) {
        self.steps = 0;
        self.depth = 0;
        self.open.clear();
        self.receiver = None;
    }

    /// What a reference means: by its receiver if it is a member, else by the scopes around it.
    pub(crate) fn targets(&mut self, source: &Rc<Source>, reference: &Reference) -> Vec<Target> {
        self.begin();
        let table = source.names();
        let name = reference.name.as_str();
        let scope = table.scope_at(reference.start);
        if let Some(chain) = table.receiver(reference.start) {
            let chain = chain.to_owned();
            let values = self.chain(source, scope, &chain);
            return self.members(&values, name);
        }
        if let Some(binding) = table.bound_at(name, reference.start) {
            return self.follow(Place {
                source: source.clone(),
                binding,
            });
        }
        match reference.qualifier(&source.text) {
            // Inside of an annotation that is written as a string.
            Some(before) if table.language == Some(Language::Python) => {
                let values = self.chain(source, scope, before);
                self.members(&values, name)
            }
            _ => self.name(source, scope, name, None),
        }
    }

    /// What a bare name means in a scope.
    pub(crate) fn name(
        &mut self,
        source: &Rc<Source>,
        scope: usize,
        name: &str,
        skip: Option<usize>,
    ) -> Vec<Target> {
        let table = source.names();
        let language = table.language;
        match name {
            "this" | "Self" if language != Some(Language::Python) => {
                return self.own_class(source, scope);
            }
            "super" if language != Some(Language::Rust) => return self.own_bases(source, scope),
            "super" => return self.outer_module(source, scope),
            "crate" => return self.crate_root(source),
            _ => {}
        }
        let found = table.lexical(scope, name, skip);
        if !found.is_empty() {
            let targets = found.into_iter().flat_map(|binding| {
                let place = Place {
                    source: source.clone(),
                    binding,
                };
                self.follow(place)
            });
            return targets.collect();
        }
        if name == "self" && language == Some(Language::Rust) {
            return self.this_module(source, scope);
        }
        let module = table.module_around(scope);
        let starred = self.starred(source, module, name);
        if !starred.is_empty() {
            return starred;
        }
        if language == Some(Language::Rust)
            && let Some(path) = self.modules.rust_crate(name, self.catalog, self.sources)
        {
            return self.file(&path);
        }
        vec![Target::External]
    }

    /// What the imports of everything bring under a name.
    fn starred(&mut self, source: &Rc<Source>, scope: usize, name: &str) -> Vec<Target> {
        for binding in source.names().named_in(scope, "*") {
            if !self.step() || !self.open.insert((source.path.clone(), binding)) {
                continue;
            }
            let module = source.names().binding(binding).chain.clone();
            let found = self.module(source, scope, &module, Some(binding));
            let targets = self.members_of_targets(&found, name);
            self.open.remove(&(source.path.clone(), binding));
            if targets
                .iter()
                .any(|target| !matches!(target, Target::External | Target::Unknown))
            {
                return targets;
            }
        }
        Vec::new()
    }

    /// Follows an import to what it imports.
    pub(crate) fn follow(&mut self, place: Place) -> Vec<Target> {
        let binding = place.source.names().binding(place.binding);
        if !matches!(binding.kind, BindingKind::Import | BindingKind::Export) {
            return vec![Target::Binding(place, None)];
        }
        if !self.step() || !self.open.insert(place.key()) {
            return Vec::new();
        }
        let (module, name) = binding
            .chain
            .split_once('|')
            .unwrap_or((&binding.chain, ""));
        let (source, scope) = (place.source.clone(), binding.scope);
        let found = if binding.kind == BindingKind::Export && module.is_empty() {
            self.name(&source, scope, name, Some(place.binding))
        } else {
            let modules = self.module(&source, scope, module, Some(place.binding));
            if name.is_empty() {
                modules
            } else if module.is_empty() {
                self.name(&source, scope, name, Some(place.binding))
            } else {
                self.members_of_targets(&modules, name)
            }
        };
        self.open.remove(&place.key());
        found
    }

    /// The module that an import names.
    fn module(
        &mut self,
        source: &Rc<Source>,
        scope: usize,
        module: &str,
        skip: Option<usize>,
    ) -> Vec<Target> {
        let language = source.names().language;
        if language == Some(Language::Rust) {
            if let Some(child) = module.strip_prefix("mod.") {
                let path = self.modules.rust_child(&source.path, child, self.catalog);
                return path.map_or(vec![Target::External], |path| self.file(&path));
            }
            let mut names = module.split('.');
            let first = names.next().unwrap_or_default();
            let mut found = self.name(source, scope, first, skip);
            for name in names {
                found = self.members_of_targets(&found, name);
            }
            return found;
        }
        let found = self
            .modules
            .find(language, &source.path, module, self.catalog, self.sources);
        match found {
            Some(ModulePath::File(path)) => self.file(&path),
            Some(ModulePath::Folder(folder)) => vec![Target::Folder(folder)],
            None => vec![Target::External],
        }
    }

    fn file(&mut self, path: &str) -> Vec<Target> {
        match self.sources.get(path) {
            Some(source) => vec![Target::Module(source)],
            None => vec![Target::External],
        }
    }

    fn members_of_targets(&mut self, targets: &[Target], name: &str) -> Vec<Target> {
        let values: Vec<Value> = targets
            .iter()
            .flat_map(|target| self.values_of(target))
            .collect();
        self.members(&values, name)
    }

    /// What a member of these values is.
    pub(crate) fn members(&mut self, values: &[Value], name: &str) -> Vec<Target> {
        let mut found = Vec::new();
        for value in values.iter().take(MAX_VALUES) {
            match value {
                Value::Object(class) => match self.class_member(class, name, 0) {
                    Member::Found(place) => {
                        let followed = self.follow(place);
                        found.extend(followed.into_iter().map(|target| match target {
                            Target::Binding(place, _) => {
                                Target::Binding(place, Some(class.clone()))
                            }
                            other => other,
                        }));
                    }
                    Member::Missing => found.push(Target::External),
                    Member::Maybe => found.push(Target::Unknown),
                },
                Value::Module(source) => found.extend(self.module_member(source, name)),
                Value::Folder(folder) => {
                    let path = self.modules.python_below(folder, name, self.catalog);
                    match path {
                        Some(ModulePath::File(path)) => found.extend(self.file(&path)),
                        _ => found.push(Target::External),
                    }
                }
                Value::External | Value::Holder(_) => found.push(Target::External),
                Value::Function(..) | Value::Unknown => found.push(Target::Unknown),
            }
        }
        found
    }

    fn module_member(&mut self, source: &Rc<Source>, name: &str) -> Vec<Target> {
        if !self.step() {
            return vec![Target::Unknown];
        }
        let table = source.names();
        if !table.is_known() {
            return vec![Target::Unknown];
        }
        let places = table.named_in(0, name);
        let exported = places
            .iter()
            .filter(|place| table.binding(**place).kind != BindingKind::Impl);
        let mut found = Vec::new();
        for binding in exported {
            let place = Place {
                source: source.clone(),
                binding: *binding,
            };
            found.extend(self.follow(place));
        }
        if !found.is_empty() {
            return found;
        }
        let starred = self.starred(source, 0, name);
        if !starred.is_empty() {
            return starred;
        }
        if source.path.ends_with("__init__.py") {
            let folder = folder_of(&source.path).to_owned();
            if let Some(ModulePath::File(path)) =
                self.modules.python_below(&folder, name, self.catalog)
            {
                return self.file(&path);
            }
        }
        vec![Target::External]
    }

    /// The values that a name's meaning has.
    pub(crate) fn values_of(&mut self, target: &Target) -> Vec<Value> {
        match target {
            Target::Module(source) => vec![Value::Module(source.clone())],
            Target::Folder(folder) => vec![Value::Folder(folder.clone())],
            Target::External => vec![Value::External],
            Target::Unknown => vec![Value::Unknown],
            Target::Binding(place, class) => self.values_of_binding(place, class.as_ref()),
        }
    }

    fn values_of_binding(&mut self, place: &Place, class: Option<&Place>) -> Vec<Value> {
        let binding = place.source.names().binding(place.binding);
        match binding.kind {
            BindingKind::Class => return vec![Value::Object(place.clone())],
            BindingKind::Impl => {
                let source = place.source.clone();
                let class = self.class_of_impl(&source, place.binding);
                return vec![Value::Object(class)];
            }
            BindingKind::Function => return vec![Value::Function(place.clone(), class.cloned())],
            _ => {}
        }
        if binding.kind == BindingKind::Parameter && binding.chain == "self" {
            let found = self.own_class(&place.source, binding.scope);
            return found.iter().flat_map(|one| self.values_of(one)).collect();
        }
        if let Some(known) = self.values.get(&place.key())
            && self.receiver.is_none()
        {
            return known.clone();
        }
        if !self.step() || !self.open.insert(place.key()) {
            return Vec::new();
        }
        let outer = std::mem::replace(&mut self.receiver, class.cloned());
        let chain = binding.chain.clone();
        let found = self.chain(&place.source, binding.context, &chain);
        self.receiver = outer;
        self.open.remove(&place.key());
        if class.is_none() && self.receiver.is_none() {
            self.values.insert(place.key(), found.clone());
        }
        found
    }

    /// The values of an expression, reduced to a chain, that is read in a scope.
    pub(crate) fn chain(&mut self, source: &Rc<Source>, scope: usize, chain: &str) -> Vec<Value> {
        if !self.step() || self.depth >= MAX_INFER_DEPTH {
            return vec![Value::Unknown];
        }
        self.depth += 1;
        let found = self.chain_below(source, scope, chain);
        self.depth -= 1;
        found
    }

    fn chain_below(&mut self, source: &Rc<Source>, scope: usize, chain: &str) -> Vec<Value> {
        let (base, mut rest) = split_base(chain);
        let mut values = match base.as_bytes().first() {
            Some(b'{') => {
                let inner = base.strip_prefix('{').unwrap_or(base);
                let inner = inner.strip_suffix('}').unwrap_or(inner);
                let parts = split_top(inner, '|');
                let parts = parts.into_iter();
                parts
                    .flat_map(|part| self.chain(source, scope, part))
                    .collect()
            }
            Some(b'<') => self.annotation(source, scope, base.trim_matches(['<', '>'])),
            Some(b'"' | b'#' | b'[') => vec![Value::External],
            None | Some(b'?') => vec![Value::Unknown],
            Some(_) => {
                let targets = self.name(source, scope, base, None);
                targets.iter().flat_map(|one| self.values_of(one)).collect()
            }
        };
        while !rest.is_empty() {
            values.truncate(MAX_VALUES);
            if let Some(after) = rest.strip_prefix("()") {
                values = values
                    .into_iter()
                    .flat_map(|one| self.called(one))
                    .collect();
                rest = after;
            } else if let Some(after) = rest.strip_prefix("[]") {
                values = values
                    .into_iter()
                    .flat_map(|one| self.element(one))
                    .collect();
                rest = after;
            } else if let Some(after) = rest.strip_prefix('^') {
                values = values.into_iter().map(held).collect();
                rest = after;
            } else if let Some(after) = rest.strip_prefix('.') {
                let end = after.find(['.', '(', '[', '^']).unwrap_or(after.len());
                let name = &after[..end];
                rest = &after[end..];
                values = self.member_values(values, name, source.names().language, &mut rest);
            } else {
                return vec![Value::Unknown];
            }
        }
        values
    }

    fn member_values(
        &mut self,
        values: Vec<Value>,
        name: &str,
        language: Option<Language>,
        rest: &mut &str,
    ) -> Vec<Value> {
        // Most methods of a collection return what it holds, or a collection of it.
        if values.iter().any(|value| matches!(value, Value::Holder(_))) {
            *rest = rest.strip_prefix("()").unwrap_or(rest);
            return values.into_iter().map(held).collect();
        }
        let targets = self.members(&values, name);
        let missing = targets
            .iter()
            .all(|target| matches!(target, Target::External | Target::Unknown));
        if missing && language == Some(Language::Rust) && RUST_WRAPPER_METHODS.contains(&name) {
            *rest = rest.strip_prefix("()").unwrap_or(rest);
            return values;
        }
        let found: Vec<Value> = targets.iter().flat_map(|one| self.values_of(one)).collect();
        // A method of a type from outside may return anything.
        found
            .into_iter()
            .map(|value| match value {
                Value::External => Value::Unknown,
                other => other,
            })
            .collect()
    }

    fn called(&mut self, value: Value) -> Vec<Value> {
        match value {
            Value::Function(place, class) => {
                if !self.step() || !self.open.insert(place.key()) {
                    return Vec::new();
                }
                let binding = place.source.names().binding(place.binding);
                let (chain, context) = (binding.chain.clone(), binding.context);
                let outer = std::mem::replace(&mut self.receiver, class);
                let found = match chain.as_str() {
                    "" => vec![Value::External],
                    chain => self.chain(&place.source, context, chain),
                };
                self.receiver = outer;
                self.open.remove(&place.key());
                found
            }
            Value::External => vec![Value::Unknown],
            other => vec![other],
        }
    }

    fn element(&mut self, value: Value) -> Vec<Value> {
        if let Value::Object(class) = &value
            && class.source.names().language == Some(Language::Python)
        {
            for name in ["__getitem__", "__iter__"] {
                if let Member::Found(place) = self.class_member(class, name, 0) {
                    return self.called(Value::Function(place, Some(class.clone())));
                }
            }
        }
        match held(value) {
            Value::External => vec![Value::Unknown],
            other => vec![other],
        }
    }

    /// The classes that an annotation names.
    fn annotation(&mut self, source: &Rc<Source>, scope: usize, names: &str) -> Vec<Value> {
        let mut found = Vec::new();
        let mut unknown = false;
        let mut transparent = true;
        for name in names.split(',') {
            let argument = name.strip_prefix('~');
            let name = argument.unwrap_or(name);
            if argument.is_none() {
                transparent = TRANSPARENT_TYPES.contains(&name.rsplit('.').next().unwrap_or(name));
            }
            if matches!(name, "Any" | "any" | "unknown" | "object") {
                unknown |= argument.is_none();
                continue;
            }
            let values = if name == "Self" && source.names().language == Some(Language::Python) {
                let own = self.own_class(source, scope);
                own.iter().flat_map(|one| self.values_of(one)).collect()
            } else {
                self.chain(source, scope, name)
            };
            for value in values {
                match value {
                    Value::Object(class) if argument.is_some() && !transparent => {
                        found.push(Value::Holder(class));
                    }
                    Value::Object(_) | Value::Holder(_) => found.push(value),
                    Value::Unknown => unknown |= argument.is_none() || transparent,
                    _ => {}
                }
            }
        }
        // The arguments of a class of the workspace say nothing about its members.
        if found.iter().any(|value| matches!(value, Value::Object(_))) {
            found.retain(|value| !matches!(value, Value::Holder(_)));
        }
        if found.is_empty() || unknown {
            found.push(if unknown {
                Value::Unknown
            } else {
                Value::External
            });
        }
        found
    }

    /// The class around a scope, or the one whose method is being followed.
    fn own_class(&mut self, source: &Rc<Source>, scope: usize) -> Vec<Target> {
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

    fn own_bases(&mut self, source: &Rc<Source>, scope: usize) -> Vec<Target> {
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
                        _ => Target::Unknown,
                    });
                }
            }
        }
        found
    }

    fn this_module(&mut self, source: &Rc<Source>, scope: usize) -> Vec<Target> {
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

    fn outer_module(&mut self, source: &Rc<Source>, scope: usize) -> Vec<Target> {
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

    fn crate_root(&mut self, source: &Rc<Source>) -> Vec<Target> {
        match self.modules.rust_root(&source.path, self.catalog) {
            Some(path) => self.file(&path),
            None => vec![Target::External],
        }
    }

    /// The class that an impl block adds to; the block itself if that is from outside.
    fn class_of_impl(&mut self, source: &Rc<Source>, binding: usize) -> Place {
        let found = source.names().binding(binding);
        let (scope, name) = (found.scope, found.name.clone());
        for target in self.name(source, scope, &name, None) {
            if let Target::Binding(place, _) = target
                && place.kind() == BindingKind::Class
            {
                return place;
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

    /// The impl blocks of a class.
    fn impls(&mut self, class: &Place) -> Vec<Place> {
        if class.source.names().language != Some(Language::Rust)
            || class.kind() != BindingKind::Class
        {
            return Vec::new();
        }
        let name = class.source.names().binding(class.binding).name.clone();
        let rows = self.catalog.symbols_named(&name, 200).unwrap_or_default();
        let mut files: Vec<u64> = rows
            .iter()
            .filter(|row| row.symbol.kind == DefinitionKind::Impl)
            .map(|row| row.file)
            .collect();
        files.dedup();
        let mut found = Vec::new();
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
        found
    }

    fn class_member(&mut self, class: &Place, name: &str, depth: usize) -> Member {
        if depth > 12 || !self.step() {
            return Member::Maybe;
        }
        if let Some(found) = own_member(class, name) {
            return Member::Found(found);
        }
        let impls = self.impls(class);
        for place in &impls {
            if let Some(found) = own_member(place, name) {
                return Member::Found(found);
            }
        }
        let mut bases = self.bases(class);
        for place in &impls {
            bases.extend(self.bases(place));
        }
        let mut unknown = false;
        for base in bases {
            match base {
                Value::Object(base) => match self.class_member(&base, name, depth + 1) {
                    Member::Found(found) => return Member::Found(found),
                    Member::Maybe => unknown = true,
                    Member::Missing => {}
                },
                Value::External => {}
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
    pub(crate) fn overridden(&mut self, place: &Place) -> Vec<(String, usize, String)> {
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
            let Value::Object(base) = value else { continue };
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

    fn step(&mut self) -> bool {
        self.steps += 1;
        self.steps <= MAX_STEPS
    }
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

/// What a collection or a promise holds.
fn held(value: Value) -> Value {
    match value {
        Value::Holder(class) => Value::Object(class),
        other => other,
    }
}

/// The first part of a chain, and the rest.
fn split_base(chain: &str) -> (&str, &str) {
    let close = match chain.as_bytes().first() {
        Some(b'{') => Some(('{', '}')),
        Some(b'<') => Some(('<', '>')),
        _ => None,
    };
    if let Some((open, close)) = close {
        let mut depth = 0;
        for (at, c) in chain.char_indices() {
            if c == open {
                depth += 1;
            } else if c == close {
                depth -= 1;
                if depth == 0 {
                    return chain.split_at(at + close.len_utf8());
                }
            }
        }
        return (chain, "");
    }
    let literal = chain.starts_with(['"', '#', '[', '?']);
    let end = if literal {
        1
    } else {
        chain.find(['.', '(', '[', '^']).unwrap_or(chain.len())
    };
    chain.split_at(end)
}

/// Splits where no bracket is open.
fn split_top(text: &str, mark: char) -> Vec<&str> {
    let (mut depth, mut start) = (0_i32, 0);
    let mut parts = Vec::new();
    for (at, c) in text.char_indices() {
        match c {
            '{' | '<' => depth += 1,
            '}' | '>' => depth -= 1,
            c if c == mark && depth == 0 => {
                parts.push(&text[start..at]);
                start = at + c.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts.retain(|part| !part.is_empty());
    parts
}
