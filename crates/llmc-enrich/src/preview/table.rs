//! The columns of a table.

use super::{ContentShape, TextEnds, lines_of_shape};
use crate::sniff;

/// Rows whose values decide the type of a column.
const SAMPLE_ROWS: usize = 1000;

/// What the values of a column have in common so far.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Type {
    Nothing,
    Boolean,
    Integer,
    Number,
    Date,
    TextEnds,
}

struct Column {
    name: String,
    kind: Type,
    empty: usize,
}

/// Every column with its type, and how many rows there are.
pub(super) fn columns(path: &str, text: &TextEnds<'_>, room: usize) -> ContentShape {
    let lower = path.to_ascii_lowercase();
    let delimiter = if lower.ends_with(".tsv") {
        b'\t'
    } else {
        sniff::delimiter(text.head).unwrap_or(b',')
    };
    let mut reader = csv::ReaderBuilder::new()
        .delimiter(delimiter)
        .has_headers(false)
        .flexible(true)
        .from_reader(text.head.as_bytes());
    let mut columns: Vec<Column> = Vec::new();
    let mut record = csv::StringRecord::new();
    let mut rows = 0_u64;
    while matches!(reader.read_record(&mut record), Ok(true)) {
        if columns.is_empty() {
            columns.extend(record.iter().take(4096).map(|name| Column {
                name: name.trim().chars().take(60).collect(),
                kind: Type::Nothing,
                empty: 0,
            }));
            continue;
        }
        rows += 1;
        if rows as usize > SAMPLE_ROWS {
            continue;
        }
        for (column, value) in columns.iter_mut().zip(&record) {
            match type_of(value.trim()) {
                Type::Nothing => column.empty += 1,
                kind => column.kind = join(column.kind, kind),
            }
        }
    }
    let count = match text.tail {
        None => format!("{rows} rows"),
        // A quoted value may span lines; only a whole read tells.
        Some(_) => format!("about {} rows", text.total_lines.saturating_sub(1)),
    };
    let lines = columns
        .iter()
        .map(|column| {
            let empty = match column.empty {
                0 => String::new(),
                empty => format!(", {empty} of {} empty", rows.min(SAMPLE_ROWS as u64)),
            };
            format!(
                "  {}: {}{empty}",
                column.name.replace(['\n', '\r'], " "),
                word(column.kind)
            )
        })
        .collect();
    lines_of_shape(lines, 0, "columns", &format!(", {count}"), room)
}

fn type_of(value: &str) -> Type {
    let digits = value.strip_prefix('-').unwrap_or(value);
    if value.is_empty() || matches!(value, "NA" | "NaN" | "null" | "NULL") {
        Type::Nothing
    } else if value.eq_ignore_ascii_case("true") || value.eq_ignore_ascii_case("false") {
        Type::Boolean
    } else if digits.bytes().all(|byte| byte.is_ascii_digit()) && digits.len() < 19 {
        Type::Integer
    } else if digits.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && value.parse::<f64>().is_ok()
    {
        Type::Number
    } else if is_date(value.as_bytes()) {
        Type::Date
    } else {
        Type::TextEnds
    }
}

fn is_date(value: &[u8]) -> bool {
    value.len() >= 10
        && value[..10].iter().enumerate().all(|(at, byte)| match at {
            4 | 7 => matches!(byte, b'-' | b'/'),
            _ => byte.is_ascii_digit(),
        })
}

fn join(a: Type, b: Type) -> Type {
    match (a.min(b), a.max(b)) {
        (Type::Nothing, kind) => kind,
        (Type::Integer, Type::Number) => Type::Number,
        (a, b) if a == b => a,
        _ => Type::TextEnds,
    }
}

fn word(kind: Type) -> &'static str {
    match kind {
        Type::Nothing => "empty",
        Type::Boolean => "boolean",
        Type::Integer => "integer",
        Type::Number => "number",
        Type::Date => "date",
        Type::TextEnds => "text",
    }
}
