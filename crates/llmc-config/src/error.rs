//! Why a configuration is refused: every problem found, each with its place and key.

use std::fmt;
use std::io;

/// One thing that is wrong, printed as `place: key: message`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigProblem {
    /// Where the value stands: `llmc.toml:12`, an environment name or a flag; empty when it stands nowhere.
    pub place: String,
    /// The key it is about, empty when it is about the whole input.
    pub key: String,
    /// What is wrong and what would be right, never quoting a secret.
    pub message: String,
}

impl ConfigProblem {
    pub(crate) fn new(
        place: impl Into<String>,
        key: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            place: place.into(),
            key: visible(key.into()),
            message: visible(message.into()),
        }
    }
}

/// Control characters as escapes. What is wrong may be quoted from a file that another person wrote, and is printed to
/// terminals, where it must neither act nor begin a line.
fn visible(text: String) -> String {
    if !text.contains(char::is_control) {
        return text;
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c.is_control() {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    shown
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in [&self.place, &self.key] {
            if !part.is_empty() {
                write!(f, "{part}: ")?;
            }
        }
        f.write_str(&self.message)
    }
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The workspace root or the configuration file.
    #[error("{}{path}: {source}", asker.map(|asker| format!("{asker}: ")).unwrap_or_default())]
    Unreadable {
        /// The flag or environment variable that names it.
        asker: Option<&'static str>,
        path: String,
        source: io::Error,
    },
    /// One or more problems, in the order in which the layers were read; printed one a line.
    #[error("{}", lines(.0))]
    Invalid(Vec<ConfigProblem>),
}

fn lines(problems: &[ConfigProblem]) -> String {
    let lines: Vec<String> = problems.iter().map(ConfigProblem::to_string).collect();
    lines.join("\n")
}
