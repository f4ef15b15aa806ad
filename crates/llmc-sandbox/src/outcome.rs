//! How a block of code ended.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::limits::{ScriptLimit, ScriptLimits};

#[derive(Debug, Clone)]
pub struct ScriptOutcome {
    pub ending: ScriptEnd,
    /// Printed text, also of a block that failed.
    pub output: String,
    /// Where the parts of the output start that were printed one after the other, the first without its 0; short ones belong
    /// to what follows them. Empty where that is not known, and for many parts.
    pub output_parts: Vec<usize>,
    pub calls: u64,
    pub elapsed: Duration,
    /// Computing time, as far as the process reports it.
    pub cpu: Duration,
}

#[derive(Debug, Clone)]
pub enum ScriptEnd {
    /// The value of its last expression.
    Value(ScriptValue),
    /// The host answered a call with [`ScriptCallError::Stop`](crate::ScriptCallError::Stop).
    Stopped,
    Failed(ScriptError),
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ScriptValue {
    /// `repr(value)`; a string without quotes, `None` as an empty text.
    pub repr: String,
    /// Null if the value has no JSON form.
    #[serde(default)]
    pub json: Value,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScriptError {
    pub kind: ScriptErrorKind,
    /// The exception's class, or empty.
    pub exception: String,
    pub message: String,
    /// The line of this block, from 1.
    pub line: Option<u32>,
    /// Frames with lines, code and carets.
    pub traceback: String,
    pub hint: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ScriptErrorKind {
    /// Not valid Python.
    Syntax,
    /// The block binds a reserved name and did not run.
    Reserved,
    /// An uncaught exception.
    Exception,
    Limit(ScriptLimit),
    /// The caller disconnected or cancelled.
    Cancelled,
    /// The process ended unexpectedly, or could not be started.
    Crashed,
}

impl ScriptError {
    pub(crate) fn new(kind: ScriptErrorKind, message: impl Into<String>) -> ScriptError {
        ScriptError {
            kind,
            exception: String::new(),
            message: message.into(),
            line: None,
            traceback: String::new(),
            hint: None,
        }
    }

    /// The error for a limit that was reached, with the advice for it.
    pub(crate) fn limit(limit: ScriptLimit, limits: &ScriptLimits) -> ScriptError {
        ScriptError {
            hint: Some(limit.hint().to_owned()),
            ..ScriptError::new(ScriptErrorKind::Limit(limit), limits.describe(limit))
        }
    }
}
