//! Lines found in files, for `linux_search_content`.
//!
//! Most files are small: they are read whole into a buffer that each thread keeps, and searched there. Larger ones
//! stream through the searcher's own buffer, which grows up to [`MAX_LINE_MEMORY`] for a long line and no further.
//! A file that holds a NUL is binary and none of its lines count.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink};
use memchr::memchr;
use rustix::fs::{FileType, fstat};
use rustix::io::Errno;

use super::hits::{Densest, Hit, Hits, Room};
use super::pattern::ContentPattern;
use super::sink::{Count, Keep};
use crate::cancel::CancelToken;
use crate::error::{Error, Result};
use crate::names::shown;
use crate::walk::{self, Ended, Found, Skipped, Visit, Visitor, WalkOptions};

/// Files up to this size are read whole. Larger is no faster, and makes the looks at the clock rarer.
const SMALL: usize = 64 * 1024;
/// The longest line that is searched, in bytes, and the most memory a thread takes for text.
const MAX_LINE_MEMORY: usize = 8 * 1024 * 1024;

/// How much to look at and to keep.
#[derive(Clone, Debug)]
pub struct ContentOptions {
    /// Lines shown before and after each matching line.
    pub context_lines: usize,
    /// The largest file that is searched, in bytes.
    pub max_file_size: u64,
    /// The most hits to return.
    pub max_hits: usize,
    /// The most bytes of snippets and paths to return.
    pub max_bytes: usize,
}

impl Default for ContentOptions {
    fn default() -> Self {
        Self {
            context_lines: 0,
            max_file_size: 2 * 1024 * 1024 * 1024,
            max_hits: 10_000,
            max_bytes: 8 * 1024 * 1024,
        }
    }
}

/// Lines found in files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentFound {
    /// The first hits, ordered by the bytes of their paths, then by line.
    pub hits: Vec<Hit>,
    /// How many lines match in all.
    pub total_hits: u64,
    /// Files searched to their end.
    pub files_searched: u64,
    /// Files with a matching line.
    pub files_matched: u64,
    /// The file with the most matching lines; of several the one with the smallest path.
    pub densest: Option<Densest>,
    /// What was left out.
    pub skipped: Skipped,
    /// Whether the whole tree was searched; if not, the [`CancelToken`] that was given says why.
    pub complete: bool,
}

/// Finds the lines that match in the files below `start`.
pub fn search_content(
    start: impl AsFd,
    pattern: &ContentPattern,
    walk: &WalkOptions,
    options: &ContentOptions,
    cancel: &CancelToken,
) -> Result<ContentFound> {
    let hits = Arc::new(Hits::new(options.room()));
    let walked = walk::walk(start, walk, cancel, || {
        FileSearcher::new(pattern, options, cancel, &hits)
    })?;
    let found = hits.take();
    Ok(ContentFound {
        hits: found.hits,
        total_hits: found.total_hits,
        files_searched: walked.files,
        files_matched: found.files_matched,
        densest: found.densest,
        skipped: walked.skipped,
        complete: walked.complete,
    })
}

/// Finds the lines that match in one open file, which hits name as `path`.
pub fn search_content_of_file(
    file: impl AsFd,
    path: &[u8],
    pattern: &ContentPattern,
    options: &ContentOptions,
    cancel: &CancelToken,
) -> Result<ContentFound> {
    let error = |errno| Error::of(&shown(path), errno);
    // A duplicate, for a thread that may outlive this call; it reads at offsets of its own.
    let file = rustix::io::fcntl_dupfd_cloexec(file, 0).map_err(error)?;
    let stat = fstat(&file).map_err(error)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(error(Errno::NODEV));
    }
    let hits = Arc::new(Hits::new(options.room()));
    let outcome = Arc::new(std::sync::OnceLock::new());
    let mut searcher = FileSearcher::new(pattern, options, cancel, &hits);
    let job = {
        let (path, outcome) = (path.to_vec(), Arc::clone(&outcome));
        move || {
            let size = u64::try_from(stat.st_size).unwrap_or(0);
            let _ = outcome.set(searcher.search(&path, &file, size));
        }
    };
    let ended = walk::run(vec![job], cancel)?;
    let visit = match ended {
        Ended::Together => outcome.get().copied().unwrap_or(Visit::Stopped),
        Ended::LeftBehind => Visit::Stopped,
    };
    let found = hits.take();
    let mut skipped = Skipped::default();
    match visit {
        Visit::Binary => skipped.binary = 1,
        Visit::TooLarge => skipped.too_large = 1,
        Visit::Unreadable => skipped.unreadable = 1,
        Visit::Done | Visit::Stopped => {}
    }
    Ok(ContentFound {
        hits: found.hits,
        total_hits: found.total_hits,
        files_searched: u64::from(visit == Visit::Done),
        files_matched: found.files_matched,
        densest: found.densest,
        skipped,
        complete: visit != Visit::Stopped,
    })
}

impl ContentOptions {
    fn room(&self) -> Room {
        Room {
            hits: self.max_hits,
            bytes: self.max_bytes,
        }
    }
}

/// Searches one file after another on one thread.
struct FileSearcher {
    pattern: ContentPattern,
    /// For files whose hits may be kept: with line numbers and context.
    keeping: Searcher,
    /// For files that lie behind everything there is room for.
    counting: Searcher,
    buffer: Vec<u8>,
    context: usize,
    max_file_size: u64,
    cancel: CancelToken,
    hits: Arc<Hits>,
    cutoff: Option<Arc<[u8]>>,
    cutoff_moves: u64,
}

impl Visitor for FileSearcher {
    fn visit(&mut self, found: &Found<'_>) -> Visit {
        match found.open() {
            Ok((file, stat)) => {
                let size = u64::try_from(stat.st_size).unwrap_or(0);
                self.search(found.path(), &file, size)
            }
            Err(_) => Visit::Unreadable,
        }
    }
}

impl FileSearcher {
    fn new(
        pattern: &ContentPattern,
        options: &ContentOptions,
        cancel: &CancelToken,
        hits: &Arc<Hits>,
    ) -> Self {
        let mut builder = SearcherBuilder::new();
        builder.heap_limit(Some(MAX_LINE_MEMORY)).line_number(false);
        let counting = builder.build();
        let keeping = builder
            .line_number(true)
            .before_context(options.context_lines)
            .after_context(options.context_lines)
            .build();
        Self {
            pattern: pattern.clone(),
            keeping,
            counting,
            buffer: Vec::new(),
            context: options.context_lines,
            max_file_size: options.max_file_size,
            cancel: cancel.clone(),
            hits: Arc::clone(hits),
            cutoff: None,
            cutoff_moves: 0,
        }
    }

    fn search(&mut self, path: &[u8], file: &OwnedFd, size: u64) -> Visit {
        if size > self.max_file_size {
            return Visit::TooLarge;
        }
        if self.buffer.is_empty() {
            self.buffer.resize(SMALL, 0);
        }
        let (length, whole) = match fill(file.as_fd(), &mut self.buffer, size) {
            Ok(filled) => filled,
            Err(_) => return Visit::Unreadable,
        };
        if let Some(cutoff) = self.hits.cutoff_since(&mut self.cutoff_moves) {
            self.cutoff = Some(cutoff);
        }
        let read = &self.buffer[..length];
        let reader = if has_bom(read) || !whole {
            // Text in another encoding has NULs of its own, which go away when it is decoded.
            Haystack::Stream(Stream {
                file: file.as_fd(),
                head: read,
                at: 0,
                ended: whole,
                cancel: &self.cancel,
                failed: false,
            })
        } else if memchr(0, read).is_some() {
            return Visit::Binary;
        } else {
            Haystack::Whole(read)
        };

        if self.cutoff.as_deref().is_some_and(|cutoff| path >= cutoff) {
            let mut sink = Count {
                cancel: &self.cancel,
                lines: 0,
                binary: false,
            };
            let visit = run(
                &mut self.counting,
                &self.pattern,
                reader,
                &mut sink,
                &self.cancel,
            );
            let visit = if sink.binary { Visit::Binary } else { visit };
            if sink.lines > 0 && matches!(visit, Visit::Done | Visit::Stopped) {
                self.hits.add(path, sink.lines, Vec::new());
            }
            return visit;
        }
        let mut sink = Keep::new(
            path,
            &self.pattern.matcher,
            self.context,
            self.hits.room(),
            &self.cancel,
        );
        let visit = run(
            &mut self.keeping,
            &self.pattern,
            reader,
            &mut sink,
            &self.cancel,
        );
        let visit = if sink.count.binary {
            Visit::Binary
        } else {
            visit
        };
        if sink.count.lines > 0 && matches!(visit, Visit::Done | Visit::Stopped) {
            self.hits.add(path, sink.count.lines, sink.hits);
        }
        visit
    }
}

/// Where the text of a file is.
enum Haystack<'a> {
    Whole(&'a [u8]),
    Stream(Stream<'a>),
}

fn run<S: Sink<Error = io::Error>>(
    searcher: &mut Searcher,
    pattern: &ContentPattern,
    haystack: Haystack<'_>,
    sink: &mut S,
    cancel: &CancelToken,
) -> Visit {
    let matcher = &pattern.matcher;
    let result = match haystack {
        Haystack::Whole(text) => {
            searcher.set_binary_detection(BinaryDetection::none());
            searcher
                .search_slice(matcher, text, sink)
                .map_err(|_| Visit::Unreadable)
        }
        Haystack::Stream(mut stream) => {
            searcher.set_binary_detection(BinaryDetection::quit(0));
            searcher
                .search_reader(matcher, &mut stream, sink)
                .map_err(|_| {
                    // The only other error is the searcher's own: a line that does not fit into its memory.
                    if stream.failed {
                        Visit::Unreadable
                    } else {
                        Visit::TooLarge
                    }
                })
        }
    };
    match result {
        _ if cancel.is_cancelled() => Visit::Stopped,
        Ok(()) => Visit::Done,
        Err(visit) => visit,
    }
}

/// Reads a file from its start; says how much was read, and whether that is all of it.
fn fill(file: BorrowedFd<'_>, buffer: &mut [u8], size: u64) -> rustix::io::Result<(usize, bool)> {
    let mut length = 0;
    loop {
        let read = read_at(file, &mut buffer[length..], length as u64)?;
        length += read;
        if read == 0 {
            return Ok((length, true));
        }
        if length == buffer.len() {
            return Ok((length, false));
        }
        // As much as the file was said to hold and less than was asked for: another read would only say so.
        if length as u64 >= size && size > 0 {
            return Ok((length, true));
        }
    }
}

/// Reads at an offset, since the position of a descriptor may be shared.
fn read_at(file: BorrowedFd<'_>, buffer: &mut [u8], offset: u64) -> rustix::io::Result<usize> {
    loop {
        match rustix::io::pread(file, &mut *buffer, offset) {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

fn has_bom(text: &[u8]) -> bool {
    text.starts_with(b"\xef\xbb\xbf")
        || text.starts_with(b"\xff\xfe")
        || text.starts_with(b"\xfe\xff")
}

/// A file that is read piece by piece, until it ends or the time is up.
struct Stream<'a> {
    file: BorrowedFd<'a>,
    /// What has been read of it already.
    head: &'a [u8],
    at: u64,
    /// The head is all there is.
    ended: bool,
    cancel: &'a CancelToken,
    failed: bool,
}

impl Read for Stream<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.cancel.is_cancelled() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let done = usize::try_from(self.at).unwrap_or(usize::MAX);
        let read = if let Some(rest @ [_, ..]) = self.head.get(done..) {
            let length = rest.len().min(buffer.len());
            buffer[..length].copy_from_slice(&rest[..length]);
            length
        } else if self.ended {
            0
        } else {
            read_at(self.file, buffer, self.at).inspect_err(|_| self.failed = true)?
        };
        self.at += read as u64;
        Ok(read)
    }
}
