//! The words of a command: what is started, and which program prints the output.
//!
//! A shell line is started as `bash -c LINE`. The output is that of its last command, so that is the one that condensing
//! asks about. Finding it needs no full shell grammar: where a line has more structure than lists and pipelines of simple
//! commands, the printing program counts as unknown.

use llmc_config::ExecProfile;
use llmc_exec::split_words;

use crate::cx::Cx;
use crate::error::{Error, Result};

/// Shells that run a line, best first.
const SHELLS: [&str; 2] = ["bash", "sh"];
/// Words that make a line more than a list of simple commands.
const KEYWORDS: [&str; 16] = [
    "for", "while", "until", "if", "case", "select", "function", "do", "done", "then", "else",
    "elif", "fi", "esac", "{", "}",
];

/// A command, ready to be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommandWords {
    /// What is started.
    pub(crate) argv: Vec<String>,
    /// The words of the program whose output is read: the last command of a shell line.
    pub(crate) printed_by: Vec<String>,
    /// The command as the caller wrote it.
    pub(crate) text: String,
}

impl CommandWords {
    /// From the arguments of a tool. A line goes to a shell where one may run, else it is split by POSIX rules.
    pub(crate) fn new(
        cx: &Cx,
        command: Option<String>,
        argv: Option<Vec<String>>,
    ) -> Result<CommandWords> {
        let command = command.filter(|line| !line.is_empty());
        let argv = argv.filter(|words| !words.is_empty());
        match (command, argv) {
            (None, Some(argv)) => Ok(CommandWords::from_argv(argv)),
            (Some(line), None) => CommandWords::from_line(cx, line),
            (Some(_), Some(_)) => Err(Error::bad_args("give either command or argv, not both")),
            (None, None) => Err(Error::bad_args("give a command or argv")),
        }
    }

    pub(crate) fn from_argv(argv: Vec<String>) -> CommandWords {
        let shell_line = match argv.as_slice() {
            [shell, flag, line] if is_shell(shell) && matches!(flag.as_str(), "-c" | "-lc") => {
                Some(line)
            }
            _ => None,
        };
        CommandWords {
            printed_by: shell_line.map_or_else(|| argv.clone(), |line| last_command(line)),
            text: argv.join(" "),
            argv,
        }
    }

    fn from_line(cx: &Cx, line: String) -> Result<CommandWords> {
        if line.trim().is_empty() {
            return Err(Error::bad_args("the command is empty"));
        }
        if line.contains('\0') {
            return Err(Error::bad_args("the command holds a NUL character"));
        }
        // The envelope's own words, which no shell knows.
        let is_te = |words: &Vec<String>| words.first().is_some_and(|word| word == super::TE);
        let te = split_words(&line).ok().filter(is_te);
        if let Some(argv) = te {
            return Ok(CommandWords::from_argv(argv));
        }
        let Some(shell) = shell(cx)? else {
            return Ok(CommandWords::from_argv(split_words(&line)?));
        };
        Ok(CommandWords {
            printed_by: last_command(&line),
            argv: vec![shell.to_owned(), "-c".to_owned(), line.clone()],
            text: line,
        })
    }
}

/// The shell that runs lines; none where the profile or the operator's list of programs has none.
fn shell(cx: &Cx) -> Result<Option<&'static str>> {
    if cx.app().config().mcp.exec.profile == ExecProfile::Restricted {
        return Ok(None);
    }
    let runner = cx.app().commands()?;
    Ok(SHELLS
        .into_iter()
        .find(|shell| runner.resolve(shell, cx.app().root()).is_ok()))
}

fn is_shell(word: &str) -> bool {
    let name = word.rsplit('/').next().unwrap_or(word);
    matches!(name, "bash" | "sh" | "dash" | "zsh")
}

/// The words of the last simple command of a shell line; none where that cannot be told.
fn last_command(line: &str) -> Vec<String> {
    let mut commands: Vec<Vec<String>> = vec![Vec::new()];
    let mut word: Option<String> = None;
    // Whether stdout of the command at hand, and of the last one before it, is not redirected.
    let (mut stdout_is_read, mut last_is_read) = (true, true);
    let mut chars = line.chars().peekable();
    let end_word = |word: &mut Option<String>, commands: &mut Vec<Vec<String>>| {
        if let (Some(word), Some(command)) = (word.take(), commands.last_mut()) {
            command.push(word);
        }
    };
    while let Some(char) = chars.next() {
        match char {
            '\'' => {
                let text = word.get_or_insert_default();
                text.extend(chars.by_ref().take_while(|char| *char != '\''));
            }
            '"' => {
                let text = word.get_or_insert_default();
                while let Some(char) = chars.next().filter(|char| *char != '"') {
                    match char {
                        '\\' => text.extend(chars.next()),
                        '`' => return Vec::new(),
                        _ => text.push(char),
                    }
                }
            }
            '\\' => match chars.next() {
                Some('\n') => {}
                escaped => word.get_or_insert_default().extend(escaped),
            },
            // Substitutions, groups and here-documents.
            '`' | '(' | ')' => return Vec::new(),
            '<' if chars.peek() == Some(&'<') => return Vec::new(),
            '>' | '<' => {
                if char == '>' && word.as_deref().is_none_or(|word| word == "1") {
                    // What it prints is not what is read.
                    stdout_is_read = false;
                }
                // The descriptor before a redirection is no word of its own.
                if word
                    .as_deref()
                    .is_some_and(|word| word.bytes().all(|byte| byte.is_ascii_digit()))
                {
                    word = None;
                }
                end_word(&mut word, &mut commands);
                chars.next_if(|char| matches!(*char, '>' | '&' | '|'));
                while chars.next_if(|char| *char == ' ').is_some() {}
                while chars
                    .next_if(|char| !char.is_whitespace() && !";|&".contains(*char))
                    .is_some()
                {}
            }
            '&' if chars.peek() == Some(&'>') => {}
            ';' | '&' | '|' | '\n' => {
                end_word(&mut word, &mut commands);
                if commands.last().is_some_and(|words| !words.is_empty()) {
                    (last_is_read, stdout_is_read) = (stdout_is_read, true);
                }
                commands.push(Vec::new());
            }
            '#' if word.is_none() => while chars.next_if(|char| *char != '\n').is_some() {},
            char if char.is_whitespace() => end_word(&mut word, &mut commands),
            char => word.get_or_insert_default().push(char),
        }
    }
    end_word(&mut word, &mut commands);
    if commands.last().is_some_and(|words| !words.is_empty()) {
        last_is_read = stdout_is_read;
    }
    let has_keyword = |command: &Vec<String>| {
        command
            .first()
            .is_some_and(|word| KEYWORDS.contains(&word.as_str()))
    };
    if !last_is_read || commands.iter().any(has_keyword) {
        return Vec::new();
    }
    let last = commands.into_iter().rev().find(|words| !words.is_empty());
    last.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_command_of_a_line_prints() {
        for (line, expected) in [
            ("pytest -q", "pytest -q"),
            ("cd sub && python -m pytest -q 2>&1", "python -m pytest -q"),
            ("cargo test 2>&1 | tail -20", "tail -20"),
            ("a; b 'c; d' \"e | f\" g\\;h", "b c; d e | f g;h"),
            ("make test 2>/dev/null", "make test"),
            ("make test > out.txt 2>/dev/null", ""),
            ("make test >>out.txt &>all", ""),
            ("cat log >&2", ""),
            ("make > out.txt; tail out.txt", "tail out.txt"),
            ("a 1>x;", ""),
            (
                "git log --oneline -5 \\\n  -- src # the last five",
                "git log --oneline -5 -- src",
            ),
            ("sort <in.txt ;", "sort"),
            ("A=1 pytest", "A=1 pytest"),
            ("for f in *; do echo $f; done", ""),
            ("echo $(date)", ""),
            ("cat <<EOF\npytest\nEOF", ""),
            ("(cd x; pytest)", ""),
            ("if true; then pytest; fi", ""),
            ("", ""),
            ("'unclosed", "unclosed"),
        ] {
            assert_eq!(last_command(line).join(" "), expected, "{line}");
        }
    }

    #[test]
    fn a_shell_in_argv_is_looked_into() {
        let words = |argv: &[&str]| {
            let argv = argv.iter().map(|word| (*word).to_owned()).collect();
            CommandWords::from_argv(argv).printed_by.join(" ")
        };
        assert_eq!(words(&["bash", "-c", "cd a && pytest"]), "pytest");
        assert_eq!(words(&["pytest", "-c", "x"]), "pytest -c x");
    }
}
