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
use crate::classify::{Realm, file_name};
use crate::error::{Error, Result};
use crate::features::Feature;
use crate::index::{Index, IndexState};
use crate::live::{LiveLimits, LiveScan};
use crate::progress::IndexedShare;
use crate::question::Question;
use crate::rank::{self, Candidate, RankContext};
use crate::snippet::{self, OmittedHits, Snippet};
use crate::source::Sources;
use crate::stack_trace::{self, LocatedPlace};
use crate::text::{CandidateQuery, CandidateUnits, TextSearcher};
use crate::units::Unit;
use crate::vectors;
use crate::word_vectors::{TextVector, VectorCode, cosine_at};

/// Taken from the text part, and from a provider's vectors.
const MAX_INDEX_HITS: usize = 160;
/// Taken by the vectors of words.
const MAX_NEAR_HITS: usize = 96;
/// Units whose files are read.
const MAX_PROPOSALS: usize = 64;
/// Units whose users are counted, to choose those.
const MAX_COUNTED_PROPOSALS: usize = 112;
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
    /// The similarity of its vector to the question's, about.
    near: f32,
    provider_near: f32,
    users: u64,
}

/// A question in the forms in which units are compared with it.
pub(crate) struct QuestionVectors {
    /// A provider's vector and the number of its model.
    provider: Option<(Vec<u8>, i64)>,
    /// By the vectors of words in the executable.
    words: Option<TextVector>,
}

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
        let (vectors, no_vectors) = self.question_vectors(request.query, &question, stop);
        let ranked = self.ranked(roots, &question, vectors, request.scope, &mut sources, stop)?;
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

    /// The question's vectors, or why a provider has none.
    pub(crate) fn question_vectors(
        &self,
        asked: &str,
        question: &Question,
        stop: &CancelToken,
    ) -> (QuestionVectors, Option<String>) {
        let (provider, why_not) = match self.vector_of(asked, stop) {
            Ok(vector) => (vector.zip(self.model_number()), None),
            Err(why) => (None, Some(format!("ranked without vectors: {why}"))),
        };
        let words = match self.uses_word_vectors {
            true => TextVector::of_question(&question.prose),
            false => None,
        };
        (QuestionVectors { provider, words }, why_not)
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
        vectors: QuestionVectors,
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
            match self
                .with(|catalog, text| propose(question, &vectors, scope, catalog, text, &none))
            {
                Ok(Proposals {
                    units,
                    weights,
                    named,
                }) => {
                    let candidates = check_proposals(units, &weights, sources, None, stop)?;
                    let files = |name: &str| Ok(named.get(name).cloned().unwrap_or_default());
                    let located = stack_trace::locate(&question.places, files)?;
                    let context = RankContext {
                        vector: vectors.words,
                        named_files: stack_trace::files_meant(&question.files, files)?,
                    };
                    return Ok(RankedUnits::new(
                        question, context, candidates, weights, located, sources, state,
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
                .with(|catalog, text| {
                    propose(question, &vectors, scope, catalog, text, &scan.counts)
                })
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
        let mut candidates = check_proposals(units, &weights, sources, read_until, stop)?;
        let all_read = read_until.is_none_or(|time| Instant::now() < time);
        candidates.extend(scan.candidates(&weights, sources, stop)?);
        let files = |name: &str| {
            let indexed = named.get(name).into_iter().flatten().cloned();
            Ok(indexed.chain(scan.files_named(name)).collect())
        };
        let located = stack_trace::locate(&question.places, files)?;
        let context = RankContext {
            vector: vectors.words,
            named_files: stack_trace::files_meant(&question.files, files)?,
        };
        // An index that could not be read did not answer.
        let state = match building {
            true => IndexState::Building,
            false => IndexState::None,
        };
        Ok(RankedUnits {
            indexed,
            complete: scan.complete && all_read,
            ..RankedUnits::new(
                question, context, candidates, weights, located, sources, state,
            )
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
        context: RankContext,
        mut candidates: Vec<Candidate>,
        weights: WordWeights,
        located: Vec<LocatedPlace>,
        sources: &mut Sources<'_>,
        state: IndexState,
    ) -> RankedUnits {
        stack_trace::mark_candidates(&located, &mut candidates, sources);
        RankedUnits {
            candidates: rank::rank(question, &context, &weights, candidates),
            weights,
            state,
            indexed: IndexedShare::default(),
            complete: true,
        }
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
    vectors: &QuestionVectors,
    scope: SearchScope,
    catalog: &Catalog,
    text: &TextSearcher,
    others: &FileCounts,
) -> Result<Proposals> {
    let weights = WordWeights::from_index(question, text, scope.realms(), others);
    let hits = index_hits(&weights, vectors, scope, catalog, text)?;
    let mut files: HashMap<u64, Option<FileRow>> = HashMap::new();
    let mut proposals = Vec::with_capacity(hits.len());
    for (id, hit) in hits {
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
        proposals.push(Proposal {
            file,
            unit: row.unit,
            score: hit.score,
            near: hit.near,
            provider_near: hit.provider_near,
            users: 0,
        });
    }
    let strength = |proposal: &Proposal| {
        let Proposal {
            unit, file, users, ..
        } = proposal;
        let mut features = rank::known_features(question, &weights, unit, file.origin, *users);
        features.set_words(weights.share(proposal.score));
        if vectors.words.is_some() {
            features.set_cosine(proposal.near);
        }
        features.set(Feature::ProviderNear, proposal.provider_near);
        features.strength()
    };
    let best = |proposals: Vec<Proposal>, most: usize| -> Vec<Proposal> {
        let mut rated: Vec<(f32, Proposal)> = proposals
            .into_iter()
            .map(|proposal| (strength(&proposal), proposal))
            .collect();
        rated.sort_by(|a, b| b.0.total_cmp(&a.0));
        rated.truncate(most);
        rated.into_iter().map(|(_, proposal)| proposal).collect()
    };
    // Looking up users takes longer than all the rest.
    let mut proposals = best(proposals, MAX_COUNTED_PROPOSALS);
    for proposal in &mut proposals {
        if !proposal.unit.symbol.is_empty() {
            proposal.users = text.users_count(&proposal.unit.symbol);
        }
    }
    let proposals = best(proposals, MAX_PROPOSALS);
    let mut named = HashMap::new();
    let file_names = question.files.iter().map(|file| file_name(file).to_owned());
    let file_names: HashSet<String> = stack_trace::file_names(&question.places)
        .into_iter()
        .chain(file_names)
        .collect();
    for name in file_names {
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

/// What the index says of a unit.
#[derive(Debug, Clone, Copy, Default)]
struct IndexHit {
    score: f32,
    near: f32,
    provider_near: f32,
}

/// The best units by words and by vectors.
fn index_hits(
    weights: &WordWeights,
    vectors: &QuestionVectors,
    scope: SearchScope,
    catalog: &Catalog,
    text: &TextSearcher,
) -> Result<BTreeMap<u64, IndexHit>> {
    let wanted = weights.weighted_words();
    let code = vectors.words.as_ref().map(|words| words.code(Realm::Repo));
    let CandidateUnits { by_words, by_code } = text.candidates(&CandidateQuery {
        realms: scope.realms(),
        words: &wanted,
        max_by_words: MAX_INDEX_HITS,
        code,
        max_by_code: MAX_NEAR_HITS,
    })?;
    let mut hits: BTreeMap<u64, IndexHit> = BTreeMap::new();
    let cosine =
        |unit: VectorCode| code.map_or(0.0, |code| cosine_at(code.distance(unit)).max(0.0));
    for found in by_words {
        let hit = hits.entry(found.unit).or_default();
        hit.score = found.score;
        hit.near = cosine(found.code);
    }
    for near in by_code {
        hits.entry(near.unit).or_default().near = cosine_at(near.distance).max(0.0);
    }
    if let Some((question, model)) = &vectors.provider {
        for (unit, near) in vectors::nearest(question, *model, catalog, MAX_INDEX_HITS)? {
            hits.entry(unit).or_default().provider_near = near;
        }
    }
    Ok(hits)
}

/// Reads the files of the proposals, as many as the time allows. Units of a file that has changed are found and scored
/// again.
fn check_proposals(
    proposals: Vec<Proposal>,
    weights: &WordWeights,
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
        let share = weights.share(proposal.score);
        let mut candidate = Candidate::new(source, proposal.unit, proposal.file.origin, share);
        candidate.users = proposal.users;
        candidate.provider_near = proposal.provider_near;
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
            let share = weights.share(score);
            let mut candidate = Candidate::new(source.clone(), unit.clone(), origin, share);
            candidate.users = users.get(unit.symbol.as_str()).copied().unwrap_or(0);
            candidates.push(candidate);
        }
    }
    Ok(candidates)
}
