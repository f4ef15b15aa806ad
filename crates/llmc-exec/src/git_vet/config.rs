//! Judges a changed configuration setting by setting.
//!
//! What the host's configuration has already stays. What is new must be on the list of harmless settings, and what is gone
//! must be of a kind that may go; otherwise the host's line is put back where it was. Of what is not on the list, the order
//! stays as well, because git obeys the last of several values, and an included file where it is included.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};
use std::path::Path;

use super::addresses::PathBase;
use super::config_keys::{ConfigPlace, is_listed, vet_entry};
use super::config_text::{ConfigKey, ConfigLine, Entry, HeaderLine, LineContent, entries, parse};
use super::{
    Holder, JudgedFile, MAX_REJECTIONS, Rejection, Verdict, VetPlace, is_module, is_named,
};

/// Old versions of git take the rest of a longer line for a line of its own when they rename sections (CVE-2023-29007).
const MAX_NEW_LINE_BYTES: usize = 1000;
/// More settings are not put back one by one.
const MAX_RESTORED: usize = 100;

const WHOLE: &str = "the file";

pub(super) fn vet_config(
    file: &JudgedFile<'_>,
    new: &[u8],
    before: Option<&[u8]>,
    place: &VetPlace<'_>,
) -> Verdict {
    let before = before.unwrap_or_default();
    let new_lines = match parse(new) {
        Ok(lines) => lines,
        Err(reason) => return file.refused(WHOLE, reason),
    };
    let Ok(old_lines) = parse(before) else {
        return file.refused(
            WHOLE,
            "the present configuration is written in a form that is not judged",
        );
    };
    if has_new_long_line(&new_lines, &old_lines) {
        return file.refused(WHOLE, "a line is longer than 1,000 bytes");
    }
    let place = config_place(file, place);
    let judgement = Judgement::new(&new_lines, &old_lines, &place);
    let (content, mut rejected) = match judgement.filtered(file) {
        Some(filtered) => filtered,
        None => {
            return file.refused(
                WHOLE,
                "removes too many settings that are not on the list of harmless settings",
            );
        }
    };
    // What was produced is read again, so that an error in its production admits nothing.
    let produced = parse(&content).ok().filter(|lines| judgement.admits(lines));
    let Some(produced) = produced else {
        rejected.truncate(MAX_REJECTIONS);
        rejected.push(file.rejection(
            WHOLE,
            "changes the order of settings that are not on the list of harmless settings",
        ));
        return Verdict::Refused(rejected);
    };
    if rejected.is_empty() {
        return Verdict::Harmless;
    }
    rejected.truncate(MAX_REJECTIONS);
    match entries(&produced).eq(entries(&old_lines)) {
        true => Verdict::Refused(rejected),
        false => Verdict::Filtered { content, rejected },
    }
}

fn has_new_long_line(new: &[ConfigLine<'_>], old: &[ConfigLine<'_>]) -> bool {
    let is_long = |line: &&ConfigLine<'_>| line.raw.len() > MAX_NEW_LINE_BYTES;
    let known: HashSet<&[u8]> = old.iter().filter(is_long).map(|line| line.raw).collect();
    new.iter()
        .filter(is_long)
        .any(|line| !known.contains(line.raw))
}

fn config_place<'a>(file: &'a JudgedFile<'_>, place: &VetPlace<'a>) -> ConfigPlace<'a> {
    let is_dot_git = |dir: &Path| {
        let name = dir.file_name().map(std::os::unix::ffi::OsStrExt::as_bytes);
        name.is_some_and(|name| is_named(name, ".git"))
    };
    // In other directories than the repository's own, the working tree is not known from the path.
    let relative_to = match file.holder {
        Holder::Repository if is_dot_git(place.git_dir) => place.git_dir.parent(),
        Holder::Repository => Some(place.git_dir),
        Holder::Module | Holder::Worktree => None,
    };
    ConfigPlace {
        base: PathBase {
            relative_to,
            allowed: place.allowed,
        },
        holder: match file.holder {
            Holder::Repository if is_module(place.git_dir) => Holder::Module,
            holder => holder,
        },
        own_dir: &file.own_dir,
    }
}

/// One line of the text that is produced.
struct OutLine<'a> {
    raw: Cow<'a, [u8]>,
    /// Which of the old entries it holds or replaces.
    old: Option<usize>,
    is_header: bool,
}

/// Both configurations, and which entries of the old one are still in the new one.
struct Judgement<'a> {
    place: &'a ConfigPlace<'a>,
    new_lines: &'a [ConfigLine<'a>],
    old_lines: &'a [ConfigLine<'a>],
    old: Vec<(&'a Entry, &'a [u8])>,
    renames: HashMap<ConfigSection, Vec<u8>>,
}

/// A section's name and subsection.
type ConfigSection = (String, Vec<u8>);
/// A setting's name in its section, and its value.
type NamedValue = (String, Option<Vec<u8>>);

impl<'a> Judgement<'a> {
    fn new(
        new_lines: &'a [ConfigLine<'a>],
        old_lines: &'a [ConfigLine<'a>],
        place: &'a ConfigPlace<'a>,
    ) -> Judgement<'a> {
        let old = old_lines.iter().filter_map(|line| match &line.content {
            LineContent::Entry(entry) => Some((entry, line.raw)),
            LineContent::Blank | LineContent::Header => None,
        });
        Judgement {
            place,
            new_lines,
            old_lines,
            old: old.collect(),
            renames: renames(new_lines, old_lines, place),
        }
    }

    /// The new text without what is rejected, and with what must stay; `None` if that is too much.
    fn filtered(&self, file: &JudgedFile<'_>) -> Option<(Vec<u8>, Vec<Rejection>)> {
        let mut rejected = Vec::new();
        let matches = self.matches();
        let mut is_present = vec![false; self.old.len()];
        for at in matches.iter().flatten() {
            is_present[*at] = true;
        }
        // Entries of the old text that a new one with the same key may have replaced.
        let mut gone: HashMap<&ConfigKey, VecDeque<usize>> = HashMap::new();
        for (at, (entry, _)) in self.old.iter().enumerate() {
            if !is_present[at] {
                gone.entry(&entry.key).or_default().push_back(at);
            }
        }
        let mut out: Vec<OutLine<'a>> = Vec::new();
        let mut emptied = HashSet::new();
        for (line, old) in self.new_lines.iter().zip(matches) {
            let mut kept = OutLine {
                raw: Cow::Borrowed(line.raw),
                old,
                is_header: line.content == LineContent::Header,
            };
            if let (LineContent::Entry(entry), None) = (&line.content, old) {
                // The entry that this one replaces, so that its place among the old ones is known.
                kept.old = gone.get_mut(&entry.key).and_then(VecDeque::pop_front);
                if let Some(at) = kept.old {
                    is_present[at] = true;
                }
                if let Err(reason) = vet_entry(entry, self.place) {
                    rejected.push(file.rejection(entry.key.to_string(), reason));
                    let Some(at) = kept.old else {
                        emptied.insert(entry.header.0);
                        continue;
                    };
                    kept.raw = Cow::Borrowed(self.old[at].1);
                }
            }
            out.push(kept);
        }
        let missing: Vec<usize> = (0..self.old.len())
            .filter(|at| !is_present[*at] && !self.may_go(self.old[*at].0))
            .collect();
        if missing.len() > MAX_RESTORED {
            return None;
        }
        for at in missing {
            let key = self.old[at].0.key.to_string();
            rejected.push(file.rejection(
                key,
                "is not on the list of settings that commands may remove",
            ));
            self.restore(&mut out, at);
        }
        self.drop_emptied(&mut out, &emptied);
        Some((joined(&out), rejected))
    }

    /// For each line of the new text, the old entry that it holds unchanged.
    fn matches(&self) -> Vec<Option<usize>> {
        let mut places: HashMap<(ConfigKey, Option<Vec<u8>>), VecDeque<usize>> = HashMap::new();
        for (at, (entry, _)) in self.old.iter().enumerate() {
            let setting = (entry.key.clone(), entry.value.clone());
            places.entry(setting).or_default().push_back(at);
        }
        let find = |line: &ConfigLine<'_>| {
            let LineContent::Entry(entry) = &line.content else {
                return None;
            };
            let setting = (self.old_key(entry).into_owned(), entry.value.clone());
            places.get_mut(&setting)?.pop_front()
        };
        self.new_lines.iter().map(find).collect()
    }

    /// The key that an entry had before its remote or branch was renamed. Harmless ones need no such key.
    fn old_key<'b>(&self, entry: &'b Entry) -> Cow<'b, ConfigKey> {
        let key = &entry.key;
        let section = key.subsection.clone().map(|sub| (key.section.clone(), sub));
        match section.and_then(|section| self.renames.get(&section)) {
            Some(from) if vet_entry(entry, self.place).is_err() => Cow::Owned(ConfigKey {
                subsection: Some(from.clone()),
                ..key.clone()
            }),
            _ => Cow::Borrowed(key),
        }
    }

    /// Whether commands may remove an entry of the old configuration.
    fn may_go(&self, entry: &Entry) -> bool {
        let key = &entry.key;
        let is_named_thing = matches!(key.section.as_str(), "remote" | "branch" | "submodule");
        (is_named_thing && key.subsection.is_some()) || is_listed(key, self.place.holder)
    }

    /// Puts an old entry back, after the one that came before it.
    fn restore(&self, out: &mut Vec<OutLine<'a>>, at: usize) {
        let (entry, raw) = self.old[at];
        let line = OutLine {
            raw: Cow::Borrowed(raw),
            old: Some(at),
            is_header: false,
        };
        let previous = out
            .iter()
            .rposition(|line| line.old.is_some_and(|old| old < at));
        let same_section = |line: usize| {
            let old = out[line].old.map(|old| &self.old[old].0.key);
            old.is_some_and(|key| {
                key.section == entry.key.section && key.subsection == entry.key.subsection
            })
        };
        if let Some(previous) = previous.filter(|line| same_section(*line)) {
            out.insert(previous + 1, line);
            return;
        }
        let from = previous.map_or(0, |previous| previous + 1);
        let next_header = out[from..].iter().position(|line| line.is_header);
        let to = next_header.map_or(out.len(), |next| from + next);
        let HeaderLine(header) = entry.header;
        let header = OutLine {
            raw: Cow::Borrowed(self.old_lines[header].raw),
            old: None,
            is_header: true,
        };
        out.splice(to..to, [header, line]);
    }

    /// Removes new headers under which nothing is left.
    fn drop_emptied(&self, out: &mut Vec<OutLine<'a>>, emptied: &HashSet<usize>) {
        let is_header = |line: &&ConfigLine<'_>| line.content == LineContent::Header;
        let old: HashSet<&[u8]> = self
            .old_lines
            .iter()
            .filter(is_header)
            .map(|line| line.raw)
            .collect();
        let emptied: HashSet<&[u8]> = emptied
            .iter()
            .map(|line| self.new_lines[*line].raw)
            .collect();
        let mut next_is_header = true;
        let mut is_kept = vec![true; out.len()];
        for (line, is_kept) in out.iter().zip(&mut is_kept).rev() {
            let raw = line.raw.as_ref();
            let is_new = emptied.contains(raw) && !old.contains(raw);
            *is_kept = !(line.is_header && next_is_header && is_new);
            next_is_header = line.is_header;
        }
        let mut is_kept = is_kept.into_iter();
        out.retain(|_| is_kept.next().unwrap_or(true));
    }

    /// Whether a text holds, of what is not harmless, only old entries in their old order, and all of those that may not go.
    fn admits(&self, produced: &[ConfigLine<'_>]) -> bool {
        let mut rest = self.old.iter().map(|(entry, _)| *entry);
        for entry in entries(produced) {
            if vet_entry(entry, self.place).is_ok() {
                continue;
            }
            let key = self.old_key(entry);
            let is_same = |old: &Entry| old.key == *key && old.value == entry.value;
            loop {
                match rest.next() {
                    Some(old) if is_same(old) => break,
                    Some(old) if self.may_go(old) => {}
                    _ => return false,
                }
            }
        }
        rest.all(|old| self.may_go(old))
    }
}

fn joined(lines: &[OutLine<'_>]) -> Vec<u8> {
    let mut out: Vec<u8> = Vec::new();
    for line in lines {
        if out.last().is_some_and(|last| *last != b'\n') {
            out.push(b'\n');
        }
        out.extend_from_slice(&line.raw);
    }
    out
}

/// New names of remotes and branches, each with the old name that is gone and had the same settings that are not harmless.
fn renames(
    new: &[ConfigLine<'_>],
    old: &[ConfigLine<'_>],
    place: &ConfigPlace<'_>,
) -> HashMap<ConfigSection, Vec<u8>> {
    let (new, old) = (named_sections(new, place), named_sections(old, place));
    let mut gone: Vec<_> = old
        .iter()
        .filter(|(name, _)| !new.contains_key(*name))
        .collect();
    // So that the same texts always have the same verdict.
    gone.sort();
    let mut found = HashMap::new();
    let mut added: Vec<_> = new
        .iter()
        .filter(|(name, list)| !old.contains_key(*name) && !list.is_empty())
        .collect();
    added.sort();
    for (name, settings) in added {
        let same = gone
            .iter()
            .position(|((section, _), list)| *section == name.0 && *list == settings);
        if let Some(((_, from), _)) = same.map(|at| gone.swap_remove(at)) {
            found.insert(name.clone(), from.clone());
        }
    }
    found
}

/// The remotes and branches of a configuration, each with its settings that are not harmless.
fn named_sections(
    lines: &[ConfigLine<'_>],
    place: &ConfigPlace<'_>,
) -> HashMap<ConfigSection, Vec<NamedValue>> {
    let mut out: HashMap<_, Vec<_>> = HashMap::new();
    for entry in entries(lines) {
        let key = &entry.key;
        let Some(sub) = key
            .subsection
            .clone()
            .filter(|_| matches!(key.section.as_str(), "remote" | "branch"))
        else {
            continue;
        };
        let settings = out.entry((key.section.clone(), sub)).or_default();
        if vet_entry(entry, place).is_err() {
            settings.push((key.name.clone(), entry.value.clone()));
        }
    }
    out
}

/// A configuration of the host, for tests.
#[cfg(test)]
const HOST: &str = "[core]\n\tbare = false\n\thooksPath = /user/hooks\n[remote \"origin\"]\n\turl = https://h/a\n\
    \tproxy = p\n[alias]\n\tst = status\n\tlg = log # mine\n[branch \"main\"]\n\tremote = origin\n";

#[cfg(test)]
mod random_tests;

#[cfg(test)]
mod tests {
    use super::super::test_support::vet;
    use super::*;

    /// The verdict in one line: the text that is taken, and the items that are not.
    fn outcome(new: &str, before: &str) -> (String, String) {
        let items = |list: &[Rejection]| {
            list.iter()
                .map(|one| one.item.as_str())
                .collect::<Vec<_>>()
                .join(" ")
        };
        match vet("config", new, Some(before)) {
            Verdict::Harmless => (new.to_owned(), "harmless".to_owned()),
            Verdict::Filtered { content, rejected } => {
                (String::from_utf8(content).unwrap(), items(&rejected))
            }
            Verdict::Refused(rejected) => {
                (before.to_owned(), format!("refused: {}", items(&rejected)))
            }
        }
    }

    #[test]
    fn settings_are_judged_one_by_one() {
        for (from, to, wanted_from, wanted_to, items) in [
            // Harmless changes.
            (
                "bare = false",
                "bare = true",
                "bare = false",
                "bare = true",
                "harmless",
            ),
            (
                "[alias]",
                "# note\n[alias]",
                "[alias]",
                "# note\n[alias]",
                "harmless",
            ),
            (
                "\turl = https://h/a\n\tproxy = p\n",
                "",
                "\turl = https://h/a\n\tproxy = p\n",
                "",
                "harmless",
            ),
            (
                "[branch \"main\"]\n\tremote = origin\n",
                "",
                "[branch \"main\"]\n\tremote = origin\n",
                "",
                "harmless",
            ),
            (
                "remote \"origin\"",
                "remote \"up\"",
                "remote \"origin\"",
                "remote \"up\"",
                "harmless",
            ),
            // Harmful ones alone.
            (
                "hooksPath = /user/hooks",
                "hooksPath = /evil",
                "",
                "",
                "refused: core.hookspath",
            ),
            (
                "\thooksPath = /user/hooks\n",
                "",
                "",
                "",
                "refused: core.hookspath",
            ),
            (
                "[alias]\n\tst = status\n\tlg = log # mine\n",
                "",
                "",
                "",
                "refused: alias.st alias.lg",
            ),
            (
                "\turl = https://h/a",
                "\turl = ext::evil",
                "",
                "",
                "refused: remote.origin.url",
            ),
            (
                "\tst = status\n\tlg = log # mine\n",
                "\tlg = log\n\tst = status\n",
                "",
                "",
                "refused: the file",
            ),
            (
                "[core]",
                "[alias] x = y\n[core]",
                "",
                "",
                "refused: the file",
            ),
            // A copy is not a rename.
            (
                "[alias]",
                "[remote \"up\"]\n\tproxy = p\n[alias]",
                "",
                "",
                "refused: remote.up.proxy",
            ),
            // Both.
            (
                "bare = false",
                "bare = true\n\tpager = evil",
                "bare = false",
                "bare = true",
                "core.pager",
            ),
            (
                "bare = false\n\thooksPath = /user/hooks",
                "bare = true",
                "bare = false",
                "bare = true",
                "core.hookspath",
            ),
            (
                "bare = false\n\thooksPath = /user/hooks",
                "hooksPath = /evil\n\tbare = true",
                "bare = false\n\thooksPath = /user/hooks",
                "hooksPath = /user/hooks\n\tbare = true",
                "core.hookspath",
            ),
            (
                "https://h/a\n\tproxy = p",
                "https://h/b\n\tproxy = evil",
                "h/a",
                "h/b",
                "remote.origin.proxy",
            ),
            (
                "[alias]",
                "[x]\n\ty = z\n[user]\n\tname = n\n[alias]",
                "[alias]",
                "[user]\n\tname = n\n[alias]",
                "x.y",
            ),
        ] {
            let new = HOST.replacen(from, to, 1);
            assert_ne!(new, HOST, "{from}");
            let wanted = HOST.replacen(wanted_from, wanted_to, 1);
            assert_eq!(
                outcome(&new, HOST),
                (wanted, items.to_owned()),
                "{from} -> {to}"
            );
        }
    }

    #[test]
    fn a_removed_section_returns_to_its_place() {
        let new =
            HOST.replace("[alias]\n\tst = status\n\tlg = log # mine\n", "") + "[user]\n\tname = n";
        let wanted = format!("{HOST}[user]\n\tname = n");
        assert_eq!(
            outcome(&new, HOST),
            (wanted, "alias.st alias.lg".to_owned())
        );
        // At the beginning, and where the last line has no end.
        let (before, new) = (
            "[alias]\n\ta = b\n[core]\n\tbare = true",
            "[core]\n\tbare = false",
        );
        let wanted = "[alias]\n\ta = b\n[core]\n\tbare = false".to_owned();
        assert_eq!(outcome(new, before), (wanted, "alias.a".to_owned()));
        let (before, new) = (
            "[core]\n\tbare = true\n[alias]\n\ta = b",
            "[core]\n\tbare = false",
        );
        let wanted = "[core]\n\tbare = false\n[alias]\n\ta = b".to_owned();
        assert_eq!(outcome(new, before), (wanted, "alias.a".to_owned()));
    }

    #[test]
    fn a_setting_counts_as_often_as_it_was_there() {
        let before = "[credential]\n\thelper = a\n";
        let new = "[credential]\n\thelper = a\n\thelper = a\n";
        assert_eq!(outcome(new, before).1, "refused: credential.helper");
    }

    #[test]
    fn unreadable_and_long_texts_stay_as_they_are() {
        let odd = "[alias] a = b\n";
        assert_eq!(vet("config", odd, Some(odd)), Verdict::Harmless);
        let changed = format!("{odd}[user]\n\tname = x\n");
        assert_eq!(outcome(&changed, odd).1, "refused: the file");
        assert_eq!(outcome("[user]\n\tname = x\n", odd).1, "refused: the file");
        let long = format!("# {}\n", "x".repeat(MAX_NEW_LINE_BYTES));
        assert_eq!(outcome(&long, "").1, "refused: the file");
        assert_eq!(
            outcome(&format!("{long}[user]\n\tname = x\n"), &long).1,
            "harmless"
        );
    }
}
