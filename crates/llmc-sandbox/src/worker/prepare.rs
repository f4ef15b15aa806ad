//! Prepares code before it runs: rewrites imports from the host's module and refuses code that binds reserved names.

use ruff_python_ast::visitor::{Visitor, walk_except_handler, walk_expr, walk_stmt};
use ruff_python_ast::{
    Alias, ExceptHandler, Expr, ExprContext, Identifier, Stmt, StmtImport, StmtImportFrom,
};
use ruff_python_parser::parse_module;
use ruff_text_size::{Ranged, TextRange, TextSize};

use crate::names::ScriptNames;
use crate::outcome::{ScriptError, ScriptErrorKind};

/// The code to run instead of `code`, with the same lines, or why it must not run.
///
/// The interpreter does not know the module, so an import from it becomes an assignment.
pub(super) fn prepare(code: &str, names: &ScriptNames) -> Result<String, ScriptError> {
    // The interpreter's own parser with the same options, so both refuse the same code.
    let Ok(parsed) = parse_module(code) else {
        // The interpreter reports the error with line and caret.
        return Ok(code.to_owned());
    };
    let mut visitor = ScriptVisitor {
        code,
        names,
        changes: Vec::new(),
        bound: None,
    };
    visitor.visit_body(parsed.suite());
    if let Some((name, at)) = visitor.bound {
        return Err(reserved_name_error(code, &name, at));
    }
    let mut prepared = String::with_capacity(code.len());
    let mut done = 0;
    for (range, text) in visitor.changes {
        prepared.push_str(&code[done..range.start().to_usize()]);
        prepared.push_str(&text);
        done = range.end().to_usize();
    }
    prepared.push_str(&code[done..]);
    Ok(prepared)
}

fn reserved_name_error(code: &str, name: &str, at: TextSize) -> ScriptError {
    let line = 1 + code[..at.to_usize()].matches('\n').count();
    let shown = code.lines().nth(line - 1).unwrap_or_default().trim();
    let mut error = ScriptError::new(
        ScriptErrorKind::Reserved,
        format!("{name} is reserved and cannot be assigned"),
    );
    error.line = u32::try_from(line).ok();
    error.traceback = format!("  line {line}\n    {shown}\n");
    error.hint = Some(format!("use another name than {name}"));
    error
}

struct ScriptVisitor<'a> {
    code: &'a str,
    names: &'a ScriptNames,
    /// Statements and their replacements, in the order of the code.
    changes: Vec<(TextRange, String)>,
    /// The first reserved name that is bound.
    bound: Option<(String, TextSize)>,
}

impl ScriptVisitor<'_> {
    fn note_binding(&mut self, name: &str, at: TextSize) {
        if self.bound.is_none() && self.names.reserved.iter().any(|reserved| reserved == name) {
            self.bound = Some((name.to_owned(), at));
        }
    }

    fn note_binding_of(&mut self, name: &Identifier) {
        self.note_binding(name.as_str(), name.start());
    }

    /// Replaces a statement by `text` with as many lines. `text` ends inside parentheses, where lines may end anywhere.
    fn replace(&mut self, range: TextRange, text: &str, close: &str) {
        let lines = self.code[range].matches('\n').count();
        let text = format!("{text}{}{close}", "\n".repeat(lines));
        self.changes.push((range, text));
    }

    /// Whether this is the module, or a part of it.
    fn is_module(&self, name: &str) -> bool {
        self.names.module.as_deref().is_some_and(|module| {
            name == module || name.strip_prefix(module).is_some_and(|rest| rest == ".aio")
        })
    }

    fn import(&mut self, import: &StmtImport) {
        if !import.names.iter().any(|alias| self.is_module(&alias.name)) {
            return;
        }
        let mut parts = Vec::new();
        let mut others = Vec::new();
        for Alias { name, asname, .. } in &import.names {
            match (self.is_module(name), asname) {
                (true, Some(asname)) => parts.push(format!("{asname} = {name}")),
                (true, None) => {}
                (false, Some(asname)) => others.push(format!("{name} as {asname}")),
                (false, None) => others.push(name.to_string()),
            }
        }
        if !others.is_empty() {
            parts.insert(0, format!("import {}", others.join(", ")));
        }
        if parts.is_empty() {
            parts.push("pass".to_owned());
        }
        // An import with backslashes has several lines; a dummy assignment keeps their number.
        let text = parts.join("; ");
        if self.code[import.range].contains('\n') {
            self.replace(import.range, &format!("{text}; _ = ("), "None)");
        } else {
            self.replace(import.range, &text, "");
        }
    }

    fn import_from(&mut self, import: &StmtImportFrom) {
        let Some(module) = &import.module else {
            return;
        };
        if import.level > 0 || !self.is_module(module) {
            return;
        }
        // All functions are bound by their bare names already.
        if import.names.iter().any(|alias| &alias.name == "*") {
            return self.replace(import.range, "pass", "");
        }
        let bound = import.names.iter().map(|alias| {
            let name = alias.asname.as_ref().unwrap_or(&alias.name);
            format!("{name}, ")
        });
        let taken = import
            .names
            .iter()
            .map(|alias| format!("{module}.{}, ", alias.name));
        let text = format!(
            "({}) = ({}",
            bound.collect::<String>().trim_end(),
            taken.collect::<String>().trim_end()
        );
        self.replace(import.range, &text, ")");
    }
}

impl<'a> Visitor<'a> for ScriptVisitor<'_> {
    fn visit_stmt(&mut self, stmt: &'a Stmt) {
        match stmt {
            Stmt::Import(import) => {
                for alias in &import.names {
                    // `import a.b` binds a; the module itself may be imported under its own name.
                    let bound = alias.asname.as_ref().unwrap_or(&alias.name);
                    let first = bound.split('.').next().unwrap_or_default();
                    if alias.asname.is_some() || !self.is_module(&alias.name) {
                        self.note_binding(first, bound.start());
                    }
                }
                self.import(import);
            }
            Stmt::ImportFrom(import) => {
                for alias in &import.names {
                    self.note_binding_of(alias.asname.as_ref().unwrap_or(&alias.name));
                }
                self.import_from(import);
            }
            Stmt::FunctionDef(function) => self.note_binding_of(&function.name),
            Stmt::ClassDef(class) => self.note_binding_of(&class.name),
            Stmt::Global(global) => {
                for name in &global.names {
                    self.note_binding_of(name);
                }
            }
            _ => {}
        }
        walk_stmt(self, stmt);
    }

    fn visit_expr(&mut self, expr: &'a Expr) {
        if let Expr::Name(name) = expr
            && name.ctx != ExprContext::Load
        {
            self.note_binding(&name.id, name.start());
        }
        walk_expr(self, expr);
    }

    fn visit_except_handler(&mut self, handler: &'a ExceptHandler) {
        let ExceptHandler::ExceptHandler(inner) = handler;
        if let Some(name) = &inner.name {
            self.note_binding_of(name);
        }
        walk_except_handler(self, handler);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> ScriptNames {
        ScriptNames {
            module: Some("tools".to_owned()),
            reserved: vec!["tools".to_owned(), "context".to_owned()],
            ..ScriptNames::default()
        }
    }

    #[test]
    fn imports_become_assignments_of_as_many_lines() {
        for (code, wanted) in [
            ("from tools import a", "(a,) = (tools.a,)"),
            (
                "if x:\n  from tools import (a,\n    b as c,\n  ); y = 1\nz",
                "if x:\n  (a, c,) = (tools.a, tools.b,\n\n); y = 1\nz",
            ),
            ("from tools.aio import a", "(a,) = (tools.aio.a,)"),
            ("import tools", "pass"),
            ("import tools as t, json", "import json; t = tools"),
            ("from tools import *", "pass"),
            (
                "import json\nfrom json import loads",
                "import json\nfrom json import loads",
            ),
            ("import toolshed", "import toolshed"),
            ("not python", "not python"),
        ] {
            assert_eq!(prepare(code, &names()).unwrap(), wanted, "{code}");
        }
    }

    #[test]
    fn every_way_to_bind_a_reserved_name_is_seen() {
        for code in [
            "context = 1",
            "x = context = 1",
            "a, (b, *context) = 1, 2",
            "context += 1",
            "context: int = 1",
            "(context := 1)",
            "for context in x: pass",
            "[0 for context in x]",
            "with open('x') as context: pass",
            "def context(): pass",
            "class context: pass",
            "def f():\n  global context\n  context = 1",
            "import json as context",
            "import context",
            "from json import loads as context",
            "try:\n  pass\nexcept ValueError as context:\n  pass",
            "del context",
            "import tools as context",
        ] {
            let error = prepare(&format!("x = 1\n{code}"), &names()).unwrap_err();
            assert_eq!(error.kind, ScriptErrorKind::Reserved, "{code}");
            assert!(error.line >= Some(2), "{code}: {error:?}");
        }
        for code in [
            "x = context",
            "x.context = 1",
            "f(context=1)",
            "import tools",
        ] {
            assert!(prepare(code, &names()).is_ok(), "{code}");
        }
    }
}
