//! The format of scores and confidences.

use serde::Serializer;

/// Writes a number from 0 to 1 with three decimals; more would be noise of a 32-bit number.
///
/// # Errors
/// The serializer's.
pub fn three_decimals<S: Serializer>(number: &f32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64((f64::from(*number) * 1000.0).round() / 1000.0)
}
