//! Words as code means them: `parseHTTPHeader`, `parse_http_header` and "parses HTTP headers" have words in common.
//!
//! A run of letters, digits and underscores gives its parts (split at underscores, at changes of case and between
//! letters and digits), each reduced to a stem, and, when there are several, the whole without underscores. Queries and
//! text are split the same way, so their stems agree.

/// Longer parts are data, not words.
const MAX_WORD_BYTES: usize = 48;

/// Calls `take` with every word of `text`, in order.
pub(crate) fn each_word(text: &str, mut take: impl FnMut(&str)) {
    let mut stream = WordSplitter::new(text);
    while let Some(word) = stream.next_word() {
        take(word);
    }
}

/// All words of a text.
pub(crate) fn words(text: &str) -> Vec<String> {
    let mut all = Vec::new();
    each_word(text, |word| all.push(word.to_owned()));
    all
}

/// An identifier without underscores, in lower case: the form in which two spellings of one name agree.
pub(crate) fn folded(name: &str) -> String {
    let kept = name.chars().filter(|c| c.is_alphanumeric());
    kept.flat_map(char::to_lowercase).collect()
}

/// Splits a text word by word, so that it can be indexed without a list of its words.
pub(crate) struct WordSplitter<'a> {
    text: &'a str,
    /// Where the search for the next run starts.
    at: usize,
    /// The current run, and the next split position.
    run: std::ops::Range<usize>,
    split_at: usize,
    parts: usize,
    word: String,
}

impl<'a> WordSplitter<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self {
            text,
            at: 0,
            run: 0..0,
            split_at: 0,
            parts: 0,
            word: String::new(),
        }
    }

    pub(crate) fn next_word(&mut self) -> Option<&str> {
        loop {
            while self.split_at < self.run.end {
                let part = self.next_part();
                self.parts += usize::from(!part.is_empty());
                if self.take(part.clone()) {
                    // A run of one part needs no whole.
                    if part == self.run {
                        self.parts = 0;
                    }
                    return Some(&self.word);
                }
            }
            if std::mem::take(&mut self.parts) > 1 && self.run.len() <= MAX_WORD_BYTES {
                self.word.clear();
                let whole = self.text[self.run.clone()].chars();
                let whole = whole.filter(|c| c.is_alphanumeric());
                self.word.extend(whole.flat_map(char::to_lowercase));
                if self.word.len() > 1 {
                    return Some(&self.word);
                }
            }
            if !self.next_run() {
                return None;
            }
        }
    }

    fn next_run(&mut self) -> bool {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let rest = &self.text[self.at..];
        let Some(start) = rest.find(is_word) else {
            return false;
        };
        let start = self.at + start;
        let rest = &self.text[start..];
        let len = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        self.run = start..start + len;
        self.split_at = start;
        self.parts = 0;
        self.at = start + len;
        true
    }

    /// The next part of the run: underscores before it are skipped.
    fn next_part(&mut self) -> std::ops::Range<usize> {
        let run = &self.text[..self.run.end];
        let skipped = run[self.split_at..]
            .find(|c| c != '_')
            .unwrap_or(run.len() - self.split_at);
        let start = self.split_at + skipped;
        let mut chars = run[start..].char_indices().peekable();
        let mut end = run.len();
        let mut before = CharClass::None;
        let mut capitals = 0;
        while let Some((at, c)) = chars.next() {
            let class = CharClass::of(c);
            let ends = match (before, class) {
                (CharClass::None, _) => false,
                (CharClass::Single, _) | (_, CharClass::Single | CharClass::Bar) => true,
                (CharClass::Digit, CharClass::Digit) => false,
                (CharClass::Digit, _) | (_, CharClass::Digit) => true,
                (CharClass::Lower, CharClass::Upper) => true,
                // `HTTPHeader`: the last capital belongs to what follows.
                (CharClass::Upper, CharClass::Upper) => {
                    capitals > 0
                        && chars
                            .peek()
                            .is_some_and(|(_, next)| CharClass::of(*next) == CharClass::Lower)
                }
                _ => false,
            };
            if ends {
                end = start + at;
                break;
            }
            capitals += usize::from(class == CharClass::Upper);
            before = class;
        }
        self.split_at = end;
        start..end
    }

    /// Puts the part's stem into `word`; false if it is not a word.
    fn take(&mut self, part: std::ops::Range<usize>) -> bool {
        let text = &self.text[part];
        if text.is_empty() || text.len() > MAX_WORD_BYTES {
            return false;
        }
        self.word.clear();
        if text.is_ascii() {
            if text.len() < 2 {
                return false;
            }
            self.word.push_str(text);
            self.word.make_ascii_lowercase();
            stem(&mut self.word);
        } else {
            self.word.extend(text.chars().flat_map(char::to_lowercase));
        }
        true
    }
}

#[derive(Clone, Copy, PartialEq)]
enum CharClass {
    None,
    Lower,
    Upper,
    Digit,
    Bar,
    /// A character that is a word of its own, as in Chinese and Japanese.
    Single,
}

impl CharClass {
    fn of(c: char) -> Self {
        match c {
            '_' => Self::Bar,
            '0'..='9' => Self::Digit,
            'a'..='z' => Self::Lower,
            'A'..='Z' => Self::Upper,
            '\u{3040}'..='\u{a4cf}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}' => {
                Self::Single
            }
            _ if c.is_uppercase() => Self::Upper,
            _ => Self::Lower,
        }
    }
}

/// Reduces an English word to its stem: plural, `-ed`, `-ing`, `-ion`, a last `e`.
fn stem(word: &mut String) {
    let has_vowel = |text: &str| text.bytes().any(|b| b"aeiouy".contains(&b));
    let ends = |word: &String, suffix: &str| word.ends_with(suffix);
    if word.len() > 4 && ends(word, "ies") {
        word.truncate(word.len() - 3);
        word.push('y');
    } else if word.len() > 4
        && ["sses", "xes", "ches", "shes", "zzes"]
            .iter()
            .any(|s| ends(word, s))
    {
        word.truncate(word.len() - 2);
    } else if word.len() > 3 && ends(word, "s") && !["ss", "us", "is"].iter().any(|s| ends(word, s))
    {
        word.pop();
    }
    for suffix in ["ing", "ed"] {
        let left = word.len().saturating_sub(suffix.len());
        if left >= 3 && ends(word, suffix) && !ends(word, "eed") && has_vowel(&word[..left]) {
            word.truncate(left);
            let bytes = word.as_bytes();
            let doubled = bytes.len() > 3 && bytes[left - 1] == bytes[left - 2];
            if doubled && !b"lsz".contains(&bytes[left - 1]) {
                word.pop();
            }
            break;
        }
    }
    if word.len() > 5 && (ends(word, "tion") || ends(word, "sion")) {
        word.truncate(word.len() - 3);
    }
    if word.len() > 3 && ends(word, "e") {
        word.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_give_parts_and_whole() {
        for (text, expected) in [
            ("parseHTTPHeader", "pars http header parsehttpheader"),
            ("parse_http_headers", "pars http header parsehttpheaders"),
            ("HTTPServer2", "http server httpserver2"),
            ("sha256", "sha 256 sha256"),
            ("__init__", "init"),
            ("a b x1", "x1"),
            (
                "snake_case.CamelCase",
                "snak cas snakecase camel cas camelcase",
            ),
            ("Größe ist gut", "größe ist gut"),
            ("漢字 kanji", "漢 字 漢字 kanji"),
            ("", ""),
            ("___ --- ", ""),
        ] {
            assert_eq!(words(text).join(" "), expected, "{text}");
        }
    }

    #[test]
    fn forms_of_a_word_agree() {
        for group in [
            &["parse", "parses", "parsed", "parsing"] as &[_],
            &["create", "creates", "created", "creating", "creation"],
            &["file", "files"],
            &["entry", "entries"],
            &["class", "classes"],
            &["match", "matches", "matched", "matching"],
            &["map", "maps", "mapped", "mapping"],
            &["connect", "connection", "connections", "connecting"],
        ] {
            let stems: Vec<_> = group.iter().map(|word| words(word).join(" ")).collect();
            assert!(stems.windows(2).all(|two| two[0] == two[1]), "{stems:?}");
        }
        assert_ne!(words("string"), words("str"));
    }

    #[test]
    fn data_is_no_word() {
        assert!(words(&"x".repeat(300)).is_empty());
    }

    proptest::proptest! {
        #[test]
        fn no_text_is_too_strange(text in ".{0,200}") {
            for word in words(&text) {
                assert!(!word.is_empty());
            }
        }
    }
}
