//! What the server tells its helper, and what the helper tells the server.
//!
//! Messages are JSON with their length in front, over the socket that is the helper's standard input. Nothing travels on
//! the command line or in the environment, where others could read it.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::level::{Feature, Features};
use super::settings::Limits;

/// The hidden argument that makes an executable the outer helper.
pub(super) const OUTER: &str = "__confine";
/// The hidden argument of the process that makes pid namespaces.
pub(super) const BROKER: &str = "__confine-broker";
/// The hidden argument of the process that becomes pid 1 of a run.
pub(super) const INNER: &str = "__confine-init";
/// The hidden argument of the program that tries to get out, for live trials.
pub(super) const ATTEMPT: &str = "__attempt";
/// The hidden argument of the step between a helper and a program that may start no other; the program and its name follow.
pub(super) const ALONE: &str = "__alone";
/// How that program begins the line in which it says that it was refused; the kernel's number follows.
pub(super) const REFUSED: &str = "llmc-refused ";
/// Longest message: the arguments and the environment of one command, each byte of them escaped.
const MESSAGE_LIMIT: usize = 16 << 20;

/// The first message to every helper: what to do before there is a plan.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Start {
    pub(super) features: Features,
}

/// The message that makes a helper a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Plan {
    pub(super) features: Features,
    pub(super) places: Places,
    pub(super) sockets: Sockets,
    pub(super) limits: Limits,
    /// Seconds of processor time per process.
    pub(super) cpu_seconds: u64,
    /// Where the command starts. The helper already stands there, but on the wrong side of the mounts.
    pub(super) cwd: OsString,
    /// `None` for a probe, which does everything but start something.
    pub(super) target: Option<Target>,
}

/// Which files the run sees in which way. All paths are absolute and free of links.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Places {
    /// Writable.
    pub(super) write: Vec<OsString>,
    /// Directories of the system inside writable places, read-only all the same.
    pub(super) sealed: Vec<OsString>,
    /// Visible and read-only, even below `/tmp`.
    pub(super) read: Vec<OsString>,
    /// Mounted onto themselves, so that they cannot be moved away. Outer ones first.
    pub(super) pinned: Vec<OsString>,
    /// Made read-only inside a writable place.
    pub(super) kept: Vec<OsString>,
    /// Hidden behind an empty directory.
    pub(super) masked: Vec<OsString>,
    /// All that may be read; everything without.
    pub(super) seen: Option<Vec<OsString>>,
}

/// Which sockets a run may make. Unix sockets, which reach the host's daemons, are in neither.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Sockets {
    /// Internet sockets: the network is allowed, or a namespace leaves nothing to reach.
    Internet,
    /// None at all.
    Nothing,
}

/// The program to start.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Target {
    pub(super) program: OsString,
    pub(super) argv: Vec<OsString>,
    pub(super) env: Vec<(OsString, OsString)>,
    pub(super) input: Input,
}

/// What a command reads from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Input {
    /// Nothing: a one-shot run, whose process the server need not know.
    Nothing,
    /// Nothing, for a process that the server knows and may let go on.
    Closed,
    /// A pipe, whose descriptor comes with the plan; both outputs apart.
    Separate,
    /// A pipe, whose descriptor comes with the plan; both outputs in one pipe.
    Pipe,
    /// A terminal, which becomes the run's own.
    Terminal,
}

impl Input {
    /// Whether a descriptor to read from comes with the plan.
    pub(super) fn has_descriptor(self) -> bool {
        matches!(self, Input::Separate | Input::Pipe | Input::Terminal)
    }
}

/// The server's answer to [`Report::Running`], and then one byte for every signal it wants passed on.
pub(super) const SEEN: u8 = 0;

/// What the helper says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Report {
    /// The user namespace exists and waits for its maps.
    Unmapped,
    /// The broker serves.
    Started,
    /// The broker's answer to a wish; the descriptor of the socket to a new run follows.
    Slot,
    /// A probe: everything is in force.
    Ready { landlock: Option<u32> },
    /// A command that the server must know runs; a descriptor of its process follows. The helper reaps it only after the
    /// server has answered.
    Running,
    /// The command ended by itself.
    Exited(i32),
    /// A signal ended the command.
    Killed(i32),
    /// After either of these: nobody is left in the run but the helper, which goes now.
    Alone,
    /// The run could not be set up.
    Failed(Failure),
}

/// Why a run could not be set up.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Failure {
    /// The feature that does not work here; `None` if the run itself is at fault.
    pub(super) feature: Option<Feature>,
    /// What was tried.
    pub(super) step: String,
    /// What the kernel said.
    pub(super) errno: i32,
}

impl Failure {
    pub(super) fn new(
        feature: Option<Feature>,
        step: &str,
        error: impl Into<io::Error>,
    ) -> Failure {
        Failure {
            feature,
            step: step.to_owned(),
            errno: error.into().raw_os_error().unwrap_or(0),
        }
    }

    pub(super) fn io(&self) -> io::Error {
        match self.errno {
            0 => io::Error::other(self.step.clone()),
            errno => io::Error::from_raw_os_error(errno),
        }
    }
}

/// Writes one message.
pub(super) fn send(to: impl Write, message: &impl Serialize) -> io::Result<()> {
    send_all(to, std::slice::from_ref(message))
}

/// Writes messages so that they arrive together.
pub(super) fn send_all(mut to: impl Write, messages: &[impl Serialize]) -> io::Result<()> {
    let mut bytes = Vec::new();
    for message in messages {
        let start = bytes.len() + 4;
        bytes.extend([0; 4]);
        serde_json::to_writer(&mut bytes, message)?;
        let length = u32::try_from(bytes.len() - start).map_err(io::Error::other)?;
        bytes[start - 4..start].copy_from_slice(&length.to_le_bytes());
    }
    to.write_all(&bytes)
}

/// A helper that is gone already has left word why, which is read later.
pub(super) fn forgive_gone(sent: io::Result<()>) -> io::Result<()> {
    match sent {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Reads one message and not a byte more.
pub(super) fn receive<T: DeserializeOwned>(mut from: impl Read) -> io::Result<T> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MESSAGE_LIMIT {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}

/// Takes the first whole message out of what has arrived so far.
pub(super) fn take<T: DeserializeOwned>(inbox: &mut Vec<u8>) -> io::Result<Option<T>> {
    let Some(length) = inbox.first_chunk::<4>() else {
        return Ok(None);
    };
    let end = 4 + u32::from_le_bytes(*length) as usize;
    if end > MESSAGE_LIMIT {
        return Err(io::ErrorKind::InvalidData.into());
    }
    if inbox.len() < end {
        return Ok(None);
    }
    let message = serde_json::from_slice(&inbox[4..end])?;
    inbox.drain(..end);
    Ok(Some(message))
}

/// Paths for a message: not all of them are UTF-8.
pub(super) fn os(paths: impl IntoIterator<Item = PathBuf>) -> Vec<OsString> {
    paths.into_iter().map(PathBuf::into_os_string).collect()
}
