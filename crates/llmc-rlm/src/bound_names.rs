//! Whether code line_that_binds a name, found in its syntax tree before it runs.
//!
//! The sandbox refuses reserved names itself. It cannot do so for a large text, which only the session may bind; so that
//! one name is looked for here, with a parser that no nesting of brackets can overflow.

use tree_sitter::Parser;

/// More than real code needs; bounds the cost of hostile nesting.
const MAX_SYNTAX_DEPTH: usize = 2_000;

/// The line, from 1, on which the code line_that_binds this name.
pub(crate) fn line_that_binds(code: &str, name: &str) -> Option<usize> {
    let mut parser = Parser::new();
    parser
        .set_language(&tree_sitter_python::LANGUAGE.into())
        .ok()?;
    let tree = parser.parse(code, None)?;
    let mut cursor = tree.walk();
    // From the root to the parent of the node at hand: its kind, and the field it has in its own parent.
    let mut path: Vec<(&str, Option<&str>)> = Vec::new();
    loop {
        let node = cursor.node();
        if node.kind() == "identifier"
            && code.get(node.byte_range()) == Some(name)
            && is_target(&path, cursor.field_name())
        {
            return Some(node.start_position().row + 1);
        }
        if path.len() < MAX_SYNTAX_DEPTH {
            let here = (node.kind(), cursor.field_name());
            if cursor.goto_first_child() {
                path.push(here);
                continue;
            }
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                return None;
            }
            path.pop();
        }
    }
}

/// Whether an identifier with this field below this path is bound there.
fn is_target(path: &[(&str, Option<&str>)], field: Option<&str>) -> bool {
    let mut field = field;
    for (kind, own_field) in path.iter().rev() {
        match *kind {
            // What a target may be wrapped in.
            "pattern_list"
            | "tuple_pattern"
            | "list_pattern"
            | "list_splat_pattern"
            | "dictionary_splat_pattern"
            | "parenthesized_expression"
            | "expression_list"
            | "tuple"
            | "list"
            | "typed_parameter"
            | "dotted_name" => {}
            "assignment" | "augmented_assignment" | "for_statement" | "for_in_clause" => {
                return field == Some("left");
            }
            "named_expression"
            | "function_definition"
            | "class_definition"
            | "default_parameter"
            | "typed_default_parameter"
            | "import_statement"
            | "import_from_statement" => return field == Some("name"),
            "aliased_import" => return field == Some("alias"),
            "as_pattern_target" | "parameters" | "lambda_parameters" | "global_statement"
            | "nonlocal_statement" | "delete_statement" | "case_pattern" => return true,
            _ => return false,
        }
        field = *own_field;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_bind_a_name_is_seen() {
        for code in [
            "context = 1",
            "x = context = 1",
            "a, context = 1, 2",
            "(a, [context, b]) = x",
            "*context, b = x",
            "context += 'x'",
            "context: str = 'x'",
            "for context in x: pass",
            "for i, context in x: pass",
            "print([context for context in x])",
            "if (context := 1): pass",
            "def context(): pass",
            "class context: pass",
            "def f(context): pass",
            "def f(a, *, context=1): pass",
            "def f(context: str): pass",
            "def f(context: str = 'x'): pass",
            "f = lambda context: 1",
            "f = lambda *context: 1",
            "import context",
            "import x as context",
            "from x import context",
            "from x import y as context",
            "with x as context: pass",
            "try:\n    pass\nexcept E as context:\n    pass",
            "def f():\n    global context",
            "del context",
            "if x:\n    def f():\n        context = 1",
        ] {
            assert!(line_that_binds(code, "context").is_some(), "{code}");
        }
        assert_eq!(line_that_binds("a = 1\n\ncontext = 2", "context"), Some(3));
    }

    #[test]
    fn using_it_is_not_binding_it() {
        for code in [
            "print(context)",
            "x = context[1:2]",
            "f(context=1)",
            "x.context = 1",
            "'context = 1'",
            "# context = 1",
            "context_len2 = 1",
            "for x in context: pass",
            "[x for x in context]",
            "y = lambda x: context",
            "def f(a=context): return context",
            "with context as x: pass",
        ] {
            assert_eq!(line_that_binds(code, "context"), None, "{code}");
        }
    }

    #[test]
    fn hostile_nesting_is_survived() {
        for code in [
            "(".repeat(60_000),
            format!("{}context{}", "[".repeat(30_000), "]".repeat(30_000)),
            "-".repeat(60_000),
            "if x:\n ".repeat(3_000),
        ] {
            line_that_binds(&code, "context");
        }
    }
}
