//! The written pages against the program and the measurements: settings and error codes exist, figures are those of the
//! benchmarks, sentences are plain.

use std::collections::BTreeSet;
use std::process::Command;

use crate::guides::{pages, repository};

fn page(name: &str) -> String {
    std::fs::read_to_string(repository().join(name)).unwrap()
}

/// Runs a script of the repository; what it printed if it succeeded.
fn script(name: &str, arguments: &[&str]) -> String {
    let ended = Command::new("python3")
        .arg(repository().join("scripts").join(name))
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("python3 is needed: {error}"));
    let printed = String::from_utf8_lossy(&ended.stdout);
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{name}:\n{printed}{errors}");
    printed.into_owned()
}

#[test]
fn what_people_read_is_plain() {
    script("readability", &["self-test"]);
    let printed = script("readability", &[]);
    assert!(printed.ends_with(": 0 problems\n"), "{printed}");
}

#[test]
fn figures_are_those_of_the_benchmarks() {
    script("readme-numbers", &["--check"]);
}

/// The words in code font, outside of fenced blocks.
fn code_words(text: &str) -> Vec<&str> {
    let mut fenced = false;
    let prose = text.lines().filter(|line| {
        fenced ^= line.trim_start().starts_with("```");
        !fenced
    });
    prose
        .flat_map(|line| line.split('`').skip(1).step_by(2))
        .collect()
}

#[test]
fn every_setting_that_a_page_names_exists() {
    let reference = page("docs/config.md");
    let mut known = BTreeSet::new();
    let mut table = String::new();
    for line in reference.lines() {
        if let Some(heading) = line.strip_prefix("## `[") {
            table = heading.trim_end_matches(['`', ']']).replace('[', "");
            known.insert(table.trim_end_matches(".\"ID\"").to_owned());
        } else if let Some((key, _)) = line.strip_prefix("| `").and_then(|l| l.split_once('`')) {
            known.insert(format!("{table}.{key}"));
        }
    }
    assert!(known.contains("mcp.exec.profile"), "{known:?}");
    let mut wrong = Vec::new();
    let mut count = 0;
    for (name, text) in pages() {
        // The reference also has names of earlier versions, the list of tools has a tool of that form, and the changelog the past.
        if ["docs/config.md", "docs/tools.md", "CHANGELOG.md"].contains(&name.as_str()) {
            continue;
        }
        for word in code_words(&text) {
            let end = word.find(|c: char| !(c.is_ascii_alphanumeric() || "_.*".contains(c)));
            let key = &word[..end.unwrap_or(word.len())];
            if !key.starts_with("mcp.") && !key.starts_with("rlm.") || key.ends_with('*') {
                continue;
            }
            count += 1;
            if !known.contains(key) {
                wrong.push(format!("{name}: {key}"));
            }
        }
    }
    assert!(count > 50, "only {count} settings were found");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_error_code_has_a_remedy() {
    let errors = page("docs/errors.md");
    let troubleshooting = page("docs/troubleshooting.md");
    let explained: BTreeSet<&str> = troubleshooting
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" | ").next())
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .collect();
    let table = errors.split("## Cause and remedy").next().unwrap();
    let codes: BTreeSet<&str> = table
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| kind "))
        .flat_map(|line| line.split('`').skip(1).step_by(2))
        .collect();
    assert!(codes.len() > 40, "{codes:?}");
    let missing: Vec<_> = codes.difference(&explained).collect();
    assert!(
        missing.is_empty(),
        "not in docs/troubleshooting.md: {missing:?}"
    );
}

#[test]
fn the_clients_that_were_run_are_listed_with_their_versions() {
    let listed = page("docs/clients.md");
    let mut count = 0;
    for line in page("scripts/clients-test").lines() {
        let Some((name, value)) = line.split_once('=') else {
            continue;
        };
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_uppercase() || c == '_') {
            continue;
        }
        // The first package of each; the others are what it needs.
        let package = value.trim_matches(['(', ')']).split_whitespace().next();
        let package = package.unwrap_or_default().trim_matches('"');
        let Some((_, version)) = package.rsplit_once(['@', '=']) else {
            continue;
        };
        assert!(
            listed.contains(&format!("| {version} |")),
            "docs/clients.md has no row with {package}"
        );
        count += 1;
    }
    assert!(count >= 10, "only {count} clients were found");
}
