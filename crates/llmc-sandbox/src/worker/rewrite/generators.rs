//! Generator functions that collect what they yield in a list.
//!
//! The caller cannot see the difference unless the function prints, changes something else, or never ends; such functions
//! are left alone.

use ruff_python_ast::visitor::{Visitor, walk_expr, walk_stmt};
use ruff_python_ast::{Expr, Number, Stmt, StmtFunctionDef};
use ruff_text_size::{Ranged, TextRange, TextSize};

use super::Rewriter;

/// The list that a function collects into.
const LIST: &str = "_llmc_out";

impl Rewriter<'_> {
    pub(super) fn function(&mut self, function: &StmtFunctionDef) -> bool {
        for decorator in &function.decorator_list {
            self.visit_decorator(decorator);
        }
        self.method_body(function)
    }

    /// Rewrites a generator function; other functions are only visited.
    pub(super) fn method_body(&mut self, function: &StmtFunctionDef) -> bool {
        let outer = std::mem::replace(&mut self.collecting, false);
        let mut survey = Survey::default();
        survey.visit_body(&function.body);
        let (Some(first), Some(last)) = (function.body.first(), function.body.last()) else {
            return false;
        };
        let indent = self.indent(first.start());
        let managed = function.decorator_list.iter().any(|decorator| {
            let text = self.source(&decorator.expression);
            text.ends_with("contextmanager")
        });
        let rewritten = survey.yields > 0
            && survey.statements == survey.yields
            && !survey.visible
            && !survey.endless
            && !function.is_async
            && !managed;
        self.visit_parameters(&function.parameters);
        match indent {
            Some(indent) if rewritten => {
                self.collecting = true;
                self.insert(first.start(), format!("{LIST} = []\n{indent}"));
                self.visit_body_of(&function.body);
                self.insert(last.end(), format!("\n{indent}return iter({LIST})"));
            }
            _ => self.visit_body_of(&function.body),
        }
        self.collecting = outer;
        true
    }

    fn visit_body_of(&mut self, body: &[Stmt]) {
        for stmt in body {
            self.visit_stmt(stmt);
        }
    }

    pub(super) fn end_collecting(&mut self, range: TextRange) -> bool {
        self.replace(range, format!("return iter({LIST})"));
        true
    }

    /// `yield x` as a statement.
    pub(super) fn collect(&mut self, expr: &Expr) -> bool {
        let (method, keyword, value) = match expr {
            Expr::Yield(yielded) => ("append", "yield", yielded.value.as_deref()),
            Expr::YieldFrom(yielded) => ("extend", "yield from", Some(&*yielded.value)),
            _ => return false,
        };
        let Some(value) = value else {
            self.replace(expr.range(), format!("{LIST}.append(None)"));
            return true;
        };
        let head = TextRange::at(expr.start(), TextSize::of(keyword));
        self.replace(head, format!("{LIST}.{method}(("));
        self.visit_expr(value);
        self.insert(expr.end(), "))");
        true
    }
}

/// What a function's own body has.
#[derive(Default)]
struct Survey {
    yields: usize,
    /// Yields that are statements of their own.
    statements: usize,
    /// It prints, or changes names of others.
    visible: bool,
    /// It has a loop without an end.
    endless: bool,
}

impl<'a> Visitor<'a> for Survey {
    fn visit_stmt(&mut self, stmt: &'a Stmt) {
        match stmt {
            // Their yields are their own.
            Stmt::FunctionDef(_) | Stmt::ClassDef(_) => return,
            Stmt::Global(_) | Stmt::Nonlocal(_) => self.visible = true,
            Stmt::While(repeat) => {
                let always = match &*repeat.test {
                    Expr::BooleanLiteral(value) => value.value,
                    Expr::NumberLiteral(number) => {
                        !matches!(&number.value, Number::Int(int) if *int == 0)
                    }
                    _ => false,
                };
                self.endless |= always && !leaves(&repeat.body);
            }
            Stmt::For(repeat) => {
                let endless = match &*repeat.iter {
                    Expr::Call(call) => match &*call.func {
                        Expr::Name(name) => matches!(name.id.as_str(), "count" | "cycle"),
                        Expr::Attribute(name) => matches!(name.attr.as_str(), "count" | "cycle"),
                        _ => false,
                    },
                    _ => false,
                };
                self.endless |= endless && !leaves(&repeat.body);
            }
            Stmt::Expr(expr) => {
                self.statements +=
                    usize::from(matches!(&*expr.value, Expr::Yield(_) | Expr::YieldFrom(_)));
            }
            _ => {}
        }
        walk_stmt(self, stmt);
    }

    fn visit_expr(&mut self, expr: &'a Expr) {
        match expr {
            Expr::Yield(_) | Expr::YieldFrom(_) => self.yields += 1,
            Expr::Lambda(_) => return,
            Expr::Call(call) if matches!(&*call.func, Expr::Name(name) if name.id == "print") => {
                self.visible = true;
            }
            _ => {}
        }
        walk_expr(self, expr);
    }
}

/// Whether a loop's body can end the loop.
fn leaves(body: &[Stmt]) -> bool {
    #[derive(Default)]
    struct Leaves(bool);
    impl<'a> Visitor<'a> for Leaves {
        fn visit_stmt(&mut self, stmt: &'a Stmt) {
            self.0 |= matches!(stmt, Stmt::Break(_) | Stmt::Return(_) | Stmt::Raise(_));
            walk_stmt(self, stmt);
        }
    }
    let mut found = Leaves::default();
    for stmt in body {
        found.visit_stmt(stmt);
    }
    found.0
}
