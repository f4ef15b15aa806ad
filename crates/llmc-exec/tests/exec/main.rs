//! Commands inside the boundary, tried for real.
//!
//! The test binary plays every part: it is the server under test, the helper it starts again, and the hostile program
//! that runs inside. Started as root it runs the suite once more as an ordinary user, and once more each as in a
//! container without user namespaces; so the expectations ask the level what should hold, never the user id.

// With a main of its own, clippy does not see that this is a test.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used
)]

mod allowed;
mod attacks;
mod bounded;
mod endings;
mod escapes;
mod git_flows;
mod git_mirror;
mod git_planting;
mod git_world;
mod git_writes;
mod guarding;
mod home;
mod layered;
mod policy;
mod probes;
mod processes;
mod repository;
mod restricted;
mod roles;
mod sessions;
mod world;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    if let Some(code) = llmc_exec::helper_main(std::env::args_os()) {
        return code;
    }
    if let Some(code) = attacks::main() {
        return code;
    }
    if let Some(code) = roles::main() {
        return code;
    }
    let mut trials = Vec::new();
    let mut add = |name: &'static str, test: fn()| {
        trials.push(Trial::test(name, move || {
            test();
            Ok(())
        }));
    };
    allowed::list(&mut add);
    bounded::list(&mut add);
    escapes::list(&mut add);
    git_flows::list(&mut add);
    git_mirror::list(&mut add);
    git_planting::list(&mut add);
    git_writes::list(&mut add);
    guarding::list(&mut add);
    home::list(&mut add);
    endings::list(&mut add);
    layered::list(&mut add);
    policy::list(&mut add);
    processes::list(&mut add);
    probes::list(&mut add);
    repository::list(&mut add);
    sessions::list(&mut add);
    restricted::list(&mut add);
    roles::list(&mut add);
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
