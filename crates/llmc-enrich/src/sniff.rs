//! What a file holds, by its name and its first bytes.

use llmc_syntax::Language;

/// What a file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ContentKind {
    Code,
    Json,
    Yaml,
    Toml,
    Csv,
    Log,
    Markdown,
    Text,
    Binary,
}

impl ContentKind {
    /// The word the envelope has for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Code => "code",
            Self::Json => "json",
            Self::Yaml => "yaml",
            Self::Toml => "toml",
            Self::Csv => "csv",
            Self::Log => "log",
            Self::Markdown => "markdown",
            Self::Text => "text",
            Self::Binary => "binary",
        }
    }
}

/// Names and extensions, lower case, that settle it.
const NAMES: &[(ContentKind, &[&str])] = &[
    (
        ContentKind::Json,
        &[
            "json",
            "jsonl",
            "ndjson",
            "geojson",
            "ipynb",
            "webmanifest",
            "har",
            "json5",
            "jsonc",
        ],
    ),
    (ContentKind::Yaml, &["yaml", "yml", ".clang-format"]),
    (
        ContentKind::Toml,
        &["toml", "cargo.lock", "poetry.lock", "uv.lock", "pipfile"],
    ),
    (ContentKind::Csv, &["csv", "tsv", "psv"]),
    (ContentKind::Log, &["log"]),
    (ContentKind::Markdown, &["md", "markdown", "mdx"]),
    (
        ContentKind::Code,
        &[
            "kt",
            "kts",
            "swift",
            "scala",
            "lua",
            "sql",
            "html",
            "htm",
            "css",
            "scss",
            "less",
            "vue",
            "svelte",
            "ex",
            "exs",
            "erl",
            "hs",
            "ml",
            "zig",
            "dart",
            "r",
            "jl",
            "pl",
            "pm",
            "clj",
            "proto",
            "graphql",
            "tf",
            "hcl",
            "nix",
            "cmake",
            "makefile",
            "dockerfile",
            "gradle",
            "groovy",
            "fs",
            "vb",
            "asm",
            "s",
            "m",
            "mm",
            "el",
            "lisp",
            "vim",
            "ps1",
            "fish",
            "zsh",
            "xml",
            "xsd",
            "svg",
            "cmakelists.txt",
            "justfile",
        ],
    ),
];

/// Bytes looked at.
const SNIFF_BYTES: usize = 8 * 1024;

/// What the file at `path` holds, of which `head` is the beginning.
pub fn sniff(path: &str, head: &[u8]) -> ContentKind {
    let head = &head[..head.len().min(SNIFF_BYTES)];
    if is_binary(head) {
        return ContentKind::Binary;
    }
    let name = path.rsplit('/').next().unwrap_or(path).to_ascii_lowercase();
    let extension = name
        .rsplit_once('.')
        .filter(|(stem, _)| !stem.is_empty())
        .map(|(_, extension)| extension);
    let known = NAMES.iter().find(|(_, words)| {
        words.contains(&name.as_str()) || extension.is_some_and(|word| words.contains(&word))
    });
    if let Some((kind, _)) = known {
        return *kind;
    }
    // `server.log.1`, `server.log-20260102`
    if name.contains(".log.") || name.contains(".log-") {
        return ContentKind::Log;
    }
    let text = String::from_utf8_lossy(head);
    if Language::detect(path, &text).is_some() {
        return ContentKind::Code;
    }
    by_content(&text)
}

/// Whether these bytes are not meant to be read: a NUL, or more control characters and broken UTF-8 than a slip explains.
pub fn is_binary(head: &[u8]) -> bool {
    let head = &head[..head.len().min(SNIFF_BYTES)];
    if memchr::memchr(0, head).is_some() || head.starts_with(b"%PDF-") {
        return true;
    }
    let control = head
        .iter()
        .filter(|byte| {
            byte.is_ascii_control() && !matches!(byte, b'\t' | b'\n' | b'\r' | 0x0c | 0x08 | 0x1b)
        })
        .count();
    // The head may end inside a character.
    let broken: usize = head
        .utf8_chunks()
        .map(|chunk| chunk.invalid().len())
        .sum::<usize>()
        .saturating_sub(3);
    (control + broken) * 10 > head.len()
}

fn by_content(text: &str) -> ContentKind {
    let start = text.trim_start_matches('\u{feff}').trim_start();
    let mut after = start.chars().skip(1).skip_while(|c| c.is_whitespace());
    match start.chars().next() {
        Some('{') if matches!(after.next(), Some('"' | '}')) => return ContentKind::Json,
        // `[2026-01-02 …] started` is a log, `[2, 3]` is not.
        Some('[')
            if matches!(after.next(), Some('"' | '{' | '[' | ']' | '0'..='9')) && !is_log(text) =>
        {
            return ContentKind::Json;
        }
        _ => {}
    }
    if is_log(text) {
        ContentKind::Log
    } else if start.starts_with("---\n") || start.starts_with("%YAML") {
        ContentKind::Yaml
    } else if start.starts_with("# ") && text.lines().any(|line| line.starts_with("## ")) {
        ContentKind::Markdown
    } else if delimiter(text).is_some() {
        ContentKind::Csv
    } else {
        ContentKind::Text
    }
}

/// Whether at least half of the lines start like those of a log: with a time, or a level.
fn is_log(text: &str) -> bool {
    let lines: Vec<_> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .take(40)
        .collect();
    let logged = lines.iter().filter(|line| starts_like_a_log(line)).count();
    lines.len() >= 3 && logged * 2 >= lines.len()
}

fn starts_like_a_log(line: &str) -> bool {
    let line = line.trim_start_matches(['[', ' ', '<', '(']);
    let bytes = line.as_bytes();
    let digits = |from: usize, to: usize| {
        bytes
            .get(from..to)
            .is_some_and(|part| part.iter().all(u8::is_ascii_digit))
    };
    let date = digits(0, 4) && matches!(bytes.get(4), Some(b'-' | b'/')) && digits(5, 7);
    let clock = digits(0, 2) && bytes.get(2) == Some(&b':') && digits(3, 5);
    // `Jan  2 03:04:05 host`
    let month = bytes.get(..3).is_some_and(|month| MONTHS.contains(&month))
        && bytes.get(3) == Some(&b' ')
        && line.get(4..16).is_some_and(|rest| rest.contains(':'));
    let level = line
        .split(|c: char| !c.is_ascii_alphabetic())
        .next()
        .is_some_and(|word| LEVELS.contains(&word));
    date || clock || month || level
}

const MONTHS: [&[u8]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];

const LEVELS: &[&str] = &[
    "ERROR", "WARN", "WARNING", "INFO", "DEBUG", "TRACE", "FATAL", "CRITICAL", "NOTICE",
];

/// What separates the columns, if every one of the first lines has the same number of them.
pub(crate) fn delimiter(text: &str) -> Option<u8> {
    let whole = match text.rfind('\n') {
        Some(end) => &text[..end],
        None => text,
    };
    let lines: Vec<_> = whole.lines().take(8).collect();
    if lines.len() < 3 || lines.iter().any(|line| line.trim().is_empty()) {
        return None;
    }
    b",\t;|".iter().copied().find(|&mark| {
        let columns = |line: &str| {
            let mut quoted = false;
            line.bytes().fold(0_usize, |columns, byte| {
                quoted ^= byte == b'"';
                columns + usize::from(byte == mark && !quoted)
            })
        };
        let first = columns(lines[0]);
        first >= 1 && lines.iter().all(|line| columns(line) == first)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn by_name_and_by_content() {
        use ContentKind::{Binary, Code, Csv, Json, Log, Markdown, Text, Toml, Yaml};
        for (path, head, expected) in [
            ("a/b.rs", "fn main() {}", Code),
            ("Dockerfile", "FROM x", Code),
            ("x.JSON", "{}", Json),
            ("Cargo.lock", "", Toml),
            ("a.yml", "a: 1", Yaml),
            ("README.md", "hi", Markdown),
            ("x.log.1", "hi", Log),
            ("x.tsv", "a\tb", Csv),
            ("run", "#!/bin/sh\necho", Code),
            ("data", "{\"a\": 1}", Json),
            ("data", "[1, 2]", Json),
            ("data", "{ a block }", Text),
            (
                "out",
                "2026-01-02T03:04:05 a\n2026-01-02T03:04:06 b\n2026-01-02T03:04:06 c\n",
                Log,
            ),
            (
                "out",
                "[2026-01-02 03:04:05] a\n[2026-01-02 03:04:05] b\n  at x\n[2026-01-02 03:04:05] c\n",
                Log,
            ),
            (
                "syslog",
                "Jan  2 03:04:05 h a\nJan  2 03:04:05 h a\nJan  2 03:04:05 h a\n",
                Log,
            ),
            ("data", "id,name\n1,\"a,b\"\n2,c\n", Csv),
            ("notes.txt", "Dear all,\nhello, friend\nbye\n", Text),
            ("x.rs", "a\0b", Binary),
            ("x", "%PDF-1.7", Binary),
            ("x", "", Text),
            ("doc", "---\na: 1\n", Yaml),
        ] {
            assert_eq!(sniff(path, head.as_bytes()), expected, "{path}: {head}");
        }
        assert_eq!(
            sniff("x", &[0xff, 0xfe, 0x80, 0x81, 0x82, 0x90, 0x91, 0xaa]),
            Binary
        );
        assert_eq!(sniff("x", &"ä".as_bytes()[..1]), Text);
    }

    proptest! {
        #[test]
        fn never_panics(path in "\\PC{0,20}", head in prop::collection::vec(any::<u8>(), 0..300)) {
            sniff(&path, &head);
        }
    }
}
