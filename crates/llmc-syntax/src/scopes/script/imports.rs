//! Imports and exports of JavaScript and TypeScript.

use tree_sitter::Node;

use crate::scopes::{BindingKind, ScopeBuilder, children};

impl<'s> ScopeBuilder<'s> {
    pub(super) fn script_import(&mut self, node: Node<'_>, scope: usize) {
        let Some(module) = self.script_source(node) else {
            return;
        };
        for clause in children(node) {
            if clause.kind() != "import_clause" {
                continue;
            }
            for part in children(clause) {
                match part.kind() {
                    "identifier" => {
                        let chain = format!("{module}|default");
                        self.bind(scope, part, BindingKind::Import, chain);
                    }
                    "namespace_import" => {
                        if let Some(name) = part.named_child(0) {
                            self.bind(scope, name, BindingKind::Import, format!("{module}|"));
                        }
                    }
                    "named_imports" => {
                        for one in children(part) {
                            self.script_specifier(one, module, scope, BindingKind::Import);
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    fn script_specifier(&mut self, node: Node<'_>, module: &str, scope: usize, kind: BindingKind) {
        let Some(name) = node.child_by_field_name("name") else {
            return;
        };
        let alias = node.child_by_field_name("alias").unwrap_or(name);
        let chain = format!("{module}|{}", self.text(name));
        let (alias, start) = (self.text(alias), name.start_byte());
        self.bind_name(scope, scope, alias, start, kind, chain);
    }

    pub(super) fn script_export(&mut self, node: Node<'_>, scope: usize) {
        let module = self.script_source(node);
        let default = {
            let mut cursor = node.walk();
            node.children(&mut cursor)
                .any(|child| child.kind() == "default")
        };
        if let Some(module) = module {
            let mut all = true;
            for part in children(node) {
                match part.kind() {
                    "export_clause" => {
                        all = false;
                        for one in children(part) {
                            self.script_specifier(one, module, scope, BindingKind::Export);
                        }
                    }
                    "namespace_export" => {
                        all = false;
                        if let Some(name) = part.named_child(0) {
                            self.bind(scope, name, BindingKind::Import, format!("{module}|"));
                        }
                    }
                    _ => {}
                }
            }
            if all {
                let start = node.start_byte();
                let chain = module.to_owned();
                self.bind_name(scope, scope, "*", start, BindingKind::ImportAll, chain);
            }
            return;
        }
        for part in children(node) {
            if part.kind() == "export_clause" {
                for one in children(part) {
                    // An export under its own name is found as what it is.
                    if one.child_by_field_name("alias").is_some() {
                        self.script_specifier(one, "", scope, BindingKind::Export);
                    }
                }
            } else {
                self.script(part, scope);
            }
        }
        if default {
            let value = node.child_by_field_name("value");
            let declared = node.child_by_field_name("declaration");
            let name = declared
                .and_then(|one| one.child_by_field_name("name"))
                .or(value.filter(|value| value.kind() == "identifier"));
            if let Some(name) = name {
                let chain = format!("|{}", self.text(name));
                // Its own place, since the name may be a use.
                let start = node.start_byte();
                self.bind_name(scope, scope, "default", start, BindingKind::Export, chain);
            }
        }
    }

    fn script_source(&self, node: Node<'_>) -> Option<&'s str> {
        let source = node.child_by_field_name("source")?;
        Some(self.text(source).trim_matches(['"', '\'']))
    }
}

/// The module in `require('./x')`.
pub(super) fn required<'s>(value: Option<Node<'_>>, source: &'s str) -> Option<&'s str> {
    let call = value.filter(|value| value.kind() == "call_expression")?;
    let text = source.get(call.byte_range())?;
    let inner = text.strip_prefix("require(")?.strip_suffix(')')?;
    Some(inner.trim().trim_matches(['"', '\'', '`']))
}
