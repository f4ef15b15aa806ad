//! The shape of a JSON document: its keys, their types, and how often.
//!
//! Reads as far as the text goes and is right about that much, so the beginning of a large document has a shape too, and
//! so has a stream of documents, one a line. The elements of an array are taken together as one.

use std::collections::HashMap;

use super::{ContentShape, TextEnds, titled};
use crate::budget::cost;

/// Different keys kept of one object; one with more is a map, whose keys are data.
const MAX_KEYS: usize = 200;
/// Keys shown of an object before the rest is counted.
const MAX_SHOWN_KEYS: usize = 24;
/// Tokens of the line above a shape.
const TITLE_TOKENS: usize = 24;
/// Levels of nesting that are distinguished; below them values are skipped.
const MAX_DEPTH: usize = 32;

#[derive(Default)]
struct JsonShape {
    nulls: u64,
    booleans: u64,
    numbers: u64,
    strings: u64,
    objects: u64,
    arrays: u64,
    items: u64,
    keys: Vec<(String, JsonShape)>,
    places: HashMap<String, usize>,
    more_keys: u64,
    element: Option<Box<JsonShape>>,
}

impl JsonShape {
    fn times(&self) -> u64 {
        self.nulls + self.booleans + self.numbers + self.strings + self.objects + self.arrays
    }

    fn key(&mut self, name: &str) -> Option<&mut JsonShape> {
        let at = match self.places.get(name) {
            Some(at) => *at,
            None if self.keys.len() < MAX_KEYS => {
                self.places.insert(name.to_owned(), self.keys.len());
                self.keys.push((name.to_owned(), JsonShape::default()));
                self.keys.len() - 1
            }
            None => return None,
        };
        self.keys.get_mut(at).map(|(_, shape)| shape)
    }

    /// Different keys of these objects. Those that were not kept are distinguished within one object only.
    fn different(&self) -> u64 {
        let more = if self.objects > 1 { 0 } else { self.more_keys };
        self.keys.len() as u64 + more
    }

    /// What is directly below.
    fn below(&self) -> impl Iterator<Item = &JsonShape> {
        let keys = self.keys.iter().map(|(_, shape)| shape);
        keys.chain(self.element.as_deref())
    }

    /// The keys that a reader meets first: the document's own, or those of its elements.
    fn own_keys(&self) -> u64 {
        self.different() + self.element.as_ref().map_or(0, |of| of.own_keys())
    }

    /// The keys at any depth.
    fn all_keys(&self) -> u64 {
        self.different() + self.below().map(JsonShape::all_keys).sum::<u64>()
    }

    /// Whether there may be more keys than were counted.
    fn is_vague(&self) -> bool {
        (self.objects > 1 && self.more_keys > 0) || self.below().any(JsonShape::is_vague)
    }

    /// `array of 1200 objects`, `string or null`.
    fn words(&self) -> String {
        let mut words = Vec::new();
        let mut scalar = |times: u64, word: &str| {
            if times > 0 {
                words.push(word.to_owned());
            }
        };
        scalar(self.objects, "object");
        scalar(self.strings, "string");
        scalar(self.numbers, "number");
        scalar(self.booleans, "boolean");
        if self.arrays > 0 {
            let of = match &self.element {
                Some(element) => element.plural(),
                None => "items".to_owned(),
            };
            words.push(match self.arrays {
                1 => format!("array of {} {of}", self.items),
                arrays => format!("{arrays} arrays of {of}, {} in all", self.items),
            });
        }
        if self.nulls > 0 {
            words.push("null".to_owned());
        }
        if words.is_empty() {
            words.push("cut off".to_owned());
        }
        words.join(" or ")
    }

    fn plural(&self) -> String {
        let kinds = [
            (self.objects, "objects"),
            (self.strings, "strings"),
            (self.numbers, "numbers"),
            (self.booleans, "booleans"),
            (self.arrays, "arrays"),
            (self.nulls, "nulls"),
        ];
        let words: Vec<_> = kinds
            .iter()
            .filter(|(times, _)| *times > 0)
            .map(|(_, word)| *word)
            .collect();
        if words.is_empty() {
            "items".to_owned()
        } else {
            words.join(" and ")
        }
    }

    /// What is below, one line each, with its depth.
    fn lines(&self, depth: usize, out: &mut Vec<(usize, String)>) {
        for (name, shape) in self.keys.iter().take(MAX_SHOWN_KEYS) {
            let mut line = format!("{}: {}", label(name), shape.words());
            let times = shape.times();
            if times < self.objects {
                line.push_str(&format!(", in {times} of {}", self.objects));
            }
            out.push((depth, line));
            shape.lines(depth + 1, out);
        }
        let more = self.more_keys + self.keys.len().saturating_sub(MAX_SHOWN_KEYS) as u64;
        if more > 0 {
            out.push((depth, format!("… {more} more keys")));
        }
        if let Some(element) = &self.element {
            element.lines(depth, out);
        }
    }
}

fn label(name: &str) -> String {
    let short: String = name.chars().take(60).collect();
    if short.len() < name.len() {
        format!("{short}…")
    } else {
        short
    }
}

/// The shape within `room` tokens, the deepest levels left out first.
pub(super) fn shape(text: &TextEnds<'_>, room: usize) -> ContentShape {
    let mut scan = JsonScanner {
        text: text.head,
        at: 0,
    };
    let mut root = JsonShape::default();
    let mut whole = 0_u64;
    let is_cut = loop {
        scan.blanks();
        if scan.peek().is_none() {
            break text.tail.is_some();
        }
        if scan.value(&mut root, 0).is_none() {
            break true;
        }
        whole += 1;
    };
    let mut lines = Vec::new();
    root.lines(0, &mut lines);
    let all = lines.len();
    let mut deepest = lines.iter().map(|(depth, _)| *depth).max().unwrap_or(0);
    // A line takes at least four tokens with its indentation: too many of them need not be counted one by one.
    let fits = |depth: usize| {
        let kept = || lines.iter().filter(|(at, _)| *at <= depth);
        kept().count() <= room / 4
            && kept().map(|(at, line)| cost(line) + at + 1).sum::<usize>() + TITLE_TOKENS <= room
    };
    while deepest > 0 && !fits(deepest) {
        deepest -= 1;
    }
    let kept: Vec<_> = lines
        .iter()
        .filter(|(depth, _)| *depth <= deepest)
        .map(|(depth, line)| format!("{:indent$}{line}", "", indent = 2 * depth + 2))
        .collect();
    let about = match whole {
        0 | 1 => root.words(),
        _ => format!("{whole} documents"),
    };
    let withheld = all - kept.len();
    if kept.is_empty() && root.times() > 0 {
        return (format!("{}:\n", root.words()), None);
    }
    let (own, all) = (root.own_keys(), root.all_keys());
    let at_least = if is_cut || root.is_vague() {
        "at least "
    } else {
        ""
    };
    let keys = if own == 1 { "key" } else { "keys" };
    let nested = match all - own {
        0 => String::new(),
        nested => format!(" and {nested} nested"),
    };
    let title = format!("{at_least}{own} {keys}{nested}, {about}:\n");
    titled(&title, kept, withheld, "keys", room)
}

struct JsonScanner<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> JsonScanner<'t> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn blanks(&mut self) {
        while self
            .peek()
            .is_some_and(|byte| byte.is_ascii_whitespace() || byte == 0x1e)
            || self.text[self.at..].starts_with('\u{feff}')
        {
            self.at += if self.peek() == Some(0xef) { 3 } else { 1 };
        }
    }

    /// Takes one value into the shape; nothing where the text ends or is no JSON.
    fn value(&mut self, shape: &mut JsonShape, depth: usize) -> Option<()> {
        if depth > MAX_DEPTH {
            return self.skip();
        }
        self.blanks();
        match self.peek()? {
            b'{' => {
                self.at += 1;
                shape.objects += 1;
                self.blanks();
                if self.peek()? == b'}' {
                    self.at += 1;
                    return Some(());
                }
                loop {
                    self.blanks();
                    let name = self.string()?;
                    self.blanks();
                    if self.peek()? != b':' {
                        return None;
                    }
                    self.at += 1;
                    match shape.key(name) {
                        Some(inner) => self.value(inner, depth + 1)?,
                        None => {
                            shape.more_keys += 1;
                            self.skip()?;
                        }
                    }
                    if self.closes(b'}')? {
                        return Some(());
                    }
                }
            }
            b'[' => {
                self.at += 1;
                shape.arrays += 1;
                self.blanks();
                if self.peek()? == b']' {
                    self.at += 1;
                    return Some(());
                }
                loop {
                    let element = shape.element.get_or_insert_default();
                    self.value(element, depth + 1)?;
                    shape.items += 1;
                    if self.closes(b']')? {
                        return Some(());
                    }
                }
            }
            b'"' => {
                shape.strings += 1;
                self.string().map(|_| ())
            }
            first => {
                let word = self.word();
                match first {
                    b't' | b'f' if matches!(word, "true" | "false") => shape.booleans += 1,
                    b'n' if word == "null" => shape.nulls += 1,
                    b'-' | b'0'..=b'9' => shape.numbers += 1,
                    _ => return None,
                }
                Some(())
            }
        }
    }

    /// Whether the container ends here; otherwise a comma must follow.
    fn closes(&mut self, end: u8) -> Option<bool> {
        self.blanks();
        let byte = self.peek()?;
        if byte != end && byte != b',' {
            return None;
        }
        self.at += 1;
        Some(byte == end)
    }

    /// What is between the quotes, escapes as they are.
    fn string(&mut self) -> Option<&'t str> {
        if self.peek()? != b'"' {
            return None;
        }
        let start = self.at + 1;
        let mut at = start;
        loop {
            at += memchr::memchr2(b'"', b'\\', self.text.as_bytes().get(at..)?)?;
            if self.text.as_bytes()[at] == b'"' {
                break;
            }
            at += 2;
        }
        self.at = at + 1;
        self.text.get(start..at)
    }

    fn word(&mut self) -> &'t str {
        let rest = &self.text[self.at..];
        let end = rest
            .find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '+' | '.'))
            .unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    /// Passes over a value without looking into it.
    fn skip(&mut self) -> Option<()> {
        let mut open = 0_usize;
        loop {
            self.blanks();
            match self.peek()? {
                b'"' => {
                    self.string()?;
                }
                b'{' | b'[' => {
                    open += 1;
                    self.at += 1;
                    continue;
                }
                b'}' | b']' => {
                    open = open.checked_sub(1)?;
                    self.at += 1;
                }
                b',' | b':' if open > 0 => {
                    self.at += 1;
                    continue;
                }
                _ => {
                    if self.word().is_empty() {
                        return None;
                    }
                }
            }
            if open == 0 {
                return Some(());
            }
        }
    }
}
