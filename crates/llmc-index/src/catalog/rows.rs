//! Converts rows to values, and numbers to enums.

use llmc_syntax::{DefinitionKind as D, Language};
use rusqlite::Row;

use super::{FileRow, FileStamp, SymbolRow, UnitRow};
use crate::classify::{Origin, Realm};
use crate::units::{Symbol, Unit, UnitKind};

/// Bits of a unit's id for its position in the file.
const POSITION_BITS: u32 = 16;

/// A unit's id, as stored.
pub(crate) fn unit_id(file: u64, place: usize) -> i64 {
    signed(file << POSITION_BITS) | signed(place as u64)
}

/// The file a unit belongs to.
pub(crate) fn file_of(unit: u64) -> u64 {
    unit >> POSITION_BITS
}

pub(super) fn file_row(row: &Row<'_>) -> rusqlite::Result<FileRow> {
    Ok(FileRow {
        path: row.get(0)?,
        hash: row.get(1)?,
        origin: pick(&Origin::ALL, row.get(2)?),
        realm: pick(&[Realm::Repo, Realm::Docs], row.get(3)?),
    })
}

pub(super) fn unit_row(row: &Row<'_>) -> rusqlite::Result<UnitRow> {
    let id = unsigned(row.get(0)?);
    let (first, last) = (row.get(4)?, row.get(5)?);
    Ok(UnitRow {
        file: file_of(id),
        unit: Unit {
            kind: pick(&UnitKind::ALL, row.get(1)?),
            symbol: row.get(2)?,
            scope: row.get(3)?,
            first,
            last,
            head: row.get(6)?,
            own: vec![(first, last)],
            names: Vec::new(),
        },
    })
}

pub(super) fn symbol_row(row: &Row<'_>) -> rusqlite::Result<SymbolRow> {
    Ok(SymbolRow {
        file: unsigned(row.get(0)?),
        symbol: Symbol {
            name: row.get(1)?,
            scope: row.get(2)?,
            kind: pick(&KINDS, row.get(3)?),
            first: row.get(4)?,
            line: row.get(5)?,
            last: row.get(6)?,
        },
    })
}

pub(super) fn stamp(row: &Row<'_>, at: usize) -> rusqlite::Result<FileStamp> {
    Ok(FileStamp {
        size: unsigned(row.get(at)?),
        mtime: row.get(at + 1)?,
        ctime: row.get(at + 2)?,
    })
}

/// The choice of that number; the first where a damaged file says something impossible.
pub(super) fn pick<T: Copy>(all: &[T], number: u8) -> T {
    all.get(usize::from(number)).copied().unwrap_or(all[0])
}

/// Kinds of definitions by their number.
const KINDS: [D; 14] = [
    D::Function,
    D::Class,
    D::Struct,
    D::Enum,
    D::Interface,
    D::Type,
    D::Module,
    D::Constant,
    D::Variable,
    D::Field,
    D::Variant,
    D::Macro,
    D::Impl,
    D::Declaration,
];

/// SQLite knows signed numbers only; none of ours is ever near the border.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// The name of a language in answers.
pub(crate) fn language_name(language: Language) -> &'static str {
    match language {
        Language::Rust => "Rust",
        Language::Python => "Python",
        Language::JavaScript => "JavaScript",
        Language::TypeScript => "TypeScript",
        Language::Tsx => "TSX",
        Language::Go => "Go",
        Language::Java => "Java",
        Language::C => "C",
        Language::Cpp => "C++",
        Language::CSharp => "C#",
        Language::Ruby => "Ruby",
        Language::Php => "PHP",
        Language::Bash => "Bash",
        Language::Lua => "Lua",
        Language::Zig => "Zig",
        Language::Protobuf => "Protobuf",
        Language::Hcl => "HCL",
        Language::Dockerfile => "Dockerfile",
        Language::Css => "CSS",
        Language::Html => "HTML",
        Language::Vue => "Vue",
        Language::Svelte => "Svelte",
        Language::Kotlin => "Kotlin",
        Language::Swift => "Swift",
        Language::Scala => "Scala",
        Language::Elixir => "Elixir",
        Language::Sql => "SQL",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_keep_their_numbers() {
        for (number, kind) in KINDS.iter().enumerate() {
            assert_eq!(*kind as usize, number);
        }
    }
}
