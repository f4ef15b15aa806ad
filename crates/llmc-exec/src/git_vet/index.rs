//! Judges git's index: a checkout writes a file for each of its entries, wherever the entry's name leads.
//!
//! Git checks the names of an entry when it adds one, but not when it reads the index. An entry `.git/hooks/post-checkout` or
//! `../x` is therefore written by the user's next `git checkout .`. Only the names matter here; everything else of an index
//! is git's own data. What cannot be read is refused, since git may read it in another way.

use super::{JudgedFile, Verdict, shortened};

/// Times, device, inode, mode, owner, group and size come first in an entry.
const STAT_BYTES: usize = 40;
const HEADER_BYTES: usize = 12;
/// The flag for two more bytes of flags, and the mask of the name's length. Longer names end with the first zero byte.
const EXTENDED: u16 = 0x4000;
const NAME_MASK: usize = 0x0fff;
/// Ends the extensions with the place where they begin; of its length.
const END_OF_ENTRIES: &[u8] = b"EOIE";
/// Says where threads begin to read entries.
const ENTRY_OFFSETS: &[u8] = b"IEOT";

const UNREADABLE: &str = "not an index that git writes";

pub(super) fn vet_index(file: &JudgedFile<'_>, new: &[u8], hash_bytes: usize) -> Verdict {
    match check(new, hash_bytes) {
        Ok(()) => Verdict::Harmless,
        Err(Fault::Unreadable) => file.refused("the file", UNREADABLE),
        Err(Fault::Name(name)) => file.refused(
            shortened(&name),
            "a checkout would write it into a git directory or outside of the working tree",
        ),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Fault {
    Unreadable,
    Name(Vec<u8>),
}

fn check(bytes: &[u8], hash_bytes: usize) -> Result<(), Fault> {
    let word = |at: usize| word_at(bytes, at).ok_or(Fault::Unreadable);
    if bytes.get(..4) != Some(b"DIRC") {
        return Err(Fault::Unreadable);
    }
    let (version, count) = (word(4)?, word(8)?);
    let end = bytes.len().checked_sub(hash_bytes);
    let body = end
        .and_then(|end| bytes.get(..end))
        .ok_or(Fault::Unreadable)?;
    if !(2..=4).contains(&version) {
        return Err(Fault::Unreadable);
    }
    let mut at = HEADER_BYTES;
    let mut name = Vec::new();
    let mut starts = Vec::new();
    for _ in 0..count {
        starts.push(at);
        at = read_entry(body, at, version, hash_bytes, &mut name).ok_or(Fault::Unreadable)?;
        if !is_harmless(&name) {
            return Err(Fault::Name(name));
        }
    }
    match has_own_offsets(body, at, &starts, hash_bytes) {
        true => Ok(()),
        false => Err(Fault::Unreadable),
    }
}

/// Reads the entry at a place into `name`, which holds the name before it. Returns where the next one begins.
fn read_entry(
    body: &[u8],
    start: usize,
    version: usize,
    hash_bytes: usize,
    name: &mut Vec<u8>,
) -> Option<usize> {
    let flags_at = start + STAT_BYTES + hash_bytes;
    let flags = u16::from_be_bytes(body.get(flags_at..flags_at + 2)?.try_into().ok()?);
    let is_extended = flags & EXTENDED != 0;
    if is_extended && version < 3 {
        return None;
    }
    let mut at = flags_at + if is_extended { 4 } else { 2 };
    if version == 4 {
        // Of the name before, so many bytes are not part of this one.
        let dropped = read_varint(body, &mut at)?;
        name.truncate(name.len().checked_sub(dropped)?);
    } else {
        name.clear();
    }
    let rest = body.get(at..)?;
    let length = rest.iter().position(|byte| *byte == 0)?;
    name.extend_from_slice(&rest[..length]);
    let told = usize::from(flags) & NAME_MASK;
    if told < NAME_MASK && told != name.len() {
        return None;
    }
    let end = at + length;
    Some(match version {
        4 => end + 1,
        _ => start + ((end - start + 8) & !7),
    })
}

/// Git's own form of numbers of any size.
fn read_varint(body: &[u8], at: &mut usize) -> Option<usize> {
    let mut next = || {
        let byte = *body.get(*at)?;
        *at += 1;
        Some(byte)
    };
    let mut byte = next()?;
    let mut value = usize::from(byte & 0x7f);
    while byte & 0x80 != 0 {
        byte = next()?;
        value = value.checked_add(1)?.checked_mul(128)? + usize::from(byte & 0x7f);
    }
    Some(value)
}

/// Whether what tells threads where entries and extensions begin says what was read here.
fn has_own_offsets(body: &[u8], end: usize, starts: &[usize], hash_bytes: usize) -> bool {
    let told_end = body
        .len()
        .checked_sub(8 + 4 + hash_bytes)
        .filter(|at| body.get(*at..*at + 4) == Some(END_OF_ENTRIES));
    if told_end.is_some_and(|at| word_at(body, at + 8) != Some(end)) {
        return false;
    }
    let mut at = end;
    while at < body.len() {
        let (Some(signature), Some(length)) = (body.get(at..at + 4), word_at(body, at + 4)) else {
            return false;
        };
        let Some(data) = body.get(at + 8..at + 8 + length) else {
            return false;
        };
        if signature == ENTRY_OFFSETS && !are_own_offsets(data, starts) {
            return false;
        }
        at += 8 + length;
    }
    true
}

fn are_own_offsets(data: &[u8], starts: &[usize]) -> bool {
    let mut entry = 0;
    let blocks = data.get(4..).unwrap_or_default().chunks(8);
    for block in blocks {
        let (Some(offset), Some(count)) = (word_at(block, 0), word_at(block, 4)) else {
            return false;
        };
        if starts.get(entry) != Some(&offset) {
            return false;
        }
        entry += count;
    }
    entry == starts.len()
}

fn word_at(bytes: &[u8], at: usize) -> Option<usize> {
    let word = bytes.get(at..at.checked_add(4)?)?;
    usize::try_from(u32::from_be_bytes(word.try_into().ok()?)).ok()
}

/// Whether a name leads to a file of the working tree, in the same way as git judges one that is added. The part of an index
/// that is split off names an entry that is also in the other part by nothing; a folder of a sparse index ends with a slash.
fn is_harmless(name: &[u8]) -> bool {
    let name = name.strip_suffix(b"/").unwrap_or(name);
    name.is_empty() || name.split(|byte| *byte == b'/').all(is_harmless_part)
}

fn is_harmless_part(part: &[u8]) -> bool {
    let is_dots = matches!(part, b"" | b"." | b"..");
    // Some file systems take these for `.git`.
    let bare = part.split(|byte| *byte == b':').next().unwrap_or(part);
    let end = bare.iter().rposition(|byte| !b" .".contains(byte));
    let bare = &bare[..end.map_or(0, |end| end + 1)];
    !is_dots && !bare.eq_ignore_ascii_case(b".git") && !bare.eq_ignore_ascii_case(b"git~1")
}

#[cfg(test)]
mod tests {
    use super::super::test_support::{git, vet_bytes};
    use super::*;
    use std::path::Path;

    fn run(dir: &Path, arguments: &[&str]) {
        let ran = git(dir).args(arguments).output().unwrap();
        assert!(
            ran.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&ran.stderr)
        );
    }

    fn index(dir: &Path) -> Vec<u8> {
        std::fs::read(dir.join(".git/index")).unwrap()
    }

    /// An index of one entry, in the second version.
    fn with_name(name: &[u8]) -> Vec<u8> {
        let mut bytes = b"DIRC\0\0\0\x02\0\0\0\x01".to_vec();
        bytes.extend([0; STAT_BYTES + 20]);
        bytes.extend((name.len().min(NAME_MASK) as u16).to_be_bytes());
        bytes.extend(name);
        bytes.resize(HEADER_BYTES + ((bytes.len() - HEADER_BYTES + 8) & !7), 0);
        bytes.extend([7; 20]);
        bytes
    }

    #[test]
    fn indexes_that_git_writes_are_taken() {
        let root = tempfile::tempdir().unwrap();
        for (format, hash_bytes) in [("sha1", 20), ("sha256", 32)] {
            let dir = root.path().join(format);
            std::fs::create_dir_all(dir.join("a/b")).unwrap();
            run(&dir, &["init", "-q", "--object-format", format]);
            for name in ["a/b/c", "a/b/d", ".gitignore", "x.git", "ä", "..x"] {
                std::fs::write(dir.join(name), name).unwrap();
            }
            std::fs::write(dir.join("n".repeat(200)), "").unwrap();
            run(&dir, &["add", "."]);
            let changes: [&[&str]; 7] = [
                &["status"],
                &["update-index", "--index-version", "4"],
                &["update-index", "--skip-worktree", "a/b/c"],
                &["update-index", "--untracked-cache"],
                &["-c", "index.threads=2", "add", "-A"],
                &["update-index", "--split-index"],
                &[
                    "update-index",
                    "--add",
                    "--cacheinfo",
                    "100644,e69de29bb2d1d6434b8b29ae775ad8c2e48c5391,z",
                ],
            ];
            for change in changes {
                let is_sha1 = change.iter().any(|word| word.contains("e69de29"));
                if is_sha1 && format != "sha1" {
                    continue;
                }
                run(&dir, change);
                assert_eq!(
                    check(&index(&dir), hash_bytes),
                    Ok(()),
                    "{format} {change:?}"
                );
                assert!(check(&index(&dir), 52 - hash_bytes).is_err(), "{format}");
            }
            let shared = std::fs::read_dir(dir.join(".git")).unwrap().flatten();
            let shared = shared.map(|entry| entry.path()).find(|path| {
                path.file_name()
                    .is_some_and(|name| name.to_string_lossy().starts_with("sharedindex"))
            });
            let shared = std::fs::read(shared.unwrap()).unwrap();
            assert_eq!(check(&shared, hash_bytes), Ok(()), "{format}");
        }
    }

    #[test]
    fn many_entries_that_threads_read_are_taken() {
        let root = tempfile::tempdir().unwrap();
        run(root.path(), &["init", "-q"]);
        for n in 0..300 {
            std::fs::write(root.path().join(format!("f{n}")), "").unwrap();
        }
        run(root.path(), &["-c", "index.threads=3", "add", "."]);
        assert_eq!(check(&index(root.path()), 20), Ok(()));
        // Written for three threads by a git that takes 300 entries for many.
        let mut bytes = index(root.path());
        bytes.truncate(bytes.len() - 20);
        let table: Vec<u8> = [1_u32, 12, 300]
            .iter()
            .flat_map(|word| word.to_be_bytes())
            .collect();
        for (offset, is_taken) in [(12_u32, true), (20, false)] {
            let mut table = table.clone();
            table[4..8].copy_from_slice(&offset.to_be_bytes());
            let extended = [&bytes, &b"IEOT\0\0\0\x0c"[..], &table, &[0; 20]].concat();
            assert_eq!(check(&extended, 20).is_ok(), is_taken, "{offset}");
        }
    }

    #[test]
    fn names_that_leave_the_working_tree_are_refused() {
        for name in [
            ".git/hooks/post-checkout",
            ".GIT/config",
            "sub/.git/config",
            ".git",
            ".git /config",
            ".git../config",
            ".git::$INDEX_ALLOCATION/config",
            "git~1/config",
            "../x",
            "a/../../x",
            "/etc/x",
            "a//b",
            "./x",
            "a/..",
        ] {
            assert_eq!(
                check(&with_name(name.as_bytes()), 20),
                Err(Fault::Name(name.as_bytes().to_vec())),
                "{name}"
            );
        }
        for name in [
            "a",
            "a/b",
            ".gitignore",
            ".github/x",
            "..a",
            "a..",
            "d/",
            "x.git/y",
        ] {
            assert_eq!(check(&with_name(name.as_bytes()), 20), Ok(()), "{name}");
        }
        let long = [b"x/".repeat(3000).as_slice(), b"../y"].concat();
        assert!(matches!(check(&with_name(&long), 20), Err(Fault::Name(_))));
    }

    #[test]
    fn what_is_no_index_is_refused() {
        let good = with_name(b"a");
        for length in 0..good.len() - 8 {
            assert_eq!(
                check(&good[..length], 20),
                Err(Fault::Unreadable),
                "{length}"
            );
        }
        let mut other = good.clone();
        // A length that is not that of the name, a version that is not known.
        other[HEADER_BYTES + STAT_BYTES + 21] = 0;
        assert_eq!(check(&other, 20), Err(Fault::Unreadable));
        let mut other = good;
        other[7] = 5;
        assert_eq!(check(&other, 20), Err(Fault::Unreadable));
    }

    #[test]
    fn every_index_of_a_git_directory_is_judged() {
        let evil = with_name(b".git/config");
        for path in [
            "index",
            "Index",
            "sharedindex.0123",
            "worktrees/w/index",
            "modules/a/b/index",
            "modules/a/worktrees/w/index",
        ] {
            assert!(
                matches!(vet_bytes(path, &evil, None), Verdict::Refused(_)),
                "{path}"
            );
            assert_eq!(vet_bytes(path, &with_name(b"a"), None), Verdict::Harmless);
        }
        let branch = b"0123456789012345678901234567890123456789\n";
        for path in ["refs/heads/index", "modules/a/refs/heads/index"] {
            assert_eq!(vet_bytes(path, branch, None), Verdict::Harmless, "{path}");
        }
    }
}
