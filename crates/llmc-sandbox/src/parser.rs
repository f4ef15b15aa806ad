//! Parsers of source code in confined processes.
//!
//! Tree-sitter grammars are C code that reads files of strangers. They run in workers like those of scripts: no files, no
//! network, no processes, bounded memory. A worker gets a source and returns plain data, which the server checks. A crash,
//! a time-out or exhausted memory costs that one source; the worker is replaced.
//!
//! Workers are started when the first source is parsed and end when they are idle ([`ParserPool`]). Where the kernel has
//! no filter for system calls, they still are processes of their own, and [`ParserConfinement`] says so.

mod frames;
mod pool;
mod worker;

use std::sync::{Arc, OnceLock};

pub use pool::{ParserConfinement, ParserOptions, ParserPool};
pub(crate) use worker::parser_main;
pub use worker::{ParserRole, serve_parser};

/// The hidden argument that makes the executable a parser.
pub(crate) const PARSER_ARGUMENT: &str = "__parser";

static PARSERS: OnceLock<Arc<ParserPool>> = OnceLock::new();

/// Makes this process parse sources in workers from now on; `main` calls this once, after
/// [`worker_main`](crate::worker_main). Starts nothing yet.
pub fn parse_in_workers() {
    llmc_syntax::set_parse_service(|request, deadline| parsers().parse(request, deadline));
}

/// What confines the parsers of this process, as far as one has been started.
pub fn parser_confinement() -> Option<ParserConfinement> {
    PARSERS.get().and_then(|pool| pool.confinement())
}

/// Starts a parser, if none is running, and says what confines it.
pub fn check_parsers() -> ParserConfinement {
    parsers().check()
}

fn parsers() -> &'static Arc<ParserPool> {
    PARSERS.get_or_init(|| ParserPool::new(ParserOptions::default()))
}
