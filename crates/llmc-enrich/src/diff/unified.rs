//! A unified diff of two texts.

use std::time::Duration;

use similar::TextDiff;

/// How long to look for the smallest diff; past it the rest is shown as replaced, which is still true.
const DIFF_TIMEOUT: Duration = Duration::from_millis(1500);
/// Bytes of a line repeated in a hunk's header.
const MAX_SYMBOL_BYTES: usize = 80;

/// The unified diff that turns `a` into `b`, with `context` lines around each change; empty when they are equal.
///
/// As in git's, each hunk's header ends with the nearest line above it that starts a symbol, so that a reader, and
/// [`condense`](super::condense), can tell where they are.
pub fn unified(a_name: &str, a: &str, b_name: &str, b: &str, context: usize) -> String {
    // Split here, for `similar` would also break lines at a lone carriage return.
    let old: Vec<&str> = a.split_inclusive('\n').collect();
    let new: Vec<&str> = b.split_inclusive('\n').collect();
    let diff = TextDiff::configure()
        .timeout(DIFF_TIMEOUT)
        .newline_terminated(true)
        .diff_slices(&old, &new);
    let mut unified = diff.unified_diff();
    unified.context_radius(context);
    let mut out = String::new();
    let mut searched = 0;
    let mut symbol = "";
    for hunk in unified.iter_hunks() {
        if out.is_empty() {
            out.push_str(&format!("--- {a_name}\n+++ {b_name}\n"));
        }
        let start = hunk.ops().first().map_or(0, |op| op.old_range().start);
        let above = old.get(searched..start).unwrap_or_default();
        symbol = above
            .iter()
            .rev()
            .find_map(|line| opens_symbol(line))
            .unwrap_or(symbol);
        searched = start.max(searched);
        out.push_str(&hunk.header().to_string());
        if !symbol.is_empty() {
            out.push_str(&format!(" {symbol}"));
        }
        out.push('\n');
        // Written here, for `similar` would take a last carriage return for a line end.
        for change in hunk.iter_changes() {
            out.push_str(&format!("{}{}", change.tag(), change.value()));
            if !change.value().ends_with('\n') {
                out.push_str("\n\\ No newline at end of file\n");
            }
        }
    }
    out
}

/// The line, if it is one that git would take for the start of a function: it begins with a letter, `_` or `$`.
fn opens_symbol(line: &str) -> Option<&str> {
    let line = line.trim_end();
    let opens = line.starts_with(|c: char| c.is_alphabetic() || c == '_' || c == '$');
    opens.then(|| &line[..line.floor_char_boundary(MAX_SYMBOL_BYTES)])
}
