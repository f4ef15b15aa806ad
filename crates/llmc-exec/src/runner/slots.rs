//! Helpers for runs: taken from the broker of a principal, which prepares them in advance, or started for one run.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use llmc_host::lock;

use super::{RunOwner, Runner};
use crate::broker::Broker;
use crate::follow::broken;
use crate::layer_limit::mark_large_layers;
use crate::plan::{Failure, Input, Plan, SESSION_PROCESSES_FACTOR, SessionRequest, SessionStart};
use crate::sessions::Session;
use crate::stdio::StdioEnds;
use crate::tree::Tree;

/// First processes of runs that were killed before they got their plan, and are replaced.
const MAX_KILLED_SLOTS: u32 = 4;

/// A slot that the broker prepares while the server prepares the run. An unused one is released.
pub(super) struct SlotRequest<'a> {
    runner: &'a Runner,
    owner: RunOwner<'a>,
    /// A session has the next run's helpers ready, so nothing has to be asked for ahead.
    in_session: bool,
    open: bool,
    /// A slot that was given by another runner.
    given: Option<Slot>,
}

impl<'a> SlotRequest<'a> {
    /// Asks for a slot if a broker runs; else [`SlotRequest::take`] starts one.
    pub(super) fn new(runner: &'a Runner, principal: &'a str) -> SlotRequest<'a> {
        let mut held = lock(&runner.brokers);
        let asked = held.get_mut(principal).map(Broker::ask);
        if let Some(Err(_)) = asked {
            held.remove(principal);
        }
        SlotRequest {
            runner,
            owner: RunOwner {
                principal,
                ..RunOwner::default()
            },
            in_session: false,
            open: matches!(asked, Some(Ok(()))),
            given: None,
        }
    }

    /// The place that another runner has given.
    pub(super) fn at(runner: &'a Runner, place: SessionPlace) -> SlotRequest<'a> {
        SlotRequest {
            runner,
            owner: RunOwner::default(),
            in_session: false,
            open: false,
            given: Some(place.0),
        }
    }

    /// A slot among the processes of its owner's session.
    pub(super) fn in_session(runner: &'a Runner, owner: RunOwner<'a>) -> SlotRequest<'a> {
        SlotRequest {
            runner,
            owner,
            in_session: true,
            open: false,
            given: None,
        }
    }

    fn take(mut self, plan: &Plan) -> io::Result<Result<Slot, Failure>> {
        self.open = false;
        if let Some(slot) = self.given.take() {
            return Ok(Ok(slot));
        }
        if self.in_session {
            return self.runner.session_slot(self.owner, plan);
        }
        let slot = self.runner.slot(self.owner.principal)?;
        Ok(slot.map(|socket| Slot {
            socket,
            session: None,
        }))
    }
}

impl Drop for SlotRequest<'_> {
    fn drop(&mut self) {
        if self.open {
            let _ = self.runner.slot(self.owner.principal);
        }
    }
}

/// A place in a session for one run of another runner; an unused one is released.
#[derive(Debug)]
pub struct SessionPlace(Slot);

/// The socket to a new run's first process, and the session it belongs to.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) socket: UnixStream,
    pub(crate) session: Option<Arc<Session>>,
}

impl Runner {
    /// Starts a helper on a plan: in a namespace the broker has ready, or, without pid namespaces, by itself.
    pub(super) fn start(
        &self,
        cwd: &OwnedFd,
        plan: &Plan,
        input: Input,
        slot_request: SlotRequest<'_>,
    ) -> io::Result<Result<Tree, Failure>> {
        if !self.features.pid {
            let ends = StdioEnds::new(input, None)?;
            return Tree::with_own_helper(&self.settings.helper, cwd, plan, ends);
        }
        let make_tree = |slot: Slot| {
            let is_command = plan.target.is_some();
            let cgroup = is_command
                .then(|| self.cgroups.make(&plan.limits))
                .flatten();
            let terminals = slot
                .session
                .as_ref()
                .and_then(|session| session.terminals());
            let ends = StdioEnds::new(input, terminals)?;
            Tree::in_slot(slot, cwd, plan, ends, cgroup)
        };
        if !plan.is_member {
            return match slot_request.take(plan)? {
                Ok(slot) => make_tree(slot).map(Ok),
                Err(failure) => Ok(Err(failure)),
            };
        }
        let mut tries = 0;
        loop {
            let mut tree = match self.session_slot(slot_request.owner, plan)? {
                Ok(slot) => make_tree(slot)?,
                Err(failure) => return Ok(Err(failure)),
            };
            match tree.joined() {
                Ok(()) => return Ok(Ok(tree)),
                // A command may signal every process of its session, those that wait for the next run included.
                Err(_) if tries < MAX_KILLED_SLOTS => tries += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// A place in a session for a run of another runner, which shares the session's `/tmp` and nothing else. `None` where runs
    /// of a session share no processes.
    ///
    /// # Errors
    /// The session cannot be begun.
    pub fn place_in_session(&self, owner: RunOwner<'_>) -> crate::Result<Option<SessionPlace>> {
        if !self.has_sessions() || owner.session.is_empty() {
            return Ok(None);
        }
        let request = SessionRequest::Apart { with_layers: false };
        let slot = self
            .slot_in_session(owner, &request)
            .map_err(|error| broken("entering the session", error))?
            .map_err(|failure| broken("entering the session", failure.io()))?;
        Ok(Some(SessionPlace(slot)))
    }

    /// A slot in a session, which is made if need be. One that does not answer is ended, and another one begun.
    fn session_slot(&self, owner: RunOwner<'_>, plan: &Plan) -> io::Result<Result<Slot, Failure>> {
        let request = match plan.is_member {
            true => SessionRequest::Member(plan.session_rules()),
            false => SessionRequest::Apart { with_layers: true },
        };
        self.slot_in_session(owner, &request)
    }

    fn slot_in_session(
        &self,
        owner: RunOwner<'_>,
        request: &SessionRequest,
    ) -> io::Result<Result<Slot, Failure>> {
        let key = (owner.principal.to_owned(), owner.session.to_owned());
        let mut is_second = false;
        loop {
            let begin = || self.begin_session(owner.principal);
            let session = match self.sessions.get(&key, owner.session_lifetime, begin)? {
                Ok(session) => session,
                Err(failure) => return Ok(Err(failure)),
            };
            match session.slot(request) {
                Ok(Ok(socket)) => {
                    return Ok(Ok(Slot {
                        socket,
                        session: Some(session),
                    }));
                }
                Ok(Err(failure)) => return Ok(Err(failure)),
                Err(error) => {
                    self.sessions.forget(&key, &session);
                    if is_second {
                        return Err(error);
                    }
                    is_second = true;
                }
            }
        }
    }

    fn begin_session(&self, principal: &str) -> io::Result<Result<Session, Failure>> {
        let limits = &self.settings.limits;
        let start = SessionStart {
            tmp_bytes: limits.tmp_bytes,
            processes: limits.processes.saturating_mul(SESSION_PROCESSES_FACTOR),
        };
        let socket = self.ask_broker(principal, Broker::session)?;
        match socket {
            Ok(socket) => Session::begin(socket, start),
            Err(failure) => Ok(Err(failure)),
        }
    }

    fn slot(&self, principal: &str) -> io::Result<Result<UnixStream, Failure>> {
        self.ask_broker(principal, Broker::slot)
    }

    /// What a principal's broker gives, which is started if need be.
    fn ask_broker(
        &self,
        principal: &str,
        ask: impl Fn(&mut Broker) -> io::Result<Result<UnixStream, Failure>>,
    ) -> io::Result<Result<UnixStream, Failure>> {
        let mut held = lock(&self.brokers);
        if let Some(broker) = held.get_mut(principal) {
            match ask(broker) {
                // Gone or out of step: a new one takes its place.
                Err(_) => {
                    held.remove(principal);
                }
                Ok(slot) => return Ok(slot),
            }
        }
        let stage = self.stage(principal);
        let store = stage.as_ref().and_then(|stage| stage.store.clone());
        match Broker::start(&self.settings.helper, self.features, stage)? {
            Ok(mut broker) => {
                if let Some(store) = store {
                    mark_large_layers(store.into(), self.settings.cache_max_bytes);
                }
                let slot = ask(&mut broker);
                held.insert(principal.to_owned(), broker);
                slot
            }
            Err(failure) => Ok(Err(failure)),
        }
    }
}
