use std::ffi::c_void;
use std::fs::{self, File};
use std::io;
use std::ops::Deref;
use std::sync::Arc;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use stable_deref_trait::StableDeref;

/// A file mapped for reading, shared by its clones. Its pages can be given back while it is in use.
///
/// As with every mapping, another process that truncates the file ends this one at the next access. It is meant for files
/// that are written once and then only replaced or deleted.
#[derive(Debug, Clone)]
pub struct MappedFile(Arc<Mapping>);

#[derive(Debug)]
struct Mapping {
    /// As a number, so that the mapping can be used by any thread.
    start: usize,
    len: usize,
}

impl MappedFile {
    /// Maps the whole file.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn map(file: &File) -> io::Result<MappedFile> {
        let len = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        if len == 0 {
            // The kernel maps no empty range.
            return Ok(MappedFile(Arc::new(Mapping { start: 0, len })));
        }
        let (protection, flags) = (ProtFlags::READ, MapFlags::SHARED);
        // SAFETY: the kernel chooses a range that nothing else uses.
        let start = unsafe { mmap(std::ptr::null_mut(), len, protection, flags, file, 0) }?;
        let start = start.expose_provenance();
        Ok(MappedFile(Arc::new(Mapping { start, len })))
    }

    /// Whether there are further clones.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Makes the pages no longer resident. Their next use finds them in the page cache, at the price of a minor fault.
    pub fn unmap_pages(&self) {
        if self.0.len > 0 {
            // SAFETY: the range is a shared mapping of a file that cannot be written through it, and `self` keeps it mapped.
            // An access after this reads the same bytes of the file.
            let done = unsafe { madvise(self.0.address(), self.0.len, Advice::LinuxDontNeed) };
            // The pages stay resident, which is what they were.
            let _ = done;
        }
    }
}

impl Mapping {
    fn address(&self) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(self.start)
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        if self.0.len == 0 {
            return &[];
        }
        // SAFETY: the range is mapped for reading until the last clone is dropped, and `self` is one of them.
        unsafe { std::slice::from_raw_parts(self.0.address().cast::<u8>(), self.0.len) }
    }
}

// SAFETY: the bytes are where the kernel mapped them, wherever the clones of a mapping move.
unsafe impl StableDeref for MappedFile {}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: this is the range that `map` made, and no clone and so no slice of it is left.
            let _ = unsafe { munmap(self.address(), self.len) };
        }
    }
}

/// Resident pages of this process that belong to files, in bytes; 0 where the kernel does not say.
#[expect(
    clippy::disallowed_methods,
    reason = "what the kernel says of this process, not a file of the workspace"
)]
pub fn resident_file_bytes() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_ascii_whitespace().nth(2);
    let pages: usize = pages.and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size()
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests look from outside")]
mod tests {
    use std::io::Write;

    use super::{MappedFile, resident_file_bytes};

    fn mapped(bytes: &[u8]) -> MappedFile {
        let mut file = tempfile::tempfile().expect("a file can be created");
        file.write_all(bytes).expect("the file can be written");
        MappedFile::map(&file).expect("the file can be mapped")
    }

    #[test]
    fn bytes_are_the_same_after_their_pages_were_given_back() {
        let bytes: Vec<u8> = (0..32_u32 << 20).map(|n| (n % 251) as u8).collect();
        let file = mapped(&bytes);
        let part = &file.clone()[5..1000];
        assert_eq!(&*file, &bytes[..]);
        let full = resident_file_bytes();
        file.unmap_pages();
        let released = resident_file_bytes();
        assert!(
            released + (24 << 20) < full,
            "{full} bytes before, {released} after"
        );
        assert_eq!(part, &bytes[5..1000]);
        assert_eq!(&file[bytes.len() - 3..], &bytes[bytes.len() - 3..]);
    }

    #[test]
    fn an_empty_file_has_no_bytes() {
        let file = mapped(&[]);
        file.unmap_pages();
        assert!(file.is_empty());
    }
}
