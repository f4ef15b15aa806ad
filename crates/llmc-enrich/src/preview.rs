//! A file within a token budget, in the form that says most about it.
//!
//! What fits comes back untouched. Of what does not, the reader first gets the shape (what a program defines, which keys
//! a document has, which columns a table, which errors a log) and then the beginning, with its line numbers, so that
//! the next question can name the lines it wants.
//!
//! `shown` counts the lines that are there themselves; an outline shows none.

mod excerpt;
mod json;
mod keys;
mod magic;
mod table;

use llmc_tokens::{count, fits};

use crate::budget::plural;
use crate::excerpt::{left_out, line_count};
use crate::logs::{self, LogSurvey};
use crate::sniff::ContentKind;
use crate::{Condensed, Totals};
use excerpt::{Edge, Excerpt, first_lines, last_lines};
use llmc_syntax::Language;

/// What is at hand of a text.
#[derive(Debug, Clone, Copy)]
pub struct TextEnds<'t> {
    /// All of it, or the beginning if there is a `tail`.
    pub head: &'t str,
    /// The end, when what lies between is not at hand.
    pub tail: Option<&'t str>,
    /// The size of the whole.
    pub total_bytes: u64,
    /// The lines of the whole.
    pub total_lines: u64,
    /// What a log held when all of it streamed by, where only its ends are at hand.
    pub survey: Option<&'t LogSurvey>,
}

/// Which part was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreviewPart {
    /// Everything.
    Whole,
    /// The first lines.
    Head(u64),
    /// The last lines.
    Tail(u64),
    /// Lines from this one on, counted from 1; the text at hand begins with it.
    From(u64),
}

/// Tokens left for the remarks.
const REMARK_TOKENS: usize = 30;

/// A text within a token budget.
///
/// The part that was asked for, if it fits; otherwise, of the whole text, its shape and its beginning, and of some lines
/// as many as fit.
pub fn condense(
    path: &str,
    kind: ContentKind,
    text: &TextEnds<'_>,
    asked: PreviewPart,
    budget_tokens: usize,
) -> Condensed {
    let room = budget_tokens;
    let answer = |body: String, shown: u64, short: bool, breadcrumbs: Vec<String>| Condensed {
        body,
        breadcrumbs,
        totals: Totals {
            lines: Some(text.total_lines),
            size: Some(text.total_bytes),
            ..Totals::default()
        },
        shown,
        truncated: short,
        ..Condensed::default()
    };
    match asked {
        PreviewPart::Whole if text.tail.is_none() && fits(text.head, room) => {
            answer(text.head.to_owned(), text.total_lines, false, Vec::new())
        }
        PreviewPart::Whole if kind == ContentKind::Log => {
            let mut found = match text.tail {
                None => logs::condense(text.head, room),
                Some(tail) => logs::condense_ends(text, tail, room),
            };
            // The text may have grown when bytes that are no UTF-8 were replaced; the file has not.
            found.totals.size = Some(text.total_bytes);
            found
        }
        PreviewPart::Whole => {
            let (start, mut remarks) =
                preview(path, kind, text, room.saturating_sub(REMARK_TOKENS));
            let shown = start.lines.min(text.total_lines);
            let unshown = text.total_lines - shown;
            let bytes = text.total_bytes.saturating_sub(start.bytes);
            remarks.insert(0, left_out(unshown, bytes, u64::from(start.clipped), ""));
            answer(start.text, shown, true, remarks)
        }
        PreviewPart::Head(lines) => {
            let taken = first_lines(
                text.head,
                lines,
                room.saturating_sub(REMARK_TOKENS),
                edge(text),
            );
            let wanted = lines.min(text.total_lines);
            let short = taken.lines < wanted || taken.clipped;
            let remarks = range_remark(1, &taken, wanted, text.total_lines);
            answer(taken.text, taken.lines, short, remarks)
        }
        PreviewPart::From(first) => {
            let wanted = line_count(text.head);
            let taken = first_lines(
                text.head,
                wanted,
                room.saturating_sub(REMARK_TOKENS),
                Edge::Whole,
            );
            let short = taken.lines < wanted || taken.clipped;
            let remarks = range_remark(first, &taken, wanted, text.total_lines);
            answer(taken.text, taken.lines, short, remarks)
        }
        PreviewPart::Tail(lines) => {
            let end = text.tail.unwrap_or(text.head);
            let taken = last_lines(end, lines, room.saturating_sub(REMARK_TOKENS), edge(text));
            let wanted = lines.min(text.total_lines);
            let short = taken.lines < wanted || taken.clipped;
            let first = (text.total_lines + 1).saturating_sub(taken.lines);
            let remarks = range_remark(first, &taken, wanted, text.total_lines);
            answer(taken.text, taken.lines, short, remarks)
        }
    }
}

/// A file that is no text: what it is, and how large.
pub fn condense_binary(path: &str, head: &[u8], total_bytes: u64) -> Condensed {
    Condensed {
        body: format!(
            "{}, {}\n",
            magic::name(path, head),
            magic::size(total_bytes)
        ),
        totals: Totals {
            size: Some(total_bytes),
            ..Totals::default()
        },
        truncated: total_bytes > 0,
        ..Condensed::default()
    }
}

/// Says which lines these are, unless they are all there are.
fn range_remark(first: u64, taken: &Excerpt, wanted: u64, total: u64) -> Vec<String> {
    let mut said = Vec::new();
    if taken.lines < total {
        let last = (first + taken.lines).saturating_sub(1);
        let mut remark = match taken.lines {
            0 => format!("0 of {total} lines"),
            _ => format!("lines {first}-{last} of {total}"),
        };
        if taken.lines < wanted {
            remark.push_str(&format!("; {} asked for do not fit", wanted - taken.lines));
        }
        said.push(remark);
    }
    if taken.clipped {
        said.push("long lines are clipped".to_owned());
    }
    said
}

/// Shape and beginning, of a text without a shape its beginning and its end; and what to remark.
fn preview(
    path: &str,
    kind: ContentKind,
    text: &TextEnds<'_>,
    room: usize,
) -> (Excerpt, Vec<String>) {
    let half = room / 2;
    let (shape, remark) = match kind {
        ContentKind::Code => outline(path, text.head, half),
        ContentKind::Json => json::shape(text, half),
        ContentKind::Yaml => keys::yaml(text.head, half),
        ContentKind::Toml => keys::toml(text.head, half),
        ContentKind::Markdown => keys::markdown(text.head, half),
        ContentKind::Csv => table::columns(path, text, half),
        // Logs have a condenser of their own.
        ContentKind::Text | ContentKind::Log | ContentKind::Binary => (String::new(), None),
    };
    let mut body = shape;
    if text.tail.is_some() && !body.is_empty() {
        body.insert_str(0, "(of the beginning)\n");
    }
    let title_room = 12;
    let left = room.saturating_sub(count(&body) + title_room);
    let remarks = remark.into_iter().collect();
    if body.is_empty() {
        return (beginning_and_end(text, left), remarks);
    }
    let mut start = first_lines(text.head, u64::MAX, left, edge(text));
    if start.lines > 0 {
        body.push_str(&format!(
            "\nlines 1-{} of {}:\n",
            start.lines, text.total_lines
        ));
        body.push_str(&start.text);
    }
    start.text = body;
    (start, remarks)
}

/// The first lines and, in a third of the room, the last ones; a line between them counts the rest.
fn beginning_and_end(text: &TextEnds<'_>, room: usize) -> Excerpt {
    let for_end = room / 3;
    let mut start = first_lines(text.head, u64::MAX, room - for_end, edge(text));
    let rest = text.total_lines.saturating_sub(start.lines);
    if rest == 0 || start.lines == 0 {
        return first_lines(text.head, u64::MAX, room, edge(text));
    }
    let last = last_lines(text.tail.unwrap_or(text.head), rest, for_end, edge(text));
    let between = rest - last.lines;
    if between > 0 {
        if !start.text.ends_with('\n') {
            start.text.push('\n');
        }
        start
            .text
            .push_str(&format!("… {} left out …\n", plural(between, "line")));
    }
    Excerpt {
        text: start.text + &last.text,
        lines: start.lines + last.lines,
        bytes: start.bytes + last.bytes,
        clipped: start.clipped || last.clipped,
    }
}

type ContentShape = (String, Option<String>);

fn outline(path: &str, source: &str, room: usize) -> ContentShape {
    let Some(language) = Language::detect(path, source) else {
        return ContentShape::default();
    };
    // A line of an outline takes ten tokens or more.
    let found = llmc_syntax::outline(language, source, room / 10);
    lines_of_shape(found.lines, found.withheld, "definitions", "", room)
}

/// As many lines of a shape as fit, below a title that counts all of them and says more `about` it.
fn lines_of_shape(
    lines: Vec<String>,
    withheld: usize,
    what: &str,
    about: &str,
    room: usize,
) -> ContentShape {
    let title = format!("{} {what}{about}:\n", lines.len() + withheld);
    titled(&title, lines, withheld, what, room)
}

/// As many lines as fit below a title, and a remark that counts the others.
fn titled(
    title: &str,
    lines: Vec<String>,
    withheld: usize,
    what: &str,
    room: usize,
) -> ContentShape {
    if lines.is_empty() {
        return ContentShape::default();
    }
    let all = lines.len() + withheld;
    let taken = first_lines(
        &(lines.join("\n") + "\n"),
        u64::MAX,
        room.saturating_sub(count(title)),
        Edge::Whole,
    );
    let more = all as u64 - taken.lines;
    let remark = (more > 0).then(|| format!("{more} more {what}"));
    if taken.lines == 0 {
        return (String::new(), remark);
    }
    (title.to_owned() + &taken.text, remark)
}

/// What is known of the line at which the beginning of a text was cut off.
fn edge(text: &TextEnds<'_>) -> Edge {
    match text.tail {
        None => Edge::Whole,
        Some(tail) if text.total_lines <= 1 => Edge::Bytes(
            text.total_bytes
                .saturating_sub(u64::from(tail.ends_with('\n'))),
        ),
        Some(_) => Edge::MoreThan,
    }
}

#[cfg(test)]
mod tests;
