//! Which arguments one program may be given, and the check of a command line against it.
//!
//! A rule is a list of what is known to be harmless, so everything else is refused: unknown flags, abbreviated ones,
//! unknown letters in a cluster. What passes is put back together with `--` before the operands, so that the program
//! cannot read one of them as a flag.

use std::collections::BTreeMap;

use super::places::{Places, Touch};
use super::sed;

/// The most arguments a checked command may have.
const MAX_ARGUMENTS: usize = 1000;
/// The longest pattern, format or glob.
const MAX_TEXT: usize = 8192;
/// The largest count.
const MAX_INT: u64 = 1_000_000_000;
/// How much of a list of flags a refusal shows.
const SHOWN_FLAGS: usize = 400;

/// How a program reads its command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// Short flags that can be joined, long ones with `=`, `--` before operands.
    Getopt,
    /// The same, but nothing after `--` means anything special to the program, so operands must not look like flags.
    NoDashes,
    /// Every word stands for itself and order matters, as in `find`.
    Words,
    /// As getopt, but what comes after `--` is paths.
    Git,
}

/// What a value may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Pattern,
    Glob,
    Int,
    /// A number with a sign and perhaps a unit.
    Count,
    Percent,
    /// A file or directory whose content is read.
    Path,
    /// Something that is only looked at, links and special files included.
    Entry,
    /// A script for `sed -n` that only prints.
    Sed,
    /// A revision, or a path where git takes either.
    Rev,
    /// A path for git, with its own wildcards.
    Pathspec,
    /// One of these words.
    Words(Vec<String>),
}

/// What follows a flag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Takes {
    Values(Vec<Kind>),
    /// A value in the same word, or none.
    Optional(Kind),
}

/// Words that are no flags.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Operands {
    pub(super) one_each: Vec<Kind>,
    pub(super) then_any: Option<Kind>,
}

/// When denylisted names are taken out of what a program searches by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Exclude {
    /// By this argument, with `{}` for the name.
    Argument(String),
    /// By git's pathspecs.
    Pathspec,
    /// By git's pathspecs, where content is shown.
    PathspecWithPatch,
}

/// What one program, or one of its subcommands, may be given.
#[derive(Debug, Clone)]
pub(super) struct Rule {
    pub(super) program: String,
    pub(super) subcommand: Option<String>,
    pub(super) style: Style,
    pub(super) flags: BTreeMap<String, Takes>,
    pub(super) refused: BTreeMap<String, String>,
    pub(super) operands: Operands,
    /// Flags that stand in for the first operand.
    pub(super) pattern_flags: Vec<String>,
    /// One of these must be given.
    pub(super) require: Vec<String>,
    /// Arguments that always come first.
    pub(super) first: Vec<String>,
    /// Flags that cannot stand beside them.
    pub(super) first_unless: Vec<String>,
    /// Taken where no operand is given.
    pub(super) default_operand: Option<String>,
    /// Added where an operand is a directory.
    pub(super) for_directories: Option<String>,
    pub(super) exclude: Option<Exclude>,
}

/// Why a command line is not allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    /// The word at fault.
    pub(super) word: String,
    pub(super) why: String,
    pub(super) hint: String,
}

/// A command line cut into its parts.
#[derive(Debug, Default)]
struct Parts {
    options: Vec<String>,
    operands: Vec<String>,
    /// What came after `--`, for git.
    paths: Option<Vec<String>>,
    seen: Vec<String>,
}

impl Rule {
    /// Checks the arguments after the program's name (and its subcommand), and returns those to be used.
    pub(super) fn check(
        &self,
        args: &[String],
        places: &Places<'_>,
        denied: &[String],
    ) -> Result<Vec<String>, Refusal> {
        if args.len() > MAX_ARGUMENTS {
            return Err(self.refuse(
                &format!("{} arguments", args.len()),
                format!("at most {MAX_ARGUMENTS} are checked"),
            ));
        }
        let mut parts = match self.style {
            Style::Words => self.words(args, places)?,
            _ => self.getopt(args, places)?,
        };
        if !self.require.is_empty() && !self.require.iter().any(|flag| parts.seen.contains(flag)) {
            return Err(self.refuse(
                self.require.first().map_or("", String::as_str),
                "must be given".to_owned(),
            ));
        }
        self.check_operands(&parts, places)?;
        if let (Some(flag), true) = (
            &self.for_directories,
            parts.operands.iter().any(|word| places.is_dir(word)),
        ) {
            parts.options.push(flag.clone());
        }
        Ok(self.assemble(parts, denied))
    }

    fn assemble(&self, parts: Parts, denied: &[String]) -> Vec<String> {
        let mut out = Vec::new();
        if !self
            .first_unless
            .iter()
            .any(|flag| parts.seen.contains(flag))
        {
            out.extend(self.first.iter().cloned());
        }
        let patch = || {
            let shows = ["-p", "-u", "--patch", "-L", "-U", "--unified", "-W", "-c"];
            let more = ["--cc", "--word-diff", "--color-words", "-m", "-G", "-S"];
            let mut shows = shows.iter().chain(&more);
            shows.any(|flag| parts.seen.iter().any(|seen| seen == flag))
        };
        out.extend(parts.options.iter().cloned());
        let mut pathspecs = Vec::new();
        match &self.exclude {
            Some(Exclude::Argument(form)) => {
                // Last, for in programs that have both the last of contradicting globs wins.
                out.extend(
                    denied
                        .iter()
                        .map(|glob| form.replace("{}", &any_case(glob))),
                );
            }
            Some(Exclude::PathspecWithPatch) if !patch() => {}
            Some(_) => {
                let spec = |glob: &String| format!(":(top,exclude,icase,glob)**/{glob}");
                pathspecs.extend(denied.iter().map(spec));
            }
            None => {}
        }
        let mut operands = parts.operands;
        if operands.is_empty() {
            operands.extend(self.default_operand.clone());
        }
        if self.style == Style::Getopt && !operands.is_empty() {
            out.push("--".to_owned());
        }
        out.extend(operands);
        if let Some(paths) = parts.paths {
            out.push("--".to_owned());
            out.extend(paths);
        }
        out.extend(pathspecs);
        out
    }

    /// `find` and its like: flags stand anywhere, and nothing is joined.
    fn words(&self, args: &[String], places: &Places<'_>) -> Result<Parts, Refusal> {
        let mut parts = Parts::default();
        let mut rest = args.iter();
        while let Some(word) = rest.next() {
            parts.options.push(word.clone());
            match self.flags.get(word) {
                Some(Takes::Values(kinds)) => {
                    for kind in kinds {
                        let value = self.next_value(word, &mut rest)?;
                        // Refused, so that the check does not depend on which flags take values.
                        if self.refused.contains_key(&value) {
                            return Err(self.unknown(&value));
                        }
                        self.value(kind, &value, word, places)?;
                        parts.options.push(value);
                    }
                    parts.seen.push(word.clone());
                }
                Some(Takes::Optional(_)) => parts.seen.push(word.clone()),
                None if word.starts_with('-') || self.refused.contains_key(word) => {
                    return Err(self.unknown(word));
                }
                None => match &self.operands.then_any {
                    Some(kind) => self.value(kind, word, word, places)?,
                    None => return Err(self.refuse(word, "takes no operands".to_owned())),
                },
            }
        }
        Ok(parts)
    }

    fn getopt(&self, args: &[String], places: &Places<'_>) -> Result<Parts, Refusal> {
        let mut parts = Parts::default();
        let mut rest = args.iter();
        while let Some(word) = rest.next() {
            if word == "--" {
                let more = rest.by_ref().cloned();
                match self.style {
                    Style::Git => parts.paths = Some(more.collect()),
                    _ => parts.operands.extend(more),
                }
            } else if self.style == Style::Git && matches!(word.as_str(), "(" | ")") {
                if !self.flags.contains_key(word) {
                    return Err(self.unknown(word));
                }
                parts.options.push(word.clone());
            } else if let Some(long) = word.strip_prefix("--") {
                let (name, glued) = match long.split_once('=') {
                    Some((name, value)) => (format!("--{name}"), Some(value.to_owned())),
                    None => (word.clone(), None),
                };
                let values = self.flag(&name, glued, &mut rest, places)?;
                parts.options.extend(self.joined(word, "=", values));
                parts.seen.push(name);
            } else if word.len() > 1 && word.starts_with('-') {
                let more = self.cluster(word, &mut rest, places, &mut parts.seen)?;
                parts.options.extend(self.joined(word, "", more));
            } else {
                parts.operands.push(word.clone());
            }
        }
        if self.style == Style::NoDashes
            && let Some(word) = parts.operands.iter().find(|word| word.starts_with('-'))
        {
            return Err(self.refuse(
                word,
                "looks like a flag, and this program has no way to say that it is none".to_owned(),
            ));
        }
        Ok(parts)
    }

    /// A flag and its values. A value that looks like a flag is joined to its own, so that the program cannot take it for
    /// one, not even where a rule is mistaken about it.
    fn joined(&self, word: &str, by: &str, values: Vec<String>) -> Vec<String> {
        match values.as_slice() {
            [value] if value.starts_with('-') && self.style != Style::NoDashes => {
                vec![format!("{word}{by}{value}")]
            }
            _ => [vec![word.to_owned()], values].concat(),
        }
    }

    /// One word of short flags; returns values that stood in words of their own.
    fn cluster<'a>(
        &self,
        word: &str,
        rest: &mut impl Iterator<Item = &'a String>,
        places: &Places<'_>,
        seen: &mut Vec<String>,
    ) -> Result<Vec<String>, Refusal> {
        let letters = &word[1..];
        if letters.bytes().all(|b| b.is_ascii_digit()) && self.flags.contains_key("-NUM") {
            self.value(&Kind::Int, letters, word, places)?;
            seen.push("-NUM".to_owned());
            return Ok(Vec::new());
        }
        for (at, letter) in letters.char_indices() {
            let name = format!("-{letter}");
            let after = &letters[at + letter.len_utf8()..];
            match self.flags.get(&name) {
                None => return Err(self.unknown(&name)),
                Some(Takes::Values(kinds)) if kinds.is_empty() => seen.push(name),
                Some(_) => {
                    let glued = (!after.is_empty()).then(|| after.to_owned());
                    let values = self.flag(&name, glued, rest, places)?;
                    seen.push(name);
                    return Ok(values);
                }
            }
        }
        Ok(Vec::new())
    }

    /// Checks a flag's values; returns those that stood in words of their own.
    fn flag<'a>(
        &self,
        name: &str,
        glued: Option<String>,
        rest: &mut impl Iterator<Item = &'a String>,
        places: &Places<'_>,
    ) -> Result<Vec<String>, Refusal> {
        match (self.flags.get(name), glued) {
            (None, _) => Err(self.unknown(name)),
            (Some(Takes::Optional(_)), None) => Ok(Vec::new()),
            (Some(Takes::Optional(kind)), Some(value)) => {
                self.value(kind, &value, name, places)?;
                Ok(Vec::new())
            }
            (Some(Takes::Values(kinds)), Some(value)) => match kinds.as_slice() {
                [kind] => {
                    self.value(kind, &value, name, places)?;
                    Ok(Vec::new())
                }
                [] => Err(self.refuse(name, "takes no value".to_owned())),
                _ => Err(self.refuse(name, "takes its values as words of their own".to_owned())),
            },
            (Some(Takes::Values(kinds)), None) => {
                let mut values = Vec::new();
                for kind in kinds {
                    let value = self.next_value(name, rest)?;
                    self.value(kind, &value, name, places)?;
                    values.push(value);
                }
                Ok(values)
            }
        }
    }

    fn next_value<'a>(
        &self,
        name: &str,
        rest: &mut impl Iterator<Item = &'a String>,
    ) -> Result<String, Refusal> {
        rest.next()
            .cloned()
            .ok_or_else(|| self.refuse(name, "needs a value".to_owned()))
    }

    fn check_operands(&self, parts: &Parts, places: &Places<'_>) -> Result<(), Refusal> {
        let replaced = self
            .pattern_flags
            .iter()
            .any(|flag| parts.seen.contains(flag));
        let mut kinds = self.operands.one_each.as_slice();
        if replaced {
            kinds = kinds.get(1..).unwrap_or_default();
        }
        if parts.operands.len() < kinds.len() {
            return Err(self.refuse(
                &self.name(),
                format!("needs {} words beside its flags", kinds.len()),
            ));
        }
        for (at, word) in parts.operands.iter().enumerate() {
            match kinds.get(at).or(self.operands.then_any.as_ref()) {
                Some(kind) => self.value(kind, word, word, places)?,
                None => return Err(self.refuse(word, "one word too many".to_owned())),
            }
        }
        for word in parts.paths.iter().flatten() {
            self.value(&Kind::Pathspec, word, word, places)?;
        }
        Ok(())
    }

    fn value(
        &self,
        kind: &Kind,
        value: &str,
        word: &str,
        places: &Places<'_>,
    ) -> Result<(), Refusal> {
        let no = |why: String| Err(self.refuse(word, why));
        if value.len() > MAX_TEXT {
            return no(format!("its value is longer than {MAX_TEXT} bytes"));
        }
        let refused = match kind {
            Kind::Text | Kind::Pattern | Kind::Glob => return Ok(()),
            Kind::Int => match value.parse::<u64>() {
                Ok(number) if number <= MAX_INT => return Ok(()),
                _ => format!("{value:?} is no number up to {MAX_INT}"),
            },
            Kind::Count => match is_count(value) {
                true => return Ok(()),
                false => format!("{value:?} is no count"),
            },
            Kind::Percent => match value.trim_end_matches('%').parse::<u32>() {
                Ok(_) => return Ok(()),
                Err(_) => format!("{value:?} is no percentage"),
            },
            Kind::Words(words) => match words.iter().any(|known| known == value) {
                true => return Ok(()),
                false => format!("{value:?} is none of {}", words.join(", ")),
            },
            Kind::Sed => match sed::prints_only(value) {
                Ok(()) => return Ok(()),
                Err(why) => why,
            },
            Kind::Path => match places.check(value, Touch::Content) {
                Ok(()) => return Ok(()),
                Err(why) => why,
            },
            Kind::Entry => match places.check(value, Touch::Entry) {
                Ok(()) => return Ok(()),
                Err(why) => why,
            },
            Kind::Rev | Kind::Pathspec => match places.check(value, Touch::Git) {
                Ok(()) => return Ok(()),
                Err(why) => why,
            },
        };
        if matches!(kind, Kind::Path | Kind::Entry | Kind::Rev | Kind::Pathspec) {
            return Err(Refusal {
                word: word.to_owned(),
                why: refused,
                hint: "name a file or directory of the workspace that commands may read".to_owned(),
            });
        }
        no(refused)
    }

    /// `git log`, or `rg`.
    pub(super) fn name(&self) -> String {
        match &self.subcommand {
            Some(subcommand) => format!("{} {subcommand}", self.program),
            None => self.program.clone(),
        }
    }

    fn unknown(&self, flag: &str) -> Refusal {
        let why = match self.refused.get(flag) {
            Some(why) => why.clone(),
            None => "not among the flags that are known to be harmless".to_owned(),
        };
        self.refuse(flag, why)
    }

    fn refuse(&self, word: &str, why: String) -> Refusal {
        let mut allowed = String::new();
        let mut left = 0;
        let mut flags: Vec<&String> = self.flags.keys().collect();
        flags.sort_by_key(|flag| (flag.len(), *flag));
        for flag in flags {
            if allowed.len() + flag.len() < SHOWN_FLAGS {
                allowed.extend([" ", flag])
            } else {
                left += 1
            }
        }
        let more = match left {
            0 => String::new(),
            left => format!(" and {left} more"),
        };
        Refusal {
            word: word.to_owned(),
            why,
            hint: match allowed.is_empty() {
                true => format!("{} takes no flags here", self.name()),
                false => format!("allowed for {}:{allowed}{more}", self.name()),
            },
        }
    }
}

/// `10`, `+5`, `-3`, `10k`.
fn is_count(value: &str) -> bool {
    let digits = value.strip_prefix(['+', '-']).unwrap_or(value);
    let digits = digits.strip_suffix(['k', 'K', 'M', 'b']).unwrap_or(digits);
    (1..=12).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit())
}

/// A case-insensitive glob, for programs without a flag for that.
fn any_case(glob: &str) -> String {
    let mut out = String::new();
    let mut class = false;
    for c in glob.chars() {
        match c {
            '[' => class = true,
            ']' => class = false,
            _ => {}
        }
        if c.is_ascii_alphabetic() && !class {
            out.extend(['[', c.to_ascii_lowercase(), c.to_ascii_uppercase(), ']'])
        } else {
            out.push(c)
        }
    }
    out
}
