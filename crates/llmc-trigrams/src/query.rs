//! Which trigrams every match of a pattern has.
//!
//! The pattern is taken apart from the inside out. For each part four things are known: the complete set of texts it can match,
//! while that set is small; otherwise texts of which every match begins with one, texts of which every match ends with one,
//! and a condition on trigrams. Where two parts meet, the ends of one and the beginnings of the other give trigrams of both.
//! Whenever a set grows too large it is made shorter or dropped, which only makes the condition weaker: a weaker condition
//! means more candidates, never a missed match.

use regex_syntax::hir::{Class, Hir, HirKind, Repetition};

use crate::extract::{FOLDED, trigram};

/// Texts of a complete set.
const MAX_EXACT_TEXTS: usize = 24;
/// Beginnings or ends that are kept.
const MAX_AFFIXES: usize = 24;
/// The largest class that counts as a choice of characters.
const MAX_CLASS_CHARACTERS: u32 = 80;
/// Bytes of a text that is kept whole.
const MAX_TEXT_BYTES: usize = 512;
/// Copies of a repeated part that are written out.
const MAX_COPIES: u32 = 6;
/// Trigrams of a whole condition.
const MAX_CONDITION_TRIGRAMS: usize = 3000;

/// A condition on the trigrams of a file that holds a match.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TrigramQuery {
    /// Any file may match.
    All,
    /// No file can match.
    None,
    Trigram(u32),
    And(Vec<TrigramQuery>),
    Or(Vec<TrigramQuery>),
}

impl TrigramQuery {
    /// The condition for lines that match a pattern. What the pattern would match over a line end does not count.
    pub fn of(pattern: &Hir) -> TrigramQuery {
        let part = Part::of(pattern);
        let query = part.into_query();
        if query.trigrams() > MAX_CONDITION_TRIGRAMS {
            return TrigramQuery::All;
        }
        query
    }

    fn and(self, other: TrigramQuery) -> TrigramQuery {
        use TrigramQuery::{All, And, None};
        match (self, other) {
            (None, _) | (_, None) => None,
            (All, other) | (other, All) => other,
            (this, other) => combined(this, other, And, |query| match query {
                And(parts) => Ok(parts),
                other => Err(other),
            }),
        }
    }

    fn or(self, other: TrigramQuery) -> TrigramQuery {
        use TrigramQuery::{All, None, Or};
        match (self, other) {
            (All, _) | (_, All) => All,
            (None, other) | (other, None) => other,
            (this, other) => combined(this, other, Or, |query| match query {
                Or(parts) => Ok(parts),
                other => Err(other),
            }),
        }
    }

    /// How many trigrams it names.
    fn trigrams(&self) -> usize {
        match self {
            TrigramQuery::All | TrigramQuery::None => 0,
            TrigramQuery::Trigram(_) => 1,
            TrigramQuery::And(parts) | TrigramQuery::Or(parts) => {
                parts.iter().map(TrigramQuery::trigrams).sum()
            }
        }
    }
}

/// The parts of both as one condition, sorted and each once; `parts_of` takes one of the same kind apart.
fn combined(
    this: TrigramQuery,
    other: TrigramQuery,
    join: fn(Vec<TrigramQuery>) -> TrigramQuery,
    parts_of: fn(TrigramQuery) -> Result<Vec<TrigramQuery>, TrigramQuery>,
) -> TrigramQuery {
    let mut parts = parts_of(this).unwrap_or_else(|single| vec![single]);
    parts.extend(parts_of(other).unwrap_or_else(|single| vec![single]));
    parts.sort_unstable();
    parts.dedup();
    match parts.len() {
        1 => parts.remove(0),
        _ => join(parts),
    }
}

/// One of these texts: the trigrams of at least one of them are there.
fn one_of(texts: &[Vec<u8>]) -> TrigramQuery {
    let mut any = TrigramQuery::None;
    for text in texts {
        if text.len() < 3 {
            return TrigramQuery::All;
        }
        // The beginning of a long text tells enough.
        let beginning = &text[..text.len().min(MAX_TEXT_BYTES)];
        let mut all: Vec<u32> = beginning.windows(3).map(trigram).collect();
        all.sort_unstable();
        all.dedup();
        let all = match all.as_slice() {
            [only] => TrigramQuery::Trigram(*only),
            _ => TrigramQuery::And(all.into_iter().map(TrigramQuery::Trigram).collect()),
        };
        any = any.or(all);
    }
    any
}

/// What is known of the matches of a part.
#[derive(Debug)]
enum Part {
    /// They are these texts and no others.
    Exact(Vec<Vec<u8>>),
    Open {
        /// Every match begins with one of these.
        beginnings: Vec<Vec<u8>>,
        /// Every match ends with one of these.
        ends: Vec<Vec<u8>>,
        query: TrigramQuery,
    },
}

impl Part {
    /// A part of which nothing is known.
    fn unknown() -> Part {
        Part::open(vec![Vec::new()], vec![Vec::new()], TrigramQuery::All)
    }

    fn of(pattern: &Hir) -> Part {
        match pattern.kind() {
            HirKind::Empty | HirKind::Look(_) => Part::Exact(vec![Vec::new()]),
            HirKind::Literal(text) if text.0.contains(&b'\n') => Part::unknown(),
            HirKind::Literal(text) => Part::Exact(vec![folded(&text.0)]).limited(),
            HirKind::Class(class) => of_class(class),
            HirKind::Capture(capture) => Part::of(&capture.sub),
            HirKind::Repetition(repetition) => of_repetition(repetition),
            HirKind::Concat(parts) => parts
                .iter()
                .map(Part::of)
                .reduce(Part::then)
                .unwrap_or_else(|| Part::Exact(vec![Vec::new()])),
            HirKind::Alternation(parts) => parts
                .iter()
                .map(Part::of)
                .reduce(Part::or)
                .unwrap_or_else(Part::unknown),
        }
    }

    fn open(beginnings: Vec<Vec<u8>>, ends: Vec<Vec<u8>>, query: TrigramQuery) -> Part {
        let query = query.and(one_of(&beginnings)).and(one_of(&ends));
        let query = if query.trigrams() > MAX_CONDITION_TRIGRAMS {
            TrigramQuery::All
        } else {
            query
        };
        Part::Open {
            beginnings: shortened(beginnings, |text, length| text[..length].to_vec()),
            ends: shortened(ends, |text, length| text[text.len() - length..].to_vec()),
            query,
        }
    }

    /// Opens a set that is too large to stay complete.
    fn limited(self) -> Part {
        match self {
            Part::Exact(mut texts) => {
                texts.sort_unstable();
                texts.dedup();
                let is_long = texts.iter().any(|text| text.len() > MAX_TEXT_BYTES);
                if texts.len() > MAX_EXACT_TEXTS || is_long {
                    Part::open(texts.clone(), texts, TrigramQuery::All)
                } else {
                    Part::Exact(texts)
                }
            }
            open => open,
        }
    }

    fn into_open(self) -> (Vec<Vec<u8>>, Vec<Vec<u8>>, TrigramQuery) {
        match self {
            Part::Exact(texts) => (texts.clone(), texts, TrigramQuery::All),
            Part::Open {
                beginnings,
                ends,
                query,
            } => (beginnings, ends, query),
        }
    }

    fn into_query(self) -> TrigramQuery {
        match self {
            Part::Exact(texts) => one_of(&texts),
            Part::Open { query, .. } => query,
        }
    }

    /// This part and another behind it.
    fn then(self, behind: Part) -> Part {
        match (self, behind) {
            (Part::Exact(these), Part::Exact(those)) => match joined(&these, &those) {
                Some(texts) => Part::Exact(texts).limited(),
                None => {
                    let query = one_of(&these).and(one_of(&those)).and(seam(&these, &those));
                    Part::open(these, those, query)
                }
            },
            (Part::Exact(these), behind) => {
                let (beginnings, ends, query) = behind.into_open();
                match joined(&these, &beginnings) {
                    Some(beginnings) => Part::open(beginnings, ends, query),
                    None => {
                        let query = query.and(one_of(&these)).and(seam(&these, &beginnings));
                        Part::open(these, ends, query)
                    }
                }
            }
            (before, Part::Exact(those)) => {
                let (beginnings, ends, query) = before.into_open();
                match joined(&ends, &those) {
                    Some(ends) => Part::open(beginnings, ends, query),
                    None => {
                        let query = query.and(one_of(&those)).and(seam(&ends, &those));
                        Part::open(beginnings, those, query)
                    }
                }
            }
            (before, behind) => {
                let (beginnings, first_ends, first) = before.into_open();
                let (second_beginnings, ends, second) = behind.into_open();
                let query = first.and(second).and(seam(&first_ends, &second_beginnings));
                Part::open(beginnings, ends, query)
            }
        }
    }

    /// This part or another in its place.
    fn or(self, other: Part) -> Part {
        if let (Part::Exact(these), Part::Exact(those)) = (&self, &other)
            && these.len() + those.len() <= MAX_EXACT_TEXTS
        {
            return Part::Exact([these.as_slice(), those.as_slice()].concat()).limited();
        }
        let (beginnings, ends, query) = self.opened_for_choice();
        let (other_beginnings, other_ends, other) = other.opened_for_choice();
        Part::open(
            [beginnings, other_beginnings].concat(),
            [ends, other_ends].concat(),
            query.or(other),
        )
    }

    /// Its sets and a condition that holds without the sets.
    fn opened_for_choice(self) -> (Vec<Vec<u8>>, Vec<Vec<u8>>, TrigramQuery) {
        let (beginnings, ends, query) = self.into_open();
        let query = query.and(one_of(&beginnings)).and(one_of(&ends));
        (beginnings, ends, query)
    }
}

fn of_class(class: &Class) -> Part {
    let mut texts = Vec::new();
    match class {
        Class::Unicode(class) => {
            let characters = class.ranges().iter();
            let count: u64 = characters
                .map(|range| u64::from(u32::from(range.end()) - u32::from(range.start())) + 1)
                .sum();
            if count > u64::from(MAX_CLASS_CHARACTERS) {
                return Part::unknown();
            }
            let characters = class.ranges().iter();
            for character in characters.flat_map(|range| range.start()..=range.end()) {
                let mut bytes = [0; 4];
                texts.push(folded(character.encode_utf8(&mut bytes).as_bytes()));
            }
        }
        Class::Bytes(class) => {
            let ranges = class.ranges().iter();
            for byte in ranges.flat_map(|range| range.start()..=range.end()) {
                texts.push(folded(&[byte]));
            }
        }
    }
    // A match never has a line end, whatever the class says.
    texts.retain(|text| text.as_slice() != b"\n");
    Part::Exact(texts).limited()
}

fn of_repetition(repetition: &Repetition) -> Part {
    let nothing = || Part::Exact(vec![Vec::new()]);
    match (repetition.min, repetition.max) {
        (0, Some(0)) => nothing(),
        (0, Some(1)) => Part::of(&repetition.sub).or(nothing()),
        (0, _) => Part::unknown(),
        (min, max) => {
            let copies = min.min(MAX_COPIES);
            let mut part = Part::of(&repetition.sub);
            for _ in 1..copies {
                part = part.then(Part::of(&repetition.sub));
            }
            if max == Some(copies) {
                return part;
            }
            // What begins and ends the copies that must be there begins and ends the whole.
            let (beginnings, ends, query) = part.into_open();
            Part::open(beginnings, ends, query)
        }
    }
}

fn folded(text: &[u8]) -> Vec<u8> {
    text.iter().map(|byte| FOLDED[usize::from(*byte)]).collect()
}

/// Every text of one set followed by every one of another, unless these are too many.
fn joined(before: &[Vec<u8>], behind: &[Vec<u8>]) -> Option<Vec<Vec<u8>>> {
    let is_small = before.len() * behind.len() <= MAX_AFFIXES * 4;
    let longest = |texts: &[Vec<u8>]| texts.iter().map(Vec::len).max().unwrap_or(0);
    if !is_small || longest(before) + longest(behind) > MAX_TEXT_BYTES {
        return None;
    }
    let pairs = before.iter().flat_map(|first| {
        behind
            .iter()
            .map(move |second| [first.as_slice(), second].concat())
    });
    let mut texts: Vec<Vec<u8>> = pairs.collect();
    texts.sort_unstable();
    texts.dedup();
    Some(texts)
}

/// The trigrams where a text that ends in one set is followed by one that begins with another.
fn seam(ends: &[Vec<u8>], beginnings: &[Vec<u8>]) -> TrigramQuery {
    let last_two = |text: &Vec<u8>| text[text.len().saturating_sub(2)..].to_vec();
    let first_two = |text: &Vec<u8>| text[..text.len().min(2)].to_vec();
    let ends: Vec<Vec<u8>> = ends.iter().map(last_two).collect();
    let beginnings: Vec<Vec<u8>> = beginnings.iter().map(first_two).collect();
    match joined(&ends, &beginnings) {
        Some(texts) => one_of(&texts),
        None => TrigramQuery::All,
    }
}

/// Texts cut to two bytes, or to fewer where they are still too many.
fn shortened(texts: Vec<Vec<u8>>, cut: impl Fn(&[u8], usize) -> Vec<u8>) -> Vec<Vec<u8>> {
    let mut length = 2;
    loop {
        let cuts = texts.iter().map(|text| cut(text, text.len().min(length)));
        let mut short: Vec<Vec<u8>> = cuts.collect();
        short.sort_unstable();
        short.dedup();
        if short.len() <= MAX_AFFIXES || length == 0 {
            return short;
        }
        length -= 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use regex_syntax::ParserBuilder;

    use super::*;
    use crate::extract::TrigramExtractor;

    fn parse(pattern: &str, ignore_case: bool) -> Hir {
        ParserBuilder::new()
            .utf8(false)
            .multi_line(true)
            .case_insensitive(ignore_case)
            .build()
            .parse(pattern)
            .unwrap()
    }

    fn shown(query: &TrigramQuery) -> String {
        let list = |parts: &[TrigramQuery], by: &str| {
            let parts: Vec<String> = parts.iter().map(shown).collect();
            format!("({})", parts.join(by))
        };
        match query {
            TrigramQuery::All => "all".into(),
            TrigramQuery::None => "none".into(),
            TrigramQuery::Trigram(three) => {
                String::from_utf8_lossy(&three.to_be_bytes()[1..]).into_owned()
            }
            TrigramQuery::And(parts) => list(parts, "&"),
            TrigramQuery::Or(parts) => list(parts, "|"),
        }
    }

    fn holds(query: &TrigramQuery, trigrams: &[u32]) -> bool {
        match query {
            TrigramQuery::All => true,
            TrigramQuery::None => false,
            TrigramQuery::Trigram(one) => trigrams.contains(one),
            TrigramQuery::And(parts) => parts.iter().all(|part| holds(part, trigrams)),
            TrigramQuery::Or(parts) => parts.iter().any(|part| holds(part, trigrams)),
        }
    }

    #[test]
    fn conditions_of_patterns() {
        for (pattern, expected) in [
            ("abcd", "(abc&bcd)"),
            ("ABCD", "(abc&bcd)"),
            ("ab", "all"),
            ("abc|xyz", "(abc|xyz)"),
            ("ab[cd]e", "((abc&bce)|(abd&bde))"),
            ("abc.*xyz", "(abc&xyz)"),
            ("(abc)+", "abc"),
            ("(?:ab){2}", "(aba&bab)"),
            ("x(?:ab)?yz", "(xyz|(aby&byz&xab))"),
            ("(abc)?", "all"),
            ("abc*", "all"),
            ("abcd*e", "abc"),
            ("^abc$", "abc"),
            (r"\babc\b", "abc"),
            ("a+bc", "abc"),
            ("a.b", "all"),
            (r"\w+_\w+", "all"),
            ("[^a]", "all"),
            ("ä", "all"),
            ("€", "€"),
        ] {
            assert_eq!(
                shown(&TrigramQuery::of(&parse(pattern, false))),
                expected,
                "{pattern}"
            );
        }
        // The Kelvin sign is a k when case does not matter.
        let kelvin = TrigramQuery::of(&parse("kit", true));
        let mut extractor = TrigramExtractor::default();
        for (text, expected) in [("KIT", true), ("\u{212a}it", true), ("kat", false)] {
            assert_eq!(
                holds(&kelvin, extractor.of(text.as_bytes())),
                expected,
                "{text}"
            );
        }
        let spaced = shown(&TrigramQuery::of(&parse(r"\bfn\s+\w+_\w+\(", false)));
        assert!(
            spaced.contains("fn ") && spaced.contains("fn\t"),
            "{spaced}"
        );
        assert!(!spaced.contains('\n'), "{spaced}");
    }

    #[test]
    fn large_patterns_stay_small() {
        let words: Vec<String> = (0..5000).map(|number| format!("word{number}")).collect();
        for pattern in [
            words.join("|"),
            "[a-z]{50}".to_owned(),
            "(?:abc|def|ghi|jkl){40}".to_owned(),
            "a".repeat(3000),
            "(?:a|b|c)?".repeat(60),
        ] {
            let query = TrigramQuery::of(&parse(&pattern, true));
            assert!(query.trigrams() <= MAX_CONDITION_TRIGRAMS);
        }
        let long: String = (0..100_000).map(|number| format!("{number},")).collect();
        let query = TrigramQuery::of(&parse(&long, false));
        assert!(query != TrigramQuery::All && query.trigrams() < MAX_TEXT_BYTES);
    }

    /// Patterns over few letters, so that texts over the same letters match often.
    fn pattern() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            "[abkS ]{1,4}",
            Just(".".to_owned()),
            Just("[ab]".to_owned()),
            Just("[^a]".to_owned()),
            Just(r"\s".to_owned()),
            Just(r"\b".to_owned()),
            Just("^".to_owned()),
            Just("$".to_owned()),
            Just("(?i:ks)".to_owned()),
            Just("é".to_owned()),
            Just(r"(?-u:\xff)".to_owned()),
            Just(r"\w".to_owned()),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 1..4).prop_map(|parts| parts.concat()),
                proptest::collection::vec(inner.clone(), 2..4)
                    .prop_map(|parts| format!("(?:{})", parts.join("|"))),
                (inner, "[*+?]|\\{2\\}|\\{1,3\\}|\\{2,\\}|\\{0,2\\}")
                    .prop_map(|(part, times)| format!("(?:{part}){times}")),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn a_line_that_matches_meets_the_condition(
            pattern in pattern(),
            ignore_case: bool,
            line in proptest::collection::vec(
                prop_oneof![Just("a"), Just("b"), Just("K"), Just("k"), Just("S"), Just("s"), Just("\u{17f}"),
                    Just("\u{212a}"), Just(" "), Just("\t"), Just("é"), Just("É")], 0..12),
            raw: bool,
        ) {
            let hir = parse(&pattern, ignore_case);
            let query = TrigramQuery::of(&hir);
            let mut text = line.concat().into_bytes();
            if raw {
                text.push(0xff);
            }
            let regex = regex::bytes::RegexBuilder::new(&pattern)
                .multi_line(true)
                .case_insensitive(ignore_case)
                .build()
                .unwrap();
            if regex.is_match(&text) {
                let mut extractor = TrigramExtractor::default();
                prop_assert!(holds(&query, extractor.of(&text)), "{pattern} on {text:?}: {}", shown(&query));
            }
        }
    }
}
