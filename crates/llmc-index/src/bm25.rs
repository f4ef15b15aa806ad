//! BM25 for units that tantivy does not hold: of files that changed a moment ago, and of searches without an index.
//!
//! Formula and constants are tantivy's, so both kinds of scores are comparable.

use std::collections::{BTreeMap, HashMap};

use crate::classify::Realm;
use crate::question::Question;
use crate::text::{TextSearcher, WeightedWord, WordField};
use crate::units::{Lines, Unit};
use crate::words::each_word;

const K1: f32 = 1.2;
const B: f32 = 0.75;
/// A pasted log has many words; those that tell most are searched.
const MAX_WORDS: usize = 24;
/// Words in more than this share of all units are left out as long as there are others.
const MAX_COMMON_SHARE: f32 = 0.2;
/// The kind of an error (`RuntimeError`) is raised in many places; its message tells them apart.
const ERROR_KIND_WEIGHT: f32 = 0.3;
/// The score of a perfect unit, one with every word in its text and half of their weight in its name, relative to the
/// text alone.
const PERFECT_FACTOR: f32 = 1.5;

/// The weights of a question's words.
#[derive(Debug, Default)]
pub(crate) struct WordWeights {
    /// The words to search for, with the rarity of each in each field.
    words: HashMap<String, WordStats>,
    average: [f32; 3],
    /// The score that counts as 1.
    full: f32,
}

#[derive(Debug, Clone, Copy)]
struct WordStats {
    weight: f32,
    rarity: [f32; 3],
}

/// The rarity (IDF) of a word that is in `with` of `all` units.
fn rarity(all: f32, with: f32) -> f32 {
    (1.0 + (all - with + 0.5) / (with + 0.5)).ln()
}

/// How many files without units in the index were searched, and how many of them have each word.
#[derive(Debug, Default)]
pub(crate) struct FileCounts {
    pub(crate) files: u64,
    pub(crate) with_word: HashMap<String, u64>,
}

impl FileCounts {
    fn with_word(&self, word: &str) -> u64 {
        self.with_word.get(word).copied().unwrap_or(0)
    }
}

impl WordWeights {
    /// From the index and from files that it does not have.
    pub(crate) fn from_index(
        question: &Question,
        text: &TextSearcher,
        realms: &[Realm],
        others: &FileCounts,
    ) -> WordWeights {
        let all = (text.units() + others.files) as f32;
        let average = WordField::ALL.map(|field| {
            let averages = realms.iter().map(|realm| text.average(*realm, field));
            averages.fold(1.0, f32::max)
        });
        Self::new(question, all, average, |field, word| {
            let counts = realms
                .iter()
                .map(|realm| text.with_word(*realm, field, word));
            (counts.sum::<u64>() + others.with_word(word)) as f32
        })
    }

    /// From counts of files, where there is no index.
    pub(crate) fn from_files(question: &Question, counts: &FileCounts) -> WordWeights {
        let all = counts.files.max(1) as f32;
        Self::new(question, all, [3.0, 8.0, 120.0], |_, word| {
            counts.with_word(word) as f32
        })
    }

    fn new(
        question: &Question,
        all: f32,
        average: [f32; 3],
        with_word: impl Fn(WordField, &str) -> f32,
    ) -> WordWeights {
        let mut words: Vec<(String, WordStats, f32)> = Vec::new();
        for (word, weight) in &question.words {
            let counts = WordField::ALL.map(|field| with_word(field, word));
            let most = counts.into_iter().fold(0.0, f32::max);
            if most == 0.0 {
                continue;
            }
            let share = match question.error_kinds.contains(word) {
                true => ERROR_KIND_WEIGHT,
                false => 1.0,
            };
            let entry = WordStats {
                weight: share * weight,
                rarity: counts.map(|count| rarity(all, count.min(all))),
            };
            words.push((word.clone(), entry, most / all.max(1.0)));
        }
        let is_rare = |share: f32| share <= MAX_COMMON_SHARE;
        let telling = words
            .iter()
            .filter(|(word, _, share)| is_rare(*share) && !question.error_kinds.contains(word))
            .count();
        if telling >= 3 {
            words.retain(|(_, _, share)| is_rare(*share));
        }
        // The words that tell most: rare ones, and those of a title before those of a log.
        let telling = |entry: &(String, WordStats, f32)| {
            entry.1.weight * rarity(all, (entry.2 * all).min(all))
        };
        words.sort_by(|a, b| {
            let by_telling = telling(b).total_cmp(&telling(a));
            by_telling.then_with(|| a.0.cmp(&b.0))
        });
        words.truncate(MAX_WORDS);
        let full = words
            .iter()
            .map(|(_, word, _)| word.weight * word.rarity[WordField::Text as usize] * (K1 + 1.0))
            .sum::<f32>()
            * PERFECT_FACTOR;
        WordWeights {
            words: words
                .into_iter()
                .map(|(text, word, _)| (text, word))
                .collect(),
            average,
            full: full.max(f32::EPSILON),
        }
    }

    /// The words to search for, in a stable order.
    pub(crate) fn weighted_words(&self) -> Vec<WeightedWord> {
        let mut wanted: Vec<WeightedWord> = self
            .words
            .iter()
            .map(|(word, entry)| WeightedWord {
                word: word.clone(),
                weight: entry.weight,
            })
            .collect();
        wanted.sort_by(|a, b| a.word.cmp(&b.word));
        wanted
    }

    /// The weighted rarity of a word; 0 for one that is not searched for.
    pub(crate) fn rarity(&self, word: &str) -> f32 {
        self.words.get(word).map_or(0.0, |word| {
            word.weight * word.rarity[WordField::Text as usize]
        })
    }

    pub(crate) fn total(&self) -> f32 {
        let words = self.words.values();
        words
            .map(|word| word.weight * word.rarity[WordField::Text as usize])
            .sum()
    }

    /// A score of tantivy's on the scale from 0 to 1.
    pub(crate) fn share(&self, score: f32) -> f32 {
        (score / self.full).clamp(0.0, 1.0)
    }

    /// The score of a unit of a file, as tantivy would give it.
    pub(crate) fn score(&self, path: &str, unit: &Unit, lines: &Lines<'_>) -> f32 {
        let text = unit.own_text(lines);
        let mut counts = WordCounts::default();
        each_word(&text, |word| counts.add(self, word));
        let [by_name, by_path] = self.name_and_path_scores(path, unit);
        by_name + by_path + self.field_score(WordField::Text, &counts)
    }

    /// The scores of a unit's name and path.
    pub(crate) fn name_and_path_scores(&self, path: &str, unit: &Unit) -> [f32; 2] {
        let name = format!("{} {}", unit.symbol, unit.names.join(" "));
        let path = format!("{path} {}", unit.scope);
        [(WordField::Name, name), (WordField::Path, path)].map(|(field, text)| {
            let mut counts = WordCounts::default();
            each_word(&text, |word| counts.add(self, word));
            self.field_score(field, &counts)
        })
    }

    /// The score of a field with these words.
    pub(crate) fn field_score(&self, field: WordField, found: &WordCounts) -> f32 {
        let norm = K1 * (1.0 - B + B * found.length as f32 / self.average[field as usize]);
        let scores = found.counts.iter().filter_map(|(word, count)| {
            let word = self.words.get(word)?;
            let often = *count as f32;
            Some(word.weight * word.rarity[field as usize] * often * (K1 + 1.0) / (often + norm))
        });
        field.weight() * scores.sum::<f32>()
    }
}

/// How often a text has each word of a question.
#[derive(Debug, Default)]
pub(crate) struct WordCounts {
    // Ordered, so that sums of floats are the same each time.
    counts: BTreeMap<String, u32>,
    length: usize,
}

impl WordCounts {
    pub(crate) fn add(&mut self, weights: &WordWeights, word: &str) {
        self.length += 1;
        if !weights.words.contains_key(word) {
            return;
        }
        match self.counts.get_mut(word) {
            Some(count) => *count += 1,
            None => {
                self.counts.insert(word.to_owned(), 1);
            }
        }
    }
}
