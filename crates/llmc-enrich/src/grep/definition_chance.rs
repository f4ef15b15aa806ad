//! Which hits are worth a parse.
//!
//! Whether a line defines a name is for the syntax tree to say. But a tree costs a millisecond for every ten kilobytes,
//! and nine in ten hits cannot possibly be definitions: the name is behind a dot, inside a call, in a comment. Ruling
//! those out by looking around the match decides only which files are parsed, and in which order. A definition laid out
//! in a way not foreseen here is still shown, as a use.

use std::ops::Range;

use llmc_syntax::Language;

/// How likely a hit is a definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DefinitionChance {
    None,
    /// The surroundings allow it.
    Weak,
    /// A word before the name announces it.
    Strong,
    /// And the match is all of the name.
    Exact,
}

/// Words that announce a definition in one language or another.
const DEFINING_WORDS: &[&str] = &[
    "fn",
    "def",
    "class",
    "struct",
    "enum",
    "trait",
    "type",
    "const",
    "static",
    "mod",
    "func",
    "function",
    "interface",
    "module",
    "namespace",
    "union",
    "record",
    "define",
    "typedef",
    "let",
    "var",
    "concept",
    "delegate",
    "mut",
    "fun",
    "val",
    "object",
    "protocol",
    "typealias",
    "message",
    "service",
    "rpc",
    "table",
    "view",
    "local",
    "defp",
    "defmodule",
    "defmacro",
];

/// Words that stand before a name in use, where otherwise a type would stand before a name defined.
const USING_WORDS: &[&str] = &[
    "return",
    "new",
    "await",
    "throw",
    "raise",
    "else",
    "case",
    "in",
    "if",
    "elif",
    "while",
    "not",
    "and",
    "or",
    "yield",
    "import",
    "from",
    "use",
    "as",
    "goto",
    "delete",
    "typeof",
    "instanceof",
    "extends",
    "implements",
    "where",
    "for",
    "impl",
    "dyn",
    "include",
    "require",
    "package",
    "is",
    "match",
    "using",
    "sizeof",
    "echo",
    "co_await",
    "co_return",
    "assert",
    "defer",
    "go",
];

/// Names looked at in one line.
const MAX_NAMES: usize = 8;

/// The chance that a name which the match overlaps is defined here.
pub(super) fn of(language: Language, line: &str, matched: Range<usize>) -> DefinitionChance {
    let start = line[..matched.start]
        .char_indices()
        .rev()
        .take_while(|(_, c)| is_name(*c))
        .last()
        .map_or(matched.start, |(at, _)| at);
    let mut best = DefinitionChance::None;
    let mut at = start;
    for _ in 0..MAX_NAMES {
        let Some(skip) = line[at..].find(is_name) else {
            break;
        };
        let from = at + skip;
        if from >= matched.end.max(matched.start + 1) {
            break;
        }
        let to = line[from..]
            .find(|c| !is_name(c))
            .map_or(line.len(), |length| from + length);
        let mut chance = of_name(language, &line[..from], &line[from..to], &line[to..]);
        if chance == DefinitionChance::Strong && matched.start <= from && to <= matched.end {
            chance = DefinitionChance::Exact;
        }
        best = best.max(chance);
        at = to;
    }
    best
}

fn of_name(language: Language, before: &str, name: &str, after: &str) -> DefinitionChance {
    use Language::{
        Bash, C, CSharp, Cpp, Dockerfile, Elixir, Go, Hcl, Java, JavaScript, Lua, Php, Python,
        Ruby, Rust, Sql, Tsx, TypeScript,
    };

    let before = before.trim();
    let after = after.trim_start();
    let comment = ["//", "/*", "* "]
        .iter()
        .any(|mark| before.starts_with(mark))
        || before == "*"
        || (before.starts_with('#')
            && matches!(language, Python | Ruby | Bash | Elixir | Hcl | Dockerfile))
        || (before.starts_with("--") && matches!(language, Lua | Sql));
    if comment {
        return DefinitionChance::None;
    }
    let word = before
        .rsplit(|c| !is_name(c))
        .next()
        .filter(|word| !word.is_empty());
    if word.is_some_and(|word| DEFINING_WORDS.contains(&word))
        || before.ends_with("macro_rules!")
        || (before.starts_with("func (") && before.ends_with(')'))
        || (before.starts_with("def ") && before.ends_with('.'))
    {
        return DefinitionChance::Strong;
    }
    let script = matches!(language, JavaScript | TypeScript | Tsx);
    let typed = matches!(language, C | Cpp | Java | CSharp | Php);
    let next = after.chars().next();
    let assigned = after.starts_with('=') && !after.starts_with("==");
    let annotated = after.starts_with(':') && !after.starts_with("::");
    let possible = match before.chars().next_back() {
        None => match language {
            Rust => {
                annotated
                    || (name.starts_with(char::is_uppercase)
                        && matches!(next, None | Some(',' | '(' | '{' | '=')))
            }
            Python => assigned || annotated,
            Ruby => assigned,
            Bash => assigned || after.starts_with("()"),
            Go => !matches!(next, Some('.' | ':')),
            _ => !matches!(next, Some('.')),
        },
        Some(':') if before.ends_with("::") => language == Cpp && next == Some('('),
        Some('.') => script && assigned,
        Some('{' | ',')
            if ["enum ", "struct ", "class ", "interface "]
                .iter()
                .any(|word| before.contains(word)) =>
        {
            true
        }
        Some('{' | ',') => {
            script && annotated && (after.contains("=>") || after.contains("function"))
        }
        Some('$' | '#') => language == Php || script,
        Some('*' | '&' | '>' | ']' | '}' | '~') => {
            (typed && matches!(next, None | Some('(' | '=' | ';' | '[' | ',' | '{' | ':')))
                || (script && matches!(next, Some('(')))
        }
        Some(')') => language == Rust && annotated && before.starts_with("pub("),
        Some(c) if is_name(c) => {
            let in_use = word.is_some_and(|word| USING_WORDS.contains(&word));
            !in_use
                && match language {
                    Rust => annotated && word == Some("pub"),
                    Python | Ruby | Go => false,
                    Bash => assigned,
                    _ => matches!(
                        next,
                        None | Some('(' | '=' | ';' | '[' | ',' | '{' | ':' | '<' | '?')
                    ),
                }
        }
        Some(_) => false,
    };
    if possible {
        DefinitionChance::Weak
    } else {
        DefinitionChance::None
    }
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_surrounds_a_name() {
        use DefinitionChance::{Exact, None, Strong, Weak};
        use Language::{C, Cpp, Go, Java, JavaScript, Python, Ruby, Rust};
        for (language, line, expected) in [
            (Rust, "    pub(crate) fn take(&self) {", Exact),
            (Rust, "    let x = pool.take();", None),
            (Rust, "    pub take: Vec<T>,", Weak),
            (Rust, "    Self::take(x)", None),
            (Rust, "// fn take", None),
            (Rust, "macro_rules! take {", Exact),
            (Python, "    async def take(self):", Exact),
            (Python, "take = 3", Weak),
            (Python, "    return take(3)", None),
            (Go, "func (p *Pool) take() {", Exact),
            (Go, "	p.take()", None),
            (Ruby, "  def self.take", Exact),
            (C, "static int take(struct pool *p)", Weak),
            (C, "take(struct pool *p)", Weak),
            (C, "    return take(p);", None),
            (C, "char *take(void) {", Weak),
            (Cpp, "int Pool::take() {", Weak),
            (Java, "  public T take() {", Weak),
            (Java, "  new take()", None),
            (JavaScript, "exports.take = function () {}", Weak),
            (JavaScript, "  pool.take()", None),
            (JavaScript, "  async take() {", Weak),
        ] {
            let at = line.find("take").unwrap();
            assert_eq!(of(language, line, at..at + 4), expected, "{line}");
        }
        // The match may hold more than the name, or less.
        assert_eq!(of(Rust, "fn take() {}", 0..7), Exact);
        assert_eq!(of(Rust, "fn take() {}", 0..4), Strong);
        assert_eq!(of(Rust, "fn take() {}", 4..5), Strong);
        assert_eq!(of(Rust, "fn take() {}", 9..9), None);
    }
}
