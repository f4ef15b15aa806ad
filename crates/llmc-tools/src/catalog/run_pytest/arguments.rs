//! Which of pytest's arguments are passed on.
//!
//! Tests are the workspace's own code and may do what any confined command may. What is kept out are words that make
//! pytest something else than a run of these tests: plugins by name, configuration from elsewhere, reports written
//! wherever a caller likes, arguments read from files.

use llmc_host::{Access, FinalLink, Roots};

use crate::error::{Error, ErrorKind, Result};

/// Options that stand alone.
const FLAGS: &[&str] = &[
    "--cache-clear",
    "--co",
    "--collect-only",
    "--disable-warnings",
    "--doctest-modules",
    "--exitfirst",
    "--failed-first",
    "--ff",
    "--fixtures",
    "--full-trace",
    "--last-failed",
    "--lf",
    "--markers",
    "--new-first",
    "--nf",
    "--no-cov",
    "--no-header",
    "--no-summary",
    "--quiet",
    "--runxfail",
    "--setup-show",
    "--showlocals",
    "--stepwise",
    "--stepwise-skip",
    "--strict-config",
    "--strict-markers",
    "--sw",
    "--sw-skip",
    "--verbose",
    "--version",
];
/// Single letters that stand alone and may be joined: `-xvs`.
const LETTERS: &str = "xqvsl";

/// What an option's value may be.
#[derive(Clone, Copy)]
enum Value {
    /// An expression or a word that only selects.
    Text,
    /// Digits, perhaps with a point.
    Number,
    /// Processes: a number, `auto` or `logical`.
    Workers,
    /// Letters.
    Letters,
    /// One of these.
    OneOf(&'static [&'static str]),
    /// A file or directory inside the roots, or a test in one.
    Path,
}

/// Options with a value.
const OPTIONS: &[(&str, Value)] = &[
    ("-k", Value::Text),
    ("-m", Value::Text),
    ("-n", Value::Workers),
    ("-r", Value::Letters),
    ("--capture", Value::OneOf(&["fd", "sys", "no", "tee-sys"])),
    ("--color", Value::OneOf(&["no", "auto", "yes"])),
    ("--deselect", Value::Path),
    (
        "--dist",
        Value::OneOf(&[
            "load",
            "loadfile",
            "loadscope",
            "loadgroup",
            "worksteal",
            "no",
        ]),
    ),
    ("--durations", Value::Number),
    ("--durations-min", Value::Number),
    ("--ignore", Value::Path),
    (
        "--import-mode",
        Value::OneOf(&["prepend", "append", "importlib"]),
    ),
    ("--log-cli-level", Value::Letters),
    ("--log-level", Value::Letters),
    ("--maxfail", Value::Number),
    ("--numprocesses", Value::Workers),
    (
        "--show-capture",
        Value::OneOf(&["no", "stdout", "stderr", "log", "all"]),
    ),
    (
        "--tb",
        Value::OneOf(&["auto", "long", "short", "line", "native", "no"]),
    ),
    ("--timeout", Value::Number),
    ("--verbosity", Value::Number),
];

/// Options by which a caller asks for more than failures.
const DETAIL: &[&str] = &[
    "--co",
    "--collect-only",
    "--durations",
    "--fixtures",
    "--markers",
    "--setup-show",
    "--version",
    "-r",
    "-s",
];

/// Checks every word; what is left can be passed on as it is.
///
/// # Errors
/// [`ErrorKind::CommandDenied`] for a word that is not passed on, [`ErrorKind::InvalidPath`] and the like for a path.
pub(super) fn check(args: &[String], roots: &Roots) -> Result<()> {
    let mut words = args.iter();
    while let Some(word) = words.next() {
        // pytest reads further arguments from the file named behind it, wherever the word stands.
        if word.starts_with('@') {
            return Err(denied(word, "it would read arguments from a file"));
        }
        if !word.starts_with('-') || word == "-" {
            path(word, roots)?;
            continue;
        }
        let (name, attached) = split(word);
        if let Some((_, kind)) = OPTIONS.iter().find(|(option, _)| *option == name) {
            let value = match attached {
                Some(value) => value,
                None => words
                    .next()
                    .ok_or_else(|| Error::bad_args(format!("{name} needs a value")))?,
            };
            check_value(name, value, *kind, roots)?;
        } else if attached.is_some() || !(FLAGS.contains(&word.as_str()) || are_letters(word)) {
            return Err(denied(word, "run_pytest does not pass it on"));
        }
    }
    Ok(())
}

/// Whether the output is asked for as such, not only its failures.
pub(super) fn asks_for_detail(args: &[String]) -> bool {
    args.iter().any(|word| DETAIL.contains(&split(word).0))
}

/// An option's name and the value joined to it: `--tb=short`, `-k name` as `-kname`, `-n4`.
fn split(word: &str) -> (&str, Option<&str>) {
    if word.starts_with("--") {
        return match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
    }
    match word.get(..2) {
        Some(name) if word.len() > 2 && OPTIONS.iter().any(|(option, _)| *option == name) => {
            let value = &word[2..];
            (name, Some(value.strip_prefix('=').unwrap_or(value)))
        }
        _ => (word, None),
    }
}

fn are_letters(word: &str) -> bool {
    let letters = word.strip_prefix('-').unwrap_or_default();
    !letters.is_empty() && letters.chars().all(|letter| LETTERS.contains(letter))
}

fn check_value(name: &str, value: &str, kind: Value, roots: &Roots) -> Result<()> {
    let number = |text: &str| {
        !text.is_empty()
            && text
                .bytes()
                .all(|byte| byte.is_ascii_digit() || byte == b'.')
    };
    if value.starts_with('@') {
        return Err(denied(value, "it would read arguments from a file"));
    }
    let good = match kind {
        // What starts with a dash would be taken for the next option.
        Value::Text => !value.starts_with('-'),
        Value::Number => number(value),
        Value::Workers => number(value) || value == "auto" || value == "logical",
        Value::Letters => value.chars().all(|letter| letter.is_ascii_alphabetic()),
        Value::OneOf(list) => list.contains(&value),
        Value::Path => return path(value, roots),
    };
    if good {
        return Ok(());
    }
    let text: String = value.chars().take(80).collect();
    Err(Error::bad_args(match kind {
        Value::OneOf(list) => format!("{name} takes one of {}, not {text:?}", list.join(", ")),
        _ => format!("{text:?} is no value for {name}"),
    }))
}

/// A file, a directory, or a test in one (`tests/test_a.py::test_b`), inside the roots and there.
fn path(word: &str, roots: &Roots) -> Result<()> {
    let file = word.split_once("::").map_or(word, |(file, _)| file);
    roots.resolve(file, FinalLink::Follow, Access::Read)?;
    roots.stat(file)?;
    Ok(())
}

fn denied(word: &str, why: &str) -> Error {
    let word: String = word.chars().take(80).collect();
    Error::new(ErrorKind::CommandDenied, format!("{word}: {why}")).hint(
        "allowed are paths, test ids and -k -m -x -q -v -s -l -r -n --maxfail --lf --ff --co --tb --durations and their like; run_cmd runs anything else",
    )
}
