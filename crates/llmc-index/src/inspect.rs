//! One symbol or file with everything related to it.

use std::collections::HashMap;

use llmc_host::{CancelToken, Roots};
use schemars::JsonSchema;
use serde::Serialize;

use crate::catalog::{Catalog, file_of, language_name};
use crate::classify::{Origin, Realm};
use crate::elsewhere::UsesElsewhere;
use crate::error::{Error, Result};
use crate::graph::{RelatedSymbol, ambiguous, callees, is_lineage_step, is_zero, related};
use crate::index::Index;
use crate::snippet::src;
use crate::source::Sources;
use crate::symbols::{self, ResolvedSymbol, kind_name};
use crate::text::{TextSearcher, UseKind};
use crate::units::{Lines, Symbol};
use crate::uses::{self, FoundUse};

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Inspection {
    /// The qualified name; absent for a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub symbol: Option<String>,
    pub path: String,
    pub kind: String,
    pub src: String,
    /// The definition up to its body, on one line.
    pub signature: String,
    pub doc: String,
    /// The text within the budget; of a file, its outline.
    pub text: String,
    /// The lines of the whole text, if they do not fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lines_total: Option<usize>,
    pub callers: Vec<RelatedSymbol>,
    pub callees: Vec<RelatedSymbol>,
    /// Tests that use it.
    pub tests: Vec<RelatedSymbol>,
    /// Documentation that names it.
    pub docs: Vec<RelatedSymbol>,
    /// Uses of the name that are not of this symbol.
    #[serde(skip_serializing_if = "UsesElsewhere::is_empty")]
    pub elsewhere: UsesElsewhere,
    /// Files that mention the name and were not read because there are too many; the nearest were.
    #[serde(skip_serializing_if = "is_zero")]
    pub unread_files: usize,
    /// The definitions that share the name, when there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ambiguous: Vec<String>,
}

impl Index {
    /// A symbol with its callers, callees, tests and documentation.
    ///
    /// # Errors
    /// As for [`Index::where_used`].
    pub fn inspect(
        &self,
        roots: &Roots,
        what: &str,
        budget: usize,
        stop: &CancelToken,
    ) -> Result<Inspection> {
        self.with(|catalog, text| {
            let mut sources = Sources::new(roots);
            let asked = symbols::resolve_name(what, catalog, &mut sources)?;
            let first = asked.first().cloned().ok_or(Error::Missing)?;
            inspect_symbol(&first, &asked, budget, catalog, text, &mut sources, stop)
        })
    }

    /// A file with its outline and the documentation that names it.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn inspect_file(&self, roots: &Roots, path: &str, budget: usize) -> Result<Inspection> {
        let file = roots.open_file(path)?;
        let path = roots.display_path(&file.path);
        drop(file);
        let mut sources = Sources::new(roots);
        let source = sources
            .get(&path)
            .ok_or_else(|| Error::BadRequest(format!("{path}: not a text file below 4 MiB")))?;
        let lines = source.lines();
        let parts = source.parts();
        let mut text = String::new();
        for (symbol, found) in parts.symbols.iter().zip(&parts.definitions) {
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
        Ok(Inspection {
            symbol: None,
            kind: parts.language.map_or("file", language_name).to_owned(),
            src: src(&path, 1, lines.len()),
            signature: String::new(),
            doc: doc_at(&lines, 1),
            text,
            lines_total,
            callers: Vec::new(),
            callees: Vec::new(),
            tests: Vec::new(),
            docs: docs.unwrap_or_default(),
            elsewhere: UsesElsewhere::default(),
            unread_files: 0,
            ambiguous: Vec::new(),
            path,
        })
    }
}

#[allow(clippy::too_many_arguments)]
fn inspect_symbol(
    one: &ResolvedSymbol,
    asked: &[ResolvedSymbol],
    budget: usize,
    catalog: &Catalog,
    text: &TextSearcher,
    sources: &mut Sources<'_>,
    stop: &CancelToken,
) -> Result<Inspection> {
    let lines = one.source.lines();
    let parts = one.source.parts();
    let sites = uses::find_uses(std::slice::from_ref(one), catalog, text, sources, stop)?;
    let users = |tests: bool| {
        let users = sites.found.iter().filter(|site| {
            let is_test = site.origin == Origin::Test || site.inside.as_ref().is_some_and(in_tests);
            let counts = is_lineage_step(one, site.kind, site.confidence);
            is_test == tests && counts && site.confidence >= 0.3
        });
        related(
            users
                .filter_map(FoundUse::user)
                .filter(|user| !user.is(one)),
        )
    };
    let callees = callees(one, catalog, sources, stop)?;
    let definition = parts
        .symbols
        .iter()
        .position(|symbol| symbol.line == one.symbol.line && symbol.name == one.symbol.name);
    let signature = definition.and_then(|place| parts.definitions.get(place));
    let first = first_with_comments(&lines, one.symbol.first);
    let shown = lines.range(first, one.symbol.last);
    let shown = shown.strip_suffix('\n').unwrap_or(shown);
    let (shown, lines_total) = within(shown, budget);
    let count = u32::try_from(shown.matches('\n').count()).unwrap_or(0);
    Ok(Inspection {
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
        elsewhere: sites.elsewhere,
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
fn docs_naming(name: &str, catalog: &Catalog, text: &TextSearcher) -> Result<Vec<RelatedSymbol>> {
    let mut found = Vec::new();
    // A name may be in very many units of code; each file is looked up once.
    let mut documents: HashMap<u64, Option<String>> = HashMap::new();
    for id in text.users(&[UseKind::Mention], name)? {
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
            found.push(RelatedSymbol {
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

const COMMENT_MARKS: &[&str] = &[
    "///", "//!", "//", "/**", "/*", "*/", "*", "#[", "#", "@", "\"\"\"",
];

fn first_with_comments(lines: &Lines<'_>, first: u32) -> u32 {
    let mut start = first;
    while start > 1 {
        let above = lines.trimmed(start - 1);
        if above.is_empty() || !COMMENT_MARKS.iter().any(|mark| above.starts_with(mark)) {
            break;
        }
        start -= 1;
    }
    start
}

/// The comment above a definition, or the string it begins with.
fn doc_of(lines: &Lines<'_>, first: u32, one: &ResolvedSymbol) -> String {
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
        COMMENT_MARKS.iter().any(|mark| text.starts_with(mark))
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
