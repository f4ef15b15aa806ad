//! `llmc serve` under test, and an HTTP client that sends exactly what a test writes.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::{Value, json};

use crate::process::{ProcessOutput, TEST_TIMEOUT, TestProcess};

#[derive(Debug)]
pub struct HttpServer {
    process: TestProcess,
    /// As the server reports it: `http://127.0.0.1:PORT`, or `unix:PATH`.
    pub url: String,
    /// The main token, when the server made one.
    pub token: String,
}

#[derive(Debug, Clone)]
pub struct HttpReply {
    pub status: u16,
    /// Headers as they came, names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl HttpServer {
    /// Waits for the line that says where it listens.
    pub fn new(process: TestProcess) -> HttpServer {
        let line = process.wait_for_stderr(|line| {
            let line: Value = serde_json::from_str(line).ok()?;
            (line["msg"] == "listening").then_some(line)
        });
        let text = |key: &str| line[key].as_str().unwrap().to_owned();
        let kept = text("token");
        let token = match kept.strip_prefix("in the file ") {
            Some(path) => std::fs::read_to_string(path).unwrap().trim_end().to_owned(),
            None => String::new(),
        };
        HttpServer {
            url: text("url"),
            process,
            token,
        }
    }

    pub fn process(&mut self) -> &mut TestProcess {
        &mut self.process
    }

    pub fn wait(self) -> ProcessOutput {
        self.process.wait()
    }

    pub fn address(&self) -> SocketAddr {
        let (_, address) = self.url.split_once("://").expect("an address");
        address.parse().unwrap()
    }

    /// A connection, on which nothing is waited for longer than [`TEST_TIMEOUT`].
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address()).unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(TEST_TIMEOUT)).unwrap();
        stream
    }

    /// Sends these bytes on a new connection; the answer to them.
    pub fn raw(&self, bytes: &[u8]) -> HttpReply {
        let mut stream = self.connect();
        // A server that refuses the request may close before all is written.
        let _ = stream.write_all(bytes);
        read_reply(&mut BufReader::new(stream))
    }

    /// A request on a new connection, with nothing in it but what is given, `Host` and the body's length.
    pub fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> HttpReply {
        self.raw(&request(method, path, headers, body))
    }

    /// A GET with the main token.
    pub fn get(&self, path: &str) -> HttpReply {
        self.send("GET", path, &[("X-LLMC-Token", &self.token)], b"")
    }

    /// A POST of JSON with the main token.
    pub fn post(&self, path: &str, body: &Value) -> HttpReply {
        self.post_as(&self.token, path, body)
    }

    /// A POST of JSON with another token.
    pub fn post_as(&self, token: &str, path: &str, body: &Value) -> HttpReply {
        let headers = [
            ("X-LLMC-Token", token),
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
        ];
        self.send("POST", path, &headers, body.to_string().as_bytes())
    }

    /// Calls a tool over REST.
    pub fn tool(&self, name: &str, args: Value) -> HttpReply {
        let body = json!({"session_id": "test", "name": name, "args": args});
        self.post("/tool", &body)
    }
}

/// A request as bytes. A header of the name `Host` takes the place of the usual one.
pub fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut head = format!("{method} {path} HTTP/1.1\r\n");
    let given = |name: &str| {
        headers
            .iter()
            .any(|(own, _)| own.eq_ignore_ascii_case(name))
    };
    if !given("host") {
        head.push_str("Host: localhost\r\n");
    }
    if !body.is_empty() && !given("content-length") && !given("transfer-encoding") {
        head.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let mut bytes = (head + "\r\n").into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

/// Reads one answer.
///
/// # Panics
/// What comes is no answer, or none comes.
pub fn read_reply(stream: &mut impl BufRead) -> HttpReply {
    let mut line = || {
        let mut line = String::new();
        stream.read_line(&mut line).expect("a line of the head");
        line.trim_end().to_owned()
    };
    let first = line();
    let status = first
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    let status = status.unwrap_or_else(|| panic!("no status line: {first:?}"));
    let mut headers = Vec::new();
    loop {
        let line = line();
        let Some((name, value)) = line.split_once(':') else {
            break;
        };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let mut reply = HttpReply {
        status,
        headers,
        body: Vec::new(),
    };
    if let Some(length) = reply.header("content-length") {
        reply.body = vec![0; length.parse().unwrap()];
        stream.read_exact(&mut reply.body).expect("the whole body");
    } else if reply.header("transfer-encoding") == Some("chunked") {
        while let Some(chunk) = read_chunk(stream) {
            reply.body.extend(chunk);
        }
    }
    reply
}

/// The next chunk of a body; `None` after the last.
pub fn read_chunk(stream: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut size = String::new();
    stream.read_line(&mut size).expect("a chunk's size");
    let size = usize::from_str_radix(size.trim(), 16).ok()?;
    let mut chunk = vec![0; size + 2];
    stream.read_exact(&mut chunk).expect("a whole chunk");
    chunk.truncate(size);
    (size > 0).then_some(chunk)
}

impl HttpReply {
    /// The one header of this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(own, _)| own == name);
        let value = found.next().map(|(_, value)| value.as_str());
        assert!(found.next().is_none(), "{name} twice: {:?}", self.headers);
        value
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("UTF-8")
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {} {:?}", self.status, self.text()))
    }

    /// Fails unless this is a success with a correlation id; its body.
    pub fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text());
        assert!(self.header("x-correlation-id").is_some(), "{self:?}");
        self.json()
    }

    /// Fails unless this is a refusal in its envelope (at `/mcp` the data of a JSON-RPC error), with the same correlation id in header and body; its body.
    pub fn refused(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        let mut body = self.json();
        if body["jsonrpc"] == "2.0" {
            assert!(body["error"]["code"].is_i64(), "{body}");
            body = body["error"]["data"].take();
        }
        assert_eq!(body["code"], code, "{body}");
        assert!(!body["message"].as_str().unwrap().is_empty(), "{body}");
        assert!(body.get("hint").is_some(), "{body}");
        let id = body["correlation_id"].as_str().expect("an id in the body");
        assert_eq!(self.header("x-correlation-id"), Some(id), "{body}");
        body
    }
}
