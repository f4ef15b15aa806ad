//! Whether the workspace's file sets security keys.
//!
//! `llmc.toml` comes with the repository, so it is not the user's word. Its security keys, which the declarations mark, count
//! only when the user has trusted the file as it is: the hash of its bytes is recorded outside the workspace by `llmc trust`,
//! or given in `LLMC_TRUST`. Else they are left out before the layers are merged, so that the next lower layer holds. The file
//! is read once: what is hashed is what is parsed.

use std::fmt::Write;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::error::ConfigError;
use crate::layers::TRUST_ENV;
use crate::load::ConfigInputs;
use crate::locate::{self, ConfigFile};
use crate::merge::{Layer, SettingMap};
use crate::paths::canonical_place;
use crate::registry::all_settings;
use crate::trust_store::TrustStore;
use crate::value::Value;

/// A security key that the workspace's file sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecuritySetting {
    pub key: &'static str,
    /// In TOML syntax, credentials in URLs masked.
    pub value: String,
}

/// Whether the security keys of the configuration file count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrustState {
    /// There are none.
    NotNeeded,
    /// They count; why, in words.
    Trusted(&'static str),
    /// They are ignored until the user trusts the file; why, in words.
    Untrusted(String),
    /// They are ignored, and the file cannot be trusted while other users control it; why, in words.
    Untrustable(String),
}

/// The security keys of the configuration file, and whether they count.
#[derive(Debug, Clone)]
pub struct ConfigTrust {
    /// The path under which trust is recorded; `None` without a file.
    pub file: Option<PathBuf>,
    /// In the order of the reference page.
    pub settings: Vec<SecuritySetting>,
    /// SHA-256 of the file in hexadecimal: what `llmc trust` records and `LLMC_TRUST` names.
    pub hash: String,
    pub state: TrustState,
    label: String,
    store: Result<TrustStore, String>,
}

impl ConfigTrust {
    /// Decides, and removes from the file's layer what does not count.
    pub(crate) fn settle(
        inputs: &ConfigInputs,
        root: &Path,
        file: Option<&ConfigFile>,
        layer: &mut Layer,
    ) -> ConfigTrust {
        let settings = security_settings(layer);
        let hash = file.map_or(String::new(), |file| hash(file.text.as_bytes()));
        let store = TrustStore::of(inputs, root);
        let path = file.map(|file| canonical_place(&file.path));
        let state = match (file, &path) {
            (Some(file), Some(path)) if !settings.is_empty() => {
                state(inputs, root, file, path, &hash, &store)
            }
            _ => TrustState::NotNeeded,
        };
        if matches!(state, TrustState::Untrusted(_) | TrustState::Untrustable(_)) {
            for setting in &settings {
                layer.remove(setting.key);
            }
        }
        ConfigTrust {
            file: path,
            settings,
            hash,
            state,
            label: file.map_or(String::new(), |file| file.label.clone()),
            store,
        }
    }

    /// One line on the settings that are ignored, if there are any.
    pub fn ignored(&self) -> Option<String> {
        let (TrustState::Untrusted(why) | TrustState::Untrustable(why)) = &self.state else {
            return None;
        };
        let keys: Vec<&str> = self.settings.iter().map(|setting| setting.key).collect();
        Some(format!(
            "{} is not trusted ({why}), so its security keys are ignored: {}; `llmc trust` shows and accepts them",
            self.label,
            keys.join(", ")
        ))
    }

    /// The user's record of trust, or why there is none.
    ///
    /// # Errors
    /// There is no place for it outside the workspace.
    pub fn store(&self) -> io::Result<&TrustStore> {
        self.store
            .as_ref()
            .map_err(|why| io::Error::new(io::ErrorKind::NotFound, why.clone()))
    }

    /// Records that the user trusts the file as it is.
    ///
    /// # Errors
    /// The record cannot be written.
    pub fn record(&self) -> io::Result<()> {
        match &self.file {
            Some(file) => self.store()?.trust(file, &self.hash),
            None => Ok(()),
        }
    }
}

/// Removes the record of the configuration file, which may be broken or gone; its path, and whether there was a record.
///
/// # Errors
/// There is no workspace, or no record outside of it that can be changed.
pub fn revoke_trust(inputs: &ConfigInputs) -> Result<(PathBuf, bool), ConfigError> {
    let root = locate::root(inputs)?;
    let file = canonical_place(&locate::file_path(inputs, &root));
    let revoked = TrustStore::of(inputs, &root)
        .map_err(io::Error::other)
        .and_then(|store| store.revoke(&file));
    match revoked {
        Ok(revoked) => Ok((file, revoked)),
        Err(source) => Err(ConfigError::Unreadable {
            asker: None,
            path: "record of trust".to_owned(),
            source,
        }),
    }
}

fn state(
    inputs: &ConfigInputs,
    root: &Path,
    file: &ConfigFile,
    path: &Path,
    hash: &str,
    store: &Result<TrustStore, String>,
) -> TrustState {
    if file.is_world_writable() {
        return TrustState::Untrustable("every user may write it; chmod o-w".to_owned());
    }
    let real = file.path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let in_workspace = path.starts_with(root) || real.starts_with(root);
    if file.named && !in_workspace {
        return TrustState::Trusted("the user named it, and it lies outside the workspace");
    }
    let given = inputs.env.get(TRUST_ENV).map(|given| given.trim());
    // This pins the content, so it does not matter who owns the file: in a container that is often another user.
    if given.is_some_and(|given| given.eq_ignore_ascii_case(hash)) {
        return TrustState::Trusted("LLMC_TRUST is its hash");
    }
    let user = rustix::process::geteuid().as_raw();
    let folder = path.parent().and_then(|folder| folder.metadata().ok());
    let owners = [
        ("it", Some(file.status.uid())),
        ("its folder", folder.map(|folder| folder.uid())),
    ];
    for (what, owner) in owners {
        match owner {
            Some(owner) if owner == user => {}
            Some(owner) => {
                let why = format!("{what} belongs to another user, uid {owner}");
                return TrustState::Untrustable(why);
            }
            None => return TrustState::Untrustable(format!("{what} cannot be examined")),
        }
    }
    let recorded = match store {
        Ok(store) => store.trusted_hash(path).map_err(|error| error.to_string()),
        Err(why) => Err(why.clone()),
    };
    TrustState::Untrusted(match recorded {
        Ok(Some(recorded)) if recorded == hash => {
            return TrustState::Trusted("accepted with `llmc trust`");
        }
        Err(why) => format!("no record of trust: {why}"),
        Ok(_) if given.is_some_and(|given| !given.is_empty()) => {
            "LLMC_TRUST is the hash of another file".to_owned()
        }
        Ok(Some(_)) => "it has changed since it was accepted".to_owned(),
        Ok(None) => "the user has not accepted it".to_owned(),
    })
}

/// The security keys that a layer sets, in the order of the reference page.
fn security_settings(layer: &Layer) -> Vec<SecuritySetting> {
    let security = all_settings().filter(|key| key.is_security);
    let set = security.filter_map(|key| {
        let value = match layer.lists.get(key.path) {
            Some(rows) => rows_toml(rows),
            None => layer.top.value(key.path)?.to_toml(),
        };
        Some(SecuritySetting {
            key: key.path,
            value,
        })
    });
    set.collect()
}

/// Tables as an array of inline tables.
fn rows_toml(rows: &[SettingMap]) -> String {
    let rows: Vec<String> = rows
        .iter()
        .map(|row| {
            let fields = all_settings().filter_map(|key| {
                let value = row.value(key.path).map(Value::to_toml)?;
                Some(format!("{} = {value}", key.name()))
            });
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        })
        .collect();
    format!("[{}]", rows.join(", "))
}

fn hash(file: &[u8]) -> String {
    let digest: [u8; 32] = Sha256::digest(file).into();
    digest.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
