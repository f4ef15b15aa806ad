//! Which further files a repository's configuration includes: what they say, git obeys like the configuration itself.
//!
//! Read for protection only: what is left open, such as conditions, leads to one file too many.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Files of one repository that are followed; git itself stops at ten levels.
const MAX_CONFIG_FILES: usize = 64;
const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// The files that the configuration of a git directory includes, directly or through others, existing or not. Absolute, as
/// they are written; conditions are taken to hold.
pub fn included_git_configs(git_dir: &Path) -> Vec<PathBuf> {
    let mut files = ["config", "config.worktree"]
        .map(|name| git_dir.join(name))
        .to_vec();
    let own = files.len();
    let mut next = 0;
    while let Some(file) = files.get(next).cloned().filter(|_| next < MAX_CONFIG_FILES) {
        next += 1;
        let dir = file.parent().unwrap_or(git_dir);
        for path in included_paths(&text_of(&file)) {
            let path = match path.strip_prefix(b"~/") {
                Some(rest) => match std::env::var_os("HOME") {
                    Some(home) => Path::new(&home).join(OsStr::from_bytes(rest)),
                    None => continue,
                },
                None => dir.join(OsStr::from_bytes(&path)),
            };
            let path = without_dots(&path);
            if !files.contains(&path) {
                files.push(path);
            }
        }
    }
    files.split_off(own)
}

/// The values of `path` in the sections `include` and `includeIf`.
fn included_paths(text: &[u8]) -> Vec<Vec<u8>> {
    let text = joined_lines(text);
    let mut found = Vec::new();
    let mut is_include = false;
    for line in text.split(|byte| *byte == b'\n') {
        let mut line = line.trim_ascii();
        if let Some(header) = line.strip_prefix(b"[") {
            let name = header.trim_ascii_start();
            is_include = name
                .get(..b"include".len())
                .is_some_and(|start| start.eq_ignore_ascii_case(b"include"));
            // A first setting may follow on the same line.
            let end = header_end(header).unwrap_or(header.len());
            line = header[end..].trim_ascii();
        }
        let Some(at) = line
            .iter()
            .position(|byte| *byte == b'=')
            .filter(|_| is_include)
        else {
            continue;
        };
        if line[..at].trim_ascii().eq_ignore_ascii_case(b"path") {
            found.push(value(line[at + 1..].trim_ascii()));
        }
    }
    found
}

/// The text with lines that a backslash continues as one.
fn joined_lines(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        match line.strip_suffix(b"\\\n") {
            Some(begun) => out.extend_from_slice(begun),
            None => out.extend_from_slice(line),
        }
    }
    out
}

/// Where what follows the header of a section begins, after the bracket that closes it outside quotes.
fn header_end(header: &[u8]) -> Option<usize> {
    let mut is_quoted = false;
    let end = header.iter().position(|byte| {
        is_quoted ^= *byte == b'"';
        *byte == b']' && !is_quoted
    });
    end.map(|end| end + 1)
}

/// A value without its quotes and what follows it as a comment.
fn value(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut is_quoted = false;
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => is_quoted = !is_quoted,
            b'\\' => out.extend(bytes.next()),
            b'#' | b';' if !is_quoted => break,
            byte => out.push(*byte),
        }
    }
    out.trim_ascii_end().to_vec()
}

fn text_of(file: &Path) -> Vec<u8> {
    let flags = rustix::fs::OFlags::NONBLOCK.bits();
    let opened = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(i32::try_from(flags).unwrap_or(0))
        .open(file);
    let mut text = Vec::new();
    // What cannot be read includes nothing that git could read.
    let _ = opened.and_then(|file| match file.metadata()?.is_file() {
        true => file.take(MAX_CONFIG_BYTES).read_to_end(&mut text),
        false => Ok(0),
    });
    text
}

/// Resolves `.` and `..` in the text alone.
pub(crate) fn without_dots(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => {
                out.pop();
            }
            std::path::Component::CurDir => {}
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn included_files_are_found_however_they_are_written() {
        let dir = tempfile::tempdir().unwrap();
        let git = dir.path().join(".git");
        std::fs::create_dir(&git).unwrap();
        let config = "[core]\n\tpath = no\n[include]\n\tpath = ../.gitconfig # shared\n\tPATH=\"../a b\"\n\
            [IncludeIf \"gitdir:x]y\"] path = deep/../../third\n[user]\n\tname = path = x\n[include] path = x]y\n[include] # none\n\tpath = /ab\\\ns\n";
        std::fs::write(git.join("config"), config).unwrap();
        std::fs::write(dir.path().join(".gitconfig"), "[include]\npath = fourth\n").unwrap();
        std::fs::write(dir.path().join("fourth"), "[include]\npath = .gitconfig\n").unwrap();
        let mut found = included_git_configs(&git);
        found.sort();
        let mut wanted = [".gitconfig", "a b", "third", "fourth"]
            .map(|name| dir.path().join(name))
            .to_vec();
        wanted.extend(["/abs".into(), git.join("x]y")]);
        wanted.sort();
        assert_eq!(found, wanted);
        assert!(included_git_configs(dir.path()).is_empty());
    }
}
