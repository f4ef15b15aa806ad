//! Runs what must not have the user's rights, in confined processes: Python code that a model wrote, and the parsers of source
//! files, documents and images.
//!
//! The crate owns the Python processes of scripts, their limits and their protocol, and the workers that run tree-sitter and
//! convert documents. It must not know tools, MCP or models: what a script may call is decided by its host.
//!
//! Scripts run in a Python of this machine, which the kernel confines. A worker is this executable, started again before it
//! has a thread or a runtime. It gives up files, sockets, programs and every other system call it does not need before it
//! reads its first message.
//!
//! The three types to know:
//! - [`PythonBackend`]: a Python inside a boundary that passed its probes, and processes of it that were started ahead
//! - [`PythonSession`]: one process whose variables and functions last from one block of code to the next
//! - [`ScriptHost`]: answers the calls of a script
//!
//! Parts: `names` is what a script finds beside Python, `limits` what it may spend, `outcome` how it ended, `host` the
//! calls; `python` runs it. `parser` parses source files in workers of its own, `document` converts documents and images in one
//! each, `wire` is the latter's protocol. `main` calls [`worker_main`] first.
//!
//! ```no_run
//! use llmc_sandbox::{
//!     PythonBackend, ScriptCall, ScriptCallError, ScriptEnd, ScriptHost, ScriptLimits, ScriptNames, WorkspaceAccess,
//! };
//! use serde_json::{Value, json};
//! use tokio_util::sync::CancellationToken;
//!
//! struct TextHost(String);
//!
//! impl ScriptHost for TextHost {
//!     async fn call(&self, call: ScriptCall) -> Result<Value, ScriptCallError> {
//!         match (call.name.as_str(), call.args.as_slice()) {
//!             ("context_search", [Value::String(word)]) => Ok(json!(self.0.find(word.as_str()))),
//!             // Ends the block at once; no `except` in the script catches this.
//!             ("FINAL", _) => Err(ScriptCallError::Stop),
//!             _ => Err(ScriptCallError::value(format!("{}(word): one string", call.name))),
//!         }
//!     }
//! }
//!
//! # async fn example() -> llmc_exec::Result<()> {
//! // In main, before anything else: if let Some(code) = llmc_exec::helper_main(std::env::args_os()) { return code; }
//! let settings = llmc_exec::Settings::default();
//! let python = PythonBackend::open(&settings, WorkspaceAccess::ThroughServer, 256 << 20)?;
//! let names = ScriptNames {
//!     functions: vec!["context_search".into(), "FINAL".into()],
//!     reserved: vec!["context_search".into(), "FINAL".into()],
//!     ..ScriptNames::default()
//! };
//! let (limits, host, cancel) = (ScriptLimits::default(), TextHost("a needle".into()), CancellationToken::new());
//! let mut session = python.session(None);
//! session.run("at = context_search('needle')", &names, &limits, &host, &cancel).await;
//! let outcome = session.run("print(at)\nat + 1", &names, &limits, &host, &cancel).await;
//! assert_eq!(outcome.output, "2\n");
//! match outcome.ending {
//!     ScriptEnd::Value(value) => assert_eq!(value.repr, "3"),
//!     ScriptEnd::Stopped => {}
//!     ScriptEnd::Failed(error) => panic!("line {:?}: {}", error.line, error.message),
//! }
//! # Ok(()) }
//! ```
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod document;
#[cfg(test)]
mod fuzz;
mod host;
mod limits;
mod names;
mod outcome;
mod parser;
mod python;
mod timed_socket;
mod wire;
mod worker;

pub use document::{DocumentRole, DocumentWorkers, convert_in_workers, serve_documents};
pub use host::{
    CommandSession, Exception, PRINTED_AS, ScriptCall, ScriptCallError, ScriptHost, SystemCall,
    SystemReply,
};
pub use limits::{ScriptLimit, ScriptLimits};
pub use names::{ModulePart, ScriptNames};
pub use outcome::{ScriptEnd, ScriptError, ScriptErrorKind, ScriptOutcome, ScriptValue};
pub use parser::{
    ParserConfinement, ParserOptions, ParserPool, ParserRole, check_parsers, parse_in_workers,
    parser_confinement, serve_parser,
};
pub use python::{PYTHON_PACKAGE, PythonBackend, PythonSession, WorkspaceAccess, look_for_python};
pub use worker::worker_main;
