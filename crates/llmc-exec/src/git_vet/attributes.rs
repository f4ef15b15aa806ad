//! Judges `info/attributes` line by line: an attribute may name a filter or a driver, which are programs.

use std::collections::HashSet;

use super::{JudgedFile, MAX_REJECTIONS, Verdict, lines_of, shortened};

/// Git ignores longer lines.
const MAX_LINE_BYTES: usize = 2048;
const MAX_FILE_BYTES: usize = 1 << 20;

/// Drivers for differences that are part of git; any other name is configured, perhaps with a program.
#[rustfmt::skip]
const DIFF_DRIVERS: [&str; 25] = [
    "ada", "bash", "bibtex", "cpp", "csharp", "css", "dts", "elixir", "fortran", "fountain", "golang", "html", "java",
    "kotlin", "markdown", "matlab", "objc", "pascal", "perl", "php", "python", "ruby", "rust", "scheme", "tex",
];
const MERGE_DRIVERS: [&str; 3] = ["text", "binary", "union"];
/// Attributes that are harmless with any value.
#[rustfmt::skip]
const HARMLESS: [&str; 13] = [
    "text", "eol", "crlf", "binary", "whitespace", "working-tree-encoding", "export-ignore", "export-subst", "ident", "delta",
    "encoding", "conflict-marker-size", "diff",
];
const HARMLESS_PREFIX: &[u8] = b"linguist-";
/// Names of attributes that no macro may take.
const NOT_A_MACRO: [&str; 2] = ["filter", "merge"];
const MACRO_PREFIX: &[u8] = b"[attr]";

pub(super) fn vet_attributes(file: &JudgedFile<'_>, new: &[u8], before: Option<&[u8]>) -> Verdict {
    if new.len() > MAX_FILE_BYTES {
        return file.refused("the file", "larger than 1 MiB");
    }
    let known: HashSet<&[u8]> = lines_of(before.unwrap_or_default()).collect();
    let mut macros: HashSet<&[u8]> = known.iter().filter_map(|line| macro_name(line)).collect();
    let mut content = Vec::with_capacity(new.len());
    let mut rejected = Vec::new();
    for raw in new.split_inclusive(|byte| *byte == b'\n') {
        let line = raw.strip_suffix(b"\n").unwrap_or(raw);
        if known.contains(line) {
            content.extend_from_slice(raw);
            continue;
        }
        match vet_line(line, &macros) {
            Ok(()) => {
                macros.extend(macro_name(line));
                content.extend_from_slice(raw);
            }
            Err(reason) if rejected.len() < MAX_REJECTIONS => {
                rejected.push(file.rejection(shortened(line), reason));
            }
            Err(_) => {}
        }
    }
    if rejected.is_empty() {
        return Verdict::Harmless;
    }
    match lines_of(&content).eq(lines_of(before.unwrap_or_default())) {
        true => Verdict::Refused(rejected),
        false => Verdict::Filtered { content, rejected },
    }
}

fn vet_line(line: &[u8], macros: &HashSet<&[u8]>) -> Result<(), &'static str> {
    const UNREADABLE: &str = "not a line of attributes that is judged";
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    // A byte order mark hides that a pattern is quoted.
    let is_unreadable = line.len() >= MAX_LINE_BYTES
        || line.starts_with(b"\xef\xbb\xbf")
        || line.iter().any(|b| b.is_ascii_control() && *b != b'\t');
    if is_unreadable {
        return Err(UNREADABLE);
    }
    let line = line.trim_ascii();
    if line.is_empty() || line.starts_with(b"#") {
        return Ok(());
    }
    let (pattern, attributes) = match line.strip_prefix(b"\"") {
        Some(quoted) => {
            let end = quoted
                .iter()
                .position(|byte| *byte == b'"')
                .ok_or(UNREADABLE)?;
            (&quoted[..end], &quoted[end + 1..])
        }
        None => line.split_at(
            line.iter()
                .position(|b| b" \t".contains(b))
                .unwrap_or(line.len()),
        ),
    };
    let is_quoted = line.starts_with(b"\"");
    let is_apart = matches!(attributes, [] | [b' ' | b'\t', ..]);
    if !is_apart || (is_quoted && (pattern.contains(&b'\\') || pattern.starts_with(MACRO_PREFIX))) {
        return Err(UNREADABLE);
    }
    if let Some(name) = pattern
        .strip_prefix(MACRO_PREFIX)
        .filter(|name| !name.is_empty())
        && (!is_macro_name(name)
            || is_one_of(name, &NOT_A_MACRO)
            || (is_one_of(name, &HARMLESS) && name != b"binary"))
    {
        return Err("not a name for a macro");
    }
    let words = attributes
        .split(|b| b" \t".contains(b))
        .filter(|word| !word.is_empty());
    for word in words {
        vet_attribute(word, macros)?;
    }
    Ok(())
}

fn vet_attribute(word: &[u8], macros: &HashSet<&[u8]>) -> Result<(), &'static str> {
    const OTHER: &str = "not on the list of harmless attributes";
    let bare = word.strip_prefix(b"-").or(word.strip_prefix(b"!"));
    let (name, value) = match word.iter().position(|byte| *byte == b'=') {
        Some(at) if bare.is_none() => (&word[..at], Some(&word[at + 1..])),
        Some(_) => return Err(OTHER),
        None => (bare.unwrap_or(word), None),
    };
    match (name, value) {
        (b"diff", Some(driver)) if !is_one_of(driver, &DIFF_DRIVERS) => {
            Err("names a driver, which may run programs")
        }
        (b"merge", Some(driver)) if !is_one_of(driver, &MERGE_DRIVERS) => {
            Err("names a driver, which may run programs")
        }
        (b"merge", _) => Ok(()),
        (b"filter", _) => Err("names a filter, which runs programs"),
        (name, _) if is_one_of(name, &HARMLESS) || name.starts_with(HARMLESS_PREFIX) => Ok(()),
        (name, None) if macros.contains(name) => Ok(()),
        _ => Err(OTHER),
    }
}

/// The macro that a line defines.
fn macro_name(line: &[u8]) -> Option<&[u8]> {
    let name = line.trim_ascii().strip_prefix(MACRO_PREFIX)?;
    let end = name
        .iter()
        .position(|b| b.is_ascii_whitespace())
        .unwrap_or(name.len());
    Some(&name[..end]).filter(|name| is_macro_name(name))
}

fn is_macro_name(name: &[u8]) -> bool {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.-".contains(byte);
    !name.is_empty() && !name.starts_with(b"-") && name.iter().all(is_part)
}

fn is_one_of(text: &[u8], words: &[&str]) -> bool {
    words.iter().any(|word| word.as_bytes() == text)
}

#[cfg(test)]
mod tests {
    use super::super::test_support::vet;
    use super::*;

    #[test]
    fn attributes_are_judged_line_by_line() {
        for line in [
            "# filter=evil",
            "",
            "*.c text eol=lf -diff !merge",
            "*.rs diff=rust merge=union\r",
            "\"a b\" binary",
            "*.x -text whitespace=trailing-space,tab-in-indent working-tree-encoding=UTF-16",
            "docs/* linguist-documentation=true export-ignore",
            "[attr]mine -diff -text\n*.m mine",
            "[attr]binary -diff -merge -text",
        ] {
            assert_eq!(
                vet("info/attributes", line, None),
                Verdict::Harmless,
                "{line}"
            );
        }
        for line in [
            "* filter=evil",
            "* -filter",
            "* text filter=lfs",
            "* diff=evil",
            "* merge=evil",
            "* unknown",
            "* mine",
            "\"a b\"filter=evil text",
            "\"a\\\" text\" filter=evil",
            "\u{feff}\"a\"filter=x text",
            "\"[attr]mine\" text",
            "[attr]filter text",
            "[attr]mine filter=evil",
            "[attr]text -diff",
            "* text\0filter=evil",
            "* text\x0bfilter=evil",
        ] {
            assert!(
                matches!(vet("info/attributes", line, None), Verdict::Refused(_)),
                "{line}"
            );
        }
    }

    #[test]
    fn known_lines_stay_and_harmful_ones_go() {
        let before = "*.bin filter=lfs\n[attr]big filter=lfs\n";
        let new = "*.bin filter=lfs\n*.x filter=evil\n*.c text\n[attr]big filter=lfs\n*.y big";
        let Verdict::Filtered { content, rejected } = vet("info/attributes", new, Some(before))
        else {
            panic!();
        };
        let wanted = "*.bin filter=lfs\n*.c text\n[attr]big filter=lfs\n*.y big";
        assert_eq!(String::from_utf8(content).unwrap(), wanted);
        assert_eq!(rejected.len(), 1);
        assert_eq!(rejected[0].item, "*.x filter=evil");
        let with_one = format!("{before}* filter=evil\n");
        assert!(matches!(
            vet("modules/a/info/attributes", &with_one, Some(before)),
            Verdict::Refused(_)
        ));
    }
}
