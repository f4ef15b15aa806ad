//! The programs that callers have started and that outlive their calls.
//!
//! Each belongs to the caller and the conversation that started it; to everybody else it does not exist. One that has
//! ended stays for a while, so that its last output and its exit code can be read.

mod output;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use llmc_exec::Process;
use ulid::Ulid;

use crate::cx::Caller;
use crate::error::{Error, Kind, Result};

pub(crate) use output::{Text, Wish};

/// Running processes of one conversation.
const PER_SESSION: usize = 8;
/// Running processes of all.
const IN_ALL: usize = 32;
/// Processes that have ended and are still known, of all.
const ENDED: usize = 32;
/// How long a process that has ended is still known.
const REMEMBERED: Duration = Duration::from_secs(15 * 60);
/// How long the end of all processes may take when the server ends.
const CLOSE: Duration = Duration::from_millis(1500);

/// All of them.
#[derive(Debug, Default)]
pub struct Processes {
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    /// In the order of their start.
    entries: Vec<Arc<Entry>>,
    /// Who is about to start one.
    starting: Vec<Owner>,
    closed: bool,
}

/// A process and what is known about it.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) id: String,
    owner: Owner,
    /// The words it was started with.
    pub(crate) command: String,
    pub(crate) started: Timestamp,
    pub(crate) process: Process,
    /// Where the owner's last read ended.
    cursor: Mutex<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Owner {
    principal: String,
    session: String,
}

impl Processes {
    /// Starts a process, if its owner and the server have room for one more.
    pub(crate) fn start(
        &self,
        caller: &Caller,
        command: String,
        spawn: impl FnOnce() -> Result<Process>,
    ) -> Result<Arc<Entry>> {
        let place = self.place(Owner::of(caller))?;
        let entry = Arc::new(Entry {
            id: format!("proc_{}", Ulid::new()),
            owner: place.owner.clone(),
            command,
            started: Timestamp::now(),
            process: spawn()?,
            cursor: Mutex::new(0),
        });
        let mut held = self.lock();
        if held.closed {
            drop(held);
            return Err(Error::new(Kind::Cancelled, "the server is shutting down"));
        }
        held.entries.push(entry.clone());
        drop(held);
        Ok(entry)
    }

    /// The caller's process of that id.
    pub(crate) fn get(&self, caller: &Caller, id: &str) -> Result<Arc<Entry>> {
        let owner = Owner::of(caller);
        let found = self.lock().swept().into_iter().find(|entry| entry.id == id);
        found.filter(|entry| entry.owner == owner).ok_or_else(|| {
            Error::new(Kind::NotFound, format!("{id}: no such process"))
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

    /// Ends all of them, and looks after what they left behind. No more can be started.
    pub fn close(&self) {
        let mut held = self.lock();
        held.closed = true;
        let entries = std::mem::take(&mut held.entries);
        drop(held);
        for entry in &entries {
            entry.process.end();
        }
        let deadline = Instant::now() + CLOSE;
        for entry in &entries {
            let left = deadline.saturating_duration_since(Instant::now());
            if entry.process.wait_end(left).is_none() {
                tracing::warn!(
                    command = llmc_observe::mask_secrets(&entry.command),
                    "a process takes long to end"
                );
            }
        }
        // Whoever is stuck is not waited for; it goes with this process.
        std::mem::forget(entries);
    }

    fn place(&self, owner: Owner) -> Result<Place<'_>> {
        let mut held = self.lock();
        if held.closed {
            return Err(Error::new(Kind::Cancelled, "the server is shutting down"));
        }
        let entries = held.swept();
        let owners = entries
            .iter()
            .filter(|entry| entry.process.ending().is_none())
            .map(|entry| &entry.owner)
            .chain(&held.starting);
        let (mut own, mut all) = (0, 0);
        for other in owners {
            all += 1;
            own += usize::from(*other == owner);
        }
        let full = |message: String| {
            let error = Error::new(Kind::RateLimited, message);
            Err(error.hint("end one with linux_proc_stop; linux_proc_list shows yours"))
        };
        if own >= PER_SESSION {
            return full(format!(
                "you have {own} processes running, the most allowed"
            ));
        }
        if all >= IN_ALL {
            return full(format!(
                "the server has {all} processes running, the most allowed"
            ));
        }
        held.starting.push(owner.clone());
        Ok(Place {
            processes: self,
            owner,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    /// What is left after forgetting processes that ended long ago, and the oldest of too many.
    fn swept(&mut self) -> Vec<Arc<Entry>> {
        let mut ended: Vec<(Instant, String)> = self
            .entries
            .iter()
            .filter_map(|entry| Some((entry.process.ending()?.at, entry.id.clone())))
            .collect();
        ended.sort();
        let too_many = ended.len().saturating_sub(ENDED);
        let forgotten: Vec<String> = ended
            .into_iter()
            .enumerate()
            .filter(|(n, (at, _))| *n < too_many || at.elapsed() > REMEMBERED)
            .map(|(_, (_, id))| id)
            .collect();
        self.entries.retain(|entry| !forgotten.contains(&entry.id));
        self.entries.clone()
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

/// A place for a process that is being started.
struct Place<'a> {
    processes: &'a Processes,
    owner: Owner,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut held = self.processes.lock();
        if let Some(at) = held.starting.iter().position(|owner| *owner == self.owner) {
            held.starting.swap_remove(at);
        }
    }
}
