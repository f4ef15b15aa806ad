//! Commands: started inside the boundary, their output condensed, the same on every surface.
//!
//! - `line`: the words of a command, and which program prints its output
//! - `execute`: from a `CommandRequest` to a `CommandOutput`, or to a background process
//! - `refusals`: why something failed that works in the user's own shell
//! - `wait`: how long a call waits
//! - `spool`: the output while it arrives, in bounded memory
//! - `condense`: what of it is shown; `output`: the same as a tool's output, which the seal finishes
//! - `viewed`: a command on a copy-on-write view; `changes`, `previewed`: what it would have changed; `compared`: what
//!   differs from the same command on a base; `comparing`: its runs; `reported`: the runner's own report; `long`: the answer of a run that outlives its call
//! - `project_tests`: the project's own tests, all or some
//! - `raw`: a command whose output a script gets byte for byte
//! - `operator_te`: the second way to run a command, through a `te` program that the operator configured
//! - `cli`, `te_output`, `folder`: the `te` of a user's shell
//! - [`Flags`]: the command line of `te`; `document`, `report`: its other answers

mod background_jobs;
mod changes;
mod cli;
mod compared;
pub(crate) mod comparing;
pub(crate) mod condense;
mod document;
mod execute;
mod flags;
mod folder;
mod line;
mod long;
mod operator_te;
pub(crate) mod output;
mod previewed;
mod project_tests;
mod raw;
pub(crate) mod refusals;
mod report;
mod reported;
pub(crate) mod spool;
mod te_output;
mod viewed;
mod wait;

pub use cli::{Cli, CliAnswer, record_refused};
pub(crate) use compared::{CompareRequest, ComparisonAnswer, compare_runs};
pub(crate) use condense::OutputForm;
pub(crate) use execute::{
    Capture, CommandRequest, answer, output_form, resume, run_program, taken_away,
};
pub use flags::Flags;
pub(crate) use line::CommandWords;
pub(crate) use long::{RunOutcome, no_input, resume_run};
pub(crate) use output::RunOutput;
pub(crate) use previewed::{PreviewAnswer, PreviewRequest, preview};
pub use project_tests::AskedTests;
pub(crate) use project_tests::{TestsRequest, run_tests};
pub(crate) use raw::{RawOutput, RawRequest, run_raw};
pub use report::HELP;
pub(crate) use reported::is_test_path;
pub(crate) use wait::call_limit;

/// The name of the Tool Envelope itself, which no list of programs has to contain.
const TE: &str = "te";
