//! Orders candidates by what BM25 does not see.
//!
//! A unit's strength is the share of what a perfect unit would have by BM25, one with every word of the question in its
//! text and half of them in its name. It is raised by evidence for a unit (its name is asked for, words of the
//! question stand next to each other, it holds a quoted message, much refers to it, others among the best refer to it)
//! and lowered for tests, vendored and generated code unless they are asked for. The score that answers show is
//! `1 - exp(-strength)`, between 0 and 1: below 0.2 is weak evidence, above 0.6 strong. The same question on the same
//! files gives the same order.

use std::collections::HashSet;
use std::rc::Rc;

use crate::bm25::WordWeights;
use crate::classify::Origin;
use crate::question::Question;
use crate::source::Source;
use crate::stack_trace::TracedLine;
use crate::units::{Lines, Unit, UnitKind};
use crate::words::{each_word, folded, words};

/// Lines of a unit that are ranked.
const MAX_RANKED_LINES: u32 = 400;
/// Units with this share of common words are duplicates.
const DUPLICATE_SHARE: f32 = 0.9;

/// How much a unit gains that holds all of a quoted text.
const QUOTE_FACTOR: f32 = 3.0;

/// A unit that may be shown.
pub(crate) struct Candidate {
    pub(crate) source: Rc<Source>,
    pub(crate) unit: Unit,
    pub(crate) origin: Origin,
    /// BM25 on the scale from 0 to 1.
    pub(crate) base: f32,
    /// How many units use its name.
    pub(crate) users: u64,
    /// The line that a stack trace names in it.
    pub(crate) traced: Option<TracedLine>,
    pub(crate) score: f32,
    words: HashSet<String>,
}

impl Candidate {
    pub(crate) fn new(source: Rc<Source>, unit: Unit, origin: Origin, base: f32) -> Self {
        Self {
            source,
            unit,
            origin,
            base,
            users: 0,
            traced: None,
            score: 0.0,
            words: HashSet::new(),
        }
    }

    /// Calls away from where an error was raised; the maximum for units that no trace names.
    fn depth(&self) -> usize {
        self.traced.map_or(usize::MAX, |traced| traced.depth)
    }

    fn key(&self) -> (&str, u32, u32) {
        (&self.source.path, self.unit.first, self.unit.last)
    }
}

/// The factor that needs no text; chooses which files are read.
pub(crate) fn name_factor(question: &Question, unit: &Unit, origin: Origin, users: u64) -> f32 {
    let mut factor = match origin {
        Origin::Own if is_test(unit) => test_factor(question),
        Origin::Own => 1.0,
        Origin::Test => test_factor(question),
        // What a page that a program wrote says, its source says too.
        Origin::Generated if unit.kind == UnitKind::Section => 0.35,
        Origin::Vendored | Origin::Generated => 0.6,
    };
    factor *= match unit.kind {
        UnitKind::Function | UnitKind::Type | UnitKind::Section => 1.0,
        UnitKind::Module => 0.9,
        UnitKind::Text => 0.85,
    };
    if !unit.symbol.is_empty() {
        let name = folded(&unit.symbol);
        if question.names.contains(&name) {
            factor *= 1.8;
        } else if question.plain.contains(&name) {
            factor *= 1.15;
        }
        let parts = words(&unit.symbol);
        let asked = |part: &String| question.words.iter().any(|(word, _)| word == part);
        let covered = parts.iter().filter(|part| asked(part)).count();
        factor *= 1.0 + 0.35 * covered as f32 / parts.len().max(1) as f32;
    }
    factor * (1.0 + 0.03 * (1.0 + users as f32).ln()).min(1.2)
}

fn test_factor(question: &Question) -> f32 {
    if question.about_tests { 1.0 } else { 0.7 }
}

fn is_test(unit: &Unit) -> bool {
    let in_tests = |part: &str| matches!(part, "test" | "tests");
    unit.scope.split("::").any(in_tests)
        || in_tests(&unit.symbol)
        || unit.symbol.starts_with("test_")
}

/// Scores, orders and thins out the candidates.
pub(crate) fn rank(
    question: &Question,
    weights: &WordWeights,
    mut all: Vec<Candidate>,
) -> Vec<Candidate> {
    for candidate in &mut all {
        by_text(question, weights, candidate);
    }
    sort(&mut all);
    raise_neighbours(&mut all);
    put_traced_first(&mut all);
    sort(&mut all);
    let mut all = deduplicated(all);
    for candidate in &mut all {
        // Strengths have no upper end; answers show them on a scale that has one, in the same order.
        candidate.score = 1.0 - (-candidate.score).exp();
    }
    all
}

fn by_text(question: &Question, weights: &WordWeights, candidate: &mut Candidate) {
    let unit = &candidate.unit;
    let lines = candidate.source.lines();
    let text = own_part(unit, &lines);
    let mut found: HashSet<String> = HashSet::new();
    let mut pairs = HashSet::new();
    let mut last = String::new();
    each_word(text, |word| {
        let pair = (std::mem::take(&mut last), word.to_owned());
        if question.pairs.contains(&pair) {
            pairs.insert(pair.clone());
        }
        last = pair.1;
        if !found.contains(word) {
            found.insert(word.to_owned());
        }
    });
    let mut covered = found.clone();
    each_word(&unit.qualified(), |word| {
        covered.insert(word.to_owned());
    });
    let coverage: f32 = question
        .words
        .iter()
        .filter(|(word, _)| covered.contains(word))
        .map(|(word, _)| weights.rarity(word))
        .sum::<f32>()
        / weights.total().max(f32::EPSILON);
    let adjacent = pairs.len() as f32 / question.pairs.len().max(1) as f32;
    let asked = question.text.trim();
    let verbatim = asked.len() >= 6 && text.contains(asked);
    let mut score = candidate.base * name_factor(question, unit, candidate.origin, candidate.users);
    score *= 0.6 + 0.4 * coverage.min(1.0);
    score *= 1.0 + 0.3 * adjacent;
    if verbatim {
        score *= 1.5;
    }
    score *= 1.0 + QUOTE_FACTOR * question.quotes.share_in(text);
    if candidate.traced.is_some() {
        score = score.max(0.3) * 1.5;
    }
    candidate.score = score;
    candidate.words = found;
}

/// The text that is ranked: of a type with methods only its head, since those are units themselves.
fn own_part<'a>(unit: &Unit, lines: &Lines<'a>) -> &'a str {
    let end = match unit.kind {
        UnitKind::Type | UnitKind::Module => unit.head,
        UnitKind::Function | UnitKind::Section | UnitKind::Text => unit.last,
    };
    lines.range(unit.first, end.min(unit.first + MAX_RANKED_LINES))
}

/// Raises units that the best units refer to.
fn raise_neighbours(all: &mut [Candidate]) {
    const BEST_UNITS: usize = 8;
    let best: Vec<(HashSet<String>, f32, u32, String)> = all
        .iter()
        .take(BEST_UNITS)
        .map(|best| {
            let lines = best.source.lines();
            let text = own_part(&best.unit, &lines);
            let names = text.split(|c: char| !(c.is_alphanumeric() || c == '_'));
            let names = names.map(str::to_owned).collect();
            (names, best.score, best.unit.first, best.source.path.clone())
        })
        .collect();
    for candidate in all {
        let unit = &candidate.unit;
        if unit.symbol.len() < 4 || !matches!(unit.kind, UnitKind::Function | UnitKind::Type) {
            continue;
        }
        let raise: f32 = best
            .iter()
            .filter(|(names, _, first, path)| {
                let itself = *first == unit.first && *path == candidate.source.path;
                !itself && names.contains(&unit.symbol)
            })
            .map(|(_, score, _, _)| 0.05 * score)
            .sum();
        candidate.score += raise.min(0.1);
    }
}

/// For a pasted trace the line that raised the error comes first, then its callers, whatever their words.
fn put_traced_first(all: &mut [Candidate]) {
    let others = all.iter().filter(|one| one.traced.is_none());
    let mut least = others.map(|one| one.score).fold(0.0, f32::max);
    let mut frames: Vec<&mut Candidate> =
        all.iter_mut().filter(|one| one.traced.is_some()).collect();
    frames.sort_by_key(|frame| std::cmp::Reverse(frame.depth()));
    for frame in frames {
        least = frame.score.max(least);
        frame.score = least;
    }
}

fn sort(all: &mut [Candidate]) {
    all.sort_by(|a, b| {
        b.score
            .total_cmp(&a.score)
            .then_with(|| a.depth().cmp(&b.depth()))
            .then_with(|| a.key().cmp(&b.key()))
    });
}

/// Removes duplicates of better units, and parts of units that are shown whole.
fn deduplicated(all: Vec<Candidate>) -> Vec<Candidate> {
    let mut kept: Vec<Candidate> = Vec::new();
    for candidate in all {
        let repeats = kept.iter().any(|better| {
            let same_file = better.source.path == candidate.source.path;
            let (a, b) = (&better.unit, &candidate.unit);
            let overlaps = same_file && a.first <= b.last && b.first <= a.last;
            overlaps && (a.first <= b.first && b.last <= a.last || a.kind == UnitKind::Text)
                || are_duplicates(&better.words, &candidate.words)
        });
        if !repeats {
            kept.push(candidate);
        }
    }
    kept
}

fn are_duplicates(a: &HashSet<String>, b: &HashSet<String>) -> bool {
    let (small, large) = if a.len() < b.len() { (a, b) } else { (b, a) };
    // Two short units share most of their words without being copies.
    if small.len() < 8 || (small.len() as f32) < DUPLICATE_SHARE * large.len() as f32 {
        return false;
    }
    let shared = small.iter().filter(|word| large.contains(*word)).count();
    let union = small.len() + large.len() - shared;
    shared as f32 >= DUPLICATE_SHARE * union as f32
}
