//! How the configuration of TypeScript maps the names of modules to files: `paths` and `baseUrl`.

use serde_json::Value;

use super::{folder_of, join, normal};
use crate::source::Sources;

/// Configurations that extend one another.
const MAX_EXTENDS: usize = 5;
/// Entries of `paths`, and targets of one.
const MAX_PATHS: usize = 200;
const MAX_TARGETS: usize = 8;

/// What one configuration says.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct ScriptPaths {
    /// The folder in which names without dots are looked for.
    base: Option<String>,
    /// Patterns with at most one `*`, the longest first, and the paths that each stands for.
    paths: Vec<(String, Vec<String>)>,
}

impl ScriptPaths {
    /// The configuration in a folder.
    pub(super) fn in_folder(folder: &str, sources: &mut Sources<'_>) -> Option<Self> {
        let names = ["tsconfig.json", "jsconfig.json"];
        let mut found = names.iter().map(|name| join(folder, name));
        let path = found.find(|path| sources.get(path).is_some())?;
        let mut paths = Self::default();
        paths.read(&path, sources, 0);
        Some(paths)
    }

    /// Takes over what a file says and, where it is silent, what the file that it extends says.
    fn read(&mut self, path: &str, sources: &mut Sources<'_>, depth: usize) {
        let Some(source) = sources.get(path) else {
            return;
        };
        let Ok(config) = serde_json::from_str::<Value>(&without_comments(&source.text)) else {
            return;
        };
        let folder = folder_of(path);
        let options = config.get("compilerOptions");
        let option = |name: &str| options.and_then(|options| options.get(name));
        if self.base.is_none() {
            let base = option("baseUrl").and_then(Value::as_str);
            self.base = base.and_then(|base| normal(folder, base));
        }
        let paths = option("paths").and_then(Value::as_object);
        if let Some(paths) = paths.filter(|_| self.paths.is_empty()) {
            let base = self.base.clone().unwrap_or_else(|| folder.to_owned());
            for (pattern, targets) in paths.iter().take(MAX_PATHS) {
                let targets = targets.as_array().into_iter().flatten();
                let targets = targets.filter_map(Value::as_str).take(MAX_TARGETS);
                let targets = targets.filter_map(|target| normal(&base, target));
                self.paths.push((pattern.clone(), targets.collect()));
            }
            self.paths
                .sort_by_key(|(pattern, _)| std::cmp::Reverse(pattern.len()));
        }
        let extended = config.get("extends").and_then(Value::as_str);
        if let Some(extended) = extended.filter(|path| path.starts_with('.') && depth < MAX_EXTENDS)
            && let Some(path) = normal(folder, extended)
        {
            let path = match path.ends_with(".json") {
                true => path,
                false => path + ".json",
            };
            self.read(&path, sources, depth + 1);
        }
    }

    /// The paths, without endings, that a module's name may mean, the likeliest first.
    pub(super) fn candidates(&self, module: &str) -> Vec<String> {
        let mut found = Vec::new();
        for (pattern, targets) in &self.paths {
            let inner = match pattern.split_once('*') {
                Some((before, after)) => module
                    .strip_prefix(before)
                    .and_then(|rest| rest.strip_suffix(after)),
                None => (module == pattern).then_some(""),
            };
            if let Some(inner) = inner {
                found.extend(targets.iter().map(|target| target.replacen('*', inner, 1)));
                break;
            }
        }
        found.extend(self.base.iter().map(|base| join(base, module)));
        found
    }
}

/// JSON without comments and without commas behind the last element.
fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    let mut in_string = false;
    while let Some(c) = rest.next() {
        match c {
            '"' => in_string = !in_string,
            '\\' if in_string => {
                out.push(c);
                out.extend(rest.next());
                continue;
            }
            '/' if !in_string && rest.peek() == Some(&'/') => {
                while rest.next_if(|c| *c != '\n').is_some() {}
                continue;
            }
            '/' if !in_string && rest.peek() == Some(&'*') => {
                let mut before = ' ';
                for c in rest.by_ref().skip(1) {
                    if before == '*' && c == '/' {
                        break;
                    }
                    before = c;
                }
                continue;
            }
            '}' | ']' if !in_string => {
                let kept = out.trim_end().len();
                if out[..kept].ends_with(',') {
                    out.truncate(kept - 1);
                }
            }
            _ => {}
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_last_commas_are_left_out() {
        let text = "{ // a\n \"a\": \"http://x\", /* b, */ \"b\": [1, 2, ], }";
        let found: Value = serde_json::from_str(&without_comments(text)).expect("JSON");
        assert_eq!(found, serde_json::json!({ "a": "http://x", "b": [1, 2] }));
    }

    #[test]
    fn the_longest_pattern_counts_and_the_base_comes_last() {
        let paths = ScriptPaths {
            base: Some("src".to_owned()),
            paths: vec![
                ("@lib/deep/*".to_owned(), vec!["deep/*".to_owned()]),
                ("@lib/*".to_owned(), vec!["lib/*".to_owned()]),
                ("one".to_owned(), vec!["src/one.ts".to_owned()]),
            ],
        };
        assert_eq!(
            paths.candidates("@lib/deep/a"),
            ["deep/a", "src/@lib/deep/a"]
        );
        assert_eq!(paths.candidates("@lib/a"), ["lib/a", "src/@lib/a"]);
        assert_eq!(paths.candidates("one"), ["src/one.ts", "src/one"]);
    }
}
