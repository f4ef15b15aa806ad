//! Process numbers that mean nothing in a session: the user's own processes, and those of earlier sessions.

use std::path::Path;

use super::Search;
use super::cause::{Cause, Refusal};
use super::host::{is_own_process, read_small};

/// Entries of a folder that are looked at for files of process numbers.
const MAX_ENTRIES: usize = 256;
/// How such files are called.
const PID_EXTENSION: &str = "pid";

impl Search<'_> {
    /// A process that there is not, or not any more: of the user, or of an earlier session.
    pub(super) fn missing_process(&self, line: &str) -> Option<Refusal> {
        if !self.facts.level.pidns {
            return None;
        }
        let numbers = numbers_in(line);
        let mut files = self.process_files();
        if let Some(refusal) = numbers.iter().find_map(|pid| self.of_user(*pid, &files)) {
            return Some(refusal);
        }
        files.retain(|(_, pid)| numbers.is_empty() || numbers.contains(pid));
        let (file, pid) = files
            .iter()
            .find(|(file, pid)| (self.is_from_before)(file) && !is_own_process(*pid))?;
        let shown = file.file_name().unwrap_or_default().to_string_lossy();
        Some(Refusal::new(
            Cause::StaleProcess,
            format!("{pid} (of {shown})"),
        ))
    }

    /// A process of the user that a command may not signal, where it can see it.
    pub(super) fn foreign_process(&self, line: &str) -> Option<Refusal> {
        let is_signal = self
            .words
            .iter()
            .any(|word| matches!(word.as_str(), "kill" | "pkill" | "killall"));
        if !is_signal || self.facts.level.landlock.is_none() {
            return None;
        }
        let files = self.process_files();
        numbers_in(line)
            .iter()
            .find_map(|pid| self.of_user(*pid, &files))
    }

    /// The number means a process of the user only if the command or a file that it reads says it: a process of the session may
    /// have had the same one.
    fn of_user(&self, pid: i32, files: &[(std::path::PathBuf, i32)]) -> Option<Refusal> {
        let text = pid.to_string();
        let is_meant = self.words.contains(&text) || files.iter().any(|(_, number)| *number == pid);
        (is_meant && is_own_process(pid)).then(|| Refusal::new(Cause::ForeignProcess, text))
    }

    /// Files with a process number that the command names, or that lie in a folder that it names.
    fn process_files(&self) -> Vec<(std::path::PathBuf, i32)> {
        let mut files = Vec::new();
        let mut add = |file: &Path| {
            let first = read_small(file).and_then(|bytes| {
                let text = String::from_utf8(bytes).ok()?;
                text.lines().next()?.trim().parse::<i32>().ok()
            });
            files.extend(first.map(|pid| (file.to_owned(), pid)));
        };
        for path in self.places_in_command().chain([self.ended.cwd.to_owned()]) {
            if !path.is_dir() {
                add(&path);
                continue;
            }
            let entries = std::fs::read_dir(&path).into_iter().flatten().flatten();
            for entry in entries.take(MAX_ENTRIES) {
                if Path::new(&entry.file_name())
                    .extension()
                    .is_some_and(|end| end == PID_EXTENSION)
                {
                    add(&entry.path());
                }
            }
        }
        files
    }
}

/// Numbers in a line that may be those of processes.
fn numbers_in(line: &str) -> Vec<i32> {
    let words = line.split(|c: char| !c.is_ascii_digit());
    let numbers = words
        .filter(|word| word.len() > 1)
        .filter_map(|word| word.parse().ok());
    numbers.filter(|number| *number > 1).collect()
}
