//! The list `mcpServers` of Continue's YAML files: read, and one entry removed.
//!
//! People write these files in the plain form of Continue's documentation, so this reads that form line by line: a list of
//! blocks whose values are texts, lists of texts or blocks of texts. An entry with anything else (anchors, text over several
//! lines, secrets that only Continue fills in) is reported as one that cannot be moved, and stays as it is.

use std::ops::Range;

use crate::edit::EditError;
use crate::servers::{CREDENTIAL_KEYS, ClientServer, URL_KEYS};

const LIST: &str = "mcpServers:";
/// Begins a value that Continue replaces.
const TEMPLATE: &str = "${{";

/// One entry and the lines that it takes.
struct Item {
    lines: Range<usize>,
    server: ClientServer,
}

#[derive(Debug, PartialEq)]
enum YamlValue {
    Text(String),
    List(Vec<String>),
    Block(Vec<(String, String)>),
    Unread,
}

/// The servers of a file; `None` where it has no such list in that form.
pub(crate) fn started_servers(text: &str) -> Option<Vec<ClientServer>> {
    let items = items(&text.lines().collect::<Vec<_>>())?;
    Some(items.into_iter().map(|item| item.server).collect())
}

/// The text without the entry of this name.
pub(crate) fn remove_named(text: &str, name: &str) -> Result<String, EditError> {
    let lines: Vec<&str> = text.lines().collect();
    let items = items(&lines).unwrap_or_default();
    let mut named = items.iter().filter(|item| item.server.entry == name);
    let item = match (named.next(), named.next()) {
        (Some(item), None) => item,
        (None, _) => return Ok(text.to_owned()),
        (Some(_), Some(_)) => {
            let reason = format!("it has two entries of the name {name}");
            return Err(EditError::Unexpected(reason));
        }
    };
    let is_only = items.len() == 1;
    let kept = text.split_inclusive('\n').enumerate();
    let kept = kept.filter(|(at, _)| !item.lines.contains(at));
    let after: String = kept
        .map(|(_, line)| match is_only && is_list(line) {
            true => line.replacen(LIST, "mcpServers: []", 1),
            false => line.to_owned(),
        })
        .collect();
    let mut left: Vec<ClientServer> = items.iter().map(|item| item.server.clone()).collect();
    left.retain(|server| server.entry != name);
    match started_servers(&after).unwrap_or_default() == left {
        true => Ok(after),
        false => Err(EditError::WouldLoseContent),
    }
}

fn is_list(line: &str) -> bool {
    line.strip_prefix(LIST)
        .is_some_and(|rest| without_comment(rest).is_empty())
}

fn items(lines: &[&str]) -> Option<Vec<Item>> {
    let mut lists = lines.iter().enumerate().filter(|(_, line)| is_list(line));
    let (begin, _) = lists.next()?;
    if lists.next().is_some() || lines.iter().any(|line| line.contains('\t')) {
        return None;
    }
    let first = (begin + 1..lines.len()).find(|at| has_content(lines[*at]))?;
    let depth = indent(lines[first]);
    let ends = |at: usize| {
        let line = lines[at];
        has_content(line) && (indent(line) < depth || (indent(line) == depth && !starts_item(line)))
    };
    let mut end = (first..lines.len())
        .find(|at| ends(*at))
        .unwrap_or(lines.len());
    // Blank lines and comments before what follows belong to that.
    while end > first && !has_content(lines[end - 1]) {
        end -= 1;
    }
    let starts: Vec<usize> = (first..end)
        .filter(|at| indent(lines[*at]) == depth && starts_item(lines[*at]))
        .collect();
    let items = starts.iter().enumerate().map(|(number, start)| {
        let end = starts.get(number + 1).copied().unwrap_or(end);
        Item {
            lines: *start..end,
            server: server(&lines[*start..end], depth),
        }
    });
    Some(items.collect())
}

fn server(lines: &[&str], depth: usize) -> ClientServer {
    let mut server = ClientServer::default();
    // The dash is as good as a space: keys stand below the first one.
    let first = format!("{} {}", &lines[0][..depth], &lines[0][depth + 1..]);
    let mut lines: Vec<&str> = lines.to_vec();
    lines[0] = &first;
    let keys = indent(&first);
    let mut at = 0;
    while at < lines.len() {
        let line = lines[at];
        let begin = at + 1;
        at = (begin..lines.len())
            .find(|at| {
                let line = lines[*at];
                has_content(line)
                    && indent(line) <= keys
                    && !(indent(line) == keys && starts_item(line))
            })
            .unwrap_or(lines.len());
        if !has_content(line) {
            continue;
        }
        let Some((key, value)) = split_pair(line.trim_start()).filter(|_| indent(line) == keys)
        else {
            server.is_special = true;
            continue;
        };
        let below: Vec<&str> = lines[begin..at]
            .iter()
            .filter(|line| has_content(line))
            .copied()
            .collect();
        take(&mut server, &key, read_value(value, &below));
    }
    server
}

fn take(server: &mut ClientServer, key: &str, value: YamlValue) {
    match (key, value) {
        ("name", YamlValue::Text(text)) => server.entry = text,
        ("command", YamlValue::Text(text)) => server.command = Some(text),
        ("args", YamlValue::List(texts)) => server.args = texts,
        ("env", YamlValue::Block(pairs)) => server.env = pairs,
        (key, YamlValue::Text(text)) if URL_KEYS.contains(&key) => server.url = Some(text),
        ("apiKey", _) => server.has_credentials = true,
        (key, _) if CREDENTIAL_KEYS.contains(&key) => server.has_credentials = true,
        ("name" | "command" | "args" | "env" | "url" | "cwd" | "uses" | "with", _) => {
            server.is_special = true;
        }
        ("disabled", value) if value != YamlValue::Text("false".to_owned()) => {
            server.is_special = true;
        }
        ("enabled", value) if value != YamlValue::Text("true".to_owned()) => {
            server.is_special = true;
        }
        _ => {}
    }
}

/// A value on the line of its key, or in the lines below it.
fn read_value(value: &str, below: &[&str]) -> YamlValue {
    let value = without_comment(value);
    match (value, below) {
        ("", []) => YamlValue::Unread,
        ("", below) => read_block(below),
        (value, []) if value.starts_with('[') => flow_list(value),
        ("{}", []) => YamlValue::Block(Vec::new()),
        (value, []) => scalar(value).map_or(YamlValue::Unread, YamlValue::Text),
        _ => YamlValue::Unread,
    }
}

fn read_block(lines: &[&str]) -> YamlValue {
    let depth = indent(lines[0]);
    if lines.iter().any(|line| indent(line) != depth) {
        return YamlValue::Unread;
    }
    let texts = || lines.iter().map(|line| line.trim_start());
    if lines.iter().all(|line| starts_item(line)) {
        let items = texts().map(|line| scalar(without_comment(&line[1..])));
        return match items.collect() {
            Some(items) => YamlValue::List(items),
            None => YamlValue::Unread,
        };
    }
    let pairs = texts().map(|line| {
        let (key, value) = split_pair(line)?;
        Some((key, scalar(without_comment(value))?))
    });
    match pairs.collect() {
        Some(pairs) => YamlValue::Block(pairs),
        None => YamlValue::Unread,
    }
}

/// `[a, "b c", 'd']`.
fn flow_list(value: &str) -> YamlValue {
    if let Ok(texts) = serde_json::from_str::<Vec<String>>(value) {
        return YamlValue::List(texts);
    }
    let inner = value
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let Some(inner) = inner.filter(|inner| !inner.contains(['[', '{', '\\'])) else {
        return YamlValue::Unread;
    };
    let mut texts = Vec::new();
    let mut rest = inner.trim();
    while !rest.is_empty() {
        let end = match rest.chars().next() {
            Some(quote @ ('"' | '\'')) => match rest[1..].find(quote) {
                Some(close) => close + 2,
                None => return YamlValue::Unread,
            },
            _ => rest.find(',').unwrap_or(rest.len()),
        };
        let Some(text) = scalar(rest[..end].trim()) else {
            return YamlValue::Unread;
        };
        texts.push(text);
        rest = rest[end..].trim_start();
        rest = match rest.strip_prefix(',') {
            Some(rest) => rest.trim_start(),
            None if rest.is_empty() => rest,
            None => return YamlValue::Unread,
        };
    }
    YamlValue::List(texts)
}

/// A text without its quotes; `None` for what is no plain text.
fn scalar(value: &str) -> Option<String> {
    let value = value.trim();
    let text = match value.chars().next()? {
        '"' => serde_json::from_str::<String>(value).ok()?,
        '\'' => {
            let inner = value.strip_prefix('\'')?.strip_suffix('\'')?;
            let text = inner.replace("''", "\0");
            (!text.contains('\'')).then(|| text.replace('\0', "'"))?
        }
        '&' | '*' | '!' | '|' | '>' | '%' | '@' | '`' | '{' | '[' | '#' => return None,
        _ if value.contains(": ") || value.ends_with(':') => return None,
        _ => value.to_owned(),
    };
    (!text.contains(TEMPLATE)).then_some(text)
}

/// Key and value of a line; a key may have quotes.
fn split_pair(line: &str) -> Option<(String, &str)> {
    let (key, value) = line.split_once(':')?;
    let is_apart = value.is_empty() || value.starts_with(' ');
    let key = is_apart.then(|| scalar(key))??;
    Some((key, value))
}

/// A value without the comment after it; quotes may hold a number sign.
fn without_comment(value: &str) -> &str {
    let value = value.trim();
    let mut quote = None;
    let mut before = ' ';
    for (at, c) in value.char_indices() {
        match (quote, c) {
            (None, '#') if before == ' ' => return value[..at].trim_end(),
            (None, '"' | '\'') if before == ' ' || before == '[' || before == ',' => {
                quote = Some(c)
            }
            (Some(open), c) if c == open && before != '\\' => quote = None,
            _ => {}
        }
        before = c;
    }
    value
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

fn starts_item(line: &str) -> bool {
    let line = line.trim_start_matches(' ');
    line == "-" || line.starts_with("- ")
}

fn has_content(line: &str) -> bool {
    let line = line.trim();
    !line.is_empty() && !line.starts_with('#')
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"name: mine
version: 0.0.1
schema: v1
models:
  - name: m
    provider: ollama
mcpServers:
  # for dates
  - name: time
    command: uvx
    args:
      - mcp-server-time
      - "--local-timezone=UTC"   # quoted
    env:
      MODE: 'it''s'
      LEVEL: 3
  - name: My Files
    command: npx
    args: ["-y", "server-files", '/home/me']

  - name: docs
    type: streamable-http
    url: https://example.com/mcp
  - name: secret
    command: npx
    env:
      TOKEN: ${{ secrets.TOKEN }}
  - name: keyed
    url: https://example.com/mcp
    requestOptions:
      headers:
        Authorization: Bearer x
  - uses: someone/block

# rules
rules: []
"#;

    fn found(text: &str) -> Vec<ClientServer> {
        started_servers(text).unwrap()
    }

    #[test]
    fn servers_are_read() {
        let servers = found(FILE);
        let names: Vec<&str> = servers.iter().map(|server| server.entry.as_str()).collect();
        assert_eq!(names, ["time", "My Files", "docs", "secret", "keyed", ""]);
        let time = &servers[0];
        assert_eq!(time.command.as_deref(), Some("uvx"));
        assert_eq!(time.args, ["mcp-server-time", "--local-timezone=UTC"]);
        let env = [("MODE", "it's"), ("LEVEL", "3")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(time.env, env);
        assert!(!time.is_special && !time.has_credentials);
        assert_eq!(servers[1].args, ["-y", "server-files", "/home/me"]);
        assert_eq!(servers[2].url.as_deref(), Some("https://example.com/mcp"));
        assert!(servers[3].is_special, "only Continue fills in its secrets");
        assert!(servers[4].has_credentials);
        assert!(servers[5].is_special);
    }

    #[test]
    fn what_is_not_plain_is_not_moved() {
        for lines in [
            "command: |\n      sh",
            "command: &a sh",
            "command: sh\n    args: [a, [b]]",
            "command: sh\n    args:\n      - a: b",
            "command: sh\n    cwd: /tmp",
            "command: sh\n    disabled: true",
            "command: sh\n    args: \"a b\"",
            "command: sh\n    env: {A: b}",
            "command: sh -c\n      more of it",
        ] {
            let text = format!("mcpServers:\n  - name: a\n    {lines}\n");
            assert!(found(&text)[0].is_special, "{text}");
        }
        for text in [
            "",
            "mcpServers: []\n",
            "mcpServers:\n\t- name: a\n",
            "a: 1\n",
        ] {
            assert_eq!(started_servers(text).unwrap_or_default(), [], "{text:?}");
        }
    }

    #[test]
    fn one_entry_is_removed_and_all_else_stays() {
        let after = remove_named(FILE, "time").unwrap();
        let names: Vec<String> = found(&after).into_iter().map(|one| one.entry).collect();
        assert_eq!(names, ["My Files", "docs", "secret", "keyed", ""]);
        assert!(
            after.contains("  # for dates\n  - name: My Files\n"),
            "{after}"
        );
        assert_eq!(after.lines().count(), FILE.lines().count() - 8, "{after}");
        assert_eq!(remove_named(FILE, "nothing").unwrap(), FILE);
        let middle = remove_named(FILE, "My Files").unwrap();
        assert_eq!(found(&middle).len(), 5, "{middle}");
        assert!(middle.ends_with("# rules\nrules: []\n"), "{middle}");
    }

    #[test]
    fn the_last_entry_leaves_an_empty_list() {
        let text = "name: x\nmcpServers:\n- name: a\n  command: sh\n  args:\n  - b\nrules: []\n";
        assert_eq!(found(text)[0].args, ["b"]);
        let after = remove_named(text, "a").unwrap();
        assert_eq!(after, "name: x\nmcpServers: []\nrules: []\n");
        let twice = "mcpServers:\n- name: a\n- name: a\n";
        assert!(matches!(
            remove_named(twice, "a"),
            Err(EditError::Unexpected(_))
        ));
    }
}
