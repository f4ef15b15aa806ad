//! The names a source file uses: calls, types, imports, what a type derives from.
//!
//! A grammar does not know what a name means, but the kinds of nodes around it show how it is used. They have much the same names in all grammars, so one list serves them all.

use std::num::NonZeroU16;
use std::sync::OnceLock;

use tree_sitter::Node;

use super::Language;

/// How a name is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReferenceKind {
    /// It is called, or made an instance of.
    Call,
    /// It is brought into the file.
    Import,
    /// A type derives from it or implements it.
    Inherit,
    /// It is mentioned in some other way: a type, a value, a field.
    Mention,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// The bare name.
    pub name: String,
    pub kind: ReferenceKind,
    /// Its line, counted from 1.
    pub line: u64,
    /// Where it starts, in bytes.
    pub start: usize,
}

impl Reference {
    /// Whether it is a member of something, a name or not.
    pub fn is_member(&self, source: &str) -> bool {
        let before = source.get(..self.start).unwrap_or_default().trim_end();
        // Three dots spread a value.
        MEMBER_SEPARATORS.iter().any(|mark| before.ends_with(mark)) && !before.ends_with("..")
    }

    /// What stands before it and a dot or a double colon: `Pool` in `Pool::open`.
    pub fn qualifier<'s>(&self, source: &'s str) -> Option<&'s str> {
        let before = source.get(..self.start)?.trim_end();
        let before = MEMBER_SEPARATORS
            .iter()
            .find_map(|mark| before.strip_suffix(mark))?
            .trim_end();
        let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
        let start = before
            .char_indices()
            .rev()
            .take_while(|(_, c)| is_name(*c))
            .last()?
            .0;
        Some(&before[start..])
    }
}

/// The marks between a thing and its member.
const MEMBER_SEPARATORS: [&str; 4] = ["::", "->", "?.", "."];

/// References kept of one file, as for definitions.
pub(crate) const MAX_REFERENCES: usize = 200_000;
/// The longest name worth keeping.
pub(crate) const MAX_NAME_BYTES: usize = 96;

const NAME: u16 = 1;
const CALL: u16 = 1 << 1;
const MEMBER: u16 = 1 << 2;
const IMPORT: u16 = 1 << 3;
const INHERIT: u16 = 1 << 4;
/// A name only where it is called: the words of a shell command.
const WORD: u16 = 1 << 5;
/// A type, whose names may stand in quotes.
const TYPE: u16 = 1 << 6;
const QUOTED: u16 = 1 << 7;
const ASSIGNMENT: u16 = 1 << 8;
const SUBSCRIPT: u16 = 1 << 9;

/// What the kinds of nodes mean, in whichever grammar they occur.
const KINDS: &[(u16, &[&str])] = &[
    (
        NAME,
        &[
            "identifier",
            "type_identifier",
            "field_identifier",
            "property_identifier",
            "shorthand_property_identifier",
            "namespace_identifier",
            "package_identifier",
            "constant",
            "name",
            "simple_identifier",
            "alias",
        ],
    ),
    (WORD, &["word"]),
    (TYPE, &["type"]),
    (QUOTED, &["string_content"]),
    (ASSIGNMENT, &["assignment", "augmented_assignment"]),
    (SUBSCRIPT, &["subscript"]),
    (
        CALL,
        &[
            "call_expression",
            "call",
            "method_invocation",
            "invocation_expression",
            "function_call_expression",
            "member_call_expression",
            "scoped_call_expression",
            "nullsafe_member_call_expression",
            "macro_invocation",
            "new_expression",
            "object_creation_expression",
            "struct_expression",
            "composite_literal",
            "command",
            "decorator",
            "function_call",
            "invocation",
        ],
    ),
    (
        MEMBER,
        &[
            "field_expression",
            "attribute",
            "member_expression",
            "scoped_identifier",
            "selector_expression",
            "member_access_expression",
            "qualified_identifier",
            "template_function",
            "generic_function",
            "generic_type",
            "generic_name",
            "scope_resolution",
            "command_name",
            "qualified_name",
            "scoped_type_identifier",
            "non_null_expression",
            "dot_index_expression",
            "method_index_expression",
            "navigation_expression",
            "navigation_suffix",
            "object_reference",
            "dot",
        ],
    ),
    (
        IMPORT,
        &[
            "use_declaration",
            "extern_crate_declaration",
            "import_statement",
            "import_from_statement",
            "import_declaration",
            "import_spec",
            "using_directive",
            "namespace_use_declaration",
            "preproc_include",
            "import",
        ],
    ),
    (
        INHERIT,
        &[
            "class_heritage",
            "extends_clause",
            "extends_type_clause",
            "implements_clause",
            "super_interfaces",
            "extends_interfaces",
            "superclass",
            "base_list",
            "base_class_clause",
            "base_clause",
            "class_interface_clause",
            "delegation_specifiers",
            "inheritance_specifier",
        ],
    ),
];

/// Fields in which a call holds what it calls, and a member expression its last name.
const CALLEE: &[&str] = &[
    "function",
    "name",
    "method",
    "macro",
    "constructor",
    "type",
    "field",
    "attribute",
    "property",
    "target",
    "right",
    "suffix",
    "member",
];
/// Names before the bracket of a Python type.
const TYPE_CONSTRUCTORS: &[&str] = &[
    "Union", "Optional", "Callable", "List", "Dict", "Sequence", "Mapping", "Iterable", "Tuple",
    "Type",
];
/// Fields whose content a type derives from, in grammars without a node for it.
const BASES: &[&str] = &["superclasses", "trait"];

/// The roles of one grammar's nodes and fields.
#[derive(Debug)]
struct GrammarRoles {
    nodes: Vec<u16>,
    callee: Vec<NonZeroU16>,
    bases: Vec<NonZeroU16>,
}

impl GrammarRoles {
    fn of(&self, kind: u16) -> u16 {
        self.nodes.get(usize::from(kind)).copied().unwrap_or(0)
    }
}

fn grammar_roles(language: Language, grammar: &tree_sitter::Language) -> &'static GrammarRoles {
    static ROLES: [OnceLock<GrammarRoles>; Language::COUNT] =
        [const { OnceLock::new() }; Language::COUNT];
    ROLES[language as usize].get_or_init(|| {
        let fields = |names: &[&str]| {
            let ids = names.iter().map(|name| grammar.field_id_for_name(name));
            ids.flatten().collect()
        };
        let nodes = (0..grammar.node_kind_count()).map(|id| {
            let id = u16::try_from(id).unwrap_or(u16::MAX);
            let kind = grammar.node_kind_for_id(id).unwrap_or_default();
            if !grammar.node_kind_is_named(id) {
                return 0;
            }
            let bits = KINDS.iter().filter(|(_, kinds)| kinds.contains(&kind));
            bits.fold(0, |all, (bit, _)| all | bit)
        });
        GrammarRoles {
            nodes: nodes.collect(),
            callee: fields(CALLEE),
            bases: fields(BASES),
        }
    })
}

#[derive(Clone, Copy)]
struct PathNode {
    bits: u16,
    field: Option<NonZeroU16>,
    import: bool,
    inherit: bool,
    typed: bool,
}

/// Gathers references on a walk over the tree.
pub(super) struct ReferenceCollector {
    grammar_roles: &'static GrammarRoles,
    /// The nodes from the root to the present one.
    path: Vec<PathNode>,
    /// Where names stand that a definition has claimed and that the walk has not reached.
    defined: Vec<usize>,
    pub(super) found: Vec<Reference>,
}

impl ReferenceCollector {
    pub(super) fn new(language: Language, grammar: &tree_sitter::Language) -> Self {
        Self {
            grammar_roles: grammar_roles(language, grammar),
            path: Vec::new(),
            defined: Vec::new(),
            found: Vec::new(),
        }
    }

    /// Whether a node of this kind without children says nothing about uses.
    pub(super) fn is_nothing(&self, kind: u16) -> bool {
        self.grammar_roles.of(kind) == 0
    }

    /// The name that starts there is a definition's own.
    pub(super) fn names_definition(&mut self, start: usize) {
        self.defined.push(start);
    }

    /// Enters a node; its children follow until [`ReferenceCollector::leave`].
    pub(super) fn enter(
        &mut self,
        node: Node<'_>,
        kind: u16,
        field: Option<NonZeroU16>,
        source: &str,
    ) {
        let bits = self.grammar_roles.of(kind);
        let outer = self.path.last();
        let is_base = field.is_some_and(|field| self.grammar_roles.bases.contains(&field));
        self.path.push(PathNode {
            bits,
            field,
            import: bits & IMPORT != 0 || outer.is_some_and(|outer| outer.import),
            inherit: bits & INHERIT != 0 || is_base || outer.is_some_and(|outer| outer.inherit),
            typed: bits & TYPE != 0
                || outer.is_some_and(|outer| outer.typed)
                || self.names_in_strings(bits, node, source),
        });
        if bits & QUOTED != 0 && self.path.last().is_some_and(|here| here.typed) {
            self.add_quoted_names(node, source);
        }
        if bits & (NAME | WORD) == 0 || self.found.len() >= MAX_REFERENCES {
            return;
        }
        let range = node.byte_range();
        if let Some(claimed) = self.defined.iter().position(|at| *at == range.start) {
            self.defined.swap_remove(claimed);
            return;
        }
        let Some(name) = source.get(range.clone()) else {
            return;
        };
        // One letter is a local variable or a type parameter.
        if name.len() < 2 || name.len() > MAX_NAME_BYTES || name.contains(char::is_whitespace) {
            return;
        }
        let called = self.is_called();
        if bits & WORD != 0 && !called {
            return;
        }
        let kind = match self.path.last() {
            Some(here) if here.import => ReferenceKind::Import,
            Some(here) if here.inherit => ReferenceKind::Inherit,
            _ if called => ReferenceKind::Call,
            _ => ReferenceKind::Mention,
        };
        self.found.push(Reference {
            name: name.to_owned(),
            kind,
            line: node.start_position().row as u64 + 1,
            start: range.start,
        });
    }

    /// Whether strings in a node name things: Python's `__all__`, and types such as `Union["Pool", None]`.
    fn names_in_strings(&self, bits: u16, node: Node<'_>, source: &str) -> bool {
        let text = || source.get(node.byte_range()).unwrap_or_default();
        if bits & ASSIGNMENT != 0 && self.path.len() <= 3 {
            return text().starts_with("__all__");
        }
        if bits & SUBSCRIPT != 0 && self.path.len() <= 6 {
            let text = text();
            let name = text.strip_prefix("typing.").or(text.strip_prefix("t."));
            return TYPE_CONSTRUCTORS.iter().any(|known| {
                let rest = name.unwrap_or(text).strip_prefix(known);
                rest.is_some_and(|rest| rest.starts_with('['))
            });
        }
        false
    }

    /// Adds the names in a type annotation that is written as a string.
    fn add_quoted_names(&mut self, node: Node<'_>, source: &str) {
        let range = node.byte_range();
        let text = source.get(range.clone()).unwrap_or_default();
        let mut at = 0;
        for name in text.split(|c: char| !c.is_alphanumeric() && c != '_') {
            let start = range.start + at;
            at += name.len();
            at += text[at..].chars().next().map_or(0, char::len_utf8);
            let fits = (2..=MAX_NAME_BYTES).contains(&name.len())
                && !name.starts_with(|c: char| c.is_ascii_digit());
            if fits && self.found.len() < MAX_REFERENCES {
                self.found.push(Reference {
                    name: name.to_owned(),
                    kind: ReferenceKind::Mention,
                    line: node.start_position().row as u64 + 1,
                    start,
                });
            }
        }
    }

    /// Drops the references found after the first `found`.
    pub(super) fn truncate(&mut self, found: usize) {
        self.found.truncate(found);
        self.defined.clear();
    }

    /// Goes back up from a node.
    pub(super) fn leave(&mut self) {
        self.path.pop();
    }

    /// Whether the innermost node is what a call around it calls.
    fn is_called(&self) -> bool {
        let mut from_inside = self.path.iter().rev();
        let Some(mut inner) = from_inside.next() else {
            return false;
        };
        for outer in from_inside.take(4) {
            // Shell grammars and decorators hold their name without a field.
            let fits = match inner.field {
                Some(field) => self.grammar_roles.callee.contains(&field),
                None => {
                    inner.bits & (WORD | NAME | MEMBER) != 0 && outer.bits & (CALL | MEMBER) != 0
                }
            };
            if !fits {
                return false;
            }
            if outer.bits & CALL != 0 {
                return true;
            }
            if outer.bits & MEMBER == 0 {
                return false;
            }
            inner = outer;
        }
        false
    }
}
