//! The server's hold on an outer helper, up to the point where it is of use.

use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::level::{Feature, Features};
use super::plan::{self, Failure, OUTER, Report, Start};

/// How long a helper may take to answer or to take a message.
const HELPER_ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// An outer helper in its user namespace, if it was to have one.
#[derive(Debug)]
pub(super) struct Outer {
    pub(super) process: Child,
    pub(super) leash: UnixStream,
}

impl Outer {
    /// Starts one in `cwd`, given as a descriptor.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is how llmc-exec starts programs"
    )]
    pub(super) fn start(
        helper: &Path,
        cwd: &OwnedFd,
        features: Features,
        out: Stdio,
        err: Stdio,
    ) -> io::Result<Result<Outer, Failure>> {
        let (leash, theirs) = UnixStream::pair()?;
        leash.set_write_timeout(Some(HELPER_ANSWER_TIMEOUT))?;
        leash.set_read_timeout(Some(HELPER_ANSWER_TIMEOUT))?;
        let process = Command::new(helper)
            .arg0("llmc")
            .arg(OUTER)
            .env_clear()
            // Resolved in the child, where the descriptor is still open: no path, so nothing to exchange.
            .current_dir(format!("/proc/self/fd/{}", cwd.as_raw_fd()))
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(out)
            .stderr(err)
            .spawn()?;
        let mut outer = Outer { process, leash };
        let greeted = outer.greet(features);
        if !matches!(greeted, Ok(Ok(()))) {
            let _ = outer.process.kill();
            let _ = outer.process.wait();
        }
        Ok(greeted?.map(|()| outer))
    }

    fn greet(&self, features: Features) -> io::Result<Result<(), Failure>> {
        let start = Start {
            features,
            stage: None,
        };
        plan::send(&self.leash, &start)?;
        if !(features.user && features.full_map) {
            return Ok(Ok(()));
        }
        match plan::receive(&self.leash)? {
            Report::Unmapped => {}
            Report::Failed(failure) => return Ok(Err(failure)),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
        match self.map_ids() {
            Ok(()) => (&self.leash).write_all(b"m").map(Ok),
            Err(error) => Ok(Err(Failure::new(
                Some(Feature::FullMap),
                "mapping all ids",
                error,
            ))),
        }
    }

    /// Gives the helper's user namespace every id that this process knows itself.
    fn map_ids(&self) -> io::Result<()> {
        let helper = Path::new("/proc").join(self.process.id().to_string());
        for name in ["uid_map", "gid_map"] {
            #[expect(
                clippy::disallowed_methods,
                reason = "a file of the kernel, not of the agent"
            )]
            let own = std::fs::read_to_string(Path::new("/proc/self").join(name))?;
            let mut map = String::new();
            for line in own.lines() {
                let mut numbers = line.split_ascii_whitespace();
                if let (Some(first), Some(count)) = (numbers.next(), numbers.nth(1)) {
                    map.push_str(&format!("{first} {first} {count}\n"));
                }
            }
            std::fs::write(helper.join(name), map)?;
        }
        Ok(())
    }
}
