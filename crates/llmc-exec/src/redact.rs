//! Settings files of tool chains without the secrets in them.
//!
//! A registry's address or a commit author's name is needed for the tool to work; the token beside it is not. Lines whose
//! key names a secret are dropped, and so are user and password in addresses. What is no text is shown empty.

/// Parts of keys whose values are secrets, in lower case.
const SECRET_KEYS: [&str; 14] = [
    "token",
    "secret",
    "password",
    "passwd",
    "passphrase",
    "_auth",
    "credential",
    "apikey",
    "api_key",
    "api-key",
    "accesskey",
    "access_key",
    "private",
    "extraheader",
];
/// Elements of Maven's settings that hold secrets.
const SECRET_ELEMENTS: [&str; 3] = ["servers", "password", "passphrase"];

/// The text of a settings file without its secrets.
pub(super) fn redacted(bytes: &[u8]) -> String {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return String::new();
    };
    if text.trim_start().starts_with('<') {
        return without_elements(text);
    }
    let mut out = String::with_capacity(text.len());
    for line in text.lines().filter(|line| !is_secret_line(line)) {
        out.push_str(&without_user_info(line));
        out.push('\n');
    }
    out
}

/// Whether what stands before the first `=` or `:` names a secret. A line without either is part of the value before or
/// a section; it is dropped if it names a secret anywhere.
fn is_secret_line(line: &str) -> bool {
    let lower = line.to_lowercase();
    // In `.npmrc` a key begins with an address: `//host:8080/path/:_authToken=…`.
    let key = match lower.trim_start().starts_with("//") {
        true => lower
            .rsplit_once('=')
            .map_or(lower.as_str(), |(key, _)| key),
        false => lower
            .split_once(['=', ':'])
            .map_or(lower.as_str(), |(key, _)| key),
    };
    SECRET_KEYS.iter().any(|part| key.contains(part))
}

/// `https://user:password@host/` without user and password.
fn without_user_info(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        out.push_str(before);
        let end = after
            .find(|c: char| c == '/' || c == '"' || c == '\'' || c.is_whitespace())
            .unwrap_or(after.len());
        let host = match after[..end].rfind('@') {
            Some(user) => &after[user + 1..],
            None => after,
        };
        // What was looked at must not be looked at again: a host holds no `://`.
        rest = host;
    }
    out.push_str(rest);
    out
}

/// XML without the elements that hold secrets. An element that does not end takes the rest of the text with it.
fn without_elements(text: &str) -> String {
    let mut text = text.to_owned();
    for name in SECRET_ELEMENTS {
        let (open, close) = (format!("<{name}"), format!("</{name}>"));
        let mut from = 0;
        while let Some(at) = find_ignoring_case(&text, &open, from) {
            // `<serversX>` is another element.
            let next = text[at + open.len()..].chars().next();
            if next.is_some_and(|c| c.is_alphanumeric() || c == '-' || c == '_') {
                from = at + open.len();
                continue;
            }
            let end =
                find_ignoring_case(&text, &close, at).map_or(text.len(), |at| at + close.len());
            text.replace_range(at..end, "");
            from = at;
        }
    }
    text.lines()
        .map(|line| without_user_info(line) + "\n")
        .collect()
}

fn find_ignoring_case(text: &str, what: &str, from: usize) -> Option<usize> {
    let found = text.as_bytes()[from..]
        .windows(what.len())
        .position(|part| part.eq_ignore_ascii_case(what.as_bytes()))?;
    Some(from + found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_stay_and_secrets_go() {
        for (given, shown) in [
            (
                "registry=https://npm.example/\n//npm.example:8080/:_authToken=S3CRET\n//x/:username=u\n_auth = S3CRET\nsave=true\n",
                "registry=https://npm.example/\n//x/:username=u\nsave=true\n",
            ),
            (
                "[registries.corp]\nindex = \"sparse+https://u:S3CRET@corp.example/i/\"\ntoken = \"S3CRET\"\n[registry]\nTOKEN=\"S3CRET\"\n",
                "[registries.corp]\nindex = \"sparse+https://corp.example/i/\"\n[registry]\n",
            ),
            (
                "[user]\n\tname = A. Author\n\temail = a@b.example\n[url \"https://S3CRET@github.com/\"]\n\tinsteadOf = https://github.com/\n[http]\n\textraHeader = Authorization: S3CRET\n",
                "[user]\n\tname = A. Author\n\temail = a@b.example\n[url \"https://github.com/\"]\n\tinsteadOf = https://github.com/\n[http]\n",
            ),
            (
                "npmScopes:\n  corp:\n    npmAuthToken: S3CRET\n    npmRegistryServer: \"https://r.example\"\n",
                "npmScopes:\n  corp:\n    npmRegistryServer: \"https://r.example\"\n",
            ),
            (
                "org.gradle.jvmargs=-Xmx2g\nsonatypePassword=S3CRET\nsigning.secretKeyRingFile=/S3CRET\n",
                "org.gradle.jvmargs=-Xmx2g\n",
            ),
            (
                "<settings>\n<mirrors><url>https://u:S3CRET@m.example/</url></mirrors>\n<servers><server><id>a</id><Password>S3CRET</Password></server></servers>\n<proxy><password>S3CRET</password></proxy>\n</settings>",
                "<settings>\n<mirrors><url>https://m.example/</url></mirrors>\n\n<proxy></proxy>\n</settings>\n",
            ),
            ("<settings>\n<servers>\n<x>S3CRET", "<settings>\n"),
        ] {
            assert_eq!(redacted(given.as_bytes()), shown);
        }
        assert_eq!(redacted(b"token \xff S3CRET"), "");
    }
}
