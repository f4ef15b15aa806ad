//! Asks the linker to pack relative relocations, which makes the executable two megabytes smaller.
//!
//! The loader of glibc knows them from 2.36 on. An executable is run where it was built, or is linked statically with the
//! loader's code in it, so the version of this machine decides.
#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "cargo reads its directives from stdout; build scripts may start programs"
)]

use std::env;
use std::process::Command;

/// The first glibc whose loader knows packed relocations.
const FIRST_GLIBC: (u32, u32) = (2, 36);

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is_native = env::var_os("HOST") == env::var_os("TARGET");
    if is_native && glibc_version().is_some_and(|version| version >= FIRST_GLIBC) {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// As `getconf` prints it: `glibc 2.36`. Other C libraries have no such line.
fn glibc_version() -> Option<(u32, u32)> {
    let printed = Command::new("getconf").arg("GNU_LIBC_VERSION").output();
    let printed = String::from_utf8(printed.ok()?.stdout).ok()?;
    let version = printed.trim().strip_prefix("glibc ")?;
    let (major, minor) = version.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
