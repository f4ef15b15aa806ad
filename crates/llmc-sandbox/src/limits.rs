//! What a script may spend.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What one block of code may spend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// From start to end, calls included. A worker that has not stopped 100 ms later is killed.
    pub wall: Duration,
    /// The script's own computing, without the time it waits for calls.
    pub cpu: Duration,
    /// Memory of the interpreter, beyond what it takes to exist.
    pub memory_bytes: u64,
    /// What it prints, and the value it ends with.
    pub output_bytes: u64,
    /// Calls to the host.
    pub calls: u64,
    /// Calls within calls.
    pub recursion: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            wall: Duration::from_secs(30),
            cpu: Duration::from_secs(30),
            memory_bytes: 256 << 20,
            output_bytes: 1 << 20,
            calls: 1000,
            recursion: 1000,
        }
    }
}

/// What all blocks of a session may spend together; `None` is no bound.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Budget {
    /// The scripts' own computing.
    pub cpu: Option<Duration>,
    /// Calls to the host.
    pub calls: Option<u64>,
    /// What they print.
    pub output_bytes: Option<u64>,
}

/// Which limit struck.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Limit {
    /// [`Limits::wall`]
    Wall,
    /// [`Limits::cpu`]
    Cpu,
    /// [`Limits::memory_bytes`]
    Memory,
    /// [`Limits::output_bytes`]
    Output,
    /// [`Limits::calls`]
    Calls,
    /// [`Limits::recursion`]
    Recursion,
}

impl Limits {
    /// The limit that struck, in words.
    pub fn told(&self, limit: Limit) -> String {
        match limit {
            Limit::Wall => format!("time limit of {} reached, calls included", Span(self.wall)),
            Limit::Cpu => format!("computing time limit of {} reached", Span(self.cpu)),
            Limit::Memory => format!("memory limit of {} MiB reached", self.memory_bytes >> 20),
            Limit::Output => format!("output limit of {} bytes reached", self.output_bytes),
            Limit::Calls => format!("limit of {} tool calls reached", self.calls),
            Limit::Recursion => format!("recursion limit of {} calls reached", self.recursion),
        }
    }
}

struct Span(Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.subsec_millis() {
            0 => write!(f, "{} s", self.0.as_secs()),
            _ => write!(f, "{:.1} s", self.0.as_secs_f64()),
        }
    }
}
