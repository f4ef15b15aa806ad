//! The sessions of a server: for each, the first process of its namespaces, which ends with the socket to it.

use std::collections::BTreeMap;
use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use llmc_host::lock;

use super::fds;
use super::plan::{self, Failure, Report, SessionRequest, SessionStart};

/// Sessions at the same time. One without a run gives way to a new one.
const MAX_SESSIONS: usize = 64;
/// How long a session may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How often sessions that expire are looked at.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(30);

/// Whose session it is: the principal, and the session's name.
pub(super) type SessionKey = (String, String);

/// The sessions of a server, which outlive a runner that is opened anew.
#[derive(Debug, Default)]
pub struct Sessions {
    known: Mutex<BTreeMap<SessionKey, Arc<Session>>>,
    has_expiry: Mutex<bool>,
}

/// One session.
#[derive(Debug)]
pub(super) struct Session {
    socket: Mutex<UnixStream>,
    /// Another handle on it, to end the session while a request waits for its answer.
    control: UnixStream,
    tmp: OwnedFd,
    /// The folder of its terminals.
    terminals: Option<OwnedFd>,
    used: Mutex<Instant>,
    /// How long it lives without a run.
    lifetime: Option<Duration>,
}

impl Sessions {
    /// The session of that name, made if need be.
    pub(super) fn get(
        self: &Arc<Sessions>,
        key: &SessionKey,
        lifetime: Option<Duration>,
        make: impl FnOnce() -> io::Result<Result<Session, Failure>>,
    ) -> io::Result<Result<Arc<Session>, Failure>> {
        // Held while one is made: two runs of a new session may begin at the same time.
        let mut known = lock(&self.known);
        if let Some(session) = known.get(key) {
            session.touch();
            return Ok(Ok(session.clone()));
        }
        if known.len() >= MAX_SESSIONS {
            let unused = known.iter().filter(|(_, session)| session.is_unused());
            let oldest = unused
                .min_by_key(|(_, session)| session.used())
                .map(|(key, _)| key.clone());
            match oldest {
                Some(oldest) => known.remove(&oldest),
                None => return Err(io::Error::other("too many sessions run commands")),
            };
        }
        let mut made = match make()? {
            Ok(made) => made,
            Err(failure) => return Ok(Err(failure)),
        };
        made.lifetime = lifetime;
        let made = Arc::new(made);
        known.insert(key.clone(), made.clone());
        drop(known);
        if lifetime.is_some() {
            self.watch_expiry();
        }
        Ok(Ok(made))
    }

    /// Ends a session and all its processes, if it still is this one.
    pub(super) fn forget(&self, key: &SessionKey, session: &Arc<Session>) {
        let mut known = lock(&self.known);
        if known
            .get(key)
            .is_some_and(|known| Arc::ptr_eq(known, session))
        {
            known.remove(key);
        }
        drop(known);
        session.end();
    }

    /// A descriptor of a session's `/tmp`, if the session has begun.
    pub fn tmp(&self, principal: &str, session: &str) -> Option<OwnedFd> {
        let key = (principal.to_owned(), session.to_owned());
        let known = lock(&self.known);
        known.get(&key)?.tmp.try_clone().ok()
    }

    /// Ends a session with all its processes.
    pub fn end(&self, principal: &str, session: &str) {
        let key = (principal.to_owned(), session.to_owned());
        let ended = lock(&self.known).remove(&key);
        if let Some(session) = ended {
            session.end();
        }
    }

    /// Ends all of them.
    pub fn end_all(&self) {
        for session in std::mem::take(&mut *lock(&self.known)).into_values() {
            session.end();
        }
    }

    fn watch_expiry(self: &Arc<Sessions>) {
        let mut has_expiry = lock(&self.has_expiry);
        if *has_expiry {
            return;
        }
        let sessions = Arc::downgrade(self);
        let watching = move || {
            while let Some(sessions) = Weak::upgrade(&sessions) {
                sessions.end_expired();
                drop(sessions);
                std::thread::sleep(EXPIRY_INTERVAL);
            }
        };
        let name = "llmc-sessions".to_owned();
        *has_expiry = std::thread::Builder::new()
            .name(name)
            .spawn(watching)
            .is_ok();
    }

    fn end_expired(&self) {
        let mut ended = Vec::new();
        lock(&self.known).retain(|_, session| {
            let is_over = session
                .lifetime
                .is_some_and(|lifetime| session.used().elapsed() > lifetime);
            if is_over {
                ended.push(session.clone());
            }
            !is_over
        });
        ended.iter().for_each(|session| session.end());
    }
}

impl Session {
    /// Introduces the server to a session's first process, and waits until it serves.
    pub(super) fn begin(
        socket: UnixStream,
        start: SessionStart,
    ) -> io::Result<Result<Session, Failure>> {
        socket.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        socket.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        plan::forgive_gone(plan::send(&socket, &start))?;
        match plan::receive(&socket)? {
            Report::Session => {}
            Report::Failed(failure) => return Ok(Err(failure)),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
        let mut dirs = fds::receive(&socket)?.into_iter();
        Ok(Ok(Session {
            control: socket.try_clone()?,
            socket: Mutex::new(socket),
            tmp: dirs.next().ok_or(io::ErrorKind::InvalidData)?,
            terminals: dirs.next(),
            used: Mutex::new(Instant::now()),
            lifetime: None,
        }))
    }

    /// The folder of the session's terminals, where a new one is made by opening `ptmx`.
    pub(super) fn terminals(&self) -> Option<&OwnedFd> {
        self.terminals.as_ref()
    }

    /// The socket to the first process of a run.
    pub(super) fn slot(&self, request: &SessionRequest) -> io::Result<Result<UnixStream, Failure>> {
        let socket = lock(&self.socket);
        plan::send(&*socket, request)?;
        match plan::receive(&*socket)? {
            Report::Slot => {}
            Report::Failed(failure) => return Ok(Err(failure)),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
        let slot = fds::receive(&socket)?.pop();
        Ok(Ok(UnixStream::from(
            slot.ok_or(io::ErrorKind::InvalidData)?,
        )))
    }

    /// Has what a run has left without its first process ended.
    pub(super) fn end_orphans(&self) {
        let sent = plan::send(&*lock(&self.socket), &SessionRequest::EndOrphans);
        if sent.is_err() {
            self.end();
        }
    }

    /// Ends every process of the session.
    pub(super) fn end(&self) {
        let _ = self.control.shutdown(Shutdown::Both);
    }

    fn touch(&self) {
        *lock(&self.used) = Instant::now();
    }

    fn used(&self) -> Instant {
        *lock(&self.used)
    }

    fn is_unused(self: &Arc<Session>) -> bool {
        Arc::strong_count(self) == 1
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end();
    }
}
