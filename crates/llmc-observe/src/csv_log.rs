//! CSV files that several servers append to.
//!
//! The file lies in a workspace that others can write to. No link in it is followed, nothing but a regular file is
//! opened, and nothing waits for long. A server that writes holds a lock on the file and then checks that it is still the
//! file of that name, since pruning puts a new one in its place. The file is opened for each line, so it can be rotated
//! under a running server.

use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

/// How long a line waits while another server prunes.
pub(crate) const LOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// Files with other columns that are kept beside the present one.
const MAX_MOVED_ASIDE: u32 = 99;

/// A CSV file with a fixed header; the first cell of each row is its time.
pub struct CsvLog {
    header: &'static [&'static str],
    /// The directory that opening begins with; links on the way to it are followed.
    base: PathBuf,
    /// Folders from there on, none of which may be a link.
    below: Vec<std::ffi::OsString>,
    name: std::ffi::OsString,
}

impl CsvLog {
    /// Links below `root` are not followed; a path elsewhere is the operator's own.
    pub fn new(root: &Path, path: &Path, header: &'static [&'static str]) -> CsvLog {
        let path = without_dots(path);
        let name = path.file_name().unwrap_or_default().to_owned();
        let folder = path.parent().unwrap_or(Path::new("/"));
        match folder.strip_prefix(root) {
            Ok(below) => CsvLog {
                header,
                base: root.to_owned(),
                below: below.iter().map(ToOwned::to_owned).collect(),
                name,
            },
            Err(_) => CsvLog {
                header,
                base: folder.to_owned(),
                below: Vec::new(),
                name,
            },
        }
    }

    /// Appends a row and drops those older than so many days; 0 keeps them all. Waits briefly for other servers.
    ///
    /// # Errors
    /// The file cannot be opened, locked or written.
    pub fn add(&self, cells: &[String], retention_days: u64) -> io::Result<()> {
        self.prune_or_warn(retention_days);
        self.append(cells, LOCK_TIMEOUT)
    }

    /// Opens the folder step by step, so that no link can be put in the way meanwhile.
    fn folder(&self, create: bool) -> io::Result<OwnedFd> {
        if create {
            std::fs::create_dir_all(&self.base)?;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut folder = rustix::fs::open(&self.base, flags, Mode::empty())?;
        for name in &self.below {
            if create {
                match rustix::fs::mkdirat(&folder, name, Mode::from_raw_mode(0o777)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            folder = rustix::fs::openat(&folder, name, flags | OFlags::NOFOLLOW, Mode::empty())
                .map_err(describe_open_error)?;
        }
        Ok(folder)
    }

    /// Opens the file itself: never through a link, never a pipe or device that blocks.
    fn open(&self, folder: &OwnedFd, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        // The umask may be wide, and calls concern this user only.
        let mode = Mode::from_raw_mode(0o600);
        let file = File::from(
            rustix::fs::openat(folder, &self.name, flags, mode).map_err(describe_open_error)?,
        );
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        Ok(file)
    }

    /// Whether the name still leads to this file.
    fn is_current(&self, folder: &OwnedFd, file: &File) -> io::Result<bool> {
        let opened = rustix::fs::fstat(file)?;
        match rustix::fs::statat(folder, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(named) => Ok((named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn append(&self, cells: &[String], timeout: Duration) -> io::Result<()> {
        let folder = self.folder(true)?;
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE;
        let started = Instant::now();
        loop {
            let mut file = self.open(&folder, flags)?;
            lock(&file, timeout.saturating_sub(started.elapsed()))?;
            if !self.is_current(&folder, &file)? {
                if started.elapsed() > timeout {
                    return Err(io::Error::other("the file is replaced again and again"));
                }
                continue;
            }
            let before = file.metadata()?.len();
            if before > 0 && !self.has_header(&file)? {
                self.move_aside(&folder)?;
                continue;
            }
            let mut text = Vec::new();
            if before == 0 {
                text.extend_from_slice(&header_line(self.header));
            }
            text.extend_from_slice(&csv_line(cells));
            return file.write_all(&text).inspect_err(|_| {
                // Half a line would spoil the next one.
                let _ = file.set_len(before);
            });
        }
    }

    /// Whether the file has the columns that are written now.
    fn has_header(&self, file: &File) -> io::Result<bool> {
        let header = header_line(self.header);
        let mut first = vec![0; header.len()];
        match file.read_exact_at(&mut first, 0) {
            Ok(()) => Ok(first == header),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Keeps a file with other columns under the first free name `NAME.1`, `NAME.2`, …
    fn move_aside(&self, folder: &OwnedFd) -> io::Result<()> {
        for number in 1..=MAX_MOVED_ASIDE {
            let mut name = self.name.clone();
            name.push(format!(".{number}"));
            let flags = RenameFlags::NOREPLACE;
            match rustix::fs::renameat_with(folder, &self.name, folder, &name, flags) {
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
                Ok(()) => {
                    tracing::warn!(
                        file = %self.name.display(),
                        kept_as = %name.display(),
                        "the file has other columns; a new one is created"
                    );
                    return Ok(());
                }
            }
        }
        Err(io::Error::other("too many files with other columns"))
    }

    /// Drops lines older than so many days; 0 keeps them all.
    pub(crate) fn prune_or_warn(&self, retention_days: u64) {
        if retention_days > 0
            && let Err(error) = self.prune(u32::try_from(retention_days).unwrap_or(u32::MAX))
        {
            tracing::warn!(%error, "old audit lines cannot be removed");
        }
    }

    /// Drops lines older than the limit, by writing the rest to a new file that takes the old one's place.
    fn prune(&self, days: u32) -> io::Result<()> {
        let opened = self
            .folder(false)
            .and_then(|folder| Ok((self.open(&folder, OFlags::RDONLY)?, folder)));
        let (file, folder) = match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened?,
        };
        // The holder of the lock may be pruning too; the next start is early enough.
        if lock(&file, Duration::ZERO).is_err() || !self.is_current(&folder, &file)? {
            return Ok(());
        }
        let oldest = Timestamp::now() - SignedDuration::from_hours(i64::from(days) * 24);
        let Some(kept) = lines_since(&file, oldest, self.header)? else {
            return Ok(());
        };
        // A random name, so that no file or link can be waiting under it.
        let fresh = format!(".token_audit.{}.new", uuid::Uuid::new_v4());
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o600);
        let mut new = File::from(rustix::fs::openat(&folder, &fresh, flags, mode)?);
        let moved = (|| {
            new.write_all(&kept)?;
            new.set_permissions(file.metadata()?.permissions())?;
            new.sync_all()?;
            rustix::fs::renameat(&folder, &fresh, &folder, &self.name)?;
            Ok(())
        })();
        if moved.is_err() {
            let _ = rustix::fs::unlinkat(&folder, &fresh, AtFlags::empty());
        }
        moved
    }
}

/// A path with `.` and `..` resolved as text.
fn without_dots(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                clean.pop();
            }
            part => clean.push(part),
        }
    }
    clean
}

/// What the system's error means here.
fn describe_open_error(error: Errno) -> io::Error {
    match error {
        Errno::LOOP => io::Error::other("a symbolic link is in the way"),
        Errno::NXIO => io::Error::other("not a regular file"),
        error => error.into(),
    }
}

/// Takes the file's lock; closing the file releases it.
fn lock(file: &File, timeout: Duration) -> io::Result<()> {
    let started = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if started.elapsed() < timeout => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::other("locked by another process"));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

/// The lines from this moment on; `None` when there are no older ones.
fn lines_since(file: &File, oldest: Timestamp, header: &[&str]) -> io::Result<Option<Vec<u8>>> {
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(file);
    let mut kept = header_line(header);
    let mut dropped = false;
    for record in reader.records() {
        let record = record.map_err(io::Error::other)?;
        let time = record
            .get(0)
            .and_then(|cell| cell.parse::<Timestamp>().ok());
        if time.is_some_and(|time| time < oldest) {
            dropped = true;
            continue;
        }
        kept.extend_from_slice(&csv_line(
            &record.iter().map(str::to_owned).collect::<Vec<_>>(),
        ));
    }
    Ok(dropped.then_some(kept))
}

pub(crate) fn header_line(header: &[&str]) -> Vec<u8> {
    let cells: Vec<String> = header.iter().map(|title| (*title).to_owned()).collect();
    csv_line(&cells)
}

pub(crate) fn csv_line(cells: &[String]) -> Vec<u8> {
    let mut writer = csv::WriterBuilder::new()
        .has_headers(false)
        .from_writer(Vec::new());
    // Writing to memory cannot fail.
    let _ = writer.write_record(cells.iter().map(|cell| as_text(cell)));
    writer.into_inner().unwrap_or_default()
}

/// A spreadsheet runs a cell that starts like a formula; a quote in front keeps it text.
fn as_text(cell: &str) -> String {
    if cell.starts_with(['=', '+', '-', '@', '\t', '\r', '\n']) {
        return format!("'{cell}");
    }
    cell.to_owned()
}

#[cfg(test)]
#[allow(
    clippy::disallowed_methods,
    reason = "tests look at files from outside"
)]
mod tests {
    use super::*;

    #[test]
    fn cells_cannot_become_formulas_or_break_lines() {
        let text = String::from_utf8(csv_line(&[
            "=1+1".to_owned(),
            "a,\"b\"\nc".to_owned(),
            "-x".to_owned(),
        ]))
        .unwrap();
        assert_eq!(text, "'=1+1,\"a,\"\"b\"\"\nc\",'-x\n");
    }

    const TIMEOUT: Duration = Duration::from_secs(5);
    const HEADER: &[&str] = &["timestamp", "x"];

    fn row(text: &str) -> Vec<String> {
        vec![Timestamp::now().to_string(), text.to_owned()]
    }

    fn open(root: &Path, path: &Path) -> CsvLog {
        CsvLog::new(root, path, HEADER)
    }

    fn old_and_young() -> String {
        let now = Timestamp::now();
        format!("timestamp,x\n2020-01-01T00:00:00Z,old\n{now},young\n")
    }

    #[test]
    fn old_lines_go_and_young_ones_stay() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.csv");
        std::fs::write(&path, old_and_young()).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        open(dir.path(), &path).prune(7).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("young") && !text.contains("old"), "{text}");
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640, "who may read it stays");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_with_other_columns_is_kept_and_a_new_one_begun() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.csv");
        for number in 1..=2 {
            let earlier = format!("timestamp\n2020-01-0{number}T00:00:00Z\n");
            std::fs::write(&path, &earlier).unwrap();
            open(dir.path(), &path).append(&row("x"), TIMEOUT).unwrap();
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.starts_with("timestamp,x\n"), "{text}");
            assert_eq!(text.lines().count(), 2, "{text}");
            let kept = dir.path().join(format!("audit.csv.{number}"));
            assert_eq!(std::fs::read_to_string(kept).unwrap(), earlier);
        }
    }

    #[test]
    fn no_link_in_the_workspace_is_followed() {
        use std::os::unix::fs::symlink;
        let outside = tempfile::tempdir().unwrap();
        let victim = outside.path().join("victim");
        let audit = |root: &Path| open(root, &root.join("artifacts/sub/audit.csv"));
        for link in ["artifacts/sub/audit.csv", "artifacts/sub", "artifacts"] {
            let root = tempfile::tempdir().unwrap();
            std::fs::create_dir_all(root.path().join(link).parent().unwrap()).unwrap();
            let target = match link {
                "artifacts/sub/audit.csv" => victim.as_path(),
                _ => outside.path(),
            };
            symlink(target, root.path().join(link)).unwrap();
            // To nothing yet, and to a file with something to prune.
            audit(root.path()).append(&row("x"), TIMEOUT).unwrap_err();
            assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
            for name in ["victim", "audit.csv"] {
                std::fs::write(outside.path().join(name), old_and_young()).unwrap();
            }
            audit(root.path()).append(&row("x"), TIMEOUT).unwrap_err();
            audit(root.path()).prune(7).unwrap_err();
            for name in ["victim", "audit.csv"] {
                let file = outside.path().join(name);
                assert!(
                    std::fs::read_to_string(&file).unwrap().contains("old"),
                    "{link}"
                );
                std::fs::remove_file(file).unwrap();
            }
        }
    }

    #[test]
    fn words_that_lead_back_inside_are_no_way_around() {
        let root = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/", root.path().join("link")).unwrap();
        let path = root.path().join("a/../link/tmp/audit.csv");
        let log = open(root.path(), &path);
        assert_eq!(log.below, ["link", "tmp"]);
        log.append(&row("x"), TIMEOUT).unwrap_err();
    }

    #[test]
    fn a_path_elsewhere_is_the_operators_own() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let link = outside.path().join("link");
        std::os::unix::fs::symlink(outside.path(), &link).unwrap();
        let log = open(root.path(), &link.join("new/audit.csv"));
        log.append(&row("x"), TIMEOUT).unwrap();
        assert!(outside.path().join("new/audit.csv").is_file());
    }

    #[test]
    fn a_pipe_or_a_folder_is_refused_and_never_waited_for() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("audit.csv");
        let log = open(root.path(), &path);
        let started = Instant::now();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        log.append(&row("x"), TIMEOUT).unwrap_err();
        log.prune(7).unwrap_err();
        // With a reader at its end the pipe could be opened.
        let reader = rustix::fs::open(&path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty());
        log.append(&row("x"), TIMEOUT).unwrap_err();
        drop(reader);
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        log.append(&row("x"), TIMEOUT).unwrap_err();
        log.prune(7).unwrap_err();
        assert!(started.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn a_lock_that_stays_is_given_up_on() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("audit.csv");
        std::fs::write(&path, old_and_young()).unwrap();
        let held = std::fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .unwrap();
        held.lock().unwrap();
        let log = open(root.path(), &path);
        log.prune(7).unwrap();
        log.append(&row("x"), Duration::from_millis(20))
            .unwrap_err();
        assert!(std::fs::read_to_string(&path).unwrap().contains("old"));
        drop(held);
        log.append(&row("x"), Duration::ZERO).unwrap();
    }

    #[test]
    fn pruning_loses_nothing_that_others_append_meanwhile() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("audit.csv");
        std::fs::write(&path, old_and_young()).unwrap();
        std::thread::scope(|scope| {
            for writer in 0..3 {
                let log = open(root.path(), &path);
                scope.spawn(move || {
                    for number in 0..50 {
                        let row = row(&format!("{writer}:{number}"));
                        log.append(&row, TIMEOUT).unwrap();
                        std::thread::sleep(Duration::from_millis(1));
                    }
                });
            }
            let log = open(root.path(), &path);
            for _ in 0..50 {
                let old = ["2020-01-01T00:00:00Z", "old"].map(str::to_owned);
                log.append(&old, TIMEOUT).unwrap();
                log.prune(7).unwrap();
            }
        });
        let text = std::fs::read_to_string(&path).unwrap();
        for writer in 0..3 {
            for number in 0..50 {
                let line = format!(",{writer}:{number}\n");
                assert_eq!(text.matches(&line).count(), 1, "{line}");
            }
        }
        assert_eq!(text.matches("timestamp").count(), 1);
    }
}
