//! Where calls come from: the workspace's telemetry, or a server's event stream.
//!
//! Either is watched on a thread of its own, which sends [`WatchUpdate`]s and ends when the receiver is gone. The queue
//! between is short: a watcher that is ahead of the screen waits, so that memory stays bounded.

mod address;
mod http;
mod server;
mod telemetry;
mod tls;

use std::fmt;
use std::str::FromStr;
use std::sync::mpsc::{Receiver, sync_channel};

use jiff::Timestamp;

use llmc_observe::{Summary, TelemetryLocation, UpstreamList};

use crate::call::ListedCall;

pub use address::{AddressError, ServerAddress};
use http::FetchError;

/// Updates that may wait for the screen.
const MAX_QUEUED_UPDATES: usize = 16;
/// Calls in the list.
pub(crate) const MAX_LISTED_CALLS: usize = 1000;

/// What is watched.
#[derive(Debug, Clone)]
pub enum WatchTarget {
    /// The telemetry of a workspace; its file may not exist yet.
    Telemetry {
        location: TelemetryLocation,
        since: Since,
        /// The upstreams whose ledgers are shown.
        upstreams: Vec<UpstreamList>,
    },
    /// A running `llmc serve`.
    Server {
        address: ServerAddress,
        token: Option<String>,
    },
}

/// Why nothing can be watched; the text says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    #[error(transparent)]
    Telemetry(#[from] llmc_observe::Error),
    #[error("{}", server::describe(address, source))]
    Server {
        address: ServerAddress,
        source: FetchError,
    },
}

impl WatchError {
    fn server(address: &ServerAddress, source: FetchError) -> WatchError {
        WatchError::Server {
            address: address.clone(),
            source,
        }
    }
}

/// What a watcher sends.
#[derive(Debug)]
pub(crate) enum WatchUpdate {
    /// Calls that ended, oldest first.
    Calls(Vec<ListedCall>),
    Summary(Box<Summary>),
    /// Watching fails for this reason, and is tried again.
    Failed(String),
    /// Watching works again.
    Recovered,
}

impl WatchTarget {
    /// Starts the watching thread.
    pub(crate) fn watch(&self) -> std::io::Result<Receiver<WatchUpdate>> {
        let (send, receive) = sync_channel(MAX_QUEUED_UPDATES);
        let target = self.clone();
        let thread = std::thread::Builder::new().name("llmc-watch".to_owned());
        thread.spawn(move || match &target {
            WatchTarget::Telemetry {
                location,
                since,
                upstreams,
            } => telemetry::watch(location, *since, upstreams, &send),
            WatchTarget::Server { address, token } => {
                server::watch(address, token.as_deref(), &send)
            }
        })?;
        Ok(receive)
    }

    /// Reads the calls so far, once.
    ///
    /// # Errors
    /// There is no server, it refuses the token, or the file is no telemetry.
    pub fn read_summary(&self) -> Result<Summary, WatchError> {
        match self {
            WatchTarget::Telemetry {
                location,
                since,
                upstreams,
            } => Ok(telemetry::read_summary(location, *since, upstreams)?),
            WatchTarget::Server { address, token } => {
                server::read_summary(address, token.as_deref())
                    .map_err(|error| WatchError::server(address, error))
            }
        }
    }

    /// Which calls these are, as the header shows it.
    pub fn span(&self) -> String {
        match self {
            WatchTarget::Telemetry { since, .. } => since.to_string(),
            WatchTarget::Server { .. } => "since the server's start".to_owned(),
        }
    }
}

/// The body of the server's `/health`, which needs no token.
///
/// # Errors
/// The server does not answer.
pub fn fetch_health(address: &ServerAddress) -> Result<String, WatchError> {
    server::fetch_health(address).map_err(|error| WatchError::server(address, error))
}

/// The body of one of the server's routes.
///
/// # Errors
/// The server does not answer, or not with this.
pub(crate) fn fetch(
    address: &ServerAddress,
    token: Option<&str>,
    path: &str,
) -> Result<String, WatchError> {
    server::fetch(address, token, path).map_err(|error| WatchError::server(address, error))
}

/// How far to look back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    Seconds(u32),
    /// To the first call on record.
    Ever,
}

impl Since {
    /// The first moment that counts.
    pub fn start(self, now: Timestamp) -> Timestamp {
        match self {
            Since::Ever => Timestamp::UNIX_EPOCH,
            Since::Seconds(seconds) => {
                Timestamp::from_second(now.as_second() - i64::from(seconds)).unwrap_or(now)
            }
        }
    }
}

const UNITS: [(char, u32, &str); 4] = [
    ('d', 86_400, "days"),
    ('h', 3_600, "hours"),
    ('m', 60, "minutes"),
    ('s', 1, "seconds"),
];

impl FromStr for Since {
    type Err = String;

    fn from_str(text: &str) -> Result<Since, String> {
        if text == "all" {
            return Ok(Since::Ever);
        }
        let invalid =
            || format!("expected a number and s, m, h or d (such as 90m), or all, not {text:?}");
        let unit = text.chars().last().ok_or_else(invalid)?;
        let (_, factor, _) = UNITS
            .iter()
            .find(|(sign, ..)| *sign == unit)
            .ok_or_else(invalid)?;
        let digits = &text[..text.len() - 1];
        let number = digits
            .parse::<u32>()
            .ok()
            .filter(|_| !digits.starts_with('+'));
        let seconds = number.and_then(|number| number.checked_mul(*factor));
        seconds.map(Since::Seconds).ok_or_else(invalid)
    }
}

impl fmt::Display for Since {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Since::Seconds(seconds) = self else {
            return f.write_str("all calls on record");
        };
        let fits =
            |(_, factor, _): &&(char, u32, &str)| seconds % factor == 0 && *seconds >= 2 * factor;
        let (_, factor, unit) = UNITS.iter().find(fits).unwrap_or(&UNITS[3]);
        write!(f, "last {} {unit}", seconds / factor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_parsed_and_printed() {
        for (text, printed) in [
            ("all", "all calls on record"),
            ("24h", "last 24 hours"),
            ("90m", "last 90 minutes"),
            ("2d", "last 2 days"),
            ("120s", "last 2 minutes"),
            ("0s", "last 0 seconds"),
        ] {
            assert_eq!(text.parse::<Since>().unwrap().to_string(), printed);
        }
        for wrong in [
            "",
            "h",
            "5",
            "-5m",
            "+5m",
            "1.5h",
            "99999999d",
            "5 m",
            "5ü",
            "ever",
        ] {
            assert!(wrong.parse::<Since>().is_err(), "{wrong}");
        }
    }
}
