//! Entries and diffs as they are shown: nothing in their texts controls a terminal.

use jiff::Timestamp;
use serde::{Deserialize, Deserializer};

use crate::text::{label, legible, short};

/// Characters of a name, a path and a line that are shown.
const MAX_NAME_CHARS: usize = 80;
const MAX_PATH_CHARS: usize = 400;
const MAX_LINE_CHARS: usize = 1000;
/// Lines of one entry; `llmc history show` prints the rest.
const MAX_DIFF_LINES: usize = 5000;

/// A page of the list.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct EntryPage {
    pub(crate) entries: Vec<ListedEntry>,
    pub(crate) next: Option<String>,
}

/// One entry of the history. Its texts are legible.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct ListedEntry {
    #[serde(deserialize_with = "name")]
    pub(crate) id: String,
    #[serde(deserialize_with = "time")]
    pub(crate) time: Option<Timestamp>,
    #[serde(default, deserialize_with = "name")]
    pub(crate) agent: String,
    #[serde(default, deserialize_with = "name")]
    pub(crate) session: String,
    #[serde(default, deserialize_with = "name")]
    pub(crate) tool: String,
    #[serde(default, deserialize_with = "line")]
    pub(crate) args: String,
    #[serde(default, deserialize_with = "name")]
    pub(crate) source: String,
    #[serde(default)]
    pub(crate) shared: bool,
    /// What an undo took back, newest first.
    #[serde(default, deserialize_with = "names")]
    pub(crate) undoes: Vec<String>,
    #[serde(default, deserialize_with = "name")]
    pub(crate) undone_by: String,
    /// How many of its changes were taken back.
    #[serde(default)]
    pub(crate) undone: u64,
    /// Why (part of) it cannot be taken back.
    #[serde(default, deserialize_with = "line")]
    pub(crate) not_undoable: String,
    #[serde(default)]
    pub(crate) head: Option<ListedHead>,
    #[serde(default)]
    pub(crate) not_kept: u64,
    pub(crate) counts: ActionCounts,
    /// The first of them.
    #[serde(default)]
    pub(crate) files: Vec<ListedFile>,
}

/// Files by what happened to them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
pub(crate) struct ActionCounts {
    created: u64,
    changed: u64,
    deleted: u64,
    moved: u64,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct ListedHead {
    #[serde(default, deserialize_with = "name")]
    pub(crate) before: String,
    #[serde(default, deserialize_with = "name")]
    pub(crate) after: String,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct ListedFile {
    #[serde(deserialize_with = "path")]
    pub(crate) path: String,
    #[serde(deserialize_with = "name")]
    pub(crate) action: String,
    #[serde(default, deserialize_with = "optional_path")]
    pub(crate) from: Option<String>,
}

impl ListedEntry {
    /// The tool, or where the change came from.
    pub(crate) fn what(&self) -> String {
        match self.source.as_str() {
            "outside" => "(outside)".to_owned(),
            "undo" => match self.undoes.as_slice() {
                [] => "undo".to_owned(),
                [only] => format!("undo of {only}"),
                [last, .., first] => format!("undo {first} to {last}"),
            },
            _ => self.tool.clone(),
        }
    }

    /// `+1 ~2 -1 →1`: files that were created, changed, deleted and moved.
    pub(crate) fn counts(&self) -> String {
        let counts = [
            (self.counts.created, '+'),
            (self.counts.changed, '~'),
            (self.counts.deleted, '-'),
            (self.counts.moved, '→'),
        ];
        let counts = counts.into_iter().filter(|(count, _)| *count > 0);
        let counts = counts.map(|(count, sign)| format!("{sign}{}", short(count)));
        counts.collect::<Vec<_>>().join(" ")
    }

    /// `undone by h5`, when something was taken back.
    fn undone(&self) -> Option<String> {
        let ActionCounts {
            created,
            changed,
            deleted,
            moved,
        } = self.counts;
        let is_whole = self.undone >= created + changed + deleted + moved;
        let partly = if is_whole { "" } else { "partly " };
        (!self.undone_by.is_empty()).then(|| format!("{partly}undone by {}", self.undone_by))
    }

    /// What is special about it, in words.
    pub(crate) fn marks(&self) -> String {
        let marks = [
            (self.source == "outside").then(|| "outside".to_owned()),
            self.shared.then(|| "shared".to_owned()),
            self.undone(),
            (self.not_kept > 0).then(|| format!("{} not kept", self.not_kept)),
            self.head.is_some().then(|| "HEAD moved".to_owned()),
        ];
        marks.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    /// The arguments, or else the files.
    pub(crate) fn about(&self) -> String {
        if !self.args.is_empty() {
            return self.args.clone();
        }
        let names = self.files.iter().take(3).map(|file| file.path.as_str());
        names.collect::<Vec<_>>().join(", ")
    }

    pub(crate) fn session_heading(&self) -> String {
        match (self.source.as_str(), self.session.as_str()) {
            ("outside", _) => "outside of calls".to_owned(),
            (_, "") => "no session".to_owned(),
            (_, session) if self.agent.is_empty() => format!("session {session}"),
            (_, session) => format!("session {session} of {}", self.agent),
        }
    }
}

/// The file that a line belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LinePath {
    path: String,
    from: Option<String>,
}

impl LinePath {
    pub(crate) fn is(&self, path: &str) -> bool {
        self.path == path || self.from.as_deref() == Some(path)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineKind {
    /// Something about the entry or the file.
    Note,
    /// What needs attention.
    Warning,
    File,
    Hunk,
    Added,
    Removed,
    Same,
}

/// A line below the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DiffLine {
    pub(crate) kind: LineKind,
    pub(crate) text: String,
    /// `None` for what is about the entry as a whole.
    pub(crate) path: Option<LinePath>,
}

/// An entry with its diffs as lines.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct EntryText {
    pub(crate) id: String,
    pub(crate) undone_by: String,
    pub(crate) lines: Vec<DiffLine>,
}

#[derive(Deserialize)]
struct EntryDocument {
    #[serde(flatten)]
    entry: ListedEntry,
    #[serde(default)]
    changes: Vec<ChangeDocument>,
}

#[derive(Deserialize)]
struct ChangeDocument {
    #[serde(flatten)]
    file: ListedFile,
    before: Option<StateDocument>,
    after: Option<StateDocument>,
    #[serde(default)]
    diff: Option<String>,
    #[serde(default, deserialize_with = "line")]
    note: String,
    #[serde(default)]
    shared: bool,
}

#[derive(Deserialize)]
struct StateDocument {
    #[serde(default, deserialize_with = "name")]
    kind: String,
    #[serde(default, deserialize_with = "name")]
    mode: String,
}

impl EntryText {
    /// # Errors
    /// The text is not an entry.
    pub(crate) fn parse(text: &str) -> serde_json::Result<EntryText> {
        let EntryDocument { entry, changes } = serde_json::from_str(text)?;
        let mut lines = about(&entry);
        for change in &changes {
            lines.extend(change.lines());
            if lines.len() > MAX_DIFF_LINES {
                lines.truncate(MAX_DIFF_LINES);
                lines.push(DiffLine {
                    kind: LineKind::Warning,
                    text: format!(
                        "… the rest is not shown here: llmc history show {}",
                        entry.id
                    ),
                    path: None,
                });
                break;
            }
        }
        Ok(EntryText {
            id: entry.id,
            undone_by: entry.undone_by,
            lines,
        })
    }
}

/// Who made it, with what, and what is special about it.
fn about(entry: &ListedEntry) -> Vec<DiffLine> {
    let named = [("agent ", &entry.agent), ("session ", &entry.session)];
    let named = named.iter().filter(|(_, value)| !value.is_empty());
    let mut facts: Vec<String> = entry
        .time
        .map(|time| time.to_string())
        .into_iter()
        .collect();
    facts.extend(named.map(|(what, value)| format!("{what}{value}")));
    let mut lines = vec![(LineKind::Note, facts.join(" · "))];
    if !entry.args.is_empty() {
        lines.push((LineKind::Note, entry.args.clone()));
    }
    if let Some(head) = &entry.head {
        let text = format!("HEAD moved: {} → {}", head.before, head.after);
        lines.push((LineKind::Note, text));
    }
    let warnings = [
        (entry.source == "outside")
            .then(|| "changed between calls, by hand or by another program".to_owned()),
        entry.shared.then(|| {
            "another writer was active meanwhile: some changes may be its (shared)".to_owned()
        }),
        entry.undone(),
        (!entry.not_undoable.is_empty()).then(|| format!("not undoable: {}", entry.not_undoable)),
        (entry.not_kept > 0).then(|| {
            format!(
                "{} not kept (ignored, protected or too large): undo cannot restore them",
                crate::text::count(entry.not_kept, "file")
            )
        }),
    ];
    let warnings = warnings.into_iter().flatten();
    lines.extend(warnings.map(|text| (LineKind::Warning, text)));
    let line = |(kind, text)| DiffLine {
        kind,
        text,
        path: None,
    };
    lines.into_iter().map(line).collect()
}

impl ChangeDocument {
    fn lines(&self) -> Vec<DiffLine> {
        let path = LinePath {
            path: self.file.path.clone(),
            from: self.file.from.clone(),
        };
        let mut lines = vec![(LineKind::File, self.heading())];
        if !self.note.is_empty() {
            lines.push((LineKind::Warning, format!("  {}", self.note)));
        }
        lines.extend(diff_lines(self.diff.as_deref().unwrap_or_default()));
        let line = |(kind, text)| DiffLine {
            kind,
            text,
            path: Some(path.clone()),
        };
        lines.into_iter().map(line).collect()
    }

    /// `moved a → b, mode 0644 → 0755`.
    fn heading(&self) -> String {
        let from = self.file.from.as_ref();
        let from = from.map_or_else(String::new, |from| format!("{from} → "));
        let mut heading = format!("{} {from}{}", self.file.action, self.file.path);
        if let (Some(before), Some(after)) = (&self.before, &self.after) {
            let both = |old: &str, new: &str| old != new && !old.is_empty() && !new.is_empty();
            let are_there = before.kind != "absent" && after.kind != "absent";
            if both(&before.kind, &after.kind) && are_there {
                heading.push_str(&format!(", {} → {}", before.kind, after.kind));
            }
            if both(&before.mode, &after.mode) {
                heading.push_str(&format!(", mode {} → {}", before.mode, after.mode));
            }
        }
        if self.shared {
            heading.push_str(", shared");
        }
        heading
    }
}

/// The hunks of a unified diff. Inside a hunk a line is content whatever it begins with.
fn diff_lines(diff: &str) -> Vec<(LineKind, String)> {
    let mut lines = Vec::new();
    let mut left = (0u64, 0u64);
    for text in diff.lines().take(MAX_DIFF_LINES + 1) {
        let kind = match text.as_bytes().first() {
            Some(b'\\') => LineKind::Note,
            _ if left == (0, 0) => match hunk(text) {
                Some(announced) => {
                    left = announced;
                    LineKind::Hunk
                }
                // The names of the files, which the heading has.
                None => continue,
            },
            Some(b'+') => {
                left.1 = left.1.saturating_sub(1);
                LineKind::Added
            }
            Some(b'-') => {
                left.0 = left.0.saturating_sub(1);
                LineKind::Removed
            }
            _ => {
                left = (left.0.saturating_sub(1), left.1.saturating_sub(1));
                LineKind::Same
            }
        };
        let text = legible(&text.replace('\t', "    "), MAX_LINE_CHARS);
        lines.push((kind, text));
    }
    lines
}

/// How many lines of each side `@@ -1,3 +1,4 @@` announces.
fn hunk(text: &str) -> Option<(u64, u64)> {
    let mut words = text.strip_prefix("@@ ")?.split(' ');
    let mut side = |sign| {
        let range = words.next()?.strip_prefix(sign)?;
        let (_, count) = range.split_once(',').unwrap_or((range, "1"));
        count.parse().ok()
    };
    Some((side('-')?, side('+')?))
}

/// A text that may be missing or null, made legible.
fn text<'de, D: Deserializer<'de>>(value: D, max_chars: usize) -> Result<String, D::Error> {
    let text = Option::<String>::deserialize(value)?;
    Ok(label(&text.unwrap_or_default(), max_chars))
}

fn name<'de, D: Deserializer<'de>>(value: D) -> Result<String, D::Error> {
    text(value, MAX_NAME_CHARS)
}

fn names<'de, D: Deserializer<'de>>(value: D) -> Result<Vec<String>, D::Error> {
    let names = Vec::<String>::deserialize(value)?;
    let shown = names.iter().map(|text| label(text, MAX_NAME_CHARS));
    Ok(shown.collect())
}

fn path<'de, D: Deserializer<'de>>(value: D) -> Result<String, D::Error> {
    text(value, MAX_PATH_CHARS)
}

fn line<'de, D: Deserializer<'de>>(value: D) -> Result<String, D::Error> {
    text(value, MAX_LINE_CHARS)
}

fn optional_path<'de, D: Deserializer<'de>>(value: D) -> Result<Option<String>, D::Error> {
    Ok(Some(path(value)?).filter(|path| !path.is_empty()))
}

fn time<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Timestamp>, D::Error> {
    let text = Option::<String>::deserialize(value)?;
    Ok(text.and_then(|text| text.parse().ok()))
}
