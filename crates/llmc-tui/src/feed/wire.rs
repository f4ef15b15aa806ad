//! Just enough HTTP/1.1 to read from a server on the same machine: one GET per connection.
//!
//! What comes back is not trusted: heads, lines and chunks have limits, and whatever does not fit is an error.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::Address;

/// How long connecting and each read may take. A stream of events says something every two seconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest head.
const HEAD: u64 = 32 * 1024;
/// The longest line in a body.
const LINE: u64 = 1 << 20;

trait Both: Read + Write + Send {}
impl<T: Read + Write + Send> Both for T {}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Trouble {
    /// Nobody answers.
    Unreachable(io::Error),
    /// A status other than 200.
    Status(u16),
    /// Something that is no answer of this server.
    Odd(&'static str),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Trouble {
        Trouble::Unreachable(error)
    }
}

/// The body of an answer, read as it comes.
pub(super) struct Body {
    reader: BufReader<Box<dyn Both>>,
    framing: Framing,
}

/// How much of the body is still to come.
#[derive(Debug, PartialEq)]
enum Framing {
    Length(u64),
    /// Of this chunk; then others.
    Chunk(u64),
    Ended,
}

/// Asks for this path.
pub(super) fn get(address: &Address, token: Option<&str>, path: &str) -> Result<Body, Trouble> {
    let mut request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n", host(address));
    if let Some(token) = token {
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Trouble::Odd(
                "the token has characters that no header may hold",
            ));
        }
        request.push_str(&format!("Authorization: Bearer {token}\r\n"));
    }
    request.push_str("Accept: application/json, text/event-stream\r\nConnection: close\r\n\r\n");
    let mut stream = connect(address)?;
    stream.write_all(request.as_bytes())?;
    let mut reader = BufReader::new(stream);
    let framing = read_head(&mut reader)?;
    Ok(Body { reader, framing })
}

fn host(address: &Address) -> String {
    match address {
        Address::Tcp(address) => address.to_string(),
        Address::Unix(_) => "localhost".to_owned(),
    }
}

fn connect(address: &Address) -> io::Result<Box<dyn Both>> {
    match address {
        Address::Tcp(address) => {
            let stream = TcpStream::connect_timeout(address, PATIENCE)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            Ok(Box::new(stream))
        }
        Address::Unix(path) => {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            Ok(Box::new(stream))
        }
    }
}

fn read_head(reader: &mut impl BufRead) -> Result<Framing, Trouble> {
    let mut head = reader.take(HEAD);
    let mut line = String::new();
    let mut next = |line: &mut String| -> Result<(), Trouble> {
        line.clear();
        head.read_line(line)?;
        if !line.ends_with('\n') {
            return Err(Trouble::Odd("it does not speak HTTP"));
        }
        line.truncate(line.trim_end().len());
        Ok(())
    };
    next(&mut line)?;
    let status = line
        .strip_prefix("HTTP/1.1 ")
        .and_then(|rest| rest.get(..3)?.parse::<u16>().ok())
        .ok_or(Trouble::Odd("it does not speak HTTP"))?;
    if status != 200 {
        return Err(Trouble::Status(status));
    }
    let mut framing = None;
    loop {
        next(&mut line)?;
        if line.is_empty() {
            return framing.ok_or(Trouble::Odd("its answer has no length"));
        }
        let (name, value) = line.split_once(':').unwrap_or_default();
        if name.eq_ignore_ascii_case("transfer-encoding") && value.trim() == "chunked" {
            framing = Some(Framing::Chunk(0));
        } else if name.eq_ignore_ascii_case("content-length") && framing.is_none() {
            framing = value.trim().parse().ok().map(Framing::Length);
        }
    }
}

impl Body {
    /// The next line without its end; `None` when the body has ended.
    pub(super) fn line(&mut self) -> io::Result<Option<String>> {
        let mut line = Vec::new();
        loop {
            // Byte by byte from a buffer: a line may run over the end of a chunk.
            let mut byte = [0];
            if self.read(&mut byte)? == 0 {
                return Ok(None);
            }
            if byte[0] == b'\n' {
                let line = String::from_utf8(line).map_err(|_| odd("not UTF-8"))?;
                return Ok(Some(line.trim_end_matches('\r').to_owned()));
            }
            if line.len() as u64 >= LINE {
                return Err(odd("a line without end"));
            }
            line.push(byte[0]);
        }
    }

    /// Goes to the next chunk when this one is used up.
    fn advance(&mut self) -> io::Result<()> {
        if self.framing != Framing::Chunk(0) {
            return Ok(());
        }
        let mut line = String::new();
        // The line end of the chunk before, then the size of the next.
        while line.trim().is_empty() {
            line.clear();
            if (&mut self.reader).take(64).read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let size = u64::from_str_radix(line.trim(), 16).map_err(|_| odd("a chunk without size"))?;
        self.framing = if size == 0 {
            Framing::Ended
        } else {
            Framing::Chunk(size)
        };
        Ok(())
    }
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.advance()?;
        let (Framing::Length(left) | Framing::Chunk(left)) = &mut self.framing else {
            return Ok(0);
        };
        let count = (&mut self.reader).take(*left).read(buffer)?;
        if count == 0 && *left > 0 && !buffer.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        *left -= count as u64;
        Ok(count)
    }
}

fn odd(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Canned(io::Cursor<Vec<u8>>);

    impl Read for Canned {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0.read(buffer)
        }
    }

    impl Write for Canned {
        fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
            Ok(buffer.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn answer(text: &str) -> Result<Body, Trouble> {
        let canned: Box<dyn Both> = Box::new(Canned(io::Cursor::new(text.into())));
        let mut reader = BufReader::new(canned);
        let framing = read_head(&mut reader)?;
        Ok(Body { reader, framing })
    }

    fn body(text: &str) -> io::Result<String> {
        let mut out = String::new();
        let read = answer(text)
            .map_err(|_| odd("head"))?
            .read_to_string(&mut out);
        read.map(|_| out)
    }

    #[test]
    fn bodies_are_read_to_their_end_and_no_further() {
        let length = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcdef";
        assert_eq!(body(length).unwrap(), "abc");
        let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n";
        assert_eq!(body(chunked).unwrap(), "abc0123456789");
        let lines = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nab\n\r\n3\r\ncd\r\r\n3\r\n\ne\n\r\n0\r\n\r\n";
        let mut lines = answer(lines).unwrap();
        let mut read = Vec::new();
        while let Some(line) = lines.line().unwrap() {
            read.push(line);
        }
        assert_eq!(read, ["ab", "cd", "e"]);
    }

    #[test]
    fn what_is_no_answer_is_an_error() {
        for text in [
            "",
            "SSH-2.0-OpenSSH\r\n",
            "HTTP/1.1 200",
            "HTTP/1.1 2é0 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        ] {
            assert!(body(text).is_err(), "{text:?}");
        }
        let endless = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(1 << 20));
        assert!(body(&endless).is_err());
        let status = answer("HTTP/1.1 401 Unauthorized\r\n\r\n");
        assert!(matches!(status, Err(Trouble::Status(401))));
    }
}
