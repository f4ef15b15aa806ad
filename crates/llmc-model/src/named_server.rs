//! A server at an address that the operator has named, for protocols other than a provider's.
//!
//! Models are reached along a [`Route`](crate::Route), which a policy admits. An upstream's address is the operator's own
//! setting, trusted like every other that widens what the server may do; it gets the same strict reading of the address,
//! the same certificates, no redirects and no proxies.

use std::net::{SocketAddr, ToSocketAddrs};
use std::ops::ControlFlow;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::header::{CONTENT_TYPE, HOST, HeaderName, HeaderValue};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::endpoint::Endpoint;
use crate::transport::{CONNECT_TIMEOUT, connect, tls};

/// A server at an address.
#[derive(Debug, Clone)]
pub struct NamedServer {
    endpoint: Endpoint,
}

/// The head of a response.
#[derive(Debug, Clone)]
pub struct ReplyHead {
    pub status: u16,
    /// Names in lower case.
    headers: Vec<(String, String)>,
}

impl ReplyHead {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let found = headers.find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// Takes the body of a response piece by piece, first an empty one when the head has come; [`ControlFlow::Break`] closes the
/// connection.
pub type BodySink<'a> = &'a mut (dyn FnMut(&ReplyHead, &[u8]) -> ControlFlow<()> + Send);

impl NamedServer {
    /// Reads the address.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(url: &str) -> Result<NamedServer, &'static str> {
        Ok(NamedServer {
            endpoint: url.parse()?,
        })
    }

    /// Whether what is sent there stays on the machine or is encrypted.
    pub fn is_private(&self) -> bool {
        self.endpoint.tls
            || matches!(
                self.endpoint.host.as_str(),
                "localhost" | "127.0.0.1" | "::1"
            )
    }

    /// Posts JSON, and hands on what comes back. Dropping the future closes the connection.
    ///
    /// # Errors
    /// Why there is no response, in words.
    pub async fn post(
        &self,
        headers: &[(String, String)],
        body: Vec<u8>,
        on_body: BodySink<'_>,
    ) -> Result<ReplyHead, String> {
        self.send(Some(body), headers, on_body).await
    }

    /// Asks for what is there, as [`NamedServer::post`] does.
    ///
    /// # Errors
    /// Why there is no response, in words.
    pub async fn get(
        &self,
        headers: &[(String, String)],
        on_body: BodySink<'_>,
    ) -> Result<ReplyHead, String> {
        self.send(None, headers, on_body).await
    }

    async fn send(
        &self,
        body: Option<Vec<u8>>,
        headers: &[(String, String)],
        on_body: BodySink<'_>,
    ) -> Result<ReplyHead, String> {
        let endpoint = &self.endpoint;
        let (host, port) = (endpoint.host.clone(), endpoint.port);
        let lookup = move || -> std::io::Result<Vec<SocketAddr>> {
            Ok((host.as_str(), port).to_socket_addrs()?.collect())
        };
        let found = tokio::task::spawn_blocking(lookup).await;
        let addresses = found
            .map_err(|error| error.to_string())?
            .map_err(|error| format!("no address: {error}"))?;
        let stream = connect(&addresses).await?;
        if !endpoint.tls {
            return self.exchange(stream, body, headers, on_body).await;
        }
        let name = ServerName::try_from(endpoint.host.clone())
            .map_err(|_| "its name cannot be in a certificate".to_owned())?;
        let connector = TlsConnector::from(tls());
        let secure = tokio::time::timeout(CONNECT_TIMEOUT, connector.connect(name, stream)).await;
        match secure {
            Ok(Ok(stream)) => self.exchange(stream, body, headers, on_body).await,
            Ok(Err(error)) => Err(format!("TLS: {error}")),
            Err(_) => Err("TLS took too long".to_owned()),
        }
    }

    async fn exchange(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        body: Option<Vec<u8>>,
        headers: &[(String, String)],
        on_body: BodySink<'_>,
    ) -> Result<ReplyHead, String> {
        let failed = |error: &dyn std::fmt::Display| format!("no answer came: {error}");
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| failed(&error))?;
        let path = match self.endpoint.path.as_str() {
            "" => "/",
            path => path,
        };
        let mut request = match &body {
            Some(_) => hyper::Request::post(path).header(CONTENT_TYPE, "application/json"),
            None => hyper::Request::get(path),
        };
        request = request
            .header(HOST, self.endpoint.authority())
            .header("user-agent", concat!("llmc/", env!("CARGO_PKG_VERSION")));
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| format!("{name} is no header"))?;
            let mut value = HeaderValue::from_str(value)
                .map_err(|_| format!("the value of {name} holds characters no header may"))?;
            value.set_sensitive(true);
            request = request.header(name, value);
        }
        let request = request
            .body(Full::new(Bytes::from(body.unwrap_or_default())))
            .map_err(|error| failed(&error))?;
        let answered = async {
            let response = sender
                .send_request(request)
                .await
                .map_err(|error| failed(&error))?;
            let known = response.headers().iter().filter_map(|(name, value)| {
                Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
            });
            let head = ReplyHead {
                status: response.status().as_u16(),
                headers: known.collect(),
            };
            let mut body = response.into_body();
            if on_body(&head, &[]).is_break() {
                return Ok(head);
            }
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|error| failed(&error))?;
                if let Some(data) = frame.data_ref()
                    && on_body(&head, data).is_break()
                {
                    break;
                }
            }
            Ok(head)
        };
        // Driven here rather than in a task of its own, so that dropping the future closes the connection.
        tokio::pin!(connection, answered);
        tokio::select! {
            answer = &mut answered => answer,
            ended = &mut connection => match ended {
                // The connection may end before its answer has been picked up.
                Ok(()) => answered.await,
                Err(error) => Err(failed(&error)),
            },
        }
    }
}
