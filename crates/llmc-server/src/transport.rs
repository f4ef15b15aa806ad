//! Checked lines as an rmcp transport.
//!
//! Between the stream and rmcp this does what rmcp leaves undone:
//!
//! - every line is [inspected](crate::json::inspect) first, and a refusal is answered here;
//! - a client that never shook hands gets a handshake made up on its behalf, so that
//!   `echo '{…"method":"tools/list"…}' | server` is answered;
//! - notifications and responses that arrive before any handshake, which would end an rmcp server, are dropped;
//! - a session keeps the revision of its first handshake;
//! - the end of input is held back until every request read so far has its answer;
//! - requests wait here while too many are in work, and what is behind them does not: a client can always ask whether the
//!   server is alive and cancel what it has asked for;
//! - while too much output is unread, nothing more is taken that wants an answer.

mod pending;

use std::{collections::VecDeque, sync::Arc};

use rmcp::{
    RoleServer,
    model::{
        CancelledNotification, CancelledNotificationParam, ClientCapabilities,
        ClientJsonRpcMessage, ClientNotification, ClientRequest, ErrorCode, GetExtensions, GetMeta,
        Implementation, InitializeRequest, InitializeRequestParams, InitializedNotification,
        JsonRpcMessage, ProtocolVersion, ServerJsonRpcMessage,
    },
    transport::Transport,
};
use serde_json::Value;
use tokio::io::AsyncRead;
use tokio_util::sync::CancellationToken;

pub(crate) use self::pending::RequestInWork;
use self::pending::{PendingKind, PendingRequests, WorkLoad, own_handshake_id};
use crate::{
    json::{self, MessageRefusal, MessageShape},
    line::{LineRead, LineReader},
    output::{Outbox, OutputClosed},
    serve::ConnectionLimits,
};

/// More open subscriptions than this are refused: they stay, so waiting for one to end could take for ever.
const MAX_SUBSCRIPTIONS: usize = 16;

/// Requests that are answered at once and therefore never wait for others.
const CONTROL_METHODS: &[&str] = &["initialize", "ping", "server/discover"];

/// The error code of a server that has too much to do.
const SERVER_BUSY: ErrorCode = ErrorCode(-32000);

/// Why a second request with the id of a first one is refused.
const ID_IN_USE: &str = "a request with this id is still running";

/// Methods that a request of a revision without a handshake must not name; rmcp would answer some of them.
const HANDSHAKE_METHODS: &[&str] = &[
    "initialize",
    "ping",
    "logging/setLevel",
    "resources/subscribe",
    "resources/unsubscribe",
];

/// Newline-delimited JSON-RPC, checked, for rmcp.
pub(crate) struct LineTransport<R> {
    lines: LineReader<R>,
    limits: ConnectionLimits,
    outbox: Outbox,
    /// The line to be taken next, which waits while too much output is unread.
    next: Option<Inspected>,
    /// Requests for which there is no room yet, in their order.
    waiting: VecDeque<WaitingRequest>,
    /// What is to be handed to rmcp before another line is read.
    ready: VecDeque<ClientJsonRpcMessage>,
    session: HandshakeState,
    /// The revision that the client's handshake agreed on.
    revision: Option<ProtocolVersion>,
    /// Protocol versions of the handler; decides whether a request carries a usable version of its own.
    versions: Vec<ProtocolVersion>,
    calls: Arc<PendingRequests>,
    load: Arc<WorkLoad>,
    /// Requests of [`CONTROL_METHODS`].
    control_load: Arc<WorkLoad>,
    input_ended: CancellationToken,
    silenced: CancellationToken,
}

/// A line and what a first look at it says.
struct Inspected {
    line: Vec<u8>,
    shape: Result<MessageShape, MessageRefusal>,
}

impl Inspected {
    fn wants_answer(&self) -> bool {
        match &self.shape {
            Ok(shape) => matches!(shape, MessageShape::Request { .. }),
            Err(refusal) => refusal.reply_id.is_some(),
        }
    }

    /// The id of a request that may have to wait for others.
    fn waiting_id(&self) -> Option<&Value> {
        match &self.shape {
            Ok(MessageShape::Request { id, method })
                if !CONTROL_METHODS.contains(&method.as_str()) =>
            {
                Some(id)
            }
            _ => None,
        }
    }
}

/// A request that waits for room.
struct WaitingRequest {
    id: Value,
    next: Inspected,
}

/// How far the client has come; rmcp keeps the same state and does not show it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum HandshakeState {
    /// Neither a handshake nor a request with its own protocol version yet.
    Fresh,
    /// rmcp takes any message.
    Open,
}

impl<R: AsyncRead + Send + Unpin> LineTransport<R> {
    pub(crate) fn new(
        input: R,
        limits: ConnectionLimits,
        outbox: Outbox,
        versions: Vec<ProtocolVersion>,
    ) -> Self {
        Self {
            lines: LineReader::new(input, limits.max_line),
            limits,
            outbox,
            next: None,
            waiting: VecDeque::new(),
            ready: VecDeque::new(),
            session: HandshakeState::Fresh,
            revision: None,
            versions,
            calls: Arc::default(),
            load: Arc::default(),
            control_load: Arc::default(),
            input_ended: CancellationToken::new(),
            silenced: CancellationToken::new(),
        }
    }

    /// Cancelled when the end of input is seen, which is before unanswered requests are waited for.
    pub(crate) fn input_ended(&self) -> CancellationToken {
        self.input_ended.clone()
    }

    /// Once cancelled, nothing more is written.
    pub(crate) fn silenced(&self) -> CancellationToken {
        self.silenced.clone()
    }

    async fn next_message(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            if let Some(message) = self.ready.pop_front() {
                return Some(message);
            }
            if self.advance() {
                continue;
            }
            let has_ended = self.input_ended.is_cancelled();
            if has_ended && self.next.is_none() && self.waiting.is_empty() {
                self.calls.all_answered().await;
                return None;
            }
            let (load, control, outbox) = (
                self.load.clone(),
                self.control_load.clone(),
                self.outbox.clone(),
            );
            let (written, eased) = (outbox.progress(), load.eased.notified());
            let control_eased = control.eased.notified();
            // What eased before these futures were there is seen now.
            if self.advance() {
                continue;
            }
            // The future may be dropped while it waits, so whatever was read is kept in `self`.
            let read = tokio::select! {
                read = self.lines.next(), if self.next.is_none() && !has_ended => read,
                () = written => continue,
                () = eased => continue,
                () = control_eased => continue,
            };
            self.take_line(read);
        }
    }

    fn take_line(&mut self, read: std::io::Result<LineRead>) {
        match read {
            Ok(LineRead::Line(line)) if line.iter().all(u8::is_ascii_whitespace) => {}
            Ok(LineRead::Line(line)) => {
                let shape = json::inspect(&line);
                self.next = Some(Inspected { line, shape });
            }
            Ok(LineRead::TooLong { reply_id }) => {
                let limit = self.limits.max_line;
                let refusal = MessageRefusal {
                    code: ErrorCode::PARSE_ERROR,
                    message: format!("line longer than {limit} bytes: send less at once").into(),
                    reply_id,
                };
                self.next = Some(Inspected {
                    line: Vec::new(),
                    shape: Err(refusal),
                });
            }
            Ok(LineRead::End) => self.end_input(),
            Err(error) => {
                tracing::warn!(%error, "input failed");
                self.end_input();
            }
        }
    }

    /// Takes the next step that does not have to wait; false when there is none.
    fn advance(&mut self) -> bool {
        let has_room = self.outbox.queued() < self.limits.max_queued;
        let takes = |next: &Inspected| {
            !next.wants_answer()
                || has_room
                    && (next.waiting_id().is_some() || self.control_load.fits(0, &self.limits))
        };
        if self.next.as_ref().is_some_and(takes) {
            if let Some(next) = self.next.take() {
                match next.waiting_id().cloned() {
                    Some(id) => self.enqueue(WaitingRequest { id, next }),
                    None => self.hand_over(next),
                }
            }
            return true;
        }
        let fits = |request: &WaitingRequest| {
            let bytes = request.next.line.len();
            has_room && self.load.fits(bytes, &self.limits)
        };
        if self.waiting.front().is_some_and(fits) {
            if let Some(request) = self.waiting.pop_front() {
                self.hand_over(request.next);
            }
            return true;
        }
        false
    }

    /// Lets a request wait for its turn, which may come at once.
    fn enqueue(&mut self, request: WaitingRequest) {
        let bytes = request.next.line.len();
        let waiting_bytes: usize = match self.waiting.is_empty() {
            true => 0,
            false => self.waiting.iter().map(|other| other.next.line.len()).sum(),
        };
        let refusal = if self.waiting.iter().any(|other| other.id == request.id) {
            Some((ErrorCode::INVALID_REQUEST, ID_IN_USE.to_owned()))
        } else if self.waiting.len() >= self.limits.max_waiting
            || !self.waiting.is_empty() && waiting_bytes + bytes > self.limits.max_call_bytes
        {
            let count = self.waiting.len();
            let busy = format!("{count} requests are waiting: try again when some are answered");
            Some((SERVER_BUSY, busy))
        } else {
            None
        };
        match refusal {
            Some((code, message)) => self.refuse(&MessageRefusal::to(request.id, code, message)),
            None => self.waiting.push_back(request),
        }
    }

    fn hand_over(&mut self, next: Inspected) {
        match self.accept(next) {
            Ok(messages) => self.ready.extend(messages),
            Err(refusal) => self.refuse(&refusal),
        }
    }

    fn end_input(&mut self) {
        self.input_ended.cancel();
        // No client is left to end a subscription, and rmcp would wait for it.
        for id in self.calls.subscriptions() {
            let params = CancelledNotificationParam::new(Some(id), None);
            let cancelled = CancelledNotification::new(params);
            self.ready.push_back(JsonRpcMessage::notification(
                ClientNotification::CancelledNotification(cancelled),
            ));
        }
    }

    /// Turns a line into what rmcp should see of it: nothing, the message, or a handshake and the message.
    fn accept(&mut self, next: Inspected) -> Result<Vec<ClientJsonRpcMessage>, MessageRefusal> {
        let shape = next.shape?;
        let message = serde_json::from_slice::<ClientJsonRpcMessage>(&next.line);
        match (shape, message) {
            (MessageShape::Request { id, .. }, Ok(JsonRpcMessage::Request(mut request))) => {
                let method = request.request.method();
                let version = request.request.get_meta().protocol_version();
                if let Some(version) = version.filter(|version| !version.has_initialize())
                    && HANDSHAKE_METHODS.contains(&method)
                {
                    return Err(MessageRefusal::to(
                        id,
                        ErrorCode::METHOD_NOT_FOUND,
                        format!("{method} is not a method of revision {version}"),
                    ));
                }
                if let ClientRequest::InitializeRequest(initialize) = &request.request {
                    let revision = self.agreed_revision(&initialize.params.protocol_version);
                    let first = self.revision.get_or_insert_with(|| revision.clone());
                    if *first != revision {
                        return Err(MessageRefusal::to(
                            id,
                            ErrorCode::INVALID_REQUEST,
                            format!(
                                "this connection uses revision {first}: open another one for {revision}"
                            ),
                        ));
                    }
                }
                if matches!(request.request, ClientRequest::CustomRequest(_))
                    && let Some(needs) = params_of(method)
                {
                    return Err(MessageRefusal::to(
                        id,
                        ErrorCode::INVALID_PARAMS,
                        format!("invalid params for {method}: {needs}"),
                    ));
                }
                let kind = match request.request {
                    ClientRequest::SubscriptionsListenRequest(_) => PendingKind::Subscription,
                    _ if CONTROL_METHODS.contains(&method) => {
                        PendingKind::Call(self.control_load.begin(0))
                    }
                    _ => PendingKind::Call(self.load.begin(next.line.len())),
                };
                if matches!(kind, PendingKind::Subscription)
                    && self.calls.subscriptions().len() >= MAX_SUBSCRIPTIONS
                {
                    return Err(MessageRefusal::to(
                        id,
                        ErrorCode::INVALID_REQUEST,
                        format!("{MAX_SUBSCRIPTIONS} subscriptions are open already"),
                    ));
                }
                // A handshake's extensions may be kept for as long as the session lasts.
                if let PendingKind::Call(work) = &kind
                    && !matches!(request.request, ClientRequest::InitializeRequest(_))
                {
                    request.request.extensions_mut().insert(work.clone());
                }
                if !self.calls.begin(&request.id, kind) {
                    return Err(MessageRefusal::to(
                        id,
                        ErrorCode::INVALID_REQUEST,
                        ID_IN_USE,
                    ));
                }
                let mut messages = self.opening(&request.request);
                messages.push(JsonRpcMessage::Request(request));
                Ok(messages)
            }
            (MessageShape::Request { id, .. }, _) => Err(MessageRefusal::to(
                id,
                ErrorCode::INVALID_REQUEST,
                "not a valid request: \"id\" must be a string or a 64-bit integer, \"params\" an object",
            )),
            (_, Ok(message)) if self.session == HandshakeState::Open => {
                if let JsonRpcMessage::Notification(notification) = &message
                    && let ClientNotification::CancelledNotification(cancelled) =
                        &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    // rmcp never answers a cancelled request.
                    self.calls.end(id);
                    let id = serde_json::to_value(id).unwrap_or_default();
                    self.waiting.retain(|request| request.id != id);
                }
                Ok(vec![message])
            }
            (shape, _) => {
                tracing::debug!(?shape, "stray message dropped");
                Ok(Vec::new())
            }
        }
    }

    /// Decides what must precede a request, and notes whether the session is open after it.
    fn opening(&mut self, request: &ClientRequest) -> Vec<ClientJsonRpcMessage> {
        if self.session == HandshakeState::Open {
            return Vec::new();
        }
        let meta = request.get_meta();
        match request {
            ClientRequest::InitializeRequest(_) => self.session = HandshakeState::Open,
            // Answered by rmcp without opening anything.
            ClientRequest::PingRequest(_) | ClientRequest::DiscoverRequest(_) => {}
            _ => match meta.protocol_version() {
                Some(version) => {
                    // Anything less is refused by rmcp, which then waits for a better opening.
                    if self.versions.contains(&version)
                        && meta
                            .missing_required_keys(&ProtocolVersion::V_2026_07_28)
                            .is_empty()
                    {
                        self.session = HandshakeState::Open;
                    }
                }
                None => {
                    self.session = HandshakeState::Open;
                    return self.own_handshake();
                }
            },
        }
        Vec::new()
    }

    /// The revision that a handshake which asks for this one leads to.
    fn agreed_revision(&self, asked: &ProtocolVersion) -> ProtocolVersion {
        match self.versions.contains(asked) && asked.has_initialize() {
            true => asked.clone(),
            false => ProtocolVersion::LATEST_WITH_INITIALIZE,
        }
    }

    fn own_handshake(&self) -> Vec<ClientJsonRpcMessage> {
        let params = InitializeRequestParams::new(
            ClientCapabilities::default(),
            Implementation::new("unknown", "0"),
        )
        .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE);
        self.calls.expect_own_handshake();
        vec![
            JsonRpcMessage::request(
                ClientRequest::InitializeRequest(InitializeRequest::new(params)),
                own_handshake_id(),
            ),
            JsonRpcMessage::notification(ClientNotification::InitializedNotification(
                InitializedNotification::default(),
            )),
        ]
    }

    fn refuse(&self, refusal: &MessageRefusal) {
        tracing::debug!(code = refusal.code.0, message = %refusal.message, "message refused");
        let Some(response) = refusal.response() else {
            return;
        };
        drop(self.outbox.post(response.to_string().into_bytes()));
    }
}

impl<R: AsyncRead + Send + Unpin> Transport<RoleServer> for LineTransport<R> {
    type Error = OutputClosed;

    fn send(
        &mut self,
        item: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), OutputClosed>> + Send + 'static {
        let id = match &item {
            JsonRpcMessage::Response(response) => Some(response.id.clone()),
            JsonRpcMessage::Error(error) => error.id.clone(),
            _ => None,
        };
        let is_own_handshake = |id| self.calls.is_own_handshake(id);
        let written = if id.as_ref().is_some_and(is_own_handshake) || self.silenced.is_cancelled() {
            None
        } else {
            match serde_json::to_vec(&item) {
                Ok(line) => Some(self.outbox.post(line)),
                Err(error) => {
                    tracing::error!(%error, "a message could not be encoded");
                    None
                }
            }
        };
        if let Some(id) = id {
            self.calls.end(&id);
        }
        async move {
            match written {
                Some(written) => written.await,
                None => Ok(()),
            }
        }
    }

    fn receive(&mut self) -> impl Future<Output = Option<ClientJsonRpcMessage>> + Send {
        self.next_message()
    }

    async fn close(&mut self) -> Result<(), OutputClosed> {
        Ok(())
    }
}

/// What the params of a known method must look like.
///
/// rmcp files a request whose params it cannot read under custom requests, where it would be called an
/// unknown method.
fn params_of(method: &str) -> Option<&'static str> {
    Some(match method {
        "tools/call" => "\"name\" must be a string, \"arguments\" an object",
        "resources/read" | "resources/subscribe" | "resources/unsubscribe" => {
            "\"uri\" must be a string"
        }
        "prompts/get" => "\"name\" must be a string, \"arguments\" an object",
        "initialize" => {
            "\"protocolVersion\" must be a string, \"capabilities\" and \"clientInfo\" objects"
        }
        "tools/list" | "resources/list" | "resources/templates/list" | "prompts/list" => {
            "\"cursor\" must be a string"
        }
        "ping"
        | "server/discover"
        | "completion/complete"
        | "logging/setLevel"
        | "subscriptions/listen"
        | "tasks/get"
        | "tasks/update"
        | "tasks/cancel" => "see the protocol schema",
        _ => return None,
    })
}
