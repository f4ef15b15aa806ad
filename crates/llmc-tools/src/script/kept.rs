//! Python processes that are kept for the next script of their session.
//!
//! A process is one principal's and one session's. It ends when it was not used for a while, when too many are kept, and
//! with the server; the answer to the next script of its session says why its variables
//! are gone.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use llmc_sandbox::PythonSession;

/// After this long without a script a process ends.
pub(crate) const MAX_IDLE: Duration = Duration::from_secs(1800);
/// Processes of one principal, and of all.
const MAX_OF_PRINCIPAL: usize = 8;
const MAX_OF_ALL: usize = 32;
/// Memory of all, by their own account; the limit of each bounds that.
const MAX_BYTES: u64 = 2 << 30;
/// Lost sessions whose reason is remembered.
const MAX_REASONS: usize = 256;

/// Kept processes by the key of their session.
#[derive(Debug, Default, Clone)]
pub(super) struct KeptProcesses(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    processes: BTreeMap<String, KeptProcess>,
    /// Why processes have ended, for the next script of their session.
    lost: BTreeMap<String, String>,
}

#[derive(Debug)]
struct KeptProcess {
    principal: String,
    session: Box<PythonSession>,
    used: Instant,
}

/// What is left of a session's process.
#[derive(Debug)]
pub(super) enum Found {
    Running(Box<PythonSession>),
    /// It has ended, and why.
    Lost(String),
    Nothing,
}

impl KeptProcesses {
    /// Takes the process of a session out.
    pub(super) fn take(&self, key: &str) -> Found {
        let mut kept = self.lock();
        if let Some(mut found) = kept.processes.remove(key) {
            if found.session.can_go_on() {
                return Found::Running(found.session);
            }
            return Found::Lost("its process has ended".to_owned());
        }
        match kept.lost.remove(key) {
            Some(why) => Found::Lost(why),
            None => Found::Nothing,
        }
    }

    /// Remembers why a session's process has ended.
    pub(super) fn lose(&self, key: &str, why: String) {
        self.lock().lose(key.to_owned(), why);
    }

    /// Keeps a process until the next script of its session. Needs a tokio runtime.
    pub(super) fn keep(&self, key: &str, principal: &str, session: Box<PythonSession>) {
        let used = Instant::now();
        let process = KeptProcess {
            principal: principal.to_owned(),
            session,
            used,
        };
        let mut kept = self.lock();
        kept.lost.remove(key);
        kept.processes.insert(key.to_owned(), process);
        kept.make_room(key, principal);
        drop(kept);
        let (all, key) = (Arc::downgrade(&self.0), key.to_owned());
        tokio::spawn(async move {
            tokio::time::sleep(MAX_IDLE).await;
            let Some(all) = all.upgrade() else { return };
            let mut kept = all.lock().unwrap_or_else(PoisonError::into_inner);
            let is_idle = |process: &KeptProcess| process.used == used;
            if kept.processes.get(&key).is_some_and(is_idle) {
                let why = format!("it was not used for {} minutes", MAX_IDLE.as_secs() / 60);
                kept.lose(key, why);
            }
        });
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn lose(&mut self, key: String, why: String) {
        self.processes.remove(&key);
        if self.lost.len() >= MAX_REASONS {
            self.lost.pop_first();
        }
        self.lost.insert(key, why);
    }

    /// Ends the processes that were not used for longest, but not the newest.
    fn make_room(&mut self, newest: &str, principal: &str) {
        let of_principal = |process: &KeptProcess| process.principal == principal;
        while self
            .processes
            .values()
            .filter(|process| of_principal(process))
            .count()
            > MAX_OF_PRINCIPAL
        {
            let why = format!("{MAX_OF_PRINCIPAL} other sessions were used since");
            if !self.end_oldest(newest, of_principal, why) {
                break;
            }
        }
        let bytes = |kept: &Kept| -> u64 {
            let sizes = kept
                .processes
                .values()
                .map(|process| process.session.memory_bytes());
            sizes.fold(0, u64::saturating_add)
        };
        while self.processes.len() > MAX_OF_ALL || bytes(self) > MAX_BYTES {
            let why = "other sessions needed its memory".to_owned();
            if !self.end_oldest(newest, |_| true, why) {
                break;
            }
        }
    }

    fn end_oldest(
        &mut self,
        newest: &str,
        is_meant: impl Fn(&KeptProcess) -> bool,
        why: String,
    ) -> bool {
        let candidates = self.processes.iter();
        let candidates = candidates.filter(|(key, process)| *key != newest && is_meant(process));
        let oldest = candidates.min_by_key(|(_, process)| process.used);
        match oldest.map(|(key, _)| key.clone()) {
            Some(key) => {
                self.lose(key, why);
                true
            }
            None => false,
        }
    }
}
