//! The server's hold on the broker, which has namespaces ready for runs.

use std::io::{self, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};

use super::fds;
use super::level::Features;
use super::outer::Outer;
use super::plan::{self, Failure, LayerStore, Report, Stage, Start, WANTS_RUN, WANTS_SESSION};

/// How long the broker may take to end after its socket is closed.
const BROKER_END_TIMEOUT: Duration = Duration::from_secs(6);

/// A broker that serves. Dropping it ends every run it has made.
#[derive(Debug)]
pub(super) struct Broker {
    helper: Child,
    socket: UnixStream,
    /// Slots that were asked for and not yet taken.
    asked: usize,
    /// Of each layer that was asked for, where it is kept.
    layers: Vec<Option<LayerStore>>,
}

impl Broker {
    pub(super) fn start(
        helper: &Path,
        features: Features,
        stage: Option<Stage>,
    ) -> io::Result<Result<Broker, Failure>> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let cwd = rustix::fs::open("/", flags, Mode::empty())?;
        let outer = Outer::start(helper, &cwd, features, Stdio::null(), Stdio::null())?;
        let outer = match outer {
            Ok(outer) => outer,
            Err(failure) => return Ok(Err(failure)),
        };
        let mut broker = Broker {
            helper: outer.process,
            socket: outer.leash,
            asked: 0,
            layers: Vec::new(),
        };
        plan::forgive_gone(plan::send(&broker.socket, &Start { features, stage }))?;
        match plan::receive(&broker.socket)? {
            Report::Started { layers } => {
                broker.layers = layers;
                Ok(Ok(broker))
            }
            Report::Failed(failure) => Ok(Err(failure)),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Of each layer that was asked for, where it is kept; `None` if it could not be made.
    pub(super) fn layers(&self) -> &[Option<LayerStore>] {
        &self.layers
    }

    /// Asks for a slot without waiting for it.
    pub(super) fn ask(&mut self) -> io::Result<()> {
        self.socket.write_all(&[WANTS_RUN])?;
        self.asked += 1;
        Ok(())
    }

    /// A new run's first process, waiting for its plan. All slots are alike, so a run may take one that another run asked for.
    pub(super) fn slot(&mut self) -> io::Result<Result<UnixStream, Failure>> {
        if self.asked == 0 {
            self.ask()?;
        }
        self.asked -= 1;
        self.receive_slot()
    }

    /// The first process of a new session.
    pub(super) fn session(&mut self) -> io::Result<Result<UnixStream, Failure>> {
        // Answers come in the order of the requests.
        while self.asked > 0 {
            let _ = self.slot()?;
        }
        self.socket.write_all(&[WANTS_SESSION])?;
        self.receive_slot()
    }

    fn receive_slot(&mut self) -> io::Result<Result<UnixStream, Failure>> {
        match plan::receive(&self.socket)? {
            Report::Slot => {}
            Report::Failed(failure) => return Ok(Err(failure)),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
        match fds::receive(&self.socket)?.pop() {
            Some(slot) => Ok(Ok(UnixStream::from(slot))),
            None => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.socket.shutdown(Shutdown::Both);
        let deadline = Instant::now() + BROKER_END_TIMEOUT;
        while matches!(self.helper.try_wait(), Ok(None)) {
            if Instant::now() >= deadline {
                let _ = self.helper.kill();
                let _ = self.helper.wait();
                return;
            }
            std::thread::sleep(Duration::from_micros(300));
        }
    }
}
