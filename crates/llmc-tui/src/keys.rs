//! Keys, read from the terminal byte by byte.
//!
//! The terminal library's own reader loops for ever once the terminal is gone; this one returns an error.

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How long the rest of a key may take to follow its escape character; alone, that is the escape key.
const ESCAPE_TIMEOUT: Duration = Duration::from_millis(30);
/// An unfinished sequence that is longer is dropped.
const MAX_SEQUENCE_BYTES: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key {
    Char(char),
    Ctrl(char),
    Enter,
    Esc,
    Tab,
    BackTab,
    Backspace,
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    End,
}

pub(crate) struct Keyboard {
    input: File,
    unfinished: Vec<u8>,
}

impl Keyboard {
    /// Standard input, or the terminal of this session when that is something else.
    #[allow(
        clippy::disallowed_methods,
        reason = "a device, not a file of the agent"
    )]
    pub(crate) fn open() -> io::Result<Keyboard> {
        let stdin = io::stdin();
        let input = if stdin.is_terminal() {
            File::from(stdin.as_fd().try_clone_to_owned()?)
        } else {
            File::open("/dev/tty")?
        };
        Ok(Keyboard {
            input,
            unfinished: Vec::new(),
        })
    }

    /// Waits for keys; returns none after the timeout or a signal.
    ///
    /// # Errors
    /// The terminal is gone.
    pub(crate) fn wait(&mut self, timeout: Duration) -> io::Result<Vec<Key>> {
        if !self.ready(timeout)? {
            return Ok(Vec::new());
        }
        self.fill()?;
        if self.unfinished == [0x1b] && self.ready(ESCAPE_TIMEOUT)? {
            self.fill()?;
        }
        let (keys, used) = parse(&self.unfinished);
        self.unfinished.drain(..used);
        if self.unfinished.len() > MAX_SEQUENCE_BYTES {
            self.unfinished.clear();
        }
        Ok(keys)
    }

    fn ready(&self, timeout: Duration) -> io::Result<bool> {
        let timeout = Timespec::try_from(timeout).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut input = [PollFd::new(&self.input, PollFlags::IN)];
        match poll(&mut input, Some(&timeout)) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        let found = input[0].revents();
        if found.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(found.contains(PollFlags::IN))
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut block = [0; 1024];
        let count = self.input.read(&mut block)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.unfinished.extend(&block[..count]);
        Ok(())
    }
}

/// The keys in these bytes, and how many of the bytes they are; the rest is the beginning of another key.
fn parse(bytes: &[u8]) -> (Vec<Key>, usize) {
    let mut keys = Vec::new();
    let mut used = 0;
    while used < bytes.len() {
        let rest = &bytes[used..];
        let Some((key, length)) = first(rest) else {
            break;
        };
        keys.extend(key);
        used += length;
    }
    (keys, used)
}

/// The first key and its length in bytes. A length without a key: not one of these keys. `None`: more bytes are needed.
fn first(bytes: &[u8]) -> Option<(Option<Key>, usize)> {
    match *bytes {
        [0x1b] => Some((Some(Key::Esc), 1)),
        [0x1b, b'[' | b'O', ..] => sequence(bytes),
        // Escape twice, or a key with Alt held, which has no meaning here.
        [0x1b, 0x1b, ..] => Some((Some(Key::Esc), 1)),
        [0x1b, ..] => Some((None, 2)),
        [b'\r' | b'\n', ..] => Some((Some(Key::Enter), 1)),
        [b'\t', ..] => Some((Some(Key::Tab), 1)),
        [0x7f | 0x08, ..] => Some((Some(Key::Backspace), 1)),
        [byte @ 1..=0x1a, ..] => Some((Some(Key::Ctrl(char::from(byte - 1 + b'a'))), 1)),
        [0..=0x1f, ..] => Some((None, 1)),
        [byte, ..] => {
            let length = match byte {
                0xc0..=0xdf => 2,
                0xe0..=0xef => 3,
                0xf0..=0xf7 => 4,
                _ => 1,
            };
            let letter = bytes.get(..length)?;
            let letter = std::str::from_utf8(letter).ok();
            match letter.and_then(|letter| letter.chars().next()) {
                Some(letter) => Some((Some(Key::Char(letter)), length)),
                None => Some((None, 1)),
            }
        }
        [] => None,
    }
}

/// `ESC [` or `ESC O`, numbers, and the byte that says which key.
fn sequence(bytes: &[u8]) -> Option<(Option<Key>, usize)> {
    let end = bytes[2..]
        .iter()
        .position(|byte| !(0x20..=0x3f).contains(byte));
    let end = 2 + end?;
    let key = match (bytes[end], &bytes[2..end]) {
        (b'A', _) => Some(Key::Up),
        (b'B', _) => Some(Key::Down),
        (b'C', _) => Some(Key::Right),
        (b'D', _) => Some(Key::Left),
        (b'H', _) => Some(Key::Home),
        (b'F', _) => Some(Key::End),
        (b'Z', _) => Some(Key::BackTab),
        (b'~', b"1" | b"7") => Some(Key::Home),
        (b'~', b"4" | b"8") => Some(Key::End),
        (b'~', b"5") => Some(Key::PageUp),
        (b'~', b"6") => Some(Key::PageDown),
        // F1, in its two forms.
        (b'P', _) | (b'~', b"11") => Some(Key::Char('?')),
        _ => None,
    };
    Some((key, end + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_parsed() {
        use Key::*;
        for (bytes, keys) in [
            ("q", vec![Char('q')]),
            ("日ü", vec![Char('日'), Char('ü')]),
            ("\r\n\t\x7f", vec![Enter, Enter, Tab, Backspace]),
            ("\x03", vec![Ctrl('c')]),
            ("\x1b", vec![Esc]),
            ("\x1b\x1b", vec![Esc, Esc]),
            ("\x1b[A\x1bOB\x1b[1;5C", vec![Up, Down, Right]),
            (
                "\x1b[5~\x1b[6~\x1b[H\x1b[4~\x1b[Z",
                vec![PageUp, PageDown, Home, End, BackTab],
            ),
            ("\x1bq", vec![]),
            ("\x1b[200~x", vec![Char('x')]),
            ("\x1b[<0;3;4Mx", vec![Char('x')]),
            ("\0\x1cx", vec![Char('x')]),
        ] {
            assert_eq!(parse(bytes.as_bytes()), (keys, bytes.len()), "{bytes:?}");
        }
    }

    #[test]
    fn unfinished_keys_wait() {
        for (bytes, used) in [(&b"a\xe6\x97"[..], 1), (b"a\x1b[1;", 1), (b"\x1b[", 0)] {
            assert_eq!(parse(bytes).1, used, "{bytes:?}");
        }
        assert_eq!(
            parse(b"\xff\xfea"),
            (vec![Key::Char('a')], 3),
            "no letters at all"
        );
    }
}
