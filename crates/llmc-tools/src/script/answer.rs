//! What a model reads of a script: what it printed, what it ended with, or why it failed.

use llmc_envelope::cut::{CutLimits, cut};
use llmc_envelope::neutral::{Ansi, neutralise};
use llmc_envelope::receipt::Receipt;
use llmc_sandbox::{ScriptError, ScriptErrorKind, ScriptLimit, ScriptValue};
use serde_json::json;

use crate::answer::{Answer, Facts};
use crate::cx::{Cx, Form};
use crate::error::{Error, ErrorKind, Family, ROWS};
use crate::te;

/// Lines above this many bytes are shown clipped; the handle has them whole.
const MAX_LINE_BYTES: usize = 4096;
/// Tokens of output that are shown beside an error.
const MAX_TOKENS_BESIDE_ERROR: usize = 500;
/// Characters of the failing source line that are shown.
const MAX_SOURCE_LINE_CHARS: usize = 160;

/// A script that ended by itself.
pub(super) fn value(cx: &Cx, output: &str, shown: &ScriptValue, notes: Vec<String>) -> Answer {
    if cx.caller().form == Form::Data {
        let mut data = json!({"output": output, "value": shown.json});
        if shown.json.is_null() && !shown.repr.is_empty() {
            data["value"] = shown.repr.clone().into();
        }
        return Answer::data(data, Facts::default());
    }
    let mut text = output.to_owned();
    if !shown.repr.is_empty() {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&shown.repr);
    }
    let limits = CutLimits {
        tokens: te::budget(cx),
        line_bytes: MAX_LINE_BYTES,
    };
    let cut = cut(&text, limits);
    let mut facts = Facts::default();
    let mut receipt = Receipt::new();
    if !cut.is_whole() {
        facts.truncated = true;
        facts.withheld_bytes = cut.left.bytes;
        facts.handle = cx.keep(|draft| draft, "script", text.as_bytes());
        let all = cut.kept.lines + cut.left.lines;
        receipt = receipt
            .shown(cut.kept.lines, all, "lines")
            .clipped(cut.clipped);
        if let Some(id) = facts.handle {
            receipt = receipt.handle(id);
        }
    } else if text.is_empty() {
        receipt = receipt.note("done; nothing was printed");
    }
    for note in notes {
        receipt = receipt.note(note);
    }
    let body = cut.text.trim_end_matches('\n');
    te::served(cx, receipt.seal(body), facts)
}

/// A script that failed. A model reads what the script printed, then the error with its source line, then the effects
/// that its calls have had.
pub(super) fn failure(
    cx: &Cx,
    code: &str,
    output: &str,
    trouble: ScriptError,
    effects: &[String],
    notes: Vec<String>,
) -> Error {
    let kind = kind(&trouble);
    let place = trouble.line.map(|line| format!("line {line}: "));
    let name = match trouble.kind {
        ScriptErrorKind::Unsupported => String::new(),
        ScriptErrorKind::Limit(_) => format!("{}: ", kind.code(Family::Linux)),
        _ if trouble.exception.is_empty() => String::new(),
        _ => format!("{}: ", trouble.exception),
    };
    let message = format!("{}{name}{}", place.unwrap_or_default(), trouble.message);
    let mut error = Error::new(kind, message);
    error.hint = trouble.hint;

    let limits = CutLimits {
        tokens: MAX_TOKENS_BESIDE_ERROR,
        line_bytes: MAX_LINE_BYTES,
    };
    let shown = cut(output, limits);
    let mut text = shown.text.trim_end_matches('\n').to_owned();
    let mut line = |words: &str| {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(words);
    };
    if !shown.is_whole() {
        let all = output.lines().count();
        let handle = cx.keep(|draft| draft, "script", output.as_bytes());
        line(&match handle {
            Some(id) => format!(
                "({} of {all} lines; read_file path={id} has all)",
                shown.kept.lines
            ),
            None => format!("({} of {all} lines)", shown.kept.lines),
        });
        if let Some(id) = handle {
            error = error.with("output_handle", id.to_string());
        }
    }
    line(&format!("error: {}", error.message.trim_end()));
    if let Some(source) = trouble.line.and_then(|line| source_line(code, line)) {
        line(&format!("    {source}"));
    }
    if let Some(hint) = &error.hint {
        line(&format!("hint: {hint}"));
    }
    if !effects.is_empty() {
        line(&format!("already done: {}", effects.join(", ")));
        error
            .extra
            .insert("already_done".to_owned(), effects.into());
    }
    for note in notes {
        line(&format!("note: {note}"));
    }
    if !output.is_empty() {
        error = error.with("output", shown.text.as_ref());
    }
    if !trouble.traceback.is_empty() {
        error = error.with("traceback", trouble.traceback.trim_end());
    }
    error.text = Some(neutralise(&text, Ansi::Strip).into());
    error
}

/// The line of the script that failed, clipped.
fn source_line(code: &str, line: u32) -> Option<String> {
    let index = usize::try_from(line.checked_sub(1)?).ok()?;
    let source = code.lines().nth(index)?.trim();
    let clipped: String = source.chars().take(MAX_SOURCE_LINE_CHARS).collect();
    (!clipped.is_empty()).then_some(clipped)
}

fn kind(trouble: &ScriptError) -> ErrorKind {
    match trouble.kind {
        ScriptErrorKind::Syntax | ScriptErrorKind::Unsupported | ScriptErrorKind::Reserved => {
            ErrorKind::BadArgs
        }
        ScriptErrorKind::Limit(ScriptLimit::Wall | ScriptLimit::Cpu) => ErrorKind::TimedOut,
        ScriptErrorKind::Limit(ScriptLimit::Memory | ScriptLimit::Output) => ErrorKind::TooLarge,
        ScriptErrorKind::Limit(ScriptLimit::Calls | ScriptLimit::Recursion) => ErrorKind::BadArgs,
        ScriptErrorKind::Cancelled => ErrorKind::Cancelled,
        ScriptErrorKind::Crashed => ErrorKind::Internal,
        // An error of a tool that the script did not catch keeps the tool's code.
        ScriptErrorKind::Exception => {
            let code = trouble.message.split_once(": ").map(|(code, _)| code);
            let row = ROWS.iter().find(|row| {
                let codes =
                    [Family::Linux, Family::Te, Family::Rlm].map(|family| row.kind.code(family));
                code.is_some_and(|code| codes.contains(&code))
            });
            row.map_or(ErrorKind::BadArgs, |row| row.kind)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(message: &str) -> ScriptError {
        ScriptError {
            kind: ScriptErrorKind::Exception,
            exception: "ValueError".to_owned(),
            message: message.to_owned(),
            line: None,
            traceback: String::new(),
            hint: None,
        }
    }

    #[test]
    fn a_tools_code_outlives_the_script() {
        for (message, kind) in [
            ("NOT_FOUND: no such file", ErrorKind::NotFound),
            ("path_denied: outside", ErrorKind::InvalidPath),
            ("BAD_ARGS: no", ErrorKind::BadArgs),
            ("division by zero", ErrorKind::BadArgs),
            ("Note: not a code", ErrorKind::BadArgs),
        ] {
            assert_eq!(super::kind(&failed(message)), kind, "{message}");
        }
    }
}
