//! Input schemas as a model should see them: nothing it does not need.
//!
//! schemars writes for validators: formats, titles, null unions, defaults of null. A model pays for each of those in
//! every conversation, so one pass takes them out. Bounds are checked when the call comes, not listed.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use crate::shape::{HELP, Shape};

/// The schema key of an argument that is taken from everybody and sent to no model unasked: its list has room for few.
pub(crate) const UNLISTED: &str = "x-unlisted";

/// What is written once for each tool: its words, its arguments, and what it returns.
#[derive(Debug, Clone)]
pub(crate) struct Lean {
    /// First paragraph of the argument type's documentation.
    pub description: String,
    /// The input schema.
    pub schema: Map<String, Value>,
    /// The same arguments with defaults, bounds and help, for those who ask.
    pub arguments: Map<String, Value>,
    /// What a program gets.
    pub shape: Shape,
}

/// Writes the lean schema of an argument type, and the shape of an output.
pub(crate) fn lean<T: JsonSchema, O: JsonSchema>() -> Lean {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let mut schema = settings
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value();
    let arguments = match schema.get("properties") {
        Some(Value::Object(properties)) => properties.clone(),
        _ => Map::new(),
    };
    strip(&mut schema);
    let mut schema = match schema {
        Value::Object(map) => map,
        _ => Map::new(),
    };
    let description = match schema.shift_remove("description") {
        Some(Value::String(text)) => first_paragraph(&text),
        _ => String::new(),
    };
    schema
        .entry("properties")
        .or_insert_with(|| Value::Object(Map::new()));
    Lean {
        description,
        schema,
        arguments,
        shape: Shape::of::<O>(),
    }
}

fn first_paragraph(text: &str) -> String {
    let paragraph = text.split("\n\n").next().unwrap_or(text);
    paragraph.split_whitespace().collect::<Vec<_>>().join(" ")
}

pub(crate) fn strip(value: &mut Value) {
    let Value::Object(map) = value else { return };
    for noise in [
        "$schema",
        "title",
        "format",
        "additionalProperties",
        "default",
        "minimum",
        "maximum",
        HELP,
        UNLISTED,
    ] {
        map.shift_remove(noise);
    }
    if let Some(Value::Array(types)) = map.get_mut("type") {
        types.retain(|kind| kind != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            map.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(values)) = map.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    // `Option<Enum>` comes as anyOf [enum, null]: the enum is what matters.
    if let Some(Value::Array(any)) = map.shift_remove("anyOf") {
        let mut rest = any
            .into_iter()
            .filter(|one| one.get("type").is_none_or(|kind| kind != "null"));
        if let (Some(Value::Object(only)), None) = (rest.next(), rest.next()) {
            for (key, value) in only {
                map.entry(key).or_insert(value);
            }
        }
        strip(value);
        return;
    }
    for (key, child) in map.iter_mut() {
        match (key.as_str(), child) {
            ("properties", Value::Object(properties)) => properties.values_mut().for_each(strip),
            ("items", child) => strip(child),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Does a thing.
    ///
    /// For people only.
    #[derive(JsonSchema)]
    #[allow(dead_code, reason = "only its schema is looked at")]
    struct Args {
        /// Where to
        path: String,
        depth: Option<u32>,
        mode: Option<Mode>,
        list: Option<Vec<String>>,
    }

    #[derive(JsonSchema)]
    #[serde(rename_all = "snake_case")]
    #[allow(dead_code, reason = "only its schema is looked at")]
    enum Mode {
        Rewrite,
        Append,
    }

    #[test]
    fn only_what_a_model_needs_is_left() {
        let lean = lean::<Args, ()>();
        assert_eq!(lean.description, "Does a thing.");
        assert_eq!(
            Value::Object(lean.schema).to_string(),
            r#"{"type":"object","properties":{"path":{"type":"string","description":"Where to"},"depth":{"type":"integer"},"mode":{"type":"string","enum":["rewrite","append"]},"list":{"type":"array","items":{"type":"string"}}},"required":["path"]}"#
        );
    }
}
