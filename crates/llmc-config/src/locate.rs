//! Which folder is the workspace, and which file is read.
#![allow(
    clippy::disallowed_methods,
    reason = "the configuration is the operator's file, read before there are roots"
)]

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::error::Problem;
use crate::layers::{CONFIG_ENV, ROOT_ENV};
use crate::load::Inputs;
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
pub(crate) fn root(inputs: &Inputs) -> Result<PathBuf, Problem> {
    let named = match (&inputs.root_flag, env_path(inputs, ROOT_ENV)) {
        (Some(flag), _) => Some(("--root", expand(inputs, flag))),
        (None, Some(path)) => Some((ROOT_ENV, path)),
        (None, None) => None,
    };
    let (place, path) = named.unwrap_or_else(|| ("", repository(&inputs.cwd)));
    let fault = |what: String| Problem::new(place, "", format!("{}: {what}", path.display()));
    let canonical = fs::canonicalize(&path).map_err(|error| fault(error.to_string()))?;
    if !canonical.is_dir() {
        return Err(fault("not a directory".to_owned()));
    }
    Ok(canonical)
}

/// The configuration file: `--config`, else `LLMC_CONFIG`, else the one in `LLMC_ROOT`, else the one in the root.
///
/// One that was asked for by name has to exist, the others need not.
pub(crate) fn file(inputs: &Inputs, root: &Path) -> Result<Option<ConfigFile>, Problem> {
    let named = match (&inputs.config_flag, env_path(inputs, CONFIG_ENV)) {
        (Some(flag), _) => Some(("--config", expand(inputs, flag))),
        (None, Some(path)) => Some((CONFIG_ENV, path)),
        (None, None) => None,
    };
    if let Some((place, path)) = named {
        return match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(ConfigFile::new(inputs, path, text))),
            Err(error) => Err(Problem::new(
                place,
                "",
                format!("{}: {error}", label(inputs, &path)),
            )),
        };
    }
    let folders = env_path(inputs, ROOT_ENV)
        .into_iter()
        .chain([root.to_owned()]);
    for path in folders.map(|folder| folder.join(FILE_NAME)) {
        match fs::read_to_string(&path) {
            Ok(text) => return Ok(Some(ConfigFile::new(inputs, path, text))),
            // A link that leads nowhere is a mistake, not an absent file.
            Err(error) if error.kind() == ErrorKind::NotFound && !path.is_symlink() => {}
            Err(error) => return Err(Problem::new(label(inputs, &path), "", error.to_string())),
        }
    }
    Ok(None)
}

impl ConfigFile {
    fn new(inputs: &Inputs, path: PathBuf, text: String) -> Self {
        Self {
            label: label(inputs, &path),
            path,
            text,
        }
    }
}

fn label(inputs: &Inputs, path: &Path) -> String {
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

fn env_path(inputs: &Inputs, name: &str) -> Option<PathBuf> {
    let value = inputs.env.get(name).filter(|value| !value.is_empty())?;
    Some(expand(inputs, Path::new(value)))
}

fn expand(inputs: &Inputs, path: &Path) -> PathBuf {
    let expanded = match path.to_str() {
        Some(text) => expand_home(text, inputs.home().as_deref()),
        None => path.to_owned(),
    };
    inputs.cwd.join(expanded)
}
