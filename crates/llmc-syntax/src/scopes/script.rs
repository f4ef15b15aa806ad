//! Scopes of JavaScript and TypeScript.

mod chains;
mod imports;

use tree_sitter::Node;

use self::imports::required;
use super::{BindingKind, ScopeBuilder, ScopeKind, child_of_kind, children};

/// Methods of arrays that hand their elements to a function first.
const ELEMENT_METHODS: &[&str] = &[
    "every",
    "filter",
    "find",
    "findIndex",
    "findLast",
    "flatMap",
    "forEach",
    "map",
    "some",
];

/// What a method hands to the function that it is given, by the chain of the method.
fn element_of(method: &str) -> Option<String> {
    let (value, name) = method.rsplit_once('.')?;
    ELEMENT_METHODS
        .contains(&name)
        .then(|| format!("{value}[]"))
}

fn is_function(node: Node<'_>) -> bool {
    matches!(node.kind(), "arrow_function" | "function_expression")
}

impl<'s> ScopeBuilder<'s> {
    pub(super) fn script(&mut self, node: Node<'_>, scope: usize) {
        self.nested(|builder| builder.script_node(node, scope));
    }

    fn script_node(&mut self, node: Node<'_>, scope: usize) {
        match node.kind() {
            "import_statement" => self.script_import(node, scope),
            "export_statement" => self.script_export(node, scope),
            "function_declaration"
            | "generator_function_declaration"
            | "function_signature"
            | "function_expression"
            | "generator_function" => {
                let binding = node
                    .child_by_field_name("name")
                    .and_then(|name| self.bind(scope, name, BindingKind::Function, String::new()));
                self.script_function(node, scope, binding);
            }
            "arrow_function" => self.script_function(node, scope, None),
            "method_definition" | "method_signature" | "abstract_method_signature" => {
                self.script_method(node, scope);
            }
            // An object that can be called, under a name that nothing else has.
            "call_signature" => {
                let (start, kind) = (node.start_byte(), BindingKind::Function);
                let binding = self.bind_name(scope, scope, "()", start, kind, String::new());
                self.script_function(node, scope, binding);
            }
            "class_declaration"
            | "abstract_class_declaration"
            | "class"
            | "interface_declaration"
            | "enum_declaration"
            | "internal_module"
            | "module"
                if node.child_by_field_name("body").is_some() =>
            {
                let name = node.child_by_field_name("name");
                let chain = self.script_bases(node, scope);
                let binding =
                    name.and_then(|name| self.bind(scope, name, BindingKind::Class, chain));
                self.script_members(node, scope, binding);
            }
            // `declare global { … }`: names of every file, in a namespace of that name.
            "ambient_declaration" if child_of_kind(node, "statement_block").is_some() => {
                let (start, kind) = (node.start_byte(), BindingKind::Class);
                let binding = self.bind_name(scope, scope, "global", start, kind, String::new());
                let inner = self.open_at(ScopeKind::Namespace, scope, node);
                self.opens(binding, inner);
                for block in children(node) {
                    self.each_child(block, inner, Self::script);
                }
            }
            "type_identifier" => self.type_name(node),
            "type_alias_declaration" => self.script_alias(node, scope),
            "public_field_definition" | "field_definition" | "property_signature" => {
                let name = node
                    .child_by_field_name("name")
                    .or_else(|| node.child_by_field_name("property"));
                if let Some(name) = name.filter(|name| name.kind() != "computed_property_name") {
                    self.script_variable(node, name, scope, BindingKind::Field);
                } else {
                    self.each_child(node, scope, Self::script);
                }
            }
            "enum_assignment" => {
                if let Some(name) = node.child_by_field_name("name") {
                    self.bind(scope, name, BindingKind::Field, "#".to_owned());
                }
                if let Some(value) = node.child_by_field_name("value") {
                    self.script(value, scope);
                }
            }
            "variable_declarator" => {
                if let Some(name) = node.child_by_field_name("name") {
                    self.script_variable(node, name, scope, BindingKind::Variable);
                }
            }
            "type_parameter" => {
                if let Some(name) = node.child_by_field_name("name") {
                    let chain = node
                        .child_by_field_name("constraint")
                        .map_or("?".to_owned(), |bound| self.script_annotation(bound));
                    self.bind(scope, name, BindingKind::Variable, chain);
                }
                self.each_child(node, scope, Self::script);
            }
            "statement_block" | "for_statement" | "switch_body" => {
                let inner = self.open_at(ScopeKind::Block, scope, node);
                self.each_child(node, inner, Self::script);
            }
            "for_in_statement" => {
                let inner = self.open_at(ScopeKind::Block, scope, node);
                if node.child_by_field_name("kind").is_some()
                    && let Some(left) = node.child_by_field_name("left")
                    && let Some(right) = node.child_by_field_name("right")
                {
                    let chain = self.script_chain(right) + "[]";
                    self.script_pattern(left, &chain, inner, inner);
                }
                self.each_child(node, inner, Self::script);
            }
            "catch_clause" => {
                let inner = self.open_at(ScopeKind::Block, scope, node);
                if let Some(parameter) = node.child_by_field_name("parameter") {
                    self.script_pattern(parameter, "?", inner, inner);
                }
                self.each_child(node, inner, Self::script);
            }
            "return_statement" => {
                let chain = node
                    .named_child(0)
                    .map_or("#".to_owned(), |value| self.script_chain(value));
                self.returned(scope, chain);
                self.each_child(node, scope, Self::script);
            }
            "assignment_expression" => self.script_assignment(node, scope),
            "member_expression" | "nested_identifier" => {
                let object = node.child_by_field_name("object");
                if let (Some(object), Some(name)) = (object, node.child_by_field_name("property")) {
                    let chain = self.script_chain(object);
                    self.receiver(name, chain);
                    self.script(object, scope);
                }
            }
            "nested_type_identifier" => {
                let module = node.child_by_field_name("module");
                if let (Some(module), Some(name)) = (module, node.child_by_field_name("name")) {
                    let chain = self.script_chain(module);
                    self.receiver(name, chain);
                    self.type_name(name);
                    self.script(module, scope);
                }
            }
            "binary_expression" => {
                self.script_narrow(node, scope);
                self.each_child(node, scope, Self::script);
            }
            "object" | "object_type" => {
                let expected = self.expected.take();
                let inner = self.open_at(ScopeKind::Members, scope, node);
                if let Some(expected) = expected {
                    self.expectations.insert(inner, expected);
                }
                self.each_child(node, inner, Self::script);
            }
            "arguments" => {
                let function = self.called.take();
                for (place, argument) in children(node).into_iter().enumerate() {
                    let object = argument.kind() == "object";
                    self.expected = function
                        .as_ref()
                        .filter(|_| object)
                        .map(|function| format!("{function}.@{place}"));
                    self.element = function
                        .as_ref()
                        .filter(|_| is_function(argument))
                        .and_then(|function| element_of(function));
                    self.script(argument, scope);
                }
                self.expected = None;
                self.element = None;
            }
            "call_expression" | "new_expression" => {
                let function = node
                    .child_by_field_name("function")
                    .or_else(|| node.child_by_field_name("constructor"));
                let chain = function.map(|function| self.script_chain(function));
                for child in children(node) {
                    if child.kind() == "arguments" {
                        self.called.clone_from(&chain);
                    }
                    self.script(child, scope);
                }
            }
            "pair" => self.script_pair(node, scope),
            "jsx_attribute" => {
                if let Some(name) = child_of_kind(node, "property_identifier") {
                    self.label(name);
                }
                self.each_child(node, scope, Self::script);
            }
            _ => self.each_child(node, scope, Self::script),
        }
    }

    /// A key of an object literal is a member that the literal defines.
    fn script_pair(&mut self, node: Node<'_>, scope: usize) {
        let key = node.child_by_field_name("key");
        let value = node.child_by_field_name("value");
        let (Some(key), Some(value)) = (key, value) else {
            return;
        };
        match key.kind() {
            "property_identifier" => {
                let expected = self.expectations.get(&scope).cloned();
                self.receiver(key, expected.clone().unwrap_or_default());
                let chain = self.script_chain(value);
                self.bind(scope, key, BindingKind::Field, chain);
                if value.kind() == "object" {
                    self.expected = expected.map(|of| format!("{of}.{}", self.text(key)));
                }
            }
            _ => self.script(key, scope),
        }
        self.script(value, scope);
    }

    fn script_method(&mut self, node: Node<'_>, scope: usize) {
        let reads = {
            let mut cursor = node.walk();
            node.children(&mut cursor)
                .any(|child| matches!(child.kind(), "get" | "set"))
        };
        let kind = if reads {
            BindingKind::Property
        } else {
            BindingKind::Function
        };
        let name = node.child_by_field_name("name");
        let binding = match name {
            Some(name) if name.kind() == "computed_property_name" => {
                self.script(name, scope);
                None
            }
            Some(name) => {
                if let Some(expected) = self.expectations.get(&scope) {
                    self.receiver(name, expected.clone());
                }
                self.bind(scope, name, kind, String::new())
            }
            None => None,
        };
        self.script_function(node, scope, binding);
    }

    fn script_function(&mut self, node: Node<'_>, scope: usize, binding: Option<usize>) {
        let inner = self.open_at(ScopeKind::Function, scope, node);
        self.opens(binding, inner);
        let element = self.element.take().unwrap_or_else(|| "?".to_owned());
        let mut body = None;
        for child in children(node) {
            match child.kind() {
                "formal_parameters" => {
                    for (place, parameter) in children(child).into_iter().enumerate() {
                        let default = if place == 0 { &element } else { "?" };
                        self.script_parameter(parameter, place, default, inner);
                    }
                }
                "decorator" => self.script(child, scope),
                _ if Some(child) == node.child_by_field_name("name") => {}
                _ if Some(child) == node.child_by_field_name("parameter") => {
                    self.script_pattern(child, &element, inner, inner);
                }
                _ if Some(child) == node.child_by_field_name("body") => body = Some(child),
                _ => self.script(child, inner),
            }
        }
        if let Some(body) = body {
            if body.kind() == "statement_block" {
                self.each_child(body, inner, Self::script);
            } else {
                let chain = self.script_chain(body);
                self.returned(inner, chain);
                self.script(body, inner);
            }
        }
        let inferred = self.take_returns(inner);
        let chain = match node.child_by_field_name("return_type") {
            Some(kind) => self.script_annotation(kind),
            None => inferred,
        };
        self.set_chain(binding, chain);
    }

    fn script_parameter(&mut self, node: Node<'_>, place: usize, default: &str, inner: usize) {
        let pattern = node.child_by_field_name("pattern").unwrap_or(node);
        let value = node.child_by_field_name("value");
        let chain = match (node.child_by_field_name("type"), value) {
            (Some(kind), _) => self.script_annotation(kind),
            (None, Some(value)) => self.script_chain(value),
            (None, None) => default.to_owned(),
        };
        self.script_pattern(pattern, &chain, inner, inner);
        if node.child_by_field_name("type").is_some() {
            // By its place, for the object literals that callers pass.
            let (name, start) = (format!("@{place}"), node.start_byte());
            let kind = BindingKind::Parameter;
            self.bind_name(inner, inner, &name, start, kind, chain.clone());
        }
        // `constructor(private pool: Pool)` makes a field.
        if child_of_kind(node, "accessibility_modifier").is_some()
            && pattern.kind() == "identifier"
            && let Some(members) = self.members_around(inner)
        {
            let (name, start) = (self.text(pattern), pattern.start_byte());
            self.bind_name(members, inner, name, start, BindingKind::Field, chain);
        }
        for child in children(node) {
            if child != pattern {
                self.script(child, inner);
            }
        }
    }

    /// Binds the names of a pattern to a value, whose chain is read in another scope.
    fn script_pattern(&mut self, node: Node<'_>, chain: &str, scope: usize, context: usize) {
        match node.kind() {
            "identifier" | "shorthand_property_identifier_pattern" => {
                let (name, start) = (self.text(node), node.start_byte());
                let kind = BindingKind::Variable;
                self.bind_name(scope, context, name, start, kind, chain.to_owned());
            }
            "object_pattern" => {
                for part in children(node) {
                    match part.kind() {
                        "pair_pattern" => {
                            let key = part.child_by_field_name("key");
                            let value = part.child_by_field_name("value");
                            if let (Some(key), Some(value)) = (key, value) {
                                let member = format!("{chain}.{}", self.text(key));
                                self.receiver(key, chain.to_owned());
                                self.nested(|builder| {
                                    builder.script_pattern(value, &member, scope, context)
                                });
                            }
                        }
                        _ => {
                            let name = part.child_by_field_name("left").unwrap_or(part);
                            let member = format!("{chain}.{}", self.text(name));
                            self.nested(|builder| {
                                builder.script_pattern(part, &member, scope, context)
                            });
                        }
                    }
                }
            }
            "array_pattern" => {
                for part in children(node) {
                    self.nested(|builder| {
                        builder.script_pattern(part, &format!("{chain}[]"), scope, context)
                    });
                }
            }
            "assignment_pattern" | "object_assignment_pattern" => {
                if let Some(left) = node.child_by_field_name("left") {
                    self.nested(|builder| builder.script_pattern(left, chain, scope, context));
                }
                if let Some(right) = node.child_by_field_name("right") {
                    self.script(right, scope);
                }
            }
            "rest_pattern" => {
                for part in children(node) {
                    self.nested(|builder| builder.script_pattern(part, "?", scope, context));
                }
            }
            _ => {}
        }
    }

    /// A variable or a field: a function if its value is one.
    fn script_variable(&mut self, node: Node<'_>, name: Node<'_>, scope: usize, kind: BindingKind) {
        let value = node.child_by_field_name("value");
        let typed = node.child_by_field_name("type");
        if let Some(typed) = typed {
            self.script(typed, scope);
        }
        match value.map(|value| (value, value.kind())) {
            Some((value, "arrow_function" | "function_expression" | "generator_function")) => {
                let binding = self.bind(scope, name, BindingKind::Function, String::new());
                self.script_function(value, scope, binding);
            }
            Some((value, "class")) => {
                let chain = self.script_bases(value, scope);
                let binding = self.bind(scope, name, BindingKind::Class, chain);
                self.script_members(value, scope, binding);
            }
            Some((value, "object")) if typed.is_none() && name.kind() != "object_pattern" => {
                let binding = self.bind(scope, name, BindingKind::Class, String::new());
                let inner = self.open_at(ScopeKind::Members, scope, value);
                self.opens(binding, inner);
                self.each_child(value, inner, Self::script);
            }
            _ => {
                let chain = match (typed, value) {
                    (Some(typed), _) => self.script_annotation(typed),
                    (None, Some(value)) => self.script_chain(value),
                    (None, None) => "?".to_owned(),
                };
                match (required(value, self.source), name.kind()) {
                    (Some(module), "identifier") => {
                        let chain = format!("{module}|");
                        self.bind(scope, name, BindingKind::Import, chain);
                    }
                    (Some(module), "object_pattern") => {
                        for part in children(name) {
                            let chain = format!("{module}|{}", self.text(part));
                            self.bind(scope, part, BindingKind::Import, chain);
                        }
                    }
                    _ if kind == BindingKind::Field => {
                        self.bind(scope, name, kind, chain);
                    }
                    _ => self.script_pattern(name, &chain, scope, scope),
                }
                if let Some(value) = value {
                    if value.kind() == "object" {
                        self.expected = typed.map(|typed| self.script_annotation(typed));
                    }
                    self.script(value, scope);
                }
            }
        }
    }

    /// What a class or an interface derives from.
    fn script_bases(&mut self, node: Node<'_>, scope: usize) -> String {
        let mut bases = Vec::new();
        for part in children(node) {
            let clauses = match part.kind() {
                "class_heritage" => children(part),
                "extends_type_clause" => vec![part],
                _ => continue,
            };
            for clause in clauses {
                match clause.kind() {
                    "extends_clause" => {
                        if let Some(value) = clause.child_by_field_name("value") {
                            bases.push(self.script_chain(value));
                        }
                    }
                    "implements_clause" | "extends_type_clause" => {
                        for kind in children(clause) {
                            bases.push(self.script_outer_type(kind));
                        }
                    }
                    _ => bases.push(self.script_chain(clause)),
                }
            }
            self.script(part, scope);
        }
        bases.join(",")
    }

    /// The name of a type without its arguments.
    fn script_outer_type(&self, node: Node<'_>) -> String {
        let name = match node.kind() {
            "generic_type" => node.child_by_field_name("name").unwrap_or(node),
            _ => node,
        };
        self.text(name).split_whitespace().collect()
    }

    fn script_members(&mut self, node: Node<'_>, scope: usize, binding: Option<usize>) {
        let Some(body) = node.child_by_field_name("body") else {
            return;
        };
        let kind = match node.kind() {
            "internal_module" | "module" => ScopeKind::Namespace,
            _ => ScopeKind::Members,
        };
        let inner = self.open_at(kind, scope, body);
        self.opens(binding, inner);
        if let Some(parameters) = node.child_by_field_name("type_parameters") {
            self.script(parameters, inner);
        }
        if body.kind() == "enum_body" {
            for name in children(body) {
                if name.kind() == "property_identifier" {
                    self.bind(inner, name, BindingKind::Field, "#".to_owned());
                }
            }
        }
        self.each_child(body, inner, Self::script);
    }

    fn script_alias(&mut self, node: Node<'_>, scope: usize) {
        let name = node.child_by_field_name("name");
        let value = node.child_by_field_name("value");
        let (Some(name), Some(value)) = (name, value) else {
            return;
        };
        if value.kind() == "object_type" {
            let binding = self.bind(scope, name, BindingKind::Class, String::new());
            let inner = self.open_at(ScopeKind::Members, scope, value);
            self.opens(binding, inner);
            self.each_child(value, inner, Self::script);
            return;
        }
        let chain = self.script_annotation(value);
        self.bind(scope, name, BindingKind::Variable, chain);
        let inner = self.open_at(ScopeKind::Block, scope, node);
        if let Some(parameters) = node.child_by_field_name("type_parameters") {
            self.script(parameters, inner);
        }
        self.script(value, inner);
    }

    fn script_assignment(&mut self, node: Node<'_>, scope: usize) {
        let left = node.child_by_field_name("left");
        let right = node.child_by_field_name("right");
        if let (Some(left), Some(right)) = (left, right)
            && left.kind() == "member_expression"
            && let Some(object) = left.child_by_field_name("object")
            && let Some(name) = left.child_by_field_name("property")
            && object.kind() == "this"
            && let Some(members) = self.members_around(scope)
        {
            let chain = self.script_chain(right);
            let (text, start) = (self.text(name), name.start_byte());
            self.bind_name(members, scope, text, start, BindingKind::Field, chain);
        }
        self.each_child(node, scope, Self::script);
    }

    /// `x instanceof Pool`: the name may be a `Pool` from there on.
    fn script_narrow(&mut self, node: Node<'_>, scope: usize) {
        let operator = node.child_by_field_name("operator");
        if operator.is_none_or(|operator| operator.kind() != "instanceof")
            || self.function_around(scope).is_none()
        {
            return;
        }
        let left = node.child_by_field_name("left");
        if let (Some(left), Some(right)) = (left, node.child_by_field_name("right"))
            && left.kind() == "identifier"
        {
            let chain = format!("<{}>", self.text(right));
            self.bind(scope, left, BindingKind::Variable, chain);
        }
    }
}
