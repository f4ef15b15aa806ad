//! What a model reads of a script: what it printed, what it ended with, or why it failed.

use llmc_envelope::cut::{Limits, cut};
use llmc_envelope::receipt::Receipt;
use llmc_sandbox::{Limit, Shown, Trouble, TroubleKind};
use serde_json::json;

use crate::answer::{Answer, Facts};
use crate::cx::{Cx, Form};
use crate::error::{Error, Family, Kind, ROWS};
use crate::te;

/// Lines above this many bytes are shown clipped; the handle has them whole.
const LONG_LINE: usize = 4096;
/// Tokens of output that are shown beside an error.
const BESIDE_ERROR: usize = 500;

/// A script that ended by itself.
pub(super) fn value(cx: &Cx, output: &str, shown: &Shown, notes: Vec<String>) -> Answer {
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
    let limits = Limits {
        tokens: te::budget(cx),
        line_bytes: LONG_LINE,
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

/// A script that failed: where, why, what to do, and what it had printed.
pub(super) fn trouble(cx: &Cx, output: &str, trouble: Trouble, notes: Vec<String>) -> Error {
    let mut said = String::new();
    if let Some(line) = trouble.line {
        said.push_str(&format!("line {line}: "));
    }
    if !trouble.exception.is_empty()
        && !matches!(
            trouble.kind,
            TroubleKind::Unsupported | TroubleKind::Limit(_)
        )
    {
        said.push_str(&format!("{}: ", trouble.exception));
    }
    said.push_str(&trouble.message);
    let mut error = Error::new(kind(&trouble), said);
    error.hint = trouble.hint;
    if !trouble.traceback.is_empty() {
        error = error.with("traceback", trouble.traceback.trim_end());
    }
    if !output.is_empty() {
        let limits = Limits {
            tokens: BESIDE_ERROR,
            line_bytes: LONG_LINE,
        };
        let cut = cut(output, limits);
        error = error.with("output", cut.text.as_ref());
        if !cut.is_whole() {
            let all = output.lines().count();
            error = error.with("output_shown", format!("{} of {all} lines", cut.kept.lines));
            if let Some(id) = cx.keep(|draft| draft, "script", output.as_bytes()) {
                error = error.with("output_handle", id.to_string());
            }
        }
    }
    if !notes.is_empty() {
        error = error.with("note", notes.join("; "));
    }
    error
}

fn kind(trouble: &Trouble) -> Kind {
    match trouble.kind {
        TroubleKind::Syntax | TroubleKind::Unsupported | TroubleKind::Reserved => Kind::BadArgs,
        TroubleKind::Limit(Limit::Wall | Limit::Cpu) => Kind::TimedOut,
        TroubleKind::Limit(Limit::Memory | Limit::Output) => Kind::TooLarge,
        TroubleKind::Limit(Limit::Calls | Limit::Recursion) => Kind::BadArgs,
        TroubleKind::Cancelled => Kind::Cancelled,
        TroubleKind::Crashed => Kind::Internal,
        // What a tool has raised and nobody caught keeps the tool's code.
        TroubleKind::Exception => {
            let code = trouble.message.split_once(": ").map(|(code, _)| code);
            let row = ROWS.iter().find(|row| {
                let codes =
                    [Family::Linux, Family::Te, Family::Rlm].map(|family| row.kind.code(family));
                code.is_some_and(|code| codes.contains(&code))
            });
            row.map_or(Kind::BadArgs, |row| row.kind)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(message: &str) -> Trouble {
        Trouble {
            kind: TroubleKind::Exception,
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
            ("NOT_FOUND: no such file", Kind::NotFound),
            ("path_denied: outside", Kind::InvalidPath),
            ("BAD_ARGS: no", Kind::BadArgs),
            ("division by zero", Kind::BadArgs),
            ("Note: not a code", Kind::BadArgs),
        ] {
            assert_eq!(super::kind(&failed(message)), kind, "{message}");
        }
    }
}
