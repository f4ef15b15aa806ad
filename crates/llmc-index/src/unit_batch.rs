//! Files that wait to be split, so that the shared store is asked for the analyses of many at once.
//!
//! Without a shared store no file waits.

use std::sync::Arc;

use llmc_syntax::ParseFailure;

use crate::prepare::{AnalysisOrigin, FileChange, ReadFile};
use crate::shared_units::{SharedUnits, UnitKey, WantedUnits};

/// A batch is asked for when it has this many files or bytes of source.
const BATCH_FILES: usize = 200;
const BATCH_BYTES: usize = 2 << 20;

/// The files of one thread.
pub(crate) struct UnitBatch {
    shared: Option<Arc<SharedUnits>>,
    files: Vec<ReadFile>,
    bytes: usize,
}

impl UnitBatch {
    pub(crate) fn new(shared: Option<Arc<SharedUnits>>) -> UnitBatch {
        UnitBatch {
            shared,
            files: Vec::new(),
            bytes: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Adds a file and gives what is ready to `deliver`, until that fails.
    pub(crate) fn add<E>(
        &mut self,
        file: ReadFile,
        mut deliver: impl FnMut(FileChange) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.shared.is_none() || file.parsed_language().is_none() {
            return deliver(prepared(file, None));
        }
        self.bytes += file.text.len();
        self.files.push(file);
        if self.files.len() < BATCH_FILES && self.bytes < BATCH_BYTES {
            return Ok(());
        }
        self.finish(deliver)
    }

    /// Gives all files that wait to `deliver`, until that fails.
    pub(crate) fn finish<E>(
        &mut self,
        mut deliver: impl FnMut(FileChange) -> Result<(), E>,
    ) -> Result<(), E> {
        self.bytes = 0;
        let files = std::mem::take(&mut self.files);
        let wanted = files.iter().filter_map(|file| {
            Some(WantedUnits {
                key: UnitKey::new(*file.hash(), file.parsed_language()?),
                source_bytes: file.text.len(),
            })
        });
        let shared = self.shared.as_ref();
        let found = shared
            .map(|shared| shared.find(&wanted.collect::<Vec<_>>()))
            .unwrap_or_default();
        for file in files {
            let language = file.parsed_language();
            let key = language.map(|language| UnitKey::new(*file.hash(), language));
            let row = key.and_then(|key| found.get(&key));
            let analysis = row.and_then(|row| row.decode(&file.text));
            deliver(match analysis {
                Some(analysis) => file.prepare(Some(Ok(analysis)), AnalysisOrigin::SharedStore),
                None => prepared(file, shared),
            })?;
        }
        Ok(())
    }
}

/// Parses a file, and lets the other servers have the result.
fn prepared(file: ReadFile, shared: Option<&Arc<SharedUnits>>) -> FileChange {
    let mut analysis = file.analyze();
    let origin = match analysis {
        None | Some(Err(ParseFailure::Declined)) => AnalysisOrigin::None,
        Some(_) => AnalysisOrigin::Parser,
    };
    if let Some((shared, language)) = shared.zip(file.language)
        && let Some(Ok(analysis)) = &mut analysis
    {
        let key = UnitKey::new(*file.hash(), language);
        shared.put(key, analysis, file.text.len());
    }
    file.prepare(analysis, origin)
}
