//! Members of TypeScript types that start with a type parameter: `<T>(value: T): T`.
//!
//! The grammar reads such a member as arguments of the type at the end of the member before, unless a semicolon stands
//! between them, and loses the rest of the file. Where a source has errors it is read once more with semicolons in the place
//! of blanks, so that all places stay the same.

use tree_sitter::{Node, Tree};

use super::parse;
use crate::budget::ParseClock;

/// The tree with semicolons before such members, if it has fewer errors.
pub(super) fn parse_again(
    grammar: &tree_sitter::Language,
    tree: &Tree,
    source: &str,
    clock: &ParseClock,
) -> Option<Tree> {
    if !tree.root_node().has_error() {
        return None;
    }
    let separated = separated(source)?;
    let again = parse(grammar, &separated, None, clock)?;
    let better = error_bytes(again.root_node()) < error_bytes(tree.root_node());
    better.then_some(again)
}

/// The source with a semicolon for the last blank before each line's leading `<`; `None` if there is none.
fn separated(source: &str) -> Option<String> {
    let mut bytes = source.as_bytes().to_vec();
    let mut start = 0;
    let mut changed = false;
    for line in source.split_inclusive('\n') {
        let inner = line.trim_start_matches([' ', '\t']);
        let indent = line.len() - inner.len();
        let parameter = inner.strip_prefix('<');
        if indent > 0
            && parameter.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_alphabetic()))
        {
            bytes[start + indent - 1] = b';';
            changed = true;
        }
        start += line.len();
    }
    changed.then(|| String::from_utf8(bytes).ok()).flatten()
}

/// The bytes of what the grammar could not read; a token that is missing counts as one.
fn error_bytes(root: Node<'_>) -> usize {
    let mut cursor = root.walk();
    let mut total = 0;
    loop {
        let node = cursor.node();
        if node.is_missing() {
            total += 1;
        } else if node.is_error() {
            total += node.byte_range().len();
        } else if node.has_error() && cursor.goto_first_child() {
            continue;
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                return total;
            }
        }
    }
}
