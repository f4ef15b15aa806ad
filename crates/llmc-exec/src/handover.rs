//! A run that another process of this executable follows.
//!
//! The server decides what runs and sets it going; what becomes of the output is the business of a process of its own,
//! which gets the run's descriptors and reports when it is done. The two share the leash: either can end the run, the
//! server alone knows what to look after once everything is dead, and if the server goes, the other sees its socket end
//! and lets go too. A follower that is done waits for the next run of the same caller, so that most runs start none.

use std::ffi::OsString;
use std::io::{self, Read};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::fds;
use super::follow::{self, Finished, Stream, TICK, Terms, broken};
use super::plan;
use super::protect::Quarantined;
use super::runner::{Launched, Runner, Spec};
use super::tree::Tree;
use llmc_host::CancelToken;
use llmc_host::{Error, Result};

/// How long the other process may take once the run is over or was told to be.
const END: Duration = Duration::from_secs(8);
/// How many wait for the next run.
const WAITING: usize = 2;
/// How long it may take to be told what to do.
const SEND: Duration = Duration::from_secs(10);

/// What the other process is to be started as.
#[derive(Debug)]
pub struct Follower<'a> {
    /// Its name and its arguments, for whoever looks at the list of processes; `args[1]` is its role.
    pub args: &'a [String],
    /// Its whole environment.
    pub env: &'a [(String, String)],
}

/// How a run went that another process followed.
#[derive(Debug)]
pub struct Followed<T> {
    /// What the other process reported; nothing if it died or had to be killed.
    pub word: Option<T>,
    /// Why the caller ended it, if that is what happened.
    pub stopped: Option<Error>,
    /// Protected names that the run created or changed; they were moved away.
    pub quarantined: Vec<Quarantined>,
}

impl Runner {
    /// Whether runs can be handed over: where pid namespaces are missing, only the process that starts a run can tell
    /// when all of it is dead.
    pub fn can_hand_over(&self) -> bool {
        self.level().pidns
    }

    /// Runs a command like [`Runner::run`], but lets a process of this executable follow it, which gets `order` first and
    /// reports a `T` in the end. `again` says whether that process is good for another run.
    ///
    /// # Errors
    /// As [`Runner::run`]. A follower that fails is no error but says nothing.
    pub fn run_followed<T: DeserializeOwned>(
        &self,
        spec: &Spec<'_>,
        follower: &Follower<'_>,
        order: &impl Serialize,
        again: impl FnOnce(&T) -> bool,
        stop: &CancelToken,
    ) -> Result<Followed<T>> {
        let wrong = |error| broken("handing a run over", error);
        // Before the run: a new one loads while the run is set going.
        let mut hand = self.take_follower(follower).map_err(wrong)?;
        let launched = match self.launch(spec) {
            Ok(launched) => launched,
            Err(error) => {
                self.put_back(hand);
                return Err(error);
            }
        };
        let Launched {
            program,
            tree,
            tmp,
            watch,
        } = launched;
        let (leash, outputs) = tree.into_parts().map_err(wrong)?;
        let terms = Terms {
            program: program.name.clone(),
            timeout: spec.timeout,
            max_output: spec.max_output,
        };
        let fds = [
            leash.as_fd(),
            outputs[0].as_fd(),
            outputs[1].as_fd(),
            spec.cwd.fd.as_fd(),
        ];
        if hand.give(&fds, &terms, order).is_err() {
            // One that had waited and has died meanwhile; a new one has not.
            hand = self.start_follower(follower).map_err(wrong)?;
            hand.give(&fds, &terms, order).map_err(wrong)?;
        }
        // The follower's copies are the only ones: it must see the end of the output.
        drop(outputs);
        let stopped = wait_for_word(&hand.control, &leash, &mut hand.process, stop);
        let said: Option<(bool, T)> = word(&hand.control);
        let _ = leash.shutdown(Shutdown::Write);
        let (all_dead, word) = match said {
            Some((all_dead, word)) => (all_dead, Some(word)),
            None => (false, None),
        };
        if !all_dead {
            wait_for_end(&leash);
        }
        if word.as_ref().is_some_and(again) {
            self.put_back(hand);
        }
        drop(tmp);
        Ok(Followed {
            word,
            stopped,
            quarantined: self.look_after(watch),
        })
    }

    /// A follower for this caller: one that waits, or a new one.
    fn take_follower(&self, follower: &Follower<'_>) -> io::Result<Hand> {
        let mut waiting = self
            .followers()
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let fits = waiting.iter().position(|hand| hand.env == follower.env);
        match fits {
            Some(at) => Ok(waiting.swap_remove(at)),
            None => {
                drop(waiting);
                self.start_follower(follower)
            }
        }
    }

    /// Lets a follower wait for the next run; the one that has waited longest goes when enough of them wait.
    fn put_back(&self, hand: Hand) {
        let mut waiting = self
            .followers()
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let too_many = waiting.len() >= WAITING;
        let oldest = too_many.then(|| waiting.remove(0));
        waiting.push(hand);
        drop(waiting);
        drop(oldest);
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "this is how llmc-host starts programs"
    )]
    fn start_follower(&self, follower: &Follower<'_>) -> io::Result<Hand> {
        let (control, theirs) = UnixStream::pair()?;
        control.set_write_timeout(Some(SEND))?;
        let (name, args) = follower
            .args
            .split_first()
            .ok_or(io::ErrorKind::InvalidInput)?;
        let process = Command::new(self.helper())
            .arg0(OsString::from(name))
            .args(args)
            .env_clear()
            .envs(follower.env.iter().map(|(name, value)| (name, value)))
            .current_dir("/")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Hand {
            env: follower.env.to_vec(),
            process,
            control,
        })
    }
}

/// The hold on a follower. Dropping it ends the follower.
#[derive(Debug)]
pub(super) struct Hand {
    /// For whom it was started.
    env: Vec<(String, String)>,
    process: Child,
    control: UnixStream,
}

impl Hand {
    fn give(
        &self,
        fds: &[BorrowedFd<'_>],
        terms: &Terms,
        order: &impl Serialize,
    ) -> io::Result<()> {
        fds::send(&self.control, fds)?;
        plan::send(&self.control, terms)?;
        plan::send(&self.control, order)
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        let _ = self.control.shutdown(Shutdown::Both);
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Waits until the follower has something to say, and ends the run when the caller says so.
fn wait_for_word(
    control: &UnixStream,
    leash: &UnixStream,
    process: &mut Child,
    stop: &CancelToken,
) -> Option<Error> {
    let mut stopped = None;
    let mut patience: Option<Instant> = None;
    loop {
        if stopped.is_none()
            && let Err(error) = stop.check()
        {
            stopped = Some(error);
            let _ = leash.shutdown(Shutdown::Write);
            patience = Some(Instant::now() + END);
        }
        if patience.is_some_and(|until| Instant::now() >= until) {
            let _ = process.kill();
            return stopped;
        }
        if readable(control, TICK) {
            return stopped;
        }
    }
}

/// The follower's report. One that stops in the middle of a word is not waited for.
fn word<T: DeserializeOwned>(control: &UnixStream) -> Option<T> {
    control.set_read_timeout(Some(END)).ok()?;
    plan::receive(control).ok()
}

/// Waits for the end of the leash, which is the end of everything in the run.
fn wait_for_end(leash: &UnixStream) {
    let deadline = Instant::now() + END;
    let mut rest = [0; 4096];
    while Instant::now() < deadline {
        if readable(leash, TICK) && !matches!((&mut &*leash).read(&mut rest), Ok(1..)) {
            return;
        }
    }
}

fn readable(socket: &UnixStream, patience: Duration) -> bool {
    let mut watched = [PollFd::new(socket, PollFlags::IN)];
    let Ok(patience) = Timespec::try_from(patience) else {
        return false;
    };
    matches!(poll(&mut watched, Some(&patience)), Ok(1..))
}

/// The other side: what comes from the server through standard input.
pub struct Orders {
    control: UnixStream,
}

impl Orders {
    /// Standard input as the server's socket.
    ///
    /// # Errors
    /// There is none.
    pub fn open() -> io::Result<Orders> {
        let control = UnixStream::from(rustix::io::dup(rustix::stdio::stdin())?);
        Ok(Orders { control })
    }

    /// The next run, and the order that comes with it. From then on this process stands where the command stands.
    ///
    /// # Errors
    /// The server has gone, or sends something else.
    pub fn take<T: DeserializeOwned>(&mut self) -> io::Result<(Taken<'_>, T)> {
        let fds = fds::receive(&self.control)?;
        let Ok([leash, out, err, cwd]) = <[OwnedFd; 4]>::try_from(fds) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        rustix::process::fchdir(cwd)?;
        let terms = plan::receive(&self.control)?;
        let order = plan::receive(&self.control)?;
        let taken = Taken {
            control: &self.control,
            tree: Tree::from_parts(leash.into(), [out, err]),
            terms,
        };
        Ok((taken, order))
    }
}

/// A run that was handed over to this process.
pub struct Taken<'a> {
    control: &'a UnixStream,
    tree: Tree,
    terms: Terms,
}

impl Taken<'_> {
    /// Follows the run to its end. A server that goes away ends it.
    ///
    /// # Errors
    /// The run could not be set up; the server is told in words.
    pub fn follow(&mut self, on_output: &mut dyn FnMut(Stream, &[u8])) -> Result<Finished> {
        let control = self.control;
        let go_on = || match has_gone(control) {
            true => Err(Error::Cancelled),
            false => Ok(()),
        };
        follow::follow(&mut self.tree, &self.terms, on_output, &go_on)
    }

    /// Tells the server how it went.
    ///
    /// # Errors
    /// It has gone.
    pub fn report(self, word: &impl Serialize) -> io::Result<()> {
        plan::send(self.control, &(self.tree.gone(), word))
    }
}

/// Whether the server has gone. Reads nothing: what comes next is the next order.
fn has_gone(control: &UnixStream) -> bool {
    let mut watched = [PollFd::new(control, PollFlags::RDHUP)];
    match poll(&mut watched, Some(&Timespec::default())) {
        Ok(_) => !watched[0].revents().is_empty(),
        Err(errno) => errno != rustix::io::Errno::INTR,
    }
}
