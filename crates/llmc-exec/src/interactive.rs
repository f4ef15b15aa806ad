//! A run whose pipes the caller reads and writes while it goes on.
//!
//! The calling thread follows the run to its end and touches neither pipe, so that a protocol over them needs no thread
//! between the two sides and loses nothing: a run that prints faster than its output is read waits.

use std::fs::File;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use super::exit_status::ExitStatus;
use super::follow::{MAX_RUN_TIME, RunReport, broken, failed, follow};
use super::plan::Input;
use super::runner::{ExecRequest, Runner, SessionPlace};
use crate::error::Result;
use llmc_host::CancelToken;

/// The caller's ends of a run.
#[derive(Debug)]
pub struct RunPipes {
    /// The run's standard input; writing does not block. Dropping it closes the input.
    pub input: File,
    /// Both outputs of the run as one.
    pub output: File,
    pub leash: RunLeash,
}

/// Ends its run when it is dropped.
#[derive(Debug)]
pub struct RunLeash {
    socket: UnixStream,
    let_go: CancelToken,
}

impl Drop for RunLeash {
    fn drop(&mut self) {
        self.let_go.cancel();
        // An error means that the run has ended already.
        let _ = self.socket.shutdown(Shutdown::Write);
    }
}

impl Runner {
    /// As [`Runner::run`], for a program whose input and output are the caller's: `begin` receives both once the program
    /// runs. Its end is the end of the program, its time limit, or the end of the [`RunLeash`]. With a place it runs in another
    /// runner's session.
    ///
    /// # Errors
    /// As [`Runner::run`].
    pub fn run_interactive(
        &self,
        spec: &ExecRequest<'_>,
        place: Option<SessionPlace>,
        begin: impl FnOnce(RunPipes),
    ) -> Result<RunReport> {
        let wrong = |error| broken("starting the process", error);
        let launched = self.launch_at(spec, Input::Pipe, place)?;
        self.finish(launched, spec, |tree, terms, _| {
            tree.running()
                .map_err(wrong)?
                .map_err(|failure| failed(&failure, &terms.program))?;
            tree.seen().map_err(wrong)?;
            let (started, let_go) = (Instant::now(), CancelToken::default());
            let leash = RunLeash {
                socket: tree.leash().map_err(wrong)?,
                let_go: let_go.clone(),
            };
            if let (Some(input), Some(output)) = (tree.take_input(), tree.take_output()) {
                begin(RunPipes {
                    input,
                    output,
                    leash,
                });
            }
            // Nothing but the leash ends it early, so nothing has to be looked at in between.
            terms.check_interval = MAX_RUN_TIME;
            match follow(tree, terms, &mut |_, _| {}, &|| Ok(()), &mut || None) {
                // The helper has ended without a report, since its socket was closed.
                Err(_) if let_go.is_cancelled() => Ok(RunReport {
                    status: ExitStatus::Stopped,
                    timed_out: false,
                    cancelled: true,
                    output_capped: false,
                    duration: started.elapsed(),
                    quarantined: Vec::new(),
                    notes: Vec::new(),
                }),
                ended => ended,
            }
        })
    }
}
