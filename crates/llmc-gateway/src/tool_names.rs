//! Names of upstream tools as scripts and clients can use them.
//!
//! A server may name a tool `Issues/create.new`. Scripts need a Python name, and MCP clients accept lower-case letters,
//! digits and `_`. Mapping is a function of the whole list, so that two names that would become one stay apart.

use std::collections::{BTreeMap, BTreeSet};

/// Characters of a function's name.
const MAX_FUNCTION_CHARS: usize = 60;
/// Characters of a name that MCP clients accept.
const MAX_LISTED_CHARS: usize = 64;

/// Words that Python keeps for itself.
const PYTHON_WORDS: [&str; 35] = [
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue",
    "def", "del", "elif", "else", "except", "finally", "for", "from", "global", "if", "import",
    "in", "is", "lambda", "nonlocal", "not", "or", "pass", "raise", "return", "try", "while",
    "with", "yield",
];

/// A Python name for each tool, in their order, no two alike.
pub(crate) fn function_names<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let (mut taken, mut numbers) = (BTreeSet::new(), BTreeMap::new());
    names
        .map(|name| unique(function_name(name), &mut taken, &mut numbers))
        .collect()
}

/// The name under which MCP clients are listed a tool: `github_create_issue`.
pub fn listed_name(upstream: &str, function: &str) -> String {
    let name = format!("{upstream}_{function}").to_ascii_lowercase();
    name.chars().take(MAX_LISTED_CHARS).collect()
}

fn function_name(name: &str) -> String {
    let plain = |c: char| match c {
        c if c.is_ascii_alphanumeric() || c == '_' => c,
        _ => '_',
    };
    let mut function: String = name.chars().take(MAX_FUNCTION_CHARS).map(plain).collect();
    if !function.starts_with(|c: char| c.is_ascii_alphabetic()) {
        function.insert_str(0, "t_");
    }
    if PYTHON_WORDS.contains(&function.as_str()) {
        function.push('_');
    }
    function
}

/// The name, or the first free one with a number; `numbers` remembers where to go on, so that many alike cost no more.
fn unique(
    name: String,
    taken: &mut BTreeSet<String>,
    numbers: &mut BTreeMap<String, usize>,
) -> String {
    let mut free = name.clone();
    let number = numbers.entry(name.clone()).or_insert(2);
    while !taken.insert(free.clone()) {
        free = format!("{name}_{number}");
        *number += 1;
    }
    free
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_becomes_a_python_name_of_its_own() {
        let names = [
            "read_file",
            "read-file",
            "read.file",
            "Issues/create",
            "3d",
            "class",
            "",
            "größe",
        ];
        assert_eq!(
            function_names(names.into_iter()),
            [
                "read_file",
                "read_file_2",
                "read_file_3",
                "Issues_create",
                "t_3d",
                "class_",
                "t_",
                "gr__e"
            ]
        );
        let long = "x".repeat(500);
        assert_eq!(function_names([long.as_str()].into_iter())[0].len(), 60);
        assert_eq!(listed_name("a", "Issues_create"), "a_issues_create");
        assert_eq!(listed_name("a", &long).len(), MAX_LISTED_CHARS);
    }
}
