//! Where calls come from: the workspace's telemetry file, or a server that tells of them.
//!
//! Either is watched on a thread of its own, which sends [`News`] and ends when nobody takes them any more. The way
//! between is short: a watcher that is ahead of the screen waits, so that memory stays bounded.

mod address;
mod server;
mod store;
mod wire;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::mpsc::{Receiver, sync_channel};

use jiff::Timestamp;

use crate::picture::Picture;
use crate::seen::Seen;

pub use address::{Address, BadAddress};

/// News that may wait.
const WAITING: usize = 16;
/// Calls that are told at a time, and shown at most.
pub(crate) const CALLS: usize = 1000;

/// A place to watch.
#[derive(Debug, Clone)]
pub enum Feed {
    /// The telemetry file of a workspace.
    Store {
        /// The file; it may not be there yet.
        path: PathBuf,
        /// How far to look back.
        since: Since,
    },
    /// A running `llmc serve`.
    Server {
        /// Where it listens.
        address: Address,
        /// What it asks for.
        token: Option<String>,
    },
}

/// What a feed has to tell.
#[derive(Debug)]
pub enum News {
    /// Calls that ended, oldest first.
    Calls(Vec<Seen>),
    /// All calls added up.
    Picture(Box<Picture>),
    /// Something is in the way; watching goes on.
    Trouble(String),
    /// Nothing is in the way any more.
    Well,
}

impl Feed {
    /// Watches from now on.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn watch(&self) -> std::io::Result<Receiver<News>> {
        let (send, receive) = sync_channel(WAITING);
        let feed = self.clone();
        let thread = std::thread::Builder::new().name("llmc-feed".to_owned());
        thread.spawn(move || match &feed {
            Feed::Store { path, since } => store::watch(path, *since, &send),
            Feed::Server { address, token } => server::watch(address, token.as_deref(), &send),
        })?;
        Ok(receive)
    }

    /// Looks once.
    ///
    /// # Errors
    /// There is nothing to see: no server, a token that is refused, a file that is no telemetry. Says what to do.
    pub fn look(&self) -> Result<Picture, String> {
        match self {
            Feed::Store { path, since } => store::look(path, *since),
            Feed::Server { address, token } => server::look(address, token.as_deref()),
        }
    }

    /// Which calls these are, in words.
    pub fn span(&self) -> String {
        match self {
            Feed::Store { since, .. } => since.to_string(),
            Feed::Server { .. } => "since the server's start".to_owned(),
        }
    }
}

/// What the server at an address says of itself, to anybody.
///
/// # Errors
/// It does not answer, or not as a server of this kind does.
pub fn health(address: &Address) -> Result<String, String> {
    server::health(address)
}

/// How far to look back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    /// So many seconds.
    Seconds(u32),
    /// To the first call.
    Ever,
}

impl Since {
    /// The first moment to look at.
    pub(crate) fn moment(self, now: Timestamp) -> Timestamp {
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
        let wrong =
            || format!("expected a number and s, m, h or d (such as 90m), or all, not {text:?}");
        let unit = text.chars().last().ok_or_else(wrong)?;
        let (_, factor, _) = UNITS
            .iter()
            .find(|(sign, ..)| *sign == unit)
            .ok_or_else(wrong)?;
        let digits = &text[..text.len() - 1];
        let number = digits
            .parse::<u32>()
            .ok()
            .filter(|_| !digits.starts_with('+'));
        let seconds = number.and_then(|number| number.checked_mul(*factor));
        seconds.map(Since::Seconds).ok_or_else(wrong)
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
    fn spans_are_read_and_told() {
        for (text, told) in [
            ("all", "all calls on record"),
            ("24h", "last 24 hours"),
            ("90m", "last 90 minutes"),
            ("2d", "last 2 days"),
            ("120s", "last 2 minutes"),
            ("0s", "last 0 seconds"),
        ] {
            assert_eq!(text.parse::<Since>().unwrap().to_string(), told);
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
