//! Whole lines of a text within a token budget, with over-long ones clipped.

use llmc_tokens::{count, fits, lines_within};

/// Some lines of a text.
#[derive(Debug, Default)]
pub(super) struct Excerpt {
    pub(super) text: String,
    pub(super) lines: u64,
    /// Whether a line is not whole.
    pub(super) clipped: bool,
}

/// Bytes of a line beyond which it is clipped; nobody reads further across.
const LONG: usize = 2000;
const KEPT: usize = 400;
/// More bytes than a token has in any text that is worth showing.
const BYTES_PER_TOKEN: usize = 24;

/// The first lines, at most `most`, that fit `room` tokens.
pub(super) fn first_lines(text: &str, most: u64, room: usize) -> Excerpt {
    let enough = room.saturating_mul(BYTES_PER_TOKEN);
    let mut gathered = String::new();
    let mut clips = Vec::new();
    for (n, line) in text.split_inclusive('\n').enumerate() {
        if n as u64 >= most || gathered.len() > enough {
            break;
        }
        let (shown, clipped) = clip(line, LONG, KEPT);
        gathered.push_str(&shown);
        clips.push(clipped);
    }
    let (bytes, _) = lines_within(&gathered, room);
    gathered.truncate(bytes);
    let lines = gathered.split_inclusive('\n').count();
    if lines == 0 && most > 0 && room > 0 {
        return squeezed(text.split_inclusive('\n').next(), room);
    }
    Excerpt {
        clipped: clips[..lines].contains(&true),
        lines: lines as u64,
        text: gathered,
    }
}

/// The last lines, at most `most`, that fit `room` tokens.
pub(super) fn last_lines(text: &str, most: u64, room: usize) -> Excerpt {
    let enough = room.saturating_mul(BYTES_PER_TOKEN);
    let mut gathered = Vec::new();
    let mut bytes = 0;
    let mut rest = text;
    while !rest.is_empty() && (gathered.len() as u64) < most && bytes <= enough {
        let end = rest.strip_suffix('\n').unwrap_or(rest);
        let start = end.rfind('\n').map_or(0, |at| at + 1);
        let shown = clip(&rest[start..], LONG, KEPT);
        bytes += shown.0.len();
        gathered.push(shown);
        rest = &rest[..start];
    }
    gathered.reverse();
    let last = |lines: usize| -> String {
        gathered[gathered.len() - lines..]
            .iter()
            .map(|(line, _)| &**line)
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
        return squeezed(text.split_inclusive('\n').next_back(), room);
    }
    Excerpt {
        text: last(fitting),
        lines: fitting as u64,
        clipped: gathered[gathered.len() - fitting..]
            .iter()
            .any(|(_, clipped)| *clipped),
    }
}

/// One line that is too long for the room, cut until it fits.
fn squeezed(line: Option<&str>, room: usize) -> Excerpt {
    let Some(line) = line else {
        return Excerpt::default();
    };
    let mut kept = room.saturating_mul(4).min(KEPT);
    while kept > 8 {
        let (text, clipped) = clip(line, kept, kept);
        if count(&text) <= room {
            return Excerpt {
                text: text.into_owned(),
                lines: 1,
                clipped,
            };
        }
        kept /= 2;
    }
    Excerpt::default()
}

/// The line, or its beginning and its length.
fn clip(line: &str, long: usize, kept: usize) -> (std::borrow::Cow<'_, str>, bool) {
    let bare = line.trim_end_matches(['\n', '\r']);
    if bare.len() <= long {
        return (line.into(), false);
    }
    let mut at = kept;
    while !bare.is_char_boundary(at) {
        at -= 1;
    }
    let end = &line[bare.len()..];
    (
        format!("{}… [{} bytes]{end}", &bare[..at], bare.len()).into(),
        true,
    )
}
