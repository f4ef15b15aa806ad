//! One connection, from its first byte to a clean end.
//!
//! However the end comes, it is bounded: requests already read get [`ConnectionLimits::drain`] to be answered, then
//! they are cancelled, without an answer if the client has closed our input, and get [`ConnectionLimits::grace`] to stop
//! their work. Code that ignores its cancellation is
//! left behind, so a process must not wait for its runtime afterwards: use
//! [`Runtime::shutdown_background`](tokio::runtime::Runtime::shutdown_background), or exit.

use std::{future::pending, time::Duration};

use rmcp::{
    ServerHandler,
    model::ProtocolVersion,
    service::{QuitReason, ServerInitializeError, serve_server_with_ct},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    signal::unix::{SignalKind, signal},
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;

use crate::{
    hangup, output::Outbox, panic_guard::PanicGuard, parent::ParentWatch, transport::LineTransport,
};

/// The protocol revisions we announce, oldest first; a handler returns them from
/// [`supported_protocol_versions`](ServerHandler::supported_protocol_versions).
///
/// The first two open with a handshake, the last has none.
pub const REVISIONS: &[ProtocolVersion] = &[
    ProtocolVersion::V_2025_06_18,
    ProtocolVersion::V_2025_11_25,
    ProtocolVersion::V_2026_07_28,
];

/// The limits of a connection.
#[derive(Debug, Clone)]
pub struct ConnectionLimits {
    /// Longest line taken, in bytes.
    pub max_line: usize,
    /// Bytes of output that may wait to be read before no further request is taken. Answers to requests taken
    /// before come on top.
    pub max_queued: usize,
    /// Requests in work before further ones wait. Control messages (`ping`, cancellations) never wait for them.
    pub max_calls: usize,
    /// Bytes of requests in work before further ones wait, and bytes of waiting requests; a single one may be larger.
    pub max_call_bytes: usize,
    /// Requests that may wait; further ones are refused.
    pub max_waiting: usize,
    /// After the end of input, how long running calls may go on.
    pub drain: Duration,
    /// After they are cancelled, how long calls may take to stop and output to be taken.
    pub grace: Duration,
}

impl Default for ConnectionLimits {
    /// Lines of 64 MiB, room for a few of the largest answers and more calls than a client makes, and an end well within 2 s
    /// of the end of input.
    fn default() -> Self {
        Self {
            max_line: 64 << 20,
            max_queued: 32 << 20,
            max_calls: 128,
            max_call_bytes: 64 << 20,
            max_waiting: 4096,
            drain: Duration::from_millis(1400),
            grace: Duration::from_millis(250),
        }
    }
}

/// Why a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionEnd {
    /// The client closed our input; what it had asked is answered.
    InputClosed,
    /// The client closed our output.
    OutputClosed,
    /// The process that started us is gone.
    ParentGone,
    /// SIGINT, SIGTERM or SIGHUP.
    Signal,
}

/// A connection that could not be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The handler refused the handshake and answered the client with an error.
    #[error("handshake refused")]
    Handshake(#[source] Box<ServerInitializeError>),
    /// The connection's own task failed.
    #[error("connection failed")]
    Task(#[source] tokio::task::JoinError),
    /// Signals cannot be caught.
    #[error("signal handler not installed")]
    Signals(#[source] std::io::Error),
}

/// Serves standard input and output until the client, a signal or the parent's death ends it.
///
/// # Errors
///
/// See [`ServeError`]; a client that goes away is no error.
pub async fn serve_stdio<H: ServerHandler>(
    handler: H,
    limits: ConnectionLimits,
) -> Result<ConnectionEnd, ServeError> {
    let parent = ParentWatch::watch();
    let mut terminate = signal(SignalKind::terminate()).map_err(ServeError::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(ServeError::Signals)?;
    let mut hangup = signal(SignalKind::hangup()).map_err(ServeError::Signals)?;
    let stop = async move {
        tokio::select! {
            () = parent.exited() => ConnectionEnd::ParentGone,
            _ = terminate.recv() => ConnectionEnd::Signal,
            _ = interrupt.recv() => ConnectionEnd::Signal,
            _ = hangup.recv() => ConnectionEnd::Signal,
        }
    };
    let input = tokio::io::stdin();
    let hung_up = hangup::of_stdin();
    let hung_up = hung_up.cancelled();
    serve_until(handler, (input, hung_up), tokio::io::stdout(), stop, limits).await
}

/// Serves one connection until its input or output ends or `stop` says why to end it.
///
/// # Errors
///
/// See [`ServeError`]; a client that goes away is no error.
pub async fn serve<H, R, W>(
    handler: H,
    input: R,
    output: W,
    stop: impl Future<Output = ConnectionEnd>,
    limits: ConnectionLimits,
) -> Result<ConnectionEnd, ServeError>
where
    H: ServerHandler,
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    serve_until(handler, (input, pending()), output, stop, limits).await
}

/// `hung_up` ends when the client has closed our input, though there may be lines left in it: while none are
/// taken, the end of input is not seen.
async fn serve_until<H, R, W>(
    handler: H,
    (input, hung_up): (R, impl Future<Output = ()>),
    output: W,
    stop: impl Future<Output = ConnectionEnd>,
    limits: ConnectionLimits,
) -> Result<ConnectionEnd, ServeError>
where
    H: ServerHandler,
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let (outbox, mut writing) = Outbox::start(output);
    let output_closed = outbox.closed();
    let versions = ServerHandler::supported_protocol_versions(&handler).into_owned();
    let transport = LineTransport::new(input, limits.clone(), outbox, versions);
    let (input_ended, silenced) = (transport.input_ended(), transport.silenced());
    let cancel = CancellationToken::new();
    let mut session = std::pin::pin!(run(handler, transport, cancel.clone()));

    let (ended, finished) = tokio::select! {
        finished = &mut session => (ConnectionEnd::InputClosed, Some(finished)),
        ended = stop => (ended, None),
        () = output_closed.cancelled() => (ConnectionEnd::OutputClosed, None),
        () = async {
            tokio::select! {
                () = input_ended.cancelled() => {}
                () = hung_up => {}
            }
            tokio::time::sleep(limits.drain).await;
        } => (ConnectionEnd::InputClosed, None),
    };

    if ended == ConnectionEnd::InputClosed && finished.is_none() {
        silenced.cancel();
    }
    cancel.cancel();
    let deadline = Instant::now() + limits.grace;
    let finished = match finished {
        Some(finished) => finished,
        None => timeout_at(deadline, session).await.unwrap_or(Ok(())),
    };
    // Stuck calls keep the outbox open; what is queued by now is written, or the deadline strikes.
    let _ = timeout_at(deadline, &mut writing).await;
    if output_closed.is_cancelled() {
        return Ok(ConnectionEnd::OutputClosed);
    }
    finished.map(|()| ended)
}

async fn run<H, R>(
    handler: H,
    transport: LineTransport<R>,
    cancel: CancellationToken,
) -> Result<(), ServeError>
where
    H: ServerHandler,
    R: AsyncRead + Send + Unpin + 'static,
{
    let running = match serve_server_with_ct(PanicGuard(handler), transport, cancel).await {
        Ok(running) => running,
        Err(error @ ServerInitializeError::InitializeFailed(_)) => {
            return Err(ServeError::Handshake(Box::new(error)));
        }
        // The client disconnected, or the server was stopped, before a session began.
        Err(error) => {
            tracing::debug!(%error, "ended before a session began");
            return Ok(());
        }
    };
    match running.waiting().await {
        Ok(QuitReason::JoinError(error)) | Err(error) => Err(ServeError::Task(error)),
        Ok(_) => Ok(()),
    }
}
