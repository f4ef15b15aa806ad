//! The state directory: making it, what protects it, and what `llmc doctor` checks.

use std::path::{Path, PathBuf};

use llmc_config::LoadedConfig;
use llmc_envelope::handles::{HANDLES_FILE, HANDLES_VERSION};
use llmc_envelope::integrity;
use llmc_envelope::store::is_moved_aside;
use llmc_history::{HISTORY_FILE, HISTORY_VERSION};
use llmc_host::{CONFIG_FILE, PathRules, STATE_DIR};
use llmc_observe::TELEMETRY_VERSION;

use crate::error::{Error, ErrorKind, Result};
use crate::observe::TELEMETRY;

/// How deep stores lie below the state directory at most.
const DEPTH: usize = 3;

/// One SQLite file in the state directory.
#[derive(Debug)]
pub struct Store {
    /// Its path below the state directory.
    pub name: String,
    /// Its size with its log.
    pub bytes: u64,
    /// What is wrong with it.
    pub damage: Option<String>,
}

/// Reads the stores below a state directory through, so it takes as long as they are large. Changes nothing.
///
/// Comes before [`App::open`](crate::App::open), which moves a damaged store aside.
pub fn stores(dir: &Path) -> Vec<Store> {
    let mut stores = Vec::new();
    find(dir, DEPTH, &mut |path| {
        if path.extension().is_none_or(|end| end != "db") {
            return;
        }
        let name = path.strip_prefix(dir).unwrap_or(path).display().to_string();
        stores.push(Store {
            name,
            bytes: size(path) + size(&path.with_extension("db-wal")),
            damage: integrity(path, version_of(path)).err(),
        });
    });
    stores.sort_by(|a, b| a.name.cmp(&b.name));
    stores
}

/// The version of a store that this program works with; `None` of one that is built again by itself.
fn version_of(path: &Path) -> Option<i32> {
    match path.file_name()?.to_str()? {
        TELEMETRY => Some(TELEMETRY_VERSION),
        HANDLES_FILE => Some(HANDLES_VERSION),
        HISTORY_FILE => Some(HISTORY_VERSION),
        _ => None,
    }
}

/// Files below a state directory that were stores until they could not be used.
pub fn moved_aside(dir: &Path) -> Vec<String> {
    let mut files = Vec::new();
    find(dir, DEPTH, &mut |path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if is_moved_aside(&name) {
            files.push(path.strip_prefix(dir).unwrap_or(path).display().to_string());
        }
    });
    files.sort();
    files
}

/// Why nothing can be kept in a state directory, if so: tries to write there.
pub fn unusable(dir: &Path) -> Option<String> {
    if dir.is_symlink() {
        return Some("it is a link; it must be a directory".to_owned());
    }
    let trial = dir.join(format!("trial-{}", uuid::Uuid::new_v4()));
    let made = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&trial);
    #[expect(
        clippy::disallowed_methods,
        reason = "a file made here, in the server's own directory"
    )]
    let removed = made.and_then(|_| std::fs::remove_file(&trial));
    removed.err().map(|error| error.to_string())
}

fn find(dir: &Path, depth: usize, found: &mut impl FnMut(&Path)) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            // What was quarantined is the agent's, not a store.
            Ok(kind) if kind.is_dir() && depth > 0 && entry.file_name() != "quarantine" => {
                find(&path, depth - 1, found);
            }
            Ok(kind) if kind.is_file() => found(&path),
            _ => {}
        }
    }
}

fn size(path: &Path) -> u64 {
    std::fs::symlink_metadata(path).map_or(0, |status| status.len())
}

/// Files that decide over the agent: configuration, audit, policy, the user's own files where a root contains them.
pub(crate) fn server_files(loaded: &LoadedConfig) -> Vec<PathBuf> {
    let mut files = vec![loaded.root.join(CONFIG_FILE), loaded.csv_path()];
    files.extend(loaded.file.as_deref().map(|file| loaded.root.join(file)));
    let policy = loaded.config.mcp.exec.policy_file.iter();
    files.extend(policy.map(|path| loaded.resolve(path)));
    let script = Some(&loaded.config.mcp.te.script_path).filter(|path| !path.is_empty());
    files.extend(script.map(|path| loaded.resolve(path)));
    files.extend(loaded.reachable_user_files());
    files
}

/// What agents cannot write, and what they cannot read.
pub(crate) fn rules(loaded: &LoadedConfig, state_dir: &Path) -> Result<PathRules> {
    let config = &loaded.config;
    let protected = server_files(loaded);
    let mut roots = vec![loaded.root.clone()];
    roots.extend(loaded.roots());
    roots.extend(loaded.linux_roots());
    let tools = &config.mcp.tools;
    let rules = PathRules::new(Some(state_dir.to_owned()), protected)
        .with_roots(&roots)
        .with_denylist(&tools.denylist_globs, tools.denylist_reads)?;
    Ok(rules)
}

/// Makes the state directory, closed to others and invisible to git.
pub(crate) fn make(dir: &Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    let failed = |error: std::io::Error| {
        Error::new(
            ErrorKind::WriteFailed,
            format!("{STATE_DIR} cannot be made: {error}"),
        )
    };
    if dir.is_symlink() {
        return Err(Error::new(
            ErrorKind::InvalidPath,
            format!("{STATE_DIR} is a link; it must be a directory"),
        ));
    }
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(failed)?;
    close_to_others(dir).map_err(failed)?;
    // A new file only: through a link that came with the repository it would be written elsewhere.
    let ignore = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(dir.join(".gitignore"));
    match ignore {
        Ok(mut file) => std::io::Write::write_all(&mut file, b"*\n").map_err(failed),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(failed(error)),
    }
}

/// Takes away other users' right to write in a state directory of this user, which may have come with an archive.
fn close_to_others(dir: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    const WRITE_BY_OTHERS: u32 = 0o022;
    let status = dir.symlink_metadata()?;
    let is_own = status.uid() == rustix::process::geteuid().as_raw();
    if is_own && status.mode() & WRITE_BY_OTHERS != 0 {
        let mode = status.mode() & 0o7777 & !WRITE_BY_OTHERS;
        std::fs::set_permissions(dir, PermissionsExt::from_mode(mode))?;
    }
    Ok(())
}
