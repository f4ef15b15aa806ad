//! A provider's base URL, parsed strictly.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use std::sync::Arc;

/// Resolves a host name. A parameter, so that tests can return other addresses at the second lookup.
pub type HostLookup = Arc<dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync>;

/// The system's resolver.
pub fn system_lookup() -> HostLookup {
    Arc::new(|host, port| Ok((host, port).to_socket_addrs()?.collect()))
}

/// Scheme, host, port and path, nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) tls: bool,
    /// In lower case, without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Without a slash at its end.
    pub(crate) path: String,
}

impl Endpoint {
    /// The value of the `Host` header.
    pub(crate) fn authority(&self) -> String {
        let default_port = if self.tls { 443 } else { 80 };
        let host = if self.host.contains(':') {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        };
        if self.port == default_port {
            host
        } else {
            format!("{host}:{}", self.port)
        }
    }

    /// Whether an entry of `mcp.rlm.allowed_hosts` names this host: `host`, or `host:port`.
    pub(crate) fn is_listed_as(&self, entry: &str) -> bool {
        let entry = entry.trim().trim_end_matches('.').to_ascii_lowercase();
        let with_port = if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        };
        entry == self.host || entry == format!("[{}]", self.host) || entry == with_port
    }
}

impl FromStr for Endpoint {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Endpoint, &'static str> {
        let (tls, rest) = match text.split_once("://") {
            Some(("https", rest)) => (true, rest),
            Some(("http", rest)) => (false, rest),
            _ => return Err("must start with http:// or https://"),
        };
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        let odd = |c: char| c.is_control() || c.is_whitespace() || "?#\\@%".contains(c);
        if !rest.is_ascii() || rest.contains(odd) {
            return Err("must be host, port and path only: no user, query, fragment or escapes");
        }
        if path.split('/').any(|part| part == "." || part == "..") {
            return Err("must have no . or .. in its path");
        }
        let (host, port) = if let Some(inside) = authority.strip_prefix('[') {
            let (host, after) = inside.split_once(']').ok_or("has an unclosed bracket")?;
            let address: std::net::Ipv6Addr = host.parse().map_err(|_| "is no IPv6 address")?;
            let port = match after {
                "" => None,
                after => Some(after.strip_prefix(':').ok_or("has an odd port")?),
            };
            (address.to_string(), port)
        } else {
            let (host, port) = match authority.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            };
            let host = host.trim_end_matches('.').to_ascii_lowercase();
            let plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
            if host.is_empty() || !host.chars().all(plain) {
                return Err("must name a host");
            }
            (host, port)
        };
        let port = match port {
            None if tls => 443,
            None => 80,
            Some(port) => match port.parse() {
                Ok(port) if port > 0 => port,
                _ => return Err("has an odd port"),
            },
        };
        Ok(Endpoint {
            tls,
            host,
            port,
            path: path.trim_end_matches('/').to_owned(),
        })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.path)
    }
}

/// Whether data sent there stays on the machine.
pub(crate) fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_whole() {
        for (text, host, port, path) in [
            ("http://127.0.0.1:11434", "127.0.0.1", 11434, ""),
            ("https://API.example.com/v1/", "api.example.com", 443, "/v1"),
            ("http://[::1]:8080/x", "::1", 8080, "/x"),
            ("http://localhost", "localhost", 80, ""),
            ("http://host.", "host", 80, ""),
        ] {
            let read: Endpoint = text.parse().unwrap();
            assert_eq!(
                (read.host.as_str(), read.port, read.path.as_str()),
                (host, port, path)
            );
        }
    }

    #[test]
    fn tricks_are_refused() {
        for text in [
            "",
            "127.0.0.1",
            "ftp://x",
            "http://",
            "http:///x",
            "http://a@b",
            "http://127.0.0.1@evil.example",
            "http://a?b",
            "http://a#b",
            "http://a\\b",
            "http://a b",
            "http://a:0",
            "http://a:70000",
            "http://a:x",
            "http://[::1",
            "http://[::g]",
            "http://a/../b",
            "http://a/%2e%2e",
            "http://ex\u{e4}mple",
        ] {
            assert!(text.parse::<Endpoint>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_listed_host_is_that_host() {
        let read: Endpoint = "http://gpu.lan:8000".parse().unwrap();
        for (entry, listed) in [
            ("gpu.lan", true),
            ("GPU.lan.", true),
            ("gpu.lan:8000", true),
            ("gpu.lan:80", false),
            ("lan", false),
            ("*.lan", false),
            ("gpu.lan.evil.example", false),
            ("", false),
        ] {
            assert_eq!(read.is_listed_as(entry), listed, "{entry}");
        }
    }

    #[test]
    fn loopback_is_this_machine_in_any_spelling() {
        for (address, expect) in [
            ("127.0.0.1", true),
            ("127.8.8.8", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("0.0.0.0", false),
            ("::ffff:10.0.0.1", false),
            ("169.254.169.254", false),
        ] {
            assert_eq!(is_loopback(address.parse().unwrap()), expect, "{address}");
        }
    }
}
