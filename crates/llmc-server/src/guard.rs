//! A panic answers its request instead of leaving the client to wait.
//!
//! rmcp runs every request in a task of its own; a panic there ends the task and nobody hears of it. Tools
//! have a guard where they are dispatched; this one stands around everything else a handler does.

use std::{
    borrow::Cow,
    panic::{AssertUnwindSafe, catch_unwind},
    task::Poll,
};

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{ClientNotification, ClientRequest, ProtocolVersion, ServerConfig, ServerResult},
    service::{NotificationContext, RequestContext, Service},
};

use crate::transport::Work;

/// A handler whose panics become errors.
#[derive(Debug)]
pub(crate) struct Guard<H>(pub(crate) H);

impl<H: ServerHandler> Service<RoleServer> for Guard<H> {
    async fn handle_request(
        &self,
        request: ClientRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<ServerResult, ErrorData> {
        // Kept to the end here, wherever the handler drops its context.
        let _work = context.extensions.get::<Work>().cloned();
        let mut answer = std::pin::pin!(Service::handle_request(&self.0, request, context));
        // A future that panicked is not polled again, so no broken state of its own is ever seen.
        std::future::poll_fn(|cx| {
            catch_unwind(AssertUnwindSafe(|| answer.as_mut().poll(cx))).unwrap_or_else(|_| {
                let message = "the server failed on this request";
                Poll::Ready(Err(ErrorData::internal_error(message, None)))
            })
        })
        .await
    }

    async fn handle_notification(
        &self,
        notification: ClientNotification,
        context: NotificationContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Service::handle_notification(&self.0, notification, context).await
    }

    fn get_info(&self) -> ServerConfig {
        ServerHandler::get_info(&self.0)
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        ServerHandler::supported_protocol_versions(&self.0)
    }
}
