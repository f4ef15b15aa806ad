//! Finds the node that holds a definition's name.

use tree_sitter::Node;

use super::table::NameLocation;

/// Whether what a C declaration declares is a function.
pub(super) fn declares_function(node: Node<'_>) -> bool {
    let mut at = node.child_by_field_name("declarator");
    for _ in 0..MAX_DECLARATOR_DEPTH {
        match at {
            Some(node) if node.kind() == "function_declarator" => {
                // `int (*call)(void)` is a variable.
                return node
                    .child_by_field_name("declarator")
                    .is_none_or(|inner| inner.kind() != "parenthesized_declarator");
            }
            Some(node) => at = node.child_by_field_name("declarator"),
            None => return false,
        }
    }
    false
}

/// How many declarators may lie in one another; real code nests only a few.
const MAX_DECLARATOR_DEPTH: usize = 12;

/// The node that holds the name a definition gives.
pub(super) fn name_of<'t>(node: Node<'t>, how: NameLocation, source: &str) -> Option<Node<'t>> {
    let first = match how {
        NameLocation::Field | NameLocation::Bodied | NameLocation::BodiedOrDeclared => {
            node.child_by_field_name("name")?
        }
        NameLocation::Declarator => node.child_by_field_name("declarator")?,
        NameLocation::In(field) => node.child_by_field_name(field)?,
        NameLocation::FirstChild => node.named_child(0)?,
        NameLocation::Child(kind) => child_of_kind(node, kind)?,
        NameLocation::Left => {
            let left = node.child_by_field_name("left")?;
            return matches!(left.kind(), "identifier" | "constant").then_some(left);
        }
        NameLocation::Assigned => match assignment(node)?.0 {
            target if target.kind() == "member_expression" => {
                target.child_by_field_name("property")?
            }
            target if target.kind() == "dot_index_expression" => target,
            target => {
                let bare = matches!(target.kind(), "identifier" | "property_identifier");
                return bare.then_some(target);
            }
        },
        NameLocation::Label => return last_label(node),
        NameLocation::LocalValue => child_of_kind(node, "identifier")?,
        NameLocation::Selector => return selector_name(node),
        NameLocation::CustomProperty => {
            let name = child_of_kind(node, "property_name")?;
            return text(name, source).starts_with("--").then_some(name);
        }
        NameLocation::Id => return id_of_element(node, source),
        NameLocation::ElixirDefinition => return elixir_name(node, source),
    };
    innermost_name(first)
}

fn text<'s>(node: Node<'_>, source: &'s str) -> &'s str {
    source.get(node.byte_range()).unwrap_or_default()
}

/// The first named child of a kind.
fn child_of_kind<'t>(node: Node<'t>, kind: &str) -> Option<Node<'t>> {
    let mut cursor = node.walk();
    node.named_children(&mut cursor)
        .find(|child| child.kind() == kind)
}

/// What is assigned to, and its value; of several the first.
pub(super) fn assignment(node: Node<'_>) -> Option<(Node<'_>, Node<'_>)> {
    let field = |names: [&str; 3], list: &str, of_list: &str| {
        let direct = names.iter().find_map(|name| node.child_by_field_name(name));
        direct.or_else(|| child_of_kind(node, list)?.child_by_field_name(of_list))
    };
    Some((
        field(["name", "key", "left"], "variable_list", "name")?,
        field(["value", "right", "value"], "expression_list", "value")?,
    ))
}

/// The last label of an HCL block; its first word is the type of the block.
fn last_label(block: Node<'_>) -> Option<Node<'_>> {
    let mut cursor = block.walk();
    let label = block
        .named_children(&mut cursor)
        .skip(1)
        .take_while(|child| matches!(child.kind(), "string_lit" | "identifier"))
        .last()?;
    match label.kind() {
        "string_lit" => child_of_kind(label, "template_literal"),
        _ => Some(label),
    }
}

/// The last class, id or element that the first selector of a CSS rule names, without pseudo-classes.
fn selector_name(rule: Node<'_>) -> Option<Node<'_>> {
    let mut at = child_of_kind(rule, "selectors")?.named_child(0)?;
    for _ in 0..MAX_DECLARATOR_DEPTH {
        at = match at.kind() {
            "class_name" | "id_name" | "tag_name" => return Some(at),
            "pseudo_class_selector" | "pseudo_element_selector" | "attribute_selector" => {
                at.named_child(0)?
            }
            _ => at.named_child(u32::try_from(at.named_child_count().checked_sub(1)?).ok()?)?,
        };
    }
    None
}

/// The value of an HTML element's `id`.
fn id_of_element<'t>(element: Node<'t>, source: &str) -> Option<Node<'t>> {
    let tag = element.named_child(0)?;
    let mut cursor = tag.walk();
    let id = tag
        .named_children(&mut cursor)
        .filter(|child| child.kind() == "attribute")
        .find(|child| {
            child
                .named_child(0)
                .is_some_and(|name| text(name, source).eq_ignore_ascii_case("id"))
        })?;
    let value = id.named_child(1)?;
    match value.kind() {
        "quoted_attribute_value" => value.named_child(0),
        _ => Some(value),
    }
}

/// The words that define something in Elixir.
const ELIXIR_WORDS: &[&str] = &[
    "def",
    "defp",
    "defmacro",
    "defmacrop",
    "defguard",
    "defguardp",
    "defdelegate",
    "defmodule",
    "defprotocol",
    "defimpl",
];

fn elixir_name<'t>(call: Node<'t>, source: &str) -> Option<Node<'t>> {
    let word = call.child_by_field_name("target")?;
    if !ELIXIR_WORDS.contains(&text(word, source)) {
        return None;
    }
    let mut name = child_of_kind(call, "arguments")?.named_child(0)?;
    // `def area(shape) when is_map(shape)`
    if name.kind() == "binary_operator" {
        name = name.child_by_field_name("left")?;
    }
    if name.kind() == "call" {
        name = name.child_by_field_name("target")?;
    }
    matches!(name.kind(), "identifier" | "alias").then_some(name)
}

/// Follows `Outer::inner`, pointers, arrays and type arguments to the bare name.
fn innermost_name(mut node: Node<'_>) -> Option<Node<'_>> {
    for _ in 0..MAX_DECLARATOR_DEPTH {
        if node.named_child_count() == 0 {
            return Some(node);
        }
        match node.kind() {
            "destructor_name" | "operator_name" | "operator_cast" | "computed_property_name" => {
                return Some(node);
            }
            _ => {}
        }
        if let "dot_index_expression" | "method_index_expression" = node.kind() {
            return node
                .child_by_field_name("field")
                .or_else(|| node.child_by_field_name("method"));
        }
        node = node
            .child_by_field_name("name")
            .or_else(|| node.child_by_field_name("bound_identifier"))
            .or_else(|| node.child_by_field_name("declarator"))
            .or_else(|| node.child_by_field_name("type"))
            .or_else(|| node.named_child(0))?;
    }
    None
}
