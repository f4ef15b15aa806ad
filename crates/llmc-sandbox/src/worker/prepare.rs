//! Prepares code before it runs: refuses code that binds reserved names, and rewrites what the interpreter lacks.

use std::collections::{BTreeSet, HashSet};

use ruff_python_ast::visitor::{Visitor, walk_except_handler, walk_expr, walk_stmt};
use ruff_python_ast::{ExceptHandler, Expr, ExprContext, Identifier, Parameter, Stmt};
use ruff_python_parser::parse_module;
use ruff_text_size::{Ranged, TextSize};

use super::library::{self, Library};
use super::nesting;
use super::rewrite::{Classes, Edit, Rewriter};
use crate::names::ScriptNames;
use crate::outcome::{ScriptError, ScriptErrorKind};

/// The code to run, and how its lines belong to those of its author.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) code: String,
    pub(super) libraries: BTreeSet<Library>,
    pub(super) lines: LineMap,
}

/// The author's line for each line of the prepared code.
#[derive(Debug)]
pub(super) struct LineMap {
    original: Vec<u32>,
    source: Vec<String>,
}

impl LineMap {
    pub(super) fn identity(code: &str) -> LineMap {
        let source: Vec<String> = code.lines().map(str::to_owned).collect();
        let last = u32::try_from(source.len()).unwrap_or(u32::MAX);
        LineMap {
            original: (1..=last.saturating_add(1)).collect(),
            source,
        }
    }

    /// The author's line.
    pub(super) fn line(&self, prepared: u32) -> u32 {
        let index = usize::try_from(prepared.saturating_sub(1)).unwrap_or(usize::MAX);
        let last = self.original.last().copied();
        self.original
            .get(index)
            .copied()
            .or(last)
            .unwrap_or(prepared)
    }

    /// Its text.
    pub(super) fn source(&self, prepared: u32) -> Option<&str> {
        let index = usize::try_from(self.line(prepared).checked_sub(1)?).ok()?;
        self.source.get(index).map(String::as_str)
    }
}

/// The code to run instead of `code`, or why it must not run. `loaded` are the libraries of the session so far.
pub(super) fn prepare(
    code: &str,
    names: &ScriptNames,
    loaded: u64,
) -> Result<Prepared, ScriptError> {
    nesting::check(code)?;
    // The interpreter's own parser with the same options, so both refuse the same code.
    let Ok(parsed) = parse_module(code) else {
        // The interpreter reports the error with line and caret.
        return Ok(Prepared {
            code: code.to_owned(),
            libraries: BTreeSet::new(),
            lines: LineMap::identity(code),
        });
    };
    let mut visitor = BindingVisitor {
        names,
        all: HashSet::new(),
        bound: None,
    };
    visitor.visit_body(parsed.suite());
    if let Some((name, at)) = visitor.bound {
        return Err(reserved_name_error(code, &name, at));
    }
    let mut classes = Classes::default();
    classes.visit_body(parsed.suite());
    let mut rewriter = Rewriter::new(code, names, &visitor.all, &classes, loaded);
    rewriter.visit_body(parsed.suite());
    let (edits, mut libraries) = (rewriter.edits, rewriter.libraries);
    if libraries.contains(&Library::Files) {
        libraries.extend([Library::Core]);
    }
    if libraries.contains(&Library::Iteration) || libraries.contains(&Library::Csv) {
        libraries.insert(Library::Core);
    }
    let (code, lines) = apply(code, edits);
    Ok(Prepared {
        code,
        libraries,
        lines,
    })
}

/// The edited code. Edits at one place keep the order in which they were made.
fn apply(code: &str, mut edits: Vec<Edit>) -> (String, LineMap) {
    edits.sort_by_key(|edit| edit.range.start());
    let mut lines = LineMap::identity(code);
    if edits.is_empty() {
        return (code.to_owned(), lines);
    }
    let mut prepared = String::with_capacity(code.len() + 64 * edits.len());
    let mut original = vec![1];
    let mut line = 1;
    let mut done = 0;
    let copy = |text: &str, line: &mut u32, original: &mut Vec<u32>| {
        for _ in text.matches('\n') {
            *line += 1;
            original.push(*line);
        }
    };
    for Edit { range, text } in edits {
        let start = range.start().to_usize();
        // An edit inside of a replaced part has no place.
        if start < done {
            continue;
        }
        copy(&code[done..start], &mut line, &mut original);
        prepared.push_str(&code[done..start]);
        prepared.push_str(&text);
        original.extend(text.matches('\n').map(|_| line));
        done = range.end().to_usize();
        line += u32::try_from(code[start..done].matches('\n').count()).unwrap_or(0);
    }
    copy(&code[done..], &mut line, &mut original);
    prepared.push_str(&code[done..]);
    lines.original = original;
    (prepared, lines)
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

struct BindingVisitor<'a> {
    names: &'a ScriptNames,
    /// Every name that is bound somewhere.
    all: HashSet<String>,
    /// The first reserved name that is bound.
    bound: Option<(String, TextSize)>,
}

impl BindingVisitor<'_> {
    fn note_binding(&mut self, name: &str, at: TextSize) {
        self.all.insert(name.to_owned());
        let reserved = self.names.reserved.iter().any(|reserved| reserved == name);
        if self.bound.is_none() && (reserved || name.starts_with(library::PREFIX)) {
            self.bound = Some((name.to_owned(), at));
        }
    }

    fn note_binding_of(&mut self, name: &Identifier) {
        self.note_binding(name.as_str(), name.start());
    }

    /// Whether this is the module, or a part of it.
    fn is_module(&self, name: &str) -> bool {
        self.names.module.as_deref().is_some_and(|module| {
            name == module || name.strip_prefix(module).is_some_and(|rest| rest == ".aio")
        })
    }
}

impl<'a> Visitor<'a> for BindingVisitor<'_> {
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
            }
            Stmt::ImportFrom(import) => {
                for alias in &import.names {
                    self.note_binding_of(alias.asname.as_ref().unwrap_or(&alias.name));
                }
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

    /// A parameter may have a reserved name: it is local.
    fn visit_parameter(&mut self, parameter: &'a Parameter) {
        self.all.insert(parameter.name.to_string());
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
    fn imports_become_assignments() {
        for (code, wanted) in [
            ("from tools import a", "(a,) = (tools.a,)"),
            (
                "if x:\n  from tools import (a,\n    b as c,\n  ); y = 1\nz",
                "if x:\n  (a, c,) = (tools.a, tools.b,); y = 1\nz",
            ),
            ("from tools.aio import a", "(a,) = (tools.aio.a,)"),
            ("import tools", "pass"),
            ("import tools as t, json", "t = tools; json = _llmc_json"),
            ("from tools import *", "pass"),
            (
                "import json\nfrom json import loads",
                "json = _llmc_json\n(loads,) = (_llmc_json.loads,)",
            ),
            ("import toolshed", "import toolshed"),
            ("not python", "not python"),
        ] {
            assert_eq!(prepare(code, &names(), 0).unwrap().code, wanted, "{code}");
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
            let error = prepare(&format!("x = 1\n{code}"), &names(), 0).unwrap_err();
            assert_eq!(error.kind, ScriptErrorKind::Reserved, "{code}");
            assert!(error.line >= Some(2), "{code}: {error:?}");
        }
        for code in [
            "x = context",
            "x.context = 1",
            "f(context=1)",
            "import tools",
        ] {
            assert!(prepare(code, &names(), 0).is_ok(), "{code}");
        }
    }
}
