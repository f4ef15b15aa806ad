//! A run whose standard input the caller writes while it runs.
//!
//! The calling thread follows the run to its end, and every byte the run prints is passed on, so that a protocol over
//! its outputs loses nothing: a run that prints faster than its output is read waits.

use std::fs::File;
use std::io::{self, Write};

use super::follow::{CANCEL_CHECK_INTERVAL, RunReport, Stream, broken, failed, follow};
use super::plan::Input;
use super::process::wait_for_room;
use super::runner::{ExecRequest, Runner};
use crate::error::Result;
use llmc_host::CancelToken;

/// Where a run's input is written. Dropping it closes the input.
#[derive(Debug)]
pub struct CommandInput(File);

impl CommandInput {
    /// Writes all of it, waiting for the run to read. `false` if the input is closed or the call is cancelled.
    pub fn write(&mut self, bytes: &[u8], stop: &CancelToken) -> bool {
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.0.write(rest) {
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && !stop.is_cancelled() => {
                    wait_for_room(&self.0, CANCEL_CHECK_INTERVAL);
                }
                Err(_) => return false,
            }
        }
        true
    }
}

impl Runner {
    /// As [`Runner::run`], for a program with an input. `begin` receives that input once the program runs; both outputs
    /// arrive as one.
    ///
    /// # Errors
    /// As [`Runner::run`].
    pub fn run_interactive(
        &self,
        spec: &ExecRequest<'_>,
        begin: impl FnOnce(CommandInput),
        on_output: &mut dyn FnMut(&[u8]),
        stop: &CancelToken,
    ) -> Result<RunReport> {
        let wrong = |error| broken("starting the process", error);
        let launched = self.launch_with(spec, Input::Pipe)?;
        self.finish(launched, spec, |tree, terms| {
            tree.running()
                .map_err(wrong)?
                .map_err(|failure| failed(&failure, &terms.program))?;
            tree.seen().map_err(wrong)?;
            if let Some(input) = tree.take_input() {
                begin(CommandInput(input));
            }
            let on_output = &mut |_: Stream, bytes: &[u8]| on_output(bytes);
            follow(tree, terms, on_output, &|| stop.check())
        })
    }
}
