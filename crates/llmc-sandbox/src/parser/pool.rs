//! Parser processes: started when needed, a few at most, ended when idle.
//!
//! Callers block: they are threads of an index update or of a tool call. A parser inherits the priority of the thread that
//! starts it and serves threads of that priority only, so that a background update never slows down a question.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use llmc_exec::{Worker, WorkerEnd};
use llmc_syntax::{ParseFailure, ParseReply, ParseRequest};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{PARSER_ARGUMENT, frames};
use crate::timed_socket::TimedSocket;

/// Sources that one parser reads before it is replaced, which bounds anything that accumulates in it.
const MAX_PARSER_USES: u32 = 5_000;
/// A parser keeps the memory that a source of this size took, so it is replaced afterwards.
const LARGE_SOURCE_BYTES: usize = 512 << 10;
const START_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
pub struct ParserOptions {
    /// The hidden argument by which the executable knows that it is a parser.
    pub argument: &'static str,
    /// Processes at the same time; further sources wait.
    pub workers: usize,
    /// Memory of one process. A syntax tree takes about eighty times its source.
    pub memory_bytes: u64,
    /// An idle process ends after this time.
    pub idle_timeout: Duration,
}

impl Default for ParserOptions {
    fn default() -> ParserOptions {
        let cores = std::thread::available_parallelism().map_or(2, |cores| cores.get().min(8));
        ParserOptions {
            argument: PARSER_ARGUMENT,
            // One for each thread of an index update, and some for questions.
            workers: cores + 2,
            memory_bytes: 768 << 20,
            idle_timeout: Duration::from_secs(20),
        }
    }
}

/// What confines parsers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParserConfinement {
    /// The kernel refuses them everything but computing.
    Confined,
    /// They are processes of their own, and this is why the kernel does not confine them.
    ProcessOnly(String),
    /// No process can be started, so nothing is parsed.
    Unavailable(String),
}

impl ParserConfinement {
    /// What is missing, in one sentence; `None` if nothing is.
    pub fn weakness(&self) -> Option<String> {
        match self {
            Self::Confined => None,
            Self::ProcessOnly(why) => Some(format!(
                "source files are parsed in a process of their own that the kernel does not confine: {why}"
            )),
            Self::Unavailable(why) => Some(format!(
                "source files are not parsed, since no parser can be started: {why}"
            )),
        }
    }
}

/// Parses sources in worker processes.
#[derive(Debug)]
pub struct ParserPool {
    options: ParserOptions,
    state: Mutex<PoolState>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct PoolState {
    idle: Vec<IdleParser>,
    /// All processes, idle ones included.
    live: usize,
    reaper_runs: bool,
    confinement: Option<ParserConfinement>,
}

#[derive(Debug)]
struct IdleParser {
    parser: ParserProcess,
    since: Instant,
}

#[derive(Debug)]
struct ParserProcess {
    process: Worker,
    socket: UnixStream,
    nice: i32,
    uses: u32,
}

impl ParserPool {
    /// Starts nothing yet.
    pub fn new(options: ParserOptions) -> Arc<ParserPool> {
        Arc::new(ParserPool {
            options,
            state: Mutex::default(),
            freed: Condvar::new(),
        })
    }

    /// Parses a source in a worker. The time until the deadline is for parsing: what it takes to start a worker is
    /// added, so that a busy machine finds the same.
    ///
    /// # Errors
    /// [`ParseFailure::Crashed`] if the worker ends, hangs or answers nonsense; it is then replaced.
    pub fn parse(
        self: &Arc<ParserPool>,
        request: &ParseRequest<'_>,
        deadline: Instant,
    ) -> Result<ParseReply, ParseFailure> {
        let called = Instant::now();
        let mut parser = self.take(deadline)?;
        let waited = called.elapsed();
        match parser.exchange(request, deadline + waited) {
            Ok(mut reply) => {
                reply.waited = waited;
                if request.source.len() >= LARGE_SOURCE_BYTES || parser.uses >= MAX_PARSER_USES {
                    self.discard(parser);
                } else {
                    self.put_back(parser);
                }
                Ok(reply)
            }
            Err(error) => {
                let end = parser.kill();
                self.one_less();
                tracing::warn!(%error, ?end, language = ?request.language, bytes = request.source.len(),
                    "a parser failed over a source");
                Err(ParseFailure::Crashed)
            }
        }
    }

    /// What confines the parsers, as the last one that was started found.
    pub fn confinement(&self) -> Option<ParserConfinement> {
        self.state().confinement.clone()
    }

    /// The same; starts a parser if there is none.
    pub fn check(self: &Arc<ParserPool>) -> ParserConfinement {
        if let Ok(parser) = self.take(Instant::now() + START_TIMEOUT) {
            self.put_back(parser);
        }
        let none = || ParserConfinement::Unavailable("all parsers are busy".to_owned());
        self.confinement().unwrap_or_else(none)
    }

    /// The processes that are idle.
    pub fn idle_ids(&self) -> Vec<u32> {
        let state = self.state();
        let ids = state.idle.iter().map(|idle| idle.parser.process.id());
        ids.flatten().collect()
    }

    fn take(&self, deadline: Instant) -> Result<ParserProcess, ParseFailure> {
        // Of this thread; a process that it starts has the same.
        let nice = rustix::process::getpriority_process(None).unwrap_or(0);
        let mut state = self.state();
        let replaced = loop {
            let own = |idle: &IdleParser| idle.parser.nice == nice;
            if let Some(at) = state.idle.iter().rposition(own) {
                let mut parser = state.idle.swap_remove(at).parser;
                if parser.is_alive() {
                    parser.uses += 1;
                    return Ok(parser);
                }
                state.live -= 1;
                continue;
            }
            if state.live < self.options.workers {
                state.live += 1;
                break None;
            }
            // One of another priority makes room.
            if let Some(other) = state.idle.pop() {
                break Some(other);
            }
            let wait = deadline.saturating_duration_since(Instant::now());
            if wait.is_zero() {
                return Err(ParseFailure::Unavailable);
            }
            let waited = self.freed.wait_timeout(state, wait);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        drop(state);
        // Ends its process, for which other callers do not wait.
        drop(replaced);
        let started = ParserProcess::start(&self.options, nice);
        let confinement = match &started {
            Ok((_, Ok(()))) => ParserConfinement::Confined,
            Ok((_, Err(why))) => ParserConfinement::ProcessOnly(why.clone()),
            Err(error) => ParserConfinement::Unavailable(error.to_string()),
        };
        let before = self.state().confinement.replace(confinement.clone());
        if confinement != ParserConfinement::Confined && before.as_ref() != Some(&confinement) {
            tracing::warn!(
                ?confinement,
                "source files are parsed without full confinement"
            );
        }
        started.map(|(parser, _)| parser).map_err(|_| {
            self.one_less();
            ParseFailure::Unavailable
        })
    }

    fn put_back(self: &Arc<ParserPool>, parser: ParserProcess) {
        let mut state = self.state();
        state.idle.push(IdleParser {
            parser,
            since: Instant::now(),
        });
        let needs_reaper = !std::mem::replace(&mut state.reaper_runs, true);
        drop(state);
        self.freed.notify_one();
        if needs_reaper {
            self.start_reaper();
        }
    }

    fn discard(&self, parser: ParserProcess) {
        drop(parser);
        self.one_less();
    }

    fn one_less(&self) {
        self.state().live -= 1;
        self.freed.notify_one();
    }

    /// Ends parsers that are idle for too long; one thread does it for all, as long as there are any.
    fn start_reaper(self: &Arc<ParserPool>) {
        let (pool, timeout) = (Arc::downgrade(self), self.options.idle_timeout);
        let reap = move || {
            loop {
                std::thread::sleep(timeout / 4);
                let Some(pool) = Weak::upgrade(&pool) else {
                    return;
                };
                let mut state = pool.state();
                let before = state.idle.len();
                state.idle.retain(|idle| idle.since.elapsed() < timeout);
                state.live -= before - state.idle.len();
                if state.idle.is_empty() {
                    state.reaper_runs = false;
                    return;
                }
            }
        };
        let spawned = std::thread::Builder::new()
            .name("parser-idle".to_owned())
            .spawn(reap);
        if spawned.is_err() {
            // Nothing would end idle parsers.
            let mut state = self.state();
            state.live -= state.idle.len();
            state.idle.clear();
            state.reaper_runs = false;
        }
    }

    fn state(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ParserProcess {
    /// Starts a parser and waits until it has confined itself, or says why it cannot.
    fn start(
        options: &ParserOptions,
        nice: i32,
    ) -> io::Result<(ParserProcess, Result<(), String>)> {
        let memory = options.memory_bytes.to_string();
        let (process, socket) = Worker::start(&[options.argument, &memory])?;
        let deadline = Instant::now() + START_TIMEOUT;
        let confined = frames::receive_ready(TimedSocket::new(&socket, deadline))?;
        let parser = ParserProcess {
            process,
            socket,
            nice,
            uses: 0,
        };
        Ok((parser, confined))
    }

    fn exchange(
        &mut self,
        request: &ParseRequest<'_>,
        deadline: Instant,
    ) -> io::Result<ParseReply> {
        let mut socket = TimedSocket::new(&self.socket, deadline);
        socket.write_all(&frames::pack_request(request)?)?;
        frames::receive_reply(socket, request.source)
    }

    /// Whether it waits for a request; an idle parser sends nothing.
    fn is_alive(&self) -> bool {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN | PollFlags::RDHUP)];
        matches!(poll(&mut fds, Some(&now)), Ok(0))
    }

    fn kill(mut self) -> WorkerEnd {
        self.process.kill();
        self.process.wait()
    }
}
