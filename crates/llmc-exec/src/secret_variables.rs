//! Which environment variables hold secrets: by their names, and by what their values look like.
//!
//! A harmless value is withheld rather than a secret passed on, but names that only resemble one (`TOKENIZERS_PARALLELISM`,
//! `GIT_AUTHOR_NAME`, `MAX_TOKENS=4096`) pass: programs behave differently without them.

/// A word of a name that ends with one of these names a secret: `GITHUB_TOKEN`, `PGPASSWORD`.
const SECRET_ENDINGS: [&str; 10] = [
    "TOKEN",
    "SECRET",
    "SECRETS",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "APIKEY",
    "CREDENTIAL",
    "CREDENTIALS",
    "COOKIE",
];
/// Whole words that name a secret as the last one of a name.
const SECRET_LAST_WORDS: [&str; 8] = [
    "KEY", "PASS", "PWD", "AUTH", "TOKENS", "PAT", "JWT", "COOKIES",
];
/// Two successive words that name a secret or what leads to one.
const SECRET_PAIRS: [(&str, &str); 5] = [
    ("API", "KEY"),
    ("ACCESS", "KEY"),
    ("PRIVATE", "KEY"),
    ("SECRET", "KEY"),
    ("AUTH", "SOCK"),
];
/// A name that ends with one of these says where something is; its value is no secret if it is a path.
const PLACE_WORDS: [&str; 5] = ["FILE", "PATH", "DIR", "HOME", "FOLDER"];
/// The working directory and the one before it.
const NOT_SECRET: [&str; 2] = ["PWD", "OLDPWD"];
/// How tokens of well-known issuers begin, each followed by at least [`MIN_TOKEN_BYTES`] characters of a token.
const TOKEN_PREFIXES: [&str; 40] = [
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "gldt-",
    "sk-",
    "sk_live_",
    "sk_test_",
    "rk_live_",
    "rk_test_",
    "whsec_",
    "xoxa-",
    "xoxb-",
    "xoxe-",
    "xoxo-",
    "xoxp-",
    "xoxr-",
    "xoxs-",
    "xapp-",
    "AKIA",
    "ASIA",
    "AIza",
    "ya29.",
    "hf_",
    "npm_",
    "pypi-",
    "dop_v1_",
    "shpat_",
    "SG.",
    "hvs.",
    "dckr_pat_",
    "gsk_",
    "xai-",
    "nvapi-",
    "tvly-",
    "AGE-SECRET-KEY-",
    "eyJ",
];
const MIN_TOKEN_BYTES: usize = 12;
/// The shortest text that is taken for a random key without a prefix.
const MIN_RANDOM_BYTES: usize = 32;
/// Shannon entropy of each of its characters, in bits. Words and paths have less.
const MIN_RANDOM_ENTROPY: f64 = 4.2;

/// Whether a variable holds a secret.
pub(super) fn is_secret(name: &str, value: &[u8]) -> bool {
    !value.is_empty() && (is_secret_name(name, value) || is_secret_value(value))
}

fn is_secret_name(name: &str, value: &[u8]) -> bool {
    if NOT_SECRET.contains(&name) {
        return false;
    }
    let name = name.to_ascii_uppercase();
    let words: Vec<&str> = name
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect();
    let Some(last) = words.last() else {
        return false;
    };
    if PLACE_WORDS.contains(last) && value.starts_with(b"/") {
        return false;
    }
    let has_secret_word = words
        .iter()
        .any(|word| SECRET_ENDINGS.iter().any(|end| word.ends_with(end)));
    let has_secret_pair = words
        .windows(2)
        .any(|pair| SECRET_PAIRS.contains(&(pair[0], pair[1])));
    let is_number = value.iter().all(u8::is_ascii_digit);
    has_secret_word || has_secret_pair || (SECRET_LAST_WORDS.contains(last) && !is_number)
}

fn is_secret_value(value: &[u8]) -> bool {
    let text = String::from_utf8_lossy(value);
    text.contains("PRIVATE KEY-----")
        || text.split(is_separator).any(is_token)
        || has_secret_parameter(&text)
        || has_secret_in_address(&text)
}

fn is_separator(c: char) -> bool {
    c.is_whitespace() || matches!(c, ',' | ';' | '"' | '\'' | ':' | '@' | '&' | '?')
}

/// Whether a word looks like a token: one of a well-known issuer, or a long random text.
fn is_token(word: &str) -> bool {
    let is_token_text = |text: &str| {
        let is_of_token =
            |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'=');
        text.len() >= MIN_TOKEN_BYTES
            && text.bytes().all(is_of_token)
            && text.bytes().any(|b| b.is_ascii_digit())
    };
    let mut prefixes = TOKEN_PREFIXES.iter();
    prefixes.any(|prefix| word.strip_prefix(prefix).is_some_and(is_token_text)) || is_random(word)
}

/// Whether a word is as irregular as a generated key: mixed letters and digits without the shape of a path or a name.
fn is_random(word: &str) -> bool {
    let is_of_key =
        |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'=' | b'_' | b'-');
    let has = |kind: fn(&u8) -> bool| word.bytes().any(|b| kind(&b));
    word.len() >= MIN_RANDOM_BYTES
        && !word.starts_with('/')
        && word.bytes().all(is_of_key)
        && has(u8::is_ascii_lowercase)
        && has(u8::is_ascii_uppercase)
        && has(u8::is_ascii_digit)
        && longest_word(word) < 5
        && entropy(word.as_bytes()) >= MIN_RANDOM_ENTROPY
}

/// The longest run of lower-case letters: names have words in them, keys seldom.
fn longest_word(text: &str) -> usize {
    let runs = text.split(|c: char| !c.is_ascii_lowercase());
    runs.map(str::len).max().unwrap_or(0)
}

fn entropy(bytes: &[u8]) -> f64 {
    let mut counts = [0_u32; 256];
    for byte in bytes {
        counts[usize::from(*byte)] += 1;
    }
    let total = bytes.len() as f64;
    let parts = counts.iter().filter(|count| **count > 0).map(|count| {
        let part = f64::from(*count) / total;
        -part * part.log2()
    });
    parts.sum()
}

/// `password=…` among parameters, as in connection strings and the queries of addresses.
fn has_secret_parameter(text: &str) -> bool {
    let is_between = |c: char| c.is_whitespace() || matches!(c, '?' | '&' | ';');
    text.split(is_between).any(|parameter| {
        let Some((name, value)) = parameter.split_once('=') else {
            return false;
        };
        let name = name.to_ascii_lowercase();
        const NAMES: [&str; 9] = [
            "password",
            "passwd",
            "pwd",
            "secret",
            "token",
            "apikey",
            "api_key",
            "accountkey",
            "accesskey",
        ];
        // A whole value such as `a=b` is an option of a program, not a parameter among others.
        text.contains(is_between)
            && !value.is_empty()
            && NAMES.iter().any(|end| name.ends_with(end))
    })
}

/// An address with a password, or with a key in place of a user.
fn has_secret_in_address(text: &str) -> bool {
    text.split("://").skip(1).any(|rest| {
        let end =
            rest.find(|c: char| matches!(c, '/' | '?' | '#' | '"' | '\'') || c.is_whitespace());
        // A password may hold any of these; then what stands before the last `@` is looked at.
        let authority = &rest[..end.unwrap_or(rest.len())];
        let authority = match authority.contains('@') {
            true => authority,
            false => rest.split(char::is_whitespace).next().unwrap_or_default(),
        };
        let Some((user, _)) = authority.rsplit_once('@') else {
            return false;
        };
        match user.split_once(':') {
            // A port and a path look like a password with a slash, but for what they begin with.
            Some((name, password)) => {
                let is_port = password.split('/').next().is_some_and(|port| {
                    !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit())
                });
                let is_address = name.contains('/') || name.starts_with('[');
                let is_place = is_address || is_port && password.contains('/');
                !password.is_empty() && !is_place
            }
            None => user.len() >= 20 && user.bytes().any(|b| b.is_ascii_digit()),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_known_by_name() {
        for name in [
            "MY_TOKEN",
            "GITHUB_TOKEN",
            "npm_config__auth",
            "AWS_ACCESS_KEY_ID",
            "AWS_SECRET_ACCESS_KEY",
            "SSH_AUTH_SOCK",
            "PGPASSWORD",
            "MYSQL_PWD",
            "OPENAI_API_KEY",
            "STRIPE_KEY",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "VAULT_SECRET_ID",
            "LC_SECRET",
            "DB_PASS",
            "NODE_AUTH_TOKEN",
            "SESSION_COOKIE",
        ] {
            assert!(is_secret(name, b"value"), "{name}");
            assert!(!is_secret(name, b""), "{name}: there is nothing to hide");
        }
        for (name, value) in [
            ("TOKENIZERS_PARALLELISM", "false"),
            ("GIT_AUTHOR_NAME", "Ann"),
            ("MAX_TOKENS", "4096"),
            ("PWD", "/w"),
            ("XAUTHORITY", "/home/u/.Xauthority"),
            ("AWS_WEB_IDENTITY_TOKEN_FILE", "/var/run/token"),
            ("PASSWORD_STORE_DIR", "/home/u/.password-store"),
            ("KEYBOARD", "us"),
            ("AWS_REGION", "eu-west-1"),
            ("SSL_CERT_FILE", "/etc/ca.pem"),
        ] {
            assert!(!is_secret(name, value.as_bytes()), "{name}");
        }
    }

    #[test]
    fn secrets_are_known_by_their_values() {
        for value in [
            "ghp_Zk3vQ9tLx7Rw2bNf8sHdYp4mJc6gTa1eVu0o",
            "AKIAIOSFODNN7EXAMPLE",
            "Bearer eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0In0.x1y2",
            "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNz\n",
            "postgres://ann:pass-of-ann@localhost/shop",
            "https://u:p%40ss@proxy.example:3128",
            "postgres://ann:a/b@localhost/shop",
            "https://0123456789abcdef0123456789abcdef@sentry.example/1",
            "postgres://localhost/shop?user=ann&password=x1",
            "Server=db;User Id=sa;Password=x1;",
            "host=db user=ann password=x1",
            "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzQ4mVt8s2L",
            "a, ghp_Zk3vQ9tLx7Rw2bNf8sHdYp4mJc6gTa1eVu0o",
        ] {
            assert!(is_secret("HINT", value.as_bytes()), "{value}");
        }
        for value in [
            "postgres://localhost/shop",
            "postgres://ann@localhost/shop",
            "http://proxy.example:3128",
            "http://[::1]:8080/a@b",
            "localhost,.example,10.0.0.0/8",
            "debug,hyper=info,my_crate::token=trace",
            "unix:path=/run/user/1000/bus,guid=0123456789abcdef0123456789abcdef",
            "3e2f1a0b9c8d7e6f5a4b3c2d1e0f9a8b7c6d5e4f",
            "/nix/store/9a8bXq3LmZ7Rw2bNf8sHdYp4mJc6gTa1-python3-3.11",
            "-Xmx2g -Dfile.encoding=UTF-8",
            "--cfg=token",
            "ThisIsALongNameOfAProjectInCamelCase2024",
            "sk-learn-is-a-name-of-a-package",
            "rs=0:di=01;34:ln=01;36:mh=00:pi=40;33",
            "one\ntwo",
            "550e8400-e29b-41d4-a716-446655440000",
        ] {
            assert!(!is_secret("HINT", value.as_bytes()), "{value}");
        }
        assert!(!is_secret("HINT", b"\xff\xfe\x80"));
    }
}
