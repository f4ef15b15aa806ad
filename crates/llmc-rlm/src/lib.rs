//! Answers a question about a text far too long to be read: a model writes code that searches and slices the text, and
//! asks further models about parts of it.
//!
//! - [`run`]: one query, from the question to an [`Ended`]
//! - [`Query`], [`Settings`], [`Party`]: what is asked, of whom, within which bounds
//! - [`Around`]: what a query needs of its surroundings: a sandbox, a [`Source`] of answers, somebody who watches
//! - [`Text`]: the text, never copied and never in a prompt
//! - [`Recorder`], [`Tape`]: a trace, and its replay without any provider
//!
//! Inside, `session` leads the conversation, `functions` are what its code can call, `desk` is the one place where
//! models are asked, `nav` knows source code, `blocks` finds code in answers, `binding` what that code binds, and
//! `prompt` holds the words.
//!
//! The text is data from nobody knows where, and so is everything that models say: code runs in the sandbox only, an
//! answer is what `FINAL` is called with and never what prose looks like, and no name that the code can
//! call reaches a file or a network.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod binding;
mod blocks;
mod desk;
mod error;
mod functions;
mod given;
mod nav;
mod prompt;
mod query;
mod session;
mod text;
mod trace;

pub use desk::{Party, Progress, Source, Watch};
pub use error::Error;
pub use nav::language;
pub use query::{Around, Ended, Finding, Query, Settings, run};
pub use text::{Found, Hit, Search, Text};
pub use trace::{Detail, Recorder, Tape};
