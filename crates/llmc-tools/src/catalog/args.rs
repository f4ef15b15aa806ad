//! Checks that several tools share.

use std::ops::RangeInclusive;

use crate::error::{Error, Result};

/// A number within bounds, or the default.
pub(super) fn bounded(
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
