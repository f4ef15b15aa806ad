//! Whether a use of a name means one of the asked definitions.

use std::collections::HashSet;
use std::rc::Rc;

use llmc_syntax::{BindingKind, DefinitionKind, Language, Reference, ReferenceKind};

use crate::catalog::Catalog;
use crate::infer::{DefinitionId, MemberAccess, Place, Resolver, Target, is_script};
use crate::source::{Source, Sources};
use crate::symbols::ResolvedSymbol;

/// What scopes, imports and receivers say about a use.
pub(crate) enum Verdict {
    /// It means one of the definitions.
    Means,
    /// It means what an asked member overrides, so that it may reach that member: the qualified name of the base's.
    Through(String),
    /// It means something else: a definition of the workspace if that is given.
    Other(Option<Place>),
    Unknown,
}

/// The asked definitions, and what is needed to resolve uses of their name.
pub(crate) struct Meaning<'c, 's, 'r> {
    pub(crate) resolver: Resolver<'c, 's, 'r>,
    asked: HashSet<DefinitionId>,
    /// The asked ones and what they override.
    family: HashSet<DefinitionId>,
    /// The classes of the asked members.
    classes: Vec<Place>,
    /// Whether a definition was not found among the scopes of its file.
    incomplete: bool,
    /// Whether one is a member of a type.
    member: bool,
    /// Which uses of their names mean the asked definitions of TypeScript.
    space: NameSpace,
    /// Whether there is also a value of that name where they are.
    has_value: bool,
}

/// In TypeScript a type and a value of one name are distinguished by where the name stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NameSpace {
    Types,
    Values,
    /// Of a class, and of all other languages.
    Both,
}

impl NameSpace {
    fn of(defined: &[ResolvedSymbol]) -> Self {
        let mut spaces = defined.iter().map(|one| match one.symbol.kind {
            _ if !is_script(one.language()) => Self::Both,
            DefinitionKind::Interface | DefinitionKind::Type => Self::Types,
            DefinitionKind::Function | DefinitionKind::Constant | DefinitionKind::Variable => {
                Self::Values
            }
            _ => Self::Both,
        });
        let first = spaces.next().unwrap_or(Self::Both);
        if spaces.all(|space| space == first) {
            first
        } else {
            Self::Both
        }
    }
}

impl<'c, 's, 'r> Meaning<'c, 's, 'r> {
    pub(crate) fn new(
        defined: &[ResolvedSymbol],
        catalog: &'c Catalog,
        sources: &'s mut Sources<'r>,
    ) -> Self {
        let mut resolver = Resolver::new(catalog, sources);
        let (mut asked, mut family) = (HashSet::new(), HashSet::new());
        let mut classes = Vec::new();
        let mut incomplete = false;
        let mut member = false;
        let mut has_value = false;
        for one in defined
            .iter()
            .filter(|one| one.symbol.kind != DefinitionKind::Impl)
        {
            match binding_of(one) {
                Some(place) => {
                    resolver.begin();
                    let table = place.source.names();
                    let scope = table.binding(place.binding).scope;
                    let of_class = table.members_around(scope) == Some(scope);
                    member |= of_class;
                    has_value |= resolver.declarations_beside(&place) > 0;
                    asked.insert(place.identity());
                    family.extend(resolver.overridden(&place));
                    if of_class {
                        classes.extend(resolver.class_around(&place.source, scope));
                    }
                }
                None => incomplete = true,
            }
        }
        Self {
            resolver,
            incomplete: incomplete || asked.is_empty(),
            asked,
            family,
            classes,
            member,
            space: NameSpace::of(defined),
            has_value,
        }
    }

    /// Whether a reference stands where it cannot mean the asked definitions: `new Pool()` no interface, `x: Pool` no variable.
    /// An import means both.
    fn in_other_space(&self, source: &Source, reference: &Reference) -> bool {
        let table = source.names();
        let is_type = table.is_type_name(reference.start);
        match self.space {
            NameSpace::Both => false,
            _ if self.member || reference.kind == ReferenceKind::Import => false,
            NameSpace::Types => !is_type && self.has_value && !is_exported(source, reference),
            NameSpace::Values => is_type,
        }
    }

    /// Whether a definition is in no scope that is known, so that nothing can be resolved.
    pub(crate) fn is_incomplete(&self) -> bool {
        self.incomplete
    }

    /// What a reference of the asked name in a file means.
    pub(crate) fn verdict(&mut self, source: &Rc<Source>, reference: &Reference) -> Verdict {
        let table = source.names();
        if self.incomplete || !table.is_known() {
            return Verdict::Unknown;
        }
        if table.receiver(reference.start) == Some("") {
            // The key of an object literal is a member of the type that is expected there.
            let expected = self.member && table.language != Some(Language::Python);
            return if expected {
                Verdict::Unknown
            } else {
                Verdict::Other(None)
            };
        }
        let targets = self.resolver.targets(source, reference);
        match self.judge(source, reference, &targets) {
            Verdict::Means if self.in_other_space(source, reference) => Verdict::Other(None),
            verdict => verdict,
        }
    }

    /// Whether a name in a documentation comment means an asked definition that is no member.
    pub(crate) fn is_meant_in_comment(
        &mut self,
        source: &Rc<Source>,
        start: usize,
        name: &str,
    ) -> bool {
        if self.member || self.incomplete {
            return false;
        }
        self.resolver.begin();
        let scope = source.names().scope_at(start);
        let targets = self.resolver.name(source, scope, name, None);
        targets
            .iter()
            .any(|target| matches!(target, Target::Binding(place, _) if self.asked.contains(&place.identity())))
    }

    /// Whether an impl block adds to an asked type.
    pub(crate) fn has_impl(&mut self, block: &ResolvedSymbol) -> bool {
        let table = block.source.names();
        let named = table.named(&block.symbol.name).iter().copied();
        let binding = named
            .filter(|place| table.binding(*place).kind == BindingKind::Impl)
            .find(|place| table.line_of(*place) == block.symbol.line);
        let Some(binding) = binding.filter(|_| !self.incomplete) else {
            return false;
        };
        self.resolver.begin();
        let class = self.resolver.class_of_impl(&block.source, binding);
        self.asked.contains(&class.identity())
    }

    /// Whether another definition of the name overrides or implements an asked one.
    pub(crate) fn is_overridden_by(&mut self, other: &ResolvedSymbol) -> bool {
        if !self.member || self.incomplete {
            return false;
        }
        let Some(place) = binding_of(other) else {
            return false;
        };
        let language = place.source.names().language;
        if language == Some(Language::Python) || self.asked.contains(&place.identity()) {
            return false;
        }
        self.resolver.begin();
        let mut all = self.resolver.overridden(&place);
        // A member of an object literal implements that of the type that is expected there.
        if let Some(chain) = place.source.names().receiver(place.start()) {
            let (scope, chain) = (place.outer_scope(), chain.to_owned());
            let values = self.resolver.chain(&place.source, scope, &chain);
            let name = &other.symbol.name;
            for target in self.resolver.members(&values, name, MemberAccess::Either) {
                if let Target::Binding(found, _) = target {
                    all.push(found.identity());
                }
            }
        }
        let of = match is_script(language) {
            true => &self.family,
            false => &self.asked,
        };
        all.iter().any(|one| of.contains(one))
    }

    /// Whether an asked function of Python is declared once more behind this declaration of it: an overload, the getter of a
    /// property that has a setter. A change of the function changes these too.
    pub(crate) fn is_declared_again(&self, one: &ResolvedSymbol) -> bool {
        let table = one.source.names();
        if table.language != Some(Language::Python) || self.incomplete {
            return false;
        }
        let Some(place) = binding_of(one).filter(|place| self.asked.contains(&place.identity()))
        else {
            return false;
        };
        let own = table.binding(place.binding);
        let others = table.named_in(own.scope, &own.name).into_iter();
        let mut others = others.map(|other| table.binding(other));
        own.kind != BindingKind::Field
            && others.any(|other| other.kind == own.kind && other.start > own.start)
    }

    fn judge(&mut self, source: &Rc<Source>, reference: &Reference, targets: &[Target]) -> Verdict {
        let mut unknown = targets.is_empty();
        let mut through = None;
        let mut other = None;
        for target in targets {
            match target {
                Target::Binding(place, class) => {
                    if self.means(place) {
                        return Verdict::Means;
                    }
                    if through.is_none() && self.may_reach(source, reference, place, class.as_ref())
                    {
                        through = Some(qualified_name(place));
                    }
                    other.get_or_insert_with(|| place.clone());
                }
                Target::BuiltinMember(id) => {
                    if self.member && self.family.contains(id) {
                        through = Some(format!("{}::{}", id.0, id.2));
                    }
                }
                Target::Unknown => unknown = true,
                Target::Module(_) | Target::Folder(_) | Target::Builtin(_) | Target::External => {}
            }
        }
        match through {
            Some(base) => Verdict::Through(base),
            None if unknown => Verdict::Unknown,
            None => Verdict::Other(other),
        }
    }

    /// Whether a definition is an asked one, or implements an asked method of a trait.
    fn means(&mut self, place: &Place) -> bool {
        if self.asked.contains(&place.identity()) {
            return true;
        }
        let implements = self.member
            && place.kind() == BindingKind::Function
            && place.source.names().language == Some(Language::Rust);
        implements && {
            let overridden = self.resolver.overridden(place);
            overridden.iter().any(|one| self.asked.contains(one))
        }
    }

    /// Whether a use of another definition may reach an asked one at run time: what that overrides, on a receiver that may
    /// be of its class. In scripts also another override of the same, as language servers for TypeScript have it.
    fn may_reach(
        &mut self,
        source: &Rc<Source>,
        reference: &Reference,
        place: &Place,
        class: Option<&Place>,
    ) -> bool {
        let table = source.names();
        if !self.member || place.kind() == BindingKind::Variable {
            return false;
        }
        if is_script(place.source.names().language) {
            let all = self.resolver.overridden(place);
            return all.iter().any(|one| self.family.contains(one));
        }
        if !self.family.contains(&place.identity()) {
            return false;
        }
        // `super().close()` and `Base.close(self)` call the base's own.
        if table.language == Some(Language::Python) {
            let receiver = table.receiver(reference.start).unwrap_or_default();
            let scope = table.scope_at(reference.start);
            let named = table.lexical(scope, receiver, None);
            let is_class = |at: &usize| {
                let kind = table.binding(*at).kind;
                matches!(kind, BindingKind::Class | BindingKind::Import)
            };
            let named_class =
                receiver.starts_with(char::is_uppercase) && named.iter().any(is_class);
            if receiver == "super" || named_class {
                return false;
            }
        }
        let Some(class) = class else { return true };
        let classes = self.classes.clone();
        let mut classes = classes.iter();
        classes.any(|own| self.resolver.derives(own, class, 0))
    }
}

/// Whether a reference stands on a line that exports it.
fn is_exported(source: &Source, reference: &Reference) -> bool {
    let before = source.text.get(..reference.start).unwrap_or_default();
    let statement = before.rsplit([';', '}']).next().unwrap_or_default();
    statement.trim_start().starts_with("export")
}

/// The name of a definition with the class around it.
fn qualified_name(place: &Place) -> String {
    let table = place.source.names();
    let binding = table.binding(place.binding);
    match table.opener(binding.scope) {
        Some(class) => format!("{}::{}", table.binding(class).name, binding.name),
        None => binding.name.clone(),
    }
}

/// The binding that a definition makes.
pub(crate) fn binding_of(one: &ResolvedSymbol) -> Option<Place> {
    let table = one.source.names();
    let found = table.named(&one.symbol.name).iter().copied();
    let binding = found
        .filter(|place| {
            let kind = table.binding(*place).kind;
            !matches!(
                kind,
                BindingKind::Import | BindingKind::Export | BindingKind::Parameter
            )
        })
        .find(|place| table.line_of(*place) == one.symbol.line)?;
    Some(Place {
        source: one.source.clone(),
        binding,
    })
}
