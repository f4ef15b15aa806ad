//! The little Python that stubs are made of: names, types, string literals.

use serde_json::Value;

use crate::shape::HELP;

/// Words that Python keeps for itself, and the few names that a stub module uses.
const RESERVED: &[&str] = &[
    "False",
    "None",
    "True",
    "and",
    "as",
    "assert",
    "async",
    "await",
    "break",
    "class",
    "continue",
    "def",
    "del",
    "elif",
    "else",
    "except",
    "finally",
    "for",
    "from",
    "global",
    "if",
    "import",
    "in",
    "is",
    "lambda",
    "nonlocal",
    "not",
    "or",
    "pass",
    "raise",
    "return",
    "try",
    "while",
    "with",
    "yield",
    "self",
    "others",
    "aio",
    "help",
    "search",
    "error_code",
];

/// Whether a name can stand in Python source as it is.
pub(super) fn is_identifier(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic())
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && name.len() <= 64
        && !RESERVED.contains(&name)
}

/// The Python type that a property's schema asks for.
pub(crate) fn python_type(schema: &Value) -> String {
    if let Some(Value::Array(values)) = schema.get("enum") {
        let texts: Vec<String> = values
            .iter()
            .filter_map(Value::as_str)
            .map(quoted::literal)
            .collect();
        if !texts.is_empty() && texts.len() == values.len() {
            return format!("Literal[{}]", texts.join(", "));
        }
    }
    match schema.get("type").and_then(Value::as_str) {
        Some("string") => "str".to_owned(),
        Some("integer") => "int".to_owned(),
        Some("number") => "float".to_owned(),
        Some("boolean") => "bool".to_owned(),
        Some("object") => "dict[str, Any]".to_owned(),
        Some("array") => match schema.get("items") {
            Some(items) => format!("list[{}]", python_type(items)),
            None => "list[Any]".to_owned(),
        },
        _ => "Any".to_owned(),
    }
}

/// One argument.
pub(super) struct Parameter<'a> {
    pub(super) name: &'a str,
    kind: String,
    pub(super) required: bool,
    /// A Python literal, where there is a default.
    default: Option<String>,
    /// Bounds and help.
    words: String,
}

impl<'a> Parameter<'a> {
    /// The argument of a schema; `full` is the same with default, bounds and help.
    pub(super) fn new(
        name: &'a str,
        schema: &Value,
        full: Option<&Value>,
        required: bool,
    ) -> Parameter<'a> {
        let kind = python_type(schema);
        let fact = |key: &str| full.and_then(|full| full.get(key));
        let default = match fact("default") {
            Some(given) => literal(given),
            None if kind == "bool" => Some("False".to_owned()),
            None => None,
        };
        let number = |key: &str| fact(key).and_then(Value::as_i64);
        let bounds = match (number("minimum"), number("maximum")) {
            (Some(low), Some(high)) => Some(format!("{low} to {high}")),
            (Some(low), None) if low > 0 => Some(format!("from {low}")),
            _ => None,
        };
        let help = fact(HELP).or_else(|| schema.get("description"));
        let help = help.and_then(Value::as_str);
        // A default stands in the signature already.
        let help = help.filter(|help| !help.starts_with("default "));
        let words: Vec<&str> = bounds.as_deref().into_iter().chain(help).collect();
        Parameter {
            name,
            required,
            default: default.filter(|_| !required),
            words: words.join("; "),
            kind,
        }
    }

    /// As it stands in a signature.
    pub(super) fn declared(&self) -> String {
        match (self.required, &self.default) {
            (true, _) => format!("{}: {}", self.name, self.kind),
            (false, None) => format!("{}: {} | None = None", self.name, self.kind),
            (false, Some(default)) => format!("{}: {} = {default}", self.name, self.kind),
        }
    }

    /// The full description.
    pub(super) fn explained(&self) -> String {
        let mut line = format!("{}: {}", self.name, self.kind);
        match (self.required, &self.default) {
            (true, _) => line.push_str(", required"),
            (false, None) => line.push_str(", optional"),
            (false, Some(default)) => line.push_str(&format!(" = {default}")),
        }
        if !self.words.is_empty() {
            line.push_str(&format!(" ({})", self.words));
        }
        line
    }
}

/// A default as Python writes it; null is none.
fn literal(value: &Value) -> Option<String> {
    match value {
        Value::Bool(true) => Some("True".to_owned()),
        Value::Bool(false) => Some("False".to_owned()),
        Value::Number(number) => Some(number.to_string()),
        Value::String(text) => Some(quoted::literal(text)),
        _ => None,
    }
}

/// Text inside Python string literals.
pub(super) mod quoted {
    use std::fmt::Write;

    /// Longest text that goes into one literal.
    const MAX_LITERAL_CHARS: usize = 2000;

    /// A literal on one line.
    pub(in super::super) fn literal(text: &str) -> String {
        format!("\"{}\"", escaped(text, false))
    }

    /// A docstring with its line end; lines after the first are indented like it.
    pub(in super::super) fn docstring(text: &str, indent: &str) -> String {
        let text = escaped(text, true).replace('\n', &format!("\n{indent}"));
        // Trailing blanks on empty lines are noise in every editor.
        let lines: Vec<&str> = text.split('\n').map(str::trim_end).collect();
        format!("{indent}\"\"\"{}\"\"\"\n", lines.join("\n"))
    }

    /// Quotes and backslashes escaped, and whatever acts on a terminal, ends a line or turns the writing direction.
    fn escaped(text: &str, lines: bool) -> String {
        let mut out = String::new();
        for c in text.chars().take(MAX_LITERAL_CHARS) {
            match c {
                '\n' if lines => out.push(c),
                '"' | '\\' => {
                    out.push('\\');
                    out.push(c);
                }
                c if acts(c) => {
                    let _ = match u32::from(c) {
                        code @ ..=0xff => write!(out, "\\x{code:02x}"),
                        code @ ..=0xffff => write!(out, "\\u{code:04x}"),
                        code => write!(out, "\\U{code:08x}"),
                    };
                }
                c => out.push(c),
            }
        }
        out
    }

    fn acts(c: char) -> bool {
        c.is_control() || llmc_host::names::is_invisible(c)
    }
}
