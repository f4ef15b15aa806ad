//! Tests that loop over every key.

use std::collections::BTreeSet;

use super::{Workspace, another_value, loaded};
use crate::declarations::TABLES;
use crate::load;
use crate::registry::{DefaultValue, SettingDef, all_settings};
use crate::value::{TextShape, ValueKind};

/// Keys set beside the one under test, for the result to be free of contradictions.
pub(super) fn companions(key: &SettingDef) -> &'static [&'static str] {
    match key.path {
        "mcp.server.tls_enabled" => &["mcp.server.tls_cert='c'", "mcp.server.tls_key='k'"],
        "mcp.linux_ops.roots.enforce_roots" => &["mcp.tools.allowed_roots=['/']"],
        "mcp.exec.wait_s" => &["mcp.exec.max_wait_s=86400"],
        "mcp.exec.max_wait_s" => &["mcp.exec.wait_s=1"],
        _ => &[],
    }
}

#[test]
fn every_key_reaches_the_structs() {
    for key in all_settings().filter(|key| is_plain(key)) {
        let beside = companions(key);
        let before = loaded("", &[], beside);
        let current = before
            .entries()
            .iter()
            .find(|entry| entry.key == key.path)
            .unwrap();
        let value = another_value(key.kind, current.shown());
        if value == current.shown() {
            assert_eq!(
                key.path, "mcp.config_version",
                "a key that can only have one value"
            );
            continue;
        }
        let set = format!("{}={value}", key.path);
        let sets: Vec<&str> = beside.iter().copied().chain([set.as_str()]).collect();
        let after = loaded("", &[], &sets);
        assert_ne!(before.config, after.config, "{set} changes nothing");
    }
}

#[test]
fn every_key_can_be_set_by_its_environment_names() {
    for key in all_settings().filter(|key| is_plain(key)) {
        let before = loaded("", &[], &[]);
        let current = before
            .entries()
            .iter()
            .find(|entry| entry.key == key.path)
            .unwrap();
        let value = another_value(key.kind, current.shown());
        let bare = value.trim_matches('"').to_owned();
        let beside = companions(key);
        for name in key
            .env_name()
            .into_iter()
            .chain(key.short_env.map(str::to_owned))
        {
            let after = loaded("", &[(&name, &bare)], beside);
            let entry = after
                .entries()
                .iter()
                .find(|entry| entry.key == key.path)
                .unwrap();
            assert_eq!(entry.source, crate::SettingSource::Env(name.clone()));
            assert_eq!(
                entry.shown(),
                if key.secret { "***" } else { value.as_str() },
                "{name}"
            );
        }
    }
}

#[test]
fn entries_are_the_table() {
    let loaded = loaded("", &[], &[]);
    let shown: Vec<&str> = loaded
        .entries()
        .iter()
        .map(|entry| entry.key.as_str())
        .collect();
    let fields = |key: &&SettingDef| !key.path.contains("[]") && !key.path.contains('*');
    let keys: Vec<&str> = all_settings().filter(fields).map(|key| key.path).collect();
    assert_eq!(shown, keys);
    for (entry, key) in loaded.entries().iter().zip(all_settings().filter(fields)) {
        if let DefaultValue::Fixed(value) = &key.default {
            assert_eq!(entry.shown(), value.to_toml(), "{}", key.path);
        }
    }
}

#[test]
fn paths_are_unique_and_docs_are_short_sentences() {
    let mut paths = BTreeSet::new();
    for table in TABLES.iter() {
        let settings = table.settings.iter();
        let rows = settings.map(|setting| (setting.path, setting.doc));
        for (path, doc) in rows.chain([(table.path, table.doc)]) {
            assert!(doc.ends_with('.') && doc.len() <= 120, "{path}: {doc}");
            assert!(paths.insert(path), "{path} is declared twice");
        }
    }
    for former in all_settings().filter_map(|setting| setting.former_path) {
        assert!(!paths.contains(former), "{former} is a setting of its own");
    }
}

#[test]
fn defaults_and_examples_fit_their_own_bounds() {
    for key in all_settings().filter(|key| !matches!(key.kind, ValueKind::Tables | ValueKind::Map))
    {
        let toml = key.default.example().to_toml().parse().unwrap();
        let accepted = key.kind.accept(&toml_edit::Item::Value(toml));
        assert_eq!(accepted.as_ref(), Ok(key.default.example()), "{}", key.path);
    }
}

#[test]
fn what_sounds_secret_is_masked() {
    for key in all_settings() {
        let sounds = ["token", "key", "secret", "password"]
            .iter()
            .any(|end| key.path.ends_with(end));
        if sounds && matches!(key.kind, ValueKind::Text(_)) {
            assert!(key.secret, "{}", key.path);
        }
        assert_eq!(
            key.secret,
            sounds && matches!(key.kind, ValueKind::Text(_))
                || matches!(
                    key.kind,
                    ValueKind::Text(TextShape::Sha256) | ValueKind::List(TextShape::Variable)
                )
        );
    }
}

#[test]
fn every_key_refuses_a_value_of_another_type() {
    for key in all_settings().filter(|key| is_plain(key)) {
        let workspace = Workspace::new(&format!("{} = 2020-01-01", key.path));
        let error = load(&workspace.inputs(&[], &[])).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("llmc.toml:1: {}: expected ", key.path)),
            "{error}"
        );
    }
}

/// Whether the row is a value of its own rather than a table or a field of several.
pub(super) fn is_plain(key: &SettingDef) -> bool {
    !matches!(key.kind, ValueKind::Tables | ValueKind::Map)
        && !key.path.contains("[]")
        && !key.path.contains('*')
}
