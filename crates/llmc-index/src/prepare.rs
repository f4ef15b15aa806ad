//! From a file on disk to what the index holds of it. Runs on the threads of the walk.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use llmc_syntax::ReferenceKind;
use rustix::fs::Stat;
use sha2::{Digest, Sha256};

use crate::catalog::{Hash, Known, NewFile, Stamp};
use crate::classify::{self, LARGEST, Passed, Realm};
use crate::text::{Use, Words};
use crate::units::{self, Cut, Lines};

/// A file changed this recently may change again without its times telling.
const RACY: Duration = Duration::from_secs(2);
/// The longest text of names that one unit's uses may have.
const MAX_USES: usize = 32 << 10;

/// What an update has to do about a file.
pub(crate) enum Found {
    /// Nothing.
    Same(u64),
    /// Note its new times.
    Touched(u64, Stamp),
    /// Put it in, in place of its older state.
    Changed(Box<Prepared>),
}

/// A file, ready to be put in.
pub(crate) struct Prepared {
    pub(crate) file: NewFile,
    pub(crate) cut: Cut,
    /// One for each unit.
    pub(crate) words: Vec<Words>,
    /// The file's older state.
    pub(crate) old: Option<u64>,
}

/// Looks at a file, and reads it only if its times differ from what is known.
pub(crate) fn look_at(path: String, file: File, stat: &Stat, known: Option<&Known>) -> Found {
    let stamp = stamp_of(stat);
    if let Some(known) = known
        && known.stamp == stamp
    {
        return Found::Same(known.id);
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
        return Found::Touched(known.id, stamp);
    }
    let text = read.as_deref().unwrap_or_default();
    let file = NewFile {
        hash,
        stamp,
        realm: classify::realm(&path),
        origin: classify::origin(&path, text),
        passed: read.as_ref().err().map(|(why, _)| *why),
        path,
    };
    let (cut, words) = if read.is_ok() {
        take_in(&file, text)
    } else {
        (Cut::default(), Vec::new())
    };
    Found::Changed(Box::new(Prepared {
        file,
        cut,
        words,
        old: known.map(|known| known.id),
    }))
}

/// A file's times, or times that no file has if it may still be changing within the same tick of the clock.
fn settled(stamp: Stamp) -> Stamp {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_nanos();
    let changed = u128::try_from(stamp.ctime.max(stamp.mtime)).unwrap_or(0);
    if changed + RACY.as_nanos() > now {
        Stamp { ctime: -1, ..stamp }
    } else {
        stamp
    }
}

pub(crate) fn stamp_of(stat: &Stat) -> Stamp {
    Stamp {
        size: u64::try_from(stat.st_size).unwrap_or(0),
        mtime: llmc_host::mtime_ns(stat),
        ctime: stat
            .st_ctime
            .saturating_mul(1_000_000_000)
            .saturating_add(i64::try_from(stat.st_ctime_nsec).unwrap_or(0)),
    }
}

pub(crate) fn hash_of(bytes: &[u8]) -> Hash {
    let whole = Sha256::digest(bytes);
    let mut half = Hash::default();
    half.copy_from_slice(&whole[..16]);
    half
}

/// The text of a file worth indexing, or why it is not and a hash that stands for it.
fn read_text(path: &str, file: File, stat: &Stat) -> Result<String, (Passed, Hash)> {
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    // What is not read whole is told apart by its times.
    let by_stamp = || hash_of(format!("{:?}", stamp_of(stat)).as_bytes());
    if size > LARGEST {
        return Err((Passed::TooLarge, by_stamp()));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0) + 1);
    if file.take(LARGEST + 1).read_to_end(&mut bytes).is_err() {
        return Err((Passed::Unreadable, by_stamp()));
    }
    if bytes.len() as u64 > LARGEST {
        return Err((Passed::TooLarge, by_stamp()));
    }
    if let Some(why) = classify::passed(path, &bytes) {
        return Err((why, hash_of(&bytes)));
    }
    Ok(decoded(bytes))
}

/// Bytes as text, the same way wherever a file is read.
pub(crate) fn decoded(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// Cuts a text and gathers the words of each unit.
fn take_in(file: &NewFile, text: &str) -> (Cut, Vec<Words>) {
    let cut = units::cut(&file.path, text);
    let lines = Lines::new(text);
    let mut uses = uses_by_unit(&cut, &lines);
    let words = cut.units.iter().zip(&mut uses).map(|(unit, uses)| {
        let text = unit.own_text(&lines);
        if file.realm == Realm::Docs {
            uses.extend(named_in_docs(&text));
        }
        let mut name = unit.symbol.clone();
        for other in &unit.names {
            name.push(' ');
            name.push_str(other);
        }
        Words {
            name,
            path: format!("{} {}", file.path, unit.scope),
            text,
            uses: joined(uses),
        }
    });
    let words = words.collect();
    (cut, words)
}

/// The terms of the names that each unit uses.
fn uses_by_unit(cut: &Cut, lines: &Lines<'_>) -> Vec<BTreeSet<String>> {
    let mut owner = vec![usize::MAX; lines.len() as usize + 1];
    for (place, unit) in cut.units.iter().enumerate() {
        for (first, last) in &unit.own {
            let range = *first as usize..=(*last as usize).min(owner.len() - 1);
            for slot in &mut owner[range] {
                *slot = place;
            }
        }
    }
    let mut uses = vec![BTreeSet::new(); cut.units.len()];
    for reference in &cut.references {
        let line = usize::try_from(reference.line).unwrap_or(usize::MAX);
        let place = owner.get(line).copied().unwrap_or(usize::MAX);
        if let Some(uses) = uses.get_mut(place) {
            let how = how(reference.kind);
            uses.insert(format!("{}{}", how.letter(), reference.name));
        }
    }
    uses
}

pub(crate) fn how(kind: ReferenceKind) -> Use {
    match kind {
        ReferenceKind::Call => Use::Call,
        ReferenceKind::Import => Use::Import,
        ReferenceKind::Inherit => Use::Inherit,
        ReferenceKind::Mention => Use::Mention,
    }
}

/// Names that documentation sets in backquotes.
pub(crate) fn named_in_docs(text: &str) -> impl Iterator<Item = String> {
    let quoted = text
        .lines()
        .flat_map(|line| line.split('`').skip(1).step_by(2));
    let names = quoted.flat_map(|code| {
        code.split(|c: char| !c.is_alphanumeric() && c != '_')
            .filter(|name| name.len() > 2 && !name.starts_with(|c: char| c.is_ascii_digit()))
    });
    names.map(|name| format!("{}{name}", Use::Mention.letter()))
}

fn joined(uses: &BTreeSet<String>) -> String {
    let mut all = String::new();
    for name in uses {
        if all.len() + name.len() > MAX_USES {
            break;
        }
        all.push_str(name);
        all.push(' ');
    }
    all
}
