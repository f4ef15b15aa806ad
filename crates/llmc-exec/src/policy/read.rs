//! From TOML to rules. Every error names file, line and key.

use std::collections::BTreeMap;

use toml_edit::{Document, Item, TableLike};

use super::rule::{Exclude, Kind, Operands, Rule, Style, Takes};

/// A file of rules, read.
#[derive(Debug, Default)]
pub(super) struct File {
    pub(super) allow: Vec<Written>,
    pub(super) deny: Vec<Deny>,
}

/// A rule with its examples.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) rule: Rule,
    pub(super) examples: Examples,
}

/// What a rule must let through and what not; it is tried at start.
#[derive(Debug)]
pub(super) struct Examples {
    /// Where the rule stands, for messages.
    pub(super) place: String,
    pub(super) matching: Vec<Vec<String>>,
    pub(super) not_matching: Vec<Vec<String>>,
}

/// What is forbidden whatever else allows it.
#[derive(Debug)]
pub(super) struct Deny {
    pub(super) program: String,
    pub(super) subcommand: Option<String>,
    /// Words that are forbidden; without any, the whole program or subcommand is.
    pub(super) words: Vec<String>,
    pub(super) examples: Examples,
}

/// Keys of a rule.
pub(super) const KEYS: [&str; 17] = [
    "program",
    "subcommand",
    "deny",
    "style",
    "use",
    "flags",
    "refused",
    "operands",
    "pattern_flags",
    "require",
    "first",
    "first_unless",
    "default_operand",
    "for_directories",
    "exclude",
    "match",
    "no_match",
];

/// Reads rules; `file` is the name in messages.
///
/// # Errors
/// One line per fault.
pub(super) fn read(file: &str, text: &str) -> Result<File, String> {
    let source = Source { file, text };
    let document = Document::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        format!("{}: {}", source.place(at), first_line(error.message()))
    })?;
    let mut shared = BTreeMap::new();
    let mut out = File::default();
    for (name, item) in document.as_table().iter() {
        match (name, item) {
            ("flags", item) => {
                for (name, item) in source.table("flags", item)?.iter() {
                    shared.insert(
                        name.to_owned(),
                        source.flags(&format!("flags.{name}"), item)?,
                    );
                }
            }
            ("rule", Item::ArrayOfTables(tables)) => {
                for table in tables {
                    let at = table.span().map_or(0, |span| span.start);
                    source.rule(table, at, &shared, &mut out)?;
                }
            }
            (name, item) => {
                return source.fault(name, item, "unknown; a policy is a list of [[rule]] tables");
            }
        }
    }
    Ok(out)
}

/// The text being read.
struct Source<'a> {
    file: &'a str,
    text: &'a str,
}

impl Source<'_> {
    fn rule(
        &self,
        table: &dyn TableLike,
        at: usize,
        shared: &BTreeMap<String, BTreeMap<String, Takes>>,
        out: &mut File,
    ) -> Result<(), String> {
        let place = self.place(at);
        for (key, item) in table.iter() {
            if !KEYS.contains(&key) {
                let known = KEYS.join(", ");
                return self.fault(key, item, &format!("unknown; a rule has {known}"));
            }
        }
        let text = |key| self.text_of(table, key);
        let list = |key| self.list_of(table, key);
        let Some(program) = text("program")? else {
            return Err(format!("{place}: program: missing"));
        };
        if program.is_empty() || program.contains('/') {
            return Err(format!("{place}: program: a name without a path"));
        }
        let subcommand = text("subcommand")?;
        let examples = Examples {
            place: place.clone(),
            matching: self.examples(table, "match", &program)?,
            not_matching: self.examples(table, "no_match", &program)?,
        };
        if examples.matching.is_empty() {
            return Err(format!(
                "{place}: match: {program} has no examples; a rule shows what it means"
            ));
        }
        match table.get("deny").map(Item::as_bool) {
            Some(Some(true)) => {
                out.deny.push(Deny {
                    program,
                    subcommand,
                    words: list("flags")?,
                    examples,
                });
                return Ok(());
            }
            None | Some(Some(false)) => {}
            Some(None) => return Err(format!("{place}: deny: true or false")),
        }
        if examples.not_matching.is_empty() {
            return Err(format!(
                "{place}: no_match: {program} has no examples of what it refuses"
            ));
        }
        let style = match text("style")?.as_deref() {
            None | Some("getopt") => Style::Getopt,
            Some("no_dashes") => Style::NoDashes,
            Some("words") => Style::Words,
            Some("git") => Style::Git,
            Some(other) => {
                return Err(format!(
                    "{place}: style: {other:?} is none of getopt, no_dashes, words, git"
                ));
            }
        };
        let mut flags = BTreeMap::new();
        for name in list("use")? {
            let Some(known) = shared.get(&name) else {
                return Err(format!("{place}: use: there is no [flags.{name}]"));
            };
            flags.extend(known.clone());
        }
        if let Some(item) = table.get("flags") {
            flags.extend(self.flags("flags", item)?);
        }
        self.flag_names(&flags, style, &place)?;
        let exclude = text("exclude")?.map(|form| match form.as_str() {
            "always" => Exclude::Pathspec,
            "with_patch" => Exclude::PathspecWithPatch,
            _ => Exclude::Argument(form),
        });
        out.allow.push(Written {
            rule: Rule {
                program,
                subcommand,
                style,
                flags,
                refused: self.refused(table)?,
                operands: self.operands(table)?,
                pattern_flags: list("pattern_flags")?,
                require: list("require")?,
                first: list("first")?,
                first_unless: list("first_unless")?,
                default_operand: text("default_operand")?,
                for_directories: text("for_directories")?,
                exclude,
            },
            examples,
        });
        Ok(())
    }

    /// Refuses names that can never match: the operator would believe in a rule that has no effect.
    fn flag_names(
        &self,
        flags: &BTreeMap<String, Takes>,
        style: Style,
        place: &str,
    ) -> Result<(), String> {
        for name in flags.keys() {
            let known = match (style, name.strip_prefix("--"), name.strip_prefix('-')) {
                (Style::Words, ..) => true,
                (Style::Git, ..) if matches!(name.as_str(), "(" | ")") => true,
                (_, Some(long), _) => !long.is_empty() && !long.contains('='),
                (_, None, Some(short)) => short == "NUM" || short.chars().count() == 1,
                (_, None, None) => false,
            };
            if !known {
                return Err(format!(
                    "{place}: flags: {name:?} is no flag; write -x, --long or -NUM, or set style = \"words\""
                ));
            }
        }
        Ok(())
    }

    /// `{ "-n --lines" = "int", "--arg" = ["text", "text"] }`
    fn flags(&self, key: &str, item: &Item) -> Result<BTreeMap<String, Takes>, String> {
        let mut flags = BTreeMap::new();
        for (names, item) in self.table(key, item)?.iter() {
            let words = self.words(names, item)?;
            let kind = |word: &str| {
                kind(word).ok_or_else(|| {
                    let wrong = format!("{word:?} is no kind of value; known: {KINDS}");
                    self.said(names, item, &wrong)
                })
            };
            let takes = match words.as_slice() {
                [word] if word == "none" => Takes::Values(Vec::new()),
                [word] if word.starts_with('?') => Takes::Optional(kind(&word[1..])?),
                words => Takes::Values(
                    words
                        .iter()
                        .map(|word| kind(word))
                        .collect::<Result<_, _>>()?,
                ),
            };
            for name in names.split_ascii_whitespace() {
                flags.insert(name.to_owned(), takes.clone());
            }
        }
        Ok(flags)
    }

    /// `{ "starts another program" = ["--pre"] }`, turned round.
    fn refused(&self, table: &dyn TableLike) -> Result<BTreeMap<String, String>, String> {
        let mut refused = BTreeMap::new();
        if let Some(item) = table.get("refused") {
            for (why, item) in self.table("refused", item)?.iter() {
                for flag in self.words(why, item)? {
                    refused.insert(flag, why.to_owned());
                }
            }
        }
        Ok(refused)
    }

    /// `"path"` for any number of them, or `["pattern", "path*"]`.
    fn operands(&self, table: &dyn TableLike) -> Result<Operands, String> {
        let mut operands = Operands::default();
        let Some(item) = table.get("operands") else {
            return Ok(operands);
        };
        let words = self.words("operands", item)?;
        let any = item.is_str();
        let count = words.len();
        for (at, word) in words.iter().enumerate() {
            let (name, repeats) = match word.strip_suffix('*') {
                Some(name) => (name, true),
                None => (word.as_str(), any),
            };
            match (kind(name), repeats) {
                (None, _) => {
                    let wrong = format!("{word:?} is no kind of value; known: {KINDS}");
                    return self.fault("operands", item, &wrong);
                }
                (Some(kind), false) => operands.one_each.push(kind),
                (Some(kind), true) if at + 1 == count => operands.then_any = Some(kind),
                (Some(_), true) => {
                    return self.fault("operands", item, "only the last may have a *");
                }
            }
        }
        Ok(operands)
    }

    /// Command lines, each beginning with the program.
    fn examples(
        &self,
        table: &dyn TableLike,
        key: &str,
        program: &str,
    ) -> Result<Vec<Vec<String>>, String> {
        let Some(item) = table.get(key) else {
            return Ok(Vec::new());
        };
        let Some(lines) = item.as_array() else {
            return self.fault(key, item, "a list of command lines, each a list of words");
        };
        let mut out = Vec::new();
        for line in lines {
            let words = line.as_array().map(|line| {
                let words = line.iter().map(|word| word.as_str().map(str::to_owned));
                words.collect::<Option<Vec<String>>>()
            });
            match words {
                Some(Some(words)) if words.first().is_some_and(|word| word == program) => {
                    out.push(words);
                }
                _ => {
                    let wrong =
                        format!("each example is a list of words that begins with {program:?}");
                    return self.fault(key, item, &wrong);
                }
            }
        }
        Ok(out)
    }

    fn text_of(&self, table: &dyn TableLike, key: &str) -> Result<Option<String>, String> {
        match table.get(key) {
            None => Ok(None),
            Some(item) => match item.as_str() {
                Some(text) => Ok(Some(text.to_owned())),
                None => self.fault(key, item, "expected text"),
            },
        }
    }

    fn list_of(&self, table: &dyn TableLike, key: &str) -> Result<Vec<String>, String> {
        match table.get(key) {
            None => Ok(Vec::new()),
            Some(item) => self.words(key, item),
        }
    }

    /// One text or a list of them.
    fn words(&self, key: &str, item: &Item) -> Result<Vec<String>, String> {
        if let Some(text) = item.as_str() {
            return Ok(vec![text.to_owned()]);
        }
        let words = item.as_array().map(|list| {
            let words = list.iter().map(|word| word.as_str().map(str::to_owned));
            words.collect::<Option<Vec<String>>>()
        });
        match words {
            Some(Some(words)) => Ok(words),
            _ => self.fault(key, item, "expected text or a list of texts"),
        }
    }

    fn table<'t>(&self, key: &str, item: &'t Item) -> Result<&'t dyn TableLike, String> {
        match item.as_table_like() {
            Some(table) => Ok(table),
            None => self.fault(key, item, "expected a table"),
        }
    }

    fn fault<T>(&self, key: &str, item: &Item, what: &str) -> Result<T, String> {
        Err(self.said(key, item, what))
    }

    fn said(&self, key: &str, item: &Item, what: &str) -> String {
        let at = item.span().map_or(0, |span| span.start);
        format!("{}: {key}: {what}", self.place(at))
    }

    fn place(&self, at: usize) -> String {
        let before = &self.text.as_bytes()[..at.min(self.text.len())];
        let line = before.iter().filter(|b| **b == b'\n').count() + 1;
        format!("{}:{line}", self.file)
    }
}

/// What a value may be, as it is written.
const KINDS: &str = "none, text, pattern, glob, int, count, percent, path, entry, or words joined by |; a ? before it makes it optional";

fn kind(word: &str) -> Option<Kind> {
    Some(match word {
        "text" => Kind::Text,
        "pattern" => Kind::Pattern,
        "glob" => Kind::Glob,
        "int" => Kind::Int,
        "count" => Kind::Count,
        "percent" => Kind::Percent,
        "path" => Kind::Path,
        "entry" => Kind::Entry,
        "sed" => Kind::Sed,
        "rev" => Kind::Rev,
        "pathspec" => Kind::Pathspec,
        _ if word.contains('|') => Kind::Words(word.split('|').map(str::to_owned).collect()),
        _ => return None,
    })
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}
