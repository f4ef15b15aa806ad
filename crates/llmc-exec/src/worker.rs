//! A worker: this executable run again as a process that only computes.
//!
//! Unlike a command it starts nothing, opens nothing and talks only to the server, over the socket that is its
//! standard input. So it needs no namespaces: before it reads its first message it gives up every system call that
//! reaches beyond its own memory and that socket ([`restrict_to_compute`]).

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};

pub use super::helper::{close_inherited, restrict_to_compute};

/// How a worker ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerEnd {
    /// By itself, with this exit code.
    Exited(i32),
    /// By this signal.
    Killed(i32),
    /// The status could not be read.
    Unknown,
}

/// The server's handle on a worker. Dropping it ends the worker.
#[derive(Debug)]
pub struct Worker {
    process: Option<Child>,
}

impl Worker {
    /// Starts this executable again with hidden arguments, by which its `main` knows what it is to be.
    ///
    /// # Errors
    /// No process can be started.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is how llmc-exec starts programs"
    )]
    pub fn start(arguments: &[&str]) -> io::Result<(Worker, UnixStream)> {
        let (ours, theirs) = UnixStream::pair()?;
        let process = Command::new("/proc/self/exe")
            .arg0("llmc")
            .args(arguments)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let process = Some(process);
        Ok((Worker { process }, ours))
    }

    pub fn id(&self) -> Option<u32> {
        self.process.as_ref().map(Child::id)
    }

    /// Ends it now. Its memory is freed when this returns or soon after.
    pub fn kill(&mut self) {
        if let Some(process) = &mut self.process {
            // An error means that it has ended already.
            let _ = process.kill();
        }
    }

    /// Waits for its end; blocks unless it has closed its socket or was killed.
    pub fn wait(mut self) -> WorkerEnd {
        let Some(mut process) = self.process.take() else {
            return WorkerEnd::Unknown;
        };
        match process.wait() {
            Ok(status) => match (status.code(), status.signal()) {
                (Some(code), _) => WorkerEnd::Exited(code),
                (None, Some(signal)) => WorkerEnd::Killed(signal),
                (None, None) => WorkerEnd::Unknown,
            },
            Err(_) => WorkerEnd::Unknown,
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.kill();
        if let Some(mut process) = self.process.take() {
            // Freeing much memory takes the kernel a while, and an async thread may be dropping this.
            let reap = move || {
                let _ = process.wait();
            };
            let _ = std::thread::Builder::new()
                .name("reap".to_owned())
                .spawn(reap);
        }
    }
}
