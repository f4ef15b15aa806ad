//! The handle store as its users see it: across restarts, processes, owners, time and damage.
#![allow(
    clippy::disallowed_methods,
    reason = "tests look at files and start programs directly"
)]
#![allow(clippy::unwrap_used)]

mod handles;
mod processes;

use std::time::Duration;

use jiff::Timestamp;
use llmc_envelope::Clock;
use llmc_envelope::handles::{HandleStore, Options};

const HOUR: Duration = Duration::from_secs(3600);

fn clock() -> Clock {
    Clock::manual(Timestamp::from_second(1_800_000_000).unwrap())
}

fn options(clock: &Clock) -> Options {
    Options {
        clock: clock.clone(),
        ..Options::default()
    }
}

fn in_memory() -> HandleStore {
    HandleStore::in_memory(Options::default()).unwrap()
}

/// Bytes that do not compress, the same for the same seed.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}
