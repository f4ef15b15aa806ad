//! The candidates for a question: the best units by words and the nearest by codes, of all segments.
//!
//! A search for words skips what cannot be among the best, so what one segment has found helps in the next one: the list of
//! the best is kept from segment to segment. Code and documentation are searched one after the other, since no unit has words
//! of both. In a large index two threads share the work, always in the same way, so that equal questions get equal answers.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tantivy::query::{BooleanQuery, BoostQuery, EnableScoring, Occur, Query, TermQuery, Weight};
use tantivy::schema::IndexRecordOption;
use tantivy::{SegmentReader, Term};

use super::{CODE_FIELDS, TextSearcher, WeightedWord, WordField};
use crate::classify::Realm;
use crate::error::{Error, Result};
use crate::word_vectors::VectorCode;

/// Codes that are compared at once.
const CODE_BLOCK: usize = 512;
/// With more units than this, two threads search.
const MIN_UNITS_FOR_THREAD: u64 = 100_000;
/// Comparing all codes of a segment takes about as long as searching it for this many words.
const WORDS_PER_CODE_SCAN: u64 = 4;

/// What candidates are wanted for.
pub(crate) struct CandidateQuery<'a> {
    pub(crate) realms: &'a [Realm],
    pub(crate) words: &'a [WeightedWord],
    pub(crate) max_by_words: usize,
    pub(crate) code: Option<VectorCode>,
    pub(crate) max_by_code: usize,
}

/// A unit that words were found in.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct FoundUnit {
    pub(crate) score: f32,
    pub(crate) unit: u64,
    pub(crate) code: VectorCode,
}

/// A unit whose code is near, ordered by its distance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NearUnit {
    /// The number of signs in which the codes differ.
    pub(crate) distance: u32,
    pub(crate) unit: u64,
}

/// Both lists have the best first.
#[derive(Debug, Default)]
pub(crate) struct CandidateUnits {
    pub(crate) by_words: Vec<FoundUnit>,
    pub(crate) by_code: Vec<NearUnit>,
}

/// A search of one segment.
struct Task<'a> {
    segment: usize,
    reader: &'a SegmentReader,
    kind: TaskKind<'a>,
    cost: u64,
}

enum TaskKind<'a> {
    Words(&'a dyn Weight),
    Codes(VectorCode),
}

/// A document that words were found in. A greater one is better: of equal scores the first document.
#[derive(PartialEq)]
struct FoundDoc {
    score: f32,
    place: Reverse<(usize, u32)>,
}

impl Eq for FoundDoc {}

impl Ord for FoundDoc {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let by_score = self.score.total_cmp(&other.score);
        by_score.then_with(|| self.place.cmp(&other.place))
    }
}

impl PartialOrd for FoundDoc {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// The best that a thread has found so far; the worst of them are on top of the heaps, to be replaced by better ones.
struct Best {
    by_words: BinaryHeap<Reverse<FoundDoc>>,
    by_code: BinaryHeap<NearUnit>,
}

impl TextSearcher {
    pub(crate) fn candidates(&self, query: &CandidateQuery<'_>) -> Result<CandidateUnits> {
        self.candidates_by(query, self.units() > MIN_UNITS_FOR_THREAD)
    }

    fn candidates_by(
        &self,
        query: &CandidateQuery<'_>,
        two_threads: bool,
    ) -> Result<CandidateUnits> {
        let weights = query
            .realms
            .iter()
            .filter(|_| !query.words.is_empty())
            .map(|realm| Ok((*realm, self.weight_of(*realm, query.words)?)))
            .collect::<Result<Vec<_>>>()?;
        let tasks = self.tasks(query, &weights)?;
        let found = match two_threads {
            true => {
                let [ours, theirs] = shared_out(tasks);
                let panicked = |_| Err(Error::Damaged("reading it failed".into()));
                let (ours, theirs) = std::thread::scope(|scope| {
                    let thread = std::thread::Builder::new().name("rag-search".into());
                    let started = thread.spawn_scoped(scope, || self.run(&theirs, query));
                    let ours = self.run(&ours, query);
                    let theirs = match started {
                        Ok(thread) => thread.join().unwrap_or_else(panicked),
                        // The limit of threads is reached.
                        Err(_) => self.run(&theirs, query),
                    };
                    (ours, theirs)
                });
                vec![ours?, theirs?]
            }
            false => vec![self.run(&tasks, query)?],
        };
        let mut docs = Vec::new();
        let mut by_code = Vec::new();
        for best in found {
            docs.extend(best.by_words.into_iter().map(|Reverse(doc)| doc));
            by_code.extend(best.by_code);
        }
        docs.sort_by(|a, b| b.cmp(a));
        docs.truncate(query.max_by_words);
        by_code.sort_unstable();
        by_code.truncate(query.max_by_code);
        Ok(CandidateUnits {
            by_words: self.units_of(&docs)?,
            by_code,
        })
    }

    /// A search for any of the words, in all fields of a realm.
    fn weight_of(&self, realm: Realm, words: &[WeightedWord]) -> Result<Box<dyn Weight>> {
        let mut parts: Vec<(Occur, Box<dyn Query>)> = Vec::new();
        for field in WordField::ALL {
            let indexed = self.fields.word(realm, field);
            for wanted in words {
                let term = Term::from_field_text(indexed, &wanted.word);
                let query = Box::new(TermQuery::new(term, IndexRecordOption::WithFreqs));
                let weight = field.weight() * wanted.weight;
                parts.push((Occur::Should, Box::new(BoostQuery::new(query, weight))));
            }
        }
        let scoring = EnableScoring::enabled_from_searcher(&self.searcher);
        Ok(BooleanQuery::new(parts).weight(scoring)?)
    }

    fn tasks<'a>(
        &'a self,
        query: &CandidateQuery<'_>,
        weights: &'a [(Realm, Box<dyn Weight>)],
    ) -> Result<Vec<Task<'a>>> {
        let mut tasks = Vec::new();
        for (segment, reader) in self.searcher.segment_readers().iter().enumerate() {
            let mut push = |kind: TaskKind<'a>, cost: u64| {
                tasks.push(Task {
                    segment,
                    reader,
                    kind,
                    cost,
                });
            };
            let tokens = |realm: Realm| -> Result<u64> {
                let field = self.fields.word(realm, WordField::Text);
                Ok(reader.inverted_index(field)?.total_num_tokens())
            };
            let words = query.words.len() as u64;
            for (realm, weight) in weights {
                push(TaskKind::Words(weight.as_ref()), tokens(*realm)? * words);
            }
            if let Some(code) = query.code {
                let all = tokens(Realm::Repo)? + tokens(Realm::Docs)?;
                push(TaskKind::Codes(code), all * WORDS_PER_CODE_SCAN);
            }
        }
        // Most is found where most is, and then the rest is searched faster.
        tasks.sort_by_key(|task| Reverse(task.cost));
        Ok(tasks)
    }

    fn run(&self, tasks: &[Task<'_>], query: &CandidateQuery<'_>) -> Result<Best> {
        let mut best = Best {
            by_words: BinaryHeap::new(),
            by_code: BinaryHeap::new(),
        };
        for task in tasks {
            match task.kind {
                TaskKind::Words(weight) => {
                    best.search_words(task, weight, query.max_by_words)?;
                }
                TaskKind::Codes(code) => best.compare_codes(task.reader, code, query)?,
            }
        }
        Ok(best)
    }

    fn units_of(&self, docs: &[FoundDoc]) -> Result<Vec<FoundUnit>> {
        let units = self.unit_columns()?;
        let [low, high] = [self.columns(CODE_FIELDS[0])?, self.columns(CODE_FIELDS[1])?];
        let found = docs.iter().filter_map(|doc| {
            let Reverse((segment, id)) = doc.place;
            Some(FoundUnit {
                score: doc.score,
                unit: units.get(segment)?.first(id)?,
                code: VectorCode([low.get(segment)?.first(id)?, high.get(segment)?.first(id)?]),
            })
        });
        Ok(found.collect())
    }
}

impl Best {
    fn search_words(&mut self, task: &Task<'_>, weight: &dyn Weight, limit: usize) -> Result<()> {
        let best = &mut self.by_words;
        let alive = task.reader.alive_bitset();
        let threshold = |best: &BinaryHeap<Reverse<FoundDoc>>| match best.peek() {
            Some(Reverse(worst)) if best.len() >= limit => worst.score,
            _ => f32::MIN,
        };
        let start = threshold(best);
        weight.for_each_pruning(start, task.reader, &mut |doc, score| {
            if alive.is_none_or(|alive| alive.is_alive(doc)) {
                if best.len() >= limit {
                    best.pop();
                }
                let place = Reverse((task.segment, doc));
                best.push(Reverse(FoundDoc { score, place }));
            }
            threshold(best)
        })?;
        Ok(())
    }

    fn compare_codes(
        &mut self,
        segment: &SegmentReader,
        code: VectorCode,
        query: &CandidateQuery<'_>,
    ) -> Result<()> {
        let best = &mut self.by_code;
        let fields = segment.fast_fields();
        let units = fields.u64("unit")?;
        let codes = [fields.u64(CODE_FIELDS[0])?, fields.u64(CODE_FIELDS[1])?];
        let alive = segment.alive_bitset();
        let mut halves = [[0_u64; CODE_BLOCK]; 2];
        let mut distances = [0_u32; CODE_BLOCK];
        let mut at = 0;
        while at < segment.max_doc() {
            let count = CODE_BLOCK.min((segment.max_doc() - at) as usize);
            for (half, column) in halves.iter_mut().zip(&codes) {
                column.values.get_range(u64::from(at), &mut half[..count]);
            }
            // Without a branch, so that the compiler uses vector instructions.
            for (distance, (a, b)) in distances.iter_mut().zip(halves[0].iter().zip(&halves[1])) {
                *distance = code.distance(VectorCode([*a, *b]));
            }
            for (place, doc) in (0..count).zip(at..) {
                let distance = distances[place];
                let is_worse = best.len() >= query.max_by_code
                    && best.peek().is_none_or(|worst| distance >= worst.distance);
                let unit = VectorCode([halves[0][place], halves[1][place]]);
                if is_worse
                    || !unit.is_of(query.realms)
                    || alive.is_some_and(|alive| !alive.is_alive(doc))
                {
                    continue;
                }
                let Some(unit) = units.first(doc) else {
                    continue;
                };
                if best.len() >= query.max_by_code {
                    best.pop();
                }
                best.push(NearUnit { distance, unit });
            }
            at += count as u32;
        }
        Ok(())
    }
}

/// Two lists of about equal costs: each task goes to the one that has less to do.
fn shared_out(tasks: Vec<Task<'_>>) -> [Vec<Task<'_>>; 2] {
    let mut lists = [Vec::new(), Vec::new()];
    let mut costs = [0, 0];
    for task in tasks {
        let list = usize::from(costs[1] < costs[0]);
        costs[list] += task.cost;
        lists[list].push(task);
    }
    lists
}

#[cfg(test)]
mod tests {
    use super::super::{TextIndex, UnitWords, WriteScale};
    use super::*;

    const WORDS: [&str; 12] = [
        "open", "close", "read", "write", "pool", "header", "parse", "socket", "retry", "limit",
        "cache", "token",
    ];
    const UNITS: u64 = 900;

    /// Numbers that look random and are the same in each run.
    fn number(seed: u64) -> u64 {
        let mixed = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 7
    }

    fn realm(unit: u64) -> Realm {
        match unit % 5 {
            0 => Realm::Docs,
            _ => Realm::Repo,
        }
    }

    fn code(unit: u64) -> VectorCode {
        let docs = u64::from(realm(unit) == Realm::Docs) << 63;
        VectorCode([number(unit * 31), number(unit * 37) >> 1 | docs])
    }

    fn words(unit: u64) -> UnitWords {
        let text = |count: u64, salt: u64| {
            let word = |n| WORDS[(number(unit * 100 + n + salt).isqrt() % 12) as usize];
            (0..count).map(word).collect::<Vec<_>>().join(" ")
        };
        UnitWords {
            name: text(1 + unit % 3, 7),
            path: text(2, 1 + unit % 4),
            text: text(5 + number(unit) % 60, 11),
            code: Some(code(unit)),
            ..UnitWords::default()
        }
    }

    /// Six segments of different sizes; of every seventh unit the file was removed again.
    fn index(dir: &std::path::Path) -> TextIndex {
        let index = TextIndex::open_or_create(dir).unwrap();
        let mut writer = index.writer(WriteScale::Few).unwrap();
        let ends = [400, 500, 501, 700, 705, UNITS];
        let mut unit = 0;
        for end in ends {
            while unit < end {
                writer.add(unit, unit, realm(unit), words(unit)).unwrap();
                unit += 1;
            }
            writer.commit(1).unwrap();
        }
        (0..UNITS)
            .filter(|unit| unit % 7 == 0)
            .for_each(|unit| writer.remove(unit));
        writer.commit(2).unwrap();
        writer.finish().unwrap();
        index
    }

    #[test]
    fn the_best_of_all_segments_are_found_by_one_thread_and_by_two() {
        let dir = tempfile::tempdir().unwrap();
        let index = index(dir.path());
        assert_eq!(index.segments().unwrap(), 6);
        let text = index.searcher().unwrap();
        let wanted = |words: &[usize]| -> Vec<WeightedWord> {
            let weight = |n: &usize| WeightedWord {
                word: WORDS[*n].to_owned(),
                weight: 0.5 + *n as f32 / 10.0,
            };
            words.iter().map(weight).collect()
        };
        for realms in [
            &[Realm::Repo][..],
            &[Realm::Docs],
            &[Realm::Repo, Realm::Docs],
        ] {
            for asked in [
                wanted(&[3]),
                wanted(&[0, 5, 9]),
                wanted(&[1, 2, 4, 6, 7, 8]),
            ] {
                let query = CandidateQuery {
                    realms,
                    words: &asked,
                    max_by_words: 30,
                    code: Some(code(12_345)),
                    max_by_code: 20,
                };
                // Without limits nothing is skipped.
                let every = CandidateQuery {
                    max_by_words: UNITS as usize,
                    max_by_code: UNITS as usize,
                    ..query
                };
                let all = text.candidates_by(&every, false).unwrap();
                let expected: Vec<u64> = (0..UNITS)
                    .filter(|unit| unit % 7 != 0 && realms.contains(&realm(*unit)))
                    .collect();
                let mut compared: Vec<u64> = all.by_code.iter().map(|near| near.unit).collect();
                compared.sort_unstable();
                assert_eq!(compared, expected);
                assert!(all.by_words.iter().all(|one| expected.contains(&one.unit)));
                for two_threads in [false, true] {
                    let found = text.candidates_by(&query, two_threads).unwrap();
                    let scores = |units: &[FoundUnit]| -> Vec<f32> {
                        units.iter().take(30).map(|one| one.score).collect()
                    };
                    assert_eq!(found.by_words.len(), 30);
                    let (found_scores, best) = (scores(&found.by_words), scores(&all.by_words));
                    for (found, best) in found_scores.iter().zip(best) {
                        assert!((found - best).abs() < 1e-3, "{found_scores:?}");
                    }
                    assert!(found.by_words.iter().all(|one| one.code == code(one.unit)));
                    let distances = |units: &[NearUnit]| -> Vec<u32> {
                        units.iter().take(20).map(|near| near.distance).collect()
                    };
                    assert_eq!(found.by_code.len(), 20);
                    assert_eq!(distances(&found.by_code), distances(&all.by_code));
                    let again = text.candidates_by(&query, two_threads).unwrap();
                    assert_eq!(found.by_words, again.by_words);
                    assert_eq!(found.by_code, again.by_code);
                }
            }
        }
    }

    #[test]
    fn a_question_without_words_or_without_a_code_finds_by_the_other() {
        let dir = tempfile::tempdir().unwrap();
        let text = index(dir.path()).searcher().unwrap();
        let asked = [WeightedWord {
            word: "pool".to_owned(),
            weight: 1.0,
        }];
        let by_words = CandidateQuery {
            realms: &[Realm::Repo, Realm::Docs],
            words: &asked,
            max_by_words: 5,
            code: None,
            max_by_code: 5,
        };
        let found = text.candidates_by(&by_words, true).unwrap();
        assert_eq!((found.by_words.len(), found.by_code.len()), (5, 0));
        let by_code = CandidateQuery {
            words: &[],
            code: Some(code(3)),
            ..by_words
        };
        let found = text.candidates_by(&by_code, true).unwrap();
        assert_eq!((found.by_words.len(), found.by_code.len()), (0, 5));
        assert_eq!(
            found.by_code[0],
            NearUnit {
                distance: 0,
                unit: 3
            }
        );
    }
}
