//! The text of a query: from the call itself, or from a file read like in every file tool. A denylist is applied to the
//! path as given and as resolved.

use std::path::Path;

use llmc_config::RlmPolicyConfig;
use llmc_enrich::sniff::is_binary;
use llmc_host::{CancelToken, Error as HostError, OpenFile, PathRules};
use llmc_rlm::SourceText;
use llmc_syntax::Language;
use serde_json::{Map, Value};

use crate::catalog::{LineSpan, lines_of};
use crate::cx::Cx;
use crate::error::{Error, ErrorKind, Result};

/// For a file that changes while it is read.
const MAX_READ_ATTEMPTS: u32 = 3;
/// The start of a file that decides whether it is text.
const SNIFFED_BYTES: usize = 64 << 10;

/// A text that passed every check possible before reading it.
pub(super) enum TextSource {
    Context(String),
    File {
        asked: String,
        lines: Option<LineSpan>,
        max_bytes: usize,
    },
}

pub(super) struct LoadedText {
    pub(super) text: SourceText,
    /// As answers show it.
    pub(super) path: Option<String>,
    pub(super) language: Option<Language>,
    /// Becomes `meta.source` of the answer.
    pub(super) source: Map<String, Value>,
}

impl TextSource {
    /// Finds the text and checks it against every rule.
    pub(super) async fn open(
        cx: &Cx,
        path: Option<String>,
        context: Option<String>,
        max_bytes: usize,
    ) -> Result<TextSource> {
        if let Some(context) = context {
            if context.len() > max_bytes {
                return Err(too_large(&format!(
                    "context has {} bytes, the limit is {max_bytes}",
                    context.len()
                )));
            }
            if context.trim().is_empty() {
                return Err(Error::bad_args("context is empty"));
            }
            return Ok(TextSource::Context(context));
        }
        let asked = path.unwrap_or_default();
        cx.blocking(move |cx, _| {
            let (asked, lines) = named_lines(cx, asked)?;
            let file = open(cx, &asked)?;
            if file.size() > max_bytes as u64 {
                return Err(too_large(&format!(
                    "the file has {} bytes, the limit is {max_bytes}",
                    file.size()
                )));
            }
            Ok(TextSource::File {
                asked,
                lines,
                max_bytes,
            })
        })
        .await
    }

    pub(super) async fn read(self, cx: &Cx) -> Result<LoadedText> {
        let mut source = Map::new();
        match self {
            TextSource::Context(context) => {
                source.insert("type".to_owned(), "context".into());
                Ok(LoadedText {
                    text: SourceText::new(context),
                    path: None,
                    language: None,
                    source,
                })
            }
            TextSource::File {
                asked,
                lines,
                max_bytes,
            } => {
                cx.blocking(move |cx, stop| {
                    let (bytes, path) = read_unchanged(cx, &asked, max_bytes, stop)?;
                    let mut text = decoded(bytes)?;
                    let language = Language::detect(&path, &text);
                    if let Some(span) = lines {
                        let all: Vec<&str> = text.split_inclusive('\n').collect();
                        span.check(&path, all.len() as u64)?;
                        let last = span.last.min(all.len() as u64);
                        let at = |line: u64| usize::try_from(line).unwrap_or(usize::MAX);
                        text = all[at(span.first - 1)..at(last)].concat();
                        source.insert("lines".to_owned(), format!("{}-{last}", span.first).into());
                    }
                    source.insert("type".to_owned(), "path".into());
                    source.insert("path".to_owned(), path.clone().into());
                    Ok(LoadedText {
                        text: SourceText::new(text),
                        path: Some(path),
                        language,
                        source,
                    })
                })
                .await
            }
        }
    }
}

/// The file and the lines that a path names. The policy decides first: a refused path is refused as it is written.
fn named_lines(cx: &Cx, asked: String) -> Result<(String, Option<LineSpan>)> {
    match open(cx, &asked) {
        Err(error) if error.kind == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
        Ok(_) => return Ok((asked, None)),
    }
    Ok(match lines_of(&cx.files().roots, &asked)? {
        Some((path, span)) => (path, Some(span)),
        None => (asked, None),
    })
}

/// Opens a file that the policy lets queries read.
fn open(cx: &Cx, asked: &str) -> Result<OpenFile> {
    let policy = &cx.app().config().mcp.rlm;
    if !policy.allow_path {
        return Err(denied("files cannot be named here")
            .hint("pass the text as context; the operator set mcp.rlm.allow_path = false"));
    }
    if asked.starts_with('/') && !policy.allow_absolute_paths {
        return Err(denied("absolute paths are not allowed").hint(
            "give a path relative to the workspace; the operator can set mcp.rlm.allow_absolute_paths = true",
        ));
    }
    let roots = &cx.files().roots;
    let secret = denylist(policy)?;
    let is_secret = |path: &Path| roots.rules().is_denylisted(path) || secret.is_denylisted(path);
    let refused = || {
        denied("the file's name is on the denylist of secrets").hint(
            "name another file; the lists are mcp.rlm.denylist_globs and mcp.tools.denylist_globs",
        )
    };
    if is_secret(Path::new(asked)) {
        return Err(refused());
    }
    let file = roots.open_file(asked)?;
    if is_secret(&file.path.absolute()) {
        return Err(refused());
    }
    Ok(file)
}

fn denylist(policy: &RlmPolicyConfig) -> Result<PathRules> {
    Ok(PathRules::default().with_denylist(&policy.denylist_globs, true)?)
}

/// Reads a file again if it has changed in the meantime.
fn read_unchanged(
    cx: &Cx,
    asked: &str,
    max_bytes: usize,
    stop: &CancelToken,
) -> Result<(Vec<u8>, String)> {
    for _ in 0..MAX_READ_ATTEMPTS {
        let file = open(cx, asked)?;
        let (size, changed) = (file.size(), file.mtime_ns());
        let shown = cx.files().roots.display_path(&file.path);
        let bytes = match file.read_all(max_bytes, stop) {
            Ok(bytes) => bytes,
            Err(HostError::TooLarge { why, .. }) => return Err(too_large(&why)),
            Err(error) => return Err(error.into()),
        };
        let same = match open(cx, asked) {
            Ok(now) => now.size() == size && now.mtime_ns() == changed,
            // Gone by now; what was read is what it held.
            Err(error) if error.kind == ErrorKind::NotFound => true,
            Err(error) => return Err(error),
        };
        if same && bytes.len() as u64 == size {
            return Ok((bytes, shown));
        }
    }
    Err(Error::new(
        ErrorKind::Internal,
        "the file keeps changing while it is read",
    )
    .hint("try again when it is quiet, or pass the part you mean as context"))
}

fn decoded(bytes: Vec<u8>) -> Result<String> {
    if is_binary(&bytes[..bytes.len().min(SNIFFED_BYTES)]) {
        return Err(Error::bad_args(
            "the file is binary; only text can be analysed",
        ));
    }
    let text = String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    if text.trim().is_empty() {
        return Err(Error::bad_args("the file is empty"));
    }
    Ok(text)
}

fn denied(what: &str) -> Error {
    Error::new(ErrorKind::InvalidPath, what)
}

fn too_large(what: &str) -> Error {
    Error::new(ErrorKind::TooLarge, what)
        .hint("give a larger max_bytes, or pass the part you mean as context")
}
