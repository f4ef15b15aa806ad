//! Scopes of Python.

use tree_sitter::Node;

use super::{BindingKind, ScopeBuilder, ScopeKind, annotated, children, either};

impl ScopeBuilder<'_> {
    pub(super) fn python(&mut self, node: Node<'_>, scope: usize) {
        self.nested(|builder| builder.python_node(node, scope));
    }

    fn python_node(&mut self, node: Node<'_>, scope: usize) {
        match node.kind() {
            "function_definition" => self.python_function(node, scope, false),
            "class_definition" => self.python_class(node, scope),
            "decorated_definition" => self.python_decorated(node, scope),
            "lambda" => {
                let inner = self.open_at(ScopeKind::Function, scope, node);
                if let Some(parameters) = node.child_by_field_name("parameters") {
                    self.python_parameters(parameters, scope, inner);
                }
                if let Some(body) = node.child_by_field_name("body") {
                    self.python(body, inner);
                }
            }
            "list_comprehension"
            | "set_comprehension"
            | "dictionary_comprehension"
            | "generator_expression" => {
                let inner = self.open_at(ScopeKind::Block, scope, node);
                self.each_child(node, inner, Self::python);
            }
            "for_statement" | "for_in_clause" => {
                if let (Some(left), Some(right)) = fields(node, "left", "right") {
                    let chain = self.python_chain(right) + "[]";
                    self.python_target(left, None, &chain, scope);
                }
                self.each_child(node, scope, Self::python);
            }
            "as_pattern" => {
                let value = node.named_child(0);
                if let (Some(value), Some(alias)) = (value, node.child_by_field_name("alias")) {
                    let caught = node
                        .parent()
                        .is_some_and(|around| around.kind().starts_with("except"));
                    let mut chain = self.python_chain(value);
                    if caught {
                        chain += "()";
                    }
                    for target in children(alias) {
                        self.python_target(target, None, &chain, scope);
                    }
                }
                self.each_child(node, scope, Self::python);
            }
            "except_clause" => {
                if let (Some(value), Some(alias)) = fields(node, "value", "alias") {
                    let chain = self.python_chain(value) + "()";
                    self.python_target(alias, None, &chain, scope);
                }
                self.each_child(node, scope, Self::python);
            }
            "assignment" => {
                if let Some(left) = node.child_by_field_name("left") {
                    let right = node.child_by_field_name("right");
                    let chain = match node.child_by_field_name("type") {
                        Some(kind) => self.python_annotation(kind),
                        None => right.map_or("?".to_owned(), |right| self.python_chain(right)),
                    };
                    self.python_target(left, right, &chain, scope);
                }
                self.each_child(node, scope, Self::python);
            }
            "named_expression" => {
                if let (Some(name), Some(value)) = fields(node, "name", "value") {
                    let chain = self.python_chain(value);
                    // A comprehension binds it in the scope around.
                    let mut around = scope;
                    while self.found.scopes[around].kind == ScopeKind::Block {
                        around = self.found.scopes[around].parent;
                    }
                    self.bind(around, name, BindingKind::Variable, chain);
                }
                self.each_child(node, scope, Self::python);
            }
            "return_statement" => {
                let chain = node
                    .named_child(0)
                    .map_or("#".to_owned(), |value| self.python_chain(value));
                self.returned(scope, chain);
                self.each_child(node, scope, Self::python);
            }
            "yield" => {
                if let Some(value) = node.named_child(0) {
                    let chain = self.python_chain(value);
                    self.returned(scope, chain);
                }
                self.each_child(node, scope, Self::python);
            }
            "import_statement" => self.python_import(node, scope),
            "import_from_statement" => self.python_import_from(node, scope),
            "keyword_argument" => {
                if let (Some(name), Some(value)) = fields(node, "name", "value") {
                    self.label(name);
                    self.python(value, scope);
                }
            }
            "attribute" => {
                if let (Some(object), Some(name)) = fields(node, "object", "attribute") {
                    let chain = self.python_chain(object);
                    self.receiver(name, chain);
                    self.python(object, scope);
                }
            }
            "call" => {
                self.narrow(node, scope);
                self.each_child(node, scope, Self::python);
            }
            _ => self.each_child(node, scope, Self::python),
        }
    }

    fn python_decorated(&mut self, node: Node<'_>, scope: usize) {
        let Some(definition) = node.child_by_field_name("definition") else {
            return;
        };
        let mut property = false;
        for child in children(node) {
            if child.kind() == "decorator" {
                let text = self.text(child);
                property |= text.contains("property") || text.ends_with(".setter");
                self.each_child(child, scope, Self::python);
            }
        }
        match definition.kind() {
            "function_definition" => self.python_function(definition, scope, property),
            _ => self.python_class(definition, scope),
        }
    }

    fn python_function(&mut self, node: Node<'_>, scope: usize, property: bool) {
        let (Some(name), Some(body)) = fields(node, "name", "body") else {
            return;
        };
        let kind = if property {
            BindingKind::Property
        } else {
            BindingKind::Function
        };
        let binding = self.bind(scope, name, kind, String::new());
        let inner = self.open_at(ScopeKind::Function, scope, body);
        self.opens(binding, inner);
        if let Some(parameters) = node.child_by_field_name("parameters") {
            self.python_parameters(parameters, scope, inner);
        }
        let returned = node.child_by_field_name("return_type");
        if let Some(kind) = returned {
            self.each_child(kind, scope, Self::python);
        }
        self.each_child(body, inner, Self::python);
        let inferred = self.take_returns(inner);
        let chain = match returned {
            Some(kind) => self.python_annotation(kind),
            None => inferred,
        };
        self.set_chain(binding, chain);
    }

    fn python_class(&mut self, node: Node<'_>, scope: usize) {
        let (Some(name), Some(body)) = fields(node, "name", "body") else {
            return;
        };
        let mut bases = Vec::new();
        if let Some(list) = node.child_by_field_name("superclasses") {
            for base in children(list) {
                if !matches!(base.kind(), "keyword_argument" | "comment") {
                    bases.push(self.python_chain(base));
                }
            }
            self.python(list, scope);
        }
        let binding = self.bind(scope, name, BindingKind::Class, bases.join(","));
        let inner = self.open_at(ScopeKind::Members, scope, body);
        self.opens(binding, inner);
        if let Some(found) = binding {
            self.found.bindings[found].context = scope;
        }
        self.each_child(body, inner, Self::python);
    }

    fn python_parameters(&mut self, list: Node<'_>, outer: usize, inner: usize) {
        let method = self.found.scopes[outer].kind == ScopeKind::Members;
        for (place, parameter) in children(list).into_iter().enumerate() {
            let (name, kind, value) = match parameter.kind() {
                "identifier" => (Some(parameter), None, None),
                "typed_parameter" => (
                    parameter.named_child(0).map(innermost),
                    parameter.child_by_field_name("type"),
                    None,
                ),
                "default_parameter" | "typed_default_parameter" => (
                    parameter.child_by_field_name("name"),
                    parameter.child_by_field_name("type"),
                    parameter.child_by_field_name("value"),
                ),
                "list_splat_pattern" | "dictionary_splat_pattern" => {
                    (Some(innermost(parameter)), None, None)
                }
                _ => continue,
            };
            let Some(name) = name else { continue };
            let method = method && place == 0 && is_own_value(self.text(name));
            let chain = match (kind, value) {
                (Some(kind), _) => self.python_annotation(kind),
                _ if method => "self".to_owned(),
                (None, Some(value)) => match self.python_chain(value) {
                    // The default says little about what callers pass.
                    chain if chain.ends_with("()") => chain,
                    _ => "?".to_owned(),
                },
                (None, None) => "?".to_owned(),
            };
            if method {
                self.selves[inner] = Some(self.text(name).to_owned());
            }
            let (text, start) = (self.text(name), name.start_byte());
            self.bind_name(inner, outer, text, start, BindingKind::Parameter, chain);
            for part in [kind, value].into_iter().flatten() {
                self.python(part, outer);
            }
        }
    }

    /// Binds what is assigned to.
    fn python_target(
        &mut self,
        target: Node<'_>,
        value: Option<Node<'_>>,
        chain: &str,
        scope: usize,
    ) {
        match target.kind() {
            "identifier" => {
                let members = self.found.scopes[scope].kind == ScopeKind::Members;
                let kind = if members {
                    BindingKind::Field
                } else {
                    BindingKind::Variable
                };
                self.bind(scope, target, kind, chain.to_owned());
            }
            "attribute" => {
                let (Some(object), Some(name)) = fields(target, "object", "attribute") else {
                    return;
                };
                let object = self.text(object);
                let function = self.method_of(scope, object);
                if let Some(members) = function.and_then(|at| self.members_around(at)) {
                    let (text, start) = (self.text(name), name.start_byte());
                    let chain = chain.to_owned();
                    self.bind_name(members, scope, text, start, BindingKind::Field, chain);
                }
            }
            "pattern_list" | "tuple_pattern" | "list_pattern" | "tuple" | "list"
            | "expression_list" => {
                let values = value
                    .filter(|value| matches!(value.kind(), "expression_list" | "tuple" | "list"))
                    .map(children)
                    .unwrap_or_default();
                let targets = children(target);
                let pairs = targets.len() == values.len();
                for (place, target) in targets.into_iter().enumerate() {
                    let value = values.get(place).copied().filter(|_| pairs);
                    let chain = match value {
                        Some(value) => self.python_chain(value),
                        // A loop has taken the element already; an unpacked one is unknown.
                        None => "?".to_owned(),
                    };
                    self.nested(|builder| builder.python_target(target, value, &chain, scope));
                }
            }
            "list_splat_pattern" | "parenthesized_expression" | "as_pattern_target" => {
                for inner in children(target) {
                    self.nested(|builder| builder.python_target(inner, None, chain, scope));
                }
            }
            _ => {}
        }
    }

    /// The method around a scope whose own value has that name.
    fn method_of(&self, mut scope: usize, name: &str) -> Option<usize> {
        loop {
            if self.selves.get(scope)?.as_deref() == Some(name) {
                return Some(scope);
            }
            let parent = self.found.scopes[scope].parent;
            if parent == scope {
                return None;
            }
            scope = parent;
        }
    }

    /// `isinstance(x, Pool)`: the name may be a `Pool` from there on.
    fn narrow(&mut self, call: Node<'_>, scope: usize) {
        let (Some(function), Some(arguments)) = fields(call, "function", "arguments") else {
            return;
        };
        if self.text(function) != "isinstance" || self.function_around(scope).is_none() {
            return;
        }
        if let [value, kind] = children(arguments).as_slice()
            && value.kind() == "identifier"
        {
            let chain = self.python_annotation(*kind);
            self.bind(scope, *value, BindingKind::Variable, chain);
        }
    }

    fn python_import(&mut self, node: Node<'_>, scope: usize) {
        for part in children(node) {
            match part.kind() {
                "dotted_name" => {
                    // `import a.b` binds `a`, and makes `a.b` known.
                    let Some(first) = part.named_child(0) else {
                        continue;
                    };
                    let module = self.text(first);
                    self.bind(scope, first, BindingKind::Import, format!("{module}|"));
                }
                "aliased_import" => {
                    if let (Some(name), Some(alias)) = fields(part, "name", "alias") {
                        let module = self.text(name);
                        self.bind(scope, alias, BindingKind::Import, format!("{module}|"));
                    }
                }
                _ => {}
            }
        }
    }

    fn python_import_from(&mut self, node: Node<'_>, scope: usize) {
        let Some(module) = node.child_by_field_name("module_name") else {
            return;
        };
        let path: String = self.text(module).split_whitespace().collect();
        for part in children(node) {
            if part == module {
                continue;
            }
            let (name, alias) = match part.kind() {
                "dotted_name" => (part, part),
                "aliased_import" => match fields(part, "name", "alias") {
                    (Some(name), Some(alias)) => (name, alias),
                    _ => continue,
                },
                "wildcard_import" => {
                    let start = part.start_byte();
                    let chain = path.clone();
                    self.bind_name(scope, scope, "*", start, BindingKind::ImportAll, chain);
                    continue;
                }
                _ => continue,
            };
            let chain = format!("{path}|{}", self.text(name));
            let (alias, start) = (self.text(alias), name.start_byte());
            self.bind_name(scope, scope, alias, start, BindingKind::Import, chain);
        }
    }

    fn python_chain(&self, node: Node<'_>) -> String {
        self.nested_chain(|| self.python_chain_of(node))
    }

    fn python_chain_of(&self, node: Node<'_>) -> String {
        match node.kind() {
            "identifier" => self.text(node).to_owned(),
            "attribute" => match fields(node, "object", "attribute") {
                (Some(object), Some(name)) => self.python_chain(object) + "." + self.text(name),
                _ => "?".to_owned(),
            },
            "call" => {
                let Some(function) = node.child_by_field_name("function") else {
                    return "?".to_owned();
                };
                match self.text(function) {
                    "super" => "super".to_owned(),
                    "cast" | "t.cast" | "typing.cast" => node
                        .child_by_field_name("arguments")
                        .and_then(|arguments| arguments.named_child(0))
                        .map_or("?".to_owned(), |kind| self.python_annotation(kind)),
                    "len" | "str" | "int" | "repr" | "bool" => "#".to_owned(),
                    "list" | "tuple" | "sorted" | "reversed" | "iter" | "next" | "set"
                    | "enumerate" => node
                        .child_by_field_name("arguments")
                        .and_then(|arguments| arguments.named_child(0))
                        .map_or("[".to_owned(), |value| self.python_chain(value)),
                    _ => self.python_chain(function) + "()",
                }
            }
            "subscript" => {
                let value = node.child_by_field_name("value");
                value.map_or("?".to_owned(), |value| self.python_chain(value) + "[]")
            }
            "await" => {
                let inner = node.named_child(0);
                inner.map_or("?".to_owned(), |inner| self.python_chain(inner) + "^")
            }
            "parenthesized_expression" | "expression_list" | "list" | "tuple" | "set" => {
                let inner: Vec<Node<'_>> = children(node);
                if inner.is_empty() {
                    return "[".to_owned();
                }
                either(
                    inner
                        .into_iter()
                        .filter(|child| child.kind() != "comment")
                        .take(4)
                        .map(|child| self.python_chain(child))
                        .collect(),
                )
            }
            "list_comprehension" | "set_comprehension" | "generator_expression" => node
                .child_by_field_name("body")
                .map_or("?".to_owned(), |body| self.python_chain(body)),
            "dictionary" => either(
                children(node)
                    .into_iter()
                    .take(4)
                    .filter_map(|pair| pair.child_by_field_name("value"))
                    .map(|value| self.python_chain(value))
                    .chain(std::iter::once("[".to_owned()))
                    .collect(),
            ),
            "conditional_expression" => {
                let parts = children(node);
                let ends = [parts.first(), parts.get(2)];
                either(
                    ends.into_iter()
                        .flatten()
                        .map(|part| self.python_chain(*part))
                        .collect(),
                )
            }
            "boolean_operator" => {
                let (left, right) = fields(node, "left", "right");
                let both = [left, right].into_iter().flatten();
                either(both.map(|part| self.python_chain(part)).collect())
            }
            "named_expression" => node
                .child_by_field_name("value")
                .map_or("?".to_owned(), |value| self.python_chain(value)),
            "string" | "concatenated_string" => "\"".to_owned(),
            "integer"
            | "float"
            | "true"
            | "false"
            | "none"
            | "comparison_operator"
            | "not_operator" => "#".to_owned(),
            _ => "?".to_owned(),
        }
    }

    /// The names in an annotation, also in one that is written as a string.
    fn python_annotation(&self, node: Node<'_>) -> String {
        let mut names = Vec::new();
        let mut depth = 0_usize;
        let mut name = String::new();
        for c in self.text(node).chars().chain([' ']) {
            if c.is_alphanumeric() || c == '_' || c == '.' {
                name.push(c);
                continue;
            }
            let found = std::mem::take(&mut name);
            let found = found.trim_matches('.');
            let first = found.chars().next();
            if found != "None" && first.is_some_and(|c| c.is_alphabetic() || c == '_') {
                names.push(if depth > 0 {
                    format!("~{found}")
                } else {
                    found.to_owned()
                });
            }
            match c {
                '[' => depth += 1,
                ']' => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        annotated(&names)
    }
}

fn fields<'t>(node: Node<'t>, a: &str, b: &str) -> (Option<Node<'t>>, Option<Node<'t>>) {
    (node.child_by_field_name(a), node.child_by_field_name(b))
}

/// Whether a first parameter is the object or its class; a static method has none.
fn is_own_value(name: &str) -> bool {
    matches!(
        name.trim_matches('_'),
        "self" | "cls" | "mcs" | "klass" | "metacls"
    )
}

/// The name inside of `*args`.
fn innermost(node: Node<'_>) -> Node<'_> {
    match node.kind() {
        "list_splat_pattern" | "dictionary_splat_pattern" => node.named_child(0).unwrap_or(node),
        _ => node,
    }
}
