//! A tool of an upstream as a definition like the catalogue's.
//!
//! Definitions live as long as the process, like the catalogue: an application reads its upstreams' tools once.

use std::collections::HashMap;

use llmc_config::UpstreamConfig;
use llmc_gateway::{PinnedTools, ToolPin, listed_name};
use serde_json::{Map, Value, json};

use super::run;
use crate::error::{ErrorKind, Family};
use crate::schema::{Lean, strip};
use crate::shape::{HELP, Shape};
use crate::tool::{Effect, LeanSource, PinnedLean, ToolDef};

/// The house limits on what a list sends for a tool.
const MAX_DESCRIPTION_WORDS: usize = 15;
const MAX_PARAMETER_WORDS: usize = 5;
/// Characters of a word that is none.
const MAX_WORD_CHARS: usize = 40;
/// Bytes of definitions that are put where a schema refers to them; beyond that only their type is.
const MAX_INLINED_BYTES: usize = 64 << 10;

const ERRORS: &[ErrorKind] = &[
    ErrorKind::ProviderFailed,
    ErrorKind::CommandDenied,
    ErrorKind::TooLarge,
];

/// Which tool of which upstream a definition stands for.
#[derive(Debug)]
pub(crate) struct UpstreamTool {
    pub(crate) upstream: String,
    /// What a call asks the server for.
    pub(crate) function: UpstreamFunction,
    /// `NAME.tool`: what rights and records call it.
    pub(crate) full_name: String,
    /// All that the server says about it; nothing about what this program adds.
    pub(crate) description: String,
}

impl UpstreamTool {
    /// Whether it is a tool of the server, and not a way to its resources or prompts.
    pub(super) fn is_tool(&self) -> bool {
        matches!(self.function, UpstreamFunction::Tool { .. })
    }
}

/// What a call asks the server for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum UpstreamFunction {
    Tool {
        /// As the server calls it.
        name: String,
        /// Of the tool as this definition was made of it.
        hash: String,
    },
    Resources,
    ReadResource,
    Prompts,
    GetPrompt,
}

impl UpstreamFunction {
    /// What a server offers beside tools.
    pub(super) fn of_server(pins: &PinnedTools) -> Vec<UpstreamFunction> {
        let mut functions = Vec::new();
        if pins.has_resources {
            functions.extend([UpstreamFunction::Resources, UpstreamFunction::ReadResource]);
        }
        if pins.has_prompts {
            functions.extend([UpstreamFunction::Prompts, UpstreamFunction::GetPrompt]);
        }
        functions
    }

    /// The name it has unless a tool of the server has it; also what the operator's list of tools calls it.
    pub(super) fn name(&self) -> &str {
        match self {
            UpstreamFunction::Tool { name, .. } => name,
            UpstreamFunction::Resources => "resources",
            UpstreamFunction::ReadResource => "read_resource",
            UpstreamFunction::Prompts => "prompts",
            UpstreamFunction::GetPrompt => "get_prompt",
        }
    }

    /// What is looked for by words, read in help and called: words, schema, what comes back.
    fn lean(&self) -> Lean {
        let (description, properties, required, fields) = match self {
            UpstreamFunction::Tool { .. } => ("", json!({}), json!([]), ANY_DATA),
            UpstreamFunction::Resources => (
                "Lists the server's resources and templates for their addresses.",
                json!({}),
                json!([]),
                "[{uri or uriTemplate, name, title, description, mimeType, size}]",
            ),
            UpstreamFunction::ReadResource => (
                "Reads a resource of the server.",
                json!({"uri": {"type": "string", "description": "As resources() lists it"}}),
                json!(["uri"]),
                "text, or data where it is JSON; bytes in {text, data, images, blobs}",
            ),
            UpstreamFunction::Prompts => (
                "Lists the server's prompts and their arguments.",
                json!({}),
                json!([]),
                "[{name, title, description, arguments: [{name, description, required}]}]",
            ),
            UpstreamFunction::GetPrompt => (
                "Fills in a prompt of the server.",
                json!({
                    "name": {"type": "string", "description": "As prompts() lists it"},
                    "arguments": {"type": "object", "description": "Values by name"},
                }),
                json!(["name"]),
                "{description, messages: [{role, text}]}",
            ),
        };
        let schema = json!({"type": "object", "properties": properties, "required": required});
        let schema = schema.as_object().cloned().unwrap_or_default();
        Lean {
            description: description.to_owned(),
            arguments: explained(&schema),
            schema,
            shape: Shape {
                python_type: "Any".to_owned(),
                fields: fields.to_owned(),
            },
        }
    }
}

/// What a tool of an upstream returns.
const ANY_DATA: &str = "the server's data: a dict or list where it sends JSON, else text";

/// The definition of a tool that scripts, REST and the command line use.
pub(super) fn define(config: &UpstreamConfig, pin: ToolPin, function: &str) -> &'static ToolDef {
    let own_name = format!("{}.{}", config.name, pin.name);
    let origin = origin(
        config,
        function,
        UpstreamFunction::Tool {
            name: pin.name.clone(),
            hash: pin.hash.clone(),
        },
        pin.description.clone(),
    );
    let aliases: &'static [&'static str] = match own_name == origin.full_name {
        true => &[],
        false => Box::leak(Box::new([leak(own_name)])),
    };
    leak_tool(ToolDef {
        aliases,
        effect: match pin.is_read_only() {
            true => Effect::UpstreamReads,
            false => Effect::UpstreamRuns,
        },
        destructive: pin.is_destructive(),
        idempotent: pin.annotations.get("idempotentHint") == Some(&Value::Bool(true)),
        ..defined(
            origin,
            Box::new(move || Lean {
                description: first_words(&pin.description, MAX_DESCRIPTION_WORDS),
                schema: short_schema(&pin.input_schema),
                arguments: explained(&pin.input_schema),
                shape: Shape {
                    python_type: "Any".to_owned(),
                    fields: ANY_DATA.to_owned(),
                },
            }),
        )
    })
}

/// The definition of what a server offers beside tools. Reading is all that the protocol lets it do.
pub(super) fn define_function(
    config: &UpstreamConfig,
    of_server: UpstreamFunction,
    function: &str,
) -> &'static ToolDef {
    let lean = of_server.clone();
    let origin = origin(config, function, of_server, String::new());
    leak_tool(ToolDef {
        keywords: "mcp server resource prompt",
        ..defined(origin, Box::new(move || lean.lean()))
    })
}

fn origin(
    config: &UpstreamConfig,
    function: &str,
    asks_for: UpstreamFunction,
    description: String,
) -> &'static UpstreamTool {
    Box::leak(Box::new(UpstreamTool {
        upstream: config.name.clone(),
        function: asks_for,
        full_name: format!("{}.{function}", config.name),
        description,
    }))
}

/// A definition that only looks; its words are made when they are asked for.
fn defined(origin: &'static UpstreamTool, lean: Box<dyn FnOnce() -> Lean + Send>) -> ToolDef {
    ToolDef {
        name: &origin.full_name,
        aliases: &[],
        effect: Effect::UpstreamReads,
        family: Family::Linux,
        destructive: false,
        idempotent: true,
        retrieves: false,
        errors: ERRORS,
        keywords: &origin.description,
        lean: LeanSource::Pinned(Box::leak(Box::new(PinnedLean::new(lean)))),
        run: run::run,
        time_limit: run::time_limit,
        origin: Some(origin),
    }
}

/// The same under a name that MCP clients accept and no other tool has.
pub(super) fn promote(tool: &'static ToolDef, is_taken: impl Fn(&str) -> bool) -> &'static ToolDef {
    let (upstream, function) = tool.name.split_once('.').unwrap_or(("", tool.name));
    let mut name = listed_name(upstream, function);
    let mut number = 2;
    while is_taken(&name) {
        let end = format!("_{number}");
        let mut shorter = listed_name(upstream, function);
        shorter.truncate(64 - end.len());
        name = shorter + &end;
        number += 1;
    }
    Box::leak(Box::new(ToolDef {
        name: leak(name),
        aliases: &[],
        lean: match &tool.lean {
            LeanSource::Made(make) => LeanSource::Made(*make),
            LeanSource::Pinned(lean) => LeanSource::Pinned(lean),
        },
        ..*tool
    }))
}

/// The arguments with what the server says about each as help.
fn explained(schema: &Map<String, Value>) -> Map<String, Value> {
    let properties = schema.get("properties").and_then(Value::as_object);
    let mut arguments = properties.cloned().unwrap_or_default();
    for argument in arguments.values_mut().filter_map(Value::as_object_mut) {
        if let Some(help) = argument.get("description").cloned() {
            argument.insert(HELP.to_owned(), help);
        }
    }
    arguments
}

/// The schema without what a model need not read, each argument in a few words.
fn short_schema(schema: &Map<String, Value>) -> Map<String, Value> {
    let mut schema = Value::Object(schema.clone());
    inline_definitions(&mut schema);
    strip(&mut schema);
    let Value::Object(mut schema) = schema else {
        return Map::new();
    };
    for noise in [
        "description",
        "$defs",
        "definitions",
        "oneOf",
        "allOf",
        "$id",
    ] {
        schema.shift_remove(noise);
    }
    schema.insert("type".to_owned(), "object".into());
    let properties = schema
        .entry("properties")
        .or_insert_with(|| Value::Object(Map::new()));
    for property in properties.as_object_mut().into_iter().flatten() {
        if let Some(Value::String(words)) = property.1.get_mut("description") {
            *words = first_words(words, MAX_PARAMETER_WORDS);
        }
    }
    schema
}

/// Puts local definitions where they are referred to, as far as they are not nested.
fn inline_definitions(schema: &mut Value) {
    let definitions: HashMap<String, (Value, usize)> = ["$defs", "definitions"]
        .iter()
        .filter_map(|key| schema.get(*key)?.as_object())
        .flatten()
        .map(|(name, definition)| {
            let bytes = definition.to_string().len();
            (name.clone(), (definition.clone(), bytes))
        })
        .collect();
    if definitions.is_empty() {
        return;
    }
    let mut left = MAX_INLINED_BYTES;
    let mut replace = |value: &mut Value| {
        let Some(name) = value.get("$ref").and_then(Value::as_str) else {
            return;
        };
        let name = name.rsplit('/').next().unwrap_or_default();
        let Some((definition, bytes)) = definitions.get(name) else {
            return;
        };
        *value = match left.checked_sub(*bytes) {
            Some(less) => {
                left = less;
                definition.clone()
            }
            None => {
                let kind = definition.get("type").filter(|kind| kind.is_string());
                let kind = kind.map(|kind| ("type".to_owned(), kind.clone()));
                Value::Object(kind.into_iter().collect())
            }
        };
    };
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    for property in properties.into_iter().flatten().map(|(_, value)| value) {
        replace(property);
        if let Some(items) = property.get_mut("items") {
            replace(items);
        }
    }
}

/// The first sentence, at most so many words; a `…` says that there is more.
fn first_words(text: &str, max_words: usize) -> String {
    let sentence = text.split("\n\n").next().unwrap_or(text).trim();
    let sentence = match sentence.find(". ") {
        Some(end) => &sentence[..=end],
        None => sentence,
    };
    let mut words: Vec<String> = Vec::new();
    for word in sentence.split_whitespace() {
        if words.len() == max_words {
            words.push("…".to_owned());
            break;
        }
        words.push(
            word.chars()
                .filter(|c| !c.is_control())
                .take(MAX_WORD_CHARS)
                .collect(),
        );
    }
    words.join(" ")
}

fn leak_tool(tool: ToolDef) -> &'static ToolDef {
    Box::leak(Box::new(tool))
}

fn leak(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn a_schema_is_cut_to_what_a_model_needs() {
        let long = json!({
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "object",
            "title": "Args",
            "additionalProperties": false,
            "$defs": {"Color": {"type": "string", "enum": ["red", "blue"], "title": "Color"}},
            "properties": {
                "color": {"$ref": "#/$defs/Color"},
                "count": {"type": "integer", "default": 3, "description": "How many of them there are to be, at most"},
                "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": null},
            },
            "required": ["color"],
        });
        let short = short_schema(&schema(long));
        assert_eq!(
            Value::Object(short).to_string(),
            r#"{"type":"object","properties":{"color":{"type":"string","enum":["red","blue"]},"count":{"type":"integer","description":"How many of them there …"},"note":{"type":"string"}},"required":["color"]}"#
        );
        assert_eq!(
            Value::Object(short_schema(&Map::new())).to_string(),
            r#"{"type":"object","properties":{}}"#
        );
    }

    #[test]
    fn a_schema_that_refers_to_a_large_definition_often_stays_small() {
        let large: Map<String, Value> = (0..2_000)
            .map(|n| (format!("p{n}"), json!({"type": "string"})))
            .collect();
        let properties: Map<String, Value> = (0..3_000)
            .map(|n| (format!("a{n}"), json!({"$ref": "#/$defs/L"})))
            .collect();
        let short = short_schema(&schema(json!({
            "type": "object",
            "$defs": {"L": {"type": "object", "properties": large}},
            "properties": properties,
        })));
        assert_eq!(short["properties"]["a2999"], json!({"type": "object"}));
        assert!(short["properties"]["a0"]["properties"].is_object());
        let bytes = Value::Object(short).to_string().len();
        assert!(bytes < 3_000 * 40 + MAX_INLINED_BYTES, "{bytes}");
    }

    #[test]
    fn a_description_is_its_first_sentence() {
        assert_eq!(first_words("Adds a file. Then more.", 15), "Adds a file.");
        assert_eq!(first_words("One two three", 2), "One two …");
        let endless = first_words(&"x".repeat(1 << 20), 15);
        assert_eq!(endless.len(), MAX_WORD_CHARS);
        assert_eq!(first_words("a\u{7}b\n\nc", 15), "ab");
    }
}
