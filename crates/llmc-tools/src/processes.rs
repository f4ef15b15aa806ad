//! The programs that callers have started and that outlive their calls.
//!
//! Each belongs to the principal and the session that started it and does not exist for others. One that has ended stays
//! for a while, so that its last output and its exit code can be read.

mod long_run;
mod output;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use llmc_exec::{Process, SentInput, Stream};
use llmc_host::CancelToken;
use llmc_observe::CallScope;
use ulid::Ulid;

use crate::cx::Caller;
use crate::error::{Error, ErrorKind, Result};
use crate::servers::{on_server, process_elsewhere};
use crate::shell::CommandWords;
use crate::shell::spool::{SharedSpool, Spool};

pub(crate) use long_run::{LongRun, RunProgress};
pub(crate) use output::{ProcessText, ReadRequest};

/// Running processes of one session.
const MAX_RUNNING_PER_SESSION: usize = 8;
/// Running processes of the server.
const MAX_RUNNING: usize = 32;
/// Ended processes that are still known.
const MAX_ENDED: usize = 32;
/// How long an ended process is still known.
const ENDED_KEPT_FOR: Duration = Duration::from_secs(15 * 60);
/// How long the end of all processes may take when the server ends.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(1500);

/// The registry of background processes.
#[derive(Debug, Default)]
pub struct Processes {
    state: Mutex<RegistryState>,
    /// The server's name, which ids carry where servers share a database.
    server: OnceLock<String>,
}

#[derive(Debug, Default)]
struct RegistryState {
    /// In the order of their start.
    entries: Vec<Arc<Entry>>,
    /// Who is about to start one.
    starting: Vec<Owner>,
    /// Work on views, in the order of its start.
    runs: Vec<Arc<LongRun>>,
    closed: bool,
}

/// A process and what is known about it.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) id: String,
    owner: Owner,
    pub(crate) words: CommandWords,
    pub(crate) cwd: Option<String>,
    pub(crate) started: Timestamp,
    pub(crate) process: Process,
    /// Where the owner's last read ended.
    cursor: Mutex<u64>,
    /// What a command that a call once waited for has printed since the last answer.
    spool: Option<SharedSpool>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Owner {
    principal: String,
    session: String,
}

impl Processes {
    /// Lets the ids of processes carry the server that has them.
    pub(crate) fn name_server(&self, server: &str) {
        let _ = self.server.set(server.to_owned());
    }

    /// The server that ids carry.
    pub(crate) fn server(&self) -> Option<&str> {
        self.server.get().map(String::as_str)
    }

    /// Starts a process, if its owner and the server have room for one more.
    pub(crate) fn start(
        &self,
        caller: &Caller,
        words: CommandWords,
        spawn: impl FnOnce() -> Result<Process>,
    ) -> Result<Arc<Entry>> {
        let slot = self.reserve(Owner::of(caller))?;
        let entry = Entry::new(caller, words, None, spawn()?, None);
        let added = self.add(entry);
        drop(slot);
        added
    }

    /// Takes over a process that a call has started; one that finds no room is ended.
    pub(crate) fn adopt(&self, entry: Entry) -> Result<Arc<Entry>> {
        let slot = self.reserve(entry.owner.clone())?;
        let added = self.add(entry);
        drop(slot);
        added
    }

    fn add(&self, mut entry: Entry) -> Result<Arc<Entry>> {
        if let Some(server) = self.server() {
            entry.id = on_server(&entry.id, server);
        }
        let entry = Arc::new(entry);
        let mut state = self.lock();
        if state.closed {
            return Err(Error::new(
                ErrorKind::Cancelled,
                "the server is shutting down",
            ));
        }
        state.entries.push(entry.clone());
        Ok(entry)
    }

    /// The caller's process of that id.
    pub(crate) fn get(&self, caller: &Caller, id: &str) -> Result<Arc<Entry>> {
        let owner = Owner::of(caller);
        let found = self.lock().swept().into_iter().find(|entry| entry.id == id);
        found.filter(|entry| entry.owner == owner).ok_or_else(|| {
            if self.run(caller, id).is_some() {
                let message =
                    format!("{id}: a comparison, preview or test run, which has no input");
                return Error::bad_args(message).hint(format!("run_cmd proc={id} waits on for it"));
            }
            if let Some(error) = self.server().and_then(|own| process_elsewhere(id, own)) {
                return error;
            }
            Error::new(ErrorKind::NotFound, format!("{id}: no such process"))
                .hint("linux_proc_list shows yours; an ended one is forgotten after a while")
        })
    }

    /// The caller's processes, oldest first.
    pub(crate) fn list(&self, caller: &Caller) -> Vec<Arc<Entry>> {
        let owner = Owner::of(caller);
        let mut list = self.lock().swept();
        list.retain(|entry| entry.owner == owner);
        list
    }

    /// The processes of every principal, or of one, oldest first.
    pub(crate) fn seen_by(&self, scope: CallScope<'_>) -> Vec<Arc<Entry>> {
        let mut list = self.lock().swept();
        if let CallScope::Principal(principal) = scope {
            list.retain(|entry| entry.owner.principal == principal);
        }
        list
    }

    /// Ends all of them and checks what they left behind. No more can be started.
    pub fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        let entries = std::mem::take(&mut state.entries);
        let runs = std::mem::take(&mut state.runs);
        drop(state);
        for run in &runs {
            run.end();
        }
        for entry in &entries {
            entry.process.end();
        }
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        for entry in &entries {
            let left = deadline.saturating_duration_since(Instant::now());
            if entry.process.wait_end(left).is_none() {
                tracing::warn!(
                    command = llmc_observe::mask_secrets(&entry.words.text),
                    "a process takes long to end"
                );
            }
        }
        // A process that is stuck in the kernel is not waited for; it ends with the server.
        std::mem::forget(entries);
    }

    fn reserve(&self, owner: Owner) -> Result<StartSlot<'_>> {
        let mut state = self.lock();
        if state.closed {
            return Err(Error::new(
                ErrorKind::Cancelled,
                "the server is shutting down",
            ));
        }
        let entries = state.swept();
        let owners = entries
            .iter()
            .filter(|entry| entry.process.ending().is_none())
            .map(|entry| &entry.owner)
            .chain(&state.starting);
        let (mut own, mut all) = (0, 0);
        for other in owners {
            all += 1;
            own += usize::from(*other == owner);
        }
        let full = |message: String| {
            let error = Error::new(ErrorKind::RateLimited, message);
            Err(error.hint("end one with linux_proc_stop; linux_proc_list shows yours"))
        };
        if own >= MAX_RUNNING_PER_SESSION {
            return full(format!(
                "you have {own} processes running, the most allowed"
            ));
        }
        if all >= MAX_RUNNING {
            return full(format!(
                "the server has {all} processes running, the most allowed"
            ));
        }
        state.starting.push(owner.clone());
        Ok(StartSlot {
            processes: self,
            owner,
        })
    }

    fn lock(&self) -> MutexGuard<'_, RegistryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RegistryState {
    /// What is left after forgetting processes that ended long ago, and the oldest of too many.
    fn swept(&mut self) -> Vec<Arc<Entry>> {
        let mut ended: Vec<(Instant, String)> = self
            .entries
            .iter()
            .filter_map(|entry| Some((entry.process.ending()?.at, entry.id.clone())))
            .collect();
        ended.sort();
        let too_many = ended.len().saturating_sub(MAX_ENDED);
        let forgotten: Vec<String> = ended
            .into_iter()
            .enumerate()
            .filter(|(n, (at, _))| *n < too_many || at.elapsed() > ENDED_KEPT_FOR)
            .map(|(_, (_, id))| id)
            .collect();
        self.entries.retain(|entry| !forgotten.contains(&entry.id));
        self.entries.clone()
    }
}

impl Entry {
    fn new(
        caller: &Caller,
        words: CommandWords,
        cwd: Option<String>,
        process: Process,
        spool: Option<SharedSpool>,
    ) -> Entry {
        Entry {
            id: new_id(None),
            owner: Owner::of(caller),
            words,
            cwd,
            started: Timestamp::now(),
            process,
            cursor: Mutex::new(0),
            spool,
        }
    }

    /// A command that runs longer than its call waits.
    pub(crate) fn of_command(
        caller: &Caller,
        words: CommandWords,
        cwd: Option<String>,
        process: Process,
        spool: SharedSpool,
    ) -> Entry {
        Entry::new(caller, words, cwd, process, Some(spool))
    }

    pub(crate) fn principal(&self) -> &str {
        &self.owner.principal
    }

    pub(crate) fn session(&self) -> &str {
        &self.owner.session
    }

    /// How much has been printed since the last answer.
    pub(crate) fn output_bytes(&self) -> u64 {
        match &self.spool {
            Some(spool) => spool.bytes(),
            None => self.process.look(0, 0).end.saturating_sub(*self.cursor()),
        }
    }

    /// What has been printed since the last answer, and how many bytes before it are no longer known.
    pub(crate) fn take_output(&self, state_dir: Option<&Path>) -> (Spool, u64) {
        if let Some(spool) = &self.spool {
            return (spool.take(), 0);
        }
        let mut cursor = self.cursor();
        let seen = self.process.look(*cursor, usize::MAX);
        let dropped = seen.offset - *cursor;
        *cursor = seen.offset + seen.bytes.len() as u64;
        let mut spool = Spool::new(state_dir.map(ToOwned::to_owned));
        spool.push(Stream::Stdout, &seen.bytes);
        (spool, dropped)
    }

    /// Writes to the input; returns how many bytes were written.
    pub(crate) fn send_input(
        &self,
        input: &str,
        patience: Duration,
        cancel: &CancelToken,
    ) -> Result<usize> {
        let SentInput { bytes, open } = self.process.send(input.as_bytes(), patience, cancel)?;
        cancel.check()?;
        if !open {
            return Err(self.input_closed().with("bytes", bytes));
        }
        if bytes < input.len() {
            let message = format!(
                "{}: read only {bytes} of {} bytes within {} s",
                self.id,
                input.len(),
                patience.as_secs()
            );
            return Err(Error::new(ErrorKind::TimedOut, message)
                .hint("look at its output with linux_proc_read, then send the rest")
                .with("bytes", bytes));
        }
        Ok(bytes)
    }

    /// Closes the input.
    pub(crate) fn close_input(&self, patience: Duration, cancel: &CancelToken) -> Result<()> {
        let SentInput { open, .. } = self.process.close_input(patience, cancel)?;
        cancel.check()?;
        if open {
            Ok(())
        } else {
            Err(self.input_closed())
        }
    }

    fn input_closed(&self) -> Error {
        let id = &self.id;
        match self.process.ending() {
            Some(_) => Error::new(ErrorKind::NotFound, format!("{id}: the process has ended"))
                .hint("linux_proc_read tells its last output and exit code"),
            None => Error::new(ErrorKind::NotFound, format!("{id}: its input is closed"))
                .hint("give all of the input with the command, or start it with linux_proc_start"),
        }
    }

    fn cursor(&self) -> MutexGuard<'_, u64> {
        self.cursor.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An id that no process has. Calls name it, so it is short; to others it does not exist, so it need not be secret.
fn new_id(server: Option<&str>) -> String {
    let random = Ulid::new().to_string().to_lowercase();
    let id = format!("p_{}", &random[random.len() - 8..]);
    match server {
        Some(server) => on_server(&id, server),
        None => id,
    }
}

impl Owner {
    fn of(caller: &Caller) -> Owner {
        Owner {
            principal: caller.principal.clone(),
            session: caller.session.clone(),
        }
    }
}

/// Counts a process that is being started.
struct StartSlot<'a> {
    processes: &'a Processes,
    owner: Owner,
}

impl Drop for StartSlot<'_> {
    fn drop(&mut self) {
        let mut state = self.processes.lock();
        if let Some(at) = state.starting.iter().position(|owner| *owner == self.owner) {
            state.starting.swap_remove(at);
        }
    }
}
