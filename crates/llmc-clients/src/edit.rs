//! One edit of one settings text in any format. Each format reads its result back and compares it with the original.

use crate::client::SettingsFormat;
use crate::entry::ServerEntry;
use crate::plan::{NameConflict, SettingsChange};
use crate::servers::ClientServer;
use crate::{json, toml, yaml, yaml_servers};

/// Why a text is left as it is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum EditError {
    /// It does not parse: where and why.
    Broken(String),
    /// It parses, but is not what the client writes.
    Unexpected(String),
    /// Another entry, which starts this, has the name.
    NameTaken(String),
    /// The result lacks something that was there.
    WouldLoseContent,
}

/// The text after the change; `None` when no file is left. A missing file is an empty text.
pub(crate) fn edit_text(
    format: SettingsFormat,
    text: &str,
    change: &SettingsChange,
    conflict: NameConflict,
) -> Result<Option<String>, EditError> {
    // A byte order mark stays where it is; parsers need not know.
    let (mark, text) = match text.strip_prefix('\u{feff}') {
        Some(rest) => ("\u{feff}", rest),
        None => ("", text),
    };
    let after = match (format, change) {
        (SettingsFormat::YamlFile, SettingsChange::Install(entry)) => {
            Some(yaml::insert_entry(text, entry, conflict)?)
        }
        (SettingsFormat::YamlFile, SettingsChange::Uninstall(entry)) => {
            yaml::remove_entry(text, entry, conflict)?
        }
        (SettingsFormat::YamlFile, SettingsChange::Retire(other)) => {
            Some(yaml_servers::remove_named(text, &other.entry)?)
        }
        _ if text.trim().is_empty() => match change {
            SettingsChange::Install(entry) => Some(new_file(format, entry)?),
            SettingsChange::Uninstall(_) | SettingsChange::Retire(_) => Some(text.to_owned()),
        },
        (SettingsFormat::Json { servers, typed }, SettingsChange::Install(entry)) => {
            Some(json::insert_entry(text, servers, typed, entry, conflict)?)
        }
        (SettingsFormat::Json { servers, .. }, SettingsChange::Uninstall(entry)) => {
            Some(json::remove_entry(text, servers, entry, conflict)?)
        }
        (SettingsFormat::Toml { servers }, SettingsChange::Install(entry)) => {
            Some(toml::insert_entry(text, servers, entry, conflict)?)
        }
        (SettingsFormat::Toml { servers }, SettingsChange::Uninstall(entry)) => {
            Some(toml::remove_entry(text, servers, entry, conflict)?)
        }
        (SettingsFormat::Json { servers, .. }, SettingsChange::Retire(other)) => {
            Some(json::remove_named(text, servers, &other.entry)?)
        }
        (SettingsFormat::Toml { servers }, SettingsChange::Retire(other)) => {
            Some(toml::remove_named(text, servers, &other.entry)?)
        }
    };
    Ok(after.map(|after| format!("{mark}{after}")))
}

/// The arguments with which an entry in this text starts the same server.
pub(crate) fn args_of(
    format: SettingsFormat,
    text: &str,
    entry: &ServerEntry,
) -> Option<Vec<String>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    match format {
        SettingsFormat::Json { servers, .. } => json::args_of(text, servers, entry),
        SettingsFormat::Toml { servers } => toml::args_of(text, servers, entry),
        SettingsFormat::YamlFile => yaml::args_of(text, entry),
    }
}

/// Every server that this text starts, as far as it can be read.
pub(crate) fn started_servers(format: SettingsFormat, text: &str) -> Vec<ClientServer> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    match format {
        SettingsFormat::Json { servers, .. } => json::started_servers(text, servers),
        SettingsFormat::Toml { servers } => toml::started_servers(text, servers),
        SettingsFormat::YamlFile => yaml_servers::started_servers(text),
    }
    .unwrap_or_default()
}

/// A file with this entry and nothing else.
pub(crate) fn new_file(format: SettingsFormat, entry: &ServerEntry) -> Result<String, EditError> {
    match format {
        SettingsFormat::Json { servers, typed } => {
            json::insert_entry("{\n}\n", servers, typed, entry, NameConflict::Refuse)
        }
        SettingsFormat::Toml { servers } => {
            toml::insert_entry("", servers, entry, NameConflict::Refuse)
        }
        SettingsFormat::YamlFile => Ok(yaml::new_file(entry)),
    }
}
