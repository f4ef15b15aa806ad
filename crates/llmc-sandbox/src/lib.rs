//! Runs Python that a model wrote, where it can do nothing but compute and ask.
//!
//! The interpreter (monty, a subset of Python) lives in a worker: this executable, started again before it has a thread
//! or a runtime, which gives up files, sockets, programs and every other system call it does not need before it reads its
//! first message. What a script wants from the world it asks for by calling functions, and the embedder answers.
//! An interpreter that aborts takes its worker along and nothing else.
//!
//! - [`Sandbox`]: the workers, some of them warm
//! - [`Session`]: one interpreter whose variables and functions last from one block of code to the next
//! - [`Names`]: what a script finds beside Python itself
//! - [`Host`], [`HostCall`], [`HostError`]: how the embedder answers
//! - [`Limits`], [`Budget`], [`Limit`]: what one block and a whole session may spend
//! - [`Outcome`], [`Ending`], [`Trouble`]: how a block went
//! - [`Python`]: the second backend, the system's Python in a boundary of the kernel
//! - [`worker_main`]: what `main` calls first of all
//! - [`CountingAllocator`]: the executable's global allocator, without which no memory limit would hold
//!
//! ```no_run
//! use llmc_sandbox::{Ending, Host, HostCall, HostError, Limits, Names, Sandbox, Setup};
//! use serde_json::{Value, json};
//! use tokio_util::sync::CancellationToken;
//!
//! #[global_allocator]
//! static MEMORY: llmc_sandbox::CountingAllocator = llmc_sandbox::CountingAllocator;
//!
//! struct Text(String);
//!
//! impl Host for Text {
//!     async fn call(&self, call: HostCall) -> Result<Value, HostError> {
//!         match (call.name.as_str(), call.args.as_slice()) {
//!             // The text stays here; the script gets only what it asks for.
//!             ("context_search", [Value::String(word)]) => Ok(json!(self.0.find(word.as_str()))),
//!             // Ends the block at once; no `except` in the script catches this.
//!             ("FINAL", _) => Err(HostError::stop()),
//!             _ => Err(HostError::value(format!("{}(word): one string", call.name))),
//!         }
//!     }
//! }
//!
//! # async fn example() -> Result<(), llmc_sandbox::Error> {
//! // In main, before anything else: if let Some(code) = llmc_sandbox::worker_main(std::env::args_os()) { return code; }
//! let sandbox = Sandbox::default();
//! let names = Names {
//!     functions: vec!["context_search".into(), "FINAL".into()],
//!     reserved: vec!["context_search".into(), "FINAL".into()],
//!     ..Names::default()
//! };
//! let mut session = sandbox.session("local", Setup { names, ..Setup::default() }).await?;
//! let (host, cancel) = (Text("a needle".into()), CancellationToken::new());
//! session.run("at = context_search('needle')", &Limits::default(), &host, &cancel).await;
//! let outcome = session.run("print(at)\nat + 1", &Limits::default(), &host, &cancel).await;
//! assert_eq!(outcome.output, "2\n");
//! match outcome.ending {
//!     Ending::Value(value) => assert_eq!(value.repr, "3"),
//!     Ending::Stopped => {}
//!     Ending::Failed(trouble) => panic!("line {:?}: {}", trouble.line, trouble.message),
//! }
//! # Ok(()) }
//! ```
//!
//! Nothing in here knows tools, MCP or models.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod error;
mod host;
mod limits;
mod names;
mod outcome;
mod pool;
mod python;
mod session;
mod wire;
mod worker;

pub use error::Error;
pub use host::{Exception, Host, HostCall, HostError};
pub use limits::{Budget, Limit, Limits};
pub use monty_alloc::LimitedAllocator as CountingAllocator;
pub use names::Names;
pub use outcome::{Ending, Outcome, Shown, Trouble, TroubleKind};
pub use pool::{Options, Sandbox};
pub use python::Python;
pub use session::{Session, Setup};
pub use worker::worker_main;
