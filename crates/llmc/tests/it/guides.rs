//! The written pages: requirements have proofs, links lead somewhere, examples are what the program does.
//!
//! A fenced block under `<!-- run -->` is run in the sample project below. In a `console` block the `$` lines are run one after
//! the other and what they print is compared, `…` standing for anything, alone on a line for any number of lines. An `sh` block
//! is a script that must succeed. A block under `<!-- check -->` is a configuration that has to be valid.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use llmc_testkit::{ModelAction, ModelServer, ProcessOutput, TestProcess, TestWorkspace, skip};

use crate::workspace;

/// The mark of pages whose examples need every kind of confinement that there is.
const NEEDS_CONFINEMENT: &str = "<!-- needs: full confinement -->";
/// The mark of pages whose examples ask Ollama. A scripted server takes its place.
const NEEDS_MODEL: &str = "<!-- needs: a local model -->";

pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// Every page, by its path from the repository's root.
pub(crate) fn pages() -> Vec<(String, String)> {
    let root = repository();
    let mut found: Vec<PathBuf> = std::fs::read_dir(&root)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    for folder in ["docs", "docs/guide", "docs/security", "docs/decisions"] {
        let entries = std::fs::read_dir(root.join(folder)).unwrap();
        found.extend(entries.map(|entry| entry.unwrap().path()));
    }
    found.retain(|path| path.extension().is_some_and(|kind| kind == "md"));
    found.sort();
    let name = |path: &Path| path.strip_prefix(&root).unwrap().display().to_string();
    found
        .iter()
        .map(|path| (name(path), std::fs::read_to_string(path).unwrap()))
        .collect()
}

/// A small shop in which one function is used everywhere.
fn sample() -> TestWorkspace {
    let workspace = workspace(
        r#"//- shop/store.py
"""Where orders are kept."""


class Store:
    """An open store."""

    def __init__(self, path):
        self.path = path


def open_store(path, read_only=False):
    """Opens the store at a path; raises FileNotFoundError without one."""
    return Store(path)
//- README.md
# Shop

Call `open_store` first.
"#,
    );
    let parts = [
        "orders",
        "prices",
        "stock",
        "invoices",
        "customers",
        "returns",
        "shipping",
        "reports",
        "taxes",
        "coupons",
    ];
    for part in parts {
        let uses = if part == "orders" { 9 } else { 4 };
        let mut text = format!("\"\"\"The {part}.\"\"\"\n\nfrom shop.store import open_store\n");
        for number in 0..uses {
            text.push_str(&format!(
                "\n\ndef {part}_{number}(path):\n    store = open_store(path)\n    return store.path\n"
            ));
        }
        workspace.write(format!("shop/{part}.py"), text);
        workspace.write(
            format!("tests/test_{part}.py"),
            format!("from shop.store import open_store\n\n\ndef test_{part}():\n    assert open_store(\"x\").path == \"x\"\n"),
        );
    }
    workspace
}

#[test]
fn every_requirement_has_a_proof_that_exists() {
    let page = std::fs::read_to_string(repository().join("docs/requirements.md")).unwrap();
    let rows: Vec<Vec<&str>> = page
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| id |"))
        .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect();
    let ids: BTreeSet<&str> = rows.iter().map(|row| row[0]).collect();
    for row in &rows {
        let [id, _, proof] = row[..] else {
            panic!("not three cells: {row:?}");
        };
        if id.starts_with("D-") {
            continue;
        }
        let mut proven = proof.contains("**open**") || proof.contains("](");
        for quoted in proof.split('`').skip(1).step_by(2) {
            if let Some((file, test)) = quoted.split_once("::") {
                let text = std::fs::read_to_string(repository().join("crates").join(file))
                    .unwrap_or_else(|error| panic!("{id}: {file}: {error}"));
                assert!(
                    text.contains(&format!("fn {test}(")),
                    "{id}: {file} has no test {test}"
                );
                proven = true;
            } else if quoted.starts_with("scripts/") || quoted.starts_with("bench/") {
                assert!(repository().join(quoted).exists(), "{id}: no {quoted}");
                proven = true;
            }
        }
        for word in proof.split([' ', ',', ';', '(', ')']) {
            let reference = word.trim_end_matches(':');
            if reference.starts_with("D-") {
                assert!(ids.contains(reference), "{id}: no decision {reference}");
            }
            proven |= ids.contains(reference);
        }
        assert!(proven, "{id} has no proof: {proof}");
    }
    let numbered =
        |letters: &'static str, last: u32| (1..=last).map(move |n| format!("{letters}{n}"));
    let expected = numbered("FR-", 7)
        .chain(numbered("NFR-", 6))
        .chain(numbered("M5-", 10))
        .chain(numbered("S0-A", 6))
        .chain(numbered("R", 16))
        .chain(numbered("7.1-", 6))
        .chain(numbered("S2-A", 7))
        .chain(numbered("S3-A", 5))
        .chain(numbered("4-", 5))
        .chain(numbered("S4-A", 4));
    for id in expected {
        assert!(ids.contains(id.as_str()), "{id} is missing");
    }
}

#[test]
fn every_link_leads_somewhere() {
    let pages = pages();
    let mut wrong = Vec::new();
    for (name, text) in &pages {
        for target in links(text) {
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let folder = Path::new(name).parent().unwrap();
            let reached = if path.is_empty() {
                repository().join(name)
            } else {
                repository().join(folder).join(path)
            };
            let headings = std::fs::read_to_string(&reached).unwrap_or_default();
            // The book is made of docs/ alone: a link out of it is broken there.
            let leaves_the_book = name.starts_with("docs/")
                && reached
                    .canonicalize()
                    .is_ok_and(|reached| !reached.starts_with(repository().join("docs")));
            if leaves_the_book
                || !reached.exists()
                || (!anchor.is_empty() && !headings.lines().any(|line| slug(line) == anchor))
            {
                wrong.push(format!("{name}: {target}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The targets of links and pictures that lie in the repository.
fn links(text: &str) -> Vec<&str> {
    let mut code = false;
    let prose = text.lines().filter(|line| {
        code ^= line.trim_start().starts_with("```");
        !code
    });
    let mut found = Vec::new();
    for line in prose {
        // Every other part between back quotes is code.
        for part in line.split('`').step_by(2) {
            found.extend(between(part, "](", ")"));
        }
        found.extend(between(line, "src=\"", "\""));
        // A link whose text is code is cut in two above.
        found.extend(between(line, "`](", ")"));
    }
    found.retain(|target| !target.contains("://"));
    found
}

fn between<'t>(text: &'t str, begin: &str, end: &str) -> Vec<&'t str> {
    text.split(begin)
        .skip(1)
        .filter_map(|rest| rest.split_once(end))
        .map(|(target, _)| target)
        .collect()
}

/// The anchor of a heading.
fn slug(line: &str) -> String {
    line.trim_start_matches('#')
        .trim()
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

#[test]
fn every_page_is_in_the_book() {
    let summary = std::fs::read_to_string(repository().join("docs/SUMMARY.md")).unwrap();
    let listed: BTreeSet<String> = links(&summary)
        .into_iter()
        .map(|target| format!("docs/{target}"))
        .collect();
    let there: BTreeSet<String> = pages()
        .into_iter()
        .map(|(name, _)| name)
        .filter(|name| name.starts_with("docs/") && name != "docs/SUMMARY.md")
        .collect();
    assert_eq!(listed, there);
}

#[test]
fn examples_are_what_the_program_does() {
    let mut count = 0;
    for (name, text) in pages() {
        let examples = blocks(&text, "<!-- run -->");
        if examples.is_empty() {
            continue;
        }
        let model = ModelServer::start(|_| ModelAction::Say("open_store".to_owned()));
        // One project for each page: an example may go on where the last one ended.
        let mut workspace = sample();
        if text.contains(NEEDS_MODEL) {
            workspace = workspace.with_env("LLMC_RLM__BASE_URL", &model.url());
        }
        if text.contains(NEEDS_CONFINEMENT) && !is_fully_confined(&workspace) {
            continue;
        }
        for (language, example) in examples {
            if language == "sh" {
                let ended = run_script(&workspace, &format!("set -e\n{example}"));
                assert_eq!(ended.code, Some(0), "{name}:\n{example}\n{}", ended.stdout);
                count += 1;
                continue;
            }
            for (command, expected) in session(example) {
                let got = run(&workspace, command);
                assert!(
                    alike(&expected, &got.lines().collect::<Vec<_>>()),
                    "{name}: $ {command}\nshown:\n{}\nprinted:\n{got}",
                    expected.join("\n")
                );
                count += 1;
            }
        }
        let was_asked = !model.requests().is_empty();
        assert_eq!(was_asked, text.contains(NEEDS_MODEL), "{name}");
    }
    assert!(count >= 10, "only {count} examples were found");
}

#[test]
fn the_first_command_of_the_readme_is_answered() {
    let readme = std::fs::read_to_string(repository().join("README.md")).unwrap();
    let line = readme.lines().find(|line| line.starts_with("echo '"));
    let (message, rest) = line.unwrap()["echo '".len()..].split_once('\'').unwrap();
    let verb = rest
        .strip_prefix(" | cargo run --release --locked -- ")
        .unwrap();
    let workspace = sample();
    let answer = run(&workspace, &format!("echo '{message}' | llmc {verb}"));
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.starts_with("README.md\nshop/\n"), "{answer}");
}

#[test]
fn configurations_in_the_pages_are_valid() {
    let mut count = 0;
    for (name, text) in pages() {
        for (_, block) in blocks(&text, "<!-- check -->") {
            let workspace = workspace("//- a\n");
            workspace.write("llmc.toml", block);
            let ended = workspace.llmc(["config", "check"]);
            assert_eq!(ended.code, Some(0), "{name}:\n{block}\n{}", ended.stderr);
            count += 1;
        }
    }
    assert!(count >= 3, "only {count} configurations were found");
}

/// Language and content of the fenced blocks that follow a mark.
fn blocks<'t>(text: &'t str, mark: &str) -> Vec<(&'t str, &'t str)> {
    text.split(mark)
        .skip(1)
        .map(|rest| {
            let rest = rest.trim_start();
            let (fence, inside) = rest.split_once('\n').unwrap();
            let language = fence.strip_prefix("```");
            let language = language.unwrap_or_else(|| panic!("a block follows {mark}: {fence}"));
            (language, inside.split_once("\n```").unwrap().0)
        })
        .collect()
}

/// The commands of a session with what is shown for each.
fn session(example: &str) -> Vec<(&str, Vec<&str>)> {
    let mut found: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in example.lines() {
        match (line.strip_prefix("$ "), found.last_mut()) {
            (Some(command), _) => found.push((command, Vec::new())),
            (None, Some((_, shown))) => shown.push(line),
            (None, None) => panic!("an example begins with a command: {line}"),
        }
    }
    found
}

fn run(workspace: &TestWorkspace, command: &str) -> String {
    run_script(workspace, command).stdout
}

/// Both streams are in the standard output of what is returned.
fn run_script(workspace: &TestWorkspace, script: &str) -> ProcessOutput {
    let programs = Path::new(env!("CARGO_BIN_EXE_llmc")).parent().unwrap();
    let mut shell = workspace.command_of("/bin/sh");
    shell
        .args(["-c", &format!("{{ {script}\n}} 2>&1")])
        .env("PATH", format!("{}:/usr/bin:/bin", programs.display()));
    TestProcess::start(shell).finish()
}

fn is_fully_confined(workspace: &TestWorkspace) -> bool {
    let setting = "mcp.exec.confinement=\"full\"";
    let ended = workspace.llmc(["tool", "health", "--set", setting]);
    if ended.code == Some(4) {
        skip(&ended.stderr);
        return false;
    }
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    true
}

/// Whether lines are as shown.
fn alike(shown: &[&str], got: &[&str]) -> bool {
    match shown {
        [] => got.is_empty(),
        ["…", rest @ ..] => (0..=got.len()).any(|skip| alike(rest, &got[skip..])),
        [line, rest @ ..] => !got.is_empty() && line_alike(line, got[0]) && alike(rest, &got[1..]),
    }
}

fn line_alike(shown: &str, got: &str) -> bool {
    let parts: Vec<&str> = shown.split('…').collect();
    let [first, middle @ .., last] = &parts[..] else {
        return shown == got;
    };
    let Some(mut left) = got.strip_prefix(first) else {
        return false;
    };
    for part in middle {
        match left.split_once(part) {
            Some((_, rest)) => left = rest,
            None => return false,
        }
    }
    left.ends_with(last)
}

#[test]
fn the_example_digest_is_that_of_its_token() {
    let guide = include_str!("../../../../docs/guide/operator.md");
    let line = guide.lines().find(|line| line.starts_with("sha256 = "));
    let line = line.expect("an example of a named token");
    let digest = line.split('"').nth(1).unwrap();
    let token = line
        .split("printf %s ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next());
    let token = token.filter(|token| token.len() >= 16).expect("its token");
    assert_eq!(digest, llmc_host::sha256_hex(token.as_bytes()));
}
