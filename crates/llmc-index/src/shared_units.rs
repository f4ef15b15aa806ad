//! Analyses of sources in the database that servers share: what one machine has parsed is parsed by no other.
//!
//! A row belongs to a content and its language, wherever the file lies and on whatever branch. It has the places of
//! definitions and references in the source and no text: names are read from the file, which both machines have. Each machine
//! still keeps its own index and makes it of these rows.
//!
//! What another server wrote is data: an analysis must lie within its source ([`SyntaxAnalysis::decode`]), within
//! bounds of size that follow from the source, and say which content it is of. Any other row counts as missing and is written
//! again. A build never fails for the database and hardly waits for it: when a question to it fails or is slow, files
//! are parsed here for a while, and what was parsed is uploaded by a thread of its own ([`uploads`]).

mod uploads;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use llmc_store::Database;
use llmc_syntax::{ANALYSIS_VERSION, Language, MAX_ANALYSIS_BYTES, SyntaxAnalysis};

use crate::catalog::{ContentHash, language_name};
use uploads::Uploads;

/// After a question that failed or took longer than `SLOW_QUESTION`, files are parsed here for this time.
const PAUSE: Duration = Duration::from_secs(60);
const SLOW_QUESTION: Duration = Duration::from_secs(2);
/// How long the end of the process waits for uploads.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// The first byte of a row's data.
const ENCODING: u8 = 1;
/// That byte, the content's hash, and the length of the analysis before compression.
const HEADER_BYTES: usize = 1 + size_of::<ContentHash>() + 4;
/// Costs a hundredth of what parsing does.
const ZSTD_LEVEL: i32 = 1;
/// Twice what the smallest definitions and references take for each byte of their source.
const ANALYSIS_BYTES_PER_SOURCE_BYTE: usize = 16;
const MIN_ANALYSIS_LIMIT_BYTES: usize = 4096;

/// `$1`, `$2`: hashes and languages, `$3`: the longest data of each, `$4`: the format, `$5`: days.
const FIND: &str = "
SELECT wanted.place, units.data, units.used_on < (clock_timestamp() AT TIME ZONE 'UTC')::date - $5::integer
FROM unnest($1::bytea[], $2::text[], $3::bigint[]) WITH ORDINALITY AS wanted (hash, language, max_bytes, place)
JOIN llmc.index_units AS units ON units.hash = wanted.hash AND units.language = wanted.language
WHERE units.format = $4 AND octet_length(units.data) <= wanted.max_bytes";

/// The analyses of all servers of a team. Without one, an index parses every file itself.
#[derive(Debug)]
pub struct SharedUnits {
    database: Database,
    /// The recorded day of use is renewed when it is older than this.
    renewal_days: i32,
    /// Until when files are parsed here without a question. Locked while one is asked: the threads of a build must not take
    /// the connections that calls need, nor wait one after the other for a database that does not answer.
    paused: Mutex<Option<Instant>>,
    uploads: Arc<Uploads>,
}

/// A content and its language.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct UnitKey {
    hash: ContentHash,
    language: &'static str,
}

/// A source whose analysis is asked for.
pub(crate) struct WantedUnits {
    pub(crate) key: UnitKey,
    pub(crate) source_bytes: usize,
}

/// What the database has of a source, not yet checked.
pub(crate) struct FoundUnits {
    hash: ContentHash,
    data: Vec<u8>,
}

impl SharedUnits {
    /// Keeps rows for this many days after their last use. Connects to nothing yet.
    pub fn new(database: Database, retention_days: u32) -> SharedUnits {
        let days = i32::try_from(retention_days).unwrap_or(i32::MAX);
        SharedUnits {
            uploads: Arc::new(Uploads::new(database.clone(), days)),
            database,
            renewal_days: (days / 2).min(7),
            paused: Mutex::new(None),
        }
    }

    /// What the database has of these sources; nothing when it is away.
    pub(crate) fn find(&self, wanted: &[WantedUnits]) -> HashMap<UnitKey, FoundUnits> {
        let mut paused = llmc_host::lock(&self.paused);
        if wanted.is_empty() || paused.is_some_and(|until| Instant::now() < until) {
            return HashMap::new();
        }
        let started = Instant::now();
        let found = self.find_now(wanted);
        if found.is_err() || started.elapsed() > SLOW_QUESTION {
            tracing::info!("files are parsed without the shared store for a minute");
            *paused = Some(Instant::now() + PAUSE);
        }
        found.unwrap_or_default()
    }

    fn find_now(&self, wanted: &[WantedUnits]) -> llmc_store::Result<HashMap<UnitKey, FoundUnits>> {
        let hashes: Vec<&[u8]> = wanted.iter().map(|one| &one.key.hash[..]).collect();
        let languages: Vec<&str> = wanted.iter().map(|one| one.key.language).collect();
        let limits = wanted.iter().map(|one| max_data_bytes(one.source_bytes));
        let limits: Vec<i64> = limits.map(|limit| limit as i64).collect();
        let rows = self.database.transaction(async |tx| {
            tx.query(
                FIND,
                &[
                    &hashes,
                    &languages,
                    &limits,
                    &ANALYSIS_VERSION,
                    &self.renewal_days,
                ],
            )
            .await
        })?;
        let mut found = HashMap::with_capacity(rows.len());
        let mut used = Vec::new();
        for row in rows {
            let place: i64 = row.try_get(0)?;
            let asked = usize::try_from(place - 1).ok();
            let Some(asked) = asked.and_then(|place| wanted.get(place)) else {
                continue;
            };
            if row.try_get(2)? {
                used.push(asked.key);
            }
            let (hash, data) = (asked.key.hash, row.try_get(1)?);
            found.insert(asked.key, FoundUnits { hash, data });
        }
        self.uploads.note_used(used);
        Ok(found)
    }

    /// Lets the other servers have an analysis, soon; without the signatures, which are text of the source.
    pub(crate) fn put(&self, key: UnitKey, analysis: &mut SyntaxAnalysis, source_bytes: usize) {
        for found in &mut analysis.definitions {
            found.signature.clear();
        }
        if let Some(data) = encode(key.hash, analysis, source_bytes) {
            self.uploads.put(key, data);
        }
    }

    /// Waits until everything is uploaded, and says whether it was.
    pub(crate) fn finish_uploads(&self, wait: Duration) -> bool {
        self.uploads.finish(wait)
    }
}

impl Drop for SharedUnits {
    fn drop(&mut self) {
        self.uploads.close(CLOSE_TIMEOUT);
    }
}

impl UnitKey {
    pub(crate) fn new(hash: ContentHash, language: Language) -> UnitKey {
        UnitKey {
            hash,
            language: language_name(language),
        }
    }
}

impl FoundUnits {
    /// The analysis of this source; `None` if the row has none that can be right.
    pub(crate) fn decode(&self, source: &str) -> Option<SyntaxAnalysis> {
        let (header, body) = self.data.split_at_checked(HEADER_BYTES)?;
        let (start, length) = header.split_last_chunk::<4>()?;
        if start != start_of(self.hash) {
            return None;
        }
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        if length > max_analysis_bytes(source.len()) {
            return None;
        }
        let bytes = zstd::bulk::decompress(body, length).ok()?;
        SyntaxAnalysis::decode(&bytes, source).filter(|_| bytes.len() == length)
    }
}

/// The data of a row; `None` for an analysis that is larger than others would accept.
fn encode(hash: ContentHash, analysis: &SyntaxAnalysis, source_bytes: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    analysis.encode(&mut bytes);
    if bytes.len() > max_analysis_bytes(source_bytes) {
        return None;
    }
    let mut compressor = zstd::bulk::Compressor::new(ZSTD_LEVEL).ok()?;
    compressor.include_checksum(true).ok()?;
    let mut data = start_of(hash).to_vec();
    data.extend(u32::try_from(bytes.len()).ok()?.to_le_bytes());
    data.extend(compressor.compress(&bytes).ok()?);
    (data.len() <= max_data_bytes(source_bytes)).then_some(data)
}

fn start_of(hash: ContentHash) -> [u8; HEADER_BYTES - 4] {
    let mut start = [ENCODING; HEADER_BYTES - 4];
    start[1..].copy_from_slice(&hash);
    start
}

fn max_analysis_bytes(source_bytes: usize) -> usize {
    let limit = source_bytes.saturating_mul(ANALYSIS_BYTES_PER_SOURCE_BYTE);
    limit.clamp(MIN_ANALYSIS_LIMIT_BYTES, MAX_ANALYSIS_BYTES)
}

/// Compression makes a random input a little larger, and an analysis is far from random.
fn max_data_bytes(source_bytes: usize) -> usize {
    HEADER_BYTES + max_analysis_bytes(source_bytes) / 2
}

#[cfg(test)]
mod tests {
    use llmc_syntax::{ParseBudget, analyze};

    use super::*;

    const SOURCE: &str = "/// Opens.\npub fn open_pool() -> Pool {\n    dial(\"secret text\")\n}\n";

    fn row() -> FoundUnits {
        let mut analysis =
            analyze(Language::Rust, SOURCE, &mut ParseBudget::default()).expect("parsed");
        for found in &mut analysis.definitions {
            found.signature.clear();
        }
        let hash = [7; 16];
        let data = encode(hash, &analysis, SOURCE.len()).expect("encoded");
        FoundUnits { hash, data }
    }

    #[test]
    fn a_row_gives_the_analysis_and_has_no_text() {
        let row = row();
        let found = row.decode(SOURCE).expect("decoded");
        assert_eq!(found.definitions[0].name, "open_pool");
        assert!(found.references.iter().any(|found| found.name == "dial"));
        let body = &row.data[HEADER_BYTES..];
        let plain = zstd::bulk::decompress(body, 1 << 16).unwrap();
        for part in ["open_pool", "dial", "Pool", "secret", "Opens"] {
            let found = memchr::memmem::find(&plain, part.as_bytes());
            assert!(found.is_none(), "{part}");
        }
    }

    #[test]
    fn rows_that_cannot_be_right_are_missing() {
        let row = row();
        for cut in 0..row.data.len() {
            let data = row.data[..cut].to_vec();
            let cut = FoundUnits { data, ..row };
            assert!(cut.decode(SOURCE).is_none());
        }
        for at in 0..row.data.len() {
            let mut data = row.data.clone();
            data[at] ^= 0x10;
            let changed = FoundUnits { data, ..row };
            // A bit of the compressed form may have no meaning; what is decoded is what was encoded.
            if let Some(found) = changed.decode(SOURCE) {
                assert_eq!(found.definitions[0].name, "open_pool", "byte {at}");
            }
        }
        let (hash, data) = ([8; 16], row.data.clone());
        assert!(FoundUnits { hash, data }.decode(SOURCE).is_none());
        assert!(row.decode("fn a() {}").is_none(), "of another source");
        let mut large = row.data.clone();
        large[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&u32::MAX.to_le_bytes());
        let large = FoundUnits { data: large, ..row };
        assert!(large.decode(SOURCE).is_none(), "it announces 4 GiB");
    }
}
