//! What to read for a question, and in which order, without any model.
//!
//! First the units that answer it best, then who uses the first of them, the tests that show how, and the
//! documentation that names it. The confidence of a step is its score; of what is added, the first one's score times
//! how sure the relation is.

use llmc_host::{CancelToken, Roots};
use serde::Serialize;

use crate::decimals::three_decimals;
use crate::error::Result;
use crate::graph::Related;
use crate::index::{Index, State};
use crate::query::Question;
use crate::rank::Candidate;
use crate::search::{Scope, no_words};
use crate::snippet::src;
use crate::source::Sources;
use crate::words::each_word;

/// Steps that answer the question itself, and further ones around the first.
const DIRECT: usize = 6;
const AROUND: usize = 2;
/// A step with less than this share of the first one's score is not worth reading.
const WORTH: f32 = 0.4;

/// What to read.
#[derive(Debug, Clone, Serialize)]
pub struct Plan {
    /// As asked, clipped.
    pub query: String,
    /// How likely the first steps answer it, from 0 to 1.
    #[serde(serialize_with = "three_decimals")]
    pub confidence: f32,
    /// In the order of reading.
    pub steps: Vec<Step>,
    /// Whether the index answered.
    pub index: State,
    /// Why there is no index, or none that is up to date.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// One thing to read.
#[derive(Debug, Clone, Serialize)]
pub struct Step {
    /// Its lines.
    pub src: String,
    /// What speaks for it.
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
    pub fn plan(&self, roots: &Roots, query: &str, stop: &CancelToken) -> Result<Plan> {
        let question = Question::new(query).ok_or_else(no_words)?;
        let mut sources = Sources::new(roots);
        let (meaning, no_vectors) = self.meaning(query, stop);
        let (ranked, _, state) = self.ranked(
            roots,
            &question,
            meaning.as_ref(),
            Scope::Both,
            &mut sources,
            stop,
        )?;
        let best = ranked.first().map_or(0.0, |first| first.score);
        let mut steps: Vec<Step> = ranked
            .iter()
            .take(DIRECT)
            .filter(|candidate| candidate.score >= WORTH * best)
            .map(|candidate| direct(&question, candidate))
            .collect();
        let named = ranked
            .iter()
            .find(|candidate| !candidate.unit.symbol.is_empty());
        if let (Some(first), State::Ready) = (named, state) {
            let id = format!("{}#{}", first.source.path, first.unit.qualified());
            // A heading is no symbol, and a plan does without what cannot be found.
            if let Ok(about) = self.inspect(roots, &id, 1, stop) {
                let name = &first.unit.symbol;
                for (what, related, sure) in [
                    ("calls", &about.callers, 0.7),
                    ("tests", &about.tests, 0.6),
                    ("documents", &about.docs, 0.5),
                ] {
                    around(&mut steps, what, name, related, first.score * sure);
                }
            }
        }
        Ok(Plan {
            query: query.chars().take(200).collect(),
            confidence: best,
            steps,
            index: state,
            note: self.note(state).or(no_vectors),
        })
    }
}

fn direct(question: &Question, candidate: &Candidate) -> Step {
    let unit = &candidate.unit;
    let mut words = std::collections::HashSet::new();
    let lines = candidate.source.lines();
    each_word(lines.range(unit.first, unit.last), |word| {
        words.insert(word.to_owned());
    });
    let mut shared: Vec<&str> = Vec::new();
    for (word, _) in &question.words {
        let said = question.said.get(word).map_or("", String::as_str);
        if words.contains(word) && !shared.contains(&said) && shared.len() < 5 {
            shared.push(said);
        }
    }
    let what = if unit.symbol.is_empty() {
        unit.kind.as_str().to_owned()
    } else {
        format!("{} {}", unit.kind.as_str(), unit.qualified())
    };
    let why = if candidate.pointed.is_some() {
        format!("{what}; the trace points here")
    } else {
        format!("{what}; has {}", shared.join(", "))
    };
    Step {
        src: src(&candidate.source.path, unit.first, unit.last),
        why,
        confidence: candidate.score,
    }
}

fn around(steps: &mut Vec<Step>, what: &str, name: &str, related: &[Related], confidence: f32) {
    for one in related.iter().take(AROUND) {
        if steps.iter().any(|step| step.src == one.src) {
            continue;
        }
        let who = if one.symbol.is_empty() {
            String::new()
        } else {
            format!("{} ", one.symbol)
        };
        steps.push(Step {
            src: one.src.clone(),
            why: format!("{who}{what} {name}"),
            confidence,
        });
    }
}
