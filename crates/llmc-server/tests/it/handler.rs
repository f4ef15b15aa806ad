//! A handler whose tools show what the transport does with running calls.

use std::{borrow::Cow, sync::Arc};

use llmc_server::REVISIONS;
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CacheScope, CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock,
        Implementation, JsonObject, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
        ProgressNotificationParam, ProtocolVersion, ReadResourceRequestParams,
        ReadResourceResponse, ReadResourceResult, Resource, ResourceContents, ServerCapabilities,
        ServerConfig, SubscriptionFilter, Tool, ToolAnnotations,
    },
    service::RequestContext,
};
use tokio::sync::{Semaphore, mpsc};

/// What the handler tells a test.
#[derive(Debug, PartialEq)]
pub(crate) enum Event {
    /// A waiting tool has begun.
    Started,
    /// A waiting tool saw its cancellation.
    Cancelled,
}

/// Tools: `echo`, `fail`, `panic`, `agent`, `progress`, `gate` (until [`Probe::gate`] opens), `wait` (until cancelled), `stubborn` (for ever).
#[derive(Clone)]
pub(crate) struct Probe {
    pub(crate) gate: Arc<Semaphore>,
    events: mpsc::UnboundedSender<Event>,
}

impl Probe {
    pub(crate) fn new() -> (Self, mpsc::UnboundedReceiver<Event>) {
        let (events, receiver) = mpsc::unbounded_channel();
        let gate = Arc::new(Semaphore::new(0));
        (Self { gate, events }, receiver)
    }

    fn tell(&self, event: Event) {
        let _ = self.events.send(event);
    }
}

fn text(text: impl Into<String>) -> CallToolResponse {
    CallToolResult::success(vec![ContentBlock::text(text)]).into()
}

impl ServerHandler for Probe {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(
            ServerCapabilities::builder()
                .enable_tools()
                .enable_tool_list_changed()
                .enable_resources()
                .build(),
        )
        .with_server_info(Implementation::new("probe", "1.2.3"))
        .with_instructions("Use echo.")
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        REVISIONS.into()
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let schema: JsonObject = rmcp::object!({"type": "object", "properties": {}});
        let echo = Tool::new("echo", "Repeats its arguments", schema)
            .with_annotations(ToolAnnotations::new().read_only(true).open_world(false));
        let list = ListToolsResult::with_all_items(vec![echo]);
        // Set hints reach every client, and only the stateless revision has them.
        let is_stateless = context
            .protocol_version()
            .is_some_and(|version| !version.has_initialize());
        Ok(if is_stateless {
            list.with_ttl_ms(3_600_000)
                .with_cache_scope(CacheScope::Public)
        } else {
            list
        })
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        match request.name.as_ref() {
            "echo" => {
                let arguments = request.arguments.unwrap_or_default();
                Ok(text(serde_json::Value::Object(arguments).to_string()))
            }
            "panic" => panic!("as asked"),
            "fail" => Ok(CallToolResult::error(vec![ContentBlock::text("no")]).into()),
            "agent" => {
                let agent = context.meta.get("llmc/agentId").and_then(|id| id.as_str());
                Ok(text(agent.unwrap_or("nobody")))
            }
            "progress" => {
                for step in 1..=3 {
                    if let Some(token) = context.meta.get_progress_token() {
                        let progress = ProgressNotificationParam::new(token, f64::from(step))
                            .with_total(3.0)
                            .with_message(format!("step {step}"));
                        let _ = context.peer.notify_progress(progress).await;
                    }
                }
                Ok(text("done"))
            }
            "gate" => {
                self.tell(Event::Started);
                tokio::select! {
                    _ = self.gate.acquire() => Ok(text("opened")),
                    () = context.ct.cancelled() => {
                        self.tell(Event::Cancelled);
                        Ok(text("cancelled"))
                    }
                }
            }
            "wait" => {
                self.tell(Event::Started);
                context.ct.cancelled().await;
                self.tell(Event::Cancelled);
                Ok(text("cancelled"))
            }
            "stubborn" => {
                self.tell(Event::Started);
                std::future::pending().await
            }
            name => Err(ErrorData::invalid_params(
                format!("Unknown tool: {name}"),
                None,
            )),
        }
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let resource = Resource::new("llmc://docs/a", "a").with_mime_type("text/markdown");
        Ok(ListResourcesResult::with_all_items(vec![resource]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        if request.uri != "llmc://docs/a" {
            return Err(ErrorData::resource_not_found(
                "no such resource",
                Some(serde_json::json!({"uri": request.uri})),
            ));
        }
        let contents = ResourceContents::text("# A", request.uri).with_mime_type("text/markdown");
        Ok(ReadResourceResult::new(vec![contents]).into())
    }
}
