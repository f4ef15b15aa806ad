//! The words of a command: what is started, and which program prints the output.
//!
//! A shell line is started as `bash -c LINE`. Condensing asks which program printed the output: the last one of a pipeline,
//! if it is the only pipeline of the line that prints. Finding it needs no full shell grammar: where several pipelines
//! print, or a line has more structure than lists and pipelines of simple commands, the printing program counts as unknown.

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

/// Commands that print nothing unless they fail.
const SILENT_COMMANDS: [&str; 18] = [
    "cd", "source", ".", "export", "unset", "set", "true", ":", "mkdir", "rm", "cp", "mv", "touch",
    "chmod", "sleep", "ulimit", "umask", "wait",
];

/// A command, ready to be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommandWords {
    /// What is started.
    pub(crate) argv: Vec<String>,
    /// The words of the program that prints the output; none where several do, or where that cannot be determined.
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
            printed_by: shell_line.map_or_else(|| argv.clone(), |line| printing_command(line)),
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
            printed_by: printing_command(&line),
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

/// The words of the only command of a shell line whose output is read; none where there are several, or where that cannot
/// be determined.
fn printing_command(line: &str) -> Vec<String> {
    let mut printing = simple_commands(line)
        .into_iter()
        .filter(|command| !command.is_piped && !command.is_redirected && !command.is_silent());
    match (printing.next(), printing.next()) {
        (Some(only), None) => only.words,
        _ => Vec::new(),
    }
}

/// The words of each simple command of a shell line; none where the line has more structure than lists and pipelines.
pub(super) fn commands_of(words: &CommandWords) -> Vec<Vec<String>> {
    match words.argv.as_slice() {
        [shell, flag, line] if is_shell(shell) && matches!(flag.as_str(), "-c" | "-lc") => {
            simple_commands(line)
                .into_iter()
                .map(|command| command.words)
                .collect()
        }
        argv => vec![argv.to_vec()],
    }
}

fn simple_commands(line: &str) -> Vec<SimpleCommand> {
    let mut commands = vec![SimpleCommand::default()];
    let mut word: Option<String> = None;
    let mut chars = line.chars().peekable();
    let end_word = |word: &mut Option<String>, commands: &mut Vec<SimpleCommand>| {
        if let (Some(word), Some(command)) = (word.take(), commands.last_mut()) {
            command.words.push(word);
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
                if char == '>'
                    && word.as_deref().is_none_or(|word| word == "1")
                    && let Some(command) = commands.last_mut()
                {
                    command.is_redirected = true;
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
                let is_pipe = char == '|' && chars.peek() != Some(&'|');
                chars.next_if_eq(&char);
                if is_pipe && let Some(command) = commands.last_mut() {
                    command.is_piped = true;
                }
                commands.push(SimpleCommand::default());
            }
            '#' if word.is_none() => while chars.next_if(|char| *char != '\n').is_some() {},
            char if char.is_whitespace() => end_word(&mut word, &mut commands),
            char => word.get_or_insert_default().push(char),
        }
    }
    end_word(&mut word, &mut commands);
    commands.retain(|command| !command.words.is_empty());
    match commands.iter().any(SimpleCommand::is_keyword) {
        true => Vec::new(),
        false => commands,
    }
}

#[derive(Debug, Default)]
struct SimpleCommand {
    words: Vec<String>,
    /// Its output is the next command's input.
    is_piped: bool,
    /// Its output goes to a file or to stderr.
    is_redirected: bool,
}

impl SimpleCommand {
    fn is_keyword(&self) -> bool {
        let first = self.words.first();
        first.is_some_and(|word| KEYWORDS.contains(&word.as_str()))
    }

    fn is_silent(&self) -> bool {
        let is_assignment = |word: &String| {
            let name = word.split_once('=').map_or("", |(name, _)| name);
            !name.is_empty()
                && name
                    .chars()
                    .all(|char| char.is_alphanumeric() || char == '_')
        };
        let first = self.words.first();
        first.is_some_and(|word| SILENT_COMMANDS.contains(&word.as_str()))
            || self.words.iter().all(is_assignment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_command_of_a_line_prints() {
        for (line, expected) in [
            ("pytest -q", "pytest -q"),
            ("cd sub && python -m pytest -q 2>&1", "python -m pytest -q"),
            ("cargo test 2>&1 | tail -20", "tail -20"),
            ("cd a; b 'c; d' \"e | f\" g\\;h", "b c; d e | f g;h"),
            ("git diff; pytest -q", ""),
            ("pytest -q; git status --short | head", ""),
            ("X=1; export Y=2 && cargo test || true", "cargo test"),
            ("pytest & wait", "pytest"),
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
            assert_eq!(printing_command(line).join(" "), expected, "{line}");
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
