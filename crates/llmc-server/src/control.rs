//! How the servers of one workspace know of each other: a socket of each in the state directory.
//!
//! Through it another process of the same user learns what a server is doing, reads what its processes print, ends one,
//! and gets a one-time link to its dashboard. One JSON line asks, one answers. Nothing is written until a process asks, and a
//! server that was killed leaves a socket that refuses connections, which the next reader removes.
//!
//! Commands cannot reach the sockets: they do not see the state directory. Other users cannot enter it.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use llmc_observe::{CallReader, CallScope, TelemetryLocation};
use llmc_tools::{App, Error, ErrorKind, Result, StopTarget};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;

const SUFFIX: &str = ".sock";
/// The longest path that the address of a socket holds, with room to spare.
const MAX_SOCKET_PATH_BYTES: usize = 100;
const MAX_REQUEST_BYTES: u64 = 4096;
const MAX_ANSWER_BYTES: u64 = 4 << 20;
/// How long a request may take, but for one that stops a process.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Stopping waits until the process has ended.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);
/// Servers of one workspace that are asked.
const MAX_SERVERS: usize = 64;
/// How far back sessions are listed.
const SESSIONS_FROM: Duration = Duration::from_secs(24 * 3600);
/// A pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How a server is reached by its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerKind {
    /// `llmc mcp`.
    Stdio,
    /// `llmc serve`.
    Http,
    /// `llmc dashboard`.
    Dashboard,
}

/// What is asked of a server.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase", deny_unknown_fields)]
pub enum ControlRequest {
    /// What it is and what it is doing.
    Status,
    /// What a process or a call prints, from this byte on.
    Output { target: String, offset: u64 },
    /// Ends a process or a call.
    Stop { target: String },
    /// A one-time link to its dashboard.
    Ticket,
}

/// Makes one-time links; none while the dashboard cannot be reached from this machine.
pub(crate) type LinkMaker = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// What a server tells of itself besides its calls and processes.
#[derive(Clone)]
pub(crate) struct ServerFacts {
    pub(crate) kind: ServerKind,
    pub(crate) url: Option<String>,
    pub(crate) link: Option<LinkMaker>,
}

impl std::fmt::Debug for ServerFacts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerFacts")
            .field("kind", &self.kind)
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

/// A server's socket; the file is removed on drop.
#[derive(Debug)]
pub struct ControlSocket {
    path: PathBuf,
    task: JoinHandle<()>,
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        self.task.abort();
        let _ = rustix::fs::unlink(&self.path);
    }
}

impl ControlSocket {
    /// Listens, for a server on standard input and output; must be called on a runtime. There is none without a state
    /// directory, or where no socket can be made.
    pub fn of_stdio(app: &Arc<App>) -> Option<ControlSocket> {
        ControlSocket::open(
            app,
            ServerFacts {
                kind: ServerKind::Stdio,
                url: None,
                link: None,
            },
        )
    }

    pub(crate) fn open(app: &Arc<App>, facts: ServerFacts) -> Option<ControlSocket> {
        let dir = app.servers_dir()?;
        match bind(&dir, app.server_id()) {
            Ok((listener, path)) => {
                let task = tokio::spawn(accept(listener, app.clone(), facts));
                Some(ControlSocket { path, task })
            }
            Err(error) => {
                tracing::warn!(%error, "the dashboard will not see what this server is doing now");
                None
            }
        }
    }
}

fn bind(dir: &Path, id: &str) -> io::Result<(UnixListener, PathBuf)> {
    match std::fs::DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    if !is_own_directory(dir) {
        return Err(io::Error::other("servers is not a directory of this user"));
    }
    let name = format!("{id}{SUFFIX}");
    let address = SocketAddress::of(dir, &name)?;
    let listener = UnixListener::bind(&address.path)?;
    Ok((listener, dir.join(name)))
}

/// Whether this is a directory of this user, and no link that came with the repository.
fn is_own_directory(dir: &Path) -> bool {
    let user = rustix::process::geteuid().as_raw();
    std::fs::symlink_metadata(dir).is_ok_and(|found| found.is_dir() && found.uid() == user)
}

/// A path short enough for the address of a socket.
struct SocketAddress {
    path: PathBuf,
    /// Held while the path is used.
    _dir: Option<rustix::fd::OwnedFd>,
}

impl SocketAddress {
    fn of(dir: &Path, name: &str) -> io::Result<SocketAddress> {
        let path = dir.join(name);
        if path.as_os_str().len() <= MAX_SOCKET_PATH_BYTES {
            return Ok(SocketAddress { path, _dir: None });
        }
        use std::os::fd::AsRawFd;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(dir, flags, rustix::fs::Mode::empty())?;
        let path = PathBuf::from(format!("/proc/self/fd/{}/{name}", dir.as_raw_fd()));
        Ok(SocketAddress {
            path,
            _dir: Some(dir),
        })
    }
}

async fn accept(listener: UnixListener, app: Arc<App>, facts: ServerFacts) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let (app, facts) = (app.clone(), facts.clone());
                tokio::spawn(async move {
                    let limit = ANSWER_TIMEOUT + STOP_TIMEOUT;
                    let _ = tokio::time::timeout(limit, answer(stream, app, facts)).await;
                });
            }
            Err(error) => {
                tracing::debug!(%error, "a control connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn answer(mut stream: UnixStream, app: Arc<App>, facts: ServerFacts) -> io::Result<()> {
    let peer = stream.peer_cred()?;
    if peer.uid() != rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    let (input, mut output) = stream.split();
    let mut line = Vec::new();
    let mut input = tokio::io::BufReader::new(input.take(MAX_REQUEST_BYTES));
    input.read_until(b'\n', &mut line).await?;
    let asked = serde_json::from_slice::<ControlRequest>(&line);
    let answered = match asked {
        Err(_) => Err(Error::bad_args("no such request")),
        Ok(request) => {
            let work = move || carry_out(&app, &facts, CallScope::All, request);
            let failed = |_| Error::new(ErrorKind::Internal, "the request failed");
            tokio::task::spawn_blocking(work)
                .await
                .map_err(failed)
                .flatten()
        }
    };
    let body = match answered {
        Ok(value) => json!({"ok": value}),
        Err(error) => json!({"error": {
            "kind": error.kind.row().http_code, "message": error.message, "hint": error.hint,
        }}),
    };
    output.write_all(format!("{body}\n").as_bytes()).await
}

/// Does what a request asks, for those who may see this much.
pub(crate) fn carry_out(
    app: &App,
    facts: &ServerFacts,
    scope: CallScope<'_>,
    request: ControlRequest,
) -> Result<Value> {
    match request {
        ControlRequest::Status => Ok(status(app, facts, scope)),
        ControlRequest::Output { target, offset } => {
            app.running_output(scope, &parse_target(&target)?, offset)
        }
        ControlRequest::Stop { target } => app.stop_running(scope, &parse_target(&target)?),
        ControlRequest::Ticket => {
            let link = facts.link.as_ref().and_then(|link| link());
            let link = link.ok_or_else(|| {
                Error::new(
                    ErrorKind::NotFound,
                    "this server has no dashboard on this machine",
                )
            })?;
            Ok(json!({"link": link}))
        }
    }
}

/// What a server is and what it is doing.
pub(crate) fn status(app: &App, facts: &ServerFacts, scope: CallScope<'_>) -> Value {
    let mut status = app.activity(scope);
    status["id"] = app.server_id().into();
    status["kind"] = json!(facts.kind);
    status["pid"] = std::process::id().into();
    status["version"] = env!("CARGO_PKG_VERSION").into();
    status["uptime_s"] = app.started().elapsed().as_secs().into();
    status["url"] = json!(facts.url);
    status
}

/// `p_…` is a process, `c12` a call.
pub(crate) fn parse_target(text: &str) -> Result<StopTarget> {
    let number = text
        .strip_prefix('c')
        .and_then(|digits| digits.parse().ok());
    match number {
        Some(number) => Ok(StopTarget::Call(number)),
        None if text.starts_with("p_") => Ok(StopTarget::Process(text.to_owned())),
        None => Err(Error::bad_args("name a process (p_…) or a call (c12)")),
    }
}

/// The ids of the servers that have a socket; some may have ended meanwhile.
pub fn listed_servers(dir: &Path) -> Vec<String> {
    if !is_own_directory(dir) {
        return Vec::new();
    }
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let ids = names.filter_map(|name| name.strip_suffix(SUFFIX).map(str::to_owned));
    let mut ids: Vec<String> = ids.take(MAX_SERVERS).collect();
    ids.sort();
    ids
}

/// Asks one server; `None` if it has ended.
///
/// # Errors
/// It does not answer, or refuses.
pub fn ask_server(dir: &Path, id: &str, request: &ControlRequest) -> Result<Option<Value>> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if id.is_empty() || id.len() > 64 || !id.bytes().all(plain) {
        return Err(Error::bad_args("no such server"));
    }
    if !is_own_directory(dir) {
        return Ok(None);
    }
    let silent = |error: io::Error| {
        Error::new(
            ErrorKind::TimedOut,
            format!("server {id} does not answer: {error}"),
        )
    };
    let name = format!("{id}{SUFFIX}");
    let connected =
        SocketAddress::of(dir, &name).and_then(|address| BlockingStream::connect(&address.path));
    let mut stream = match connected {
        Ok(stream) => stream,
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            // It was killed.
            let _ = rustix::fs::unlink(dir.join(&name));
            return Ok(None);
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(silent(error)),
    };
    let timeout = match request {
        ControlRequest::Stop { .. } => STOP_TIMEOUT,
        _ => ANSWER_TIMEOUT,
    };
    let mut line = String::new();
    let exchanged = (|| {
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        writeln!(stream, "{}", json!(request))?;
        BufReader::new(&stream)
            .take(MAX_ANSWER_BYTES)
            .read_line(&mut line)
    })();
    exchanged.map_err(silent)?;
    let mut answer: Value = serde_json::from_str(&line)
        .map_err(|_| silent(io::Error::other("the answer is cut off")))?;
    if let Some(error) = answer.get("error") {
        let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
        let kind = match error["kind"].as_str() {
            Some("NOT_FOUND") => ErrorKind::NotFound,
            Some("BAD_ARGS") => ErrorKind::BadArgs,
            Some("TIMEOUT") => ErrorKind::TimedOut,
            _ => ErrorKind::Internal,
        };
        return Err(Error::new(kind, text("message")));
    }
    Ok(Some(answer["ok"].take()))
}

/// What every server of a workspace on this machine is doing, and the sessions of the last day, in the form of
/// `/api/activity`.
pub fn workspace_activity(state_dir: &Path, telemetry: Option<&TelemetryLocation>) -> Value {
    let servers = others(&state_dir.join("servers"), "");
    let sessions = telemetry.map(|location| sessions(location, CallScope::All));
    json!({"servers": servers, "sessions": sessions.unwrap_or_default()})
}

/// The state of every server but this one; of one that does not answer, why.
pub(crate) fn others(dir: &Path, own: &str) -> Vec<Value> {
    let asked = ask_others(dir, own, &ControlRequest::Status).into_iter();
    let state = |(id, answer): (String, Result<Value>)| match answer {
        Ok(status) => status,
        Err(error) => json!({"id": id, "error": error.message}),
    };
    asked.map(state).collect()
}

/// Who has called in the last day, the latest first, with the last call of each.
pub(crate) fn sessions(telemetry: &TelemetryLocation, scope: CallScope<'_>) -> Vec<Value> {
    let reader = CallReader::new(telemetry.clone());
    let found = reader.sessions(SESSIONS_FROM, scope).unwrap_or_default();
    let sessions = found.iter().map(|session| {
        let mut value = json!(session.totals);
        let last = &session.last;
        for (key, text) in [
            ("server", &last.server),
            ("agent", &last.agent),
            ("session", &last.session),
            ("model", &last.model),
            ("principal", &last.principal),
        ] {
            value[key] = text.as_str().into();
        }
        value["client"] = json!(last.client);
        value["first"] = format!("{:.0}", session.first).into();
        value["last_call"] = json!(last);
        value
    });
    sessions.collect()
}

/// Asks every server but this one, at the same time.
fn ask_others(dir: &Path, own: &str, request: &ControlRequest) -> Vec<(String, Result<Value>)> {
    let ids = listed_servers(dir);
    let ids: Vec<&String> = ids.iter().filter(|id| *id != own).collect();
    std::thread::scope(|scope| {
        let asked: Vec<_> = (ids.into_iter())
            .map(|id| (id, scope.spawn(move || ask_server(dir, id, request))))
            .collect();
        let answers = asked.into_iter().filter_map(|(id, answer)| {
            let answer = answer.join().ok()?.transpose()?;
            Some((id.clone(), answer))
        });
        answers.collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_processes_and_calls() {
        assert_eq!(parse_target("c12").unwrap(), StopTarget::Call(12));
        let process = StopTarget::Process("p_1a2b".to_owned());
        assert_eq!(parse_target("p_1a2b").unwrap(), process);
        for bad in ["", "12", "c", "c-1", "x"] {
            assert!(parse_target(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_socket_that_nobody_listens_on_is_removed_and_other_names_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("12-a.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert_eq!(listed_servers(dir.path()), ["12-a"]);
        let asked = ask_server(dir.path(), "12-a", &ControlRequest::Status);
        assert_eq!(asked.unwrap(), None);
        assert!(!path.exists());
        for bad in ["../x", "", "a/b", "a.b"] {
            assert!(ask_server(dir.path(), bad, &ControlRequest::Status).is_err());
        }
    }

    #[test]
    fn a_long_path_has_an_address_too() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("d".repeat(120));
        std::fs::create_dir(&deep).unwrap();
        let address = SocketAddress::of(&deep, "1-a.sock").unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(&address.path).unwrap();
        assert!(deep.join("1-a.sock").exists());
        let address = SocketAddress::of(&deep, "1-a.sock").unwrap();
        BlockingStream::connect(&address.path).unwrap();
    }
}
