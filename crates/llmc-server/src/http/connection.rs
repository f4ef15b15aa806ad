//! One connection's bytes, on their way between the socket and hyper.
//!
//! hyper has no timeout for a head that arrives slowly or an answer that is read slowly, and answers a head that it cannot
//! parse by itself, without a body. A connection closed with unread bytes is reset, which can destroy the answer. So the
//! socket is wrapped: it adds those timeouts, puts the usual error body in the place of hyper's empty answers, and reads
//! what the client still sends before it closes.

use std::io;
use std::pin::Pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use std::sync::Arc;

use axum::http::StatusCode;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::error::HttpError;

/// How long, and for how many bytes, a client that still sends is read from after its last answer.
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);
const MAX_LINGER_BYTES: usize = 4 << 20;

/// What the socket and the request handlers share.
#[derive(Debug)]
pub(crate) struct Connection {
    /// The other end, for logs.
    pub(super) peer: String,
    stage: AtomicU8,
    /// Whether the client may still be sending what is not read.
    unread: AtomicBool,
    /// Whether a request on it has passed authentication.
    authenticated: AtomicBool,
    /// When bytes last went either way, in milliseconds since it was opened.
    active_ms: AtomicU64,
    opened: Instant,
    /// Cancelled when another connection needs its place.
    eviction: CancellationToken,
    session: OnceLock<String>,
}

/// No byte of a request has arrived.
const STAGE_IDLE: u8 = 0;
/// A part of its head has arrived.
const STAGE_HEAD: u8 = 1;
/// The request is being answered.
const STAGE_BUSY: u8 = 2;

impl Connection {
    pub(super) fn new(peer: String) -> Connection {
        Connection {
            peer,
            stage: AtomicU8::new(STAGE_IDLE),
            unread: AtomicBool::new(false),
            authenticated: AtomicBool::new(false),
            active_ms: AtomicU64::new(0),
            opened: Instant::now(),
            eviction: CancellationToken::new(),
            session: OnceLock::new(),
        }
    }

    /// A request on it has passed authentication.
    pub(super) fn authenticated(&self) {
        self.authenticated.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_authenticated(&self) -> bool {
        self.authenticated.load(Ordering::Relaxed)
    }

    /// Whether no request is being answered.
    pub(super) fn is_idle(&self) -> bool {
        self.stage.load(Ordering::Relaxed) != STAGE_BUSY
    }

    /// When bytes last went either way.
    pub(super) fn last_active(&self) -> Instant {
        self.opened + Duration::from_millis(self.active_ms.load(Ordering::Relaxed))
    }

    fn touch(&self) {
        let since = u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.active_ms.store(since, Ordering::Relaxed);
    }

    /// Closes it for another connection.
    pub(super) fn evict(&self) {
        self.eviction.cancel();
    }

    pub(super) fn is_evicted(&self) -> bool {
        self.eviction.is_cancelled()
    }

    /// Ends when the connection is to be closed for another one.
    pub(super) async fn evicted(&self) {
        self.eviction.cancelled().await;
    }

    /// The head is complete.
    pub(super) fn request_begins(&self) {
        self.stage.store(STAGE_BUSY, Ordering::Relaxed);
    }

    /// The answer has begun; the next bytes belong to another request.
    pub(super) fn request_ends(&self) {
        self.stage.store(STAGE_IDLE, Ordering::Relaxed);
    }

    /// The answer was given without reading all of the request.
    pub(super) fn leave_unread(&self) {
        self.unread.store(true, Ordering::Relaxed);
    }

    /// The session of requests that name none.
    pub(super) fn session(&self) -> &str {
        self.session
            .get_or_init(|| uuid::Uuid::new_v4().to_string())
    }
}

/// How long a client may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClientTimeouts {
    /// To send the first byte of the first request.
    pub(super) first_byte: Duration,
    /// To send the head of a request, from its first byte.
    pub(super) head: Duration,
    /// Without reading a single byte of an answer.
    pub(super) stalled: Duration,
}

/// A socket with these timeouts.
#[derive(Debug)]
pub(super) struct TimedStream<T> {
    io: T,
    shared: Arc<Connection>,
    timeouts: ClientTimeouts,
    /// Whether no byte has arrived yet.
    is_silent: bool,
    first_byte: Option<Pin<Box<Sleep>>>,
    head_since: Option<Instant>,
    head: Option<Pin<Box<Sleep>>>,
    stalled: Option<Pin<Box<Sleep>>>,
    /// An error answer to be written before anything else.
    pending: Vec<u8>,
    linger: Option<(Pin<Box<Sleep>>, usize)>,
}

impl<T: AsyncRead + AsyncWrite + Unpin> TimedStream<T> {
    pub(super) fn new(io: T, shared: Arc<Connection>, timeouts: ClientTimeouts) -> TimedStream<T> {
        TimedStream {
            io,
            shared,
            timeouts,
            is_silent: true,
            first_byte: None,
            head_since: None,
            head: None,
            stalled: None,
            pending: Vec::new(),
            linger: None,
        }
    }

    /// Writes, and gives up on a client that takes nothing for too long.
    fn poll_write_in_time(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.in_time(cx, written)
    }

    fn in_time<R>(
        &mut self,
        cx: &mut Context<'_>,
        done: Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        if done.is_ready() {
            self.shared.touch();
            self.stalled = None;
            return done;
        }
        let limit = self.timeouts.stalled;
        let stalled = self
            .stalled
            .get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + limit)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(timeout_error("the client does not read its answer")))
    }

    fn poll_pending(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.pending.is_empty() {
            let pending = std::mem::take(&mut self.pending);
            let written = self.poll_write_in_time(cx, &pending);
            self.pending = pending;
            match ready!(written)? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => drop(self.pending.drain(..count)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Reads what the client still sends, so that closing does not reset the connection under the answer.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let (limit, bytes) = self
            .linger
            .get_or_insert_with(|| (Box::pin(sleep_until(Instant::now() + LINGER_TIMEOUT)), 0));
        let mut space = [0; 4096];
        loop {
            if *bytes > MAX_LINGER_BYTES || limit.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            let mut buffer = ReadBuf::new(&mut space);
            match Pin::new(&mut self.io).poll_read(cx, &mut buffer) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    *bytes += buffer.filled().len();
                }
                Poll::Ready(_) => return Poll::Ready(()),
            }
        }
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for TimedStream<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.io).poll_read(cx, buffer);
        let stage = &this.shared.stage;
        if buffer.filled().len() > before {
            this.shared.touch();
            this.first_byte = None;
            this.is_silent = false;
            if stage.load(Ordering::Relaxed) == STAGE_IDLE {
                stage.store(STAGE_HEAD, Ordering::Relaxed);
                this.head_since = Some(Instant::now());
            }
        } else if this.is_silent && read.is_pending() {
            let deadline = this.shared.opened + this.timeouts.first_byte;
            let limit = this
                .first_byte
                .get_or_insert_with(|| Box::pin(sleep_until(deadline)));
            ready!(limit.as_mut().poll(cx));
            return Poll::Ready(Err(timeout_error("no request was sent")));
        }
        if stage.load(Ordering::Relaxed) != STAGE_HEAD {
            this.head = None;
        } else if read.is_pending() {
            let since = this.head_since.unwrap_or_else(Instant::now);
            let deadline = since + this.timeouts.head;
            let limit = this
                .head
                .get_or_insert_with(|| Box::pin(sleep_until(deadline)));
            ready!(limit.as_mut().poll(cx));
            return Poll::Ready(Err(timeout_error("the request's head does not end")));
        }
        read
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TimedStream<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        ready!(this.poll_pending(cx))?;
        if let Some(status) = hyper_error_status(bytes) {
            this.pending = error_answer(status);
            this.shared.leave_unread();
            return Poll::Ready(Ok(bytes.len()));
        }
        this.poll_write_in_time(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // hyper's own answers have no body, so they come as the only slice.
        if let [only] = slices {
            return self.poll_write(cx, only);
        }
        let this = &mut *self;
        ready!(this.poll_pending(cx))?;
        let written = Pin::new(&mut this.io).poll_write_vectored(cx, slices);
        this.in_time(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        ready!(this.poll_pending(cx))?;
        let flushed = Pin::new(&mut this.io).poll_flush(cx);
        this.in_time(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.linger.is_none() {
            ready!(this.poll_pending(cx))?;
            let closed = Pin::new(&mut this.io).poll_shutdown(cx);
            ready!(this.in_time(cx, closed))?;
        }
        if this.shared.unread.load(Ordering::Relaxed) {
            ready!(this.poll_linger(cx));
        }
        Poll::Ready(Ok(()))
    }
}

fn timeout_error(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, what)
}

/// The status of an answer that hyper wrote by itself, to a head that it could not parse.
///
/// hyper has no hook for these answers, so they are recognised by their bytes. Every answer of a handler carries a
/// correlation id, and bodies are JSON or event streams, in which no line ends the way a head does.
fn hyper_error_status(bytes: &[u8]) -> Option<StatusCode> {
    let text = std::str::from_utf8(bytes).ok().filter(|text| {
        text.len() < 512 && text.starts_with("HTTP/1.1 4") && text.ends_with("\r\n\r\n")
    })?;
    let from_handler = text.contains("x-correlation-id") || !text.contains("content-length: 0\r\n");
    let status = text.get(9..12)?.parse().ok().filter(|_| !from_handler)?;
    StatusCode::from_u16(status).ok()
}

/// The answer that is sent instead.
fn error_answer(status: StatusCode) -> Vec<u8> {
    let id = uuid::Uuid::new_v4().to_string();
    let error = match status {
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => {
            HttpError::new(status, "TOO_LARGE", "the request's headers are too large")
                .hint("mcp.limits.max_header_bytes is the limit")
        }
        StatusCode::URI_TOO_LONG => HttpError::new(status, "TOO_LARGE", "the URL is too long"),
        _ => HttpError::new(status, "BAD_ARGS", "this is not an HTTP request"),
    };
    tracing::info!(
        target: "llmc::http",
        correlation_id = id,
        route = "unreadable",
        status = status.as_u16(),
        "request"
    );
    let body = error.body(&id).to_string();
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json; charset=utf-8\r\nx-correlation-id: {id}\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hypers_own_answers_are_replaced() {
        let own = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\ndate: x\r\n\r\n";
        assert_eq!(
            hyper_error_status(own),
            Some(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE)
        );
        for other in [
            "HTTP/1.1 404 Not Found\r\nx-correlation-id: a\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\n",
            "HTTP/1.1 100 Continue\r\n\r\n",
            "HTTP/1.1 400 Bad",
            "",
        ] {
            assert_eq!(hyper_error_status(other.as_bytes()), None, "{other}");
        }
    }
}
