//! The stubs as a file, for editors and for people: `stubs/tools.pyi` in the state directory.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, mkdirat, openat, renameat, unlinkat};
use rustix::io::Errno;

/// The file's name, below `stubs` in the state directory.
pub(crate) const STUB_FILE: &str = "tools.pyi";
const STUB_DIR: &str = "stubs";
/// Nothing longer is written or compared.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Writes the stubs into the state directory, if they are not there already. A reader sees the old or the new file.
///
/// # Errors
/// The directory or the file cannot be written, or a link stands where they should.
pub(crate) fn write(state_dir: &Path, text: &str) -> std::io::Result<()> {
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(std::io::Error::other("the stubs are too long"));
    }
    // By descriptor, and never through a link: a repository may come with a state directory of its own making.
    let state = openat(CWD, state_dir, folder(), Mode::empty())?;
    match mkdirat(&state, STUB_DIR, Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let dir = openat(&state, STUB_DIR, folder(), Mode::empty())?;
    if current_content(&dir).is_some_and(|known| known == text.as_bytes()) {
        return Ok(());
    }
    let draft = format!(".{STUB_FILE}.{}", std::process::id());
    let _ = unlinkat(&dir, &draft, AtFlags::empty());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(&dir, &draft, flags, Mode::from_raw_mode(0o600))?;
    let written = std::fs::File::from(file).write_all(text.as_bytes());
    let placed = written.and_then(|()| Ok(renameat(&dir, &draft, &dir, STUB_FILE)?));
    if placed.is_err() {
        let _ = unlinkat(&dir, &draft, AtFlags::empty());
    }
    placed
}

fn folder() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

/// What the file holds now. A pipe in its place must not block.
fn current_content(dir: &OwnedFd) -> Option<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(dir, STUB_FILE, flags, Mode::empty()).ok()?;
    let mut bytes = Vec::new();
    let file = std::fs::File::from(file);
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    #[test]
    fn the_file_is_replaced_only_when_it_changes() {
        let state = tempfile::tempdir().unwrap();
        let file = state.path().join(STUB_DIR).join(STUB_FILE);
        write(state.path(), "one").unwrap();
        let first = std::fs::metadata(&file).unwrap().ino();
        write(state.path(), "one").unwrap();
        assert_eq!(std::fs::metadata(&file).unwrap().ino(), first);
        write(state.path(), "two").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "two");
        assert_eq!(
            std::fs::read_dir(state.path().join(STUB_DIR))
                .unwrap()
                .count(),
            1
        );
        assert_eq!(std::fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn links_lead_nowhere() {
        let state = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        symlink(outside.path(), state.path().join(STUB_DIR)).unwrap();
        write(state.path(), "x").unwrap_err();
        std::fs::remove_file(state.path().join(STUB_DIR)).unwrap();
        std::fs::create_dir(state.path().join(STUB_DIR)).unwrap();
        let target = outside.path().join("target");
        std::fs::write(&target, "kept").unwrap();
        symlink(&target, state.path().join(STUB_DIR).join(STUB_FILE)).unwrap();
        write(state.path(), "x").unwrap();
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "kept");
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_cannot_be_written_is_an_error_and_no_more() {
        let state = tempfile::tempdir().unwrap();
        write(&state.path().join("missing"), "x").unwrap_err();
        std::fs::write(state.path().join(STUB_DIR), "a file").unwrap();
        write(state.path(), "x").unwrap_err();
        write(state.path(), &"x".repeat(2 << 20)).unwrap_err();
    }
}
