//! Arguments that a server wants repeated in headers, for the machines between it and its clients.
//!
//! Since revision 2026-07-28 a tool may mark arguments with `x-mcp-header`; a client then sends their values as
//! `Mcp-Param-NAME`, too, and does not offer a tool whose marks break the rules.

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

/// The mark on an argument's schema.
const MARK: &str = "x-mcp-header";
/// Levels of a schema that are looked at; one that is deeper has no marks worth sending.
const MAX_SCHEMA_DEPTH: usize = 32;

/// A value as a header carries it: as it is, or in base64 if a header cannot.
pub(crate) fn header_value(text: &str) -> String {
    let is_plain = text.bytes().all(|byte| matches!(byte, 0x20..=0x7e));
    let looks_encoded = text.starts_with("=?base64?") && text.ends_with("?=");
    match is_plain && text.trim() == text && !looks_encoded {
        true => text.to_owned(),
        false => format!("=?base64?{}?=", STANDARD.encode(text)),
    }
}

/// The headers that repeat the marked arguments of a call; none for a schema whose marks break the rules.
pub(crate) fn param_headers(
    schema: &Map<String, Value>,
    args: &Map<String, Value>,
) -> Vec<(String, String)> {
    let mut headers = Vec::new();
    for mark in marks(schema).unwrap_or_default() {
        let mut path = mark.path.iter();
        let first = path.next().and_then(|name| args.get(name));
        let value = first.and_then(|first| path.try_fold(first, |value, name| value.get(name)));
        let text = match value {
            Some(Value::String(text)) => text.clone(),
            Some(value @ (Value::Bool(_) | Value::Number(_))) => value.to_string(),
            _ => continue,
        };
        headers.push((format!("mcp-param-{}", mark.header), header_value(&text)));
    }
    headers
}

/// Whether the marks of a tool keep the rules.
pub(crate) fn has_valid_marks(schema: &Map<String, Value>) -> bool {
    marks(schema).is_some()
}

/// A marked argument.
struct Mark {
    /// From the arguments of the call on.
    path: Vec<String>,
    /// In lower case.
    header: String,
}

/// The marks of a schema; `None` if one of them breaks the rules.
fn marks(schema: &Map<String, Value>) -> Option<Vec<Mark>> {
    let mut found = Vec::new();
    collect(schema, &mut Vec::new(), &mut found)?;
    let names: BTreeSet<&str> = found.iter().map(|mark| mark.header.as_str()).collect();
    (names.len() == found.len()).then_some(found)
}

fn collect(
    schema: &Map<String, Value>,
    path: &mut Vec<String>,
    found: &mut Vec<Mark>,
) -> Option<()> {
    if path.len() > MAX_SCHEMA_DEPTH {
        return None;
    }
    for (key, value) in schema {
        match (key.as_str(), value) {
            (MARK, value) => {
                let header = value.as_str().filter(|header| is_token(header))?;
                let kind = schema.get("type").and_then(Value::as_str);
                if path.is_empty() || !matches!(kind, Some("string" | "integer" | "boolean")) {
                    return None;
                }
                found.push(Mark {
                    path: path.clone(),
                    header: header.to_ascii_lowercase(),
                });
            }
            ("properties", Value::Object(properties)) => {
                for (name, property) in properties {
                    if let Value::Object(property) = property {
                        path.push(name.clone());
                        collect(property, path, found)?;
                        path.pop();
                    }
                }
            }
            // Which arguments such a mark is about depends on their values.
            (_, value) if has_mark(value, 0) => return None,
            _ => {}
        }
    }
    Some(())
}

fn has_mark(value: &Value, depth: usize) -> bool {
    if depth > MAX_SCHEMA_DEPTH {
        return false;
    }
    match value {
        Value::Object(map) => {
            map.contains_key(MARK) || map.values().any(|value| has_mark(value, depth + 1))
        }
        Value::Array(values) => values.iter().any(|value| has_mark(value, depth + 1)),
        _ => false,
    }
}

/// Whether this may stand in the name of a header.
fn is_token(text: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.len() <= 128 && text.bytes().all(is_token)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn values_that_a_header_cannot_carry_are_encoded() {
        for (text, sent) in [
            ("us-west1", "us-west1"),
            ("us west 1", "us west 1"),
            ("", ""),
            (" padded ", "=?base64?IHBhZGRlZCA=?="),
            ("a\r\nb: c", "=?base64?YQ0KYjogYw==?="),
            ("世", "=?base64?5LiW?="),
            ("=?base64?x?=", "=?base64?PT9iYXNlNjQ/eD89?="),
        ] {
            assert_eq!(header_value(text), sent, "{text:?}");
        }
    }

    #[test]
    fn marked_arguments_are_repeated_in_headers() {
        let schema = map(json!({"type": "object", "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "count": {"type": "integer", "x-mcp-header": "Count"},
            "deep": {"type": "object", "properties": {"on": {"type": "boolean", "x-mcp-header": "On"}}},
            "gone": {"type": "string", "x-mcp-header": "Gone"},
            "plain": {"type": "string"},
        }}));
        let args = map(
            json!({"region": "us", "count": 3, "deep": {"on": true}, "gone": null, "plain": "x"}),
        );
        let headers = param_headers(&schema, &args);
        let expected = [("region", "us"), ("count", "3"), ("on", "true")];
        let expected =
            expected.map(|(name, value)| (format!("mcp-param-{name}"), value.to_owned()));
        assert_eq!(headers, expected);
    }

    #[test]
    fn marks_that_break_the_rules_are_found() {
        let of = |properties: Value| {
            has_valid_marks(&map(json!({"type": "object", "properties": properties})))
        };
        assert!(of(json!({})));
        assert!(of(json!({"a": {"type": "string", "x-mcp-header": "A-1"}})));
        for bad in ["", "a b", "a:b", "Région", "a\tb"] {
            assert!(
                !of(json!({"a": {"type": "string", "x-mcp-header": bad}})),
                "{bad:?}"
            );
        }
        for kind in ["object", "array", "null", "number"] {
            assert!(
                !of(json!({"a": {"type": kind, "x-mcp-header": "A"}})),
                "{kind}"
            );
        }
        let twice = json!({"a": {"type": "string", "x-mcp-header": "A"}, "b": {"type": "string", "x-mcp-header": "a"}});
        assert!(!of(twice));
        let in_items =
            json!({"a": {"type": "array", "items": {"type": "string", "x-mcp-header": "A"}}});
        assert!(!of(in_items));
        assert!(!has_valid_marks(&map(
            json!({"x-mcp-header": "A", "type": "string"})
        )));
    }
}
