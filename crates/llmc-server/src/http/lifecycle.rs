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
use llmc_tools::{App, Error, Kind, Result, Truth};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::task::TaskTracker;
use tower_service::Service;

use super::connection::{Connection, Guarded, Patience};
use super::listen::{self, Listen, Listener, Stream};
use super::tokens::{Source, Tokens};
use super::{Door, router};

/// How long requests in work may go on once we are told to stop.
const DRAIN: Duration = Duration::from_secs(10);
/// How long they may take to give up after that, and after a second word to stop.
const GIVE_UP: Duration = Duration::from_millis(1500);
const AT_ONCE: Duration = Duration::from_millis(300);
/// A pause after a connection could not be accepted, for want of descriptors most likely.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Descriptors kept free for files, pipes and stores.
const SPARE_DESCRIPTORS: u64 = 256;
/// Connections at the same time, where there are descriptors for so many.
const CONNECTIONS: u64 = 16_384;

/// A server that listens.
#[derive(Debug, Clone)]
pub struct Started {
    /// Where.
    pub url: String,
    /// Where the main token is to be found.
    pub token: Source,
}

/// How a server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finished {
    /// Every request in work was answered.
    Drained,
    /// Some took too long and were cancelled.
    Overdue,
    /// A second signal ended it at once.
    Forced,
}

/// Serves until a signal ends it; `started` hears when connections are accepted.
///
/// # Errors
/// Whatever keeps it from starting: an address in use, a certificate or a token that cannot be read.
pub async fn serve(
    app: Arc<App>,
    listen: Listen,
    started: impl FnOnce(&Started),
) -> Result<Finished> {
    let private = matches!(listen, Listen::Unix(_)) || app.config().mcp.server.is_loopback();
    let tls = match listen {
        Listen::Address => listen::tls(&app)?,
        Listen::Unix(_) => None,
    };
    let tokens = Tokens::load(&app, private)?;
    let source = tokens.source().clone();
    let door = Arc::new(Door::new(app.clone(), tokens));
    let router = router(&door)?;
    let mut signals = Signals::new().map_err(|error| {
        Error::new(Kind::Internal, format!("signals cannot be caught: {error}"))
    })?;
    let listener = Listener::open(&app, &listen).await?;
    // What the kernel gives is found out now, not while the first client waits for its health check.
    let warmed = app.clone();
    let _ = tokio::task::spawn_blocking(move || Truth::confinement(&warmed)).await;
    started(&Started {
        url: listener.url(tls.is_some()),
        token: source,
    });

    let connections = TaskTracker::new();
    let host = Host {
        patience: Patience {
            head: app.config().mcp.tools.read_timeout(),
            stalled: app.config().mcp.tools.idle_timeout(),
        },
        http: http(&app),
        door: door.clone(),
        router,
        tls,
    };
    tokio::select! {
        () = accept(&listener, Arc::new(host), &connections) => {}
        () = signals.next() => {}
    }
    drop(listener);
    door.stop.cancel();
    connections.close();
    door.calls.close();
    let drained = async {
        connections.wait().await;
        door.calls.wait().await;
    };
    tokio::pin!(drained);
    let finished = tokio::select! {
        () = &mut drained => return Ok(Finished::Drained),
        () = tokio::time::sleep(DRAIN) => Finished::Overdue,
        () = signals.next() => Finished::Forced,
    };
    door.end.cancel();
    let patience = match finished {
        Finished::Forced => AT_ONCE,
        _ => GIVE_UP,
    };
    tokio::select! {
        () = drained => Ok(finished),
        () = tokio::time::sleep(patience) => Ok(finished),
        () = signals.next() => Ok(Finished::Forced),
    }
}

/// The words to stop.
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
struct Host {
    door: Arc<Door>,
    router: Router,
    http: http1::Builder,
    tls: Option<TlsAcceptor>,
    patience: Patience,
}

fn http(app: &App) -> http1::Builder {
    let limit = usize::try_from(app.config().mcp.limits.max_header_bytes).unwrap_or(usize::MAX);
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        // Counted from the end of the last answer, so it is also how long a connection may idle. How long a head may
        // take once it has begun is `Patience::head`.
        .header_read_timeout(app.config().mcp.tools.idle_timeout())
        // Room for a head that is too long by our count, so that we and not hyper refuse it.
        .max_buf_size(limit.saturating_mul(2).clamp(64 << 10, 1 << 20));
    http
}

async fn accept(listener: &Listener, host: Arc<Host>, connections: &TaskTracker) {
    let slots = Arc::new(Semaphore::new(descriptors()));
    loop {
        let Ok(slot) = slots.clone().acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, peer)) => {
                let host = host.clone();
                connections.spawn(async move {
                    host.serve(stream, peer).await;
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

/// As many connections as there may be, having asked for as many descriptors as are allowed.
fn descriptors() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let wanted = CONNECTIONS + SPARE_DESCRIPTORS;
    let most = limit.maximum.map_or(wanted, |most| most.min(wanted));
    let now = limit.current.unwrap_or(wanted);
    let raised = Rlimit {
        current: Some(most.max(now)),
        maximum: limit.maximum,
    };
    let got = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => most.max(now),
        Err(_) => now,
    };
    let room = got.saturating_sub(SPARE_DESCRIPTORS).clamp(32, CONNECTIONS);
    usize::try_from(room).unwrap_or(32)
}

impl Host {
    async fn serve(&self, stream: Stream, peer: String) {
        let _present = self.door.meter.connection();
        match (stream, &self.tls) {
            (Stream::Unix(stream), _) => self.converse(stream, peer).await,
            (Stream::Tcp(stream), None) => self.converse(stream, peer).await,
            (Stream::Tcp(stream), Some(tls)) => {
                match tokio::time::timeout(self.patience.head, tls.accept(stream)).await {
                    Ok(Ok(stream)) => self.converse(stream, peer).await,
                    Ok(Err(error)) => tracing::debug!(%error, peer, "no TLS handshake"),
                    Err(_) => tracing::debug!(peer, "no TLS handshake in time"),
                }
            }
        }
    }

    /// Answers requests until either side has had enough.
    async fn converse(&self, stream: impl AsyncRead + AsyncWrite + Unpin, peer: String) {
        let connection = Arc::new(Connection::new(peer));
        let stream = Guarded::new(stream, connection.clone(), self.patience);
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
        let talking = self.http.serve_connection(TokioIo::new(stream), answer);
        tokio::pin!(talking);
        let ended = tokio::select! {
            ended = &mut talking => ended,
            () = self.door.stop.cancelled() => {
                talking.as_mut().graceful_shutdown();
                talking.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, peer = connection.peer, "a connection ended early");
        }
    }
}
