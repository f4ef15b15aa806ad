//! Lays out an optimised executable for little memory: the functions that start runs beside each other.
//!
//! `scripts/start-order` makes the list. Linkers differ in what they can do, so each option is tried on an empty program
//! first; without them the executable is the same but for the order of its functions.
#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "cargo reads its directives from stdout, and a build script starts the compiler"
)]

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=start-order.txt");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|set| set == value);
    if !is("PROFILE", "release") || !is("CARGO_CFG_TARGET_OS", "linux") {
        return;
    }
    let folder = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let order = [
        format!("-Wl,--symbol-ordering-file={folder}/start-order.txt"),
        "-Wl,--no-warn-symbol-ordering".to_owned(),
    ];
    // Every page with a pointer is written at start; the table that says where they are need not be large as well. Only
    // where the C library is part of the executable: an older one at run time could not read it.
    let pointers = ["-Wl,-z,pack-relative-relocs".to_owned()];
    let features = env::var("CARGO_CFG_TARGET_FEATURE").unwrap_or_default();
    let is_static = features.split(',').any(|feature| feature == "crt-static");
    for options in [Some(&order[..]), is_static.then_some(&pointers[..])] {
        for option in options
            .filter(|options| works(options))
            .into_iter()
            .flatten()
        {
            println!("cargo::rustc-link-arg-bin=llmc={option}");
        }
    }
}

/// Whether an empty program that is linked with these options runs.
fn works(options: &[String]) -> bool {
    let (Some(rustc), Some(out)) = (env::var_os("RUSTC"), env::var_os("OUT_DIR")) else {
        return false;
    };
    // What was built for another machine cannot be tried.
    if env::var("HOST") != env::var("TARGET") {
        return false;
    }
    let (source, program) = (
        PathBuf::from(&out).join("empty.rs"),
        PathBuf::from(&out).join("empty"),
    );
    if std::fs::write(&source, "fn main() {}\n").is_err() {
        return false;
    }
    let mut build = Command::new(rustc);
    build.arg(&source).arg("-o").arg(&program);
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    build.args(flags.split('\u{1f}').filter(|flag| !flag.is_empty()));
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        build.arg("-C").arg(
            ["linker=".into(), linker]
                .into_iter()
                .collect::<std::ffi::OsString>(),
        );
    }
    build.args(options.iter().map(|option| format!("-Clink-arg={option}")));
    succeeds(build) && succeeds(Command::new(program))
}

fn succeeds(mut command: Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
