//! Finds matching lines in files, for `linux_search_content`.
//!
//! Most files are small: they are read whole into a buffer that each thread keeps, and searched there. Larger ones
//! stream through the searcher's own buffer, which grows up to [`MAX_LINE_BYTES`] for a long line and no further.
//! A file that holds a NUL is binary and none of its lines count.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink};
use memchr::memchr;
use rustix::fs::{FileType, fstat};
use rustix::io::Errno;

use super::bounded::BoundedMatcher;
use super::filter::ContentFilter;
use super::indexable::MAX_INDEXED_LINE_BYTES;
use super::matches::{MatchCollector, MatchLimits, MatchedLine};
use super::pattern::ContentPattern;
use super::sink::{CountSink, MatchSink};
use crate::cancel::CancelToken;
use crate::error::{Error, Result};
use crate::names::escape;
use crate::sync::lock;
use crate::walk::{
    self, ComparedFile, FileVisitor, SkippedCounts, ThreadsEnd, TreePlace, VisitOutcome, WalkFile,
    WalkOptions, WalkStats, WatchedTree,
};

/// Files up to this size are read whole. Larger is no faster and makes checks for cancellation rarer.
pub(super) const SMALL_FILE_BYTES: usize = 64 * 1024;
/// The longest line that is searched, in bytes, and the most memory a thread takes for text.
const MAX_LINE_BYTES: usize = 8 * 1024 * 1024;

/// The largest file that is searched unless a caller says otherwise.
pub(super) const MAX_SEARCHED_BYTES: u64 = 2 << 30;

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
            max_file_size: MAX_SEARCHED_BYTES,
            max_hits: 10_000,
            max_bytes: 8 * 1024 * 1024,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentMatches {
    /// The first hits, ordered by the bytes of their paths, then by line.
    pub hits: Vec<MatchedLine>,
    /// How many lines match in all.
    pub total_hits: u64,
    /// Files searched to their end.
    pub files_searched: u64,
    /// Files with a matching line.
    pub files_matched: u64,
    /// How many lines match in each file, in the order of their paths; of the first 20,000 files that were found.
    pub counts: Vec<(Arc<[u8]>, u64)>,
    /// What was left out.
    pub skipped: SkippedCounts,
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
) -> Result<ContentMatches> {
    search_walked(start, pattern, walk, options, None, cancel)
}

/// The same, without reading the files that `filter`, made for this pattern, knows not to match.
pub fn search_content_filtered(
    start: impl AsFd,
    pattern: &ContentPattern,
    walk: &WalkOptions,
    options: &ContentOptions,
    filter: &Arc<ContentFilter>,
    cancel: &CancelToken,
) -> Result<ContentMatches> {
    let filter = options.useful(Some(filter));
    search_walked(start, pattern, walk, options, filter, cancel)
}

/// The same over the files of a watched tree, without a walk. `None` if only a walk can answer.
pub fn search_content_watched(
    start: impl AsFd,
    tree: &WatchedTree,
    pattern: &ContentPattern,
    walk: &WalkOptions,
    options: &ContentOptions,
    filter: Option<&Arc<ContentFilter>>,
    cancel: &CancelToken,
) -> Result<Option<ContentMatches>> {
    let filter = options.useful(filter);
    let hits = Arc::new(MatchCollector::new(options.limits()));
    let compared = ComparedFiles::default();
    let visit = tree.visit(start, walk, filter.map(|filter| &**filter), cancel, || {
        FileSearcher {
            filter: filter.cloned(),
            compared: ComparedOnThread {
                all: Some(Arc::clone(&compared)),
                ..ComparedOnThread::default()
            },
            ..FileSearcher::new(pattern, options, cancel, &hits)
        }
    })?;
    Ok(visit.map(|visit| {
        tree.end_visit(&visit, &lock(&compared));
        hits.matches_of(visit.walked)
    }))
}

fn search_walked(
    start: impl AsFd,
    pattern: &ContentPattern,
    walk: &WalkOptions,
    options: &ContentOptions,
    filter: Option<&Arc<ContentFilter>>,
    cancel: &CancelToken,
) -> Result<ContentMatches> {
    let hits = Arc::new(MatchCollector::new(options.limits()));
    let walked = walk::walk(start, walk, cancel, || FileSearcher {
        filter: filter.cloned(),
        ..FileSearcher::new(pattern, options, cancel, &hits)
    })?;
    Ok(hits.matches_of(walked))
}

/// Finds the lines that match in one open file, which hits name as `path`.
pub fn search_content_of_file(
    file: impl AsFd,
    path: &[u8],
    pattern: &ContentPattern,
    options: &ContentOptions,
    cancel: &CancelToken,
) -> Result<ContentMatches> {
    let error = |errno| Error::from_errno(&escape(path), errno);
    // A duplicate, for a thread that may outlive this call; it reads at offsets of its own.
    let file = rustix::io::fcntl_dupfd_cloexec(file, 0).map_err(error)?;
    let stat = fstat(&file).map_err(error)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(error(Errno::NODEV));
    }
    let hits = Arc::new(MatchCollector::new(options.limits()));
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
        ThreadsEnd::AllFinished => outcome.get().copied().unwrap_or(VisitOutcome::Stopped),
        ThreadsEnd::SomeStuck => VisitOutcome::Stopped,
    };
    let found = hits.take();
    let mut skipped = SkippedCounts::default();
    match visit {
        VisitOutcome::Binary => skipped.binary = 1,
        VisitOutcome::TooLarge => skipped.too_large = 1,
        VisitOutcome::Unreadable => skipped.unreadable = 1,
        VisitOutcome::Done | VisitOutcome::Stopped => {}
    }
    Ok(ContentMatches {
        hits: found.hits,
        total_hits: found.total_hits,
        files_searched: u64::from(visit == VisitOutcome::Done),
        files_matched: found.files_matched,
        counts: found.counts,
        skipped,
        complete: visit != VisitOutcome::Stopped,
    })
}

impl MatchCollector {
    fn matches_of(&self, walked: WalkStats) -> ContentMatches {
        let found = self.take();
        ContentMatches {
            hits: found.hits,
            total_hits: found.total_hits,
            files_searched: walked.files,
            files_matched: found.files_matched,
            counts: found.counts,
            skipped: walked.skipped,
            complete: walked.complete,
        }
    }
}

impl ContentOptions {
    /// The filter, if it knows what a search with these options would make of a file.
    fn useful<'a>(&self, filter: Option<&'a Arc<ContentFilter>>) -> Option<&'a Arc<ContentFilter>> {
        // Lines that are held at a time: one, its context, and one that is being read.
        let held_lines = self.context_lines.saturating_add(2);
        let is_known = self.max_file_size >= MAX_SEARCHED_BYTES
            && held_lines.saturating_mul(MAX_INDEXED_LINE_BYTES) <= MAX_LINE_BYTES;
        // Without trigrams in the pattern a look at each file costs more than it saves.
        filter.filter(|filter| is_known && filter.is_selective())
    }

    fn limits(&self) -> MatchLimits {
        MatchLimits {
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
    /// For files whose paths sort after every match that is kept.
    counting: Searcher,
    buffer: Vec<u8>,
    context: usize,
    max_file_size: u64,
    cancel: CancelToken,
    hits: Arc<MatchCollector>,
    cutoff: Option<Arc<[u8]>>,
    cutoff_moves: u64,
    filter: Option<Arc<ContentFilter>>,
    compared: ComparedOnThread,
}

/// Files of a watched tree that were found to be as the index has them.
type ComparedFiles = Arc<Mutex<Vec<(TreePlace, ComparedFile)>>>;

/// The same of one thread, until it passes them on.
#[derive(Default)]
struct ComparedOnThread {
    new: Vec<(TreePlace, ComparedFile)>,
    all: Option<ComparedFiles>,
}

impl FileVisitor for FileSearcher {
    fn visit(&mut self, found: &WalkFile<'_>) -> VisitOutcome {
        if let Some(filter) = &self.filter
            && !found.is_compared()
            && let Ok(stat) = found.lstat()
            && let Some(compared) = filter.compare(found.path_from_root(), &stat)
        {
            let place = found.place().filter(|_| self.compared.all.is_some());
            self.compared
                .new
                .extend(place.map(|place| (place, compared)));
            if let Some(known) = filter.known_outcome(&compared) {
                return known;
            }
        }
        match found.open() {
            Ok((file, stat)) => {
                let size = u64::try_from(stat.st_size).unwrap_or(0);
                self.search(found.path(), &file, size)
            }
            Err(_) => VisitOutcome::Unreadable,
        }
    }

    fn flush(&mut self) {
        if let Some(all) = &self.compared.all {
            lock(all).append(&mut self.compared.new);
        }
    }
}

impl FileSearcher {
    fn new(
        pattern: &ContentPattern,
        options: &ContentOptions,
        cancel: &CancelToken,
        hits: &Arc<MatchCollector>,
    ) -> Self {
        let mut builder = SearcherBuilder::new();
        builder.heap_limit(Some(MAX_LINE_BYTES)).line_number(false);
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
            filter: None,
            compared: ComparedOnThread::default(),
        }
    }

    fn search(&mut self, path: &[u8], file: &OwnedFd, size: u64) -> VisitOutcome {
        if size > self.max_file_size {
            return VisitOutcome::TooLarge;
        }
        if self.buffer.is_empty() {
            self.buffer.resize(SMALL_FILE_BYTES, 0);
        }
        let (length, whole) = match fill(file.as_fd(), &mut self.buffer, size) {
            Ok(filled) => filled,
            Err(_) => return VisitOutcome::Unreadable,
        };
        if let Some(cutoff) = self.hits.cutoff_since(&mut self.cutoff_moves) {
            self.cutoff = Some(cutoff);
        }
        let read = &self.buffer[..length];
        let reader = if has_bom(read) || !whole {
            // Text in another encoding has NULs of its own, which go away when it is decoded.
            Haystack::FileReader(FileReader {
                file: file.as_fd(),
                head: read,
                at: 0,
                ended: whole,
                cancel: &self.cancel,
                failed: false,
            })
        } else if memchr(0, read).is_some() {
            return VisitOutcome::Binary;
        } else {
            Haystack::Whole(read)
        };

        if self.cutoff.as_deref().is_some_and(|cutoff| path >= cutoff) {
            let mut sink = CountSink {
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
            let visit = if sink.binary {
                VisitOutcome::Binary
            } else {
                visit
            };
            if sink.lines > 0 && matches!(visit, VisitOutcome::Done | VisitOutcome::Stopped) {
                self.hits.add(path, sink.lines, Vec::new());
            }
            return visit;
        }
        let mut sink = MatchSink::new(
            path,
            &self.pattern.matcher,
            self.context,
            self.hits.limits(),
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
            VisitOutcome::Binary
        } else {
            visit
        };
        if sink.count.lines > 0 && matches!(visit, VisitOutcome::Done | VisitOutcome::Stopped) {
            self.hits.add(path, sink.count.lines, sink.hits);
        }
        visit
    }
}

/// Where the text of a file is.
enum Haystack<'a> {
    Whole(&'a [u8]),
    FileReader(FileReader<'a>),
}

fn run<S: Sink<Error = io::Error>>(
    searcher: &mut Searcher,
    pattern: &ContentPattern,
    haystack: Haystack<'_>,
    sink: &mut S,
    cancel: &CancelToken,
) -> VisitOutcome {
    let matcher = &BoundedMatcher::new(pattern, cancel);
    let result = match haystack {
        Haystack::Whole(text) => {
            searcher.set_binary_detection(BinaryDetection::none());
            searcher
                .search_slice(matcher, text, sink)
                .map_err(|_| VisitOutcome::TooLarge)
        }
        Haystack::FileReader(mut stream) => {
            searcher.set_binary_detection(BinaryDetection::quit(0));
            searcher
                .search_reader(matcher, &mut stream, sink)
                .map_err(|_| {
                    // The only other errors: a line that does not fit into memory or is too long for the pattern.
                    if stream.failed {
                        VisitOutcome::Unreadable
                    } else {
                        VisitOutcome::TooLarge
                    }
                })
        }
    };
    match result {
        _ if cancel.is_cancelled() => VisitOutcome::Stopped,
        Ok(()) => VisitOutcome::Done,
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
        // As much as the file was said to hold and less than the buffer holds: another read would return 0.
        if length as u64 >= size && size > 0 {
            return Ok((length, true));
        }
    }
}

/// Reads at an offset, since the position of a descriptor may be shared.
pub(super) fn read_at(
    file: BorrowedFd<'_>,
    buffer: &mut [u8],
    offset: u64,
) -> rustix::io::Result<usize> {
    loop {
        match rustix::io::pread(file, &mut *buffer, offset) {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

pub(super) fn has_bom(text: &[u8]) -> bool {
    text.starts_with(b"\xef\xbb\xbf")
        || text.starts_with(b"\xff\xfe")
        || text.starts_with(b"\xfe\xff")
}

/// Reads a file in pieces until it ends or the search is cancelled.
struct FileReader<'a> {
    file: BorrowedFd<'a>,
    /// What has been read of it already.
    head: &'a [u8],
    at: u64,
    /// The head is all there is.
    ended: bool,
    cancel: &'a CancelToken,
    failed: bool,
}

impl Read for FileReader<'_> {
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
