//! Checks that several tools share.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use llmc_exec::signal_number;
use llmc_host::walk::FileGlob;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::ErrorKind::{self, *};
use crate::error::{Error, Result};

/// What goes wrong with a path.
pub(super) const PATH_ERRORS: &[ErrorKind] = &[InvalidPath, NotFound, PermissionDenied];
/// What goes wrong when a file is read.
pub(super) const READ_ERRORS: &[ErrorKind] = &[InvalidPath, NotFound, IsDirectory, TooLarge];
/// What goes wrong when a file is read that may be a document.
pub(super) const DOCUMENT_ERRORS: &[ErrorKind] = &[
    InvalidPath,
    NotFound,
    IsDirectory,
    TooLarge,
    BadArgs,
    IsolationRequired,
];
/// What goes wrong when a file is written.
pub(super) const WRITE_ERRORS: &[ErrorKind] =
    &[InvalidPath, NotFound, PreconditionFailed, Busy, WriteFailed];
/// What goes wrong when a program is started.
pub(super) const RUN_ERRORS: &[ErrorKind] = &[CommandDenied, IsolationRequired, InvalidPath];
/// What goes wrong when a program is started on a copy-on-write view.
pub(super) const VIEW_ERRORS: &[ErrorKind] = &[
    CommandDenied,
    IsolationRequired,
    InvalidPath,
    NotFound,
    Unavailable,
    Busy,
];
/// What goes wrong when the index is asked.
pub(super) const INDEX_ERRORS: &[ErrorKind] = &[NotFound, Busy];

/// A number with its default and its bounds; the schema and the check both read them here.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(transparent)]
pub(crate) struct Count<const DEFAULT: i64, const MIN: i64, const MAX: i64>(i64);

/// A number that only has a least value.
pub(crate) type AtLeast<const DEFAULT: i64, const MIN: i64> = Count<DEFAULT, MIN, { i64::MAX }>;

impl<const DEFAULT: i64, const MIN: i64, const MAX: i64> JsonSchema for Count<DEFAULT, MIN, MAX> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("Count_{DEFAULT}_{MIN}_{MAX}").into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let mut schema = json_schema!({"type": "integer", "default": DEFAULT, "minimum": MIN});
        if MAX != i64::MAX {
            schema.insert("maximum".to_owned(), MAX.into());
        }
        schema
    }
}

/// The number within its bounds, or its default.
pub(crate) fn bounded<const DEFAULT: i64, const MIN: i64, const MAX: i64>(
    name: &str,
    value: Option<Count<DEFAULT, MIN, MAX>>,
) -> Result<u64> {
    bounded_by(name, value.map(|value| value.0), DEFAULT, MIN..=MAX)
}

// A switch that is on unless the caller says otherwise. (Documentation would become each such argument's description.)
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(extend("default" = true), inline)]
pub(super) struct OnUnlessFalse(bool);

impl OnUnlessFalse {
    pub(super) fn is_on(given: Option<OnUnlessFalse>) -> bool {
        given.is_none_or(|given| given.0)
    }
}

/// A number within bounds that the configuration decides, or the default.
pub(crate) fn bounded_by(
    name: &str,
    value: Option<i64>,
    default: i64,
    bounds: RangeInclusive<i64>,
) -> Result<u64> {
    let value = value.unwrap_or(default);
    if !bounds.contains(&value) {
        let (low, high) = bounds.into_inner();
        return Err(Error::bad_args(if high == i64::MAX {
            format!("{name} must be at least {low}, not {value}")
        } else {
            format!("{name} must be from {low} to {high}, not {value}")
        }));
    }
    Ok(u64::try_from(value).unwrap_or(0))
}

/// The argument `file_glob`.
pub(super) fn parse_glob(given: Option<&str>) -> Result<Option<FileGlob>> {
    let parsed = given.map(FileGlob::new).transpose();
    parsed.map_err(|error| Error::from(error).about_argument("file_glob"))
}

/// What is to be said about a glob: how it was read where that is not what it says, and why nothing was found.
pub(super) fn glob_note(
    given: Option<&str>,
    glob: Option<&FileGlob>,
    files: u64,
) -> Option<String> {
    let (given, glob) = (given?, glob?);
    let mut notes = Vec::new();
    if let Some(ending) = glob.ending() {
        notes.push(format!("file_glob {given} read as {given} or {ending}"));
    }
    if files == 0 {
        let against = match given.contains('/') {
            true => "paths below the root; src/**/*.py is one",
            false => "file names; *.py is one",
        };
        notes.push(format!(
            "no file matches file_glob {given}: it is compared with {against}"
        ));
    }
    (!notes.is_empty()).then(|| notes.join("; "))
}

/// What a tool answers that did something to one path.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct DonePath {
    ok: bool,
    path: String,
}

impl DonePath {
    pub(super) fn new(path: &str) -> DonePath {
        DonePath {
            ok: true,
            path: path.to_owned(),
        }
    }
}

/// A signal by name or number.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "Value")]
pub(super) struct SignalNumber(pub(super) i32);

impl TryFrom<Value> for SignalNumber {
    type Error = String;

    fn try_from(given: Value) -> Result<SignalNumber, String> {
        let text = match given {
            Value::String(text) => text,
            other => other.to_string(),
        };
        signal_number(&text).map(SignalNumber).ok_or_else(|| {
            let text: String = text.chars().take(40).collect();
            format!("{text:?} is no signal; give a name such as TERM, or a number")
        })
    }
}
