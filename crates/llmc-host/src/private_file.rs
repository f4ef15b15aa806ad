//! Files of the program's own, which no other user reads.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// Opens an existing or new file for reading and writing, for this user alone and not through a link.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] for what is no file, such as a link or a FIFO; others as the file system has them.
pub fn open_private(path: &Path) -> io::Result<File> {
    if fs::symlink_metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or(0))
        .open(path)
}
