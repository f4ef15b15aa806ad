//! All about one symbol or file at once.

use std::collections::HashMap;

use llmc_host::{CancelToken, Roots};
use serde::Serialize;

use crate::catalog::{Catalog, file_of, language_name};
use crate::classify::{Origin, Realm};
use crate::error::{Error, Result};
use crate::graph::{Related, ambiguous, callees, is_none, leads, related};
use crate::index::Index;
use crate::snippet::src;
use crate::source::Sources;
use crate::symbols::{self, Defined, kind_name};
use crate::text::{TextSearcher, Use};
use crate::units::{Lines, Symbol};
use crate::uses::{self, Site};

/// All about one symbol or file.
#[derive(Debug, Clone, Serialize)]
pub struct Inspected {
    /// The symbol, with what is around it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub symbol: Option<String>,
    /// The file.
    pub path: String,
    /// What it is.
    pub kind: String,
    /// Its lines.
    pub src: String,
    /// Up to its body, on one line.
    pub signature: String,
    /// Its comment.
    pub doc: String,
    /// Its text, within the budget; of a file, its outline.
    pub text: String,
    /// How many lines that text has in all, when they do not fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lines_total: Option<usize>,
    /// Who calls it.
    pub callers: Vec<Related>,
    /// What it calls.
    pub callees: Vec<Related>,
    /// Tests that use it.
    pub tests: Vec<Related>,
    /// Documentation that names it.
    pub docs: Vec<Related>,
    /// Files that mention the name and were not read, because too many do; the nearest were.
    #[serde(skip_serializing_if = "is_none")]
    pub unread_files: usize,
    /// The definitions that share the name, when there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ambiguous: Vec<String>,
}

impl Index {
    /// All about a symbol, or about a file if that is what is named.
    ///
    /// # Errors
    /// As for [`Index::where_used`].
    pub fn inspect(
        &self,
        roots: &Roots,
        what: &str,
        budget: usize,
        stop: &CancelToken,
    ) -> Result<Inspected> {
        self.with(|catalog, text| {
            let mut sources = Sources::new(roots);
            let asked = symbols::defined(what, catalog, &mut sources)?;
            let first = asked.first().cloned().ok_or(Error::Missing)?;
            inspected(&first, &asked, budget, catalog, text, &mut sources, stop)
        })
    }

    /// All about a file: what it defines.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn inspect_file(&self, roots: &Roots, path: &str, budget: usize) -> Result<Inspected> {
        let file = roots.open_file(path)?;
        let path = roots.display_path(&file.path);
        drop(file);
        let mut sources = Sources::new(roots);
        let source = sources
            .get(&path)
            .ok_or_else(|| Error::BadRequest(format!("{path}: not a text file below 4 MiB")))?;
        let lines = source.lines();
        let cut = source.cut();
        let mut text = String::new();
        for (symbol, found) in cut.symbols.iter().zip(&cut.definitions) {
            if symbol.kind.is_member_data() {
                continue;
            }
            let depth = symbol
                .scope
                .split("::")
                .filter(|part| !part.is_empty())
                .count();
            text.push_str(&format!(
                "{:>5}  {}{}\n",
                symbol.line,
                "  ".repeat(depth),
                found.signature
            ));
        }
        if text.is_empty() {
            text = source.text.clone();
        }
        let (text, lines_total) = within(&text, budget);
        let docs =
            self.with(|catalog, found| docs_naming(symbols::module_name(&path), catalog, found));
        Ok(Inspected {
            symbol: None,
            kind: cut.language.map_or("file", language_name).to_owned(),
            src: src(&path, 1, lines.len()),
            signature: String::new(),
            doc: doc_at(&lines, 1),
            text,
            lines_total,
            callers: Vec::new(),
            callees: Vec::new(),
            tests: Vec::new(),
            docs: docs.unwrap_or_default(),
            unread_files: 0,
            ambiguous: Vec::new(),
            path,
        })
    }
}

#[allow(clippy::too_many_arguments)]
fn inspected(
    one: &Defined,
    asked: &[Defined],
    budget: usize,
    catalog: &Catalog,
    text: &TextSearcher,
    sources: &mut Sources<'_>,
    stop: &CancelToken,
) -> Result<Inspected> {
    let lines = one.source.lines();
    let cut = one.source.cut();
    let sites = uses::sites(std::slice::from_ref(one), catalog, text, sources, stop)?;
    let users = |tests: bool| {
        let users = sites.found.iter().filter(|site| {
            let is_test = site.origin == Origin::Test || site.inside.as_ref().is_some_and(in_tests);
            let counts = leads(one, site.kind, site.confidence);
            is_test == tests && counts && site.confidence >= 0.3
        });
        related(users.filter_map(Site::user).filter(|user| !user.is(one)))
    };
    let callees = callees(one, catalog, sources, stop)?;
    let definition = cut
        .symbols
        .iter()
        .position(|symbol| symbol.line == one.symbol.line && symbol.name == one.symbol.name);
    let signature = definition.and_then(|place| cut.definitions.get(place));
    let first = first_with_comments(&lines, one.symbol.first);
    let shown = lines.range(first, one.symbol.last);
    let shown = shown.strip_suffix('\n').unwrap_or(shown);
    let (shown, lines_total) = within(shown, budget);
    let count = u32::try_from(shown.matches('\n').count()).unwrap_or(0);
    Ok(Inspected {
        symbol: Some(one.name()),
        path: one.source.path.clone(),
        kind: kind_name(one.symbol.kind).to_owned(),
        src: src(
            &one.source.path,
            first,
            (first + count).min(one.symbol.last),
        ),
        signature: signature.map_or_else(String::new, |found| found.signature.clone()),
        doc: doc_of(&lines, first, one),
        text: shown,
        lines_total,
        callers: users(false),
        callees: related(callees.into_iter().map(|(defined, _)| defined)),
        tests: users(true),
        docs: docs_naming(&one.symbol.name, catalog, text)?,
        unread_files: sites.unread,
        ambiguous: ambiguous(asked),
    })
}

fn in_tests(symbol: &Symbol) -> bool {
    symbol
        .scope
        .split("::")
        .any(|part| matches!(part, "test" | "tests"))
}

/// Sections of documentation that name a symbol.
fn docs_naming(name: &str, catalog: &Catalog, text: &TextSearcher) -> Result<Vec<Related>> {
    let mut found = Vec::new();
    // A name may stand in very many units of code; their files are looked up once each.
    let mut documents: HashMap<u64, Option<String>> = HashMap::new();
    for id in text.users(&[Use::Mention], name)? {
        let file = file_of(id);
        let path = match documents.get(&file) {
            Some(known) => known.clone(),
            None => {
                let row = catalog.file(file)?;
                let path = row
                    .filter(|row| row.realm == Realm::Docs)
                    .map(|row| row.path);
                documents.insert(file, path.clone());
                path
            }
        };
        if let Some(path) = path
            && let Some(row) = catalog.unit(id)?
        {
            found.push(Related {
                src: src(&path, row.unit.first, row.unit.last),
                symbol: row.unit.symbol,
            });
        }
    }
    Ok(found)
}

/// The leading whole lines of a text that fit, and how many it has if not all do.
fn within(text: &str, budget: usize) -> (String, Option<usize>) {
    let (bytes, _) = llmc_tokens::lines_within(text, budget);
    let kept = &text[..bytes];
    let all = (bytes < text.len()).then(|| text.lines().count());
    (kept.strip_suffix('\n').unwrap_or(kept).to_owned(), all)
}

const COMMENTS: &[&str] = &[
    "///", "//!", "//", "/**", "/*", "*/", "*", "#[", "#", "@", "\"\"\"",
];

fn first_with_comments(lines: &Lines<'_>, first: u32) -> u32 {
    let mut start = first;
    while start > 1 {
        let above = lines.trimmed(start - 1);
        if above.is_empty() || !COMMENTS.iter().any(|mark| above.starts_with(mark)) {
            break;
        }
        start -= 1;
    }
    start
}

/// The comment above a definition, or the string it begins with.
fn doc_of(lines: &Lines<'_>, first: u32, one: &Defined) -> String {
    if first < one.symbol.first {
        let doc = comment_text(lines, first, one.symbol.first - 1);
        if !doc.is_empty() {
            return doc;
        }
    }
    // A docstring stands right below the signature.
    for line in one.symbol.line + 1..=one.symbol.last.min(one.symbol.line + 12) {
        let text = lines.trimmed(line);
        if let Some(quote) = ["\"\"\"", "'''"]
            .iter()
            .find(|quote| text.starts_with(**quote))
        {
            let mut doc = String::new();
            for below in line..=one.symbol.last {
                let text = lines.trimmed(below);
                doc.push_str(text.trim_start_matches(quote).trim_end_matches(quote));
                doc.push('\n');
                let closes =
                    text.ends_with(quote) && (below > line || text.len() > 2 * quote.len() - 1);
                if closes {
                    break;
                }
            }
            return doc.trim().to_owned();
        }
        if text.ends_with(':') || text.ends_with(')') || text.ends_with(',') || text.is_empty() {
            continue;
        }
        break;
    }
    String::new()
}

/// The comment a file begins with.
fn doc_at(lines: &Lines<'_>, first: u32) -> String {
    let is_comment = |line: &u32| {
        let text = lines.trimmed(*line);
        COMMENTS.iter().any(|mark| text.starts_with(mark))
    };
    let last = (first..=lines.len()).take_while(is_comment).last();
    last.map_or_else(String::new, |last| comment_text(lines, first, last))
}

fn comment_text(lines: &Lines<'_>, first: u32, last: u32) -> String {
    let mut doc = String::new();
    for line in first..=last {
        let text = lines.trimmed(line);
        if text.starts_with("#[") || text.starts_with('@') || text.starts_with("#!") {
            continue;
        }
        let text = text
            .trim_start_matches(['/', '*', '#', '!', '"'])
            .trim_end_matches("*/")
            .trim();
        doc.push_str(text);
        doc.push('\n');
    }
    doc.trim().to_owned()
}
