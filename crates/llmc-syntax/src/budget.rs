//! How much work parsing may be.

use std::time::{Duration, Instant};

/// Wall-clock time, as a multiple of the CPU time that is allowed, after which a parse is given up: a busy machine may
/// delay it by this much.
const WALL_CLOCK_FACTOR: u32 = 20;

/// The bytes and the CPU time that parsing may take in all, over any number of files.
///
/// The CPU time of parsing is measured, so that the same search finds the same definitions on a busy machine; a multiple
/// of it in wall-clock time is the hard limit.
#[derive(Debug, Clone, Copy)]
pub struct ParseBudget {
    bytes: usize,
    cpu_time: Duration,
    deadline: Instant,
}

impl ParseBudget {
    pub const MAX_BYTES: usize = 2 * 1024 * 1024;
    pub const MAX_CPU_TIME: Duration = Duration::from_millis(80);

    /// At most this much source, in at most this much processor time from now.
    pub fn new(bytes: usize, cpu_time: Duration) -> Self {
        Self {
            bytes,
            cpu_time,
            deadline: Instant::now() + cpu_time * WALL_CLOCK_FACTOR,
        }
    }

    /// The bytes that may still be parsed; none once the time is up.
    pub fn left(&self) -> usize {
        if !self.cpu_time.is_zero() && Instant::now() < self.deadline {
            self.bytes
        } else {
            0
        }
    }

    /// The CPU time that is left.
    pub(crate) fn cpu_time(&self) -> Duration {
        self.cpu_time
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        let enough = bytes <= self.left();
        if enough {
            self.bytes -= bytes;
        }
        enough
    }

    /// Postpones the hard limit by a time in which nothing could be parsed.
    pub(crate) fn extend(&mut self, time: Duration) {
        self.deadline += time;
    }

    pub(crate) fn spend(&mut self, cpu_time: Duration) {
        self.cpu_time = self.cpu_time.saturating_sub(cpu_time);
    }
}

impl Default for ParseBudget {
    fn default() -> Self {
        Self::new(Self::MAX_BYTES, Self::MAX_CPU_TIME)
    }
}

/// When one parse on this thread has to end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ParseClock {
    started: Duration,
    cpu_deadline: Duration,
    deadline: Instant,
}

impl ParseClock {
    pub(crate) fn start(cpu_time: Duration) -> Self {
        let started = thread_cpu_time();
        Self {
            started,
            cpu_deadline: started + cpu_time,
            deadline: Instant::now() + cpu_time * WALL_CLOCK_FACTOR,
        }
    }

    pub(crate) fn has_time(&self) -> bool {
        thread_cpu_time() < self.cpu_deadline && Instant::now() < self.deadline
    }

    /// CPU time since the start.
    pub(crate) fn used(&self) -> Duration {
        thread_cpu_time().saturating_sub(self.started)
    }
}

/// CPU time this thread has used.
pub fn thread_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}
