//! Runs what must not have the user's rights, in processes that can only compute: Python code that a model wrote, and the
//! parsers of source files, documents and images.
//!
//! The crate owns the script interpreter (monty, a subset of Python), the worker processes it runs in, their limits and
//! their protocol, and the worker processes that run tree-sitter. It must not know tools, MCP or models: what a script may
//! call is decided by its host.
//!
//! A worker is this executable, started again before it has a thread or a runtime. It gives up files, sockets, programs
//! and every other system call it does not need before it reads its first message. An interpreter that aborts ends its
//! worker and nothing else.
//!
//! The three types to know:
//! - [`Sandbox`]: the worker processes, some of them started ahead
//! - [`Session`]: one interpreter whose variables and functions last from one block of code to the next
//! - [`ScriptHost`]: answers the calls of a script
//!
//! Parts: `names` is what a script finds beside Python, `limits` what it may spend, `outcome` how it ended, `host` the
//! calls; `pool` keeps workers, `session` runs blocks in one, `wire` is their protocol, `worker` the other side of it.
//! `python` is the second backend, the system's Python inside a kernel boundary. `parser` parses source files in workers of
//! its own, `document` converts documents and images in one each. `main` calls [`worker_main`] first, and
//! [`CountingAllocator`] is the executable's global allocator, without which no memory limit would hold.
//!
//! ```no_run
//! use llmc_sandbox::{ScriptEnd, ScriptHost, ScriptCall, ScriptCallError, ScriptLimits, ScriptNames, Sandbox, SessionSetup};
//! use serde_json::{Value, json};
//! use tokio_util::sync::CancellationToken;
//!
//! #[global_allocator]
//! static MEMORY: llmc_sandbox::CountingAllocator = llmc_sandbox::CountingAllocator;
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
//! # async fn example() -> Result<(), llmc_sandbox::Error> {
//! // In main, before anything else: if let Some(code) = llmc_sandbox::worker_main(std::env::args_os()) { return code; }
//! let sandbox = Sandbox::default();
//! let names = ScriptNames {
//!     functions: vec!["context_search".into(), "FINAL".into()],
//!     reserved: vec!["context_search".into(), "FINAL".into()],
//!     ..ScriptNames::default()
//! };
//! let mut session = sandbox.session("local", SessionSetup { names, ..SessionSetup::default() }).await?;
//! let (host, cancel) = (TextHost("a needle".into()), CancellationToken::new());
//! session.run("at = context_search('needle')", &ScriptLimits::default(), &host, &cancel).await;
//! let outcome = session.run("print(at)\nat + 1", &ScriptLimits::default(), &host, &cancel).await;
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
mod error;
#[cfg(test)]
mod fuzz;
mod host;
mod limits;
mod names;
mod outcome;
mod parser;
mod pool;
mod python;
mod session;
mod timed_socket;
mod wire;
mod worker;

pub use document::{DocumentRole, DocumentWorkers, convert_in_workers, serve_documents};
pub use error::Error;
pub use host::{
    CommandSession, Exception, PRINTED_AS, ScriptCall, ScriptCallError, ScriptHost, SystemCall,
    SystemReply,
};
pub use limits::{ScriptLimit, ScriptLimits, SessionBudget};
pub use monty_alloc::LimitedAllocator as CountingAllocator;
pub use names::{ModulePart, ScriptNames};
pub use outcome::{ScriptEnd, ScriptError, ScriptErrorKind, ScriptOutcome, ScriptValue};
pub use parser::{
    ParserConfinement, ParserOptions, ParserPool, ParserRole, check_parsers, parse_in_workers,
    parser_confinement, serve_parser,
};
pub use pool::{Sandbox, SandboxOptions};
pub use python::{PythonBackend, PythonSession};
pub use session::{Session, SessionSetup};
pub use worker::{EMBEDDED_LIMITS, worker_main};
