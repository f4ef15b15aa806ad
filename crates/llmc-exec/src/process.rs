//! A run that outlives the call that started it: a server, a watcher, a REPL.
//!
//! It is started and confined like any other run. A thread of its own follows it and keeps its last output, every byte
//! at its offset in the whole stream, so that a reader knows what was dropped. The thread ends with the
//! run; the run ends with its program, when it is stopped, when it is idle for too long, when this
//! handle is dropped, and with the server.

use std::fs::File;
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::Signal;
use rustix::termios::{LocalModes, tcgetattr};

use super::exit_status::ExitStatus;
use super::follow::{
    CANCEL_CHECK_INTERVAL, MAX_RUN_TIME, OUTPUT_DRAIN_TIMEOUT, RUN_END_TIMEOUT, Stream, broken,
    ended_because, failed,
};
use super::pids;
use super::plan::{Input, Report};
use super::protect::{Guard, SWEEP_INTERVAL, Watch};
use super::quarantine::Quarantined;
use super::ring::Ring;
use super::runner::{ExecRequest, Launched, Runner};
use super::tmp::OwnTmp;
use super::tree::{Event, Tree};
use crate::error::{Error, Result};
use llmc_host::{CancelToken, lock};

/// A pause after output that pushed out older output while no call reads it: such a flood must not take a processor.
const UNREAD_FLOOD_PAUSE: Duration = Duration::from_millis(2);
/// How long after the last look a process counts as unread.
const UNREAD_AFTER: Duration = Duration::from_secs(1);
/// The longest line that a terminal takes while it collects lines; the kernel silently drops the rest.
const TERMINAL_LINE: usize = 4095;
/// What ends the input of a terminal that collects lines.
const END_OF_INPUT: u8 = 4;

/// Takes what a process prints, as it is read, on the thread that reads it.
pub type OutputSink = Box<dyn FnMut(Stream, &[u8]) + Send>;

/// What a process reads from and writes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Io {
    /// No input; both outputs apart.
    NoInput,
    /// An input; both outputs apart.
    Separate,
    /// Through pipes; both outputs in one, in the order they were written.
    Pipes,
    /// Through a terminal, for programs that are different without one.
    Terminal,
}

/// How a process is kept.
#[derive(Debug, Clone, Copy)]
pub struct ProcessOptions {
    /// What connects it with the server.
    pub io: Io,
    /// It is ended after so long without output, input or a reader.
    pub idle: Duration,
    /// How many bytes of its output are kept.
    pub keep: usize,
}

/// A running program, or one that has ended and whose last output can still be read. Dropping it ends it.
#[derive(Debug)]
pub struct Process {
    pid: i32,
    helper: Option<i32>,
    io: Io,
    leash: UnixStream,
    input: Mutex<Option<File>>,
    shared: Arc<Shared>,
    follower: Option<JoinHandle<()>>,
}

/// How a process ended.
#[derive(Debug, Clone)]
pub struct ProcessEnd {
    pub status: ExitStatus,
    /// It was ended because it was idle.
    pub idle: bool,
    pub at: Instant,
    /// Protected names that it created or changed; they were moved away.
    pub quarantined: Vec<Quarantined>,
    /// What else a caller must know.
    pub notes: Vec<String>,
}

/// A look at the output.
#[derive(Debug)]
pub struct OutputSlice {
    pub bytes: Vec<u8>,
    /// The number of the first one in the whole stream. Later than asked for if older ones were dropped.
    pub offset: u64,
    /// The number that the next byte to come will have.
    pub end: u64,
    /// When the last output came.
    pub last: Instant,
    /// How it ended, if it has. Then no more output comes.
    pub ending: Option<ProcessEnd>,
}

/// How much input was written.
#[derive(Debug, Clone, Copy)]
pub struct SentInput {
    pub bytes: usize,
    /// Whether the process still takes input.
    pub open: bool,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    ring: Ring,
    /// When the last output came.
    last: Instant,
    /// When a call last read or wrote.
    touched: Instant,
    /// How the program ended, if processes that it has started go on.
    left_by: Option<ProcessEnd>,
    /// Whether a caller has been told so.
    left_is_told: bool,
    ending: Option<ProcessEnd>,
}

impl State {
    fn look(&self, from: u64, most: usize) -> OutputSlice {
        let (offset, bytes) = self.ring.read(from, most);
        OutputSlice {
            bytes,
            offset,
            end: self.ring.end(),
            last: self.last,
            ending: self.ending.clone(),
        }
    }
}

impl Runner {
    /// Starts a program and keeps it running. The time limit of `spec` bounds its life; its output has no limit.
    ///
    /// # Errors
    /// As [`Runner::run`]; or there are no terminals here.
    pub fn spawn(&self, spec: &ExecRequest<'_>, manner: ProcessOptions) -> Result<Process> {
        self.spawn_with_sink(spec, manner, None)
    }

    /// As [`Runner::spawn`]; `sink` gets every byte of output, beside the last bytes that the process itself keeps.
    ///
    /// # Errors
    /// As [`Runner::spawn`].
    pub fn spawn_with_sink(
        &self,
        spec: &ExecRequest<'_>,
        manner: ProcessOptions,
        sink: Option<OutputSink>,
    ) -> Result<Process> {
        let input = match manner.io {
            Io::NoInput => Input::Closed,
            Io::Separate => Input::Separate,
            Io::Pipes => Input::Pipe,
            Io::Terminal => Input::Terminal,
        };
        let wrong = |error| broken("starting the process", error);
        let Launched {
            program,
            mut tree,
            tmp,
            guard,
            watch,
        } = self.launch_with(spec, input)?;
        let started = tree.running().map_err(wrong).and_then(|started| {
            let pidfd = started.map_err(|failure| failed(&failure, &program.name))?;
            introduced(&tree, &pidfd).map_err(wrong)
        });
        let (pid, helper) = match started {
            Ok(started) => started,
            Err(error) => {
                drop(tree);
                guard.after(watch);
                return Err(error);
            }
        };
        let now = Instant::now();
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                ring: Ring::new(manner.keep),
                last: now,
                touched: now,
                left_by: None,
                left_is_told: false,
                ending: None,
            }),
            changed: Condvar::new(),
        });
        tree.wake_on(guard.changes());
        let leash = tree.leash().map_err(wrong)?;
        let input = Mutex::new(tree.take_input());
        let follower = Follower {
            deadline: now + spec.timeout.min(MAX_RUN_TIME),
            idle: manner.idle,
            tree,
            tmp,
            watch,
            guard,
            shared: shared.clone(),
            sink,
            notes: Vec::new(),
        };
        let follower = std::thread::Builder::new()
            .name("llmc-process".to_owned())
            .spawn(move || follower.run())
            .map_err(wrong)?;
        Ok(Process {
            pid,
            helper,
            io: manner.io,
            leash,
            input,
            shared,
            follower: Some(follower),
        })
    }
}

/// The host's numbers of a new process and of the helper above it.
fn introduced(tree: &Tree, pidfd: &OwnedFd) -> io::Result<(i32, Option<i32>)> {
    let pid = pids::of(pidfd)?;
    let helper = pids::parent(pid);
    tree.seen()?;
    Ok((pid, helper))
}

/// Reads the last output of a process, which a person may watch: that does not count as its use.
#[derive(Debug, Clone)]
pub struct OutputReader(Arc<Shared>);

impl OutputReader {
    /// Up to `most` bytes of output from the byte with number `from` on.
    pub fn look(&self, from: u64, most: usize) -> OutputSlice {
        self.0.lock().look(from, most)
    }
}

impl Process {
    /// A reader that outlives this handle.
    pub fn output_reader(&self) -> OutputReader {
        OutputReader(self.shared.clone())
    }

    /// The program's number on this host. It means nothing once the process has ended.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// The number of the helper above it, which everything that the program starts has among its ancestors.
    pub fn helper(&self) -> Option<i32> {
        self.helper
    }

    /// What connects it with the server.
    pub fn io(&self) -> Io {
        self.io
    }

    /// How it ended, if it has.
    pub fn ending(&self) -> Option<ProcessEnd> {
        self.shared.lock().ending.clone()
    }

    /// How the program ended, if processes that it has started go on without it.
    pub fn left_by(&self) -> Option<ProcessEnd> {
        self.shared.lock().left_by.clone()
    }

    /// Up to `most` bytes of output from the byte with number `from` on, without waiting.
    pub fn look(&self, from: u64, most: usize) -> OutputSlice {
        let mut state = self.shared.lock();
        state.touched = Instant::now();
        state.look(from, most)
    }

    /// Waits for output beyond `end`, or for the end of the process.
    pub fn wait(&self, end: u64, timeout: Duration) {
        let mut state = self.shared.lock();
        state.touched = Instant::now();
        let was_left = state.left_by.is_some();
        let idle = |state: &mut State| {
            let is_as_before = state.ending.is_none() && state.left_by.is_some() == was_left;
            state.ring.end() <= end && is_as_before
        };
        drop(self.shared.changed.wait_timeout_while(state, timeout, idle));
    }

    /// Writes to its input, as far as it reads within `timeout`.
    ///
    /// # Errors
    /// [`Error::BadRequest`] for a line that its terminal would cut.
    pub fn send(&self, bytes: &[u8], timeout: Duration, stop: &CancelToken) -> Result<SentInput> {
        let deadline = Instant::now() + timeout;
        let mut input = lock(&self.input);
        let mut sent = SentInput {
            bytes: 0,
            open: true,
        };
        let Some(file) = input.as_mut() else {
            sent.open = false;
            return Ok(sent);
        };
        if self.io == Io::Terminal {
            check_lines(file, bytes)?;
        }
        while sent.bytes < bytes.len() {
            {
                let mut state = self.shared.lock();
                state.touched = Instant::now();
                sent.open = state.ending.is_none();
            }
            if !sent.open {
                break;
            }
            match file.write(&bytes[sent.bytes..]) {
                Ok(written) => sent.bytes += written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() || stop.is_cancelled() {
                        break;
                    }
                    wait_for_room(file, left.min(CANCEL_CHECK_INTERVAL));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::PIPE | Errno::IO) => sent.open = false,
                    _ => return Err(broken("writing to the process", error)),
                },
            }
        }
        Ok(sent)
    }

    /// Tells it that no more input comes. A terminal collects lines again afterwards.
    ///
    /// # Errors
    /// As [`Process::send`].
    pub fn close_input(&self, timeout: Duration, stop: &CancelToken) -> Result<SentInput> {
        if self.io == Io::Terminal {
            return self.send(&[END_OF_INPUT], timeout, stop);
        }
        let mut input = lock(&self.input);
        // Asked before: one that waited for this may be gone right after.
        let alive = self.ending().is_none();
        let open = input.take().is_some() && alive;
        Ok(SentInput { bytes: 0, open })
    }

    /// Sends signals to the program, then waits until it and everything below it has ended; after `grace` it is killed.
    ///
    /// `None` if something is stuck in the kernel.
    pub fn stop(&self, signals: &[i32], grace: Duration) -> Option<ProcessEnd> {
        let kill = signals.contains(&Signal::KILL.as_raw());
        if !kill {
            let deadline = Instant::now() + grace;
            self.signal(signals);
            self.wait_command(grace);
            if self.ending().is_none() && self.left_by().is_some() {
                // From now on they reach what the program has left running.
                self.signal(signals);
            }
            self.wait_end(deadline.saturating_duration_since(Instant::now()));
        }
        self.end();
        self.wait_end(RUN_END_TIMEOUT + OUTPUT_DRAIN_TIMEOUT)
    }

    fn signal(&self, signals: &[i32]) {
        let signals = signals.iter();
        for signal in signals.filter_map(|signal| u8::try_from(*signal).ok()) {
            // An error means that the helper has ended already.
            let _ = (&self.leash).write_all(&[signal]);
        }
    }

    /// Ends it without waiting.
    pub fn end(&self) {
        let _ = self.leash.shutdown(Shutdown::Write);
    }

    pub fn wait_end(&self, timeout: Duration) -> Option<ProcessEnd> {
        self.shared.lock().touched = Instant::now();
        self.watch_end(timeout)
    }

    /// As [`Process::wait_end`], but until the first caller learns that the program has ended, what it has started may go on:
    /// that end is returned once, however early it came. Later callers wait for what is left.
    pub fn wait_untold(&self, timeout: Duration) -> Option<ProcessEnd> {
        if self.shared.lock().left_is_told {
            return self.wait_end(timeout);
        }
        let end = self.wait_command(timeout)?;
        let mut state = self.shared.lock();
        state.left_is_told = true;
        Some(state.ending.clone().unwrap_or(end))
    }

    /// As [`Process::wait_end`], but waits for the program alone: what it has started may go on.
    pub fn wait_command(&self, timeout: Duration) -> Option<ProcessEnd> {
        let mut state = self.shared.lock();
        state.touched = Instant::now();
        let runs = |state: &mut State| state.ending.is_none() && state.left_by.is_none();
        let waited = self.shared.changed.wait_timeout_while(state, timeout, runs);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.ending.clone().or_else(|| state.left_by.clone())
    }

    /// The same for an observer: the process counts as idle meanwhile.
    pub fn watch_end(&self, timeout: Duration) -> Option<ProcessEnd> {
        let state = self.shared.lock();
        let runs = |state: &mut State| state.ending.is_none();
        let waited = self.shared.changed.wait_timeout_while(state, timeout, runs);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.ending.clone()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
        if let Some(follower) = self.follower.take() {
            let _ = follower.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// The thread that follows one process.
struct Follower {
    tree: Tree,
    tmp: Option<OwnTmp>,
    watch: Watch,
    guard: Arc<Guard>,
    shared: Arc<Shared>,
    deadline: Instant,
    idle: Duration,
    sink: Option<OutputSink>,
    notes: Vec<String>,
}

impl Follower {
    fn run(mut self) {
        let (report, idle) = self.follow();
        // Reaps the helper: no process of the run is left that could race with the check of protected names.
        drop(self.tree);
        drop(self.tmp);
        drop(self.sink);
        let undone = self.guard.after(self.watch);
        // Without a report the helper was dropped, and the kernel killed what was below it.
        let status = report.as_ref().and_then(exit_status);
        let status = status.unwrap_or(ExitStatus::Signaled(Signal::KILL.as_raw()));
        let status = undone.status(status);
        let notes = self.notes.into_iter().chain(undone.notes).collect();
        let quarantined = undone.quarantined;
        let mut state = self.shared.lock();
        state.ring.settle();
        state.ending = Some(ProcessEnd {
            status,
            idle,
            at: Instant::now(),
            quarantined,
            notes,
        });
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Collects output until the run has ended. Returns how the program ended, and whether for idleness.
    fn follow(&mut self) -> (Option<Report>, bool) {
        let mut report = None;
        let mut gone: Option<Instant> = None;
        let mut ended: Option<Instant> = None;
        let mut idle = false;
        let mut next_sweep = Instant::now() + SWEEP_INTERVAL;
        loop {
            let now = Instant::now();
            let late = |deadline: Option<Instant>| deadline.is_some_and(|deadline| now >= deadline);
            if late(gone) || late(ended) || (gone.is_some() && self.tree.silent()) {
                return (report, idle);
            }
            let timeout = match gone.or(ended) {
                Some(deadline) => deadline - now,
                None => {
                    let bored = self.bored_at();
                    if now >= bored || now >= self.deadline {
                        idle = now >= bored;
                        self.tree.end();
                        ended = Some(now + RUN_END_TIMEOUT);
                        continue;
                    }
                    if now >= next_sweep || self.tree.take_wake() {
                        if let Some(reason) = self.guard.while_running(&mut self.watch) {
                            self.notes.push(ended_because(&reason));
                            self.tree.end();
                            ended = Some(now + RUN_END_TIMEOUT);
                        }
                        next_sweep = Instant::now() + SWEEP_INTERVAL;
                        continue;
                    }
                    bored.min(self.deadline).min(next_sweep) - now
                }
            };
            match self.tree.next(timeout) {
                Ok(Event::Output(stream, read)) => self.keep(stream, read),
                Ok(Event::Report(Report::Exceeded(bound))) => {
                    self.notes.push(ended_because(&bound));
                }
                Ok(Event::Report(Report::Left)) => {
                    let undone = self.guard.after_command(&mut self.watch);
                    let end = report
                        .as_ref()
                        .and_then(exit_status)
                        .map(|status| ProcessEnd {
                            status: undone.status(status),
                            idle: false,
                            at: Instant::now(),
                            quarantined: undone.quarantined,
                            notes: undone.notes,
                        });
                    self.shared.lock().left_by = end;
                    self.shared.changed.notify_all();
                }
                Ok(Event::Report(said)) => report = Some(said),
                Ok(Event::Gone) => gone = Some(Instant::now() + OUTPUT_DRAIN_TIMEOUT),
                Ok(Event::Nothing) => {}
                Err(_) => return (report, idle),
            }
        }
    }

    /// When the process will have been idle for too long, as it looks now. What a program has left running may be silent.
    fn bored_at(&self) -> Instant {
        let state = self.shared.lock();
        let idle = match state.left_by {
            Some(_) => MAX_RUN_TIME,
            None => self.idle.min(MAX_RUN_TIME),
        };
        state.last.max(state.touched) + idle
    }

    fn keep(&mut self, stream: Stream, read: usize) {
        if read == 0 {
            return;
        }
        if let Some(sink) = &mut self.sink {
            sink(stream, &self.tree.block()[..read]);
        }
        let mut state = self.shared.lock();
        state.last = Instant::now();
        let flood =
            state.ring.push(&self.tree.block()[..read]) && state.touched.elapsed() > UNREAD_AFTER;
        drop(state);
        self.shared.changed.notify_all();
        if flood {
            std::thread::sleep(UNREAD_FLOOD_PAUSE);
        }
    }
}

pub(super) fn wait_for_room(file: &File, timeout: Duration) {
    let Ok(timeout) = Timespec::try_from(timeout) else {
        return;
    };
    let mut watched = [PollFd::from_borrowed_fd(file.as_fd(), PollFlags::OUT)];
    let _ = poll(&mut watched, Some(&timeout));
}

fn exit_status(report: &Report) -> Option<ExitStatus> {
    match report {
        Report::Exited(code) => Some(ExitStatus::Exited(*code)),
        Report::Killed(signal) => Some(ExitStatus::Signaled(*signal)),
        _ => None,
    }
}

/// Refuses a line that would be cut on its way, while the program lets the terminal collect lines.
fn check_lines(terminal: &File, bytes: &[u8]) -> Result<()> {
    let collects =
        tcgetattr(terminal).is_ok_and(|modes| modes.local_modes.contains(LocalModes::ICANON));
    let ends = |byte: &u8| matches!(*byte, b'\n' | b'\r' | END_OF_INPUT);
    let longest = bytes.split(ends).map(<[u8]>::len).max().unwrap_or(0);
    if collects && longest > TERMINAL_LINE {
        return Err(Error::BadRequest(format!(
            "a terminal takes lines of at most {TERMINAL_LINE} bytes, not {longest}; send shorter lines, or start the program without pty"
        )));
    }
    Ok(())
}
