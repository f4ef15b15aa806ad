//! Continue's way: a YAML file of its own for each server.
//!
//! The file is ours from its first line on, so no YAML needs to be understood: what is there is either a file that this
//! module wrote, in which two lines are renewed and everything else is the user's, or somebody else's.

use serde_json::json;

use crate::edit::Trouble;
use crate::entry::Entry;
use crate::plan::Others;

/// By this line a file is known for one of ours.
const MARK: &str =
    "# Written by `llmc install continue`; the lines `command` and `args` are renewed by it.";

const COMMAND: &str = "    command: ";
const ARGS: &str = "    args: ";

pub(crate) fn fresh(entry: &Entry) -> String {
    let name = entry.name();
    format!(
        "{MARK}\nname: {name}\nversion: 0.0.1\nschema: v1\nmcpServers:\n  - name: {name}\n    type: stdio\n{}\n{}\n",
        command(entry),
        args(entry)
    )
}

pub(crate) fn put(text: &str, entry: &Entry, others: Others) -> Result<String, Trouble> {
    if text.trim().is_empty() {
        return Ok(fresh(entry));
    }
    match (renewed(text, entry), others) {
        (Some(text), _) => Ok(text),
        (None, Others::Replace) => Ok(fresh(entry)),
        (None, Others::Keep) => Err(foreign()),
    }
}

/// Nothing is left of a file that is ours alone.
pub(crate) fn take(text: &str, entry: &Entry, others: Others) -> Result<Option<String>, Trouble> {
    if text.trim().is_empty() {
        return Ok(Some(text.to_owned()));
    }
    match renewed(text, entry).is_some() || others == Others::Replace {
        true => Ok(None),
        false => Err(foreign()),
    }
}

/// The text with its two lines renewed; `None` when it is not ours, or no longer as we write it.
fn renewed(text: &str, entry: &Entry) -> Option<String> {
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

fn command(entry: &Entry) -> String {
    format!("{COMMAND}{}", json!(entry.command))
}

fn args(entry: &Entry) -> String {
    let args: Vec<String> = entry
        .args
        .iter()
        .map(|arg| json!(arg).to_string())
        .collect();
    format!("{ARGS}[{}]", args.join(", "))
}

fn foreign() -> Trouble {
    Trouble::Foreign("the file was not written by `llmc install`".to_owned())
}
