//! Which folder is the workspace, and which files are read.

use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::ConfigError;
use crate::layers::{CONFIG_ENV, CONFIG_HOME_ENV, ROOT_ENV};
use crate::load::ConfigInputs;
use crate::paths::expand_home;
use crate::regular_file::{LinkPolicy, read_regular_file};

const FILE_NAME: &str = "llmc.toml";
/// A configuration is a few pages; what is larger is none.
pub(crate) const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// A configuration file with its text.
#[derive(Debug)]
pub(crate) struct ConfigFile {
    pub(crate) path: PathBuf,
    /// Its name in messages: relative to the current folder where that is shorter.
    pub(crate) label: String,
    pub(crate) text: String,
    /// Status of the file that was read.
    pub(crate) status: Metadata,
    /// Whether the user named it, by `--config` or `LLMC_CONFIG`.
    pub(crate) named: bool,
}

/// The workspace root, canonical: `--root`, else `LLMC_ROOT`, else the nearest folder upwards with `.git` in it, else
/// the current folder.
pub(crate) fn root(inputs: &ConfigInputs) -> Result<PathBuf, ConfigError> {
    let (asker, path) = match (&inputs.root_flag, env_path(inputs, ROOT_ENV)) {
        (Some(flag), _) => (Some("--root"), expand(inputs, flag)),
        (None, Some(path)) => (Some(ROOT_ENV), path),
        (None, None) => (None, repository(&inputs.cwd)),
    };
    let canonical = fs::canonicalize(&path).and_then(|path| {
        if path.is_dir() {
            Ok(path)
        } else {
            Err(ErrorKind::NotADirectory.into())
        }
    });
    canonical.map_err(|source| ConfigError::Unreadable {
        asker,
        path: path.display().to_string(),
        source,
    })
}

/// The configuration file: `--config`, else `LLMC_CONFIG`, else the one in `LLMC_ROOT`, else the one in the root.
///
/// One that was asked for by name has to exist, the others need not.
pub(crate) fn file(inputs: &ConfigInputs, root: &Path) -> Result<Option<ConfigFile>, ConfigError> {
    if let Some((asker, path)) = named_file(inputs) {
        let file = ConfigFile::read(inputs, path.clone(), true)
            .map_err(|source| unreadable(inputs, Some(asker), &path, source))?;
        return Ok(Some(file));
    }
    for path in usual_files(inputs, root) {
        match ConfigFile::read(inputs, path.clone(), false) {
            Ok(file) => return Ok(Some(file)),
            // A link that leads nowhere is a mistake, not an absent file.
            Err(error) if error.kind() == ErrorKind::NotFound && !path.is_symlink() => {}
            Err(error) => return Err(unreadable(inputs, None, &path, error)),
        }
    }
    Ok(None)
}

/// Where the configuration file is or would be, without reading it.
pub(crate) fn file_path(inputs: &ConfigInputs, root: &Path) -> PathBuf {
    if let Some((_, path)) = named_file(inputs) {
        return path;
    }
    let mut usual = usual_files(inputs, root);
    let found = usual.find(|path| path.symlink_metadata().is_ok());
    found.unwrap_or_else(|| root.join(FILE_NAME))
}

/// Where the user's own file is looked for.
pub(crate) fn user_file_path(inputs: &ConfigInputs) -> Option<PathBuf> {
    let folder = inputs.user_folder(CONFIG_HOME_ENV, ".config")?;
    Some(folder.join("llmc/config.toml"))
}

/// The user's own file, if there is one. Only the user may write it.
pub(crate) fn user_file(inputs: &ConfigInputs) -> Result<Option<ConfigFile>, ConfigError> {
    let Some(path) = user_file_path(inputs) else {
        return Ok(None);
    };
    let file = match ConfigFile::read(inputs, path.clone(), false) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound && !path.is_symlink() => return Ok(None),
        Err(error) if error.kind() == ErrorKind::NotADirectory => return Ok(None),
        Err(error) => return Err(unreadable(inputs, None, &path, error)),
    };
    let owner = file.status.uid();
    let refusal = if file.is_world_writable() {
        "every user may write it; chmod o-w makes it yours alone".to_owned()
    } else if owner != 0 && owner != rustix::process::geteuid().as_raw() {
        format!("belongs to another user (uid {owner}); make it yours or remove it")
    } else {
        return Ok(Some(file));
    };
    let refusal = io::Error::new(ErrorKind::PermissionDenied, refusal);
    Err(unreadable(inputs, None, &path, refusal))
}

fn named_file(inputs: &ConfigInputs) -> Option<(&'static str, PathBuf)> {
    match (&inputs.config_flag, env_path(inputs, CONFIG_ENV)) {
        (Some(flag), _) => Some(("--config", expand(inputs, flag))),
        (None, Some(path)) => Some((CONFIG_ENV, path)),
        (None, None) => None,
    }
}

fn usual_files(inputs: &ConfigInputs, root: &Path) -> impl Iterator<Item = PathBuf> {
    let folders = env_path(inputs, ROOT_ENV)
        .into_iter()
        .chain([root.to_owned()]);
    folders.map(|folder| folder.join(FILE_NAME))
}

fn unreadable(
    inputs: &ConfigInputs,
    asker: Option<&'static str>,
    path: &Path,
    source: io::Error,
) -> ConfigError {
    let path = label(inputs, path);
    ConfigError::Unreadable {
        asker,
        path,
        source,
    }
}

impl ConfigFile {
    fn read(inputs: &ConfigInputs, path: PathBuf, named: bool) -> io::Result<Self> {
        let file = read_regular_file(&path, MAX_CONFIG_BYTES, LinkPolicy::Follow)?;
        let status = file.status.clone();
        Ok(Self {
            label: label(inputs, &path),
            text: file.into_text()?,
            path,
            status,
            named,
        })
    }

    pub(crate) fn is_world_writable(&self) -> bool {
        self.status.mode() & 0o002 != 0
    }
}

fn label(inputs: &ConfigInputs, path: &Path) -> String {
    let cwd = fs::canonicalize(&inputs.cwd).unwrap_or_else(|_| inputs.cwd.clone());
    let inside = path
        .strip_prefix(&inputs.cwd)
        .or_else(|_| path.strip_prefix(&cwd));
    inside.unwrap_or(path).display().to_string()
}

fn repository(cwd: &Path) -> PathBuf {
    // The parents of a link are those of its target.
    let cwd = fs::canonicalize(cwd).unwrap_or_else(|_| cwd.to_owned());
    let found = cwd.ancestors().find(|folder| folder.join(".git").exists());
    found.map_or_else(|| cwd.clone(), Path::to_owned)
}

fn env_path(inputs: &ConfigInputs, name: &str) -> Option<PathBuf> {
    let value = inputs.env.get(name).filter(|value| !value.is_empty())?;
    Some(expand(inputs, Path::new(value)))
}

fn expand(inputs: &ConfigInputs, path: &Path) -> PathBuf {
    let expanded = match path.to_str() {
        Some(text) => expand_home(text, inputs.home().as_deref()),
        None => path.to_owned(),
    };
    inputs.cwd.join(expanded)
}
