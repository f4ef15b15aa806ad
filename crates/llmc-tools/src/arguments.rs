//! Arguments as models write them, turned into what a tool's schema asks for.
//!
//! Models misspell types, not intent: `"5"` for 5, one string for a list of strings, camelCase for snake_case. What has
//! one possible meaning is accepted; everything else is refused with the argument's name as the caller wrote it, what
//! came, and what is wanted.

use serde_json::{Map, Number, Value};

use crate::call::nearest;
use crate::error::{Error, Result};
use crate::tool::ToolDef;

/// Characters of a wrong value that an error repeats.
const MAX_VALUE_CHARS: usize = 40;

/// The arguments under their declared names and with their declared types; optional ones that say nothing are left out.
pub(crate) fn normalise(tool: &ToolDef, given: Map<String, Value>) -> Result<Map<String, Value>> {
    let properties = tool.schema().get("properties").and_then(Value::as_object);
    let no_properties = Map::new();
    let properties = properties.unwrap_or(&no_properties);
    let mut named: Map<String, Value> = Map::new();
    let mut written: Vec<(String, String)> = Vec::new();
    for (name, value) in given {
        let declared = match declared_name(properties, &name).as_str() {
            // A command as a list of words is one without a shell.
            "command" if value.is_array() && properties.contains_key("argv") => "argv".to_owned(),
            other => other.to_owned(),
        };
        if let Some((_, other)) = written.iter().find(|(known, _)| *known == declared) {
            return Err(refused(
                tool,
                format!("{declared} is given twice, as {other} and {name}"),
            ));
        }
        written.push((declared.clone(), name.clone()));
        let Some(schema) = properties.get(&declared) else {
            // Perhaps an alias that the argument type knows.
            named.insert(declared, value);
            continue;
        };
        let required = is_required(tool, &declared);
        let value = match (declared.as_str(), integer(&value)) {
            // A signal has a name and a number.
            ("signal", Some(number)) => number.to_string().into(),
            _ => value,
        };
        if !required && says_nothing(&declared, &value) {
            continue;
        }
        let value = convert(schema, value).map_err(|(value, wanted)| {
            refused(
                tool,
                format!("{name} must be {wanted}, not {}", shown(&value)),
            )
        })?;
        if !required && says_nothing(&declared, &value) {
            continue;
        }
        if let Some(wanted) = exceeded_bound(tool, &declared, &value) {
            return Err(refused(
                tool,
                format!("{name} must be {wanted}, not {value}"),
            ));
        }
        named.insert(declared, value);
    }
    Ok(named)
}

/// What the argument type itself refuses, in the words of the schema. `refusal` says what it refuses of other arguments.
pub(crate) fn misfit(
    tool: &ToolDef,
    given: &Map<String, Value>,
    error: &serde_json::Error,
    refusal: impl Fn(Map<String, Value>) -> Option<String>,
) -> Error {
    let text = error.to_string();
    let quoted = |start: &str| text.strip_prefix(start)?.split('`').next();
    let message = if let Some(name) = quoted("unknown field `") {
        let known = tool.argument_names();
        let meant = nearest(name, known.iter().copied());
        let meant = meant.map_or_else(String::new, |name| format!("; did you mean {name}?"));
        format!("unknown argument {name}{meant}")
    } else if let Some(name) = quoted("missing field `") {
        format!("{name} is missing")
    } else if let Some(name) = quoted("duplicate field `") {
        format!("{name} is given twice")
    } else {
        // The type does not say which argument it means: it is the one without which it no longer complains.
        let is_refused = |name: &&String| {
            let mut others = given.clone();
            others.shift_remove(*name);
            refusal(others).is_none_or(|text| text.starts_with("missing field"))
        };
        match given.keys().find(is_refused) {
            Some(name) => in_words(name, &given[name], &text),
            None => text,
        }
    };
    refused(tool, message)
}

/// What an argument type says about one argument, without the names of Rust's types.
fn in_words(name: &str, value: &Value, text: &str) -> String {
    let Some((_, expected)) = text.split_once(", expected ") else {
        return format!("{name}: {text}");
    };
    let wanted = match expected {
        "i8" | "i16" | "i32" | "i64" | "isize" => "an integer".to_owned(),
        "u8" | "u16" | "u32" | "u64" | "usize" => "an integer of at least 0".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a sequence" => "a list".to_owned(),
        "a map" => "an object".to_owned(),
        other => other.trim_start_matches("one of ").replace('`', ""),
    };
    format!("{name} must be {wanted}, not {}", shown(value))
}

/// The bounds that a number is not within.
fn exceeded_bound(tool: &ToolDef, name: &str, value: &Value) -> Option<String> {
    let value = value.as_f64()?;
    let schema = tool.arguments().get(name)?;
    let bound = |key: &str| schema.get(key).and_then(Value::as_f64);
    let (low, high) = (bound("minimum"), bound("maximum"));
    if low.is_none_or(|low| low <= value) && high.is_none_or(|high| value <= high) {
        return None;
    }
    match (low, high) {
        (Some(low), Some(high)) => Some(format!("from {low} to {high}")),
        (Some(low), None) => Some(format!("at least {low}")),
        (None, Some(high)) => Some(format!("at most {high}")),
        (None, None) => None,
    }
}

fn refused(tool: &ToolDef, message: String) -> Error {
    Error::bad_args(format!("{}: {message}", tool.name)).hint(tool.usage())
}

/// The declared name: the one given, or its snake_case form where only that is declared.
fn declared_name(properties: &Map<String, Value>, given: &str) -> String {
    if properties.contains_key(given) {
        return given.to_owned();
    }
    let mut snake = String::new();
    for c in given.chars() {
        match c {
            'A'..='Z' => {
                if !snake.is_empty() && !snake.ends_with('_') {
                    snake.push('_');
                }
                snake.push(c.to_ascii_lowercase());
            }
            '-' => snake.push('_'),
            c => snake.push(c),
        }
    }
    if properties.contains_key(&snake) {
        snake
    } else {
        given.to_owned()
    }
}

fn is_required(tool: &ToolDef, name: &str) -> bool {
    let required = tool.schema().get("required").and_then(Value::as_array);
    required.is_some_and(|list| list.iter().any(|entry| entry == name))
}

/// Some clients fill in every argument: null, nothing, and a wait of no time stand for an absent one.
fn says_nothing(name: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Number(number) => name == "timeout" && number.as_f64() == Some(0.0),
        _ => false,
    }
}

/// The value as the schema's type, or the value and what is wanted.
fn convert(schema: &Value, value: Value) -> Result<Value, (Value, String)> {
    let kind = schema
        .get("type")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let choices = schema.get("enum").and_then(Value::as_array);
    let wanted = || match (choices, kind) {
        (Some(choices), _) => {
            let choices: Vec<&str> = choices.iter().filter_map(Value::as_str).collect();
            choices.join(" or ")
        }
        (None, "string") => "a string".to_owned(),
        (None, "integer") => "an integer".to_owned(),
        (None, "number") => "a number".to_owned(),
        (None, "boolean") => "true or false".to_owned(),
        (None, "array") => "a list of strings".to_owned(),
        (None, "object") => "an object".to_owned(),
        (None, other) => other.to_owned(),
    };
    let converted = match (kind, &value) {
        ("string", Value::String(_)) => match choices {
            Some(choices) if !choices.contains(&value) => None,
            _ => Some(value.clone()),
        },
        ("integer", value) => integer(value),
        ("number", Value::Number(_)) => Some(value.clone()),
        ("number", Value::String(text)) => text
            .trim()
            .parse()
            .ok()
            .and_then(Number::from_f64)
            .map(Value::Number),
        ("boolean", Value::Bool(_)) => Some(value.clone()),
        ("boolean", Value::String(text)) => match text.trim().to_ascii_lowercase().as_str() {
            "true" => Some(true.into()),
            "false" => Some(false.into()),
            _ => None,
        },
        ("array", value) => list(schema, value),
        ("object", Value::Object(_)) => Some(value.clone()),
        ("object", Value::String(text)) => serde_json::from_str(text).ok().filter(Value::is_object),
        // A union or a type of the tool's own, which the argument type checks.
        ("" | "null", _) => Some(value.clone()),
        _ => None,
    };
    converted.ok_or_else(|| (value, wanted()))
}

/// An integer, also written as `5.0`, `"5"` or `"5.0"`.
fn integer(value: &Value) -> Option<Value> {
    match value {
        Value::Number(number) if number.is_f64() => {
            let float = number.as_f64()?;
            // Above 2^53 a float no longer names one integer.
            let exact = float.fract() == 0.0 && float.abs() <= 9_007_199_254_740_992.0;
            exact.then(|| Value::from(float as i64))
        }
        Value::Number(number) => number.is_i64().then(|| value.clone()),
        Value::String(text) => {
            let text = text.trim();
            match text.parse::<i64>() {
                Ok(number) => Some(number.into()),
                Err(_) => integer(&Value::Number(Number::from_f64(text.parse().ok()?)?)),
            }
        }
        _ => None,
    }
}

/// A list of strings, also written as one string or as the JSON text of a list.
fn list(schema: &Value, value: &Value) -> Option<Value> {
    let items = schema.get("items").and_then(|items| items.get("type"));
    let of_strings = items.is_none_or(|kind| kind == "string");
    let fits = |value: &Value| match value {
        Value::Array(items) => !of_strings || items.iter().all(Value::is_string),
        _ => false,
    };
    if fits(value) {
        return Some(value.clone());
    }
    let Value::String(text) = value else {
        return None;
    };
    let parsed = serde_json::from_str::<Value>(text)
        .ok()
        .filter(|value| fits(value));
    parsed.or_else(|| of_strings.then(|| Value::Array(vec![value.clone()])))
}

/// A wrong value as an error repeats it: its type, and its beginning.
fn shown(value: &Value) -> String {
    let text: String = value.to_string().chars().take(MAX_VALUE_CHARS).collect();
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => text,
        Value::Number(_) => format!("the number {text}"),
        Value::String(_) => format!("the string {text}"),
        Value::Array(_) => format!("the list {text}"),
        Value::Object(_) => format!("the object {text}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::catalog;

    fn normalised(tool: &str, args: Value) -> Result<Value, String> {
        let Value::Object(args) = args else {
            panic!("arguments are an object")
        };
        let tool = catalog::find(tool).unwrap();
        normalise(tool, args)
            .map(Value::Object)
            .map_err(|error| error.message)
    }

    #[test]
    fn what_has_one_meaning_is_accepted() {
        let read = json!({"path": "a", "offset_lines": 5});
        for args in [
            json!({"path": "a", "offset_lines": "5"}),
            json!({"path": "a", "offset_lines": 5.0}),
            json!({"path": "a", "offset_lines": " 5.0 "}),
            json!({"path": "a", "offsetLines": 5, "max_lines": null}),
            json!({"path": "a", "offset-lines": 5, "maxLines": ""}),
        ] {
            assert_eq!(
                normalised("read_file", args.clone()),
                Ok(read.clone()),
                "{args}"
            );
        }
        for (tool, args, wanted) in [
            (
                "list_dir",
                json!({"path": ".", "include_hidden": "True"}),
                json!({"path": ".", "include_hidden": true}),
            ),
            (
                "run_cmd",
                json!({"argv": "ls", "command": "", "cwd": null, "timeout": 0}),
                json!({"argv": ["ls"]}),
            ),
            (
                "run_cmd",
                json!({"argv": "[\"ls\", \"-l\"]", "timeout": "0"}),
                json!({"argv": ["ls", "-l"]}),
            ),
            (
                "run_cmd",
                json!({"command": "ls", "argv": [], "timeout": "2.5"}),
                json!({"command": "ls", "timeout": 2.5}),
            ),
            // What is required is taken as it comes.
            (
                "linux_fs_write",
                json!({"path": "a", "content": ""}),
                json!({"path": "a", "content": ""}),
            ),
            // An alias is the argument type's business.
            ("rag_search", json!({"q": "x"}), json!({"q": "x"})),
        ] {
            assert_eq!(normalised(tool, args.clone()), Ok(wanted), "{args}");
        }
    }

    #[test]
    fn what_is_ambiguous_is_refused_in_the_callers_words() {
        for (tool, args, message) in [
            (
                "read_file",
                json!({"path": 5}),
                "read_file: path must be a string, not the number 5",
            ),
            (
                "read_file",
                json!({"path": null}),
                "read_file: path must be a string, not null",
            ),
            (
                "read_file",
                json!({"path": "a", "maxLines": "many"}),
                "read_file: maxLines must be an integer, not the string \"many\"",
            ),
            (
                "read_file",
                json!({"path": "a", "max_lines": 1.5}),
                "read_file: max_lines must be an integer, not the number 1.5",
            ),
            (
                "read_file",
                json!({"path": "a", "max_lines": 1e300}),
                "read_file: max_lines must be an integer, not the number 1e+300",
            ),
            (
                "read_file",
                json!({"path": "a", "max_lines": true}),
                "read_file: max_lines must be an integer, not true",
            ),
            (
                "read_file",
                json!({"path": "a", "maxLines": 1, "max_lines": 1}),
                "read_file: max_lines is given twice, as maxLines and max_lines",
            ),
            (
                "list_dir",
                json!({"path": ".", "include_hidden": 1}),
                "list_dir: include_hidden must be true or false, not the number 1",
            ),
            (
                "run_cmd",
                json!({"argv": [1]}),
                "run_cmd: argv must be a list of strings, not the list [1]",
            ),
            (
                "linux_fs_write",
                json!({"path": "a", "content": "", "mode": "w"}),
                "linux_fs_write: mode must be rewrite or append, not the string \"w\"",
            ),
        ] {
            assert_eq!(
                normalised(tool, args.clone()),
                Err(message.to_owned()),
                "{args}"
            );
        }
    }

    #[test]
    fn what_the_type_refuses_is_said_in_the_same_words() {
        let tool = catalog::find("read_file").unwrap();
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Args {
            #[serde(rename = "path", alias = "p")]
            _path: String,
        }
        for (args, message) in [
            (
                json!({"path": "a", "max_line": 1}),
                "read_file: unknown argument max_line; did you mean max_lines?",
            ),
            (
                json!({"path": "a", "xyzzy": 1}),
                "read_file: unknown argument xyzzy",
            ),
            (json!({}), "read_file: path is missing"),
            (
                json!({"path": "a", "p": "a"}),
                "read_file: path is given twice",
            ),
        ] {
            let given = args.as_object().unwrap().clone();
            let refusal = |args: Map<String, Value>| {
                let parsed = serde_json::from_value::<Args>(args.into());
                parsed.err().map(|error| error.to_string())
            };
            let error = serde_json::from_value::<Args>(args).unwrap_err();
            assert_eq!(misfit(tool, &given, &error, refusal).message, message);
        }
    }

    /// Words of Rust and serde that say nothing to a caller.
    const JARGON: &[&str] = &[
        "i64", "u64", "u32", "f64", "usize", "serde", "sequence", "variant", "field", "struct",
        "expected", "column", "Option", "None", "Value",
    ];

    /// Values that no argument of this type can mean.
    fn wrong_values(schema: &Value) -> Vec<Value> {
        let of_type = match schema["type"].as_str().unwrap() {
            "string" => vec![json!(5.5), json!(false), json!([1])],
            "integer" => vec![
                json!("many"),
                json!(1.5),
                json!(true),
                json!(1e300),
                json!(u64::MAX),
                json!("18446744073709551616"),
            ],
            "number" => vec![json!("many"), json!(true)],
            "boolean" => vec![json!("perhaps"), json!(2)],
            "array" => vec![json!(5), json!(true), json!([1]), json!([null])],
            other => panic!("{other}"),
        };
        let choice = schema.get("enum").map(|_| json!("no-such-choice"));
        of_type
            .into_iter()
            .chain([json!({"a": 1})])
            .chain(choice)
            .collect()
    }

    fn camel_case(name: &str) -> String {
        let mut words = name.split('_');
        let first = words.next().unwrap_or_default().to_owned();
        words.fold(first, |done, word| {
            let (head, rest) = word.split_at(1);
            done + &head.to_ascii_uppercase() + rest
        })
    }

    #[test]
    fn every_wrong_type_of_every_argument_is_refused_in_the_callers_words() {
        let mut checked = 0;
        for tool in catalog::TOOLS {
            let properties = tool.schema()["properties"].as_object().unwrap();
            for (declared, schema) in properties {
                for written in [declared.clone(), camel_case(declared)] {
                    for value in wrong_values(schema) {
                        let args = Map::from_iter([(written.clone(), value.clone())]);
                        let error = normalise(tool, args).unwrap_err();
                        let text = &error.message;
                        let what = format!("{} {written}={value}: {text}", tool.name);
                        let named = format!("{}: {written} must be ", tool.name);
                        assert!(text.starts_with(&named), "{what}");
                        let came = shown(&value);
                        assert!(text.ends_with(&format!(", not {came}")), "{what}");
                        let words = text.replace(&written, "");
                        assert!(!JARGON.iter().any(|word| words.contains(word)), "{what}");
                        let usage = format!("usage: {}(", tool.name);
                        assert!(error.hint.unwrap().starts_with(&usage), "{what}");
                        checked += 1;
                    }
                }
            }
        }
        assert!(checked > 1000, "{checked}");
    }

    #[test]
    fn every_bound_of_every_argument_is_named_with_the_callers_name() {
        let mut checked = 0;
        for tool in catalog::TOOLS {
            for (declared, schema) in tool.arguments() {
                let bound = |key: &str| schema.get(key).and_then(Value::as_i64);
                let beyond = [
                    bound("minimum").map(|low| low - 1),
                    bound("maximum").map(|high| high + 1),
                ];
                for value in beyond.into_iter().flatten() {
                    // An absent time is written so.
                    if declared == "timeout" && value == 0 {
                        continue;
                    }
                    let written = camel_case(declared);
                    let args = Map::from_iter([(written.clone(), json!(value))]);
                    let text = normalise(tool, args).unwrap_err().message;
                    let named = format!("{}: {written} must be ", tool.name);
                    assert!(text.starts_with(&named), "{text}");
                    assert!(text.ends_with(&format!(", not {value}")), "{text}");
                    checked += 1;
                }
            }
        }
        assert!(checked > 20, "{checked}");
    }
}
