//! Which folder is the workspace, and which file is read.
#![allow(
    clippy::disallowed_methods,
    reason = "the configuration is the operator's file, read before there are roots"
)]

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crate::error::ConfigError;
use crate::layers::{CONFIG_ENV, ROOT_ENV};
use crate::load::ConfigInputs;
use crate::paths::expand_home;

const FILE_NAME: &str = "llmc.toml";

/// The configuration file with its text.
#[derive(Debug)]
pub(crate) struct ConfigFile {
    pub(crate) path: PathBuf,
    /// Its name in messages: relative to the current folder where that is shorter.
    pub(crate) label: String,
    pub(crate) text: String,
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
    let named = match (&inputs.config_flag, env_path(inputs, CONFIG_ENV)) {
        (Some(flag), _) => Some(("--config", expand(inputs, flag))),
        (None, Some(path)) => Some((CONFIG_ENV, path)),
        (None, None) => None,
    };
    if let Some((asker, path)) = named {
        let text = fs::read_to_string(&path)
            .map_err(|source| unreadable(inputs, Some(asker), &path, source))?;
        return Ok(Some(ConfigFile::new(inputs, path, text)));
    }
    let folders = env_path(inputs, ROOT_ENV)
        .into_iter()
        .chain([root.to_owned()]);
    for path in folders.map(|folder| folder.join(FILE_NAME)) {
        match fs::read_to_string(&path) {
            Ok(text) => return Ok(Some(ConfigFile::new(inputs, path, text))),
            // A link that leads nowhere is a mistake, not an absent file.
            Err(error) if error.kind() == ErrorKind::NotFound && !path.is_symlink() => {}
            Err(error) => return Err(unreadable(inputs, None, &path, error)),
        }
    }
    Ok(None)
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
    fn new(inputs: &ConfigInputs, path: PathBuf, text: String) -> Self {
        Self {
            label: label(inputs, &path),
            path,
            text,
        }
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
