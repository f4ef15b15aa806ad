//! Tools and resources of the application as MCP requests and results.
//!
//! The mode decides what is listed, `App::call` what may be called. A failed tool is a result with `isError`, so that the
//! model can read it and correct itself; an unknown tool is a protocol error.

use std::borrow::Cow;
use std::sync::Arc;

use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use llmc_tools::resources::{Content, HANDLE_TEMPLATE, STUB_TEMPLATE, STUBS};
use llmc_tools::{
    App, Call, CallOutcome, Caller, Effect, ErrorKind, Form, Progress, Surface, ToolDef,
    UNKNOWN_AGENT, mode, nearest,
};
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestParams,
    CompleteResult, ContentBlock, CustomRequest, CustomResult, ErrorCode, GetPromptRequestParams,
    GetPromptResponse, Implementation, ListPromptsResult, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, MetaObject, PaginatedRequestParams,
    ProgressNotificationParam, ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse,
    ReadResourceResult, Resource, ResourceContents, ResourceTemplate, ServerCapabilities,
    ServerConfig, Tool, ToolAnnotations,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::{Value, json};

use crate::REVISIONS;
use crate::approvals::{AskBy, CallStep, PausedCalls, RunningCall, binding};
use crate::http::{self, Cancellable, HttpCaller};

/// The requests that are answered, for the error about another one.
const METHODS: &[&str] = &[
    "initialize",
    "ping",
    "resources/list",
    "resources/read",
    "resources/templates/list",
    "server/discover",
    "tools/call",
    "tools/list",
];

/// How long a client may keep a list: it does not change while the process lives.
const LIST_TTL_MS: u64 = 300_000;

/// Characters of an agent's, session's or model's name that are kept.
const MAX_IDENTITY_CHARS: usize = 128;

/// Adds how long a list may be cached, for revisions that have the field.
macro_rules! cacheable {
    ($context:expr, $list:expr) => {
        if $context
            .protocol_version()
            .is_some_and(|version| !version.has_initialize())
        {
            $list
                .with_ttl_ms(LIST_TTL_MS)
                .with_cache_scope(CacheScope::Public)
        } else {
            $list
        }
    };
}

/// An MCP server over one application. Clones share it.
#[derive(Debug, Clone)]
pub struct McpHandler {
    app: Arc<App>,
    tools: Arc<Vec<Tool>>,
    paused: PausedCalls,
}

impl McpHandler {
    /// Serves this application.
    pub fn new(app: Arc<App>) -> McpHandler {
        McpHandler::listing(app, |_| true)
    }

    /// Serves this application to clients elsewhere, who are not offered what sends data off the machine unless the
    /// operator allows it.
    pub(crate) fn over_http(app: Arc<App>) -> McpHandler {
        let sends = app.config().mcp.rlm.allow_http;
        McpHandler::listing(app, |tool| sends || tool.effect != Effect::SendsOut)
    }

    fn listing(app: Arc<App>, offered: impl Fn(&ToolDef) -> bool) -> McpHandler {
        let tools = app.listing().iter().filter(|tool| offered(tool));
        let tools = Arc::new(tools.map(|tool| listed(tool)).collect());
        McpHandler {
            app,
            tools,
            paused: PausedCalls::default(),
        }
    }

    /// The caller: the identity in the request's `_meta`, else that of the process, else the client's name.
    fn caller(&self, context: &RequestContext<RoleServer>) -> Caller {
        let mut caller = match http_request(context) {
            Some((parts, visitor)) => {
                let session = http::session(&parts.headers);
                visitor.tool_caller(&self.app, Surface::Mcp, Form::Text, session)
            }
            None => Caller::local(Surface::Mcp, &self.app),
        };
        let text = |key: &str| {
            context
                .meta
                .get(key)
                .and_then(Value::as_str)
                .filter(|text| !text.is_empty())
        };
        let set = |field: &mut String, key| {
            if let Some(text) = text(key) {
                *field = text.chars().take(MAX_IDENTITY_CHARS).collect();
            }
        };
        // The SDK gives its own name for an HTTP request that came without a handshake.
        let is_placeholder = |name: &str| http_request(context).is_some() && name == "rmcp";
        if let Some(client) = context.client_info()
            && !is_placeholder(&client.name)
        {
            let plain = |text: &str| -> String {
                let text = text.chars().filter(|c| !c.is_control());
                text.take(MAX_IDENTITY_CHARS).collect()
            };
            let name = plain(&client.name);
            if !name.trim().is_empty() {
                let client = format!("{name} {}", plain(&client.version));
                caller.client = Some(client.trim_end().to_owned());
                if caller.agent == UNKNOWN_AGENT {
                    caller.agent = name;
                }
            }
        }
        // Requests of the older revisions over HTTP carry no clientInfo, and nothing is kept between requests.
        if caller.agent == UNKNOWN_AGENT
            && let Some((parts, _)) = http_request(context)
            && let Some(name) = user_agent_product(&parts.headers)
        {
            caller.agent = name;
        }
        set(&mut caller.agent, "llmc/agentId");
        set(&mut caller.session, "llmc/sessionId");
        set(&mut caller.model, "llmc/model");
        caller
    }

    /// Whether the user may have to be asked about something in this call: by a script, or by an upstream.
    fn asks_about(&self, call: &Call) -> bool {
        let asks = !self.app.config().mcp.code_execution.ask.is_empty();
        let tool = self.app.find_tool(&call.name);
        tool.is_some_and(|tool| match tool.effect {
            Effect::Scripts => asks || self.app.has_upstreams(),
            Effect::UpstreamReads | Effect::UpstreamRuns => true,
            _ => false,
        })
    }

    /// Waits for the end of a call, or for its next question to the user.
    async fn advance(
        &self,
        running: RunningCall,
        binding: &[u8],
        cancelled: impl Future<Output = ()>,
    ) -> Result<CallToolResponse, ErrorData> {
        match self.paused.step(running, binding, cancelled).await {
            CallStep::Ended(outcome) => self.result(&outcome),
            CallStep::InputRequired(result) => Ok(result.into()),
            CallStep::Lost => Err(ErrorData::internal_error("the call was lost", None)),
        }
    }

    fn result(&self, outcome: &CallOutcome) -> Result<CallToolResponse, ErrorData> {
        if let Err(error) = &outcome.result
            && error.kind == ErrorKind::UnknownTool
        {
            let data = error.hint.as_ref().map(|hint| json!({"hint": hint}));
            return Err(ErrorData::invalid_params(error.message.clone(), data));
        }
        let mut content = vec![ContentBlock::text(outcome.text())];
        if let Ok(answer) = &outcome.result
            && let Some(image) = answer.image()
        {
            content.push(ContentBlock::image(
                STANDARD.encode(&image.bytes),
                image.mime_type,
            ));
        }
        let result = match &outcome.result {
            Err(error) => {
                let mut result = CallToolResult::error(content);
                let meta = error.meta(outcome.family(), &outcome.correlation_id);
                result.meta = Some(MetaObject(meta));
                result
            }
            Ok(answer) => {
                let mut result = CallToolResult::success(content);
                result.is_error = None;
                if self.app.config().mcp.structured_content && answer.data().is_object() {
                    result.structured_content = Some(answer.data().into_owned());
                }
                result
            }
        };
        Ok(result.into())
    }
}

impl ServerHandler for McpHandler {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("llmc", env!("CARGO_PKG_VERSION")))
            .with_instructions(mode::instructions(self.app.config()))
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        REVISIONS.into()
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        first_page(request.as_ref())?;
        // A client that lists tools will soon call them.
        self.app.expect_questions();
        self.app.keep_history();
        if self.tools.iter().any(|tool| tool.name == "execute_code") {
            self.app.expect_scripts(&self.caller(&context));
        }
        let list = ListToolsResult::with_all_items(self.tools.to_vec());
        Ok(cacheable!(context, list))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.app.keep_history();
        let cancel = context.ct.child_token();
        let over_http = http_request(&context);
        let mut call = Call {
            name: request.name.into_owned(),
            args: request.arguments.unwrap_or_default(),
            caller: self.caller(&context),
            cancel: cancel.clone(),
            progress: progress(&context),
            correlation_id: over_http.map(|(_, visitor)| visitor.correlation_id.clone()),
            ask_user: None,
            slot: over_http.and_then(|(_, visitor)| visitor.slot.clone()),
        };
        let http_cancel = over_http.and_then(|(parts, _)| parts.extensions.get::<Cancellable>());
        let cancelled = async {
            match http_cancel {
                Some(call) => call.cancelled.cancelled().await,
                None => context.ct.cancelled().await,
            }
        };
        let ask_by = match self.asks_about(&call) {
            true => AskBy::of(&context),
            false => None,
        };
        let bind = |call: &Call| binding(&call.caller.principal, &call.name, &call.args);
        if let Some(state) = &request.request_state {
            let binding = bind(&call);
            let resumed = self.paused.resume(state, &binding, request.input_responses);
            let running = resumed.map_err(|why| {
                let message = format!("requestState: {why}; call the tool again without it");
                ErrorData::invalid_params(message, None)
            })?;
            return self.advance(running, &binding, cancelled).await;
        }
        match ask_by {
            Some(AskBy::Result) => {
                let binding = bind(&call);
                let running = PausedCalls::start(self.app.clone(), call);
                return self.advance(running, &binding, cancelled).await;
            }
            Some(AskBy::Request(user)) => call.ask_user = Some(user),
            None => {}
        }
        let mut work = std::pin::pin!(self.app.call(call));
        let outcome = tokio::select! {
            outcome = &mut work => outcome,
            () = cancelled => {
                cancel.cancel();
                work.await
            }
        };
        self.result(&outcome)
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        first_page(request.as_ref())?;
        let documents = self.app.sidecars().list().iter();
        let documents = documents.map(|document| {
            Resource::new(&document.uri, &document.name).with_description("Project document")
        });
        let stubs = self.app.offers_scripts().then(|| {
            Resource::new(STUBS, "tools.pyi")
                .with_description("Every tool as a typed Python function")
        });
        let list = documents.chain(stubs).collect();
        let list = ListResourcesResult::with_all_items(list);
        Ok(cacheable!(context, list))
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        first_page(request.as_ref())?;
        let handle =
            ResourceTemplate::new(HANDLE_TEMPLATE, "handle").with_description("A stored result");
        let mut list = vec![handle];
        if self.app.offers_scripts() {
            let stub = ResourceTemplate::new(STUB_TEMPLATE, "stub");
            list.push(stub.with_description("One tool as a typed Python function"));
        }
        let list = ListResourceTemplatesResult::with_all_items(list);
        Ok(cacheable!(context, list))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let caller = self.caller(&context);
        let app = self.app.clone();
        let read = app.read_resource_in_time(request.uri.clone(), caller);
        let contents = match read.await {
            Ok(Content::Text(text, kind)) => {
                ResourceContents::text(text, request.uri).with_mime_type(kind)
            }
            Ok(Content::Bytes(bytes)) => {
                ResourceContents::blob(STANDARD.encode(bytes), request.uri)
                    .with_mime_type("application/octet-stream")
            }
            Err(error) => {
                let data = Some(json!({"uri": request.uri}));
                return Err(match error.kind {
                    ErrorKind::NotFound
                    | ErrorKind::HandleExpired
                    | ErrorKind::InvalidPath
                    | ErrorKind::CommandDenied => {
                        ErrorData::resource_not_found(error.message, data)
                    }
                    ErrorKind::TooLarge => ErrorData::invalid_params(error.message, data),
                    _ => ErrorData::internal_error(error.message, data),
                });
            }
        };
        Ok(ReadResourceResult::new(vec![contents]).into())
    }

    // The defaults would answer with empty lists, as if there were prompts and completions to ask for.

    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Err(unknown_method("prompts/list"))
    }

    async fn get_prompt(
        &self,
        _request: GetPromptRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        Err(unknown_method("prompts/get"))
    }

    async fn complete(
        &self,
        _request: CompleteRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        Err(unknown_method("completion/complete"))
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        Err(unknown_method(&request.method))
    }
}

/// Names the nearest methods that there are; all of them if none is near.
fn unknown_method(method: &str) -> ErrorData {
    let method: String = method.chars().take(MAX_IDENTITY_CHARS).collect();
    let message = match nearest(&method, METHODS.iter().copied()) {
        Some(near) => format!("unknown method {method:?}: did you mean {near}?"),
        None => format!(
            "unknown method {method:?}: this server has {}",
            METHODS.join(", ")
        ),
    };
    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, message, None)
}

/// Refuses a cursor: every list has one page, so none was ever given out. An empty one counts as absent.
fn first_page(request: Option<&PaginatedRequestParams>) -> Result<(), ErrorData> {
    let cursor = request.and_then(|request| request.cursor.as_ref());
    match cursor.is_some_and(|cursor| !cursor.is_empty()) {
        true => Err(ErrorData::invalid_params(
            "unknown cursor: this list has one page, leave the cursor out",
            None,
        )),
        false => Ok(()),
    }
}

/// The HTTP request that a message came in, and who sent it; nothing on standard input.
fn http_request(context: &RequestContext<RoleServer>) -> Option<(&Parts, &HttpCaller)> {
    let parts = context.extensions.get::<Parts>()?;
    Some((parts, parts.extensions.get::<HttpCaller>()?))
}

/// The program that sent a request, by its `User-Agent`: the first product without its version. Not that of a browser,
/// which names no agent.
fn user_agent_product(headers: &HeaderMap) -> Option<String> {
    let sent = headers.get(header::USER_AGENT)?.to_str().ok()?;
    let product = sent.split(['/', ' ']).next()?;
    let product: String = product.chars().take(MAX_IDENTITY_CHARS).collect();
    (!product.is_empty() && product != "Mozilla").then_some(product)
}

/// A tool as it is listed.
fn listed(tool: &ToolDef) -> Tool {
    let reads = tool.effect.only_looks();
    let mut hints = ToolAnnotations::new().read_only(reads).open_world(matches!(
        tool.effect,
        Effect::SendsOut | Effect::UpstreamReads | Effect::UpstreamRuns
    ));
    if !reads {
        // Only meaningful, and only sent, for tools that change something.
        hints = hints
            .destructive(tool.destructive)
            .idempotent(tool.idempotent);
    }
    Tool::new(
        tool.name,
        tool.description().to_owned(),
        Arc::new(tool.listed_schema()),
    )
    .with_annotations(hints)
}

/// Sends progress notifications, if the client asked for them.
fn progress(context: &RequestContext<RoleServer>) -> Option<Progress> {
    let token = context.meta.get_progress_token()?;
    let peer = context.peer.clone();
    Some(Arc::new(move |seconds, words: &str| {
        let mut note = ProgressNotificationParam::new(token.clone(), seconds);
        note.message = Some(words.to_owned());
        let peer = peer.clone();
        tokio::spawn(async move { peer.notify_progress(note).await });
    }))
}
