//! What a script leaves for its reader: what it printed and ended with, or why it failed.
//!
//! Both are data. The seal cuts what was printed to the caller's budget and stores the whole: of what was printed one after
//! the other each part gets its share, and of a part the head and the tail are shown.

use std::borrow::Cow;

use llmc_envelope::cut::{CutLimits, cut_ends, cut_parts};
use llmc_envelope::receipt::Receipt;
use llmc_sandbox::{ScriptError, ScriptErrorKind, ScriptLimit, ScriptValue};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::cx::Form;
use crate::error::{Error, ErrorKind, Family, ROWS, Result, Transcript};
use crate::render::{AnswerRoom, Fitted, Render, Rendition, Rest, RestExtent};

/// Characters of the failing source line that are shown.
const MAX_SOURCE_LINE_CHARS: usize = 160;

/// A script that ended by itself.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ScriptOutput {
    /// Printed text.
    output: String,
    /// The value of the last expression; its `repr` where it has no JSON form.
    value: Value,
    /// Where its parts start.
    #[serde(skip)]
    parts: Vec<usize>,
    #[serde(skip)]
    repr: String,
    #[serde(skip)]
    notes: Vec<String>,
}

/// What a script printed, and where the parts of it start that it printed one after the other.
pub(super) struct PrintedText {
    pub(super) text: String,
    pub(super) parts: Vec<usize>,
}

impl ScriptOutput {
    pub(super) fn new(printed: PrintedText, last: ScriptValue, notes: Vec<String>) -> ScriptOutput {
        let value = match last.json {
            Value::Null if !last.repr.is_empty() => last.repr.clone().into(),
            json => json,
        };
        ScriptOutput {
            output: printed.text,
            parts: printed.parts,
            value,
            repr: last.repr,
            notes,
        }
    }

    /// Printed text; where there is none, the last value.
    fn text(&self) -> &str {
        match self.output.is_empty() {
            true => &self.repr,
            false => &self.output,
        }
    }

    /// The document within the budget: both ends of what was printed, and the value unless it takes more than half of the
    /// room. The handle returns the whole document.
    fn for_program(&self, room: &AnswerRoom<'_>) -> Rendition<'_> {
        let value = self.value.to_string();
        let shown = room.fit(self.output.len() + value.len(), |tokens| {
            let output = Some(&self.output).filter(|output| llmc_tokens::fits(output, tokens));
            let output_tokens = output.map_or(tokens, |output| llmc_tokens::count(output));
            let room_of_value = tokens.saturating_sub(output_tokens).max(tokens / 2);
            let has_value = llmc_tokens::fits(&value, room_of_value);
            let value_tokens = match has_value {
                true => llmc_tokens::count(&value),
                false => 0,
            };
            let room_of_output = tokens.saturating_sub(value_tokens);
            let output = match output.filter(|_| output_tokens <= room_of_output) {
                Some(output) => Cow::Borrowed(output.as_str()),
                None => cut_ends(&self.output, CutLimits::tokens(room_of_output)).text,
            };
            let shown = ShownDocument { output, has_value };
            if has_value && shown.output == self.output {
                Fitted::Whole(shown)
            } else {
                Fitted::Cut(shown)
            }
        });
        let mut rendition = Rendition::data();
        rendition.notes = self.notes.clone();
        let mut left_out = Vec::new();
        left_out.extend((shown.output != self.output).then_some("output"));
        left_out.extend((!shown.has_value).then_some("value"));
        if left_out.is_empty() {
            return rendition;
        }
        let all = self.output.len() + value.len();
        let kept = shown.output.len() + if shown.has_value { value.len() } else { 0 };
        rendition.withheld_bytes = Some(all.saturating_sub(kept) as u64);
        let value = shown.has_value.then(|| self.value.clone());
        rendition.data = Some(json!({"output": shown.output, "value": value}));
        rendition
            .meta
            .insert("left_out".to_owned(), json!(left_out));
        rendition.truncated(true).rest(Rest::json("script", self))
    }
}

/// What a program is shown of a script's output.
struct ShownDocument<'a> {
    output: Cow<'a, str>,
    has_value: bool,
}

impl Render for ScriptOutput {
    fn render(&self, room: &AnswerRoom<'_>) -> Result<Rendition<'_>> {
        if room.form() == Form::Data {
            return Ok(self.for_program(room));
        }
        let text = self.text();
        let cut = room.fit(text.len(), |tokens| {
            let cut = cut_parts(text, &self.parts, CutLimits::tokens(tokens));
            if cut.is_whole() {
                Fitted::Whole(cut)
            } else {
                Fitted::Cut(cut)
            }
        });
        let truncated = !cut.is_whole();
        let receipt = if truncated {
            Receipt::new().cut(cut.kept, cut.left, cut.clipped).rest()
        } else if text.is_empty() {
            Receipt::new().note("done; nothing was printed")
        } else {
            Receipt::new()
        };
        let withheld_bytes = cut.left.bytes;
        let extent = RestExtent::of_cut(text, &cut);
        let body = cut.text.trim_end_matches('\n').to_owned();
        Ok(Rendition {
            withheld_bytes: Some(withheld_bytes),
            notes: self.notes.clone(),
            ..Rendition::text(body, receipt)
                .truncated(truncated)
                .rest(truncated.then(|| Rest::text("script", text).extent(extent)))
        })
    }
}

/// A script that failed. Its reader gets what it printed, then the error with its source line, then the effects that
/// its calls have had.
pub(super) fn failure(
    code: &str,
    output: String,
    trouble: ScriptError,
    effects: Vec<String>,
    notes: Vec<String>,
) -> Error {
    let kind = kind(&trouble);
    let place = trouble.line.map(|line| format!("line {line}: "));
    let name = match trouble.kind {
        ScriptErrorKind::Limit(_) => format!("{}: ", kind.code(Family::Linux)),
        _ if trouble.exception.is_empty() => String::new(),
        _ => format!("{}: ", trouble.exception),
    };
    let message = format!("{}{name}{}", place.unwrap_or_default(), trouble.message);
    let mut error = Error::new(kind, message);
    error.hint = trouble.hint;
    if !effects.is_empty() {
        error = error.with("already_done", effects.clone());
    }
    if !trouble.traceback.is_empty() {
        error = error.with("traceback", trouble.traceback.trim_end());
    }
    error.transcript = Some(Box::new(Transcript {
        printed: output,
        source_line: trouble.line.and_then(|line| source_line(code, line)),
        effects,
        notes,
        receipt: Receipt::new(),
    }));
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
        ScriptErrorKind::Syntax | ScriptErrorKind::Reserved => ErrorKind::BadArgs,
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
