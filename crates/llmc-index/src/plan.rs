//! Plans what to read for a question, and in which order, without a model.
//!
//! First the units that answer it best, then the callers of the first of them, its tests, and the documentation that
//! names it. The confidence of a step is its score; of an added step, the first one's score times how sure the relation
//! is.

use llmc_host::{CancelToken, Roots};
use schemars::JsonSchema;
use serde::Serialize;

use crate::decimals::three_decimals;
use crate::error::Result;
use crate::graph::RelatedSymbol;
use crate::index::{Index, IndexState};
use crate::question::Question;
use crate::rank::Candidate;
use crate::search::{SearchScope, no_words};
use crate::snippet::src;
use crate::source::Sources;
use crate::words::each_word;

/// Steps that answer the question itself, and added ones for each relation of the first.
const MAX_DIRECT_STEPS: usize = 6;
const MAX_RELATED_STEPS: usize = 2;
/// Of the first step's score.
const MIN_SCORE_SHARE: f32 = 0.4;

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ReadingPlan {
    /// As asked, clipped.
    pub query: String,
    /// How likely the first steps answer it, from 0 to 1.
    #[serde(serialize_with = "three_decimals")]
    pub confidence: f32,
    /// In the order of reading.
    pub steps: Vec<ReadingStep>,
    /// Whether the index answered.
    pub index: IndexState,
    /// Why the index is missing or not up to date.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ReadingStep {
    pub src: String,
    /// The reason to read it.
    pub why: String,
    /// From 0 to 1.
    #[serde(serialize_with = "three_decimals")]
    pub confidence: f32,
}

impl Index {
    /// Plans what to read for a question.
    ///
    /// # Errors
    /// As for [`Index::search`].
    pub fn plan(&self, roots: &Roots, query: &str, stop: &CancelToken) -> Result<ReadingPlan> {
        let question = Question::new(query).ok_or_else(no_words)?;
        let mut sources = Sources::new(roots);
        let (vectors, no_vectors) = self.question_vectors(query, &question, stop);
        let found = self.ranked(
            roots,
            &question,
            vectors,
            SearchScope::Both,
            &mut sources,
            stop,
        )?;
        let (ranked, state) = (&found.candidates, found.state);
        let best = ranked.first().map_or(0.0, |first| first.score);
        let mut steps: Vec<ReadingStep> = ranked
            .iter()
            .take(MAX_DIRECT_STEPS)
            .filter(|candidate| candidate.score >= MIN_SCORE_SHARE * best)
            .map(|candidate| direct_step(&question, candidate))
            .collect();
        let named = ranked
            .iter()
            .find(|candidate| !candidate.unit.symbol.is_empty());
        if let (Some(first), IndexState::Ready) = (named, state) {
            let id = format!("{}#{}", first.source.path, first.unit.qualified());
            // A heading is not a symbol, and a plan is useful without relations.
            if let Ok(about) = self.inspect(roots, &id, 1, stop) {
                let name = &first.unit.symbol;
                for (what, related, sure) in [
                    ("calls", &about.callers, 0.7),
                    ("tests", &about.tests, 0.6),
                    ("documents", &about.docs, 0.5),
                ] {
                    add_related(&mut steps, what, name, related, first.score * sure);
                }
            }
        }
        Ok(ReadingPlan {
            query: query.chars().take(200).collect(),
            confidence: best,
            steps,
            index: state,
            note: self.note(&found).or(no_vectors),
        })
    }
}

fn direct_step(question: &Question, candidate: &Candidate) -> ReadingStep {
    let unit = &candidate.unit;
    let mut words = std::collections::HashSet::new();
    let lines = candidate.source.lines();
    each_word(lines.range(unit.first, unit.last), |word| {
        words.insert(word.to_owned());
    });
    let mut shared: Vec<&str> = Vec::new();
    for (asked, _) in &question.words {
        let word = question.spelling.get(asked).map_or("", String::as_str);
        if words.contains(asked) && !shared.contains(&word) && shared.len() < 5 {
            shared.push(word);
        }
    }
    let what = if unit.symbol.is_empty() {
        unit.kind.as_str().to_owned()
    } else {
        format!("{} {}", unit.kind.as_str(), unit.qualified())
    };
    let why = if candidate.traced.is_some() {
        format!("{what}; the trace points here")
    } else {
        format!("{what}; has {}", shared.join(", "))
    };
    ReadingStep {
        src: src(&candidate.source.path, unit.first, unit.last),
        why,
        confidence: candidate.score,
    }
}

fn add_related(
    steps: &mut Vec<ReadingStep>,
    what: &str,
    name: &str,
    related: &[RelatedSymbol],
    confidence: f32,
) {
    for one in related.iter().take(MAX_RELATED_STEPS) {
        if steps.iter().any(|step| step.src == one.src) {
            continue;
        }
        let who = if one.symbol.is_empty() {
            String::new()
        } else {
            format!("{} ", one.symbol)
        };
        steps.push(ReadingStep {
            src: one.src.clone(),
            why: format!("{who}{what} {name}"),
            confidence,
        });
    }
}
