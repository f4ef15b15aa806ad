//! A command line cut into words, without a shell.
//!
//! Words, quotes and backslashes follow the POSIX rules. Nothing is expanded, and whatever a shell would act on is refused
//! rather than passed on as text: a caller who writes `a | b` wants a pipe, and must learn that there is none.

use crate::error::{Error, Result};

/// Cuts a command line into words.
///
/// Globs, braces and `~` are plain text. In double quotes a `$` that starts an expansion is refused too.
///
/// # Errors
/// [`Error::CommandDenied`] for an unquoted `; & | < > $ ( )`, a newline or a backtick; [`Error::BadRequest`] for an
/// unfinished quote, a NUL or no words at all.
pub fn split_words(command: &str) -> Result<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = command.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\0' => return bad("the command holds a NUL character"),
            ' ' | '\t' => words.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next() {
                        Some('\'') => break,
                        Some(c) => word.push(c),
                        None => return bad("the command ends inside single quotes"),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next() {
                        Some('"') => break,
                        Some('\\') => match chars.next() {
                            Some('\n') => {}
                            Some(c @ ('$' | '`' | '"' | '\\')) => word.push(c),
                            Some(c) => word.extend(['\\', c]),
                            None => return bad("the command ends inside double quotes"),
                        },
                        Some('`') => return denied(command, '`'),
                        Some('$') if chars.peek().is_some_and(|c| expands(*c)) => {
                            return denied(command, '$');
                        }
                        Some(c) => word.push(c),
                        None => return bad("the command ends inside double quotes"),
                    }
                }
            }
            '\\' => match chars.next() {
                // A line that goes on.
                Some('\n') => {}
                Some(c) => word.get_or_insert_default().push(c),
                None => return bad("the command ends in a backslash"),
            },
            ';' | '&' | '|' | '<' | '>' | '$' | '(' | ')' | '`' | '\n' => {
                return denied(command, c);
            }
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    if words.is_empty() {
        return bad("the command is empty");
    }
    if words.iter().any(|word| word.contains('\0')) {
        bad("the command holds a NUL character")
    } else {
        Ok(words)
    }
}

/// Whether a shell would read `$` before this character as the start of something.
fn expands(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_({@*#?-$!".contains(c)
}

fn bad<T>(why: &str) -> Result<T> {
    Err(Error::BadRequest(why.to_owned()))
}

fn denied<T>(command: &str, operator: char) -> Result<T> {
    let operator = match operator {
        '\n' => "a newline".to_owned(),
        c => format!("`{c}`"),
    };
    Err(Error::CommandDenied {
        command: clipped(command),
        why: format!("no shell reads the command, so {operator} has no meaning here"),
        hint: "give argv, where it is plain text, or put it in single quotes; run one program per call".to_owned(),
    })
}

/// Enough of a command to recognise it.
pub(super) fn clipped(command: &str) -> String {
    match command.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &command[..end]),
        None => command.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_follow_the_posix_rules() {
        let cases: &[(&str, &[&str])] = &[
            ("ls", &["ls"]),
            ("  ls\t-l  a ", &["ls", "-l", "a"]),
            ("echo 'a b' \"c d\"", &["echo", "a b", "c d"]),
            ("echo a'b'\"c\"d", &["echo", "abcd"]),
            ("echo '' \"\"", &["echo", "", ""]),
            (r"echo a\ b \; \$x", &["echo", "a b", ";", "$x"]),
            (r#"echo "\$x \"y\" \\ \n""#, &["echo", r#"$x "y" \ \n"#]),
            (r"echo '\n;|&$(x)`'", &["echo", r"\n;|&$(x)`"]),
            ("rg \"end$\" 'a$'", &["rg", "end$", "a$"]),
            ("echo \"a;b|c&d<e>(f)\"", &["echo", "a;b|c&d<e>(f)"]),
            (
                "ls *.rs ~ {a,b} a=b #c !x",
                &["ls", "*.rs", "~", "{a,b}", "a=b", "#c", "!x"],
            ),
            ("a\\\nb", &["ab"]),
            ("echo \"a\nb\"", &["echo", "a\nb"]),
            ("écho ünï \u{1f600}", &["écho", "ünï", "\u{1f600}"]),
        ];
        for (command, words) in cases {
            assert_eq!(split_words(command).unwrap(), *words, "{command:?}");
        }
    }

    #[test]
    fn what_a_shell_would_act_on_is_refused() {
        for command in [
            "ls; rm x",
            "a && b",
            "a & b",
            "a|b",
            "a <b",
            "a >b",
            "echo $x",
            "echo $(x)",
            "(a)",
            "echo `x`",
            "a\nb",
            "ls\n",
            "echo \"$x\"",
            "echo \"${x}\"",
            "echo \"$(x)\"",
            "echo \"`x`\"",
            "echo a$",
            "f()",
        ] {
            let error = split_words(command).unwrap_err();
            let Error::CommandDenied { hint, .. } = error else {
                panic!("{command:?}: {error}");
            };
            assert!(hint.contains("argv"), "{command:?}");
        }
    }

    #[test]
    fn what_is_no_command_is_a_bad_request() {
        for command in ["", "  \t", "'a", "\"a", "\"a\\", "a\\", "a\0b", "'a\0b'"] {
            let error = split_words(command).unwrap_err();
            assert!(
                matches!(error, Error::BadRequest(_)),
                "{command:?}: {error}"
            );
        }
    }
}
