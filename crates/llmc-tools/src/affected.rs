//! Which test files reach what changed, by the files that import each other.
//!
//! The graph is one of files, not of symbols: a file that imports a changed one may behave differently, whatever it takes from
//! it. What imports do not tell is taken into account where it can be (a `conftest.py` reaches all tests below it, a file that
//! imports by computed names may import anything, a test that names a script may run it); where it cannot be, the answer is all
//! tests, with the reason.

mod imports;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use llmc_host::{CancelToken, OpenDir};

use crate::catalog::{below, files_below};
use crate::cx::Cx;
use crate::error::Result;
use crate::shell::is_test_path;
use imports::{Imports, SourceLanguage};

/// Files that the graph may have.
const MAX_FILES: usize = 50_000;
/// A longer file's imports are not read.
const MAX_SOURCE_BYTES: usize = 2 << 20;
/// Files that reach a change and are looked for by name in tests; of more, only the changed ones are.
const MAX_NAMED_FILES: usize = 300;
/// Changes of these say nothing about the behaviour of code.
const PROSE: &[&str] = &["md", "rst", "txt", "adoc", "png", "svg", "jpg"];

/// Which tests are to be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AffectedTests {
    /// All of them, for this reason.
    All(String),
    /// These files, each with how it reaches a change; none if only prose changed.
    Files(Vec<AffectedFile>),
}

/// A test file that reaches a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AffectedFile {
    pub(crate) path: String,
    pub(crate) reason: String,
}

/// Finds the test files below a repository's directory that reach these changed files.
pub(crate) fn affected_tests(
    cx: &Cx,
    dir: &OpenDir,
    changed: &[String],
    cancel: &CancelToken,
) -> Result<AffectedTests> {
    let code: Vec<&String> = changed.iter().filter(|path| !is_prose(path)).collect();
    if code.is_empty() {
        return Ok(AffectedTests::Files(Vec::new()));
    }
    let unknown = code.iter().find(|path| SourceLanguage::of(path).is_none());
    if let Some(path) = unknown {
        let why = format!("{path} changed, which is no source whose imports are known");
        return Ok(AffectedTests::All(why));
    }
    let roots = &cx.files().roots;
    let (names, _) = files_below(cx, dir, MAX_FILES, cancel)?;
    let mut sources = BTreeMap::new();
    for name in &names {
        cancel.check()?;
        let Ok(path) = std::str::from_utf8(name) else {
            continue;
        };
        let known = SourceLanguage::of(path);
        let has_ending = path
            .rsplit('/')
            .next()
            .is_some_and(|name| name.contains('.'));
        if known.is_none() && has_ending {
            continue;
        }
        let Ok(file) = roots.open_file(&below(roots, &dir.path, name)) else {
            continue;
        };
        let Ok(bytes) = file.read_all(MAX_SOURCE_BYTES, cancel) else {
            if known.is_none() {
                continue;
            }
            let why = format!("{path} is too long to read its imports");
            return Ok(AffectedTests::All(why));
        };
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some(language) = known.or_else(|| SourceLanguage::of_program(&text)) {
            sources.insert(path.to_owned(), (language, text));
        }
    }
    let all: BTreeSet<String> = names
        .iter()
        .filter_map(|name| String::from_utf8(name.clone()).ok())
        .collect();
    Ok(reaching(&sources, &all, &code))
}

/// The tests among these sources that reach a changed file.
fn reaching(
    sources: &BTreeMap<String, (SourceLanguage, String)>,
    all: &BTreeSet<String>,
    changed: &[&String],
) -> AffectedTests {
    let imports = Imports::new(sources, all);
    // Who imports a file.
    let mut importers: HashMap<&str, Vec<&str>> = HashMap::new();
    for path in sources.keys() {
        for imported in imports.of(path) {
            if let Some((known, _)) = sources.get_key_value(&imported) {
                importers.entry(known).or_default().push(path);
            }
        }
    }
    // How each file reaches a change: the file that it imports on the way; none for a changed one.
    let mut reached: BTreeMap<&str, Option<&str>> = BTreeMap::new();
    let mut open: VecDeque<&str> = VecDeque::new();
    for path in changed {
        reached.insert(path, None);
        open.push_back(path);
    }
    // A file that imports by computed names may import what changed.
    for path in imports.dynamic() {
        if !reached.contains_key(path) {
            reached.insert(path, changed.first().map(|path| path.as_str()));
            open.push_back(path);
        }
    }
    while let Some(path) = open.pop_front() {
        for importer in importers.get(path).into_iter().flatten() {
            if !reached.contains_key(importer) {
                reached.insert(importer, Some(path));
                open.push_back(importer);
            }
        }
    }
    let fixtures: Vec<(&str, &str)> = reached
        .keys()
        .filter(|path| path.rsplit('/').next() == Some("conftest.py"))
        .map(|path| (path.rsplit_once('/').map_or("", |(dir, _)| dir), *path))
        .collect();
    // A test may run a program by its name, which reaches the change.
    let is_program = |path: &&&str| {
        let source = sources.get(**path);
        source.is_some_and(|(language, text)| !language.is_test(path, text))
    };
    let programs: Vec<&str> = match reached.len() <= MAX_NAMED_FILES {
        true => reached.keys().filter(is_program).copied().collect(),
        false => changed.iter().map(|path| path.as_str()).collect(),
    };
    let mut files = Vec::new();
    let mut tests = 0;
    for (path, (language, text)) in sources {
        if !language.is_test(path, text) {
            continue;
        }
        tests += 1;
        let fixture = fixtures.iter().find(|(dir, _)| is_below(path, dir));
        let reason = match reached.get(path.as_str()) {
            Some(None) => Some("changed".to_owned()),
            Some(Some(_)) => Some(chain(&reached, path)),
            None => match fixture {
                Some((_, conftest)) => Some(format!("has fixtures of {conftest}")),
                None => programs
                    .iter()
                    .find(|program| imports.is_named_in(program, text))
                    .map(|program| format!("names {program}")),
            },
        };
        files.extend(reason.map(|reason| AffectedFile {
            path: path.clone(),
            reason,
        }));
    }
    let first = changed.first().map_or("", |path| path.as_str());
    if files.len() == tests && tests > 1 {
        return AffectedTests::All(format!("every test file reaches {first} by imports"));
    }
    if files.is_empty() {
        return AffectedTests::All(format!("no test reaches {first} by imports"));
    }
    AffectedTests::Files(files)
}

impl AffectedTests {
    /// The files by reason, as an answer tells them: `tests/a.py, tests/b.py (imports calc.py)`.
    pub(crate) fn told(files: &[AffectedFile]) -> String {
        const MAX_NAMES: usize = 3;
        const MAX_GROUPS: usize = 8;
        let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
        for file in files {
            match groups
                .iter_mut()
                .find(|(reason, _)| *reason == file.reason.as_str())
            {
                Some((_, paths)) => paths.push(&file.path),
                None => groups.push((file.reason.as_str(), vec![file.path.as_str()])),
            }
        }
        let shown = groups.iter().take(MAX_GROUPS).map(|(reason, paths)| {
            let mut names = paths[..paths.len().min(MAX_NAMES)].join(", ");
            if paths.len() > MAX_NAMES {
                names.push_str(&format!(" and {} more", paths.len() - MAX_NAMES));
            }
            format!("{names} ({reason})")
        });
        let mut text = shown.collect::<Vec<_>>().join(", ");
        if groups.len() > MAX_GROUPS {
            let rest: usize = groups[MAX_GROUPS..]
                .iter()
                .map(|(_, paths)| paths.len())
                .sum();
            text.push_str(&format!(", and {rest} more"));
        }
        text
    }
}

/// `imports b.py, which imports a.py`.
fn chain(reached: &BTreeMap<&str, Option<&str>>, path: &str) -> String {
    const MAX_STEPS: usize = 4;
    let mut steps = Vec::new();
    let mut at = path;
    while let Some(Some(next)) = reached.get(at) {
        steps.push(*next);
        at = next;
        if steps.len() > MAX_STEPS {
            break;
        }
    }
    let last = steps.last().copied().unwrap_or_default();
    match steps.as_slice() {
        [] | [_] => format!("imports {last}"),
        [first, .., last] => format!("imports {first}, which leads to {last}"),
    }
}

fn is_below(path: &str, dir: &str) -> bool {
    dir.is_empty()
        || path
            .strip_prefix(dir)
            .is_some_and(|rest| rest.starts_with('/'))
}

fn is_prose(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    let is_data = path
        .split('/')
        .any(|dir| dir == "testdata" || dir == "fixtures");
    // Requirements are lists of packages, and below tests any text is data.
    (PROSE.contains(&extension)
        && !name.starts_with("requirements")
        && !is_data
        && !is_test_path(path.as_bytes()))
        || matches!(name, "LICENSE" | "NOTICE" | ".gitignore" | "AUTHORS")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)], changed: &[&str]) -> AffectedTests {
        let sources: BTreeMap<String, (SourceLanguage, String)> = files
            .iter()
            .filter_map(|(path, text)| {
                Some((
                    (*path).to_owned(),
                    (SourceLanguage::of(path)?, (*text).to_owned()),
                ))
            })
            .collect();
        let all = files.iter().map(|(path, _)| (*path).to_owned()).collect();
        let changed: Vec<String> = changed.iter().map(|path| (*path).to_owned()).collect();
        reaching(&sources, &all, &changed.iter().collect::<Vec<_>>())
    }

    fn names(found: AffectedTests) -> Vec<String> {
        match found {
            AffectedTests::All(why) => vec![format!("all: {why}")],
            AffectedTests::Files(files) => files
                .into_iter()
                .map(|file| format!("{} {}", file.path, file.reason))
                .collect(),
        }
    }

    #[test]
    fn python_tests_reach_changes_through_imports() {
        let files = [
            ("src/pkg/__init__.py", "from .core import run\n"),
            ("src/pkg/core.py", "from pkg import (\n    util,\n)\n"),
            ("src/pkg/util.py", "X = 1\n"),
            ("src/pkg/other.py", "import os\n"),
            ("tests/test_core.py", "import pkg.core\n"),
            ("tests/test_other.py", "from pkg.other import y\n"),
            ("tests/test_alone.py", "import json\n"),
            ("tests/test_script.py", "run(['python', 'tool.py'])\n"),
            ("tool.py", "print(1)\n"),
        ];
        assert_eq!(
            names(found(&files, &["src/pkg/other.py"])),
            ["tests/test_other.py imports src/pkg/other.py"]
        );
        assert_eq!(
            names(found(&files, &["src/pkg/util.py"])),
            [
                "tests/test_core.py imports src/pkg/core.py, which leads to src/pkg/util.py",
                // The package itself imports it.
                "tests/test_other.py imports src/pkg/__init__.py, which leads to src/pkg/util.py",
            ]
        );
        assert_eq!(
            names(found(&files, &["tool.py"])),
            ["tests/test_script.py names tool.py"]
        );
        assert_eq!(
            names(found(&files, &["tests/test_alone.py"])),
            ["tests/test_alone.py changed"]
        );
    }

    #[test]
    fn fixtures_and_computed_imports_reach_more() {
        let files = [
            (
                "app/plugins.py",
                "import importlib\nm = importlib.import_module(name)\n",
            ),
            ("app/db.py", ""),
            ("tests/conftest.py", "from app.db import connect\n"),
            ("tests/test_a.py", "def test(db): pass\n"),
            ("unit/test_b.py", "import app.plugins\n"),
            ("unit/test_c.py", ""),
        ];
        assert_eq!(
            names(found(&files, &["app/db.py"])),
            [
                "tests/test_a.py has fixtures of tests/conftest.py",
                "unit/test_b.py imports app/plugins.py, which leads to app/db.py"
            ]
        );
    }

    #[test]
    fn javascript_tests_reach_changes_through_relative_paths() {
        let files = [
            ("src/a.ts", "export const a = 1\n"),
            ("src/lib/index.ts", "export { a } from '../a'\n"),
            ("src/lib/b.js", "const x = require('./index.js')\n"),
            ("src/a.test.ts", "import { a } from './a.js'\n"),
            ("test/b.spec.js", "const b = await import('../src/lib')\n"),
            ("test/c.spec.js", "import 'left-pad'\n"),
        ];
        assert_eq!(
            names(found(&files, &["src/a.ts"])),
            [
                "src/a.test.ts imports src/a.ts",
                "test/b.spec.js imports src/lib/index.ts, which leads to src/a.ts"
            ]
        );
    }

    #[test]
    fn tests_are_known_by_their_folder_and_programs_by_their_name() {
        let files = [
            ("src/mixed.ts", "export const x = 1\n"),
            (
                "test/mixed.ts",
                "import { x } from '../src/mixed'\ndescribe('x', () => {})\n",
            ),
            ("test/helpers.ts", "export const help = 1\n"),
            (
                "test/other.ts",
                "import { help } from './helpers'\nit('y', () => {})\n",
            ),
            ("test/fixtures/tool.js", "require('../../src/mixed.js')\n"),
            (
                "test/run.ts",
                "const p = join(dir, 'tool.js')\nit('runs', () => {})\n",
            ),
        ];
        assert_eq!(
            names(found(&files, &["src/mixed.ts"])),
            [
                "test/mixed.ts imports src/mixed.ts",
                "test/run.ts names test/fixtures/tool.js",
            ]
        );
        let language = |text: &str| SourceLanguage::of_program(text);
        assert_eq!(
            language("#!/usr/bin/env node\n"),
            Some(SourceLanguage::Script)
        );
        assert_eq!(
            language("#!/usr/bin/python3\n"),
            Some(SourceLanguage::Python)
        );
        assert_eq!(language("#!/bin/sh\nnode x\n"), None);
    }

    #[test]
    fn a_change_that_nothing_imports_takes_all_tests() {
        let files = [("a.py", ""), ("tests/test_x.py", "")];
        assert_eq!(
            names(found(&files, &["a.py"])),
            ["all: no test reaches a.py by imports"]
        );
        assert!(is_prose("docs/a.md") && is_prose("LICENSE"));
        assert!(!is_prose("requirements.txt") && !is_prose("tests/data/a.txt"));
    }
}
