//! Whole lines of a text within a token budget, with over-long ones clipped.

use std::borrow::Cow;

use llmc_tokens::{count, fits, lines_within};

use crate::budget::line_ends;

/// Some lines of a text.
#[derive(Debug, Default)]
pub(super) struct Excerpt {
    pub(super) text: String,
    pub(super) lines: u64,
    /// Bytes of the original that are in it.
    pub(super) bytes: u64,
    /// Whether a line is not whole.
    pub(super) clipped: bool,
}

/// How long a line is that stands where a text was cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Edge {
    /// The text was not cut within a line.
    Whole,
    /// So many bytes.
    Bytes(u64),
    /// Longer than what is at hand of it.
    MoreThan,
}

/// Bytes of a line beyond which it is clipped.
const CLIP_ABOVE_BYTES: usize = 2000;
const CLIPPED_BYTES: usize = 400;
/// More bytes than a token has in any text that is worth showing.
const BYTES_PER_TOKEN: usize = 24;

/// The first lines, at most `most`, that fit `room` tokens; the text may be cut at its end.
pub(super) fn first_lines(text: &str, most: u64, room: usize, edge: Edge) -> Excerpt {
    let enough = room.saturating_mul(BYTES_PER_TOKEN);
    let mut gathered = String::new();
    let mut clips = Vec::new();
    for (n, line) in text.split_inclusive('\n').enumerate() {
        if n as u64 >= most || gathered.len() > enough {
            break;
        }
        let line = clip(line, CLIP_ABOVE_BYTES, CLIPPED_BYTES, at_end(line, edge));
        gathered.push_str(&line.text);
        clips.push((line.bytes, line.clipped));
    }
    let (bytes, _) = lines_within(&gathered, room);
    gathered.truncate(bytes);
    let lines = gathered.split_inclusive('\n').count();
    if lines == 0 && most > 0 && room > 0 {
        let line = text.split_inclusive('\n').next();
        let edge = line.map_or(edge, |line| at_end(line, edge));
        return squeezed(line, room, edge);
    }
    let clips = &clips[..lines];
    Excerpt {
        clipped: clips.iter().any(|(_, clipped)| *clipped),
        bytes: clips.iter().map(|(bytes, _)| bytes).sum(),
        lines: lines as u64,
        text: gathered,
    }
}

/// The last lines, at most `most`, that fit `room` tokens; the text may be cut at its start.
pub(super) fn last_lines(text: &str, most: u64, room: usize, edge: Edge) -> Excerpt {
    // A text that was cut short was cut between lines, if it has several.
    let lines = text.split_inclusive('\n').take(2).count();
    let edge = if lines > 1 { Edge::Whole } else { edge };
    let enough = room.saturating_mul(BYTES_PER_TOKEN);
    let mut gathered = Vec::new();
    let mut bytes = 0;
    let mut rest = text;
    while !rest.is_empty() && (gathered.len() as u64) < most && bytes <= enough {
        let end = rest.strip_suffix('\n').unwrap_or(rest);
        let start = end.rfind('\n').map_or(0, |at| at + 1);
        let shown = clip(&rest[start..], CLIP_ABOVE_BYTES, CLIPPED_BYTES, edge);
        bytes += shown.text.len();
        gathered.push(shown);
        rest = &rest[..start];
    }
    gathered.reverse();
    let last = |lines: usize| -> String {
        gathered[gathered.len() - lines..]
            .iter()
            .map(|line| &*line.text)
            .collect()
    };
    // Bisection over how many lines; a longer text can have fewer tokens only by a few, so the end is checked again.
    let (mut fitting, mut over) = (0, gathered.len() + 1);
    while over - fitting > 1 {
        let middle = fitting.midpoint(over);
        if fits(&last(middle), room) {
            fitting = middle;
        } else {
            over = middle;
        }
    }
    if fitting == 0 && most > 0 && room > 0 {
        return squeezed(text.split_inclusive('\n').next_back(), room, edge);
    }
    let shown = &gathered[gathered.len() - fitting..];
    Excerpt {
        text: last(fitting),
        lines: fitting as u64,
        bytes: shown.iter().map(|line| line.bytes).sum(),
        clipped: shown.iter().any(|line| line.clipped),
    }
}

/// One line that is too long for the room, cut until it fits.
fn squeezed(line: Option<&str>, room: usize, edge: Edge) -> Excerpt {
    let Some(line) = line else {
        return Excerpt::default();
    };
    let mut kept = room.saturating_mul(4).min(CLIPPED_BYTES);
    while kept > 8 {
        let line = clip(line, kept, kept, edge);
        if count(&line.text) <= room {
            return Excerpt {
                text: line.text.into_owned(),
                lines: 1,
                bytes: line.bytes,
                clipped: line.clipped,
            };
        }
        kept /= 2;
    }
    Excerpt::default()
}

/// Where a text is cut at its end, only a line without an end is not whole.
fn at_end(line: &str, edge: Edge) -> Edge {
    if line.ends_with('\n') {
        Edge::Whole
    } else {
        edge
    }
}

struct ClippedLine<'t> {
    text: Cow<'t, str>,
    /// Bytes of the original that are in it.
    bytes: u64,
    clipped: bool,
}

/// The line, or its start, its length and its end. Where the line itself was cut off, its end is not at hand.
fn clip(line: &str, long: usize, kept: usize, edge: Edge) -> ClippedLine<'_> {
    let bare = line.trim_end_matches(['\n', '\r']);
    if bare.len() <= long {
        return ClippedLine {
            text: line.into(),
            bytes: line.len() as u64,
            clipped: edge != Edge::Whole,
        };
    }
    let end = &line[bare.len()..];
    let (head, length, tail) = match edge {
        Edge::Whole => {
            let (head, tail) = line_ends(bare, kept);
            (head, bare.len().to_string(), tail)
        }
        Edge::Bytes(bytes) => (
            &bare[..bare.floor_char_boundary(kept)],
            bytes.to_string(),
            "",
        ),
        Edge::MoreThan => (
            &bare[..bare.floor_char_boundary(kept)],
            format!("more than {}", bare.len()),
            "",
        ),
    };
    let space = if tail.is_empty() { "" } else { " …" };
    ClippedLine {
        text: format!("{head}… [{length} bytes]{space}{tail}{end}").into(),
        bytes: (head.len() + tail.len() + end.len()) as u64,
        clipped: true,
    }
}
