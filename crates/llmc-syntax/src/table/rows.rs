//! The nodes that define something, by language.

use super::{DefinitionNode, DefinitionScope, NameLocation};
use crate::DefinitionKind::{
    self, Class, Constant, Declaration, Enum, Field, Function, Impl, Interface, Macro, Module,
    Struct, Type, Variable, Variant,
};
use crate::Language;

type TableRows = (&'static [DefinitionNode], &'static [&'static str]);

const fn at(node: &'static str, kind: DefinitionKind, name: NameLocation) -> DefinitionNode {
    DefinitionNode {
        node,
        kind,
        name,
        scope: DefinitionScope::Anywhere,
        kind_by_content: false,
    }
}

const fn not_local(node: &'static str, kind: DefinitionKind, name: NameLocation) -> DefinitionNode {
    DefinitionNode {
        node,
        kind,
        name,
        scope: DefinitionScope::NotLocal,
        kind_by_content: false,
    }
}

const fn by_content(node: DefinitionNode) -> DefinitionNode {
    DefinitionNode {
        kind_by_content: true,
        ..node
    }
}

/// The nodes that define, and those whose inside is local.
pub(super) fn definitions(language: Language) -> TableRows {
    match language {
        Language::Rust => RUST,
        Language::Python => PYTHON,
        Language::JavaScript | Language::TypeScript | Language::Tsx => SCRIPT,
        Language::Go => GO,
        Language::Java => JAVA,
        Language::C | Language::Cpp => C,
        Language::CSharp => CSHARP,
        Language::Ruby => RUBY,
        Language::Php => PHP,
        Language::Bash => BASH,
        Language::Lua => LUA,
        Language::Zig => ZIG,
        Language::Protobuf => PROTOBUF,
        Language::Hcl => HCL,
        Language::Dockerfile => DOCKERFILE,
        Language::Css => CSS,
        Language::Html | Language::Vue | Language::Svelte => HTML,
        Language::Kotlin => KOTLIN,
        Language::Swift => SWIFT,
        Language::Scala => SCALA,
        Language::Elixir => ELIXIR,
        Language::Sql => SQL,
    }
}

/// The nodes that are bodies of definitions, in grammars without a field for them.
pub(super) fn bodies(language: Language) -> &'static [&'static str] {
    match language {
        Language::Kotlin => &["class_body", "enum_class_body", "function_body"],
        Language::Protobuf => &["message_body", "enum_body"],
        Language::Css => &["block", "keyframe_block_list"],
        Language::Hcl => &["body"],
        Language::Elixir => &["do_block"],
        Language::Sql => &["column_definitions", "function_body"],
        _ => &[],
    }
}

const RUST: TableRows = (
    &[
        at("function_item", Function, NameLocation::Field),
        at("function_signature_item", Function, NameLocation::Field),
        at("struct_item", Struct, NameLocation::Field),
        at("union_item", Struct, NameLocation::Field),
        at("enum_item", Enum, NameLocation::Field),
        at("enum_variant", Variant, NameLocation::Field),
        at("field_declaration", Field, NameLocation::Field),
        at("trait_item", Interface, NameLocation::Field),
        at("impl_item", Impl, NameLocation::In("type")),
        at("type_item", Type, NameLocation::Field),
        at("associated_type", Type, NameLocation::Field),
        at("const_item", Constant, NameLocation::Field),
        at("static_item", Variable, NameLocation::Field),
        at("mod_item", Module, NameLocation::BodiedOrDeclared),
        at("macro_definition", Macro, NameLocation::Field),
    ],
    &["block"],
);

const PYTHON: TableRows = (
    &[
        at("function_definition", Function, NameLocation::Field),
        at("class_definition", Class, NameLocation::Field),
        not_local("assignment", Variable, NameLocation::Left),
    ],
    &["function_definition", "lambda"],
);

/// JavaScript and TypeScript: nodes that a grammar does not know never come up.
const SCRIPT: TableRows = (
    &[
        at("function_declaration", Function, NameLocation::Field),
        at(
            "generator_function_declaration",
            Function,
            NameLocation::Field,
        ),
        at("function_signature", Declaration, NameLocation::Field),
        at("method_definition", Function, NameLocation::Field),
        at("method_signature", Function, NameLocation::Field),
        at("abstract_method_signature", Function, NameLocation::Field),
        at("class_declaration", Class, NameLocation::Field),
        at("abstract_class_declaration", Class, NameLocation::Field),
        at("interface_declaration", Interface, NameLocation::Field),
        at("enum_declaration", Enum, NameLocation::Field),
        at("enum_assignment", Variant, NameLocation::Field),
        at("type_alias_declaration", Type, NameLocation::Field),
        at("internal_module", Module, NameLocation::Field),
        at("module", Module, NameLocation::Field),
        at("field_definition", Field, NameLocation::In("property")),
        at("public_field_definition", Field, NameLocation::Field),
        at("property_signature", Field, NameLocation::Field),
        at("variable_declarator", Variable, NameLocation::Assigned),
        at("assignment_expression", Variable, NameLocation::Assigned),
        at("pair", Variable, NameLocation::Assigned),
    ],
    &["statement_block"],
);

const GO: TableRows = (
    &[
        at("function_declaration", Function, NameLocation::Field),
        at("method_declaration", Function, NameLocation::Field),
        at("method_elem", Function, NameLocation::Field),
        at("type_spec", Type, NameLocation::Field),
        at("type_alias", Type, NameLocation::Field),
        at("field_declaration", Field, NameLocation::Field),
        not_local("const_spec", Constant, NameLocation::Field),
        not_local("var_spec", Variable, NameLocation::Field),
    ],
    &["block"],
);

const JAVA: TableRows = (
    &[
        at("class_declaration", Class, NameLocation::Field),
        at("record_declaration", Class, NameLocation::Field),
        at("interface_declaration", Interface, NameLocation::Field),
        at(
            "annotation_type_declaration",
            Interface,
            NameLocation::Field,
        ),
        at("enum_declaration", Enum, NameLocation::Field),
        at("enum_constant", Variant, NameLocation::Field),
        at("method_declaration", Function, NameLocation::Field),
        at("constructor_declaration", Function, NameLocation::Field),
        at(
            "compact_constructor_declaration",
            Function,
            NameLocation::Field,
        ),
        at("field_declaration", Field, NameLocation::Declarator),
        at("constant_declaration", Constant, NameLocation::Declarator),
    ],
    &["block"],
);

/// C and C++.
const C: TableRows = (
    &[
        at("function_definition", Function, NameLocation::Declarator),
        at("struct_specifier", Struct, NameLocation::Bodied),
        at("union_specifier", Struct, NameLocation::Bodied),
        at("class_specifier", Class, NameLocation::Bodied),
        at("enum_specifier", Enum, NameLocation::Bodied),
        at("enumerator", Variant, NameLocation::Field),
        at("type_definition", Type, NameLocation::Declarator),
        at("alias_declaration", Type, NameLocation::Field),
        at("concept_definition", Interface, NameLocation::Field),
        at("namespace_definition", Module, NameLocation::Field),
        at("preproc_def", Macro, NameLocation::Field),
        at("preproc_function_def", Macro, NameLocation::Field),
        at("field_declaration", Field, NameLocation::Declarator),
        not_local("declaration", Variable, NameLocation::Declarator),
    ],
    &["compound_statement"],
);

const CSHARP: TableRows = (
    &[
        at("class_declaration", Class, NameLocation::Field),
        at("record_declaration", Class, NameLocation::Field),
        at("struct_declaration", Struct, NameLocation::Field),
        at("interface_declaration", Interface, NameLocation::Field),
        at("enum_declaration", Enum, NameLocation::Field),
        at("enum_member_declaration", Variant, NameLocation::Field),
        at("delegate_declaration", Type, NameLocation::Field),
        at("method_declaration", Function, NameLocation::Field),
        at("constructor_declaration", Function, NameLocation::Field),
        at("local_function_statement", Function, NameLocation::Field),
        at("property_declaration", Field, NameLocation::Field),
        at("event_declaration", Field, NameLocation::Field),
        at("namespace_declaration", Module, NameLocation::Field),
        at(
            "file_scoped_namespace_declaration",
            Module,
            NameLocation::Field,
        ),
        not_local("variable_declarator", Field, NameLocation::Field),
    ],
    &["block", "arrow_expression_clause"],
);

const RUBY: TableRows = (
    &[
        at("class", Class, NameLocation::Field),
        at("module", Module, NameLocation::Field),
        at("method", Function, NameLocation::Field),
        at("singleton_method", Function, NameLocation::Field),
        not_local("assignment", Constant, NameLocation::Left),
    ],
    &["method", "singleton_method", "block", "do_block"],
);

const PHP: TableRows = (
    &[
        at("class_declaration", Class, NameLocation::Field),
        at("interface_declaration", Interface, NameLocation::Field),
        at("trait_declaration", Class, NameLocation::Field),
        at("enum_declaration", Enum, NameLocation::Field),
        at("enum_case", Variant, NameLocation::Field),
        at("function_definition", Function, NameLocation::Field),
        at("method_declaration", Function, NameLocation::Field),
        at("property_element", Field, NameLocation::FirstChild),
        at("const_element", Constant, NameLocation::FirstChild),
        at("namespace_definition", Module, NameLocation::Field),
    ],
    &["compound_statement"],
);

const BASH: TableRows = (
    &[
        at("function_definition", Function, NameLocation::Field),
        not_local("variable_assignment", Variable, NameLocation::Field),
    ],
    &["compound_statement", "subshell"],
);

const LUA: TableRows = (
    &[
        at("function_declaration", Function, NameLocation::Field),
        at("assignment_statement", Variable, NameLocation::Assigned),
        at("field", Variable, NameLocation::Assigned),
    ],
    &["block"],
);

const ZIG: TableRows = (
    &[
        at("function_declaration", Function, NameLocation::Field),
        by_content(not_local(
            "variable_declaration",
            Constant,
            NameLocation::Child("identifier"),
        )),
        at("container_field", Field, NameLocation::Field),
    ],
    &["block"],
);

const PROTOBUF: TableRows = (
    &[
        at("message", Struct, NameLocation::Child("message_name")),
        at("enum", Enum, NameLocation::Child("enum_name")),
        at("enum_field", Variant, NameLocation::Child("identifier")),
        at("service", Interface, NameLocation::Child("service_name")),
        at("rpc", Function, NameLocation::Child("rpc_name")),
        at("field", Field, NameLocation::Child("identifier")),
        at("map_field", Field, NameLocation::Child("identifier")),
        at("oneof", Field, NameLocation::Child("identifier")),
        at("oneof_field", Field, NameLocation::Child("identifier")),
    ],
    &[],
);

const HCL: TableRows = (
    &[
        by_content(not_local("block", Struct, NameLocation::Label)),
        at("attribute", Variable, NameLocation::LocalValue),
    ],
    &["block"],
);

const DOCKERFILE: TableRows = (
    &[
        at("from_instruction", Module, NameLocation::In("as")),
        at("arg_pair", Variable, NameLocation::Field),
        at("env_pair", Variable, NameLocation::Field),
    ],
    &[],
);

const CSS: TableRows = (
    &[
        at("rule_set", Class, NameLocation::Selector),
        at(
            "keyframes_statement",
            Type,
            NameLocation::Child("keyframes_name"),
        ),
        at("declaration", Variable, NameLocation::CustomProperty),
    ],
    &[],
);

/// Elements that other files can refer to; scripts and styles inside are read with their own grammars.
const HTML: TableRows = (
    &[
        at("element", Variable, NameLocation::Id),
        at("script_element", Variable, NameLocation::Id),
    ],
    &[],
);

const KOTLIN: TableRows = (
    &[
        by_content(at("class_declaration", Class, NameLocation::Field)),
        at("object_declaration", Class, NameLocation::Field),
        at("companion_object", Class, NameLocation::Field),
        at("function_declaration", Function, NameLocation::Field),
        at("enum_entry", Variant, NameLocation::Child("identifier")),
        at("type_alias", Type, NameLocation::In("type")),
        not_local(
            "property_declaration",
            Variable,
            NameLocation::Child("variable_declaration"),
        ),
    ],
    &["function_body", "lambda_literal"],
);

const SWIFT: TableRows = (
    &[
        by_content(at("class_declaration", Class, NameLocation::Field)),
        at("protocol_declaration", Interface, NameLocation::Field),
        at("function_declaration", Function, NameLocation::Field),
        at(
            "protocol_function_declaration",
            Function,
            NameLocation::Field,
        ),
        at("init_declaration", Function, NameLocation::Field),
        at("enum_entry", Variant, NameLocation::Field),
        at("typealias_declaration", Type, NameLocation::Field),
        at("associatedtype_declaration", Type, NameLocation::Field),
        at("protocol_property_declaration", Field, NameLocation::Field),
        not_local("property_declaration", Variable, NameLocation::Field),
    ],
    &["function_body", "computed_property", "lambda_literal"],
);

const SCALA: TableRows = (
    &[
        at("class_definition", Class, NameLocation::Field),
        at("object_definition", Class, NameLocation::Field),
        at("trait_definition", Interface, NameLocation::Field),
        at("enum_definition", Enum, NameLocation::Field),
        at("simple_enum_case", Variant, NameLocation::Field),
        at("full_enum_case", Variant, NameLocation::Field),
        at("function_definition", Function, NameLocation::Field),
        at("function_declaration", Function, NameLocation::Field),
        at("type_definition", Type, NameLocation::Field),
        at("given_definition", Variable, NameLocation::Field),
        at("package_object", Module, NameLocation::Field),
        at("val_declaration", Field, NameLocation::Field),
        at("var_declaration", Field, NameLocation::Field),
        not_local("val_definition", Variable, NameLocation::In("pattern")),
        not_local("var_definition", Variable, NameLocation::In("pattern")),
    ],
    &["block", "indented_block", "case_clause"],
);

const ELIXIR: TableRows = (
    &[by_content(at(
        "call",
        Function,
        NameLocation::ElixirDefinition,
    ))],
    &[],
);

const SQL: TableRows = (
    &[
        at(
            "create_table",
            Struct,
            NameLocation::Child("object_reference"),
        ),
        at("create_view", Type, NameLocation::Child("object_reference")),
        at(
            "create_materialized_view",
            Type,
            NameLocation::Child("object_reference"),
        ),
        at("create_type", Type, NameLocation::Child("object_reference")),
        at(
            "create_function",
            Function,
            NameLocation::Child("object_reference"),
        ),
        at(
            "create_trigger",
            Function,
            NameLocation::Child("object_reference"),
        ),
        at("create_schema", Module, NameLocation::Child("identifier")),
        at("create_index", Variable, NameLocation::Child("identifier")),
        at("column_definition", Field, NameLocation::Field),
    ],
    &[],
);
