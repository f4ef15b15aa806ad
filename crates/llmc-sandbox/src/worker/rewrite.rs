//! Rewrites Python that the interpreter lacks as Python that it runs.
//!
//! The text is edited, not printed from the tree: what needs no change stays as its author wrote it. Edits insert text
//! around expressions, so they nest. Where the meaning could change without notice, nothing is rewritten, and the
//! interpreter's error names the construct.

mod classes;
mod generators;
mod matches;
mod statements;

use std::collections::{BTreeSet, HashSet};

use ruff_python_ast::visitor::{Visitor, walk_expr, walk_keyword, walk_stmt};
use ruff_python_ast::{
    CmpOp, Expr, ExprAttribute, ExprBinOp, ExprCall, ExprCompare, ExprContext, ExprSubscript,
    Keyword, Operator, Stmt, UnaryOp,
};
use ruff_text_size::{Ranged, TextRange, TextSize};

pub(super) use classes::Classes;

use super::library::{self, Library};
use crate::names::ScriptNames;

/// A replacement of a part of the code; an insertion if the part is empty.
#[derive(Debug)]
pub(super) struct Edit {
    pub(super) range: TextRange,
    pub(super) text: String,
}

/// Methods of paths that are served by the files library.
const PATH_METHODS: [&str; 22] = [
    "read_text",
    "read_bytes",
    "write_text",
    "write_bytes",
    "exists",
    "is_file",
    "is_dir",
    "iterdir",
    "glob",
    "rglob",
    "mkdir",
    "unlink",
    "rmdir",
    "rename",
    "stat",
    "open",
    "touch",
    "relative_to",
    "is_relative_to",
    "resolve",
    "absolute",
    "cwd",
];
/// Functions whose results are documents that print as text.
const PRINTED_RESULTS: [&str; 5] = ["run_cmd", "run_preview", "run_compare", "history", "undo"];
/// Fields of results, which a script may write as attributes.
const RESULT_FIELDS: [&str; 10] = [
    "stdout",
    "stderr",
    "exit_code",
    "hits",
    "total_hits",
    "entries",
    "content",
    "replacements",
    "snippet",
    "bytes_written",
];
/// Methods and functions whose result is `True` or `False`.
const PREDICATES: [&str; 16] = [
    "startswith",
    "endswith",
    "isdigit",
    "isupper",
    "islower",
    "isalpha",
    "isspace",
    "isalnum",
    "isidentifier",
    "exists",
    "is_file",
    "is_dir",
    "bool",
    "isinstance",
    "any",
    "all",
];
/// Functions that the interpreter can call on each item itself.
const PLAIN_FUNCTIONS: [&str; 14] = [
    "str", "int", "float", "len", "list", "tuple", "set", "dict", "bool", "repr", "ord", "chr",
    "abs", "sorted",
];

pub(super) struct Rewriter<'a> {
    pub(super) code: &'a str,
    names: &'a ScriptNames,
    /// Names that the block binds itself; a built-in function of that name is not meant.
    bound: &'a HashSet<String>,
    classes: &'a Classes,
    pub(super) edits: Vec<Edit>,
    pub(super) libraries: BTreeSet<Library>,
    files: bool,
    /// Paths exist in this session.
    paths: bool,
    prints_results: bool,
    temporaries: u32,
    /// Whether the function around is rewritten to collect what it yields.
    collecting: bool,
    /// Inside of a class: its first base, if it is of this block.
    base: Option<Option<String>>,
}

impl<'a> Rewriter<'a> {
    pub(super) fn new(
        code: &'a str,
        names: &'a ScriptNames,
        bound: &'a HashSet<String>,
        classes: &'a Classes,
        loaded: u64,
    ) -> Rewriter<'a> {
        Rewriter {
            code,
            names,
            bound,
            classes,
            edits: Vec::new(),
            libraries: BTreeSet::new(),
            files: library::has_files(names),
            paths: loaded & Library::Files.bit() != 0 || code.contains("pathlib"),
            prints_results: PRINTED_RESULTS.iter().any(|name| code.contains(name)),
            temporaries: 0,
            collecting: false,
            base: None,
        }
    }

    fn replace(&mut self, range: TextRange, text: impl Into<String>) {
        let text = text.into();
        self.edits.push(Edit { range, text });
    }

    fn insert(&mut self, at: TextSize, text: impl Into<String>) {
        self.replace(TextRange::empty(at), text);
    }

    fn source(&self, range: impl Ranged) -> &'a str {
        &self.code[range.range()]
    }

    fn temporary(&mut self) -> String {
        self.temporaries += 1;
        format!("_llmc_t{}", self.temporaries)
    }

    /// The name of a library's function; the library is loaded.
    fn core(&mut self, function: &str) -> String {
        self.libraries.insert(Library::Core);
        format!("{}{function}", library::PREFIX)
    }

    fn is_builtin(&self, expr: &Expr, name: &str) -> bool {
        matches!(expr, Expr::Name(found) if found.id == name) && !self.bound.contains(name)
    }

    /// The indentation of a statement, if it begins its line.
    fn indent(&self, at: TextSize) -> Option<&'a str> {
        let before = &self.code[..at.to_usize()];
        let line = &before[before.rfind('\n').map_or(0, |newline| newline + 1)..];
        line.chars().all(|c| c == ' ' || c == '\t').then_some(line)
    }

    /// Where `token` is between two positions, outside of comments.
    fn find(&self, from: TextSize, to: TextSize, token: &str) -> Option<TextSize> {
        let gap = &self.code[from.to_usize()..to.to_usize()];
        let mut comment = false;
        for (at, c) in gap.char_indices() {
            match c {
                '\n' => comment = false,
                '#' => comment = true,
                _ if !comment && gap[at..].starts_with(token) => {
                    return Some(from + TextSize::try_from(at).ok()?);
                }
                _ => {}
            }
        }
        None
    }

    /// A predicate as 1 or 0.
    fn number(&mut self, expr: &'_ Expr) {
        self.insert(expr.start(), "(1 if (");
        self.visit_expr(expr);
        self.insert(expr.end(), ") else 0)");
    }

    /// `a OP b` as `function(a, b)`.
    fn binary(
        &mut self,
        function: &str,
        range: TextRange,
        left: &Expr,
        right: &Expr,
        token: &str,
    ) -> bool {
        let Some(op) = self.find(left.end(), right.start(), token) else {
            return false;
        };
        let function = self.core(function);
        self.insert(range.start(), format!("{function}("));
        self.visit_expr(left);
        self.replace(TextRange::at(op, TextSize::of(token)), ",");
        self.visit_expr(right);
        self.insert(range.end(), ")");
        true
    }

    fn bin_op(&mut self, op: &ExprBinOp) -> bool {
        let (left, right) = (&*op.left, &*op.right);
        let number = |expr: &Expr| matches!(expr, Expr::NumberLiteral(_));
        match op.op {
            Operator::Mod if !number(left) && !number(right) || is_text(left) => {
                self.binary("mod", op.range, left, right, "%")
            }
            _ if let Some((function, token)) = self.operator(op.op) => {
                self.binary(function, op.range, left, right, token)
            }
            Operator::BitOr if may_be_dict(left) && may_be_dict(right) => {
                self.binary("or", op.range, left, right, "|")
            }
            Operator::Add | Operator::Sub | Operator::Mult
                if is_predicate(left) || is_predicate(right) =>
            {
                for side in [left, right] {
                    if is_predicate(side) {
                        self.number(side);
                    } else {
                        self.visit_expr(side);
                    }
                }
                true
            }
            _ => false,
        }
    }

    /// The function for an operator that a class of the block defines.
    fn operator(&self, op: Operator) -> Option<(&'static str, &'static str)> {
        let (method, function, token) = match op {
            Operator::Add => ("__add__", "add", "+"),
            Operator::Sub => ("__sub__", "sub", "-"),
            Operator::Mult => ("__mul__", "mul", "*"),
            Operator::Div => ("__truediv__", "truediv", "/"),
            _ => return None,
        };
        self.classes.has_member(method).then_some((function, token))
    }

    fn compare(&mut self, compare: &ExprCompare) -> bool {
        let ([op], [right]) = (&*compare.ops, &*compare.comparators) else {
            return false;
        };
        let left = &*compare.left;
        let is_set = |expr: &Expr| match expr {
            Expr::Set(_) | Expr::SetComp(_) => true,
            Expr::Call(call) => {
                self.is_builtin(&call.func, "set") || self.is_builtin(&call.func, "frozenset")
            }
            _ => false,
        };
        if !is_set(left) && !is_set(right) {
            return false;
        }
        let (function, token) = match op {
            CmpOp::LtE => ("le", "<="),
            CmpOp::GtE => ("ge", ">="),
            CmpOp::Lt => ("lt", "<"),
            CmpOp::Gt => ("gt", ">"),
            _ => return false,
        };
        self.binary(function, compare.range, left, right, token)
    }

    fn call(&mut self, call: &ExprCall) -> bool {
        if self.class_call(call) {
            return true;
        }
        let arguments = &call.arguments;
        let has = |keyword: &str| {
            let mut names = arguments
                .keywords
                .iter()
                .filter_map(|given| given.arg.as_ref());
            names.any(|name| name == keyword)
        };
        match &*call.func {
            Expr::Name(name) if !self.bound.contains(name.id.as_str()) => {
                let first = arguments.args.first();
                let function = match name.id.as_str() {
                    "sum" if first.is_some_and(|first| !sums_numbers(first)) => "sum",
                    known @ ("sorted" | "min" | "max") if has("key") || self.paths => known,
                    "len" if self.classes.has_member("__len__") => "len",
                    "abs" if self.classes.has_member("__abs__") => "abs",
                    known @ ("map" | "filter")
                        if first.is_some_and(|first| !is_plain_function(first)) =>
                    {
                        known
                    }
                    "print" if self.prints_results || has("file") => "print",
                    known @ ("format" | "callable") => known,
                    "next" if matches!(first, Some(Expr::Generator(items)) if !items.parenthesized) => {
                        "first"
                    }
                    "open" if self.files => {
                        self.libraries.insert(Library::Files);
                        "open"
                    }
                    _ => return false,
                };
                let text = self.core(function);
                self.replace(name.range, text);
                self.visit_arguments(arguments);
                true
            }
            Expr::Attribute(method) => {
                let name = method.attr.as_str();
                let function = if self.paths && self.files && PATH_METHODS.contains(&name) {
                    self.libraries.insert(Library::Files);
                    format!("p_{name}")
                } else if name == "sleep" && self.takes_turns(call, method) {
                    let function = self.core("take_turns");
                    self.replace(call.range(), format!("{function}()"));
                    return true;
                } else if name == "translate" && arguments.args.len() == 1 {
                    "m_translate".to_owned()
                } else if name == "sort" && (has("key") || self.paths) {
                    name.to_owned()
                } else if matches!(name, "sub" | "subn")
                    && arguments.args.len() >= 2
                    && !is_module(&method.value)
                {
                    self.libraries.insert(Library::Text);
                    format!("m_{name}")
                } else {
                    return false;
                };
                self.method(&function, call, method)
            }
            _ => false,
        }
    }

    /// Whether this is `asyncio.sleep(0)` among several tasks, which lets the others go on.
    fn takes_turns(&self, call: &ExprCall, method: &ExprAttribute) -> bool {
        let makes_tasks = ["create_task", "ensure_future", "gather"];
        let is_zero = call
            .arguments
            .args
            .first()
            .is_some_and(|seconds| self.source(seconds) == "0");
        is_zero
            && self.source(&*method.value) == "asyncio"
            && makes_tasks.iter().any(|name| self.code.contains(name))
    }

    /// `x.method(a)` as `function(x, a)`.
    fn method(&mut self, function: &str, call: &ExprCall, method: &ExprAttribute) -> bool {
        let between = &self.code[method.value.end().to_usize()..method.attr.start().to_usize()];
        let Some(dot) = between
            .rfind('.')
            .and_then(|dot| TextSize::try_from(dot).ok())
        else {
            return false;
        };
        let arguments = &call.arguments;
        let function = self.core(function);
        self.insert(call.start(), format!("{function}("));
        self.visit_expr(&method.value);
        let comma = if arguments.args.is_empty() && arguments.keywords.is_empty() {
            ""
        } else {
            ", "
        };
        let open = arguments.start() + TextSize::from(1);
        self.replace(TextRange::new(method.value.end() + dot, open), comma);
        self.visit_arguments(arguments);
        true
    }

    /// `x[key]` where a class of the block has items.
    fn item(&mut self, item: &ExprSubscript) -> bool {
        if item.ctx != ExprContext::Load || matches!(&*item.slice, Expr::Slice(_) | Expr::Tuple(_))
        {
            return false;
        }
        let Some(open) = self.find(item.value.end(), item.slice.start(), "[") else {
            return false;
        };
        let function = self.core("getitem");
        self.insert(item.start(), format!("{function}("));
        self.visit_expr(&item.value);
        self.replace(TextRange::at(open, TextSize::of("[")), ", ");
        self.visit_expr(&item.slice);
        self.replace(
            TextRange::new(item.end() - TextSize::of("]"), item.end()),
            ")",
        );
        true
    }

    fn attribute(&mut self, attribute: &ExprAttribute) -> bool {
        let name = attribute.attr.as_str();
        let is_type = |expr: &Expr| {
            ["str", "list", "dict"]
                .iter()
                .any(|kind| self.is_builtin(expr, kind))
        };
        if attribute.ctx == ExprContext::Load
            && is_type(&attribute.value)
            && name != "fromkeys"
            && !name.starts_with('_')
        {
            let text = match name {
                "maketrans" => self.core("maketrans"),
                _ => format!("(lambda _x, *_a: _x.{name}(*_a))"),
            };
            self.replace(attribute.range, text);
            return true;
        }
        let function = match name {
            _ if attribute.ctx != ExprContext::Load => return false,
            "__name__" => "name",
            _ if self.classes.is_property(name) => "property",
            _ if RESULT_FIELDS.contains(&name) => "attr",
            _ => return false,
        };
        self.attribute_by(function, attribute)
    }
}

impl<'a> Visitor<'a> for Rewriter<'_> {
    fn visit_stmt(&mut self, stmt: &'a Stmt) {
        let done = match stmt {
            Stmt::Import(import) => {
                self.import(import);
                true
            }
            Stmt::ImportFrom(import) => {
                self.import_from(import);
                true
            }
            Stmt::Delete(delete) => self.delete(delete),
            Stmt::Assign(assign) => self.assign(assign),
            Stmt::AugAssign(assign) => self.augmented(assign),
            Stmt::FunctionDef(function) => self.function(function),
            Stmt::ClassDef(class) => self.class(class),
            Stmt::Assert(assert) => self.assert(assert),
            Stmt::With(with) if with.is_async => {
                // The only asynchronous context managers are the libraries' own.
                self.replace(TextRange::at(with.start(), TextSize::of("async ")), "");
                false
            }
            Stmt::Return(_) if self.collecting => self.end_collecting(stmt.range()),
            Stmt::Expr(expr) if self.collecting => self.collect(&expr.value),
            Stmt::Match(matched) => self.match_statement(matched),
            _ => false,
        };
        if !done {
            walk_stmt(self, stmt);
        }
    }

    fn visit_expr(&mut self, expr: &'a Expr) {
        let done = match expr {
            Expr::BinOp(op) => self.bin_op(op),
            Expr::Compare(compare) => self.compare(compare),
            Expr::Call(call) => self.call(call),
            Expr::Attribute(attribute) => self.attribute(attribute),
            Expr::Subscript(item) if self.classes.has_member("__getitem__") => self.item(item),
            Expr::Generator(items) if items.parenthesized => {
                // The interpreter makes lists of them, which are no iterators.
                self.insert(items.start(), "iter(");
                walk_expr(self, expr);
                self.insert(items.end(), ")");
                true
            }
            _ => false,
        };
        if !done {
            walk_expr(self, expr);
        }
    }

    /// A method of a built-in type as a key: `key=d.get`.
    fn visit_keyword(&mut self, keyword: &'a Keyword) {
        if let (Some(name), Expr::Attribute(method)) = (&keyword.arg, &keyword.value)
            && name == "key"
            && matches!(&*method.value, Expr::Name(_))
            && matches!(
                method.attr.as_str(),
                "get" | "index" | "count" | "__getitem__"
            )
        {
            let of = self.source(&*method.value);
            let text = match method.attr.as_str() {
                "__getitem__" => format!("(lambda _x: {of}[_x])"),
                attr => format!("(lambda _x: {of}.{attr}(_x))"),
            };
            return self.replace(method.range, text);
        }
        walk_keyword(self, keyword);
    }

    /// Annotations are not evaluated.
    fn visit_annotation(&mut self, _: &'a Expr) {}
}

/// Whether the value is certainly `True` or `False`.
fn is_predicate(expr: &Expr) -> bool {
    match expr {
        Expr::Compare(_) | Expr::BooleanLiteral(_) => true,
        Expr::UnaryOp(op) => op.op == UnaryOp::Not,
        Expr::Call(call) => match &*call.func {
            Expr::Name(name) => PREDICATES.contains(&name.id.as_str()),
            Expr::Attribute(method) => PREDICATES.contains(&method.attr.as_str()),
            _ => false,
        },
        _ => false,
    }
}

fn is_text(expr: &Expr) -> bool {
    matches!(expr, Expr::StringLiteral(_) | Expr::FString(_))
}

/// Whether an operand of `|` could be a dict.
fn may_be_dict(expr: &Expr) -> bool {
    !matches!(
        expr,
        Expr::NumberLiteral(_)
            | Expr::Set(_)
            | Expr::SetComp(_)
            | Expr::NoneLiteral(_)
            | Expr::Attribute(_)
    )
}

/// Whether the items to be summed are certainly numbers.
fn sums_numbers(items: &Expr) -> bool {
    let element = match items {
        Expr::Generator(items) => &items.elt,
        Expr::ListComp(items) => &items.elt,
        _ => return false,
    };
    match &**element {
        Expr::NumberLiteral(_) | Expr::BinOp(_) => true,
        Expr::Call(call) => {
            matches!(&*call.func, Expr::Name(name) if matches!(name.id.as_str(), "len" | "int" | "float" | "abs"))
        }
        _ => false,
    }
}

fn is_plain_function(function: &Expr) -> bool {
    match function {
        Expr::Name(name) => PLAIN_FUNCTIONS.contains(&name.id.as_str()),
        Expr::NoneLiteral(_) => true,
        _ => false,
    }
}

/// Whether this is the name that the `re` module usually has.
fn is_module(expr: &Expr) -> bool {
    matches!(expr, Expr::Name(name) if name.id == "re")
}
