//! An exception of the interpreter as a short exception for the author of the script.

use std::fmt::Write;

use monty_types::{ExcType, MontyException, StackFrame};

use super::hints;
use super::library;
use super::prepare::LineMap;
use crate::limits::ScriptLimit;
use crate::names::ScriptNames;
use crate::outcome::{ScriptError, ScriptErrorKind};

/// Frames shown at the beginning and at the end of a deep traceback.
const FIRST_FRAMES: usize = 2;
const LAST_FRAMES: usize = 5;
const MAX_CODE_CHARS: usize = 160;
const MAX_MESSAGE_CHARS: usize = 4096;
/// The start of the interpreter's message about constructs it does not implement.
const UNSUPPORTED_PREFIX: &str = "The monty syntax parser does not yet support ";

/// `block` is the number of the block that ran.
pub(super) fn from_exception(
    exception: &MontyException,
    names: &ScriptNames,
    block: u64,
    lines: &LineMap,
) -> ScriptError {
    let class = exception.exc_type().to_string();
    let message = exception.message().unwrap_or_default();
    let message = clipped(&named_as_written(message), MAX_MESSAGE_CHARS);
    let own = format!("<python-input-{block}>");
    let line = exception
        .traceback()
        .iter()
        .rfind(|frame| frame.filename == own)
        .map(|frame| lines.line(frame.start.line));
    let mut error = ScriptError {
        kind: ScriptErrorKind::Exception,
        message,
        line,
        traceback: traceback(exception.traceback(), &own, lines),
        hint: None,
        exception: class,
    };
    match exception.exc_type() {
        ExcType::SyntaxError => error.kind = ScriptErrorKind::Syntax,
        ExcType::NotImplementedError if error.message.starts_with(UNSUPPORTED_PREFIX) => {
            let construct = error.message.split_off(UNSUPPORTED_PREFIX.len());
            error.kind = ScriptErrorKind::Unsupported;
            error.hint = Some(hints::construct(&construct));
            error.message = format!("{construct}: not supported here");
        }
        ExcType::NotImplementedError if exception.traceback().len() == 1 => {
            error.kind = ScriptErrorKind::Unsupported;
            error.hint = Some(hints::construct(&error.message));
        }
        ExcType::RecursionError => error.kind = ScriptErrorKind::Limit(ScriptLimit::Recursion),
        ExcType::MemoryError if error.message.starts_with("memory limit exceeded") => {
            error.kind = ScriptErrorKind::Limit(ScriptLimit::Memory);
        }
        ExcType::TimeoutError if error.message.starts_with("time limit exceeded") => {
            error.kind = ScriptErrorKind::Limit(ScriptLimit::Cpu);
        }
        _ => {
            let hint = hints::exception(&error.exception, &error.message, names);
            error.hint = hint.or_else(|| hints::gathered(&error.traceback));
        }
    }
    error
}

/// The frames, outermost first.
fn traceback(frames: &[StackFrame], own: &str, lines: &LineMap) -> String {
    let mut text = String::new();
    // Frames of libraries say nothing to the author.
    let of_library = |frame: &&StackFrame| {
        let name = frame.frame_name.as_deref().unwrap_or_default();
        name.starts_with(library::PREFIX) && frame.filename != own
    };
    let frames: Vec<&StackFrame> = frames.iter().filter(|frame| !of_library(frame)).collect();
    let skipped = frames.len().saturating_sub(FIRST_FRAMES + LAST_FRAMES);
    for (at, frame) in frames.iter().enumerate() {
        if skipped > 0 && at == FIRST_FRAMES {
            let _ = writeln!(text, "  … {skipped} more");
        }
        if skipped > 0 && (FIRST_FRAMES..FIRST_FRAMES + skipped).contains(&at) {
            continue;
        }
        show(&mut text, frame, own, lines);
    }
    text
}

fn show(text: &mut String, frame: &StackFrame, own: &str, lines: &LineMap) {
    let is_own = frame.filename == own;
    let line = if is_own {
        lines.line(frame.start.line)
    } else {
        frame.start.line
    };
    let _ = write!(text, "  line {line}");
    if let Some(name) = &frame.frame_name {
        let _ = write!(text, ", in {name}");
    }
    if !is_own {
        text.push_str(" (of an earlier block)");
    }
    text.push('\n');
    let Some(shown) = &frame.preview_line else {
        return;
    };
    let prepared = shown.lines().next().unwrap_or_default();
    let written = is_own.then(|| lines.source(frame.start.line)).flatten();
    let first = written.unwrap_or(prepared);
    let code = first.trim_start();
    let _ = writeln!(text, "    {}", clipped(code, MAX_CODE_CHARS));
    // Of a statement with several lines the first is shown; only a syntax exception has a caret in it.
    let one_line = frame.start.line == frame.end.line;
    // In a line that was rewritten the columns are others.
    if first.trim() != prepared.trim() {
        return;
    }
    if frame.hide_caret || !(one_line || frame.hide_frame_name) {
        return;
    }
    let indent = first.chars().count() - code.chars().count();
    let column = (frame.start.column as usize).saturating_sub(1 + indent);
    let wide = if one_line {
        frame.end.column.saturating_sub(frame.start.column).max(1) as usize
    } else {
        1
    };
    if column < MAX_CODE_CHARS {
        let carets = "^".repeat(wide.min(MAX_CODE_CHARS - column));
        let _ = writeln!(text, "    {}{carets}", " ".repeat(column));
    }
}

/// The message with the names of modules instead of those of the classes that stand for them.
fn named_as_written(message: &str) -> String {
    let mut text = message.to_owned();
    while let Some(start) = text.find(library::PREFIX) {
        let rest = &text[start..];
        let end = rest
            .find(|c: char| !c.is_alphanumeric() && c != '_')
            .unwrap_or(rest.len());
        let class = &rest[..end];
        let name = library::module_of_class(class).unwrap_or(&class[library::PREFIX.len()..]);
        let name = name.to_owned();
        text.replace_range(start..start + end, &name);
        text = text.replace(
            &format!("type object '{name}'"),
            &format!("module '{name}'"),
        );
    }
    text
}

fn clipped(text: &str, max_chars: usize) -> String {
    match text.char_indices().nth(max_chars) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
