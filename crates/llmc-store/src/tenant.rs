//! Whose rows these are.

use std::fmt;

/// The longest name of a tenant.
const MAX_TENANT_BYTES: usize = 63;

/// The name of a tenant: letters, digits, `_`, `-` and `.`, so that it needs no escaping anywhere.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Tenant(String);

impl Tenant {
    /// The tenant of this name, if that is a name.
    pub fn parse(name: &str) -> Option<Tenant> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        let fits = !name.is_empty() && name.len() <= MAX_TENANT_BYTES && name.bytes().all(is_plain);
        fits.then(|| Tenant(name.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_needs_escaping_is_none() {
        for good in ["default", "team-1", "a.b_c", &"x".repeat(63)] {
            assert_eq!(
                Tenant::parse(good).map(|tenant| tenant.0),
                Some(good.to_owned())
            );
        }
        for bad in [
            "",
            "a b",
            "a'; DROP TABLE x; --",
            "a\0",
            "ä",
            &"x".repeat(64),
        ] {
            assert_eq!(Tenant::parse(bad), None, "{bad}");
        }
    }
}
