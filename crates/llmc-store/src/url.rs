//! The address of a database as the operator wrote it, checked.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use crate::Error;

/// How long one address is tried.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a connection may be silent before the kernel asks whether the other side is still there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
/// How long sent data may stay unacknowledged before the connection counts as lost.
const UNACKNOWLEDGED_TIMEOUT: Duration = Duration::from_secs(10);

/// Where PostgreSQL listens by default.
const USUAL_PORT: u16 = 5432;

/// `postgres://user:password@host:port/database`, with `sslmode` and `sslrootcert` as libpq has them.
///
/// Beyond this machine the connection is encrypted and the certificate checked unless `sslmode=disable` says otherwise;
/// on loopback and on a socket it is plain unless `sslmode` says otherwise. Neither `Display` nor `Debug` shows a password.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseUrl {
    config: Config,
    root_certificate: Option<PathBuf>,
}

impl DatabaseUrl {
    /// Reads an address.
    ///
    /// # Errors
    /// What is wrong with it, without quoting it: it may hold a password.
    pub fn parse(text: &str) -> Result<DatabaseUrl, Error> {
        let scheme = ["postgres://", "postgresql://"];
        if !scheme.iter().any(|scheme| text.starts_with(scheme)) {
            return Err(bad("it must start with postgres://"));
        }
        let (address, query) = text.split_once('?').unwrap_or((text, ""));
        let (mut ssl_mode, mut root_certificate, mut rest) = (None, None, Vec::new());
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = || percent_decode_str(value).decode_utf8_lossy().into_owned();
            match name {
                "sslmode" => ssl_mode = Some(ssl_mode_of(&value())?),
                "sslrootcert" if value() != "system" => root_certificate = Some(value().into()),
                "sslrootcert" => {}
                _ => rest.push(pair),
            }
        }
        let plain = match rest.is_empty() {
            true => address.to_owned(),
            false => format!("{address}?{}", rest.join("&")),
        };
        let mut config = Config::from_str(&plain).map_err(|error| {
            let cause = std::error::Error::source(&error);
            bad(&cause.map_or_else(|| error.to_string(), ToString::to_string))
        })?;
        if config.get_hosts().is_empty() {
            return Err(bad("it names no host"));
        }
        let is_local = config.get_hosts().iter().all(is_local);
        let ssl_mode = ssl_mode.unwrap_or(match is_local {
            true => SslMode::Disable,
            false => SslMode::Require,
        });
        config.ssl_mode(ssl_mode);
        config.keepalives_idle(KEEPALIVE_IDLE);
        config.tcp_user_timeout(UNACKNOWLEDGED_TIMEOUT);
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_application_name().is_none() {
            config.application_name("llmc");
        }
        Ok(DatabaseUrl {
            config,
            root_certificate,
        })
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// Whether connections are encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.config.get_ssl_mode() != SslMode::Disable
    }

    /// The file with the certificate of the authority that is trusted in place of the usual ones.
    pub(crate) fn root_certificate(&self) -> Option<&PathBuf> {
        self.root_certificate.as_ref()
    }
}

impl fmt::Display for DatabaseUrl {
    /// User, host and database.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(user) = self.config.get_user() {
            write!(f, "{user}@")?;
        }
        let ports = self.config.get_ports();
        for (n, host) in self.config.get_hosts().iter().enumerate() {
            let comma = if n > 0 { "," } else { "" };
            match host {
                Host::Tcp(host) => write!(f, "{comma}{host}")?,
                Host::Unix(path) => write!(f, "{comma}{}", path.display())?,
            }
            let port = ports.get(n).or_else(|| ports.first());
            if let Some(port) = port.filter(|port| **port != USUAL_PORT) {
                write!(f, ":{port}")?;
            }
        }
        let database = self.config.get_dbname().or(self.config.get_user());
        database.map_or(Ok(()), |database| write!(f, "/{database}"))
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DatabaseUrl({self})")
    }
}

fn ssl_mode_of(word: &str) -> Result<SslMode, Error> {
    match word {
        "disable" => Ok(SslMode::Disable),
        // The certificate is checked in every case.
        "require" | "verify-ca" | "verify-full" => Ok(SslMode::Require),
        _ => Err(bad("sslmode must be verify-full or disable")),
    }
}

fn is_local(host: &Host) -> bool {
    match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            let address = name.trim_start_matches('[').trim_end_matches(']');
            name.eq_ignore_ascii_case("localhost")
                || address.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
        }
    }
}

fn bad(why: &str) -> Error {
    Error::BadUrl(why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_its_password() {
        for (text, shown) in [
            (
                "postgres://ann:secret@db.example/team",
                "ann@db.example/team",
            ),
            (
                "postgresql://ann:secret@db.example:5433/team?connect_timeout=2",
                "ann@db.example:5433/team",
            ),
            ("postgres://ann:secret@%2Frun%2Fpg/team", "ann@/run/pg/team"),
            ("postgres://h/d?user=ann&password=secret", "ann@h/d"),
            ("postgres://ann:secret@a:1,b:2/team", "ann@a:1,b:2/team"),
        ] {
            let url = DatabaseUrl::parse(text).unwrap();
            assert_eq!(url.to_string(), shown);
            assert_eq!(format!("{url:?}"), format!("DatabaseUrl({shown})"));
        }
    }

    #[test]
    fn beyond_this_machine_connections_are_encrypted() {
        for (text, encrypted) in [
            ("postgres://u@db.example/d", true),
            ("postgres://u@10.0.0.1/d", true),
            ("postgres://u@localhost,db.example/d", true),
            ("postgres://u@db.example/d?sslmode=disable", false),
            ("postgres://u@127.0.0.1/d", false),
            ("postgres://u@localhost/d", false),
            ("postgres://u@%2Frun%2Fpg/d", false),
            (
                "postgres://u@localhost/d?sslmode=verify-full&sslrootcert=%2Fetc%2Fca.pem",
                true,
            ),
        ] {
            let url = DatabaseUrl::parse(text).unwrap();
            assert_eq!(url.is_encrypted(), encrypted, "{text}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused_without_being_quoted() {
        for (text, why) in [
            ("mysql://u:secret@h/d", "must start with postgres://"),
            ("secret", "must start with postgres://"),
            ("postgres://", "names no host"),
            ("postgres:///secret", "names no host"),
            (
                "postgres://u:secret@h/d?sslmode=prefer",
                "verify-full or disable",
            ),
            ("postgres://u:secret@h:port/d", "port"),
            ("postgres://u:secret@h/d?colour=red", "colour"),
        ] {
            let error = DatabaseUrl::parse(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
