//! Files as they are on disk. Every text in an answer comes from here, never from the index.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::rc::Rc;
use std::time::Duration;

use llmc_host::Roots;
use llmc_syntax::{Language, ParseBudget};

use crate::catalog::{ContentHash, FileStamp};
use crate::classify::MAX_FILE_BYTES;
use crate::name_table::NameTable;
use crate::prepare::{decoded, hash_of, stamp_of};
use crate::units::{self, FileParts, Lines};

/// A file as it was read for this answer.
pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) text: String,
    pub(crate) hash: ContentHash,
    stamp: FileStamp,
    parse_time: Duration,
    parts: OnceCell<FileParts>,
    names: OnceCell<NameTable>,
    line_starts: OnceCell<Vec<usize>>,
}

impl Source {
    /// The units and symbols, computed at the first use.
    pub(crate) fn parts(&self) -> &FileParts {
        self.parts
            .get_or_init(|| units::split_within(&self.path, &self.text, self.parse_time))
    }

    /// The scopes and what they bind, computed at the first use; empty where names are not resolved.
    pub(crate) fn names(&self) -> &NameTable {
        self.names.get_or_init(|| {
            let language = Language::detect(&self.path, &self.text);
            let mut budget = ParseBudget::new(usize::MAX, self.parse_time);
            let found = match language {
                Some(language) if self.text.len() <= units::MAX_PARSED_BYTES => {
                    llmc_syntax::find_scopes(language, &self.text, &mut budget)
                }
                _ => return NameTable::default(),
            };
            let table = NameTable::new(language, found.unwrap_or_default(), &self.text);
            if self.declares_globals() {
                table.with_global_names()
            } else {
                table
            }
        })
    }

    /// Whether it is a declaration file of TypeScript that is no module.
    fn declares_globals(&self) -> bool {
        let of_module = |line: &str| line.starts_with("import ") || line.starts_with("export ");
        self.path.ends_with(".d.ts") && !self.text.lines().any(of_module)
    }

    /// Whether it may add names to every file, without parsing it.
    pub(crate) fn has_globals(&self) -> bool {
        self.declares_globals() || self.text.contains("declare global")
    }

    pub(crate) fn lines(&self) -> Lines<'_> {
        let starts = self
            .line_starts
            .get_or_init(|| Lines::starts_in(&self.text));
        Lines::with_starts(&self.text, starts)
    }
}

/// The files of one answer; each is read once, so that the answer is consistent.
pub(crate) struct Sources<'r> {
    roots: &'r Roots,
    read: HashMap<String, Option<Rc<Source>>>,
    parse_time: Duration,
}

impl<'r> Sources<'r> {
    pub(crate) fn new(roots: &'r Roots) -> Self {
        Self {
            roots,
            read: HashMap::new(),
            parse_time: units::MAX_PARSE_TIME,
        }
    }

    /// Limits the CPU time to parse each file that is read from now on.
    pub(crate) fn limit_parsing(&mut self, parse_time: Duration) {
        self.parse_time = parse_time;
    }

    /// The file at that path; `None` if it cannot be read or is not text.
    pub(crate) fn get(&mut self, path: &str) -> Option<Rc<Source>> {
        if let Some(found) = self.read.get(path) {
            return found.clone();
        }
        let found = self.read(path).map(Rc::new);
        self.read.insert(path.to_owned(), found.clone());
        found
    }

    fn read(&self, path: &str) -> Option<Source> {
        let (file, stamp) = self.open(path)?;
        let mut bytes =
            Vec::with_capacity(usize::try_from(stamp.size.min(MAX_FILE_BYTES)).ok()? + 1);
        file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).ok()?;
        if bytes.len() as u64 > MAX_FILE_BYTES || memchr::memchr(0, &bytes).is_some() {
            return None;
        }
        let text = decoded(bytes);
        Some(Source {
            path: path.to_owned(),
            hash: hash_of(text.as_bytes()),
            text,
            stamp,
            parse_time: self.parse_time,
            parts: OnceCell::new(),
            names: OnceCell::new(),
            line_starts: OnceCell::new(),
        })
    }

    /// Whether a file that was read is unchanged.
    pub(crate) fn is_current(&self, path: &str) -> bool {
        let read = self.read.get(path).and_then(Option::as_ref);
        let now = self.open(path).map(|(_, stamp)| stamp);
        read.map(|source| source.stamp) == now
    }

    fn open(&self, path: &str) -> Option<(File, FileStamp)> {
        let file = self.roots.open_file(path).ok()?.into_file();
        let stat = rustix::fs::fstat(&file).ok()?;
        Some((file, stamp_of(&stat)))
    }
}
