//! What is wrong with a configuration: every problem found, each with its place and key.

use std::fmt;

/// One thing that is wrong, printed as `place: key: message`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where the value stands: `llmc.toml:12`, an environment name or a flag; empty when it stands nowhere.
    pub place: String,
    /// The key it is about, empty when it is about the whole input.
    pub key: String,
    /// What is wrong and what would be right, never quoting a secret.
    pub message: String,
}

impl Problem {
    pub(crate) fn new(
        place: impl Into<String>,
        key: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            place: place.into(),
            key: key.into(),
            message: message.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in [&self.place, &self.key] {
            if !part.is_empty() {
                write!(f, "{part}: ")?;
            }
        }
        f.write_str(&self.message)
    }
}

/// Everything wrong with a configuration, printed one problem a line; there is always at least one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", lines(.problems))]
pub struct ConfigError {
    /// The problems, in the order in which the layers were read.
    pub problems: Vec<Problem>,
}

impl ConfigError {
    pub(crate) fn one(problem: Problem) -> Self {
        Self {
            problems: vec![problem],
        }
    }
}

fn lines(problems: &[Problem]) -> String {
    let lines: Vec<String> = problems.iter().map(Problem::to_string).collect();
    lines.join("\n")
}
