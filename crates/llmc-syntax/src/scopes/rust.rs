//! Scopes of Rust. Paths are chains too: `crate::net::Pool` is `crate.net.Pool`.

use tree_sitter::Node;

use super::{BindingKind, ScopeBuilder, ScopeKind, annotated, children, either};

impl<'s> ScopeBuilder<'s> {
    pub(super) fn rust(&mut self, node: Node<'_>, scope: usize) {
        self.nested(|builder| builder.rust_node(node, scope));
    }

    fn rust_node(&mut self, node: Node<'_>, scope: usize) {
        match node.kind() {
            "use_declaration" => {
                if let Some(argument) = node.child_by_field_name("argument") {
                    self.rust_use(argument, "", scope);
                }
            }
            "mod_item" => self.rust_module(node, scope),
            "function_item" | "function_signature_item" => self.rust_function(node, scope),
            "struct_item" | "union_item" | "enum_item" | "trait_item" => {
                let Some(name) = node.child_by_field_name("name") else {
                    return;
                };
                let bases = node.child_by_field_name("bounds");
                let bases = bases.map_or_else(Vec::new, |bounds| self.rust_bounds(bounds));
                let binding = self.bind(scope, name, BindingKind::Class, bases.join(","));
                let inner = self.open_at(ScopeKind::Members, scope, node);
                self.opens(binding, inner);
                for child in children(node).into_iter().filter(|child| *child != name) {
                    self.rust(child, inner);
                }
            }
            "impl_item" => self.rust_impl(node, scope),
            "enum_variant" | "field_declaration" | "const_item" | "static_item" => {
                if let Some(name) = node.child_by_field_name("name") {
                    let chain = match node.child_by_field_name("type") {
                        Some(kind) => self.rust_annotation(kind),
                        None if node.kind() == "enum_variant" => "<Self>".to_owned(),
                        None => "?".to_owned(),
                    };
                    let kind = match self.found.scopes[scope].kind {
                        ScopeKind::Members => BindingKind::Field,
                        _ => BindingKind::Variable,
                    };
                    self.bind(scope, name, kind, chain);
                }
                // The fields of a variant are not members of the enum.
                let inner = match node.kind() {
                    "enum_variant" => self.open_at(ScopeKind::Members, scope, node),
                    _ => scope,
                };
                self.each_child(node, inner, Self::rust);
            }
            "type_item" | "associated_type" => {
                if let Some(name) = node.child_by_field_name("name") {
                    let chain = node
                        .child_by_field_name("type")
                        .map_or("?".to_owned(), |kind| self.rust_annotation(kind));
                    self.bind(scope, name, BindingKind::Variable, chain);
                }
                self.each_child(node, scope, Self::rust);
            }
            "macro_definition" => {
                if let Some(name) = node.child_by_field_name("name") {
                    self.bind(scope, name, BindingKind::Function, "?".to_owned());
                }
            }
            "type_parameter" => {
                if let Some(name) = node.child_by_field_name("name") {
                    let bounds = node.child_by_field_name("bounds");
                    let names = bounds.map_or_else(Vec::new, |bounds| self.rust_bounds(bounds));
                    let names: Vec<&str> = names.iter().map(String::as_str).collect();
                    self.bind(scope, name, BindingKind::Variable, annotated(&names));
                }
                self.each_child(node, scope, Self::rust);
            }
            "where_predicate" => {
                let left = node.child_by_field_name("left");
                if let (Some(left), Some(bounds)) = (left, node.child_by_field_name("bounds"))
                    && left.kind() == "type_identifier"
                {
                    let names = self.rust_bounds(bounds);
                    let names: Vec<&str> = names.iter().map(String::as_str).collect();
                    self.bind(scope, left, BindingKind::Variable, annotated(&names));
                }
                self.each_child(node, scope, Self::rust);
            }
            "block" => {
                let inner = self.open_at(ScopeKind::Block, scope, node);
                self.each_child(node, inner, Self::rust);
            }
            "if_expression" | "while_expression" | "match_arm" => {
                let inner = self.open_at(ScopeKind::Block, scope, node);
                self.each_child(node, inner, Self::rust);
            }
            "match_expression" => {
                let value = node.child_by_field_name("value");
                let chain = value.map_or("?".to_owned(), |value| self.rust_chain(value));
                if let Some(value) = value {
                    self.rust(value, scope);
                }
                for arm in node
                    .child_by_field_name("body")
                    .map(children)
                    .into_iter()
                    .flatten()
                {
                    let inner = self.open_at(ScopeKind::Block, scope, arm);
                    if let Some(pattern) = arm.child_by_field_name("pattern") {
                        self.rust_pattern(pattern, &chain, inner);
                    }
                    self.each_child(arm, inner, Self::rust);
                }
            }
            "let_declaration" | "let_condition" => {
                let value = node.child_by_field_name("value");
                if let Some(pattern) = node.child_by_field_name("pattern") {
                    let chain = match (node.child_by_field_name("type"), value) {
                        (Some(kind), _) => self.rust_annotation(kind),
                        (None, Some(value)) => self.rust_chain(value),
                        (None, None) => "?".to_owned(),
                    };
                    self.rust_pattern(pattern, &chain, scope);
                }
                self.each_child(node, scope, Self::rust);
            }
            "for_expression" => {
                let inner = self.open_at(ScopeKind::Block, scope, node);
                let value = node.child_by_field_name("value");
                if let (Some(pattern), Some(value)) = (node.child_by_field_name("pattern"), value) {
                    let chain = self.rust_chain(value) + "[]";
                    self.rust_pattern(pattern, &chain, inner);
                }
                self.each_child(node, inner, Self::rust);
            }
            "closure_expression" => {
                let inner = self.open_at(ScopeKind::Block, scope, node);
                for parameter in node
                    .child_by_field_name("parameters")
                    .map(children)
                    .into_iter()
                    .flatten()
                {
                    match parameter.kind() {
                        "parameter" => self.rust_parameter(parameter, inner),
                        _ => self.rust_pattern(parameter, "?", inner),
                    }
                }
                self.each_child(node, inner, Self::rust);
            }
            "scoped_identifier" | "scoped_type_identifier" => {
                let path = node.child_by_field_name("path");
                if let Some(name) = node.child_by_field_name("name") {
                    let chain = path.map_or("crate".to_owned(), |path| self.rust_chain(path));
                    self.receiver(name, chain);
                }
                if let Some(path) = path {
                    self.rust(path, scope);
                }
            }
            "field_expression" => {
                let value = node.child_by_field_name("value");
                if let (Some(value), Some(name)) = (value, node.child_by_field_name("field")) {
                    let chain = self.rust_chain(value);
                    self.receiver(name, chain);
                    self.rust(value, scope);
                }
            }
            "field_initializer" | "field_pattern" => {
                if let Some(name) = node
                    .child_by_field_name("field")
                    .or_else(|| node.child_by_field_name("name"))
                    .filter(|name| name.kind() == "field_identifier")
                {
                    self.label(name);
                }
                self.each_child(node, scope, Self::rust);
            }
            "token_tree" => self.rust_tokens(node),
            "return_expression" => self.each_child(node, scope, Self::rust),
            _ => self.each_child(node, scope, Self::rust),
        }
    }

    /// The names that one `use` brings, below a path.
    fn rust_use(&mut self, node: Node<'_>, path: &str, scope: usize) {
        let below = |name: &str| {
            if path.is_empty() {
                name.to_owned()
            } else {
                format!("{path}.{name}")
            }
        };
        match node.kind() {
            "identifier" | "crate" | "super" | "self" => {
                let name = self.text(node);
                let (bound, chain) = match (name, path.rsplit('.').next()) {
                    // `use net::{self}`
                    ("self", Some(last)) if !path.is_empty() => (last, format!("{path}|")),
                    _ => (name, format!("{path}|{name}")),
                };
                let start = node.start_byte();
                self.bind_name(scope, scope, bound, start, BindingKind::Import, chain);
            }
            "scoped_identifier" => {
                if let Some(name) = node.child_by_field_name("name") {
                    let chain = node
                        .child_by_field_name("path")
                        .map_or("crate".to_owned(), |path| self.rust_chain(path));
                    let chain = format!("{}|{}", below(&chain), self.text(name));
                    self.bind(scope, name, BindingKind::Import, chain);
                    if let Some(inner) =
                        node.child_by_field_name("path").filter(|_| path.is_empty())
                    {
                        self.rust(inner, scope);
                    }
                }
            }
            "use_as_clause" => {
                let name = node.child_by_field_name("path");
                if let (Some(name), Some(alias)) = (name, node.child_by_field_name("alias")) {
                    let full = below(&self.rust_chain(name));
                    let (module, last) = full.rsplit_once('.').unwrap_or(("", &full));
                    let at = name
                        .child_by_field_name("name")
                        .unwrap_or(name)
                        .start_byte();
                    let chain = format!("{module}|{last}");
                    let alias = self.text(alias);
                    self.bind_name(scope, scope, alias, at, BindingKind::Import, chain);
                }
            }
            "scoped_use_list" => {
                let inner = node
                    .child_by_field_name("path")
                    .map_or(path.to_owned(), |inner| below(&self.rust_chain(inner)));
                if let Some(inner) = node.child_by_field_name("path").filter(|_| path.is_empty()) {
                    self.rust(inner, scope);
                }
                for one in node
                    .child_by_field_name("list")
                    .map(children)
                    .into_iter()
                    .flatten()
                {
                    self.nested(|builder| builder.rust_use(one, &inner, scope));
                }
            }
            "use_list" => {
                for one in children(node) {
                    self.nested(|builder| builder.rust_use(one, path, scope));
                }
            }
            "use_wildcard" => {
                let module = node.named_child(0);
                if let Some(module) = module.filter(|_| path.is_empty()) {
                    self.rust(module, scope);
                }
                let inner = module.map_or(path.to_owned(), |inner| below(&self.rust_chain(inner)));
                let start = node.start_byte();
                self.bind_name(scope, scope, "*", start, BindingKind::ImportAll, inner);
            }
            _ => {}
        }
    }

    fn rust_module(&mut self, node: Node<'_>, scope: usize) {
        let Some(name) = node.child_by_field_name("name") else {
            return;
        };
        let Some(body) = node.child_by_field_name("body") else {
            let chain = format!("mod.{}|", self.text(name));
            self.bind(scope, name, BindingKind::Import, chain);
            return;
        };
        let binding = self.bind(scope, name, BindingKind::Class, String::new());
        let inner = self.open_at(ScopeKind::Namespace, scope, body);
        self.opens(binding, inner);
        self.each_child(body, inner, Self::rust);
    }

    fn rust_function(&mut self, node: Node<'_>, scope: usize) {
        let Some(name) = node.child_by_field_name("name") else {
            return;
        };
        let returned = node.child_by_field_name("return_type");
        let chain = returned.map_or("#".to_owned(), |kind| self.rust_annotation(kind));
        let binding = self.bind(scope, name, BindingKind::Function, chain);
        let inner = self.open_at(ScopeKind::Function, scope, node);
        self.opens(binding, inner);
        for child in children(node) {
            match child.kind() {
                "parameters" => {
                    for parameter in children(child) {
                        self.rust_parameter(parameter, inner);
                    }
                }
                _ if child == name => {}
                _ => self.rust(child, inner),
            }
        }
    }

    fn rust_parameter(&mut self, node: Node<'_>, inner: usize) {
        if node.kind() == "self_parameter" {
            let start = node.start_byte();
            let chain = "<Self>".to_owned();
            self.bind_name(inner, inner, "self", start, BindingKind::Parameter, chain);
            return;
        }
        let kind = node.child_by_field_name("type");
        if let Some(pattern) = node.child_by_field_name("pattern") {
            let chain = kind.map_or("?".to_owned(), |kind| self.rust_annotation(kind));
            self.rust_pattern(pattern, &chain, inner);
        }
        if let Some(kind) = kind {
            self.rust(kind, inner);
        }
    }

    fn rust_impl(&mut self, node: Node<'_>, scope: usize) {
        let Some(kind) = node.child_by_field_name("type") else {
            return;
        };
        let base = node.child_by_field_name("trait");
        let base = base.map_or_else(String::new, |base| self.rust_chain(base));
        let name = self.rust_chain(kind);
        let bare = name.rsplit('.').next().unwrap_or_default();
        let start = kind.start_byte();
        let binding = self.bind_name(scope, scope, bare, start, BindingKind::Impl, base);
        let inner = self.open_at(ScopeKind::Members, scope, node);
        self.opens(binding, inner);
        self.each_child(node, inner, Self::rust);
    }

    /// Binds the variables of a pattern: names in lower case that are no paths.
    fn rust_pattern(&mut self, node: Node<'_>, chain: &str, scope: usize) {
        match node.kind() {
            "identifier" | "shorthand_field_identifier" => {
                if self
                    .text(node)
                    .starts_with(|c: char| c.is_lowercase() || c == '_')
                {
                    self.bind(scope, node, BindingKind::Variable, chain.to_owned());
                }
            }
            "scoped_identifier"
            | "scoped_type_identifier"
            | "type_identifier"
            | "field_identifier" => {}
            "tuple_struct_pattern" => {
                let kind = node.child_by_field_name("type");
                let wrapper =
                    kind.is_some_and(|kind| matches!(self.text(kind), "Some" | "Ok" | "Err"));
                let chain = if wrapper { chain } else { "?" };
                for child in children(node)
                    .into_iter()
                    .filter(|child| Some(*child) != kind)
                {
                    self.nested(|builder| builder.rust_pattern(child, chain, scope));
                }
            }
            "struct_pattern" => {
                let kind = node.child_by_field_name("type");
                for child in children(node)
                    .into_iter()
                    .filter(|child| Some(*child) != kind)
                {
                    if let Some(name) = child.child_by_field_name("name") {
                        let owner = kind.map_or("?".to_owned(), |kind| self.rust_chain(kind));
                        let member = format!("{owner}.{}", self.text(name));
                        let pattern = child.child_by_field_name("pattern").unwrap_or(name);
                        self.nested(|builder| builder.rust_pattern(pattern, &member, scope));
                    }
                }
            }
            "tuple_pattern" | "slice_pattern" => {
                for child in children(node) {
                    self.nested(|builder| builder.rust_pattern(child, "?", scope));
                }
            }
            "match_pattern" => {
                if let Some(inner) = node.named_child(0) {
                    self.nested(|builder| builder.rust_pattern(inner, chain, scope));
                }
            }
            _ => {
                for child in children(node) {
                    self.nested(|builder| builder.rust_pattern(child, chain, scope));
                }
            }
        }
    }

    /// The arguments of a macro are tokens: chains are put together again from names, dots and brackets.
    fn rust_tokens(&mut self, node: Node<'_>) {
        let mut cursor = node.walk();
        let tokens: Vec<Node<'_>> = node.children(&mut cursor).collect();
        let mut chain = String::new();
        let mut joined = false;
        for token in tokens {
            match token.kind() {
                "." | "::" => joined = !chain.is_empty(),
                "identifier" | "self" | "crate" | "super" | "type_identifier" => {
                    if joined {
                        self.receiver(token, chain.clone());
                        chain.push('.');
                    } else {
                        chain.clear();
                    }
                    chain.push_str(self.text(token));
                    joined = false;
                }
                "token_tree" => {
                    let opened = self.text(token).chars().next();
                    match opened {
                        Some('(') if !chain.is_empty() => chain.push_str("()"),
                        Some('[') if !chain.is_empty() => chain.push_str("[]"),
                        _ => chain.clear(),
                    }
                    joined = false;
                    self.nested(|builder| builder.rust_tokens(token));
                }
                "?" => chain.push('^'),
                _ => {
                    chain.clear();
                    joined = false;
                }
            }
        }
    }

    fn rust_chain(&self, node: Node<'_>) -> String {
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
                    Some(path) => self.rust_chain(path) + "." + &field("name"),
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
            "field_expression" => field("value") + "." + &field("field"),
            "integer_literal" if node.parent().is_some() => "#".to_owned(),
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

    fn rust_bounds(&self, node: Node<'_>) -> Vec<String> {
        let names = self.rust_type_names_of(node).into_iter();
        names.filter(|name| !name.starts_with('~')).collect()
    }

    fn rust_annotation(&self, node: Node<'_>) -> String {
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
