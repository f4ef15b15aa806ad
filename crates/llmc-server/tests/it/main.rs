//! The transport seen from the client's side: over pipes in memory, and as a real process.
#![allow(
    clippy::disallowed_methods,
    reason = "tests look at files and start programs directly"
)]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod client;
mod flood;
mod handler;
mod input;
mod lifecycle;
mod process;
mod session;
