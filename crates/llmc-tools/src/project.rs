//! What a workspace is, as far as its files and the machine's programs tell: languages, test command, tool chains.

use std::collections::BTreeMap;

use llmc_host::{
    CancelToken,
    search::{NamePattern, search_files},
};

use crate::cx::Cx;
use crate::error::Result;

/// Files whose names are looked at.
const MAX_COUNTED_FILES: usize = 50_000;
/// Languages that are named.
const MAX_LANGUAGES: usize = 5;
/// Bytes of a manifest that are read.
const MAX_MANIFEST_BYTES: usize = 256 << 10;

/// Programs that are worth naming, by the tool chain they belong to.
const PROGRAMS: &[&str] = &[
    "git", "python", "python3", "pytest", "uv", "node", "npm", "pnpm", "yarn", "bun", "deno",
    "tsc", "cargo", "rustc", "go", "java", "mvn", "gradle", "dotnet", "ruby", "php", "make",
    "cmake", "ninja", "gcc", "clang", "rg",
];

const LANGUAGES: &[(&str, &[&str])] = &[
    ("Rust", &["rs"]),
    ("Python", &["py", "pyi"]),
    ("JavaScript", &["js", "jsx", "mjs", "cjs"]),
    ("TypeScript", &["ts", "tsx", "mts", "cts"]),
    ("Go", &["go"]),
    ("Java", &["java"]),
    ("Kotlin", &["kt", "kts"]),
    ("C", &["c", "h"]),
    ("C++", &["cc", "cpp", "cxx", "hpp", "hh"]),
    ("C#", &["cs"]),
    ("Ruby", &["rb"]),
    ("PHP", &["php"]),
    ("Swift", &["swift"]),
    ("Scala", &["scala"]),
    ("Shell", &["sh", "bash"]),
    ("HTML", &["html", "htm"]),
    ("CSS", &["css", "scss"]),
    ("Markdown", &["md"]),
];

/// What is known about the workspace.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ProjectFacts {
    /// Languages with their number of files, most files first.
    pub(crate) languages: Vec<(&'static str, usize)>,
    /// The command that runs the project's tests, where a manifest tells.
    pub(crate) test_command: Option<TestCommand>,
    /// Programs that commands find; none if commands are switched off.
    pub(crate) programs: Vec<&'static str>,
}

/// A command that runs tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TestCommand {
    pub(crate) line: &'static str,
    /// The program without which it cannot run, one of [`PROGRAMS`].
    pub(crate) needs: &'static str,
}

impl ProjectFacts {
    /// The program that the test command needs and that commands do not find.
    pub(crate) fn missing_test_program(&self) -> Option<&'static str> {
        let needed = self.test_command?.needs;
        (!self.programs.is_empty() && !self.programs.contains(&needed)).then_some(needed)
    }
}

/// The command that runs the project's tests; without that of a Makefile, which cannot select some of them.
pub(crate) fn test_command_of(
    cx: &Cx,
    cancel: &CancelToken,
    without_make: bool,
) -> Option<TestCommand> {
    test_command(&|path| match path {
        "Makefile" | "makefile" if without_make => None,
        path => manifest(cx, path, cancel),
    })
}

/// Looks at the workspace. What cannot be read is left out.
pub(crate) fn look(cx: &Cx, cancel: &CancelToken) -> ProjectFacts {
    ProjectFacts {
        languages: languages(&file_names(cx, cancel).unwrap_or_default()),
        test_command: test_command(&|path| manifest(cx, path, cancel)),
        programs: programs(cx),
    }
}

fn file_names(cx: &Cx, cancel: &CancelToken) -> Result<Vec<Vec<u8>>> {
    let roots = &cx.files().roots;
    let dir = roots.open_dir(".")?;
    let pattern = NamePattern::new("*")?;
    let options = dir.walk_options(roots)?;
    Ok(search_files(&dir.fd, &pattern, &options, MAX_COUNTED_FILES, cancel)?.paths)
}

fn manifest(cx: &Cx, path: &str, cancel: &CancelToken) -> Option<String> {
    let file = cx.files().roots.open_file(path).ok()?;
    String::from_utf8(file.read_all(MAX_MANIFEST_BYTES, cancel).ok()?).ok()
}

fn languages(paths: &[Vec<u8>]) -> Vec<(&'static str, usize)> {
    let mut counts: BTreeMap<&'static str, usize> = BTreeMap::new();
    for path in paths {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let Some(dot) = name.iter().rposition(|byte| *byte == b'.') else {
            continue;
        };
        let extension = String::from_utf8_lossy(&name[dot + 1..]).to_ascii_lowercase();
        let language = LANGUAGES
            .iter()
            .find(|(_, known)| known.contains(&extension.as_str()));
        if let Some((language, _)) = language {
            *counts.entry(language).or_default() += 1;
        }
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts.truncate(MAX_LANGUAGES);
    counts
}

/// The test command that the manifests name, the most telling first.
fn test_command(read: &dyn Fn(&str) -> Option<String>) -> Option<TestCommand> {
    let has = |names: &[&str]| names.iter().any(|name| read(name).is_some());
    let makefile = read("Makefile").or_else(|| read("makefile"));
    let package = read("package.json");
    let (line, needs) = if makefile
        .is_some_and(|makefile| makefile.lines().any(|line| line.starts_with("test:")))
    {
        ("make test", "make")
    } else if has(&["Cargo.toml"]) {
        ("cargo test", "cargo")
    } else if has(&["go.mod"]) {
        ("go test ./...", "go")
    } else if package.is_some_and(|package| has_test_script(&package)) {
        ("npm test", "npm")
    } else if has(&[
        "pyproject.toml",
        "pytest.ini",
        "tox.ini",
        "setup.cfg",
        "setup.py",
        "conftest.py",
    ]) {
        ("python -m pytest", "pytest")
    } else if has(&["pom.xml"]) {
        ("mvn test", "mvn")
    } else if has(&["build.gradle", "build.gradle.kts"]) {
        ("gradle test", "gradle")
    } else {
        return None;
    };
    Some(TestCommand { line, needs })
}

fn has_test_script(package: &str) -> bool {
    let package: serde_json::Value = serde_json::from_str(package).unwrap_or_default();
    package["scripts"]["test"].is_string()
}

fn programs(cx: &Cx) -> Vec<&'static str> {
    if !cx.app().config().mcp.tools.enable_run_cmd {
        return Vec::new();
    }
    let root = cx.app().root();
    let Ok(commands) = cx.app().commands() else {
        return Vec::new();
    };
    let found = PROGRAMS
        .iter()
        .filter(|name| commands.resolve(name, root).is_ok());
    found.copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages_are_counted_by_extension() {
        let paths = [
            "a.py",
            "src/b.PY",
            "c.rs",
            "Makefile",
            "d.unknown",
            ".hidden/e.rs.bak",
        ];
        let paths: Vec<Vec<u8>> = paths.iter().map(|path| path.as_bytes().to_vec()).collect();
        assert_eq!(languages(&paths), [("Python", 2), ("Rust", 1)]);
        assert_eq!(languages(&[]), []);
    }

    #[test]
    fn the_test_command_comes_from_the_manifests() {
        for (files, command) in [
            (&[("Cargo.toml", "")][..], Some("cargo test")),
            (
                &[("Makefile", "all:\ntest: all\n"), ("Cargo.toml", "")],
                Some("make test"),
            ),
            (
                &[("Makefile", "all:\n"), ("go.mod", "")],
                Some("go test ./..."),
            ),
            (
                &[("package.json", r#"{"scripts": {"test": "jest"}}"#)],
                Some("npm test"),
            ),
            (
                &[("package.json", "{broken"), ("setup.py", "")],
                Some("python -m pytest"),
            ),
            (&[("pom.xml", "")], Some("mvn test")),
            (&[], None),
        ] {
            let read = |name: &str| {
                let file = files.iter().find(|(known, _)| *known == name);
                file.map(|(_, text)| (*text).to_owned())
            };
            let found = test_command(&read);
            assert_eq!(found.map(|found| found.line), command, "{files:?}");
            if let Some(found) = found {
                assert!(PROGRAMS.contains(&found.needs), "{}", found.needs);
            }
        }
    }

    #[test]
    fn a_test_command_that_cannot_run_is_known() {
        let facts = |programs: &[&'static str]| ProjectFacts {
            test_command: Some(TestCommand {
                line: "python -m pytest",
                needs: "pytest",
            }),
            programs: programs.to_vec(),
            ..ProjectFacts::default()
        };
        assert_eq!(facts(&["git"]).missing_test_program(), Some("pytest"));
        assert_eq!(facts(&["git", "pytest"]).missing_test_program(), None);
        // Commands are switched off, so nothing was looked for.
        assert_eq!(facts(&[]).missing_test_program(), None);
        assert_eq!(ProjectFacts::default().missing_test_program(), None);
    }
}
