//! `llmc health`: the health check of a container without a shell.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;

use llmc_config::LoadedConfig;
use llmc_tools::ErrorKind;
use llmc_tui::ServerAddress;

use super::{Failure, load, print};
use crate::cli::Common;

/// What container engines read as unhealthy; 2 is reserved there.
const UNHEALTHY_EXIT_CODE: u8 = 1;

pub(super) fn run(common: &Common, url: Option<ServerAddress>) -> Result<ExitCode, Failure> {
    let address = match url {
        Some(address @ ServerAddress::Tls(_, None)) => with_certificate(&load(common)?, address)?,
        Some(address) => address,
        None => own(common)?,
    };
    let unhealthy = |message: String| Failure {
        message,
        code: UNHEALTHY_EXIT_CODE,
    };
    let body = llmc_tui::fetch_health(&address).map_err(|error| unhealthy(error.to_string()))?;
    let document: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
    if document["ok"] != true {
        return Err(unhealthy(format!("{address} is unhealthy")));
    }
    print(&body)?;
    Ok(ExitCode::SUCCESS)
}

/// Where a server with this configuration is reached from its own machine.
fn own(common: &Common) -> Result<ServerAddress, Failure> {
    let loaded = load(common)?;
    let server = &loaded.config.mcp.server;
    let host = match server.host.parse::<IpAddr>() {
        Ok(ip) if ip.is_unspecified() && ip.is_ipv6() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        Ok(ip) if !ip.is_unspecified() => ip,
        _ => IpAddr::V4(Ipv4Addr::LOCALHOST),
    };
    let address = SocketAddr::new(host, server.port);
    Ok(match &server.tls_cert {
        Some(certificate) if server.tls_enabled => {
            ServerAddress::Tls(address, Some(loaded.resolve(certificate)))
        }
        _ => ServerAddress::Tcp(address),
    })
}

/// An https address with the certificate of this configuration, which is the only one that is trusted.
pub(super) fn with_certificate(
    loaded: &LoadedConfig,
    address: ServerAddress,
) -> Result<ServerAddress, Failure> {
    let ServerAddress::Tls(address, None) = address else {
        return Ok(address);
    };
    let certificate = loaded.config.mcp.server.tls_cert.as_deref();
    let certificate = certificate.ok_or_else(|| {
        let message = format!(
            "https://{address}: mcp.server.tls_cert is not set\n  hint: name the server's certificate with --set mcp.server.tls_cert='\"FILE\"'"
        );
        Failure::new(ErrorKind::BadArgs, message)
    })?;
    Ok(ServerAddress::Tls(
        address,
        Some(loaded.resolve(certificate)),
    ))
}
