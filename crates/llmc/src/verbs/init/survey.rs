//! What a repository consists of: languages by file extension, build systems by their files.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::read;

/// Enough to tell what a repository is, few enough to be quick in the largest.
const MAX_SURVEYED_FILES: usize = 20_000;
const MAX_SURVEYED_DEPTH: usize = 8;
/// Folders of dependencies and build output.
const SKIPPED_FOLDERS: [&str; 9] = [
    "node_modules",
    "target",
    "vendor",
    "third_party",
    "dist",
    "build",
    "venv",
    "__pycache__",
    "out",
];

const LANGUAGES: [(&str, &[&str]); 19] = [
    ("Rust", &["rs"]),
    ("Python", &["py"]),
    ("TypeScript", &["ts", "tsx", "mts"]),
    ("JavaScript", &["js", "jsx", "mjs", "cjs"]),
    ("Go", &["go"]),
    ("Java", &["java"]),
    ("Kotlin", &["kt", "kts"]),
    ("C", &["c"]),
    ("C++", &["cc", "cpp", "cxx", "hpp", "hh"]),
    ("C#", &["cs"]),
    ("Ruby", &["rb"]),
    ("PHP", &["php"]),
    ("Swift", &["swift"]),
    ("Scala", &["scala"]),
    ("Elixir", &["ex", "exs"]),
    ("Haskell", &["hs"]),
    ("Lua", &["lua"]),
    ("Shell", &["sh", "bash"]),
    ("SQL", &["sql"]),
];

/// A build system, recognised by a file in the root.
#[derive(Debug)]
struct Build {
    file: &'static str,
    build: Option<String>,
    test: Option<String>,
}

#[derive(Debug)]
pub(super) struct Survey {
    /// Names with their number of files, most first.
    languages: Vec<(&'static str, usize)>,
    builds: Vec<Build>,
}

impl Survey {
    /// Reads a folder; nothing is written or run.
    pub(super) fn of(root: &Path) -> Survey {
        let mut counts = BTreeMap::new();
        count(root, 0, &mut 0, &mut counts);
        let mut languages: Vec<_> = counts.into_iter().collect();
        languages.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), *name));
        Survey {
            languages,
            builds: builds(root),
        }
    }

    /// Build and test commands with their purpose.
    pub(super) fn commands(&self) -> Vec<(&'static str, &str)> {
        let mut found = Vec::new();
        for build in &self.builds {
            found.extend(build.build.as_deref().map(|command| ("Build", command)));
            found.extend(build.test.as_deref().map(|command| ("Test", command)));
        }
        found
    }

    /// Languages, build files and test commands in one sentence.
    pub(super) fn summary(&self) -> String {
        let mut parts = Vec::new();
        let languages: Vec<String> = self
            .languages
            .iter()
            .take(5)
            .map(|(name, count)| format!("{name} ({count})"))
            .collect();
        parts.push(if languages.is_empty() {
            "no source files found".to_owned()
        } else {
            format!("files by language: {}", languages.join(", "))
        });
        let signs: Vec<&str> = self.builds.iter().map(|build| build.file).collect();
        if !signs.is_empty() {
            parts.push(format!("build files: {}", signs.join(", ")));
        }
        let tests: Vec<&str> = self
            .builds
            .iter()
            .filter_map(|build| build.test.as_deref())
            .collect();
        parts.push(if tests.is_empty() {
            "no test command found".to_owned()
        } else {
            format!("tested with `{}`", tests.join("`, `"))
        });
        parts.join("; ")
    }
}

fn count(
    folder: &Path,
    depth: usize,
    seen: &mut usize,
    counts: &mut BTreeMap<&'static str, usize>,
) {
    let Ok(entries) = folder.read_dir() else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| !name.starts_with('.')) else {
            continue;
        };
        *seen += 1;
        if *seen > MAX_SURVEYED_FILES {
            return;
        }
        // Of the entry itself, so that no link is followed.
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        if kind.is_dir() && depth < MAX_SURVEYED_DEPTH && !SKIPPED_FOLDERS.contains(&name) {
            count(&entry.path(), depth + 1, seen, counts);
        } else if kind.is_file()
            && let Some((_, extension)) = name.rsplit_once('.')
        {
            let known = LANGUAGES.iter().find(|(_, all)| all.contains(&extension));
            if let Some((language, _)) = known {
                *counts.entry(*language).or_default() += 1;
            }
        }
    }
}

/// The build systems whose files lie in the root.
fn builds(root: &Path) -> Vec<Build> {
    let there = |name: &str| root.join(name).exists();
    let mut found: Vec<Build> = SIMPLE
        .iter()
        .filter_map(|(signs, build, test)| {
            let sign = signs.iter().find(|sign| there(sign))?;
            Some(Build {
                file: sign,
                build: (!build.is_empty()).then(|| (*build).to_owned()),
                test: (!test.is_empty()).then(|| (*test).to_owned()),
            })
        })
        .collect();
    found.extend(node(root));
    found.extend(python(root));
    found.extend(make(root));
    found
}

/// Build systems that one file tells all about: its names, how to build, how to test.
type Simple = (&'static [&'static str], &'static str, &'static str);

const SIMPLE: [Simple; 12] = [
    (&["Cargo.toml"], "cargo build", "cargo test"),
    (&["go.mod"], "go build ./...", "go test ./..."),
    (&["pom.xml"], "mvn -q package", "mvn -q test"),
    (
        &["build.gradle", "build.gradle.kts"],
        "gradle build",
        "gradle test",
    ),
    (
        &["CMakeLists.txt"],
        "cmake --build build",
        "ctest --test-dir build",
    ),
    (
        &["meson.build"],
        "meson compile -C build",
        "meson test -C build",
    ),
    (&["Gemfile"], "", "bundle exec rake test"),
    (&["composer.json"], "", ""),
    (&["mix.exs"], "mix compile", "mix test"),
    (&["deno.json", "deno.jsonc"], "", "deno test"),
    (
        &["global.json", "Directory.Build.props"],
        "dotnet build",
        "dotnet test",
    ),
    (&["Justfile", "justfile"], "", ""),
];

/// A package manager by its lock file; tests only when the package says how.
fn node(root: &Path) -> Option<Build> {
    let package = read(&root.join("package.json"))?;
    let locks = [
        ("pnpm-lock.yaml", "pnpm"),
        ("yarn.lock", "yarn"),
        ("bun.lock", "bun"),
        ("bun.lockb", "bun"),
    ];
    let manager = locks.iter().find(|(lock, _)| root.join(lock).exists());
    let manager = manager.map_or("npm", |(_, manager)| *manager);
    let package: Value = serde_json::from_str(&package).unwrap_or_default();
    let script = |name: &str| {
        let script = package["scripts"][name].as_str()?;
        // What `npm init` writes is not a test.
        (!script.contains("no test specified")).then(|| format!("{manager} run {name}"))
    };
    Some(Build {
        file: "package.json",
        build: script("build"),
        test: script("test"),
    })
}

fn python(root: &Path) -> Option<Build> {
    let signs = [
        "pyproject.toml",
        "setup.py",
        "setup.cfg",
        "pytest.ini",
        "tox.ini",
        "requirements.txt",
    ];
    let sign = signs.into_iter().find(|sign| root.join(sign).exists())?;
    let tested = ["tests", "test", "pytest.ini", "conftest.py"];
    let configured = ["pyproject.toml", "setup.cfg", "tox.ini"]
        .iter()
        .filter_map(|file| read(&root.join(file)))
        .any(|text| text.contains("pytest"));
    let tests = configured || tested.iter().any(|name| root.join(name).exists());
    Some(Build {
        file: sign,
        build: None,
        // The tool of that name answers with the failures alone.
        test: tests.then(|| "run_pytest".to_owned()),
    })
}

fn make(root: &Path) -> Option<Build> {
    let signs = ["Makefile", "GNUmakefile", "makefile"];
    let (sign, text) = signs
        .into_iter()
        .find_map(|sign| Some((sign, read(&root.join(sign))?)))?;
    let target = |name: &str| {
        let rule = format!("{name}:");
        let known = text.lines().any(|line| line.starts_with(&rule));
        known.then(|| format!("make {name}"))
    };
    Some(Build {
        file: sign,
        build: Some("make".to_owned()),
        test: target("test").or_else(|| target("check")),
    })
}
