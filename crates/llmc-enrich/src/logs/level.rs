//! The level of a log line, whatever wrote it.

use memchr::memchr;

/// How serious a line is; access logs have the class of their status instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LogLevel {
    Fatal,
    Error,
    ServerError,
    Warn,
    ClientError,
    Info,
    Debug,
    Trace,
    Redirect,
    Success,
}

/// How far into a line its level may stand.
const MAX_PREFIX_BYTES: usize = 200;

impl LogLevel {
    pub(super) const ALL: [Self; 10] = [
        Self::Fatal,
        Self::Error,
        Self::ServerError,
        Self::Warn,
        Self::ClientError,
        Self::Info,
        Self::Debug,
        Self::Trace,
        Self::Redirect,
        Self::Success,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Fatal => "FATAL",
            Self::Error => "ERROR",
            Self::ServerError => "5xx",
            Self::Warn => "WARN",
            Self::ClientError => "4xx",
            Self::Info => "INFO",
            Self::Debug => "DEBUG",
            Self::Trace => "TRACE",
            Self::Redirect => "3xx",
            Self::Success => "2xx",
        }
    }

    pub(super) fn is_error(self) -> bool {
        matches!(self, Self::Fatal | Self::Error | Self::ServerError)
    }

    pub(super) fn is_warning(self) -> bool {
        matches!(self, Self::Warn | Self::ClientError)
    }

    /// The level that a line states, if it does.
    pub(super) fn of(line: &str) -> Option<Self> {
        let bytes = line.as_bytes();
        match bytes.first()? {
            b'{' => return in_json(line),
            b'<' => {
                if let Some(level) = in_priority(line) {
                    return Some(level);
                }
            }
            b'I' | b'W' | b'E' | b'F' => {
                if let Some(level) = in_glog(bytes) {
                    return Some(level);
                }
            }
            _ => {}
        }
        let prefix = &line[..line.floor_char_boundary(MAX_PREFIX_BYTES)];
        // Most lines have neither sign, and looking for one byte is cheaper than for a word.
        if memchr(b'=', prefix.as_bytes()).is_some()
            && let Some((_, value)) = prefix
                .split_once("level=")
                .or_else(|| prefix.split_once("severity="))
        {
            let value = value.trim_start_matches('"');
            let end = value
                .find(|c: char| !c.is_ascii_alphabetic())
                .unwrap_or(value.len());
            if let Some(level) = named(&value[..end]) {
                return Some(level);
            }
        }
        in_access_log(line).or_else(|| in_words(prefix))
    }

    /// Errors that state no level: crashes.
    pub(super) fn of_crash(line: &str) -> Option<Self> {
        unlabelled(&line[..line.floor_char_boundary(MAX_PREFIX_BYTES)])
    }
}

/// Whether a line starts with, or soon has, a time of day.
pub(super) fn has_time(line: &str) -> bool {
    let bytes = &line.as_bytes()[..line.len().min(64)];
    let digit = |b: &u8| b.is_ascii_digit();
    bytes.windows(8).any(|w| {
        let time = digit(&w[0])
            && digit(&w[1])
            && w[2] == b':'
            && digit(&w[3])
            && digit(&w[4])
            && w[5] == b':';
        time && digit(&w[6]) && digit(&w[7])
    })
}

fn named(word: &str) -> Option<LogLevel> {
    const NAMES: &[(&str, LogLevel)] = &[
        ("fatal", LogLevel::Fatal),
        ("critical", LogLevel::Fatal),
        ("crit", LogLevel::Fatal),
        ("emerg", LogLevel::Fatal),
        ("emergency", LogLevel::Fatal),
        ("alert", LogLevel::Fatal),
        ("panic", LogLevel::Fatal),
        ("severe", LogLevel::Error),
        ("error", LogLevel::Error),
        ("err", LogLevel::Error),
        ("warn", LogLevel::Warn),
        ("warning", LogLevel::Warn),
        ("notice", LogLevel::Info),
        ("info", LogLevel::Info),
        ("information", LogLevel::Info),
        ("debug", LogLevel::Debug),
        ("verbose", LogLevel::Debug),
        ("trace", LogLevel::Trace),
    ];
    if word.len() < 3 || word.len() > 11 {
        return None;
    }
    NAMES
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(word))
        .map(|(_, level)| *level)
}

/// `"level":"error"` and its like; numbers are those of pino and bunyan.
fn in_json(line: &str) -> Option<LogLevel> {
    const KEYS: &[&str] = &[
        "\"level\"",
        "\"severity\"",
        "\"lvl\"",
        "\"levelname\"",
        "\"log.level\"",
        "\"loglevel\"",
    ];
    let (_, rest) = KEYS.iter().find_map(|key| line.split_once(key))?;
    let value = rest.trim_start().strip_prefix(':')?.trim_start();
    if let Some(word) = value.strip_prefix('"') {
        return named(word.split('"').next()?);
    }
    let digits = value.bytes().take_while(u8::is_ascii_digit).count();
    match value[..digits].parse::<u32>().ok()? {
        60.. => Some(LogLevel::Fatal),
        50.. => Some(LogLevel::Error),
        40.. => Some(LogLevel::Warn),
        30.. => Some(LogLevel::Info),
        20.. => Some(LogLevel::Debug),
        10.. => Some(LogLevel::Trace),
        _ => None,
    }
}

/// syslog's `<11>`: the lowest three bits are the severity.
fn in_priority(line: &str) -> Option<LogLevel> {
    let (number, _) = line.strip_prefix('<')?.split_once('>')?;
    if number.len() > 3 {
        return None;
    }
    Some(match number.parse::<u32>().ok()? % 8 {
        0..=2 => LogLevel::Fatal,
        3 => LogLevel::Error,
        4 => LogLevel::Warn,
        5 | 6 => LogLevel::Info,
        _ => LogLevel::Debug,
    })
}

/// `E0102 15:04:05.678901   1 file.go:12] message`.
fn in_glog(bytes: &[u8]) -> Option<LogLevel> {
    let date = bytes.get(1..6)?;
    if !date[..4].iter().all(u8::is_ascii_digit) || date[4] != b' ' {
        return None;
    }
    Some(match bytes[0] {
        b'F' => LogLevel::Fatal,
        b'E' => LogLevel::Error,
        b'W' => LogLevel::Warn,
        _ => LogLevel::Info,
    })
}

/// `"GET / HTTP/1.1" 500 123`.
fn in_access_log(line: &str) -> Option<LogLevel> {
    memchr(b'"', line.as_bytes())?;
    let (_, rest) = line.split_once(" HTTP/")?;
    let (_, rest) = rest.split_once("\" ")?;
    let status = rest.get(..3)?;
    if !status.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    match status.as_bytes()[0] {
        b'5' => Some(LogLevel::ServerError),
        b'4' => Some(LogLevel::ClientError),
        b'3' => Some(LogLevel::Redirect),
        b'1' | b'2' => Some(LogLevel::Success),
        _ => None,
    }
}

/// The first word that is a level: in capitals, in brackets, or before a colon where a message begins.
fn in_words(prefix: &str) -> Option<LogLevel> {
    let bytes = prefix.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let word = bytes[at..]
            .iter()
            .take_while(|b| b.is_ascii_alphabetic())
            .count();
        if word == 0 {
            at += 1;
            continue;
        }
        let end = at + word;
        let before = at.checked_sub(1).map(|i| bytes[i]);
        let after = bytes.get(end).copied();
        let part_of_name = |b: Option<u8>| {
            b.is_some_and(|b| b.is_ascii_digit() || matches!(b, b'_' | b'-' | b'.' | b'/' | b'='))
        };
        if (3..=11).contains(&word) && !part_of_name(before) && !part_of_name(after) {
            let text = &prefix[at..end];
            let capitals = text.bytes().all(|b| b.is_ascii_uppercase());
            let brackets = matches!(
                (before, after),
                (Some(b'['), Some(b']' | b':')) | (Some(b'('), Some(b')'))
            );
            let opens =
                before.is_none() || prefix[..at].ends_with(": ") || prefix[..at].ends_with("] ");
            if (capitals || brackets || (opens && after == Some(b':')))
                && let Some(level) = named(text)
            {
                return Some(level);
            }
        }
        at = end;
    }
    None
}

fn unlabelled(prefix: &str) -> Option<LogLevel> {
    const STARTS: &[&str] = &[
        "Traceback (most recent call last):",
        "panic: ",
        "Exception in thread ",
        "Unhandled ",
    ];
    const ANYWHERE: &[&str] = &[
        "Segmentation fault",
        "segfault at ",
        "Out of memory: Kill",
        "Kernel panic",
    ];
    let crashed = STARTS.iter().any(|start| prefix.starts_with(start))
        || (prefix.starts_with("thread '") && prefix.contains(" panicked at "))
        || ANYWHERE.iter().any(|words| prefix.contains(words));
    crashed.then_some(LogLevel::Error)
}
