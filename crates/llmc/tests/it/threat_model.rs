//! The threat model and the tests that it names: each control has one, and `scripts/attack` runs them.

use std::path::{Path, PathBuf};

use regex::Regex;

/// The first word of a test that is not in this binary, and its crate.
const CRATES: [(&str, &str); 7] = [
    ("exec", "llmc-exec"),
    ("sandbox", "llmc-sandbox"),
    ("host", "llmc-host"),
    ("config", "llmc-config"),
    ("model", "llmc-model"),
    ("database", "llmc-store"),
    ("stores", "llmc-envelope"),
];

fn repository() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.join("../..").canonicalize().unwrap()
}

fn text_of(path: &str) -> String {
    std::fs::read_to_string(repository().join(path)).unwrap()
}

/// A test, by its name without modules.
struct TestFunction {
    /// Its file, relative to its crate.
    file: PathBuf,
    name: String,
}

impl TestFunction {
    fn is_integration(&self) -> bool {
        self.file.starts_with("tests")
    }

    /// Whether a directory or file on the way to it has this name.
    fn is_in(&self, module: &str) -> bool {
        let mut parts = self.file.components();
        parts.any(|part| Path::new(part.as_os_str()).file_stem() == Some(module.as_ref()))
    }
}

/// The tests of a crate: those with the attribute, and those that a binary with a main of its own adds to its list.
fn tests_of(krate: &str) -> Vec<TestFunction> {
    let declared = Regex::new(
        r#"#\[(?:tokio::)?test\b[^\]]*\]\s+(?:#\[[^\]]*\]\s+)*(?:async )?fn (\w+)|\badd\(\s*"([\w:]+)""#,
    )
    .unwrap();
    let top = repository().join("crates").join(krate);
    let (mut found, mut dirs) = (Vec::new(), vec![top.clone()]);
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let names = declared
                    .captures_iter(&text)
                    .filter_map(|found| found.get(1).or(found.get(2)));
                found.extend(names.map(|name| TestFunction {
                    file: path.strip_prefix(&top).unwrap().to_owned(),
                    name: last_word(name.as_str()).to_owned(),
                }));
            }
        }
    }
    found
}

fn last_word(path: &str) -> &str {
    path.rsplit("::").next().unwrap_or(path)
}

/// Whether `scripts/attack` lists a test, or all of its binary.
fn is_attack(attacks: &str, krate: &str, test: &TestFunction) -> bool {
    attacks.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [package, binary, "*"] => package == krate && test.is_in(binary),
            [package, _, name, ..] => package == krate && last_word(name) == test.name,
            _ => false,
        }
    })
}

#[test]
fn every_control_names_a_test_that_exists_and_is_run_as_an_attack() {
    let page = text_of("docs/security/threat-model.md");
    let attacks = text_of("scripts/attack");
    let reference = Regex::new(r"`(\w+(?:::\w+)+)`").unwrap();
    let (mut controls, mut problems) = (0, Vec::new());
    // The first row of a table names its columns.
    let rows = page.lines().filter(|line| line.starts_with("| "));
    for row in rows.filter(|row| !row.starts_with("| it tries to |")) {
        controls += 1;
        let column = row.trim_end_matches('|').rsplit(" | ").next().unwrap();
        if !reference.is_match(column) {
            problems.push(format!("no test: {row}"));
        }
        for named in reference.captures_iter(column) {
            let (modules, name) = named[1].rsplit_once("::").unwrap();
            let first = modules.split("::").next().unwrap();
            let krate = CRATES.iter().find(|(word, _)| *word == first);
            let krate = krate.map_or("llmc", |(_, krate)| krate);
            let module =
                Some(last_word(modules)).filter(|module| *module != first || krate == "llmc");
            let found = tests_of(krate)
                .into_iter()
                .find(|test| test.name == name && module.is_none_or(|module| test.is_in(module)));
            let Some(test) = found else {
                problems.push(format!("no such test: {}", &named[1]));
                continue;
            };
            // The model client touches nothing of the machine, so that it has no role to play.
            let has_role = test.is_integration() && krate != "llmc-model";
            if has_role && !is_attack(&attacks, krate, &test) {
                problems.push(format!("not in scripts/attack: {}", &named[1]));
            }
        }
    }
    assert!(controls > 25, "only {controls} controls found");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
