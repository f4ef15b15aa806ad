//! What must hold before other machines can connect.

use llmc_tools::{App, Error, Result};

/// Refuses to serve other machines by a configuration that the user has not accepted, and warns of plain HTTP.
///
/// # Errors
/// Settings of the workspace's file are ignored because it is not trusted.
pub(super) fn check(app: &App) -> Result<()> {
    let server = &app.config().mcp.server;
    let host = &server.host;
    if let Some(ignored) = app.loaded().trust.ignored() {
        return Err(Error::bad_args(format!(
            "{host} can be reached from other machines, and {ignored}"
        ))
        .hint("accept the settings, remove them from the file, or listen on 127.0.0.1"));
    }
    // A reverse proxy that is trusted is what has the certificate.
    if !server.tls_enabled && !server.trust_proxy {
        tracing::warn!(
            host,
            "plain HTTP beyond this machine: tokens and contents can be read on the way; set mcp.server.tls_enabled, \
             tls_cert and tls_key, or serve on 127.0.0.1 behind a proxy with TLS"
        );
    }
    Ok(())
}
