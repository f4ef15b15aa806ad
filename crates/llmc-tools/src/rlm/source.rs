//! The text of a query: from the call itself, or from a file through the same door as every file tool, past a denylist
//! of names that is applied to what was asked for and to what that leads to.

use std::path::Path;

use llmc_config::McpRlm;
use llmc_enrich::sniff::is_binary;
use llmc_host::{CancelToken, Error as HostError, OpenFile, PathRules};
use llmc_rlm::Text;
use llmc_syntax::Language;
use serde_json::{Map, Value};

use crate::cx::Cx;
use crate::error::{Error, Kind, Result};

/// How often a file that changes under the reader is read again.
const ATTEMPTS: u32 = 3;
/// How much of a file's beginning decides whether it is text.
const SNIFF: usize = 64 << 10;

/// A text that may be read and is not too large, as far as that can be said before reading it.
pub(super) enum Opened {
    Context(String),
    File { asked: String, max_bytes: usize },
}

/// A text that was read.
pub(super) struct Read {
    pub(super) text: Text,
    /// As answers show it.
    pub(super) path: Option<String>,
    pub(super) language: Option<Language>,
    /// What the answer says about it.
    pub(super) source: Map<String, Value>,
}

impl Opened {
    /// Finds the text and asks every rule about it.
    pub(super) async fn find(
        cx: &Cx,
        path: Option<String>,
        context: Option<String>,
        max_bytes: usize,
    ) -> Result<Opened> {
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
            return Ok(Opened::Context(context));
        }
        let asked = path.unwrap_or_default();
        cx.blocking(move |cx, _| {
            let file = open(cx, &asked)?;
            if file.size() > max_bytes as u64 {
                return Err(too_large(&format!(
                    "the file has {} bytes, the limit is {max_bytes}",
                    file.size()
                )));
            }
            Ok(Opened::File { asked, max_bytes })
        })
        .await
    }

    /// Reads it.
    pub(super) async fn read(self, cx: &Cx) -> Result<Read> {
        let mut source = Map::new();
        match self {
            Opened::Context(context) => {
                source.insert("type".to_owned(), "context".into());
                Ok(Read {
                    text: Text::new(context),
                    path: None,
                    language: None,
                    source,
                })
            }
            Opened::File { asked, max_bytes } => {
                cx.blocking(move |cx, stop| {
                    let (bytes, path) = read_quietly(cx, &asked, max_bytes, stop)?;
                    let text = decoded(bytes)?;
                    let language = Language::detect(&path, &text);
                    source.insert("type".to_owned(), "path".into());
                    source.insert("path".to_owned(), path.clone().into());
                    Ok(Read {
                        text: Text::new(text),
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
    let secret = secrets(policy)?;
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

fn secrets(policy: &McpRlm) -> Result<PathRules> {
    Ok(PathRules::default().with_denylist(&policy.denylist_globs, true)?)
}

/// Reads a file in one state: one that has changed by the time it was read is read again.
fn read_quietly(
    cx: &Cx,
    asked: &str,
    max_bytes: usize,
    stop: &CancelToken,
) -> Result<(Vec<u8>, String)> {
    for _ in 0..ATTEMPTS {
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
            Err(error) if error.kind == Kind::NotFound => true,
            Err(error) => return Err(error),
        };
        if same && bytes.len() as u64 == size {
            return Ok((bytes, shown));
        }
    }
    Err(
        Error::new(Kind::Internal, "the file keeps changing while it is read")
            .hint("try again when it is quiet, or pass the part you mean as context"),
    )
}

fn decoded(bytes: Vec<u8>) -> Result<String> {
    if is_binary(&bytes[..bytes.len().min(SNIFF)]) {
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
    Error::new(Kind::InvalidPath, what)
}

fn too_large(what: &str) -> Error {
    Error::new(Kind::TooLarge, what)
        .hint("give a larger max_bytes, or pass the part you mean as context")
}
