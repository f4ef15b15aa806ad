//! How deep an expression nests, found before it is parsed.
//!
//! Parser and interpreter walk an expression by recursion, so one that nests too deep (a sum of a hundred thousand terms
//! nests as deep as it is long) would overflow the stack and end the worker. The text is scanned for what makes
//! expressions nest; that counts too much rather than too little.

use crate::limits::ScriptLimit;
use crate::outcome::{ScriptError, ScriptErrorKind};

/// How deep one expression may nest. Python itself allows a few thousand operators and a hundred brackets.
const MAX_DEPTH: usize = 1000;
/// Branches of all `if` statements together; the interpreter nests them.
const MAX_BRANCHES: usize = 2000;
/// Words that begin or join a part of an expression.
const WORDS: [&str; 8] = ["and", "await", "else", "for", "if", "lambda", "not", "or"];

/// The error for code that nests too deep.
pub(super) fn check(code: &str) -> Result<(), ScriptError> {
    let mut scan = Scan::default();
    let bytes = code.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let (start, byte) = (at, bytes[at]);
        match byte {
            b'#' => at = end_of_line(bytes, at),
            b'"' | b'\'' => at = end_of_string(bytes, at),
            b'\\' => at += 2,
            b'\n' => {
                scan.end_line();
                at += 1;
            }
            _ if byte.is_ascii_alphabetic() || byte == b'_' || byte >= 0x80 => {
                let end = end_of_word(bytes, at);
                scan.word(&bytes[at..end]);
                at = end;
            }
            // A number is no name with a dot, and an exponent's sign is no operator.
            _ if byte.is_ascii_digit() => at = end_of_number(bytes, at),
            _ => {
                scan.sign(byte);
                at += 1;
            }
        }
        if let Some(error) = scan.error() {
            return Err(error);
        }
        let passed = &bytes[start..at.min(bytes.len())];
        scan.line += passed.iter().filter(|byte| **byte == b'\n').count();
    }
    Ok(())
}

#[derive(Default)]
struct Scan {
    /// Operators since the last comma, for each open bracket and outside of them.
    outer: Vec<usize>,
    here: usize,
    /// The sum of `outer`.
    below: usize,
    branches: usize,
    /// Line ends that were passed.
    line: usize,
}

impl Scan {
    fn word(&mut self, word: &[u8]) {
        if WORDS.iter().any(|known| word == known.as_bytes()) {
            self.here += 1;
        }
        self.branches += usize::from(word == b"elif");
    }

    fn sign(&mut self, byte: u8) {
        match byte {
            b'(' | b'[' | b'{' => {
                self.here += 1;
                self.below += self.here;
                self.outer.push(std::mem::take(&mut self.here));
            }
            b')' | b']' | b'}' => {
                self.here = self.outer.pop().unwrap_or(0);
                self.below -= self.here.min(self.below);
            }
            b',' => self.here = 0,
            b';' if self.outer.is_empty() => self.here = 0,
            b'+' | b'-' | b'*' | b'/' | b'%' | b'@' | b'|' | b'&' | b'^' | b'~' | b'.' | b'<'
            | b'>' => self.here += 1,
            _ => {}
        }
    }

    /// A statement ends with its line, unless a bracket is open.
    fn end_line(&mut self) {
        if self.outer.is_empty() {
            self.here = 0;
        }
    }

    fn error(&self) -> Option<ScriptError> {
        let (what, limit) = if self.below + self.here > MAX_DEPTH {
            ("an expression nests", MAX_DEPTH)
        } else if self.branches > MAX_BRANCHES {
            ("the branches of an if nest", MAX_BRANCHES)
        } else {
            return None;
        };
        let line = u32::try_from(self.line + 1).unwrap_or(u32::MAX);
        let message = format!("{what} deeper than {limit}");
        Some(ScriptError {
            exception: "RecursionError".to_owned(),
            line: Some(line),
            traceback: format!("  line {line}\n"),
            hint: Some("split it over several statements, or use sum() or a loop".to_owned()),
            ..ScriptError::new(ScriptErrorKind::Limit(ScriptLimit::Recursion), message)
        })
    }
}

fn end_of_line(bytes: &[u8], at: usize) -> usize {
    let rest = bytes[at..].iter().position(|byte| *byte == b'\n');
    rest.map_or(bytes.len(), |found| at + found)
}

fn end_of_word(bytes: &[u8], at: usize) -> usize {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_' || *byte >= 0x80;
    let rest = bytes[at..].iter().position(|byte| !is_part(byte));
    rest.map_or(bytes.len(), |found| at + found)
}

fn end_of_number(bytes: &[u8], at: usize) -> usize {
    let mut end = at;
    while end < bytes.len() {
        match bytes[end] {
            b'+' | b'-' if matches!(bytes[end - 1], b'e' | b'E') => {}
            byte if byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.') => {}
            _ => break,
        }
        end += 1;
    }
    end.max(at + 1)
}

/// Behind the string that begins here; one that does not end is for the parser to report.
fn end_of_string(bytes: &[u8], at: usize) -> usize {
    let quote = bytes[at];
    let triple = bytes.get(at..at + 3) == Some(&[quote; 3]);
    let mut end = at + if triple { 3 } else { 1 };
    while end < bytes.len() {
        match bytes[end] {
            b'\\' => end += 2,
            b'\n' if !triple => return end,
            byte if byte == quote && !triple => return end + 1,
            byte if byte == quote && bytes.get(end..end + 3) == Some(&[quote; 3]) => {
                return end + 3;
            }
            _ => end += 1,
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nests_too_deep_is_found_with_its_line() {
        for code in [
            format!("x = {}1", "1+".repeat(200_000)),
            format!("x = {}", "[".repeat(5_000)),
            format!("x = {}1", "not ".repeat(5_000)),
            format!("x = {}1", "-".repeat(5_000)),
            format!("x = a{}", ".b".repeat(5_000)),
            format!("x = a{}", "()".repeat(5_000)),
            format!("x = a{}", "[0]".repeat(5_000)),
            format!("x = (\n{}1)", "1 +\n".repeat(5_000)),
            format!("x = {}1", "lambda: ".repeat(5_000)),
            format!("x = {}1", "1 if 1 else ".repeat(5_000)),
            format!("if x:\n  pass\n{}", "elif x:\n  pass\n".repeat(5_000)),
        ] {
            let error = check(&format!("# first\n{code}")).unwrap_err();
            assert_eq!(error.exception, "RecursionError");
            assert!(error.line.is_some_and(|line| line >= 2), "{error:?}");
        }
        let error = check(&format!("a = 1\n'''\n\n'''\nx = {}1", "1+".repeat(5_000))).unwrap_err();
        assert_eq!(error.line, Some(5));
    }

    #[test]
    fn long_code_that_does_not_nest_is_fine() {
        for code in [
            format!("x = [{}]", "1 + 2, ".repeat(50_000)),
            format!("x = {{{}}}", "'a': b.c(1 - 2), ".repeat(50_000)),
            "x = a + b - c\n".repeat(50_000),
            format!("x = '{}'", "+/".repeat(50_000)),
            format!("x = '''{}'''", "+\n".repeat(50_000)),
            format!("# {}", "+".repeat(50_000)),
            format!("x = {}1", "1 + ".repeat(900)),
            "x = 1.5e-3\n".repeat(50_000),
            "s = 'unfinished\nx = 1 + 1".to_owned(),
            "x = '\\\\' + '\\''".to_owned(),
        ] {
            assert_eq!(check(&code), Ok(()), "{:.60}", code);
        }
    }
}
