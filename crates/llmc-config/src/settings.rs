//! Values while they are merged: each with the layer it came from.

use std::collections::BTreeMap;
use std::fmt;

use crate::error::Problem;
use crate::keys::{Initial, Key, find};
use crate::table::KEYS;
use crate::value::{Kind, Value};

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Nobody set it.
    Default,
    /// Nobody set it, and it follows from other keys as told here.
    Rule(&'static str),
    /// This line of the configuration file.
    File {
        /// Counted from 1.
        line: usize,
    },
    /// This environment variable.
    Env(String),
    /// This flag of the command line.
    Cli(String),
}

impl Source {
    /// In words, with the configuration file under the name it is to be shown by.
    pub fn describe(&self, file: &str) -> String {
        match self {
            Self::Default => "default".to_owned(),
            Self::Rule(says) => format!("default: {says}"),
            Self::File { line } => format!("{file}:{line}"),
            Self::Env(name) | Self::Cli(name) => name.clone(),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe("llmc.toml"))
    }
}

/// One key as it took effect, ready to be shown: secrets are masked already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its path, with index or name where the key stands for several.
    pub key: String,
    /// Its value in TOML syntax, `None` when it has none.
    pub value: Option<String>,
    /// Where that came from.
    pub source: Source,
    /// Whether the value is hidden.
    pub secret: bool,
}

impl Entry {
    /// The value, or `(unset)`.
    pub fn shown(&self) -> &str {
        self.value.as_deref().unwrap_or("(unset)")
    }
}

/// A value, or its absence, with its source.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Setting {
    pub(crate) value: Option<Value>,
    pub(crate) source: Source,
}

/// Settings by the path of their key.
#[derive(Debug, Clone, Default)]
pub(crate) struct Row(pub(crate) BTreeMap<&'static str, Setting>);

/// Which rows of the table belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Slot {
    Top,
    Token(usize),
    Agent(String),
}

/// What one layer says.
#[derive(Debug, Default)]
pub(crate) struct Layer {
    pub(crate) top: Row,
    /// `Some` when the layer speaks of tokens at all: it then replaces those of the layers below.
    pub(crate) tokens: Option<Vec<Row>>,
    pub(crate) agents: BTreeMap<String, Row>,
}

/// All layers merged: every key has a setting.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) top: Row,
    pub(crate) tokens: Vec<Row>,
    pub(crate) agents: BTreeMap<String, Row>,
}

impl Row {
    /// Every key below or outside the given kind of table, at its default.
    fn defaults(belongs: impl Fn(&str) -> bool) -> Self {
        let keys = KEYS.iter().filter(|key| belongs(key.path));
        Self(
            keys.filter_map(|key| Some((key.path, default(key)?)))
                .collect(),
        )
    }

    pub(crate) fn value(&self, path: &str) -> Option<&Value> {
        self.0.get(path)?.value.as_ref()
    }

    pub(crate) fn source(&self, path: &str) -> Source {
        let setting = self.0.get(path);
        setting.map_or(Source::Default, |setting| setting.source.clone())
    }

    /// Whether a layer above the defaults gives the key.
    pub(crate) fn is_set(&self, path: &str) -> bool {
        !matches!(self.source(path), Source::Default | Source::Rule(_))
    }

    fn over(mut self, higher: Self) -> Self {
        self.0.extend(higher.0);
        self
    }
}

impl Layer {
    /// Adds a setting, and returns the one it replaces: a key may stand there under its old and its new name.
    pub(crate) fn put(
        &mut self,
        slot: &Slot,
        path: &'static str,
        setting: Setting,
    ) -> Option<Setting> {
        let row = match slot {
            Slot::Top => &mut self.top,
            Slot::Agent(id) => self.agents.entry(id.clone()).or_default(),
            Slot::Token(index) => {
                let rows = self.tokens.get_or_insert_default();
                rows.resize_with(rows.len().max(index + 1), Row::default);
                &mut rows[*index]
            }
        };
        row.0.insert(path, setting)
    }

    /// This layer with another of the same rank: where both set a key, their values must agree.
    pub(crate) fn beside(self, other: Self, problems: &mut Vec<Problem>) -> Self {
        for (path, setting) in &other.top.0 {
            let first = self.top.0.get(path);
            if let Some(first) = first.filter(|first| first.value != setting.value) {
                let message = format!(
                    "differs from {}, which sets the same key; set one",
                    first.source
                );
                problems.push(Problem::new(setting.source.to_string(), *path, message));
            }
        }
        other.under(self)
    }

    /// This layer with a higher one on top of it.
    pub(crate) fn under(mut self, higher: Self) -> Self {
        self.top = self.top.over(higher.top);
        self.tokens = higher.tokens.or(self.tokens);
        for (id, row) in higher.agents {
            let lower = self.agents.remove(&id).unwrap_or_default();
            self.agents.insert(id, lower.over(row));
        }
        self
    }
}

impl Settings {
    /// The defaults with the given layer on top.
    pub(crate) fn new(layer: Layer) -> Self {
        let token = || Row::defaults(is_token_field);
        let agent = || Row::defaults(is_agent_field);
        let top = Row::defaults(|path| !is_token_field(path) && !is_agent_field(path));
        let tokens = layer.tokens.unwrap_or_default();
        Self {
            top: top.over(layer.top),
            tokens: tokens.into_iter().map(|row| token().over(row)).collect(),
            agents: layer
                .agents
                .into_iter()
                .map(|(id, row)| (id, agent().over(row)))
                .collect(),
        }
    }

    /// Every key in table order, those of named tables with their index or name.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let mut entries = Vec::new();
        for key in KEYS {
            match key.kind {
                Kind::Tables if self.tokens.is_empty() => entries.push(empty(key, "[]")),
                Kind::Map if self.agents.is_empty() => entries.push(empty(key, "{}")),
                Kind::Tables => {
                    for (index, row) in self.tokens.iter().enumerate() {
                        entries.extend(row.entries(&format!("{}[{index}]", key.path)));
                    }
                }
                Kind::Map => {
                    for (id, row) in &self.agents {
                        entries.extend(row.entries(&format!("{}.{}", key.path, quoted(id))));
                    }
                }
                _ => entries.extend(self.top.entry(key, key.path.to_owned())),
            }
        }
        entries
    }
}

impl Row {
    fn entries(&self, table: &str) -> Vec<Entry> {
        let keys = KEYS.iter();
        keys.filter_map(|key| self.entry(key, format!("{table}.{}", key.name())))
            .collect()
    }

    fn entry(&self, key: &Key, shown: String) -> Option<Entry> {
        let setting = self.0.get(key.path)?;
        let text = setting.value.as_ref().map(Value::to_toml);
        Some(Entry {
            key: shown,
            value: text.map(|text| if key.secret { "***".to_owned() } else { text }),
            source: setting.source.clone(),
            secret: key.secret,
        })
    }
}

fn empty(key: &Key, value: &str) -> Entry {
    Entry {
        key: key.path.to_owned(),
        value: Some(value.to_owned()),
        source: Source::Default,
        secret: false,
    }
}

fn default(key: &Key) -> Option<Setting> {
    let value = match (key.kind, key.initial) {
        (Kind::Tables | Kind::Map, _) => return None,
        (_, Initial::Unset { .. } | Initial::Rule { .. }) => None,
        (kind, Initial::Toml(text)) => Some(literal(kind, text)),
    };
    Some(Setting {
        value,
        source: Source::Default,
    })
}

/// A value written in the key table.
pub(crate) fn literal(kind: Kind, text: &str) -> Value {
    let toml = text.parse().map(toml_edit::Item::Value).ok();
    toml.and_then(|item| kind.accept(&item).ok())
        .expect("defaults in the key table are valid, which a test checks by loading them all")
}

/// The example of a key that follows a rule, which is also the value the rule gives most often.
pub(crate) fn example(path: &str) -> Option<Value> {
    let key = find(path)?;
    match key.initial {
        Initial::Toml(text)
        | Initial::Unset { example: text }
        | Initial::Rule { example: text, .. } => Some(literal(key.kind, text)),
    }
}

fn is_token_field(path: &str) -> bool {
    path.contains("[].")
}

fn is_agent_field(path: &str) -> bool {
    path.contains(".*.")
}

/// A part of a path as TOML writes it: bare where that is possible.
pub(crate) fn quoted(part: &str) -> String {
    toml_edit::Key::new(part).display_repr().into_owned()
}
