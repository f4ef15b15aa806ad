//! What the user has trusted and what the server has made for the user, recorded outside every workspace.
//!
//! One small TOML file, `$XDG_STATE_HOME/llmc/trust.toml`, open to its owner alone and replaced as a whole. A record that
//! another user can write, or that lies in the workspace it speaks about, proves nothing and is not used. Commands of agents
//! see neither the file nor its folder.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use toml_edit::{DocumentMut, Item, Table, TableLike};

use crate::allowances::Allowances;
use crate::layers::STATE_HOME_ENV;
use crate::load::ConfigInputs;
use crate::paths::canonical_place;
use crate::regular_file::{LinkPolicy, read_regular_file};

const MAX_STORE_BYTES: u64 = 1 << 20;
/// How long a change waits for another process that changes the record.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
const LOCK_RETRY: Duration = Duration::from_millis(20);
const HEADER: &str = "# Written by `llmc trust`, `llmc allow` and by servers; `llmc trust --revoke` and `llmc allow --remove` take back.\n";

/// How the header of every version begins.
const HEADER_START: &str = "# Written by `llmc trust`";

/// Hashes of trusted configuration files.
const CONFIGURATIONS: &str = "configurations";
/// Digests of generated tokens, by token file.
const TOKENS: &str = "tokens";
/// Git directories outside a workspace that its commands may use, by workspace.
const GIT_DIRS: &str = "git_directories";
/// What the user allows commands, by workspace.
const ALLOWED: &str = "allowed";

/// The user's record of trust.
#[derive(Debug, Clone)]
pub struct TrustStore {
    path: PathBuf,
}

/// Which file the record is, and when it was changed: another one after every change. Nothing without a record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreStamp(Option<(u64, u64, i64, i64, u64)>);

impl TrustStore {
    /// Where the record is, or why there can be none for this workspace.
    pub(crate) fn of(inputs: &ConfigInputs, root: &Path) -> Result<TrustStore, String> {
        let folder = inputs
            .user_folder(STATE_HOME_ENV, ".local/state")
            .ok_or("neither XDG_STATE_HOME nor HOME is an absolute path")?;
        let path = folder.join("llmc/trust.toml");
        if canonical_place(&path).starts_with(root) {
            return Err(format!("{} lies in the workspace", path.display()));
        }
        Ok(TrustStore { path })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The hash that was recorded for a configuration file.
    ///
    /// # Errors
    /// The record cannot be read or is not the user's alone.
    pub fn trusted_hash(&self, file: &Path) -> io::Result<Option<String>> {
        self.entry(CONFIGURATIONS, file)
    }

    /// Records the hash of a configuration file.
    ///
    /// # Errors
    /// The record cannot be read or written.
    pub fn trust(&self, file: &Path, hash: &str) -> io::Result<()> {
        self.change(|document| put(document, CONFIGURATIONS, file, hash))
    }

    /// Removes a configuration file; whether there was a record of it.
    ///
    /// # Errors
    /// The record cannot be read or written.
    pub fn revoke(&self, file: &Path) -> io::Result<bool> {
        if self.trusted_hash(file)?.is_none() {
            return Ok(false);
        }
        self.change(|document| {
            if let Some(table) = document[CONFIGURATIONS].as_table_like_mut() {
                table.remove(&name_of(file));
            }
        })?;
        Ok(true)
    }

    /// The digest of the token that the server generated into a file.
    ///
    /// # Errors
    /// The record cannot be read or is not the user's alone.
    pub fn generated_token(&self, file: &Path) -> io::Result<Option<String>> {
        self.entry(TOKENS, file)
    }

    /// Records the digest of a generated token.
    ///
    /// # Errors
    /// The record cannot be read or written.
    pub fn record_token(&self, file: &Path, digest: &str) -> io::Result<()> {
        self.change(|document| put(document, TOKENS, file, digest))
    }

    /// The git directories outside a workspace that were recorded for it; `None` before the first start there.
    ///
    /// # Errors
    /// The record cannot be read or is not the user's alone.
    pub fn git_dirs(&self, root: &Path) -> io::Result<Option<Vec<PathBuf>>> {
        let document = self.read()?;
        let entry = document
            .get(GIT_DIRS)
            .and_then(|table| table.get(name_of(root)));
        let dirs = entry.and_then(Item::as_array);
        Ok(dirs.map(|dirs| {
            let names = dirs.iter().filter_map(toml_edit::Value::as_str);
            names.map(PathBuf::from).collect()
        }))
    }

    /// Records them. One whose name is not UTF-8 is left out.
    ///
    /// # Errors
    /// The record cannot be read or written.
    pub fn record_git_dirs(&self, root: &Path, dirs: &[PathBuf]) -> io::Result<()> {
        let names: toml_edit::Array = dirs.iter().filter_map(|dir| dir.to_str()).collect();
        self.change(|document| put(document, GIT_DIRS, root, names))
    }

    /// What the user allows the commands of a workspace.
    ///
    /// # Errors
    /// The record cannot be read or is not the user's alone.
    pub fn allowances(&self, root: &Path) -> io::Result<Allowances> {
        let document = self.read()?;
        let table = document.get(ALLOWED);
        Ok(Allowances::read(
            table.and_then(|table| table.get(name_of(root))),
        ))
    }

    /// Changes what the user allows the commands of a workspace.
    ///
    /// # Errors
    /// The record cannot be read or written.
    pub fn change_allowances(
        &self,
        root: &Path,
        change: impl FnOnce(&mut Allowances),
    ) -> io::Result<()> {
        self.change(|document| {
            let all = table_in(document, ALLOWED);
            let mut allowances = Allowances::read(all.get(&name_of(root)));
            change(&mut allowances);
            match allowances.to_table() {
                none if none.is_empty() => drop(all.remove(&name_of(root))),
                some => drop(all.insert(&name_of(root), Item::Table(some))),
            }
        })
    }

    /// What a later look is compared with, to see whether the record has changed.
    pub fn stamp(&self) -> StoreStamp {
        let status = self.path.symlink_metadata().ok();
        StoreStamp(status.map(|status| {
            let nanos = |seconds: i64, nanos: i64| seconds.saturating_mul(1_000_000_000) + nanos;
            let changed = nanos(status.ctime(), status.ctime_nsec());
            let modified = nanos(status.mtime(), status.mtime_nsec());
            (status.dev(), status.ino(), changed, modified, status.len())
        }))
    }

    /// Whether something can be recorded at all.
    ///
    /// # Errors
    /// Why not.
    pub fn require_writable(&self) -> io::Result<()> {
        self.change(|_| ())
    }

    fn entry(&self, table: &str, file: &Path) -> io::Result<Option<String>> {
        let document = self.read()?;
        let entry = document
            .get(table)
            .and_then(|table| table.get(name_of(file)));
        Ok(entry.and_then(Item::as_str).map(str::to_owned))
    }

    fn read(&self) -> io::Result<DocumentMut> {
        let file = match read_regular_file(&self.path, MAX_STORE_BYTES, LinkPolicy::Refuse) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(DocumentMut::new()),
            Err(error) => return Err(self.failed(&error)),
        };
        let refused = |what: &str| self.failed(&io::Error::new(ErrorKind::PermissionDenied, what));
        if file.status.uid() != rustix::process::geteuid().as_raw() {
            return Err(refused("belongs to another user"));
        }
        if file.status.mode() & 0o022 != 0 {
            return Err(refused("others may write it; chmod 600 makes it yours"));
        }
        let text = file.into_text().map_err(|error| self.failed(&error))?;
        text.parse().map_err(|error: toml_edit::TomlError| {
            let message = format!("broken TOML: {}", error.message().replace('\n', ", "));
            self.failed(&io::Error::new(ErrorKind::InvalidData, message))
        })
    }

    fn change(&self, edit: impl FnOnce(&mut DocumentMut)) -> io::Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(|error| self.failed(&error))?;
        let folder = OpenOptions::new().read(true).open(folder)?;
        let deadline = Instant::now() + LOCK_TIMEOUT;
        while let Err(error) = rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive)
        {
            if error != rustix::io::Errno::WOULDBLOCK || Instant::now() > deadline {
                return Err(self.failed(&error.into()));
            }
            std::thread::sleep(LOCK_RETRY);
        }
        let mut document = self.read()?;
        edit(&mut document);
        let written = self.replace(&document.to_string());
        written.map_err(|error| self.failed(&error))?;
        folder.sync_all()
    }

    /// Writes a new file beside the record and renames it onto the record.
    fn replace(&self, text: &str) -> io::Result<()> {
        let new = self.path.with_extension("new");
        // Left behind by a process that was killed here; the lock is ours.
        let _ = rustix::fs::unlink(&new);
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&new)?;
        let written = file
            .write_all(HEADER.as_bytes())
            .and_then(|()| file.write_all(without_header(text).as_bytes()))
            .and_then(|()| file.sync_all())
            .and_then(|()| fs::rename(&new, &self.path));
        if written.is_err() {
            let _ = rustix::fs::unlink(&new);
        }
        written
    }

    fn failed(&self, error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("{}: {error}", self.path.display()))
    }
}

/// A record without tables keeps its header at its end when a table is added.
fn without_header(text: &str) -> String {
    let lines = text.split_inclusive('\n');
    lines
        .filter(|line| !line.starts_with(HEADER_START))
        .collect()
}

fn put(document: &mut DocumentMut, table: &str, file: &Path, value: impl Into<toml_edit::Value>) {
    table_in(document, table).insert(&name_of(file), Item::Value(value.into()));
}

/// A table of the record, which replaces what else has its name.
fn table_in<'a>(document: &'a mut DocumentMut, name: &str) -> &'a mut dyn TableLike {
    let entry = &mut document[name];
    if !entry.is_table_like() {
        let mut table = Table::new();
        // Without a line of its own when it holds tables only.
        table.set_implicit(true);
        *entry = Item::Table(table);
    }
    entry.as_table_like_mut().expect("made a table above")
}

/// A path as a key; one that is not UTF-8 by its bytes, so that no two paths share a key.
fn name_of(path: &Path) -> String {
    match path.to_str() {
        Some(text) => text.to_owned(),
        None => {
            let bytes = path.as_os_str().as_bytes().iter();
            bytes.fold("bytes:".to_owned(), |name, byte| {
                name + &format!("{byte:02x}")
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::allowances::Allowance;

    #[test]
    fn no_record_of_git_directories_differs_from_an_empty_one() {
        let dir = tempfile::tempdir().unwrap();
        let store = TrustStore {
            path: dir.path().join("trust.toml"),
        };
        let root = Path::new("/w");
        assert_eq!(store.git_dirs(root).unwrap(), None);
        store.record_git_dirs(root, &[]).unwrap();
        assert_eq!(store.git_dirs(root).unwrap(), Some(Vec::new()));
        let dirs = vec![PathBuf::from("/src/main/.git")];
        store.record_git_dirs(root, &dirs).unwrap();
        assert_eq!(store.git_dirs(root).unwrap(), Some(dirs));
    }

    #[test]
    fn allowances_are_kept_by_workspace_and_change_the_stamp() {
        let dir = tempfile::tempdir().unwrap();
        let store = TrustStore {
            path: dir.path().join("trust.toml"),
        };
        let (one, two) = (Path::new("/w/one"), Path::new("/w/two"));
        assert_eq!(store.allowances(one).unwrap(), Allowances::default());
        let all = Allowances(vec![
            Allowance::Write("/srv/data".into()),
            Allowance::Read("/home/a/.ssh".into()),
            Allowance::Socket("/run/s".into()),
            Allowance::Host("example.com:443".to_owned()),
            Allowance::Env("GH_TOKEN".to_owned()),
            Allowance::GitDir("/src/main/.git".into()),
        ]);
        let mut stamps = vec![store.stamp()];
        for given in [all.clone(), Allowances::default(), all.clone()] {
            store
                .change_allowances(one, |known| *known = given.clone())
                .unwrap();
            assert_eq!(store.allowances(one).unwrap(), given);
            assert_eq!(store.allowances(two).unwrap(), Allowances::default());
            let stamp = store.stamp();
            assert!(!stamps.contains(&stamp), "{stamp:?}");
            stamps.push(stamp);
            let text = fs::read_to_string(store.path()).unwrap();
            assert_eq!(text.matches(HEADER_START).count(), 1, "{text}");
        }
        // What other records say stays, and what is of another form allows nothing.
        store.trust(one, "aa").unwrap();
        assert_eq!(store.allowances(one).unwrap(), all);
        let text = "[allowed]\n\"/w/one\" = { write = \"/\", read = [1, \"/r\"], more = [\"/\"] }\n\"/w/two\" = 1\n";
        fs::write(store.path(), text).unwrap();
        let read = Allowances(vec![Allowance::Read("/r".into())]);
        assert_eq!(store.allowances(one).unwrap(), read);
        assert_eq!(store.allowances(two).unwrap(), Allowances::default());
    }

    #[test]
    fn records_are_kept_by_path_for_the_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let store = TrustStore {
            path: dir.path().join("deep/llmc/trust.toml"),
        };
        let (one, two) = (Path::new("/w/\"one\"/llmc.toml"), Path::new("/w/two"));
        assert_eq!(store.trusted_hash(one).unwrap(), None);
        assert!(!store.revoke(one).unwrap());
        store.trust(one, "aa").unwrap();
        store.trust(two, "bb").unwrap();
        store.record_token(one, "cc").unwrap();
        store.trust(one, "dd").unwrap();
        assert_eq!(store.trusted_hash(one).unwrap().as_deref(), Some("dd"));
        assert_eq!(store.trusted_hash(two).unwrap().as_deref(), Some("bb"));
        assert_eq!(store.generated_token(one).unwrap().as_deref(), Some("cc"));
        assert!(store.revoke(one).unwrap());
        assert_eq!(store.trusted_hash(one).unwrap(), None);
        assert_eq!(store.trusted_hash(two).unwrap().as_deref(), Some("bb"));
        assert_eq!(store.generated_token(one).unwrap().as_deref(), Some("cc"));

        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(store.path()), 0o600);
        assert_eq!(mode(store.path().parent().unwrap()), 0o700);
        let left: Vec<_> = fs::read_dir(store.path().parent().unwrap())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(left, ["trust.toml"]);
    }

    #[test]
    fn a_record_that_others_may_have_written_proves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let store = TrustStore {
            path: dir.path().join("trust.toml"),
        };
        let file = Path::new("/w/llmc.toml");
        store.trust(file, "aa").unwrap();
        fs::set_permissions(store.path(), fs::Permissions::from_mode(0o666)).unwrap();
        let error = store.trusted_hash(file).unwrap_err().to_string();
        assert!(error.contains("others may write it"), "{error}");
        fs::rename(store.path(), dir.path().join("real")).unwrap();
        fs::set_permissions(dir.path().join("real"), fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink("real", store.path()).unwrap();
        let error = store.trusted_hash(file).unwrap_err().to_string();
        assert!(error.contains("a link"), "{error}");
    }
}
