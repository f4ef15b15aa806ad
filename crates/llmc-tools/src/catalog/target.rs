//! What a `path` argument names: a file, lines of one, a definition, or a stored result.
//!
//! A page, sheet or cell of a document is `report.pdf#page=3`. Answers print places as `src/a.rs#L10-L20` or `src/a.rs:10` and handles as `res_…`; all are taken as paths again. A
//! definition is `src/a.py::Class.method`, or a bare name that only one definition has. A file that really has such a
//! name wins.

use llmc_envelope::HandleId;
use llmc_host::{CancelToken, Roots};
use llmc_index::IndexState;
use llmc_syntax::{Definition, Language, ParseBudget, find_definitions};

use super::converted::NamedPart;
use crate::cx::Cx;
use crate::error::{Error, ErrorKind, Result};

/// The URI under which a stored result can be read as a resource.
const HANDLE_URI: &str = "llmc://handle/";
/// Source files above this many bytes are not parsed for a definition.
const MAX_SOURCE_BYTES: usize = 4 << 20;
/// Names that an error offers.
const MAX_OFFERED: usize = 8;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PathTarget {
    File,
    /// Lines of a file, counted from 1.
    Lines {
        path: String,
        first: u64,
        last: u64,
    },
    Handle(HandleId),
    /// Lines of a stored result.
    HandleLines(HandleId, LineSpan),
    Part(NamedPart),
}

impl PathTarget {
    /// Finds out what a path argument names. What is none of the other things is taken for a file, whose error then says
    /// what is wrong.
    pub(super) fn of(cx: &Cx, named: &str, cancel: &CancelToken) -> Result<PathTarget> {
        if let Some(id) = stored_handle(named) {
            return Ok(PathTarget::Handle(id));
        }
        if let Some((path, span)) = split_lines(named)
            && let Some(id) = stored_handle(path)
            && span.first > 0
        {
            return Ok(PathTarget::HandleLines(id, span));
        }
        let roots = &cx.files().roots;
        match roots.open_file(named) {
            Err(llmc_host::Error::NotFound { .. }) => {}
            _ => return Ok(PathTarget::File),
        }
        if let Some((path, LineSpan { first, last })) = lines_of(roots, named)? {
            return Ok(PathTarget::Lines { path, first, last });
        }
        if let Some(part) = NamedPart::of(roots, named) {
            return Ok(PathTarget::Part(part));
        }
        if let Some((path, symbol)) = named.split_once("::")
            && cx.files().roots.open_file(path).is_ok()
        {
            return in_file(cx, path, symbol, cancel);
        }
        if is_name(named) && cx.app().index().state() == IndexState::Ready {
            return in_index(cx, named);
        }
        Ok(PathTarget::File)
    }
}

/// The id in `res_…` or `llmc://handle/res_…`.
pub(super) fn stored_handle(named: &str) -> Option<HandleId> {
    HandleId::parse(named.strip_prefix(HANDLE_URI).unwrap_or(named))
}

/// Lines of a file, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LineSpan {
    pub(crate) first: u64,
    pub(crate) last: u64,
}

impl LineSpan {
    /// What a read skips and takes: `skip` lines of the span itself, and at most `max` of the others.
    pub(crate) fn slice(self, skip: u64, max: u64) -> (u64, u64) {
        let from = (self.first - 1).saturating_add(skip);
        (from, max.min(self.last.saturating_sub(from)))
    }

    /// A span that begins behind the end of its file.
    pub(crate) fn check(self, path: &str, total_lines: u64) -> Result<()> {
        if self.first <= total_lines {
            return Ok(());
        }
        let message = format!(
            "{path} has {total_lines} lines, none from {} on",
            self.first
        );
        Err(Error::bad_args(message).hint(format!("ask for lines up to {total_lines}")))
    }
}

/// The file and the lines that a path names: `src/a.rs:10-20`. None where a file has that very name, or no file the other.
pub(crate) fn lines_of(roots: &Roots, named: &str) -> Result<Option<(String, LineSpan)>> {
    let Some((path, span)) = split_lines(named) else {
        return Ok(None);
    };
    if roots.open_file(named).is_ok() {
        return Ok(None);
    }
    if let Err(error) = roots.open_file(path).map_err(Error::from) {
        // A file that may not be read is refused as such; about others the whole name says more.
        return match error.kind {
            ErrorKind::InvalidPath => Err(error),
            _ => Ok(None),
        };
    }
    if span.first == 0 || span.last < span.first {
        let message = format!("{named}: lines count from 1, and the last is not before the first");
        return Err(Error::bad_args(message).hint(format!("name them as {path}:3-9")));
    }
    Ok(Some((path.to_owned(), span)))
}

/// `src/a.rs#L10-L20`, `src/a.rs#L10`, `src/a.rs:10-20`, `src/a.rs:10` and `src/a.rs:10:5`, which names a column.
pub(crate) fn split_lines(named: &str) -> Option<(&str, LineSpan)> {
    let number = |text: &str| text.parse::<u64>().ok();
    let span = |lines: &str| {
        let (first, last) = lines.split_once('-').unwrap_or((lines, lines));
        let last = last.strip_prefix('L').unwrap_or(last);
        Some(LineSpan {
            first: number(first)?,
            last: number(last)?,
        })
    };
    if let Some((path, lines)) = named.rsplit_once("#L") {
        return Some((path, span(lines)?));
    }
    let (path, lines) = named.rsplit_once(':')?;
    let found = span(lines)?;
    match path.rsplit_once(':') {
        Some((file, line)) if !lines.contains('-') && number(line).is_some() => {
            Some((file, span(line)?))
        }
        _ => Some((path, found)),
    }
}

/// Whether this can be the name of a definition: `connect`, `Pool.take`, `Pool::take`.
pub(super) fn is_name(named: &str) -> bool {
    let is_word = |word: &str| {
        word.starts_with(|c: char| c.is_alphabetic() || c == '_')
            && word.chars().all(|c| c.is_alphanumeric() || c == '_')
    };
    parts(named).iter().all(|part| is_word(part))
}

fn parts(symbol: &str) -> Vec<&str> {
    symbol
        .split("::")
        .flat_map(|part| part.split('.'))
        .collect()
}

/// The definition of that name in a file, by its syntax tree.
fn in_file(cx: &Cx, path: &str, symbol: &str, cancel: &CancelToken) -> Result<PathTarget> {
    let file = cx.files().roots.open_file(path)?;
    let bytes = file.read_all(MAX_SOURCE_BYTES, cancel)?;
    let source = String::from_utf8_lossy(&bytes);
    let language = Language::of_path(path);
    let mut budget = ParseBudget::default();
    let all = match language {
        Some(language) => find_definitions(language, &source, &mut budget).map_err(|why| {
            Error::new(
                ErrorKind::NotFound,
                format!("the definitions of {path} are not known: {why}"),
            )
            .hint(format!("name lines instead: {path}:3-9"))
        })?,
        None => Vec::new(),
    };
    let parts = parts(symbol);
    let mut found: Vec<&Definition> = all
        .iter()
        .filter(|one| is_meant(one, &parts, &all))
        .collect();
    if found.iter().any(|one| one.kind.defines()) {
        found.retain(|one| one.kind.defines());
    }
    match found[..] {
        [one] => Ok(PathTarget::Lines {
            path: path.to_owned(),
            first: one.first_line,
            last: one.end_line,
        }),
        [] => {
            let names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
            let message = format!("{path} does not define {symbol}");
            Err(no_definition(message, symbol, &names))
        }
        _ => {
            let places: Vec<String> = found
                .iter()
                .take(MAX_OFFERED)
                .map(|one| format!("{path}#L{}-L{}", one.first_line, one.end_line))
                .collect();
            Err(ambiguous(symbol, &places))
        }
    }
}

/// Whether a definition has the last of these names and lies in definitions of the others.
fn is_meant(one: &Definition, parts: &[&str], all: &[Definition]) -> bool {
    let Some((name, around)) = parts.split_last() else {
        return false;
    };
    let holds = |outer: &Definition, inner: &Definition| {
        outer.depth < inner.depth
            && outer.first_line <= inner.first_line
            && inner.end_line <= outer.end_line
    };
    one.name == *name
        && around.iter().all(|part| {
            all.iter()
                .any(|outer| outer.name == *part && holds(outer, one))
        })
}

/// The definition of that name anywhere in the workspace, by the index.
fn in_index(cx: &Cx, symbol: &str) -> Result<PathTarget> {
    let place = match cx.app().index().locate(&cx.files().roots, symbol) {
        Ok(place) => place,
        // What no symbol is called either is a file that is not there.
        Err(_) => return Ok(PathTarget::File),
    };
    if !place.ambiguous.is_empty() {
        let ids = place.ambiguous.iter().take(MAX_OFFERED);
        let ids: Vec<String> = ids.map(|id| id.replacen('#', "::", 1)).collect();
        return Err(ambiguous(symbol, &ids));
    }
    Ok(PathTarget::Lines {
        path: place.path,
        first: place.first_line,
        last: place.last_line,
    })
}

fn no_definition(message: String, symbol: &str, names: &[&str]) -> Error {
    let error = Error::new(ErrorKind::NotFound, message);
    let last = parts(symbol).pop().unwrap_or_default();
    let all = names.iter().take(MAX_OFFERED).copied();
    let all = all.collect::<Vec<&str>>().join(", ");
    match crate::call::nearest(last, names.iter().copied()) {
        Some(name) => error.hint(format!("did you mean {name}?")),
        None if all.is_empty() => {
            error.hint("it defines nothing that is known; name lines: PATH:3-9")
        }
        None if names.len() > MAX_OFFERED => error.hint(format!("it defines {all} and others")),
        None => error.hint(format!("it defines {all}")),
    }
}

fn ambiguous(symbol: &str, places: &[String]) -> Error {
    Error::bad_args(format!("{symbol} has several definitions"))
        .hint(format!("name one: {}", places.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_names_are_distinguished_from_files() {
        for (named, first, last) in [
            ("a.rs#L3-L9", 3, 9),
            ("a.rs#L3-9", 3, 9),
            ("a.rs#L3", 3, 3),
            ("a.rs:3-9", 3, 9),
            ("a.rs:3", 3, 3),
            ("a.rs:3:7", 3, 3),
        ] {
            let span = LineSpan { first, last };
            assert_eq!(split_lines(named), Some(("a.rs", span)), "{named}");
        }
        for named in ["a.rs", "a.rs#section", "a.rs:x", "src/a.py::f", "C:"] {
            assert_eq!(split_lines(named), None, "{named}");
        }
        assert!(is_name("price_of") && is_name("Cart.total") && is_name("Pool::take"));
        assert!(!is_name("src/a.py") && !is_name("a-b") && !is_name("") && !is_name("x..y"));
        let id = "res_01ARZ3NDEKTSV4RRFFQ69G5FAV";
        assert!(
            stored_handle(id).is_some() && stored_handle(&format!("llmc://handle/{id}")).is_some()
        );
    }
}
