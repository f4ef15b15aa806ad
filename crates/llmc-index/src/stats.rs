//! What the index holds, and whether it is sound.

use serde::Serialize;

use crate::casualties;
use crate::error::{Error, Result};
use crate::index::{Index, State};

/// Counts of what is indexed.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Stats {
    /// Files known, those passed over included.
    pub files: u64,
    /// Units that can be found.
    pub chunks: u64,
    /// Names that come into being.
    pub symbols: u64,
    /// Uses of names.
    pub edges: u64,
    /// Files by language, the most first.
    pub languages: Vec<(String, u64)>,
    /// Bytes of all files.
    pub bytes: u64,
    /// Bytes of the index.
    pub index_bytes: u64,
    /// When something last changed, seconds since 1970.
    pub updated: i64,
    /// Files whose content is not indexed, by reason.
    pub passed: Vec<(&'static str, u64)>,
    /// Files that are cut into windows because parsing them killed two processes.
    pub unparsed: Vec<String>,
}

impl Index {
    /// Counts; all zero where there is no index.
    ///
    /// # Errors
    /// The index is damaged.
    pub fn stats(&self) -> Result<Stats> {
        let counted = self.with(|catalog, text| {
            let counts = catalog.counts()?;
            Ok(Stats {
                files: counts.files,
                chunks: counts.units,
                symbols: counts.symbols,
                edges: text.edges(),
                languages: counts.languages,
                bytes: counts.bytes,
                index_bytes: 0,
                updated: catalog.number("updated")?.unwrap_or(0),
                passed: counts
                    .passed
                    .into_iter()
                    .map(|(why, count)| (why.as_str(), count))
                    .collect(),
                unparsed: casualties::given_up(&self.places().parsing()),
            })
        });
        match counted {
            Ok(stats) => Ok(Stats {
                index_bytes: self.bytes(),
                ..stats
            }),
            Err(Error::Missing) => Ok(Stats::default()),
            Err(error) => Err(error),
        }
    }

    /// Reads every byte of the index and says what is wrong with it; nothing if all is well.
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
        if self.state() != State::Ready {
            wrong.push("the first build has not finished".to_owned());
        }
        Ok(wrong)
    }
}
