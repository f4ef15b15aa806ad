//! Several segments as one, without the documents that a newer one replaces.

use std::path::Path;

use crate::error::Result;
use crate::segment::{Document, Segment, SegmentCursor, SegmentWriter};

/// A document that is left out.
const DROPPED: u32 = u32::MAX;

/// Writes a segment of what is current in these, given from the oldest to the newest; its size in bytes.
pub(crate) fn merge(
    segments: &[&Segment],
    is_live: impl Fn(u64) -> bool,
    path: &Path,
) -> Result<u64> {
    let (documents, places) = merged_documents(segments, is_live);
    let mut writer = SegmentWriter::create(path, &documents)?;
    let mut cursors = segments
        .iter()
        .map(|segment| SegmentCursor::new(segment))
        .collect::<Result<Vec<SegmentCursor<'_>>>>()?;
    let mut list = Vec::new();
    loop {
        let heads = cursors.iter().filter_map(|cursor| cursor.current.as_ref());
        let Some(trigram) = heads.map(|head| head.trigram).min() else {
            return writer.finish();
        };
        list.clear();
        for (cursor, places) in cursors.iter_mut().zip(&places) {
            if cursor
                .current
                .as_ref()
                .is_some_and(|head| head.trigram == trigram)
            {
                cursor.each_document(|document| {
                    let place = places[document as usize];
                    if place != DROPPED {
                        list.push(place);
                    }
                })?;
                cursor.advance()?;
            }
        }
        // Runs that are sorted already, which a stable sort makes use of.
        list.sort();
        if !list.is_empty() {
            writer.add(trigram, &list)?;
        }
    }
}

/// The documents of the new segment, and where those of each old one are in it.
fn merged_documents(
    segments: &[&Segment],
    is_live: impl Fn(u64) -> bool,
) -> (Vec<Document>, Vec<Vec<u32>>) {
    let mut documents = Vec::new();
    let sizes = segments.iter().map(|segment| segment.paths.len());
    let mut places: Vec<Vec<u32>> = sizes.map(Vec::with_capacity).collect();
    loop {
        let heads = segments.iter().zip(&places);
        let next = heads.filter_map(|(segment, places)| segment.paths.get(places.len()));
        let Some(path) = next.min().copied() else {
            return (documents, places);
        };
        let mut place = if is_live(path) {
            documents.len() as u32
        } else {
            DROPPED
        };
        for (segment, places) in segments.iter().zip(&mut places).rev() {
            let at = places.len();
            if segment.paths.get(at) != Some(&path) {
                continue;
            }
            if place != DROPPED {
                documents.push(Document {
                    path,
                    fingerprint: segment.fingerprints[at],
                    kind: segment.kinds[at],
                });
            }
            places.push(place);
            place = DROPPED;
        }
    }
}
