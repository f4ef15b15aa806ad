//! Tests that loop over every key, for what nobody remembers.

use std::collections::BTreeSet;

use super::{Workspace, another_value, loaded};
use crate::{Initial, KEYS, Key, Kind, SECTIONS, Shape, load};

/// Keys set beside the one under test, for the result to be free of contradictions.
fn companions(key: &Key) -> &'static [&'static str] {
    match key.path {
        "mcp.server.tls_enabled" => &["mcp.server.tls_cert='c'", "mcp.server.tls_key='k'"],
        "mcp.linux_ops.roots.enforce_roots" => &["mcp.tools.allowed_roots=['/']"],
        "mcp.exec.wait_s" => &["mcp.exec.max_wait_s=86400"],
        _ => &[],
    }
}

#[test]
fn every_key_reaches_the_structs() {
    for key in KEYS.iter().filter(|key| is_plain(key)) {
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
    for key in KEYS.iter().filter(|key| is_plain(key)) {
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
            assert_eq!(entry.source, crate::Source::Env(name.clone()));
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
    let fields = |key: &&Key| !key.path.contains("[]") && !key.path.contains('*');
    let keys: Vec<&str> = KEYS.iter().filter(fields).map(|key| key.path).collect();
    assert_eq!(shown, keys);
    for (entry, key) in loaded.entries().iter().zip(KEYS.iter().filter(fields)) {
        if let Initial::Toml(text) = key.initial {
            assert_eq!(entry.shown(), text, "{}", key.path);
        }
    }
}

#[test]
fn rows_are_unique_grouped_and_say_something() {
    let paths: BTreeSet<&str> = KEYS.iter().map(|key| key.path).collect();
    assert_eq!(paths.len(), KEYS.len());
    let mut sections: Vec<&str> = KEYS.iter().map(Key::section).collect();
    sections.dedup();
    let listed: Vec<&str> = SECTIONS.iter().map(|(section, _)| *section).collect();
    assert_eq!(
        sections, listed,
        "keys of a section stand together, in the order of the sections"
    );
    for (path, doc) in KEYS
        .iter()
        .map(|key| (key.path, key.doc))
        .chain(SECTIONS.iter().copied())
    {
        assert!(doc.ends_with('.') && doc.len() <= 120, "{path}: {doc}");
    }
}

#[test]
fn what_sounds_secret_is_masked() {
    for key in KEYS {
        let sounds = ["token", "key", "secret", "password"]
            .iter()
            .any(|end| key.path.ends_with(end));
        if sounds && matches!(key.kind, Kind::Text(_)) {
            assert!(key.secret, "{}", key.path);
        }
        assert_eq!(
            key.secret,
            sounds && matches!(key.kind, Kind::Text(_))
                || matches!(key.kind, Kind::Text(Shape::Sha256))
        );
    }
}

#[test]
fn every_key_refuses_a_value_of_another_type() {
    for key in KEYS.iter().filter(|key| is_plain(key)) {
        let workspace = Workspace::new(&format!("{} = 2020-01-01", key.path));
        let error = load(&workspace.inputs(&[], &[])).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("llmc.toml:1: {}: expected ", key.path)),
            "{error}"
        );
    }
}

/// Whether the row is a value of its own rather than a table or a field of several.
fn is_plain(key: &Key) -> bool {
    !matches!(key.kind, Kind::Tables | Kind::Map)
        && !key.path.contains("[]")
        && !key.path.contains('*')
}
