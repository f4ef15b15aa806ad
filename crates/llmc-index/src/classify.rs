//! Classifies files: indexed or skipped, code or documentation, own or foreign code.
//!
//! Decided by whole path components and by the first bytes, never by parts of names: `latest.rs` is no test and
//! `contest/` no tests folder.

/// Larger files are not indexed.
pub(crate) const MAX_FILE_BYTES: u64 = 4 << 20;
/// Larger files of structured data are not indexed.
const MAX_DATA_BYTES: usize = 256 << 10;
/// The start of a file that decides whether it is text.
const SNIFFED_BYTES: usize = 8 << 10;

/// The part of the workspace that a file belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Realm {
    /// Code and what belongs to it: build files, configuration, scripts.
    Repo,
    /// Documentation.
    Docs,
}

/// All but the first rank lower.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Origin {
    Own,
    Test,
    Vendored,
    Generated,
}

impl Origin {
    pub(crate) const ALL: [Origin; 4] = [Self::Own, Self::Test, Self::Vendored, Self::Generated];
}

/// Why a file's content is not indexed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SkipReason {
    Binary,
    TooLarge,
    Minified,
    /// Data, a lock file or this server's own configuration.
    Data,
    Unreadable,
}

impl SkipReason {
    pub(crate) const ALL: [SkipReason; 5] = [
        Self::Binary,
        Self::TooLarge,
        Self::Minified,
        Self::Data,
        Self::Unreadable,
    ];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Binary => "binary",
            Self::TooLarge => "too large",
            Self::Minified => "minified",
            Self::Data => "data",
            Self::Unreadable => "unreadable",
        }
    }
}

const DOC_EXTENSIONS: &[&str] = &[
    "md", "markdown", "mdx", "rst", "txt", "adoc", "asciidoc", "org", "tex", "textile",
];
/// Names of documentation without extension.
const DOC_NAMES: &[&str] = &[
    "readme",
    "license",
    "licence",
    "copying",
    "changelog",
    "changes",
    "authors",
    "contributing",
    "notice",
    "news",
    "todo",
];
const DATA_EXTENSIONS: &[&str] = &[
    "json", "jsonl", "ndjson", "csv", "tsv", "xml", "svg", "yaml", "yml", "geojson", "sql", "log",
    "html",
];
const LOCK_FILES: &[&str] = &[
    "Cargo.lock",
    "package-lock.json",
    "npm-shrinkwrap.json",
    "yarn.lock",
    "pnpm-lock.yaml",
    "poetry.lock",
    "uv.lock",
    "Pipfile.lock",
    "composer.lock",
    "Gemfile.lock",
    "go.sum",
    "flake.lock",
];
/// The configuration of this server, which says nothing about the code.
const OWN_CONFIG: &str = "llmc.toml";
const TEST_DIRS: &[&str] = &[
    "test",
    "tests",
    "testing",
    "__tests__",
    "spec",
    "specs",
    "testdata",
    "fixtures",
    "e2e",
    "benches",
    "bench",
    "benchmark",
    "benchmarks",
];
const VENDOR_DIRS: &[&str] = &[
    "vendor",
    "vendored",
    "_vendor",
    "third_party",
    "third-party",
    "thirdparty",
    "external",
    "extern",
    "node_modules",
    "bower_components",
    "site-packages",
    "deps",
];
const GENERATED_DIRS: &[&str] = &["generated", "dist", "build", "__generated__", "gen"];

/// The lower-case extension; empty without one.
pub(crate) fn extension(path: &str) -> String {
    let name = file_name(path);
    match name.rsplit_once('.') {
        Some((stem, extension)) if !stem.is_empty() => extension.to_ascii_lowercase(),
        _ => String::new(),
    }
}

pub(crate) fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Whether a file of C or C++ declares what others define.
pub(crate) fn is_header(path: &str) -> bool {
    matches!(extension(path).as_str(), "h" | "hh" | "hpp" | "hxx")
}

pub(crate) fn realm(path: &str) -> Realm {
    let extension = extension(path);
    let stem = file_name(path).split('.').next().unwrap_or("");
    let named = || DOC_NAMES.contains(&stem.to_ascii_lowercase().as_str());
    let is_doc = match extension.as_str() {
        "txt" => file_name(path) != "CMakeLists.txt" && !stem.starts_with("requirements"),
        "" => named(),
        other => DOC_EXTENSIONS.contains(&other),
    };
    if is_doc { Realm::Docs } else { Realm::Repo }
}

/// The origin of a file, by its path and its first lines.
pub(crate) fn origin(path: &str, text: &str) -> Origin {
    let mut parts: Vec<&str> = path.split('/').collect();
    let name = parts.pop().unwrap_or(path);
    if parts.iter().any(|part| VENDOR_DIRS.contains(part)) {
        return Origin::Vendored;
    }
    let is_generated =
        says_generated(text) || realm(path) == Realm::Docs && page_says_generated(text);
    if parts.iter().any(|part| GENERATED_DIRS.contains(part)) || is_generated {
        return Origin::Generated;
    }
    if parts.iter().any(|part| TEST_DIRS.contains(part)) || is_test_name(name) {
        return Origin::Test;
    }
    Origin::Own
}

fn is_test_name(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or(name);
    let inner = name.split('.').nth(1);
    stem.starts_with("test_")
        || stem.ends_with("_test")
        || stem.ends_with("_tests")
        || stem.ends_with("_spec")
        || stem == "tests"
        || stem == "conftest"
        || stem.ends_with("Test")
        || stem.ends_with("Tests")
        || matches!(inner, Some("test" | "test-d" | "spec" | "bench"))
            && name.split('.').count() > 2
}

/// The marks that generators put on top of what they write.
fn says_generated(text: &str) -> bool {
    text.lines().take(12).any(|line| {
        let is_comment = ["//", "#", "/*", "*", "--", ";", "<!--"]
            .iter()
            .any(|mark| line.trim_start().starts_with(mark));
        is_comment
            && (line.contains("@generated")
                || line.contains("DO NOT EDIT")
                || line.contains("Code generated by")
                || line.contains("auto-generated")
                || line.contains("automatically generated by"))
    })
}

/// The sentences by which pages say that a program wrote them.
fn page_says_generated(text: &str) -> bool {
    let lines = text.lines().take(12);
    lines.map(str::to_ascii_lowercase).any(|line| {
        let line = line.trim_start_matches(['*', '_', '>', '(', ' ']);
        [
            "generated from ",
            "generated by ",
            "auto-generated",
            "autogenerated",
        ]
        .iter()
        .any(|start| line.starts_with(start))
            || [
                "this page is generated",
                "this file is generated",
                "this document is generated",
            ]
            .iter()
            .any(|sentence| line.contains(sentence))
            || line.contains("generated") && line.contains("do not edit")
    })
}

/// Why the content is skipped, if it is.
pub(crate) fn skip_reason(path: &str, bytes: &[u8]) -> Option<SkipReason> {
    let start = &bytes[..bytes.len().min(SNIFFED_BYTES)];
    if memchr::memchr(0, start).is_some() {
        return Some(SkipReason::Binary);
    }
    let name = file_name(path);
    if LOCK_FILES.contains(&name) || name == OWN_CONFIG || name.ends_with(".map") {
        return Some(SkipReason::Data);
    }
    if bytes.len() > MAX_DATA_BYTES && DATA_EXTENSIONS.contains(&extension(path).as_str()) {
        return Some(SkipReason::Data);
    }
    let lines = memchr::memchr_iter(b'\n', bytes).count() + 1;
    let stem_says = name.contains(".min.");
    // A notebook keeps its pictures on one line each.
    let dense = bytes.len() > 20_000 && bytes.len() / lines > 300 && extension(path) != "ipynb";
    (stem_says || dense).then_some(SkipReason::Minified)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_path_component() {
        for (path, expected) in [
            ("src/latest.rs", Origin::Own),
            ("contest/main.py", Origin::Own),
            ("tests/a.rs", Origin::Test),
            ("src/pool_test.go", Origin::Test),
            ("web/cart.spec.ts", Origin::Test),
            ("web/test.ts", Origin::Own),
            ("src/PoolTest.java", Origin::Test),
            ("vendor/x/lib.c", Origin::Vendored),
            ("vendors.py", Origin::Own),
            ("dist/app.js", Origin::Generated),
        ] {
            assert_eq!(origin(path, ""), expected, "{path}");
        }
        assert_eq!(
            origin("a.go", "// Code generated by x. DO NOT EDIT.\n"),
            Origin::Generated
        );
        assert_eq!(origin("a.go", "let s = \"DO NOT EDIT\";"), Origin::Own);
        for (page, expected) in [
            (
                "# Keys\n\nThis page is generated from the key table; do not edit it.\n",
                Origin::Generated,
            ),
            ("# CLI\n\nGenerated from `x help`.\n", Origin::Generated),
            (
                "# Code\n\nHow the parser is generated by hand.\n",
                Origin::Own,
            ),
        ] {
            assert_eq!(origin("docs/a.md", page), expected, "{page}");
            assert_eq!(origin("src/a.rs", page), Origin::Own, "{page}");
        }
    }

    #[test]
    fn docs_and_repo() {
        for (path, expected) in [
            ("README", Realm::Docs),
            ("docs/a.md", Realm::Docs),
            ("CMakeLists.txt", Realm::Repo),
            ("requirements-dev.txt", Realm::Repo),
            ("Makefile", Realm::Repo),
            ("src/readme.rs", Realm::Repo),
        ] {
            assert_eq!(realm(path), expected, "{path}");
        }
    }

    #[test]
    fn what_is_passed_over() {
        assert_eq!(skip_reason("a.bin", b"a\0b"), Some(SkipReason::Binary));
        assert_eq!(skip_reason("Cargo.lock", b"x"), Some(SkipReason::Data));
        assert_eq!(skip_reason("a/llmc.toml", b"x"), Some(SkipReason::Data));
        assert_eq!(skip_reason("a.min.js", b"x"), Some(SkipReason::Minified));
        let dense = "x".repeat(30_000);
        assert_eq!(
            skip_reason("a.js", dense.as_bytes()),
            Some(SkipReason::Minified)
        );
        assert_eq!(skip_reason("a.rs", b"fn a() {}\n"), None);
    }
}
