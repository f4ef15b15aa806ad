//! Matching lines as `grep` and `rg` print them.
//!
//! With line numbers or without, with the file's name or, for a single file, not. What does not follow the pattern
//! (context, separators) makes the whole an ordinary text: better no ranking than a wrong one.

use std::collections::HashMap;

use crate::grep::{FoundLine, Matches};

/// Of a hundred lines this many must read alike.
const MIN_ALIKE_PERCENT: usize = 95;
/// Files whose lines are numbered afterwards.
const MAX_NUMBERED_FILES: usize = 200;

/// The matches in a listing, of which `total` lines are in all; nothing if it is not one. `file` is the one that was
/// searched, if it was one.
pub(super) fn parse(
    text: &str,
    total: u64,
    pattern: String,
    file: &str,
    source: &mut dyn FnMut(&str) -> Option<String>,
) -> Option<Matches> {
    let lines: Vec<&str> = text.lines().collect();
    if lines.is_empty() {
        return None;
    }
    let enough = |hits: &Vec<FoundLine>| hits.len() * 100 >= lines.len() * MIN_ALIKE_PERCENT;
    let mut hits: Vec<FoundLine> = lines.iter().filter_map(|line| numbered(line)).collect();
    if !enough(&hits) && !file.is_empty() {
        let bare = lines.iter().filter_map(|line| bare(line, file));
        hits = bare.collect();
    }
    if !enough(&hits) {
        hits = lines.iter().filter_map(|line| named(line)).collect();
        if !enough(&hits) || !find_numbers(&mut hits, source) {
            return None;
        }
    }
    let mut files: Vec<&str> = hits.iter().map(|hit| hit.path.as_str()).collect();
    files.dedup();
    files.sort_unstable();
    files.dedup();
    Some(Matches {
        total: total.max(hits.len() as u64),
        files_matched: files.len() as u64,
        pattern,
        hits,
        ..Matches::default()
    })
}

/// `path:12:text`.
fn numbered(line: &str) -> Option<FoundLine> {
    let (path, rest) = line.split_once(':')?;
    let (number, text) = rest.split_once(':')?;
    let number = number.parse().ok().filter(|number| *number > 0)?;
    (!path.is_empty()).then(|| FoundLine {
        path: path.to_owned(),
        line: number,
        text: text.to_owned(),
    })
}

/// `12:text`, of the one file that was searched.
fn bare(line: &str, file: &str) -> Option<FoundLine> {
    let (number, text) = line.split_once(':')?;
    let number = number.parse().ok().filter(|number| *number > 0)?;
    Some(FoundLine {
        path: file.to_owned(),
        line: number,
        text: text.to_owned(),
    })
}

/// `path:text`; the line is not known yet.
fn named(line: &str) -> Option<FoundLine> {
    let (path, text) = line.split_once(':')?;
    let plausible = !path.is_empty() && !path.contains(char::is_whitespace);
    plausible.then(|| FoundLine {
        path: path.to_owned(),
        line: 0,
        text: text.to_owned(),
    })
}

/// Looks the lines up in their files: the next line with this text is the one. `false` if these are no files.
fn find_numbers(hits: &mut [FoundLine], source: &mut dyn FnMut(&str) -> Option<String>) -> bool {
    let mut read: HashMap<String, (Vec<String>, usize)> = HashMap::new();
    let (mut found, mut tried) = (0, 0);
    for hit in hits.iter_mut() {
        if !read.contains_key(&hit.path) {
            if read.len() == MAX_NUMBERED_FILES {
                continue;
            }
            let lines = source(&hit.path).unwrap_or_default();
            let lines = lines.lines().map(str::to_owned).collect();
            read.insert(hit.path.clone(), (lines, 0));
        }
        let Some((lines, from)) = read.get_mut(&hit.path) else {
            continue;
        };
        tried += 1;
        let place = lines[*from..].iter().position(|line| *line == hit.text);
        if let Some(place) = place {
            *from += place + 1;
            hit.line = *from as u64;
            found += 1;
        }
    }
    tried > 0 && found * 2 >= tried
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read_and_others_are_unchanged() {
        let mut file =
            |path: &str| (path == "a.rs").then(|| "fn f() {}\nlet x = 1;\nfn f() {}\n".to_owned());
        let found = parse(
            "a.rs:3:fn f() {}\nb:x.rs:1:y\n",
            2,
            "f".into(),
            "",
            &mut file,
        );
        // A name with a colon reads as a shorter one; the share of such lines decides.
        assert!(found.is_none() || found.is_some_and(|found| found.hits[0].line == 3));
        let found = parse(
            "a.rs:fn f() {}\na.rs:fn f() {}\n",
            2,
            "f".into(),
            "",
            &mut file,
        )
        .unwrap();
        let lines: Vec<u64> = found.hits.iter().map(|hit| hit.line).collect();
        assert_eq!((lines, found.files_matched), (vec![1, 3], 1));
        let found = parse("3:fn f() {}\n", 1, "f".into(), "a.rs", &mut file).unwrap();
        assert_eq!(
            (found.hits[0].line, found.hits[0].path.as_str()),
            (3, "a.rs")
        );
        for text in ["", "usage: grep\nsee: man\n", "one\ntwo\n"] {
            assert!(
                parse(text, 2, "f".into(), "", &mut file).is_none(),
                "{text}"
            );
        }
    }
}
