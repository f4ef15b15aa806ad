//! `grep PATTERN` in a shell without anything to read: the folder is meant.

use std::ffi::OsStr;

/// Options of grep that take the next word as their value, if it is not glued to them.
const VALUE_LETTERS: &str = "efmABCDd";
const VALUE_NAMES: &[&str] = &[
    "--regexp",
    "--file",
    "--max-count",
    "--after-context",
    "--before-context",
    "--context",
    "--devices",
    "--directories",
    "--label",
    "--include",
    "--exclude",
    "--exclude-dir",
    "--exclude-from",
    "--binary-files",
];

/// The command, or with `-r` a grep that names no path while its standard input has nothing to say: alone it would wait for
/// a terminal, or find nothing in an empty input.
pub(super) fn with_folder(argv: &[String], stdin_has_input: bool) -> Vec<String> {
    let mut argv = argv.to_vec();
    if !stdin_has_input && is_grep(&argv) && names_no_path(&argv[1..]) {
        let options = ["-r".to_owned(), "--exclude-dir=.git".to_owned()];
        argv.splice(1..1, options);
    }
    argv
}

/// Whether standard input is a pipe, a file or a socket, and not a terminal or `/dev/null`.
pub(super) fn stdin_has_input() -> bool {
    use rustix::fs::{FileType, fstat};
    fstat(std::io::stdin()).is_ok_and(|facts| {
        !matches!(
            FileType::from_raw_mode(facts.st_mode),
            FileType::CharacterDevice
        )
    })
}

fn is_grep(argv: &[String]) -> bool {
    let name = argv.first().map(std::path::Path::new);
    let name = name
        .and_then(std::path::Path::file_name)
        .and_then(OsStr::to_str);
    name.is_some_and(|name| ["grep", "egrep", "fgrep"].contains(&name))
}

/// Whether these words are options and at most the pattern, and do not search folders already.
fn names_no_path(words: &[String]) -> bool {
    let (mut operands, mut has_pattern, mut only_operands) = (0, false, false);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if only_operands || word == "-" || !word.starts_with('-') {
            operands += 1;
        } else if word == "--" {
            only_operands = true;
        } else if let Some(long) = word.strip_prefix("--") {
            let name = long.split('=').next().unwrap_or(long);
            if [
                "recursive",
                "dereference-recursive",
                "directories",
                "help",
                "version",
            ]
            .contains(&name)
            {
                return false;
            }
            has_pattern |= ["regexp", "file"].contains(&name);
            if VALUE_NAMES.contains(&word.as_str()) {
                words.next();
            }
        } else {
            for (at, letter) in word.char_indices().skip(1) {
                if "rRdV".contains(letter) {
                    return false;
                }
                has_pattern |= "ef".contains(letter);
                if VALUE_LETTERS.contains(letter) {
                    if at + 1 == word.len() {
                        words.next();
                    }
                    break;
                }
            }
        }
    }
    operands == usize::from(!has_pattern)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_grep_with_nothing_to_read_searches_the_folder() {
        for line in [
            "grep x",
            "grep -in x",
            "grep -e x",
            "grep -A 3 x",
            "grep -A3 x",
            "/usr/bin/egrep --max-count 2 x",
            "grep --include=*.rs x",
            "grep -- -x",
        ] {
            let argv: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let searched = with_folder(&argv, false);
            assert_eq!(searched[1], "-r", "{line}");
            assert_eq!(searched[3..], argv[1..], "{line}");
            assert_eq!(with_folder(&argv, true), argv, "{line} reads its input");
        }
        for line in [
            "grep",
            "grep x a.txt",
            "grep x -",
            "grep -r x",
            "grep -rn x",
            "grep -e x a.txt",
            "grep -f patterns a.txt",
            "grep --version",
            "rg x",
            "cat",
        ] {
            let argv: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(with_folder(&argv, false), argv, "{line}");
        }
    }
}
