//! Cells of an XLSB workbook that do not say their column.
//!
//! The format has two records for each kind of cell: one with its column, which Excel writes, and a shorter one for the
//! cell to the right of the last, which other programs write. The parser of workbooks skips the short ones, and their
//! values would be missing silently. They become the long ones here.

use std::borrow::Cow;
use std::io::{Cursor, Read, Write};

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use crate::ConversionFault;

/// The most bytes that the cells of one sheet unpack to.
const MAX_SHEET_BYTES: u64 = 48 << 20;
/// Record types of cells with a column.
const LONG_CELLS: std::ops::RangeInclusive<u16> = 1..=11;
/// The same cells without one, in the same order.
const SHORT_CELLS: std::ops::RangeInclusive<u16> = 12..=18;
const LONG_FROM_SHORT: u16 = 11;
/// The record that begins a row.
const ROW: u16 = 0;

/// The workbook with every cell in its long form; `None` if it has no other.
pub(crate) fn lengthened(bytes: &[u8]) -> Result<Option<Vec<u8>>, ConversionFault> {
    let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(ConversionFault::damaged)?;
    let mut sheets = Vec::new();
    for index in 0..archive.len() {
        let file = archive.by_index(index).map_err(ConversionFault::damaged)?;
        let Ok(name) = file.name().map(Cow::into_owned) else {
            continue;
        };
        if !(name.starts_with("xl/worksheets/") && name.ends_with(".bin")) {
            continue;
        }
        let mut cells = Vec::new();
        file.take(MAX_SHEET_BYTES + 1)
            .read_to_end(&mut cells)
            .map_err(ConversionFault::damaged)?;
        if cells.len() as u64 > MAX_SHEET_BYTES {
            let most = MAX_SHEET_BYTES >> 20;
            return Err(ConversionFault::TooLarge(format!(
                "{name} in it unpacks to more than {most} MiB"
            )));
        }
        if let Some(long) = long_cells(&cells) {
            sheets.push((index, name, long));
        }
    }
    if sheets.is_empty() {
        return Ok(None);
    }
    let mut out = ZipWriter::new(Cursor::new(Vec::new()));
    let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    for index in 0..archive.len() {
        let written = match sheets.iter().find(|(sheet, ..)| *sheet == index) {
            Some((_, name, long)) => out
                .start_file(name.as_str(), stored)
                .and_then(|()| Ok(out.write_all(long)?)),
            None => archive
                .by_index_raw(index)
                .and_then(|file| out.raw_copy_file(file)),
        };
        written.map_err(ConversionFault::damaged)?;
    }
    let out = out.finish().map_err(ConversionFault::damaged)?;
    Ok(Some(out.into_inner()))
}

/// A sheet with its short cells made long; `None` if it has none, or is not a row of records.
fn long_cells(sheet: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(sheet.len());
    let (mut rest, mut column, mut has_short) = (sheet, u32::MAX, false);
    while !rest.is_empty() {
        let (kind, body, after) = record(rest)?;
        if SHORT_CELLS.contains(&kind) {
            has_short = true;
            column = column.wrapping_add(1);
            push_record(
                &mut out,
                kind - LONG_FROM_SHORT,
                &column.to_le_bytes(),
                body,
            );
        } else {
            if kind == ROW {
                column = u32::MAX;
            } else if LONG_CELLS.contains(&kind) {
                column = u32::from_le_bytes(*body.first_chunk()?);
            }
            push_record(&mut out, kind, &[], body);
        }
        rest = after;
    }
    has_short.then_some(out)
}

/// Type and body of the first record, and what follows it.
fn record(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let (&first, mut rest) = bytes.split_first()?;
    let mut kind = u16::from(first & 0x7f);
    if first & 0x80 != 0 {
        let (&second, after) = rest.split_first()?;
        kind |= u16::from(second & 0x7f) << 7;
        rest = after;
    }
    let mut length = 0_usize;
    for shift in [0, 7, 14, 21] {
        let (&byte, after) = rest.split_first()?;
        length |= usize::from(byte & 0x7f) << shift;
        rest = after;
        if byte & 0x80 == 0 {
            break;
        }
    }
    let (body, after) = rest.split_at_checked(length)?;
    Some((kind, body, after))
}

fn push_record(out: &mut Vec<u8>, kind: u16, before: &[u8], body: &[u8]) {
    match u8::try_from(kind) {
        Ok(kind @ ..0x80) => out.push(kind),
        _ => out.extend([(kind & 0x7f) as u8 | 0x80, (kind >> 7) as u8]),
    }
    let mut length = before.len() + body.len();
    loop {
        let byte = (length & 0x7f) as u8;
        length >>= 7;
        out.push(if length > 0 { byte | 0x80 } else { byte });
        if length == 0 {
            break;
        }
    }
    out.extend_from_slice(before);
    out.extend_from_slice(body);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_cell_is_right_of_the_last() {
        // A row, a long cell in column 2, a short one with a body of 9 bytes, one of a type above 127.
        let sheet = [
            &[0, 1, 7][..],
            &[5, 4, 2, 0, 0, 0],
            &[16, 2, 8, 9],
            &[0x91, 0x01, 0],
        ]
        .concat();
        let long = [
            &[0, 1, 7][..],
            &[5, 4, 2, 0, 0, 0],
            &[5, 6, 3, 0, 0, 0, 8, 9],
            &[0x91, 0x01, 0],
        ]
        .concat();
        assert_eq!(long_cells(&sheet), Some(long.clone()));
        assert_eq!(long_cells(&long), None);
        for end in 1..sheet.len() {
            let _ = long_cells(&sheet[..end]);
        }
    }

    #[test]
    fn lengths_of_any_size_are_kept() {
        for length in [0, 127, 128, 20_000, 3_000_000] {
            let body = vec![1; length];
            let mut out = Vec::new();
            push_record(&mut out, 300, &[], &body);
            let (kind, read, after) = record(&out).unwrap();
            assert_eq!((kind, read.len(), after.len()), (300, length, 0));
        }
    }
}
