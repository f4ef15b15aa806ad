//! Searches the files themselves while there is no index.
//!
//! One pass over all files counts the question's words in each; the best files are then split into units and scored like
//! those of the index.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use llmc_host::walk::{self, FileVisitor, VisitOutcome};
use llmc_host::{CancelToken, Roots, names};

use crate::bm25::WordWeights;
use crate::classify;
use crate::error::Result;
use crate::question::Question;
use crate::rank::Candidate;
use crate::search::SearchScope;
use crate::source::Sources;
use crate::stack_trace::{self, LocatedPlace};
use crate::words::each_word;

/// Files that are split into units.
const MAX_SPLIT_FILES: usize = 40;
/// Larger files are skipped to answer soon.
const MAX_SCANNED_BYTES: u64 = 1 << 20;
const SCAN_TIMEOUT: Duration = Duration::from_secs(8);

pub(crate) fn search(
    roots: &Roots,
    question: &Question,
    scope: SearchScope,
    sources: &mut Sources<'_>,
    stop: &CancelToken,
) -> Result<(Vec<Candidate>, WordWeights, Vec<LocatedPlace>)> {
    let seen = Arc::new(Mutex::new(ScanResult::default()));
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
    let named = Arc::new(stack_trace::file_names(&question.places));
    let dir = roots.open_dir(".")?;
    let options = dir.walk_options(roots)?;
    let deadline = Instant::now() + SCAN_TIMEOUT;
    walk::walk(&dir.fd, &options, stop, || WordCounter {
        places: places.clone(),
        seen: seen.clone(),
        named: named.clone(),
        scope,
        deadline,
    })?;
    stop.check()?;
    let seen = std::mem::take(&mut *llmc_host::lock(&seen));
    let mut with_word: HashMap<String, u64> = HashMap::new();
    for (_, counts) in &seen.hits {
        for (place, count) in counts.iter().enumerate() {
            if *count > 0 {
                *with_word.entry(words[place].clone()).or_default() += 1;
            }
        }
    }
    let weights = WordWeights::from_files(question, seen.files, &with_word);
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
    for (_, path) in best.into_iter().take(MAX_SPLIT_FILES) {
        stop.check()?;
        let Some(source) = sources.get(path) else {
            continue;
        };
        let origin = classify::origin(path, &source.text);
        for unit in &source.parts().units {
            let score = weights.score(path, unit, &source.lines());
            if score > 0.0 {
                let base = weights.share(score);
                candidates.push(Candidate::new(source.clone(), unit.clone(), origin, base));
            }
        }
    }
    let located = stack_trace::locate(&question.places, |name| {
        let named = seen.named.iter();
        let named = named.filter(|path| classify::file_name(path) == name);
        Ok(named.cloned().collect())
    })?;
    Ok((candidates, weights, located))
}

#[derive(Default)]
struct ScanResult {
    files: u64,
    /// The count of each word of the question, for files that have one.
    hits: Vec<(String, Vec<u32>)>,
    /// Files with a name that a stack trace has.
    named: Vec<String>,
}

struct WordCounter {
    places: Arc<HashMap<String, usize>>,
    seen: Arc<Mutex<ScanResult>>,
    named: Arc<HashSet<String>>,
    scope: SearchScope,
    deadline: Instant,
}

impl FileVisitor for WordCounter {
    fn visit(&mut self, file: &walk::WalkFile<'_>) -> VisitOutcome {
        if Instant::now() > self.deadline {
            return VisitOutcome::Stopped;
        }
        let path = names::escape(file.path());
        if !self.scope.realms().contains(&classify::realm(&path)) {
            return VisitOutcome::Done;
        }
        if self.named.contains(classify::file_name(&path)) {
            let mut seen = llmc_host::lock(&self.seen);
            seen.named.push(path.clone());
        }
        let Ok((fd, stat)) = file.open() else {
            return VisitOutcome::Unreadable;
        };
        if u64::try_from(stat.st_size).unwrap_or(0) > MAX_SCANNED_BYTES {
            return VisitOutcome::TooLarge;
        }
        let mut bytes = Vec::new();
        if File::from(fd)
            .take(MAX_SCANNED_BYTES)
            .read_to_end(&mut bytes)
            .is_err()
        {
            return VisitOutcome::Unreadable;
        }
        if classify::skip_reason(&path, &bytes).is_some() {
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
        let mut seen = llmc_host::lock(&self.seen);
        seen.files += 1;
        if counts.iter().any(|count| *count > 0) {
            seen.hits.push((path, counts));
        }
        VisitOutcome::Done
    }
}
