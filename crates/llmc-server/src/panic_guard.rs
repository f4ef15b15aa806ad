//! Turns a handler's panic into an error response, so that the client does not wait for an answer that never comes.
//!
//! rmcp runs every request in a task of its own; a panic there ends the task without an answer. `App::call` catches the
//! panics of tools; this guard covers everything else a handler does.

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

use crate::transport::RequestInWork;

/// A handler whose panics become error responses.
#[derive(Debug)]
pub(crate) struct PanicGuard<H>(pub(crate) H);

impl<H: ServerHandler> Service<RoleServer> for PanicGuard<H> {
    async fn handle_request(
        &self,
        request: ClientRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<ServerResult, ErrorData> {
        // Held until the handler has ended, also when it drops its context earlier.
        let _work = context.extensions.get::<RequestInWork>().cloned();
        let mut answer = std::pin::pin!(Service::handle_request(&self.0, request, context));
        // A future that panicked is not polled again, so its broken state stays unseen.
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
