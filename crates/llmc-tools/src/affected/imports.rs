//! Which files a source imports, read off its text: Python, JavaScript and TypeScript.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::LazyLock;

use regex::Regex;

use crate::shell::is_test_path;

/// Extensions that an import may leave out, or name in place of the one of the source.
const SCRIPT_EXTENSIONS: [&str; 8] = ["ts", "tsx", "mts", "cts", "js", "jsx", "mjs", "cjs"];

/// A language whose imports are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SourceLanguage {
    Python,
    /// JavaScript or TypeScript.
    Script,
}

impl SourceLanguage {
    pub(super) fn of(path: &str) -> Option<SourceLanguage> {
        let (_, extension) = path.rsplit_once('.')?;
        match extension {
            "py" => Some(SourceLanguage::Python),
            extension if SCRIPT_EXTENSIONS.contains(&extension) => Some(SourceLanguage::Script),
            _ => None,
        }
    }

    /// The language of a program without an ending, by the interpreter that its first line names.
    pub(super) fn of_program(text: &str) -> Option<SourceLanguage> {
        let line = text.lines().next()?.strip_prefix("#!")?;
        let has = |name: &str| line.contains(name);
        match (has("node") || has("deno") || has("bun"), has("python")) {
            (true, _) => Some(SourceLanguage::Script),
            (_, true) => Some(SourceLanguage::Python),
            _ => None,
        }
    }

    /// Whether a runner takes this file for one of tests.
    pub(super) fn is_test(self, path: &str, text: &str) -> bool {
        let name = path.rsplit('/').next().unwrap_or(path);
        match self {
            SourceLanguage::Python => {
                let stem = name.trim_end_matches(".py");
                stem.starts_with("test_")
                    || stem.ends_with("_test")
                    || stem == "tests"
                    || (stem == "test" && path.contains('/'))
            }
            SourceLanguage::Script => {
                name.contains(".test.")
                    || name.contains(".spec.")
                    || path.contains("__tests__/")
                    || (is_test_path(path.as_bytes())
                        && (name.contains("test") || has_script_test(text)))
            }
        }
    }
}

/// Whether a source calls what runners of JavaScript offer to tests.
fn has_script_test(text: &str) -> bool {
    text.lines().any(|line| {
        let line = line.trim_start();
        let calls = ["it", "test", "describe"];
        calls.iter().any(|call| {
            line.strip_prefix(call)
                .is_some_and(|rest| rest.starts_with(['(', '.']))
        })
    })
}

/// The imports of a set of sources.
pub(super) struct Imports<'a> {
    sources: &'a BTreeMap<String, (SourceLanguage, String)>,
    all: &'a BTreeSet<String>,
    /// Files by the dotted names under which Python may import them.
    modules: HashMap<String, Vec<&'a str>>,
}

impl<'a> Imports<'a> {
    pub(super) fn new(
        sources: &'a BTreeMap<String, (SourceLanguage, String)>,
        all: &'a BTreeSet<String>,
    ) -> Imports<'a> {
        let mut modules: HashMap<String, Vec<&str>> = HashMap::new();
        for (path, (language, _)) in sources {
            if *language == SourceLanguage::Python {
                for name in module_names(path, all) {
                    modules.entry(name).or_default().push(path);
                }
            }
        }
        Imports {
            sources,
            all,
            modules,
        }
    }

    /// The files that a source imports.
    pub(super) fn of(&self, path: &str) -> Vec<String> {
        let Some((language, text)) = self.sources.get(path) else {
            return Vec::new();
        };
        match language {
            SourceLanguage::Python => self.of_python(path, text),
            SourceLanguage::Script => self.of_script(path, text),
        }
    }

    /// Sources that import by names which they compute.
    pub(super) fn dynamic(&self) -> Vec<&'a str> {
        static COMPUTED: LazyLock<Option<Regex>> = LazyLock::new(|| {
            Regex::new(r#"(?:import_module|__import__|\brequire|\bimport)\(\s*(?:[A-Za-z_]|f["'])"#)
                .ok()
        });
        let Some(computed) = COMPUTED.as_ref() else {
            return Vec::new();
        };
        let sources = self.sources.iter();
        let found = sources.filter(|(path, (language, text))| {
            !language.is_test(path, text) && computed.is_match(text)
        });
        found.map(|(path, _)| path.as_str()).collect()
    }

    /// Whether a text names a file, or the module that it is.
    pub(super) fn is_named_in(&self, path: &str, text: &str) -> bool {
        let name = path.rsplit('/').next().unwrap_or(path);
        let is_common = matches!(
            name,
            "__init__.py" | "index.ts" | "index.js" | "__main__.py"
        );
        if !is_common && contains_name(text, name) {
            return true;
        }
        let package = path
            .strip_suffix("/__main__.py")
            .or(path.strip_suffix(".py"));
        let module = package.map(|package| package.replace('/', "."));
        let of_source = module
            .as_deref()
            .and_then(|module| module.strip_prefix("src."));
        let names = module.as_deref().into_iter().chain(of_source);
        names
            .filter(|name| name.contains('.'))
            .any(|name| contains_name(text, name))
    }

    fn of_python(&self, path: &str, text: &str) -> Vec<String> {
        static STATEMENT: LazyLock<Option<Regex>> = LazyLock::new(|| {
            Regex::new(
                r"(?m)^[ \t]*(?:from[ \t]+(?P<from>\.*[\w.]*)[ \t]+import[ \t]+(?:\((?P<list>[^)]*)\)|(?P<names>[^\n#]+))|import[ \t]+(?P<import>[^\n#]+))",
            )
            .ok()
        });
        let mut found = BTreeSet::new();
        let Some(statement) = STATEMENT.as_ref() else {
            return Vec::new();
        };
        for captures in statement.captures_iter(text) {
            if let Some(list) = captures.name("import") {
                for module in names_in(list.as_str()) {
                    self.add_module(&module, &mut found);
                }
                continue;
            }
            let Some(from) = captures.name("from") else {
                continue;
            };
            let names = captures.name("list").or(captures.name("names"));
            let names = names.map_or_else(Vec::new, |names| names_in(names.as_str()));
            let dots = from
                .as_str()
                .bytes()
                .take_while(|byte| *byte == b'.')
                .count();
            let module = &from.as_str()[dots..];
            if dots == 0 {
                self.add_module(module, &mut found);
                for name in &names {
                    self.add_module(&format!("{module}.{name}"), &mut found);
                }
                continue;
            }
            let mut dir: Vec<&str> = path.split('/').collect();
            dir.truncate(dir.len().saturating_sub(dots));
            dir.extend(module.split('.').filter(|part| !part.is_empty()));
            let base = dir.join("/");
            self.add_file(&base, &mut found);
            for name in &names {
                self.add_file(&format!("{base}/{name}"), &mut found);
            }
        }
        found.into_iter().collect()
    }

    /// A module and the packages that it is in, which are imported with it.
    fn add_module(&self, module: &str, found: &mut BTreeSet<String>) {
        let parts: Vec<&str> = module.split('.').collect();
        for count in 1..=parts.len() {
            let files = self.modules.get(&parts[..count].join("."));
            found.extend(files.into_iter().flatten().map(|path| (*path).to_owned()));
        }
    }

    /// The module at a path without its ending.
    fn add_file(&self, base: &str, found: &mut BTreeSet<String>) {
        for path in [format!("{base}.py"), format!("{base}/__init__.py")] {
            let path = path.trim_start_matches('/');
            if self.all.contains(path) {
                found.insert(path.to_owned());
            }
        }
    }

    fn of_script(&self, path: &str, text: &str) -> Vec<String> {
        static SPECIFIER: LazyLock<Option<Regex>> = LazyLock::new(|| {
            Regex::new(
                r#"(?:\bfrom\s*|\bimport\s*\(?\s*|\brequire\s*\(\s*|\bmock\s*\(\s*)["'](?P<path>[^"'\n]+)["']"#,
            )
            .ok()
        });
        let Some(specifier) = SPECIFIER.as_ref() else {
            return Vec::new();
        };
        let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir);
        let mut found = BTreeSet::new();
        for captures in specifier.captures_iter(text) {
            let named = &captures["path"];
            let base = match named {
                relative if relative.starts_with('.') => joined(dir, relative),
                // What most set-ups call the folder of sources.
                named => match named.strip_prefix("@/").or(named.strip_prefix("~/")) {
                    Some(below) => joined("src", below),
                    None => continue,
                },
            };
            found.extend(self.script_file(&base));
        }
        found.into_iter().collect()
    }

    fn script_file(&self, base: &str) -> Option<String> {
        // TypeScript names the file that it will be compiled to.
        let stem = base
            .rsplit_once('.')
            .filter(|(_, end)| SCRIPT_EXTENSIONS.contains(end));
        let stem = stem.map_or(base, |(stem, _)| stem);
        let candidates = std::iter::once(base.to_owned())
            .chain(SCRIPT_EXTENSIONS.iter().map(|end| format!("{stem}.{end}")))
            .chain(
                SCRIPT_EXTENSIONS
                    .iter()
                    .map(|end| format!("{base}/index.{end}")),
            );
        let mut candidates = candidates.map(|path| path.trim_start_matches('/').to_owned());
        candidates.find(|path| self.sources.contains_key(path))
    }
}

/// The dotted names of a Python file: from each folder on that is in no package.
fn module_names(path: &str, all: &BTreeSet<String>) -> Vec<String> {
    let path = path.trim_end_matches(".py");
    let path = path.strip_suffix("/__init__").unwrap_or(path);
    let parts: Vec<&str> = path.split('/').collect();
    let is_package = |dirs: &[&str]| {
        !dirs.is_empty() && all.contains(&format!("{}/__init__.py", dirs.join("/")))
    };
    (0..parts.len())
        .filter(|start| !is_package(&parts[..*start]))
        .map(|start| parts[start..].join("."))
        .collect()
}

/// `a as b, c` as `a` and `c`.
fn names_in(list: &str) -> Vec<String> {
    let names = list.split(',').map(|item| {
        let item = item
            .split('#')
            .next()
            .unwrap_or_default()
            .trim()
            .trim_matches(['(', ')', '\\']);
        item.split_whitespace().next().unwrap_or_default()
    });
    names
        .filter(|name| !name.is_empty() && *name != "*")
        .map(ToOwned::to_owned)
        .collect()
}

/// A relative path from a folder.
fn joined(dir: &str, relative: &str) -> String {
    let mut parts: Vec<&str> = dir.split('/').filter(|part| !part.is_empty()).collect();
    for part in relative.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Whether a text has this name, not as a part of a longer one.
fn contains_name(text: &str, name: &str) -> bool {
    let is_inner =
        |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    text.match_indices(name).any(|(at, _)| {
        let bytes = text.as_bytes();
        let before = at.checked_sub(1).and_then(|at| bytes.get(at));
        !is_inner(before) && !is_inner(bytes.get(at + name.len()))
    })
}
