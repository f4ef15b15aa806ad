//! Names and words across the workspace: one public type name, one meaning; no words that an engineer would not search for.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use regex::Regex;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// Every source file of every crate: crate name, path and text.
fn sources() -> Vec<(String, PathBuf, String)> {
    let mut found = Vec::new();
    for krate in std::fs::read_dir(repository().join("crates")).unwrap() {
        let krate = krate.unwrap();
        let name = krate.file_name().to_string_lossy().into_owned();
        let mut dirs = vec![krate.path().join("src")];
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    dirs.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs")
                    && !path.ends_with("tests.rs")
                {
                    let text = std::fs::read_to_string(&path).unwrap();
                    found.push((name.clone(), path, text));
                }
            }
        }
    }
    assert!(found.len() > 300, "only {} source files found", found.len());
    found
}

#[test]
fn a_public_type_name_exists_in_one_crate_only() {
    let declaration = Regex::new(r"(?m)^\s*pub (?:struct|enum|trait|type) ([A-Za-z0-9]+)").unwrap();
    let mut crates: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (krate, _, text) in sources() {
        for found in declaration.captures_iter(&text) {
            crates
                .entry(found[1].to_owned())
                .or_default()
                .insert(krate.clone());
        }
    }
    let twice: Vec<_> = crates
        .iter()
        .filter(|(name, crates)| crates.len() > 1 && !matches!(name.as_str(), "Error" | "Result"))
        .collect();
    assert!(
        twice.is_empty(),
        "public type names in more than one crate: {twice:#?}"
    );
}

#[test]
fn constants_name_their_subject() {
    let vague =
        Regex::new(r"\bconst (PATIENCE|MOST|LONGEST|ENOUGH|LARGEST|DEEPEST|AT_ONCE|KEPT|BEHIND)\b")
            .unwrap();
    let found: Vec<String> = sources()
        .iter()
        .filter_map(|(_, path, text)| {
            let name = vague.find(text)?.as_str();
            Some(format!("{}: {name}", path.display()))
        })
        .collect();
    assert!(
        found.is_empty(),
        "constants that name no subject and unit: {found:#?}"
    );
}

/// Words that hide the actor or stand for a technical term; STYLE.md, "Words", has the replacements.
const VAGUE_WORDS: &str = r"(?i)\b(whoever|somebody|anybody|without a word|in peace|changes its mind|let go of|sees to it|is told|are told|be told|the rest of it|nobody (else|is|has|can|may|reads|waits|knows))\b";

#[test]
fn comments_messages_and_pages_name_the_actor() {
    let vague = Regex::new(VAGUE_WORDS).unwrap();
    let mut texts: Vec<(PathBuf, String)> = sources()
        .into_iter()
        .map(|(_, path, text)| (path, text))
        .collect();
    let mut dirs = vec![repository().join("docs")];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                let text = std::fs::read_to_string(&path).unwrap();
                texts.push((path, text));
            }
        }
    }
    let found: Vec<String> = texts
        .iter()
        .flat_map(|(path, text)| {
            let lines = text.lines().enumerate();
            let vague = lines.filter(|(_, line)| vague.is_match(line));
            vague.map(move |(at, line)| format!("{}:{}: {line}", path.display(), at + 1))
        })
        .collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}
