//! Which nodes of each grammar define something, and where their name is.

use std::sync::OnceLock;

use super::DefinitionKind::{
    self, Class, Constant, Declaration, Enum, Field, Function, Impl, Interface, Macro, Module,
    Struct, Type, Variable, Variant,
};
use super::Language;

/// Where a node keeps the name it defines, and what else decides whether it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Name {
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
pub(super) enum Scope {
    /// Everywhere.
    Anywhere,
    /// Not inside a function: locals are nobody's business elsewhere.
    Outside,
}

/// One kind of node that defines.
#[derive(Debug)]
pub(super) struct Entry {
    node: &'static str,
    pub(super) kind: DefinitionKind,
    pub(super) name: Name,
    pub(super) scope: Scope,
}

/// The entries of a language by the number its grammar gives a node.
#[derive(Debug)]
pub(super) struct Table {
    entries: &'static [Entry],
    /// Per node: 0, or an entry's place plus 1, or [`LOCAL`] added.
    nodes: Vec<u8>,
}

const LOCAL: u8 = 0x80;

impl Table {
    pub(super) fn entry(&self, node: u16) -> Option<&'static Entry> {
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
pub(super) fn of(language: Language, grammar: &tree_sitter::Language) -> &'static Table {
    static TABLES: [OnceLock<Table>; Language::COUNT] =
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
        Table { entries, nodes }
    })
}

const fn at(node: &'static str, kind: DefinitionKind, name: Name) -> Entry {
    Entry {
        node,
        kind,
        name,
        scope: Scope::Anywhere,
    }
}

const fn outside(node: &'static str, kind: DefinitionKind, name: Name) -> Entry {
    Entry {
        node,
        kind,
        name,
        scope: Scope::Outside,
    }
}

type Rows = (&'static [Entry], &'static [&'static str]);

/// The nodes that define, and those whose inside is local.
fn rows(language: Language) -> Rows {
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

const RUST: Rows = (
    &[
        at("function_item", Function, Name::Field),
        at("function_signature_item", Function, Name::Field),
        at("struct_item", Struct, Name::Field),
        at("union_item", Struct, Name::Field),
        at("enum_item", Enum, Name::Field),
        at("enum_variant", Variant, Name::Field),
        at("field_declaration", Field, Name::Field),
        at("trait_item", Interface, Name::Field),
        at("impl_item", Impl, Name::Type),
        at("type_item", Type, Name::Field),
        at("associated_type", Type, Name::Field),
        at("const_item", Constant, Name::Field),
        at("static_item", Variable, Name::Field),
        at("mod_item", Module, Name::BodiedOrDeclared),
        at("macro_definition", Macro, Name::Field),
    ],
    &["block"],
);

const PYTHON: Rows = (
    &[
        at("function_definition", Function, Name::Field),
        at("class_definition", Class, Name::Field),
        outside("assignment", Variable, Name::Left),
    ],
    &["function_definition", "lambda"],
);

/// JavaScript and TypeScript: nodes that a grammar does not know never come up.
const SCRIPT: Rows = (
    &[
        at("function_declaration", Function, Name::Field),
        at("generator_function_declaration", Function, Name::Field),
        at("function_signature", Declaration, Name::Field),
        at("method_definition", Function, Name::Field),
        at("method_signature", Function, Name::Field),
        at("abstract_method_signature", Function, Name::Field),
        at("class_declaration", Class, Name::Field),
        at("abstract_class_declaration", Class, Name::Field),
        at("interface_declaration", Interface, Name::Field),
        at("enum_declaration", Enum, Name::Field),
        at("enum_assignment", Variant, Name::Field),
        at("type_alias_declaration", Type, Name::Field),
        at("internal_module", Module, Name::Field),
        at("module", Module, Name::Field),
        at("field_definition", Field, Name::Property),
        at("public_field_definition", Field, Name::Field),
        at("property_signature", Field, Name::Field),
        at("variable_declarator", Variable, Name::Assigned),
        at("assignment_expression", Variable, Name::Assigned),
        at("pair", Variable, Name::Assigned),
    ],
    &["statement_block"],
);

const GO: Rows = (
    &[
        at("function_declaration", Function, Name::Field),
        at("method_declaration", Function, Name::Field),
        at("method_elem", Function, Name::Field),
        at("type_spec", Type, Name::Field),
        at("type_alias", Type, Name::Field),
        at("field_declaration", Field, Name::Field),
        outside("const_spec", Constant, Name::Field),
        outside("var_spec", Variable, Name::Field),
    ],
    &["block"],
);

const JAVA: Rows = (
    &[
        at("class_declaration", Class, Name::Field),
        at("record_declaration", Class, Name::Field),
        at("interface_declaration", Interface, Name::Field),
        at("annotation_type_declaration", Interface, Name::Field),
        at("enum_declaration", Enum, Name::Field),
        at("enum_constant", Variant, Name::Field),
        at("method_declaration", Function, Name::Field),
        at("constructor_declaration", Function, Name::Field),
        at("compact_constructor_declaration", Function, Name::Field),
        at("field_declaration", Field, Name::Declarator),
        at("constant_declaration", Constant, Name::Declarator),
    ],
    &["block"],
);

/// C and C++.
const C: Rows = (
    &[
        at("function_definition", Function, Name::Declarator),
        at("struct_specifier", Struct, Name::Bodied),
        at("union_specifier", Struct, Name::Bodied),
        at("class_specifier", Class, Name::Bodied),
        at("enum_specifier", Enum, Name::Bodied),
        at("enumerator", Variant, Name::Field),
        at("type_definition", Type, Name::Declarator),
        at("alias_declaration", Type, Name::Field),
        at("concept_definition", Interface, Name::Field),
        at("namespace_definition", Module, Name::Field),
        at("preproc_def", Macro, Name::Field),
        at("preproc_function_def", Macro, Name::Field),
        at("field_declaration", Field, Name::Declarator),
        outside("declaration", Variable, Name::Declarator),
    ],
    &["compound_statement"],
);

const CSHARP: Rows = (
    &[
        at("class_declaration", Class, Name::Field),
        at("record_declaration", Class, Name::Field),
        at("struct_declaration", Struct, Name::Field),
        at("interface_declaration", Interface, Name::Field),
        at("enum_declaration", Enum, Name::Field),
        at("enum_member_declaration", Variant, Name::Field),
        at("delegate_declaration", Type, Name::Field),
        at("method_declaration", Function, Name::Field),
        at("constructor_declaration", Function, Name::Field),
        at("local_function_statement", Function, Name::Field),
        at("property_declaration", Field, Name::Field),
        at("event_declaration", Field, Name::Field),
        at("namespace_declaration", Module, Name::Field),
        at("file_scoped_namespace_declaration", Module, Name::Field),
        outside("variable_declarator", Field, Name::Field),
    ],
    &["block", "arrow_expression_clause"],
);

const RUBY: Rows = (
    &[
        at("class", Class, Name::Field),
        at("module", Module, Name::Field),
        at("method", Function, Name::Field),
        at("singleton_method", Function, Name::Field),
        outside("assignment", Constant, Name::Left),
    ],
    &["method", "singleton_method", "block", "do_block"],
);

const PHP: Rows = (
    &[
        at("class_declaration", Class, Name::Field),
        at("interface_declaration", Interface, Name::Field),
        at("trait_declaration", Class, Name::Field),
        at("enum_declaration", Enum, Name::Field),
        at("enum_case", Variant, Name::Field),
        at("function_definition", Function, Name::Field),
        at("method_declaration", Function, Name::Field),
        at("property_element", Field, Name::FirstChild),
        at("const_element", Constant, Name::FirstChild),
        at("namespace_definition", Module, Name::Field),
    ],
    &["compound_statement"],
);

const BASH: Rows = (
    &[
        at("function_definition", Function, Name::Field),
        outside("variable_assignment", Variable, Name::Field),
    ],
    &["compound_statement", "subshell"],
);
