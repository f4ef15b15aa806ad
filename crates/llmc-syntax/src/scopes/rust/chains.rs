//! Chains and annotations of Rust.

use tree_sitter::Node;

use crate::scopes::{ScopeBuilder, annotated, children, either};

impl ScopeBuilder<'_> {
    pub(super) fn rust_chain(&self, node: Node<'_>) -> String {
        self.nested_chain(|| self.rust_chain_of(node))
    }

    fn rust_chain_of(&self, node: Node<'_>) -> String {
        let field = |name: &str| match node.child_by_field_name(name) {
            Some(inner) => self.rust_chain(inner),
            None => "?".to_owned(),
        };
        let first = || {
            node.named_child(0)
                .map_or("?".to_owned(), |inner| self.rust_chain(inner))
        };
        match node.kind() {
            "identifier" | "type_identifier" | "self" | "crate" | "super" | "field_identifier" => {
                self.text(node).to_owned()
            }
            "scoped_identifier" | "scoped_type_identifier" => {
                match node.child_by_field_name("path") {
                    Some(path) => self.rust_path(path) + "." + &field("name"),
                    None => field("name"),
                }
            }
            "generic_type" | "generic_type_with_turbofish" => field("type"),
            "generic_function" => field("function"),
            "reference_type" | "dynamic_type" | "abstract_type" | "pointer_type" => {
                let names = self.rust_type_names_of(node);
                let name = names.into_iter().next();
                name.map_or("?".to_owned(), |name| name.trim_matches('~').to_owned())
            }
            // The field of a tuple is a number.
            "field_expression" => {
                let name = node.child_by_field_name("field");
                field("value") + "." + name.map_or("?", |name| self.text(name))
            }
            "integer_literal" => "#".to_owned(),
            "call_expression" => {
                let function = field("function");
                let wraps = matches!(
                    function.as_str(),
                    "Some"
                        | "Ok"
                        | "Err"
                        | "Box.new"
                        | "Rc.new"
                        | "Arc.new"
                        | "RefCell.new"
                        | "Mutex.new"
                        | "Cell.new"
                );
                match node
                    .child_by_field_name("arguments")
                    .and_then(|list| list.named_child(0))
                {
                    Some(inner) if wraps => self.rust_chain(inner),
                    _ => function + "()",
                }
            }
            "struct_expression" => field("name") + "()",
            "index_expression" => first() + "[]",
            "try_expression" | "await_expression" => first() + "^",
            "parenthesized_expression" | "unary_expression" => first(),
            "reference_expression" => field("value"),
            "type_cast_expression" => node
                .child_by_field_name("type")
                .map_or("?".to_owned(), |kind| self.rust_annotation(kind)),
            // What it returns, as for the type of a function; names inside of a block are not known outside.
            "closure_expression" => match node.child_by_field_name("body") {
                Some(body) if body.kind() != "block" => self.rust_chain(body),
                _ => "?".to_owned(),
            },
            "string_literal" | "raw_string_literal" => "\"".to_owned(),
            "boolean_literal" | "char_literal" | "float_literal" => "#".to_owned(),
            "match_expression" => either(
                node.child_by_field_name("body")
                    .map(children)
                    .into_iter()
                    .flatten()
                    .take(4)
                    .filter_map(|arm| arm.child_by_field_name("value"))
                    .map(|value| self.rust_chain(value))
                    .collect(),
            ),
            "array_expression" | "tuple_expression" => first(),
            _ => "?".to_owned(),
        }
    }

    /// The chain of what stands before `::`, where `self` is the module.
    pub(super) fn rust_path(&self, node: Node<'_>) -> String {
        match node.kind() {
            "self" => "::self".to_owned(),
            _ => self.rust_chain(node),
        }
    }

    pub(super) fn rust_bound_annotation(&self, bounds: Node<'_>) -> String {
        let names = self.rust_bounds(bounds);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        annotated(&names)
    }

    pub(super) fn rust_bounds(&self, node: Node<'_>) -> Vec<String> {
        let names = self.rust_type_names_of(node).into_iter();
        names.filter(|name| !name.starts_with('~')).collect()
    }

    pub(super) fn rust_annotation(&self, node: Node<'_>) -> String {
        let names = self.rust_type_names_of(node);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        annotated(&names)
    }

    fn rust_type_names_of(&self, node: Node<'_>) -> Vec<String> {
        let mut names = Vec::new();
        self.rust_type_names(node, &mut names, false, 0);
        names
    }

    fn rust_type_names(
        &self,
        node: Node<'_>,
        names: &mut Vec<String>,
        argument: bool,
        depth: usize,
    ) {
        let mark = if argument { "~" } else { "" };
        match node.kind() {
            "type_identifier" | "scoped_type_identifier" | "primitive_type" | "identifier" => {
                names.push(format!("{mark}{}", self.rust_chain_of_type(node)));
            }
            "function_type" => {
                if let Some(kind) = node.child_by_field_name("return_type") {
                    self.rust_type_names(kind, names, argument, depth + 1);
                }
            }
            "lifetime" => {}
            kind if depth < 12 && names.len() < 12 => {
                let argument =
                    argument || matches!(kind, "type_arguments" | "array_type" | "tuple_type");
                for child in children(node) {
                    self.rust_type_names(child, names, argument, depth + 1);
                }
            }
            _ => {}
        }
    }

    fn rust_chain_of_type(&self, node: Node<'_>) -> String {
        match node.kind() {
            "primitive_type" => self.text(node).to_owned(),
            _ => self.rust_chain(node),
        }
    }
}
