//! Files that are read before there are roots: the configuration, the user's own files, tokens, certificates.
//!
//! Their paths may lie in a repository, so what is found there is not trusted to be a file. A link to `/dev/zero` has no
//! end, a FIFO blocks the process that opens it, and a device may do something when it is opened. Only regular files are read, in
//! one bounded read that cannot block.

use std::fs::{Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// Whether a link in the last position of a path is followed to the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkPolicy {
    /// For files that people replace by links, such as certificates.
    Follow,
    /// For files that only the server writes.
    Refuse,
}

/// The content of a regular file and its status at the time it was opened.
#[derive(Debug)]
pub struct RegularFile {
    pub bytes: Vec<u8>,
    pub status: Metadata,
}

/// Reads a regular file of at most `max_bytes`.
///
/// # Errors
/// No such file, no permission, a link that is not to be followed, anything but a regular file, a larger file.
pub fn read_regular_file(
    path: &Path,
    max_bytes: u64,
    links: LinkPolicy,
) -> io::Result<RegularFile> {
    // Before the open, which for a device has effects of its own; the status that counts is that of the open file.
    let found = match links {
        LinkPolicy::Follow => path.metadata()?,
        LinkPolicy::Refuse => path.symlink_metadata()?,
    };
    require_regular(&found)?;
    let mut flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    if links == LinkPolicy::Refuse {
        flags |= OFlags::NOFOLLOW;
    }
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    let status = file.metadata()?;
    require_regular(&status)?;
    let too_large = || {
        let message = format!("larger than {}", in_units(max_bytes));
        io::Error::new(ErrorKind::FileTooLarge, message)
    };
    if status.len() > max_bytes {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    // It may grow while it is read.
    file.take(max_bytes.saturating_add(1))
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_bytes {
        return Err(too_large());
    }
    Ok(RegularFile { bytes, status })
}

impl RegularFile {
    /// The content as text.
    ///
    /// # Errors
    /// It is not UTF-8.
    pub fn into_text(self) -> io::Result<String> {
        String::from_utf8(self.bytes)
            .map_err(|_| io::Error::new(ErrorKind::InvalidData, "not UTF-8"))
    }
}

fn require_regular(status: &Metadata) -> io::Result<()> {
    let kind = status.file_type();
    let what = match () {
        () if kind.is_file() => return Ok(()),
        () if kind.is_dir() => "a directory",
        () if kind.is_symlink() => "a link",
        () if kind.is_fifo() => "a FIFO",
        () if kind.is_socket() => "a socket",
        () => "a device",
    };
    let message = format!("{what}, not a regular file");
    Err(io::Error::new(ErrorKind::InvalidInput, message))
}

fn in_units(bytes: u64) -> String {
    if bytes.is_multiple_of(1 << 20) {
        format!("{} MiB", bytes >> 20)
    } else {
        format!("{} KiB", bytes >> 10)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn refusal(path: &Path, links: LinkPolicy) -> String {
        read_regular_file(path, 4 << 10, links)
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn only_regular_files_within_the_limit_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("file"), "text").unwrap();
        fs::write(at("large"), vec![b'#'; 5000]).unwrap();
        fs::create_dir(at("dir")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, at("fifo"), rustix::fs::Mode::RUSR).unwrap();
        symlink("file", at("link")).unwrap();
        symlink("fifo", at("link-to-fifo")).unwrap();
        symlink("/dev/zero", at("zero")).unwrap();

        let follow = LinkPolicy::Follow;
        for name in ["file", "link"] {
            let read = read_regular_file(&at(name), 4, follow).unwrap();
            assert_eq!(read.into_text().unwrap(), "text");
        }
        let cases = [
            ("large", "larger than 4 KiB"),
            ("dir", "a directory, not a regular file"),
            ("fifo", "a FIFO, not a regular file"),
            ("link-to-fifo", "a FIFO, not a regular file"),
            ("zero", "a device, not a regular file"),
        ];
        for (name, expected) in cases {
            assert_eq!(refusal(&at(name), follow), expected, "{name}");
        }
        for name in ["link", "zero"] {
            let expected = "a link, not a regular file";
            assert_eq!(refusal(&at(name), LinkPolicy::Refuse), expected);
        }
    }

    #[test]
    fn a_file_that_does_not_know_its_size_is_bounded_too() {
        // Files of /proc are regular and claim to be empty.
        let path = Path::new("/proc/self/maps");
        let error = read_regular_file(path, 16, LinkPolicy::Follow).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FileTooLarge);
    }
}
