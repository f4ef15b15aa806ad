//! Distributes a token budget over lines and blocks of lines.
//!
//! Costs are added up per line, which is an upper bound but for rare merges over a line end; a condenser that must stay
//! within a budget renders with [`within`], which renders again with less when the sum was off.

use std::borrow::{Borrow, Cow};

use llmc_tokens::{count, fits};

use crate::Condensed;

/// Tokens that ` …[+12 lines]` may take.
const MARK_TOKENS: usize = 8;
/// Tokens of a breadcrumb's `# TE: ` and its line end.
const BREADCRUMB_TOKENS: usize = 5;

/// The tokens a line takes with its end.
pub(crate) fn cost(line: &str) -> usize {
    count(line) + 1
}

/// The tokens a breadcrumb takes.
pub(crate) fn crumb_cost(crumb: &str) -> usize {
    count(crumb) + BREADCRUMB_TOKENS
}

/// Lines that belong together; the first says what it is, and the others are shown as far as there is room.
#[derive(Debug, Default)]
pub(crate) struct LineBlock<'a> {
    /// The lines, most telling first; the first may hold line ends itself.
    pub(crate) lines: Vec<Cow<'a, str>>,
    /// Lines that belong here but were too many to keep.
    pub(crate) dropped: usize,
}

impl LineBlock<'_> {
    fn unshown(&self, shown: usize) -> usize {
        self.lines.len() - shown + self.dropped
    }
}

/// How much of each block is shown.
pub(crate) struct Shares {
    /// Lines per block; 0 from the first block on that found no room.
    pub(crate) lines: Vec<usize>,
    /// Tokens that were not used.
    pub(crate) left: usize,
}

impl Shares {
    /// How many blocks are shown at all.
    pub(crate) fn blocks(&self) -> usize {
        self.lines.iter().take_while(|lines| **lines > 0).count()
    }
}

/// Deals the tokens out in rounds: every block gets its first line before any gets its second.
pub(crate) fn share<'a, B: Borrow<LineBlock<'a>>>(blocks: &[B], tokens: usize) -> Shares {
    let blocks: Vec<&LineBlock<'a>> = blocks.iter().map(Borrow::borrow).collect();
    let mut left = tokens;
    let mut lines = vec![0; blocks.len()];
    for (block, shown) in blocks.iter().zip(&mut lines) {
        let Some(first) = block.lines.first() else {
            break;
        };
        let need = cost(first) + if block.unshown(1) > 0 { MARK_TOKENS } else { 0 };
        if need > left {
            break;
        }
        left -= need;
        *shown = 1;
    }
    let shown_blocks = lines.iter().take_while(|shown| **shown > 0).count();
    let mut open: Vec<usize> = (0..shown_blocks)
        .filter(|i| blocks[*i].lines.len() > 1)
        .collect();
    while !open.is_empty() {
        open.retain(|&i| {
            let block = blocks[i];
            let need = cost(&block.lines[lines[i]]);
            let last = block.unshown(lines[i] + 1) == 0;
            let room = left + if last { MARK_TOKENS } else { 0 };
            if need > room {
                return false;
            }
            left = room - need;
            lines[i] += 1;
            lines[i] < block.lines.len()
        });
    }
    Shares { lines, left }
}

/// Writes as many lines of the block as its share allows and says how many it keeps back.
pub(crate) fn write_block(out: &mut String, block: &LineBlock<'_>, shown: usize) {
    for (i, line) in block.lines[..shown].iter().enumerate() {
        out.push_str(line);
        if i + 1 == shown && block.unshown(shown) > 0 {
            let unshown = block.unshown(shown);
            let noun = if unshown == 1 { "line" } else { "lines" };
            out.push_str(&format!(" …[+{} {noun}]", thousands(unshown as u64)));
        }
        out.push('\n');
    }
}

/// Renders within the budget, body and breadcrumbs together: again with less to deal out while the result is too long.
///
/// What a renderer prints even with nothing to deal out (the counts) may exceed a tiny budget.
pub(crate) fn within(budget: usize, render: impl Fn(usize) -> Condensed) -> Condensed {
    let mut tokens = budget;
    loop {
        let condensed = render(tokens);
        let crumbs: usize = condensed.breadcrumbs.iter().map(|c| crumb_cost(c)).sum();
        if tokens == 0 || fits(&condensed.body, budget.saturating_sub(crumbs)) {
            return condensed;
        }
        tokens -= (tokens / 8).max(1);
    }
}

/// A line of at most about `bytes` bytes: its start and its end, and between them `…[+1234 bytes]…`.
pub(crate) fn clip(line: &str, bytes: usize) -> Cow<'_, str> {
    if line.len() <= bytes {
        return Cow::Borrowed(line);
    }
    let (head, tail) = line_ends(line, bytes);
    let lost = line.len() - head.len() - tail.len();
    Cow::Owned(format!("{head}…[+{lost} bytes]…{tail}"))
}

/// The start and the end of a line, together at most `bytes`: three quarters of it from the start.
pub(crate) fn line_ends(line: &str, bytes: usize) -> (&str, &str) {
    let for_tail = bytes / 4;
    let head = line.floor_char_boundary(bytes - for_tail);
    let tail = line.ceil_char_boundary(line.len() - for_tail.min(line.len()));
    (&line[..head], &line[tail.max(head)..])
}

/// `12345` as `12,345`.
pub fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `1 hunk`, `1,204 hunks`.
pub(crate) fn plural(n: u64, noun: &str) -> String {
    let s = if n == 1 { "" } else { "s" };
    format!("{} {noun}{s}", thousands(n))
}

/// Names in a row as far as there is room, then how many more there are.
pub(crate) fn names(names: &[&str], tokens: usize) -> String {
    const AND_MORE_TOKENS: usize = 6;
    let mut out = String::new();
    let mut left = tokens.saturating_sub(AND_MORE_TOKENS);
    for (i, name) in names.iter().enumerate() {
        let name = clip(name, 160);
        let need = count(&name) + 1;
        if need > left {
            let more = thousands((names.len() - i) as u64);
            out.push_str(&if i == 0 {
                more
            } else {
                format!(" and {more} more")
            });
            break;
        }
        left -= need;
        if i > 0 {
            out.push_str(", ");
        }
        out.push_str(&name);
    }
    out
}

/// A shorter beginning of names is repeated with each.
const MIN_SHARED_TITLE_BYTES: usize = 12;

/// What several names of tests begin with: a file, a module or a package, the test that they are parts of, or titles of groups.
pub(crate) fn common_head<'a>(names: &[&'a str]) -> &'a str {
    let [first, others @ ..] = names else {
        return "";
    };
    let is_shared = |end: usize| {
        let head = &first[..end];
        let has_it = |name: &&str| name.len() > end && name.starts_with(head);
        first.len() > end && others.iter().all(has_it)
    };
    let longest = |mark: char, from: usize| {
        let ends = first[from..].match_indices(mark);
        let mut ends = ends.map(|(at, _)| from + at + 1).rev();
        ends.find(|end| is_shared(*end))
    };
    let module = first.rfind("::").map(|at| at + 2);
    // Go's names begin with a package, and parts of a test have its name before theirs.
    let package = first
        .find(' ')
        .filter(|at| first[..*at].contains(['/', '.']));
    let end = match (module, package) {
        _ if others.is_empty() => None,
        (Some(end), _) => Some(end).filter(|end| is_shared(*end)),
        (None, Some(at)) => longest('/', at + 1).or(Some(at + 1).filter(|end| is_shared(*end))),
        // Titles, as runners of JavaScript put them before the name.
        (None, None) => longest(' ', 0).filter(|end| *end >= MIN_SHARED_TITLE_BYTES),
    };
    &first[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block<'a>(lines: &[&'a str]) -> LineBlock<'a> {
        LineBlock {
            lines: lines.iter().map(|l| Cow::Borrowed(*l)).collect(),
            dropped: 0,
        }
    }

    #[test]
    fn first_lines_come_before_second_ones() {
        let blocks = [
            block(&["one", "a a a a", "b b b b", "c c c c"]),
            block(&["two", "short"]),
        ];
        let shares = share(&blocks, 2 * (2 + MARK_TOKENS));
        assert_eq!(shares.lines, [1, 2]);
        let shares = share(&blocks, 100);
        assert_eq!(shares.lines, [4, 2]);
        let shares = share(&blocks, 12);
        assert_eq!((shares.blocks(), shares.lines), (1, vec![1, 0]));
        let mut out = String::new();
        write_block(&mut out, &blocks[0], 2);
        assert_eq!(out, "one\na a a a …[+2 lines]\n");
    }

    #[test]
    fn numbers_and_names_read_well() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1_234_567), "1,234,567");
        assert_eq!(plural(1, "hunk"), "1 hunk");
        assert_eq!(names(&["a", "b", "c"], 100), "a, b, c");
        assert_eq!(names(&["a", "b", "c"], 10), "a, b and 1 more");
        assert_eq!(names(&["a", "b"], 0), "2");
        assert_eq!(clip("ééé", 3), "é…[+4 bytes]…");
    }
}
