//! Recursive analysis: answers a question about a text that is too long for a prompt. A model writes code that searches
//! and slices the text, and asks further models about parts of it.
//!
//! The crate owns one query from the question to its report: turns, tokens, money, time, children, traces. It must not
//! know files, tools or the configuration; the text, the admitted models and the sandbox are given to it.
//!
//! The three types to know:
//! - [`Query`]: the question, the text, the models and the limits; [`run`] carries it out in a [`QueryContext`]
//! - [`SourceText`]: the text, shared by all children and addressed by characters
//! - [`QueryReport`]: the answer or the error, and what was spent
//!
//! Parts: `session` leads a conversation, `functions` is what its code can call, `arguments` checks those calls,
//! `model_access` is the only place that calls models, `definitions` parses source code, `code_blocks` finds code in
//! replies, `prompt` holds the prompts, `trace` records and replays.
//!
//! The text and everything that models reply is untrusted: code runs in the sandbox only, the answer is the argument of
//! `FINAL` and never prose, and no function that the code can call reaches a file or, except through `model_access`, a
//! network.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod arguments;
mod code_blocks;
mod definitions;
mod error;
mod functions;
mod model_access;
mod prompt;
mod query;
mod session;
mod text;
mod trace;

pub use definitions::parse_language;
pub use error::Error;
pub use model_access::{AnswerSource, ProgressCallback, QueryModel, QueryProgress};
pub use query::{PythonSource, Query, QueryAnswer, QueryContext, QueryLimits, QueryReport, run};
pub use text::SourceText;
pub use trace::{RecordedTrace, TraceDetail, TraceRecorder};
