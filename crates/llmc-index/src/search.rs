//! Answers a question: candidates from the index (or from the files themselves), proven against the disk, ranked, and
//! cut to the budget.

use std::collections::{BTreeMap, HashMap};

use llmc_host::{CancelToken, Roots};
use serde::Serialize;

use crate::catalog::{Catalog, FileRow};
use crate::classify::Realm;
use crate::error::{Error, Result};
use crate::index::{Index, State};
use crate::live;
use crate::query::Question;
use crate::rank::{self, Candidate};
use crate::score::Weights;
use crate::snippet::{self, LeftOut, Snippet};
use crate::source::Sources;
use crate::text::TextSearcher;
use crate::trace::{self, Located};
use crate::units::Unit;
use crate::vectors::{self, WEIGHT};

/// Units taken from the text part.
const TAKEN: usize = 160;
/// Units whose text is looked at.
const READ: usize = 48;

/// Where to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Code.
    Repo,
    /// Documentation.
    Docs,
    /// Both.
    Both,
}

impl Scope {
    pub(crate) fn realms(self) -> &'static [Realm] {
        match self {
            Self::Repo => &[Realm::Repo],
            Self::Docs => &[Realm::Docs],
            Self::Both => &[Realm::Repo, Realm::Docs],
        }
    }
}

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// In words, names, or a pasted error.
    pub query: &'a str,
    /// Where to look.
    pub scope: Scope,
    /// How many snippets.
    pub k: usize,
    /// How many tokens of text in all.
    pub budget: usize,
}

/// What was found.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Best first.
    pub snippets: Vec<Snippet>,
    /// Sources that changed while the answer was made.
    pub unverified: Vec<String>,
    /// Whether the index answered.
    pub index: State,
    /// Hits for which the budget was too small; the note says so too.
    pub left_out: Option<LeftOut>,
    /// Why there is no index, or none that is up to date, and what was left out.
    pub note: Option<String>,
}

/// A unit the index proposes.
struct Proposal {
    file: FileRow,
    unit: Unit,
    score: f32,
    /// How near its vector is to the question's.
    near: f32,
    users: u64,
}

/// The question's vector and the model it is of.
pub(crate) type Meaning = (Vec<u8>, i64);

impl Index {
    /// Finds what answers a question. Every text is read from its file for this answer.
    ///
    /// # Errors
    /// A question without words, or the time was up.
    pub fn search(
        &self,
        roots: &Roots,
        request: &Request<'_>,
        stop: &CancelToken,
    ) -> Result<Answer> {
        let question = Question::new(request.query).ok_or_else(no_words)?;
        let mut sources = Sources::new(roots);
        let (meaning, no_vectors) = self.meaning(request.query, stop);
        let (ranked, weights, state) = self.ranked(
            roots,
            &question,
            meaning.as_ref(),
            request.scope,
            &mut sources,
            stop,
        )?;
        let (snippets, left_out) =
            snippet::deal_out(&question, &weights, &ranked, request.k, request.budget);
        let notes = [
            left_out.as_ref().map(LeftOut::to_string),
            self.note(state).or(no_vectors),
        ];
        let notes: Vec<String> = notes.into_iter().flatten().collect();
        let unverified = snippets
            .iter()
            .filter(|snippet| !sources.is_current(&snippet.path))
            .map(Snippet::src)
            .collect();
        Ok(Answer {
            snippets,
            unverified,
            left_out,
            note: (!notes.is_empty()).then(|| notes.join("; ")),
            index: state,
        })
    }

    /// The question's vector, or why there is none.
    pub(crate) fn meaning(
        &self,
        question: &str,
        stop: &CancelToken,
    ) -> (Option<Meaning>, Option<String>) {
        match self.vector_of(question, stop) {
            Ok(vector) => (vector.zip(self.model_number()), None),
            Err(why) => (None, Some(format!("ranked without vectors: {why}"))),
        }
    }

    pub(crate) fn note(&self, state: State) -> Option<String> {
        match state {
            State::Ready => self.failure(),
            State::Building => {
                let (done, total) = (self.progress().done(), self.progress().total());
                let counted = self.progress().is_at_work() && total > 0;
                Some(if counted {
                    format!("searched live; the index has {done} of {total} files")
                } else {
                    "searched live; the index is being built".to_owned()
                })
            }
            State::None => Some(match self.trouble() {
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
        meaning: Option<&Meaning>,
        scope: Scope,
        sources: &mut Sources<'_>,
        stop: &CancelToken,
    ) -> Result<(Vec<Candidate>, Weights, State)> {
        let state = self.state();
        let proposed = if state == State::Ready {
            match self.with(|catalog, text| propose(question, meaning, scope, catalog, text)) {
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
                let by_words = if meaning.is_some() { 1.0 - WEIGHT } else { 1.0 };
                let candidates = prove(proposals, &weights, by_words, sources, stop)?;
                (candidates, weights, located, state)
            }
            None => {
                let (candidates, weights, located) =
                    live::search(roots, question, scope, sources, stop)?;
                let state = if state == State::Ready {
                    State::None
                } else {
                    state
                };
                (candidates, weights, located, state)
            }
        };
        trace::point(&located, &mut candidates, sources);
        Ok((rank::rank(question, &weights, candidates), weights, state))
    }
}

pub(crate) fn no_words() -> Error {
    Error::BadRequest("query has no words to look for".to_owned())
}

/// What the index says.
fn propose(
    question: &Question,
    meaning: Option<&Meaning>,
    scope: Scope,
    catalog: &Catalog,
    text: &TextSearcher,
) -> Result<(Vec<Proposal>, Weights, Vec<Located>)> {
    let weights = Weights::from_index(question, text, scope.realms());
    let wanted = weights.wanted();
    let found = if wanted.is_empty() {
        Vec::new()
    } else {
        text.best(scope.realms(), &wanted, TAKEN)?
    };
    let mut near: HashMap<u64, f32> = match meaning {
        Some((vector, model)) => vectors::nearest(vector, *model, catalog, TAKEN)?
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
        // What only the text part knows belongs to an update that is not done.
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
        let base = match meaning {
            Some(_) => (1.0 - WEIGHT) * weights.share(proposal.score) + WEIGHT * proposal.near,
            None => proposal.score,
        };
        base * rank::by_name(question, unit, file.origin, *users)
    };
    proposals.sort_by(|a, b| strength(b).total_cmp(&strength(a)));
    proposals.truncate(READ);
    let located = trace::located(&question.places, |name| {
        let files = catalog.files_named(name)?.into_iter();
        let files = files.filter(|file| scope.realms().contains(&file.realm));
        Ok(files.map(|file| file.path).collect())
    })?;
    Ok((proposals, weights, located))
}

/// Reads the files behind the proposals: same content, same lines; else the units are found and scored anew.
fn prove(
    proposals: Vec<Proposal>,
    weights: &Weights,
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
        for unit in &source.cut().units {
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
