//! Listening: on an address or a socket file, plain or with TLS.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use llmc_config::{LinkPolicy, read_regular_file};
use llmc_tools::{App, Error, ErrorKind, Result};
use rustix::fs::Mode;
use rustix::process::umask;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The largest certificate chain or key that is read.
const MAX_PEM_BYTES: u64 = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// The host and port of the configuration.
    Address,
    /// A socket in the file system, open to this user alone.
    Unix(PathBuf),
}

impl std::str::FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Listen, String> {
        match text.strip_prefix("unix:") {
            Some(path) if !path.is_empty() => Ok(Listen::Unix(path.into())),
            _ => Err("expected unix:PATH; an address is set by --host and --port".to_owned()),
        }
    }
}

/// An open listener.
#[derive(Debug)]
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

/// An accepted connection.
#[derive(Debug)]
pub(super) enum ClientStream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// The socket's file, removed on drop unless another server has replaced it.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    inode: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let found = std::fs::symlink_metadata(&self.path);
        if found.is_ok_and(|facts| (facts.dev(), facts.ino()) == self.inode) {
            let _ = rustix::fs::unlink(&self.path);
        }
    }
}

impl Listener {
    /// Starts to listen.
    ///
    /// # Errors
    /// The address or the socket cannot be used.
    pub(super) async fn open(app: &App, listen: &Listen) -> Result<Listener> {
        match listen {
            Listen::Unix(path) => bind_unix(&app.root().join(path)),
            Listen::Address => {
                let server = &app.config().mcp.server;
                let host = server.host.trim_start_matches('[').trim_end_matches(']');
                let bound = TcpListener::bind((host, server.port)).await;
                let failed =
                    |error| listen_error(&format!("{} port {}", server.host, server.port), &error);
                Ok(Listener::Tcp(bound.map_err(failed)?))
            }
        }
    }

    pub(super) fn url(&self, tls: bool) -> String {
        match self {
            Listener::Unix(_, file) => format!("unix:{}", file.path.display()),
            Listener::Tcp(listener) => {
                let scheme = if tls { "https" } else { "http" };
                match listener.local_addr() {
                    Ok(address) => format!("{scheme}://{address}"),
                    Err(_) => format!("{scheme}://?"),
                }
            }
        }
    }

    /// The next connection and the address of the client.
    pub(super) async fn accept(&self) -> io::Result<(ClientStream, String)> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                // Answers are written whole; waiting for more to send would only delay them.
                stream.set_nodelay(true)?;
                Ok((ClientStream::Tcp(stream), peer.ip().to_string()))
            }
            Listener::Unix(listener, _) => {
                let (stream, _) = listener.accept().await?;
                Ok((ClientStream::Unix(stream), "unix".to_owned()))
            }
        }
    }
}

/// Binds a socket that only this user can open, and replaces one that no process listens on any more.
fn bind_unix(path: &Path) -> Result<Listener> {
    let shown = path.display().to_string();
    if let Ok(facts) = std::fs::symlink_metadata(path) {
        if !facts.file_type().is_socket() {
            let message = format!("{shown} exists and is no socket");
            return Err(Error::new(ErrorKind::AlreadyExists, message).hint("choose another path"));
        }
        match std::os::unix::net::UnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                let removed = rustix::fs::unlink(path);
                removed.map_err(|error| listen_error(&shown, &error.into()))?;
            }
            _ => return Err(listen_error(&shown, &io::ErrorKind::AddrInUse.into())),
        }
    }
    // Closed to others from the start; a mode set afterwards would leave a gap.
    let before = umask(Mode::from_raw_mode(0o177));
    let bound = UnixListener::bind(path);
    umask(before);
    let listener = bound.map_err(|error| listen_error(&shown, &error))?;
    let facts = std::fs::symlink_metadata(path).map_err(|error| listen_error(&shown, &error))?;
    let file = SocketFile {
        path: path.to_owned(),
        inode: (facts.dev(), facts.ino()),
    };
    Ok(Listener::Unix(listener, file))
}

fn listen_error(what: &str, error: &io::Error) -> Error {
    let error_for =
        |kind, reason: &str| Error::new(kind, format!("cannot listen on {what}: {reason}"));
    match error.kind() {
        io::ErrorKind::AddrInUse => error_for(ErrorKind::Busy, "it is in use")
            .hint("stop the other server, or choose another with --port"),
        io::ErrorKind::PermissionDenied => {
            error_for(ErrorKind::PermissionDenied, "permission denied")
                .hint("ports below 1024 need more rights")
        }
        io::ErrorKind::NotFound => error_for(ErrorKind::NotFound, "its folder does not exist"),
        _ => error_for(ErrorKind::BadArgs, &error.to_string()),
    }
}

/// The TLS side of connections, if the configuration asks for it.
///
/// # Errors
/// A certificate or key that is missing, unreadable, or does not fit the other.
pub(super) fn tls_acceptor(app: &App) -> Result<Option<TlsAcceptor>> {
    let server = &app.config().mcp.server;
    if !server.tls_enabled {
        return Ok(None);
    }
    let resolve = |key: &str, path: &Option<String>| match path {
        Some(path) => Ok(app.loaded().resolve(path)),
        None => Err(Error::bad_args(format!(
            "mcp.server.tls_enabled needs mcp.server.{key}"
        ))),
    };
    let cert = resolve("tls_cert", &server.tls_cert)?;
    let key = resolve("tls_key", &server.tls_key)?;
    let chain = read_pem(&cert)
        .and_then(|text| CertificateDer::pem_slice_iter(&text).collect::<PemResult<Vec<_>>>())
        .map_err(|error| certificate_error("tls_cert", &cert, error))?;
    if chain.is_empty() {
        return Err(certificate_error(
            "tls_cert",
            &cert,
            pem::Error::NoItemsFound,
        ));
    }
    let secret = read_pem(&key)
        .and_then(|text| PrivateKeyDer::from_pem_slice(&text))
        .map_err(|error| certificate_error("tls_key", &key, error))?;
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map(|config| config.with_no_client_auth())
        .and_then(|config| config.with_single_cert(chain, secret));
    let mut config = config.map_err(|error| {
        Error::bad_args(format!(
            "certificate and key cannot be used together: {error}"
        ))
        .hint("mcp.server.tls_key must be the key of mcp.server.tls_cert")
    })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Some(Arc::new(config).into()))
}

type PemResult<T> = std::result::Result<T, pem::Error>;

fn read_pem(path: &Path) -> PemResult<Vec<u8>> {
    let file =
        read_regular_file(path, MAX_PEM_BYTES, LinkPolicy::Follow).map_err(pem::Error::Io)?;
    Ok(file.bytes)
}

fn certificate_error(key: &str, path: &Path, error: pem::Error) -> Error {
    let (kind, reason) = match &error {
        pem::Error::Io(error) => match error.kind() {
            io::ErrorKind::NotFound => (ErrorKind::NotFound, "does not exist".to_owned()),
            io::ErrorKind::PermissionDenied => {
                (ErrorKind::PermissionDenied, "unreadable".to_owned())
            }
            _ => (ErrorKind::BadArgs, error.to_string()),
        },
        pem::Error::NoItemsFound => (ErrorKind::BadArgs, "nothing of that kind in it".to_owned()),
        _ => (ErrorKind::BadArgs, "not PEM".to_owned()),
    };
    Error::new(
        kind,
        format!("mcp.server.{key}: {}: {reason}", path.display()),
    )
}
