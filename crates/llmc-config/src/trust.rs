//! What of the workspace's file is obeyed.
//!
//! `llmc.toml` comes with the repository, so it is not the user's word. Its values count as far as they are not less
//! strict than what would hold without them; the others count only when the user has accepted exactly these values of
//! exactly this file. What was accepted is a hash of keys and values, recorded outside the workspace by `llmc trust`, or
//! given in `LLMC_TRUST`. A value that is not accepted is left out before the layers are merged, so that the next lower
//! layer holds.

use std::fmt::Write;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::check;
use crate::error::ConfigError;
use crate::layers::TRUST_ENV;
use crate::load::ConfigInputs;
use crate::locate::{self, ConfigFile};
use crate::merge::{Layer, MergedSettings, SettingMap};
use crate::paths::{canonical_place, expand_home};
use crate::registry::all_settings;
use crate::trust_store::TrustStore;
use crate::value::Value;

const ROOTS: &str = "mcp.tools.allowed_roots";
const LINUX_ROOTS: &str = "mcp.linux_ops.roots.allowed_roots";

/// A value of the workspace's file that is less strict than what holds without it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WideningSetting {
    pub key: &'static str,
    /// In TOML syntax, credentials in URLs masked.
    pub value: String,
    /// What holds when the file is not trusted, in the same form; `None` for nothing.
    pub otherwise: Option<String>,
    exact: String,
}

/// Whether the less strict values of the configuration file count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrustState {
    /// There are none.
    NotNeeded,
    /// They count; why, in words.
    Trusted(&'static str),
    /// They are ignored until the user accepts them; why, in words.
    Untrusted(String),
    /// They are ignored and cannot be accepted while other users control the file; why, in words.
    Untrustable(String),
}

/// What the configuration file asks for beyond the layers below it, and whether it gets that.
#[derive(Debug, Clone)]
pub struct ConfigTrust {
    /// The path under which trust is recorded; `None` without a file.
    pub file: Option<PathBuf>,
    /// In the order of the reference page.
    pub settings: Vec<WideningSetting>,
    /// Of keys and values, in hexadecimal: what `llmc trust` records and `LLMC_TRUST` names.
    pub hash: String,
    pub state: TrustState,
    label: String,
    store: Result<TrustStore, String>,
}

impl ConfigTrust {
    /// One line on the settings that are ignored, if there are any.
    pub fn ignored(&self) -> Option<String> {
        let (TrustState::Untrusted(why) | TrustState::Untrustable(why)) = &self.state else {
            return None;
        };
        let keys: Vec<&str> = self.settings.iter().map(|setting| setting.key).collect();
        Some(format!(
            "{} is not trusted ({why}), so its less strict settings are ignored: {}; `llmc trust` shows and accepts them",
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

    /// Records that the user accepts these values of this file.
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
/// No workspace, or a record that cannot be read or written.
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

/// The layers around the file's own, and where it is.
pub(crate) struct TrustQuestion<'a> {
    pub(crate) inputs: &'a ConfigInputs,
    pub(crate) root: &'a Path,
    pub(crate) file: Option<&'a ConfigFile>,
    /// The layer below.
    pub(crate) user: &'a Layer,
    /// The layers above, merged.
    pub(crate) higher: &'a Layer,
}

impl TrustQuestion<'_> {
    /// Decides, and removes from the file's layer what does not count.
    pub(crate) fn settle(&self, layer: &mut Layer) -> ConfigTrust {
        let settings = self.widening_settings(layer);
        let hash = hash(&settings);
        let store = TrustStore::of(self.inputs, self.root);
        let path = self.file.map(|file| canonical_place(&file.path));
        let state = match (self.file, &path) {
            (Some(file), Some(path)) if !settings.is_empty() => {
                self.state(file, path, &hash, &store)
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
            label: self.file.map_or(String::new(), |file| file.label.clone()),
            store,
        }
    }

    fn state(
        &self,
        file: &ConfigFile,
        path: &Path,
        hash: &str,
        store: &Result<TrustStore, String>,
    ) -> TrustState {
        if file.is_world_writable() {
            return TrustState::Untrustable("every user may write it; chmod o-w".to_owned());
        }
        let real = file.path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let in_workspace = path.starts_with(self.root) || real.starts_with(self.root);
        if file.named && !in_workspace {
            return TrustState::Trusted("the user named it, and it lies outside the workspace");
        }
        let given = self.inputs.env.get(TRUST_ENV).map(|given| given.trim());
        // This pins the values, so it does not matter who owns the file: in a container that is often another user.
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
                "LLMC_TRUST is the hash of other values".to_owned()
            }
            Ok(Some(_)) => "its values have changed since they were accepted".to_owned(),
            Ok(None) => "the user has not accepted it".to_owned(),
        })
    }

    fn widening_settings(&self, layer: &Layer) -> Vec<WideningSetting> {
        let lies_inside = |folder: &str, others: &[String]| {
            let place = |folder: &str| {
                let home = self.inputs.home();
                canonical_place(&self.root.join(expand_home(folder, home.as_deref())))
            };
            let folder = place(folder);
            others.iter().any(|other| folder.starts_with(place(other)))
        };
        let mut found = Vec::new();
        for key in all_settings() {
            if let Some(rows) = layer.lists.get(key.path) {
                let exact = rows_toml(rows, Value::exact_toml);
                let lower = self.user.lists.get(key.path);
                if exact != lower.map_or("[]".to_owned(), |rows| rows_toml(rows, Value::exact_toml))
                {
                    found.push(WideningSetting {
                        key: key.path,
                        value: rows_toml(rows, Value::to_toml),
                        otherwise: lower.map(|rows| rows_toml(rows, Value::to_toml)),
                        exact,
                    });
                }
                continue;
            }
            let Some(value) = layer.top.value(key.path) else {
                continue;
            };
            let without = self.without_file(key.path);
            let lower = match without.top.value(key.path) {
                // Unset, they are the roots of all tools.
                None if key.path == LINUX_ROOTS => without.top.value(ROOTS),
                lower => lower,
            };
            if key.widening.is_less_strict(value, lower, &lies_inside) {
                found.push(WideningSetting {
                    key: key.path,
                    value: value.to_toml(),
                    otherwise: lower.map(Value::to_toml),
                    exact: value.exact_toml(),
                });
            }
        }
        found
    }

    /// What would hold without the file. The key's own value in the layers above is left out, for the answer not to
    /// depend on it; other values there count, because defaults follow from them.
    fn without_file(&self, key: &str) -> MergedSettings {
        let mut higher = self.higher.clone();
        higher.remove(key);
        let mut settings = MergedSettings::new(self.user.clone().under(higher));
        check::apply_rules(&mut settings, false);
        settings
    }
}

/// Tables as an array of inline tables.
fn rows_toml(rows: &[SettingMap], show: impl Fn(&Value) -> String) -> String {
    let rows: Vec<String> = rows
        .iter()
        .map(|row| {
            let fields = all_settings().filter_map(|key| {
                let value = row.value(key.path)?;
                Some(format!("{} = {}", key.name(), show(value)))
            });
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        })
        .collect();
    format!("[{}]", rows.join(", "))
}

/// The hash that stands for these keys and values. Lengths keep one value from passing for several.
fn hash(settings: &[WideningSetting]) -> String {
    let mut digest = Sha256::new();
    digest.update(b"llmc trust 1\n");
    for setting in settings {
        for part in [setting.key, &setting.exact] {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part.as_bytes());
        }
    }
    let digest: [u8; 32] = digest.finalize().into();
    digest.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
