//! Searches the files themselves, while there is no index: slower, but never without an answer.
//!
//! One pass over all files counts which of the question's words each of them has; the best files are then cut into
//! units and scored like those of the index.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use llmc_host::walk::{self, FileVisitor, VisitOutcome};
use llmc_host::{CancelToken, Roots, names};

use crate::classify;
use crate::error::Result;
use crate::query::Question;
use crate::rank::Candidate;
use crate::score::Weights;
use crate::search::Scope;
use crate::source::Sources;
use crate::trace::{self, Located};
use crate::words::each_word;

/// Files that are cut into units.
const FILES: usize = 40;
/// Larger files are passed over: whoever waits for an index wants an answer soon.
const LARGEST: u64 = 1 << 20;
/// How long files are looked at.
const PATIENCE: Duration = Duration::from_secs(8);

/// The units that answer a question, from the files as they are.
pub(crate) fn search(
    roots: &Roots,
    question: &Question,
    scope: Scope,
    sources: &mut Sources<'_>,
    stop: &CancelToken,
) -> Result<(Vec<Candidate>, Weights, Vec<Located>)> {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let words: Vec<String> = question
        .words
        .iter()
        .map(|(word, _)| word.clone())
        .collect();
    let places: HashMap<String, usize> = words
        .iter()
        .enumerate()
        .map(|(place, word)| (word.clone(), place))
        .collect();
    let places = Arc::new(places);
    let named = Arc::new(trace::names(&question.places));
    let dir = roots.open_dir(".")?;
    let options = dir.walk_options(roots)?;
    let until = Instant::now() + PATIENCE;
    walk::walk(&dir.fd, &options, stop, || Counter {
        places: places.clone(),
        seen: seen.clone(),
        named: named.clone(),
        scope,
        until,
    })?;
    stop.check()?;
    let seen = std::mem::take(&mut *seen.lock().unwrap_or_else(PoisonError::into_inner));
    let mut with_word: HashMap<String, u64> = HashMap::new();
    for (_, counts) in &seen.hits {
        for (place, count) in counts.iter().enumerate() {
            if *count > 0 {
                *with_word.entry(words[place].clone()).or_default() += 1;
            }
        }
    }
    let weights = Weights::from_files(question, seen.files, &with_word);
    let mut best: Vec<(f32, &String)> = seen
        .hits
        .iter()
        .map(|(path, counts)| {
            let score = counts.iter().enumerate().map(|(place, count)| {
                let often = *count as f32;
                weights.rarity(&words[place]) * often / (often + 2.0)
            });
            (score.sum(), path)
        })
        .collect();
    best.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    let mut candidates = Vec::new();
    for (_, path) in best.into_iter().take(FILES) {
        stop.check()?;
        let Some(source) = sources.get(path) else {
            continue;
        };
        let origin = classify::origin(path, &source.text);
        for unit in &source.cut().units {
            let score = weights.score(path, unit, &source.lines());
            if score > 0.0 {
                let base = weights.share(score);
                candidates.push(Candidate::new(source.clone(), unit.clone(), origin, base));
            }
        }
    }
    let located = trace::located(&question.places, |name| {
        let named = seen.named.iter();
        let named = named.filter(|path| classify::file_name(path) == name);
        Ok(named.cloned().collect())
    })?;
    Ok((candidates, weights, located))
}

#[derive(Default)]
struct Seen {
    files: u64,
    /// How often each word of the question stands in a file.
    hits: Vec<(String, Vec<u32>)>,
    /// Files that are called as a stack trace calls them.
    named: Vec<String>,
}

struct Counter {
    places: Arc<HashMap<String, usize>>,
    seen: Arc<Mutex<Seen>>,
    named: Arc<HashSet<String>>,
    scope: Scope,
    until: Instant,
}

impl FileVisitor for Counter {
    fn visit(&mut self, file: &walk::WalkFile<'_>) -> VisitOutcome {
        if Instant::now() > self.until {
            return VisitOutcome::Stopped;
        }
        let path = names::escape(file.path());
        if !self.scope.realms().contains(&classify::realm(&path)) {
            return VisitOutcome::Done;
        }
        if self.named.contains(classify::file_name(&path)) {
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.named.push(path.clone());
        }
        let Ok((fd, stat)) = file.open() else {
            return VisitOutcome::Unreadable;
        };
        if u64::try_from(stat.st_size).unwrap_or(0) > LARGEST {
            return VisitOutcome::TooLarge;
        }
        let mut bytes = Vec::new();
        if File::from(fd)
            .take(LARGEST)
            .read_to_end(&mut bytes)
            .is_err()
        {
            return VisitOutcome::Unreadable;
        }
        if classify::passed(&path, &bytes).is_some() {
            return VisitOutcome::Binary;
        }
        let mut counts = vec![0; self.places.len()];
        let mut count = |text: &str| {
            each_word(text, |word| {
                if let Some(place) = self.places.get(word) {
                    counts[*place] += 1;
                }
            });
        };
        count(&String::from_utf8_lossy(&bytes));
        count(&path);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.files += 1;
        if counts.iter().any(|count| *count > 0) {
            seen.hits.push((path, counts));
        }
        VisitOutcome::Done
    }
}
