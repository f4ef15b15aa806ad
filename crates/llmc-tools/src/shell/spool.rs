//! A command's output while it arrives: all of it while it is small, ends and counts when it is not.
//!
//! Whatever a command prints, this takes a bounded amount of memory. What no longer fits goes to a file without a name,
//! from which it is copied into the handle store in the end.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use llmc_enrich::error_lines::ErrorLines;
use llmc_enrich::logs::LogSurvey;
use llmc_enrich::preview::TextEnds;
use llmc_exec::{OutputSink, Stream};
use llmc_host::ReadBlock;

/// A stream up to this size is held whole once the command has ended.
pub(super) const WHOLE_BYTES: usize = 8 << 20;
/// What is kept in memory of the beginning of each stream while the command runs. Much smaller than [`WHOLE_BYTES`]: the
/// allocator keeps what large buffers took, once for each thread.
const HEAD_BYTES: usize = 1 << 20;
/// What is kept in memory of the end, when the beginning does not reach it.
const TAIL_BYTES: usize = 256 << 10;
/// What is kept of each stream in a file; beyond, bytes are only counted.
const MAX_SPILLED_BYTES: u64 = 512 << 20;
/// Changes between the streams that are remembered; beyond, stdout stands before stderr.
const MAX_SWITCHES: usize = 1 << 16;

/// Both streams of a command.
#[derive(Debug)]
pub(crate) struct Spool {
    pub(super) stdout: SpooledStream,
    pub(super) stderr: SpooledStream,
    /// The order in which the streams were read: one entry for every change between them.
    order: Vec<(Stream, usize)>,
    pub(super) error_lines: ErrorLines,
    dir: Option<PathBuf>,
}

/// One stream.
#[derive(Debug)]
pub(super) struct SpooledStream {
    head: Vec<u8>,
    /// How long `head` may become before the stream goes to a file.
    max_head: usize,
    /// The last bytes, up to twice of what is promised.
    tail: Vec<u8>,
    bytes: u64,
    line_ends: u64,
    last: Option<u8>,
    spilled: Spilled,
}

#[derive(Debug, Default)]
enum Spilled {
    #[default]
    Nothing,
    File(File),
    /// It could not be kept, for this reason.
    Lost(String),
}

impl Spool {
    /// `dir` is where large outputs wait; without one they are not kept.
    pub(crate) fn new(dir: Option<PathBuf>) -> Spool {
        Spool::with_max_head(dir, WHOLE_BYTES)
    }

    fn with_max_head(dir: Option<PathBuf>, max_head: usize) -> Spool {
        Spool {
            stdout: SpooledStream::new(max_head),
            stderr: SpooledStream::new(max_head),
            order: Vec::new(),
            error_lines: ErrorLines::default(),
            dir,
        }
    }

    /// Reads streams that are small enough to be held whole back from their files.
    fn complete(&mut self) {
        self.stdout.complete();
        self.stderr.complete();
        if self.whole().is_some() {
            self.error_lines = ErrorLines::default();
        }
    }

    /// Takes what has arrived.
    pub(crate) fn push(&mut self, stream: Stream, bytes: &[u8]) {
        let has_room = self.order.len() < MAX_SWITCHES;
        match self.order.last_mut() {
            Some((last, length)) if *last == stream => *length += bytes.len(),
            _ if has_room => self.order.push((stream, bytes.len())),
            _ => {}
        }
        let side = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        let was_small = side.is_whole();
        side.push(bytes, self.dir.as_deref());
        // Only one output is searched while it streams: the first that is too large, which is nearly always the only one.
        let searched = self.alarms_side().is_none_or(|searched| searched == stream);
        let side = match stream {
            Stream::Stdout => &self.stdout,
            Stream::Stderr => &self.stderr,
        };
        match (was_small, side.is_whole()) {
            (true, false) if searched => {
                self.error_lines.feed(&side.head);
                let rest = bytes.len()
                    - (side.bytes - side.head.len() as u64).min(bytes.len() as u64) as usize;
                self.error_lines.feed(&bytes[rest..]);
            }
            (false, false) if searched => self.error_lines.feed(bytes),
            _ => {}
        }
    }

    fn alarms_side(&self) -> Option<Stream> {
        match (self.stdout.is_whole(), self.stderr.is_whole()) {
            (false, _) => Some(Stream::Stdout),
            (true, false) => Some(Stream::Stderr),
            (true, true) => None,
        }
    }

    /// Bytes in all.
    pub(crate) fn bytes(&self) -> u64 {
        self.stdout.bytes + self.stderr.bytes
    }

    /// Why something of it is not kept, if so.
    pub(super) fn lost(&self) -> Option<&str> {
        [&self.stdout, &self.stderr]
            .into_iter()
            .find_map(|stream| match &stream.spilled {
                Spilled::Lost(why) => Some(why.as_str()),
                _ => None,
            })
    }

    /// Bytes at the beginning of both streams that are in memory.
    pub(super) fn heads_len(&self) -> usize {
        self.stdout.head.len() + self.stderr.head.len()
    }

    /// Both streams whole, if they are small.
    pub(super) fn whole(&self) -> Option<(&[u8], &[u8])> {
        (self.stdout.is_whole() && self.stderr.is_whole())
            .then_some((&self.stdout.head[..], &self.stderr.head[..]))
    }

    /// Both streams as one text, line by line in the order in which the lines were read, if both are small.
    pub(crate) fn merged(&self) -> Option<Vec<u8>> {
        let streams = self.whole()?;
        let streams = [streams.0, streams.1];
        let mut text = Vec::with_capacity(streams[0].len() + streams[1].len() + 1);
        // What has been read of each stream, and what of it is in the text already.
        let (mut read, mut written) = ([0; 2], [0; 2]);
        for (stream, length) in &self.order {
            let at = usize::from(*stream == Stream::Stderr);
            let piece = read[at]..(read[at] + length).min(streams[at].len());
            // A line that has only begun waits for its end, so that the other stream does not cut it in two.
            if let Some(end) = memchr::memrchr(b'\n', &streams[at][piece.clone()]) {
                let end = piece.start + end + 1;
                text.extend_from_slice(&streams[at][written[at]..end]);
                written[at] = end;
            }
            read[at] = piece.end;
        }
        for (stream, written) in streams.iter().zip(written) {
            if written < stream.len() && text.last().is_some_and(|last| *last != b'\n') {
                text.push(b'\n');
            }
            text.extend_from_slice(&stream[written..]);
        }
        Some(text)
    }

    /// Writes all of it: in the order of [`Spool::merged`] where that is known, else stdout before stderr.
    ///
    /// # Errors
    /// The target's, or that something was not kept.
    pub(super) fn write_to(&mut self, out: &mut impl Write) -> io::Result<()> {
        if let Some(text) = self.merged() {
            return out.write_all(&text);
        }
        self.stdout.write_to(out)?;
        if self.stderr.bytes > 0 && self.stdout.last.is_some_and(|last| last != b'\n') {
            out.write_all(b"\n")?;
        }
        self.stderr.write_to(out)
    }

    /// Both streams byte for byte, or both as one text in the place of the first.
    ///
    /// # Errors
    /// Something was not kept.
    pub(super) fn contents(&mut self, merged: bool) -> io::Result<[Vec<u8>; 2]> {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        if merged {
            self.write_to(&mut stdout)?;
        } else {
            self.stdout.write_to(&mut stdout)?;
            self.stderr.write_to(&mut stderr)?;
        }
        Ok([stdout, stderr])
    }

    /// The end of both streams.
    pub(crate) fn ends(&self, bytes: usize) -> [String; 2] {
        [&self.stdout, &self.stderr].map(|side| {
            let end = if side.is_whole() {
                &side.head
            } else {
                &side.tail
            };
            let end = &end[end.len().saturating_sub(bytes)..];
            String::from_utf8_lossy(end).into_owned()
        })
    }
}

impl SpooledStream {
    fn new(max_head: usize) -> SpooledStream {
        SpooledStream {
            head: Vec::new(),
            max_head,
            tail: Vec::new(),
            bytes: 0,
            line_ends: 0,
            last: None,
            spilled: Spilled::Nothing,
        }
    }

    fn complete(&mut self) {
        if self.is_whole() || self.bytes > WHOLE_BYTES as u64 {
            return;
        }
        let mut whole = Vec::with_capacity(self.bytes as usize);
        let read = self.each_block(|block| whole.write_all(block));
        if read.is_ok() && whole.len() as u64 == self.bytes {
            self.head = whole;
            self.tail = Vec::new();
            self.spilled = Spilled::Nothing;
        }
    }

    fn is_whole(&self) -> bool {
        self.bytes == self.head.len() as u64
    }

    fn push(&mut self, bytes: &[u8], dir: Option<&std::path::Path>) {
        self.bytes += bytes.len() as u64;
        self.line_ends += memchr::memchr_iter(b'\n', bytes).count() as u64;
        self.last = bytes.last().copied().or(self.last);
        if matches!(self.spilled, Spilled::Nothing) {
            let taken = bytes
                .len()
                .min(self.max_head.saturating_sub(self.head.len()));
            self.head.extend_from_slice(&bytes[..taken]);
            if taken == bytes.len() {
                return;
            }
            self.spilled = spill(&self.head, dir);
            let tail_start = self.head.len().saturating_sub(TAIL_BYTES);
            self.tail.reserve_exact(2 * TAIL_BYTES);
            self.tail.extend_from_slice(&self.head[tail_start..]);
            self.keep(&bytes[taken..]);
            return;
        }
        self.keep(bytes);
    }

    fn keep(&mut self, bytes: &[u8]) {
        if let Spilled::File(file) = &mut self.spilled {
            let written = match self.bytes > MAX_SPILLED_BYTES {
                true => Err(io::Error::other(format!(
                    "more than {} MiB",
                    MAX_SPILLED_BYTES >> 20
                ))),
                false => file.write_all(bytes),
            };
            if let Err(error) = written {
                self.spilled = Spilled::Lost(error.to_string());
            }
        }
        let bytes = &bytes[bytes.len().saturating_sub(TAIL_BYTES)..];
        if self.tail.len() + bytes.len() > 2 * TAIL_BYTES {
            let kept = TAIL_BYTES - bytes.len();
            self.tail.drain(..self.tail.len() - kept);
        }
        self.tail.extend_from_slice(bytes);
    }

    fn write_to(&mut self, out: &mut impl Write) -> io::Result<()> {
        self.each_block(|block| out.write_all(block))
    }

    /// What it holds as a log, if all of it was kept to be read again.
    pub(super) fn survey(&mut self) -> Option<LogSurvey> {
        let mut survey = LogSurvey::default();
        self.each_block(|block| {
            survey.feed(block);
            Ok(())
        })
        .ok()?;
        survey.finish();
        Some(survey)
    }

    fn each_block(&mut self, mut each: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        match &mut self.spilled {
            Spilled::Nothing => each(&self.head),
            Spilled::Lost(why) => Err(io::Error::other(why.clone())),
            Spilled::File(file) => {
                file.rewind()?;
                let mut block = ReadBlock::new(256 << 10);
                loop {
                    match file.read(&mut block)? {
                        0 => return Ok(()),
                        read => each(&block[..read])?,
                    }
                }
            }
        }
    }

    /// How many lines; a last one without its end counts.
    pub(super) fn lines(&self) -> u64 {
        self.line_ends + u64::from(self.last.is_some_and(|last| last != b'\n'))
    }

    /// What is at hand of it, cut between lines.
    pub(super) fn parts(&self) -> Parts {
        let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if self.is_whole() {
            return Parts {
                head: lossy(&self.head),
                tail: None,
                bytes: self.bytes,
                lines: self.lines(),
                survey: None,
            };
        }
        let cut = memchr::memrchr(b'\n', &self.head).map_or(self.head.len(), |at| at + 1);
        let tail = &self.tail[self.tail.len() - TAIL_BYTES.min(self.tail.len())..];
        let from = memchr::memchr(b'\n', tail).map_or(0, |at| at + 1);
        Parts {
            head: lossy(&self.head[..cut]),
            tail: Some(lossy(&tail[from..])),
            bytes: self.bytes,
            lines: self.lines(),
            survey: None,
        }
    }
}

/// One output as text.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) head: String,
    tail: Option<String>,
    bytes: u64,
    lines: u64,
    pub(super) survey: Option<LogSurvey>,
}

impl Parts {
    pub(super) fn text(&self) -> TextEnds<'_> {
        TextEnds {
            head: &self.head,
            tail: self.tail.as_deref(),
            total_bytes: self.bytes,
            total_lines: self.lines,
            survey: self.survey.as_ref(),
        }
    }
}

fn spill(head: &[u8], dir: Option<&std::path::Path>) -> Spilled {
    let Some(dir) = dir else {
        return Spilled::Lost("there is no state directory".to_owned());
    };
    let spilled = tempfile::tempfile_in(dir).and_then(|mut file| {
        file.write_all(head)?;
        Ok(file)
    });
    match spilled {
        Ok(file) => Spilled::File(file),
        Err(error) => Spilled::Lost(error.to_string()),
    }
}

/// A spool that the thread which reads a command fills while a call looks at it.
#[derive(Debug, Clone)]
pub(crate) struct SharedSpool {
    spool: Arc<Mutex<Spool>>,
    dir: Option<PathBuf>,
}

impl SharedSpool {
    pub(crate) fn new(dir: Option<PathBuf>) -> SharedSpool {
        SharedSpool {
            spool: Arc::new(Mutex::new(SharedSpool::empty(dir.as_ref()))),
            dir,
        }
    }

    fn empty(dir: Option<&PathBuf>) -> Spool {
        // Without a file all that can be shown must be in memory.
        let max_head = if dir.is_some() {
            HEAD_BYTES
        } else {
            WHOLE_BYTES
        };
        Spool::with_max_head(dir.cloned(), max_head)
    }

    /// What fills it.
    pub(crate) fn sink(&self) -> OutputSink {
        let shared = self.clone();
        Box::new(move |stream, bytes| shared.lock().push(stream, bytes))
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.lock().bytes()
    }

    /// What has come since the last time.
    pub(crate) fn take(&self) -> Spool {
        let mut spool = std::mem::replace(&mut *self.lock(), SharedSpool::empty(self.dir.as_ref()));
        spool.complete();
        spool
    }

    fn lock(&self) -> MutexGuard<'_, Spool> {
        self.spool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_stand_in_the_order_in_which_they_were_read() {
        use Stream::{Stderr, Stdout};
        for (pieces, expected) in [
            (
                &[(Stdout, "a\n"), (Stderr, "b\n"), (Stdout, "c\n")][..],
                "a\nb\nc\n",
            ),
            (
                &[(Stdout, "a"), (Stderr, "b\n"), (Stdout, "c\n")],
                "b\nac\n",
            ),
            (&[(Stdout, "a\nb"), (Stderr, "c")], "a\nb\nc"),
            (&[(Stderr, "e")], "e"),
            (&[], ""),
        ] {
            let mut spool = Spool::new(None);
            for (stream, text) in pieces {
                spool.push(*stream, text.as_bytes());
            }
            let merged = String::from_utf8(spool.merged().unwrap()).unwrap();
            assert_eq!(merged, expected, "{pieces:?}");
        }
    }

    #[test]
    fn a_large_output_comes_back_byte_for_byte_and_its_ends_are_at_hand() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::new(Some(dir.path().to_owned()));
        let mut all = Vec::new();
        let mut n = 0_u32;
        while all.len() < WHOLE_BYTES + 3 * TAIL_BYTES {
            n += 1;
            let line = match n % 50_000 {
                0 => format!("line {n}: error: here\n"),
                _ => format!("line {n} \u{e4}\n"),
            };
            all.extend_from_slice(line.as_bytes());
        }
        all.extend_from_slice(b"the end");
        for part in all.chunks(65_536) {
            spool.push(Stream::Stdout, part);
        }
        spool.push(Stream::Stderr, b"complaint");
        let parts = spool.stdout.parts();
        let text = parts.text();
        assert_eq!(text.total_bytes, all.len() as u64);
        assert_eq!(text.total_lines, u64::from(n) + 1);
        assert!(text.head.ends_with('\n') && text.tail.unwrap().ends_with("the end"));
        assert_eq!(spool.error_lines.count(), u64::from(n / 50_000));
        assert!(
            spool
                .error_lines
                .kept()
                .all(|(number, _)| number % 50_000 == 0)
        );
        let mut copy = Vec::new();
        spool.write_to(&mut copy).unwrap();
        all.extend_from_slice(b"\ncomplaint");
        assert!(copy == all);
        assert_eq!(
            std::fs::read_dir(dir.path()).unwrap().count(),
            0,
            "it has no name"
        );
    }

    #[test]
    fn what_cannot_be_kept_is_said_and_costs_no_memory() {
        let mut spool = Spool::new(None);
        let block = vec![b'x'; 1 << 20];
        for _ in 0..64 {
            spool.push(Stream::Stdout, &block);
        }
        assert_eq!(spool.bytes(), 64 << 20);
        assert!(spool.write_to(&mut Vec::new()).is_err());
        assert!(
            spool.stdout.head.len() + spool.stdout.tail.capacity() <= WHOLE_BYTES + 2 * TAIL_BYTES
        );
    }

    #[test]
    fn an_output_of_a_few_megabytes_is_whole_when_it_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let shared = SharedSpool::new(Some(dir.path().to_owned()));
        let mut sink = shared.sink();
        let all: Vec<u8> = (0..400_000_u32)
            .flat_map(|n| format!("line {n}\n").into_bytes())
            .collect();
        assert!((2 * HEAD_BYTES..WHOLE_BYTES).contains(&all.len()));
        for part in all.chunks(65_536) {
            sink(Stream::Stdout, part);
        }
        sink(Stream::Stderr, b"complaint\n");
        {
            let held = shared.lock();
            assert!(held.stdout.head.capacity() + held.stdout.tail.capacity() <= 3 * HEAD_BYTES);
        }
        let spool = shared.take();
        let (stdout, stderr) = spool.whole().unwrap();
        assert!(stdout == all && stderr == b"complaint\n");
        assert_eq!(spool.stdout.lines(), 400_000);
        // What was taken is not there a second time.
        assert_eq!(shared.take().bytes(), 0);
    }
}
