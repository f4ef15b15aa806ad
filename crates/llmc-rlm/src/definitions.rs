//! The definitions in a source text, by the same syntax trees as the index.

use std::time::Duration;

use llmc_syntax::{Definition, Language, ParseBudget, find_definitions};
use serde_json::{Value, json};

use crate::text::SourceText;

/// A syntax tree takes many times the memory of its text.
const MAX_PARSED_BYTES: usize = 8 << 20;
const MAX_PARSE_TIME: Duration = Duration::from_secs(10);

/// Names of languages that are not their file extensions.
const LANGUAGE_NAMES: &[(&str, &str)] = &[
    ("rust", "rs"),
    ("python", "py"),
    ("javascript", "js"),
    ("typescript", "ts"),
    ("golang", "go"),
    ("c++", "cpp"),
    ("c#", "cs"),
    ("csharp", "cs"),
    ("ruby", "rb"),
    ("shell", "sh"),
];

/// The language of this name or file extension.
///
/// # Errors
/// A message that lists the languages.
pub fn parse_language(name: &str) -> Result<Language, String> {
    let lower = name.trim().to_ascii_lowercase();
    let known = LANGUAGE_NAMES.iter().find(|(name, _)| *name == lower);
    let extension = known.map_or(lower.as_str(), |(_, extension)| extension);
    Language::of_path(&format!("x.{extension}")).ok_or_else(|| {
        "no such language; there are rust, python, javascript, typescript, tsx, go, java, c, cpp, csharp, ruby, \
         php, bash"
            .to_owned()
    })
}

#[derive(Debug)]
pub(crate) struct DefinitionIndex {
    definitions: Vec<Definition>,
    /// The first byte of each line.
    lines: Vec<usize>,
}

impl DefinitionIndex {
    pub(crate) fn parse(
        text: &SourceText,
        language: Option<Language>,
    ) -> Result<DefinitionIndex, String> {
        let language = language
            .ok_or("this text is no source code of a known language; use context_search")?;
        if text.bytes() > MAX_PARSED_BYTES {
            return Err(format!(
                "the text is larger than the {} MiB that are parsed; use context_search, or rlm_query on a part",
                MAX_PARSED_BYTES >> 20
            ));
        }
        let mut effort = ParseBudget::new(MAX_PARSED_BYTES, MAX_PARSE_TIME);
        let definitions = find_definitions(language, text.as_str(), &mut effort)
            .map_err(|why| format!("the definitions are not known: {why}; use context_search"))?;
        let ends = memchr::memchr_iter(b'\n', text.as_str().as_bytes()).map(|at| at + 1);
        Ok(DefinitionIndex {
            definitions,
            lines: [0].into_iter().chain(ends).collect(),
        })
    }

    /// All definitions but fields and variants.
    pub(crate) fn list(&self, text: &SourceText, limit: usize) -> Value {
        self.rows(text, limit, |one| !one.kind.is_member_data())
    }

    /// Definitions of this name, with their text.
    pub(crate) fn named(&self, text: &SourceText, name: &str) -> Value {
        let last = name.rsplit(['.', ':']).next().unwrap_or(name);
        let named = self.definitions.iter().filter(|one| one.name == last);
        let rows = named.map(|one| {
            let mut row = self.row(text, one);
            let (from, to) = self.bounds(text, one);
            row["text"] = text.as_str()[from..to].into();
            row
        });
        rows.take(20).collect()
    }

    /// Definitions whose name or signature has all these words.
    pub(crate) fn matching(&self, text: &SourceText, words: &str, limit: usize) -> Value {
        let words: Vec<String> = words.split_whitespace().map(str::to_lowercase).collect();
        self.rows(text, limit, |one| {
            let searched = format!("{} {}", one.name, one.signature).to_lowercase();
            words.iter().all(|word| searched.contains(word.as_str()))
        })
    }

    fn rows(&self, text: &SourceText, limit: usize, wanted: impl Fn(&Definition) -> bool) -> Value {
        let found: Vec<&Definition> = self.definitions.iter().filter(|one| wanted(one)).collect();
        let rows: Vec<Value> = found
            .iter()
            .take(limit)
            .map(|one| self.row(text, one))
            .collect();
        json!({"total": found.len(), "definitions": rows})
    }

    fn row(&self, text: &SourceText, one: &Definition) -> Value {
        let (from, to) = self.bounds(text, one);
        json!({
            "name": one.name,
            "kind": format!("{:?}", one.kind).to_lowercase(),
            "signature": one.signature,
            "depth": one.depth,
            "line": one.line,
            "end_line": one.end_line,
            "start": text.char_at(from),
            "end": text.char_at(to),
        })
    }

    /// The bytes of a definition, in whole lines.
    fn bounds(&self, text: &SourceText, one: &Definition) -> (usize, usize) {
        let line = |number: u64| {
            let at = usize::try_from(number).unwrap_or(usize::MAX);
            self.lines.get(at).copied().unwrap_or(text.bytes())
        };
        let from = line(one.first_line.saturating_sub(1));
        (from, line(one.end_line).max(from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_are_found_and_placed() {
        let source = "# \u{e4}\ndef first(a):\n    return a\n\nclass Second:\n    def third(self):\n        pass\n";
        let text = SourceText::new(source.to_owned());
        let outline = DefinitionIndex::parse(&text, Some(Language::Python)).unwrap();
        let list = outline.list(&text, 10);
        assert_eq!(list["total"], 3);
        assert_eq!(list["definitions"][0]["name"], "first");
        assert_eq!(list["definitions"][0]["line"], 2);
        for row in list["definitions"].as_array().unwrap() {
            let part = text.part(row["start"].as_i64().unwrap(), row["end"].as_i64());
            assert!(
                part.as_str().contains(row["name"].as_str().unwrap()),
                "{row}"
            );
        }
        let named = outline.named(&text, "Second.third");
        assert_eq!(named[0]["text"], "    def third(self):\n        pass\n");
        assert_eq!(outline.matching(&text, "THIRD self", 10)["total"], 1);
        assert_eq!(outline.matching(&text, "nothing", 10)["total"], 0);
    }

    #[test]
    fn languages_go_by_name_and_extension() {
        for (name, expect) in [
            ("python", Language::Python),
            ("Rust", Language::Rust),
            ("rs", Language::Rust),
            ("c++", Language::Cpp),
            ("tsx", Language::Tsx),
        ] {
            assert_eq!(parse_language(name), Ok(expect), "{name}");
        }
        assert!(parse_language("cobol").is_err() && parse_language("").is_err());
        assert!(DefinitionIndex::parse(&SourceText::new("x".into()), None).is_err());
    }
}
