//! Modules and functions that the interpreter lacks, written in the Python that it runs.
//!
//! A library is loaded as a block of its own before the first block that uses it. A module is a class whose attributes are
//! its functions, so that `csv.reader(f)` and `from csv import reader` need nothing but an assignment. Files and programs
//! are calls of the host's functions: the interpreter itself touches nothing.

use crate::names::ScriptNames;

/// The beginning of every name that a library binds.
pub(super) const PREFIX: &str = "_llmc_";
/// Answered by the worker itself: the hexadecimal digest of bytes.
pub(super) const DIGEST: &str = "_llmc_digest";

/// One source; later ones may use earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Library {
    Core,
    Iteration,
    Text,
    System,
    Csv,
    Files,
}

/// Module, the class that stands for it, and where that is.
const MODULES: &[(&str, &str, Library)] = &[
    ("abc", "_llmc_abc", Library::System),
    ("asyncio", "_llmc_asyncio", Library::System),
    ("bisect", "_llmc_bisect", Library::Iteration),
    ("collections", "_llmc_collections", Library::Iteration),
    ("configparser", "_llmc_configparser", Library::System),
    ("contextlib", "_llmc_contextlib", Library::System),
    ("copy", "_llmc_copy_module", Library::Iteration),
    ("csv", "_llmc_csv", Library::Csv),
    ("fnmatch", "_llmc_fnmatch_module", Library::Files),
    ("functools", "_llmc_functools", Library::Iteration),
    ("glob", "_llmc_glob_module", Library::Files),
    ("hashlib", "_llmc_hashlib", Library::System),
    ("heapq", "_llmc_heapq", Library::Iteration),
    ("html", "_llmc_html", Library::Text),
    ("io", "_llmc_io", Library::Files),
    ("itertools", "_llmc_itertools", Library::Iteration),
    ("json", "_llmc_json", Library::System),
    ("math", "_llmc_math", Library::System),
    ("operator", "_llmc_operator", Library::Iteration),
    ("os", "_llmc_os", Library::Files),
    ("os.path", "_llmc_ospath", Library::Files),
    ("pathlib", "_llmc_pathlib", Library::Files),
    ("pprint", "_llmc_pprint", Library::Text),
    ("re", "_llmc_re_module", Library::Text),
    ("shlex", "_llmc_shlex", Library::Text),
    ("shutil", "_llmc_shutil", Library::Files),
    ("statistics", "_llmc_statistics", Library::System),
    ("string", "_llmc_string", Library::Text),
    ("subprocess", "_llmc_subprocess", Library::Files),
    ("sys", "_llmc_sys", Library::System),
    ("tempfile", "_llmc_tempfile", Library::Files),
    ("textwrap", "_llmc_textwrap", Library::Text),
    ("urllib", "_llmc_urllib", Library::Text),
    ("urllib.parse", "_llmc_urllib_parse", Library::Text),
];

/// Functions of the host that the files need.
const FILE_FUNCTIONS: [&str; 7] = [
    "read_file",
    "list_dir",
    "stat",
    "linux_fs_write",
    "linux_fs_mkdirs",
    "linux_fs_move",
    "linux_fs_delete",
];

/// The class that stands for a module, and its library.
pub(super) fn module(name: &str, names: &ScriptNames) -> Option<(&'static str, Library)> {
    let (_, class, library) = MODULES.iter().find(|(module, ..)| *module == name)?;
    (*library != Library::Files || has_files(names)).then_some((class, *library))
}

/// The name of the module that a class stands for.
pub(super) fn module_of_class(class: &str) -> Option<&'static str> {
    let found = MODULES.iter().find(|(_, known, _)| *known == class)?;
    Some(found.0)
}

/// Modules of the interpreter itself.
const OWN_MODULES: [&str; 6] = [
    "base64",
    "binascii",
    "dataclasses",
    "datetime",
    "typing",
    "unicodedata",
];

/// The modules that a script can import, in the order of their names.
pub(super) fn module_names(names: &ScriptNames) -> Vec<&'static str> {
    let ours = MODULES.iter().map(|(name, ..)| *name);
    let ours = ours.filter(|name| module(name, names).is_some());
    let mut all: Vec<&str> = ours.chain(OWN_MODULES).collect();
    all.sort_unstable();
    all
}

/// Whether the host has the functions that files are made of.
pub(super) fn has_files(names: &ScriptNames) -> bool {
    names.module.as_deref() == Some("tools")
        && FILE_FUNCTIONS
            .iter()
            .all(|needed| names.functions.iter().any(|name| name == needed))
}

impl Library {
    pub(super) fn source(self) -> &'static str {
        match self {
            Library::Core => include_str!("library/core.py"),
            Library::Iteration => include_str!("library/iteration.py"),
            Library::Text => include_str!("library/text.py"),
            Library::System => include_str!("library/system.py"),
            Library::Csv => include_str!("library/csv.py"),
            Library::Files => include_str!("library/files.py"),
        }
    }

    /// A bit that stands for it in a saved session.
    pub(super) fn bit(self) -> u64 {
        1 << (self as u32)
    }
}
