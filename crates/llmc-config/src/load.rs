//! From what the process was given to a checked configuration.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use crate::check;
use crate::config::{Config, TokenProof, UpstreamConfig};
use crate::error::{ConfigError, ConfigProblem};
use crate::layer_reader::FileRole;
use crate::layers;
use crate::locate::{self, ConfigFile};
use crate::merge::{Layer, MergedSettings, SettingEntry};
use crate::paths::{canonical_place, expand_home};
use crate::state_place::state_place;
use crate::trust::ConfigTrust;
use crate::trust_store::TrustStore;

/// Everything a configuration is made from; nothing else is looked at.
///
/// There is no `Debug`: the environment may hold tokens.
#[derive(Clone, Default)]
pub struct ConfigInputs {
    /// `--config FILE`.
    pub config_flag: Option<PathBuf>,
    /// `--root DIR`.
    pub root_flag: Option<PathBuf>,
    /// Each `--set key.path=value`: TOML, or a bare word where text is expected. Of two for one key the later holds.
    pub sets: Vec<String>,
    /// Other flags by the key they set, with their bare text: `("mcp.mode", "te")` for `--mode te`.
    pub flags: Vec<(String, String)>,
    /// The environment. `LLMC_*`, `HOME`, `XDG_CONFIG_HOME` and `XDG_STATE_HOME` are read.
    pub env: BTreeMap<String, String>,
    /// The current folder, absolute.
    pub cwd: PathBuf,
}

/// A configuration with where it came from.
#[derive(Debug, Clone)]
pub struct LoadedConfig {
    /// The values.
    pub config: Config,
    /// The workspace root, canonical.
    pub root: PathBuf,
    /// The file that was read, beside the user's own.
    pub file: Option<PathBuf>,
    /// The security keys of that file, and whether they count.
    pub trust: ConfigTrust,
    /// What is allowed but likely not meant, one sentence each.
    pub warnings: Vec<String>,
    entries: Vec<SettingEntry>,
    label: String,
    home: Option<PathBuf>,
    user_file: Option<PathBuf>,
    /// As it was when the configuration was read: a repository that is made later does not move it.
    state_place: PathBuf,
}

/// The workspace root, canonical, without reading its configuration: for verbs that must work when that is broken.
pub fn workspace_root(inputs: &ConfigInputs) -> Result<PathBuf, ConfigError> {
    locate::root(inputs)
}

/// Finds the workspace and the files, merges all layers, and checks the result.
pub fn load(inputs: &ConfigInputs) -> Result<LoadedConfig, ConfigError> {
    let LayerStack {
        root,
        file,
        layer,
        trust,
        mut warnings,
    } = LayerStack::read(inputs)?;
    let label = file.as_ref().map_or("", |file| file.label.as_str());
    let mut settings = MergedSettings::new(layer);
    check::apply_rules(&mut settings, file.is_some());
    fail_on(check::contradictions(&settings, label))?;

    let config = Config::from_settings(&settings);
    // A token may live in a variable that looks like one of ours.
    warnings.retain(|warning| !token_variables(&config).any(|name| names(warning, name)));
    warnings.extend(trust.ignored());
    warnings.extend(check::warnings(&config));
    Ok(LoadedConfig {
        state_place: state_place(&root),
        config,
        root,
        warnings,
        entries: settings.entries(),
        label: label.to_owned(),
        file: file.map(|file| file.path),
        trust,
        home: inputs.home(),
        user_file: locate::user_file_path(inputs),
    })
}

/// The layers above the defaults as one, without what is not trusted.
pub(crate) struct LayerStack {
    root: PathBuf,
    file: Option<ConfigFile>,
    layer: Layer,
    pub(crate) trust: ConfigTrust,
    warnings: Vec<String>,
}

impl LayerStack {
    pub(crate) fn read(inputs: &ConfigInputs) -> Result<Self, ConfigError> {
        let root = workspace_root(inputs)?;
        let user = locate::user_file(inputs)?;
        let file = locate::file(inputs, &root)?;
        let mut problems = Vec::new();
        let mut warnings = Vec::new();
        let mut read = |file: Option<&ConfigFile>, role| match file {
            Some(file) => layers::file(&file.text, &file.label, role, &mut problems),
            None => Layer::default(),
        };
        let from_user = read(user.as_ref(), FileRole::User);
        let mut from_file = read(file.as_ref(), FileRole::Workspace);
        let from_env = layers::environment(&inputs.env, &mut problems, &mut warnings);
        let from_cli = layers::command_line(&inputs.sets, &inputs.flags, &mut problems);
        fail_on(problems)?;

        let trust = ConfigTrust::settle(inputs, &root, file.as_ref(), &mut from_file);
        Ok(Self {
            root,
            file,
            layer: from_user.under(from_file).under(from_env).under(from_cli),
            trust,
            warnings,
        })
    }
}

impl ConfigInputs {
    /// No flags, with the environment and current folder of this process.
    ///
    /// Only what configuration reads is taken from the environment, which leaves the token out. One of our variables
    /// that is not UTF-8 is an error: it was meant to say something.
    pub fn from_process() -> io::Result<Self> {
        Ok(Self {
            env: text_variables(std::env::vars_os())?,
            cwd: std::env::current_dir()?,
            ..Self::default()
        })
    }

    pub(crate) fn home(&self) -> Option<PathBuf> {
        let home = self.env.get("HOME").filter(|home| home.starts_with('/'))?;
        Some(PathBuf::from(home))
    }

    /// A folder for the user's own files: what the variable names, else the usual one in the home directory.
    pub(crate) fn user_folder(&self, variable: &str, usual: &str) -> Option<PathBuf> {
        let named = self.env.get(variable).filter(|dir| dir.starts_with('/'));
        let usual = || self.home().map(|home| home.join(usual));
        named.map(PathBuf::from).or_else(usual)
    }
}

impl LoadedConfig {
    /// Every key with its value, secrets masked, and its source, in the order of the reference page.
    pub fn entries(&self) -> &[SettingEntry] {
        &self.entries
    }

    /// The name of the configuration file in messages, empty when there is none.
    pub fn file_label(&self) -> &str {
        &self.label
    }

    /// A path from the configuration: `~` is the home directory, relative ones start at the workspace root.
    pub fn resolve(&self, path: &str) -> PathBuf {
        let joined = self.root.join(expand_home(path, self.home.as_deref()));
        // `.` and a leading `./` are how people write the root; they would only clutter what is printed.
        joined.components().collect()
    }

    /// Where state is kept: in the workspace's git directory, in `.llmc` of one without git, or in `mcp.docker.data_volume`.
    pub fn state_dir(&self) -> PathBuf {
        match &self.config.mcp.docker.data_volume {
            Some(volume) => self.resolve(volume),
            None => self.state_place.clone(),
        }
    }

    /// The roots of all tools, absolute; links in them are not followed here.
    pub fn roots(&self) -> Vec<PathBuf> {
        self.resolve_all(&self.config.mcp.tools.allowed_roots)
    }

    /// The roots of `linux_*` tools: their own, or else those of all tools.
    pub fn linux_roots(&self) -> Vec<PathBuf> {
        self.resolve_all(self.config.mcp.linux_roots())
    }

    /// The file of the token audit.
    pub fn csv_path(&self) -> PathBuf {
        self.resolve(&self.config.mcp.observability.csv_path)
    }

    /// The user's own files that decide over this workspace, as far as agents could reach them: inside the workspace, a root
    /// or what commands may write beside them. They need not exist.
    pub fn reachable_user_files(&self) -> Vec<PathBuf> {
        let mut roots = self.roots();
        roots.extend(self.linux_roots());
        roots.extend(self.resolve_all(&self.config.mcp.exec.extra_write));
        let roots: Vec<PathBuf> = roots.iter().map(|root| canonical_place(root)).collect();
        let record = self.trust.store().ok().map(TrustStore::path);
        let upstreams = self.config.mcp.upstream.iter();
        let pins = upstreams.filter_map(|upstream| self.pin_file(upstream).ok());
        let files = self.user_file.as_deref().into_iter().chain(record);
        let files = files.map(Path::to_owned).chain(pins);
        let reachable = files.filter(|file| {
            let place = canonical_place(file);
            place.starts_with(&self.root) || roots.iter().any(|root| place.starts_with(root))
        });
        reachable.collect()
    }

    /// Where the tools are recorded that the user has accepted of an upstream: outside every workspace, beside the record
    /// of trust. A changed command or address has another file.
    ///
    /// # Errors
    /// There is no place for it outside the workspace.
    pub fn pin_file(&self, upstream: &UpstreamConfig) -> io::Result<PathBuf> {
        let record = self.trust.store()?.path();
        let name = format!("{}-{}.json", upstream.name, upstream.identity());
        Ok(record.with_file_name("upstream").join(name))
    }

    /// The user's own file; it need not exist.
    pub fn user_file(&self) -> Option<&Path> {
        self.user_file.as_deref()
    }

    /// The home directory the configuration was read with.
    pub fn home(&self) -> Option<&Path> {
        self.home.as_deref()
    }

    fn resolve_all(&self, paths: &[String]) -> Vec<PathBuf> {
        paths.iter().map(|path| self.resolve(path)).collect()
    }
}

fn text_variables(
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> io::Result<BTreeMap<String, String>> {
    let mut text = BTreeMap::new();
    for (name, value) in variables {
        let Some(name) = name.to_str() else { continue };
        let folders = ["HOME", layers::CONFIG_HOME_ENV, layers::STATE_HOME_ENV];
        let ours = name.starts_with("LLMC_") || folders.contains(&name);
        if !ours || name == layers::TOKEN_ENV {
            continue;
        }
        let value = value.into_string().map_err(|_| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{name}: the value is not UTF-8"),
            )
        })?;
        text.insert(name.to_owned(), value);
    }
    Ok(text)
}

fn fail_on(problems: Vec<ConfigProblem>) -> Result<(), ConfigError> {
    if problems.is_empty() {
        Ok(())
    } else {
        Err(ConfigError::Invalid(problems))
    }
}

fn token_variables(config: &Config) -> impl Iterator<Item = &str> {
    let auth = &config.mcp.auth;
    let named = auth.tokens.iter().filter_map(|token| match &token.proof {
        TokenProof::Env(name) => Some(name.as_str()),
        TokenProof::Sha256(_) => None,
    });
    named.chain([auth.token_env.as_str()])
}

fn names(warning: &str, variable: &str) -> bool {
    warning.split_whitespace().any(|word| word == variable)
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    #[test]
    fn only_our_variables_are_taken_and_never_the_token() {
        let variable = |name: &str, value: &[u8]| (name.into(), OsString::from_vec(value.to_vec()));
        let good = [
            variable("LLMC_MCP_MODE", b"te"),
            variable("LLMC_MCP_TOKEN", b"secret"),
            variable("HOME", b"/home/ann"),
            variable("PATH", b"\xff"),
        ];
        let taken = text_variables(good.into_iter()).unwrap();
        assert_eq!(taken.keys().collect::<Vec<_>>(), ["HOME", "LLMC_MCP_MODE"]);
        let bad = [variable("LLMC_MCP_MODE", b"\xff")];
        let error = text_variables(bad.into_iter()).unwrap_err();
        assert_eq!(error.to_string(), "LLMC_MCP_MODE: the value is not UTF-8");
    }
}
