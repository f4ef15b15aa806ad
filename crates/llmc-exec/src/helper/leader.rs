//! The process whose Landlock rules hold for runs of a session.
//!
//! Processes under sibling sets of rules can neither signal nor look at each other, and a restricted process cannot mount. So
//! one process per session and set of rules restricts itself, and the runs are started by it and enter mounts that were made
//! outside. It keeps its capabilities, which entering mounts takes; each run drops them before it starts a program.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{WaitOptions, wait};

use super::broker::spawn;
use super::landlock::{self, Bounds};
use super::outer::leash;
use super::reaper::ChildSignals;
use crate::fds;
use crate::level::Feature;
use crate::plan::{self, Failure, MEMBER, Report, SessionRules, Start};

/// Starts the first process of a run whenever the session asks for one, until it goes.
pub(super) fn run() -> io::Result<()> {
    let session = leash()?;
    let _ = rustix::process::setsid();
    super::hide()?;
    let Start { features, stage } = plan::receive(&session)?;
    let rules: SessionRules = plan::receive(&session)?;
    if let (true, Some(stage)) = (features.landlock, &stage) {
        let restricted = landlock::restrict(Bounds::of_session(&rules, stage));
        if let Err(error) = restricted {
            let failure = Failure::new(Some(Feature::Landlock), "landlock", error);
            return plan::send(&session, &Report::Failed(failure));
        }
    }
    let signals = match ChildSignals::new() {
        Ok(signals) => signals,
        Err(failure) => return plan::send(&session, &Report::Failed(failure)),
    };
    plan::send(&session, &Report::Session)?;
    loop {
        let mut watched = [
            PollFd::new(&session, PollFlags::IN),
            PollFd::new(&signals.0, PollFlags::IN),
        ];
        match poll(&mut watched, None) {
            Err(Errno::INTR) => continue,
            other => other?,
        };
        let is_asked = !watched[0].revents().is_empty();
        signals.clear();
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
        if !is_asked {
            continue;
        }
        if { &session }.read(&mut [0])? == 0 {
            return Ok(());
        }
        let made = UnixStream::pair().and_then(|(ours, theirs)| {
            spawn(MEMBER, &theirs)?;
            Ok(ours)
        });
        match made {
            Ok(slot) => {
                plan::send(&session, &Report::Slot)?;
                fds::send(&session, &[slot.as_fd()])?;
            }
            Err(error) => {
                let failure = Failure::new(None, "starting a helper", error);
                plan::send(&session, &Report::Failed(failure))?;
            }
        }
    }
}
