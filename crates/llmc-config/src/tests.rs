//! Behaviour as data: what goes in, what comes out.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::load::LayerStack;
use crate::value::{TextShape, ValueKind};
use crate::{ConfigError, ConfigInputs, LoadedConfig, SettingEntry, load};

mod errors;
mod locating;
mod precedence;
mod registry;
mod rendering;
mod trust;

/// A workspace with the given configuration file, empty text meaning no file.
struct Workspace {
    dir: tempfile::TempDir,
}

impl Workspace {
    fn new(toml: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(".git")).unwrap();
        if !toml.is_empty() {
            fs::write(dir.path().join("llmc.toml"), toml).unwrap();
        }
        Self { dir }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Flags beside `--set` are written `--key.path=bare text`.
    fn inputs(&self, env: &[(&str, &str)], cli: &[&str]) -> ConfigInputs {
        let mut inputs = ConfigInputs {
            env: env
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect(),
            cwd: self.path().to_owned(),
            ..ConfigInputs::default()
        };
        for arg in cli {
            match arg.strip_prefix("--") {
                Some(flag) => {
                    let (key, value) = flag.split_once('=').unwrap();
                    inputs.flags.push((key.to_owned(), value.to_owned()));
                }
                None => inputs.sets.push((*arg).to_owned()),
            }
        }
        inputs
    }
}

/// Loads, and compares: either the problems, one a line, or `key = value  # source` for each expected line.
fn check(toml: &str, env: &[(&str, &str)], cli: &[&str], expect: &str) {
    let workspace = Workspace::new(toml);
    let expect: Vec<&str> = expect
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    match load_trusted(&workspace.inputs(env, cli)) {
        Err(error) => {
            let error = error.to_string();
            assert_eq!(
                error.lines().collect::<Vec<_>>(),
                expect,
                "\nfor {toml}\n{env:?} {cli:?}"
            );
        }
        Ok(loaded) => {
            let lines = lines(&loaded);
            for line in expect {
                let key = line.split(" = ").next().unwrap();
                let found = lines.get(key).map_or("nothing", String::as_str);
                assert_eq!(found, line, "\nfor {toml}\n{env:?} {cli:?}");
            }
        }
    }
}

/// What took effect, by key, in the form [`check`] expects.
fn lines(loaded: &LoadedConfig) -> BTreeMap<String, String> {
    let entries = loaded.entries().iter();
    let line = |entry: &SettingEntry| {
        let source = entry.source.describe(loaded.file_label());
        format!("{} = {}  # {source}", entry.key, entry.shown())
    };
    entries
        .map(|entry| (entry.key.clone(), line(entry)))
        .collect()
}

fn loaded(toml: &str, env: &[(&str, &str)], cli: &[&str]) -> LoadedConfig {
    load_trusted(&Workspace::new(toml).inputs(env, cli)).unwrap()
}

/// Loads with the file trusted, as `LLMC_TRUST` does it.
fn load_trusted(inputs: &ConfigInputs) -> Result<LoadedConfig, ConfigError> {
    let trust = LayerStack::read(inputs)?.trust;
    let mut inputs = inputs.clone();
    inputs.env.insert("LLMC_TRUST".to_owned(), trust.hash);
    load(&inputs)
}

/// A value other than the default, in TOML syntax.
fn another_value(kind: ValueKind, current: &str) -> String {
    let other = |values: &[&str]| {
        let quoted: Vec<String> = values.iter().map(|value| format!("\"{value}\"")).collect();
        quoted.iter().find(|value| *value != current).cloned()
    };
    match kind {
        ValueKind::Bool => (current != "true").to_string(),
        ValueKind::Int { max, .. } => max.min(4_321).to_string(),
        ValueKind::Float => "0.125".to_owned(),
        ValueKind::OneOf { words, .. } => other(words).unwrap_or_else(|| current.to_owned()),
        ValueKind::Text(shape) => format!("\"{}\"", another_text(shape)),
        ValueKind::List(shape) => format!("[\"{}\"]", another_text(shape)),
        ValueKind::Tables | ValueKind::Map => unreachable!("their fields are rows of their own"),
    }
}

fn another_text(shape: TextShape) -> String {
    match shape {
        TextShape::Any | TextShape::NotEmpty | TextShape::Path | TextShape::Glob => "other",
        TextShape::SearchPath | TextShape::Route => "/other",
        TextShape::Host => "localhost",
        TextShape::HeaderName => "X-Other",
        TextShape::EnvName | TextShape::Variable => "OTHER",
        TextShape::HeaderVariable => "X-Other=OTHER",
        TextShape::UpstreamName => "other",
        TextShape::Url => "https://other",
        TextShape::DatabaseUrl => "postgres://other/database",
        TextShape::TenantName => "other",
        TextShape::ModelName => "openai/other",
        TextShape::Sha256 => return "0a".repeat(32),
    }
    .to_owned()
}
