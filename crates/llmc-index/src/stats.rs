//! Counts of the index, and its check.

use serde::Serialize;

use crate::error::{Error, Result};
use crate::index::{Index, IndexState};

const MAX_UNPARSED_LISTED: usize = 100;

#[derive(Debug, Clone, Default, Serialize)]
pub struct IndexStats {
    /// Skipped ones included.
    pub files: u64,
    /// Units.
    pub chunks: u64,
    /// Definitions.
    pub symbols: u64,
    /// Uses of names.
    pub edges: u64,
    /// Files by language, the most first.
    pub languages: Vec<(String, u64)>,
    /// Of all files.
    pub bytes: u64,
    pub index_bytes: u64,
    /// The last change, in seconds since 1970.
    pub updated: i64,
    /// Files whose content is not indexed, by reason.
    pub passed: Vec<(&'static str, u64)>,
    /// Files that are split into windows because the parser crashed over them; at most a hundred.
    pub unparsed: Vec<String>,
}

impl Index {
    /// Counts; all zero where there is no index.
    ///
    /// # Errors
    /// The index is damaged.
    pub fn stats(&self) -> Result<IndexStats> {
        let counted = self.with(|catalog, text| {
            let counts = catalog.counts()?;
            Ok(IndexStats {
                files: counts.files,
                chunks: counts.units,
                symbols: counts.symbols,
                edges: text.edges(),
                languages: counts.languages,
                bytes: counts.bytes,
                index_bytes: 0,
                updated: catalog.number("updated")?.unwrap_or(0),
                passed: counts
                    .skipped
                    .into_iter()
                    .map(|(why, count)| (why.as_str(), count))
                    .collect(),
                unparsed: catalog.unparsed_files(MAX_UNPARSED_LISTED)?,
            })
        });
        match counted {
            Ok(stats) => Ok(IndexStats {
                index_bytes: self.bytes(),
                ..stats
            }),
            Err(Error::Missing) => Ok(IndexStats::default()),
            Err(error) => Err(error),
        }
    }

    /// Checks every byte of the index and returns the problems.
    ///
    /// # Errors
    /// There is no index.
    pub fn check(&self) -> Result<Vec<String>> {
        let mut wrong = Vec::new();
        let sound = self.with_parts(|catalog, text| Ok((catalog.is_sound()?, text.is_sound()?)))?;
        if !sound.0 {
            wrong.push("the catalogue is damaged".to_owned());
        }
        if !sound.1 {
            wrong.push("the text part is damaged".to_owned());
        }
        if self.state() != IndexState::Ready {
            wrong.push("the first build has not finished".to_owned());
        }
        Ok(wrong)
    }
}
