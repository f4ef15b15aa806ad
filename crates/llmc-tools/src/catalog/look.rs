//! `look`: the definitions that words or names mean, whole and with the lines that call them, within a budget.
//!
//! A name is looked up; words are searched for. Of both the whole definition is shown, not the lines that match: what is
//! changed next is mostly another part of it.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::Path;

use llmc_envelope::receipt::Receipt;
use llmc_host::CancelToken;
use llmc_index::{Index, Inspection};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::args::{Count, INDEX_ERRORS, bounded};
use super::target::is_name;
use crate::cx::{Cx, Form};
use crate::error::{Error, ErrorKind, Result};
use crate::rag::{self, Asked};
use crate::render::{AnswerRoom, Render, Rendition};
use crate::tool::{Effect, Tool};

/// Lines of callers that a definition has.
const MAX_CALLERS: usize = 6;
/// Names of one question that are looked up.
const MAX_NAMES: usize = 12;
/// Further definitions of one name.
const MAX_NAMESAKES: usize = 3;
/// Lines of a definition whose parts are shown whole.
const MAX_HEAD_LINES: usize = 12;
/// Results of a search that are looked at.
const SEARCHED: usize = 8;
/// What tells a question from a list of names.
const FUNCTION_WORDS: [&str; 24] = [
    "a", "after", "an", "and", "are", "before", "by", "do", "does", "for", "from", "how", "in",
    "is", "of", "on", "or", "that", "the", "to", "what", "when", "where", "with",
];
/// Bytes of a caller's line.
const MAX_LINE_BYTES: usize = 160;

pub(super) struct Look;

/// Whole definitions of words or names, with callers.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    #[serde(alias = "words", alias = "names", alias = "q")]
    query: String,
    #[schemars(extend("x-help" = "tokens", "x-unlisted" = true))]
    budget: Option<Count<3000, 100, 20_000>>,
}

/// Definitions, one after the other.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(transparent)]
#[schemars(extend("x-help" = "text: each definition under its place, then lines that call it"))]
pub(super) struct Definitions(String);

impl Tool for Look {
    const NAME: &'static str = "look";
    const EFFECT: Effect = Effect::Reads;
    const RETRIEVES: bool = true;
    const ERRORS: &'static [ErrorKind] = INDEX_ERRORS;
    const KEYWORDS: &'static str = "find definition source code callers explain where";
    type Args = Args;
    type Output = Definitions;

    async fn run(cx: &Cx, args: Args) -> Result<Definitions> {
        let budget = usize::try_from(bounded("budget", args.budget)?).unwrap_or(usize::MAX);
        cx.blocking(move |cx, stop| {
            rag::await_index(cx, stop)?;
            let mut found = Found::new(budget);
            let added = found
                .add_names(cx, &args.query, stop)
                .and_then(|()| found.add_searched(cx, &args.query, stop));
            match added {
                // What was found in time is worth more than an error.
                Err(error) if error.kind == ErrorKind::TimedOut && !found.text.is_empty() => {
                    found.is_cut_short = true;
                }
                Err(error) => return Err(error.hint("ask for fewer words or names")),
                Ok(()) => {}
            }
            found.finish(&args.query)
        })
        .await
    }
}

impl Render for Definitions {
    fn render(&self, room: &AnswerRoom<'_>) -> Result<Rendition<'_>> {
        Ok(match room.form() {
            Form::Data => Rendition::data(),
            // As long as the caller has said.
            Form::Text | Form::Page => Rendition::text(self.0.as_str(), Receipt::new()),
        })
    }
}

/// What is found so far.
struct Found {
    text: String,
    left: usize,
    known: HashSet<String>,
    /// Places that did not fit.
    unshown: Vec<String>,
    /// Names that no definition has.
    unknown: Vec<String>,
    is_cut_short: bool,
}

impl Found {
    fn new(budget: usize) -> Found {
        Found {
            text: String::new(),
            left: budget,
            known: HashSet::new(),
            unshown: Vec::new(),
            unknown: Vec::new(),
            is_cut_short: false,
        }
    }

    /// Looks up each word that is the name of a definition. In a question only what no other word looks like is taken for a name.
    fn add_names(&mut self, cx: &Cx, query: &str, stop: &CancelToken) -> Result<()> {
        let words: Vec<&str> = query
            .split([' ', ',', '\n', '\t'])
            .map(|word| word.trim_matches(['"', '\'', '`', '(', ')', ';']))
            .filter(|word| !word.is_empty())
            .collect();
        let is_function_word = |word: &&str| FUNCTION_WORDS.contains(&word.to_lowercase().as_str());
        let is_sentence = words.len() > 3 && words.iter().any(is_function_word);
        let looks_like_name = |word: &str| -> bool {
            let inner = word.chars().skip(1);
            word.contains(['_', '.', ':', '#']) || inner.clone().any(char::is_uppercase)
        };
        let names = words.into_iter().filter(|word| {
            let is_symbol = is_name(word) || word.contains("::") || word.contains('#');
            is_symbol && (!is_sentence || looks_like_name(word))
        });
        let names: Vec<&str> = names.take(MAX_NAMES).collect();
        let is_only_name = names.len() == 1;
        let (clear, plain): (Vec<&str>, Vec<&str>) = names
            .into_iter()
            .partition(|name| is_only_name || looks_like_name(name));
        let mut definitions: Vec<Inspection> = Vec::new();
        let mut further: Vec<String> = Vec::new();
        for name in &clear {
            stop.check()?;
            // What no definition is called is searched for.
            match inspect_name(cx, name, stop) {
                Some(found) => {
                    further.extend(found.ambiguous.iter().take(MAX_NAMESAKES).cloned());
                    definitions.push(found);
                }
                None if looks_like_name(name) => self.unknown.push((*name).to_owned()),
                None => {}
            }
        }
        // Of several names each says where the others are meant; of one alone all that are called so may be.
        let files: HashSet<String> = definitions.iter().map(|found| found.path.clone()).collect();
        for other in further {
            if let Ok(found) = inspect(cx, &other, stop)
                && (is_only_name || files.contains(&found.path))
            {
                definitions.push(found);
            }
        }
        for word in plain {
            stop.check()?;
            definitions.extend(definitions_of_word(cx, word, &files, stop));
        }
        for found in &definitions {
            let is_around = |other: &&Inspection| is_inside(&other.src, &found.src);
            match definitions.iter().any(|other| is_around(&other)) {
                // Its parts that were asked for are shown whole.
                true => self.add_head(found),
                false => self.add(cx, found, stop),
            }
        }
        Ok(())
    }

    /// Adds the first lines of a definition.
    fn add_head(&mut self, found: &Inspection) {
        let head: String = found
            .text
            .split_inclusive('\n')
            .take(MAX_HEAD_LINES)
            .collect();
        let text = format!("{}\n… all of it: {}\n", head.trim_end(), found.src);
        self.add_block(&title_of(found), &found.src, &text, "");
    }

    fn add_searched(&mut self, cx: &Cx, query: &str, stop: &CancelToken) -> Result<()> {
        if !self.text.is_empty() && self.left < 200 {
            return Ok(());
        }
        let is_one_name = !self.text.is_empty() && !query.trim().contains([' ', ',']);
        if is_one_name {
            return Ok(());
        }
        let mut limits = rag::limited(cx, &Asked::default())?;
        limits.k = limits.k.min(SEARCHED);
        let found = rag::search(cx, query, &limits, stop)?;
        for snippet in &found.snippets {
            stop.check()?;
            let whole = snippet
                .symbol
                .as_ref()
                .and_then(|symbol| inspect(cx, &format!("{}#{symbol}", snippet.path), stop).ok());
            match whole {
                Some(whole) => self.add(cx, &whole, stop),
                None => self.add_block(
                    &snippet.src(),
                    &snippet.src(),
                    &format!("{}\n", snippet.text.trim_end()),
                    "",
                ),
            }
        }
        Ok(())
    }

    /// Adds a whole definition and the lines that call it.
    fn add(&mut self, cx: &Cx, found: &Inspection, stop: &CancelToken) {
        if self
            .known
            .iter()
            .any(|known| known == &found.src || is_inside(&found.src, known))
        {
            return;
        }
        if self.known.iter().any(|known| is_inside(known, &found.src)) {
            // A part of it is shown whole already.
            return self.add_head(found);
        }
        let symbol = found.symbol.as_deref().unwrap_or_default();
        let id = format!("{}#{symbol}", found.path);
        let index: &Index = cx.app().index();
        let uses = index.where_used(&cx.files().roots, &id, 1, stop);
        let mut callers = String::new();
        if let Ok(uses) = uses {
            for site in uses.sites.iter().take(MAX_CALLERS) {
                let line = site.text.trim();
                let line = &line[..line.floor_char_boundary(MAX_LINE_BYTES.min(line.len()))];
                callers.push_str(&format!("  {}:{}: {line}\n", site.path, site.line));
            }
            if uses.total > MAX_CALLERS {
                callers.push_str(&format!("  and {} more\n", uses.total - MAX_CALLERS));
            }
        }
        let mut text = found.text.trim_end().to_owned();
        text.push('\n');
        self.add_block(&title_of(found), &found.src, &text, &callers);
    }

    fn add_block(&mut self, title: &str, src: &str, text: &str, callers: &str) {
        if !self.known.insert(src.to_owned()) {
            return;
        }
        let lines = src.split_once('#').map_or("", |(_, lines)| lines);
        let mut block = match lines.is_empty() || title == src {
            true => format!("== {title} ==\n{text}"),
            false => format!("== {title} {lines} ==\n{text}"),
        };
        if !callers.is_empty() {
            block.push_str("used in:\n");
            block.push_str(callers);
        }
        let cost = llmc_tokens::count(&block);
        if cost > self.left {
            if !self.text.is_empty() {
                self.unshown.push(src.to_owned());
                return;
            }
            // The first is shown as far as it goes.
            let (end, _) = llmc_tokens::lines_within(&block, self.left.saturating_sub(30));
            block.truncate(end);
            block.push_str(&format!("… cut at the budget; all of it: {src}\n"));
        }
        self.left = self.left.saturating_sub(cost);
        self.text.push_str(&block);
    }

    fn finish(mut self, query: &str) -> Result<Definitions> {
        if self.text.is_empty() {
            let message = format!("nothing is called or about {query:?}");
            return Err(Error::new(ErrorKind::NotFound, message).hint("try te_grep with a pattern"));
        }
        for (what, list) in [
            ("beyond the budget", &self.unshown),
            ("no definition is called", &self.unknown),
        ] {
            if !list.is_empty() {
                self.text
                    .push_str(&format!("{what}: {}\n", list.join(", ")));
            }
        }
        if self.is_cut_short {
            self.text
                .push_str("not all was looked up in time; ask for fewer words or names\n");
        }
        Ok(Definitions(self.text))
    }
}

fn title_of(found: &Inspection) -> String {
    match found.symbol.as_deref() {
        None | Some("") => found.src.clone(),
        Some(symbol) => format!("{}::{symbol}", found.path),
    }
}

/// Whether a place `path#L10-L20` is part of another one.
fn is_inside(part: &str, whole: &str) -> bool {
    fn lines(src: &str) -> Option<(&str, usize, usize)> {
        let (path, lines) = src.rsplit_once("#L")?;
        let (first, last) = lines.split_once("-L").unwrap_or((lines, lines));
        Some((path, first.parse().ok()?, last.parse().ok()?))
    }
    let (Some(part), Some(whole)) = (lines(part), lines(whole)) else {
        return false;
    };
    let is_smaller = part.2 - part.1.min(part.2) < whole.2 - whole.1.min(whole.2);
    part.0 == whole.0 && is_smaller && part.1 >= whole.1 && part.2 <= whole.2
}

/// Whether a name begins with a path.
fn is_path(name: &str) -> bool {
    let file = name.split("::").next().unwrap_or_default();
    file.contains(['/', '.'])
}

/// The definitions that a plain word means beside names: those in the files of the names, else its own if it has few.
fn definitions_of_word(
    cx: &Cx,
    word: &str,
    files: &HashSet<String>,
    stop: &CancelToken,
) -> Vec<Inspection> {
    let Ok(found) = inspect(cx, word, stop) else {
        return Vec::new();
    };
    let is_near = |place: &String| files.contains(place.split('#').next().unwrap_or(place));
    let others = found.ambiguous.iter().filter(|other| is_near(other));
    let mut near: Vec<Inspection> = others
        .take(MAX_NAMESAKES)
        .filter_map(|other| inspect(cx, other, stop).ok())
        .collect();
    if is_near(&found.path) || (near.is_empty() && found.ambiguous.len() < MAX_NAMESAKES) {
        near.insert(0, found);
    }
    near
}

/// A definition by its name. Of a name with the modules that it is imported from, the last part is the definition's and the one
/// before it is in its path.
fn inspect_name(cx: &Cx, name: &str, stop: &CancelToken) -> Option<Inspection> {
    let exact = name.replacen("::", "#", usize::from(is_path(name)));
    if let Ok(found) = inspect(cx, &exact, stop) {
        return Some(found);
    }
    let (modules, last) = name.rsplit_once('.').or_else(|| name.rsplit_once("::"))?;
    let module = modules.rsplit(['.', ':']).next()?;
    let found = inspect(cx, last, stop).ok()?;
    let is_in_module = |place: &str| {
        let path = place.split('#').next().unwrap_or(place);
        Path::new(path)
            .iter()
            .any(|part| Path::new(part).file_stem() == Some(OsStr::new(module)))
    };
    // Go writes the type of a method into its first line.
    let is_method = |found: &Inspection| {
        let first = found.text.lines().next().unwrap_or_default();
        first.contains(&format!("{module})"))
    };
    if is_in_module(&found.path) || is_method(&found) {
        return Some(found);
    }
    let near = found.ambiguous.iter().filter(|other| is_in_module(other));
    let others = near.chain(&found.ambiguous).take(MAX_NAMES);
    let mut others = others.filter_map(|other| inspect(cx, other, stop).ok());
    others.find(|other| is_in_module(&other.path) || is_method(other))
}

fn inspect(cx: &Cx, name: &str, stop: &CancelToken) -> llmc_index::Result<Inspection> {
    cx.app()
        .index()
        .inspect(&cx.files().roots, name, usize::MAX, stop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_smaller_and_in_the_same_file() {
        for (part, whole, inside) in [
            ("a.py#L12-L14", "a.py#L10-L20", true),
            ("a.py#L10-L14", "a.py#L10-L20", true),
            ("a.py#L10-L20", "a.py#L10-L20", false),
            ("a.py#L10-L20", "a.py#L12-L14", false),
            ("a.py#L19-L21", "a.py#L10-L20", false),
            ("b.py#L12-L14", "a.py#L10-L20", false),
            ("a.py#L12", "a.py#L10-L20", true),
            ("a.py", "a.py#L10-L20", false),
        ] {
            assert_eq!(is_inside(part, whole), inside, "{part} {whole}");
        }
    }
}
