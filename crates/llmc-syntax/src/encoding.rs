//! An analysis as bytes, for the way from a worker to the server.
//!
//! A name is sent as its place in the source, which both sides have. The receiving side trusts nothing: lines lie in the
//! source and in order, names are parts of the source, and all counts and lengths are bounded, so that a parser that was
//! taken over by its input can lie about that input but do no more.

use crate::definitions::{Definition, DefinitionKind, MAX_DEFINITIONS, MAX_SIGNATURE_CHARS};
use crate::references::{MAX_NAME_BYTES, MAX_REFERENCES, Reference, ReferenceKind};
use crate::scopes::{
    Binding, BindingKind, FileScopes, MAX_BINDINGS, MAX_CHAIN_BYTES, MAX_RECEIVERS, MAX_SCOPES,
    MAX_TYPE_NAMES, Receiver, Scope, ScopeKind,
};
use crate::{Language, ParseGoal, SyntaxAnalysis};

/// The longest encoded analysis.
pub const MAX_ANALYSIS_BYTES: usize = 32 << 20;

/// With four bytes for a character, and the mark of an omission.
const MAX_SIGNATURE_BYTES: usize = 4 * MAX_SIGNATURE_CHARS + 4;

const DEFINITION_KINDS: [DefinitionKind; 14] = [
    DefinitionKind::Function,
    DefinitionKind::Class,
    DefinitionKind::Struct,
    DefinitionKind::Enum,
    DefinitionKind::Interface,
    DefinitionKind::Type,
    DefinitionKind::Module,
    DefinitionKind::Constant,
    DefinitionKind::Variable,
    DefinitionKind::Field,
    DefinitionKind::Variant,
    DefinitionKind::Macro,
    DefinitionKind::Impl,
    DefinitionKind::Declaration,
];

const REFERENCE_KINDS: [ReferenceKind; 4] = [
    ReferenceKind::Call,
    ReferenceKind::Import,
    ReferenceKind::Inherit,
    ReferenceKind::Mention,
];

const SCOPE_KINDS: [ScopeKind; 5] = [
    ScopeKind::Module,
    ScopeKind::Members,
    ScopeKind::Namespace,
    ScopeKind::Function,
    ScopeKind::Block,
];

const BINDING_KINDS: [BindingKind; 10] = [
    BindingKind::Import,
    BindingKind::ImportAll,
    BindingKind::Export,
    BindingKind::Function,
    BindingKind::Property,
    BindingKind::Class,
    BindingKind::Impl,
    BindingKind::Parameter,
    BindingKind::Variable,
    BindingKind::Field,
];

impl ParseGoal {
    pub fn number(self) -> u8 {
        self as u8
    }

    pub fn from_number(number: u8) -> Option<ParseGoal> {
        [
            ParseGoal::Definitions,
            ParseGoal::References,
            ParseGoal::Scopes,
        ]
        .get(usize::from(number))
        .copied()
    }
}

impl Language {
    pub fn number(self) -> u8 {
        self as u8
    }

    pub fn from_number(number: u8) -> Option<Language> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

impl SyntaxAnalysis {
    /// Appends this analysis to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put(out, self.definitions.len() as u64);
        for found in &self.definitions {
            out.push(found.kind as u8);
            put(out, found.name_start as u64);
            put(out, found.name.len() as u64);
            put(out, found.line);
            put(out, found.first_line);
            put(out, found.end_line);
            put(out, found.body_line.unwrap_or(0));
            put(out, found.depth as u64);
            put(out, found.signature.len() as u64);
            out.extend_from_slice(found.signature.as_bytes());
        }
        put(out, self.references.len() as u64);
        for found in &self.references {
            out.push(found.kind as u8);
            put(out, found.start as u64);
            put(out, found.name.len() as u64);
            put(out, found.line);
        }
        self.scopes.encode(out);
    }

    /// The analysis of `source` in these bytes; `None` if it cannot be one.
    pub fn decode(bytes: &[u8], source: &str) -> Option<SyntaxAnalysis> {
        let lines = memchr::memchr_iter(b'\n', source.as_bytes()).count() as u64 + 1;
        let mut bytes = Bytes(bytes);
        // The names of definitions lie beside each other in an honest answer.
        let mut name_room = source.len().saturating_mul(2);
        let mut max_depth = 0;
        let count = bytes.count(MAX_DEFINITIONS)?;
        // Each takes several bytes, so an answer cannot announce more than it has.
        let mut definitions = Vec::with_capacity(count.min(bytes.0.len()));
        for _ in 0..count {
            let kind = bytes.pick(&DEFINITION_KINDS)?;
            let (name_start, name) = bytes.name(source)?;
            name_room = name_room.checked_sub(name.len())?;
            let (line, first_line, end_line) = (bytes.number()?, bytes.number()?, bytes.number()?);
            if first_line == 0 || first_line > line || line > end_line || end_line > lines {
                return None;
            }
            let body_line = bytes.number()?;
            let depth = bytes.count(max_depth)?;
            max_depth = depth + 1;
            let length = bytes.count(MAX_SIGNATURE_BYTES)?;
            let signature = std::str::from_utf8(bytes.take(length)?).ok()?;
            definitions.push(Definition {
                name: name.to_owned(),
                kind,
                line,
                first_line,
                end_line,
                body_line: (body_line > 0).then(|| body_line.clamp(first_line, end_line)),
                signature: signature.to_owned(),
                name_start,
                depth,
            });
        }
        let count = bytes.count(MAX_REFERENCES)?;
        let mut references = Vec::with_capacity(count.min(bytes.0.len()));
        for _ in 0..count {
            let kind = bytes.pick(&REFERENCE_KINDS)?;
            let (start, name) = bytes.name(source)?;
            let line = bytes.number()?;
            if name.len() > MAX_NAME_BYTES || line == 0 || line > lines {
                return None;
            }
            references.push(Reference {
                name: name.to_owned(),
                kind,
                line,
                start,
            });
        }
        let scopes = FileScopes::decode(&mut bytes, source)?;
        bytes.0.is_empty().then_some(SyntaxAnalysis {
            definitions,
            references,
            scopes,
        })
    }
}

impl FileScopes {
    fn encode(&self, out: &mut Vec<u8>) {
        put(out, self.scopes.len() as u64);
        for one in &self.scopes {
            out.push(one.kind as u8);
            put(out, one.parent as u64);
            put(out, one.start as u64);
            put(out, one.end as u64);
        }
        put(out, self.bindings.len() as u64);
        for one in &self.bindings {
            out.push(one.kind as u8);
            put(out, one.scope as u64);
            put(out, one.context as u64);
            put(out, one.start as u64);
            put(out, one.inner.map_or(0, |inner| inner as u64 + 1));
            put_text(out, &one.name);
            put_text(out, &one.chain);
        }
        put(out, self.receivers.len() as u64);
        for one in &self.receivers {
            put(out, one.start as u64);
            put_text(out, &one.chain);
        }
        put(out, self.type_names.len() as u64);
        for start in &self.type_names {
            put(out, *start as u64);
        }
    }

    fn decode(bytes: &mut Bytes<'_>, source: &str) -> Option<FileScopes> {
        let mut found = FileScopes::default();
        for place in 0..bytes.count(MAX_SCOPES)? {
            let kind = bytes.pick(&SCOPE_KINDS)?;
            // Every other scope lies in an earlier one, so the way up ends at the module.
            if (kind == ScopeKind::Module) != (place == 0) {
                return None;
            }
            found.scopes.push(Scope {
                kind,
                parent: bytes.count(place.saturating_sub(1))?,
                start: bytes.count(source.len())?,
                end: bytes.count(source.len())?,
            });
        }
        let last = found.scopes.len().checked_sub(1);
        for _ in 0..bytes.count(MAX_BINDINGS)? {
            let kind = bytes.pick(&BINDING_KINDS)?;
            let (scope, context) = (bytes.count(last?)?, bytes.count(last?)?);
            let start = bytes.count(source.len())?;
            let inner = bytes.count(last? + 1)?.checked_sub(1);
            found.bindings.push(Binding {
                scope,
                context,
                name: bytes.text(MAX_NAME_BYTES)?,
                start,
                kind,
                chain: bytes.text(MAX_CHAIN_BYTES)?,
                inner,
            });
        }
        let mut before = 0;
        for _ in 0..bytes.count(MAX_RECEIVERS)? {
            let start = bytes.count(source.len())?;
            if start < before {
                return None;
            }
            before = start;
            found.receivers.push(Receiver {
                start,
                chain: bytes.text(MAX_CHAIN_BYTES)?,
            });
        }
        for _ in 0..bytes.count(MAX_TYPE_NAMES)? {
            let start = bytes.count(source.len())?;
            if found.type_names.last().is_some_and(|last| start < *last) {
                return None;
            }
            found.type_names.push(start);
        }
        Some(found)
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// Seven bits in each byte, the lowest first.
fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// What is left to read.
struct Bytes<'b>(&'b [u8]);

impl<'b> Bytes<'b> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn take(&mut self, length: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..63).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    /// A number that is at most `max`.
    fn count(&mut self, max: usize) -> Option<usize> {
        let number = usize::try_from(self.number()?).ok()?;
        (number <= max).then_some(number)
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        all.get(usize::from(self.byte()?)).copied()
    }

    fn text(&mut self, max: usize) -> Option<String> {
        let length = self.count(max)?;
        let text = std::str::from_utf8(self.take(length)?).ok()?;
        Some(text.to_owned())
    }

    fn name<'s>(&mut self, source: &'s str) -> Option<(usize, &'s str)> {
        let start = self.count(source.len())?;
        let length = self.count(source.len() - start)?;
        let name = source.get(start..start + length)?;
        (!name.is_empty()).then_some((start, name))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{ParseBudget, analyze, find_scopes};

    fn sample() -> (&'static str, SyntaxAnalysis) {
        let source = "mod é {\n    pub struct Pool;\n    impl Pool {\n        fn take(&self) -> Conn { open(1) }\n    }\n}\n";
        let mut budget = ParseBudget::default();
        let mut found = analyze(Language::Rust, source, &mut budget).expect("parsed");
        found.scopes = find_scopes(Language::Rust, source, &mut budget).expect("parsed");
        assert!(found.scopes.bindings.len() >= 4);
        assert!(found.definitions.len() >= 4 && found.references.len() >= 2);
        (source, found)
    }

    #[test]
    fn an_analysis_arrives_as_it_was_sent() {
        let (source, sent) = sample();
        let mut bytes = Vec::new();
        sent.encode(&mut bytes);
        let got = SyntaxAnalysis::decode(&bytes, source).expect("decoded");
        assert_eq!(got.definitions, sent.definitions);
        assert_eq!(got.references, sent.references);
        assert_eq!(got.scopes, sent.scopes);
        for cut in 0..bytes.len() {
            assert!(SyntaxAnalysis::decode(&bytes[..cut], source).is_none());
        }
        // Another source has no such places.
        assert!(SyntaxAnalysis::decode(&bytes, "short").is_none());
    }

    #[test]
    fn numbers_of_kinds_and_languages_are_their_own() {
        for (number, kind) in DEFINITION_KINDS.iter().enumerate() {
            assert_eq!(*kind as usize, number);
        }
        for (number, kind) in REFERENCE_KINDS.iter().enumerate() {
            assert_eq!(*kind as usize, number);
        }
        for language in Language::ALL {
            assert_eq!(Language::from_number(language.number()), Some(language));
        }
        for (number, kind) in SCOPE_KINDS.iter().enumerate() {
            assert_eq!(*kind as usize, number);
        }
        for (number, kind) in BINDING_KINDS.iter().enumerate() {
            assert_eq!(*kind as usize, number);
        }
        for goal in [
            ParseGoal::Definitions,
            ParseGoal::References,
            ParseGoal::Scopes,
        ] {
            assert_eq!(ParseGoal::from_number(goal.number()), Some(goal));
        }
        assert_eq!(Language::from_number(200), None);
    }

    #[test]
    fn announcements_reserve_no_memory() {
        let mut bytes = Vec::new();
        put(&mut bytes, MAX_DEFINITIONS as u64);
        assert!(SyntaxAnalysis::decode(&bytes, "fn a() {}").is_none());
        let mut bytes = vec![0];
        put(&mut bytes, u64::MAX >> 1);
        assert!(SyntaxAnalysis::decode(&bytes, "fn a() {}").is_none());
    }

    proptest! {
        #[test]
        fn hostile_answers_stay_within_the_source(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
            let (source, sent) = sample();
            let mut bytes = Vec::new();
            sent.encode(&mut bytes);
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if let Some(found) = SyntaxAnalysis::decode(&bytes, source) {
                let lines = source.lines().count() as u64 + 1;
                for one in &found.definitions {
                    prop_assert!(1 <= one.first_line && one.first_line <= one.line);
                    prop_assert!(one.line <= one.end_line && one.end_line <= lines);
                    prop_assert!(source[one.name_start..].starts_with(&one.name));
                }
                for (place, one) in found.scopes.scopes.iter().enumerate() {
                    prop_assert!(one.parent < place || place == 0 && one.kind == ScopeKind::Module);
                }
                for one in &found.scopes.bindings {
                    prop_assert!(one.scope < found.scopes.scopes.len());
                    prop_assert!(one.context < found.scopes.scopes.len());
                    prop_assert!(one.inner.is_none_or(|inner| inner < found.scopes.scopes.len()));
                }
                for one in &found.references {
                    prop_assert!(1 <= one.line && one.line <= lines);
                    prop_assert!(source[one.start..].starts_with(&one.name));
                }
            }
        }

        #[test]
        fn random_bytes_are_no_answer_of_any_size(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            if let Some(found) = SyntaxAnalysis::decode(&bytes, "let a = bc;\n") {
                prop_assert!(found.definitions.len() + found.references.len() <= bytes.len());
            }
        }
    }
}
