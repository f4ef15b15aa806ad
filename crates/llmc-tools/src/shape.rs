//! What a program gets of a tool, in words: read from the schema of the tool's output, so that the two cannot differ.
//!
//! `{entries: [{path, type, size_bytes?}], total_entries}`: a `?` marks a field that is not always there. Further words
//! come from the schema key [`HELP`], which neither arguments nor outputs send to a model unasked.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

/// The schema key for words that only `tools.help` and the stub file carry.
pub(crate) const HELP: &str = "x-help";

/// The shape of an output.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    /// The Python type of what a script gets.
    pub(crate) python_type: String,
    /// What is in it.
    pub(crate) fields: String,
}

impl Shape {
    /// The shape of what `T` serializes to.
    pub(crate) fn of<T: JsonSchema>() -> Shape {
        let mut settings = SchemaSettings::draft2020_12().for_serialize();
        settings.inline_subschemas = true;
        settings.meta_schema = None;
        let schema = settings.into_generator().into_root_schema_for::<T>();
        let schema = schema.as_value();
        let help = schema.get(HELP).and_then(Value::as_str);
        let fields = match (described(schema), help) {
            (Some(fields), Some(help)) => format!("{fields}; {help}"),
            (Some(fields), None) => fields,
            (None, help) => help.unwrap_or_default().to_owned(),
        };
        Shape {
            python_type: crate::stubs::python_type(schema),
            fields,
        }
    }
}

/// What a schema says beyond its type.
fn described(schema: &Value) -> Option<String> {
    if let Some(Value::Array(any)) = schema.get("anyOf").or_else(|| schema.get("oneOf")) {
        let shapes: Vec<String> = any.iter().filter_map(described).collect();
        return (!shapes.is_empty()).then(|| shapes.join("|"));
    }
    if let Some(Value::Array(values)) = schema.get("enum") {
        let values: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
        return Some(values.join("|"));
    }
    if let Some(Value::String(only)) = schema.get("const") {
        return Some(only.clone());
    }
    if let Some(Value::Object(properties)) = schema.get("properties") {
        return Some(object(schema, properties));
    }
    let items = schema.get("items")?;
    Some(format!("[{}]", described(items)?))
}

fn object(schema: &Value, properties: &Map<String, Value>) -> String {
    let required = schema.get("required").and_then(Value::as_array);
    let is_required =
        |name: &str| required.is_some_and(|list| list.iter().any(|entry| entry == name));
    let fields: Vec<String> = properties
        .iter()
        .map(|(name, schema)| {
            let mark = if is_required(name) { "" } else { "?" };
            let inner = described(schema).map_or_else(String::new, |inner| format!(": {inner}"));
            let help = match schema.get(HELP) {
                Some(Value::String(help)) => format!(" ({help})"),
                _ => String::new(),
            };
            format!("{name}{mark}{inner}{help}")
        })
        .collect();
    format!("{{{}}}", fields.join(", "))
}

/// Declares an output that a program gets as the text of a Tool Envelope.
macro_rules! te_output {
    ($output:ty) => {
        $crate::shape::te_output!(
            $output,
            "text; where something was cut or nothing found, below a header line of JSON with the totals"
        );
    };
    ($output:ty, $help:literal) => {
        impl schemars::JsonSchema for $output {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($output).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({"type": "string", "x-help": $help})
            }
        }
    };
}
pub(crate) use te_output;

#[cfg(test)]
mod tests {
    use serde::Serialize;

    use super::*;

    #[derive(Serialize, JsonSchema)]
    #[schemars(extend("x-help" = "9 at most"))]
    #[allow(dead_code, reason = "only its schema is looked at")]
    struct Output {
        hits: Vec<Hit>,
        #[schemars(extend("enum" = ["file", "dir"]))]
        kind: &'static str,
        handle: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        note: Option<String>,
        #[serde(skip)]
        root: u8,
    }

    #[derive(Serialize, JsonSchema)]
    #[allow(dead_code, reason = "only its schema is looked at")]
    struct Hit {
        path: String,
        /// For people.
        #[schemars(extend("x-help" = "from 1"))]
        line: u64,
    }

    #[test]
    fn a_shape_names_every_field_and_nothing_else() {
        let shape = Shape::of::<Output>();
        assert_eq!(shape.python_type, "dict[str, Any]");
        assert_eq!(
            shape.fields,
            "{hits: [{path, line (from 1)}], kind: file|dir, handle, note?}; 9 at most"
        );
        assert_eq!(Shape::of::<Vec<String>>().python_type, "list[str]");
    }
}
