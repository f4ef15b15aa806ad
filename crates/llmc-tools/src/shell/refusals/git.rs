//! Git commands that cannot succeed here, refused before they start: half of what they do would be done.
//!
//! A convenience, not a boundary: a line that is not understood runs, and the kernel refuses what it must.

use std::path::{Component, Path, PathBuf};

use llmc_config::ExecProfile;
use llmc_exec::Protection;

use crate::cx::Cx;
use crate::error::{Error, ErrorKind, Result};
use crate::shell::line::{CommandWords, commands_of};

/// Options before git's own command that take a value.
const GLOBAL_OPTIONS: [&str; 5] = ["-C", "-c", "--git-dir", "--work-tree", "--namespace"];
/// Options of `worktree add` and `clone` that take a value.
const VALUE_OPTIONS: [&str; 17] = [
    "-b",
    "-B",
    "--reason",
    "-o",
    "--origin",
    "--branch",
    "-u",
    "--upload-pack",
    "--reference",
    "--depth",
    "--template",
    "-j",
    "--jobs",
    "--filter",
    "--separate-git-dir",
    "-c",
    "--config",
];
/// Options by which `git config` writes, and those by which it only reads.
const CONFIG_WRITES: [&str; 7] = [
    "--unset",
    "--unset-all",
    "--add",
    "--replace-all",
    "--rename-section",
    "--remove-section",
    "--edit",
];
const CONFIG_READS: [&str; 9] = [
    "--get",
    "--get-all",
    "--get-regexp",
    "--get-urlmatch",
    "--list",
    "-l",
    "--get-color",
    "--get-colorbool",
    "list",
];

/// Refuses a command that writes the user's own settings of git, or makes a working tree or clone where it may not write.
///
/// # Errors
/// [`ErrorKind::CommandDenied`] with what to do instead.
pub(crate) fn check(cx: &Cx, words: &CommandWords, cwd: &Path) -> Result<()> {
    let runner = cx.app().commands()?;
    let is_bound = cx.app().config().mcp.exec.profile == ExecProfile::Unrestricted
        && runner.level().protected != Protection::None;
    if !is_bound || !words.text.contains("git") {
        return Ok(());
    }
    let places = runner.writable_places();
    let places: Vec<&Path> = places.iter().map(PathBuf::as_path).collect();
    let mut cwd = Some(cwd.to_owned());
    for command in commands_of(words) {
        if command.first().is_some_and(|word| word == "cd") {
            cwd = cwd
                .zip(command.get(1))
                .and_then(|(cwd, dir)| place_of(&cwd, dir));
            continue;
        }
        if let Some(refused) = refusal(&command, cwd.as_deref(), &places) {
            return Err(refused);
        }
    }
    Ok(())
}

fn refusal(command: &[String], cwd: Option<&Path>, places: &[&Path]) -> Option<Error> {
    let is_assignment = |word: &&String| {
        word.split_once('=').is_some_and(|(name, _)| {
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        })
    };
    let mut words = command.iter().skip_while(is_assignment);
    let program = words.next()?;
    if program != "git" && !program.ends_with("/git") {
        return None;
    }
    let mut cwd = cwd.map(Path::to_owned);
    let verb = loop {
        let word = words.next()?;
        if GLOBAL_OPTIONS.contains(&word.as_str()) {
            let value = words.next()?;
            if word == "-C" {
                cwd = cwd.and_then(|cwd| place_of(&cwd, value));
            }
        } else if !word.starts_with('-') {
            break word.as_str();
        }
    };
    let rest: Vec<&str> = words.map(String::as_str).collect();
    let outside = |path: &str| {
        let place = match path.starts_with('/') {
            true => place_of(Path::new("/"), path),
            false => cwd.as_deref().and_then(|cwd| place_of(cwd, path)),
        };
        place.is_some_and(|place| {
            let is_in = |place: &Path| {
                place.starts_with("/tmp") || places.iter().any(|root| place.starts_with(root))
            };
            !is_in(&place) && !is_in(&without_links(&place))
        })
    };
    let arguments = arguments_of(&rest);
    match (verb, rest.first().copied()) {
        ("config", _) if is_users_setting(&rest) => Some(
            denied("git config --global and --system change the user's own settings, which commands cannot write").hint(
                "without --global it is set for this repository; else ask the user to run it in their own shell",
            ),
        ),
        ("worktree", Some("add")) if arguments.get(1).is_some_and(|path| outside(path)) => Some(
            denied("a working tree outside the workspace cannot be made by a command").hint(
                "make it inside, such as .worktrees/NAME, or ask the user to run it in their own shell",
            ),
        ),
        ("clone", _) if arguments.get(1).is_some_and(|path| outside(path)) => Some(
            denied("a clone outside the workspace cannot be made by a command").hint(
                "clone into the workspace or /tmp, or ask the user to run it in their own shell",
            ),
        ),
        ("maintenance", Some("start" | "register" | "stop" | "unregister")) => Some(
            denied("git maintenance would write the user's own settings and time tables").hint(
                "`git maintenance run` and `git gc` work here; else ask the user to run it in their own shell",
            ),
        ),
        _ => None,
    }
}

fn denied(message: &str) -> Error {
    let message = format!("refused by LLMC before git started: {message}");
    Error::new(ErrorKind::CommandDenied, message)
}

/// Whether `git config` is to write the user's or the machine's settings.
fn is_users_setting(rest: &[&str]) -> bool {
    let is_users = rest
        .iter()
        .any(|word| matches!(*word, "--global" | "--system"));
    let reads = rest.iter().any(|word| CONFIG_READS.contains(word));
    let writes = rest
        .iter()
        .any(|word| CONFIG_WRITES.contains(word) || *word == "-e");
    let names = rest.iter().filter(|word| !word.starts_with('-')).count();
    let is_verb = matches!(
        rest.iter().find(|word| !word.starts_with('-')),
        Some(&("set" | "unset" | "edit" | "rename-section" | "remove-section"))
    );
    is_users && !reads && (writes || is_verb || (names >= 2 && !rest.contains(&"get")))
}

/// The arguments that are no options.
fn arguments_of<'a>(rest: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = Vec::new();
    let mut words = rest.iter();
    while let Some(word) = words.next() {
        if VALUE_OPTIONS.contains(word) {
            words.next();
        } else if *word == "--" {
            arguments.extend(words.by_ref());
        } else if !word.starts_with('-') {
            arguments.push(*word);
        }
    }
    arguments
}

/// Where a path leads, by its text alone; nothing if the shell has to say.
fn place_of(cwd: &Path, path: &str) -> Option<PathBuf> {
    if path.contains(['$', '`', '*', '?', '~']) {
        return None;
    }
    let mut place = PathBuf::new();
    for part in cwd.join(path).components() {
        match part {
            Component::ParentDir => {
                place.pop();
            }
            Component::CurDir => {}
            part => place.push(part),
        }
    }
    Some(place)
}

/// A place by its real name, as far as it is there: a root may be named through a link.
fn without_links(place: &Path) -> PathBuf {
    let real = place.ancestors().find_map(|dir| {
        let real = std::fs::canonicalize(dir).ok()?;
        Some(real.join(place.strip_prefix(dir).ok()?))
    });
    real.unwrap_or_else(|| place.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_refused(line: &str) -> bool {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        refusal(&words, Some(Path::new("/w/repo")), &[Path::new("/w")]).is_some()
    }

    #[test]
    fn what_would_be_written_outside_is_refused() {
        for line in [
            "git config --global user.name x",
            "git config --system --unset a.b",
            "git config set --global user.name x",
            "GIT_CONFIG_SYSTEM=/x git config --system core.autocrlf input",
            "git worktree add ../../elsewhere",
            "git worktree add -b new /srv/tree HEAD",
            "git -C sub worktree add /srv/tree",
            "git clone --depth 1 https://example.org/a.git /srv/a",
            "/usr/bin/git clone . ../../a",
            "git maintenance start",
            "git -C sub maintenance register",
        ] {
            assert!(is_refused(line), "{line}");
        }
    }

    #[test]
    fn a_root_that_is_named_through_a_link_is_inside() {
        // Everything below /tmp is inside.
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let root = folder.path().join("root");
        std::fs::create_dir(&root).unwrap();
        std::os::unix::fs::symlink("root", folder.path().join("link")).unwrap();
        for (name, is_refused) in [("link/tree", false), ("other/tree", true)] {
            let place = folder.path().join(name);
            let words = ["git", "worktree", "add", place.to_str().unwrap()].map(str::to_owned);
            let refused = refusal(&words, Some(Path::new("/w")), &[&root]);
            assert_eq!(refused.is_some(), is_refused, "{name}");
        }
    }

    #[test]
    fn everything_else_runs() {
        for line in [
            "git config user.name x",
            "git config --global user.name",
            "git config --global --get user.name",
            "git config --global --list",
            "git config list --global",
            "git worktree add .worktrees/x -b x",
            "git worktree add ../other",
            "git worktree add /tmp/x",
            "git maintenance run --task=gc",
            "git worktree list",
            "git clone https://example.org/a.git",
            "git clone https://example.org/a.git $HOME/a",
            "git status",
            "echo git config --global a.b c",
            "git",
        ] {
            assert!(!is_refused(line), "{line}");
        }
    }
}
