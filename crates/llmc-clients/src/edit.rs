//! One edit of one text, whatever its format: done, read back, compared.

use crate::client::Format;
use crate::entry::Entry;
use crate::plan::{Change, Others};
use crate::{json, toml, yaml};

/// Why a text is left as it is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// It does not parse: where and why.
    Broken(String),
    /// It parses, but is not what the client writes.
    Unexpected(String),
    /// The name is taken by what this starts.
    Foreign(String),
    /// Something else would be lost.
    WouldLose,
}

/// The text after the change; `None` when no file is left. A missing file is an empty text.
pub(crate) fn edited(
    format: Format,
    text: &str,
    change: &Change,
    others: Others,
) -> Result<Option<String>, Trouble> {
    // A byte order mark stays where it is; parsers need not know.
    let (mark, text) = match text.strip_prefix('\u{feff}') {
        Some(rest) => ("\u{feff}", rest),
        None => ("", text),
    };
    let after = match (format, change) {
        (Format::YamlFile, Change::Install(entry)) => Some(yaml::put(text, entry, others)?),
        (Format::YamlFile, Change::Uninstall(entry)) => yaml::take(text, entry, others)?,
        _ if text.trim().is_empty() => match change {
            Change::Install(entry) => Some(fresh(format, entry)?),
            Change::Uninstall(_) => Some(text.to_owned()),
        },
        (Format::Json { servers, typed }, Change::Install(entry)) => {
            Some(json::put(text, servers, typed, entry, others)?)
        }
        (Format::Json { servers, .. }, Change::Uninstall(entry)) => {
            Some(json::take(text, servers, entry, others)?)
        }
        (Format::Toml { servers }, Change::Install(entry)) => {
            Some(toml::put(text, servers, entry, others)?)
        }
        (Format::Toml { servers }, Change::Uninstall(entry)) => {
            Some(toml::take(text, servers, entry, others)?)
        }
    };
    Ok(after.map(|after| format!("{mark}{after}")))
}

/// A file with this entry and nothing else.
pub(crate) fn fresh(format: Format, entry: &Entry) -> Result<String, Trouble> {
    match format {
        Format::Json { servers, typed } => json::put("{\n}\n", servers, typed, entry, Others::Keep),
        Format::Toml { servers } => toml::put("", servers, entry, Others::Keep),
        Format::YamlFile => Ok(yaml::fresh(entry)),
    }
}
