//! Answers a question: candidates from the index or from the files themselves, checked against the disk, ranked, and cut
//! to the budget.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

use llmc_host::{CancelToken, Roots};
use schemars::JsonSchema;
use serde::Serialize;

use crate::bm25::{FileCounts, WordWeights};
use crate::builder::ScanTurn;
use crate::catalog::{Catalog, FileRow};
use crate::classify::Realm;
use crate::error::{Error, Result};
use crate::index::{Index, IndexState};
use crate::live::{LiveLimits, LiveScan};
use crate::progress::IndexedShare;
use crate::question::Question;
use crate::rank::{self, Candidate};
use crate::snippet::{self, OmittedHits, Snippet};
use crate::source::Sources;
use crate::stack_trace::{self, LocatedPlace};
use crate::text::TextSearcher;
use crate::units::Unit;
use crate::vectors::{self, VECTOR_WEIGHT};

/// Taken from the text part, and from the vectors.
const MAX_INDEX_HITS: usize = 160;
/// Units whose files are read.
const MAX_PROPOSALS: usize = 48;
/// While the index is built, no further file is read for an answer after this time.
const READ_TIME_DURING_BUILD: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SearchScope {
    Repo,
    Docs,
    Both,
}

impl SearchScope {
    pub(crate) fn realms(self) -> &'static [Realm] {
        match self {
            Self::Repo => &[Realm::Repo],
            Self::Docs => &[Realm::Docs],
            Self::Both => &[Realm::Repo, Realm::Docs],
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct SearchRequest<'a> {
    /// Words, names, or a pasted error.
    pub query: &'a str,
    pub scope: SearchScope,
    /// The number of snippets.
    pub k: usize,
    /// Tokens of all snippets together.
    pub budget: usize,
}

#[derive(Debug, Clone)]
pub struct SearchAnswer {
    /// Best first.
    pub snippets: Vec<Snippet>,
    /// Sources that changed while the answer was made.
    pub unverified: Vec<String>,
    /// Whether the index answered.
    pub index: IndexState,
    /// Hits for which the budget was too small; the note has them, too.
    pub omitted: Option<OmittedHits>,
    /// Why the index is missing or not up to date, and what was left out.
    pub note: Option<String>,
}

/// A unit from the index, not yet checked against its file.
struct Proposal {
    file: FileRow,
    unit: Unit,
    score: f32,
    /// The similarity of its vector to the question's.
    near: f32,
    users: u64,
}

/// The question's vector and the number of its model.
pub(crate) type QuestionVector = (Vec<u8>, i64);

impl Index {
    /// Finds the units that answer a question. Every text is read from its file for this answer.
    ///
    /// # Errors
    /// A question without words; cancelled or timed out.
    pub fn search(
        &self,
        roots: &Roots,
        request: &SearchRequest<'_>,
        stop: &CancelToken,
    ) -> Result<SearchAnswer> {
        let question = Question::new(request.query).ok_or_else(no_words)?;
        let mut sources = Sources::new(roots);
        let (vector, no_vectors) = self.question_vector(request.query, stop);
        let ranked = self.ranked(
            roots,
            &question,
            vector.as_ref(),
            request.scope,
            &mut sources,
            stop,
        )?;
        let (snippets, omitted) = snippet::within_budget(
            &question,
            &ranked.weights,
            &ranked.candidates,
            request.k,
            request.budget,
        );
        let notes = [
            omitted.as_ref().map(OmittedHits::to_string),
            self.note(&ranked).or(no_vectors),
        ];
        let notes: Vec<String> = notes.into_iter().flatten().collect();
        let unverified = snippets
            .iter()
            .filter(|snippet| !sources.is_current(&snippet.path))
            .map(Snippet::src)
            .collect();
        Ok(SearchAnswer {
            snippets,
            unverified,
            omitted,
            note: (!notes.is_empty()).then(|| notes.join("; ")),
            index: ranked.state,
        })
    }

    /// The question's vector, or why there is none.
    pub(crate) fn question_vector(
        &self,
        question: &str,
        stop: &CancelToken,
    ) -> (Option<QuestionVector>, Option<String>) {
        match self.vector_of(question, stop) {
            Ok(vector) => (vector.zip(self.model_number()), None),
            Err(why) => (None, Some(format!("ranked without vectors: {why}"))),
        }
    }

    /// Why the index is missing or not up to date, and what was not searched.
    pub(crate) fn note(&self, ranked: &RankedUnits) -> Option<String> {
        let mut note = match ranked.state {
            IndexState::Ready => return self.failure(),
            IndexState::Building => format!(
                "searched live; the index is being built, it has {}",
                ranked.indexed
            ),
            IndexState::None => match self.unavailable_reason() {
                Some(why) => format!("searched live; {why}"),
                None => "searched live; there is no index yet".to_owned(),
            },
        };
        if !ranked.complete {
            note.push_str("; not all files were searched in the time there is");
        }
        Some(note)
    }

    /// How many files both parts of the index have; the catalogue is committed first.
    pub fn indexed_share(&self) -> IndexedShare {
        let share = self.with_parts(|catalog, text| {
            let generation = text.generation()?.unwrap_or(0);
            Ok(IndexedShare {
                files: catalog.count(generation)?,
                total: catalog.number("total")?.unwrap_or(0).unsigned_abs(),
            })
        });
        share.unwrap_or_default()
    }

    /// The files that both parts of the index have.
    fn indexed_paths(&self) -> Result<HashSet<String>> {
        self.with_parts(|catalog, text| {
            let generation = text.generation()?.unwrap_or(0);
            catalog.paths(generation)
        })
    }

    /// The units that answer a question, best first. While an index is built, they come from the files that it has and from
    /// a scan of the others with a time limit, so that no question has to wait for it.
    pub(crate) fn ranked(
        &self,
        roots: &Roots,
        question: &Question,
        vector: Option<&QuestionVector>,
        scope: SearchScope,
        sources: &mut Sources<'_>,
        stop: &CancelToken,
    ) -> Result<RankedUnits> {
        let mut state = self.state();
        let mut turn = None;
        if state != IndexState::Ready {
            self.request_build();
            if state == IndexState::Building || self.is_expected() {
                turn = Some(self.await_scan_turn(stop)?);
                state = self.state();
            }
        }
        if state == IndexState::Ready {
            let none = FileCounts::default();
            match self.with(|catalog, text| propose(question, vector, scope, catalog, text, &none))
            {
                Ok(Proposals {
                    units,
                    weights,
                    named,
                }) => {
                    let by_words = word_share(vector);
                    let candidates =
                        check_proposals(units, &weights, by_words, sources, None, stop)?;
                    let located = stack_trace::locate(&question.places, |name| {
                        Ok(named.get(name).cloned().unwrap_or_default())
                    })?;
                    return Ok(RankedUnits::new(
                        question, candidates, weights, located, sources, state,
                    ));
                }
                // The files are still there to be searched.
                Err(error @ (Error::BadRequest(_) | Error::Host(_))) => return Err(error),
                Err(_) => {}
            }
        }
        let building = state == IndexState::Building;
        let limits = if building || state == IndexState::None && self.is_expected() {
            self.limits_during_build
        } else {
            LiveLimits::WITHOUT_INDEX
        };
        sources.limit_parsing(limits.parse);
        let indexed = match building {
            true => self.indexed_share(),
            false => IndexedShare::default(),
        };
        let mut scan = match &turn {
            // What is committed has to do.
            Some(ScanTurn::Missed) if indexed.files > 0 => LiveScan::skipped(limits),
            _ => {
                let known = match indexed.files {
                    0 => HashSet::new(),
                    _ => self.indexed_paths().unwrap_or_default(),
                };
                match LiveScan::run(roots, question, scope, known, limits, stop) {
                    // Threads of earlier scans are still busy.
                    Err(Error::Host(llmc_host::Error::Busy { .. })) => LiveScan::skipped(limits),
                    done => done?,
                }
            }
        };
        let proposed = match indexed.files {
            0 => None,
            _ => self
                .with(|catalog, text| propose(question, vector, scope, catalog, text, &scan.counts))
                .ok(),
        };
        let Proposals {
            units,
            weights,
            named,
        } = proposed.unwrap_or_else(|| Proposals {
            units: Vec::new(),
            weights: WordWeights::from_files(question, &scan.counts),
            named: HashMap::new(),
        });
        let read_until = building.then(|| Instant::now() + READ_TIME_DURING_BUILD);
        let by_words = word_share(vector);
        let mut candidates = check_proposals(units, &weights, by_words, sources, read_until, stop)?;
        let all_read = read_until.is_none_or(|time| Instant::now() < time);
        candidates.extend(scan.candidates(&weights, sources, stop)?);
        let located = stack_trace::locate(&question.places, |name| {
            let indexed = named.get(name).into_iter().flatten().cloned();
            Ok(indexed.chain(scan.files_named(name)).collect())
        })?;
        // An index that could not be read did not answer.
        let state = match building {
            true => IndexState::Building,
            false => IndexState::None,
        };
        Ok(RankedUnits {
            indexed,
            complete: scan.complete && all_read,
            ..RankedUnits::new(question, candidates, weights, located, sources, state)
        })
    }
}

/// What a question's ranking found.
pub(crate) struct RankedUnits {
    /// Best first.
    pub(crate) candidates: Vec<Candidate>,
    weights: WordWeights,
    pub(crate) state: IndexState,
    /// How many files the index has, while it is built.
    indexed: IndexedShare,
    /// Whether all files were searched.
    complete: bool,
}

impl RankedUnits {
    fn new(
        question: &Question,
        mut candidates: Vec<Candidate>,
        weights: WordWeights,
        located: Vec<LocatedPlace>,
        sources: &mut Sources<'_>,
        state: IndexState,
    ) -> RankedUnits {
        stack_trace::mark_candidates(&located, &mut candidates, sources);
        RankedUnits {
            candidates: rank::rank(question, &weights, candidates),
            weights,
            state,
            indexed: IndexedShare::default(),
            complete: true,
        }
    }
}

/// How much words count, beside vectors.
fn word_share(vector: Option<&QuestionVector>) -> f32 {
    match vector {
        Some(_) => 1.0 - VECTOR_WEIGHT,
        None => 1.0,
    }
}

pub(crate) fn no_words() -> Error {
    Error::BadRequest("query has no words to look for".to_owned())
}

/// What the index proposes.
struct Proposals {
    units: Vec<Proposal>,
    weights: WordWeights,
    /// The files with each name that a stack trace has.
    named: HashMap<String, Vec<String>>,
}

/// The candidates of the index; `others` are files that it does not have.
fn propose(
    question: &Question,
    vector: Option<&QuestionVector>,
    scope: SearchScope,
    catalog: &Catalog,
    text: &TextSearcher,
    others: &FileCounts,
) -> Result<Proposals> {
    let weights = WordWeights::from_index(question, text, scope.realms(), others);
    let wanted = weights.weighted_words();
    let found = if wanted.is_empty() {
        Vec::new()
    } else {
        text.best(scope.realms(), &wanted, MAX_INDEX_HITS)?
    };
    let mut near: HashMap<u64, f32> = match vector {
        Some((question, model)) => vectors::nearest(question, *model, catalog, MAX_INDEX_HITS)?
            .into_iter()
            .collect(),
        None => HashMap::new(),
    };
    let mut found: Vec<(f32, u64, f32)> = found
        .into_iter()
        .map(|(score, id)| (score, id, near.remove(&id).unwrap_or(0.0)))
        .collect();
    found.extend(near.into_iter().map(|(id, near)| (0.0, id, near)));
    let mut files: HashMap<u64, Option<FileRow>> = HashMap::new();
    let mut proposals = Vec::with_capacity(found.len());
    for (score, id, near) in found {
        // A unit that only the text part has belongs to an unfinished update.
        let Some(row) = catalog.unit(id)? else {
            continue;
        };
        let file = match files.get(&row.file) {
            Some(known) => known.clone(),
            None => {
                let found = catalog.file(row.file)?;
                files.insert(row.file, found.clone());
                found
            }
        };
        let Some(file) = file else { continue };
        if !scope.realms().contains(&file.realm) {
            continue;
        }
        let users = if row.unit.symbol.is_empty() {
            0
        } else {
            text.users_count(&row.unit.symbol)
        };
        proposals.push(Proposal {
            file,
            unit: row.unit,
            score,
            near,
            users,
        });
    }
    let strength = |proposal: &Proposal| {
        let Proposal {
            unit, file, users, ..
        } = proposal;
        let base = match vector {
            Some(_) => {
                (1.0 - VECTOR_WEIGHT) * weights.share(proposal.score)
                    + VECTOR_WEIGHT * proposal.near
            }
            None => proposal.score,
        };
        base * rank::name_factor(question, unit, file.origin, *users)
    };
    proposals.sort_by(|a, b| strength(b).total_cmp(&strength(a)));
    proposals.truncate(MAX_PROPOSALS);
    let mut named = HashMap::new();
    for name in stack_trace::file_names(&question.places) {
        let files = catalog.files_named(&name)?.into_iter();
        let files = files.filter(|file| scope.realms().contains(&file.realm));
        let paths = files.map(|file| file.path).collect();
        named.insert(name, paths);
    }
    Ok(Proposals {
        units: proposals,
        weights,
        named,
    })
}

/// Reads the files of the proposals, as many as the time allows. Units of a file that has changed are found and scored
/// again.
fn check_proposals(
    proposals: Vec<Proposal>,
    weights: &WordWeights,
    by_words: f32,
    sources: &mut Sources<'_>,
    read_until: Option<Instant>,
    stop: &CancelToken,
) -> Result<Vec<Candidate>> {
    let is_over = || read_until.is_some_and(|time| Instant::now() >= time);
    let mut candidates = Vec::new();
    let mut changed: BTreeMap<String, Vec<Proposal>> = BTreeMap::new();
    for proposal in proposals {
        stop.check()?;
        // The best come first.
        if is_over() && !candidates.is_empty() {
            break;
        }
        let Some(source) = sources.get(&proposal.file.path) else {
            continue;
        };
        if source.hash != proposal.file.hash {
            let path = proposal.file.path.clone();
            changed.entry(path).or_default().push(proposal);
            continue;
        }
        let base = by_words * weights.share(proposal.score) + (1.0 - by_words) * proposal.near;
        let mut candidate = Candidate::new(source, proposal.unit, proposal.file.origin, base);
        candidate.users = proposal.users;
        candidates.push(candidate);
    }
    for (path, proposals) in changed {
        stop.check()?;
        if is_over() && !candidates.is_empty() {
            break;
        }
        let Some(source) = sources.get(&path) else {
            continue;
        };
        let origin = proposals.first().map(|one| one.file.origin);
        let users: HashMap<&str, u64> = proposals
            .iter()
            .map(|one| (one.unit.symbol.as_str(), one.users))
            .collect();
        for unit in &source.parts().units {
            let score = weights.score(&path, unit, &source.lines());
            let (Some(origin), true) = (origin, score > 0.0) else {
                continue;
            };
            let base = weights.share(score);
            let mut candidate = Candidate::new(source.clone(), unit.clone(), origin, base);
            candidate.users = users.get(unit.symbol.as_str()).copied().unwrap_or(0);
            candidates.push(candidate);
        }
    }
    Ok(candidates)
}
