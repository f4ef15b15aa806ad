//! Answers a question: candidates from the index or from the files themselves, checked against the disk, ranked, and cut
//! to the budget.

use std::collections::{BTreeMap, HashMap};

use llmc_host::{CancelToken, Roots};
use schemars::JsonSchema;
use serde::Serialize;

use crate::bm25::WordWeights;
use crate::catalog::{Catalog, FileRow};
use crate::classify::Realm;
use crate::error::{Error, Result};
use crate::index::{Index, IndexState};
use crate::live;
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
        let (ranked, weights, state) = self.ranked(
            roots,
            &question,
            vector.as_ref(),
            request.scope,
            &mut sources,
            stop,
        )?;
        let (snippets, omitted) =
            snippet::within_budget(&question, &weights, &ranked, request.k, request.budget);
        let notes = [
            omitted.as_ref().map(OmittedHits::to_string),
            self.note(state).or(no_vectors),
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
            index: state,
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

    pub(crate) fn note(&self, state: IndexState) -> Option<String> {
        match state {
            IndexState::Ready => self.failure(),
            IndexState::Building => {
                let (done, total) = (self.progress().done(), self.progress().total());
                let counted = self.progress().is_running() && total > 0;
                Some(if counted {
                    format!("searched live; the index has {done} of {total} files")
                } else {
                    "searched live; the index is being built".to_owned()
                })
            }
            IndexState::None => Some(match self.unavailable_reason() {
                Some(why) => format!("searched live; {why}"),
                None => "searched live; there is no index yet".to_owned(),
            }),
        }
    }

    /// The units that answer a question, best first.
    pub(crate) fn ranked(
        &self,
        roots: &Roots,
        question: &Question,
        vector: Option<&QuestionVector>,
        scope: SearchScope,
        sources: &mut Sources<'_>,
        stop: &CancelToken,
    ) -> Result<(Vec<Candidate>, WordWeights, IndexState)> {
        let state = self.state();
        let proposed = if state == IndexState::Ready {
            match self.with(|catalog, text| propose(question, vector, scope, catalog, text)) {
                Ok(proposed) => Some(proposed),
                // The files are still there to be searched.
                Err(error @ (Error::BadRequest(_) | Error::Host(_))) => return Err(error),
                Err(_) => None,
            }
        } else {
            None
        };
        let (mut candidates, weights, located, state) = match proposed {
            Some((proposals, weights, located)) => {
                let by_words = if vector.is_some() {
                    1.0 - VECTOR_WEIGHT
                } else {
                    1.0
                };
                let candidates = check_proposals(proposals, &weights, by_words, sources, stop)?;
                (candidates, weights, located, state)
            }
            None => {
                let (candidates, weights, located) =
                    live::search(roots, question, scope, sources, stop)?;
                let state = if state == IndexState::Ready {
                    IndexState::None
                } else {
                    state
                };
                (candidates, weights, located, state)
            }
        };
        stack_trace::mark_candidates(&located, &mut candidates, sources);
        Ok((rank::rank(question, &weights, candidates), weights, state))
    }
}

pub(crate) fn no_words() -> Error {
    Error::BadRequest("query has no words to look for".to_owned())
}

/// The candidates of the index.
fn propose(
    question: &Question,
    vector: Option<&QuestionVector>,
    scope: SearchScope,
    catalog: &Catalog,
    text: &TextSearcher,
) -> Result<(Vec<Proposal>, WordWeights, Vec<LocatedPlace>)> {
    let weights = WordWeights::from_index(question, text, scope.realms());
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
    let located = stack_trace::locate(&question.places, |name| {
        let files = catalog.files_named(name)?.into_iter();
        let files = files.filter(|file| scope.realms().contains(&file.realm));
        Ok(files.map(|file| file.path).collect())
    })?;
    Ok((proposals, weights, located))
}

/// Reads the files of the proposals. Units of a file that has changed are found and scored again.
fn check_proposals(
    proposals: Vec<Proposal>,
    weights: &WordWeights,
    by_words: f32,
    sources: &mut Sources<'_>,
    stop: &CancelToken,
) -> Result<Vec<Candidate>> {
    let mut candidates = Vec::new();
    let mut changed: BTreeMap<String, Vec<Proposal>> = BTreeMap::new();
    for proposal in proposals {
        stop.check()?;
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
