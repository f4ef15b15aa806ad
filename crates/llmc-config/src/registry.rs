//! Rows of the declarations, and how they are found.
//!
//! Some paths hold more than one table: `mcp.auth.tokens[]` stands for each `[[mcp.auth.tokens]]`, `mcp.te.agents.*`
//! for each `[mcp.te.agents."ID"]`. Declarations use these forms; everything shown to people has the index or the name.

use crate::declarations::TABLES;
use crate::value::{Value, ValueKind};

/// One setting: everything that its declaration says.
#[derive(Debug)]
pub(crate) struct SettingDef {
    /// Dotted path, as in TOML.
    pub(crate) path: &'static str,
    pub(crate) kind: ValueKind,
    pub(crate) default: DefaultValue,
    /// One sentence on what it does.
    pub(crate) doc: &'static str,
    /// A second, shorter environment name.
    pub(crate) short_env: Option<&'static str>,
    /// The path it had in earlier versions, which is still read.
    pub(crate) former_path: Option<&'static str>,
    /// Whether its value is masked wherever it is shown.
    pub(crate) secret: bool,
    /// Whether a workspace's file sets it only with the user's trust. Fields of a list of tables are as the list.
    pub(crate) is_security: bool,
}

/// A table with its settings.
#[derive(Debug)]
pub(crate) struct TableDef {
    pub(crate) path: &'static str,
    /// One sentence on what it is for.
    pub(crate) doc: &'static str,
    pub(crate) settings: Vec<SettingDef>,
}

/// The value of a setting that no layer gives.
#[derive(Debug)]
pub(crate) enum DefaultValue {
    Fixed(Value),
    /// None; the example is for the template.
    Unset {
        example: Value,
    },
    /// It follows from other settings; the example is what the rule gives most often.
    Rule {
        example: Value,
        /// The rule in words.
        says: &'static str,
    },
}

impl DefaultValue {
    pub(crate) fn example(&self) -> &Value {
        match self {
            Self::Fixed(value) => value,
            Self::Unset { example } | Self::Rule { example, .. } => example,
        }
    }
}

impl SettingDef {
    /// The environment name, `None` for fields of a list of tables, which are set as a whole.
    pub(crate) fn env_name(&self) -> Option<String> {
        if self.path.contains("[]") {
            return None;
        }
        let name = self.path.to_uppercase().replace('.', "__");
        Some(format!("LLMC_{}", name.replace('*', "<ID>")))
    }

    /// Whether a workspace's file sets it, or the list of tables that it is a field of, only with the user's trust.
    pub(crate) fn needs_trust(&self) -> bool {
        let list = self.path.split_once("[].").and_then(|(list, _)| find(list));
        list.unwrap_or(self).is_security
    }

    /// Its name inside its table.
    pub(crate) fn name(&self) -> &'static str {
        split(self.path).1
    }
}

/// Every setting, in reading order.
pub(crate) fn all_settings() -> impl Iterator<Item = &'static SettingDef> {
    TABLES.iter().flat_map(|table| &table.settings)
}

/// The setting with exactly this path, now or in earlier versions.
pub(crate) fn find(path: &str) -> Option<&'static SettingDef> {
    all_settings()
        .find(|setting| setting.path == path)
        .or_else(|| all_settings().find(|setting| setting.former_path == Some(path)))
}

/// Whether the path names a table rather than a value.
pub(crate) fn is_table(path: &str) -> bool {
    TABLES.iter().any(|table| {
        let rest = table.path.strip_prefix(path);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    })
}

/// The known path that a misspelt one most likely means.
///
/// The right name in the wrong table comes first, then a similar name in the right table, then whatever path looks
/// most alike.
pub(crate) fn nearest(path: &str) -> &'static str {
    nearest_of(path, all_settings()).map_or("", |setting| setting.path)
}

/// The environment name of the nearest setting that has one.
pub(crate) fn nearest_env(path: &str) -> String {
    let settings = all_settings().filter(|setting| setting.env_name().is_some());
    let nearest = nearest_of(path, settings);
    nearest.and_then(SettingDef::env_name).unwrap_or_default()
}

fn nearest_of(
    path: &str,
    settings: impl Iterator<Item = &'static SettingDef>,
) -> Option<&'static SettingDef> {
    let (table, name) = split(path);
    let likeness = |known: &str| {
        let (known_table, known_name) = split(known);
        let whole = strsim::normalized_damerau_levenshtein(path, known);
        let same_name = f64::from(known_name == name);
        let alike = strsim::normalized_damerau_levenshtein(name, known_name);
        let near = f64::from(known_table == table && alike >= 0.6);
        whole + same_name + near
    };
    let score = |setting: &SettingDef| {
        let former = setting.former_path.map_or(0.0, likeness);
        likeness(setting.path).max(former)
    };
    settings.max_by(|a, b| score(a).total_cmp(&score(b)))
}

fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('.').unwrap_or(("", path))
}
