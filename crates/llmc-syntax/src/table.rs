//! Which nodes of each grammar define something, and where their name is.

mod rows;

use std::sync::OnceLock;

use super::{DefinitionKind, Language};

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
    /// In the field of this name.
    In(&'static str),
    /// In its first named child.
    FirstChild,
    /// In its first child of this kind.
    Child(&'static str),
    /// In its field `left`, if that is a bare name.
    Left,
    /// A name with a value: a function if the value is one, else a variable, then not a local one.
    Assigned,
    /// In the last label of an HCL block: `resource "aws_instance" "web"`.
    Label,
    /// In an HCL attribute at the top of a file or in a `locals` block.
    LocalValue,
    /// In the last part of the first selector of a CSS rule.
    Selector,
    /// In a CSS declaration of a custom property: `--accent: red`.
    CustomProperty,
    /// In the attribute `id` of an HTML element.
    Id,
    /// In the argument of `def`, `defmodule` and their like in Elixir.
    ElixirDefinition,
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
    /// Whether what stands in the node decides about its kind, as `interface` in a Kotlin class.
    pub(super) kind_by_content: bool,
}

/// The entries of a language by the number its grammar gives a node.
#[derive(Debug)]
pub(super) struct NodeTable {
    entries: &'static [DefinitionNode],
    /// Per node: 0, or an entry's place plus 1, with [`LOCAL`] and [`BODY`] added.
    nodes: Vec<u8>,
    /// Whether any node is a body.
    pub(super) has_bodies: bool,
}

const LOCAL: u8 = 0x80;
const BODY: u8 = 0x40;

impl NodeTable {
    pub(super) fn entry(&self, node: u16) -> Option<&'static DefinitionNode> {
        let place = self.nodes.get(usize::from(node)).copied()? & !(LOCAL | BODY);
        self.entries.get(usize::from(place.checked_sub(1)?))
    }

    /// Whether what is inside the node is local.
    pub(super) fn is_local(&self, node: u16) -> bool {
        self.nodes
            .get(usize::from(node))
            .is_some_and(|bits| bits & LOCAL != 0)
    }

    /// Whether the node is the body of a definition, in a grammar that has no field for it.
    pub(super) fn is_body(&self, node: u16) -> bool {
        self.nodes
            .get(usize::from(node))
            .is_some_and(|bits| bits & BODY != 0)
    }
}

/// The table of a language, made at its first use.
pub(super) fn of(language: Language, grammar: &tree_sitter::Language) -> &'static NodeTable {
    static TABLES: [OnceLock<NodeTable>; Language::COUNT] =
        [const { OnceLock::new() }; Language::COUNT];
    TABLES[language as usize].get_or_init(|| {
        let (entries, local) = rows::definitions(language);
        let bodies = rows::bodies(language);
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
                let body = if bodies.contains(&kind) { BODY } else { 0 };
                place | local | body
            })
            .collect();
        NodeTable {
            entries,
            nodes,
            has_bodies: !bodies.is_empty(),
        }
    })
}
