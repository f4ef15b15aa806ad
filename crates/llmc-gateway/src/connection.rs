//! A connection to an upstream: the handshake, its list of tools, calls.
//!
//! Servers of revisions up to 2025-11-25 begin with `initialize`; those of 2026-07-28 have no handshake, answer
//! `server/discover`, and want who asks in every request. The handshake is tried first, because most servers know nothing
//! else, and a server that refuses it is asked the other way.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::child::ChildProcess;
use crate::error::{Error, Result, quoted};
use crate::http::HttpLink;
use crate::pins::{PinList, PinnedTools};
use crate::request::{ProgressSink, Request};

/// The newest revision with a handshake.
const HANDSHAKE_REVISION: &str = "2025-11-25";
/// The revision without one.
const STATELESS_REVISION: &str = "2026-07-28";
/// Pages of a list of tools; a server that has more is cut there.
const MAX_LIST_PAGES: usize = 200;
/// How long each request of the handshake and of the list may take. A server that `npx` has to load first is slow.
pub(crate) const START_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a server that let a call run out of time may take to show that it still answers.
const PING_TIMEOUT: Duration = Duration::from_secs(2);

/// How messages reach an upstream.
#[derive(Debug)]
pub(crate) enum Link {
    Child(Box<ChildProcess>),
    Http(HttpLink),
}

impl Link {
    async fn request(&self, request: Request<'_>) -> Result<Value> {
        // What is over already is not sent.
        if request.cancel.is_cancelled() {
            return Err(Error::Cancelled);
        }
        if request.timeout.is_zero() {
            return Err(Error::TimedOut(request.timeout));
        }
        match self {
            Link::Child(child) => child.request(request).await,
            Link::Http(http) => http.request(request).await,
        }
    }

    async fn notify(&self, method: &str, params: Value) -> Result<()> {
        match self {
            Link::Child(child) => child.notify(method, params),
            Link::Http(http) => http.notify(method, params).await,
        }
    }

    /// Sets the revision that the transport names from now on.
    fn agree_on(&self, revision: &'static str) {
        if let Link::Http(http) = self {
            http.agree_on(revision);
        }
    }
}

/// What requests of the server's revision carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Generation {
    /// Nothing: the handshake has said it.
    Handshake,
    /// Revision and client, each time.
    Stateless,
}

/// A server that has answered.
#[derive(Debug)]
pub(crate) struct Connection {
    link: Link,
    generation: Generation,
    /// Name and version, as the server gives them.
    pub(crate) server: String,
    next_id: AtomicU64,
}

/// A call of a tool.
pub(crate) struct ToolCall<'a> {
    pub(crate) name: &'a str,
    pub(crate) args: &'a Map<String, Value>,
    pub(crate) timeout: Duration,
    pub(crate) cancel: &'a CancellationToken,
    pub(crate) progress: Option<ProgressSink>,
}

impl Connection {
    /// Greets the server.
    pub(crate) async fn open(link: Link, cancel: &CancellationToken) -> Result<Connection> {
        let mut connection = Connection {
            link,
            generation: Generation::Handshake,
            server: String::new(),
            next_id: AtomicU64::new(1),
        };
        let hello = json!({
            "protocolVersion": HANDSHAKE_REVISION,
            "capabilities": {},
            "clientInfo": client_info(),
        });
        match connection.ask("initialize", hello, cancel).await {
            Ok(answer) => {
                connection.server = server_name(&answer["serverInfo"]);
                connection.link.agree_on(agreed(&answer["protocolVersion"]));
                connection
                    .link
                    .notify("notifications/initialized", json!({}))
                    .await?;
            }
            // Wrong credentials are wrong either way.
            Err(
                error @ Error::Refused {
                    code: 401 | 403, ..
                },
            ) => return Err(error),
            Err(Error::Refused { .. }) => {
                connection.generation = Generation::Stateless;
                connection.link.agree_on(STATELESS_REVISION);
                let answer = connection.ask("server/discover", json!({}), cancel).await?;
                connection.server = server_name(&answer["serverInfo"]);
            }
            Err(error) => return Err(error),
        }
        Ok(connection)
    }

    /// All tools that the server lists.
    pub(crate) async fn list_tools(&self, cancel: &CancellationToken) -> Result<PinnedTools> {
        let mut list = PinList::new(self.server.clone());
        let mut params = json!({});
        for _ in 0..MAX_LIST_PAGES {
            let page = self.ask("tools/list", params, cancel).await?;
            let Some(tools) = page.get("tools").and_then(Value::as_array) else {
                return Err(Error::Protocol("a list of tools without tools".to_owned()));
            };
            list.add(tools);
            match page["nextCursor"].as_str() {
                Some(_) if list.is_full() => break,
                Some(cursor) => params = json!({"cursor": cursor}),
                None => break,
            }
        }
        Ok(list.finish())
    }

    /// Calls a tool; the result as the server sends it.
    pub(crate) async fn call_tool(&self, call: ToolCall<'_>) -> Result<Value> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let mut params = json!({"name": call.name, "arguments": call.args});
        if call.progress.is_some() {
            params["_meta"] = json!({"progressToken": id});
        }
        let result = self
            .link
            .request(Request {
                id,
                message: self.message(id, "tools/call", params),
                timeout: call.timeout,
                cancel: call.cancel,
                progress: call.progress,
            })
            .await?;
        match result.get("resultType").and_then(Value::as_str) {
            None | Some("complete") => Ok(result),
            Some(kind) => Err(Error::Protocol(format!(
                "it asks for {}, which is not offered here",
                quoted(kind)
            ))),
        }
    }

    /// Whether calls can still be answered.
    pub(crate) fn is_open(&self) -> bool {
        match &self.link {
            Link::Child(child) => child.is_running(),
            Link::Http(http) => http.is_open(),
        }
    }

    /// Whether the server has said that its list changed, since this was last asked.
    pub(crate) fn take_list_changed(&self) -> bool {
        match &self.link {
            Link::Child(child) => child.take_list_changed(),
            Link::Http(http) => http.take_list_changed(),
        }
    }

    /// Whether the server still reads and answers; one that refuses the question does.
    pub(crate) async fn is_answering(&self) -> bool {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let request = Request {
            id,
            message: self.message(id, "ping", json!({})),
            timeout: PING_TIMEOUT,
            cancel: &CancellationToken::new(),
            progress: None,
        };
        matches!(
            self.link.request(request).await,
            Ok(_) | Err(Error::Refused { .. })
        )
    }

    async fn ask(&self, method: &str, params: Value, cancel: &CancellationToken) -> Result<Value> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let request = Request {
            id,
            message: self.message(id, method, params),
            timeout: START_TIMEOUT,
            cancel,
            progress: None,
        };
        self.link.request(request).await
    }

    fn message(&self, id: u64, method: &str, mut params: Value) -> Value {
        if self.generation == Generation::Stateless {
            let about = [
                ("protocolVersion", json!(STATELESS_REVISION)),
                ("clientInfo", client_info()),
                ("clientCapabilities", json!({})),
            ];
            for (key, value) in about {
                params["_meta"][format!("io.modelcontextprotocol/{key}")] = value;
            }
        }
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
    }
}

/// The revision that a server has answered with, as far as it is known here.
fn agreed(version: &Value) -> &'static str {
    let known = ["2025-03-26", "2025-06-18", HANDSHAKE_REVISION];
    let mut known = known.into_iter();
    let found = known.find(|revision| version.as_str() == Some(revision));
    found.unwrap_or(HANDSHAKE_REVISION)
}

fn client_info() -> Value {
    json!({"name": "llmc", "version": env!("CARGO_PKG_VERSION")})
}

fn server_name(info: &Value) -> String {
    let part = |key: &str| quoted(info[key].as_str().unwrap_or_default());
    format!("{} {}", part("name"), part("version"))
        .trim()
        .to_owned()
}
