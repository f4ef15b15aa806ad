//! A connection to an upstream: the handshake, its list of tools, requests of calls.
//!
//! Servers of revisions up to 2025-11-25 begin with `initialize`; those of 2026-07-28 have no handshake, answer
//! `server/discover`, and want who asks in every request. The handshake is tried first, because most servers know nothing
//! else, unless the record of a server says that it spoke the other way. A server that refuses one is asked the other way.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::child::ChildProcess;
use crate::error::{Error, Result, quoted};
use crate::http::HttpLink;
use crate::param_headers::has_valid_marks;
use crate::pins::{PinList, PinnedTools};
use crate::request::{ProgressSink, Request};
use crate::user::CallUser;

/// The newest revision with a handshake.
const HANDSHAKE_REVISION: &str = "2025-11-25";
/// The revision without one.
pub(crate) const STATELESS_REVISION: &str = "2026-07-28";
/// Pages of a list; a server that has more is cut there.
pub(crate) const MAX_LIST_PAGES: usize = 200;
/// How long each request of the handshake and of the list may take. A server that `npx` has to load first is slow.
pub(crate) const START_TIMEOUT: Duration = Duration::from_secs(60);
/// How often a server may ask back before it answers a call.
const MAX_ROUNDS: usize = 20;

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

    /// Sets the revision that the transport names from now on; none before one is agreed on.
    fn agree_on(&self, revision: Option<&'static str>) {
        if let Link::Http(http) = self {
            http.agree_on(revision);
        }
    }
}

/// What requests of the server's revision carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Generation {
    /// Nothing: the handshake has said it.
    Handshake,
    /// Revision and client, each time.
    Stateless,
}

impl Generation {
    /// The one of a revision in a record.
    pub(crate) fn of_revision(revision: Option<&str>) -> Generation {
        match revision {
            Some(STATELESS_REVISION) => Generation::Stateless,
            _ => Generation::Handshake,
        }
    }

    fn other(self) -> Generation {
        match self {
            Generation::Handshake => Generation::Stateless,
            Generation::Stateless => Generation::Handshake,
        }
    }
}

/// A server that has answered.
#[derive(Debug)]
pub(crate) struct Connection {
    link: Link,
    generation: Generation,
    /// As agreed on.
    revision: &'static str,
    /// Name and version, as the server gives them.
    server: String,
    has_resources: bool,
    has_prompts: bool,
    next_id: AtomicU64,
}

/// Under which terms the requests of one call are made.
pub(crate) struct CallTerms<'a> {
    /// How long the server may take for all of them from `since` on.
    pub(crate) timeout: Duration,
    pub(crate) since: Instant,
    pub(crate) cancel: &'a CancellationToken,
    pub(crate) progress: Option<ProgressSink>,
    pub(crate) user: Arc<CallUser>,
}

impl CallTerms<'_> {
    fn remaining(&self) -> Duration {
        let all = self.timeout + self.user.time_taken();
        all.saturating_sub(self.since.elapsed())
    }
}

impl Connection {
    /// Greets the server, `first` in this way. `can_ask` tells it that there is a user to be asked.
    pub(crate) async fn open(
        link: Link,
        first: Generation,
        can_ask: bool,
        cancel: &CancellationToken,
    ) -> Result<Connection> {
        let mut connection = Connection {
            link,
            generation: first,
            revision: STATELESS_REVISION,
            server: String::new(),
            has_resources: false,
            has_prompts: false,
            next_id: AtomicU64::new(1),
        };
        match connection.greet(can_ask, cancel).await {
            // A server may name the revision that it was asked in; asking again is what the protocol wants.
            Err(Error::OtherRevision { supported })
                if supported.iter().any(|known| known == STATELESS_REVISION) =>
            {
                connection.generation = Generation::Stateless;
            }
            // Wrong credentials are wrong either way.
            Err(
                error @ Error::Refused {
                    code: 401 | 403, ..
                },
            ) => return Err(error),
            Err(Error::Refused { .. } | Error::OtherRevision { .. }) => {
                connection.generation = first.other();
            }
            greeted => return greeted.map(|()| connection),
        }
        connection.greet(can_ask, cancel).await?;
        Ok(connection)
    }

    /// The handshake, or the question that takes its place.
    async fn greet(&mut self, can_ask: bool, cancel: &CancellationToken) -> Result<()> {
        let answer = match self.generation {
            Generation::Handshake => {
                self.link.agree_on(None);
                let hello = json!({
                    "protocolVersion": HANDSHAKE_REVISION,
                    "capabilities": capabilities(can_ask),
                    "clientInfo": client_info(),
                });
                let answer = self.ask("initialize", hello, cancel).await?;
                self.revision = agreed(&answer["protocolVersion"]);
                self.link.agree_on(Some(self.revision));
                let note = self.link.notify("notifications/initialized", json!({}));
                note.await?;
                answer
            }
            Generation::Stateless => {
                self.revision = STATELESS_REVISION;
                self.link.agree_on(Some(self.revision));
                self.ask("server/discover", json!({}), cancel).await?
            }
        };
        let in_meta = &answer["_meta"]["io.modelcontextprotocol/serverInfo"];
        self.server = server_name(match in_meta.is_object() {
            true => in_meta,
            false => &answer["serverInfo"],
        });
        let offers = |what: &str| answer["capabilities"][what].is_object();
        self.has_resources = offers("resources");
        self.has_prompts = offers("prompts");
        Ok(())
    }

    /// All tools that the server lists.
    pub(crate) async fn list_tools(&self, cancel: &CancellationToken) -> Result<PinnedTools> {
        let mut list = PinList::new(PinnedTools {
            server: self.server.clone(),
            revision: Some(self.revision.to_owned()),
            has_resources: self.has_resources,
            has_prompts: self.has_prompts,
            ..PinnedTools::default()
        });
        let mut params = json!({});
        for _ in 0..MAX_LIST_PAGES {
            let mut page = self.ask("tools/list", params, cancel).await?;
            let Some(Value::Array(tools)) = page.get_mut("tools") else {
                return Err(Error::Protocol("a list of tools without tools".to_owned()));
            };
            if self.sends_headers() {
                let schema = |tool: &Value| tool["inputSchema"].as_object().cloned();
                let listed = tools.len();
                tools.retain(|tool| schema(tool).is_none_or(|schema| has_valid_marks(&schema)));
                list.leave_out(listed - tools.len());
            }
            list.add(tools);
            match page["nextCursor"].as_str() {
                Some(_) if list.is_full() => break,
                Some(cursor) => params = json!({"cursor": cursor}),
                None => break,
            }
        }
        Ok(list.finish())
    }

    /// Whether arguments of calls may have to be repeated in headers.
    pub(crate) fn sends_headers(&self) -> bool {
        self.generation == Generation::Stateless && matches!(self.link, Link::Http(_))
    }

    /// A request of a call; the result as the server sends it, once it has asked the user what it wants to know.
    pub(crate) async fn call(
        &self,
        method: &str,
        params: Value,
        headers: Vec<(String, String)>,
        terms: &CallTerms<'_>,
    ) -> Result<Value> {
        let mut further = Map::new();
        for _ in 0..MAX_ROUNDS {
            let id = self.next_id.fetch_add(1, Ordering::Relaxed);
            let mut params = params.clone();
            if terms.progress.is_some() {
                params["_meta"] = json!({"progressToken": id});
            }
            for (key, value) in std::mem::take(&mut further) {
                params[key] = value;
            }
            let can_ask = terms.user.ask().is_some();
            let request = Request {
                id,
                message: self.message(id, method, params, can_ask),
                timeout: terms.remaining(),
                cancel: terms.cancel,
                progress: terms.progress.clone(),
                // Without a handshake a server asks by its answers only.
                user: (self.generation == Generation::Handshake).then(|| terms.user.clone()),
                user_before: terms.user.time_taken(),
                headers: headers.clone(),
            };
            let mut result = self.link.request(request).await?;
            match result.get("resultType").and_then(Value::as_str) {
                None | Some("complete") => return Ok(result),
                Some("input_required") => {}
                Some(kind) => {
                    let message = format!("an answer of the unknown kind {}", quoted(kind));
                    return Err(Error::Protocol(message));
                }
            }
            if let Some(state) = result.get_mut("requestState") {
                further.insert("requestState".to_owned(), state.take());
            }
            if let Some(Value::Object(asked)) = result.get("inputRequests") {
                let replies = self.replies(asked, terms).await?;
                further.insert("inputResponses".to_owned(), replies.into());
            }
        }
        Err(Error::Refused {
            code: 0,
            message: format!("it asked back {MAX_ROUNDS} times and did not answer"),
        })
    }

    /// What the user answers to the questions in a result.
    async fn replies(
        &self,
        asked: &Map<String, Value>,
        terms: &CallTerms<'_>,
    ) -> Result<Map<String, Value>> {
        let mut replies = Map::new();
        for (key, request) in asked {
            let method = request["method"].as_str().unwrap_or_default();
            let replied = tokio::select! {
                replied = terms.user.reply(method, &request["params"]) => replied,
                () = terms.cancel.cancelled() => return Err(Error::Cancelled),
            };
            let reply = replied.map_err(|(code, why)| Error::Refused {
                code,
                message: format!("it asks its client for something: {why}"),
            })?;
            replies.insert(key.clone(), reply);
        }
        Ok(replies)
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
        let cancel = CancellationToken::new();
        let asked = self.request("ping", json!({}), PING_TIMEOUT, &cancel);
        matches!(asked.await, Ok(_) | Err(Error::Refused { .. }))
    }

    async fn ask(&self, method: &str, params: Value, cancel: &CancellationToken) -> Result<Value> {
        self.request(method, params, START_TIMEOUT, cancel).await
    }

    /// A request that belongs to no call.
    async fn request(
        &self,
        method: &str,
        params: Value,
        timeout: Duration,
        cancel: &CancellationToken,
    ) -> Result<Value> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let request = Request {
            id,
            message: self.message(id, method, params, false),
            timeout,
            cancel,
            progress: None,
            user: None,
            user_before: Duration::ZERO,
            headers: Vec::new(),
        };
        self.link.request(request).await
    }

    fn message(&self, id: u64, method: &str, mut params: Value, can_ask: bool) -> Value {
        if self.generation == Generation::Stateless {
            let about = [
                ("protocolVersion", json!(STATELESS_REVISION)),
                ("clientInfo", client_info()),
                ("clientCapabilities", capabilities(can_ask)),
            ];
            for (key, value) in about {
                params["_meta"][format!("io.modelcontextprotocol/{key}")] = value;
            }
        }
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
    }
}

/// What this client can be asked for.
fn capabilities(can_ask: bool) -> Value {
    match can_ask {
        true => json!({"elicitation": {"form": {}}}),
        false => json!({}),
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
