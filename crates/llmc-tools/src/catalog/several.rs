//! Several files, ranges and definitions in one read: `a.py:10-40,60-80,b.py::Pool.take,C`.

use llmc_envelope::cut::{CutLimits, cut};
use llmc_envelope::receipt::Receipt;
use llmc_host::CancelToken;

use super::read_file::{FileText, MAX_LINE_BYTES, MAX_PLACE_TOKENS, ReadAnswer, read_one};
use super::target::is_name;
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::render::{AnswerRoom, Rendition, Rest, RestExtent};

/// Places that one read has.
const MAX_PLACES: usize = 40;

/// What was read, one place after the other.
#[derive(Debug)]
pub(super) struct SeveralTexts {
    text: String,
    lines: u64,
}

/// The places that a path argument lists; none where it names one. A number after a place of a file is a line of the same
/// file, and a name after a definition one of the same file.
pub(super) fn listed_places(cx: &Cx, named: &str) -> Result<Option<Vec<String>>> {
    if !named.contains(',') {
        return Ok(None);
    }
    let roots = &cx.files().roots;
    if roots.open_file(named).is_ok() {
        return Ok(None);
    }
    let is_file = |path: &str| roots.open_file(path).is_ok();
    let places = split_places(named, is_file);
    if places.len() > MAX_PLACES {
        let message = format!(
            "{} places, {MAX_PLACES} can be read in one call",
            places.len()
        );
        return Err(Error::bad_args(message));
    }
    Ok((places.len() > 1).then_some(places))
}

fn split_places(named: &str, is_file: impl Fn(&str) -> bool) -> Vec<String> {
    let is_lines = |item: &str| {
        !item.is_empty()
            && item
                .bytes()
                .all(|byte| byte.is_ascii_digit() || byte == b'-')
    };
    let mut places: Vec<String> = Vec::new();
    // The file of the place before, and whether that was a definition.
    let mut file: Option<(String, bool)> = None;
    for item in named
        .split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
    {
        let place = match &file {
            Some((path, _)) if is_lines(item) => format!("{path}:{item}"),
            // A name with the ending of the file before is a file, too.
            Some((path, true))
                if is_name(item) && !is_file(item) && ending(item) != ending(path) =>
            {
                format!("{path}::{item}")
            }
            _ => {
                file = match (item.split_once("::"), item.rsplit_once(':')) {
                    (Some((path, _)), _) => Some((path.to_owned(), true)),
                    (None, Some((path, lines))) if is_lines(lines) => {
                        Some((path.to_owned(), false))
                    }
                    _ => Some((item.to_owned(), false)),
                };
                item.to_owned()
            }
        };
        places.push(place);
    }
    places
}

/// `py` of `a.py`, where there is one.
fn ending(path: &str) -> Option<&str> {
    path.rsplit_once('.').map(|(_, ending)| ending)
}

/// Reads them all. The error of one that cannot be read stands in its place, unless none can be read.
pub(super) fn read_several(
    cx: &Cx,
    places: &[String],
    cancel: &CancelToken,
) -> Result<SeveralTexts> {
    let mut text = String::new();
    let (mut lines, mut failed) = (0, None);
    let mut any = false;
    for place in places {
        if !text.is_empty() {
            text.push('\n');
        }
        match read_one(cx, place, 0, None, cancel) {
            Ok(ReadAnswer::Text(part)) => {
                any = true;
                lines += part.shown_lines();
                append(&mut text, place, &part);
            }
            Ok(ReadAnswer::Image(image)) => {
                any = true;
                text.push_str(&format!("== {place} ==\n{}\n", image.facts()));
            }
            Ok(ReadAnswer::Several(_)) => {}
            Err(error) => {
                text.push_str(&format!("== {place}: {} ==\n", error.message));
                failed.get_or_insert(error);
            }
        }
    }
    match failed.filter(|_| !any) {
        Some(error) => Err(error),
        None => Ok(SeveralTexts { text, lines }),
    }
}

fn append(text: &mut String, place: &str, part: &FileText) {
    text.push_str(&format!("== {place} ({}) ==\n", part.extent()));
    text.push_str(part.text());
    if !text.ends_with('\n') {
        text.push('\n');
    }
}

impl SeveralTexts {
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn render(&self, room: &AnswerRoom<'_>) -> Rendition<'_> {
        let limits = CutLimits {
            tokens: room.for_chosen_length().whole_tokens.min(MAX_PLACE_TOKENS),
            line_bytes: MAX_LINE_BYTES,
        };
        let shown = cut(&self.text, limits);
        if shown.is_whole() {
            return Rendition::text(self.text.as_str(), Receipt::new());
        }
        let receipt = Receipt::new()
            .cut(shown.kept, shown.left, shown.clipped)
            .rest();
        let extent = RestExtent::of_cut(&self.text, &shown);
        let rest = Rest::text("files", self.text.as_str()).extent(extent);
        Rendition::text(shown.text, receipt)
            .truncated(true)
            .rest(rest)
    }

    /// Lines of all places.
    pub(super) fn lines(&self) -> u64 {
        self.lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_places_goes_on_in_the_file_before() {
        let split = |named: &str| split_places(named, |path| path == "b");
        for (named, places) in [
            (
                "a.py:1-5,20-30, b.py",
                &["a.py:1-5", "a.py:20-30", "b.py"][..],
            ),
            ("a.py::f,g,C.m,b", &["a.py::f", "a.py::g", "a.py::C.m", "b"]),
            ("a.py::f,c.py,h", &["a.py::f", "c.py", "h"]),
            ("a.py,b.py:3", &["a.py", "b.py:3"]),
            ("a.py,3-9", &["a.py", "a.py:3-9"]),
            ("Pool.take,other", &["Pool.take", "other"]),
            ("a.py,", &["a.py"]),
        ] {
            assert_eq!(split(named), places, "{named}");
        }
    }
}
