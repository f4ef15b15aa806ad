//! Fuzz target: headers that pass the gates name only what is allowed.

use axum::http::header::{CONTENT_TYPE, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderValue, Uri};
use llmc_fuzz::{FuzzInput, check};

use super::origin::HostRules;
use super::{body, tokens};

const HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "::1"];
const ORIGINS: [&str; 2] = ["https://good.example", "trusted.example:8443"];

/// The host of an authority, or nothing where it holds more than a host and a port.
fn host(authority: &str) -> Option<String> {
    let text = authority.trim().to_ascii_lowercase();
    if text.contains(['@', '/', '\\', '?', '#', '%', ' ', ',']) {
        return None;
    }
    if let Some(rest) = text.strip_prefix('[') {
        let ip: std::net::Ipv6Addr = rest.split(']').next()?.parse().ok()?;
        return Some(ip.to_string());
    }
    if let Ok(ip) = text.parse::<std::net::Ipv6Addr>() {
        return Some(ip.to_string());
    }
    text.split(':').next().map(str::to_owned)
}

#[test]
fn headers() {
    let mut server = llmc_config::Config::default().mcp.server;
    server.allowed_hosts = HOSTS.map(str::to_owned).to_vec();
    server.allowed_origins = ORIGINS.map(str::to_owned).to_vec();
    let rules = HostRules::new(&server);
    check!("headers", |bytes: &[u8]| {
        let mut input = FuzzInput::new(bytes);
        let mut headers = HeaderMap::new();
        let (named, origin, target, kind) =
            (input.text(), input.text(), input.text(), input.text());
        for (name, text) in [(HOST, &named), (ORIGIN, &origin), (CONTENT_TYPE, &kind)] {
            if let Ok(value) = HeaderValue::from_str(text)
                && !text.is_empty()
            {
                headers.append(name, value);
            }
        }
        let uri: Uri = target.parse().unwrap_or_else(|_| Uri::from_static("/"));
        if rules.check(&uri, &headers).is_ok() {
            let host_of = host(&named).expect("a host that passed is a host");
            assert!(HOSTS.contains(&host_of.as_str()), "{named:?}");
            if let Some(authority) = uri.authority() {
                assert_eq!(host(authority.as_str()), Some(host_of));
            }
            if headers.contains_key(ORIGIN) {
                let (_, authority) = origin
                    .split_once("://")
                    .expect("an origin that passed has a scheme");
                let host = host(authority).expect("an origin that passed names a host");
                let known = HOSTS.contains(&host.as_str())
                    || ["good.example", "trusted.example"].contains(&host.as_str());
                assert!(known, "{origin:?}");
            }
        }
        if body::check_headers(&headers).is_ok() {
            let start = kind.trim_start().get(..16).map(str::to_ascii_lowercase);
            assert_eq!(start.as_deref(), Some("application/json"));
        }
        let presented = input.rest();
        if let Some(token) = tokens::bearer(presented) {
            assert!(presented[..7].eq_ignore_ascii_case(b"bearer "));
            assert_eq!(token, token.trim_ascii());
            assert!(presented.trim_ascii_end().ends_with(token));
        }
    });
}
