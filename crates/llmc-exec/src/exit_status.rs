//! How a program ended.

use std::fmt;

/// How a program ended: the one form in which every layer passes it on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitStatus {
    /// It exited with this code.
    Exited(i32),
    /// This signal killed it.
    Signaled(i32),
    /// The server ended it before it ended by itself.
    Stopped,
}

impl ExitStatus {
    pub const SUCCESS: ExitStatus = ExitStatus::Exited(0);

    pub fn is_success(self) -> bool {
        self == ExitStatus::SUCCESS
    }

    pub fn exit_code(self) -> Option<i32> {
        match self {
            ExitStatus::Exited(code) => Some(code),
            _ => None,
        }
    }

    pub fn signal(self) -> Option<i32> {
        match self {
            ExitStatus::Signaled(signal) => Some(signal),
            _ => None,
        }
    }

    /// The code that a shell shows for it: 128 and the number for a signal.
    pub fn shell_code(self) -> Option<i32> {
        match self {
            ExitStatus::Exited(code) => Some(code),
            ExitStatus::Signaled(signal) => Some(128 + signal),
            ExitStatus::Stopped => None,
        }
    }
}

/// `exit 2`, `signal KILL`, `stopped`.
impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExitStatus::Exited(code) => write!(f, "exit {code}"),
            ExitStatus::Signaled(signal) => match signal_name(*signal) {
                Some(name) => write!(f, "signal {name}"),
                None => write!(f, "signal {signal}"),
            },
            ExitStatus::Stopped => f.write_str("stopped"),
        }
    }
}

impl From<std::process::ExitStatus> for ExitStatus {
    fn from(status: std::process::ExitStatus) -> ExitStatus {
        use std::os::unix::process::ExitStatusExt;
        match (status.code(), status.signal()) {
            (Some(code), _) => ExitStatus::Exited(code),
            (None, Some(signal)) => ExitStatus::Signaled(signal),
            (None, None) => ExitStatus::Stopped,
        }
    }
}

fn signal_name(number: i32) -> Option<&'static str> {
    let signal = nix::sys::signal::Signal::try_from(number).ok()?;
    Some(signal.as_str().trim_start_matches("SIG"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_has_its_words_and_its_shell_code() {
        for (status, words, code) in [
            (ExitStatus::Exited(3), "exit 3", Some(3)),
            (ExitStatus::Signaled(9), "signal KILL", Some(137)),
            (ExitStatus::Signaled(40), "signal 40", Some(168)),
            (ExitStatus::Stopped, "stopped", None),
        ] {
            assert_eq!(
                (status.to_string().as_str(), status.shell_code()),
                (words, code)
            );
        }
    }
}
