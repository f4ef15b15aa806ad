//! Which nodes of each grammar define something, and where their name is.

use std::sync::OnceLock;

use super::DefinitionKind::{
    self, Class, Constant, Declaration, Enum, Field, Function, Impl, Interface, Macro, Module,
    Struct, Type, Variable, Variant,
};
use super::Language;

/// Where a node keeps the name it defines, and what else decides whether it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NameLocation {
    /// In its field `name`.
    Field,
    /// In its field `name`, but only a node with a body defines it: `struct x y;` does not.
    Bodied,
    /// In its field `name`; without a body it only declares it.
    BodiedOrDeclared,
    /// In a C declarator, inside pointers, arrays and parameters.
    Declarator,
    /// In its field `type`.
    Type,
    /// In its field `property`.
    Property,
    /// In its first named child.
    FirstChild,
    /// In its field `left`, if that is a bare name.
    Left,
    /// A JavaScript name with a value: a function if the value is one, else a variable, then not a local one.
    Assigned,
}

/// Where a node counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DefinitionScope {
    Anywhere,
    /// Not inside a function, since no other file can refer to a local name.
    NotLocal,
}

/// One kind of node that defines.
#[derive(Debug)]
pub(super) struct DefinitionNode {
    node: &'static str,
    pub(super) kind: DefinitionKind,
    pub(super) name: NameLocation,
    pub(super) scope: DefinitionScope,
}

/// The entries of a language by the number its grammar gives a node.
#[derive(Debug)]
pub(super) struct NodeTable {
    entries: &'static [DefinitionNode],
    /// Per node: 0, or an entry's place plus 1, or [`LOCAL`] added.
    nodes: Vec<u8>,
}

const LOCAL: u8 = 0x80;

impl NodeTable {
    pub(super) fn entry(&self, node: u16) -> Option<&'static DefinitionNode> {
        let place = self.nodes.get(usize::from(node)).copied()? & !LOCAL;
        self.entries.get(usize::from(place.checked_sub(1)?))
    }

    /// Whether what is inside the node is local.
    pub(super) fn is_local(&self, node: u16) -> bool {
        self.nodes
            .get(usize::from(node))
            .is_some_and(|bits| bits & LOCAL != 0)
    }
}

/// The table of a language, made at its first use.
pub(super) fn of(language: Language, grammar: &tree_sitter::Language) -> &'static NodeTable {
    static TABLES: [OnceLock<NodeTable>; Language::COUNT] =
        [const { OnceLock::new() }; Language::COUNT];
    TABLES[language as usize].get_or_init(|| {
        let (entries, local) = rows(language);
        let nodes = (0..grammar.node_kind_count())
            .map(|id| {
                let id = u16::try_from(id).unwrap_or(u16::MAX);
                let Some(kind) = grammar.node_kind_for_id(id) else {
                    return 0;
                };
                // Keywords share their spelling with nodes: `class` in Ruby is both.
                if !grammar.node_kind_is_named(id) {
                    return 0;
                }
                let place = entries.iter().position(|entry| entry.node == kind);
                let place = place
                    .and_then(|place| u8::try_from(place + 1).ok())
                    .unwrap_or(0);
                let local = if local.contains(&kind) { LOCAL } else { 0 };
                place | local
            })
            .collect();
        NodeTable { entries, nodes }
    })
}

const fn at(node: &'static str, kind: DefinitionKind, name: NameLocation) -> DefinitionNode {
    DefinitionNode {
        node,
        kind,
        name,
        scope: DefinitionScope::Anywhere,
    }
}

const fn not_local(node: &'static str, kind: DefinitionKind, name: NameLocation) -> DefinitionNode {
    DefinitionNode {
        node,
        kind,
        name,
        scope: DefinitionScope::NotLocal,
    }
}

type TableRows = (&'static [DefinitionNode], &'static [&'static str]);

/// The nodes that define, and those whose inside is local.
fn rows(language: Language) -> TableRows {
    match language {
        Language::Rust => RUST,
        Language::Python => PYTHON,
        Language::JavaScript | Language::TypeScript | Language::Tsx => SCRIPT,
        Language::Go => GO,
        Language::Java => JAVA,
        Language::C | Language::Cpp => C,
        Language::CSharp => CSHARP,
        Language::Ruby => RUBY,
        Language::Php => PHP,
        Language::Bash => BASH,
    }
}

const RUST: TableRows = (
    &[
        at("function_item", Function, NameLocation::Field),
        at("function_signature_item", Function, NameLocation::Field),
        at("struct_item", Struct, NameLocation::Field),
        at("union_item", Struct, NameLocation::Field),
        at("enum_item", Enum, NameLocation::Field),
        at("enum_variant", Variant, NameLocation::Field),
        at("field_declaration", Field, NameLocation::Field),
        at("trait_item", Interface, NameLocation::Field),
        at("impl_item", Impl, NameLocation::Type),
        at("type_item", Type, NameLocation::Field),
        at("associated_type", Type, NameLocation::Field),
        at("const_item", Constant, NameLocation::Field),
        at("static_item", Variable, NameLocation::Field),
        at("mod_item", Module, NameLocation::BodiedOrDeclared),
        at("macro_definition", Macro, NameLocation::Field),
    ],
    &["block"],
);

const PYTHON: TableRows = (
    &[
        at("function_definition", Function, NameLocation::Field),
        at("class_definition", Class, NameLocation::Field),
        not_local("assignment", Variable, NameLocation::Left),
    ],
    &["function_definition", "lambda"],
);

/// JavaScript and TypeScript: nodes that a grammar does not know never come up.
const SCRIPT: TableRows = (
    &[
        at("function_declaration", Function, NameLocation::Field),
        at(
            "generator_function_declaration",
            Function,
            NameLocation::Field,
        ),
        at("function_signature", Declaration, NameLocation::Field),
        at("method_definition", Function, NameLocation::Field),
        at("method_signature", Function, NameLocation::Field),
        at("abstract_method_signature", Function, NameLocation::Field),
        at("class_declaration", Class, NameLocation::Field),
        at("abstract_class_declaration", Class, NameLocation::Field),
        at("interface_declaration", Interface, NameLocation::Field),
        at("enum_declaration", Enum, NameLocation::Field),
        at("enum_assignment", Variant, NameLocation::Field),
        at("type_alias_declaration", Type, NameLocation::Field),
        at("internal_module", Module, NameLocation::Field),
        at("module", Module, NameLocation::Field),
        at("field_definition", Field, NameLocation::Property),
        at("public_field_definition", Field, NameLocation::Field),
        at("property_signature", Field, NameLocation::Field),
        at("variable_declarator", Variable, NameLocation::Assigned),
        at("assignment_expression", Variable, NameLocation::Assigned),
        at("pair", Variable, NameLocation::Assigned),
    ],
    &["statement_block"],
);

const GO: TableRows = (
    &[
        at("function_declaration", Function, NameLocation::Field),
        at("method_declaration", Function, NameLocation::Field),
        at("method_elem", Function, NameLocation::Field),
        at("type_spec", Type, NameLocation::Field),
        at("type_alias", Type, NameLocation::Field),
        at("field_declaration", Field, NameLocation::Field),
        not_local("const_spec", Constant, NameLocation::Field),
        not_local("var_spec", Variable, NameLocation::Field),
    ],
    &["block"],
);

const JAVA: TableRows = (
    &[
        at("class_declaration", Class, NameLocation::Field),
        at("record_declaration", Class, NameLocation::Field),
        at("interface_declaration", Interface, NameLocation::Field),
        at(
            "annotation_type_declaration",
            Interface,
            NameLocation::Field,
        ),
        at("enum_declaration", Enum, NameLocation::Field),
        at("enum_constant", Variant, NameLocation::Field),
        at("method_declaration", Function, NameLocation::Field),
        at("constructor_declaration", Function, NameLocation::Field),
        at(
            "compact_constructor_declaration",
            Function,
            NameLocation::Field,
        ),
        at("field_declaration", Field, NameLocation::Declarator),
        at("constant_declaration", Constant, NameLocation::Declarator),
    ],
    &["block"],
);

/// C and C++.
const C: TableRows = (
    &[
        at("function_definition", Function, NameLocation::Declarator),
        at("struct_specifier", Struct, NameLocation::Bodied),
        at("union_specifier", Struct, NameLocation::Bodied),
        at("class_specifier", Class, NameLocation::Bodied),
        at("enum_specifier", Enum, NameLocation::Bodied),
        at("enumerator", Variant, NameLocation::Field),
        at("type_definition", Type, NameLocation::Declarator),
        at("alias_declaration", Type, NameLocation::Field),
        at("concept_definition", Interface, NameLocation::Field),
        at("namespace_definition", Module, NameLocation::Field),
        at("preproc_def", Macro, NameLocation::Field),
        at("preproc_function_def", Macro, NameLocation::Field),
        at("field_declaration", Field, NameLocation::Declarator),
        not_local("declaration", Variable, NameLocation::Declarator),
    ],
    &["compound_statement"],
);

const CSHARP: TableRows = (
    &[
        at("class_declaration", Class, NameLocation::Field),
        at("record_declaration", Class, NameLocation::Field),
        at("struct_declaration", Struct, NameLocation::Field),
        at("interface_declaration", Interface, NameLocation::Field),
        at("enum_declaration", Enum, NameLocation::Field),
        at("enum_member_declaration", Variant, NameLocation::Field),
        at("delegate_declaration", Type, NameLocation::Field),
        at("method_declaration", Function, NameLocation::Field),
        at("constructor_declaration", Function, NameLocation::Field),
        at("local_function_statement", Function, NameLocation::Field),
        at("property_declaration", Field, NameLocation::Field),
        at("event_declaration", Field, NameLocation::Field),
        at("namespace_declaration", Module, NameLocation::Field),
        at(
            "file_scoped_namespace_declaration",
            Module,
            NameLocation::Field,
        ),
        not_local("variable_declarator", Field, NameLocation::Field),
    ],
    &["block", "arrow_expression_clause"],
);

const RUBY: TableRows = (
    &[
        at("class", Class, NameLocation::Field),
        at("module", Module, NameLocation::Field),
        at("method", Function, NameLocation::Field),
        at("singleton_method", Function, NameLocation::Field),
        not_local("assignment", Constant, NameLocation::Left),
    ],
    &["method", "singleton_method", "block", "do_block"],
);

const PHP: TableRows = (
    &[
        at("class_declaration", Class, NameLocation::Field),
        at("interface_declaration", Interface, NameLocation::Field),
        at("trait_declaration", Class, NameLocation::Field),
        at("enum_declaration", Enum, NameLocation::Field),
        at("enum_case", Variant, NameLocation::Field),
        at("function_definition", Function, NameLocation::Field),
        at("method_declaration", Function, NameLocation::Field),
        at("property_element", Field, NameLocation::FirstChild),
        at("const_element", Constant, NameLocation::FirstChild),
        at("namespace_definition", Module, NameLocation::Field),
    ],
    &["compound_statement"],
);

const BASH: TableRows = (
    &[
        at("function_definition", Function, NameLocation::Field),
        not_local("variable_assignment", Variable, NameLocation::Field),
    ],
    &["compound_statement", "subshell"],
);
