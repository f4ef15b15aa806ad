//! Distributes a token budget: whole units where they fit, else cut between lines, exact to the token.

use std::fmt;

use crate::bm25::WordWeights;
use crate::question::Question;
use crate::rank::Candidate;
use crate::units::{Lines, Unit, UnitKind};
use crate::words::each_word;

/// Lines shown above the one that a trace names, if the unit does not fit.
const LINES_ABOVE_TRACED: u32 = 8;

/// Some lines of a file, as they are on disk.
#[derive(Debug, Clone, PartialEq)]
pub struct Snippet {
    /// The lines, without the last line end.
    pub text: String,
    /// As tools show it.
    pub path: String,
    /// From 1.
    pub first: u32,
    pub last: u32,
    /// From 0 to 1; see `rank`.
    pub score: f32,
    /// The qualified name of the unit.
    pub symbol: Option<String>,
    pub kind: Option<&'static str>,
    /// Why it has this score: name, value and effect of each feature, the largest effect first.
    pub reasons: Vec<(&'static str, f32, f32)>,
}

impl Snippet {
    /// `path#L10-L20`.
    pub fn src(&self) -> String {
        src(&self.path, self.first, self.last)
    }
}

/// `path#L10-L20`.
pub(crate) fn src(path: &str, first: u32, last: u32) -> String {
    format!("{path}#L{first}-L{last}")
}

/// Hits for which a budget was too small.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OmittedHits {
    pub hits: usize,
    /// The number of hits to be shown.
    pub of: usize,
    pub budget: usize,
    /// The source of the best omitted hit.
    pub best: String,
    /// Its tokens.
    pub tokens: usize,
}

impl fmt::Display for OmittedHits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OmittedHits {
            hits,
            of,
            budget,
            best,
            tokens,
        } = self;
        write!(
            f,
            "{hits} of {of} hits left out, {budget} tokens are too few: the best of them, {best}, has {tokens}"
        )
    }
}

/// The first `k` candidates within the budget, best first, and what did not fit.
pub(crate) fn within_budget(
    question: &Question,
    weights: &WordWeights,
    ranked: &[Candidate],
    k: usize,
    budget: usize,
) -> (Vec<Snippet>, Option<OmittedHits>) {
    let chosen = &ranked[..ranked.len().min(k)];
    let sizes: Vec<usize> = chosen
        .iter()
        .map(|candidate| {
            let lines = candidate.source.lines();
            let unit = &candidate.unit;
            tokens_up_to(
                without_end(lines.range(unit.first, unit.shown_last())),
                budget,
            )
        })
        .collect();
    let shares = shares(&sizes, budget);
    let mut left = budget;
    let mut snippets = Vec::new();
    let mut omitted: Option<OmittedHits> = None;
    for (candidate, share) in chosen.iter().zip(shares) {
        let lines = candidate.source.lines();
        let unit = &candidate.unit;
        // Where the share is too small for a single line, a better hit comes before room for those below it.
        let fitted = fit(question, weights, candidate, &lines, share.min(left))
            .or_else(|| fit(question, weights, candidate, &lines, left));
        let Some((first, last, tokens)) = fitted else {
            let text = without_end(lines.range(unit.first, unit.shown_last()));
            let of = chosen.len();
            omitted
                .get_or_insert_with(|| OmittedHits {
                    hits: 0,
                    of,
                    budget,
                    best: src(&candidate.source.path, unit.first, unit.last),
                    tokens: llmc_tokens::count(text),
                })
                .hits += 1;
            continue;
        };
        left -= tokens;
        let named = !unit.symbol.is_empty();
        snippets.push(Snippet {
            text: without_end(lines.range(first, last)).to_owned(),
            path: candidate.source.path.clone(),
            first,
            last,
            score: candidate.score,
            symbol: named.then(|| unit.qualified()),
            kind: Some(unit.kind.as_str()),
            reasons: candidate.features.reasons(),
        });
    }
    (snippets, omitted)
}

/// How many tokens a text has, or `limit` if it has more.
fn tokens_up_to(text: &str, limit: usize) -> usize {
    let (bytes, tokens) = llmc_tokens::lines_within(text, limit);
    if bytes == text.len() { tokens } else { limit }
}

/// Small units get all they need, the others equal shares of the rest.
fn shares(sizes: &[usize], budget: usize) -> Vec<usize> {
    let mut shares = vec![0; sizes.len()];
    let mut left = budget;
    let mut open: Vec<usize> = (0..sizes.len()).collect();
    while !open.is_empty() {
        let part = left / open.len();
        let (small, large): (Vec<usize>, Vec<usize>) =
            open.iter().partition(|place| sizes[**place] <= part);
        if small.is_empty() {
            // The best one gets what does not divide.
            let rest = left - part * open.len();
            for (nth, place) in large.iter().enumerate() {
                shares[*place] = part + if nth == 0 { rest } else { 0 };
            }
            break;
        }
        for place in small {
            shares[place] = sizes[place];
            left -= sizes[place];
        }
        open = large;
    }
    shares
}

/// The lines of a unit to show within a budget, and their tokens.
fn fit(
    question: &Question,
    weights: &WordWeights,
    candidate: &Candidate,
    lines: &Lines<'_>,
    budget: usize,
) -> Option<(u32, u32, usize)> {
    let unit = &candidate.unit;
    let whole = without_end(lines.range(unit.first, unit.shown_last()));
    let (bytes, tokens) = llmc_tokens::lines_within(whole, budget);
    let is_traced_below = candidate
        .traced
        .is_some_and(|traced| traced.line > unit.shown_last());
    if bytes == whole.len() && !whole.is_empty() && !is_traced_below {
        return Some((unit.first, unit.shown_last(), tokens));
    }
    let start = match unit.kind {
        UnitKind::Function | UnitKind::Type | UnitKind::Module => unit.first,
        UnitKind::Section | UnitKind::Text => best_start(question, weights, unit, lines),
    };
    let last_kind = unit.kind;
    // A type is shown by its head; the methods below it are units of their own.
    let end = if last_kind == UnitKind::Type && unit.head > unit.first {
        unit.head
    } else {
        unit.last
    };
    let shown = lines_from(start, end, lines, budget);
    let Some(traced) = candidate.traced else {
        return shown;
    };
    // The line that a trace names must be shown, however far down it is.
    let has_it = |shown: &(u32, u32, usize)| (shown.0..=shown.1).contains(&traced.line);
    let above = traced
        .line
        .saturating_sub(LINES_ABOVE_TRACED)
        .max(unit.first);
    shown
        .filter(has_it)
        .or_else(|| lines_from(above, unit.last, lines, budget).filter(has_it))
        .or_else(|| lines_from(traced.line, unit.last, lines, budget))
        .or(shown)
}

/// As many lines from `start` on as the budget allows, and their tokens.
fn lines_from(start: u32, end: u32, lines: &Lines<'_>, budget: usize) -> Option<(u32, u32, usize)> {
    let text = lines.range(start, end);
    let (mut bytes, _) = llmc_tokens::lines_within(text, budget);
    loop {
        let shown = without_end(&text[..bytes]);
        if shown.is_empty() {
            return None;
        }
        let count = u32::try_from(memchr::memchr_iter(b'\n', shown.as_bytes()).count()).ok()?;
        // Without its last line end a text may, rarely, have one token more.
        let tokens = llmc_tokens::count(shown);
        if tokens <= budget {
            return Some((start, start + count, tokens));
        }
        bytes = shown.rfind('\n').map_or(0, |at| at + 1);
    }
}

/// Two lines above the line with the rarest words.
fn best_start(question: &Question, weights: &WordWeights, unit: &Unit, lines: &Lines<'_>) -> u32 {
    let asked = |word: &str| question.words.iter().any(|(other, _)| other == word);
    let mut best = (0.0, unit.first);
    for line in unit.first..=unit.last {
        let mut heat = 0.0;
        each_word(lines.range(line, line), |word| {
            if asked(word) {
                heat += weights.rarity(word);
            }
        });
        if heat > best.0 {
            best = (heat, line);
        }
    }
    best.1.saturating_sub(2).max(unit.first)
}

fn without_end(text: &str) -> &str {
    text.strip_suffix('\n').unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_ones_whole_and_the_rest_in_equal_parts() {
        assert_eq!(shares(&[10, 20], 100), [10, 20]);
        assert_eq!(shares(&[100, 10, 100], 100), [45, 10, 45]);
        assert_eq!(shares(&[100, 100, 100], 100), [34, 33, 33]);
        assert_eq!(shares(&[], 100), Vec::<usize>::new());
    }
}
