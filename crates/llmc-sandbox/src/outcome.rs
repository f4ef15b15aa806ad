//! How a block of code went.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::limits::Limit;

/// How a block of code went.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// How it ended.
    pub ending: Ending,
    /// What it printed, also before it failed.
    pub output: String,
    /// How many calls it made.
    pub calls: u64,
    /// From start to end.
    pub elapsed: Duration,
    /// Its own computing, as far as the worker could tell.
    pub cpu: Duration,
    /// Whether the session went back to what it was before this block, because its worker had to be ended. Without a
    /// state to go back to, that is an empty session.
    pub rolled_back: bool,
}

/// How a block of code ended.
#[derive(Debug, Clone)]
pub enum Ending {
    /// By itself, with the value of its last expression.
    Value(Shown),
    /// By a call whose host said [`HostError::Stop`](crate::HostError::Stop).
    Stopped,
    /// Otherwise.
    Failed(Trouble),
}

/// A value, as the host sees it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Shown {
    /// As Python shows it; a string as it is, without quotes. `None` is empty.
    pub repr: String,
    /// As JSON, where it has such a form; null otherwise.
    pub json: Value,
}

/// Why a block of code failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// What kind of failure.
    pub kind: TroubleKind,
    /// The exception's class, or empty.
    pub exception: String,
    /// What happened, without the class.
    pub message: String,
    /// The line of this block at which it happened, from 1.
    pub line: Option<u32>,
    /// Where it happened: the lines, their code, carets.
    pub traceback: String,
    /// What to do instead.
    pub hint: Option<String>,
}

/// What kind of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TroubleKind {
    /// Not Python.
    Syntax,
    /// Python that this interpreter does not know.
    Unsupported,
    /// The block binds a name that is reserved; it did not run.
    Reserved,
    /// An exception that nobody caught.
    Exception,
    /// A limit struck.
    Limit(Limit),
    /// The caller went away.
    Cancelled,
    /// The worker died under it, or could not be started.
    Crashed,
}

impl Trouble {
    pub(crate) fn new(kind: TroubleKind, message: impl Into<String>) -> Trouble {
        Trouble {
            kind,
            exception: String::new(),
            message: message.into(),
            line: None,
            traceback: String::new(),
            hint: None,
        }
    }
}
