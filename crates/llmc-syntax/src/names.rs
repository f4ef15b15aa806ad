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
pub(super) fn name_of(node: Node<'_>, how: NameLocation) -> Option<Node<'_>> {
    let first = match how {
        NameLocation::Field | NameLocation::Bodied | NameLocation::BodiedOrDeclared => {
            node.child_by_field_name("name")?
        }
        NameLocation::Declarator => node.child_by_field_name("declarator")?,
        NameLocation::Type => node.child_by_field_name("type")?,
        NameLocation::Property => node.child_by_field_name("property")?,
        NameLocation::FirstChild => node.named_child(0)?,
        NameLocation::Left => {
            let left = node.child_by_field_name("left")?;
            return matches!(left.kind(), "identifier" | "constant").then_some(left);
        }
        NameLocation::Assigned => {
            let target = node
                .child_by_field_name("name")
                .or_else(|| node.child_by_field_name("key"))
                .or_else(|| node.child_by_field_name("left"))?;
            match target.kind() {
                "member_expression" => target.child_by_field_name("property")?,
                "identifier" | "property_identifier" => target,
                _ => return None,
            }
        }
    };
    innermost_name(first)
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
        node = node
            .child_by_field_name("name")
            .or_else(|| node.child_by_field_name("declarator"))
            .or_else(|| node.child_by_field_name("type"))
            .or_else(|| node.named_child(0))?;
    }
    None
}
