//! Statements: imports, assignments, `del` and `assert`.

use ruff_python_ast::visitor::Visitor;
use ruff_python_ast::{
    Alias, Expr, Operator, StmtAssert, StmtAssign, StmtAugAssign, StmtDelete, StmtImport,
    StmtImportFrom,
};
use ruff_text_size::{Ranged, TextRange, TextSize};

use super::{Rewriter, is_predicate};
use crate::worker::library::{self, Library};

impl Rewriter<'_> {
    /// Replaces imports of the host's module and of libraries; the rest stays an import.
    pub(super) fn import(&mut self, import: &StmtImport) {
        let mut parts = Vec::new();
        let mut others = Vec::new();
        for Alias { name, asname, .. } in &import.names {
            if self.is_host_module(name) {
                if let Some(asname) = asname {
                    parts.push(format!("{asname} = {name}"));
                }
                continue;
            }
            let first = name.split('.').next().unwrap_or_default();
            // `import os.path` binds os.
            let meant = if asname.is_some() {
                name.as_str()
            } else {
                first
            };
            match library::module(name, self.names).and_then(|_| library::module(meant, self.names))
            {
                Some((class, library)) => {
                    self.libraries.extend([Library::Core, library]);
                    let bound = asname.as_ref().map_or(first, |asname| asname.as_str());
                    parts.push(format!("{bound} = {class}"));
                }
                None => others.push(self.source(TextRange::new(
                    name.start(),
                    asname.as_ref().map_or(name.end(), Ranged::end),
                ))),
            }
        }
        if parts.is_empty() && others.len() == import.names.len() {
            return;
        }
        if !others.is_empty() {
            parts.insert(0, format!("import {}", others.join(", ")));
        }
        if parts.is_empty() {
            parts.push("pass".to_owned());
        }
        self.replace(import.range, parts.join("; "));
    }

    pub(super) fn import_from(&mut self, import: &StmtImportFrom) {
        let Some(module) = &import.module else {
            return;
        };
        if import.level > 0 {
            return;
        }
        let everything = import.names.iter().any(|alias| &alias.name == "*");
        let source = if self.is_host_module(module) {
            if everything {
                // All functions are bound by their bare names already.
                return self.replace(import.range, "pass");
            }
            module.to_string()
        } else if module == "typing" {
            return self.import_typing(import);
        } else {
            match library::module(module, self.names) {
                Some((class, library)) if !everything => {
                    self.libraries.extend([Library::Core, library]);
                    class.to_owned()
                }
                _ => return,
            }
        };
        let bound = import.names.iter().map(|alias| {
            let name = alias.asname.as_ref().unwrap_or(&alias.name);
            format!("{name}, ")
        });
        let bound: String = bound.collect();
        let taken = import
            .names
            .iter()
            .map(|alias| format!("{source}.{}, ", alias.name));
        let taken: String = taken.collect();
        self.replace(
            import.range,
            format!("({}) = ({})", bound.trim_end(), taken.trim_end()),
        );
    }

    /// Names that the interpreter's own `typing` has but cannot call.
    pub(super) fn import_typing(&mut self, import: &StmtImportFrom) {
        let called = |name: &str| matches!(name, "TypeVar" | "cast");
        if !import.names.iter().any(|alias| called(&alias.name)) {
            return;
        }
        self.libraries.extend([Library::Core, Library::System]);
        let mut parts: Vec<String> = Vec::new();
        for alias in &import.names {
            let bound = alias.asname.as_ref().unwrap_or(&alias.name);
            parts.push(match called(&alias.name) {
                true => format!("{bound} = _llmc_typing.{}", alias.name),
                false => format!("from typing import {}", self.source(alias)),
            });
        }
        self.replace(import.range, parts.join("; "));
    }

    pub(super) fn is_host_module(&self, name: &str) -> bool {
        self.names.module.as_deref().is_some_and(|module| {
            name == module || name.strip_prefix(module).is_some_and(|rest| rest == ".aio")
        })
    }

    /// Names are deleted by the end of a handler that binds them, which is a statement of several lines.
    pub(super) fn delete(&mut self, delete: &StmtDelete) -> bool {
        let indent = self.indent(delete.start());
        let mut parts = Vec::new();
        for target in &delete.targets {
            parts.push(match target {
                Expr::Name(name) => match indent {
                    Some(indent) => format!(
                        "try:\n{indent} {0}\n{indent} raise ValueError\n{indent}except ValueError as {0}:\n{indent} pass",
                        name.id
                    ),
                    None => format!("{} = None", name.id),
                },
                Expr::Subscript(item) => {
                    let of = self.source(&*item.value);
                    match &*item.slice {
                        Expr::Slice(slice) => {
                            let bounds = self.bounds(slice);
                            format!("{}({of}, {bounds}, [])", self.core("setslice"))
                        }
                        key => {
                            let key = self.source(key);
                            format!("{}({of}, {key})", self.core("del"))
                        }
                    }
                }
                _ => return false,
            });
        }
        let next = indent.map_or("; ".to_owned(), |indent| format!("\n{indent}"));
        self.replace(delete.range, parts.join(&next));
        true
    }

    pub(super) fn bounds(&self, slice: &ruff_python_ast::ExprSlice) -> String {
        let bound =
            |part: &Option<Box<Expr>>| part.as_ref().map_or("None", |part| self.source(&**part));
        format!(
            "{}, {}, {}",
            bound(&slice.lower),
            bound(&slice.upper),
            bound(&slice.step)
        )
    }

    /// `x[a:b] = v`, and tuples of targets with attributes or items among them.
    pub(super) fn assign(&mut self, assign: &StmtAssign) -> bool {
        let [target] = assign.targets.as_slice() else {
            return false;
        };
        let Some(equals) = self.find(target.end(), assign.value.start(), "=") else {
            return false;
        };
        let before = TextRange::new(assign.start(), equals + TextSize::from(1));
        match target {
            Expr::Subscript(item) if let Expr::Slice(slice) = &*item.slice => {
                let text = format!(
                    "{}({}, {}, (",
                    self.core("setslice"),
                    self.source(&*item.value),
                    self.bounds(slice)
                );
                self.replace(before, text);
                self.visit_expr(&assign.value);
                self.insert(assign.end(), "))");
                true
            }
            Expr::Tuple(ruff_python_ast::ExprTuple { elts, .. })
            | Expr::List(ruff_python_ast::ExprList { elts, .. }) => {
                let complex = |target: &Expr| match target {
                    Expr::Attribute(_) => true,
                    Expr::Subscript(item) => !matches!(&*item.slice, Expr::Slice(_)),
                    _ => false,
                };
                if !elts.iter().any(complex) {
                    return false;
                }
                let mut targets = String::new();
                let mut after = String::new();
                for element in elts {
                    if complex(element) {
                        let name = self.temporary();
                        after.push_str(&format!("; {} = {name}", self.source(element)));
                        targets.push_str(&format!("{name}, "));
                    } else {
                        targets.push_str(&format!("{}, ", self.source(element)));
                    }
                }
                self.replace(before, format!("{}=", targets));
                self.visit_expr(&assign.value);
                self.insert(assign.end(), after);
                true
            }
            _ => false,
        }
    }

    pub(super) fn augmented(&mut self, assign: &StmtAugAssign) -> bool {
        match (assign.op, &*assign.target) {
            (Operator::Add | Operator::Sub | Operator::Mult, _) if is_predicate(&assign.value) => {
                self.number(&assign.value);
                true
            }
            (Operator::BitOr, Expr::Name(name))
                if !matches!(&*assign.value, Expr::Set(_) | Expr::NumberLiteral(_)) =>
            {
                let Some(op) = self.find(name.end(), assign.value.start(), "|=") else {
                    return false;
                };
                let text = format!("{0} = {1}({0}, (", name.id, self.core("ior"));
                self.replace(TextRange::new(assign.start(), op + TextSize::from(2)), text);
                self.visit_expr(&assign.value);
                self.insert(assign.end(), "))");
                true
            }
            _ => false,
        }
    }

    /// The interpreter would add the compared values to the message.
    pub(super) fn assert(&mut self, assert: &StmtAssert) -> bool {
        let Some(message) = &assert.msg else {
            return false;
        };
        if self.indent(assert.start()).is_none() {
            return false;
        }
        let Some(comma) = self.find(assert.test.end(), message.start(), ",") else {
            return false;
        };
        self.replace(
            TextRange::at(assert.start(), TextSize::of("assert")),
            "if not (",
        );
        self.visit_expr(&assert.test);
        self.replace(
            TextRange::at(comma, TextSize::of(",")),
            "): raise AssertionError(",
        );
        self.visit_expr(message);
        self.insert(assert.end(), ")");
        true
    }
}
