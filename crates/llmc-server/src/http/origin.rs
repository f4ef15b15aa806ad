//! Checks `Host` and `Origin`: the gate against web pages that call the server through a browser.
//!
//! A page on any site can make a browser send requests to loopback, and by changing what its name resolves to (DNS
//! rebinding) it can read the answers too. Such requests carry the page's own name as `Host` or `Origin`, so only known names pass.

use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, StatusCode, Uri};
use llmc_config::ServerConfig;

use super::error::HttpError;

/// The hosts and origins that pass.
#[derive(Debug)]
pub(super) struct HostRules {
    hosts: Vec<HostName>,
    origins: Vec<String>,
}

/// A host, with a port if only that one passes.
#[derive(Debug, PartialEq, Eq)]
struct HostName {
    host: String,
    port: Option<u16>,
}

impl HostName {
    fn parse(text: &str) -> Option<HostName> {
        let text = text.trim().to_ascii_lowercase();
        // The configuration may name an IPv6 address without brackets.
        if let Ok(ip) = text.parse::<std::net::Ipv6Addr>() {
            let host = ip.to_string();
            return Some(HostName { host, port: None });
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !text.ends_with(']') => {
                let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
                (host, Some(port.parse().ok().filter(|_| digits)?))
            }
            _ => (text.as_str(), None),
        };
        if let Some(inner) = host.strip_prefix('[') {
            let ip: std::net::Ipv6Addr = inner.strip_suffix(']')?.parse().ok()?;
            let host = ip.to_string();
            return Some(HostName { host, port });
        }
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        (!host.is_empty() && host.bytes().all(plain)).then(|| HostName {
            host: host.to_owned(),
            port,
        })
    }

    fn covers(&self, other: &HostName) -> bool {
        self.host == other.host && (self.port.is_none() || self.port == other.port)
    }
}

/// Where an allowed request comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestOrigin {
    /// No web page, or the server's own.
    Same,
    /// An allowed page of another origin; its browser needs CORS headers.
    Cross,
}

impl HostRules {
    pub(super) fn new(server: &ServerConfig) -> HostRules {
        // The address that the server listens on is one of its names, unless it stands for all addresses.
        let own = HostName::parse(&server.host)
            .filter(|name| name.host != "0.0.0.0" && name.host != "::");
        let hosts = server
            .allowed_hosts
            .iter()
            .filter_map(|text| HostName::parse(text));
        let lower = server
            .allowed_origins
            .iter()
            .map(|text| text.to_ascii_lowercase());
        HostRules {
            hosts: hosts.chain(own).collect(),
            origins: lower
                .map(|origin| origin.trim_end_matches('/').to_owned())
                .collect(),
        }
    }

    pub(super) fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<RequestOrigin, HttpError> {
        let mut hosts = headers.get_all(HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else {
            return Err(HttpError::unparsable("a request must have one Host header"));
        };
        let host = host.to_str().ok();
        let also = uri.authority().map(|authority| authority.as_str());
        // A host in the request line must agree with the header, or two parsers see two hosts.
        let named = host.filter(|host| also.is_none_or(|also| also.eq_ignore_ascii_case(host)));
        let known = named
            .and_then(HostName::parse)
            .is_some_and(|name| self.hosts.iter().any(|allowed| allowed.covers(&name)));
        if !known {
            return Err(not_allowed("Host", "mcp.server.allowed_hosts"));
        }
        let mut origins = headers.get_all(ORIGIN).iter();
        let (origin, second) = (origins.next(), origins.next());
        let Some(origin) = origin else {
            return Ok(RequestOrigin::Same);
        };
        let origin = origin.to_str().ok().filter(|_| second.is_none());
        let origin = origin.map(str::to_ascii_lowercase).unwrap_or_default();
        let authority = origin.split_once("://").map(|(_, authority)| authority);
        if authority.is_some() && authority == named.map(str::to_ascii_lowercase).as_deref() {
            return Ok(RequestOrigin::Same);
        }
        let name = authority.and_then(HostName::parse);
        let allowed = self.origins.iter().any(|allowed| {
            let by_name = || {
                let allowed = HostName::parse(allowed);
                allowed
                    .is_some_and(|allowed| name.as_ref().is_some_and(|name| allowed.covers(name)))
            };
            let whole = allowed.contains("://") || allowed == "null";
            if whole { *allowed == origin } else { by_name() }
        });
        if allowed {
            Ok(RequestOrigin::Cross)
        } else {
            Err(not_allowed("Origin", "mcp.server.allowed_origins"))
        }
    }
}

fn not_allowed(what: &str, key: &str) -> HttpError {
    // The name is not repeated: the client chose it.
    let message = format!("this {what} is not allowed");
    HttpError::new(StatusCode::FORBIDDEN, "FORBIDDEN", message)
        .hint(format!("the operator can add it to {key}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(hosts: &[&str], origins: &[&str]) -> HostRules {
        let mut server = llmc_config::Config::default().mcp.server;
        let list = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        if !hosts.is_empty() {
            server.allowed_hosts = list(hosts);
        }
        if !origins.is_empty() {
            server.allowed_origins = list(origins);
        }
        HostRules::new(&server)
    }

    fn passes(names: &HostRules, host: &str, origin: Option<&str>) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(
            HOST,
            axum::http::HeaderValue::from_bytes(host.as_bytes()).unwrap(),
        );
        if let Some(origin) = origin {
            headers.insert(ORIGIN, origin.parse().unwrap());
        }
        names.check(&Uri::from_static("/"), &headers).is_ok()
    }

    #[test]
    fn only_known_hosts_pass() {
        let names = names(&[], &[]);
        for host in [
            "localhost",
            "LOCALHOST:80",
            "127.0.0.1:8080",
            "[::1]:8080",
            "[0:0::1]",
        ] {
            assert!(passes(&names, host, None), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "localhost.",
            "127.0.0.1.evil.example",
            "",
            "user@localhost",
            "localhost:http",
            "localhost:",
            "localhost:99999",
            "127.1",
            "::1",
            "[::1",
            "localhost,evil",
            "localhost evil",
            "ünicode",
            "[::1]x",
            "a:b:c",
        ] {
            let passed = passes(&names, host, None);
            // A bare IPv6 address is odd, but allowed.
            assert_eq!(passed, host == "::1", "{host}");
        }
    }

    #[test]
    fn a_port_in_the_list_is_compared() {
        let names = names(&["box.example:8443"], &[]);
        assert!(passes(&names, "box.example:8443", None));
        assert!(!passes(&names, "box.example", None));
        assert!(!passes(&names, "box.example:80", None));
    }

    #[test]
    fn only_known_origins_pass() {
        let names = names(
            &["localhost", "llmc.example"],
            &["localhost", "https://app.example"],
        );
        for origin in [
            "http://localhost",
            "https://localhost:3000",
            "https://app.example",
        ] {
            assert!(passes(&names, "localhost", Some(origin)), "{origin}");
        }
        for origin in [
            "null",
            "",
            "http://app.example",
            "https://app.example:444",
            "https://evil.example",
            "http://localhost.evil.example",
            "localhost",
            "file://",
            "https://app.example.evil",
        ] {
            assert!(!passes(&names, "localhost", Some(origin)), "{origin}");
        }
        assert!(
            passes(&names, "llmc.example", Some("https://llmc.example")),
            "the server's own page"
        );
    }

    #[test]
    fn a_request_line_that_names_another_host_is_refused() {
        let names = names(&[], &[]);
        let mut headers = HeaderMap::new();
        headers.insert(HOST, "localhost".parse().unwrap());
        let uri = Uri::from_static("http://evil.example/health");
        assert!(names.check(&uri, &headers).is_err());
        headers.append(HOST, "localhost".parse().unwrap());
        assert!(
            names.check(&Uri::from_static("/"), &headers).is_err(),
            "two hosts"
        );
        assert!(
            names
                .check(&Uri::from_static("/"), &HeaderMap::new())
                .is_err()
        );
    }
}
