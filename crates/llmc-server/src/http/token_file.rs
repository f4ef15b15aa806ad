//! The generated token and the file that keeps it.
//!
//! The file lies in the state directory, which is inside the workspace: an archive can bring one along, with a token that
//! its author knows. So a token counts only from a file that this user owns, that others cannot read and that is no link,
//! and only if the server made it for this user, which is recorded outside the workspace.

use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use llmc_config::{LinkPolicy, LoadedConfig, read_regular_file};
use llmc_tools::{Error, ErrorKind, Result};
use rustix::fs::OFlags;
use sha2::{Digest, Sha256};

use super::token_strength::{MIN_TOKEN_CHARS, is_token};

const FILE_NAME: &str = "token";
/// Random bytes in a generated token.
const GENERATED_TOKEN_BYTES: usize = 32;
const MAX_FILE_BYTES: u64 = 4096;

/// Where the token of a workspace is kept.
pub(super) fn path(loaded: &LoadedConfig) -> PathBuf {
    loaded.state_dir().join(FILE_NAME)
}

/// The token that a server of this workspace has generated, if there is one.
///
/// # Errors
/// A file that is not the user's alone or holds no token.
pub fn generated_token(loaded: &LoadedConfig) -> Result<Option<String>> {
    let path = path(loaded);
    match path.symlink_metadata() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        _ => read(&path).map(Some),
    }
}

/// The token in the file; generated when there is none.
pub(super) fn read_or_generate(path: &Path, loaded: &LoadedConfig) -> Result<String> {
    let created = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
        .mode(0o600)
        .open(path);
    match created {
        Ok(mut file) => {
            let token = random_token()?;
            if let Err(error) = record(path, loaded, &token) {
                tracing::warn!(%error, "that the token was made here is not recorded");
            }
            let written = writeln!(file, "{token}").and_then(|()| file.sync_all());
            written.map_err(|error| refused(path, ErrorKind::WriteFailed, error))?;
            Ok(token)
        }
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            let token = read(path)?;
            require_origin(path, loaded, &token)?;
            Ok(token)
        }
        Err(error) => Err(refused(path, ErrorKind::WriteFailed, error)),
    }
}

fn read(path: &Path) -> Result<String> {
    let refused = |why: &str| refused(path, ErrorKind::PermissionDenied, why);
    let file = read_regular_file(path, MAX_FILE_BYTES, LinkPolicy::Refuse).map_err(|error| {
        refused(&format!(
            "{error}; delete it, and the server makes a new one"
        ))
    })?;
    let owner = file.status.uid();
    if owner != rustix::process::geteuid().as_raw() {
        let why = format!("it belongs to another user, uid {owner}; delete it");
        return Err(refused(&why));
    }
    if file.status.mode() & 0o077 != 0 {
        return Err(refused(
            "other users may read it; delete it, and the server makes a new one, or chmod 600 if it is still secret",
        ));
    }
    let text = file.into_text().unwrap_or_default();
    let token = text.trim_end_matches(['\n', '\r']);
    if !is_token(token) || token.len() < MIN_TOKEN_CHARS {
        return Err(refused(
            "it holds no token; delete it, and the server makes a new one",
        ));
    }
    Ok(token.to_owned())
}

fn record(path: &Path, loaded: &LoadedConfig, token: &str) -> std::io::Result<()> {
    loaded
        .trust
        .store()?
        .record_token(path, &hex(&Sha256::digest(token)))
}

/// Refuses a token that the server has not made for this user. Where no record can be kept, ownership has to do.
fn require_origin(path: &Path, loaded: &LoadedConfig, token: &str) -> Result<()> {
    let Ok(store) = loaded.trust.store() else {
        return Ok(());
    };
    let recorded = store
        .generated_token(path)
        .map_err(|error| refused(path, ErrorKind::PermissionDenied, error))?;
    if recorded == Some(hex(&Sha256::digest(token))) {
        return Ok(());
    }
    if let Err(error) = store.require_writable() {
        tracing::warn!(%error, "no record of generated tokens can be kept: the token file is taken as it is");
        return Ok(());
    }
    Err(refused(
        path,
        ErrorKind::PermissionDenied,
        "no server of this user made it, it may have come with the files; delete it, and the server makes a new one",
    ))
}

fn refused(path: &Path, kind: ErrorKind, why: impl std::fmt::Display) -> Error {
    Error::new(kind, format!("token file {}: {why}", path.display()))
        .hint("or set the token in the environment (mcp.auth.token_env)")
}

/// 64 hexadecimal digits of 256 random bits.
pub(crate) fn random_token() -> Result<String> {
    let mut bytes = [0; GENERATED_TOKEN_BYTES];
    getrandom::fill(&mut bytes).map_err(|error| {
        Error::new(
            ErrorKind::Internal,
            format!("the system gives no random numbers: {error}"),
        )
    })?;
    Ok(hex(&bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
