//! The one error type, and the one table that says how each surface names a kind of failure.
//!
//! Crates below have errors of their own that say what happened to a file or a handle; they are translated here, once,
//! into a [`Kind`], a message and a hint. Each surface (MCP, HTTP, command line) then reads its own column.

use serde_json::{Map, Value, json};

/// Shorthand used all over the crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Which code column a tool's callers know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Files, commands, retrieval and everything without a column of its own.
    Linux,
    /// Recursive analysis.
    Rlm,
    /// The Tool Envelope.
    Te,
}

/// One row of the table: a kind of failure under each of its names.
#[derive(Debug)]
pub struct Row {
    /// The kind.
    pub kind: Kind,
    /// What it means, for people.
    pub what: &'static str,
    /// Code of `linux_*` and most other tools.
    pub linux: Option<&'static str>,
    /// Code of `rlm_query`.
    pub rlm: Option<&'static str>,
    /// Code of `te_*`.
    pub te: Option<&'static str>,
    /// HTTP status.
    pub http: u16,
    /// Code in the HTTP error body.
    pub http_code: &'static str,
    /// Exit code of the command line.
    pub exit: u8,
    /// Whether the same call may succeed later.
    pub retryable: bool,
}

macro_rules! kinds {
    ($($kind:ident: $what:literal, $linux:expr, $rlm:expr, $te:expr, $http:literal, $http_code:literal, $exit:literal, $retry:literal;)*) => {
        /// A kind of failure.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Kind {
            $(#[doc = $what] $kind,)*
        }

        /// Every kind with its names, in the order of the enum.
        pub static ROWS: &[Row] = &[
            $(Row {
                kind: Kind::$kind, what: $what, linux: $linux, rlm: $rlm, te: $te,
                http: $http, http_code: $http_code, exit: $exit, retryable: $retry,
            },)*
        ];
    };
}

kinds! {
    BadArgs: "bad arguments", Some("BAD_ARGS"), Some("invalid_args"), Some("invalid_args"), 422, "BAD_ARGS", 2, false;
    BadPattern: "bad pattern", Some("BAD_ARGS"), None, Some("invalid_pattern"), 422, "BAD_ARGS", 2, false;
    UnknownTool: "unknown tool", None, None, None, 422, "BAD_ARGS", 2, false;
    AuthFailed: "not authenticated", None, None, None, 401, "AUTH_FAILED", 4, false;
    InvalidPath: "path outside roots, escaping link, special file, protected or denylisted name", Some("INVALID_PATH"), Some("path_denied"), Some("path_denied"), 403, "FORBIDDEN", 4, false;
    CommandDenied: "command or effect refused by policy", Some("COMMAND_DENIED"), None, Some("command_denied"), 403, "FORBIDDEN", 4, false;
    EgressDenied: "model or endpoint refused", None, Some("egress_denied"), None, 403, "FORBIDDEN", 4, false;
    IsolationRequired: "confinement missing", Some("ISOLATION_REQUIRED"), None, Some("isolation_required"), 403, "FORBIDDEN", 4, false;
    NotFound: "not there", Some("NOT_FOUND"), Some("file_not_found"), Some("not_found"), 404, "NOT_FOUND", 3, false;
    PermissionDenied: "permission denied by the operating system", Some("PERMISSION_DENIED"), Some("path_denied"), Some("permission_denied"), 403, "FORBIDDEN", 4, false;
    NotADirectory: "wrong kind: a directory was needed", Some("NOT_A_DIRECTORY"), Some("invalid_args"), Some("wrong_kind"), 409, "CONFLICT", 3, false;
    IsDirectory: "wrong kind: a file was needed", Some("IS_DIRECTORY"), Some("invalid_args"), Some("wrong_kind"), 409, "CONFLICT", 3, false;
    PreconditionFailed: "precondition failed", Some("SHA_MISMATCH"), None, Some("precondition_failed"), 409, "CONFLICT", 6, false;
    NoMatch: "edit or patch does not match", Some("NO_MATCH"), None, Some("patch_failed"), 409, "CONFLICT", 6, false;
    AlreadyExists: "already there", Some("ALREADY_EXISTS"), None, Some("already_exists"), 409, "CONFLICT", 6, false;
    Busy: "locked by another agent", Some("RESOURCE_BUSY"), None, Some("resource_busy"), 409, "CONFLICT", 6, true;
    HandleExpired: "handle unknown or expired", Some("HANDLE_EXPIRED"), None, Some("handle_expired"), 410, "GONE", 3, false;
    TooLarge: "too large", Some("OUTPUT_TOO_LARGE"), Some("file_too_large"), Some("too_large"), 413, "TOO_LARGE", 7, false;
    RateLimited: "too many requests", Some("RATE_LIMITED"), None, None, 429, "RATE_LIMITED", 8, true;
    BudgetExceeded: "money or token cap", None, Some("budget_exceeded"), None, 402, "BUDGET_EXCEEDED", 7, false;
    NoAnswer: "no answer in the allowed turns", None, Some("no_answer"), None, 422, "NO_ANSWER", 7, false;
    TimedOut: "time limit", Some("TIMEOUT"), Some("timeout"), Some("timeout"), 504, "TIMEOUT", 5, true;
    Cancelled: "cancelled", Some("CANCELLED"), Some("cancelled"), Some("cancelled"), 499, "CANCELLED", 130, true;
    ProviderFailed: "provider failed", None, Some("provider_error"), None, 502, "PROVIDER_ERROR", 9, true;
    WriteFailed: "write failed", Some("WRITE_FAILED"), None, Some("io_failed"), 500, "INTERNAL", 74, true;
    Internal: "anything else", Some("INTERNAL"), Some("internal_error"), Some("internal"), 500, "INTERNAL", 70, true;
}

impl Kind {
    /// This kind's row.
    pub fn row(self) -> &'static Row {
        // The macro writes enum and table from the same lines, in the same order.
        &ROWS[self as usize]
    }

    /// The code a tool of this family reports; the HTTP name where its column has none.
    pub fn code(self, family: Family) -> &'static str {
        let row = self.row();
        let own = match family {
            Family::Linux => row.linux,
            Family::Rlm => row.rlm,
            Family::Te => row.te,
        };
        own.unwrap_or(row.http_code)
    }

    /// The built-in exception that a script catches.
    pub fn exception(self) -> &'static str {
        use Kind::*;
        match self {
            NotFound | HandleExpired => "FileNotFoundError",
            AuthFailed | InvalidPath | CommandDenied | EgressDenied | IsolationRequired
            | PermissionDenied => "PermissionError",
            TimedOut => "TimeoutError",
            BadArgs | BadPattern | UnknownTool | NotADirectory | IsDirectory | NoMatch => {
                "ValueError"
            }
            PreconditionFailed | AlreadyExists | Busy | TooLarge | RateLimited | BudgetExceeded
            | NoAnswer | Cancelled | ProviderFailed | WriteFailed | Internal => "RuntimeError",
        }
    }
}

/// A failed call: what kind, what happened, what to do next.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// What kind of failure.
    pub kind: Kind,
    /// What happened, lower case, without a full stop.
    pub message: String,
    /// What to do next.
    pub hint: Option<String>,
    /// Further facts for `meta` (output so far, nearest lines).
    pub extra: Box<Map<String, Value>>,
}

/// Longest message that is passed on; a path of 4 KB need not be read back in full.
const MESSAGE_LIMIT: usize = 600;

impl Error {
    /// An error without a hint.
    pub fn new(kind: Kind, message: impl Into<String>) -> Error {
        let mut message = message.into();
        if let Some((end, _)) = message.char_indices().nth(MESSAGE_LIMIT) {
            message.truncate(end);
            message.push('…');
        }
        Error {
            kind,
            message,
            hint: None,
            extra: Box::default(),
        }
    }

    /// Bad arguments.
    pub fn bad_args(message: impl Into<String>) -> Error {
        Error::new(Kind::BadArgs, message)
    }

    /// Says what to do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Error {
        self.hint = Some(hint.into());
        self
    }

    /// Adds a fact to `meta`.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Error {
        self.extra.insert(key.to_owned(), value.into());
        self
    }

    /// The body of a failed REST call: HTTP's code, and the tool's own beside it.
    pub fn rest_body(&self, family: Family, correlation_id: &str) -> Value {
        let mut body = json!({
            "code": self.kind.row().http_code,
            "message": self.message,
            "hint": self.hint,
            "correlation_id": correlation_id,
            "error_code": self.kind.code(family),
        });
        for (key, value) in self.told_everywhere() {
            body[key] = value.clone();
        }
        body
    }

    /// Facts that belong in every form of the error: what ran has printed something and failed somewhere, and what was
    /// not found may stand nearby in other words.
    pub fn told_everywhere(&self) -> impl Iterator<Item = (&'static str, &Value)> {
        [
            "output",
            "output_handle",
            "traceback",
            "stdout",
            "stderr",
            "nearest",
        ]
        .into_iter()
        .filter_map(|key| Some((key, self.extra.get(key)?)))
    }

    /// The body of a failed MCP call: `{"error": …, "meta": {…}}`.
    pub fn to_document(&self, family: Family, correlation_id: &str) -> Value {
        let mut meta = Map::new();
        meta.insert("error_code".to_owned(), self.kind.code(family).into());
        meta.insert("retryable".to_owned(), self.kind.row().retryable.into());
        if let Some(hint) = &self.hint {
            meta.insert("hint".to_owned(), hint.clone().into());
        }
        meta.extend((*self.extra).clone());
        meta.insert("correlation_id".to_owned(), correlation_id.into());
        json!({"error": self.message, "meta": meta})
    }
}

impl From<llmc_host::Error> for Error {
    fn from(error: llmc_host::Error) -> Error {
        use llmc_host::Error as Host;
        let message = error.to_string();
        let (kind, hint) = match &error {
            Host::OutsideRoots { .. } => (
                Kind::InvalidPath,
                Some("use a path inside the workspace, or ask the operator to add a root"),
            ),
            Host::NoRoots { .. } => (
                Kind::InvalidPath,
                Some(
                    "the operator must list roots in mcp.tools.allowed_roots or mcp.linux_ops.roots.allowed_roots",
                ),
            ),
            Host::BadPath { .. } | Host::SpecialFile { .. } | Host::Denylisted { .. } => {
                (Kind::InvalidPath, None)
            }
            Host::Protected { .. } => (
                Kind::InvalidPath,
                Some("only the operator changes this, outside of tools"),
            ),
            Host::NotFound { .. } => (Kind::NotFound, None),
            Host::NoParent { .. } => (Kind::NotFound, Some("create it first with linux_fs_mkdirs")),
            Host::Permission { .. } => (Kind::PermissionDenied, None),
            Host::NotADirectory { .. } => (Kind::NotADirectory, None),
            Host::IsDirectory { .. } => (Kind::IsDirectory, None),
            Host::AlreadyExists { .. } => (Kind::AlreadyExists, None),
            Host::ShaMismatch { .. } => (
                Kind::PreconditionFailed,
                Some("read the file again and redo the change"),
            ),
            Host::NoMatch { found: 0, .. } => (
                Kind::NoMatch,
                Some("copy the old text exactly from the file"),
            ),
            Host::NoMatch { .. } => (
                Kind::NoMatch,
                Some(
                    "add surrounding lines to the old text, or set expected_replacements to the count",
                ),
            ),
            Host::Busy { .. } => (Kind::Busy, Some("try again")),
            Host::TooLarge { .. } => (Kind::TooLarge, None),
            Host::NotText { .. } | Host::BadRequest(_) => (Kind::BadArgs, None),
            Host::BadPattern(_) => (Kind::BadPattern, None),
            Host::WriteFailed { .. } => (Kind::WriteFailed, None),
            Host::TimedOut => (
                Kind::TimedOut,
                Some("narrow the call: a smaller directory, a glob, fewer lines"),
            ),
            Host::Cancelled => (Kind::Cancelled, None),
            Host::BadPolicy { hint, .. } => (Kind::BadArgs, Some(hint.as_str())),
            Host::CommandDenied { hint, .. } => (Kind::CommandDenied, Some(hint.as_str())),
            Host::IsolationRequired { hint, .. } => (Kind::IsolationRequired, Some(hint.as_str())),
            Host::Io { .. } | Host::Unsupported(_) => (Kind::Internal, None),
        };
        let mut translated = Error::new(kind, message);
        translated.hint = hint.map(str::to_owned);
        match error {
            Host::NoMatch { nearest, .. } if !nearest.is_empty() => {
                translated.with("nearest", nearest)
            }
            Host::Busy {
                holder, waited_ms, ..
            } => translated
                .with("holder", holder)
                .with("waited_ms", u64::try_from(waited_ms).unwrap_or(u64::MAX)),
            _ => translated,
        }
    }
}

impl From<llmc_envelope::handles::Error> for Error {
    fn from(error: llmc_envelope::handles::Error) -> Error {
        use llmc_envelope::handles::Error as Store;
        let message = error.to_string();
        match error {
            Store::Unknown => Error::new(Kind::HandleExpired, message)
                .hint("repeat the call that made it; handles live for a limited time"),
            Store::TooLarge { .. } => Error::new(Kind::TooLarge, message),
            Store::BadRange { .. } => Error::bad_args(message),
            _ => Error::new(Kind::Internal, message),
        }
    }
}

impl From<llmc_index::Error> for Error {
    fn from(error: llmc_index::Error) -> Error {
        use llmc_index::Error as Index;
        let message = error.to_string();
        match error {
            Index::Host(error) => error.into(),
            Index::BadRequest(_) => Error::bad_args(message),
            Index::NoSymbol { nearest, .. } if nearest.is_empty() => {
                Error::new(Kind::NotFound, message).hint("find its name with rag_search")
            }
            Index::NoSymbol { nearest, .. } => Error::new(Kind::NotFound, message)
                .hint(format!("did you mean {}?", nearest.join(", "))),
            Index::Missing => {
                Error::new(Kind::NotFound, message).hint("run llmc rag index, or try again soon")
            }
            Index::Busy => Error::new(Kind::Busy, message).hint("try again"),
            Index::Unwritable(_) | Index::Full(_) => Error::new(Kind::WriteFailed, message),
            Index::Embedding(_) => Error::new(Kind::ProviderFailed, message),
            Index::Damaged(_) => Error::new(Kind::Internal, message).hint("try again"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_and_the_enum_agree() {
        for row in ROWS {
            assert_eq!(row.kind.row().what, row.what);
        }
    }

    #[test]
    fn a_document_tells_code_hint_and_whether_to_retry() {
        let error = Error::bad_args("no path").hint("give one").with("seen", 3);
        let document = error.to_document(Family::Te, "id");
        assert_eq!(
            document.to_string(),
            r#"{"error":"no path","meta":{"error_code":"invalid_args","retryable":false,"hint":"give one","seen":3,"correlation_id":"id"}}"#
        );
    }
}
