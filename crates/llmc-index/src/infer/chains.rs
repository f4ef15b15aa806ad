//! The values of expressions, each reduced to a chain; see [`llmc_syntax::FileScopes`].

use std::rc::Rc;

use llmc_syntax::Language;

use super::classes::Member;
use super::{MemberAccess, Place, Resolver, Target, Value, is_script};
use crate::source::Source;

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
/// Expressions in one another.
pub(super) const MAX_INFER_DEPTH: usize = 40;
/// Values that one expression may have.
pub(super) const MAX_VALUES: usize = 12;

impl Resolver<'_, '_, '_> {
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
                values = values
                    .into_iter()
                    .filter(|value| !matches!(value, Value::Builtin(_)))
                    .map(held)
                    .collect();
                rest = after;
            } else if let Some(after) = rest.strip_prefix('.') {
                let end = after.find(['.', '(', '[', '^']).unwrap_or(after.len());
                let name = &after[..end];
                rest = &after[end..];
                values = self.member_values(values, name, (source, scope), &mut rest);
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
        (source, scope): (&Rc<Source>, usize),
        rest: &mut &str,
    ) -> Vec<Value> {
        let language = source.names().language;
        // Most methods of a collection return what it holds, or a collection of it.
        if values.iter().any(|value| matches!(value, Value::Holder(_))) {
            *rest = rest.strip_prefix("()").unwrap_or(rest);
            let holders = values.into_iter();
            let holders = holders.filter(|value| !matches!(value, Value::Builtin(_)));
            return holders.map(held).collect();
        }
        let access = match language {
            Some(Language::Rust) if rest.starts_with("()") => MemberAccess::Called,
            Some(Language::Rust) => MemberAccess::Read,
            _ => MemberAccess::Either,
        };
        let targets = self.members(&values, name, access);
        let missing = targets
            .iter()
            .all(|target| matches!(target, Target::External | Target::Unknown));
        if missing && language == Some(Language::Rust) && RUST_WRAPPER_METHODS.contains(&name) {
            *rest = rest.strip_prefix("()").unwrap_or(rest);
            return values;
        }
        let targets = match access {
            MemberAccess::Called => self.or_trait_method(source, scope, name, &values, targets),
            _ => targets,
        };
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
            Value::Object(class) => self.called_object(class),
            other => vec![other],
        }
    }

    /// What the call signatures of a type return; without one, a class makes an instance. In Python both may be meant.
    fn called_object(&mut self, class: Place) -> Vec<Value> {
        let instance = vec![Value::Object(class.clone())];
        let name = match class.source.names().language {
            Some(Language::Python) => "__call__",
            language if is_script(language) => "()",
            _ => return instance,
        };
        let Member::Found(first) = self.class_member(&class, name, MemberAccess::Called, 0) else {
            return instance;
        };
        if name == "__call__" {
            let mut found = self.called(Value::Function(first, Some(class)));
            found.retain(|value| !matches!(value, Value::Unknown | Value::External));
            found.extend(instance);
            return found;
        }
        let table = first.source.names();
        let signatures = table.named_in(table.binding(first.binding).scope, "()");
        let mut found = Vec::new();
        for binding in signatures {
            let place = Place {
                source: first.source.clone(),
                binding,
            };
            found.extend(self.called(Value::Function(place, Some(class.clone()))));
        }
        found
    }

    fn element(&mut self, value: Value) -> Vec<Value> {
        if let Value::Object(class) = &value
            && class.source.names().language == Some(Language::Python)
        {
            for name in ["__getitem__", "__iter__"] {
                let member = self.class_member(class, name, MemberAccess::Either, 0);
                if let Member::Found(place) = member {
                    return self.called(Value::Function(place, Some(class.clone())));
                }
            }
        }
        match held(value) {
            Value::External => vec![Value::Unknown],
            // The type of a collection's items follows its own.
            Value::Builtin(_) => Vec::new(),
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
                    Value::Builtin(_) if argument.is_none() && !transparent => found.push(value),
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
pub(super) fn split_top(text: &str, mark: char) -> Vec<&str> {
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
