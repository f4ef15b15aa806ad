use llmc_enrich::logs::Survey;
use llmc_enrich::preview::{Asked, Text, condense, condense_binary};
use llmc_enrich::sniff::{Kind, is_binary, sniff};
use llmc_host::{CancelToken, OpenFile};
use schemars::JsonSchema;
use serde::Deserialize;

use super::args::bounded;
use super::pages;
use crate::answer::Answer;
use crate::cx::Cx;
use crate::error::{Error, Family, Result};
use crate::te::{self, Behind, Frame};
use crate::tool::{Effect, Tool};

/// How much of a file's beginning is looked at for a preview.
const HEAD: usize = 2 << 20;
/// The same for JSON, whose shape shows only when it is read to its end.
const JSON_HEAD: usize = 8 << 20;
/// And of its end, when that does not reach.
const TAIL: usize = 512 << 10;

pub(super) struct TeCat;

/// View a file with content-aware preview.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    path: String,
    lines: Option<i64>,
}

impl Tool for TeCat {
    const NAME: &'static str = "te_cat";
    const EFFECT: Effect = Effect::Reads;
    const FAMILY: Family = Family::Te;
    type Args = Args;
    type Output = Answer;

    async fn run(cx: &Cx, args: Args) -> Result<Answer> {
        let asked = match args.lines {
            None => Asked::Whole,
            lines => Asked::Head(bounded("lines", lines, 1, 1..=i64::MAX)?),
        };
        cx.blocking(move |cx, stop| view(cx, "cat", &args.path, asked, stop))
            .await
    }
}

/// Shows a file, or some of its lines, in the form that says most within the budget.
pub(super) fn view(
    cx: &Cx,
    cmd: &'static str,
    path: &str,
    asked: Asked,
    stop: &CancelToken,
) -> Result<Answer> {
    let roots = &cx.files().roots;
    let file = match (roots.open_file(path), Place::of(path)) {
        (Err(llmc_host::Error::NotFound { .. }), Some(place)) if asked == Asked::Whole => {
            return view_place(cx, cmd, &place, stop);
        }
        (opened, _) => opened?,
    };
    let shown = roots.shown(&file.path);
    let size = file.size();
    let mut head = file.read_range(0, HEAD)?;
    if sniff(&shown, &head) == Kind::Json && (HEAD as u64..=JSON_HEAD as u64).contains(&size) {
        head = file.read_range(0, JSON_HEAD)?;
    }
    let tail = if size > head.len() as u64 {
        cut_to_lines(&mut head, Side::End);
        let mut tail = file.read_range(size - TAIL as u64, TAIL)?;
        cut_to_lines(&mut tail, Side::Start);
        Some(String::from_utf8_lossy(&tail).into_owned())
    } else {
        None
    };
    let kind = sniff(&shown, &head);
    let survey = match (kind, asked) {
        (Kind::Log, Asked::Whole) if tail.is_some() => Some(survey(&file, stop)?),
        _ => None,
    };
    // One pass over everything: true totals, and the hash that a handle is checked against.
    let whole = file.read_lines(0, 1, stop)?;
    let found = if is_binary(&head) {
        condense_binary(&shown, &head, whole.total_bytes)
    } else {
        let text = Text {
            head: &String::from_utf8_lossy(&head),
            tail: tail.as_deref(),
            total_bytes: whole.total_bytes,
            total_lines: whole.total_lines,
            survey: survey.as_ref(),
        };
        condense(&shown, kind, &text, asked, te::budget(cx))
    };
    let handle = if found.truncated {
        pages::keep_file(cx, roots, path, &whole, stop)?
    } else {
        None
    };
    let frame = Frame {
        cmd,
        content_type: Some(crate::shell::wrap::content_type(kind)),
        path: Some(shown),
        handle,
        behind: Behind::Everything,
        // Lines that nobody asked for are not withheld.
        withheld_bytes: match found.truncated {
            true => whole.total_bytes.saturating_sub(found.body.len() as u64),
            false => 0,
        },
    };
    Ok(te::seal(cx, &found, frame))
}

/// All that a log holds, however long it is.
fn survey(file: &OpenFile, stop: &CancelToken) -> Result<Survey> {
    const BLOCK: usize = 1 << 20;
    let (mut survey, mut at) = (Survey::default(), 0);
    while at < file.size() && !survey.is_full() {
        stop.check()?;
        let block = file.read_range(at, BLOCK)?;
        if block.is_empty() {
            break;
        }
        at += block.len() as u64;
        survey.feed(&block);
    }
    survey.finish();
    Ok(survey)
}

/// Lines of a file, as answers name them: `src/a.rs#L10-L20`.
struct Place<'p> {
    path: &'p str,
    first: u64,
    last: u64,
}

impl Place<'_> {
    fn of(named: &str) -> Option<Place<'_>> {
        let (path, lines) = named.rsplit_once("#L")?;
        let (first, last) = lines.split_once('-').unwrap_or((lines, lines));
        Some(Place {
            path,
            first: first.parse().ok()?,
            last: last.strip_prefix('L').unwrap_or(last).parse().ok()?,
        })
    }
}

/// Shows the lines of a place, as many as fit.
fn view_place(cx: &Cx, cmd: &'static str, place: &Place<'_>, stop: &CancelToken) -> Result<Answer> {
    let &Place { path, first, last } = place;
    if first == 0 || last < first {
        return Err(Error::bad_args(format!(
            "#L{first}-L{last}: lines count from 1, and the last is not before the first"
        )));
    }
    let roots = &cx.files().roots;
    let file = roots.open_file(path)?;
    let shown = roots.shown(&file.path);
    let start = file.read_range(0, 8 << 10)?;
    if is_binary(&start) {
        return view(cx, cmd, path, Asked::Whole, stop);
    }
    let kind = sniff(&shown, &start);
    let slice = file.read_lines(first - 1, last - first + 1, stop)?;
    if first > slice.total_lines {
        return Err(Error::bad_args(format!(
            "{path} has {} lines, none from {first} on",
            slice.total_lines
        )));
    }
    let text = Text {
        head: &slice.text,
        tail: None,
        total_bytes: slice.total_bytes,
        total_lines: slice.total_lines,
        survey: None,
    };
    let found = condense(&shown, kind, &text, Asked::From(first), te::budget(cx));
    let handle = if found.truncated {
        pages::keep_file(cx, roots, path, &slice, stop)?
    } else {
        None
    };
    let frame = Frame {
        cmd,
        content_type: Some(crate::shell::wrap::content_type(kind)),
        path: Some(shown),
        handle,
        behind: Behind::Everything,
        withheld_bytes: (slice.text.len() as u64).saturating_sub(found.body.len() as u64),
    };
    Ok(te::seal(cx, &found, frame))
}

#[derive(PartialEq)]
enum Side {
    Start,
    End,
}

/// Drops the part of a line that a cut left at one side, unless it is all there is.
fn cut_to_lines(bytes: &mut Vec<u8>, side: Side) {
    let mut ends = bytes.iter();
    if side == Side::End {
        if let Some(end) = ends.rposition(|b| *b == b'\n') {
            bytes.truncate(end + 1);
        }
    } else if let Some(end) = ends.position(|b| *b == b'\n')
        && end + 1 < bytes.len()
    {
        bytes.drain(..=end);
    }
}
