//! Which common flags each verb shows: those that matter to it. Every verb takes all of them, so that a script can put the
//! same flags before any verb.

use clap::{Arg, Command, CommandFactory, Id};

use super::Cli;

/// The command line as it is parsed, shown and documented.
pub(crate) fn command() -> Command {
    let command = Cli::command();
    let common: Vec<Arg> = command
        .get_arguments()
        .filter(|arg| arg.is_global_set())
        .cloned()
        .collect();
    let command = command.mut_args(|arg| match arg.is_global_set() {
        true => shown_if(arg, IN_WORKSPACE),
        false => arg,
    });
    command.mut_subcommands(|verb| with_flags(verb, "", &common))
}

const NONE: &[&str] = &[];
/// The verb reads settings.
const SETTINGS: &[&str] = &["config", "root", "sets"];
/// The verb works in a workspace, and logs.
const IN_WORKSPACE: &[&str] = &["config", "root", "log_level", "sets"];
/// The verb serves an MCP client.
const SERVES: &[&str] = &["config", "root", "mode", "log_level", "sets"];
const ALL: &[&str] = &[
    "config",
    "root",
    "mode",
    "host",
    "port",
    "log_level",
    "sets",
];

/// Verbs that show other flags than [`IN_WORKSPACE`].
const VERBS: &[(&str, &[&str])] = &[
    ("mcp", SERVES),
    ("serve", ALL),
    ("tools", &["config", "root", "mode", "sets"]),
    ("health", &["config", "root", "host", "port", "sets"]),
    ("tui", SETTINGS),
    ("config", ALL),
    ("config show", ALL),
    ("config check", ALL),
    ("config init", &["config", "root"]),
    ("repo", ALL),
    ("repo validate", ALL),
    ("init", &["config", "root"]),
    ("trust", SETTINGS),
    ("allow", SETTINGS),
    ("install", SERVES),
    ("uninstall", &["root"]),
    ("completions", NONE),
    ("man", NONE),
];

/// A verb with its own copies of the common flags, those hidden that do not matter to it.
fn with_flags(verb: Command, above: &str, common: &[Arg]) -> Command {
    let path = format!("{above} {}", verb.get_name())
        .trim_start()
        .to_owned();
    let row = VERBS.iter().find(|(name, _)| *name == path);
    let flags = row.map_or(IN_WORKSPACE, |(_, flags)| flags);
    let own: Vec<Id> = verb
        .get_arguments()
        .map(|arg| arg.get_id().clone())
        .collect();
    // A verb's own flag of that name comes first: `llmc allow --host`.
    let copies = common.iter().filter(|arg| !own.contains(arg.get_id()));
    let copies = copies.cloned().map(|arg| {
        let arg = shown_if(arg, flags);
        match (path.as_str(), arg.get_id().as_str()) {
            ("health", "host") => arg.help("Address of the server"),
            ("health", "port") => arg.help("Port of the server"),
            _ => arg,
        }
    });
    verb.args(copies)
        .mut_subcommands(|below| with_flags(below, &path, common))
}

fn shown_if(arg: Arg, flags: &[&str]) -> Arg {
    let hidden = !flags.contains(&arg.get_id().as_str());
    arg.hide(hidden)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_names_a_verb_and_flags_that_there_are() {
        let command = command();
        for (path, flags) in VERBS {
            let mut verb = &command;
            for name in path.split(' ') {
                verb = verb.find_subcommand(name).unwrap();
            }
            for flag in *flags {
                let arg = verb.get_arguments().find(|arg| arg.get_id() == flag);
                assert!(!arg.unwrap().is_hide_set(), "{path} {flag}");
            }
        }
        command.debug_assert();
    }

    #[test]
    fn flags_that_are_not_shown_are_still_taken() {
        let verbs: Vec<String> = command()
            .get_subcommands()
            .filter(|verb| !verb.has_subcommands() && !matches!(verb.get_name(), "tool" | "te"))
            .map(|verb| verb.get_name().to_owned())
            .collect();
        assert!(verbs.len() > 10, "{verbs:?}");
        for verb in verbs {
            for words in [
                ["llmc", "--port", "7", &verb],
                ["llmc", &verb, "--port", "7"],
            ] {
                let found = command().ignore_errors(true).try_get_matches_from(words);
                let found = found.unwrap();
                assert_eq!(found.get_one::<String>("port").unwrap(), "7", "{words:?}");
            }
        }
    }
}
