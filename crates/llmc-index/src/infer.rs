//! What names and expressions mean, over the files of the workspace, as far as syntax tells.
//!
//! A type is a set of classes: an annotation means every class that it names, so `list[Pool]`, `Optional[Pool]` and
//! `Pool` are the same, and an element, a call or an `await` of it as well. That is enough to find the class of a
//! member's receiver. Instances and classes are not told apart. What the workspace does not define is
//! [`Value::External`]; what cannot be known is [`Value::Unknown`].

mod chains;
mod classes;
mod globals;
mod traits;

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use llmc_syntax::{BindingKind, Language, Reference};

use self::chains::MAX_VALUES;
use self::classes::Member;
use crate::catalog::Catalog;
use crate::modules::{ModulePath, Modules, folder_of};
use crate::source::{Source, Sources};

/// Steps to resolve one name; code that needs more is generated.
const MAX_STEPS: usize = 4000;

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

    pub(crate) fn identity(&self) -> DefinitionId {
        let table = self.source.names();
        let binding = table.binding(self.binding);
        // Global declarations of one name add to one thing, whatever their file.
        if table.is_global(binding.scope) {
            return (String::new(), usize::MAX, binding.name.clone());
        }
        (
            self.source.path.clone(),
            binding.scope,
            binding.name.clone(),
        )
    }

    pub(crate) fn start(&self) -> usize {
        self.source.names().binding(self.binding).start
    }

    /// The scope around the one that it is bound in.
    pub(crate) fn outer_scope(&self) -> usize {
        let table = self.source.names();
        table.parent(table.binding(self.binding).scope)
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
    /// A type that the language gives, or an instance of it.
    Builtin(String),
    Module(Rc<Source>),
    Folder(String),
    External,
    Unknown,
}

/// What a name stands for.
#[derive(Clone)]
pub(crate) enum Target {
    /// With the class that it was found on.
    Binding(Place, Option<Place>),
    Module(Rc<Source>),
    Folder(String),
    /// A type that the language gives.
    Builtin(String),
    /// A member of such a type.
    BuiltinMember(DefinitionId),
    External,
    Unknown,
}

/// What all definitions of one name in one scope share: file, scope and name.
pub(crate) type DefinitionId = (String, usize, String);

/// How a member is used, where fields and methods may have one name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemberAccess {
    /// Called, or named by a path: a method.
    Called,
    /// A field.
    Read,
    Either,
}

pub(crate) struct Resolver<'c, 's, 'r> {
    pub(crate) catalog: &'c Catalog,
    pub(crate) sources: &'s mut Sources<'r>,
    modules: Modules,
    values: HashMap<(String, usize), Vec<Value>>,
    /// The impl blocks of classes.
    impls: HashMap<(String, usize), Vec<Place>>,
    /// The global declarations of scripts by name.
    globals: HashMap<String, Vec<Place>>,
    /// What traits and types have by a method's name.
    methods: HashMap<String, Rc<traits::MethodsOfName>>,
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
            impls: HashMap::new(),
            globals: HashMap::new(),
            methods: HashMap::new(),
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
            let access = access_of(source, reference);
            let found = self.members(&values, name, access);
            return match access {
                MemberAccess::Called => self.or_trait_method(source, scope, name, &values, found),
                _ => found,
            };
        }
        if table.language == Some(Language::Rust) && is_macro_call(source, reference) {
            return self.macro_named(source, scope, name);
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
                self.members(&values, name, MemberAccess::Either)
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
        if let Some((owner, part)) = split_field(name) {
            let owners = self.name(source, scope, owner, skip);
            return self.fields_of(&owners, part);
        }
        let table = source.names();
        let language = table.language;
        match name {
            "::self" => return self.this_module(source, scope),
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
        // Inside of a function as well: `use self::Entry::*;`.
        let module = table.module_around(scope);
        let mut around = scope;
        loop {
            let starred = self.starred(source, around, name);
            if !starred.is_empty() {
                return starred;
            }
            if around == module {
                break;
            }
            around = table.parent(around);
        }
        if language == Some(Language::Rust)
            // A name that is unknown, such as a variable inside of a macro, is no crate.
            && (skip.is_some() || source.text.contains(&format!("{name}::")))
            && let Some(path) =
                self.modules
                    .rust_crate(&source.path, name, self.catalog, self.sources)
        {
            return self.module_at(path);
        }
        if is_script(language) {
            let global = self.global(name);
            if !global.is_empty() {
                return global;
            }
        }
        // Code that does not say where a name comes from may still mean the workspace's: a script, a macro.
        let defined = self.catalog.symbols_named(name, 1).unwrap_or_default();
        if defined.is_empty() && is_script(language) && name.starts_with(char::is_uppercase) {
            vec![Target::Builtin(name.to_owned())]
        } else if defined.is_empty() {
            vec![Target::External]
        } else {
            vec![Target::Unknown]
        }
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
        if self.depth >= chains::MAX_INFER_DEPTH {
            return vec![Target::Unknown];
        }
        if !self.step() || !self.open.insert(place.key()) {
            return Vec::new();
        }
        self.depth += 1;
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
        self.depth -= 1;
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
        found.map_or(vec![Target::External], |path| self.module_at(path))
    }

    fn module_at(&mut self, path: ModulePath) -> Vec<Target> {
        match path {
            ModulePath::File(path) => self.file(&path),
            ModulePath::Folder(folder) => vec![Target::Folder(folder)],
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
        self.members(&values, name, MemberAccess::Either)
    }

    /// What a member of these values is.
    pub(crate) fn members(
        &mut self,
        values: &[Value],
        name: &str,
        access: MemberAccess,
    ) -> Vec<Target> {
        if let Some((owner, part)) = split_field(name) {
            let owners = self.members(values, owner, MemberAccess::Either);
            return self.fields_of(&owners, part);
        }
        let mut found = Vec::new();
        for value in values.iter().take(MAX_VALUES) {
            match value {
                // The arguments of `new` are the constructor's.
                Value::Object(class) if name.starts_with('@') => {
                    let own = self.class_member(class, "constructor", MemberAccess::Called, 0);
                    if let Member::Found(place) = own {
                        found.extend(parameter(&place, name));
                    }
                }
                Value::Object(class) => match self.class_member(class, name, access, 0) {
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
                    let path = self.modules.below(folder, name, self.catalog);
                    match path {
                        Some(ModulePath::File(path)) => found.extend(self.file(&path)),
                        _ => found.push(Target::External),
                    }
                }
                Value::Builtin(kind) => {
                    found.push(Target::BuiltinMember(builtin_member(kind, name)));
                }
                Value::External | Value::Holder(_) => found.push(Target::External),
                Value::Function(function, _) if name.starts_with('@') => {
                    found.extend(parameter(function, name));
                }
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
            Target::Builtin(kind) => vec![Value::Builtin(kind.clone())],
            Target::External | Target::BuiltinMember(_) => vec![Value::External],
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

    fn has_steps(&self) -> bool {
        self.steps < MAX_STEPS
    }

    fn step(&mut self) -> bool {
        self.steps += 1;
        self.steps <= MAX_STEPS
    }
}

/// `Held#0`: the variant and its field. A private name of a script, `#pool`, has none.
fn split_field(name: &str) -> Option<(&str, &str)> {
    name.split_once('#').filter(|(owner, _)| !owner.is_empty())
}

/// The identity of a member of a type that the language gives.
fn builtin_member(kind: &str, name: &str) -> DefinitionId {
    (kind.to_owned(), usize::MAX, name.to_owned())
}

/// How a reference uses a member; only Rust has fields and methods of one name.
fn access_of(source: &Source, reference: &Reference) -> MemberAccess {
    if source.names().language != Some(Language::Rust) {
        return MemberAccess::Either;
    }
    let end = reference.start + reference.name.len();
    let before = source.text.get(..reference.start).unwrap_or_default();
    let after = source.text.get(end..).unwrap_or_default().trim_start();
    if after.starts_with(['(', ':']) || before.trim_end().ends_with("::") {
        MemberAccess::Called
    } else {
        MemberAccess::Read
    }
}

fn is_macro_call(source: &Source, reference: &Reference) -> bool {
    let end = reference.start + reference.name.len();
    let after = source.text.get(end..).unwrap_or_default();
    after.starts_with('!') && !after.starts_with("!=")
}

pub(crate) fn is_script(language: Option<Language>) -> bool {
    matches!(
        language,
        Some(Language::JavaScript | Language::TypeScript | Language::Tsx)
    )
}

/// A parameter of a function by its place, which is its name.
fn parameter(function: &Place, name: &str) -> Option<Target> {
    let table = function.source.names();
    let inner = table.binding(function.binding).inner?;
    let binding = table.named_in(inner, name).first().copied()?;
    let place = Place {
        source: function.source.clone(),
        binding,
    };
    Some(Target::Binding(place, None))
}
