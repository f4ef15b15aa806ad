//! The scopes of a source file, what each binds its names to, and what stands before each member.
//!
//! Names are resolved elsewhere, over several files; here is what one file says about them. An expression is reduced to
//! a *chain* that keeps only what decides about its type:
//!
//! | chain | means |
//! |---|---|
//! | `pool.take()` | a name, a member of it, and a call; arguments are left out |
//! | `rows[]` | an element, by index or by iteration |
//! | `open.@0` | the first parameter of a function |
//! | `Entry.Held#0` | the first field of a variant or of a tuple struct, `Held#key` one with a name |
//! | `::self` | in Rust the module around |
//! | `job()^` | what is awaited, or unwrapped by `?` |
//! | `<list,~Pool>` | a value whose type annotation names these types; `~` marks arguments of a type |
//! | `{a\|b()}` | one of several values |
//! | `"`, `#`, `[` | a string; a number or other literal; an empty collection |
//! | `?` | anything else |

mod python;
mod rust;
mod script;

use std::cell::Cell;
use std::collections::HashMap;

use tree_sitter::Node;

use crate::Language;

/// What a scope belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScopeKind {
    Module,
    /// A class, an interface, an impl block, an object: its names are members.
    Members,
    /// A module inside of a file: its names are members, and known inside of it.
    Namespace,
    Function,
    Block,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    pub kind: ScopeKind,
    /// The place of the scope around it; the module's own is itself.
    pub parent: usize,
    /// The bytes it reaches over.
    pub start: usize,
    pub end: usize,
}

/// How a name comes to its meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BindingKind {
    /// From another module: the chain is `module|name`, or `module|` for the module itself.
    Import,
    /// Everything of another module; the name is `*`, the chain the module.
    ImportAll,
    /// Under another name for importers: `module|name`, without a module for a name of this file.
    Export,
    /// The chain is what it returns. A type's call signature has the name `()`.
    Function,
    /// A function that is read like a field.
    Property,
    /// The chain lists what it derives from, separated by commas.
    Class,
    /// An addition to the class of that name.
    Impl,
    Parameter,
    Variable,
    /// A member with a value.
    Field,
}

/// A name in a scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    pub scope: usize,
    /// The scope in which its chain is read.
    pub context: usize,
    pub name: String,
    /// Where the name stands, in bytes.
    pub start: usize,
    pub kind: BindingKind,
    pub chain: String,
    /// The scope that it opens.
    pub inner: Option<usize>,
}

/// What stands before a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receiver {
    /// Where the member's name starts, in bytes.
    pub start: usize,
    /// Empty for a label, such as the name of an argument.
    pub chain: String,
}

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileScopes {
    pub scopes: Vec<Scope>,
    pub bindings: Vec<Binding>,
    /// By their place.
    pub receivers: Vec<Receiver>,
    /// Where names stand in the place of a type, in bytes and in order; of TypeScript only, where a type and a value may share
    /// a name.
    pub type_names: Vec<usize>,
}

/// Of one file.
pub(crate) const MAX_SCOPES: usize = 50_000;
pub(crate) const MAX_BINDINGS: usize = 100_000;
pub(crate) const MAX_RECEIVERS: usize = 200_000;
pub(crate) const MAX_TYPE_NAMES: usize = 200_000;
pub(crate) const MAX_CHAIN_BYTES: usize = 240;
/// Deeper nodes are skipped: generated code only.
const MAX_NODE_DEPTH: usize = 400;
/// Parts of one chain in one another.
const MAX_CHAIN_DEPTH: usize = 60;
/// Alternatives of one value.
const MAX_ALTERNATIVES: usize = 6;

/// The scopes of a parsed source; empty for languages whose names are not resolved.
pub(crate) fn of_tree(language: Language, root: Node<'_>, source: &str) -> FileScopes {
    let mut builder = ScopeBuilder {
        source,
        found: FileScopes::default(),
        returns: Vec::new(),
        selves: Vec::new(),
        depth: 0,
        chain_depth: Cell::new(0),
        called: None,
        element: None,
        expected: None,
        expectations: HashMap::new(),
    };
    let top = builder.open(ScopeKind::Module, 0, 0, source.len());
    match language {
        Language::Python => builder.python(root, top),
        Language::JavaScript | Language::TypeScript | Language::Tsx => builder.script(root, top),
        Language::Rust => builder.rust(root, top),
        _ => return FileScopes::default(),
    }
    builder.found.receivers.sort_by_key(|one| one.start);
    builder.found.type_names.sort_unstable();
    builder.found
}

struct ScopeBuilder<'s> {
    source: &'s str,
    found: FileScopes,
    /// Per scope the chains that it returns.
    returns: Vec<Vec<String>>,
    /// Per scope the name of the value whose method it is, if it is one.
    selves: Vec<Option<String>>,
    depth: usize,
    chain_depth: Cell<usize>,
    /// The chain of the call whose arguments come next, in scripts.
    called: Option<String>,
    /// The chain of the first parameter of the function that comes next, in scripts.
    element: Option<String>,
    /// The chain of the type that the object literal that comes next should have.
    expected: Option<String>,
    /// Per scope of an object literal the chain of the type that it should have.
    expectations: HashMap<usize, String>,
}

impl<'s> ScopeBuilder<'s> {
    fn open(&mut self, kind: ScopeKind, parent: usize, start: usize, end: usize) -> usize {
        if self.found.scopes.len() >= MAX_SCOPES {
            return parent;
        }
        self.found.scopes.push(Scope {
            kind,
            parent,
            start,
            end,
        });
        self.returns.push(Vec::new());
        self.selves.push(None);
        self.found.scopes.len() - 1
    }

    fn open_at(&mut self, kind: ScopeKind, parent: usize, node: Node<'_>) -> usize {
        self.open(kind, parent, node.start_byte(), node.end_byte())
    }

    /// Binds the name that a node holds; returns the place of the binding.
    fn bind(
        &mut self,
        scope: usize,
        name: Node<'_>,
        kind: BindingKind,
        chain: String,
    ) -> Option<usize> {
        let text = self.text(name).to_owned();
        self.bind_name(scope, scope, &text, name.start_byte(), kind, chain)
    }

    fn bind_name(
        &mut self,
        scope: usize,
        context: usize,
        name: &str,
        start: usize,
        kind: BindingKind,
        chain: String,
    ) -> Option<usize> {
        let fits = !name.is_empty() && name.len() <= crate::references::MAX_NAME_BYTES;
        if !fits || self.found.bindings.len() >= MAX_BINDINGS {
            return None;
        }
        self.found.bindings.push(Binding {
            scope,
            context,
            name: name.to_owned(),
            start,
            kind,
            chain: bounded(chain),
            inner: None,
        });
        Some(self.found.bindings.len() - 1)
    }

    /// Says which scope a binding opens.
    fn opens(&mut self, binding: Option<usize>, inner: usize) {
        if let Some(found) = binding.and_then(|place| self.found.bindings.get_mut(place)) {
            found.inner = Some(inner);
            found.context = inner;
        }
    }

    fn set_chain(&mut self, binding: Option<usize>, chain: String) {
        if let Some(found) = binding.and_then(|place| self.found.bindings.get_mut(place)) {
            found.chain = bounded(chain);
        }
    }

    fn receiver(&mut self, member: Node<'_>, chain: String) {
        if self.found.receivers.len() < MAX_RECEIVERS {
            self.found.receivers.push(Receiver {
                start: member.start_byte(),
                chain: bounded(chain),
            });
        }
    }

    fn type_name(&mut self, name: Node<'_>) {
        if self.found.type_names.len() < MAX_TYPE_NAMES {
            self.found.type_names.push(name.start_byte());
        }
    }

    /// The name is no use of anything in a scope: a keyword argument, a key.
    fn label(&mut self, name: Node<'_>) {
        self.receiver(name, String::new());
    }

    /// The function around a scope, itself included.
    fn function_around(&self, mut scope: usize) -> Option<usize> {
        loop {
            let found = self.found.scopes.get(scope)?;
            match found.kind {
                ScopeKind::Function => return Some(scope),
                ScopeKind::Block => scope = found.parent,
                _ => return None,
            }
        }
    }

    /// The members' scope of the method around a scope.
    fn members_around(&self, mut scope: usize) -> Option<usize> {
        loop {
            let found = self.found.scopes.get(scope)?;
            match found.kind {
                ScopeKind::Members => return Some(scope),
                ScopeKind::Module | ScopeKind::Namespace => return None,
                _ => scope = found.parent,
            }
        }
    }

    fn returned(&mut self, scope: usize, chain: String) {
        if let Some(function) = self.function_around(scope)
            && self.returns[function].len() < MAX_ALTERNATIVES
        {
            self.returns[function].push(chain);
        }
    }

    fn take_returns(&mut self, scope: usize) -> String {
        either(std::mem::take(&mut self.returns[scope]))
    }

    fn text(&self, node: Node<'_>) -> &'s str {
        self.source.get(node.byte_range()).unwrap_or_default()
    }

    /// Goes one step deeper, unless that is too deep.
    fn nested(&mut self, visit: impl FnOnce(&mut Self)) {
        if self.depth < MAX_NODE_DEPTH {
            self.depth += 1;
            visit(self);
            self.depth -= 1;
        }
    }

    fn each_child(
        &mut self,
        node: Node<'_>,
        scope: usize,
        mut visit: impl FnMut(&mut Self, Node<'_>, usize),
    ) {
        for child in children(node) {
            visit(self, child, scope);
        }
    }

    /// A chain within a chain; unknown if there are too many in one another.
    fn nested_chain(&self, chain: impl FnOnce() -> String) -> String {
        let depth = self.chain_depth.get();
        if depth >= MAX_CHAIN_DEPTH {
            return "?".to_owned();
        }
        self.chain_depth.set(depth + 1);
        let found = chain();
        self.chain_depth.set(depth);
        bounded(found)
    }
}

/// The named children of a node.
fn children(node: Node<'_>) -> Vec<Node<'_>> {
    let mut cursor = node.walk();
    node.named_children(&mut cursor).collect()
}

fn child_of_kind<'t>(node: Node<'t>, kind: &str) -> Option<Node<'t>> {
    children(node)
        .into_iter()
        .find(|child| child.kind() == kind)
}

/// One of several chains.
fn either(mut chains: Vec<String>) -> String {
    chains.sort();
    chains.dedup();
    chains.truncate(MAX_ALTERNATIVES);
    match chains.len() {
        0 => String::new(),
        1 => chains.remove(0),
        _ => format!("{{{}}}", chains.join("|")),
    }
}

/// An annotation's chain.
fn annotated(names: &[&str]) -> String {
    if names.is_empty() {
        "?".to_owned()
    } else {
        format!("<{}>", names.join(","))
    }
}

fn bounded(chain: String) -> String {
    if chain.len() > MAX_CHAIN_BYTES {
        "?".to_owned()
    } else {
        chain
    }
}
