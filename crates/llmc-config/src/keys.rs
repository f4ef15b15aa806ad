//! What a row of the key table says, and how rows are found.
//!
//! Two paths hold more than one table: `mcp.auth.tokens[]` stands for each `[[mcp.auth.tokens]]`, `mcp.te.agents.*`
//! for each `[mcp.te.agents."ID"]`. Paths in the table use these forms; everything shown to people uses the index or
//! the name.

use crate::table::{KEYS, SECTIONS};
use crate::value::Kind;

/// One setting: everything that is known about it, in one place.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// Dotted path, as in TOML.
    pub path: &'static str,
    /// What values it takes.
    pub kind: Kind,
    /// The value it has when nobody sets it.
    pub initial: Initial,
    /// One sentence on what it does.
    pub doc: &'static str,
    /// A second, shorter environment name.
    pub short_env: Option<&'static str>,
    /// The path it had in earlier versions, which is still read.
    pub former_path: Option<&'static str>,
    /// Whether its value is masked wherever it is shown.
    pub secret: bool,
}

/// The value of a key that no layer sets.
#[derive(Debug, Clone, Copy)]
pub enum Initial {
    /// This TOML value.
    Toml(&'static str),
    /// No value; the example shows what one would look like.
    Unset {
        /// A TOML value for the template.
        example: &'static str,
    },
    /// A value that follows from other keys.
    Rule {
        /// A TOML value for the template.
        example: &'static str,
        /// The rule in words.
        says: &'static str,
    },
}

impl Key {
    pub(crate) const fn new(
        path: &'static str,
        kind: Kind,
        initial: Initial,
        doc: &'static str,
    ) -> Self {
        Self {
            path,
            kind,
            initial,
            doc,
            short_env: None,
            former_path: None,
            secret: false,
        }
    }

    pub(crate) const fn short(mut self, name: &'static str) -> Self {
        self.short_env = Some(name);
        self
    }

    pub(crate) const fn formerly(mut self, path: &'static str) -> Self {
        self.former_path = Some(path);
        self
    }

    pub(crate) const fn secret(mut self) -> Self {
        self.secret = true;
        self
    }

    /// The environment name, `None` for fields of a list of tables, which are set as a whole.
    pub fn env_name(&self) -> Option<String> {
        if self.path.contains("[]") {
            return None;
        }
        let name = self.path.to_uppercase().replace('.', "__");
        Some(format!("LLMC_{}", name.replace('*', "<ID>")))
    }

    /// The path of the table that holds it.
    pub fn section(&self) -> &'static str {
        self.path
            .rsplit_once('.')
            .map_or("", |(section, _)| section)
    }

    /// Its name inside that table.
    pub fn name(&self) -> &'static str {
        self.path
            .rsplit_once('.')
            .map_or(self.path, |(_, name)| name)
    }
}

/// The row with exactly this path, now or in earlier versions.
pub fn find(path: &str) -> Option<&'static Key> {
    let exact = KEYS.iter().find(|key| key.path == path);
    exact.or_else(|| KEYS.iter().find(|key| key.former_path == Some(path)))
}

/// Whether the path names a table rather than a value.
pub(crate) fn is_section(path: &str) -> bool {
    SECTIONS.iter().any(|(section, _)| {
        section == &path
            || section
                .strip_prefix(path)
                .is_some_and(|rest| rest.starts_with('.'))
    })
}

/// The known key that a misspelt path most likely means.
///
/// The right name in the wrong table comes first, then a similar name in the right table, then whatever path looks
/// most alike.
pub fn nearest(path: &str) -> &'static str {
    nearest_of(path, KEYS.iter()).map_or("", |key| key.path)
}

/// The environment name of the nearest key that has one.
pub(crate) fn nearest_env(path: &str) -> String {
    let keys = KEYS.iter().filter(|key| key.env_name().is_some());
    let key = nearest_of(path, keys);
    key.and_then(Key::env_name).unwrap_or_default()
}

fn nearest_of(path: &str, keys: impl Iterator<Item = &'static Key>) -> Option<&'static Key> {
    let (section, name) = path.rsplit_once('.').unwrap_or(("", path));
    let likeness = |known: &str| {
        let (known_section, known_name) = known.rsplit_once('.').unwrap_or(("", known));
        let whole = strsim::normalized_damerau_levenshtein(path, known);
        let same_name = f64::from(known_name == name);
        let alike = strsim::normalized_damerau_levenshtein(name, known_name);
        let near = f64::from(known_section == section && alike >= 0.6);
        whole + same_name + near
    };
    let score = |key: &Key| likeness(key.path).max(key.former_path.map_or(0.0, likeness));
    keys.max_by(|a, b| score(a).total_cmp(&score(b)))
}
