//! Where a definition keeps its name.

use tree_sitter::Node;

use super::table::Name;

/// Whether what a C declaration declares is a function.
pub(super) fn declares_function(node: Node<'_>) -> bool {
    let mut at = node.child_by_field_name("declarator");
    for _ in 0..DECLARATOR_DEPTH {
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

/// How many declarators may lie in one another; nobody writes ten stars.
const DECLARATOR_DEPTH: usize = 12;

/// The node that holds the name a definition gives.
pub(super) fn name_of(node: Node<'_>, how: Name) -> Option<Node<'_>> {
    let first = match how {
        Name::Field | Name::Bodied | Name::BodiedOrDeclared => node.child_by_field_name("name")?,
        Name::Declarator => node.child_by_field_name("declarator")?,
        Name::Type => node.child_by_field_name("type")?,
        Name::Property => node.child_by_field_name("property")?,
        Name::FirstChild => node.named_child(0)?,
        Name::Left => {
            let left = node.child_by_field_name("left")?;
            return matches!(left.kind(), "identifier" | "constant").then_some(left);
        }
        Name::Assigned => {
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
    for _ in 0..DECLARATOR_DEPTH {
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
