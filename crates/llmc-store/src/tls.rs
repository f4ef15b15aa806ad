//! Encrypted connections by rustls; the certificate is always checked.

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::{DatabaseUrl, Error};

/// Makes the encrypted side of connections to one database; empty when they are plain.
#[derive(Clone)]
pub(crate) struct TlsMaker(Option<TlsConnector>);

impl TlsMaker {
    pub(crate) fn new(url: &DatabaseUrl) -> Result<TlsMaker, Error> {
        if !url.is_encrypted() {
            return Ok(TlsMaker(None));
        }
        let roots = match url.root_certificate() {
            Some(file) => roots_of(file)?,
            None => RootCertStore::from_iter(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        };
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::Tls(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(TlsMaker(Some(TlsConnector::from(Arc::new(config)))))
    }
}

fn roots_of(file: &Path) -> Result<RootCertStore, Error> {
    let failed = |why: String| Error::Tls(format!("sslrootcert: {why}"));
    let mut roots = RootCertStore::empty();
    let certificates =
        CertificateDer::pem_file_iter(file).map_err(|error| failed(error.to_string()))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| failed(error.to_string()))?;
        roots
            .add(certificate)
            .map_err(|error| failed(error.to_string()))?;
    }
    match roots.is_empty() {
        true => Err(failed("the file holds no certificate".to_owned())),
        false => Ok(roots),
    }
}

/// One handshake to come. The library makes one for plain connections too, and never uses it.
pub(crate) struct TlsHandshake(Option<(TlsConnector, ServerName<'static>)>);

impl MakeTlsConnect<Socket> for TlsMaker {
    type Stream = TlsSocket;
    type TlsConnect = TlsHandshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, domain: &str) -> io::Result<TlsHandshake> {
        let Some(connector) = &self.0 else {
            return Ok(TlsHandshake(None));
        };
        let name = ServerName::try_from(domain.to_owned()).map_err(io::Error::other)?;
        Ok(TlsHandshake(Some((connector.clone(), name))))
    }
}

impl TlsConnect<Socket> for TlsHandshake {
    type Stream = TlsSocket;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TlsSocket>> + Send>>;

    fn connect(self, stream: Socket) -> Self::Future {
        Box::pin(async move {
            let Some((connector, name)) = self.0 else {
                return Err(io::Error::other("the connection is a plain one"));
            };
            let connected = connector.connect(name, stream).await?;
            Ok(TlsSocket(Box::new(connected)))
        })
    }
}

/// An encrypted connection.
pub(crate) struct TlsSocket(Box<tokio_rustls::client::TlsStream<Socket>>);

impl TlsStream for TlsSocket {
    /// None: the certificate was checked, which binds the login to this server.
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for TlsSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for TlsSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_shutdown(cx)
    }
}
