//! What the server tells its helper, and what the helper tells the server.
//!
//! Messages are JSON with their length in front, over the socket that is the helper's standard input. Nothing travels on
//! the command line or in the environment, where others could read it.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

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
/// The hidden argument of the process that becomes pid 1 of a session.
pub(super) const SESSION: &str = "__confine-session";
/// The hidden argument of the process whose Landlock rules hold for all runs of a session with the same rules.
pub(super) const LEADER: &str = "__confine-leader";
/// The hidden argument of the process that makes the mounts of one run in a session.
pub(super) const MOUNTER: &str = "__confine-mounter";
/// The hidden argument of the process that becomes one run in a session.
pub(super) const MEMBER: &str = "__confine-member";
/// The hidden argument of the program that attempts escapes, for escape tests.
pub(super) const ATTEMPT: &str = "__attempt";
/// What stands between the words of two attempts.
pub(super) const NEXT_ATTEMPT: &str = "--";
/// The hidden argument of the step between a helper and a program that may start no other; the program and its name follow.
pub(super) const SINGLE_PROCESS: &str = "__single-process";
/// How that program begins the line that reports a refusal; the errno follows.
pub(super) const REFUSED: &str = "llmc-refused ";
/// Longest message: the arguments and the environment of one command, each byte of them escaped.
const MAX_MESSAGE_BYTES: usize = 16 << 20;

/// What the server writes to the broker for the first process of a run, and of a session.
pub(super) const WANTS_RUN: u8 = b'r';
pub(super) const WANTS_SESSION: u8 = b's';

/// The first message to every helper: what to do before there is a plan.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Start {
    pub(super) features: Features,
    /// What the broker is to stage; from the broker to a run, what is staged.
    pub(super) stage: Option<Stage>,
}

/// The server's first message to a session's first process.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct SessionStart {
    /// Bounds `/tmp`, and `/dev/shm`.
    pub(super) tmp_bytes: u64,
    /// Bounds the processes and threads of the session.
    pub(super) processes: u64,
}

/// Runs of sessions that may each have as many processes as one may, before the kernel refuses more.
pub(super) const SESSION_PROCESSES_FACTOR: u64 = 4;

/// What the server asks of a session.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum SessionRequest {
    /// A slot for a run among the session's processes, under these rules.
    Member(SessionRules),
    /// A slot for a run that has the session's `/tmp` and network, and processes of its own.
    Apart { with_layers: bool },
    /// The helper of a run has gone before its processes: they are ended.
    EndOrphans,
}

/// The Landlock rules of a run in a session. Runs under the same rules can signal and look at each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SessionRules {
    /// Writable places.
    pub(super) write: Vec<OsString>,
    /// Copies of git directories that lie outside them.
    pub(super) git_copies: Vec<OsString>,
    pub(super) has_network: bool,
}

/// Mounts that the broker makes once, for all of its runs.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Stage {
    pub(super) layers: Vec<Layer>,
    /// Where on the disk that is kept what commands write; in memory without.
    pub(super) store: Option<OsString>,
    /// Bounds what is written to layers that are kept in memory.
    pub(super) tmp_bytes: u64,
}

/// A folder that commands write in a private layer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Layer {
    /// The folder, absolute and free of links.
    pub(super) path: OsString,
    /// What it is called among the others; part of a file name.
    pub(super) name: String,
    /// Whether they see what the host has there. Without it they see what they have written, and the host has no such folder.
    pub(super) has_lower: bool,
}

/// Where a layer keeps what commands write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LayerStore {
    /// In the state directory: the next server finds it again.
    Disk,
    /// In the state directory, begun anew: the one before had grown too large or could not be mounted.
    DiskRenewed,
    /// In memory, as there is no state directory or its file system cannot be an upper layer.
    Memory,
    /// In memory, as the disk is full.
    MemoryBecauseFull,
}

/// The message that makes a helper a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Plan {
    pub(super) features: Features,
    pub(super) places: Places,
    pub(super) sockets: Sockets,
    pub(super) limits: Limits,
    pub(super) view: View,
    /// Whether it is one of a session's runs: the session has made its namespaces, but for mounts.
    pub(super) is_member: bool,
    /// Set for a run that changes layers over its writable places, not the places.
    pub(super) layered: Option<LayeredWrites>,
    /// Seconds of processor time per process.
    pub(super) cpu_seconds: Option<u64>,
    /// Where the command starts. The helper already stands there, but on the wrong side of the mounts.
    pub(super) cwd: OsString,
    /// `None` for a probe, which does everything but start something.
    pub(super) target: Option<Target>,
}

impl Plan {
    /// Whether every other process of its process namespace is the run's own.
    pub(super) fn owns_pid_namespace(&self) -> bool {
        self.features.pid && !self.is_member
    }

    /// The rules that a session's leader is to enforce for it.
    pub(super) fn session_rules(&self) -> SessionRules {
        let places = &self.places;
        let is_inside = |dir: &OsString| {
            let mut write = places.write.iter();
            write.any(|place| Path::new(dir).starts_with(place))
        };
        let outside = places.git.iter().filter(|git| !is_inside(&git.git_dir));
        SessionRules {
            write: places.write.clone(),
            git_copies: outside.map(|git| git.top.clone()).collect(),
            has_network: self.sockets != Sockets::Nothing,
        }
    }

    /// Whether the run's renames wait for the server: where it sees copies of git directories.
    pub(super) fn supervises_renames(&self) -> bool {
        self.target.is_some() && self.features.seccomp && !self.places.git.is_empty()
    }
}

/// Which files the run sees in which way. All paths are absolute and free of links.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Places {
    /// Writable.
    pub(super) write: Vec<OsString>,
    /// Directories of the system inside writable places, read-only all the same.
    pub(super) read_only: Vec<OsString>,
    /// Visible and read-only, even below `/tmp`.
    pub(super) read: Vec<OsString>,
    /// Folders around writable places and layers, as visible and read-only.
    pub(super) around: Vec<OsString>,
    /// Mounted onto themselves, so that they cannot be moved away. Outer ones first.
    pub(super) pinned: Vec<OsString>,
    /// Git directories of which the run sees a copy. Outer ones first.
    pub(super) git: Vec<GitMount>,
    /// Made read-only inside a writable place.
    pub(super) kept: Vec<OsString>,
    /// Hidden behind an empty directory.
    pub(super) masked: Vec<OsString>,
    /// All that may be read; everything without.
    pub(super) seen: Option<Vec<OsString>>,
    /// What may not be read where no mount can hide it.
    pub(super) unreadable: Vec<OsString>,
}

/// Layers over writable places, in a file system in memory that ends with the run and its last reader.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct LayeredWrites {
    /// The places, none inside another. The layers of the first are in a directory named `0`, and so on.
    pub(super) places: Vec<OsString>,
    /// Bounds what the layers hold.
    pub(super) bytes: u64,
}

/// In each of those directories: what a run writes, what the kernel needs for that, and what is shown over the place as it is.
pub(super) const UPPER_DIR: &str = "upper";
pub(super) const WORK_DIR: &str = "work";
pub(super) const BASE_DIR: &str = "base";
/// How a failure to make such layers begins.
pub(super) const LAYERED_STEP: &str = "a copy-on-write view: ";

/// A git directory that is shown with a copy of its top level.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct GitMount {
    pub(super) git_dir: OsString,
    /// The copy of the top level, which has a directory wherever one is mounted.
    pub(super) top: OsString,
    /// The copy of `objects/info`.
    pub(super) objects_info: OsString,
    /// Directories below it that the run sees and writes as they are.
    pub(super) direct: Vec<OsString>,
    /// Directories below it that the run sees as they are, read-only.
    pub(super) read_only: Vec<OsString>,
}

/// What of the host a run does not see, or sees otherwise than it is.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct View {
    /// Credentials.
    pub(super) hidden: Vec<HiddenPlace>,
    /// Whether `/run`, where daemons have their sockets, is covered.
    pub(super) private_run: bool,
    /// What `python` in [`LINKS_DIR`] links to; needs a `/run` of the run's own.
    pub(super) python: Option<OsString>,
    /// Sockets of the host elsewhere.
    pub(super) sockets: Vec<OsString>,
    /// The `/tmp` that the run shares with others of its session. Without it the run has one for itself.
    pub(super) tmp: Option<SessionTmp>,
}

/// Where the `/tmp` of a session is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum SessionTmp {
    /// Among the mounts of the session's first process.
    OfSession,
    /// Among the broker's, where there are no sessions; part of a file name.
    Named(String),
}

/// Links to programs under further names, in the run's own `/run`.
pub(super) const LINKS_DIR: &str = "/run/llmc/bin";

/// A folder that is shown empty, or a file that is shown with another text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HiddenPlace {
    pub(super) path: OsString,
    pub(super) text: String,
    /// Whether it is a settings file, of which programs need more than its secrets.
    pub(super) is_settings: bool,
}

/// Which sockets a run may make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Sockets {
    /// Internet sockets: the network is allowed, or a namespace leaves nothing to reach.
    Internet,
    /// Local (`AF_UNIX`) sockets too: the host's are out of reach.
    InternetAndLocal,
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

/// What the helper reports.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Report {
    /// The user namespace exists and waits for its maps.
    Unmapped,
    /// The broker serves. Of each layer, where it is kept; `None` if it could not be made.
    Started { layers: Vec<Option<LayerStore>> },
    /// The broker's answer to a request for a slot; the descriptor of the socket to a new run follows.
    Slot,
    /// A session serves; descriptors of its `/tmp` and, where it has terminals, of their folder follow.
    Session,
    /// The first process of a run in a session has its plan: an earlier run has not killed it while it waited.
    Joined,
    /// The mounts of a run in a session are made; a descriptor of their namespace follows.
    Mounted,
    /// A probe: everything is in force.
    Ready { landlock: Option<u32> },
    /// Whether renames of the run wait for the server's answer; if so, a descriptor follows from which it receives them.
    Renames { are_supervised: bool },
    /// The file system for the layers of a run is there; a descriptor of it follows. The helper mounts them after the server
    /// has answered.
    Layers,
    /// A command that the server must know runs; a descriptor of its process follows. The helper reaps it only after the
    /// server has answered.
    Running,
    /// The helper ends the command because it is over a bound; which one.
    Exceeded(String),
    /// The command ended by itself.
    Exited(i32),
    /// A signal ended the command.
    Killed(i32),
    /// After either of these: processes that the command has started go on.
    Left,
    /// After either of these: the helper is the last process of the run, and exits.
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
    /// The errno.
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

    /// Whether something was not there any more.
    pub(super) fn is_missing_file(&self) -> bool {
        use rustix::io::Errno;
        let missing = [Errno::NOENT, Errno::NOTDIR].map(Errno::raw_os_error);
        self.feature == Some(Feature::MountSpace) && missing.contains(&self.errno)
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

/// A helper that has exited already has sent its failure, which is read later.
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
    if length > MAX_MESSAGE_BYTES {
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
    if end > MAX_MESSAGE_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    if inbox.len() < end {
        return Ok(None);
    }
    let message = serde_json::from_slice(&inbox[4..end])?;
    inbox.drain(..end);
    Ok(Some(message))
}

/// A file name for any text: the same for the same text. Not secret and not proof against forgery.
pub(super) fn file_name_of(text: impl AsRef<OsStr>) -> String {
    // FNV-1a.
    let bytes = text.as_ref().as_encoded_bytes().iter();
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

/// Paths that lie below no other of the list.
pub(super) fn outermost(paths: &[OsString]) -> Vec<&OsStr> {
    let below = |path: &OsStr, other: &OsStr| path != other && Path::new(path).starts_with(other);
    let mut list: Vec<&OsStr> = Vec::new();
    for path in paths {
        let covered = paths.iter().any(|other| below(path, other));
        if !covered && !list.contains(&path.as_os_str()) {
            list.push(path);
        }
    }
    list
}

/// Paths for a message: not all of them are UTF-8.
pub(super) fn os(paths: impl IntoIterator<Item = PathBuf>) -> Vec<OsString> {
    paths.into_iter().map(PathBuf::into_os_string).collect()
}
