//! The `*** Begin Patch` form, in which several model families are trained to write patches.
//!
//! ```text
//! *** Begin Patch
//! *** Update File: src/app.py
//! *** Move to: src/main.py
//! @@ def run():
//!  context
//! -old
//! +new
//! *** Add File: notes.txt
//! +a line
//! *** Delete File: old.txt
//! *** End Patch
//! ```
//!
//! Its blocks have no line numbers: a block is found by the lines it keeps and removes, after the lines that `@@` names.

use crate::error::{Error, Result};

const BEGIN: &str = "*** Begin Patch";
const END: &str = "*** End Patch";
const UPDATE: &str = "*** Update File:";
const ADD: &str = "*** Add File:";
const DELETE: &str = "*** Delete File:";
const MOVE: &str = "*** Move to:";
const END_OF_FILE: &str = "*** End of File";

/// The change of one file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BlockChange {
    Add { content: String },
    Delete,
    Update { blocks: Vec<Block> },
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct FileBlocks {
    pub(super) from: Option<String>,
    pub(super) to: Option<String>,
    pub(super) change: BlockChange,
}

/// Lines that follow each other in the file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Block {
    /// Lines above it that say where to look, outermost first.
    anchors: Vec<String>,
    old: Vec<String>,
    new: Vec<String>,
    /// Whether it ends the file.
    at_end: bool,
}

/// Whether a patch is written in this form.
pub(super) fn is_block_form(patch: &str) -> bool {
    patch.lines().any(|line| line.trim_end() == BEGIN)
}

pub(super) fn parse(patch: &str) -> Result<Vec<FileBlocks>> {
    let bad = |at: usize, why: String| Err(Error::BadPatch(format!("line {}: {why}", at + 1)));
    let lines: Vec<&str> = patch.lines().collect();
    let Some(begin) = lines.iter().position(|line| line.trim_end() == BEGIN) else {
        return bad(0, format!("there is no {BEGIN}"));
    };
    let mut files: Vec<FileBlocks> = Vec::new();
    let mut at = begin + 1;
    loop {
        let Some(line) = lines.get(at).map(|line| line.trim_end()) else {
            return bad(
                at.saturating_sub(1),
                format!("the patch ends here without {END}"),
            );
        };
        if line == END {
            break;
        }
        let named = |start: &str| line.strip_prefix(start).map(|path| path.trim().to_owned());
        if let Some(path) = named(ADD) {
            let mut content = String::new();
            at += 1;
            while let Some(line) = lines.get(at).filter(|line| !is_marker(line)) {
                let Some(text) = line.strip_prefix('+') else {
                    return bad(
                        at,
                        format!("lines of a new file start with +, not {}", shown(line)),
                    );
                };
                content.push_str(text);
                content.push('\n');
                at += 1;
            }
            files.push(FileBlocks {
                from: None,
                to: Some(path),
                change: BlockChange::Add { content },
            });
        } else if let Some(path) = named(DELETE) {
            at += 1;
            files.push(FileBlocks {
                from: Some(path),
                to: None,
                change: BlockChange::Delete,
            });
        } else if let Some(path) = named(UPDATE) {
            at += 1;
            let moved = lines.get(at).and_then(|line| line.strip_prefix(MOVE));
            let to = moved.map_or_else(|| path.clone(), |path| path.trim().to_owned());
            at += usize::from(moved.is_some());
            let blocks = match parse_blocks(&lines, &mut at) {
                Ok(blocks) => blocks,
                Err(why) => return bad(at, why),
            };
            if blocks.is_empty() && moved.is_none() {
                return bad(at, format!("{path} is named, but nothing of it changes"));
            }
            files.push(FileBlocks {
                from: Some(path),
                to: Some(to),
                change: BlockChange::Update { blocks },
            });
        } else if line.is_empty() {
            at += 1;
        } else {
            return bad(
                at,
                format!(
                    "expected {UPDATE} PATH, {ADD} PATH, {DELETE} PATH or {END}, not {}",
                    shown(line)
                ),
            );
        }
    }
    Ok(files)
}

fn parse_blocks(lines: &[&str], at: &mut usize) -> Result<Vec<Block>, String> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut block = Block::default();
    let is_open = |block: &Block| !block.old.is_empty() || !block.new.is_empty();
    while let Some(line) = lines.get(*at) {
        if line.trim_end() == END_OF_FILE {
            block.at_end = true;
            *at += 1;
            continue;
        }
        if is_marker(line) {
            break;
        }
        if let Some(anchor) = line.strip_prefix("@@") {
            if is_open(&block) {
                blocks.push(std::mem::take(&mut block));
            }
            let anchor = anchor.trim().trim_end_matches("@@").trim();
            // Numbers, as a unified diff has them, name no line here.
            if !anchor.is_empty() && !anchor.starts_with('-') {
                block.anchors.push(anchor.to_owned());
            }
        } else if let Some(text) = line.strip_prefix('+') {
            block.new.push(text.to_owned());
        } else if let Some(text) = line.strip_prefix('-') {
            block.old.push(text.to_owned());
        } else if line.is_empty() || line.starts_with(' ') {
            let text = line.strip_prefix(' ').unwrap_or(line);
            block.old.push(text.to_owned());
            block.new.push(text.to_owned());
        } else {
            return Err(format!(
                "lines of a change start with a space, + or -, not {}",
                shown(line)
            ));
        }
        *at += 1;
    }
    // An empty line before the next marker belongs to no change.
    if block.old.len() > 1 && lines.get(*at - 1).is_some_and(|line| line.is_empty()) {
        block.old.pop();
        block.new.pop();
    }
    if is_open(&block) {
        blocks.push(block);
    }
    Ok(blocks)
}

fn is_marker(line: &str) -> bool {
    line.starts_with("*** ")
}

fn shown(line: &str) -> String {
    let start: String = line.chars().take(40).collect();
    format!("{start:?}")
}

/// Applies blocks to the text of a file, one after the other.
pub(super) fn apply(requested: &str, text: &str, blocks: &[Block]) -> Result<String> {
    let ends_open = !text.is_empty() && !text.ends_with('\n');
    let line_end = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let mut from = 0;
    for (number, block) in blocks.iter().enumerate() {
        let no_match = |why: &str, found: usize, expected: &[String]| Error::NoMatch {
            path: requested.to_owned(),
            summary: format!(
                "change {} of {} {why}:\n{}",
                number + 1,
                blocks.len(),
                expected.join("\n")
            ),
            found,
            nearest: crate::edit::nearest_region(text.as_bytes(), &expected.join("\n")),
        };
        for anchor in &block.anchors {
            let is_anchor = |line: &String| line.trim() == anchor.trim();
            match lines[from..].iter().position(is_anchor) {
                Some(at) => from += at + 1,
                None => {
                    let why = "names a line after @@ that is not there";
                    return Err(no_match(why, 0, std::slice::from_ref(anchor)));
                }
            }
        }
        let at = if block.old.is_empty() {
            // Nothing says where, but for the line above it.
            if block.anchors.is_empty() {
                lines.len()
            } else {
                from
            }
        } else {
            let places = places(&lines, from, block);
            match places[..] {
                [at] => at,
                [] => {
                    let why = "does not apply; expected these lines";
                    return Err(no_match(why, 0, &block.old));
                }
                _ => {
                    let why =
                        "fits several places; begin it with @@ and the line above the right one";
                    return Err(no_match(why, places.len(), &block.old));
                }
            }
        };
        lines.splice(at..at + block.old.len(), block.new.iter().cloned());
        from = at + block.new.len();
    }
    let mut done = lines.join(line_end);
    if !lines.is_empty() && !ends_open {
        done.push_str(line_end);
    }
    Ok(done)
}

/// Where a block fits: by its exact lines, or else without regard to blanks at their ends, or else on both sides.
fn places(lines: &[String], from: usize, block: &Block) -> Vec<usize> {
    let old = &block.old;
    let same: [fn(&str, &str) -> bool; 3] = [
        |a, b| a == b,
        |a, b| a.trim_end() == b.trim_end(),
        |a, b| a.trim() == b.trim(),
    ];
    let Some(last) = lines.len().checked_sub(old.len()) else {
        return Vec::new();
    };
    for same in same {
        let fits = |at: &usize| {
            let mut pairs = lines[*at..].iter().zip(old);
            pairs.all(|(line, old)| same(line, old))
        };
        let mut found: Vec<usize> = (from..=last).filter(fits).collect();
        if block.at_end {
            found.retain(|at| *at == last);
        }
        if !found.is_empty() {
            return found;
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(patch: &str, text: &str) -> String {
        let files = parse(patch).unwrap();
        let BlockChange::Update { blocks } = &files[0].change else {
            panic!("{files:?}")
        };
        apply("a", text, blocks).unwrap()
    }

    fn refused(patch: &str) -> String {
        parse(patch).unwrap_err().to_string()
    }

    #[test]
    fn blocks_are_found_by_their_lines_and_by_the_lines_above() {
        let text = "def a():\n    x = 1\n    return x\n\ndef b():\n    x = 1\n    return x\n";
        let patch = "*** Begin Patch\n*** Update File: a\n@@ def b():\n-    x = 1\n+    x = 2\n     return x\n*** End Patch\n";
        assert_eq!(
            change(patch, text),
            "def a():\n    x = 1\n    return x\n\ndef b():\n    x = 2\n    return x\n"
        );
        // Without the line above, two places fit.
        let files = parse(&patch.replace("@@ def b():", "@@")).unwrap();
        let BlockChange::Update { blocks } = &files[0].change else {
            panic!()
        };
        let error = apply("a", text, blocks).unwrap_err();
        assert!(matches!(error, Error::NoMatch { found: 2, .. }), "{error}");
    }

    #[test]
    fn line_ends_of_the_file_are_kept() {
        let patch = "*** Begin Patch\n*** Update File: a\n one\n-two\n+2\n*** End Patch";
        assert_eq!(change(patch, "one\r\ntwo\r\n"), "one\r\n2\r\n");
        assert_eq!(change(patch, "one\ntwo"), "one\n2");
    }

    #[test]
    fn a_patch_that_cannot_be_read_names_the_line() {
        for (patch, said) in [
            (
                "*** Begin Patch\n*** Update File: a\n x\n",
                "line 3: the patch ends here without *** End Patch",
            ),
            (
                "*** Begin Patch\nhello\n*** End Patch",
                "line 2: expected *** Update File: PATH",
            ),
            (
                "*** Begin Patch\n*** Update File: a\n@@\n-x\ny\n*** End Patch",
                "line 5: lines of a change start with a space, + or -, not \"y\"",
            ),
            (
                "*** Begin Patch\n*** Add File: a\n+x\ny\n*** End Patch",
                "line 4: lines of a new file start with +, not \"y\"",
            ),
            (
                "*** Begin Patch\n*** Update File: a\n*** End Patch",
                "line 3: a is named, but nothing of it changes",
            ),
        ] {
            let text = refused(patch);
            assert!(text.contains(said), "{text}");
        }
    }
}
