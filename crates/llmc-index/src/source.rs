//! Files as they are on disk now. Every text in an answer comes from here, never from the index.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::rc::Rc;

use llmc_host::Roots;

use crate::catalog::{Hash, Stamp};
use crate::classify::LARGEST;
use crate::prepare::{decoded, hash_of, stamp_of};
use crate::units::{self, Cut, Lines};

/// A file as it was read for this answer.
pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) text: String,
    pub(crate) hash: Hash,
    stamp: Stamp,
    cut: OnceCell<Cut>,
}

impl Source {
    /// Its units and symbols, found when first asked for.
    pub(crate) fn cut(&self) -> &Cut {
        self.cut.get_or_init(|| units::cut(&self.path, &self.text))
    }

    pub(crate) fn lines(&self) -> Lines<'_> {
        Lines::new(&self.text)
    }
}

/// The files that one answer looks at; each is read once, so that all of the answer is about one state of it.
pub(crate) struct Sources<'r> {
    roots: &'r Roots,
    read: HashMap<String, Option<Rc<Source>>>,
}

impl<'r> Sources<'r> {
    pub(crate) fn new(roots: &'r Roots) -> Self {
        Self {
            roots,
            read: HashMap::new(),
        }
    }

    /// The file at that path; `None` if it is gone, cannot be read, or is no text any more.
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
        let mut bytes = Vec::with_capacity(usize::try_from(stamp.size.min(LARGEST)).ok()? + 1);
        file.take(LARGEST + 1).read_to_end(&mut bytes).ok()?;
        if bytes.len() as u64 > LARGEST || memchr::memchr(0, &bytes).is_some() {
            return None;
        }
        let text = decoded(bytes);
        Some(Source {
            path: path.to_owned(),
            hash: hash_of(text.as_bytes()),
            text,
            stamp,
            cut: OnceCell::new(),
        })
    }

    /// Whether a file that was read is still what it was.
    pub(crate) fn is_current(&self, path: &str) -> bool {
        let read = self.read.get(path).and_then(Option::as_ref);
        let now = self.open(path).map(|(_, stamp)| stamp);
        read.map(|source| source.stamp) == now
    }

    fn open(&self, path: &str) -> Option<(File, Stamp)> {
        let file = self.roots.open_file(path).ok()?.into_file();
        let stat = rustix::fs::fstat(&file).ok()?;
        Some((file, stamp_of(&stat)))
    }
}
