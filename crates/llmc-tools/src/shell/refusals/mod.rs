//! Why something failed that works in the user's own shell: what the boundary refused, in one line after the output.
//!
//! The kernel reports a refused path to nobody. What a command prints is searched for errors and for the paths, addresses and
//! process numbers beside them; a line is explained only if the rules in force refuse that very place *and* the user could
//! have done it in a plain shell. So a failure that is nobody's fault but the command's gets no explanation.
//!
//! - `errno`: the kernel's errors in all languages; `paths`: what a line names; `host`: what the user could do
//! - `places`: files, folders, sockets; `processes`: process numbers; `signs`: programs that say in words of their own what
//!   they were refused; `installs`: what succeeded and lies where the user's shell does not look
//! - `cause`: the explanations; `session`: in full once, then short
//! - [`git`]: commands of git that are refused before they start

mod cause;
mod errno;
pub(crate) mod git;
mod host;
mod installs;
mod paths;
mod places;
mod processes;
mod session;
mod signs;

use std::path::{Path, PathBuf};

use llmc_exec::{BoundaryFacts, ExitStatus, HiddenFact};

use self::cause::{Cause, Refusal};
use self::errno::{Errno, errnos_of};
use self::paths::PathBase;
pub(crate) use self::session::Explained;
use super::line::CommandWords;
use super::spool::Spool;
use crate::cx::Cx;

/// Bytes of the end of each output that are searched.
pub(crate) const SEARCHED_BYTES: usize = 32 << 10;
/// Lines that are searched, from the last one.
const MAX_SEARCHED_LINES: usize = 2000;
/// Different lines with an error that are looked at, from the last one.
const MAX_LINES: usize = 32;
/// How much of a command is searched for paths; what is longer holds a document.
const MAX_COMMAND_BYTES: usize = 16 << 10;
/// Lines before an error in which what it is about may be named.
const LINES_BEFORE: usize = 4;
/// A longer line is looked at up to here.
const MAX_LINE_BYTES: usize = 2048;

/// A command that is over, or goes on, and what of its output is searched.
struct Ended<'a> {
    /// The line as the caller wrote it.
    command: &'a str,
    cwd: &'a Path,
    status: Option<ExitStatus>,
    printed: &'a str,
}

impl Ended<'_> {
    fn has_failed(&self) -> bool {
        self.status.is_some_and(|status| !status.is_success())
    }
}

/// What is known while an output is searched.
struct Search<'a> {
    ended: &'a Ended<'a>,
    facts: BoundaryFacts<'a>,
    base: PathBase,
    /// The words of the command.
    words: Vec<String>,
    hidden: Vec<HiddenFact>,
    /// Whether a file is older than this server.
    is_from_before: &'a dyn Fn(&Path) -> bool,
}

/// The explanations that an answer to a command carries.
pub(crate) fn notes_of(
    cx: &Cx,
    words: &CommandWords,
    cwd: Option<&str>,
    status: Option<ExitStatus>,
    spool: &Spool,
) -> Vec<String> {
    notes(cx, &words.text, cwd, status, &spool.ends(SEARCHED_BYTES))
}

/// The explanations that a failed script gets, by what it printed and its error.
pub(crate) fn notes_of_script(cx: &Cx, code: &str, printed: &str, error: String) -> Vec<String> {
    let ends = [end_of(printed), error];
    notes(cx, code, None, Some(ExitStatus::Exited(1)), &ends)
}

/// As much of the end of a text as is searched.
pub(crate) fn end_of(text: &str) -> String {
    let mut start = text.len().saturating_sub(SEARCHED_BYTES);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    text[start..].to_owned()
}

/// The explanations for a command or a script. `ends` are the ends of its outputs.
pub(crate) fn notes(
    cx: &Cx,
    command: &str,
    cwd: Option<&str>,
    status: Option<ExitStatus>,
    ends: &[String; 2],
) -> Vec<String> {
    let Ok(runner) = cx.app().commands() else {
        return Vec::new();
    };
    let facts = runner.facts();
    let workspace = cx.app().root();
    let cwd = cwd.map_or_else(|| workspace.to_owned(), |cwd| workspace.join(cwd));
    let printed = searched(command, status, ends);
    let ended = Ended {
        command,
        cwd: &cwd,
        status,
        printed: &printed,
    };
    let explained = cx.app().explained();
    let is_from_before = |file: &Path| explained.is_from_before(file);
    let mut refusals = find(&ended, facts, &is_from_before);
    let caller = cx.caller();
    let layers = facts.layer_dirs(&caller.principal);
    let mut installed = explained.installs.look(&caller.principal, &layers);
    let home = facts.settings.home.as_deref();
    let command = clipped(command, MAX_COMMAND_BYTES);
    let base = PathBase::new(home, &cwd, command);
    let named = named_outside(&base, home, command, workspace);
    for changed in explained
        .installs
        .look_at_named(&caller.principal, &layers, &named)
    {
        if !installed.contains(&changed) {
            installed.push(changed);
        }
    }
    if !installed.is_empty() {
        let subject = installs::subject(&installed, |path| base.shown(path));
        refusals.push(Refusal::new(Cause::PrivateInstall, subject));
    }
    explained.notes(&caller.principal, &caller.session, &refusals)
}

/// The places that a command names outside the workspace.
fn named_outside(
    base: &PathBase,
    home: Option<&Path>,
    command: &str,
    workspace: &Path,
) -> Vec<PathBuf> {
    let words = paths::command_words(command, home);
    let paths = words.iter().filter(|word| word.contains('/'));
    let places = paths.flat_map(|word| base.places(word));
    let places = places.map(|place| host::real_path(&place));
    places
        .filter(|place| !place.starts_with(workspace))
        .collect()
}

/// What of the outputs is searched. A command that succeeded may print anything, such as an old log; its errors are in
/// stderr, or in stdout if that is where it sends them.
fn searched(command: &str, status: Option<ExitStatus>, ends: &[String; 2]) -> String {
    let has_failed = status.is_some_and(|status| !status.is_success());
    let is_merged = ["2>&1", "|&", "&>"]
        .iter()
        .any(|sign| command.contains(sign));
    match has_failed || is_merged {
        true => ends.join("\n"),
        false => ends[1].clone(),
    }
}

/// What the boundary refused a command, the first first.
fn find(
    ended: &Ended<'_>,
    facts: BoundaryFacts<'_>,
    is_from_before: &dyn Fn(&Path) -> bool,
) -> Vec<Refusal> {
    let errors = error_lines(ended.printed);
    let home = facts.settings.home.as_deref();
    let has_failed = ended.has_failed();
    let may_name_hidden = places::may_name_hidden(ended.command, &facts);
    if errors.is_empty() && !has_failed && ended.printed.is_empty() && !may_name_hidden {
        return Vec::from_iter(signs::silent(ended, &facts));
    }
    let search = Search {
        base: PathBase::new(home, ended.cwd, clipped(ended.command, MAX_COMMAND_BYTES)),
        words: paths::command_words(clipped(ended.command, MAX_COMMAND_BYTES), home),
        hidden: match errors.is_empty() && !may_name_hidden && !has_failed {
            true => Vec::new(),
            false => facts.hidden(),
        },
        ended,
        facts,
        is_from_before,
    };
    let mut found = Vec::new();
    for (errno, line, before) in errors {
        found.extend(search.explain(errno, line, &before));
    }
    found.extend(signs::find(&search));
    found.extend(places::named_hidden(&search));
    found.extend(signs::silent(ended, &facts));
    without_repeats(found)
}

/// Each refusal once: what was refused in many files of one place is one refusal.
fn without_repeats(found: Vec<Refusal>) -> Vec<Refusal> {
    let mut kept: Vec<Refusal> = Vec::new();
    for refusal in found {
        let is_known = kept.iter().any(|known| {
            let is_same_place = known.allow.is_some() && known.allow == refusal.allow;
            known.cause == refusal.cause && (known.subject == refusal.subject || is_same_place)
        });
        if !is_known {
            kept.push(refusal);
        }
    }
    kept
}

impl Search<'_> {
    /// What was refused in a line with an error, if the boundary did that.
    fn explain(&self, errno: Errno, line: &str, before: &[&str]) -> Option<Refusal> {
        // The command prints that line itself.
        let is_quoted = self.ended.command.contains(line.trim());
        if is_quoted || !errno.has_place() && self.prints(errno) {
            return None;
        }
        match errno {
            Errno::ReadOnly => self.read_only(line, before),
            Errno::Access => self
                .hidden_place(line)
                .or_else(|| self.host_socket(line, before))
                .or_else(|| self.refused_by_landlock(line)),
            Errno::NotPermitted => self
                .set_id_bits(line)
                .or_else(|| self.foreign_process(line))
                .or_else(|| signs::not_permitted(self, line)),
            Errno::Missing => self
                .hidden_place(line)
                .or_else(|| self.host_socket(line, before))
                .or_else(|| self.own_dir(line))
                .or_else(|| self.missing_folder(line)),
            Errno::Busy => self.mount_point(line),
            Errno::CrossDevice => self.cross_device(line),
            Errno::NoSpace => self
                .full_tmp(line)
                .or_else(|| signs::no_namespaces(self, line)),
            Errno::ConnectionRefused => self
                .host_socket(line, before)
                .or_else(|| signs::host_port(self, line)),
            Errno::NoProcess => self.missing_process(line),
            Errno::Again => signs::too_many_processes(self, line),
            Errno::TooManyFiles => signs::too_many_files(self),
            Errno::Unreachable => signs::no_network(self),
        }
    }

    /// Whether the command itself holds an error's text: it prints that, or looks for it.
    fn prints(&self, errno: Errno) -> bool {
        errnos_of(self.ended.command).contains(&errno)
    }

    fn has_failed(&self) -> bool {
        self.ended.has_failed()
    }

    fn has_succeeded(&self) -> bool {
        self.ended.status.is_some_and(ExitStatus::is_success)
    }

    /// The places that the words of the command stand for, for what an error does not name.
    fn places_in_command(&self) -> impl Iterator<Item = PathBuf> {
        let words = self
            .words
            .iter()
            .filter(|word| word.contains(['/', '~', '.']));
        words.flat_map(|word| self.base.places(word))
    }
}

/// The lines that name an error, with the error and the lines before it.
fn error_lines(printed: &str) -> Vec<(Errno, &str, Vec<&str>)> {
    let lines: Vec<&str> = printed
        .lines()
        .map(|line| clipped(line, MAX_LINE_BYTES))
        .collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate().rev().take(MAX_SEARCHED_LINES) {
        if found.iter().any(|(_, known, _)| known == line) {
            continue;
        }
        for errno in errnos_of(line) {
            let before = &lines[at.saturating_sub(LINES_BEFORE)..at];
            found.push((errno, *line, before.iter().rev().copied().collect()));
        }
        if found.len() >= MAX_LINES {
            break;
        }
    }
    found.reverse();
    found
}

/// The start of a text.
fn clipped(text: &str, bytes: usize) -> &str {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests;
