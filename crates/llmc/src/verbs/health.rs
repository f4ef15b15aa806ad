//! `llmc health`: is the server well? What a container without a shell asks itself.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;

use llmc_tui::Address;

use super::{Failure, load, print};
use crate::cli::Common;

/// What container engines take for ill; 2 is reserved there.
const ILL: u8 = 1;

pub(super) fn run(common: &Common, url: Option<Address>) -> Result<ExitCode, Failure> {
    let address = match url {
        Some(address) => address,
        None => Address::Tcp(own(common)?),
    };
    let ill = |why: String| Failure {
        message: why,
        code: ILL,
    };
    let said = llmc_tui::health(&address).map_err(ill)?;
    let document: serde_json::Value = serde_json::from_str(&said).unwrap_or_default();
    if document["ok"] != true {
        return Err(ill(format!("{address} is not well")));
    }
    print(&said)?;
    Ok(ExitCode::SUCCESS)
}

/// Where a server with this configuration is reached from its own machine.
fn own(common: &Common) -> Result<SocketAddr, Failure> {
    let server = load(common)?.config.mcp.server;
    let host = match server.host.parse::<IpAddr>() {
        Ok(ip) if ip.is_unspecified() && ip.is_ipv6() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        Ok(ip) if !ip.is_unspecified() => ip,
        _ => IpAddr::V4(Ipv4Addr::LOCALHOST),
    };
    Ok(SocketAddr::new(host, server.port))
}
