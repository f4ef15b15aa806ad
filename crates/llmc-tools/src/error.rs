//! The error of a tool call, and the table that names each kind of failure for each surface.
//!
//! The crates below have errors of their own about files, handles and providers. They are translated here, once, into an
//! [`ErrorKind`], a message and a hint. Each surface (MCP, HTTP, command line) then reads its own column.

use std::io;

use llmc_envelope::neutral::{Ansi, neutralise};
use llmc_envelope::receipt::{Receipt, escape};
use serde_json::{Map, Value, json};

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The column of [`ErrorRow`] that a tool's callers read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Files, commands, retrieval and every tool without a column of its own.
    Linux,
    Rlm,
    Te,
}

/// A kind of failure under each of its names.
#[derive(Debug)]
pub struct ErrorRow {
    pub kind: ErrorKind,
    /// Its meaning, for the generated page on errors.
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
        pub enum ErrorKind {
            $(#[doc = $what] $kind,)*
        }

        /// Every kind with its names, in the order of the enum.
        pub static ROWS: &[ErrorRow] = &[
            $(ErrorRow {
                kind: ErrorKind::$kind, what: $what, linux: $linux, rlm: $rlm, te: $te,
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
    IsolationRequired: "confinement missing", Some("ISOLATION_REQUIRED"), Some("isolation_required"), Some("isolation_required"), 403, "FORBIDDEN", 4, false;
    NotFound: "not found", Some("NOT_FOUND"), Some("file_not_found"), Some("not_found"), 404, "NOT_FOUND", 3, false;
    PermissionDenied: "permission denied by the operating system", Some("PERMISSION_DENIED"), Some("path_denied"), Some("permission_denied"), 403, "FORBIDDEN", 4, false;
    NotADirectory: "wrong kind: a directory was needed", Some("NOT_A_DIRECTORY"), Some("invalid_args"), Some("wrong_kind"), 409, "CONFLICT", 3, false;
    IsDirectory: "wrong kind: a file was needed", Some("IS_DIRECTORY"), Some("invalid_args"), Some("wrong_kind"), 409, "CONFLICT", 3, false;
    PreconditionFailed: "precondition failed", Some("SHA_MISMATCH"), None, Some("precondition_failed"), 409, "CONFLICT", 6, false;
    NoMatch: "edit or patch does not match", Some("NO_MATCH"), None, Some("patch_failed"), 409, "CONFLICT", 6, false;
    AlreadyExists: "already exists", Some("ALREADY_EXISTS"), None, Some("already_exists"), 409, "CONFLICT", 6, false;
    Busy: "locked by another agent", Some("RESOURCE_BUSY"), None, Some("resource_busy"), 409, "CONFLICT", 6, true;
    HandleExpired: "handle unknown or expired", Some("HANDLE_EXPIRED"), None, Some("handle_expired"), 410, "GONE", 3, false;
    TooLarge: "too large", Some("OUTPUT_TOO_LARGE"), Some("file_too_large"), Some("too_large"), 413, "TOO_LARGE", 7, false;
    RateLimited: "too many requests", Some("RATE_LIMITED"), None, None, 429, "RATE_LIMITED", 8, true;
    BudgetExceeded: "cost or token limit", None, Some("budget_exceeded"), None, 402, "BUDGET_EXCEEDED", 7, false;
    NoAnswer: "no answer in the allowed turns", None, Some("no_answer"), None, 422, "NO_ANSWER", 7, false;
    TimedOut: "time limit", Some("TIMEOUT"), Some("timeout"), Some("timeout"), 504, "TIMEOUT", 5, true;
    Cancelled: "cancelled", Some("CANCELLED"), Some("cancelled"), Some("cancelled"), 499, "CANCELLED", 130, true;
    ProviderFailed: "provider or upstream server failed (no retry after 400, 401, 404)", Some("UPSTREAM_FAILED"), Some("provider_error"), Some("upstream_failed"), 502, "PROVIDER_ERROR", 9, true;
    Unavailable: "store or service unavailable", Some("UNAVAILABLE"), Some("unavailable"), Some("unavailable"), 503, "UNAVAILABLE", 75, true;
    Conflict: "undo meets newer content", Some("CONFLICT"), None, Some("conflict"), 409, "CONFLICT", 6, false;
    WriteFailed: "write failed", Some("WRITE_FAILED"), None, Some("io_failed"), 500, "INTERNAL", 74, true;
    Internal: "anything else", Some("INTERNAL"), Some("internal_error"), Some("internal"), 500, "INTERNAL", 70, true;
}

impl ErrorKind {
    pub fn row(self) -> &'static ErrorRow {
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
        use ErrorKind::*;
        match self {
            NotFound | HandleExpired => "FileNotFoundError",
            AuthFailed | InvalidPath | CommandDenied | EgressDenied | IsolationRequired
            | PermissionDenied => "PermissionError",
            TimedOut => "TimeoutError",
            BadArgs | BadPattern | UnknownTool | NotADirectory | IsDirectory | NoMatch => {
                "ValueError"
            }
            PreconditionFailed | AlreadyExists | Busy | TooLarge | RateLimited | BudgetExceeded
            | NoAnswer | Cancelled | ProviderFailed | Unavailable | Conflict | WriteFailed
            | Internal => "RuntimeError",
        }
    }
}

/// A failed call: the kind of failure, what happened, and what to do next.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    pub kind: ErrorKind,
    /// What happened, lower case, without a full stop.
    pub message: String,
    /// What to do next. [`App::call`](crate::App::call) fits it to what its reader can call.
    pub hint: Option<String>,
    /// Whether the same call may succeed later: what its row says, unless more is known.
    pub retryable: bool,
    /// Data that belongs to the failure, such as output so far or the nearest lines.
    pub extra: Box<Map<String, Value>>,
    /// The path that the failure is about, as the caller wrote it.
    pub(crate) path: Option<String>,
    /// What ran before the failure, which a model reads first.
    pub(crate) transcript: Option<Box<Transcript>>,
}

/// What a failed script printed and did. The seal cuts what was printed.
#[derive(Debug, Clone)]
pub(crate) struct Transcript {
    /// Printed text.
    pub(crate) printed: String,
    /// The source line at which it failed.
    pub(crate) source_line: Option<String>,
    /// What its calls have changed.
    pub(crate) effects: Vec<String>,
    /// Facts for the reader that fit nowhere else.
    pub(crate) notes: Vec<String>,
    /// What the printed text leaves out; the seal writes it.
    pub(crate) receipt: Receipt,
}

impl Transcript {
    /// What a model reads: printed text, error, source line, hint, effects, and a receipt.
    pub(crate) fn text(&self, error: &Error) -> String {
        let mut body = self.printed.trim_end_matches('\n').to_owned();
        let mut line = |text: String| {
            if !body.is_empty() {
                body.push('\n');
            }
            body.push_str(&text);
        };
        line(format!("error: {}", error.message.trim_end()));
        if let Some(source) = &self.source_line {
            line(format!("    {source}"));
        }
        if let Some(hint) = &error.hint {
            line(format!("hint: {hint}"));
        }
        if !self.effects.is_empty() {
            line(format!("already done: {}", self.effects.join(", ")));
        }
        let receipt = self.notes.iter().fold(self.receipt.clone(), Receipt::note);
        receipt.seal(&neutralise(&body, Ansi::Strip))
    }
}

/// Longest message that is passed on; a path of 4 KB need not be read back in full.
const MAX_MESSAGE_CHARS: usize = 600;

impl Error {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        let mut message = message.into();
        if let Some((end, _)) = message.char_indices().nth(MAX_MESSAGE_CHARS) {
            message.truncate(end);
            message.push('…');
        }
        Error {
            kind,
            message,
            hint: None,
            retryable: kind.row().retryable,
            extra: Box::default(),
            path: None,
            transcript: None,
        }
    }

    pub fn bad_args(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::BadArgs, message)
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Error {
        self.hint = Some(hint.into());
        self
    }

    /// Names the argument that it is about, where its message does not.
    #[must_use]
    pub(crate) fn about_argument(mut self, name: &str) -> Error {
        self.message = format!("{name}: {}", self.message);
        self
    }

    /// Says whether the same call may succeed later.
    #[must_use]
    pub fn retry(mut self, retryable: bool) -> Error {
        self.retryable = retryable;
        self
    }

    /// Adds data that belongs to the failure.
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
        for (key, value) in self.rest_extra() {
            body[key] = value.clone();
        }
        body
    }

    /// The data that a REST body carries as well: what ran has printed something and failed somewhere, and text that
    /// was not found may stand nearby in a slightly different form.
    pub fn rest_extra(&self) -> impl Iterator<Item = (&'static str, &Value)> {
        [
            "output",
            "output_handle",
            "traceback",
            "already_done",
            "not_undoable",
            "stdout",
            "stderr",
            "nearest",
            "conflict_list",
        ]
        .into_iter()
        .filter_map(|key| Some((key, self.extra.get(key)?)))
    }

    /// What a model reads: `CODE: message`, `hint: …`, then the data that belongs to it.
    pub(crate) fn plain_text(&self, family: Family) -> String {
        if let Some(transcript) = &self.transcript {
            return transcript.text(self);
        }
        let mut text = format!("{}: {}", self.kind.code(family), one_line(&self.message));
        if let Some(hint) = &self.hint {
            text.push_str(&format!("\nhint: {}", one_line(hint)));
        }
        for (key, value) in self
            .extra
            .iter()
            .filter(|(key, value)| !is_for_programs(key, value))
        {
            let label = if key == "nearest" {
                "nearest lines"
            } else {
                key
            };
            match value {
                Value::String(value) if value.is_empty() => {}
                Value::String(value) if BLOCKS.contains(&key.as_str()) => {
                    text.push_str(&format!("\n{label}:\n{}", value.trim_end_matches('\n')));
                }
                Value::String(value) => text.push_str(&format!("\n{label}: {}", one_line(value))),
                value => text.push_str(&format!("\n{label}: {value}")),
            }
        }
        escape(&neutralise(&text, Ansi::Show)).into_owned()
    }

    /// What a program reads beside the text, in `_meta` of an MCP result.
    pub fn meta(&self, family: Family, correlation_id: &str) -> Map<String, Value> {
        let mut meta = Map::new();
        meta.insert("error_code".to_owned(), self.kind.code(family).into());
        meta.insert("retryable".to_owned(), self.retryable.into());
        meta.insert("correlation_id".to_owned(), correlation_id.into());
        let extra = self
            .extra
            .iter()
            .filter(|(key, value)| is_for_programs(key, value));
        meta.extend(extra.map(|(key, value)| (key.clone(), value.clone())));
        meta
    }

    /// The document of a failed `rlm query --json`: `{"error": …, "meta": {…}}`.
    pub fn to_document(&self, family: Family, correlation_id: &str) -> Value {
        let mut meta = self.meta(family, correlation_id);
        if let Some(hint) = &self.hint {
            meta.insert("hint".to_owned(), hint.clone().into());
        }
        meta.extend((*self.extra).clone());
        json!({"error": self.message, "meta": meta})
    }
}

/// Structured data and ids, which no model reads as text.
fn is_for_programs(key: &str, value: &Value) -> bool {
    value.is_object() || key == "session_id"
}

/// A message may quote a file name, and a file name may hold a line end: it must not pass for a line of ours.
fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

/// Data of several lines, which stands under its label instead of beside it.
const BLOCKS: &[&str] = &[
    "nearest",
    "stdout",
    "stderr",
    "deleted",
    "remaining",
    "conflicts",
];

impl From<llmc_host::Error> for Error {
    fn from(error: llmc_host::Error) -> Error {
        use llmc_host::Error as Host;
        let message = error.to_string();
        if let Host::PartlyDeleted {
            deleted_names,
            remaining_names,
            cause,
            ..
        } = error
        {
            let cause = Error::from(*cause);
            return Error::new(cause.kind, message)
                .with("deleted", deleted_names.join("\n"))
                .with("remaining", remaining_names.join("\n"));
        }
        let (kind, hint) = match &error {
            Host::OutsideRoots { .. } => (
                ErrorKind::InvalidPath,
                Some("use a path inside the workspace, or ask the operator to add a root"),
            ),
            Host::ForeignRepository { .. } => (
                ErrorKind::InvalidPath,
                Some(
                    "a worktree or submodule needs its main repository inside the roots: the operator adds it to mcp.tools.allowed_roots",
                ),
            ),
            Host::NoRoots { .. } => (
                ErrorKind::InvalidPath,
                Some(
                    "the operator must list roots in mcp.tools.allowed_roots or mcp.linux_ops.roots.allowed_roots",
                ),
            ),
            Host::BadPath { .. } => (
                ErrorKind::InvalidPath,
                Some("give a path relative to the workspace, such as src/main.rs"),
            ),
            Host::SpecialFile { .. } => (
                ErrorKind::InvalidPath,
                Some("give the path of a regular file or of a directory"),
            ),
            Host::Denylisted { .. } => (
                ErrorKind::InvalidPath,
                Some("its content is kept from tools; only the operator changes the denylist"),
            ),
            Host::Protected { what, .. } if what == "a root" => (
                ErrorKind::InvalidPath,
                Some("a root itself stays; name something inside it"),
            ),
            Host::Protected { .. } => (
                ErrorKind::InvalidPath,
                Some("only the operator changes this, outside of tools"),
            ),
            Host::NotFound { .. } => (ErrorKind::NotFound, None),
            Host::NoParent { .. } => (ErrorKind::NotFound, Some("create it with linux_fs_mkdirs")),
            Host::Permission { .. } => (
                ErrorKind::PermissionDenied,
                Some("the server's user may not do this; ask the user to change the permissions"),
            ),
            Host::NotADirectory { .. } => (ErrorKind::NotADirectory, None),
            Host::IsDirectory { .. } => (ErrorKind::IsDirectory, None),
            Host::AlreadyExists { .. } => (
                ErrorKind::AlreadyExists,
                Some("choose another name, or delete what is there first"),
            ),
            Host::ShaMismatch { .. } => (
                ErrorKind::PreconditionFailed,
                Some("read the file again and redo the change"),
            ),
            Host::NoMatch { found: 0, .. } => (
                ErrorKind::NoMatch,
                Some("copy the old text exactly from the file"),
            ),
            Host::NoMatch { .. } => (
                ErrorKind::NoMatch,
                Some(
                    "add surrounding lines to the old text, or set expected_replacements to the count",
                ),
            ),
            Host::Busy { .. } => (ErrorKind::Busy, Some("try again")),
            Host::NoSharedLease { .. } => (
                ErrorKind::Unavailable,
                Some("reading goes on; try again when the servers' database is back"),
            ),
            Host::TooLarge { .. } => (ErrorKind::TooLarge, None),
            Host::NotText { .. } | Host::BadRequest(_) => (ErrorKind::BadArgs, None),
            Host::BadPattern(why) if needs_backtracking(why) => (
                ErrorKind::BadPattern,
                Some("write it without; run_cmd with grep -rnP takes such patterns"),
            ),
            Host::BadPattern(_) => (
                ErrorKind::BadPattern,
                Some(
                    "escape characters that mean themselves with a backslash: \\( \\[ \\{ \\. \\* \\+ \\?",
                ),
            ),
            Host::BadGlob { .. } => (
                ErrorKind::BadPattern,
                Some(
                    "in a glob * ? [abc] {a,b} have a meaning; a backslash before one takes it away",
                ),
            ),
            Host::BadPatch(_) => (
                ErrorKind::BadArgs,
                Some(
                    "lines begin with a space, - or + below --- a/PATH, +++ b/PATH and @@ -1,3 +1,4 @@, or between *** Begin \
                     Patch, *** Update File: PATH, @@ and *** End Patch",
                ),
            ),
            Host::WriteFailed { .. } => (
                ErrorKind::WriteFailed,
                Some("the old content is unchanged; check the free space and try again"),
            ),
            Host::TimedOut => (
                ErrorKind::TimedOut,
                Some("narrow the call: a smaller directory, a glob, fewer lines"),
            ),
            Host::Cancelled => (ErrorKind::Cancelled, None),
            Host::Io { .. } | Host::Unsupported(_) | Host::PartlyDeleted { .. } => {
                (ErrorKind::Internal, None)
            }
        };
        let mut translated = Error::new(kind, message);
        translated.hint = hint.map(str::to_owned);
        translated.path = match &error {
            Host::NotFound { path }
            | Host::IsDirectory { path }
            | Host::NotADirectory { path }
            | Host::TooLarge { path, .. } => Some(path.clone()),
            _ => None,
        };
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

/// Whether a pattern was refused because the linear engine has no look-around and no backreferences.
fn needs_backtracking(why: &str) -> bool {
    why.contains("look-around") || why.contains("backreferences")
}

impl From<llmc_exec::Error> for Error {
    fn from(error: llmc_exec::Error) -> Error {
        use llmc_exec::Error as Exec;
        let message = error.to_string();
        let (kind, hint) = match error {
            Exec::CommandDenied { hint, .. } => (ErrorKind::CommandDenied, hint),
            Exec::NotExecutable { source, .. } if source.kind() == io::ErrorKind::WouldBlock => (
                ErrorKind::CommandDenied,
                "too many processes run: linux_proc_list shows what earlier commands have left, linux_proc_stop ends one"
                    .to_owned(),
            ),
            Exec::NotExecutable { .. } => (
                ErrorKind::CommandDenied,
                "check that its interpreter and libraries are installed".to_owned(),
            ),
            Exec::BadPolicy { hint, .. } => (ErrorKind::BadArgs, hint),
            Exec::UnreadablePolicy { .. } => (
                ErrorKind::BadArgs,
                "correct mcp.exec.policy_file; docs/policy.md describes the form".to_owned(),
            ),
            Exec::IsolationRequired { hint, .. } => (ErrorKind::IsolationRequired, hint),
            Exec::NoView { hint, .. } => {
                return Error::new(ErrorKind::Unavailable, message)
                    .hint(hint)
                    .retry(false);
            }
            Exec::TooManyViews(_) => {
                return Error::new(ErrorKind::Busy, message).hint("try again when one has ended");
            }
            Exec::BadRequest(_) => return Error::bad_args(message),
            Exec::NoWorkingDirectory => return Error::new(ErrorKind::NotFound, message),
            Exec::Host(error) => return error.into(),
            Exec::Failed { .. } => return Error::new(ErrorKind::Internal, message),
        };
        Error::new(kind, message).hint(hint)
    }
}

impl From<llmc_envelope::handles::Error> for Error {
    fn from(error: llmc_envelope::handles::Error) -> Error {
        use llmc_envelope::handles::Error as Store;
        let message = error.to_string();
        match error {
            Store::Unknown => Error::new(ErrorKind::HandleExpired, message)
                .hint("repeat the call that made it; handles live for a limited time"),
            Store::TooLarge { .. } => Error::new(ErrorKind::TooLarge, message),
            Store::BadRange { .. } => Error::bad_args(message),
            Store::Unavailable { .. } => Error::new(ErrorKind::Unavailable, message)
                .hint("call again in some seconds: what a handle names is kept"),
            _ => Error::new(ErrorKind::Internal, message),
        }
    }
}

impl From<llmc_store::Error> for Error {
    fn from(error: llmc_store::Error) -> Error {
        let kind = match error {
            llmc_store::Error::BadUrl(_) => ErrorKind::BadArgs,
            _ => ErrorKind::Unavailable,
        };
        Error::new(kind, error.to_string()).hint(error.hint())
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
                Error::new(ErrorKind::NotFound, message).hint("find its name with rag_search")
            }
            Index::NoSymbol { nearest, .. } => Error::new(ErrorKind::NotFound, message)
                .hint(format!("did you mean {}?", nearest.join(", "))),
            Index::Missing => Error::new(ErrorKind::NotFound, message)
                .hint("run llmc rag index, or try again soon"),
            Index::Busy => Error::new(ErrorKind::Busy, message).hint("try again"),
            Index::Unwritable(_) | Index::Full(_) => Error::new(ErrorKind::WriteFailed, message),
            Index::Embedding(source) => {
                let retryable = match source.downcast_ref() {
                    Some(llmc_model::Error::Provider { retryable, .. }) => *retryable,
                    _ => true,
                };
                Error::new(ErrorKind::ProviderFailed, message).retry(retryable)
            }
            Index::Damaged(_) => Error::new(ErrorKind::Internal, message).hint("try again"),
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
    fn a_model_reads_code_hint_and_data_as_plain_text() {
        let error = Error::bad_args("no path")
            .hint("give one")
            .with("bytes", 3)
            .with("nearest", "one\n# LLMC: forged\n")
            .with("stderr", "")
            .with("budget_summary", json!({"calls": 1}));
        assert_eq!(
            error.plain_text(Family::Te),
            "invalid_args: no path\nhint: give one\nbytes: 3\nnearest lines:\none\n\\# LLMC: forged"
        );
        let meta = Value::Object(error.meta(Family::Linux, "id"));
        let expected = json!({
            "error_code": "BAD_ARGS", "retryable": false, "correlation_id": "id", "budget_summary": {"calls": 1},
        });
        assert_eq!(meta, expected);
    }
}
