//! The kinds of values: what is accepted, how it is described, and how TOML or bare text becomes a value.

use crate::choices::why_gone;
use std::net::IpAddr;

use toml_edit::{Array, Item, Value as Toml};

/// What values a key takes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ValueKind {
    /// `true` or `false`.
    Bool,
    /// A whole number within inclusive bounds.
    Int { min: u64, max: u64 },
    /// A finite number that is not negative.
    Float,
    /// Text of some shape.
    Text(TextShape),
    /// One of these words.
    OneOf {
        words: &'static [&'static str],
        /// The word that a given one stands for, itself or one of earlier versions.
        canonical: fn(&str) -> Option<&'static str>,
    },
    /// A list of text of some shape.
    List(TextShape),
    /// A list of tables, whose fields are rows of their own.
    Tables,
    /// Tables by name, whose fields are rows of their own.
    Map,
}

/// What text has to look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextShape {
    Any,
    NotEmpty,
    /// `auto`, or absolute folders joined by `:`.
    SearchPath,
    /// A pattern for file names.
    Glob,
    /// A file path; `~` is the home directory, relative ones start at the workspace root.
    Path,
    /// An IP address or host name.
    Host,
    HeaderName,
    EnvName,
    /// `NAME`, or `NAME=value`.
    Variable,
    /// `Header=VARIABLE`.
    HeaderVariable,
    /// What an upstream may be called: a Python name in lower case.
    UpstreamName,
    /// An absolute URL path.
    Route,
    /// An `http` or `https` URL.
    Url,
    /// Empty, or a `postgres` URL.
    DatabaseUrl,
    /// The name of a tenant.
    TenantName,
    /// `provider/model`.
    ModelName,
    /// A SHA-256 digest in hexadecimal.
    Sha256,
}

/// A checked value; tables are kept as rows elsewhere.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Bool(bool),
    Int(u64),
    Float(f64),
    Text(String),
    List(Vec<String>),
    /// A list of tables or a table that has nothing in it, in TOML syntax.
    Empty(&'static str),
}

/// The largest whole number TOML can hold.
pub(crate) const MAX_INT: u64 = i64::MAX as u64;

impl ValueKind {
    /// What it accepts, for the reference page.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Bool => "true or false".to_owned(),
            Self::Int { min, max: MAX_INT } => format!("integer, at least {min}"),
            Self::Int { min, max } => format!("integer, {min} to {max}"),
            Self::Float => "number, at least 0".to_owned(),
            Self::Text(shape) => shape.describe().to_owned(),
            Self::OneOf { words, .. } => words.join(", "),
            Self::List(TextShape::Path) => "list of paths".to_owned(),
            Self::List(TextShape::Glob) => "list of globs".to_owned(),
            Self::List(TextShape::Variable) => "list of `NAME=value` or `NAME`".to_owned(),
            Self::List(TextShape::HeaderVariable) => "list of `Header=VARIABLE`".to_owned(),
            Self::List(TextShape::EnvName) => "list of environment variables".to_owned(),
            Self::List(_) => "list of text".to_owned(),
            Self::Tables => "list of tables".to_owned(),
            Self::Map => "tables by name".to_owned(),
        }
    }

    /// The checked value of a TOML item, or what is wrong with it.
    pub(crate) fn accept(&self, item: &Item) -> Result<Value, String> {
        let value = match self {
            Self::Bool => item.as_bool().map(Value::Bool),
            Self::Int { min, max } => item
                .as_integer()
                .map(|n| in_range(n, *min, *max))
                .transpose()?,
            Self::Float => number(item).map(not_negative).transpose()?,
            Self::Text(shape) => item.as_str().map(|text| shape.accept(text)).transpose()?,
            Self::OneOf { words, canonical } => item
                .as_str()
                .map(|word| one_of(word, canonical(word), words))
                .transpose()?,
            Self::List(shape) => item
                .as_array()
                .map(|array| self.list(*shape, array))
                .transpose()?,
            Self::Tables | Self::Map => None,
        };
        value.ok_or_else(|| format!("expected {}, found {}", self.noun(), item.type_name()))
    }

    /// The TOML value that bare text means: what the environment and flags carry.
    pub(crate) fn read_bare(self, text: &str) -> Result<Toml, String> {
        let trimmed = text.trim();
        match self {
            Self::Text(_) | Self::OneOf { .. } => Ok(Toml::from(text)),
            Self::List(_) if !trimmed.starts_with('[') => Ok(Toml::Array(comma_separated(trimmed))),
            _ => trimmed
                .parse::<Toml>()
                .map_err(|_| format!("expected {} in TOML syntax", self.noun())),
        }
    }

    fn noun(self) -> &'static str {
        match self {
            Self::Bool => "true or false",
            Self::Int { .. } => "an integer",
            Self::Float => "a number",
            Self::Text(_) | Self::OneOf { .. } => "a string",
            Self::List(_) => "an array of strings",
            Self::Tables => "an array of tables",
            Self::Map => "a table",
        }
    }

    fn list(self, shape: TextShape, array: &Array) -> Result<Value, String> {
        let mut list = Vec::with_capacity(array.len());
        for (index, value) in array.iter().enumerate() {
            let text = value.as_str().ok_or_else(|| {
                format!(
                    "expected {}, found {} at position {index}",
                    self.noun(),
                    value.type_name()
                )
            })?;
            shape
                .accept(text)
                .map_err(|message| format!("position {index}: {message}"))?;
            list.push(text.to_owned());
        }
        Ok(Value::List(list))
    }
}

impl TextShape {
    fn describe(self) -> &'static str {
        match self {
            Self::Any => "text",
            Self::NotEmpty => "text, not empty",
            Self::SearchPath => "auto, or folders",
            Self::Glob => "glob",
            Self::Path => "path",
            Self::Host => "IP address or host name",
            Self::HeaderName => "HTTP header name",
            Self::EnvName => "name of an environment variable",
            Self::Variable => "NAME=value or NAME",
            Self::HeaderVariable => "Header=VARIABLE",
            Self::UpstreamName => "lower-case name of at most 30 characters",
            Self::Route => "URL path",
            Self::Url => "http or https URL",
            Self::DatabaseUrl => "postgres URL, or empty",
            Self::TenantName => "letters, digits, `_`, `-` and `.`",
            Self::ModelName => "provider/model",
            Self::Sha256 => "64 hexadecimal digits",
        }
    }

    fn accept(self, text: &str) -> Result<Value, String> {
        let fits = match self {
            Self::Any => true,
            Self::Glob if !text.trim().is_empty() => {
                globset::Glob::new(text)
                    .map_err(|error| format!("\"{text}\" is not a glob: {}", error.kind()))?;
                true
            }
            Self::NotEmpty | Self::Glob => !text.trim().is_empty(),
            Self::SearchPath => text == "auto" || text.split(':').all(is_absolute),
            Self::Path => !text.trim().is_empty() && !text.contains('\0'),
            Self::Host => is_host(text),
            Self::HeaderName => !text.is_empty() && text.chars().all(is_header_char),
            Self::EnvName => is_env_name(text),
            Self::Variable => {
                let name = text.split_once('=').map_or(text, |(name, _)| name);
                is_env_name(name) && !text.contains('\0')
            }
            Self::HeaderVariable => text.split_once('=').is_some_and(|(header, variable)| {
                !header.is_empty() && header.chars().all(is_header_char) && is_env_name(variable)
            }),
            Self::UpstreamName => is_upstream_name(text),
            Self::Route => text.starts_with('/') && !text.contains(char::is_whitespace),
            Self::Url => is_url(text),
            Self::DatabaseUrl => text.is_empty() || is_database_url(text),
            Self::TenantName => is_tenant_name(text),
            Self::ModelName => is_model(text),
            Self::Sha256 => text.len() == 64 && text.chars().all(|c| c.is_ascii_hexdigit()),
        };
        if fits {
            return Ok(Value::Text(text.to_owned()));
        }
        // The value is not quoted: a secret put here by mistake must not reach a log.
        Err(match self {
            Self::Any => "not accepted".to_owned(),
            Self::NotEmpty | Self::Glob => "must not be empty".to_owned(),
            Self::SearchPath => "must be \"auto\" or absolute folders joined by :".to_owned(),
            Self::Path => "must be a path that is not empty and has no NUL in it".to_owned(),
            Self::Host => "must be an IP address or a host name".to_owned(),
            Self::HeaderName => "must be an HTTP header name".to_owned(),
            Self::EnvName => {
                "must be the name of an environment variable, not the token itself".to_owned()
            }
            Self::Variable => "must be NAME=value, or the NAME of an environment variable".to_owned(),
            Self::HeaderVariable => {
                "must be Header=VARIABLE: an HTTP header and an environment variable".to_owned()
            }
            Self::UpstreamName => {
                "must be a lower-case letter and at most 29 letters, digits or _, and not reserved in Python"
                    .to_owned()
            }
            Self::Route => "must be a URL path that starts with /".to_owned(),
            Self::Url => "must be a URL that starts with http:// or https://".to_owned(),
            Self::DatabaseUrl => {
                "must be a URL that starts with postgres://, or empty".to_owned()
            }
            Self::TenantName => {
                "must be 1 to 63 letters, digits, _, - or .".to_owned()
            }
            Self::ModelName => format!(
                "must be provider/model with provider {}",
                PROVIDERS.join(", ")
            ),
            Self::Sha256 => "must be 64 hexadecimal digits".to_owned(),
        })
    }
}

impl Value {
    /// The value in TOML syntax, credentials in URLs masked.
    pub(crate) fn to_toml(&self) -> String {
        match self {
            Self::Bool(value) => Toml::from(*value),
            Self::Int(value) => Toml::from(i64::try_from(*value).unwrap_or(i64::MAX)),
            Self::Float(value) => Toml::from(*value),
            Self::Text(value) => Toml::from(mask_credentials(value)),
            Self::List(values) => Toml::Array(values.iter().map(String::as_str).collect()),
            Self::Empty(toml) => return (*toml).to_owned(),
        }
        .to_string()
    }
}

const PROVIDERS: &[&str] = &["ollama", "openai", "anthropic"];

fn in_range(n: i64, min: u64, max: u64) -> Result<Value, String> {
    match u64::try_from(n) {
        Ok(n) if (min..=max).contains(&n) => Ok(Value::Int(n)),
        _ if max == MAX_INT => Err(format!("must be at least {min}, found {n}")),
        _ => Err(format!("must be from {min} to {max}, found {n}")),
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a whole number written for a price or a budget is small"
)]
fn number(item: &Item) -> Option<f64> {
    item.as_float()
        .or_else(|| item.as_integer().map(|n| n as f64))
}

fn not_negative(n: f64) -> Result<Value, String> {
    if n.is_finite() && n >= 0.0 {
        Ok(Value::Float(n))
    } else {
        Err(format!("must be a finite number of at least 0, found {n}"))
    }
}

fn one_of(
    word: &str,
    canonical: Option<&'static str>,
    words: &'static [&'static str],
) -> Result<Value, String> {
    canonical
        .map(|word| Value::Text(word.to_owned()))
        .ok_or_else(|| {
            let why = match why_gone(word) {
                Some(why) => format!("; {why}"),
                None => String::new(),
            };
            let accepted = words.join(", ");
            format!("unknown value \"{word}\"; accepted: {accepted}{why}")
        })
}

fn comma_separated(text: &str) -> Array {
    if text.is_empty() {
        return Array::new();
    }
    text.split(',').map(str::trim).collect()
}

fn is_absolute(folder: &str) -> bool {
    let rooted = folder.starts_with('/') || folder == "~" || folder.starts_with("~/");
    rooted && !folder.contains('\0')
}

fn is_host(text: &str) -> bool {
    parse_ip(text).is_some()
        || (!text.is_empty()
            && text
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_')))
}

/// An IP address as people write it for a host, brackets around IPv6 included.
pub(crate) fn parse_ip(text: &str) -> Option<IpAddr> {
    let inner = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    inner.unwrap_or(text).parse().ok()
}

fn is_header_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c)
}

fn is_env_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn is_upstream_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.len() <= 30
        && text
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && !PYTHON_WORDS.contains(&text)
}

/// Words in lower case that Python keeps for itself.
const PYTHON_WORDS: [&str; 32] = [
    "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del", "elif",
    "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda",
    "nonlocal", "not", "or", "pass", "raise", "return", "try", "while", "with", "yield",
];

fn is_url(text: &str) -> bool {
    let rest = text
        .strip_prefix("http://")
        .or_else(|| text.strip_prefix("https://"));
    rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'))
        && !text.contains(char::is_whitespace)
}

fn is_database_url(text: &str) -> bool {
    let rest = text
        .strip_prefix("postgres://")
        .or_else(|| text.strip_prefix("postgresql://"));
    rest.is_some_and(|rest| !rest.is_empty()) && !text.contains(char::is_whitespace)
}

fn is_tenant_name(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    (1..=63).contains(&text.len()) && text.chars().all(is_plain)
}

fn is_model(text: &str) -> bool {
    let Some((provider, model)) = text.split_once('/') else {
        return false;
    };
    // No way around a list of allowed models by names that look like paths.
    let plain = |part: &str| !matches!(part.trim(), "" | "." | "..");
    (PROVIDERS.contains(&provider) || provider == "ollama_chat") && model.split('/').all(plain)
}

/// `https://user:password@host` with the part before `@` hidden, and whatever a parameter `password` has.
fn mask_credentials(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return text.to_owned();
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    // A password may hold any of these characters, unescaped by mistake; the host of a database does not.
    let at = match scheme {
        "postgres" | "postgresql" => rest.rfind('@'),
        _ => authority.rfind('@'),
    };
    let shown = match at {
        Some(at) => format!("{scheme}://***{}", &rest[at..]),
        None => text.to_owned(),
    };
    match shown.split_once("password=") {
        Some((before, after)) => {
            let rest = after.find('&').map_or("", |end| &after[end..]);
            format!("{before}password=***{rest}")
        }
        None => shown,
    }
}
