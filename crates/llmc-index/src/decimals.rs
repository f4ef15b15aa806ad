//! How scores and confidences are written.

use serde::Serializer;

/// Writes a number from 0 to 1 with three decimals: nobody ranks by more, and the rest of a 32-bit number is noise.
///
/// # Errors
/// The serializer's.
pub fn three_decimals<S: Serializer>(number: &f32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64((f64::from(*number) * 1000.0).round() / 1000.0)
}
