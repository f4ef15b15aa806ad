//! Reads slices of lines and hashes of whole files, in memory that does not depend on the file's size.
//!
//! Every read passes over the whole file once, because an honest answer needs the number of lines and the tag that
//! `expected_sha256` accepts. Nothing but the requested lines is kept.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{self, CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use sha2::{Digest, Sha256};

use crate::cancel::CancelToken;
use crate::error::{Error, Result};
use crate::read_block::ReadBlock;
use crate::roots::{FinalLink, RootedPath, Roots, file_type, refuse_kernel_file_system};
use crate::rules::Access;
use crate::walk::{AncestorIgnores, WalkGuard, WalkOptions};

/// The most one answer or one line of it may hold.
pub const MAX_ANSWER_BYTES: usize = 8 << 20;
const READ_BLOCK_BYTES: usize = 128 << 10;
/// Length of the beginning that decides whether a file is text.
const SNIFF_BYTES: usize = 8 << 10;

/// A regular file inside the roots, opened for reading.
#[derive(Debug)]
pub struct OpenFile {
    pub path: RootedPath,
    file: File,
    stat: Stat,
}

/// A directory inside the roots, opened for reading.
#[derive(Debug)]
pub struct OpenDir {
    pub path: RootedPath,
    pub fd: OwnedFd,
}

/// How a file's bytes read as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// UTF-8, with or without a byte order mark.
    Utf8,
    /// Not UTF-8: odd bytes were replaced in the text (never in the file).
    Lossy,
    /// UTF-16 with a byte order mark, little endian; decoded in the text.
    Utf16Le,
    /// The same, big endian.
    Utf16Be,
    /// Holds NUL bytes.
    Binary,
}

impl Encoding {
    /// How an answer names it; `None` for plain UTF-8, which needs no label.
    pub fn label(self) -> Option<&'static str> {
        match self {
            Encoding::Utf8 => None,
            Encoding::Lossy => Some("not UTF-8, odd bytes shown as \u{fffd}"),
            Encoding::Utf16Le => Some("decoded from UTF-16LE"),
            Encoding::Utf16Be => Some("decoded from UTF-16BE"),
            Encoding::Binary => Some("binary"),
        }
    }

    /// Guesses from the first bytes of a file.
    pub(crate) fn sniff(start: &[u8]) -> Encoding {
        match start {
            [0xff, 0xfe, ..] => Encoding::Utf16Le,
            [0xfe, 0xff, ..] => Encoding::Utf16Be,
            _ if start[..start.len().min(SNIFF_BYTES)].contains(&0) => Encoding::Binary,
            _ => Encoding::Utf8,
        }
    }
}

/// A slice of a file's lines with the totals of the whole file.
#[derive(Debug)]
pub struct FileSlice {
    /// The lines, with their line ends.
    pub text: String,
    /// How the bytes were read as text.
    pub encoding: Encoding,
    /// Number of the first line in `text`, from 1.
    pub first_line: u64,
    /// Lines in `text`.
    pub lines: u64,
    /// Lines in the file; an unfinished last line counts.
    pub total_lines: u64,
    /// Bytes in the file.
    pub total_bytes: u64,
    /// The whole file's hash, 64 hex digits.
    pub sha256: String,
}

impl FileSlice {
    /// The short hash that reads print and `expected_sha256` accepts.
    pub fn tag(&self) -> &str {
        &self.sha256[..TAG_DIGITS]
    }

    /// Whether lines follow this slice.
    pub fn truncated(&self) -> bool {
        self.first_line - 1 + self.lines < self.total_lines
    }
}

/// Hex digits in a tag; also the least that `expected_sha256` takes.
pub const TAG_DIGITS: usize = 8;

impl Roots {
    pub fn open_file(&self, requested: &str) -> Result<OpenFile> {
        let path = self.resolve(requested, FinalLink::Follow, Access::Read)?;
        match open_regular(&path) {
            // A path with a slash behind it must be a directory.
            Ok((_, _)) if requested.ends_with('/') => Err(Error::NotADirectory {
                path: requested.to_owned(),
            }),
            Ok((file, stat)) => Ok(OpenFile { path, file, stat }),
            Err(error) => Err(error),
        }
    }

    /// Opens a directory for listing and walking.
    pub fn open_dir(&self, requested: &str) -> Result<OpenDir> {
        let path = self.resolve(requested, FinalLink::Follow, Access::Read)?;
        if file_type(&path.lstat()?) != FileType::Directory {
            return Err(Error::NotADirectory {
                path: requested.to_owned(),
            });
        }
        let fd = path.open(OFlags::RDONLY | OFlags::DIRECTORY)?;
        refuse_kernel_file_system(&fd, requested)?;
        Ok(OpenDir { path, fd })
    }

    /// Whether the path names a directory; for tools that take either.
    pub fn is_dir(&self, requested: &str) -> Result<bool> {
        let path = self.resolve(requested, FinalLink::Follow, Access::Read)?;
        Ok(file_type(&path.lstat()?) == FileType::Directory)
    }

    /// Reads `max_lines` lines after skipping `skip`, and the totals. A slice above 8 MiB is refused.
    pub fn read_lines(
        &self,
        requested: &str,
        skip: u64,
        max_lines: u64,
        cancel: &CancelToken,
    ) -> Result<FileSlice> {
        self.open_file(requested)?
            .read_lines(skip, max_lines, cancel)
    }

    /// Status of a path; a link is not followed, but one that leads out of the roots is refused.
    pub fn stat(&self, requested: &str) -> Result<(RootedPath, Stat)> {
        let path = self.resolve(requested, FinalLink::NoFollow, Access::Read)?;
        let fd = path.open(OFlags::PATH | OFlags::NOFOLLOW)?;
        refuse_kernel_file_system(&fd, requested)?;
        let stat = fs::fstat(&fd).map_err(|errno| Error::from_errno(requested, errno))?;
        Ok((path, stat))
    }
}

impl OpenDir {
    /// A walk from here: the ignore files above count, and what may not be read is left out.
    ///
    /// # Errors
    /// The root has vanished.
    pub fn walk_options(&self, roots: &Roots) -> Result<WalkOptions> {
        let top = self.path.root_dir()?;
        Ok(WalkOptions {
            ancestors: AncestorIgnores::collect(top.as_fd(), self.path.below_root()),
            guard: Some(self.guard(roots)),
            ..WalkOptions::default()
        })
    }

    /// What may not be read below here.
    pub fn guard(&self, roots: &Roots) -> WalkGuard {
        WalkGuard::new(roots.shared_rules(), &self.path)
    }
}

impl OpenFile {
    /// Size in bytes when it was opened.
    pub fn size(&self) -> u64 {
        u64::try_from(self.stat.st_size).unwrap_or(0)
    }

    /// Whether its owner may start it.
    pub fn is_executable(&self) -> bool {
        self.stat.st_mode & 0o100 != 0
    }

    /// Last change, nanoseconds since 1970.
    pub fn mtime_ns(&self) -> i64 {
        mtime_ns(&self.stat)
    }

    /// The open descriptor itself, for a search in this one file.
    pub fn into_file(self) -> File {
        self.file
    }

    /// Reads the whole file if it is at most `limit` bytes.
    pub fn read_all(mut self, limit: usize, cancel: &CancelToken) -> Result<Vec<u8>> {
        let requested = self.path.requested().to_owned();
        let too_large = |size: u64| Error::TooLarge {
            path: requested.clone(),
            why: format!("{size} bytes, the limit here is {limit}"),
        };
        if self.size() > limit as u64 {
            return Err(too_large(self.size()));
        }
        let mut all = Vec::with_capacity(usize::try_from(self.size()).unwrap_or(0).min(limit) + 1);
        let mut block = ReadBlock::new(READ_BLOCK_BYTES);
        loop {
            cancel.check()?;
            match self.file.read(&mut block).map_err(|source| Error::Io {
                path: requested.clone(),
                source,
            })? {
                0 => return Ok(all),
                read if all.len() + read > limit => {
                    return Err(too_large((all.len() + read) as u64));
                }
                read => all.extend_from_slice(&block[..read]),
            }
        }
    }

    /// Reads a range of bytes; short at the end of the file.
    pub fn read_range(&self, offset: u64, limit: usize) -> Result<Vec<u8>> {
        use std::os::unix::fs::FileExt;
        let mut bytes = vec![0; limit.min(MAX_ANSWER_BYTES)];
        let mut filled = 0;
        while filled < bytes.len() {
            let read = self
                .file
                .read_at(&mut bytes[filled..], offset + filled as u64);
            match read.map_err(|source| Error::Io {
                path: self.path.requested().to_owned(),
                source,
            })? {
                0 => break,
                read => filled += read,
            }
        }
        bytes.truncate(filled);
        Ok(bytes)
    }

    /// The hash of the whole content, 64 hex digits.
    pub fn sha256(mut self, cancel: &CancelToken) -> Result<String> {
        let mut hash = Sha256::new();
        let size = self.size();
        for_each_block(
            &mut self.file,
            self.path.requested(),
            size,
            cancel,
            |block| {
                hash.update(block);
                Ok(())
            },
        )?;
        Ok(hex(&hash.finalize()))
    }

    /// See [`Roots::read_lines`].
    pub fn read_lines(
        mut self,
        skip: u64,
        max_lines: u64,
        cancel: &CancelToken,
    ) -> Result<FileSlice> {
        let size = self.size();
        let mut start = [0; 2];
        let wide = {
            use std::os::unix::fs::FileExt;
            let got = self.file.read_at(&mut start, 0).unwrap_or(0);
            matches!(
                Encoding::sniff(&start[..got]),
                Encoding::Utf16Le | Encoding::Utf16Be
            )
        };
        if wide {
            return self.read_wide_lines(skip, max_lines, cancel);
        }
        let requested = self.path.requested().to_owned();
        let mut slicer = LineSlicer::new(skip, max_lines, &requested);
        let mut hash = Sha256::new();
        let mut encoding = Encoding::Utf8;
        let mut first = true;
        let mut total_bytes = 0;
        for_each_block(&mut self.file, &requested, size, cancel, |block| {
            if std::mem::take(&mut first) {
                encoding = Encoding::sniff(block);
            }
            total_bytes += block.len() as u64;
            hash.update(block);
            slicer.push(block)
        })?;
        let (bytes, lines, total_lines) = slicer.finish();
        let text = match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => {
                if encoding == Encoding::Utf8 {
                    encoding = Encoding::Lossy;
                }
                String::from_utf8_lossy(error.as_bytes()).into_owned()
            }
        };
        let sha256 = hex(&hash.finalize());
        Ok(FileSlice {
            text,
            encoding,
            first_line: skip + 1,
            lines,
            total_lines,
            total_bytes,
            sha256,
        })
    }

    /// UTF-16 needs decoding before it has lines; such files are small, so they are read whole.
    fn read_wide_lines(self, skip: u64, max_lines: u64, cancel: &CancelToken) -> Result<FileSlice> {
        let requested = self.path.requested().to_owned();
        let bytes = self.read_all(8 * MAX_ANSWER_BYTES, cancel)?;
        let (encoding, codec) = match Encoding::sniff(&bytes) {
            Encoding::Utf16Be => (Encoding::Utf16Be, encoding_rs::UTF_16BE),
            _ => (Encoding::Utf16Le, encoding_rs::UTF_16LE),
        };
        let (text, _) = codec.decode_with_bom_removal(&bytes);
        let mut slicer = LineSlicer::new(skip, max_lines, &requested);
        slicer.push(text.as_bytes())?;
        let (slice, lines, total_lines) = slicer.finish();
        Ok(FileSlice {
            text: String::from_utf8_lossy(&slice).into_owned(),
            encoding,
            first_line: skip + 1,
            lines,
            total_lines,
            total_bytes: bytes.len() as u64,
            sha256: sha256_hex(&bytes),
        })
    }
}

/// Opens a resolved path as a regular file, without ever blocking on a FIFO or waking a device.
pub(crate) fn open_regular(path: &RootedPath) -> Result<(File, Stat)> {
    let requested = path.requested();
    refuse_special(&path.lstat()?, requested)?;
    let fd = path.open(OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW)?;
    let stat = fs::fstat(&fd).map_err(|errno| Error::from_errno(requested, errno))?;
    // Checked again on what was really opened: the name may have come to mean another file in between.
    refuse_special(&stat, requested)?;
    refuse_kernel_file_system(&fd, requested)?;
    Ok((File::from(fd), stat))
}

/// Errors unless the status is a regular file's.
pub(crate) fn refuse_special(stat: &Stat, requested: &str) -> Result<()> {
    let path = requested.to_owned();
    let what = match file_type(stat) {
        FileType::RegularFile => return Ok(()),
        FileType::Directory => return Err(Error::IsDirectory { path }),
        FileType::Fifo => "FIFO",
        FileType::Socket => "socket",
        FileType::CharacterDevice | FileType::BlockDevice => "device",
        _ => "special file",
    };
    Err(Error::SpecialFile { path, what })
}

/// Feeds a file's first `size` bytes in blocks; a file that grows meanwhile cannot block the reader.
pub(crate) fn for_each_block(
    file: &mut File,
    requested: &str,
    size: u64,
    cancel: &CancelToken,
    mut feed: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let mut block = ReadBlock::new(READ_BLOCK_BYTES);
    let mut file = file.take(size);
    loop {
        cancel.check()?;
        match file.read(&mut block) {
            Ok(0) => return Ok(()),
            Ok(read) => feed(&block[..read])?,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(source) => {
                return Err(Error::Io {
                    path: requested.to_owned(),
                    source,
                });
            }
        }
    }
}

/// Keeps the bytes of a range of lines out of a stream of blocks.
struct LineSlicer<'a> {
    requested: &'a str,
    skip: u64,
    end: u64,
    line: u64,
    open_line: bool,
    kept: Vec<u8>,
}

impl<'a> LineSlicer<'a> {
    fn new(skip: u64, max_lines: u64, requested: &'a str) -> LineSlicer<'a> {
        LineSlicer {
            requested,
            skip,
            end: skip.saturating_add(max_lines),
            line: 0,
            open_line: false,
            kept: Vec::new(),
        }
    }

    fn push(&mut self, block: &[u8]) -> Result<()> {
        if self.line >= self.end || self.line + 1 < self.skip {
            // Far from the slice only the line ends count; near its start the exact way below takes over.
            let ends = memchr::memchr_iter(b'\n', block).count() as u64;
            if self.line >= self.end || self.line + ends < self.skip {
                self.line += ends;
                self.open_line = block.last() != Some(&b'\n');
                return Ok(());
            }
        }
        for part in block.split_inclusive(|b| *b == b'\n') {
            if self.line >= self.skip && self.line < self.end {
                if self.kept.len() + part.len() > MAX_ANSWER_BYTES {
                    return Err(Error::TooLarge {
                        path: self.requested.to_owned(),
                        why: if self.line == self.skip {
                            format!("line {} is longer than 8 MiB", self.line + 1)
                        } else {
                            format!(
                                "lines {} to {} are more than 8 MiB; ask for fewer",
                                self.skip + 1,
                                self.line + 1
                            )
                        },
                    });
                }
                self.kept.extend_from_slice(part);
            }
            let ended = part.last() == Some(&b'\n');
            self.open_line = !ended;
            self.line += u64::from(ended);
        }
        Ok(())
    }

    /// The bytes, how many lines they are, and how many there are in all.
    fn finish(self) -> (Vec<u8>, u64, u64) {
        let total = self.line + u64::from(self.open_line);
        let lines = total.min(self.end).saturating_sub(self.skip);
        (self.kept, lines, total)
    }
}

/// Nanoseconds of the last change.
#[allow(
    clippy::unnecessary_cast,
    reason = "the field's type differs between targets"
)]
pub fn mtime_ns(stat: &Stat) -> i64 {
    nanoseconds(stat.st_mtime as i64, stat.st_mtime_nsec as i64)
}

/// Nanoseconds of the last change of content or status, which no program can set back.
#[allow(
    clippy::unnecessary_cast,
    reason = "the field's type differs between targets"
)]
pub fn ctime_ns(stat: &Stat) -> i64 {
    nanoseconds(stat.st_ctime as i64, stat.st_ctime_nsec as i64)
}

fn nanoseconds(seconds: i64, nanos: i64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
            let _ = write!(out, "{byte:02x}");
            out
        })
}

/// The hash of bytes in memory, 64 hex digits.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Reads a regular file of at most `limit` bytes below the current directory; nothing if it is larger, elsewhere, behind
/// a link, or no file. For a process that works on one command's output and has no roots of its own.
pub fn read_below_cwd(path: &str, limit: usize) -> Option<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let file = fs::openat2(CWD, path, flags, Mode::empty(), resolve).ok()?;
    let stat = fs::fstat(&file).ok()?;
    let size = usize::try_from(stat.st_size).ok()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || size > limit {
        return None;
    }
    let mut bytes = Vec::with_capacity(size);
    let file = File::from(file);
    file.take(limit as u64).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
