//! Runs a fuzz target: a property that must hold for any bytes.
//!
//! A target is a unit test beside the code it tests, in a module `fuzz`, that calls [`check!`] with a name and a property. Its
//! seeds are the files of `seeds/NAME` in its crate: inputs that reach deep, and every input that once failed.
//!
//! - Under `cargo test` the property is checked on every seed: the same inputs in every run.
//! - Under `scripts/fuzz` libFuzzer searches for inputs that fail, guided by the code that each input reaches.
//! - With `LLMC_FUZZ_INPUT=FILE` only that input is checked.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod input;

use std::panic::{AssertUnwindSafe, RefUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};

pub use input::FuzzInput;

/// A file that holds the only input to check.
const INPUT_ENV: &str = "LLMC_FUZZ_INPUT";

/// Checks a property on every seed of a target, or on whatever libFuzzer finds: `check!("name", |input: &[u8]| …)`.
#[macro_export]
macro_rules! check {
    ($name:literal, $property:expr) => {
        $crate::run(env!("CARGO_MANIFEST_DIR"), $name, $property)
    };
}

/// What [`check!`] calls, with the directory of the calling crate.
///
/// # Panics
/// When the property does, when the target has no seed, and when a seed cannot be read.
pub fn run(crate_dir: &str, name: &str, property: impl Fn(&[u8]) + RefUnwindSafe) {
    if let Some(path) = std::env::var_os(INPUT_ENV) {
        property(&read(Path::new(&path)));
    } else if cfg!(fuzzing_libfuzzer) {
        search(property);
    } else {
        replay(&Path::new(crate_dir).join("seeds").join(name), property);
    }
}

/// Leaves the process to libFuzzer, whose arguments are in `BOLERO_LIBFUZZER_ARGS`.
#[cfg(fuzzing_libfuzzer)]
fn search(property: impl Fn(&[u8]) + RefUnwindSafe) {
    use bolero_engine::Engine as _;
    let test = bolero_engine::BorrowedSliceTest::new(|input: &[u8]| property(input));
    let engine = bolero_libfuzzer::LibFuzzerEngine::default();
    engine.run(test, bolero_engine::driver::Options::default());
}

#[cfg(not(fuzzing_libfuzzer))]
fn search(_: impl Fn(&[u8])) {}

/// Checks every file of a directory, and says which it was when the property fails.
fn replay(dir: &Path, property: impl Fn(&[u8])) {
    for path in seeds(dir) {
        let seed = read(&path);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| property(&seed))) {
            let path = path.display();
            note(&format!(
                "failed on {path}; {INPUT_ENV}={path} checks it alone"
            ));
            resume_unwind(panic);
        }
    }
}

#[expect(
    clippy::print_stderr,
    reason = "the test harness shows it with the failure"
)]
fn note(text: &str) {
    eprintln!("{text}");
}

fn seeds(dir: &Path) -> Vec<PathBuf> {
    let entries =
        std::fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "{}: no seeds", dir.display());
    paths
}

#[expect(
    clippy::disallowed_methods,
    reason = "an input of a test, not a file of the agent"
)]
fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn with_seeds(contents: &[&str], property: impl Fn(&[u8])) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        for (number, content) in contents.iter().enumerate() {
            std::fs::write(dir.path().join(number.to_string()), content).expect("a seed");
        }
        replay(dir.path(), property);
    }

    #[test]
    fn every_seed_is_checked() {
        let seen = RefCell::new(Vec::new());
        with_seeds(&["one", "two"], |seed| {
            seen.borrow_mut().push(seed.to_vec())
        });
        assert_eq!(seen.into_inner(), [b"one", b"two"]);
    }

    #[test]
    #[should_panic(expected = "this seed fails")]
    fn a_seed_that_fails_the_property_fails_the_test() {
        with_seeds(&["one", "two"], |seed| {
            assert_ne!(seed, b"two", "this seed fails")
        });
    }

    #[test]
    #[should_panic(expected = "no-such-target")]
    fn a_target_without_seeds_fails() {
        run(env!("CARGO_MANIFEST_DIR"), "no-such-target", |_| {});
    }
}
