//! Orders candidates by what BM25 does not see.
//!
//! Each candidate has features: its share of what a perfect unit would have by BM25, one with every word of the question in
//! its text and half of them in its name; how near its vector is; its place by either; whether its name is asked for, as far as
//! it has more of the question than that; whether it is a test. Their weighted sum is its strength (`features` has the
//! weights). It is raised if others of its file are candidates, or if others among the best refer to it. The score that answers
//! show is `1 - exp(-strength)`, between 0 and 1:
//! below 0.2 is weak evidence, above 0.6 strong. The same question on the same files gives the same order.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use crate::bm25::{WordCounts, WordWeights};
use crate::classify::{self, Origin};
use crate::features::{Feature, Features, PLACES};
use crate::question::Question;
use crate::source::Source;
use crate::stack_trace::TracedLine;
use crate::text::WordField;
use crate::units::{Lines, Unit, UnitKind};
use crate::word_vectors::{TextVector, VectorSum, WordPlace};
use crate::words::{each_word, folded, words};

/// Lines of a unit that are ranked.
const MAX_RANKED_LINES: u32 = 400;
/// Units with this share of common words are duplicates.
const DUPLICATE_SHARE: f32 = 0.9;

/// A unit that shares no word with the question is shown from this cosine on.
const MIN_COSINE_WITHOUT_WORDS: f32 = 0.35;

/// More uses than about four hundred say nothing more.
const MAX_USERS_LN: f32 = 6.0;

/// The share of the question's words that a unit must have for its name to count in full. A common word of a long question is
/// the whole name of some short function, which has nothing else to do with it.
const COVERAGE_FOR_NAME: f32 = 0.3;

/// How much a unit gains that holds all of a quoted text.
const QUOTE_FACTOR: f32 = 3.0;

/// A unit that may be shown.
pub(crate) struct Candidate {
    pub(crate) source: Rc<Source>,
    pub(crate) unit: Unit,
    pub(crate) origin: Origin,
    /// BM25 on the scale from 0 to 1; 0 if it was not found by words.
    pub(crate) share: f32,
    /// The similarity by a provider's vectors.
    pub(crate) provider_near: f32,
    /// The cosine of its vector and the question's.
    cosine: f32,
    /// How many units use its name.
    pub(crate) users: u64,
    /// The line that a stack trace names in it.
    pub(crate) traced: Option<TracedLine>,
    pub(crate) score: f32,
    pub(crate) features: Features,
    words: HashSet<String>,
}

impl Candidate {
    pub(crate) fn new(source: Rc<Source>, unit: Unit, origin: Origin, share: f32) -> Self {
        Self {
            source,
            unit,
            origin,
            share,
            provider_near: 0.0,
            cosine: 0.0,
            users: 0,
            traced: None,
            score: 0.0,
            features: Features::default(),
            words: HashSet::new(),
        }
    }

    /// Whether more than chance led to it: every unit has some cosine.
    fn has_evidence(&self) -> bool {
        self.share > 0.0
            || self.provider_near > 0.0
            || self.traced.is_some()
            || self.cosine >= MIN_COSINE_WITHOUT_WORDS
    }

    /// Calls away from where an error was raised; the maximum for units that no trace names.
    fn depth(&self) -> usize {
        self.traced.map_or(usize::MAX, |traced| traced.depth)
    }

    fn key(&self) -> (&str, u32, u32) {
        (&self.source.path, self.unit.first, self.unit.last)
    }
}

/// What needs no text; chooses which files are read.
pub(crate) fn known_features(
    question: &Question,
    weights: &WordWeights,
    unit: &Unit,
    origin: Origin,
    users: u64,
) -> Features {
    let mut features = Features::default();
    let mut mark = |feature: Feature| features.set(feature, 1.0);
    match origin {
        Origin::Own if is_test(unit) && !question.about_tests => mark(Feature::Test),
        Origin::Test if !question.about_tests => mark(Feature::Test),
        Origin::Own | Origin::Test => {}
        Origin::Vendored | Origin::Generated => mark(Feature::Foreign),
    }
    match unit.kind {
        UnitKind::Function | UnitKind::Section => {}
        UnitKind::Type => mark(Feature::Type),
        UnitKind::Module => mark(Feature::Module),
        UnitKind::Text => mark(Feature::Text),
    }
    // What a page that a program wrote says, its source says too.
    if origin == Origin::Generated && unit.kind == UnitKind::Section {
        mark(Feature::ForeignPage);
    }
    if !unit.symbol.is_empty() {
        let name = folded(&unit.symbol);
        if question.names.contains(&name) {
            mark(Feature::Named);
        } else if question.plain.contains(&name) {
            mark(Feature::PlainName);
        }
        let parts = words(&unit.symbol);
        let all: HashSet<&String> = parts.iter().collect();
        // A word of a log counts less than one of the question.
        let asked = question.words.iter().filter(|(word, _)| all.contains(word));
        let covered: f32 = asked.clone().map(|(_, weight)| weight.min(1.0)).sum();
        let rarity: f32 = asked.map(|(word, _)| weights.rarity(word)).sum();
        // Until the names of all candidates are known: see `compare_names`.
        features.set(Feature::NameAsked, covered / all.len().max(1) as f32);
        let share = rarity / weights.total().max(f32::EPSILON);
        features.set(Feature::AskedInName, share.min(1.0));
    }
    features.set(Feature::Users, (1.0 + users as f32).ln().min(MAX_USERS_LN));
    features
}

fn is_test(unit: &Unit) -> bool {
    let in_tests = |part: &str| matches!(part, "test" | "tests");
    unit.scope.split("::").any(in_tests)
        || in_tests(&unit.symbol)
        || unit.symbol.starts_with("test_")
}

/// What a question is compared with beside its words.
#[derive(Debug, Default)]
pub(crate) struct RankContext {
    /// The question's vector.
    pub(crate) vector: Option<TextVector>,
    /// Files of the workspace that the question names.
    pub(crate) named_files: HashSet<String>,
}

/// Scores, orders and thins out the candidates.
pub(crate) fn rank(
    question: &Question,
    context: &RankContext,
    weights: &WordWeights,
    mut all: Vec<Candidate>,
) -> Vec<Candidate> {
    let mut sum = VectorSum::new();
    for candidate in &mut all {
        by_text(question, context, weights, &mut sum, candidate);
    }
    all.retain(Candidate::has_evidence);
    compare_names(question, &mut all);
    weigh_names_by_coverage(&mut all);
    compare_places(&mut all);
    raise_same_file(&mut all);
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

fn by_text(
    question: &Question,
    context: &RankContext,
    weights: &WordWeights,
    sum: &mut VectorSum,
    candidate: &mut Candidate,
) {
    let unit = &candidate.unit;
    let lines = candidate.source.lines();
    let text = own_part(unit, &lines);
    let mut found: HashSet<String> = HashSet::new();
    let mut counts = WordCounts::default();
    let mut pairs = HashSet::new();
    // The last word and this one, with a blank between them.
    let mut pair = String::new();
    each_word(text, |word| {
        let start = pair.len() + 1;
        pair.push(' ');
        pair.push_str(word);
        if let Some(asked) = question.pairs.get(&pair) {
            pairs.insert(asked);
        }
        pair.drain(..start);
        counts.add(weights, word);
        if context.vector.is_some() {
            sum.add(WordPlace::Text, word);
        }
        if !found.contains(word) {
            found.insert(word.to_owned());
        }
    });
    let qualified = words(&unit.qualified());
    let coverage: f32 = question
        .words
        .iter()
        .filter(|(word, _)| found.contains(word) || qualified.contains(word))
        .map(|(word, _)| weights.rarity(word))
        .sum::<f32>()
        / weights.total().max(f32::EPSILON);
    let mut features = known_features(question, weights, unit, candidate.origin, candidate.users);
    let path = &candidate.source.path;
    let [by_name, by_path] = weights
        .name_and_path_scores(path, unit)
        .map(|score| weights.share(score));
    // Found by its vector; its words were not counted yet.
    if candidate.share == 0.0 {
        let by_text = weights.share(weights.field_score(WordField::Text, &counts));
        candidate.share = by_name + by_path + by_text;
    }
    features.set_words(candidate.share);
    features.set(Feature::NameWords, by_name);
    if let Some(vector) = &context.vector {
        sum.add_text(WordPlace::Name, &unit.symbol);
        for name in &unit.names {
            sum.add_text(WordPlace::Name, name);
        }
        sum.add_text(WordPlace::Path, path);
        sum.add_text(WordPlace::Path, &unit.scope);
        candidate.cosine = sum.take().map_or(0.0, |unit| unit.near(vector));
        features.set_cosine(candidate.cosine);
    }
    features.set(Feature::ProviderNear, candidate.provider_near);
    features.set(Feature::Coverage, coverage.min(1.0));
    let adjacent = pairs.len() as f32 / question.pairs.len().max(1) as f32;
    features.set(Feature::Adjacent, adjacent);
    let asked = question.text.trim();
    if asked.len() >= 6 && text.contains(asked) {
        features.set(Feature::Verbatim, 1.0);
    }
    let quoted = question.quotes.share_in(text);
    features.set(Feature::Quote, (1.0 + QUOTE_FACTOR * quoted).ln());
    let declares = match unit.kind {
        UnitKind::Text => true,
        UnitKind::Function => !text.contains('{'),
        UnitKind::Type | UnitKind::Module | UnitKind::Section => false,
    };
    if declares && classify::is_header(path) {
        features.set(Feature::Declared, 1.0);
    }
    if context.named_files.contains(path) {
        features.set(Feature::FileNamed, 1.0);
    }
    candidate.features = features;
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

/// Weighs the words of each name by how few of the candidates' names have them: the prefix that all functions of a C library
/// share tells nothing.
fn compare_names(question: &Question, all: &mut [Candidate]) {
    let parts: Vec<HashSet<String>> = all.iter().map(|one| name_parts(&one.unit.symbol)).collect();
    let mut names = HashSet::new();
    let mut with_word: HashMap<&str, f32> = HashMap::new();
    for (one, parts) in all.iter().zip(&parts) {
        if !parts.is_empty() && names.insert(one.unit.symbol.clone()) {
            for part in parts {
                *with_word.entry(part).or_default() += 1.0;
            }
        }
    }
    let asked: HashMap<&str, f32> = question
        .words
        .iter()
        .map(|(word, weight)| (word.as_str(), weight.min(1.0)))
        .collect();
    for (one, parts) in all.iter_mut().zip(&parts) {
        let (mut covered, mut total) = (0.0, 0.0);
        for part in parts {
            let with = with_word.get(part.as_str()).copied().unwrap_or(0.0);
            let rarity = (1.0 + names.len() as f32 / (with + 0.5)).ln();
            covered += rarity * asked.get(part.as_str()).copied().unwrap_or(0.0);
            total += rarity;
        }
        let share = covered / f32::max(total, f32::EPSILON);
        one.features.set(Feature::NameAsked, share);
    }
}

/// Lowers what speaks for a name alone where the unit has little of the question.
fn weigh_names_by_coverage(all: &mut [Candidate]) {
    for one in all {
        let features = &mut one.features;
        let share = (features.get(Feature::Coverage) / COVERAGE_FOR_NAME).min(1.0);
        for feature in [Feature::NameAsked, Feature::PlainName, Feature::Users] {
            features.set(feature, features.get(feature) * share);
        }
    }
}

/// The different words of a name, without the whole.
fn name_parts(name: &str) -> HashSet<String> {
    let mut parts: HashSet<String> = words(name).into_iter().collect();
    if parts.len() > 1 {
        parts.remove(&folded(name));
    }
    parts
}

/// Tells each candidate how many others are better by a feature.
fn compare_places(all: &mut [Candidate]) {
    for (feature, place) in PLACES {
        let mut values: Vec<f32> = all.iter().map(|one| one.features.get(feature)).collect();
        values.sort_by(|a, b| b.total_cmp(a));
        for one in all.iter_mut() {
            let own = one.features.get(feature);
            let better = values.partition_point(|value| *value > own);
            one.features.set_place(place, better);
        }
    }
}

/// Scores candidates, and raises those whose file has others: what a change is about is often spread over one file.
fn raise_same_file(all: &mut [Candidate]) {
    let strengths: Vec<f32> = all.iter().map(|one| one.features.strength()).collect();
    let best = strengths.iter().copied().fold(f32::EPSILON, f32::max);
    let mut files: HashMap<String, f32> = HashMap::new();
    for (one, strength) in all.iter().zip(&strengths) {
        *files.entry(one.source.path.clone()).or_default() += strength / best;
    }
    for (one, strength) in all.iter_mut().zip(strengths) {
        let others = files[&one.source.path] - strength / best;
        let value = (1.0 + others.max(0.0)).ln();
        one.features.set(Feature::SameFile, value);
        one.score = one.features.strength();
        if one.traced.is_some() {
            one.score = one.score.max(0.3) * 1.5;
        }
    }
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
            let shown_last = a.shown_last();
            let overlaps = same_file && a.first <= b.last && b.first <= shown_last;
            overlaps && (a.first <= b.first && b.last <= shown_last || a.kind == UnitKind::Text)
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
