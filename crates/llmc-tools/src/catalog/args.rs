//! Checks that several tools share.

use std::ops::RangeInclusive;

use llmc_exec::signal_number;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{Error, Result};

/// A number within bounds, or the default.
pub(crate) fn bounded(
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

/// What a tool answers that did something to one path.
#[derive(Debug, Serialize)]
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
