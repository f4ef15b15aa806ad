//! The kernel's errors as programs print them: their texts in every language of this machine, their names and numbers.
//!
//! The C library translates the texts by catalogues that it reads itself when a program asks for one. The same catalogues are
//! read here, so that a command in any locale of this machine is understood, whatever the server's own locale is.

use std::sync::OnceLock;

use super::host::read_small;

/// An error by which the kernel refuses something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Errno {
    ReadOnly,
    Access,
    NotPermitted,
    Missing,
    Busy,
    CrossDevice,
    NoSpace,
    ConnectionRefused,
    NoProcess,
    Again,
    TooManyFiles,
    Unreachable,
}

impl Errno {
    /// Whether the error is about a place, an address or a process, by which it is checked.
    pub(super) fn has_place(self) -> bool {
        !matches!(
            self,
            Errno::NoSpace | Errno::Again | Errno::TooManyFiles | Errno::Unreachable
        )
    }
}

/// One error: its name, its number, and its texts in English, lower case, the C library's first.
struct Row {
    errno: Errno,
    name: &'static str,
    number: u8,
    texts: &'static [&'static str],
    /// The C library's text, by which catalogues know it.
    message: &'static str,
}

const fn row(
    errno: Errno,
    name: &'static str,
    number: u8,
    message: &'static str,
    texts: &'static [&'static str],
) -> Row {
    Row {
        errno,
        name,
        number,
        texts,
        message,
    }
}

const ROWS: [Row; 12] = [
    row(
        Errno::ReadOnly,
        "EROFS",
        30,
        "Read-only file system",
        &[
            "read-only file system",
            "readonly database",
            "unable to open database file",
        ],
    ),
    row(
        Errno::Access,
        "EACCES",
        13,
        "Permission denied",
        &["permission denied", "accessdeniedexception"],
    ),
    row(
        Errno::NotPermitted,
        "EPERM",
        1,
        "Operation not permitted",
        &["operation not permitted"],
    ),
    row(
        Errno::Missing,
        "ENOENT",
        2,
        "No such file or directory",
        &[
            "no such file or directory",
            "nosuchfileexception",
            "does not exist",
            "not found",
        ],
    ),
    row(
        Errno::Busy,
        "EBUSY",
        16,
        "Device or resource busy",
        &["resource busy"],
    ),
    row(
        Errno::CrossDevice,
        "EXDEV",
        18,
        "Invalid cross-device link",
        &["cross-device link"],
    ),
    row(
        Errno::NoSpace,
        "ENOSPC",
        28,
        "No space left on device",
        &["no space left on device"],
    ),
    row(
        Errno::ConnectionRefused,
        "ECONNREFUSED",
        111,
        "Connection refused",
        &["connection refused", "failed to connect", "cannot connect"],
    ),
    row(
        Errno::NoProcess,
        "ESRCH",
        3,
        "No such process",
        &["no such process"],
    ),
    row(
        Errno::Again,
        "EAGAIN",
        11,
        "Resource temporarily unavailable",
        &["resource temporarily unavailable", "can't start new thread"],
    ),
    row(
        Errno::TooManyFiles,
        "EMFILE",
        24,
        "Too many open files",
        &["too many open files", "no file descriptors available"],
    ),
    row(
        Errno::Unreachable,
        "ENETUNREACH",
        101,
        "Network is unreachable",
        &["network is unreachable", "network unreachable"],
    ),
];

/// How programs print the number of an error.
const NUMBERED: [&str; 4] = ["errno ", "os error ", "errno=", "errno: "];

/// Where the C library's catalogues are: a folder for each language in it.
const CATALOGUES: [&str; 3] = [
    "/usr/share/locale",
    "/usr/share/locale-langpack",
    "/run/current-system/sw/share/locale",
];
/// The C library's catalogue in the folder of a language.
const CATALOGUE: &str = "LC_MESSAGES/libc.mo";
/// Languages that are read.
const MAX_CATALOGUES: usize = 256;

/// The errors that a line names.
pub(super) fn errnos_of(line: &str) -> Vec<Errno> {
    static TRANSLATED: OnceLock<Vec<(Errno, String)>> = OnceLock::new();
    let english = in_english(line);
    if !english.is_empty() {
        return english;
    }
    let translated = TRANSLATED.get_or_init(installed_translations);
    let found = translated.iter().filter(|(_, text)| line.contains(text));
    let mut errnos: Vec<Errno> = found.map(|(errno, _)| *errno).collect();
    errnos.dedup();
    errnos
}

fn in_english(line: &str) -> Vec<Errno> {
    let lower = line.to_ascii_lowercase();
    let is_word = |at: usize, length: usize| {
        let around = [
            line[..at].chars().next_back(),
            line[at + length..].chars().next(),
        ];
        !around
            .into_iter()
            .flatten()
            .any(|c| c.is_alphanumeric() || c == '_')
    };
    let has_number = |number: u8| {
        let number = number.to_string();
        NUMBERED.iter().any(|before| {
            let rest = lower
                .match_indices(before)
                .map(|(at, _)| &lower[at + before.len()..]);
            rest.into_iter().any(|rest| {
                rest.strip_prefix(number.as_str())
                    .is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
            })
        })
    };
    let rows = ROWS.iter().filter(|row| {
        row.texts.iter().any(|text| lower.contains(text))
            || line
                .match_indices(row.name)
                .any(|(at, name)| is_word(at, name.len()))
            || has_number(row.number)
    });
    rows.map(|row| row.errno).collect()
}

fn installed_translations() -> Vec<(Errno, String)> {
    let mut texts: Vec<(Errno, String)> = Vec::new();
    let mut read = 0;
    for dir in CATALOGUES {
        for language in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let Some(bytes) = read_small(&language.path().join(CATALOGUE)) else {
                continue;
            };
            read += 1;
            if read > MAX_CATALOGUES {
                return texts;
            }
            for text in translations(&bytes) {
                if !texts.contains(&text) {
                    texts.push(text);
                }
            }
        }
    }
    texts
}

/// The texts of a catalogue in the format of `msgfmt`. One whose letters are not UTF-8 is passed over.
fn translations(bytes: &[u8]) -> Vec<(Errno, String)> {
    let Some(catalogue) = Catalogue::open(bytes) else {
        return Vec::new();
    };
    let found = ROWS.iter().filter_map(|row| {
        let text = std::str::from_utf8(catalogue.get(row.message.as_bytes())?).ok()?;
        (!text.is_empty() && text != row.message).then(|| (row.errno, text.to_owned()))
    });
    found.collect()
}

struct Catalogue<'a> {
    bytes: &'a [u8],
    is_big_endian: bool,
    count: usize,
    originals: usize,
    translated: usize,
}

impl<'a> Catalogue<'a> {
    fn open(bytes: &'a [u8]) -> Option<Catalogue<'a>> {
        let is_big_endian = match bytes.first_chunk::<4>()? {
            [0xde, 0x12, 0x04, 0x95] => false,
            [0x95, 0x04, 0x12, 0xde] => true,
            _ => return None,
        };
        let mut catalogue = Catalogue {
            bytes,
            is_big_endian,
            count: 0,
            originals: 0,
            translated: 0,
        };
        catalogue.count = catalogue.number(8)?;
        catalogue.originals = catalogue.number(12)?;
        catalogue.translated = catalogue.number(16)?;
        Some(catalogue)
    }

    fn number(&self, at: usize) -> Option<usize> {
        let bytes: [u8; 4] = self.bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
        let number = match self.is_big_endian {
            true => u32::from_be_bytes(bytes),
            false => u32::from_le_bytes(bytes),
        };
        usize::try_from(number).ok()
    }

    /// The text with this number in a table of lengths and offsets.
    fn text(&self, table: usize, number: usize) -> Option<&'a [u8]> {
        let at = table.checked_add(number.checked_mul(8)?)?;
        let (length, offset) = (self.number(at)?, self.number(at.checked_add(4)?)?);
        self.bytes.get(offset..offset.checked_add(length)?)
    }

    /// The translation of a text; the originals are sorted.
    fn get(&self, original: &[u8]) -> Option<&'a [u8]> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.text(self.originals, middle)?.cmp(original) {
                std::cmp::Ordering::Equal => return self.text(self.translated, middle),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn programs_print_an_error_in_many_ways() {
        for (line, wanted) in [
            (
                "rm: cannot remove 'x': Read-only file system",
                Errno::ReadOnly,
            ),
            ("open /x: read-only file system", Errno::ReadOnly),
            ("Error: EROFS: rofs, open 'x'", Errno::ReadOnly),
            (
                "  Read-only file system (os error 30)\u{fc}",
                Errno::ReadOnly,
            ),
            ("OSError: [Errno 30] schreibgesch\u{fc}tzt", Errno::ReadOnly),
            ("attempt to write a readonly database (8)", Errno::ReadOnly),
            ("connect ECONNREFUSED /x.sock", Errno::ConnectionRefused),
            ("mv: Resource busy (os error 16)", Errno::Busy),
        ] {
            assert_eq!(errnos_of(line), [wanted], "{line}");
        }
        for line in ["", "EROFSX", "os error 301", "MYEROFS", "errno", "EROFS_OK"] {
            assert_eq!(in_english(line), [], "{line}");
        }
    }

    /// A catalogue of sorted originals with their translations.
    fn catalogue(texts: &[(&str, &str)], is_big_endian: bool) -> Vec<u8> {
        let number = |number: usize| {
            let number = u32::try_from(number).unwrap();
            match is_big_endian {
                true => number.to_be_bytes(),
                false => number.to_le_bytes(),
            }
        };
        let (first, second) = (28, 28 + 8 * texts.len());
        let mut offset = second + 8 * texts.len();
        let (mut tables, mut strings) = ([Vec::new(), Vec::new()], Vec::new());
        for which in [0, 1] {
            for text in texts.iter().map(|pair| [pair.0, pair.1][which]) {
                tables[which].extend(number(text.len()));
                tables[which].extend(number(offset));
                strings.extend(text.bytes().chain([0]));
                offset += text.len() + 1;
            }
        }
        let head = [0x9504_12de, 0, texts.len(), first, second, 0, 0];
        let mut bytes: Vec<u8> = head.into_iter().flat_map(number).collect();
        bytes.extend(tables.concat());
        bytes.extend(strings);
        bytes
    }

    #[test]
    fn catalogues_of_both_byte_orders_are_read() {
        let texts = [
            ("", "charset=UTF-8"),
            ("Permission denied", "Keine Berechtigung"),
            ("Read-only file system", "Das Dateisystem ist nur lesbar"),
        ];
        for is_big_endian in [false, true] {
            let found = translations(&catalogue(&texts, is_big_endian));
            let text = |errno| {
                found
                    .iter()
                    .find(|one| one.0 == errno)
                    .map(|one| &one.1[..])
            };
            assert_eq!(
                text(Errno::ReadOnly),
                Some("Das Dateisystem ist nur lesbar")
            );
            assert_eq!(text(Errno::Access), Some("Keine Berechtigung"));
            assert_eq!(found.len(), 2);
        }
    }

    #[test]
    fn a_damaged_catalogue_says_nothing() {
        let whole = catalogue(&[("Permission denied", "Keine Berechtigung")], false);
        for length in 0..whole.len() {
            let mut odd = whole[..length].to_vec();
            translations(&odd);
            odd.resize(whole.len(), 0xff);
            translations(&odd);
        }
    }

    #[test]
    fn every_installed_language_is_understood() {
        let german = Path::new(CATALOGUES[0]).join("de").join(CATALOGUE);
        if german.exists() {
            let line =
                "rm: das Entfernen von 'x' ist nicht m\u{f6}glich: Das Dateisystem ist nur lesbar";
            assert_eq!(errnos_of(line), [Errno::ReadOnly]);
        }
    }
}
