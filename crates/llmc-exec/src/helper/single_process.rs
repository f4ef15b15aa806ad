//! The step between a helper and a program that may start no other.
//!
//! The helper has to start the program, so the filter that forbids starting anything cannot be its own: this executable,
//! started inside the boundary, puts it on and becomes the program.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use super::seccomp;

/// Becomes the program: its file, the name it is called by, its arguments. Comes back only with an error.
#[expect(
    clippy::disallowed_methods,
    reason = "this is how llmc-exec starts programs"
)]
pub(super) fn run(mut words: impl Iterator<Item = OsString>) -> io::Result<()> {
    let (Some(program), Some(name)) = (words.next(), words.next()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    seccomp::refuse_new_processes()?;
    Err(Command::new(program).arg0(name).args(words).exec())
}
