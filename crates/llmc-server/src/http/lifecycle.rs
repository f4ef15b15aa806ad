//! Start and end of the server: listen, accept, drain, stop.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use llmc_tools::{App, ConfinementSummary, Error, ErrorKind, Result};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower_service::Service;

use super::connection::{ClientTimeouts, Connection, TimedStream};
use super::connections::ConnectionTable;
use super::exposure;
use super::listen::{self, ClientStream, Listen, Listener};
use super::sessions::TICKET_ROUTE;
use super::tokens::{TokenSource, Tokens};
use super::{HttpState, router};
use crate::control::{ControlSocket, LinkMaker, ServerFacts, ServerKind};

/// How long requests in progress may go on after the first signal.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// How long cancelled requests may take to end after that.
const CANCEL_TIMEOUT: Duration = Duration::from_millis(1500);
/// The same after a second signal.
const FORCED_CANCEL_TIMEOUT: Duration = Duration::from_millis(300);
/// A pause after a connection could not be accepted, most likely for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long a client may take to send the first byte of its first request.
const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(5);
/// Descriptors kept free for files, pipes and stores.
const SPARE_DESCRIPTORS: u64 = 256;
/// How long a server for the dashboard alone waits for a page.
const DASHBOARD_IDLE_TIMEOUT: Duration = Duration::from_secs(30 * 60);
const IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(15);
/// Connections at the same time, if there are descriptors for so many.
const MAX_CONNECTIONS: u64 = 16_384;

/// A server that accepts connections.
#[derive(Debug, Clone)]
pub struct ListeningServer {
    pub url: String,
    /// Where the main token is.
    pub token: TokenSource,
}

/// How a server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServeOutcome {
    /// Every request in progress was answered.
    Drained,
    /// Some took too long and were cancelled.
    Overdue,
    /// A second signal ended it at once.
    Forced,
}

/// Serves until a signal ends it; `started` is called when connections are accepted.
///
/// # Errors
/// The server cannot start: an address in use, a certificate or a token that cannot be read.
pub async fn serve(
    app: Arc<App>,
    listen: Listen,
    started: impl FnOnce(&ListeningServer),
) -> Result<ServeOutcome> {
    serve_as(ServerKind::Http, app, listen, started).await
}

/// Serves the dashboard alone, to browsers that come with a one-time link, until none has used it for a while. The
/// configuration must name a loopback address.
///
/// # Errors
/// The server cannot start.
pub async fn serve_dashboard(
    app: Arc<App>,
    started: impl FnOnce(&ListeningServer),
) -> Result<ServeOutcome> {
    if !app.config().mcp.server.is_loopback() {
        let message = "the dashboard is served on a loopback address only";
        return Err(Error::bad_args(message).hint("leave --host out"));
    }
    serve_as(ServerKind::Dashboard, app, Listen::Address, started).await
}

async fn serve_as(
    kind: ServerKind,
    app: Arc<App>,
    listen: Listen,
    started: impl FnOnce(&ListeningServer),
) -> Result<ServeOutcome> {
    let private = matches!(listen, Listen::Unix(_)) || app.config().mcp.server.is_loopback();
    if !private {
        exposure::check(&app)?;
    }
    let tls = match listen {
        Listen::Address => listen::tls_acceptor(&app)?,
        Listen::Unix(_) => None,
    };
    let stop = CancellationToken::new();
    let tokens = match kind {
        ServerKind::Dashboard => Tokens::none(&app)?,
        _ => Tokens::load(&app, private)?.with_shared(&app, &stop),
    };
    let source = tokens.source().clone();
    let state = Arc::new(HttpState::new(app.clone(), tokens, kind, stop));
    let router = router(&state)?;
    let mut signals = Signals::new().map_err(|error| {
        Error::new(
            ErrorKind::Internal,
            format!("signals cannot be caught: {error}"),
        )
    })?;
    let listener = Listener::open(&app, &listen).await?;
    // The kernel is probed now, not while the first client waits for its health check.
    let probed = app.clone();
    let _ = tokio::task::spawn_blocking(move || {
        ConfinementSummary::confinement(&probed);
    })
    .await;
    let url = listener.url(tls.is_some());
    let facts = facts(&state, &listener, &url);
    let _ = state.facts.set(facts.clone());
    let _control = ControlSocket::open(&app, facts);
    started(&ListeningServer { url, token: source });

    let connections = TaskTracker::new();
    let host = ConnectionHost {
        timeouts: ClientTimeouts {
            first_byte: FIRST_BYTE_TIMEOUT,
            head: app.config().mcp.tools.read_timeout(),
            stalled: app.config().mcp.tools.idle_timeout(),
        },
        http: http(&app),
        state: state.clone(),
        router,
        tls,
    };
    tokio::select! {
        () = accept(&listener, Arc::new(host), &connections) => {}
        () = signals.next() => {}
        () = idle(&state), if kind == ServerKind::Dashboard => {}
    }
    drop(listener);
    state.stop.cancel();
    connections.close();
    state.calls.close();
    let drained = async {
        connections.wait().await;
        state.calls.wait().await;
    };
    tokio::pin!(drained);
    let finished = tokio::select! {
        () = &mut drained => return Ok(ServeOutcome::Drained),
        () = tokio::time::sleep(DRAIN_TIMEOUT) => ServeOutcome::Overdue,
        () = signals.next() => ServeOutcome::Forced,
    };
    state.end.cancel();
    let timeout = match finished {
        ServeOutcome::Forced => FORCED_CANCEL_TIMEOUT,
        _ => CANCEL_TIMEOUT,
    };
    tokio::select! {
        () = drained => Ok(finished),
        () = tokio::time::sleep(timeout) => Ok(finished),
        () = signals.next() => Ok(ServeOutcome::Forced),
    }
}

/// What this server tells of itself, with links for those who can open them: browsers on this machine.
fn facts(state: &Arc<HttpState>, listener: &Listener, url: &str) -> ServerFacts {
    let is_reachable =
        matches!(listener, Listener::Tcp(_)) && (state.app.config().mcp.server.is_loopback());
    let link: Option<LinkMaker> = is_reachable.then(|| {
        state.sessions.listen_on(url);
        let (state, url) = (Arc::downgrade(state), url.to_owned());
        let link = move || {
            let ticket = state.upgrade()?.sessions.ticket()?;
            Some(format!("{url}{TICKET_ROUTE}?ticket={ticket}"))
        };
        Arc::new(link) as LinkMaker
    });
    ServerFacts {
        kind: state.kind,
        url: Some(url.to_owned()),
        link,
    }
}

/// Ends when the dashboard was not used for a while.
async fn idle(state: &HttpState) {
    while state.idle() < DASHBOARD_IDLE_TIMEOUT {
        tokio::time::sleep(IDLE_CHECK_INTERVAL).await;
    }
}

/// The signals that end the server.
struct Signals([Signal; 3]);

impl Signals {
    fn new() -> io::Result<Signals> {
        Ok(Signals([
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
            signal(SignalKind::hangup())?,
        ]))
    }

    async fn next(&mut self) {
        let [terminate, interrupt, hangup] = &mut self.0;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}

/// What every connection is served with.
struct ConnectionHost {
    state: Arc<HttpState>,
    router: Router,
    http: http1::Builder,
    tls: Option<TlsAcceptor>,
    timeouts: ClientTimeouts,
}

fn http(app: &App) -> http1::Builder {
    let limit = usize::try_from(app.config().mcp.limits.max_header_bytes).unwrap_or(usize::MAX);
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        // Counted from the end of the last answer, so it is also how long a connection may idle. How long a head may
        // take once it has begun is `ClientTimeouts::head`.
        .header_read_timeout(app.config().mcp.tools.idle_timeout())
        // Room for a head above the limit, so that the gate and not hyper refuses it.
        .max_buf_size(limit.saturating_mul(2).clamp(64 << 10, 1 << 20));
    http
}

async fn accept(listener: &Listener, host: Arc<ConnectionHost>, connections: &TaskTracker) {
    let table = ConnectionTable::new(max_connections());
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let connection = Arc::new(Connection::new(peer));
                let Some(slot) = table.admit(&connection).await else {
                    tracing::warn!(peer = connection.peer, "no room for another connection");
                    continue;
                };
                let host = host.clone();
                connections.spawn(async move {
                    tokio::select! {
                        () = host.serve(stream, connection.clone()) => {}
                        () = connection.evicted() => {
                            tracing::debug!(peer = connection.peer, "closed for another connection");
                        }
                    }
                    drop(slot);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Raises the limit of descriptors, and returns how many connections they allow.
fn max_connections() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let wanted = MAX_CONNECTIONS + SPARE_DESCRIPTORS;
    let allowed = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
    let now = limit.current.unwrap_or(wanted);
    let raised = Rlimit {
        current: Some(allowed.max(now)),
        maximum: limit.maximum,
    };
    let limit = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => allowed.max(now),
        Err(_) => now,
    };
    let room = limit
        .saturating_sub(SPARE_DESCRIPTORS)
        .clamp(32, MAX_CONNECTIONS);
    usize::try_from(room).unwrap_or(32)
}

impl ConnectionHost {
    async fn serve(&self, stream: ClientStream, connection: Arc<Connection>) {
        let _gauge = self.state.metrics.connection();
        match (stream, &self.tls) {
            (ClientStream::Unix(stream), _) => self.serve_stream(stream, connection).await,
            (ClientStream::Tcp(stream), None) => self.serve_stream(stream, connection).await,
            (ClientStream::Tcp(stream), Some(tls)) => {
                let peer = &connection.peer;
                match tokio::time::timeout(self.timeouts.first_byte, tls.accept(stream)).await {
                    Ok(Ok(stream)) => self.serve_stream(stream, connection).await,
                    Ok(Err(error)) => tracing::debug!(%error, peer, "no TLS handshake"),
                    Err(_) => tracing::debug!(peer, "no TLS handshake in time"),
                }
            }
        }
    }

    /// Answers requests until either side closes the connection.
    async fn serve_stream(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        connection: Arc<Connection>,
    ) {
        let stream = TimedStream::new(stream, connection.clone(), self.timeouts);
        let answer = service_fn(|request: hyper::Request<hyper::body::Incoming>| {
            connection.request_begins();
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(connection.clone());
            let mut router = self.router.clone();
            async move {
                Ok::<_, Infallible>(
                    router
                        .call(request)
                        .await
                        .unwrap_or_else(|never| match never {}),
                )
            }
        });
        let serving = self.http.serve_connection(TokioIo::new(stream), answer);
        tokio::pin!(serving);
        let ended = tokio::select! {
            ended = &mut serving => ended,
            () = self.state.stop.cancelled() => {
                serving.as_mut().graceful_shutdown();
                serving.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, peer = connection.peer, "a connection ended early");
        }
    }
}
