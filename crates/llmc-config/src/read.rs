//! From a merged setting to the type of a struct field.
//!
//! Values were checked against the key table when they were read, so a field that does not fit can only be a field
//! whose type contradicts its row; every test that loads the defaults would stop there.

use std::collections::BTreeMap;
use std::str::FromStr;

use crate::settings::{Row, Settings};
use crate::types::{AgentBudget, NamedToken};
use crate::value::Value;

/// A type that can be read from the merged settings at a path.
pub(crate) trait Read {
    fn read(settings: &Settings, path: &str) -> Self;
}

/// An enum read from one word.
pub(crate) trait Choice: FromStr {}

impl Read for bool {
    fn read(settings: &Settings, path: &str) -> Self {
        match settings.top.value(path) {
            Some(Value::Bool(value)) => *value,
            other => disagree(path, other),
        }
    }
}

impl Read for u64 {
    fn read(settings: &Settings, path: &str) -> Self {
        match settings.top.value(path) {
            Some(Value::Int(value)) => *value,
            other => disagree(path, other),
        }
    }
}

impl Read for u32 {
    fn read(settings: &Settings, path: &str) -> Self {
        narrow(settings, path)
    }
}

impl Read for u16 {
    fn read(settings: &Settings, path: &str) -> Self {
        narrow(settings, path)
    }
}

impl Read for f64 {
    fn read(settings: &Settings, path: &str) -> Self {
        match settings.top.value(path) {
            Some(Value::Float(value)) => *value,
            other => disagree(path, other),
        }
    }
}

impl Read for String {
    fn read(settings: &Settings, path: &str) -> Self {
        text(&settings.top, path).unwrap_or_else(|| disagree(path, settings.top.value(path)))
    }
}

impl Read for Vec<String> {
    fn read(settings: &Settings, path: &str) -> Self {
        match settings.top.value(path) {
            Some(Value::List(values)) => values.clone(),
            other => disagree(path, other),
        }
    }
}

impl<T: Choice> Read for T {
    fn read(settings: &Settings, path: &str) -> Self {
        let word = text(&settings.top, path);
        word.and_then(|word| word.parse().ok())
            .unwrap_or_else(|| disagree(path, settings.top.value(path)))
    }
}

impl Read for Option<String> {
    fn read(settings: &Settings, path: &str) -> Self {
        if_set(settings, path)
    }
}

impl Read for Option<f64> {
    fn read(settings: &Settings, path: &str) -> Self {
        if_set(settings, path)
    }
}

impl Read for Option<Vec<String>> {
    fn read(settings: &Settings, path: &str) -> Self {
        if_set(settings, path)
    }
}

impl Read for Vec<NamedToken> {
    fn read(settings: &Settings, _path: &str) -> Self {
        // Rows that are no tokens were reported, and the load given up, before this runs.
        settings
            .tokens
            .iter()
            .filter_map(|row| NamedToken::from_row(row).ok())
            .collect()
    }
}

impl Read for BTreeMap<String, AgentBudget> {
    fn read(settings: &Settings, _path: &str) -> Self {
        let budget = |row: &Row| AgentBudget {
            budget_tokens: int(row, "mcp.te.agents.*.budget_tokens"),
            session_budget_tokens: int(row, "mcp.te.agents.*.session_budget_tokens"),
        };
        settings
            .agents
            .iter()
            .map(|(id, row)| (id.clone(), budget(row)))
            .collect()
    }
}

fn if_set<T: Read>(settings: &Settings, path: &str) -> Option<T> {
    settings
        .top
        .value(path)
        .is_some()
        .then(|| T::read(settings, path))
}

fn narrow<T: TryFrom<u64>>(settings: &Settings, path: &str) -> T {
    let wide = u64::read(settings, path);
    T::try_from(wide).unwrap_or_else(|_| disagree(path, settings.top.value(path)))
}

pub(crate) fn text(row: &Row, path: &str) -> Option<String> {
    match row.value(path) {
        Some(Value::Text(text)) => Some(text.clone()),
        _ => None,
    }
}

pub(crate) fn int(row: &Row, path: &str) -> Option<u64> {
    match row.value(path) {
        Some(Value::Int(value)) => Some(*value),
        _ => None,
    }
}

fn disagree(path: &str, value: Option<&Value>) -> ! {
    let kind = value.map(std::mem::discriminant);
    panic!("the struct field for {path} does not fit its row in the key table ({kind:?})")
}
