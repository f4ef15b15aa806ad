//! TLS to a server that is known by the certificate in the configuration, which is its own on the same machine.
//!
//! Neither names nor authorities are checked: a client that has the certificate knows what the server must present, and an
//! address has no name that a certificate could vouch for.

use std::io;
use std::path::Path;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{
    CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature,
};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};

/// Speaks TLS on a connection whose server must present the first certificate of this file.
pub(super) async fn connect(
    stream: TcpStream,
    certificate: &Path,
) -> io::Result<TlsStream<TcpStream>> {
    let unusable = |error: &dyn std::fmt::Display| {
        let message = format!("certificate {}: {error}", certificate.display());
        io::Error::new(io::ErrorKind::InvalidInput, message)
    };
    let expected = CertificateDer::from_pem_file(certificate).map_err(|error| unusable(&error))?;
    let provider = Arc::new(ring::default_provider());
    let verifier = ExpectedCertificate {
        expected,
        provider: provider.clone(),
    };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(&error))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").map_err(|error| unusable(&error))?;
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
}

/// Accepts one certificate.
#[derive(Debug)]
struct ExpectedCertificate {
    expected: CertificateDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for ExpectedCertificate {
    fn verify_server_cert(
        &self,
        presented: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match *presented == self.expected {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(Error::General(
                "the server presents another certificate than mcp.server.tls_cert".to_owned(),
            )),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}
