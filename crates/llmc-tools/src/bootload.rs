//! What an agent starts a task with: the rules of the house, where to look, and the first snippets.
//!
//! The rules are read from the configured sidecars, else from `AGENTS.md` and `CONTRACTS.md`. Nothing is remembered
//! between calls: the documents and the index are read each time.

use llmc_host::CancelToken;
use llmc_index::{IndexState, SearchScope};
use schemars::JsonSchema;
use serde::Serialize;

use crate::cx::Cx;
use crate::error::Result;
use crate::rag::{self, Asked, Freshness, ShownSnippet};

/// Documents that hold the rules where no sidecars are configured.
const RULES: &[&str] = &["AGENTS.md", "CONTRACTS.md"];
/// The part of a document that is read.
const MAX_DOCUMENT_BYTES: usize = 256 << 10;
/// Tokens of the plan.
const PLAN: usize = 300;
/// Headings under which a document says how to work.
const WORK: &[&str] = &[
    "plan",
    "workflow",
    "process",
    "steps",
    "how",
    "work",
    "rules",
    "instructions",
    "guidelines",
    "contract",
    "before",
    "setup",
];

/// What `rag_bootload` answers with.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TaskStart {
    plan: String,
    scope: SearchScope,
    notes: String,
    snippets: Vec<ShownSnippet>,
    provenance: bool,
    freshness: Freshness,
}

/// Reads the rules and searches for the task.
pub(crate) fn document(cx: &Cx, task: &str, stop: &CancelToken) -> Result<TaskStart> {
    let documents = documents(cx, stop);
    let mut notes: Vec<String> = Vec::new();
    for (path, _) in &documents {
        notes.push(format!("rules: {path}"));
    }
    if documents.is_empty() {
        notes.push("no AGENTS.md or CONTRACTS.md here".to_owned());
    }
    let asked = Asked {
        query: task.to_owned(),
        ..Asked::default()
    };
    let limits = rag::limited(cx, &asked)?;
    // A bare number or code says nothing about the task; then the rules alone have to do.
    let found = if says_something(task) {
        Some(rag::search(cx, task, &limits, stop)?)
    } else {
        notes.push("the task id has no words to search for; use rag_search".to_owned());
        None
    };
    let state = found
        .as_ref()
        .map_or_else(|| cx.app().index().state(), |found| found.index);
    notes.push(match state {
        IndexState::Ready => "index ready".to_owned(),
        IndexState::Building => format!(
            "index building: {} files so far",
            cx.app().index().progress().done()
        ),
        IndexState::None => match cx.app().index().unavailable_reason() {
            Some(why) => format!("{why}; searches go over the files"),
            None => "no index yet; searches go over the files".to_owned(),
        },
    });
    if let Some(left_out) = found.as_ref().and_then(|found| found.omitted.as_ref()) {
        notes.push(left_out.to_string());
    }
    let snippets = found.as_ref().map_or_else(Vec::new, |found| {
        found.snippets.iter().map(ShownSnippet::from).collect()
    });
    let unverified = found.map_or_else(Vec::new, |found| found.unverified);
    Ok(TaskStart {
        plan: plan(&documents),
        scope: limits.scope,
        notes: notes.join("; "),
        snippets,
        provenance: true,
        freshness: Freshness::of(unverified),
    })
}

/// The documents with the rules, as they are now.
fn documents(cx: &Cx, stop: &CancelToken) -> Vec<(String, String)> {
    let configured = &cx.app().config().mcp.resources.sidecars;
    let configured = configured.iter().map(String::as_str);
    let mut found: Vec<(String, String)> = Vec::new();
    for path in configured.chain(RULES.iter().copied()) {
        let Ok(file) = cx.files().roots.open_file(path) else {
            continue;
        };
        let shown = cx.files().roots.display_path(&file.path);
        if found.iter().any(|(known, _)| *known == shown) {
            continue;
        }
        if let Ok(bytes) = file.read_all(MAX_DOCUMENT_BYTES, stop) {
            found.push((shown, String::from_utf8_lossy(&bytes).into_owned()));
        }
    }
    found
}

/// The sections that say how to work, else the beginning, within [`PLAN`] tokens.
fn plan(documents: &[(String, String)]) -> String {
    let mut parts = String::new();
    for (path, text) in documents {
        let about_work: String = sections(text)
            .filter(|section| {
                let heading = section.lines().next().unwrap_or("").to_lowercase();
                let mut words = heading.split(|c: char| !c.is_alphanumeric());
                words.any(|word| WORK.contains(&word))
            })
            .collect();
        let text = if about_work.is_empty() {
            text
        } else {
            &about_work
        };
        parts.push_str(&format!("From {path}:\n{}\n", text.trim()));
    }
    let (bytes, _) = llmc_tokens::lines_within(&parts, PLAN);
    parts[..bytes].trim_end().to_owned()
}

/// The sections of a Markdown text, each with its heading.
fn sections(text: &str) -> impl Iterator<Item = &str> {
    let starts = text
        .split_inclusive('\n')
        .scan(0, |at, line| {
            let start = *at;
            *at += line.len();
            Some((start, line))
        })
        .filter(|(_, line)| line.starts_with('#'))
        .map(|(start, _)| start);
    let starts: Vec<usize> = starts.chain([text.len()]).collect();
    (1..starts.len()).map(move |next| &text[starts[next - 1]..starts[next]])
}

fn says_something(task: &str) -> bool {
    let words = task.split(|c: char| !c.is_alphabetic());
    words.filter(|word| word.len() > 2).count() >= 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_what_a_document_says_about_work() {
        let text = "# Project\nIt sells socks.\n## Workflow\nRun the tests first.\n## History\nLong ago.\n";
        let plan = plan(&[("AGENTS.md".to_owned(), text.to_owned())]);
        assert_eq!(plan, "From AGENTS.md:\n## Workflow\nRun the tests first.");
        let bare = super::plan(&[("A.md".to_owned(), "Only words.\n".to_owned())]);
        assert_eq!(bare, "From A.md:\nOnly words.");
        assert_eq!(super::plan(&[]), "");
    }

    #[test]
    fn a_bare_id_is_no_question() {
        assert!(!says_something("T-1234") && !says_something("task"));
        assert!(says_something("fix the login timeout"));
    }
}
