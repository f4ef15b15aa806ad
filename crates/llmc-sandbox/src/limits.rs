//! Limits of scripts.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Limits of one block of code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptLimits {
    /// Wall clock time without that of calls. Its process is ended then.
    pub wall: Duration,
    /// Wall clock time of all calls together.
    pub calls_wall: Duration,
    /// Computing time, without waiting for calls.
    pub cpu: Duration,
    /// Beyond the memory of an idle interpreter.
    pub memory_bytes: u64,
    /// Printed text and the final value.
    pub output_bytes: u64,
    /// Calls to the host.
    pub calls: u64,
    /// Depth of Python calls.
    pub recursion: u32,
}

impl Default for ScriptLimits {
    fn default() -> ScriptLimits {
        ScriptLimits {
            wall: Duration::from_secs(30),
            calls_wall: Duration::from_secs(3600),
            cpu: Duration::from_secs(30),
            memory_bytes: 256 << 20,
            output_bytes: 1 << 20,
            calls: 1000,
            recursion: 1000,
        }
    }
}

/// Which limit was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ScriptLimit {
    Wall,
    Cpu,
    Memory,
    Output,
    Calls,
    Recursion,
}

impl ScriptLimits {
    /// The message about a limit that was reached.
    pub fn describe(&self, limit: ScriptLimit) -> String {
        match limit {
            ScriptLimit::Wall => format!("time limit of {} reached", Seconds(self.wall)),
            ScriptLimit::Cpu => format!("computing time limit of {} reached", Seconds(self.cpu)),
            ScriptLimit::Memory => {
                format!("memory limit of {} MiB reached", self.memory_bytes >> 20)
            }
            ScriptLimit::Output => format!("output limit of {} bytes reached", self.output_bytes),
            ScriptLimit::Calls => format!("limit of {} tool calls reached", self.calls),
            ScriptLimit::Recursion => {
                format!("recursion limit of {} calls reached", self.recursion)
            }
        }
    }
}

impl ScriptLimit {
    /// What the author of a script can do about it.
    pub(crate) fn hint(self) -> &'static str {
        match self {
            ScriptLimit::Wall => {
                "do less in one script, or await calls together with asyncio.gather"
            }
            ScriptLimit::Cpu => {
                "look for a loop that does not end; let tools search rather than the script"
            }
            ScriptLimit::Memory => {
                "work on parts: read by lines or ranges and keep only what is needed"
            }
            ScriptLimit::Output => "print only the result; summarise or count instead",
            ScriptLimit::Calls => "use one search instead of many reads, or several scripts",
            ScriptLimit::Recursion => "use a loop with a list as its stack",
        }
    }
}

struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.subsec_millis() {
            0 => write!(f, "{} s", self.0.as_secs()),
            _ => write!(f, "{:.1} s", self.0.as_secs_f64()),
        }
    }
}
