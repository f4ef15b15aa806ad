//! One hit as a line of the answer.

use std::ops::Range;

/// Characters of a line that are shown; of longer ones the part around the match.
const MAX_LINE_CHARS: usize = 240;
/// What is shown before the match of a clipped line.
const CHARS_BEFORE_MATCH: usize = 60;

/// The text of a hit without its indentation, clipped around the match, with the length of the line it was cut from.
pub(super) fn shown(text: &str, matched: Option<Range<usize>>) -> String {
    let trimmed = text.trim();
    if trimmed.len() <= MAX_LINE_CHARS || trimmed.chars().nth(MAX_LINE_CHARS).is_none() {
        return trimmed.to_owned();
    }
    let indent = text.len() - text.trim_start().len();
    let matched = matched.map_or(0, |range| range.start.saturating_sub(indent));
    let matched = floor(trimmed, matched.min(trimmed.len()));
    let start = trimmed[..matched]
        .char_indices()
        .rev()
        .nth(CHARS_BEFORE_MATCH - 1)
        .map_or(0, |(at, _)| at);
    let end = trimmed[start..]
        .char_indices()
        .nth(MAX_LINE_CHARS - 20)
        .map_or(trimmed.len(), |(at, _)| start + at);
    let mut out = String::new();
    if start > 0 {
        out.push('…');
    }
    out.push_str(trimmed[start..end].trim());
    if end < trimmed.len() {
        out.push('…');
    }
    out.push_str(&format!(" [{} bytes]", length(text)));
    out
}

/// Whether [`shown`] leaves out part of a line, or the search has already done so.
pub(super) fn is_clipped(text: &str) -> bool {
    text.trim().chars().nth(MAX_LINE_CHARS).is_some() || length(text) > text.len() as u64
}

/// How little a line says about the use of a name: 2 for a comment, 1 for an import, 0 for all else.
///
/// Only by how it starts, since it decides no more than which lines of a file are shown first.
pub(super) fn says_little(text: &str) -> u8 {
    let text = text.trim_start();
    let starts = |marks: &[&str]| marks.iter().any(|mark| text.starts_with(mark));
    if starts(&["//", "/*", "* ", "*/", "# ", "<!--", "-- ", "\"\"\"", ";;"]) {
        2
    } else if starts(&[
        "use ", "pub use ", "import ", "from ", "#include", "require ", "using ", "@import",
    ]) {
        1
    } else {
        0
    }
}

fn floor(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// The bytes of the line, counting what the search has already cut off and noted as `[12 bytes+] … [+34 bytes]`.
fn length(text: &str) -> u64 {
    let mut text = text;
    let mut cut = 0;
    if let Some((digits, rest)) = text
        .strip_prefix('[')
        .and_then(|rest| rest.split_once(" bytes+] "))
        && let Ok(before) = digits.parse::<u64>()
    {
        cut = before;
        text = rest;
    }
    if let Some((rest, digits)) = text
        .strip_suffix(" bytes]")
        .and_then(|rest| rest.rsplit_once(" [+"))
        && let Ok(after) = digits.parse::<u64>()
    {
        cut = cut.saturating_add(after);
        text = rest;
    }
    cut.saturating_add(text.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_cut_around_the_match() {
        assert_eq!(shown("\t let x = 1;  ", None), "let x = 1;");
        let long = format!("  {}needle{}", "ä".repeat(500), "b".repeat(900));
        let at = long.find("needle").unwrap();
        let cut = shown(&long, Some(at..at + 6));
        assert!(cut.starts_with("…ä") && cut.contains("äneedleb"), "{cut}");
        assert!(cut.ends_with("b… [1908 bytes]"), "{cut}");
        assert!(cut.chars().count() <= MAX_LINE_CHARS);
        assert!(shown(&long, None).starts_with("ää"));
        assert_eq!(length("[5000 bytes+] abc [+70 bytes]"), 5073);
    }
}
