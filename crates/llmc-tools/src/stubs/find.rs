//! Finds tools by words.

use std::collections::BTreeSet;

use super::signature;
use crate::tool::ToolDef;

/// A tool that may be the one looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ToolMatch {
    /// Its name.
    pub(crate) name: String,
    /// How to call it, with types and defaults.
    pub(crate) signature: String,
    /// What it does, in one sentence.
    pub(crate) summary: String,
}

/// The most that one search returns; everything when nothing in particular is asked for.
const MAX_RESULTS: usize = 8;
/// Words of a query that are looked at.
const MAX_QUERY_WORDS: usize = 24;
/// What a query counts that is a tool's very name.
const EXACT_NAME_SCORE: f64 = 1000.0;
/// How much a word counts, by where it stands.
const NAME_WEIGHT: f64 = 4.0;
const SUMMARY_WEIGHT: f64 = 2.5;
const MANUAL_WEIGHT: f64 = 2.0;
const ARGUMENT_WEIGHT: f64 = 1.0;
/// A word that only looks like the one asked for.
const SIMILAR_WORD_FACTOR: f64 = 0.6;

/// Words that say nothing about a tool.
const STOP_WORDS: &[&str] = &[
    "a", "an", "and", "as", "by", "do", "for", "from", "how", "i", "in", "into", "is", "it", "me",
    "my", "of", "on", "or", "some", "that", "the", "this", "to", "tool", "tools", "want", "what",
    "which", "with", "linux",
];

/// The tools that fit a query best, best first. Word forms and small slips do not matter; an empty query lists all.
pub(crate) fn search(tools: &[&ToolDef], query: &str) -> Vec<ToolMatch> {
    let query = query.trim();
    if query.is_empty() {
        return tools.iter().map(|tool| found(tool)).collect();
    }
    let asked: Vec<String> = words(query)
        .filter(|word| !STOP_WORDS.contains(&word.as_str()))
        .map(|word| stem(&word))
        .take(MAX_QUERY_WORDS)
        .collect();
    let pages: Vec<ToolWords> = tools.iter().map(|tool| ToolWords::of(tool)).collect();
    let mut scores: Vec<f64> = tools
        .iter()
        .map(|tool| {
            let named = query == tool.name || tool.aliases.contains(&query);
            if named { EXACT_NAME_SCORE } else { 0.0 }
        })
        .collect();
    // Each word is compared with each tool once, since upstreams may have thousands.
    for word in &asked {
        let fits: Vec<f64> = pages.iter().map(|page| page.fit(word)).collect();
        let rarity = rarity(&fits);
        for (score, fit) in scores.iter_mut().zip(&fits) {
            *score += fit * rarity;
        }
    }
    let mut scored: Vec<(f64, &ToolDef)> = scores.into_iter().zip(tools.iter().copied()).collect();
    scored.retain(|(score, _)| *score > 0.0);
    // Stable, so equals stay in the catalogue's order.
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    // What fits a tenth as well as the best is noise.
    let best = scored.first().map_or(0.0, |(score, _)| *score);
    scored.retain(|(score, _)| *score * 10.0 > best);
    scored.truncate(MAX_RESULTS);
    scored.into_iter().map(|(_, tool)| found(tool)).collect()
}

fn found(tool: &ToolDef) -> ToolMatch {
    ToolMatch {
        name: tool.name.to_owned(),
        signature: signature(tool).unwrap_or_else(|| tool.signature()),
        summary: tool.description().to_owned(),
    }
}

/// The words of one tool, by where they stand.
struct ToolWords(Vec<(f64, BTreeSet<String>)>);

impl ToolWords {
    fn of(tool: &ToolDef) -> ToolWords {
        let stems = |text: &str| words(text).map(|word| stem(&word)).collect();
        let arguments = tool
            .schema()
            .get("properties")
            .and_then(|all| all.as_object());
        let arguments: Vec<&str> = arguments
            .into_iter()
            .flatten()
            .map(|(name, _)| name.as_str())
            .collect();
        ToolWords(vec![
            (NAME_WEIGHT, stems(tool.name)),
            (SUMMARY_WEIGHT, stems(tool.description())),
            (MANUAL_WEIGHT, stems(tool.keywords)),
            (ARGUMENT_WEIGHT, stems(&arguments.join(" "))),
        ])
    }

    fn fit(&self, word: &str) -> f64 {
        let fits = self.0.iter().map(|(weight, words)| {
            if words.contains(word) {
                *weight
            } else if words.iter().any(|other| alike(word, other)) {
                weight * SIMILAR_WORD_FACTOR
            } else {
                0.0
            }
        });
        fits.fold(0.0, f64::max)
    }
}

/// A word that few tools have says more; by how well it fits each.
fn rarity(fits: &[f64]) -> f64 {
    let having = fits.iter().filter(|fit| **fit > 0.0).count();
    (1.0 + fits.len() as f64 / (1.0 + having as f64)).ln()
}

/// A slip of the pen, or a form that [`stem`] does not know.
fn alike(a: &str, b: &str) -> bool {
    if a.len() < 4 || b.len() < 4 {
        return false;
    }
    a.starts_with(b) || b.starts_with(a) || strsim::jaro_winkler(a, b) > 0.92
}

/// Lower-case words; names are taken apart where their parts meet.
fn words(text: &str) -> impl Iterator<Item = String> {
    let text: String = text.chars().take(2000).collect();
    let mut parts = Vec::new();
    let mut part = String::new();
    let mut lower = false;
    for c in text.chars() {
        if !c.is_alphanumeric() || (lower && c.is_uppercase()) {
            parts.push(std::mem::take(&mut part));
        }
        if c.is_alphanumeric() {
            part.extend(c.to_lowercase());
        }
        lower = c.is_lowercase();
    }
    parts.push(part);
    parts.into_iter().filter(|part| !part.is_empty())
}

/// A word without its ending: `searching`, `searches` and `searched` are `search`.
fn stem(word: &str) -> String {
    let keep = |end: &str, other: &str| {
        let rest = word.strip_suffix(end)?;
        (rest.chars().count() >= 3).then(|| format!("{rest}{other}"))
    };
    let cut = keep("ies", "y")
        .or_else(|| keep("ings", ""))
        .or_else(|| keep("ing", ""))
        .or_else(|| keep("ches", "ch"))
        .or_else(|| keep("shes", "sh"))
        .or_else(|| keep("sses", "ss"))
        .or_else(|| keep("ed", ""))
        .or_else(|| (!word.ends_with("ss")).then(|| keep("s", "")).flatten())
        .unwrap_or_else(|| word.to_owned());
    let cut = cut
        .strip_suffix('e')
        .filter(|rest| rest.len() >= 3)
        .map_or(cut.clone(), str::to_owned);
    // `running` and `run`, `stopped` and `stop`.
    let doubled = cut.len() > 3 && cut != word && {
        let mut last = cut.chars().rev();
        let (a, b) = (last.next(), last.next());
        a == b && a.is_some_and(|c| !"lsz".contains(c))
    };
    if doubled {
        cut[..cut.len() - cut.chars().next_back().map_or(0, char::len_utf8)].to_owned()
    } else {
        cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::TOOLS;

    fn first(query: &str) -> String {
        let tools: Vec<&ToolDef> = TOOLS.iter().collect();
        let found = search(&tools, query);
        found
            .first()
            .map_or(String::new(), |found| found.name.clone())
    }

    #[test]
    fn people_find_what_they_mean() {
        for (query, tools) in [
            ("read a file", &["read_file", "linux_fs_read"][..]),
            ("delete files", &["linux_fs_delete"]),
            ("removing a directory", &["linux_fs_delete"]),
            ("rename", &["linux_fs_move"]),
            ("replace text", &["linux_fs_edit"]),
            ("grep", &["te_grep"]),
            (
                "searching file contents",
                &["linux_search_content", "te_grep"],
            ),
            ("find files by name", &["linux_search_files", "te_find"]),
            ("run a shell command", &["run_cmd", "te_run"]),
            ("running pytest tests", &["run_pytest"]),
            (
                "callers of a function",
                &[
                    "rag_lineage",
                    "rag_search_enriched",
                    "inspect",
                    "rag_where_used",
                ],
            ),
            ("where is a symbol used", &["rag_where_used"]),
            ("free memory", &["linux_sys_snapshot"]),
            ("apply a patch", &["repo_write_patch"]),
            ("git history", &["te_git"]),
            ("linux_fs_mkdirs", &["linux_fs_mkdirs"]),
            ("linux.fs_mkdir", &["linux_fs_mkdirs"]),
            ("make directories", &["linux_fs_mkdirs"]),
            ("start a background server", &["linux_proc_start"]),
            ("serach content", &["linux_search_content"]),
            ("wirte file", &["linux_fs_write"]),
        ] {
            let found = first(query);
            assert!(tools.contains(&found.as_str()), "{query}: {found}");
        }
    }

    #[test]
    fn nonsense_finds_nothing_and_nothing_finds_all() {
        let tools: Vec<&ToolDef> = TOOLS.iter().collect();
        assert_eq!(search(&tools, "xyzzy plugh"), []);
        assert_eq!(search(&tools, "\u{0}\u{202e}'; import os"), []);
        assert_eq!(search(&tools, " ").len(), tools.len());
        assert!(search(&tools, &"search ".repeat(100_000)).len() <= MAX_RESULTS);
        assert_eq!(search(&[], "read"), []);
    }

    #[test]
    fn forms_of_a_word_are_one_word() {
        for forms in [
            &["search", "searches", "searching", "searched"][..],
            &["directory", "directories"],
            &["run", "running", "runs"],
            &["move", "moving", "moved", "moves"],
            &["stop", "stopped", "stopping"],
        ] {
            let stems: BTreeSet<String> = forms.iter().map(|form| stem(form)).collect();
            assert_eq!(stems.len(), 1, "{stems:?}");
        }
    }
}
