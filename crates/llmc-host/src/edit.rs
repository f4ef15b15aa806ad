//! Replaces text in a file; when the text is missing, the error shows the most similar lines.
//!
//! A failed edit costs an agent a whole round trip, so the error carries what the next attempt needs: how often the text
//! was found and where, or the lines that resemble it most, with line numbers.

use std::time::{Duration, Instant};

use memchr::memmem;

use crate::error::{Error, Result};

const MAX_SHOWN_LINES: usize = 12;
/// Beyond this many lines the nearest region is looked for only among lines that match one exactly.
const MAX_SCORED_LINES: usize = 50_000;

/// Time limit of the search for the nearest region, since a failing call should answer soon.
const NEAREST_REGION_TIMEOUT: Duration = Duration::from_millis(700);

#[derive(Debug, Clone, Copy)]
pub struct Replacement<'a> {
    pub old_text: &'a str,
    pub new_text: &'a str,
    /// How often `old_text` must occur.
    pub count: usize,
}

/// Applies a replacement to a file's bytes.
///
/// # Errors
/// [`Error::NoMatch`] when `old_text` occurs another number of times.
pub fn apply(requested: &str, bytes: &[u8], replacement: &Replacement<'_>) -> Result<Vec<u8>> {
    if replacement.old_text.is_empty() {
        return Err(Error::BadRequest(
            "old_text is empty; use linux_fs_write to create a file".to_owned(),
        ));
    }
    if replacement.count == 0 {
        return Err(Error::BadRequest(
            "expected_replacements must be at least 1".to_owned(),
        ));
    }
    // A model writes \n; in a file whose line ends are all \r\n that means the file's own line end, in what is put in as
    // well as in what is looked for.
    let wide = |text: &str| {
        text.replace("\r\n", "\n")
            .replace('\n', "\r\n")
            .into_bytes()
    };
    let ends = memchr::memchr_iter(b'\n', bytes).count();
    let wide_ends = memmem::find_iter(bytes, b"\r\n").count();
    let mut old = replacement.old_text.as_bytes().to_vec();
    let mut new = replacement.new_text.as_bytes().to_vec();
    if wide_ends > 0 && wide_ends == ends && !replacement.new_text.contains('\r') {
        new = wide(replacement.new_text);
    }
    let mut found: Vec<usize> = memmem::find_iter(bytes, &old).collect();
    if found.is_empty() && wide_ends > 0 && !replacement.old_text.contains('\r') {
        let candidate = wide(replacement.old_text);
        found = memmem::find_iter(bytes, &candidate).collect();
        if !found.is_empty() {
            (old, new) = (candidate, wide(replacement.new_text));
        }
    }
    if found.len() != replacement.count {
        let summary = format!(
            "old_text occurs {} times, expected_replacements is {}",
            found.len(),
            replacement.count
        );
        let nearest = if found.is_empty() {
            nearest_region(bytes, replacement.old_text)
        } else {
            render_match_lines(bytes, &found)
        };
        return Err(Error::NoMatch {
            path: requested.to_owned(),
            summary,
            found: found.len(),
            nearest,
        });
    }
    let mut out = Vec::with_capacity(bytes.len() + found.len() * new.len());
    let mut at = 0;
    for start in found {
        out.extend_from_slice(&bytes[at..start]);
        out.extend_from_slice(&new);
        at = start + old.len();
    }
    out.extend_from_slice(&bytes[at..]);
    Ok(out)
}

/// The lines at which matches start.
fn render_match_lines(bytes: &[u8], found: &[usize]) -> String {
    let mut lines = Vec::new();
    let (mut line, mut at) = (1, 0);
    for start in found.iter().take(MAX_SHOWN_LINES) {
        line += memchr::memchr_iter(b'\n', &bytes[at..*start]).count();
        at = *start;
        let end = memchr::memchr(b'\n', &bytes[at..]).map_or(bytes.len(), |len| at + len);
        let begin = memchr::memrchr(b'\n', &bytes[..at]).map_or(0, |before| before + 1);
        lines.push(render_numbered(
            line,
            &String::from_utf8_lossy(&bytes[begin..end]),
        ));
    }
    if found.len() > MAX_SHOWN_LINES {
        lines.push(format!(
            "… and {} more places",
            found.len() - MAX_SHOWN_LINES
        ));
    }
    lines.join("\n")
}

/// The window of lines most like the text, with line numbers. Empty when nothing resembles it.
pub(crate) fn nearest_region(bytes: &[u8], text: &str) -> String {
    let haystack = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = haystack.lines().take(MAX_SCORED_LINES).collect();
    let wanted: Vec<&str> = text.lines().collect();
    let height = wanted.len().clamp(1, MAX_SHOWN_LINES);
    if lines.is_empty() {
        return String::new();
    }
    // Score single lines first; whole windows are compared only where a line scored.
    let wanted: Vec<LetterPairs> = wanted
        .iter()
        .take(height)
        .map(|line| LetterPairs::of(line))
        .collect();
    if wanted.iter().all(|line| line.pairs.len() < 2) {
        return String::new();
    }
    let started = Instant::now();
    let mut pairs = Vec::with_capacity(lines.len());
    let mut scored: Vec<(f64, usize)> = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        if at % 256 == 0 && started.elapsed() > NEAREST_REGION_TIMEOUT {
            break;
        }
        let line = LetterPairs::of(line);
        let score = wanted
            .iter()
            .map(|want| want.similarity(&line))
            .fold(0.0, f64::max);
        if score > 0.5 {
            scored.push((score, at));
        }
        pairs.push(line);
    }
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let best = scored
        .iter()
        .take(200)
        .flat_map(|(_, at)| (0..height).map(move |shift| at.saturating_sub(shift)))
        .map(|start| {
            let rows = wanted.iter().zip(pairs.iter().skip(start));
            (
                rows.map(|(want, line)| want.similarity(line)).sum::<f64>(),
                start,
            )
        })
        .max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
    let Some((_, start)) = best else {
        return String::new();
    };
    let end = (start + height).min(lines.len());
    let shown = lines[start..end].iter().enumerate();
    shown
        .map(|(row, line)| render_numbered(start + row + 1, line))
        .collect::<Vec<_>>()
        .join("\n")
}

fn render_numbered(line: usize, text: &str) -> String {
    let text = text.trim_end_matches('\r');
    match text.char_indices().nth(200) {
        Some((end, _)) => format!("{line}: {}…[+{} bytes]", &text[..end], text.len() - end),
        None => format!("{line}: {text}"),
    }
}

/// A line as its letter pairs, sorted: cheap to compare, and blind to small shifts.
///
/// Models mostly get white space wrong when they quote a file, so runs of it count as one space.
struct LetterPairs {
    pairs: Vec<[u8; 2]>,
}

impl LetterPairs {
    fn of(line: &str) -> LetterPairs {
        let start: String = line.chars().take(600).collect();
        let line = start.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut pairs: Vec<[u8; 2]> = line
            .as_bytes()
            .windows(2)
            .take(400)
            .map(|w| [w[0], w[1]])
            .collect();
        pairs.sort_unstable();
        LetterPairs { pairs }
    }

    /// Share of common pairs, 0 to 1.
    fn similarity(&self, other: &LetterPairs) -> f64 {
        let (a, b) = (&self.pairs, &other.pairs);
        if a.is_empty() || b.is_empty() {
            return if a.len() == b.len() { 0.1 } else { 0.0 };
        }
        let (mut i, mut j, mut common) = (0, 0, 0usize);
        while i < a.len() && j < b.len() {
            match a[i].cmp(&b[j]) {
                std::cmp::Ordering::Less => i += 1,
                std::cmp::Ordering::Greater => j += 1,
                std::cmp::Ordering::Equal => {
                    common += 1;
                    i += 1;
                    j += 1;
                }
            }
        }
        2.0 * common as f64 / (a.len() + b.len()) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(file: &str, old: &str, new: &str, count: usize) -> Result<String, (String, String)> {
        let replacement = Replacement {
            old_text: old,
            new_text: new,
            count,
        };
        match apply("f", file.as_bytes(), &replacement) {
            Ok(bytes) => Ok(String::from_utf8(bytes).unwrap()),
            Err(Error::NoMatch {
                summary, nearest, ..
            }) => Err((summary, nearest)),
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn replaces_exactly_as_often_as_expected() {
        assert_eq!(check("a b a", "a", "x", 2).unwrap(), "x b x");
        assert_eq!(check("one\ntwo\n", "two\n", "", 1).unwrap(), "one\n");
        let (summary, places) = check("x\na\nb a\n", "a", "z", 1).unwrap_err();
        assert_eq!(
            summary,
            "old_text occurs 2 times, expected_replacements is 1"
        );
        assert_eq!(places, "2: a\n3: b a");
    }

    #[test]
    fn keeps_the_files_own_line_ends_and_every_other_byte() {
        assert_eq!(
            check("a\r\nb\r\nc", "a\nb", "x\ny\nz", 1).unwrap(),
            "x\r\ny\r\nz\r\nc"
        );
        let latin = b"caf\xe9 one\n\xff two";
        let replacement = Replacement {
            old_text: "one",
            new_text: "1",
            count: 1,
        };
        assert_eq!(
            apply("f", latin, &replacement).unwrap(),
            b"caf\xe9 1\n\xff two"
        );
        assert_eq!(check("\u{feff}x", "x", "y", 1).unwrap(), "\u{feff}y");
    }

    #[test]
    fn a_near_miss_is_shown_with_its_lines() {
        let file = "fn one() {}\n\nfn two(a: u32) -> u32 {\n    a + 1\n}\n";
        let (summary, nearest) =
            check(file, "fn two(a: u64) -> u32 {\n  a + 1\n", "", 1).unwrap_err();
        assert_eq!(
            summary,
            "old_text occurs 0 times, expected_replacements is 1"
        );
        assert_eq!(nearest, "3: fn two(a: u32) -> u32 {\n4:     a + 1");
    }

    #[test]
    fn nothing_alike_shows_nothing() {
        assert_eq!(check("abc\n", "zzz qqq", "", 1).unwrap_err().1, "");
    }

    #[test]
    fn a_huge_line_is_clipped() {
        let line = "word ".repeat(1000);
        let (_, nearest) = check(&line, &line.replace("word", "worm"), "", 1).unwrap_err();
        assert!(nearest.len() < 300, "{}", nearest.len());
    }
}
