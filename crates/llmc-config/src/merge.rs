//! Values while they are merged: each with the layer it came from.

use std::collections::BTreeMap;
use std::fmt;

use crate::declarations::{TokenEntry, UpstreamEntry};
use crate::error::ConfigProblem;
use crate::registry::{DefaultValue, SettingDef, all_settings, find};
use crate::spec::{ReadTable, TableSource};
use crate::value::{Value, ValueKind};

/// The lists of tables, by path.
pub(crate) const TOKENS: &str = "mcp.auth.tokens";
pub(crate) const UPSTREAMS: &str = "mcp.upstream";

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingSource {
    /// No layer sets it.
    Default,
    /// No layer sets it, and it follows from other settings as described here.
    Rule(&'static str),
    /// This line of the user's own file.
    UserFile {
        /// The file's name in messages.
        label: String,
        /// Counted from 1.
        line: usize,
    },
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

impl SettingSource {
    /// In words, with the configuration file under the name it is to be shown by.
    pub fn describe(&self, file: &str) -> String {
        match self {
            Self::Default => "default".to_owned(),
            Self::Rule(says) => format!("default: {says}"),
            Self::UserFile { label, line } => format!("{label}:{line}"),
            Self::File { line } => format!("{file}:{line}"),
            Self::Env(name) | Self::Cli(name) => name.clone(),
        }
    }
}

impl fmt::Display for SettingSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe("llmc.toml"))
    }
}

/// One key as it took effect, ready to be shown: secrets are masked already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingEntry {
    /// Its path, with index or name where the key stands for several.
    pub key: String,
    /// Its value in TOML syntax, `None` when it has none.
    pub value: Option<String>,
    /// Where that came from.
    pub source: SettingSource,
    /// Whether the value is hidden.
    pub secret: bool,
}

impl SettingEntry {
    /// The value, or `(unset)`.
    pub fn shown(&self) -> &str {
        self.value.as_deref().unwrap_or("(unset)")
    }
}

/// A value, or its absence, with its source.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Setting {
    pub(crate) value: Option<Value>,
    pub(crate) source: SettingSource,
}

/// Settings by their path.
#[derive(Debug, Clone, Default)]
pub(crate) struct SettingMap(pub(crate) BTreeMap<&'static str, Setting>);

/// Which table a value belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TableSlot {
    Top,
    /// This one of a list of tables, by the list's path.
    Row(&'static str, usize),
    Agent(String),
}

/// What one layer says.
#[derive(Debug, Clone, Default)]
pub(crate) struct Layer {
    pub(crate) top: SettingMap,
    /// Lists of tables by their path. A list that the layer sets at all replaces those of the layers below.
    pub(crate) lists: BTreeMap<&'static str, Vec<SettingMap>>,
    pub(crate) agents: BTreeMap<String, SettingMap>,
}

/// All layers merged: every key has a setting.
#[derive(Debug)]
pub(crate) struct MergedSettings {
    pub(crate) top: SettingMap,
    pub(crate) lists: BTreeMap<&'static str, Vec<SettingMap>>,
    pub(crate) agents: BTreeMap<String, SettingMap>,
}

impl SettingMap {
    /// Every key below or outside the given kind of table, at its default.
    fn defaults(belongs: impl Fn(&str) -> bool) -> Self {
        let defs = all_settings().filter(|def| belongs(def.path));
        Self(
            defs.filter_map(|def| Some((def.path, default(def)?)))
                .collect(),
        )
    }

    pub(crate) fn value(&self, path: &str) -> Option<&Value> {
        self.0.get(path)?.value.as_ref()
    }

    pub(crate) fn source(&self, path: &str) -> SettingSource {
        let setting = self.0.get(path);
        setting.map_or(SettingSource::Default, |setting| setting.source.clone())
    }

    /// Whether a layer above the defaults gives the key.
    pub(crate) fn is_set(&self, path: &str) -> bool {
        !matches!(
            self.source(path),
            SettingSource::Default | SettingSource::Rule(_)
        )
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
        slot: &TableSlot,
        path: &'static str,
        setting: Setting,
    ) -> Option<Setting> {
        let row = match slot {
            TableSlot::Top => &mut self.top,
            TableSlot::Agent(id) => self.agents.entry(id.clone()).or_default(),
            TableSlot::Row(list, index) => self.row(list, *index),
        };
        row.0.insert(path, setting)
    }

    /// One table of a list; an empty one counts, so that what it lacks is noticed.
    pub(crate) fn row(&mut self, list: &'static str, index: usize) -> &mut SettingMap {
        let rows = self.lists.entry(list).or_default();
        rows.resize_with(rows.len().max(index + 1), SettingMap::default);
        &mut rows[index]
    }

    /// Leaves out a key.
    pub(crate) fn remove(&mut self, path: &str) {
        self.top.0.remove(path);
        self.lists.remove(path);
    }

    /// This layer with another of the same rank: where both set a key, their values must agree.
    pub(crate) fn beside(self, other: Self, problems: &mut Vec<ConfigProblem>) -> Self {
        for (path, setting) in &other.top.0 {
            let first = self.top.0.get(path);
            if let Some(first) = first.filter(|first| first.value != setting.value) {
                let message = format!(
                    "differs from {}, which sets the same key; set one",
                    first.source
                );
                problems.push(ConfigProblem::new(
                    setting.source.to_string(),
                    *path,
                    message,
                ));
            }
        }
        other.under(self)
    }

    /// This layer with a higher one on top of it.
    pub(crate) fn under(mut self, higher: Self) -> Self {
        self.top = self.top.over(higher.top);
        self.lists.extend(higher.lists);
        for (id, row) in higher.agents {
            let lower = self.agents.remove(&id).unwrap_or_default();
            self.agents.insert(id, lower.over(row));
        }
        self
    }
}

impl MergedSettings {
    /// The defaults with the given layer on top.
    pub(crate) fn new(layer: Layer) -> Self {
        let agent = || SettingMap::defaults(is_agent_field);
        let top = SettingMap::defaults(|path| list_of(path).is_none() && !is_agent_field(path));
        let lists = layer.lists.into_iter().map(|(list, rows)| {
            let defaults = SettingMap::defaults(|path| list_of(path) == Some(list));
            let rows = rows.into_iter().map(|given| defaults.clone().over(given));
            (list, rows.collect())
        });
        Self {
            top: top.over(layer.top),
            lists: lists.collect(),
            agents: layer
                .agents
                .into_iter()
                .map(|(id, row)| (id, agent().over(row)))
                .collect(),
        }
    }

    /// The tables of a list.
    pub(crate) fn rows(&self, list: &str) -> &[SettingMap] {
        self.lists.get(list).map_or(&[], Vec::as_slice)
    }

    /// Each `[[mcp.auth.tokens]]` as written.
    pub(crate) fn token_entries(&self) -> Vec<TokenEntry> {
        self.read_rows(TOKENS)
    }

    /// Each `[[mcp.upstream]]` as written.
    pub(crate) fn upstream_entries(&self) -> Vec<UpstreamEntry> {
        self.read_rows(UPSTREAMS)
    }

    fn read_rows<T: ReadTable>(&self, list: &str) -> Vec<T> {
        let read = |values| {
            T::read(&TableSource {
                settings: self,
                values,
            })
        };
        self.rows(list).iter().map(read).collect()
    }

    /// Every key in table order, those of named tables with their index or name.
    pub(crate) fn entries(&self) -> Vec<SettingEntry> {
        let mut entries = Vec::new();
        for key in all_settings() {
            match key.kind {
                ValueKind::Tables if self.rows(key.path).is_empty() => {
                    entries.push(empty(key, "[]"));
                }
                ValueKind::Map if self.agents.is_empty() => entries.push(empty(key, "{}")),
                ValueKind::Tables => {
                    for (index, row) in self.rows(key.path).iter().enumerate() {
                        entries.extend(row.entries(&format!("{}[{index}]", key.path)));
                    }
                }
                ValueKind::Map => {
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

impl SettingMap {
    fn entries(&self, table: &str) -> Vec<SettingEntry> {
        all_settings()
            .filter_map(|key| self.entry(key, format!("{table}.{}", key.name())))
            .collect()
    }

    fn entry(&self, key: &SettingDef, shown: String) -> Option<SettingEntry> {
        let setting = self.0.get(key.path)?;
        let text = setting.value.as_ref().map(Value::to_toml);
        Some(SettingEntry {
            key: shown,
            value: text.map(|text| if key.secret { "***".to_owned() } else { text }),
            source: setting.source.clone(),
            secret: key.secret,
        })
    }
}

fn empty(key: &SettingDef, value: &str) -> SettingEntry {
    SettingEntry {
        key: key.path.to_owned(),
        value: Some(value.to_owned()),
        source: SettingSource::Default,
        secret: false,
    }
}

fn default(def: &SettingDef) -> Option<Setting> {
    let value = match (def.kind, &def.default) {
        (ValueKind::Tables | ValueKind::Map, _) => return None,
        (_, DefaultValue::Unset { .. } | DefaultValue::Rule { .. }) => None,
        (_, DefaultValue::Fixed(value)) => Some(value.clone()),
    };
    Some(Setting {
        value,
        source: SettingSource::Default,
    })
}

/// The example of a setting that follows a rule, which is also the value the rule gives most often.
pub(crate) fn example(path: &str) -> Option<Value> {
    find(path).map(|def| def.default.example().clone())
}

/// The list of tables that a key is a field of.
fn list_of(path: &str) -> Option<&str> {
    path.split_once("[].").map(|(list, _)| list)
}

fn is_agent_field(path: &str) -> bool {
    path.contains(".*.")
}

/// A part of a path as TOML writes it: bare where that is possible.
pub(crate) fn quoted(part: &str) -> String {
    toml_edit::Key::new(part).display_repr().into_owned()
}
