//! The token audit: one line of CSV per call, for spreadsheets and auditors.
//!
//! The file lies in a workspace that others can write to. No link in it is followed, nothing but a regular file is
//! opened, and nothing waits for long. Several servers share the file: whoever writes holds a lock on it, and looks
//! again whether it is still the file of that name, since pruning puts a new one in its place.

use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::Counted;

const HEADER: [&str; 11] = [
    "timestamp",
    "correlation_id",
    "session_id",
    "agent_id",
    "tool",
    "tokens_in",
    "tokens_out",
    "tokens_withheld",
    "tokens_fetched_back",
    "duration_ms",
    "status",
];

/// How long a line waits while another server prunes.
const PATIENCE: Duration = Duration::from_secs(1);

/// The audit file, opened anew for each line so that it can be rotated under a running server.
pub(super) struct Audit {
    place: Place,
    failed: bool,
}

impl Audit {
    /// Links below `root` are not followed; a path elsewhere is the operator's own.
    pub(super) fn new(root: &Path, path: &Path, retention_days: u64) -> Audit {
        let place = Place::new(root, path);
        place.keep(retention_days);
        Audit {
            place,
            failed: false,
        }
    }

    pub(super) fn add(&mut self, counted: &Counted) {
        let event = &counted.event;
        let status = counted.error_code().unwrap_or("ok");
        let line = line(&[
            Timestamp::now().to_string(),
            event.correlation_id.clone(),
            event.session.clone(),
            event.agent.clone(),
            event.tool_name().to_owned(),
            counted.tokens_in.to_string(),
            counted.tokens_out.to_string(),
            counted.tokens_withheld.to_string(),
            counted.tokens_fetched_back.to_string(),
            format!("{:.3}", counted.latency_ms()),
            status.to_owned(),
        ]);
        // After a failure the others do not wait as well.
        let patience = if self.failed {
            Duration::ZERO
        } else {
            PATIENCE
        };
        match self.place.append(&line, patience) {
            Ok(()) => self.failed = false,
            // Once per outage, not once per call.
            Err(error) if !self.failed => {
                self.failed = true;
                tracing::error!(%error, "the token audit cannot be written");
            }
            Err(_) => {}
        }
    }
}

/// A further table of the same kind, written by whoever has something to add to it.
pub(crate) struct Rows {
    place: Place,
}

impl Rows {
    /// Rows under this header, in a file below `root`.
    pub(crate) fn new(root: &Path, path: &Path, header: &'static [&'static str]) -> Rows {
        Rows {
            place: Place::under(root, path, header),
        }
    }

    /// Adds a row, and drops those that are older than so many days; 0 keeps them all. Waits for other servers for a
    /// moment at most.
    pub(crate) fn add(&self, cells: &[String], retention_days: u64) -> io::Result<()> {
        self.place.keep(retention_days);
        self.place.append(&line(cells), PATIENCE)
    }
}

/// Where the file is.
struct Place {
    header: &'static [&'static str],
    /// Where looking begins; followed like any path.
    base: PathBuf,
    /// Folders from there on, none of which may be a link.
    below: Vec<std::ffi::OsString>,
    name: std::ffi::OsString,
}

impl Place {
    fn new(root: &Path, path: &Path) -> Place {
        Place::under(root, path, &HEADER)
    }

    fn under(root: &Path, path: &Path, header: &'static [&'static str]) -> Place {
        let path = without_dots(path);
        let name = path.file_name().unwrap_or_default().to_owned();
        let folder = path.parent().unwrap_or(Path::new("/"));
        match folder.strip_prefix(root) {
            Ok(below) => Place {
                header,
                base: root.to_owned(),
                below: below.iter().map(ToOwned::to_owned).collect(),
                name,
            },
            Err(_) => Place {
                header,
                base: folder.to_owned(),
                below: Vec::new(),
                name,
            },
        }
    }

    /// Opens the folder, step by step so that nobody can slip in a link on the way.
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
                .map_err(named)?;
        }
        Ok(folder)
    }

    /// Opens the file itself: never through a link, never something that is waited for.
    fn open(&self, folder: &OwnedFd, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        // The umask may be wide; who called what is nobody else's business.
        let mode = Mode::from_raw_mode(0o600);
        let file = File::from(rustix::fs::openat(folder, &self.name, flags, mode).map_err(named)?);
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        Ok(file)
    }

    /// Whether the name still leads to this file.
    fn is_current(&self, folder: &OwnedFd, file: &File) -> io::Result<bool> {
        let ours = rustix::fs::fstat(file)?;
        match rustix::fs::statat(folder, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(named) => Ok((named.st_dev, named.st_ino) == (ours.st_dev, ours.st_ino)),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn append(&self, line: &[u8], patience: Duration) -> io::Result<()> {
        let folder = self.folder(true)?;
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
        let started = Instant::now();
        loop {
            let mut file = self.open(&folder, flags)?;
            lock(&file, patience.saturating_sub(started.elapsed()))?;
            if !self.is_current(&folder, &file)? {
                if started.elapsed() > patience {
                    return Err(io::Error::other("replaced all the time"));
                }
                continue;
            }
            let before = file.metadata()?.len();
            let mut text = Vec::new();
            if before == 0 {
                text.extend_from_slice(&titles(self.header));
            }
            text.extend_from_slice(line);
            return file.write_all(&text).inspect_err(|_| {
                // Half a line would spoil the next one.
                let _ = file.set_len(before);
            });
        }
    }

    /// Drops lines that are older than so many days; 0 keeps them all.
    fn keep(&self, retention_days: u64) {
        if retention_days > 0
            && let Err(error) = self.prune(u32::try_from(retention_days).unwrap_or(u32::MAX))
        {
            tracing::warn!(%error, "old audit lines stay");
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
        // Whoever holds it may be pruning too; the next start is early enough.
        if lock(&file, Duration::ZERO).is_err() || !self.is_current(&folder, &file)? {
            return Ok(());
        }
        let oldest = Timestamp::now() - SignedDuration::from_hours(i64::from(days) * 24);
        let Some(kept) = young(&file, oldest, self.header)? else {
            return Ok(());
        };
        // A name nobody can have prepared.
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

/// A path without `.` and `..`, by its words alone.
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

/// What the system says about a link or a pipe, in words.
fn named(error: Errno) -> io::Error {
    match error {
        Errno::LOOP => io::Error::other("a symbolic link is in the way"),
        Errno::NXIO => io::Error::other("not a regular file"),
        error => error.into(),
    }
}

/// Takes the file's lock; it goes with the file.
fn lock(file: &File, patience: Duration) -> io::Result<()> {
    let started = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if started.elapsed() < patience => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::other("locked by another process"));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

/// The lines that stay, when there are some that do not.
fn young(file: &File, oldest: Timestamp, header: &[&str]) -> io::Result<Option<Vec<u8>>> {
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(file);
    let mut kept = titles(header);
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
        kept.extend_from_slice(&line(&record.iter().map(str::to_owned).collect::<Vec<_>>()));
    }
    Ok(dropped.then_some(kept))
}

fn titles(header: &[&str]) -> Vec<u8> {
    let cells: Vec<String> = header.iter().map(|title| (*title).to_owned()).collect();
    line(&cells)
}

fn line(cells: &[String]) -> Vec<u8> {
    let mut writer = csv::WriterBuilder::new()
        .has_headers(false)
        .from_writer(Vec::new());
    // Writing to memory cannot fail.
    let _ = writer.write_record(cells.iter().map(|cell| harmless(cell)));
    writer.into_inner().unwrap_or_default()
}

/// A spreadsheet runs a cell that starts like a formula; a quote in front keeps it text.
fn harmless(cell: &str) -> String {
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
        let text = String::from_utf8(line(&[
            "=1+1".to_owned(),
            "a,\"b\"\nc".to_owned(),
            "-x".to_owned(),
        ]))
        .unwrap();
        assert_eq!(text, "'=1+1,\"a,\"\"b\"\"\nc\",'-x\n");
    }

    const PATIENT: Duration = Duration::from_secs(5);

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
        Place::new(dir.path(), &path).prune(7).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("young") && !text.contains("old"), "{text}");
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640, "who may read it stays");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn no_link_in_the_workspace_is_followed() {
        use std::os::unix::fs::symlink;
        let outside = tempfile::tempdir().unwrap();
        let victim = outside.path().join("victim");
        let audit = |root: &Path| Place::new(root, &root.join("artifacts/sub/audit.csv"));
        for link in ["artifacts/sub/audit.csv", "artifacts/sub", "artifacts"] {
            let root = tempfile::tempdir().unwrap();
            std::fs::create_dir_all(root.path().join(link).parent().unwrap()).unwrap();
            let target = match link {
                "artifacts/sub/audit.csv" => victim.as_path(),
                _ => outside.path(),
            };
            symlink(target, root.path().join(link)).unwrap();
            // To nothing yet, and to a file with something to prune.
            audit(root.path()).append(b"x\n", PATIENT).unwrap_err();
            assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
            for name in ["victim", "audit.csv"] {
                std::fs::write(outside.path().join(name), old_and_young()).unwrap();
            }
            audit(root.path()).append(b"x\n", PATIENT).unwrap_err();
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
        let place = Place::new(root.path(), &path);
        assert_eq!(place.below, ["link", "tmp"]);
        place.append(b"x\n", PATIENT).unwrap_err();
    }

    #[test]
    fn a_path_elsewhere_is_the_operators_own() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let link = outside.path().join("link");
        std::os::unix::fs::symlink(outside.path(), &link).unwrap();
        let place = Place::new(root.path(), &link.join("new/audit.csv"));
        place.append(b"x\n", PATIENT).unwrap();
        assert!(outside.path().join("new/audit.csv").is_file());
    }

    #[test]
    fn a_pipe_or_a_folder_is_refused_and_never_waited_for() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("audit.csv");
        let place = Place::new(root.path(), &path);
        let started = Instant::now();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        place.append(b"x\n", PATIENT).unwrap_err();
        place.prune(7).unwrap_err();
        // With a reader at its end the pipe could be opened.
        let reader = rustix::fs::open(&path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty());
        place.append(b"x\n", PATIENT).unwrap_err();
        drop(reader);
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        place.append(b"x\n", PATIENT).unwrap_err();
        place.prune(7).unwrap_err();
        assert!(started.elapsed() < Duration::from_secs(2));
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
        let place = Place::new(root.path(), &path);
        place.prune(7).unwrap();
        place.append(b"x\n", Duration::from_millis(20)).unwrap_err();
        assert!(std::fs::read_to_string(&path).unwrap().contains("old"));
        drop(held);
        place.append(b"x\n", Duration::ZERO).unwrap();
    }

    #[test]
    fn pruning_loses_nothing_that_others_append_meanwhile() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("audit.csv");
        std::fs::write(&path, old_and_young()).unwrap();
        let now = Timestamp::now();
        std::thread::scope(|scope| {
            for writer in 0..3 {
                let place = Place::new(root.path(), &path);
                scope.spawn(move || {
                    for number in 0..50 {
                        let line = format!("{now},{writer}:{number}\n");
                        place.append(line.as_bytes(), PATIENT).unwrap();
                        std::thread::sleep(Duration::from_millis(1));
                    }
                });
            }
            let place = Place::new(root.path(), &path);
            for _ in 0..50 {
                let old = b"2020-01-01T00:00:00Z,old\n";
                place.append(old, PATIENT).unwrap();
                place.prune(7).unwrap();
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
