//! Hides what looks like a secret before it is recorded.
//!
//! A harmless value is hidden rather than a secret kept: names, the shape of the command, small numbers and flags stay
//! readable.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::{Captures, Regex};

const HIDDEN: &str = "***";

/// The text with everything that looks like a secret replaced by `***`.
pub fn mask_secrets(text: &str) -> String {
    // A short bare word, as most command names are, matches no rule: the patterns need not be compiled.
    if text.len() < 15 && !text.contains(['=', ':', ',', '@', ' ', '\t', '\n']) {
        return text.to_owned();
    }
    let mut text = Cow::Borrowed(text);
    for rule in RULES.iter() {
        if let Cow::Owned(masked) = rule.pattern.replace_all(&text, |found: &Captures<'_>| {
            let lead = found.name("lead").map_or("", |m| m.as_str());
            let value = found.name("value").map_or("", |m| m.as_str());
            let trail = found.name("trail").map_or("", |m| m.as_str());
            if (rule.is_harmless)(value) {
                return found[0].to_owned();
            }
            let quote = ["\\\"", "\"", "'"]
                .into_iter()
                .find(|quote| value.starts_with(quote))
                .unwrap_or("");
            format!("{lead}{quote}{HIDDEN}{quote}{trail}")
        }) {
            text = Cow::Owned(masked);
        }
    }
    text.into_owned()
}

struct Rule {
    pattern: Regex,
    is_harmless: IsHarmless,
}

/// Whether a matched value is no secret after all.
type IsHarmless = fn(&str) -> bool;

/// Names whose values are secrets.
const SECRET_NAMES: &str = r"token|secret|passw(?:or)?d|passwd|passphrase|passcode|\bpwd|api[_-]?key|access[_-]?key|private[_-]?key|signing[_-]?key|encryption[_-]?key|credential|set-cookie|\bcookie|\bpat\b";

/// Names whose values are secrets when they are long and look random.
const SUSPECT_NAMES: &str =
    r"key|auth|sig|signature|nonce|seed|salt|session|cert|code|jwt|sas|hmac";

static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    let quoted = r#"\\"[^"]*?\\"|"(?:[^"\\]|\\.)*"|'[^']*'"#;
    let assign = r#"[\w.-]*\\?["']?\s*(?:=>|:=|=|:)\s*"#;
    let never = |_: &str| false;
    let rules: Vec<(String, IsHarmless)> = vec![
        (
            r"(?s)(?<lead>-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----).*?(?<trail>-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\z)".into(),
            never,
        ),
        // user:password@host
        (r"(?<lead>://[^/\s:@]*:)(?<value>[^@\s/]+)(?<trail>@)".into(), never),
        // Authorization: Bearer …
        (
            r#"(?i)(?<lead>authorization\\?["']?\s*[:=]\s*\\?["']?(?:(?:bearer|basic|token|digest|negotiate)\s+)?)(?<value>[^\s"',;\\]+)"#.into(),
            never,
        ),
        (r"(?i)(?<lead>\bbearer\s+)(?<value>[\w.~+/=-]{8,})".into(), never),
        // password=…, "token": "…", SECRET => …
        (
            format!(r#"(?i)(?<lead>(?:{SECRET_NAMES}){assign})(?<value>{quoted}|[^\s"',;&)}}\]]+)"#),
            is_plain,
        ),
        // --password …, ["--token","…"]
        (
            format!(r#"(?i)(?<lead>--?[\w-]*(?:{SECRET_NAMES})[\w-]*\\?["']?(?:\s*,\s*\\?["']|\s+))(?<value>{quoted}|[^\s"',\]\\-][^\s"',\]\\]*)"#),
            is_plain,
        ),
        (
            format!(r#"(?i)(?<lead>\b[\w.-]*(?:{SUSPECT_NAMES})s?\\?["']?\s*(?:=>|:=|=|:)\s*\\?["']?)(?<value>[\w+/=.~-]{{20,}})"#),
            |value| !looks_random(value),
        ),
        // Tokens with their issuer's prefix.
        (
            r"(?<lead>\b(?:AKIA|ASIA|AIza|gh[pousr]_|github_pat_|glpat-|sk-|sk_live_|sk_test_|rk_live_|xox[abeoprs]-|xapp-|hf_|npm_|pypi-|ya29\.|eyJ|dop_v1_|shpat_|SG\.))(?<value>[\w.~+/=-]{12,})".into(),
            never,
        ),
    ];
    rules
        .into_iter()
        .map(|(pattern, is_harmless)| Rule {
            pattern: Regex::new(&pattern).expect("the patterns above are valid"),
            is_harmless,
        })
        .collect()
});

/// A small number or a flag, as in `max_tokens=2000`.
fn is_plain(value: &str) -> bool {
    let value = value.trim_matches(['"', '\'', '\\']);
    matches!(value, "" | "true" | "false" | "null" | "none" | HIDDEN)
        || (value.len() <= 7 && value.bytes().all(|b| b.is_ascii_digit()))
}

fn looks_random(value: &str) -> bool {
    let digits = value.bytes().filter(u8::is_ascii_digit).count();
    let letters = value.bytes().filter(u8::is_ascii_alphabetic).count();
    digits >= 2 && letters >= 2 && !value.contains("..") && value.matches('/').count() < 4
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn secrets_are_hidden_and_the_rest_stays() {
        for (text, masked) in [
            ("token=abc123def", "token=***"),
            ("DB_PASSWORD=hunter2 make", "DB_PASSWORD=*** make"),
            (
                "curl -H 'Authorization: Bearer abc.def.ghi' x",
                "curl -H 'Authorization: Bearer ***' x",
            ),
            (
                r#"{"password":"hunter2","path":"src"}"#,
                r#"{"password":"***","path":"src"}"#,
            ),
            (
                r#"{"env":"{\"api_key\":\"xyz\"}"}"#,
                r#"{"env":"{\"api_key\":\"***\"}"}"#,
            ),
            ("mysql --password hunter2 db", "mysql --password *** db"),
            (
                r#"["tool","--token","abcdef","x"]"#,
                r#"["tool","--token","***","x"]"#,
            ),
            ("AKIAIOSFODNN7EXAMPLE", "AKIA***"),
            (
                "git clone https://me:s3cret@host/x",
                "git clone https://me:***@host/x",
            ),
            ("ghp_0123456789abcdefghijABCDEFGHIJ012345 ok", "ghp_*** ok"),
            ("sk-ant-REDACTED", "sk-***"),
            ("key=0123456789abcdef0123456789abcdef", "key=***"),
            (
                "X-Amz-Signature=0123456789abcdef0123456789abcdef",
                "X-Amz-Signature=***",
            ),
            (
                "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\nrest",
                "-----BEGIN RSA PRIVATE KEY-----***-----END RSA PRIVATE KEY-----\nrest",
            ),
            (
                "-----BEGIN PRIVATE KEY-----\nMIIE",
                "-----BEGIN PRIVATE KEY-----***",
            ),
        ] {
            assert_eq!(mask_secrets(text), masked);
        }
    }

    #[test]
    fn ordinary_arguments_stay_readable() {
        for text in [
            r#"{"pattern":"fn main","path":"src/lib.rs"}"#,
            r#"{"budget_tokens":2000,"query":"where is the token parsed"}"#,
            "max_tokens=4096",
            "grep -rn password src/",
            "sha256=0123456789abcdef0123456789abcdef",
            "cargo test --lib keyboard",
            "handle res_01ARZ3NDEKTSV4RRFFQ69G5FAV chunk 3",
            "https://example.org/a/b?page=2",
        ] {
            assert_eq!(mask_secrets(text), text);
        }
    }

    proptest! {
        #[test]
        fn a_masked_text_has_nothing_more_to_mask(
            text in "(token|password|=|:|\"| |Bearer |AKIA|sk-|abcDEF0123456789xyz0|--secret |,|\\\\|\n){0,12}"
        ) {
            let once = mask_secrets(&text);
            prop_assert_eq!(mask_secrets(&once), once);
        }
    }
}
