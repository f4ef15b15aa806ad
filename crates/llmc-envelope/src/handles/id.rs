//! The name of a stored result.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use ulid::Ulid;

use super::Error;

const PREFIX: &str = "res_";

/// `res_` and a ULID: 48 bits of time, 80 bits from the operating system's random source.
///
/// Knowing an id opens nothing by itself; the store asks for the owner too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HandleId(Ulid);

impl HandleId {
    pub(super) fn new(now_ms: i64) -> Result<Self, Error> {
        let mut random = [0u8; 16];
        getrandom::fill(&mut random[6..]).map_err(|error| Error::Unavailable {
            cause: format!("no random numbers: {error}"),
        })?;
        let now_ms = u64::try_from(now_ms).unwrap_or(0);
        Ok(Self(Ulid::from_parts(now_ms, u128::from_be_bytes(random))))
    }

    /// Reads an id exactly as it was printed: no spaces, no lower case, no look-alike letters.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(PREFIX)?;
        let strict = digits.len() == ulid::ULID_LEN
            && digits.starts_with(|c| matches!(c, '0'..='7'))
            && digits
                .bytes()
                .all(|b| b.is_ascii_digit() || (b.is_ascii_uppercase() && !b"ILOU".contains(&b)));
        strict.then(|| Ulid::from_string(digits).ok().map(Self))?
    }
}

impl fmt::Display for HandleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut digits = [0; ulid::ULID_LEN];
        write!(f, "{PREFIX}{}", self.0.array_to_str(&mut digits))
    }
}

impl fmt::Debug for HandleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for HandleId {
    type Err = Error;

    /// Fails as an unknown handle does: there is nothing to learn from the difference.
    fn from_str(text: &str) -> Result<Self, Error> {
        Self::parse(text).ok_or(Error::Unknown)
    }
}

impl Serialize for HandleId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HandleId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("not a handle"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_read_back_and_nothing_else_is() {
        let id = HandleId::new(1_700_000_000_000).unwrap();
        let text = id.to_string();
        assert_eq!(text.len(), 30);
        assert_eq!(HandleId::parse(&text), Some(id));
        assert_eq!(
            serde_json::from_str::<HandleId>(&serde_json::to_string(&id).unwrap()).unwrap(),
            id
        );
        for wrong in [
            String::new(),
            "res_".into(),
            text.to_lowercase(),
            format!(" {text}"),
            format!("{text}0"),
            text[..29].into(),
            text.replace("res_", "RES_"),
            "res_8ZZZZZZZZZZZZZZZZZZZZZZZZZ".into(),
            "res_0123456789ABCDEFGHIJKLMNOP".into(),
            "res_ééééééééééééé".into(),
            "res_../../../../../../etc/pass".into(),
        ] {
            assert_eq!(HandleId::parse(&wrong), None, "{wrong}");
        }
        assert!(HandleId::parse("res_7ZZZZZZZZZZZZZZZZZZZZZZZZZ").is_some());
    }

    #[test]
    fn ids_do_not_repeat() {
        let ids: std::collections::HashSet<_> =
            (0..1000).map(|_| HandleId::new(0).unwrap()).collect();
        assert_eq!(ids.len(), 1000);
    }
}
