//! What a verb means that this program does not have: verbs of other programs, names of tools, and programs for `te`.

use std::path::Path;

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use llmc_tools::{catalog, nearest};

use super::command;

/// Verbs with the words that other programs have for them.
const MEANINGS: &[(&str, &[&str])] = &[
    ("mcp", &["stdio", "mcp-server"]),
    (
        "serve",
        &["start", "server", "daemon", "http", "listen", "up"],
    ),
    ("dashboard", &["web", "ui", "gui", "browser", "view"]),
    (
        "install",
        &["setup", "set-up", "add", "register", "connect", "integrate"],
    ),
    (
        "uninstall",
        &["remove", "unregister", "disconnect", "teardown"],
    ),
    ("init", &["new", "create", "generate", "bootstrap"]),
    ("config show", &["settings", "options", "preferences"]),
    ("config check", &["check", "validate", "lint"]),
    ("tui", &["monitor", "watch", "live", "top", "stats"]),
    ("tools", &["list", "list-tools", "tools-list", "commands"]),
    ("tool", &["call", "call-tool", "invoke"]),
    ("te", &["run", "exec", "shell", "sh"]),
    ("te analyze", &["analyze", "analyse", "savings"]),
    ("rag index", &["index", "reindex"]),
    ("rag search", &["search", "query", "ask", "lookup"]),
    ("rag where-used", &["where-used", "usages", "references"]),
    ("rlm query", &["analyze-file", "summarize", "summarise"]),
    ("history", &["log", "changes", "journal"]),
    ("undo", &["revert", "rollback", "restore"]),
    (
        "doctor",
        &["diagnose", "selftest", "self-test", "test", "verify"],
    ),
    ("health", &["ping", "status", "healthcheck", "alive"]),
    ("trust", &["approve", "accept"]),
    ("allow", &["permit", "grant", "whitelist", "allowlist"]),
    ("completions", &["completion", "complete", "autocomplete"]),
    ("man", &["manual", "docs"]),
];

/// Adds what an unknown verb means to clap's error, which by itself only looks for a similar spelling.
pub(crate) fn suggest(error: &mut clap::Error) {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return;
    }
    // Verbs below another one (`llmc rag …`) have few and similar names; spelling is enough there.
    let usage = error.get(ContextKind::Usage).map(ToString::to_string);
    let usage = usage.unwrap_or_default();
    if usage.split_whitespace().nth(2) != Some("[OPTIONS]") {
        return;
    }
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else {
        return;
    };
    let (tip, misspelt) = match (meaning(word), is_program(word)) {
        (Some(tip), _) => (tip, false),
        (None, true) => {
            let tip =
                format!("`llmc te {word} …`: run it and print a condensed form of its output");
            let command = command();
            let verbs = command.get_subcommands().map(Command::get_name);
            // A misspelt verb may be the name of a program as well. Few people misspell the first letter.
            let alike = verbs.filter(|verb| verb.chars().next() == word.chars().next());
            (tip, nearest(word, alike).is_some())
        }
        (None, false) => match misspelt_meaning(word) {
            Some(tip) => (tip, false),
            None => return,
        },
    };
    // clap finds verbs that look alike at a distance; `grep` is not `repo`.
    if !misspelt {
        error.remove(ContextKind::SuggestedSubcommand);
    }
    let tips = ContextValue::StyledStrs(vec![tip.into()]);
    error.insert(ContextKind::Suggested, tips);
}

/// The command line that was meant, and what it does.
fn meaning(word: &str) -> Option<String> {
    let plain = word.to_ascii_lowercase().replace('_', "-");
    let known = MEANINGS.iter().find(|(_, words)| words.contains(&&*plain));
    if let Some((verb, _)) = known {
        let about = about(verb).unwrap_or_default();
        return Some(format!("`llmc {verb}`: {about}"));
    }
    let tool = catalog::find(word)?;
    Some(format!("`llmc tool {word}`: {}", tool.description()))
}

/// The same for a misspelt word of another program (`serach`), unless a verb of this one is nearer.
fn misspelt_meaning(word: &str) -> Option<String> {
    let command = command();
    let verbs = command.get_subcommands().map(Command::get_name);
    let others = MEANINGS.iter().flat_map(|(_, words)| words.iter().copied());
    let found = nearest(word, others.chain(verbs))?;
    match command.find_subcommand(found) {
        Some(_) => None,
        None => meaning(found),
    }
}

fn about(verb: &str) -> Option<String> {
    let mut found = command();
    for name in verb.split(' ') {
        // The verbs of `te` are its own.
        let Some(below) = found.find_subcommand(name) else {
            break;
        };
        found = below.clone();
    }
    found.get_about().map(ToString::to_string)
}

/// Whether a program of this name is on the search path.
fn is_program(word: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    !word.is_empty()
        && Path::new(word).file_name().is_some_and(|name| name == word)
        && std::env::split_paths(&path).any(|folder| folder.join(word).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_has_one_meaning_and_every_meaning_is_a_verb() {
        let command = command();
        let mut words = std::collections::BTreeSet::new();
        for (verb, others) in MEANINGS {
            let first = verb.split(' ').next().unwrap();
            assert!(command.find_subcommand(first).is_some(), "{verb}");
            for word in *others {
                assert!(words.insert(*word), "{word} twice");
                assert!(command.find_subcommand(word).is_none(), "{word} is a verb");
            }
        }
    }
    #[test]
    fn a_misspelt_word_is_taken_for_the_nearest() {
        for (word, verb) in [("serach", "`llmc rag search`"), ("statr", "`llmc serve`")] {
            let tip = misspelt_meaning(word).unwrap();
            assert!(tip.starts_with(verb), "{word}: {tip}");
        }
        for word in ["dashbord", "instal", "hstory", "quux"] {
            assert_eq!(misspelt_meaning(word), None, "{word}");
        }
    }
}
