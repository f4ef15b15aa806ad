//! Fuzz target: layers in any combination are merged in their order or refused in words.

use std::fs;

use llmc_fuzz::{FuzzInput, check};

use crate::{ConfigInputs, LoadedConfig, SettingSource, load};

#[test]
fn layers() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join(".git")).unwrap();
    let file = dir.path().join("llmc.toml");
    check!("layers", |bytes: &[u8]| {
        let mut input = FuzzInput::new(bytes);
        fs::write(&file, input.text().as_bytes()).unwrap();
        let (environment, sets) = (input.text(), input.text());
        let variables = environment.lines().filter_map(|line| line.split_once('='));
        let all = ConfigInputs {
            config_flag: Some(file.clone()),
            root_flag: Some(dir.path().to_owned()),
            env: variables
                .filter(|(name, _)| name.starts_with("LLMC_"))
                .filter(|(name, _)| !matches!(*name, "LLMC_CONFIG" | "LLMC_ROOT"))
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
            sets: sets.lines().map(str::to_owned).collect(),
            cwd: dir.path().to_owned(),
            ..ConfigInputs::default()
        };
        match load(&all) {
            Err(error) => {
                let text = error.to_string();
                assert!(!text.is_empty());
                assert!(
                    !text.contains(|c: char| c.is_control() && c != '\n'),
                    "{text:?}"
                );
            }
            Ok(loaded) => {
                let without_sets = ConfigInputs {
                    sets: Vec::new(),
                    ..all.clone()
                };
                compare(&loaded, load(&without_sets).ok(), |source| {
                    matches!(source, SettingSource::Cli(_))
                });
                let without_env = ConfigInputs {
                    env: Default::default(),
                    ..without_sets
                };
                let is_higher = |source: &SettingSource| {
                    matches!(source, SettingSource::Cli(_) | SettingSource::Env(_))
                };
                compare(&loaded, load(&without_env).ok(), is_higher);
            }
        }
    });
}

/// What a file says stays the same without the layers above, which alone name themselves as sources.
fn compare(
    loaded: &LoadedConfig,
    lower: Option<LoadedConfig>,
    is_higher: impl Fn(&SettingSource) -> bool,
) {
    // Two settings may contradict each other until a higher layer changes one of them.
    let Some(lower) = lower else { return };
    assert!(!lower.entries().iter().any(|entry| is_higher(&entry.source)));
    for entry in loaded.entries() {
        if let SettingSource::File { .. } = entry.source {
            let below = lower.entries().iter().find(|other| other.key == entry.key);
            assert_eq!(
                below.map(|below| below.shown()),
                Some(entry.shown()),
                "{}",
                entry.key
            );
        }
    }
}
