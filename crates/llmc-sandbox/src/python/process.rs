//! One Python process: started ahead or for a script, kept for a session, ended when this is dropped.

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

use llmc_exec::{RunLeash, RunPipes, RunReport};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde_json::Value;
use tokio::net::unix::pipe;
use tokio::sync::oneshot;

use super::frames::{self, Frame, FrameBuffer, HelloFrame};
use super::interpreter::Interpreter;
use crate::host::CommandSession;

/// How long an interpreter may take to start.
pub(super) const START_TIMEOUT: Duration = Duration::from_secs(20);
/// No process lives longer; the clock of each script ends it far earlier.
const MAX_LIFE: Duration = Duration::from_secs(7 * 24 * 3600);
/// How long the end of a process is waited for once its output has ended.
const END_TIMEOUT: Duration = Duration::from_secs(2);
/// How much is read at a time: the size of a pipe.
const READ_BLOCK_BYTES: usize = 64 << 10;
/// More than an interpreter says before its first script.
const MAX_HELLO_BYTES: usize = 64 << 10;

/// A running interpreter.
#[derive(Debug)]
pub(super) struct PythonProcess {
    connection: Connection,
    /// What it has said and what is not read yet.
    pub(super) inbox: FrameBuffer,
    /// Whether it has said that it is ready.
    pub(super) is_ready: bool,
    /// Messages to it; bytes before `sent` are written.
    outbox: Vec<u8>,
    sent: usize,
    ended: oneshot::Receiver<llmc_exec::Result<RunReport>>,
}

/// The way to a process.
#[derive(Debug)]
enum Connection {
    Starting(oneshot::Receiver<RunPipes>),
    /// It runs; its pipes are not used by a runtime yet.
    Started(RunPipes),
    Open {
        input: pipe::Sender,
        output: pipe::Receiver,
        block: Box<[u8]>,
        _leash: RunLeash,
    },
    /// It has ended, or is being ended.
    Closed,
}

impl PythonProcess {
    /// Starts one, in the session of commands that the caller's is; whether that works is found out later.
    pub(super) fn start(
        interpreter: &Arc<Interpreter>,
        session: Option<&CommandSession>,
    ) -> PythonProcess {
        let (connect, pipes) = oneshot::channel();
        let (report, ended) = oneshot::channel();
        let interpreter = interpreter.clone();
        let session = session.cloned();
        let live = move || {
            let place = session.map_or(Ok(None), |session| (session.place)());
            let finished = place.and_then(|place| {
                interpreter.run(MAX_LIFE, place, |pipes| {
                    // Pipes that are not wanted any more end the run here.
                    let _ = connect.send(pipes);
                })
            });
            let _ = report.send(finished);
        };
        let spawned = std::thread::Builder::new()
            .name("llmc-python".to_owned())
            .spawn(live);
        if let Err(error) = spawned {
            tracing::warn!(%error, "no thread for a script");
        }
        PythonProcess {
            connection: Connection::Starting(pipes),
            inbox: FrameBuffer::default(),
            is_ready: false,
            outbox: Vec::new(),
            sent: 0,
            ended,
        }
    }

    /// Waits until it is ready, without a runtime; also its version.
    pub(super) fn wait_for_hello(mut self) -> Result<(PythonProcess, (u32, u32, u32)), String> {
        const NO_PYTHON: &str = "it does not start as Python 3.8 or newer";
        let deadline = Instant::now() + START_TIMEOUT;
        let mut pipes = match self.connection {
            Connection::Starting(pipes) => match (pipes.blocking_recv(), self.ended) {
                (Ok(pipes), ended) => {
                    self.ended = ended;
                    pipes
                }
                (Err(_), ended) => {
                    return Err(match ended.blocking_recv() {
                        Ok(Err(error)) => error.to_string(),
                        _ => NO_PYTHON.to_owned(),
                    });
                }
            },
            _ => return Err(NO_PYTHON.to_owned()),
        };
        let mut block = [0; 4096];
        let mut received = 0;
        while received < MAX_HELLO_BYTES {
            let read = read_until(&mut pipes.output, &mut block, deadline);
            let read = read.map_err(|error| error.to_string())?;
            if read == 0 {
                break;
            }
            received += read;
            self.inbox.add(&block[..read]);
            match self.inbox.next() {
                Ok(None) => {}
                Ok(Some(Frame::Hello(HelloFrame { version }))) => {
                    self.is_ready = true;
                    self.connection = Connection::Started(pipes);
                    return Ok((self, version));
                }
                _ => break,
            }
        }
        Err(NO_PYTHON.to_owned())
    }

    /// Sends a message, now or as soon as it is read.
    pub(super) fn say(&mut self, message: &mut Value, contents: &[Vec<u8>]) {
        frames::pack_with(&mut self.outbox, message, contents);
        // That it has ended shows in its output.
        let _ = self.send();
    }

    /// Whether it has not been sent everything.
    pub(super) fn has_unsent(&self) -> bool {
        self.sent < self.outbox.len()
    }

    /// Moves bytes: reads what there is if `may_read`, and writes what can be written. `None` when its output has ended.
    ///
    /// Waits for either; loses nothing when it is dropped.
    pub(super) async fn advance(&mut self, may_read: bool) -> Option<()> {
        self.connect().await?;
        loop {
            let has_unsent = self.has_unsent();
            let Connection::Open {
                input,
                output,
                block,
                ..
            } = &mut self.connection
            else {
                return None;
            };
            tokio::select! {
                ready = output.readable(), if may_read => match ready.and_then(|()| output.try_read(block)) {
                    Ok(0) => return None,
                    Ok(read) => {
                        self.inbox.add(&block[..read]);
                        return Some(());
                    }
                    Err(error) if is_passing(&error) => {}
                    Err(_) => return None,
                },
                ready = input.writable(), if has_unsent => {
                    if ready.is_err() || self.send().is_err() {
                        self.forget_unsent();
                    }
                    if !may_read {
                        return Some(());
                    }
                }
                else => std::future::pending().await,
            }
        }
    }

    /// Waits for the pipes of a process that starts, and gives them to the runtime.
    async fn connect(&mut self) -> Option<()> {
        let pipes = match &mut self.connection {
            Connection::Open { .. } => return Some(()),
            Connection::Closed => return None,
            Connection::Starting(pipes) => pipes.await.ok(),
            Connection::Started(_) => None,
        };
        let before = std::mem::replace(&mut self.connection, Connection::Closed);
        let pipes = match (pipes, before) {
            (Some(pipes), _) | (None, Connection::Started(pipes)) => pipes,
            _ => return None,
        };
        let RunPipes {
            input,
            output,
            leash,
        } = pipes;
        let opened = pipe::Sender::from_file(input)
            .and_then(|input| Ok((input, pipe::Receiver::from_file(output)?)));
        match opened {
            Ok((input, output)) => {
                self.connection = Connection::Open {
                    input,
                    output,
                    block: vec![0; READ_BLOCK_BYTES].into_boxed_slice(),
                    _leash: leash,
                };
                Some(())
            }
            Err(error) => {
                tracing::warn!(%error, "no pipes to a script");
                None
            }
        }
    }

    /// Writes what can be written now.
    fn send(&mut self) -> io::Result<()> {
        let Connection::Open { input, .. } = &self.connection else {
            return Ok(());
        };
        while self.sent < self.outbox.len() {
            match input.try_write(&self.outbox[self.sent..]) {
                Ok(written) => self.sent += written,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        self.forget_unsent();
        Ok(())
    }

    fn forget_unsent(&mut self) {
        self.sent = 0;
        // What a large message took is not held for the small ones after it.
        if self.outbox.capacity() > READ_BLOCK_BYTES {
            self.outbox = Vec::new();
        }
        self.outbox.clear();
    }

    /// Whether it runs, as far as is known.
    pub(super) fn is_running(&mut self) -> bool {
        matches!(
            self.ended.try_recv(),
            Err(oneshot::error::TryRecvError::Empty)
        )
    }

    /// How it ended, after its output has; one that has only closed its output is ended. `None` if that is not known.
    pub(super) async fn end(&mut self) -> Option<llmc_exec::Result<RunReport>> {
        if let Ok(ended) = tokio::time::timeout(END_TIMEOUT, &mut self.ended).await {
            return ended.ok();
        }
        self.connection = Connection::Closed;
        let ended = tokio::time::timeout(START_TIMEOUT, &mut self.ended).await;
        ended.ok()?.ok()
    }
}

/// Reads what comes before the deadline.
fn read_until(from: &mut File, block: &mut [u8], deadline: Instant) -> io::Result<usize> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&*from, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => return from.read(block),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether an error says only that there is nothing to read or to write just now.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}
