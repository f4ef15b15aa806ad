//! Whether a use of a name means one of the asked definitions.

use std::collections::HashSet;
use std::rc::Rc;

use llmc_syntax::{BindingKind, DefinitionKind, Language, Reference};

use crate::catalog::Catalog;
use crate::infer::{Place, Resolver, Target};
use crate::source::{Source, Sources};
use crate::symbols::ResolvedSymbol;

/// What scopes, imports and receivers say about a use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It means one of the definitions.
    Means,
    /// It means something else.
    Other,
    Unknown,
}

/// The asked definitions, and what is needed to resolve uses of their name.
pub(crate) struct Meaning<'c, 's, 'r> {
    pub(crate) resolver: Resolver<'c, 's, 'r>,
    /// By file, scope and name.
    asked: HashSet<(String, usize, String)>,
    /// The asked ones and what they override.
    family: HashSet<(String, usize, String)>,
    /// Whether a definition was not found among the scopes of its file.
    incomplete: bool,
    /// Whether one is a member of a type.
    member: bool,
}

impl<'c, 's, 'r> Meaning<'c, 's, 'r> {
    pub(crate) fn new(
        defined: &[ResolvedSymbol],
        catalog: &'c Catalog,
        sources: &'s mut Sources<'r>,
    ) -> Self {
        let mut resolver = Resolver::new(catalog, sources);
        let (mut asked, mut family) = (HashSet::new(), HashSet::new());
        let mut incomplete = false;
        let mut member = false;
        for one in defined
            .iter()
            .filter(|one| one.symbol.kind != DefinitionKind::Impl)
        {
            match binding_of(one) {
                Some(place) => {
                    resolver.begin();
                    let table = place.source.names();
                    let scope = table.binding(place.binding).scope;
                    member |= table.members_around(scope) == Some(scope);
                    asked.insert(place.identity());
                    if is_family_language(table.language) {
                        family.extend(resolver.overridden(&place));
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
            member,
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
                Verdict::Other
            };
        }
        let targets = self.resolver.targets(source, reference);
        self.judge(&targets)
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
            for target in self.resolver.members(&values, &other.symbol.name) {
                if let Target::Binding(found, _) = target {
                    all.push(found.identity());
                }
            }
        }
        let of = match is_family_language(language) {
            true => &self.family,
            false => &self.asked,
        };
        all.iter().any(|one| of.contains(one))
    }

    fn judge(&mut self, targets: &[Target]) -> Verdict {
        let mut unknown = targets.is_empty();
        for target in targets {
            match target {
                Target::Binding(place, _) => {
                    if self.asked.contains(&place.identity()) {
                        return Verdict::Means;
                    }
                    if is_family_language(place.source.names().language)
                        && place.kind() != BindingKind::Variable
                    {
                        let all = self.resolver.overridden(place);
                        if all.iter().any(|one| self.family.contains(one)) {
                            return Verdict::Means;
                        }
                    }
                }
                Target::Unknown => unknown = true,
                Target::Module(_) | Target::Folder(_) | Target::External => {}
            }
        }
        if unknown {
            Verdict::Unknown
        } else {
            Verdict::Other
        }
    }
}

/// Where a use of an override is a use of what it overrides as well, as in language servers for TypeScript.
fn is_family_language(language: Option<Language>) -> bool {
    matches!(
        language,
        Some(Language::JavaScript | Language::TypeScript | Language::Tsx)
    )
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
