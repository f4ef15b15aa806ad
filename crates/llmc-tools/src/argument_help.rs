//! What each argument of a tool is for, in words for people.
//!
//! A model reads short schemas, because it pays for every word in every conversation. On the command line words are free:
//! a sentence for each argument, with the remark, default and bounds that the argument type declares.

use serde_json::Value;

use crate::shape::HELP;
use crate::tool::ToolDef;

/// An argument by its name, or by tool and name where that one differs.
const ARGUMENTS: &[(&str, &str)] = &[
    ("a", "First path to compare"),
    ("affected", "Only tests that reach what changed"),
    ("args", "Words for the program"),
    ("argv", "Program and its words, started without a shell"),
    ("atomic", "Undo nothing if a file was changed since"),
    ("b", "Second path to compare"),
    ("base", "What to compare with"),
    ("budget", "Tokens of the answer"),
    ("budget_tokens", "Tokens of all snippets together"),
    ("budget_usd", "Dollars that the analysis may cost"),
    ("chunk", "Which part of the stored result"),
    ("code", "The script, in Python"),
    ("command", "Command to run"),
    ("content", "The new text"),
    ("context", "The text itself, instead of a path"),
    ("context_lines", "Lines around each match"),
    ("count", "Only count the matches in each file"),
    ("cwd", "Working directory"),
    ("depth", "How many levels to follow"),
    ("direction", "Which way to follow calls"),
    ("dry_run", "Show what would happen and change nothing"),
    ("entry", "Entry of the history"),
    ("exist_ok", "Succeed if the directory exists"),
    ("expected_replacements", "How often the old text occurs"),
    (
        "expected_sha256",
        "Refuse unless the file still has this hash, as a read returned it",
    ),
    ("file_glob", "Only files whose names match"),
    ("graph_depth", "Steps to callers and callees"),
    ("handle", "Handle of a stored result"),
    (
        "ignore_case",
        "Match capital and small letters alike; --ignore-case=false does not",
    ),
    ("include_hidden", "Also names that begin with a dot"),
    ("input", "Text for the program's standard input"),
    ("k", "How many snippets"),
    (
        "language",
        "Language of the text, when its name does not show it",
    ),
    ("limit", "How much to return"),
    ("line_numbers", "Number the lines"),
    ("lines", "How many lines"),
    ("literal", "Take the pattern as plain text"),
    ("max_bytes", "Most bytes to read"),
    ("max_lines", "Most lines to return"),
    ("max_results", "Most results to return"),
    ("max_tokens", "Tokens that the answer may take"),
    ("max_turns", "Turns that the analysis may take"),
    ("mode", "Replace the text, or add to its end"),
    ("model", "Model to use, as provider/model"),
    ("new_text", "Text that replaces the old one"),
    ("offset", "Where to begin"),
    ("offset_lines", "Where to begin"),
    ("old_text", "Text to replace, exactly as it is in the file"),
    ("patch", "Unified diff to apply"),
    ("path", "Path in the workspace"),
    (
        "read_file.path",
        "File, FILE:10-20, FILE::SYMBOL or a handle; several with commas",
    ),
    ("history.path", "Only changes at or below this path"),
    ("paths", "Tests to run"),
    ("pattern", "What to look for"),
    ("pid", "Process number"),
    ("proc", "Background command to wait for"),
    ("proc_id", "Background process, as its start returned it"),
    ("pty", "Run in a terminal"),
    ("query", "Words, a name or a pasted error"),
    ("raw", "Print matches as they are"),
    ("recursive", "Also directories with what is in them"),
    ("root", "Directory or file to search"),
    ("scope", "What to search"),
    ("session", "Session"),
    ("session_id", "Your name for the session"),
    ("signal", "Signal to send"),
    ("source", "Path to move"),
    (
        "symbol",
        "Name of a symbol, such as take, Pool::take or src/pool.rs#Pool::take",
    ),
    ("target", "New path"),
    ("task", "The question or task"),
    ("task_id", "The task, in words"),
    ("timeout", "Time limit in seconds"),
    ("timeout_s", "Time limit in seconds"),
    ("to", "Undo everything since this time"),
    ("until", "Wait until the output matches"),
];

impl ToolDef {
    /// What an argument is for, its default and its bounds, in one line.
    pub fn argument_help(&self, name: &str) -> String {
        let argument = self.arguments().get(name);
        let field = |key: &str| argument.and_then(|argument| argument.get(key));
        let own = format!("{}.{name}", self.name);
        let row = |wanted: &str| ARGUMENTS.iter().find(|(row, _)| *row == wanted);
        let known = row(&own).or_else(|| row(name)).map(|(_, text)| *text);
        let remark = [HELP, "description"]
            .into_iter()
            .find_map(|key| field(key)?.as_str());
        let mut remarks: Vec<String> = remark.into_iter().map(str::to_owned).collect();
        let says = |word: &str| remark.is_some_and(|remark| remark.contains(word));
        if let Some(default) = field("default").filter(|value| !value.is_null())
            && !says("default")
        {
            remarks.push(format!("default {}", plain(default)));
        }
        match (field("minimum"), field("maximum")) {
            (Some(low), Some(high)) => remarks.push(format!("{low} to {high}")),
            (None, Some(high)) => remarks.push(format!("at most {high}")),
            // That a count is not negative needs no words.
            (Some(low), None) if low.as_f64().is_some_and(|low| low > 0.0) => {
                remarks.push(format!("at least {low}"));
            }
            _ => {}
        }
        let remarks = remarks.join("; ");
        match (known, remarks.is_empty()) {
            (Some(known), true) => known.to_owned(),
            (Some(known), false) => format!("{known} ({remarks})"),
            (None, _) => remarks,
        }
    }
}

fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{self, TOOLS};

    #[test]
    fn every_argument_is_described_and_no_row_is_left_over() {
        let mut used = std::collections::BTreeSet::new();
        for tool in TOOLS {
            for name in tool.argument_names() {
                let help = tool.argument_help(name);
                assert!(
                    help.starts_with(|first: char| first.is_uppercase() || first == '-'),
                    "{}.{name} needs a row in ARGUMENTS: {help:?}",
                    tool.name
                );
                assert!(!help.contains('\n') && help.len() < 160, "{help}");
                used.extend([name.to_owned(), format!("{}.{name}", tool.name)]);
            }
        }
        for (row, _) in ARGUMENTS {
            assert!(used.contains(*row), "{row}: no tool has this argument");
        }
    }

    #[test]
    fn defaults_and_bounds_are_part_of_it() {
        let help = |tool: &str, name: &str| catalog::find(tool).unwrap().argument_help(name);
        assert_eq!(
            help("linux_search_content", "context_lines"),
            "Lines around each match (0 makes snippet the line alone; default 3; 0 to 10)"
        );
        assert_eq!(help("linux_search_content", "pattern"), "What to look for");
        assert_eq!(
            help("linux_handle_read", "limit").matches("65536").count(),
            1
        );
    }
}
