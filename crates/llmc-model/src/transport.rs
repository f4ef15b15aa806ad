//! One HTTP request to pinned addresses: no redirects, no proxies, no second name lookup.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{CONTENT_TYPE, HOST, HeaderName, HeaderValue};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use crate::policy::Route;

/// For the TCP connection to one address, and again for the TLS handshake.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_RESPONSE_BYTES: usize = 32 << 20;

pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) body: Bytes,
}

pub(crate) enum TransportError {
    NotSent(String),
    /// The request was sent; the provider may have processed it.
    AnswerLost(String),
}

/// Posts JSON. Dropping the future closes the connection.
pub(crate) async fn post(
    route: &Route,
    path: &str,
    headers: &[(&'static str, String)],
    body: Bytes,
) -> Result<Response, TransportError> {
    let stream = connect(&route.addresses)
        .await
        .map_err(TransportError::NotSent)?;
    if !route.endpoint.tls {
        return exchange(stream, route, path, headers, body).await;
    }
    let name = ServerName::try_from(route.endpoint.host.clone())
        .map_err(|_| TransportError::NotSent("its name cannot be in a certificate".to_owned()))?;
    let connector = TlsConnector::from(tls());
    let secure = tokio::time::timeout(CONNECT_TIMEOUT, connector.connect(name, stream)).await;
    match secure {
        Ok(Ok(stream)) => exchange(stream, route, path, headers, body).await,
        Ok(Err(error)) => Err(TransportError::NotSent(format!("TLS: {error}"))),
        Err(_) => Err(TransportError::NotSent("TLS took too long".to_owned())),
    }
}

pub(crate) async fn connect(addresses: &[SocketAddr]) -> Result<TcpStream, String> {
    let mut why = "no address".to_owned();
    for address in addresses {
        match tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Ok(Err(error)) => why = format!("cannot connect: {error}"),
            Err(_) => why = "cannot connect: no answer".to_owned(),
        }
    }
    Err(why)
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    route: &Route,
    path: &str,
    headers: &[(&'static str, String)],
    body: Bytes,
) -> Result<Response, TransportError> {
    let not_sent = |error: &dyn std::fmt::Display| TransportError::NotSent(error.to_string());
    let lost = |error: &dyn std::fmt::Display| {
        TransportError::AnswerLost(format!("no answer came: {error}"))
    };
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| not_sent(&error))?;
    let mut request = hyper::Request::post(format!("{}{path}", route.endpoint.path))
        .header(HOST, route.endpoint.authority())
        .header(CONTENT_TYPE, "application/json")
        .header("user-agent", concat!("llmc/", env!("CARGO_PKG_VERSION")));
    for (name, value) in headers {
        let mut value = HeaderValue::from_str(value).map_err(|_| {
            TransportError::NotSent("the key holds characters no header may".to_owned())
        })?;
        value.set_sensitive(true);
        request = request.header(HeaderName::from_static(name), value);
    }
    let request = request
        .body(Full::new(body))
        .map_err(|error| not_sent(&error))?;
    let answered = async {
        let response = sender
            .send_request(request)
            .await
            .map_err(|error| lost(&error))?;
        let status = response.status().as_u16();
        let retry_after = response
            .headers()
            .get("retry-after")
            .and_then(|value| value.to_str().ok()?.trim().parse().ok())
            .map(Duration::from_secs);
        let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES)
            .collect()
            .await
            .map_err(|error| lost(&error))?;
        Ok(Response {
            status,
            retry_after,
            body: body.to_bytes(),
        })
    };
    // Driven here rather than in a task of its own, so that dropping the future closes the connection.
    tokio::pin!(connection, answered);
    tokio::select! {
        answer = &mut answered => answer,
        ended = &mut connection => match ended {
            // The connection may end before its answer has been picked up.
            Ok(()) => answered.await,
            Err(error) => Err(lost(&error)),
        },
    }
}

/// One configuration for all connections: ring, and the root certificates compiled into the program.
pub(crate) fn tls() -> Arc<ClientConfig> {
    static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    let config = CONFIG.get_or_init(|| {
        let roots = RootCertStore {
            roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
        };
        let provider = Arc::new(crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring knows the versions that rustls has on by default")
            .with_root_certificates(roots)
            .with_no_client_auth();
        Arc::new(config)
    });
    config.clone()
}
