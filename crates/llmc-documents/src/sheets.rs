//! The sheets of a workbook, as rows of comma-separated values.

use std::io::Cursor;

use calamine::{
    Data, DataRef, ExcelDateTime, Ods, Reader, SheetType, SheetVisible, Sheets, Xls, Xlsb, Xlsx,
    XlsxError, open_workbook_from_rs,
};

use crate::parts::PartsText;
use crate::{ConversionFault, DocumentKind, DocumentText, PartUnit, short_cells};

/// Empty rows that are shown as such; more become one remark.
const MAX_EMPTY_ROWS: u32 = 3;

type Bytes<'b> = Cursor<&'b [u8]>;

pub(crate) fn read_workbook(bytes: &[u8]) -> Result<DocumentText, ConversionFault> {
    let data = Cursor::new(bytes);
    match open_workbook_from_rs::<Xlsx<_>, _>(data) {
        Ok(book) => write_book(Sheets::Xlsx(book), DocumentKind::Workbook),
        Err(XlsxError::Password) => Err(ConversionFault::Encrypted),
        Err(error) => {
            let lengthened = short_cells::lengthened(bytes)?;
            let data = Cursor::new(lengthened.as_deref().unwrap_or(bytes));
            match open_workbook_from_rs::<Xlsb<_>, _>(data) {
                Ok(book) => write_book(Sheets::Xlsb(book), DocumentKind::Workbook),
                Err(_) => Err(ConversionFault::damaged(error)),
            }
        }
    }
}

pub(crate) fn read_open_sheet(bytes: &[u8]) -> Result<DocumentText, ConversionFault> {
    let book = open_workbook_from_rs::<Ods<_>, _>(Cursor::new(bytes));
    let book = book.map_err(ConversionFault::damaged)?;
    write_book(Sheets::Ods(book), DocumentKind::OpenSheet)
}

/// An XLS workbook; a newer document in a compound file is encrypted.
pub(crate) fn read_compound(bytes: &[u8]) -> Result<DocumentText, ConversionFault> {
    let mark: Vec<u8> = "EncryptedPackage"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    if bytes.windows(mark.len()).any(|window| window == mark) {
        return Err(ConversionFault::Encrypted);
    }
    let book = open_workbook_from_rs::<Xls<_>, _>(Cursor::new(bytes));
    let book = book.map_err(ConversionFault::damaged)?;
    write_book(Sheets::Xls(book), DocumentKind::Workbook)
}

fn write_book(
    mut book: Sheets<Bytes<'_>>,
    kind: DocumentKind,
) -> Result<DocumentText, ConversionFault> {
    let mut parts = PartsText::new(kind, PartUnit::Sheet);
    let sheets = book.sheets_metadata().to_vec();
    for sheet in sheets {
        if parts.is_full() {
            break;
        }
        let remark = match (sheet.typ, sheet.visible) {
            (SheetType::WorkSheet, SheetVisible::Visible) => "",
            (SheetType::WorkSheet, _) => " (hidden)",
            _ => " (not a table)",
        };
        let heading = format!("sheet {}{remark}", sheet.name);
        parts.begin(sheet.name.clone(), Some(&heading));
        if sheet.typ == SheetType::WorkSheet {
            write_sheet(&mut parts, &mut book, &sheet.name)?;
        }
    }
    Ok(parts.finish())
}

fn write_sheet(
    parts: &mut PartsText,
    book: &mut Sheets<Bytes<'_>>,
    name: &str,
) -> Result<(), ConversionFault> {
    let mut rows = RowWriter::new(parts);
    // Cell by cell where that is possible: two cells far apart would make a table of billions.
    if let Sheets::Xlsx(book) = book {
        let mut cells = book
            .worksheet_cells_reader(name)
            .map_err(ConversionFault::damaged)?;
        while !rows.parts.is_full()
            && let Some(cell) = cells.next_cell().map_err(ConversionFault::damaged)?
        {
            let (row, column) = cell.get_position();
            rows.cell(row, column, shown_ref(cell.get_value()));
        }
    } else {
        let range = book
            .worksheet_range(name)
            .map_err(ConversionFault::damaged)?;
        let (first_row, first_column) = range.start().unwrap_or_default();
        for (row, column, value) in range.used_cells() {
            if rows.parts.is_full() {
                break;
            }
            let row = first_row.saturating_add(u32::try_from(row).unwrap_or(u32::MAX));
            let column = first_column.saturating_add(u32::try_from(column).unwrap_or(u32::MAX));
            rows.cell(row, column, shown(value));
        }
    }
    rows.finish();
    Ok(())
}

/// Puts cells together to lines.
struct RowWriter<'p> {
    parts: &'p mut PartsText,
    line: String,
    row: u32,
    column: u32,
    is_empty: bool,
}

impl<'p> RowWriter<'p> {
    fn new(parts: &'p mut PartsText) -> RowWriter<'p> {
        RowWriter {
            parts,
            line: String::new(),
            row: 0,
            column: 0,
            is_empty: true,
        }
    }

    fn cell(&mut self, row: u32, column: u32, value: String) {
        if value.is_empty() {
            return;
        }
        if row != self.row {
            self.end_row(row);
        }
        while self.column < column && self.line.len() < crate::MAX_TEXT_BYTES {
            self.line.push(',');
            self.column += 1;
        }
        self.is_empty = false;
        push_value(&mut self.line, &value);
    }

    fn end_row(&mut self, next: u32) {
        let line = std::mem::take(&mut self.line);
        if !self.is_empty {
            self.parts.line(&line);
        }
        let skipped = next
            .saturating_sub(self.row)
            .saturating_sub(u32::from(!self.is_empty));
        match skipped {
            0..=MAX_EMPTY_ROWS => (0..skipped).for_each(|_| self.parts.line("")),
            _ => self.parts.line(&format!("({skipped} empty rows)")),
        }
        (self.row, self.column, self.is_empty) = (next, 0, true);
    }

    fn finish(mut self) {
        if self.is_empty {
            self.parts.line("(empty)");
        } else {
            let line = std::mem::take(&mut self.line);
            self.parts.line(&line);
        }
    }
}

/// A value as in a CSV file, on one line.
fn push_value(line: &mut String, value: &str) {
    let value = value.replace(['\r', '\n'], " ");
    if value.contains([',', '"']) {
        line.push('"');
        line.push_str(&value.replace('"', "\"\""));
        line.push('"');
    } else {
        line.push_str(&value);
    }
}

fn shown(value: &Data) -> String {
    match value {
        Data::DateTime(time) => date(time),
        other => other.to_string(),
    }
}

fn shown_ref(value: &DataRef<'_>) -> String {
    match value {
        DataRef::DateTime(time) => date(time),
        DataRef::SharedString(text) => (*text).to_owned(),
        other => shown(&Data::from(other.clone())),
    }
}

/// A date, a time or both, as ISO 8601 writes them.
fn date(time: &ExcelDateTime) -> String {
    const SECONDS_PER_DAY: f64 = 86_400.0;
    if time.is_duration() {
        let seconds = (time.as_f64() * SECONDS_PER_DAY).round().abs() as u64;
        let sign = if time.as_f64() < 0.0 { "-" } else { "" };
        let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
        return format!("{sign}{hours}:{minutes:02}:{:02}", seconds % 60);
    }
    let (year, month, day, hour, minute, second, _) = time.to_ymd_hms_milli();
    let clock = format!("{hour:02}:{minute:02}:{second:02}");
    if time.as_f64() < 1.0 {
        return clock;
    }
    let day = format!("{year:04}-{month:02}-{day:02}");
    match (hour, minute, second) {
        (0, 0, 0) => day,
        _ => format!("{day} {clock}"),
    }
}
