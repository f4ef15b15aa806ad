//! The text of a diff as files, hunks and lines.
//!
//! The numbers in a hunk's header say how many lines belong to it, so that a removed line `-- note` is never mistaken
//! for the header of a file. A hunk that ends early, as in a text that was cut, ends where its lines do.

use std::borrow::Cow;

/// Lines kept in memory; those of longer diffs are counted only.
const MAX_KEPT_LINES: usize = 500_000;

/// A whole diff.
#[derive(Debug, Default)]
pub(super) struct Diff<'a> {
    pub(super) files: Vec<DiffFile<'a>>,
    /// Lines that belong to no file: messages, listings.
    pub(super) outside: u64,
    kept: usize,
}

#[derive(Debug, Default)]
pub(super) struct DiffFile<'a> {
    old: Cow<'a, str>,
    new: Cow<'a, str>,
    /// What happened besides: new, deleted, renamed, mode, binary.
    pub(super) notes: Vec<String>,
    pub(super) hunks: Vec<Hunk<'a>>,
    /// Whether `---` and `+++` have been seen.
    named: bool,
}

#[derive(Debug)]
pub(super) struct Hunk<'a> {
    /// What git prints after the second `@@`: the function around the hunk.
    pub(super) symbol: &'a str,
    pub(super) old_start: u64,
    pub(super) new_start: u64,
    pub(super) lines: Vec<DiffLine<'a>>,
    /// Whether it compares more than two versions.
    pub(super) combined: bool,
    /// Lines that were too many to keep.
    pub(super) dropped: usize,
    added: u64,
    removed: u64,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct DiffLine<'a> {
    pub(super) sign: Sign,
    /// With its sign.
    pub(super) raw: &'a str,
    /// Without.
    pub(super) text: &'a str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sign {
    Context,
    Added,
    Removed,
}

/// Whether the text has a diff in it that is worth reading as one.
pub(crate) fn looks_like_diff(text: &str) -> bool {
    let mut old = false;
    for line in text.lines().take(2000) {
        if line.starts_with("diff --git ") || line.starts_with("diff --cc ") {
            return true;
        }
        if old && line.starts_with("+++ ") {
            return true;
        }
        old = line.starts_with("--- ");
    }
    false
}

impl<'a> Diff<'a> {
    pub(super) fn parse(text: &'a str) -> Self {
        let mut diff = Self::default();
        let mut lines = text.split('\n').peekable();
        // What the open hunk's header still promises: old and new lines.
        let mut open: Option<(u64, u64)> = None;
        let mut columns = 1;
        while let Some(line) = lines.next() {
            if lines.peek().is_none() && line.is_empty() {
                break;
            }
            if let Some(left) = &mut open
                && diff.hunk_line(line, left, columns)
            {
                continue;
            }
            open = None;
            if let Some((hunk, left, parents)) = hunk_header(line) {
                columns = parents;
                if diff.files.is_empty() {
                    diff.files.push(DiffFile::default());
                }
                if let Some(file) = diff.files.last_mut() {
                    file.hunks.push(hunk);
                    open = Some(left);
                }
                continue;
            }
            let next = lines.peek().copied().unwrap_or_default();
            diff.header(line, next);
        }
        for file in &mut diff.files {
            file.settle();
        }
        diff
    }

    pub(super) fn hunks(&self) -> u64 {
        self.files.iter().map(|file| file.hunks.len() as u64).sum()
    }

    /// Takes the line into the open hunk, if it can belong to it.
    fn hunk_line(&mut self, line: &'a str, left: &mut (u64, u64), columns: usize) -> bool {
        let Some(hunk) = self.files.last_mut().and_then(|file| file.hunks.last_mut()) else {
            return false;
        };
        if line.starts_with("\\ ") {
            return true;
        }
        if columns == 1 && *left == (0, 0) {
            return false;
        }
        let marks = line.get(..columns.min(line.len())).unwrap_or_default();
        let content = line.trim_end_matches('\r');
        let sign = if columns > 1 {
            // A combined diff has one column per parent, and counts that are not worth following.
            if marks.len() < columns || marks.contains(|c| !matches!(c, ' ' | '+' | '-')) {
                return false;
            }
            match (marks.contains('+'), marks.contains('-')) {
                (true, _) => Sign::Added,
                (_, true) => Sign::Removed,
                _ => Sign::Context,
            }
        } else {
            match marks {
                "+" => Sign::Added,
                "-" => Sign::Removed,
                " " => Sign::Context,
                // Some tools strip the blank that stands for an unchanged empty line.
                _ if content.is_empty() => Sign::Context,
                _ => return false,
            }
        };
        match sign {
            Sign::Added => {
                hunk.added += 1;
                left.1 = left.1.saturating_sub(1);
            }
            Sign::Removed => {
                hunk.removed += 1;
                left.0 = left.0.saturating_sub(1);
            }
            Sign::Context => *left = (left.0.saturating_sub(1), left.1.saturating_sub(1)),
        }
        if self.kept == MAX_KEPT_LINES {
            hunk.dropped += 1;
            return true;
        }
        self.kept += 1;
        hunk.lines.push(DiffLine {
            sign,
            raw: line,
            text: &line[marks.len()..],
        });
        true
    }

    fn header(&mut self, line: &'a str, next: &str) {
        if let Some(rest) = line.strip_prefix("diff ") {
            let mut file = DiffFile::default();
            if let Some(names) = rest.strip_prefix("--git ") {
                (file.old, file.new) = git_names(names);
            } else if let Some(name) = rest
                .strip_prefix("--cc ")
                .or(rest.strip_prefix("--combined "))
            {
                file.old = Cow::Borrowed(name);
                file.new = Cow::Borrowed(name);
            }
            self.files.push(file);
            return;
        }
        if let Some(old) = line.strip_prefix("--- ")
            && next.starts_with("+++ ")
        {
            if self
                .files
                .last()
                .is_none_or(|file| file.named || !file.hunks.is_empty())
            {
                self.files.push(DiffFile::default());
            }
            if let Some(file) = self.files.last_mut() {
                file.old = name(old);
                file.named = true;
            }
            return;
        }
        if let Some(rest) = line.strip_prefix("Only in ") {
            self.files.push(DiffFile {
                new: Cow::Owned(rest.replacen(": ", "/", 1)),
                notes: vec!["only there".into()],
                ..DiffFile::default()
            });
            return;
        }
        if let Some((names, note)) = differ(line) {
            // git names the file before, plain diff does not.
            let unnamed = self
                .files
                .last()
                .is_none_or(|file| file.path().is_empty() || file.named);
            if unnamed {
                // The file that is gone is named by where it was.
                let (old, new) = names.rsplit_once(" and ").unwrap_or(("", names));
                self.files.push(DiffFile {
                    old: name(old),
                    new: name(new),
                    named: true,
                    ..DiffFile::default()
                });
            }
            if let Some(file) = self.files.last_mut() {
                file.notes.push(note);
            }
            return;
        }
        let Some(file) = self.files.last_mut().filter(|file| file.hunks.is_empty()) else {
            self.outside += 1;
            return;
        };
        if !file.header(line) {
            self.outside += 1;
        }
    }
}

impl<'a> DiffFile<'a> {
    /// Where the file is now, or was when it is gone.
    pub(super) fn path(&self) -> &str {
        match (self.new.as_ref(), self.old.as_ref()) {
            ("" | "/dev/null", old) => old,
            (new, _) => new,
        }
    }

    /// Where the file was.
    pub(super) fn old_path(&self) -> &str {
        match self.old.as_ref() {
            "" | "/dev/null" => self.path(),
            old => old,
        }
    }

    pub(super) fn added(&self) -> u64 {
        self.hunks.iter().map(|hunk| hunk.added).sum()
    }

    pub(super) fn removed(&self) -> u64 {
        self.hunks.iter().map(|hunk| hunk.removed).sum()
    }

    fn header(&mut self, line: &'a str) -> bool {
        if let Some(new) = line.strip_prefix("+++ ") {
            self.new = name(new);
        } else if line.starts_with("new file mode ") {
            self.notes.push("new".into());
        } else if line.starts_with("deleted file mode ") {
            self.notes.push("deleted".into());
        } else if let Some(mode) = line.strip_prefix("old mode ") {
            self.notes.push(format!("mode {mode}"));
        } else if let Some(mode) = line.strip_prefix("new mode ") {
            match self.notes.last_mut() {
                Some(last) if last.starts_with("mode ") => last.push_str(&format!(" -> {mode}")),
                _ => self.notes.push(format!("mode {mode}")),
            }
        } else if let Some(from) = line.strip_prefix("rename from ") {
            self.notes.push(format!("renamed from {from}"));
        } else if let Some(from) = line.strip_prefix("copy from ") {
            self.notes.push(format!("copied from {from}"));
        } else if let Some(to) = line
            .strip_prefix("rename to ")
            .or(line.strip_prefix("copy to "))
        {
            self.new = Cow::Borrowed(to.trim_end_matches('\r'));
        } else if line == "GIT binary patch" {
            self.notes.push("binary".into());
        } else if self.notes.last().is_some_and(|last| last == "binary") {
            // The patch's own letters.
        } else {
            return [
                "index ",
                "similarity index ",
                "dissimilarity index ",
                "Index: ",
                "====",
                "mode ",
            ]
            .iter()
            .any(|start| line.starts_with(start))
                || line.is_empty();
        }
        true
    }

    /// Takes git's `a/` and `b/` off the names.
    fn settle(&mut self) {
        let prefixed = |name: &str| name == "/dev/null" || name.as_bytes().get(1) == Some(&b'/');
        if self.named && prefixed(&self.old) && prefixed(&self.new) {
            for name in [&mut self.old, &mut self.new] {
                if name.as_ref() != "/dev/null" {
                    *name = Cow::Owned(name[2..].to_owned());
                }
            }
        }
        if self.old == "/dev/null" && !self.notes.iter().any(|note| note == "new") {
            self.notes.push("new".into());
        }
        if self.new == "/dev/null" && !self.notes.iter().any(|note| note == "deleted") {
            self.notes.push("deleted".into());
        }
    }
}

impl Hunk<'_> {
    pub(super) fn changed(&self) -> u64 {
        self.added + self.removed
    }

    /// The line in the new file where the change starts.
    pub(super) fn first_changed_line(&self) -> u64 {
        let before = self
            .lines
            .iter()
            .take_while(|line| line.sign == Sign::Context)
            .count();
        self.new_start + before as u64
    }

    /// Whether old and new are the same but for white space.
    pub(super) fn is_whitespace_only(&self) -> bool {
        let side = |sign: Sign| {
            let lines = self.lines.iter().filter(move |line| line.sign == sign);
            lines
                .flat_map(|line| line.text.chars())
                .filter(|c| !c.is_whitespace())
        };
        !self.combined
            && self.dropped == 0
            && self.changed() > 0
            && side(Sign::Added).eq(side(Sign::Removed))
    }
}

/// `@@ -10,5 +10,6 @@ fn foo`, with as many more `@` as there are more parents.
fn hunk_header(line: &str) -> Option<(Hunk<'_>, (u64, u64), usize)> {
    if !line.starts_with("@@ -") && !line.starts_with("@@@") {
        return None;
    }
    let at = line.bytes().take_while(|b| *b == b'@').count();
    let (ranges, rest) = line[at..].split_once(&line[..at])?;
    let mut old = None;
    let mut new = None;
    for range in ranges.split_whitespace() {
        let numbers = range.get(1..)?;
        let (start, count) = numbers.split_once(',').unwrap_or((numbers, "1"));
        let range_numbers = (start.parse().ok()?, count.parse().ok()?);
        match range.as_bytes()[0] {
            b'-' => old = old.or(Some(range_numbers)),
            b'+' => new = Some(range_numbers),
            _ => return None,
        }
    }
    let ((old_start, old_count), (new_start, new_count)): ((u64, u64), (u64, u64)) = (old?, new?);
    let hunk = Hunk {
        symbol: rest.trim(),
        old_start,
        new_start,
        lines: Vec::new(),
        combined: at > 2,
        dropped: 0,
        added: 0,
        removed: 0,
    };
    Some((hunk, (old_count, new_count), at - 1))
}

/// The names in `Binary files a and b differ` or `Files a and b differ (why)`, and what to note about them.
fn differ(line: &str) -> Option<(&str, String)> {
    let (names, what) = match line.strip_prefix("Binary files ") {
        Some(names) => (names, "binary"),
        None => (line.strip_prefix("Files ")?, "differs"),
    };
    let (names, why) = names.rsplit_once(" differ")?;
    match why.strip_prefix(" (").and_then(|why| why.strip_suffix(')')) {
        Some(why) => Some((names, format!("{what}, {why}"))),
        None => why.is_empty().then(|| (names, what.to_owned())),
    }
}

/// A name as `---` and `+++` give it, perhaps quoted or followed by a time.
fn name(text: &str) -> Cow<'_, str> {
    let text = text.trim_end_matches('\r');
    let text = text.split('\t').next().unwrap_or(text);
    Cow::Borrowed(
        text.strip_prefix('"')
            .and_then(|t| t.strip_suffix('"'))
            .unwrap_or(text),
    )
}

/// The two names of `diff --git a/x b/x`; only where both are the same can they be split for sure.
fn git_names(names: &str) -> (Cow<'_, str>, Cow<'_, str>) {
    let names = names.trim_end_matches('\r');
    let middle = names.len() / 2;
    let halves = names
        .get(..middle)
        .zip(names.get(middle..).and_then(|rest| rest.strip_prefix(' ')));
    let (old, new) = match halves {
        Some(halves) => halves,
        None => names
            .split_once(" b/")
            .map_or((names, names), |(old, new)| (old, new)),
    };
    let bare = |name: &'_ str| -> Cow<'_, str> {
        let name = name.trim_matches('"');
        let named = name.as_bytes().get(1) == Some(&b'/');
        Cow::Owned(if named {
            name[2..].to_owned()
        } else {
            name.to_owned()
        })
    };
    (
        Cow::Owned(bare(old).into_owned()),
        Cow::Owned(bare(new).into_owned()),
    )
}
