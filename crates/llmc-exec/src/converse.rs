//! A run that asks and is answered while it runs.
//!
//! Like any other run it is followed to its end by whoever started it, and every byte it prints is handed on, so that a
//! protocol over its outputs loses nothing: a run that prints faster than it is heard waits.

use std::fs::File;
use std::io::{self, Write};

use super::follow::{CANCEL_CHECK_INTERVAL, RunReport, Stream, Terms, broken, failed, follow};
use super::plan::Input;
use super::process::wait_for_room;
use super::runner::{ExecRequest, Launched, Runner};
use crate::error::Result;
use llmc_host::CancelToken;

/// Where a run's input is written. Dropping it closes the input.
#[derive(Debug)]
pub struct CommandInput(File);

impl CommandInput {
    /// Writes all of it, waiting for the run to read. `false` if nobody reads any more or the time is over.
    pub fn say(&mut self, bytes: &[u8], stop: &CancelToken) -> bool {
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
    /// As [`Runner::run`], for a program that is talked to. `begin` is given its input once it runs; both of its outputs
    /// come as one.
    ///
    /// # Errors
    /// As [`Runner::run`].
    pub fn converse(
        &self,
        spec: &ExecRequest<'_>,
        begin: impl FnOnce(CommandInput),
        on_output: &mut dyn FnMut(&[u8]),
        stop: &CancelToken,
    ) -> Result<RunReport> {
        let wrong = |error| broken("starting the process", error);
        let Launched {
            program,
            mut tree,
            tmp,
            watch,
        } = self.launch_with(spec, Input::Pipe)?;
        let terms = Terms {
            program: program.name.clone(),
            timeout: spec.timeout,
            max_output: spec.max_output,
        };
        let running = match tree.running().map_err(wrong) {
            Ok(Ok(_)) => tree.seen().map_err(wrong),
            Ok(Err(failure)) => Err(failed(&failure, &program.name)),
            Err(error) => Err(error),
        };
        let ended = running.and_then(|()| {
            if let Some(input) = tree.take_input() {
                begin(CommandInput(input));
            }
            follow(
                &mut tree,
                &terms,
                &mut |_: Stream, bytes: &[u8]| on_output(bytes),
                &|| stop.check(),
            )
        });
        drop(tree);
        drop(tmp);
        let quarantined = self.look_after(watch);
        Ok(RunReport {
            quarantined,
            ..ended?
        })
    }
}
