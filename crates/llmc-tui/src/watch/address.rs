//! Addresses of servers to which a token may be sent unencrypted: loopback, or a socket file.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerAddress {
    Tcp(SocketAddr),
    /// TLS, with the server's certificate in this file; a URL names none.
    Tls(SocketAddr, Option<PathBuf>),
    /// A socket file.
    Unix(PathBuf),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    #[error(
        "{0:?} is no server address; expected a form such as http://127.0.0.1:8080, https://127.0.0.1:8443 or unix:/run/llmc.sock"
    )]
    Form(String),
    #[error("{0:?} is a name; give the IP address of the server")]
    Name(String),
    #[error(
        "{0:?} is not on this machine's loopback, and a token is not sent there unencrypted; forward the port (ssh -L)"
    )]
    NotLoopback(String),
}

impl FromStr for ServerAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<ServerAddress, AddressError> {
        let form = || AddressError::Form(text.chars().take(100).collect());
        if let Some(path) = text.strip_prefix("unix:") {
            if path.is_empty() || path.contains('\0') {
                return Err(form());
            }
            return Ok(ServerAddress::Unix(path.into()));
        }
        let (rest, is_tls) = match text.strip_prefix("https://") {
            Some(rest) => (rest, true),
            None => (text.strip_prefix("http://").ok_or_else(form)?, false),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            _ => (rest, None),
        };
        let digits = |port: &&str| port.bytes().all(|byte| byte.is_ascii_digit());
        let port: u16 = match port {
            None if is_tls => 443,
            None => 80,
            Some(port) => {
                (Some(port).filter(digits).and_then(|port| port.parse().ok())).ok_or_else(form)?
            }
        };
        let inner = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let ip = match (host, inner) {
            ("localhost", _) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            (_, Some(inner)) => IpAddr::V6(inner.parse().map_err(|_| form())?),
            (host, None) => match host.parse::<Ipv4Addr>() {
                Ok(ip) => ip.into(),
                Err(_) if is_name(host) && is_tls => {
                    return Err(AddressError::Name(host.to_owned()));
                }
                Err(_) if is_name(host) => return Err(AddressError::NotLoopback(host.to_owned())),
                Err(_) => return Err(form()),
            },
        };
        // The certificate says whose server it is, wherever it runs.
        if is_tls {
            return Ok(ServerAddress::Tls(SocketAddr::new(ip, port), None));
        }
        if !ip.is_loopback() {
            return Err(AddressError::NotLoopback(host.to_owned()));
        }
        Ok(ServerAddress::Tcp(SocketAddr::new(ip, port)))
    }
}

fn is_name(host: &str) -> bool {
    !host.is_empty()
        && host
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-'))
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerAddress::Tcp(address) => write!(f, "http://{address}"),
            ServerAddress::Tls(address, _) => write!(f, "https://{address}"),
            ServerAddress::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_where_a_token_may_go() {
        for (text, address) in [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("http://127.9.9.9:1/", "http://127.9.9.9:1"),
            ("http://localhost:8080", "http://127.0.0.1:8080"),
            ("http://[::1]:8080", "http://[::1]:8080"),
            ("http://127.0.0.1", "http://127.0.0.1:80"),
            ("unix:/run/x.sock", "unix:/run/x.sock"),
        ] {
            assert_eq!(text.parse::<ServerAddress>().unwrap().to_string(), address);
        }
        for text in [
            "http://10.0.0.1:80",
            "http://example.org",
            "http://[2001:db8::1]:80",
            "http://0.0.0.0:80",
        ] {
            let error = text.parse::<ServerAddress>().unwrap_err();
            assert!(
                matches!(error, AddressError::NotLoopback(_)),
                "{text}: {error}"
            );
        }
        for (text, address) in [
            ("https://127.0.0.1", "https://127.0.0.1:443"),
            ("https://localhost:8443/", "https://127.0.0.1:8443"),
            ("https://10.0.0.1:8443", "https://10.0.0.1:8443"),
        ] {
            assert_eq!(text.parse::<ServerAddress>().unwrap().to_string(), address);
        }
        assert_eq!(
            "https://example.org".parse::<ServerAddress>(),
            Err(AddressError::Name("example.org".to_owned()))
        );
        for text in [
            "",
            "8080",
            "127.0.0.1:8080",
            "http://",
            "http://127.0.0.1:x",
            "http://127.0.0.1:+1",
            "http://127.0.0.1:99999",
            "http://127.0.0.1:80/api?token=1",
            "http://me@127.0.0.1:80",
            "http://[::1",
            "unix:",
            "ftp://127.0.0.1",
        ] {
            let error = text.parse::<ServerAddress>().unwrap_err();
            assert!(matches!(error, AddressError::Form(_)), "{text}: {error}");
        }
    }
}
