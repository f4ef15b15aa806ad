//! Scopes of Rust. Paths are chains too: `crate::net::Pool` is `crate.net.Pool`.

mod chains;

use tree_sitter::Node;

use super::{BindingKind, ScopeBuilder, ScopeKind, children};

/// Methods of iterators, options and collections that hand their elements to a closure.
const ELEMENT_METHODS: &[&str] = &[
    "all",
    "and_then",
    "any",
    "filter",
    "filter_map",
    "find",
    "find_map",
    "flat_map",
    "for_each",
    "inspect",
    "is_ok_and",
    "is_some_and",
    "map",
    "map_or",
    "map_or_else",
    "map_while",
    "max_by",
    "max_by_key",
    "min_by",
    "min_by_key",
    "partition",
    "position",
    "retain",
    "skip_while",
    "sort_by",
    "sort_by_key",
    "sort_unstable_by",
    "sort_unstable_by_key",
    "take_while",
];

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
                    "enum_variant" => self.rust_variant(node, scope),
                    _ => scope,
                };
                self.each_child(node, inner, Self::rust);
            }
            "ordered_field_declaration_list" => {
                for (name, kind) in self.rust_variant_fields(node) {
                    let chain = self.rust_annotation(kind);
                    let start = kind.start_byte();
                    self.bind_name(scope, scope, &name, start, BindingKind::Field, chain);
                }
                self.each_child(node, scope, Self::rust);
            }
            "type_item" | "associated_type" => {
                if let Some(name) = node.child_by_field_name("name") {
                    let bounds = node.child_by_field_name("bounds");
                    let chain = match (node.child_by_field_name("type"), bounds) {
                        (Some(kind), _) => self.rust_annotation(kind),
                        (None, Some(bounds)) => self.rust_bound_annotation(bounds),
                        (None, None) => "?".to_owned(),
                    };
                    // Without `Self::` before it, a name does not mean an associated type.
                    let kind = match self.found.scopes[scope].kind {
                        ScopeKind::Members => BindingKind::Field,
                        _ => BindingKind::Variable,
                    };
                    self.bind(scope, name, kind, chain);
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
                    let chain =
                        bounds.map_or("?".to_owned(), |bounds| self.rust_bound_annotation(bounds));
                    self.bind(scope, name, BindingKind::Variable, chain);
                }
                self.each_child(node, scope, Self::rust);
            }
            "where_predicate" => {
                let left = node.child_by_field_name("left");
                if let (Some(left), Some(bounds)) = (left, node.child_by_field_name("bounds"))
                    && left.kind() == "type_identifier"
                {
                    let chain = self.rust_bound_annotation(bounds);
                    self.bind(scope, left, BindingKind::Variable, chain);
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
            "closure_expression" => self.rust_closure(node, "?", scope),
            "call_expression" => {
                let element = self.rust_element_of_call(node);
                for child in children(node) {
                    if child.kind() != "arguments" {
                        self.rust(child, scope);
                        continue;
                    }
                    for argument in children(child) {
                        match (argument.kind(), &element) {
                            ("closure_expression", Some(element)) => self.nested(|builder| {
                                builder.rust_closure(argument, element, scope);
                            }),
                            _ => self.rust(argument, scope),
                        }
                    }
                }
            }
            "scoped_identifier" | "scoped_type_identifier" => {
                let path = node.child_by_field_name("path");
                if let Some(name) = node.child_by_field_name("name") {
                    let chain = path.map_or("crate".to_owned(), |path| self.rust_path(path));
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
                        .map_or("crate".to_owned(), |path| self.rust_path(path));
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
                    .map_or(path.to_owned(), |inner| below(&self.rust_path(inner)));
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
                let inner = module.map_or(path.to_owned(), |inner| below(&self.rust_path(inner)));
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

    /// The parameters of a closure are parts of `element` where that is known.
    fn rust_closure(&mut self, node: Node<'_>, element: &str, scope: usize) {
        let inner = self.open_at(ScopeKind::Block, scope, node);
        let parameters = node.child_by_field_name("parameters");
        for parameter in parameters.map(children).into_iter().flatten() {
            match parameter.kind() {
                "parameter" => self.rust_parameter(parameter, inner),
                _ => self.rust_pattern(parameter, element, inner),
            }
        }
        self.each_child(node, inner, Self::rust);
    }

    /// What a method hands to the closure that it is given: an element of what it is called on.
    fn rust_element_of_call(&self, call: Node<'_>) -> Option<String> {
        let mut function = call.child_by_field_name("function")?;
        if function.kind() == "generic_function" {
            function = function.child_by_field_name("function")?;
        }
        let name = function.child_by_field_name("field")?;
        let hands = ELEMENT_METHODS.contains(&self.text(name));
        let value = function.child_by_field_name("value").filter(|_| hands)?;
        Some(self.rust_chain(value) + "[]")
    }

    /// Binds the fields of a variant as `Variant#field` beside it, since patterns name them so; opens a scope for them.
    fn rust_variant(&mut self, node: Node<'_>, scope: usize) -> usize {
        let variant = node.child_by_field_name("name").map(|name| self.text(name));
        let body = node.child_by_field_name("body");
        if let (Some(variant), Some(body)) = (variant, body) {
            for (name, kind) in self.rust_variant_fields(body) {
                let (name, chain) = (format!("{variant}#{name}"), self.rust_annotation(kind));
                let start = kind.start_byte();
                self.bind_name(scope, scope, &name, start, BindingKind::Field, chain);
            }
        }
        self.open_at(ScopeKind::Members, scope, node)
    }

    /// The names and types of fields; those without names are counted.
    fn rust_variant_fields<'t>(&self, body: Node<'t>) -> Vec<(String, Node<'t>)> {
        let parts = children(body).into_iter();
        if body.kind() == "field_declaration_list" {
            let fields = parts.filter_map(|field| {
                let name = field.child_by_field_name("name")?;
                let kind = field.child_by_field_name("type")?;
                Some((self.text(name).to_owned(), kind))
            });
            return fields.collect();
        }
        let types = parts.filter(|part| {
            let kind = part.kind();
            !matches!(kind, "attribute_item" | "visibility_modifier") && !kind.ends_with("comment")
        });
        let places = types.enumerate();
        places.map(|(at, kind)| (at.to_string(), kind)).collect()
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
                let owner = kind.map_or("?".to_owned(), |kind| self.rust_chain(kind));
                let mut cursor = node.walk();
                let parts: Vec<Node<'_>> = node.children(&mut cursor).collect();
                let mut place = Some(0);
                for part in parts.into_iter().filter(|part| Some(*part) != kind) {
                    // By commas, since `_` is no pattern here; behind `..` the places are not known.
                    match part.kind() {
                        "," => place = place.map(|place| place + 1),
                        "remaining_field_pattern" => place = None,
                        _ => {}
                    }
                    let part_chain = match place {
                        _ if wrapper => chain.to_owned(),
                        Some(place) => format!("{owner}#{place}"),
                        None => "?".to_owned(),
                    };
                    if part.is_named() {
                        self.nested(|builder| builder.rust_pattern(part, &part_chain, scope));
                    }
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
                        let member = format!("{owner}#{}", self.text(name));
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
}
