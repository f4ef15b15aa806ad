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
    /// Data or a lock file.
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
    if parts.iter().any(|part| GENERATED_DIRS.contains(part)) || says_generated(text) {
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
        || matches!(inner, Some("test" | "spec")) && name.split('.').count() > 2
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

/// Why the content is skipped, if it is.
pub(crate) fn skip_reason(path: &str, bytes: &[u8]) -> Option<SkipReason> {
    let start = &bytes[..bytes.len().min(SNIFFED_BYTES)];
    if memchr::memchr(0, start).is_some() {
        return Some(SkipReason::Binary);
    }
    let name = file_name(path);
    if LOCK_FILES.contains(&name) || name.ends_with(".map") {
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
        assert_eq!(skip_reason("a.min.js", b"x"), Some(SkipReason::Minified));
        let dense = "x".repeat(30_000);
        assert_eq!(
            skip_reason("a.js", dense.as_bytes()),
            Some(SkipReason::Minified)
        );
        assert_eq!(skip_reason("a.rs", b"fn a() {}\n"), None);
    }
}
