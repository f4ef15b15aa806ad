//! Classes with bases, and methods with decorators.
//!
//! What a class inherits from classes of the same block is copied into it, as assignments of functions. Calls are adapted
//! where they are written, so a method that is found by a computed name keeps the interpreter's own behaviour.

use std::collections::HashMap;

use ruff_python_ast::visitor::{Visitor, walk_stmt};
use ruff_python_ast::{Expr, ExprAttribute, ExprCall, Stmt, StmtClassDef};
use ruff_text_size::{Ranged, TextRange, TextSize};

use super::Rewriter;

/// Bases without a meaning at run time.
const EMPTY_BASES: [&str; 6] = [
    "object",
    "ABC",
    "abc.ABC",
    "Protocol",
    "Generic",
    "typing.Protocol",
];

/// Bases, and metaclasses, whose abstract methods must be there.
const ABSTRACT_BASES: [&str; 4] = ["ABC", "abc.ABC", "ABCMeta", "abc.ABCMeta"];

/// What is known of the classes of a block.
#[derive(Debug, Default)]
pub(in super::super) struct Classes {
    known: HashMap<String, ClassFacts>,
}

#[derive(Debug, Default)]
struct ClassFacts {
    bases: Vec<String>,
    members: Vec<String>,
    statics: Vec<String>,
    class_methods: Vec<String>,
    properties: Vec<String>,
    abstract_methods: Vec<String>,
    /// Whether abstract methods keep it from being instantiated.
    is_abc: bool,
    is_dataclass: bool,
    /// It can be rewritten, or needs nothing.
    simple: bool,
}

impl Classes {
    fn members(&self, class: &str, depth: usize) -> Vec<String> {
        let Some(facts) = self.known.get(class).filter(|_| depth < 32) else {
            return Vec::new();
        };
        let mut all = facts.members.clone();
        for base in &facts.bases {
            for member in self.members(base, depth + 1) {
                if !all.contains(&member) {
                    all.push(member);
                }
            }
        }
        all
    }

    fn descends(&self, class: &str, from: &str, depth: usize) -> bool {
        let bases = self.known.get(class).map(|facts| facts.bases.as_slice());
        depth < 32
            && bases
                .unwrap_or_default()
                .iter()
                .any(|base| base == from || self.descends(base, from, depth + 1))
    }

    /// The class itself and those that inherit from it, in the order of their names.
    fn family(&self, class: &str) -> Vec<&str> {
        let mut family: Vec<&str> = self
            .known
            .keys()
            .map(String::as_str)
            .filter(|name| self.descends(name, class, 0))
            .collect();
        family.sort_unstable();
        family
    }

    fn owner(&self, has: impl Fn(&ClassFacts) -> bool) -> Option<&str> {
        let mut owners: Vec<&str> = self
            .known
            .iter()
            .filter(|(_, facts)| facts.simple && has(facts))
            .map(|(name, _)| name.as_str())
            .collect();
        owners.sort_unstable();
        owners.first().copied()
    }

    /// Methods that a class only declares, of its own and of its bases.
    fn abstract_methods(&self, class: &str, depth: usize) -> Vec<String> {
        let Some(facts) = self.known.get(class).filter(|_| depth < 32) else {
            return Vec::new();
        };
        let mut found = facts.abstract_methods.clone();
        let mut have = facts.members.clone();
        for base in &facts.bases {
            let of_base = self.abstract_methods(base, depth + 1);
            found.extend(of_base.into_iter().filter(|name| !have.contains(name)));
            have.extend(self.members(base, 0));
        }
        found.sort();
        found.dedup();
        found
    }

    /// What Python says when this class is instantiated, if it must not be.
    fn refusal(&self, class: &str) -> Option<String> {
        let facts = self.known.get(class)?;
        let missing = self.abstract_methods(class, 0);
        if !(facts.simple && facts.is_abc) || missing.is_empty() {
            return None;
        }
        let plural = if missing.len() > 1 { "s" } else { "" };
        let names = missing.join("', '");
        Some(format!(
            "Can't instantiate abstract class {class} without an implementation for abstract method{plural} '{names}'"
        ))
    }

    pub(super) fn is_property(&self, name: &str) -> bool {
        self.owner(|facts| facts.properties.iter().any(|known| known == name))
            .is_some()
    }

    /// Whether a class of the block has this method.
    pub(super) fn has_member(&self, name: &str) -> bool {
        self.known
            .values()
            .any(|facts| facts.members.iter().any(|known| known == name))
    }
}

impl<'a> Visitor<'a> for Classes {
    fn visit_stmt(&mut self, stmt: &'a Stmt) {
        if let Stmt::ClassDef(class) = stmt {
            let facts = facts(class, self);
            self.known.insert(class.name.to_string(), facts);
        }
        walk_stmt(self, stmt);
    }
}

fn facts(class: &StmtClassDef, known: &Classes) -> ClassFacts {
    let mut facts = ClassFacts {
        simple: true,
        ..ClassFacts::default()
    };
    let keywords = class.keywords().iter().map(|keyword| &keyword.value);
    facts.is_abc = class.bases().iter().chain(keywords).any(|base| {
        let name = path(base);
        let is_abc = known.known.get(&name).is_some_and(|base| base.is_abc);
        is_abc || ABSTRACT_BASES.contains(&name.as_str())
    });
    for base in class.bases() {
        let name = path(base);
        if known
            .known
            .get(&name)
            .is_some_and(|base| base.simple && !base.is_dataclass)
        {
            facts.bases.push(name);
        } else if !EMPTY_BASES.contains(&name.as_str()) {
            facts.simple = false;
        }
    }
    facts.is_dataclass = class
        .decorator_list
        .iter()
        .any(|decorator| path(&decorator.expression).ends_with("dataclass"));
    for stmt in &class.body {
        match stmt {
            Stmt::FunctionDef(method) => {
                let name = method.name.to_string();
                for decorator in &method.decorator_list {
                    match path(&decorator.expression).as_str() {
                        "property" => facts.properties.push(name.clone()),
                        "staticmethod" => facts.statics.push(name.clone()),
                        "classmethod" => facts.class_methods.push(name.clone()),
                        "abstractmethod" | "abc.abstractmethod" => {
                            facts.abstract_methods.push(name.clone());
                        }
                        _ => facts.simple = false,
                    }
                }
                facts.members.push(name);
            }
            Stmt::Assign(assign) => {
                let names = assign.targets.iter().filter_map(Expr::as_name_expr);
                facts.members.extend(names.map(|name| name.id.to_string()));
            }
            Stmt::AnnAssign(assign) if assign.value.is_some() => {
                let name = assign.target.as_name_expr();
                facts.members.extend(name.map(|name| name.id.to_string()));
            }
            _ => {}
        }
    }
    facts
}

/// `a.b` as text; the name before a bracket or a call.
fn path(expr: &Expr) -> String {
    match expr {
        Expr::Name(name) => name.id.to_string(),
        Expr::Attribute(attribute) => format!("{}.{}", path(&attribute.value), attribute.attr),
        Expr::Subscript(item) => path(&item.value),
        Expr::Call(call) => path(&call.func),
        _ => String::new(),
    }
}

impl Rewriter<'_> {
    pub(super) fn class(&mut self, class: &StmtClassDef) -> bool {
        let Some(facts) = self
            .classes
            .known
            .get(class.name.as_str())
            .filter(|facts| facts.simple)
        else {
            return false;
        };
        let (Some(first), Some(last)) = (class.body.first(), class.body.last()) else {
            return false;
        };
        let mut inherited = String::new();
        if !facts.bases.is_empty() {
            let Some(indent) = self.indent(first.start()) else {
                return false;
            };
            let mut have = facts.members.clone();
            for base in &facts.bases {
                for member in self.classes.members(base, 0) {
                    if !have.contains(&member) {
                        inherited.push_str(&format!("\n{indent}{member} = {base}.{member}"));
                        have.push(member);
                    }
                }
            }
        }
        let base = facts.bases.first().cloned();
        for decorator in &class.decorator_list {
            self.visit_decorator(decorator);
        }
        if let Some(arguments) = &class.arguments {
            self.replace(arguments.range(), "");
        }
        let outer = self.base.replace(base);
        for stmt in &class.body {
            if let Stmt::FunctionDef(method) = stmt {
                for decorator in &method.decorator_list {
                    self.replace(decorator.range(), "");
                }
                self.method_body(method);
            } else {
                self.visit_stmt(stmt);
            }
        }
        self.base = outer;
        self.insert(last.end(), inherited);
        true
    }

    /// Calls of `super`, of static methods and of class methods, and `isinstance` with a base.
    pub(super) fn class_call(&mut self, call: &ExprCall) -> bool {
        let arguments = &call.arguments;
        match &*call.func {
            Expr::Attribute(method) if is_super(&method.value) => match self.base.clone() {
                Some(Some(base)) => {
                    self.replace(method.value.range(), base);
                    self.first_argument(call, "self");
                    true
                }
                // Only `object` is above.
                Some(None) if method.attr.as_str() == "__init__" => {
                    self.replace(call.range(), "None");
                    true
                }
                _ => false,
            },
            Expr::Attribute(method) => self.bound_call(call, method),
            Expr::Name(class) if let Some(refusal) = self.classes.refusal(&class.id) => {
                let function = self.core("abstract");
                self.replace(class.range, function);
                self.first_argument(call, &format!("\"{refusal}\""));
                true
            }
            Expr::Name(_) if self.is_builtin(&call.func, "isinstance") => {
                let Some(Expr::Name(class)) = arguments.args.get(1) else {
                    return false;
                };
                let family = self.classes.family(&class.id);
                if family.is_empty() {
                    return false;
                }
                let text = format!("({}, {})", class.id, family.join(", "));
                self.visit_expr(&arguments.args[0]);
                self.replace(class.range, text);
                true
            }
            _ => false,
        }
    }

    fn bound_call(&mut self, call: &ExprCall, method: &ExprAttribute) -> bool {
        let Expr::Name(receiver) = &*method.value else {
            return false;
        };
        let name = method.attr.as_str();
        let has = |list: &[String]| list.iter().any(|known| known == name);
        let is_class = self.classes.known.contains_key(receiver.id.as_str());
        if let Some(owner) = self.classes.owner(|facts| has(&facts.statics)) {
            if !is_class {
                let owner = owner.to_owned();
                self.replace(receiver.range, owner);
            }
            self.visit_arguments(&call.arguments);
            return true;
        }
        if let Some(owner) = self.classes.owner(|facts| has(&facts.class_methods)) {
            let class = if is_class || receiver.id == "cls" {
                receiver.id.to_string()
            } else {
                let owner = owner.to_owned();
                self.replace(receiver.range, owner.clone());
                owner
            };
            self.first_argument(call, &class);
            return true;
        }
        // A property of that name belongs to another class if this is called.
        if self.classes.is_property(name) {
            self.visit_expr(&method.value);
            self.visit_arguments(&call.arguments);
            return true;
        }
        false
    }

    /// Puts an argument before the others.
    fn first_argument(&mut self, call: &ExprCall, text: &str) {
        let arguments = &call.arguments;
        let comma = if arguments.args.is_empty() && arguments.keywords.is_empty() {
            ""
        } else {
            ", "
        };
        self.insert(
            arguments.start() + TextSize::from(1),
            format!("{text}{comma}"),
        );
        self.visit_arguments(arguments);
    }

    /// `x.name` as `function(x, 'name')`.
    pub(super) fn attribute_by(&mut self, function: &str, attribute: &ExprAttribute) -> bool {
        let between =
            &self.code[attribute.value.end().to_usize()..attribute.attr.start().to_usize()];
        let Some(dot) = between
            .rfind('.')
            .and_then(|dot| TextSize::try_from(dot).ok())
        else {
            return false;
        };
        let function = self.core(function);
        self.insert(attribute.start(), format!("{function}("));
        self.visit_expr(&attribute.value);
        let rest = TextRange::new(attribute.value.end() + dot, attribute.end());
        self.replace(rest, format!(", '{}')", attribute.attr));
        true
    }
}

fn is_super(expr: &Expr) -> bool {
    matches!(expr, Expr::Call(call) if matches!(&*call.func, Expr::Name(name) if name.id == "super")
        && call.arguments.args.is_empty())
}
