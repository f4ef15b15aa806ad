//! What compilers and linters report, one diagnostic each: rustc, clippy, gcc, clang, tsc, eslint, mypy, ruff and their kin.
//!
//! Two diagnostics are the same if file, severity and message are. Lines and columns do not count: they shift with every
//! edit above them.

use std::collections::HashMap;
use std::sync::LazyLock;

use regex::Regex;

use crate::budget::clip;
use crate::terminal::settled;

/// Bytes kept of one message.
const MAX_MESSAGE_BYTES: usize = 400;
/// Diagnostics read of one output.
const MAX_DIAGNOSTICS: usize = 20_000;

/// Programs whose output is diagnostics and little else.
const PROGRAMS: &[&str] = &[
    "gcc",
    "g++",
    "cc",
    "c++",
    "clang",
    "clang++",
    "clang-tidy",
    "cppcheck",
    "rustc",
    "tsc",
    "eslint",
    "mypy",
    "dmypy",
    "ruff",
    "flake8",
    "pylint",
    "pyright",
    "basedpyright",
    "pyflakes",
    "pycodestyle",
    "javac",
    "golangci-lint",
    "staticcheck",
    "shellcheck",
    "biome",
    "oxlint",
    "stylelint",
    "rubocop",
    "vulture",
];
/// Subcommands of cargo and go that compile and run nothing.
const CARGO_COMMANDS: &[&str] = &["build", "b", "check", "c", "clippy", "doc"];
const GO_COMMANDS: &[&str] = &["build", "vet"];

/// One complaint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// As it was printed; empty where a complaint is about no file.
    pub path: String,
    pub line: Option<u64>,
    /// `error`, `warning`, or empty where the program has none.
    pub severity: String,
    /// The message with its code.
    pub message: String,
}

impl Diagnostic {
    fn new(path: &str, line: &str, severity: &str, message: &str) -> Diagnostic {
        Diagnostic {
            path: path.strip_prefix("./").unwrap_or(path).to_owned(),
            line: line.parse().ok(),
            severity: severity.to_owned(),
            message: clip(message.trim(), MAX_MESSAGE_BYTES).into_owned(),
        }
    }

    /// `src/a.c:12: error: …`.
    pub fn text(&self) -> String {
        let mut text = self.path.clone();
        if let Some(line) = self.line {
            text.push_str(&format!(":{line}"));
        }
        if !text.is_empty() {
            text.push_str(": ");
        }
        if !self.severity.is_empty() {
            text.push_str(&self.severity);
            text.push_str(": ");
        }
        text.push_str(&self.message);
        text
    }

    /// What makes it the same as another.
    fn key(&self) -> (String, String, String) {
        static LINES: LazyLock<Option<Regex>> = LazyLock::new(|| {
            Regex::new(r"(?i)\b(lines?|column|col) \d+|:\d+(:\d+)?\b|\(\d+,\d+\)").ok()
        });
        let message = match LINES.as_ref() {
            Some(lines) => lines.replace_all(&self.message, "#").into_owned(),
            None => self.message.clone(),
        };
        (self.path.clone(), self.severity.clone(), message)
    }
}

/// Whether this command prints diagnostics and nothing else that matters.
pub(super) fn is_checker(argv: &[String]) -> bool {
    let base = |word: &String| word.rsplit('/').next().unwrap_or(word).to_owned();
    let words: Vec<String> = argv.iter().map(base).collect();
    let first = words.iter().position(|word| !is_launcher(word));
    let Some((name, rest)) = first.and_then(|at| words[at..].split_first()) else {
        return false;
    };
    let any = |list: &[&str]| rest.iter().any(|word| list.contains(&word.as_str()));
    match name.as_str() {
        "cargo" => any(CARGO_COMMANDS) && !any(&["test", "t", "nextest"]),
        "go" => any(GO_COMMANDS),
        "python" | "python3" | "npx" | "npm" | "yarn" | "pnpm" | "bunx" | "uvx" | "uv"
        | "poetry" => any(PROGRAMS),
        name => {
            let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
            let plain = plain.strip_suffix('-').unwrap_or(plain);
            PROGRAMS.contains(&name) || PROGRAMS.contains(&plain)
        }
    }
}

fn is_launcher(word: &str) -> bool {
    ["env", "nice", "time", "nohup", "timeout", "command"].contains(&word)
        || word.contains('=')
        || word.bytes().all(|byte| byte.is_ascii_digit())
}

/// The diagnostics of an output.
pub(super) fn parse(text: &str) -> Vec<Diagnostic> {
    let text = settled(text);
    let mut reader = DiagnosticReader::default();
    for line in text.lines() {
        if reader.found.len() >= MAX_DIAGNOSTICS {
            break;
        }
        reader.line(line);
    }
    reader.close_heading();
    reader.found
}

#[derive(Default)]
struct DiagnosticReader<'a> {
    found: Vec<Diagnostic>,
    /// rustc's first line of a diagnostic, whose place follows.
    heading: Option<(&'a str, String)>,
    /// The line before, which may be ruff's first.
    previous: &'a str,
    /// The file whose diagnostics eslint lists.
    file: &'a str,
}

impl<'a> DiagnosticReader<'a> {
    fn line(&mut self, line: &'a str) {
        let trimmed = line.trim();
        if let Some(place) = trimmed.strip_prefix("--> ") {
            self.place_of_heading(place);
        } else if let Some((severity, message)) = heading(line) {
            self.close_heading();
            self.heading = Some((severity, message));
        } else if let Some(found) = placed(line) {
            self.close_heading();
            if found.severity != "note" {
                self.found.push(found);
            }
        } else if let Some((at, severity, message)) = listed(line) {
            let found = Diagnostic::new(self.file, at, severity, &message);
            self.found.push(found);
        } else if !trimmed.is_empty() && !line.starts_with(char::is_whitespace) {
            self.file = trimmed;
        }
        if !trimmed.is_empty() {
            self.previous = line;
        }
    }

    /// ` --> src/main.rs:3:9` under a heading.
    fn place_of_heading(&mut self, place: &str) {
        let mut parts = place.rsplitn(3, ':');
        let (_column, line, path) = (parts.next(), parts.next(), parts.next());
        let (Some(line), Some(path)) = (line, path) else {
            return;
        };
        match self.heading.take() {
            Some((severity, message)) => {
                let found = Diagnostic::new(path, line, severity, &message);
                self.found.push(found);
            }
            // ruff: `F401 [*] …`. Further places of a diagnostic follow lines of source.
            None => {
                let first = self.previous.split_whitespace().next().unwrap_or_default();
                if is_rule(first) {
                    self.found
                        .push(Diagnostic::new(path, line, "", self.previous));
                }
            }
        }
    }

    /// A heading without a place is a diagnostic of the program, not of a file.
    fn close_heading(&mut self) {
        if let Some((severity, message)) = self.heading.take() {
            self.found.push(Diagnostic::new("", "", severity, &message));
        }
    }
}

/// `error[E0308]: mismatched types`, `warning: unused variable`; not what cargo and rustc count at the end.
fn heading(line: &str) -> Option<(&'static str, String)> {
    let (severity, rest) = ["error", "warning"]
        .into_iter()
        .find_map(|severity| Some((severity, line.strip_prefix(severity)?)))?;
    let (code, message) = match rest.strip_prefix('[') {
        Some(rest) => rest.split_once("]: ")?,
        None => ("", rest.strip_prefix(": ")?),
    };
    let is_sum = message.starts_with("aborting due to")
        || message.starts_with("could not compile")
        || message.starts_with("build failed")
        || message.contains(" generated ")
        || message.ends_with(" emitted");
    if is_sum {
        return None;
    }
    let code = if code.is_empty() {
        String::new()
    } else {
        format!(" [{code}]")
    };
    Some((severity, format!("{message}{code}")))
}

/// `a.c:3:5: error: …`, `a.py:3: error: …`, `a.py:1:8: F401 …`, `a.ts(1,7): error TS2322: …`, `a.ts:1:7 - error …`,
/// `ld: error: …`.
fn placed(line: &str) -> Option<Diagnostic> {
    static PLACED: LazyLock<Option<Regex>> = LazyLock::new(|| {
        let place = r"^\s{0,4}(?P<path>[^\s:(][^:(]*?)(?::(?P<line>\d+)(?::\d+)?(?::| -)|\((?P<tsline>\d+)(?:,\d+)?\):)";
        Regex::new(&format!(
            r"{place}\s+(?:(?P<severity>fatal error|error|warning|note|info|information|hint|style|convention|refactor)(?::\s*|\s+))?(?P<message>\S.*)$"
        ))
        .ok()
    });
    static TOOL: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"^(?P<path>[\w.+/-]+): (?P<severity>fatal error|error): (?P<message>\S.*)$")
            .ok()
    });
    if let Some(found) = PLACED.as_ref().and_then(|regex| regex.captures(line)) {
        let path = found.name("path")?.as_str();
        if path.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let at = found.name("line").or(found.name("tsline"))?.as_str();
        let severity = match found.name("severity").map_or("", |found| found.as_str()) {
            "fatal error" => "error",
            "info" | "information" | "hint" => "note",
            severity => severity,
        };
        let message = found.name("message")?.as_str();
        return Some(Diagnostic::new(path, at, severity, message));
    }
    let found = TOOL.as_ref().and_then(|regex| regex.captures(line))?;
    Some(Diagnostic::new(
        found.name("path")?.as_str(),
        "",
        "error",
        found.name("message")?.as_str(),
    ))
}

/// eslint's `  12:5  error  Unexpected var  no-var`: line, severity and the rest.
fn listed(line: &str) -> Option<(&str, &'static str, String)> {
    let mut words = line.strip_prefix("  ")?.split_whitespace();
    let (at, column) = words.next()?.split_once(':')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !(is_number(at) && is_number(column)) {
        return None;
    }
    let severity = match words.next()? {
        "error" => "error",
        "warning" => "warning",
        _ => return None,
    };
    let message: Vec<&str> = words.collect();
    (!message.is_empty()).then(|| (at, severity, message.join(" ")))
}

/// `E501`, `PLR0913`.
fn is_rule(word: &str) -> bool {
    let letters = word.bytes().take_while(u8::is_ascii_uppercase).count();
    (1..=5).contains(&letters)
        && word.len() > letters
        && word.bytes().skip(letters).all(|byte| byte.is_ascii_digit())
}

/// What the diagnostics of two runs have in common and what not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DiagnosticDiff {
    pub new: Vec<Diagnostic>,
    pub gone: Vec<Diagnostic>,
    /// How many are in both.
    pub unchanged: usize,
}

impl DiagnosticDiff {
    pub(super) fn of(base: Vec<Diagnostic>, now: Vec<Diagnostic>) -> DiagnosticDiff {
        let mut open: HashMap<(String, String, String), usize> = HashMap::new();
        for diagnostic in &base {
            *open.entry(diagnostic.key()).or_default() += 1;
        }
        let mut diff = DiagnosticDiff::default();
        for diagnostic in now {
            match open.get_mut(&diagnostic.key()) {
                Some(count) if *count > 0 => {
                    *count -= 1;
                    diff.unchanged += 1;
                }
                _ => diff.new.push(diagnostic),
            }
        }
        // Of several alike the last ones count as gone.
        for diagnostic in base.into_iter().rev() {
            if let Some(count) = open.get_mut(&diagnostic.key())
                && *count > 0
            {
                *count -= 1;
                diff.gone.push(diagnostic);
            }
        }
        diff.gone.reverse();
        diff
    }
}
