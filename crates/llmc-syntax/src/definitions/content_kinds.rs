//! The kind of a definition by what stands in it, where one kind of node defines several kinds of things.

use tree_sitter::Node;

use super::DefinitionKind::{self, Enum, Impl, Interface, Macro, Module, Struct, Variable};

/// By the first word: the macros of Elixir, the types of HCL blocks.
const BY_FIRST_WORD: &[(&str, DefinitionKind)] = &[
    ("defmodule", Module),
    ("defprotocol", Interface),
    ("defimpl", Impl),
    ("defmacro", Macro),
    ("defmacrop", Macro),
    ("module", Module),
    ("variable", Variable),
    ("output", Variable),
];

/// By a part of the node: a keyword of Kotlin or Swift, a Kotlin body, a value in Zig.
const BY_PART: &[(&str, DefinitionKind)] = &[
    ("interface", Interface),
    ("enum_class_body", Enum),
    ("struct", Struct),
    ("enum", Enum),
    ("extension", Impl),
    ("struct_declaration", Struct),
    ("union_declaration", Struct),
    ("opaque_declaration", Struct),
    ("enum_declaration", Enum),
    ("error_set_declaration", Enum),
];

/// The kind that the content of a node tells, if it tells one.
pub(super) fn of(node: Node<'_>, source: &str) -> Option<DefinitionKind> {
    let first = node.child(0).and_then(|word| source.get(word.byte_range()));
    let by_word = first.and_then(|word| look_up(BY_FIRST_WORD, word));
    by_word.or_else(|| {
        let mut cursor = node.walk();
        node.children(&mut cursor)
            .find_map(|part| look_up(BY_PART, part.kind()))
    })
}

fn look_up(list: &[(&str, DefinitionKind)], word: &str) -> Option<DefinitionKind> {
    list.iter()
        .find(|(known, _)| *known == word)
        .map(|(_, kind)| *kind)
}
