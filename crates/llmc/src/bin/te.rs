//! `te`: the same as `llmc te`, by the `llmc` that stands beside it.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let beside = std::env::current_exe().map(|exe| exe.with_file_name("llmc"));
    let error = match beside {
        #[expect(
            clippy::disallowed_methods,
            reason = "becomes llmc; nothing is started beside it"
        )]
        Ok(llmc) => Command::new(llmc)
            .arg0("llmc")
            .arg("te")
            .args(std::env::args_os().skip(1))
            .exec(),
        Err(error) => error,
    };
    let _ = writeln!(
        std::io::stderr(),
        "te: llmc, which should stand beside te: {error}"
    );
    ExitCode::from(126)
}
