//! Behaviour as data: what goes in, what comes out.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::{Inputs, Kind, Loaded, load};

mod errors;
mod locating;
mod precedence;
mod registry;
mod rendering;

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
    fn inputs(&self, env: &[(&str, &str)], cli: &[&str]) -> Inputs {
        let mut inputs = Inputs {
            env: env
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect(),
            cwd: self.path().to_owned(),
            ..Inputs::default()
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
    match load(&workspace.inputs(env, cli)) {
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
fn lines(loaded: &Loaded) -> BTreeMap<String, String> {
    let entries = loaded.entries().iter();
    let line = |entry: &crate::Entry| {
        let source = entry.source.describe(loaded.file_label());
        format!("{} = {}  # {source}", entry.key, entry.shown())
    };
    entries
        .map(|entry| (entry.key.clone(), line(entry)))
        .collect()
}

fn loaded(toml: &str, env: &[(&str, &str)], cli: &[&str]) -> Loaded {
    load(&Workspace::new(toml).inputs(env, cli)).unwrap()
}

/// A value other than the default, in TOML syntax.
fn another_value(kind: Kind, current: &str) -> String {
    let other = |values: &[&str]| {
        let quoted: Vec<String> = values.iter().map(|value| format!("\"{value}\"")).collect();
        quoted.iter().find(|value| *value != current).cloned()
    };
    match kind {
        Kind::Bool => (current != "true").to_string(),
        Kind::Int { max, .. } => max.min(4_321).to_string(),
        Kind::Float => "0.125".to_owned(),
        Kind::OneOf(words) => other(words).unwrap_or_else(|| current.to_owned()),
        Kind::Text(crate::Shape::Any | crate::Shape::Name | crate::Shape::Path) => {
            "\"other\"".to_owned()
        }
        Kind::Text(crate::Shape::SearchPath) => "\"/other\"".to_owned(),
        Kind::Text(crate::Shape::Host) => "\"localhost\"".to_owned(),
        Kind::Text(crate::Shape::Header) => "\"X-Other\"".to_owned(),
        Kind::Text(crate::Shape::Env) => "\"OTHER\"".to_owned(),
        Kind::Text(crate::Shape::Route) => "\"/other\"".to_owned(),
        Kind::Text(crate::Shape::Url) => "\"https://other\"".to_owned(),
        Kind::Text(crate::Shape::Model) => "\"openai/other\"".to_owned(),
        Kind::Text(crate::Shape::Sha256) => format!("\"{}\"", "0a".repeat(32)),
        Kind::Texts | Kind::Paths | Kind::Globs => "[\"other\"]".to_owned(),
        Kind::Tables | Kind::Map => unreachable!("their fields are rows of their own"),
    }
}
