//! The layers above the defaults: the user's file, the workspace's file, the environment, the command line.

use std::collections::BTreeMap;

use toml_edit::{Document, Item, Value as Toml};

use crate::error::ConfigProblem;
use crate::layer_reader::{FileRole, KeyPath, LayerOrigin, LayerReader, line_of};
use crate::merge::{Layer, SettingSource, TableSlot};
use crate::registry::{SettingDef, all_settings, find, is_table, nearest, nearest_env};

/// Names that select what is read and are no keys themselves.
pub(crate) const CONFIG_ENV: &str = "LLMC_CONFIG";
pub(crate) const ROOT_ENV: &str = "LLMC_ROOT";
/// The hash of the file that the user trusts, for CI and containers.
pub(crate) const TRUST_ENV: &str = "LLMC_TRUST";
/// Where the user's own files are.
pub(crate) const CONFIG_HOME_ENV: &str = "XDG_CONFIG_HOME";
pub(crate) const STATE_HOME_ENV: &str = "XDG_STATE_HOME";
/// The token itself. Nothing in this crate reads its value.
pub(crate) const TOKEN_ENV: &str = "LLMC_MCP_TOKEN";

/// The tables that are ours; others in the same file belong to other programs.
const OURS: &[&str] = &["mcp", "rlm"];

/// What a configuration file says.
pub(crate) fn file(
    text: &str,
    label: &str,
    role: FileRole,
    problems: &mut Vec<ConfigProblem>,
) -> Layer {
    let document = match Document::parse(text) {
        Ok(document) => document,
        Err(error) => {
            let line = line_of(text, error.span().map_or(0, |span| span.start));
            let message = format!("broken TOML: {}", error.message().replace('\n', ", "));
            problems.push(ConfigProblem::new(format!("{label}:{line}"), "", message));
            return Layer::default();
        }
    };
    let mut reader = LayerReader::new(LayerOrigin::File { text, label, role });
    for (name, item) in document.iter().filter(|(name, _)| OURS.contains(name)) {
        let span = document.as_table().key(name).and_then(toml_edit::Key::span);
        reader.read(&KeyPath::root(name), item, span);
    }
    problems.append(&mut reader.problems);
    reader.layer
}

/// What the environment says, under long and short names.
pub(crate) fn environment(
    env: &BTreeMap<String, String>,
    problems: &mut Vec<ConfigProblem>,
    warnings: &mut Vec<String>,
) -> Layer {
    let mut layer = Layer::default();
    for (name, value) in env {
        if let Some(at) = long_name(name) {
            match find(&at.path) {
                Some(key) => {
                    let variable = variable(name, value, key, &at, problems);
                    layer = layer.beside(variable, problems);
                }
                None => {
                    let nearest = nearest_env(&at.path);
                    let message = if is_table(&at.path) {
                        format!("names a table; set one of its keys, as {name}__KEY")
                    } else {
                        format!("no such key; did you mean {nearest}?")
                    };
                    problems.push(ConfigProblem::new(name, "", message));
                }
            }
        } else if name.starts_with("LLMC_MCP_") && !is_known_short(name) {
            warnings.push(format!("environment variable {name} sets nothing"));
        }
    }
    for key in all_settings() {
        let Some((name, value)) = key.short_env.and_then(|name| env.get_key_value(name)) else {
            continue;
        };
        let at = KeyPath {
            path: key.path.to_owned(),
            shown: key.path.to_owned(),
            slot: TableSlot::Top,
        };
        let variable = variable(name, value, key, &at, problems);
        layer = layer.beside(variable, problems);
    }
    layer
}

/// What `--set` and the other flags say.
pub(crate) fn command_line(
    sets: &[String],
    flags: &[(String, String)],
    problems: &mut Vec<ConfigProblem>,
) -> Layer {
    let mut layer = Layer::default();
    for set in sets {
        let source = SettingSource::Cli("--set".to_owned());
        let mut reader = LayerReader::new(LayerOrigin::Fixed(source));
        match split_set(set) {
            Some((parts, value)) => one_set(&mut reader, &parts, value),
            None => {
                // What follows the sign may be a secret.
                let key = set.split('=').next().unwrap_or_default().trim();
                reader.problem(
                    "",
                    format!("expected key.path=value, found \"{key}\""),
                    None,
                );
            }
        }
        problems.append(&mut reader.problems);
        layer = layer.under(reader.layer);
    }
    for (path, value) in flags {
        let name = path.rsplit('.').next().unwrap_or(path).replace('_', "-");
        let source = SettingSource::Cli(format!("--{name}"));
        let Some(key) = find(path) else {
            let message = format!("unknown key; did you mean {}?", nearest(path));
            problems.push(ConfigProblem::new(source.to_string(), path, message));
            continue;
        };
        let mut reader = LayerReader::new(LayerOrigin::Fixed(source.clone()));
        bare(&mut reader, &at(path.split('.')), key, value);
        problems.append(&mut reader.problems);
        if let (Some(set), Some(flag)) = (layer.top.value(path), reader.layer.top.value(path))
            && set != flag
        {
            let message = format!(
                "differs from {}, which sets the same key",
                layer.top.source(path)
            );
            problems.push(ConfigProblem::new(source.to_string(), path, message));
        }
        layer = layer.under(reader.layer);
    }
    layer
}

/// The place a long name stands for; `None` when the name is not of that form.
fn long_name(name: &str) -> Option<KeyPath> {
    let rest = name.strip_prefix("LLMC_")?;
    let mut parts = rest.split("__");
    let root = parts.next()?.to_lowercase();
    if !OURS.contains(&root.as_str()) || rest.len() == root.len() {
        return None;
    }
    let mut at = KeyPath::root(&root);
    for part in parts {
        // Names of agents keep their case; everything else is a key, and keys are in lower case.
        let child = at.child(part);
        at = if matches!(child.slot, TableSlot::Agent(_)) && at.slot == TableSlot::Top {
            child
        } else {
            at.child(&part.to_lowercase())
        };
    }
    Some(at)
}

fn is_known_short(name: &str) -> bool {
    name == TOKEN_ENV || all_settings().any(|key| key.short_env == Some(name))
}

fn variable(
    name: &str,
    value: &str,
    key: &SettingDef,
    at: &KeyPath,
    problems: &mut Vec<ConfigProblem>,
) -> Layer {
    let mut reader = LayerReader::new(LayerOrigin::Fixed(SettingSource::Env(name.to_owned())));
    bare(&mut reader, at, key, value);
    problems.append(&mut reader.problems);
    reader.layer
}

/// Reads bare text, which is how the environment and flags carry values.
fn bare(reader: &mut LayerReader<'_>, at: &KeyPath, key: &SettingDef, text: &str) {
    match key.kind.read_bare(text) {
        Ok(value) => reader.read(at, &Item::Value(value), None),
        Err(message) => reader.problem(&at.shown, message, None),
    }
}

fn one_set(reader: &mut LayerReader<'_>, parts: &[String], value: &str) {
    let at = at(parts.iter().map(String::as_str));
    let ours = parts
        .first()
        .is_some_and(|root| OURS.contains(&root.as_str()));
    let key = find(&at.path);
    if !ours || (key.is_none() && !is_table(&at.path)) {
        return reader.unknown(&at, &Item::None, None);
    }
    match (value.parse::<Toml>(), key) {
        (Ok(value), _) => reader.read(&at, &Item::Value(value), None),
        // A word without quotes is what a shell leaves of a quoted one.
        (Err(_), Some(key)) => bare(reader, &at, key, value),
        (Err(error), None) => {
            let message = format!("broken TOML: {}", error.message().replace('\n', ", "));
            reader.problem(&at.shown, message, None);
        }
    }
}

fn at<'a>(mut parts: impl Iterator<Item = &'a str>) -> KeyPath {
    let root = KeyPath::root(parts.next().unwrap_or_default());
    parts.fold(root, |at, part| at.child(part))
}

/// Splits at the first `=` that has a whole TOML key before it: a quoted part may contain one too.
fn split_set(set: &str) -> Option<(Vec<String>, &str)> {
    set.match_indices('=').find_map(|(index, _)| {
        let keys = toml_edit::Key::parse(set[..index].trim()).ok()?;
        let parts = keys.iter().map(|key| key.get().to_owned()).collect();
        Some((parts, set[index + 1..].trim()))
    })
}
