//! Reads a git configuration line by line, in the part of its grammar in which git's versions agree.
//!
//! A text that git would read but that is unusual (a setting on the line of its section, continued lines, a byte order
//! mark) is not read at all, so what is read here is what git reads.

/// Larger configurations are not judged.
const MAX_CONFIG_BYTES: usize = 1 << 20;
const MAX_CONFIG_LINES: usize = 50_000;

/// A line with its ending, and what git reads in it.
#[derive(Debug)]
pub(super) struct ConfigLine<'a> {
    pub(super) raw: &'a [u8],
    pub(super) content: LineContent,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum LineContent {
    /// Nothing, or a comment.
    Blank,
    /// The header of a section.
    Header,
    Entry(Entry),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Entry {
    pub(super) key: ConfigKey,
    /// `None` without `=`, which means true.
    pub(super) value: Option<Vec<u8>>,
    /// The number of the line with the section's header.
    pub(super) header: HeaderLine,
}

/// The line of a header, which does not count when entries are compared.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeaderLine(pub(super) usize);

impl PartialEq for HeaderLine {
    fn eq(&self, _: &HeaderLine) -> bool {
        true
    }
}

impl Eq for HeaderLine {}

impl std::hash::Hash for HeaderLine {
    fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
}

/// A setting's name. Section and name are in lower case, as git compares them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ConfigKey {
    pub(super) section: String,
    pub(super) subsection: Option<Vec<u8>>,
    pub(super) name: String,
}

impl std::fmt::Display for ConfigKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.subsection {
            Some(sub) => write!(
                f,
                "{}.{}.{}",
                self.section,
                super::shortened(sub),
                self.name
            ),
            None => write!(f, "{}.{}", self.section, self.name),
        }
    }
}

/// The lines of a configuration, or why it is not read.
pub(super) fn parse(text: &[u8]) -> Result<Vec<ConfigLine<'_>>, &'static str> {
    if text.len() > MAX_CONFIG_BYTES {
        return Err("the configuration is larger than 1 MiB");
    }
    if text.starts_with(b"\xef\xbb\xbf") {
        return Err("the configuration begins with a byte order mark");
    }
    let mut lines = Vec::new();
    let mut section = None;
    for raw in text.split_inclusive(|byte| *byte == b'\n') {
        if lines.len() == MAX_CONFIG_LINES {
            return Err("the configuration has more than 50,000 lines");
        }
        let line = match raw.strip_suffix(b"\n") {
            Some(line) => line.strip_suffix(b"\r").unwrap_or(line),
            None => raw,
        };
        if line.iter().any(|b| b.is_ascii_control() && *b != b'\t') {
            return Err("the configuration has control characters");
        }
        let content = match line.trim_ascii_start() {
            [] | [b'#' | b';', ..] => LineContent::Blank,
            [b'[', header @ ..] => {
                section = Some((lines.len(), section_name(header)?));
                LineContent::Header
            }
            setting => {
                let (header, section) = section.as_ref().ok_or("a setting is in no section")?;
                LineContent::Entry(entry(setting, section, HeaderLine(*header))?)
            }
        };
        lines.push(ConfigLine { raw, content });
    }
    Ok(lines)
}

pub(super) fn entries<'a>(lines: &'a [ConfigLine<'_>]) -> impl Iterator<Item = &'a Entry> {
    lines.iter().filter_map(|line| match &line.content {
        LineContent::Entry(entry) => Some(entry),
        LineContent::Blank | LineContent::Header => None,
    })
}

/// A section's name and what follows its first dot, or its quoted part.
type SectionName = (String, Option<Vec<u8>>);

fn section_name(header: &[u8]) -> Result<SectionName, &'static str> {
    const UNREADABLE: &str = "the header of a section is not readable";
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-' || *byte == b'.';
    let end = header
        .iter()
        .position(|byte| !is_name(byte))
        .ok_or(UNREADABLE)?;
    let mut stem = header[..end].to_ascii_lowercase();
    let mut rest = &header[end..];
    if let [b' ' | b'\t', ..] = rest {
        let quoted = rest
            .trim_ascii_start()
            .strip_prefix(b"\"")
            .ok_or(UNREADABLE)?;
        stem.push(b'.');
        let mut bytes = quoted.iter().enumerate();
        let closing = loop {
            match bytes.next().ok_or(UNREADABLE)? {
                (at, b'"') => break at,
                (_, b'\\') => stem.push(*bytes.next().ok_or(UNREADABLE)?.1),
                (_, byte) => stem.push(*byte),
            }
        };
        rest = &quoted[closing + 1..];
    }
    let after = rest.strip_prefix(b"]").ok_or(UNREADABLE)?;
    if !matches!(after.trim_ascii_start(), [] | [b'#' | b';', ..]) {
        return Err("a setting is on the line of its section");
    }
    let mut parts = stem.splitn(2, |byte| *byte == b'.');
    let section = parts
        .next()
        .and_then(|name| String::from_utf8(name.to_vec()).ok());
    let section = section.filter(|name| !name.is_empty()).ok_or(UNREADABLE)?;
    Ok((section, parts.next().map(<[u8]>::to_vec)))
}

fn entry(line: &[u8], section: &SectionName, header: HeaderLine) -> Result<Entry, &'static str> {
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
    let end = line
        .iter()
        .position(|byte| !is_name(byte))
        .unwrap_or(line.len());
    let name = String::from_utf8(line[..end].to_ascii_lowercase()).unwrap_or_default();
    if !name.starts_with(|first: char| first.is_ascii_alphabetic()) {
        return Err("a line is neither a section nor a setting");
    }
    let value = match line[end..].trim_ascii_start() {
        [] => None,
        [b'=', text @ ..] => Some(value(text)?),
        _ => return Err("a line is neither a section nor a setting"),
    };
    let (section, subsection) = section.clone();
    let key = ConfigKey {
        section,
        subsection,
        name,
    };
    Ok(Entry { key, value, header })
}

/// A value without its quotes, escapes and comment, and without space around it.
fn value(text: &[u8]) -> Result<Vec<u8>, &'static str> {
    let mut out = Vec::new();
    // How long the value is without the unquoted space at its end.
    let mut trimmed = 0;
    let mut is_quoted = false;
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b' ' | b'\t' if !is_quoted => {
                if !out.is_empty() {
                    out.push(*byte);
                }
                continue;
            }
            b'#' | b';' if !is_quoted => break,
            b'"' => is_quoted = !is_quoted,
            b'\\' => out.push(match bytes.next() {
                Some(b't') => b'\t',
                Some(b'b') => 0x08,
                Some(b'n') => b'\n',
                Some(byte @ (b'\\' | b'"')) => *byte,
                Some(_) => return Err("a value has an unknown escape"),
                None => return Err("a value continues on the next line"),
            }),
            byte => out.push(*byte),
        }
        trimmed = out.len();
    }
    if is_quoted {
        return Err("a quotation mark is not closed");
    }
    out.truncate(trimmed);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::super::test_support::{Random, git};
    use super::*;

    /// What `git config -z --list` prints for these entries.
    fn listed(lines: &[ConfigLine<'_>]) -> Vec<u8> {
        let mut out = Vec::new();
        for entry in entries(lines) {
            let key = &entry.key;
            out.extend_from_slice(key.section.as_bytes());
            if let Some(sub) = &key.subsection {
                out.push(b'.');
                out.extend_from_slice(sub);
            }
            out.push(b'.');
            out.extend_from_slice(key.name.as_bytes());
            if let Some(value) = &entry.value {
                out.push(b'\n');
                out.extend_from_slice(value);
            }
            out.push(0);
        }
        out
    }

    /// What git reads in a text, or `None` where it reads nothing.
    fn listed_by_git(dir: &std::path::Path, text: &[u8]) -> Option<Vec<u8>> {
        std::fs::write(dir.join("text"), text).unwrap();
        let arguments = ["config", "-f", "text", "-z", "--list"];
        let output = git(dir).args(arguments).output().unwrap();
        output.status.success().then_some(output.stdout)
    }

    #[test]
    fn unusual_texts_are_not_read() {
        for text in [
            "name = x\n",
            "[user] name = x\n",
            "[user]\n\tname = a\\\nb\n",
            "[user]\n\tname = \"a\n",
            "[user]\n\tname = a\\x\n",
            "[user]\n\tname # comment\n",
            "[user]\n\t1name = a\n",
            "[user]\n\tna.me = a\n",
            "[user\n",
            "[user \"a]\n",
            "[user \"a\" ]\n",
            "[user a]\n",
            "[]\n",
            "[ \"a\"]\n",
            "[.a]\n",
            "\u{feff}[user]\n",
            "[user]\n\tname = a\rb\n",
            "[user]\n\tname = a\r",
            "[user]\n\tname = a\0b\n",
            "[user]\n\tname = \x1b[1m\n",
        ] {
            assert!(parse(text.as_bytes()).is_err(), "{text:?}");
        }
        assert!(parse(&vec![b'\n'; MAX_CONFIG_LINES + 1]).is_err());
        assert!(parse(&vec![b'#'; MAX_CONFIG_BYTES + 1]).is_err());
    }

    #[test]
    fn what_is_read_is_what_git_reads() {
        let dir = tempfile::tempdir().unwrap();
        let mut texts: Vec<Vec<u8>> = [
            "",
            "# only\n; comments",
            "[user]\n\tname = A B  # c\n\temail=a@b;c\r\n",
            "[A-b]\nKey-1=\"x # y\" z \" \"  \n",
            "[Remote \"Ori\\\"gin\\\\ \\x\"]\n\tURL = a\\tb\\n\\\"c\\\\\n\tprune\n\tx\t\n",
            "[branch.Old.Style]\n\tmerge = refs/heads/x\n[a.]\nb=c\n[a \"\"]\nb=d\n[a.b \"C.d\"]\ne=f\n",
            "[a] # c\nb = \n c=\"\"\n d = \"  \" \n  [e];\nf=g",
            "[a \"é]\"]\nb = é\\b\n",
            "[a]\nb=\t x \t y\t\n",
        ]
        .map(|text| text.as_bytes().to_vec())
        .to_vec();
        let pieces = [
            "[a]",
            "[a \"B\"]",
            "[A.B]",
            "\n",
            "\n",
            "\n\t",
            "key",
            "K2",
            " = ",
            "=",
            "x",
            "  ",
            "\t",
            "\"",
            "\\\"",
            "\\\\",
            "\\n",
            "\\t",
            "#",
            ";",
            "\r\n",
            "é",
            "]",
            "[",
        ];
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        for _ in 0..2500 {
            let count = 2 + random.below(15);
            let text: String = (0..count).map(|_| *random.pick(&pieces)).collect();
            texts.push(format!("[a]\n{text}").into_bytes());
        }
        let mut read = 0;
        for text in texts {
            if let Ok(lines) = parse(&text) {
                read += 1;
                let shown = String::from_utf8_lossy(&text).into_owned();
                assert_eq!(
                    Some(listed(&lines)),
                    listed_by_git(dir.path(), &text),
                    "{shown:?}"
                );
            }
        }
        assert!(read >= 60, "{read}");
    }
}
