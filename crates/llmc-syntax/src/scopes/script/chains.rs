//! Chains and annotations of JavaScript and TypeScript.

use tree_sitter::Node;

use crate::scopes::{ScopeBuilder, annotated, children, either};

impl ScopeBuilder<'_> {
    pub(super) fn script_chain(&self, node: Node<'_>) -> String {
        self.nested_chain(|| self.script_chain_of(node))
    }

    fn script_chain_of(&self, node: Node<'_>) -> String {
        let field = |name: &str| match node.child_by_field_name(name) {
            Some(inner) => self.script_chain(inner),
            None => "?".to_owned(),
        };
        match node.kind() {
            "identifier" | "this" | "super" | "type_identifier" | "undefined" => {
                self.text(node).to_owned()
            }
            "member_expression" | "nested_identifier" => {
                let name = node.child_by_field_name("property");
                field("object") + "." + name.map_or("?", |name| self.text(name))
            }
            "call_expression" => field("function") + "()",
            "new_expression" => field("constructor") + "()",
            "subscript_expression" => field("object") + "[]",
            "await_expression" => {
                let inner = node.named_child(0);
                inner.map_or("?".to_owned(), |inner| self.script_chain(inner) + "^")
            }
            "parenthesized_expression" | "non_null_expression" | "spread_element" => node
                .named_child(0)
                .map_or("?".to_owned(), |inner| self.script_chain(inner)),
            // A type that is computed says nothing here; the value does.
            "as_expression" | "satisfies_expression" => {
                let kind = node.named_child(1);
                let kind = kind.map(|kind| self.script_annotation(kind));
                let first = node.named_child(0);
                kind.filter(|kind| kind != "?").unwrap_or_else(|| {
                    first.map_or("?".to_owned(), |inner| self.script_chain(inner))
                })
            }
            // What it returns, as for the type of a function; names inside of a block are not known outside.
            "arrow_function" => match node.child_by_field_name("body") {
                Some(body) if body.kind() != "statement_block" => self.script_chain(body),
                _ => "?".to_owned(),
            },
            "ternary_expression" => either(vec![field("consequence"), field("alternative")]),
            "binary_expression" => {
                let operator = node.child_by_field_name("operator");
                match operator.map(|operator| operator.kind()) {
                    Some("||" | "??" | "&&") => either(vec![field("left"), field("right")]),
                    _ => "#".to_owned(),
                }
            }
            "assignment_expression" => field("right"),
            "string" | "template_string" => "\"".to_owned(),
            "number" | "true" | "false" | "null" | "regex" | "unary_expression" => "#".to_owned(),
            "array" => {
                let values = children(node);
                if values.is_empty() {
                    return "[".to_owned();
                }
                let first = values.into_iter().take(4);
                either(first.map(|value| self.script_chain(value)).collect())
            }
            _ => "?".to_owned(),
        }
    }

    pub(super) fn script_annotation(&self, node: Node<'_>) -> String {
        let mut names = Vec::new();
        self.script_type_names(node, &mut names, false, 0);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        annotated(&names)
    }

    fn script_type_names(
        &self,
        node: Node<'_>,
        names: &mut Vec<String>,
        argument: bool,
        depth: usize,
    ) {
        let mark = if argument { "~" } else { "" };
        match node.kind() {
            "type_identifier"
            | "predefined_type"
            | "nested_type_identifier"
            | "this_type"
            | "identifier"
            | "member_expression"
            | "this" => {
                names.push(format!("{mark}{}", self.text(node)));
            }
            // A function gives what it returns.
            "function_type" => {
                if let Some(kind) = node.child_by_field_name("return_type") {
                    self.script_type_names(kind, names, argument, depth + 1);
                }
            }
            "array_type" | "tuple_type" => {
                names.push(format!("{mark}Array"));
                for child in children(node) {
                    self.script_type_names(child, names, true, depth + 1);
                }
            }
            "type_predicate" | "type_predicate_annotation" | "asserts_annotation" => {
                names.push("boolean".to_owned());
            }
            "object_type" | "mapped_type_clause" | "literal_type" | "conditional_type"
            | "lookup_type" | "index_type_query" => {}
            kind if depth < 12 && names.len() < 12 => {
                let argument = argument || kind == "type_arguments";
                for child in children(node) {
                    self.script_type_names(child, names, argument, depth + 1);
                }
            }
            _ => {}
        }
    }
}
