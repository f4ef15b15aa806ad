//! Scripts, parsers and converters, hostile ones above all, in real workers.
//!
//! The test binary plays both parts: it is the server under test and the worker that this starts.

// With a main of its own, clippy does not see that this is a test.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used
)]

mod documents;
mod escapes;
mod fixture;
mod parsers;
mod python;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    if let Some(code) = llmc_exec::helper_main(std::env::args_os()) {
        return code;
    }
    if let Some(code) = llmc_sandbox::worker_main(std::env::args_os()) {
        return code;
    }
    if let Some(code) = escapes::attacker_main() {
        return code;
    }
    if let Some(code) = parsers::parser_main() {
        return code;
    }
    if let Some(code) = documents::document_main() {
        return code;
    }
    if let Some(code) = python::roles::main() {
        return code;
    }
    let mut trials = Vec::new();
    let mut add = |name: &'static str, test: fn()| {
        trials.push(Trial::test(name, move || {
            test();
            Ok(())
        }));
    };
    escapes::list(&mut add);
    parsers::list(&mut add);
    documents::list(&mut add);
    for (name, test) in python::list() {
        trials.push(Trial::test(name, move || {
            test();
            Ok(())
        }));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
