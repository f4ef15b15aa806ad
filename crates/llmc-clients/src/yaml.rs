//! Entries of Continue: one YAML file for each server.
//!
//! This module only edits files that it wrote, recognised by their first line, so it needs no YAML parser: it renews two
//! lines and leaves the rest to the user.

use serde_json::json;

use crate::edit::EditError;
use crate::entry::ServerEntry;
use crate::plan::NameConflict;

/// First line of every file that this module writes.
const MARK: &str =
    "# Written by `llmc install continue`; the lines `command` and `args` are renewed by it.";

const COMMAND: &str = "    command: ";
const ARGS: &str = "    args: ";

pub(crate) fn new_file(entry: &ServerEntry) -> String {
    let name = entry.name();
    format!(
        "{MARK}\nname: {name}\nversion: 0.0.1\nschema: v1\nmcpServers:\n  - name: {name}\n    type: stdio\n{}\n{}\n",
        command(entry),
        args(entry)
    )
}

pub(crate) fn insert_entry(
    text: &str,
    entry: &ServerEntry,
    conflict: NameConflict,
) -> Result<String, EditError> {
    if text.trim().is_empty() {
        return Ok(new_file(entry));
    }
    match (renew_lines(text, entry), conflict) {
        (Some(text), _) => Ok(text),
        (None, NameConflict::Replace) => Ok(new_file(entry)),
        (None, NameConflict::Refuse) => Err(not_ours()),
    }
}

/// The arguments of an entry that this module wrote.
pub(crate) fn args_of(text: &str, entry: &ServerEntry) -> Option<Vec<String>> {
    renew_lines(text, entry)?;
    let line = text.lines().find_map(|line| line.strip_prefix(ARGS))?;
    serde_json::from_str(line).ok()
}

/// `None` when the file is to be removed.
pub(crate) fn remove_entry(
    text: &str,
    entry: &ServerEntry,
    conflict: NameConflict,
) -> Result<Option<String>, EditError> {
    if text.trim().is_empty() {
        return Ok(Some(text.to_owned()));
    }
    if renew_lines(text, entry).is_some() || conflict == NameConflict::Replace {
        Ok(None)
    } else {
        Err(not_ours())
    }
}

/// The text with its two lines renewed; `None` when this module did not write it or its lines were changed.
fn renew_lines(text: &str, entry: &ServerEntry) -> Option<String> {
    let ours = text.lines().next()? == MARK;
    let once = |start: &str| text.lines().filter(|line| line.starts_with(start)).count() == 1;
    if !ours || !once(COMMAND) || !once(ARGS) {
        return None;
    }
    let lines = text.split_inclusive('\n').map(|line| {
        let new = match line {
            _ if line.starts_with(COMMAND) => command(entry),
            _ if line.starts_with(ARGS) => args(entry),
            _ => return line.to_owned(),
        };
        let end = &line[line.trim_end_matches(['\r', '\n']).len()..];
        format!("{new}{end}")
    });
    Some(lines.collect())
}

// A JSON string is a double-quoted YAML string, and a JSON list a YAML one.

fn command(entry: &ServerEntry) -> String {
    format!("{COMMAND}{}", json!(entry.command))
}

fn args(entry: &ServerEntry) -> String {
    let args: Vec<String> = entry
        .args
        .iter()
        .map(|arg| json!(arg).to_string())
        .collect();
    format!("{ARGS}[{}]", args.join(", "))
}

fn not_ours() -> EditError {
    EditError::NameTaken("the file was not written by `llmc install`".to_owned())
}
