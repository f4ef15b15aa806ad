//! Searches the files themselves: all of them while there is no index, those it does not have yet while it is built.
//!
//! One pass over the files counts the question's words in each; the best files are then split into units and scored like
//! those of the index. Both have a time limit, and the answer says when it was reached.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use llmc_host::walk::{self, FileVisitor, VisitOutcome};
use llmc_host::{CancelToken, Roots, names};

use crate::bm25::{FileCounts, WordWeights};
use crate::classify;
use crate::error::Result;
use crate::question::Question;
use crate::rank::Candidate;
use crate::search::SearchScope;
use crate::source::Sources;
use crate::stack_trace;
use crate::units::MAX_PARSE_TIME;
use crate::words::each_word;

/// Files that are split into units.
const MAX_SPLIT_FILES: usize = 40;
/// Larger files are skipped to answer soon.
const MAX_SCANNED_BYTES: u64 = 1 << 20;

/// How long a search may take, and how much of the machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LiveLimits {
    scan: Duration,
    split: Duration,
    /// CPU time to parse one file.
    pub(crate) parse: Duration,
    threads: Option<usize>,
}

impl LiveLimits {
    /// Where there will be no index soon.
    pub(crate) const WITHOUT_INDEX: LiveLimits = LiveLimits {
        scan: Duration::from_secs(8),
        split: Duration::from_secs(8),
        parse: MAX_PARSE_TIME,
        threads: None,
    };
    /// While an index is built, which needs the processors more than a search.
    pub(crate) const DURING_BUILD: LiveLimits = LiveLimits {
        scan: Duration::from_millis(500),
        split: Duration::from_millis(300),
        parse: Duration::from_millis(150),
        threads: Some(1),
    };

    /// The same with another limit on the pass over the files.
    pub(crate) fn scanning_for(self, scan: Duration) -> LiveLimits {
        LiveLimits { scan, ..self }
    }
}

/// What a pass over the files found.
pub(crate) struct LiveScan {
    pub(crate) counts: FileCounts,
    /// The question's words.
    words: Vec<String>,
    /// The count of each word, for files that have one.
    hits: Vec<(String, Vec<u32>)>,
    /// Files with a name that a stack trace has.
    named: Vec<String>,
    limits: LiveLimits,
    /// Whether all files were searched.
    pub(crate) complete: bool,
}

impl LiveScan {
    /// Searches the files that are not `indexed`, as many as the time allows.
    pub(crate) fn run(
        roots: &Roots,
        question: &Question,
        scope: SearchScope,
        indexed: HashSet<String>,
        limits: LiveLimits,
        stop: &CancelToken,
    ) -> Result<LiveScan> {
        let words: Vec<String> = question
            .words
            .iter()
            .map(|(word, _)| word.clone())
            .collect();
        let places = words.iter().cloned().zip(0..).collect();
        let shared = Arc::new(ScanShared {
            places,
            indexed,
            named: stack_trace::file_names(&question.places)
                .into_iter()
                .chain(
                    question
                        .files
                        .iter()
                        .map(|file| classify::file_name(file).to_owned()),
                )
                .collect(),
            scope,
            seen: Mutex::default(),
        });
        let time = stop.until(Instant::now() + limits.scan);
        let dir = roots.open_dir(".")?;
        let mut options = dir.walk_options(roots)?;
        options.threads = limits.threads.unwrap_or(options.threads);
        let walked = walk::walk(&dir.fd, &options, &time, || WordCounter(shared.clone()))?;
        stop.check()?;
        let seen = std::mem::take(&mut *llmc_host::lock(&shared.seen));
        let mut with_word: HashMap<String, u64> = HashMap::new();
        for (_, counts) in &seen.hits {
            for (word, count) in words.iter().zip(counts) {
                if *count > 0 {
                    *with_word.entry(word.clone()).or_default() += 1;
                }
            }
        }
        Ok(LiveScan {
            counts: FileCounts {
                files: seen.files,
                with_word,
            },
            words,
            hits: seen.hits,
            named: seen.named,
            limits,
            complete: walked.complete,
        })
    }

    /// What a scan that did not take place found.
    pub(crate) fn skipped(limits: LiveLimits) -> LiveScan {
        LiveScan {
            counts: FileCounts::default(),
            words: Vec::new(),
            hits: Vec::new(),
            named: Vec::new(),
            limits,
            complete: false,
        }
    }

    /// The scanned files with this name.
    pub(crate) fn files_named(&self, name: &str) -> impl Iterator<Item = String> {
        let named = self.named.iter();
        named
            .filter(move |path| classify::file_name(path) == name)
            .cloned()
    }

    /// The units of the best files; fewer of them when the time is up.
    pub(crate) fn candidates(
        &mut self,
        weights: &WordWeights,
        sources: &mut Sources<'_>,
        stop: &CancelToken,
    ) -> Result<Vec<Candidate>> {
        let mut best: Vec<(f32, &String)> = self
            .hits
            .iter()
            .map(|(path, counts)| {
                let score = self.words.iter().zip(counts).map(|(word, count)| {
                    let often = *count as f32;
                    weights.rarity(word) * often / (often + 2.0)
                });
                (score.sum(), path)
            })
            .collect();
        best.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
        let deadline = Instant::now() + self.limits.split;
        let mut candidates = Vec::new();
        for (_, path) in best.into_iter().take(MAX_SPLIT_FILES) {
            stop.check()?;
            if Instant::now() > deadline && !candidates.is_empty() {
                self.complete = false;
                break;
            }
            let Some(source) = sources.get(path) else {
                continue;
            };
            let origin = classify::origin(path, &source.text);
            for unit in &source.parts().units {
                let score = weights.score(path, unit, &source.lines());
                if score > 0.0 {
                    let share = weights.share(score);
                    candidates.push(Candidate::new(source.clone(), unit.clone(), origin, share));
                }
            }
        }
        Ok(candidates)
    }
}

#[derive(Default)]
struct ScanResult {
    files: u64,
    hits: Vec<(String, Vec<u32>)>,
    named: Vec<String>,
}

struct ScanShared {
    /// The place of each word of the question.
    places: HashMap<String, usize>,
    indexed: HashSet<String>,
    named: HashSet<String>,
    scope: SearchScope,
    seen: Mutex<ScanResult>,
}

struct WordCounter(Arc<ScanShared>);

impl FileVisitor for WordCounter {
    fn visit(&mut self, file: &walk::WalkFile<'_>) -> VisitOutcome {
        let shared = &*self.0;
        let path = names::escape(file.path());
        if !shared.scope.realms().contains(&classify::realm(&path))
            || shared.indexed.contains(&path)
        {
            return VisitOutcome::Done;
        }
        if shared.named.contains(classify::file_name(&path)) {
            llmc_host::lock(&shared.seen).named.push(path.clone());
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
        let mut counts = vec![0; shared.places.len()];
        let mut count = |text: &str| {
            each_word(text, |word| {
                if let Some(place) = shared.places.get(word) {
                    counts[*place] += 1;
                }
            });
        };
        count(&String::from_utf8_lossy(&bytes));
        count(&path);
        let mut seen = llmc_host::lock(&shared.seen);
        seen.files += 1;
        if counts.iter().any(|count| *count > 0) {
            seen.hits.push((path, counts));
        }
        VisitOutcome::Done
    }
}
