//! The state directory as `llmc doctor` checks it.

use std::path::Path;

use llmc_envelope::integrity;

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
        let name = path.strip_prefix(dir).unwrap_or(path).display().to_string();
        stores.push(Store {
            name,
            bytes: size(path) + size(&path.with_extension("db-wal")),
            damage: integrity(path).err(),
        });
    });
    stores.sort_by(|a, b| a.name.cmp(&b.name));
    stores
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
            Ok(kind) if kind.is_file() && path.extension().is_some_and(|end| end == "db") => {
                found(&path);
            }
            _ => {}
        }
    }
}

fn size(path: &Path) -> u64 {
    std::fs::symlink_metadata(path).map_or(0, |status| status.len())
}
