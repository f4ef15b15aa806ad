//! Embedding vectors of a provider: they find units that mean the same as the question without sharing a word with it.
//!
//! Vectors are stored as one byte for each number. A question is compared with every one of them, which is exact and
//! needs no second index; above [`MAX_UNITS_WITH_VECTORS`] units only words are used. The similarity
//! of a unit's vector to the question's is one of its features. `word_vectors` needs no provider.

use std::collections::BinaryHeap;
use std::path::Path;

use llmc_host::{CancelToken, Roots};

use crate::catalog::Catalog;
use crate::error::{Error, Result};
use crate::index::Index;
use crate::source::Sources;
use crate::units::Lines;

type EmbedResult = std::result::Result<Vec<Vec<f32>>, EmbedError>;
type EmbedFn = dyn Fn(&[String], &CancelToken) -> EmbedResult + Send + Sync;
pub(crate) type EmbedError = Box<dyn std::error::Error + Send + Sync>;

/// An embedding model, given by the caller: this crate does not know the network.
pub struct Embedder {
    /// Vectors of different models cannot be compared.
    model: String,
    embed: Box<EmbedFn>,
}

impl Embedder {
    /// `embed` returns one vector for each text, in order; its error is shown to users.
    pub fn new(
        model: String,
        embed: impl Fn(&[String], &CancelToken) -> EmbedResult + Send + Sync + 'static,
    ) -> Embedder {
        Embedder {
            model,
            embed: Box::new(embed),
        }
    }

    fn embed(&self, texts: &[String], cancel: &CancelToken) -> EmbedResult {
        let vectors = (self.embed)(texts, cancel)?;
        if vectors.len() != texts.len() {
            return Err("not one vector for each text".into());
        }
        Ok(vectors)
    }

    /// The number that stands for the model in the catalogue.
    fn model_number(&self) -> i64 {
        let hash = crate::prepare::hash_of(self.model.as_bytes());
        i64::from_le_bytes(hash[..8].try_into().unwrap_or_default())
    }
}

impl std::fmt::Debug for Embedder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Embedder").field(&self.model).finish()
    }
}

const MAX_UNITS_WITH_VECTORS: u64 = 200_000;
const BATCH_TEXTS: usize = 32;
const MAX_TEXT_BYTES: usize = 6000;
/// Longer vectors are cut.
const MAX_DIMENSIONS: usize = 8192;

impl Index {
    /// Ranks by vectors of this model instead of those in the executable.
    #[must_use]
    pub fn with_embedder(mut self, embedder: Embedder) -> Self {
        self.embedder = Some(embedder);
        self.without_word_vectors()
    }

    /// Ranks without the vectors in the executable.
    #[must_use]
    pub fn without_word_vectors(mut self) -> Self {
        self.uses_word_vectors = false;
        self
    }

    /// Computes the vectors of units that have none; returns their number.
    ///
    /// # Errors
    /// The provider fails ([`Error::Embedding`]), or the index cannot be written.
    pub fn embed_new(&self, roots: &Roots, cancel: &CancelToken) -> Result<u64> {
        let Some(embedder) = &self.embedder else {
            return Ok(0);
        };
        let mut done = 0;
        self.writer()?.use_model(embedder.model_number())?;
        let mut after = 0;
        while !cancel.is_cancelled() {
            let (units, all) = self.with(|catalog, _| {
                Ok((
                    catalog.without_vector(after, BATCH_TEXTS)?,
                    catalog.units()?,
                ))
            })?;
            let Some(last) = units.last() else { break };
            if all > MAX_UNITS_WITH_VECTORS {
                tracing::warn!(
                    units = all,
                    "too many units for vectors; ranking uses words only"
                );
                break;
            }
            after = last.0;
            let (ids, texts) = self.texts(roots, &units)?;
            if texts.is_empty() {
                continue;
            }
            let vectors = embedder.embed(&texts, cancel).map_err(Error::Embedding)?;
            let vectors: Vec<(i64, Vec<u8>)> = ids
                .into_iter()
                .zip(vectors.iter().map(|vector| quantized(vector)))
                .collect();
            done += vectors.len() as u64;
            self.writer()?.put_vectors(&vectors)?;
        }
        Ok(done)
    }

    /// The texts of these units, without those of files that have changed.
    fn texts(
        &self,
        roots: &Roots,
        units: &[(i64, u64, u32, u32)],
    ) -> Result<(Vec<i64>, Vec<String>)> {
        let mut sources = Sources::new(roots);
        let (mut ids, mut texts) = (Vec::new(), Vec::new());
        self.with(|catalog, _| {
            for (id, file, first, last) in units {
                let Some(file) = catalog.file(*file)? else {
                    continue;
                };
                // Files that may hold secrets are never sent.
                if roots.rules().is_denylisted(Path::new(&file.path)) {
                    continue;
                }
                let Some(source) = sources.get(&file.path) else {
                    continue;
                };
                if source.hash != file.hash {
                    continue;
                }
                let text = Lines::new(&source.text).range(*first, *last);
                let text = &text[..text.floor_char_boundary(MAX_TEXT_BYTES)];
                ids.push(*id);
                texts.push(format!("{}\n{text}", file.path));
            }
            Ok(())
        })?;
        Ok((ids, texts))
    }

    /// The question's vector; `None` without an embedder.
    pub(crate) fn vector_of(
        &self,
        question: &str,
        cancel: &CancelToken,
    ) -> std::result::Result<Option<Vec<u8>>, EmbedError> {
        let Some(embedder) = &self.embedder else {
            return Ok(None);
        };
        let question = &question[..question.floor_char_boundary(MAX_TEXT_BYTES)];
        let vectors = embedder.embed(&[question.to_owned()], cancel)?;
        Ok(vectors.first().map(|vector| quantized(vector)))
    }

    pub(crate) fn model_number(&self) -> Option<i64> {
        let embedder = self.embedder.as_ref()?;
        Some(embedder.model_number())
    }
}

/// The units nearest to a vector, with the similarity from 0 to 1.
pub(crate) fn nearest(
    to: &[u8],
    model: i64,
    catalog: &Catalog,
    limit: usize,
) -> Result<Vec<(u64, f32)>> {
    if catalog.number("embedding")? != Some(model) {
        return Ok(Vec::new());
    }
    // The worst of the best is on top, to be replaced by a better one.
    let mut best: BinaryHeap<std::cmp::Reverse<(i64, i64)>> = BinaryHeap::new();
    catalog.each_vector(|unit, vector| {
        if vector.len() != to.len() {
            return;
        }
        let near = dot_product(to, vector);
        if best.len() < limit {
            best.push(std::cmp::Reverse((near, unit)));
        } else if best.peek().is_some_and(|worst| worst.0.0 < near) {
            best.pop();
            best.push(std::cmp::Reverse((near, unit)));
        }
    })?;
    let found = best.into_iter().map(|std::cmp::Reverse((near, unit))| {
        let near = near as f32 / (127.0 * 127.0);
        (u64::try_from(unit).unwrap_or(0), near.clamp(0.0, 1.0))
    });
    Ok(found.collect())
}

fn dot_product(a: &[u8], b: &[u8]) -> i64 {
    let pairs = a.iter().zip(b);
    let product = pairs.map(|(a, b)| i32::from(a.cast_signed()) * i32::from(b.cast_signed()));
    i64::from(product.sum::<i32>())
}

/// The vector scaled to length 1 in bytes, so that a product is a cosine.
fn quantized(vector: &[f32]) -> Vec<u8> {
    let vector = &vector[..vector.len().min(MAX_DIMENSIONS)];
    let length = vector.iter().map(|n| n * n).sum::<f32>().sqrt();
    let scale = if length.is_finite() && length > 0.0 {
        127.0 / length
    } else {
        0.0
    };
    // The cast clamps, and turns NaN into 0.
    let bytes = vector
        .iter()
        .map(|n| ((n * scale).round() as i8).cast_unsigned());
    bytes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_keep_the_angle() {
        let near = |a: &[f32], b: &[f32]| {
            dot_product(&quantized(a), &quantized(b)) as f32 / (127.0 * 127.0)
        };
        assert!((near(&[3.0, 4.0], &[3.0, 4.0]) - 1.0).abs() < 0.02);
        assert!(near(&[1.0, 0.0], &[0.0, 5.0]).abs() < 0.02);
        assert!((near(&[1.0, 0.0], &[-2.0, 0.0]) + 1.0).abs() < 0.02);
        assert_eq!(quantized(&[0.0, f32::NAN]), [0, 0]);
        assert_eq!(quantized(&[f32::INFINITY, 1.0]), [0, 0]);
    }
}
