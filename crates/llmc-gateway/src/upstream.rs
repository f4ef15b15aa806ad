//! One upstream: started by its first call, stopped when idle, started again when it has ended.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use llmc_exec::{ExecRequest, RunOwner, Runner, Settings};
use llmc_host::{OpenDir, PathRules, Roots, lock};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::answer::UpstreamAnswer;
use crate::child::ChildProcess;
use crate::connection::{CallTerms, Connection, Generation, Link, START_TIMEOUT};
use crate::error::{Error, Result, quoted};
use crate::http::{HttpLaunch, HttpLink};
use crate::param_headers::param_headers;
use crate::pins::{PinReader, PinnedTools};
use crate::places::{lies_in, planted_argument};
use crate::request::ProgressSink;
use crate::user::{AskUser, CallUser};

/// The wait after a first failure; it doubles with each further one.
const FIRST_BACKOFF: Duration = Duration::from_millis(500);
const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// Values of environment variables that are shorter are not taken for secrets.
const MIN_SECRET_CHARS: usize = 6;

/// How an upstream is started or reached.
#[derive(Debug)]
pub enum Launch {
    /// A program that speaks over its standard input and output.
    Child(Box<ChildLaunch>),
    /// A server at an address.
    Http(HttpLaunch),
}

/// A program to start.
#[derive(Debug, Clone)]
pub struct ChildLaunch {
    /// Its caches are kept under this name, apart from those of commands and of other upstreams.
    pub name: String,
    /// What bounds it.
    pub settings: Settings,
    /// Folders that agents write. A program that lies there is started only confined.
    pub writable: Vec<PathBuf>,
    pub confined: bool,
    pub argv: Vec<String>,
    /// Variables beside those of commands.
    pub env: Vec<(String, String)>,
    /// Where it starts.
    pub cwd: PathBuf,
}

/// What a call wants of a server.
#[derive(Debug, Clone, Copy)]
pub enum UpstreamRequest<'a> {
    /// One of its tools.
    Tool {
        /// As the server calls it.
        name: &'a str,
        /// The hash of the tool by which the caller's rights were decided.
        hash: &'a str,
        args: &'a Map<String, Value>,
    },
    /// The list of its resources.
    Resources,
    ReadResource {
        uri: &'a str,
    },
    /// The list of its prompts.
    Prompts,
    Prompt {
        name: &'a str,
        args: &'a Map<String, Value>,
    },
}

/// A call.
#[derive(Clone)]
pub struct UpstreamCall<'a> {
    pub request: UpstreamRequest<'a>,
    /// How long it may take from `since` on, whatever it waits for but the user.
    pub timeout: Duration,
    pub since: Instant,
    pub cancel: &'a CancellationToken,
    pub progress: Option<ProgressSink>,
    /// Asks the user what the server wants to know; none where that user cannot be asked.
    pub ask_user: Option<AskUser>,
}

/// How an upstream is doing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UpstreamHealth {
    pub running: bool,
    pub starts: u64,
    pub calls: u64,
    pub failures: u64,
    pub last_error: Option<String>,
    /// Tools that are withheld because they are not as the user accepted them.
    pub withheld: Vec<String>,
}

/// One upstream of this server.
#[derive(Debug)]
pub struct Upstream {
    launch: Launch,
    idle: Duration,
    pins: PinReader,
    slot: tokio::sync::Mutex<Slot>,
    health: Mutex<UpstreamHealth>,
}

#[derive(Debug, Default)]
struct Slot {
    live: Option<Arc<Live>>,
    failures: u32,
    /// Not started again before, and why it failed.
    retry_at: Option<(Instant, String)>,
}

/// A connection, and what of it may be called.
#[derive(Debug)]
struct Live {
    connection: Connection,
    /// What the server lists now.
    tools: Mutex<PinnedTools>,
    /// It let a call run out of time: whether it still answers is asked before the next.
    is_suspect: AtomicBool,
    /// Its list has changed and was not read again yet.
    is_stale: AtomicBool,
    /// It is not to be used any more.
    is_over: AtomicBool,
}

impl Live {
    fn is_open(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed) && self.connection.is_open()
    }
}

impl Upstream {
    /// An upstream that is not started yet. `pin_file` records what the user has accepted of it.
    pub fn new(launch: Launch, idle: Duration, pin_file: PathBuf) -> Upstream {
        Upstream {
            launch,
            idle,
            pins: PinReader::new(pin_file),
            slot: tokio::sync::Mutex::default(),
            health: Mutex::default(),
        }
    }

    /// How it is doing, without waiting for a call that is about to start it.
    pub fn health(&self) -> UpstreamHealth {
        let mut health = lock(&self.health).clone();
        if let Ok(slot) = self.slot.try_lock() {
            let is_open = |live: &Arc<Live>| live.is_open();
            health.running = slot.live.as_ref().is_some_and(is_open);
        }
        health
    }

    /// Starts the server if it is not running, and asks it for its tools as they are now.
    ///
    /// # Errors
    /// It cannot be started, or does not answer.
    pub async fn list(&self, cancel: &CancellationToken) -> Result<PinnedTools> {
        let live = self.live(false, cancel).await?;
        let tools = lock(&live.tools).clone();
        Ok(tools)
    }

    /// Carries out a call; a tool is not called unless it is as the user has accepted it.
    ///
    /// # Errors
    /// The server cannot be started, ends, or gives no answer in time; the tool is withheld.
    pub async fn call(&self, call: UpstreamCall<'_>) -> Result<UpstreamAnswer> {
        lock(&self.health).calls += 1;
        let answered = self.attempt(&call).await;
        if let Err(error) = &answered {
            self.note_failure(error);
        }
        answered
    }

    /// Text of the server without the values that it was given to keep: those of its variables and headers.
    pub fn masked(&self, text: String) -> String {
        let given = match &self.launch {
            Launch::Child(child) => &child.env,
            Launch::Http(http) => &http.headers,
        };
        secrets(given).fold(text, |text, secret| text.replace(secret, "***"))
    }

    /// Stops it; the next call starts it again.
    pub async fn stop(&self) {
        self.slot.lock().await.live = None;
        lock(&self.health).running = false;
    }

    async fn attempt(&self, call: &UpstreamCall<'_>) -> Result<UpstreamAnswer> {
        let deadline = call.since + call.timeout;
        // Others may be starting the server, so waiting for it ends like the call itself.
        let live = tokio::select! {
            biased;
            () = call.cancel.cancelled() => return Err(Error::Cancelled),
            () = tokio::time::sleep_until(deadline.into()) => return Err(Error::TimedOut(call.timeout)),
            live = self.ready(call) => live?,
        };
        let terms = CallTerms {
            timeout: call.timeout,
            since: call.since,
            cancel: call.cancel,
            progress: call.progress.clone(),
            user: Arc::new(CallUser::new(call.ask_user.clone())),
        };
        let connection = &live.connection;
        let answered = match call.request {
            UpstreamRequest::Tool { name, args, .. } => {
                let headers = match connection.sends_headers() {
                    true => {
                        let tools = lock(&live.tools);
                        let tool = tools.find(name);
                        tool.map(|tool| param_headers(&tool.input_schema, args))
                    }
                    false => None,
                };
                let headers = headers.unwrap_or_default();
                let params = json!({"name": name, "arguments": args});
                let called = connection.call("tools/call", params, headers, &terms).await;
                called.and_then(UpstreamAnswer::of_result)
            }
            UpstreamRequest::Resources => connection.resources(&terms).await,
            UpstreamRequest::ReadResource { uri } => connection.read_resource(uri, &terms).await,
            UpstreamRequest::Prompts => connection.prompts(&terms).await,
            UpstreamRequest::Prompt { name, args } => connection.prompt(name, args, &terms).await,
        };
        match answered {
            Ok(answer) => {
                if let Ok(mut slot) = self.slot.try_lock() {
                    slot.failures = 0;
                }
                Ok(answer)
            }
            Err(Error::TimedOut(_)) => {
                live.is_suspect.store(true, Ordering::Relaxed);
                Err(Error::TimedOut(call.timeout))
            }
            Err(Error::Refused { code, message }) => {
                // New credentials are read when a connection is made.
                if matches!(code, 401 | 403) {
                    self.let_go(&live);
                }
                Err(Error::Refused {
                    code,
                    message: self.masked(message),
                })
            }
            Err(error) => {
                if error.ends_connection() {
                    self.let_go(&live);
                }
                Err(error)
            }
        }
    }

    /// The running server with its list as it is now, if the tool may be called.
    async fn ready(&self, call: &UpstreamCall<'_>) -> Result<Arc<Live>> {
        let live = self.live(call.ask_user.is_some(), call.cancel).await?;
        if live.connection.take_list_changed() {
            // Another call looks again if this one does not get to the end.
            live.is_stale.store(true, Ordering::Relaxed);
        }
        if live.is_stale.load(Ordering::Relaxed) {
            match live.connection.list_tools(call.cancel).await {
                Ok(listed) => *lock(&live.tools) = listed,
                Err(error) => {
                    if error.ends_connection() {
                        self.let_go(&live);
                    }
                    return Err(error);
                }
            }
            live.is_stale.store(false, Ordering::Relaxed);
        }
        if let UpstreamRequest::Tool { name, hash, .. } = call.request {
            self.check_accepted(&live, name, hash)?;
        }
        Ok(live)
    }

    /// Ends a connection that is of no use, and no other that has taken its place.
    fn let_go(&self, live: &Arc<Live>) {
        live.is_over.store(true, Ordering::Relaxed);
        if let Ok(mut slot) = self.slot.try_lock()
            && slot.live.as_ref().is_some_and(|own| Arc::ptr_eq(own, live))
        {
            slot.live = None;
            lock(&self.health).running = false;
        }
    }

    /// Compares a tool with the record, which another process may have changed meanwhile.
    fn check_accepted(&self, live: &Live, tool: &str, hash: &str) -> Result<()> {
        let tools = lock(&live.tools);
        let Some(now) = tools.find(tool) else {
            return Err(Error::Gone(quoted(tool)));
        };
        let pins = self.pins.load()?;
        let (changed, words) = match pins.find(tool) {
            Some(accepted) if accepted.hash == now.hash && now.hash == hash => {
                (false, String::new())
            }
            // Rights and descriptions of this process are those of the tool as it was accepted before.
            Some(accepted) if accepted.hash == now.hash => (
                true,
                "was accepted anew; restart this server to call it".to_owned(),
            ),
            Some(_) => (true, "changed since the user accepted it".to_owned()),
            None => (true, "was never accepted by the user".to_owned()),
        };
        let mut health = lock(&self.health);
        health.withheld.retain(|name| name != tool);
        if !changed {
            return Ok(());
        }
        health.withheld.push(tool.to_owned());
        Err(Error::Withheld(format!("{} {words}", quoted(tool))))
    }

    /// The running server; started if there is none. `can_ask` is announced to one that is started.
    async fn live(&self, can_ask: bool, cancel: &CancellationToken) -> Result<Arc<Live>> {
        let mut slot = self.slot.lock().await;
        if let Some(live) = slot.live.as_ref().filter(|live| live.is_open())
            && (!live.is_suspect.swap(false, Ordering::Relaxed)
                || live.connection.is_answering().await)
        {
            return Ok(live.clone());
        }
        slot.live = None;
        if let Some((at, last)) = &slot.retry_at {
            let wait = at.saturating_duration_since(Instant::now());
            if !wait.is_zero() {
                return Err(Error::Waiting {
                    failures: slot.failures,
                    wait,
                    last: last.clone(),
                });
            }
        }
        let started = tokio::time::timeout(START_TIMEOUT, self.start(can_ask, cancel)).await;
        match started.unwrap_or(Err(Error::TimedOut(START_TIMEOUT))) {
            Ok(live) => {
                let live = Arc::new(live);
                slot.live = Some(live.clone());
                slot.retry_at = None;
                let mut health = lock(&self.health);
                health.running = true;
                health.starts += 1;
                Ok(live)
            }
            Err(Error::Cancelled) => Err(Error::Cancelled),
            Err(error) => {
                let doubled = FIRST_BACKOFF.saturating_mul(1 << slot.failures.min(10));
                slot.failures = slot.failures.saturating_add(1);
                slot.retry_at =
                    Some((Instant::now() + doubled.min(MAX_BACKOFF), error.to_string()));
                Err(error)
            }
        }
    }

    async fn start(&self, can_ask: bool, cancel: &CancellationToken) -> Result<Live> {
        let link = match &self.launch {
            Launch::Child(child) => {
                // Finding out what the kernel gives and starting a program block.
                let (child, idle) = (child.clone(), self.idle);
                let started = tokio::task::spawn_blocking(move || start_child(&child, idle));
                let child = started
                    .await
                    .map_err(|error| Error::NotStarted(error.to_string()))??;
                Link::Child(Box::new(child))
            }
            Launch::Http(launch) => Link::Http(HttpLink::new(launch)?),
        };
        // A record that cannot be read is reported by what needs it.
        let pins = self.pins.load().unwrap_or_default();
        let first = Generation::of_revision(pins.revision.as_deref());
        let connection = Connection::open(link, first, can_ask, cancel).await?;
        let tools = connection.list_tools(cancel).await?;
        Ok(Live {
            connection,
            tools: Mutex::new(tools),
            is_suspect: AtomicBool::new(false),
            is_stale: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        })
    }

    fn note_failure(&self, error: &Error) {
        let mut health = lock(&self.health);
        health.failures += 1;
        health.last_error = Some(error.to_string());
    }
}

/// Values that are long enough to be secrets.
fn secrets(given: &[(String, String)]) -> impl Iterator<Item = &str> {
    let values = given.iter().map(|(_, value)| value.as_str());
    values.filter(|value| value.chars().count() >= MIN_SECRET_CHARS)
}

fn start_child(child: &ChildLaunch, idle: Duration) -> Result<ChildProcess> {
    let failed = |error: &dyn std::fmt::Display| Error::NotStarted(quoted(&error.to_string()));
    let dir = open_dir(&child.cwd).map_err(|error| failed(&error))?;
    let runner = Runner::open(child.settings.clone()).map_err(|error| failed(&error))?;
    if !child.confined {
        let asked = child.argv.first().map_or("", String::as_str);
        let program = runner.resolve(asked, &child.cwd);
        let path = program.map_err(|error| failed(&error))?.path;
        let planted = match lies_in(&path, &child.writable) {
            true => Some(path),
            false => planted_argument(&child.argv, &child.cwd, &child.writable),
        };
        if let Some(planted) = planted {
            return Err(Error::NotStarted(format!(
                "{} lies in a folder that agents write, and this server has your own rights; confine it (remove \
                 `confine = false`), or move the file to a folder that agents do not write",
                quoted(&planted.display().to_string())
            )));
        }
    }
    let secrets = secrets(&child.env).map(str::to_owned);
    // Private caches belong to a principal; what commands leave in theirs is no program of an upstream.
    let principal = format!("upstream:{}", child.name);
    let request = ExecRequest {
        env: &child.env,
        owner: RunOwner {
            principal: &principal,
            session: "",
            ..RunOwner::default()
        },
        ..ExecRequest::new(&child.argv, &dir, Duration::MAX)
    };
    ChildProcess::start(runner, &request, idle, secrets.collect())
}

/// The folder that a program starts in; it need not lie in the workspace.
fn open_dir(path: &std::path::Path) -> llmc_host::Result<OpenDir> {
    let rules = Arc::new(PathRules::new(None, Vec::new()));
    let roots = Roots::open(path, &[path.to_owned()], rules)?;
    roots.open_dir(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_call_that_waits_for_a_start_ends_when_it_is_cancelled_or_out_of_time() {
        let launch = HttpLaunch {
            url: "http://127.0.0.1:9/mcp".to_owned(),
            headers: Vec::new(),
            token_file: None,
        };
        let upstream = Upstream::new(Launch::Http(launch), Duration::MAX, PathBuf::from("/none"));
        let starting = upstream.slot.lock().await;
        let (cancelled, patient) = (CancellationToken::new(), CancellationToken::new());
        cancelled.cancel();
        let call = |timeout_s, cancel| UpstreamCall {
            request: UpstreamRequest::Resources,
            timeout: Duration::from_secs(timeout_s),
            since: Instant::now(),
            cancel,
            progress: None,
            ask_user: None,
        };
        let ended = async {
            assert_eq!(
                upstream.call(call(600, &cancelled)).await,
                Err(Error::Cancelled)
            );
            let late = upstream.call(call(0, &patient)).await;
            assert_eq!(late, Err(Error::TimedOut(Duration::ZERO)));
        };
        tokio::time::timeout(Duration::from_secs(60), ended)
            .await
            .unwrap();
        drop(starting);
    }
}
