//! Makes a file ready for the index. Runs on the threads of the walk.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use llmc_syntax::{Language, ParseFailure, ReferenceKind, SyntaxAnalysis};
use rustix::fs::Stat;
use sha2::{Digest, Sha256};

use crate::catalog::{ContentHash, FileStamp, IndexedFile, NewFile};
use crate::classify::{self, MAX_FILE_BYTES, Realm, SkipReason};
use crate::text::{UnitWords, UseKind};
use crate::units::{self, FileParts, Lines, Symbol, Unit};
use crate::word_vectors::{VectorSum, WordPlace};
use crate::words::each_word;

/// A file changed this recently may change again without a new timestamp.
const RACY_WINDOW: Duration = Duration::from_secs(2);
/// Sources from this size on are parsed one at a time, since a syntax tree takes eighty times its source in memory.
const LARGE_SOURCE_BYTES: usize = 256 << 10;
static LARGE_SOURCE_LOCK: Mutex<()> = Mutex::new(());
/// The text of all names that one unit uses.
const MAX_USES_BYTES: usize = 32 << 10;

pub(crate) enum FileChange {
    Same(u64),
    /// Only the timestamps changed.
    Touched(u64, FileStamp),
    Changed(Box<PreparedFile>),
}

pub(crate) struct PreparedFile {
    pub(crate) file: NewFile,
    /// Without references and definitions, which take more memory than the source and are not stored.
    pub(crate) parts: FileParts,
    /// One for each unit.
    pub(crate) words: Vec<UnitWords>,
    /// The id of the file's old version.
    pub(crate) old: Option<u64>,
}

impl FileChange {
    /// About how much memory it takes.
    pub(crate) fn bytes(&self) -> usize {
        let FileChange::Changed(prepared) = self else {
            return 0;
        };
        let words = prepared.words.iter().map(|words| {
            size_of::<UnitWords>()
                + words.name.len()
                + words.path.len()
                + words.text.len()
                + words.uses.len()
        });
        let parts = &prepared.parts;
        words.sum::<usize>()
            + parts.units.len() * size_of::<Unit>()
            + parts.symbols.len() * size_of::<Symbol>()
    }
}

/// A file whose content is not that of the index, read and not yet split.
pub(crate) struct ReadFile {
    file: NewFile,
    text: String,
    language: Option<Language>,
    old: Option<u64>,
}

/// What a look at a file says.
pub(crate) enum FileLook {
    Unchanged(FileChange),
    Changed(ReadFile),
}

/// Compares a file with the index, and reads it only if its timestamps differ.
pub(crate) fn look_at(
    path: String,
    file: File,
    stat: &Stat,
    known: Option<&IndexedFile>,
) -> FileLook {
    let stamp = stamp_of(stat);
    if let Some(known) = known
        && known.stamp == stamp
    {
        return FileLook::Unchanged(FileChange::Same(known.id));
    }
    let read = read_text(&path, file, stat);
    let hash = match &read {
        Ok(text) => hash_of(text.as_bytes()),
        Err((_, hash)) => *hash,
    };
    let stamp = settled(stamp);
    if let Some(known) = known
        && known.hash == hash
    {
        return FileLook::Unchanged(FileChange::Touched(known.id, stamp));
    }
    let skipped = read.as_ref().err().map(|(why, _)| *why);
    let text = read.unwrap_or_default();
    FileLook::Changed(ReadFile {
        language: Language::detect(&path, &text).filter(|_| skipped.is_none()),
        file: NewFile {
            hash,
            stamp,
            realm: classify::realm(&path),
            origin: classify::origin(&path, &text),
            skipped,
            path,
        },
        text,
        old: known.map(|known| known.id),
    })
}

impl ReadFile {
    /// Parses and splits the file.
    pub(crate) fn prepare(self) -> FileChange {
        let analysis = self.analyze();
        self.split(analysis)
    }

    fn analyze(&self) -> Option<Result<SyntaxAnalysis, ParseFailure>> {
        let _lock =
            (self.text.len() >= LARGE_SOURCE_BYTES).then(|| llmc_host::lock(&LARGE_SOURCE_LOCK));
        self.language
            .map(|language| units::analyze(language, &self.text, units::MAX_PARSE_TIME))
    }

    fn split(self, analysis: Option<Result<SyntaxAnalysis, ParseFailure>>) -> FileChange {
        let ReadFile {
            mut file,
            text,
            language,
            old,
        } = self;
        let (parts, words) = match file.skipped {
            None => split_with_words(&file, &text, language, analysis),
            Some(_) => (FileParts::default(), Vec::new()),
        };
        if parts.parse_failure == Some(ParseFailure::Unavailable) {
            // Neither stamp nor hash are those of the file, so answers and the next scan split it again.
            file.stamp.ctime = -1;
            file.hash = file.hash.map(|byte| !byte);
        }
        FileChange::Changed(Box::new(PreparedFile {
            file,
            parts,
            words,
            old,
        }))
    }
}

/// The stamp, made invalid if the file may still change within the same tick of the clock.
fn settled(stamp: FileStamp) -> FileStamp {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_nanos();
    let changed = u128::try_from(stamp.ctime.max(stamp.mtime)).unwrap_or(0);
    if changed + RACY_WINDOW.as_nanos() > now {
        FileStamp { ctime: -1, ..stamp }
    } else {
        stamp
    }
}

pub(crate) fn stamp_of(stat: &Stat) -> FileStamp {
    FileStamp {
        size: u64::try_from(stat.st_size).unwrap_or(0),
        mtime: llmc_host::mtime_ns(stat),
        ctime: stat
            .st_ctime
            .saturating_mul(1_000_000_000)
            .saturating_add(i64::try_from(stat.st_ctime_nsec).unwrap_or(0)),
    }
}

pub(crate) fn hash_of(bytes: &[u8]) -> ContentHash {
    let whole = Sha256::digest(bytes);
    let mut half = ContentHash::default();
    half.copy_from_slice(&whole[..16]);
    half
}

/// The text of a file worth indexing, or why it is not and a hash that stands for it.
fn read_text(path: &str, file: File, stat: &Stat) -> Result<String, (SkipReason, ContentHash)> {
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    // A file that is not read whole is compared by its times.
    let by_stamp = || hash_of(format!("{:?}", stamp_of(stat)).as_bytes());
    if size > MAX_FILE_BYTES {
        return Err((SkipReason::TooLarge, by_stamp()));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0) + 1);
    if file
        .take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut bytes)
        .is_err()
    {
        return Err((SkipReason::Unreadable, by_stamp()));
    }
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err((SkipReason::TooLarge, by_stamp()));
    }
    if let Some(why) = classify::skip_reason(path, &bytes) {
        return Err((why, hash_of(&bytes)));
    }
    Ok(decoded(bytes))
}

/// Bytes as text, the same way for index and answers.
pub(crate) fn decoded(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// Splits a text and gathers the words of each unit.
fn split_with_words(
    file: &NewFile,
    text: &str,
    language: Option<Language>,
    analysis: Option<Result<SyntaxAnalysis, ParseFailure>>,
) -> (FileParts, Vec<UnitWords>) {
    let mut parts = units::split_analyzed(&file.path, text, language, analysis);
    let lines = Lines::new(text);
    let mut uses = uses_by_unit(&parts, &lines);
    let mut sum = VectorSum::new();
    let words = parts.units.iter().zip(&mut uses).map(|(unit, uses)| {
        let text = unit.own_text(&lines);
        if file.realm == Realm::Docs {
            uses.extend(named_in_docs(&text));
        }
        let mut name = unit.symbol.clone();
        for other in &unit.names {
            name.push(' ');
            name.push_str(other);
        }
        let path = format!("{} {}", file.path, unit.scope);
        let [name, path, text] = [
            (WordPlace::Name, name),
            (WordPlace::Path, path),
            (WordPlace::Text, text),
        ]
        .map(|(place, text)| {
            let mut words = String::with_capacity(text.len());
            each_word(&text, |word| {
                sum.add(place, word);
                words.push_str(word);
                words.push(' ');
            });
            words
        });
        UnitWords {
            name,
            path,
            text,
            uses: joined(uses),
            code: sum.take().map(|vector| vector.code(file.realm)),
        }
    });
    let words = words.collect();
    parts.references = Vec::new();
    parts.definitions = Vec::new();
    (parts, words)
}

/// The terms of the names used in each unit.
fn uses_by_unit(parts: &FileParts, lines: &Lines<'_>) -> Vec<BTreeSet<String>> {
    let mut owner = vec![usize::MAX; lines.len() as usize + 1];
    for (place, unit) in parts.units.iter().enumerate() {
        for (first, last) in &unit.own {
            let range = *first as usize..=(*last as usize).min(owner.len() - 1);
            for slot in &mut owner[range] {
                *slot = place;
            }
        }
    }
    let mut uses = vec![BTreeSet::new(); parts.units.len()];
    for reference in &parts.references {
        let line = usize::try_from(reference.line).unwrap_or(usize::MAX);
        let place = owner.get(line).copied().unwrap_or(usize::MAX);
        if let Some(uses) = uses.get_mut(place) {
            let kind = use_kind(reference.kind);
            uses.insert(format!("{}{}", kind.letter(), reference.name));
        }
    }
    uses
}

pub(crate) fn use_kind(kind: ReferenceKind) -> UseKind {
    match kind {
        ReferenceKind::Call => UseKind::Call,
        ReferenceKind::Import => UseKind::Import,
        ReferenceKind::Inherit => UseKind::Inherit,
        ReferenceKind::Mention => UseKind::Mention,
    }
}

/// Names in backquotes in documentation.
pub(crate) fn named_in_docs(text: &str) -> impl Iterator<Item = String> {
    let quoted = text
        .lines()
        .flat_map(|line| line.split('`').skip(1).step_by(2));
    let names = quoted.flat_map(|code| {
        code.split(|c: char| !c.is_alphanumeric() && c != '_')
            .filter(|name| name.len() > 2 && !name.starts_with(|c: char| c.is_ascii_digit()))
    });
    names.map(|name| format!("{}{name}", UseKind::Mention.letter()))
}

fn joined(uses: &BTreeSet<String>) -> String {
    let mut all = String::new();
    for name in uses {
        if all.len() + name.len() > MAX_USES_BYTES {
            break;
        }
        all.push_str(name);
        all.push(' ');
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_for_the_writer_is_only_what_it_stores() {
        let dir = tempfile::tempdir().unwrap();
        let source = "pub fn alpha_wolf() {\n    beta_carotene();\n}\n";
        std::fs::write(dir.path().join("a.rs"), source).unwrap();
        let file = File::open(dir.path().join("a.rs")).unwrap();
        let stat = rustix::fs::fstat(&file).unwrap();
        let FileLook::Changed(read) = look_at("a.rs".to_owned(), file, &stat, None) else {
            panic!("a new file has changed");
        };
        let change = read.prepare();
        assert!(change.bytes() > source.len(), "{}", change.bytes());
        let FileChange::Changed(prepared) = change else {
            panic!("a new file has changed");
        };
        assert_eq!(prepared.parts.symbols.len(), 1);
        assert_eq!(prepared.words[0].uses, "cbeta_carotene ");
        assert!(prepared.parts.references.is_empty() && prepared.parts.definitions.is_empty());
    }
}
