//! The matches of a search, those first that answer the question behind it.
//!
//! A search for a name mostly asks where it is defined, then where it is used. So definitions come before uses,
//! uses before tests, tests before what was generated or vendored. A definition is what the syntax tree says is one: see
//! [`llmc_syntax`]. Within a rank the files with the most hits come first, and every file gets its share
//! before any gets a second one, so that one noisy file does not drown the rest.

mod definition_chance;
mod finder;
mod line;
mod select;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::RangeInclusive;

use llmc_tokens::count;

use crate::budget::plural;
use crate::place::{self, Purpose};
use crate::{Condensed, Totals};
use definition_chance::DefinitionChance;
use finder::PatternMatcher;
use llmc_syntax::{Language, ParseBudget};
use select::{HitGroup, select};

/// What a search has found.
#[derive(Debug, Clone, Default)]
pub struct Matches {
    /// The lines that are at hand, at best all of them.
    pub hits: Vec<FoundLine>,
    /// How many lines match in all.
    pub total: u64,
    /// How many files they are in.
    pub files_matched: u64,
    /// How many lines match in each file, also of those that are not at hand; empty where that is not known.
    pub counts: Vec<(String, u64)>,
    /// How many files were looked into.
    pub files_searched: u64,
    /// How many files were not, and why: `(29, "ignored")`.
    pub skipped: Vec<(u64, &'static str)>,
    /// What was searched for: a regular expression, or plain text if it is none.
    pub pattern: String,
}

/// A line that matches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FoundLine {
    /// The file, as it is to be shown.
    pub path: String,
    /// The line, counted from 1.
    pub line: u64,
    /// What it says.
    pub text: String,
}

/// From this many lines of a file on, its path stands once above them.
const GROUPED_LINES: usize = 3;
/// Tokens left for what is said about the rest.
const REMARK_TOKENS: usize = 70;
/// A file larger than this is not written by hand, and not parsed for a mark.
const MAX_SOURCE_BYTES: usize = 512 * 1024;
/// Files with weak candidates that are parsed.
const MAX_WEAK_FILES: usize = 40;

/// The matches within a token budget: ranked, grouped by file, with an account of the rest.
///
/// `source` gives the text of a file that had a hit; it is asked only for files that may hold a definition. Lines of the
/// body are `path:line: text`, or `line: text` under the path of a file with three or more; a blank line stands between the ranks, and `… 14 more in src/a.rs` after the last line
/// shown of a file that has more.
pub fn condense(
    matches: &Matches,
    source: impl FnMut(&str) -> Option<String>,
    budget_tokens: usize,
) -> Condensed {
    condense_within(matches, source, budget_tokens, ParseBudget::default())
}

fn condense_within(
    matches: &Matches,
    source: impl FnMut(&str) -> Option<String>,
    budget_tokens: usize,
    effort: ParseBudget,
) -> Condensed {
    let total = matches.total.max(matches.hits.len() as u64);
    let totals = Totals {
        matches: Some(total),
        files: Some(matches.files_matched),
        ..Totals::default()
    };
    if total == 0 {
        return Condensed {
            breadcrumbs: nothing_found(matches),
            totals: Totals {
                files: None,
                ..totals
            },
            ..Condensed::default()
        };
    }
    let room = budget_tokens;
    let finder = PatternMatcher::new(&matches.pattern, &matches.hits);
    let mut files = by_file(matches);
    mark_definitions(matches, &finder, &mut files, source, room, effort);
    let sections = sections(matches, &files);
    let line = |hit: usize| {
        let found = &matches.hits[hit];
        let mark = if files[&*found.path].definitions.contains_key(&hit) {
            "  # definition"
        } else {
            ""
        };
        let text = line::shown(&found.text, finder.find(&found.text));
        format!("{}: {text}{mark}\n", found.line)
    };
    // A path is printed before each line, or once above the lines of its file.
    let cost = |hit: usize| {
        let path = &*matches.hits[hit].path;
        let (path, lines) = (count(path) + 1, files[path].hits.len());
        let share = if lines < GROUPED_LINES {
            1
        } else {
            GROUPED_LINES
        };
        count(&line(hit)) + path / share
    };
    let all_at_hand = total == matches.hits.len() as u64;
    let mut shown = select(&sections, room, REMARK_TOKENS, all_at_hand, cost);
    // Lines were counted one by one and remarks by a guess; what counts is the answer as a whole.
    loop {
        let answer = render(matches, &files, &sections, &shown, total, &line);
        let tokens = count(&answer.body)
            + answer
                .breadcrumbs
                .iter()
                .map(|crumb| count(crumb) + 5)
                .sum::<usize>();
        if tokens <= room || shown.is_empty() {
            return Condensed { totals, ..answer };
        }
        let excess = (tokens - room) / 30;
        shown.truncate(shown.len() - 1 - excess.min(shown.len() - 1));
    }
}

/// What is known of a file with hits.
struct FileHits {
    purpose: Purpose,
    language: Option<Language>,
    hits: Vec<usize>,
    /// Hits that are in a module of tests.
    tests: HashSet<usize>,
    /// Hits that define a name, and whether the match is all of it.
    definitions: HashMap<usize, Exact>,
}

type Exact = bool;

/// What is longer in a source file was not typed.
const MINIFIED_LINE_BYTES: usize = 1000;

fn by_file(matches: &Matches) -> BTreeMap<&str, FileHits> {
    let mut files = BTreeMap::new();
    for (at, hit) in matches.hits.iter().enumerate() {
        let file = files.entry(&*hit.path).or_insert_with(|| FileHits {
            purpose: Purpose::of(&hit.path),
            language: Language::of_path(&hit.path),
            hits: Vec::new(),
            tests: HashSet::new(),
            definitions: HashMap::new(),
        });
        file.hits.push(at);
        if hit.text.len() > MINIFIED_LINE_BYTES && file.language.is_some() {
            file.purpose = Purpose::Generated;
        }
    }
    files
}

/// Parses the files that may define what was searched for, the likeliest first, until the answer is full of definitions
/// or the effort used up.
fn mark_definitions(
    matches: &Matches,
    finder: &PatternMatcher,
    files: &mut BTreeMap<&str, FileHits>,
    mut source: impl FnMut(&str) -> Option<String>,
    room: usize,
    mut effort: ParseBudget,
) {
    let mut candidates: Vec<_> = files
        .iter()
        .filter(|(_, file)| file.purpose != Purpose::Generated)
        .filter_map(|(path, file)| {
            let language = file.language?;
            let chances = file.hits.iter().map(|&hit| {
                let text = &matches.hits[hit].text;
                finder.find(text).map_or(DefinitionChance::None, |at| {
                    definition_chance::of(language, text, at)
                })
            });
            let best = chances.max().unwrap_or(DefinitionChance::None);
            (best > DefinitionChance::None).then_some((best, file.purpose, *path, language))
        })
        .collect();
    candidates.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)).then(a.2.cmp(b.2)));
    // Definitions get most of the room, and each takes about 25 tokens of it.
    let mut wanted = room * 6 / 10 / 25;
    let mut weak = 0;
    for (chance, _, path, language) in candidates {
        if wanted == 0 || effort.left() == 0 || weak == MAX_WEAK_FILES {
            break;
        }
        weak += usize::from(chance == DefinitionChance::Weak);
        let Some(text) = source(path).filter(|text| text.len() <= MAX_SOURCE_BYTES) else {
            continue;
        };
        let Some(file) = files.get_mut(path) else {
            continue;
        };
        if Purpose::says_generated(&text) {
            file.purpose = Purpose::Generated;
            continue;
        }
        let language = Language::detect(path, &text).unwrap_or(language);
        let found = llmc_syntax::definitions(language, &text, &mut effort);
        let lines = LineStarts::new(&text);
        let tests = test_modules(language, &found);
        file.tests.extend(file.hits.iter().copied().filter(|&hit| {
            let line = matches.hits[hit].line;
            tests.iter().any(|lines| lines.contains(&line))
        }));
        let mut by_line: HashMap<u64, Vec<_>> = HashMap::new();
        for definition in found.iter().filter(|found| found.kind.defines()) {
            by_line.entry(definition.line).or_default().push(definition);
        }
        for &hit in &file.hits {
            let line = matches.hits[hit].line;
            let Some(here) = by_line.get(&line) else {
                continue;
            };
            let Some((start, text)) = lines.line(&text, line) else {
                continue;
            };
            let spans = finder.spans(text);
            let best = here
                .iter()
                .filter_map(|definition| {
                    let from = definition.name_start.checked_sub(start)?;
                    let to = from + definition.name.len();
                    spans
                        .iter()
                        .filter(|span| span.start < to && from < span.end)
                        .map(|span| span.start <= from && to <= span.end)
                        .max()
                })
                .max();
            if let Some(exact) = best {
                file.definitions.insert(hit, exact);
                wanted = wanted.saturating_sub(1);
            }
        }
    }
}

/// The lines of the modules that hold a Rust file's own tests.
fn test_modules(language: Language, found: &[llmc_syntax::Definition]) -> Vec<RangeInclusive<u64>> {
    let module = |found: &&llmc_syntax::Definition| {
        found.kind == llmc_syntax::DefinitionKind::Module
            && matches!(&*found.name, "tests" | "test")
    };
    match language {
        Language::Rust => found
            .iter()
            .filter(module)
            .take(16)
            .map(|found| found.line..=found.end_line)
            .collect(),
        _ => Vec::new(),
    }
}

/// Where the lines of a text start.
struct LineStarts(Vec<usize>);

impl LineStarts {
    fn new(text: &str) -> Self {
        let ends = memchr::memchr_iter(b'\n', text.as_bytes()).map(|at| at + 1);
        Self(std::iter::once(0).chain(ends).collect())
    }

    /// A line, counted from 1, and where it starts.
    fn line<'t>(&self, text: &'t str, line: u64) -> Option<(usize, &'t str)> {
        let at = usize::try_from(line).ok()?.checked_sub(1)?;
        let start = *self.0.get(at)?;
        let end = self.0.get(at + 1).copied().unwrap_or(text.len());
        Some((start, text.get(start..end)?.trim_end_matches(['\n', '\r'])))
    }
}

/// The ranks, best first; in each the files in their order, with the hits in theirs.
fn sections<'p>(matches: &Matches, files: &BTreeMap<&'p str, FileHits>) -> [Vec<HitGroup<'p>>; 4] {
    let mut sections: [Vec<(_, HitGroup<'p>)>; 4] = Default::default();
    for (&path, file) in files {
        let mut hits: [Vec<usize>; 4] = Default::default();
        for &hit in &file.hits {
            let rank = match file.purpose {
                Purpose::Generated => 3,
                Purpose::Test => 2,
                Purpose::Main if file.tests.contains(&hit) => 2,
                Purpose::Main if file.definitions.contains_key(&hit) => 0,
                Purpose::Main => 1,
            };
            hits[rank].push(hit);
        }
        for (rank, mut hits) in hits.into_iter().enumerate() {
            if hits.is_empty() {
                continue;
            }
            // Also where place outranks it, a definition is the first thing to see in a file; what only talks about
            // the name, or brings it in, the last.
            hits.sort_by_key(|hit| {
                let defines = file.definitions.contains_key(hit);
                let text = &matches.hits[*hit].text;
                (!defines, line::says_little(text), *hit)
            });
            let exact = hits
                .iter()
                .any(|hit| file.definitions.get(hit) == Some(&true));
            let order = (
                !exact,
                file.language.is_none(),
                std::cmp::Reverse(hits.len()),
            );
            sections[rank].push((
                order,
                HitGroup {
                    path,
                    hits,
                    in_file: file.hits.len(),
                },
            ));
        }
    }
    sections.map(|mut groups| {
        groups.sort_by(|(a, x), (b, y)| a.cmp(b).then(x.path.cmp(y.path)));
        groups.into_iter().map(|(_, group)| group).collect()
    })
}

fn render<'m>(
    matches: &'m Matches,
    files: &BTreeMap<&'m str, FileHits>,
    sections: &[Vec<HitGroup<'m>>; 4],
    shown: &[usize],
    total: u64,
    line: &dyn Fn(usize) -> String,
) -> Condensed {
    let mut chosen = vec![false; matches.hits.len()];
    let mut left = counts(matches, files);
    let unplaced = total.saturating_sub(left.values().sum());
    for &hit in shown {
        chosen[hit] = true;
        if let Some(left) = left.get_mut(&*matches.hits[hit].path) {
            *left -= 1;
        }
    }
    let mut last_shown: HashMap<&str, usize> = HashMap::new();
    for (rank, groups) in sections.iter().enumerate() {
        for group in groups {
            if group.hits.iter().any(|&hit| chosen[hit]) {
                last_shown.insert(group.path, rank);
            }
        }
    }
    let mut body = String::new();
    let mut in_files_shown = 0;
    for (rank, groups) in sections.iter().enumerate() {
        let mut gap = !body.is_empty();
        for group in groups {
            let mut hits: Vec<_> = group
                .hits
                .iter()
                .copied()
                .filter(|&hit| chosen[hit])
                .collect();
            if hits.is_empty() {
                continue;
            }
            if std::mem::take(&mut gap) {
                body.push('\n');
            }
            hits.sort_by_key(|&hit| (matches.hits[hit].line, hit));
            let is_grouped = hits.len() >= GROUPED_LINES;
            if is_grouped {
                body.push_str(&format!("{}\n", group.path));
            }
            for &hit in &hits {
                if is_grouped {
                    body.push_str("  ");
                } else {
                    body.push_str(&format!("{}:", group.path));
                }
                body.push_str(&line(hit));
            }
            if last_shown.get(group.path) == Some(&rank)
                && let Some(more) = left.remove(group.path).filter(|more| *more > 0)
            {
                body.push_str(&format!(
                    "… {more} more in {}\n",
                    place::shortened(group.path)
                ));
                in_files_shown += more;
            }
        }
    }
    let withheld = total - shown.len() as u64;
    let is_clipped = |hit: &&usize| line::is_clipped(&matches.hits[**hit].text);
    let clipped = shown.iter().filter(is_clipped).count() as u64;
    let mut breadcrumbs = remarks(matches, &left, unplaced, in_files_shown);
    if clipped > 0 {
        breadcrumbs.push(format!("{} clipped", plural(clipped, "long line")));
    }
    Condensed {
        body,
        breadcrumbs,
        shown: shown.len() as u64,
        truncated: withheld > 0 || clipped > 0,
        hot_zone: hot_zone(matches, files),
        totals: Totals::default(),
        gap: None,
    }
}

/// What is left out, where; and what was not searched. The numbers of the first line add up to what is withheld.
fn remarks(
    matches: &Matches,
    left: &BTreeMap<&str, u64>,
    unplaced: u64,
    in_files_shown: u64,
) -> Vec<String> {
    let counts: Vec<_> = left
        .iter()
        .filter(|(_, more)| **more > 0)
        .map(|(path, more)| (*path, *more))
        .collect();
    let mut remarks = Vec::new();
    let mut parts = Vec::new();
    if in_files_shown > 0 {
        parts.push(format!("{in_files_shown} more in the files above"));
    }
    let more = if parts.is_empty() { " more" } else { "" };
    if let Some(rest) = place::whereabouts(&counts, 0, more) {
        let nowhere = !parts.is_empty() && !rest.contains(" in ");
        parts.push(if nowhere {
            format!("{rest} elsewhere")
        } else {
            rest
        });
    }
    if unplaced > 0 {
        // They may be in any file, also in one that is shown.
        let at_hand = matches.hits.len();
        let more = if parts.is_empty() { " more" } else { "" };
        parts.push(format!("{unplaced}{more} beyond the first {at_hand}"));
    }
    if !parts.is_empty() {
        remarks.push(parts.join(", "));
    }
    let skipped = skipped(&matches.skipped);
    if !skipped.is_empty() {
        remarks.push(format!(
            "{} files searched, {skipped}",
            matches.files_searched
        ));
    }
    remarks
}

/// `31 skipped: 29 ignored, 2 binary`, or nothing.
pub(crate) fn skipped(skipped: &[(u64, &'static str)]) -> String {
    let all = skipped
        .iter()
        .fold(0_u64, |sum, (files, _)| sum.saturating_add(*files));
    if all == 0 {
        return String::new();
    }
    let why: Vec<_> = skipped
        .iter()
        .filter(|(files, _)| *files > 0)
        .map(|(files, why)| format!("{files} {why}"))
        .collect();
    format!("{all} skipped: {}", why.join(", "))
}

/// How many matches each file has, as far as that is known.
fn counts<'m>(matches: &'m Matches, files: &BTreeMap<&'m str, FileHits>) -> BTreeMap<&'m str, u64> {
    let at_hand = files
        .iter()
        .map(|(path, file)| (*path, file.hits.len() as u64));
    let mut counts: BTreeMap<&str, u64> = at_hand.collect();
    for (path, count) in &matches.counts {
        let known = counts.entry(path).or_default();
        *known = (*known).max(*count);
    }
    counts
}

fn hot_zone<'m>(matches: &'m Matches, files: &BTreeMap<&'m str, FileHits>) -> Option<String> {
    if matches.files_matched < 2 && files.len() < 2 {
        return None;
    }
    let counts: Vec<_> = counts(matches, files).into_iter().collect();
    place::hottest(&counts).map(|(place, _)| place.to_owned())
}

fn nothing_found(matches: &Matches) -> Vec<String> {
    let mut said = format!("0 matches; {} files searched", matches.files_searched);
    let skipped = skipped(&matches.skipped);
    if !skipped.is_empty() {
        said.push_str(", ");
        said.push_str(&skipped);
    }
    let mut remarks = vec![said];
    remarks.extend(hint(&matches.pattern).map(str::to_owned));
    remarks
}

/// What in the pattern is most likely meant otherwise.
fn hint(pattern: &str) -> Option<&'static str> {
    if pattern.contains(r"\|") {
        Some(r"\| is a literal bar; alternatives are written a|b")
    } else if pattern.contains(r"\<") || pattern.contains(r"\>") {
        None
    } else if pattern.contains('(') && !pattern.contains(['\\', '|', '*', '+', '?', '[']) {
        Some(r"( ) group; \( \) match themselves")
    } else if pattern.contains(char::is_uppercase) && !pattern.contains('\\') {
        Some("case matters; (?i) before the pattern ignores it")
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
