//! Paths that a line of output or a command names.
//!
//! Programs quote paths, put them between colons or leave them bare; what looks like a path counts only if the rules in
//! force then say something about that place.

use std::path::{Path, PathBuf};

use super::errno::errnos_of;
use super::host::real_path;

/// Candidates of one line that are looked at.
const MAX_CANDIDATES: usize = 32;
/// Words of a command that are looked at.
const MAX_WORDS: usize = 512;
/// Working directories that a command changes to.
const MAX_DIRS: usize = 8;
/// A longer name is no path.
const MAX_PATH_BYTES: usize = 4096;

/// Marks that open a quotation, each with the one that closes it.
const QUOTES: [(char, char); 7] = [
    ('\'', '\''),
    ('"', '"'),
    ('`', '`'),
    ('`', '\''),
    ('\u{2018}', '\u{2019}'),
    ('\u{201c}', '\u{201d}'),
    ('\u{ab}', '\u{bb}'),
];
/// What stands around a bare path without being part of it.
const AROUND: &[char] = &[
    '\'', '"', '`', '(', ')', '[', ']', '{', '}', '<', '>', ',', ';', ':', '\u{2018}', '\u{2019}',
    '\u{201c}', '\u{201d}', '\u{ab}', '\u{bb}',
];
/// What stands before a path in one word with it.
const PREFIXES: [&str; 4] = ["unix://", "file://", "unix:", "path="];
/// What separates the words of a command, and of code in it.
const BETWEEN_WORDS: &[char] = &[
    '\'', '"', '`', '(', ')', '[', ']', '{', '}', '<', '>', ',', ';', '|', '&', '=', ' ', '\t',
    '\n',
];

/// Where paths of a command are looked for.
#[derive(Debug)]
pub(super) struct PathBase {
    pub(super) home: Option<PathBuf>,
    /// Where the command starts, and the folders that it changes to.
    dirs: Vec<PathBuf>,
}

impl PathBase {
    pub(super) fn new(home: Option<&Path>, cwd: &Path, command: &str) -> PathBase {
        let mut base = PathBase {
            home: home.map(Path::to_owned),
            dirs: vec![cwd.to_owned()],
        };
        let words = command_words(command, home);
        for pair in words.windows(2) {
            let [verb, dir] = pair else { continue };
            if base.dirs.len() < MAX_DIRS && matches!(verb.as_str(), "cd" | "-C" | "pushd") {
                // The last of them is below the folder that the command is in by then.
                let place = base.places(dir).pop();
                base.dirs.extend(place.map(|place| real_path(&place)));
            }
        }
        base
    }

    /// The places that a name may stand for.
    pub(super) fn places(&self, name: &str) -> Vec<PathBuf> {
        if name.is_empty() || name.len() > MAX_PATH_BYTES || name.contains('\0') {
            return Vec::new();
        }
        let home = self.home.as_deref();
        match (name.strip_prefix('~'), home) {
            (Some(""), Some(home)) => return vec![home.to_owned()],
            (Some(rest), Some(home)) if rest.starts_with('/') => {
                return vec![home.join(rest.trim_start_matches('/'))];
            }
            _ => {}
        }
        let mut places: Vec<PathBuf> = Vec::new();
        for dir in &self.dirs {
            let place = dir.join(name);
            if !places.contains(&place) {
                places.push(place);
            }
        }
        places
    }

    /// A path as a user writes it.
    pub(super) fn shown(&self, path: &Path) -> String {
        let home = self.home.as_deref().filter(|home| home.parent().is_some());
        match home.and_then(|home| path.strip_prefix(home).ok()) {
            Some(inside) if inside.as_os_str().is_empty() => "~".to_owned(),
            Some(inside) => format!("~/{}", inside.display()),
            None => path.display().to_string(),
        }
    }

    /// A path as a word of a shell line.
    pub(super) fn shell_word(&self, path: &Path) -> String {
        let shown = self.shown(path);
        let is_plain = |c: char| c.is_alphanumeric() || "/._-+@~%:,".contains(c);
        match shown.chars().all(is_plain) {
            true => shown,
            false => format!("'{}'", path.display().to_string().replace('\'', r"'\''")),
        }
    }
}

/// What of a line of output may be a path, the likeliest first.
pub(super) fn candidates(line: &str) -> Vec<&str> {
    let mut found: Vec<&str> = Vec::new();
    // The text of an error is no name.
    let is_name = |part: &&str| part.contains('/') || errnos_of(part).is_empty();
    let parts = line.rsplit(": ").map(str::trim).filter(is_name);
    let words = line.split_ascii_whitespace().map(bare_word);
    let words = words.filter(|word| word.contains('/'));
    for candidate in quotations(line).into_iter().chain(parts).chain(words) {
        if found.len() == MAX_CANDIDATES {
            break;
        }
        if !candidate.is_empty() && !found.contains(&candidate) {
            found.push(candidate);
        }
    }
    found
}

/// A word without what stands around a path.
fn bare_word(word: &str) -> &str {
    let word = word.trim_matches(AROUND).trim_end_matches('.');
    let mut prefixes = PREFIXES.iter();
    prefixes
        .find_map(|prefix| word.split_once(prefix))
        .map_or(word, |(_, path)| path)
}

fn quotations(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (at, open) in line.char_indices() {
        let before = line[..at].chars().next_back();
        if before.is_some_and(char::is_alphanumeric) {
            continue;
        }
        let start = at + open.len_utf8();
        for (_, close) in QUOTES.iter().filter(|(mark, _)| *mark == open) {
            let ends = line[start..].match_indices(*close).map(|(end, _)| end);
            let mut ends = ends.filter(|end| {
                let after = line[start + end + close.len_utf8()..].chars().next();
                !after.is_some_and(char::is_alphanumeric)
            });
            if let Some(end) = ends.next() {
                found.push(&line[start..start + end]);
            }
        }
    }
    found
}

/// The words of a command and of the code in it, with the home directory in place of its variable.
pub(super) fn command_words(command: &str, home: Option<&Path>) -> Vec<String> {
    let text = match home.filter(|_| command.contains("HOME")) {
        Some(home) => {
            let home = home.display().to_string();
            command.replace("${HOME}", &home).replace("$HOME", &home)
        }
        None => command.to_owned(),
    };
    // Braces of a variable are gone by now.
    let words = text.split(BETWEEN_WORDS).filter(|word| !word.is_empty());
    words.take(MAX_WORDS).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_likeliest_path_comes_first() {
        for (line, wanted) in [
            ("bash: line 1: /home/u/my file: Read-only", "Read-only"),
            ("rm: cannot remove '/home/u/a b': Read-only", "/home/u/a b"),
            ("touch: cannot touch \u{2018}x\u{2019}: Read-only", "x"),
            ("OSError: [Errno 30] Read-only file system: '/x'", "/x"),
            ("error: failed to create `/x/y`", "/x/y"),
            ("EROFS: read-only file system, open '../s/new'", "../s/new"),
        ] {
            assert_eq!(candidates(line)[0], wanted, "{line}");
        }
    }

    #[test]
    fn a_path_is_found_wherever_it_stands() {
        for (line, wanted) in [
            (
                "bash: line 1: /home/u/my file: Read-only",
                "/home/u/my file",
            ),
            (
                "sed: couldn't open temporary file ../s/sedA: x",
                "../s/sedA",
            ),
            (
                "daemon at unix:///var/run/docker.sock. Is",
                "/var/run/docker.sock",
            ),
            ("java.io.FileNotFoundException: /x/y (Read-only)", "/x/y"),
            ("mkdir /x/go: read-only file system", "/x/go"),
            ("npm error path /x/.npmrc", "/x/.npmrc"),
        ] {
            assert!(candidates(line).contains(&wanted), "{line}");
        }
        let long = format!("{} x", "'a' ".repeat(5000));
        assert!(candidates(&long).len() <= MAX_CANDIDATES);
    }

    #[test]
    fn names_stand_for_places_of_each_folder_of_the_command() {
        let home = Path::new("/nowhere/u");
        let base = PathBase::new(
            Some(home),
            Path::new("/w"),
            "cd sub && cd $HOME/x; tar xf a -C ~",
        );
        let places = base.places("n");
        let wanted = ["/w/n", "/w/sub/n", "/nowhere/u/x/n", "/nowhere/u/n"];
        assert_eq!(places, wanted.map(PathBuf::from));
        assert_eq!(base.places("~/n"), [PathBuf::from("/nowhere/u/n")]);
        assert_eq!(base.shown(Path::new("/nowhere/u/n")), "~/n");
        assert_eq!(
            base.shell_word(Path::new("/nowhere/u/a b")),
            "'/nowhere/u/a b'"
        );
    }
}
