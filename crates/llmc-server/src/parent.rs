//! Notices when the process that started the server exits.
//!
//! A client that is killed may leave our stdin open in some other process, so end of input alone is not
//! enough. `PR_SET_PDEATHSIG` would follow the parent's *thread*, which a client may well end while it lives
//! on; a pidfd follows the process. A thread waits on it, since tokio takes foreign descriptors only through
//! `unsafe`.

use std::{io, os::fd::OwnedFd, thread};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::{Errno, retry_on_intr},
    process::{Pid, PidfdFlags, getppid, pidfd_open},
};
use tokio_util::sync::CancellationToken;

/// The watching thread does nothing but wait.
const STACK_BYTES: usize = 64 * 1024;

/// Watches the process that was the parent when the watch was made.
#[derive(Debug, Clone)]
pub struct ParentWatch {
    gone: CancellationToken,
}

impl ParentWatch {
    /// Watches the current parent; to be called first at start.
    ///
    /// A parent with PID 1 is taken as it comes: inside a container it is the client itself, elsewhere it is
    /// init, which outlives us. A parent outside our PID namespace cannot be watched, and then end of input
    /// must do.
    #[must_use]
    pub fn watch() -> Self {
        match getppid() {
            Some(pid) => Self::watch_process(pid, || getppid() == Some(pid)),
            None => Self::unknown(),
        }
    }

    fn unknown() -> Self {
        Self {
            gone: CancellationToken::new(),
        }
    }

    /// `is_current` is asked once the descriptor is open: by then the number may belong to another process.
    fn watch_process(pid: Pid, is_current: impl FnOnce() -> bool) -> Self {
        let parent = Self::unknown();
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(descriptor) if is_current() => {
                if let Err(error) = parent.wait_in_thread(descriptor) {
                    tracing::warn!(%error, "parent cannot be watched");
                }
            }
            Ok(_) | Err(Errno::SRCH) => parent.gone.cancel(),
            Err(error) => tracing::warn!(%error, "parent cannot be watched"),
        }
        parent
    }

    fn wait_in_thread(&self, descriptor: OwnedFd) -> io::Result<()> {
        let gone = self.gone.clone();
        thread::Builder::new()
            .name("parent".into())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                let mut waits = [PollFd::new(&descriptor, PollFlags::IN)];
                match retry_on_intr(|| poll(&mut waits, None)) {
                    Ok(_) => gone.cancel(),
                    Err(error) => tracing::warn!(%error, "parent is no longer watched"),
                }
            })?;
        Ok(())
    }

    /// Ends when the parent has exited; never, if that cannot be known.
    pub async fn exited(&self) {
        self.gone.cancelled().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pid(child: &tokio::process::Child) -> Pid {
        Pid::from_raw(child.id().unwrap().try_into().unwrap()).unwrap()
    }

    fn sleeper() -> tokio::process::Child {
        tokio::process::Command::new("sleep")
            .arg("600")
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    }

    #[tokio::test]
    async fn the_end_of_the_parent_is_reported() {
        let mut child = sleeper();
        let parent = ParentWatch::watch_process(pid(&child), || true);
        assert!(!parent.gone.is_cancelled());
        child.kill().await.unwrap();
        parent.exited().await;
    }

    #[tokio::test]
    async fn a_parent_that_exited_before_the_watch_is_reported() {
        let mut child = sleeper();
        let dead = pid(&child);
        child.kill().await.unwrap();
        ParentWatch::watch_process(dead, || true).exited().await;

        let reused = sleeper();
        ParentWatch::watch_process(pid(&reused), || false)
            .exited()
            .await;
    }

    #[tokio::test]
    async fn our_own_parent_is_alive() {
        assert!(!ParentWatch::watch().gone.is_cancelled());
    }
}
