//! BM25 by hand, for units that tantivy has not seen: files that changed a moment ago, and searches without an index.
//!
//! The formula and its constants are tantivy's, so both kinds of scores can stand in one list.

use std::collections::HashMap;

use crate::classify::Realm;
use crate::query::Question;
use crate::text::{Place, TextSearcher, Wanted};
use crate::units::{Lines, Unit};
use crate::words::each_word;

const K1: f32 = 1.2;
const B: f32 = 0.75;
/// Words that are looked for at most: a pasted log has many, and the rarest say the most.
const MAX_WORDS: usize = 20;
/// A word in more than this share of all units tells little as long as there are others.
const COMMON: f32 = 0.2;
/// A unit with every word in its text and half of its weight in its name is as good as it gets.
const FULL: f32 = 1.5;

/// What is known about the words of a question.
#[derive(Debug, Default)]
pub(crate) struct Weights {
    /// The words worth looking for, with how rare each is in each place.
    words: HashMap<String, Word>,
    average: [f32; 3],
    /// The score that counts as 1.
    full: f32,
}

#[derive(Debug, Clone, Copy)]
struct Word {
    weight: f32,
    rarity: [f32; 3],
}

/// How rare a word is that stands in `with` of `all` units.
fn rarity(all: f32, with: f32) -> f32 {
    (1.0 + (all - with + 0.5) / (with + 0.5)).ln()
}

impl Weights {
    /// From the index.
    pub(crate) fn from_index(
        question: &Question,
        text: &TextSearcher,
        realms: &[Realm],
    ) -> Weights {
        let all = text.units() as f32;
        let average = Place::ALL.map(|place| {
            let averages = realms.iter().map(|realm| text.average(*realm, place));
            averages.fold(1.0, f32::max)
        });
        Self::new(question, all, average, |place, word| {
            let counts = realms
                .iter()
                .map(|realm| text.with_word(*realm, place, word));
            counts.sum::<u64>() as f32
        })
    }

    /// From counts of files, where there is no index.
    pub(crate) fn from_files(
        question: &Question,
        files: u64,
        with_word: &HashMap<String, u64>,
    ) -> Weights {
        Self::new(
            question,
            files.max(1) as f32,
            [3.0, 8.0, 120.0],
            |_, word| with_word.get(word).copied().unwrap_or(0) as f32,
        )
    }

    fn new(
        question: &Question,
        all: f32,
        average: [f32; 3],
        with_word: impl Fn(Place, &str) -> f32,
    ) -> Weights {
        let mut words: Vec<(String, Word, f32)> = Vec::new();
        for (word, count) in &question.words {
            let counts = Place::ALL.map(|place| with_word(place, word));
            let most = counts.into_iter().fold(0.0, f32::max);
            if most == 0.0 {
                continue;
            }
            let entry = Word {
                weight: 1.0 + (*count as f32).ln(),
                rarity: counts.map(|count| rarity(all, count.min(all))),
            };
            words.push((word.clone(), entry, most / all.max(1.0)));
        }
        words.sort_by(|a, b| a.2.total_cmp(&b.2).then_with(|| a.0.cmp(&b.0)));
        let telling = words
            .iter()
            .filter(|(_, _, share)| *share <= COMMON)
            .count();
        if telling >= 3 {
            words.truncate(telling);
        }
        words.truncate(MAX_WORDS);
        let full = words
            .iter()
            .map(|(_, word, _)| word.weight * word.rarity[Place::Text as usize] * (K1 + 1.0))
            .sum::<f32>()
            * FULL;
        Weights {
            words: words
                .into_iter()
                .map(|(text, word, _)| (text, word))
                .collect(),
            average,
            full: full.max(f32::EPSILON),
        }
    }

    /// The words to look for, in a stable order.
    pub(crate) fn wanted(&self) -> Vec<Wanted> {
        let mut wanted: Vec<Wanted> = self
            .words
            .iter()
            .map(|(word, entry)| Wanted {
                word: word.clone(),
                weight: entry.weight,
            })
            .collect();
        wanted.sort_by(|a, b| a.word.cmp(&b.word));
        wanted
    }

    /// How rare a word is; nothing for one that is not looked for.
    pub(crate) fn rarity(&self, word: &str) -> f32 {
        self.words
            .get(word)
            .map_or(0.0, |word| word.weight * word.rarity[Place::Text as usize])
    }

    /// The rarity of all words together.
    pub(crate) fn total(&self) -> f32 {
        let words = self.words.values();
        words
            .map(|word| word.weight * word.rarity[Place::Text as usize])
            .sum()
    }

    /// A score of tantivy's on the scale from 0 to 1.
    pub(crate) fn share(&self, score: f32) -> f32 {
        (score / self.full).clamp(0.0, 1.0)
    }

    /// The score of a unit of a file, as tantivy would give it.
    pub(crate) fn score(&self, path: &str, unit: &Unit, lines: &Lines<'_>) -> f32 {
        let name = format!("{} {}", unit.symbol, unit.names.join(" "));
        let path = format!("{path} {}", unit.scope);
        let text = unit.own_text(lines);
        let score = |place: Place, text: &str| {
            let mut counts: HashMap<&str, u32> = HashMap::new();
            let mut length = 0;
            each_word(text, |word| {
                length += 1;
                if let Some((word, _)) = self.words.get_key_value(word) {
                    *counts.entry(word).or_default() += 1;
                }
            });
            let norm = K1 * (1.0 - B + B * length as f32 / self.average[place as usize]);
            let scores = counts.into_iter().map(|(word, count)| {
                let word = self.words[word];
                let often = count as f32;
                word.weight * word.rarity[place as usize] * often * (K1 + 1.0) / (often + norm)
            });
            place.weight() * scores.sum::<f32>()
        };
        score(Place::Name, &name) + score(Place::Path, &path) + score(Place::Text, &text)
    }
}
