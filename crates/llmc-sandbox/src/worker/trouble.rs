//! An exception of the interpreter, in the few words that the next attempt needs.

use std::fmt::Write;

use monty_types::{ExcType, MontyException, StackFrame};

use super::hints;
use crate::limits::Limit;
use crate::names::Names;
use crate::outcome::{Trouble, TroubleKind};

/// Frames shown at the beginning and at the end of a deep traceback.
const FIRST: usize = 2;
const LAST: usize = 5;
/// Longest line of code shown.
const WIDTH: usize = 160;
/// Longest message passed on.
const MESSAGE: usize = 4096;
/// How the interpreter begins its word on constructs it does not know.
const UNKNOWN: &str = "The monty syntax parser does not yet support ";

/// What an exception means. `block` is the number of the block that ran.
pub(super) fn of(error: &MontyException, names: &Names, block: u64) -> Trouble {
    let class = error.exc_type().to_string();
    let message = clipped(error.message().unwrap_or_default(), MESSAGE);
    let own = format!("<python-input-{block}>");
    let line = error
        .traceback()
        .iter()
        .rfind(|frame| frame.filename == own)
        .map(|frame| frame.start.line);
    let mut trouble = Trouble {
        kind: TroubleKind::Exception,
        message,
        line,
        traceback: traceback(error.traceback(), &own),
        hint: None,
        exception: class,
    };
    match error.exc_type() {
        ExcType::SyntaxError => trouble.kind = TroubleKind::Syntax,
        ExcType::NotImplementedError if trouble.message.starts_with(UNKNOWN) => {
            let construct = trouble.message.split_off(UNKNOWN.len());
            trouble.kind = TroubleKind::Unsupported;
            trouble.hint = Some(hints::construct(&construct));
            trouble.message = format!("{construct}: not supported here");
        }
        ExcType::NotImplementedError if error.traceback().len() == 1 => {
            trouble.kind = TroubleKind::Unsupported;
            trouble.hint = Some(hints::construct(&trouble.message));
        }
        ExcType::RecursionError => trouble.kind = TroubleKind::Limit(Limit::Recursion),
        ExcType::MemoryError if trouble.message.starts_with("memory limit exceeded") => {
            trouble.kind = TroubleKind::Limit(Limit::Memory);
        }
        ExcType::TimeoutError if trouble.message.starts_with("time limit exceeded") => {
            trouble.kind = TroubleKind::Limit(Limit::Cpu);
        }
        _ => trouble.hint = hints::exception(&trouble.exception, &trouble.message, names),
    }
    trouble
}

/// The way to where it happened, outermost first.
fn traceback(frames: &[StackFrame], own: &str) -> String {
    let mut text = String::new();
    let skipped = frames.len().saturating_sub(FIRST + LAST);
    for (at, frame) in frames.iter().enumerate() {
        if skipped > 0 && at == FIRST {
            let _ = writeln!(text, "  … {skipped} more");
        }
        if skipped > 0 && (FIRST..FIRST + skipped).contains(&at) {
            continue;
        }
        show(&mut text, frame, own);
    }
    text
}

fn show(text: &mut String, frame: &StackFrame, own: &str) {
    let _ = write!(text, "  line {}", frame.start.line);
    if let Some(name) = &frame.frame_name {
        let _ = write!(text, ", in {name}");
    }
    if frame.filename != own {
        text.push_str(" (of an earlier block)");
    }
    text.push('\n');
    let Some(shown) = &frame.preview_line else {
        return;
    };
    let first = shown.lines().next().unwrap_or_default();
    let code = first.trim_start();
    let _ = writeln!(text, "    {}", clipped(code, WIDTH));
    // A statement of several lines is shown by its first; only a syntax error has a place in it.
    let one_line = frame.start.line == frame.end.line;
    if frame.hide_caret || !(one_line || frame.hide_frame_name) {
        return;
    }
    let indent = first.chars().count() - code.chars().count();
    let column = (frame.start.column as usize).saturating_sub(1 + indent);
    let wide = match one_line {
        true => frame.end.column.saturating_sub(frame.start.column).max(1) as usize,
        false => 1,
    };
    if column < WIDTH {
        let carets = "^".repeat(wide.min(WIDTH - column));
        let _ = writeln!(text, "    {}{carets}", " ".repeat(column));
    }
}

fn clipped(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
