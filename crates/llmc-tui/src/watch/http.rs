//! One GET request to a server on the same machine. What it sends is not trusted: lines and bodies are bounded.

use std::io;
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::handshake;
use hyper::header::{ACCEPT, AUTHORIZATION, HOST, HeaderValue};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::{ServerAddress, tls};

/// How long the head of a response and each part of its body may take. An event stream sends every two seconds.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_LINE_BYTES: usize = 1 << 20;

/// Why there is no response, or none of this server.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Http(#[source] hyper::Error),
    #[error("timed out")]
    Timeout,
    #[error("status {0}")]
    Status(u16),
    #[error("it does not speak HTTP")]
    NotHttp,
    #[error("it sends another form of data")]
    NotOurs(#[source] serde_json::Error),
    #[error("it sends more than fits")]
    TooLong,
    #[error("it has characters that no header may hold")]
    InvalidToken,
}

impl From<hyper::Error> for FetchError {
    fn from(error: hyper::Error) -> FetchError {
        if error.is_parse() || error.is_incomplete_message() {
            FetchError::NotHttp
        } else {
            FetchError::Http(error)
        }
    }
}

/// The body of a response, read as it comes.
pub(super) struct ResponseBody {
    runtime: Runtime,
    body: Incoming,
    unread: Vec<u8>,
}

pub(super) fn get(
    address: &ServerAddress,
    token: Option<&str>,
    path: &str,
) -> Result<ResponseBody, FetchError> {
    let host = match address {
        ServerAddress::Tcp(address) | ServerAddress::Tls(address, _) => address.to_string(),
        ServerAddress::Unix(_) => "localhost".to_owned(),
    };
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.uri_mut() = path.parse().map_err(|_| FetchError::NotHttp)?;
    let headers = request.headers_mut();
    headers.insert(
        HOST,
        HeaderValue::try_from(host).map_err(|_| FetchError::NotHttp)?,
    );
    let accepted = HeaderValue::from_static("application/json, text/event-stream");
    headers.insert(ACCEPT, accepted);
    if let Some(token) = token {
        let token = HeaderValue::try_from(format!("Bearer {token}"));
        headers.insert(AUTHORIZATION, token.map_err(|_| FetchError::InvalidToken)?);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let response = runtime.block_on(async {
        timeout(RESPONSE_TIMEOUT, send(address, request))
            .await
            .map_err(|_| FetchError::Timeout)?
    })?;
    if response.status() != StatusCode::OK {
        return Err(FetchError::Status(response.status().as_u16()));
    }
    Ok(ResponseBody {
        runtime,
        body: response.into_body(),
        unread: Vec::new(),
    })
}

async fn send(
    address: &ServerAddress,
    request: Request<Empty<Bytes>>,
) -> Result<Response<Incoming>, FetchError> {
    match address {
        ServerAddress::Tcp(address) => exchange(TcpStream::connect(address).await?, request).await,
        ServerAddress::Tls(address, certificate) => {
            let certificate = certificate.as_deref().ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidInput, "no certificate is configured")
            })?;
            let stream = TcpStream::connect(address).await?;
            exchange(tls::connect(stream, certificate).await?, request).await
        }
        ServerAddress::Unix(path) => exchange(UnixStream::connect(path).await?, request).await,
    }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    request: Request<Empty<Bytes>>,
) -> Result<Response<Incoming>, FetchError> {
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
    // Runs while the runtime waits for the response or for more of its body.
    tokio::spawn(connection);
    Ok(sender.send_request(request).await?)
}

impl ResponseBody {
    /// The rest of the body as text.
    pub(super) fn read_text(mut self, max_bytes: usize) -> Result<String, FetchError> {
        while self.read_more()? {
            if self.unread.len() > max_bytes {
                return Err(FetchError::TooLong);
            }
        }
        String::from_utf8(self.unread).map_err(|_| FetchError::NotHttp)
    }

    /// The next line without its end; `None` when the body has ended.
    pub(super) fn read_line(&mut self) -> Result<Option<String>, FetchError> {
        let mut searched = 0;
        loop {
            if let Some(end) = self.unread[searched..].iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=searched + end).collect();
                let line = String::from_utf8(line).map_err(|_| FetchError::NotHttp)?;
                return Ok(Some(line.trim_end_matches(['\r', '\n']).to_owned()));
            }
            searched = self.unread.len();
            if searched > MAX_LINE_BYTES {
                return Err(FetchError::TooLong);
            }
            if !self.read_more()? {
                return Ok(None);
            }
        }
    }

    /// Waits for the next part of the body; `false` at its end.
    fn read_more(&mut self) -> Result<bool, FetchError> {
        let body = &mut self.body;
        let frame = self
            .runtime
            .block_on(async { timeout(RESPONSE_TIMEOUT, body.frame()).await })
            .map_err(|_| FetchError::Timeout)?;
        let Some(frame) = frame.transpose()? else {
            return Ok(false);
        };
        if let Some(data) = frame.data_ref() {
            self.unread.extend_from_slice(data);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    /// Asks a server that sends these bytes and closes the connection.
    fn fetch<T>(
        response: &str,
        read: impl FnOnce(ResponseBody) -> Result<T, FetchError>,
    ) -> Result<T, FetchError> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = ServerAddress::Tcp(listener.local_addr().unwrap());
        let response = response.to_owned();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(response.as_bytes());
        });
        let result = get(&address, Some("t"), "/x").and_then(read);
        server.join().unwrap();
        result
    }

    fn text(response: &str) -> Result<String, FetchError> {
        fetch(response, |body| body.read_text(100))
    }

    #[test]
    fn bodies_are_read_to_their_end() {
        let length = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcdef";
        assert_eq!(text(length).unwrap(), "abc");
        let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n\
                       3\r\nab\n\r\n3\r\ncd\r\r\n3\r\n\ne\n\r\n0\r\n\r\n";
        let lines = fetch(chunked, |mut body| {
            let mut lines = Vec::new();
            while let Some(line) = body.read_line()? {
                lines.push(line);
            }
            Ok(lines)
        });
        assert_eq!(lines.unwrap(), ["ab", "cd", "e"]);
    }

    #[test]
    fn what_is_no_response_is_an_error() {
        for response in [
            "",
            "SSH-2.0-OpenSSH\r\n",
            "HTTP/1.1 200",
            "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        ] {
            assert!(text(response).is_err(), "{response:?}");
        }
        let long = format!("HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\n{:200}", "");
        assert!(matches!(text(&long), Err(FetchError::TooLong)));
        let status = text("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n");
        assert!(matches!(status, Err(FetchError::Status(401))));
        let address = ServerAddress::Unix("/nowhere".into());
        let token = get(&address, Some("a\nb"), "/x");
        assert!(matches!(token, Err(FetchError::InvalidToken)));
    }
}
