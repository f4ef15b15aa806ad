//! The shape of documents whose structure is in their lines: YAML, TOML and Markdown.

use super::{ContentShape, lines_of_shape};

/// Lines read for a shape.
const MAX_LINES: usize = 200_000;

/// Keys of the two outermost levels, with what is below them.
pub(super) fn yaml(text: &str, room: usize) -> ContentShape {
    struct YamlKey {
        line: usize,
        indent: usize,
        level: usize,
        label: String,
        value: String,
        keys: usize,
        items: usize,
    }
    let mut keys: Vec<YamlKey> = Vec::new();
    // The open keys, outermost first, by their place in `keys` or as one too deep to show.
    let mut open: Vec<(usize, Option<usize>)> = Vec::new();
    let mut block: Option<usize> = None;
    for (n, line) in text.lines().take(MAX_LINES).enumerate() {
        let bare = line.trim_start();
        let indent = line.len() - bare.len();
        if bare.is_empty() || bare.starts_with('#') || bare.starts_with("---") || bare == "..." {
            continue;
        }
        if block.is_some_and(|outer| indent > outer) {
            continue;
        }
        block = None;
        let item = bare
            .strip_prefix("- ")
            .or_else(|| (bare == "-").then_some(""));
        // A list may stand at the indentation of its key.
        while open
            .last()
            .is_some_and(|(at, _)| *at > indent || (*at == indent && item.is_none()))
        {
            open.pop();
        }
        if item.is_some() {
            if let Some((_, Some(key))) = open.last() {
                keys[*key].items += 1;
            }
            if bare.ends_with(['|', '>']) {
                block = Some(indent);
            }
            // What is inside an item belongs to no key of its own.
            open.push((indent + 1, None));
            continue;
        }
        let Some((label, value)) = split_key(bare) else {
            continue;
        };
        let parent = open.last().copied();
        if let Some((_, Some(key))) = parent {
            keys[key].keys += 1;
        }
        let level = open.len();
        let shown = level < 2 && parent.is_none_or(|(_, key)| key.is_some());
        if matches!(value.chars().next(), Some('|' | '>')) {
            block = Some(indent);
        }
        if shown {
            keys.push(YamlKey {
                line: n + 1,
                indent,
                level,
                label: label.to_owned(),
                value: value.to_owned(),
                keys: 0,
                items: 0,
            });
        }
        open.push((indent, shown.then(|| keys.len() - 1)));
    }
    let lines: Vec<_> = keys
        .iter()
        .map(|key| {
            let what = match (key.keys, key.items) {
                (0, 0) => scalar(&key.value).to_owned(),
                (0, items) => format!("list of {items}"),
                (1, _) => "1 key".to_owned(),
                (keys, _) => format!("{keys} keys"),
            };
            let indent = if key.indent == 0 { 0 } else { 2 * key.level };
            format!("{}  {:indent$}{}: {what}", key.line, "", key.label)
        })
        .collect();
    lines_of_shape(lines, 0, "keys", "", room)
}

/// Tables with the number of their keys; keys outside of tables with their types.
pub(super) fn toml(text: &str, room: usize) -> ContentShape {
    let mut lines: Vec<(usize, String, usize)> = Vec::new();
    let mut in_table = false;
    let mut quotes: Option<&str> = None;
    let mut repeated: Option<(String, usize, usize)> = None;
    for (n, line) in text.lines().take(MAX_LINES).enumerate() {
        if let Some(mark) = quotes {
            if line.contains(mark) {
                quotes = None;
            }
            continue;
        }
        let bare = line.trim();
        if bare.starts_with('[') && bare.ends_with(']') && !line.starts_with(' ') {
            in_table = true;
            // `[[package]]` a thousand times over is one line.
            if let Some((name, _, times)) = &mut repeated
                && *name == bare
            {
                *times += 1;
                continue;
            }
            if let Some((_, at, times)) = repeated.take() {
                lines[at].2 = times;
            }
            if bare.starts_with("[[") {
                repeated = Some((bare.to_owned(), lines.len(), 1));
            }
            lines.push((n + 1, bare.to_owned(), 0));
            continue;
        }
        let Some((key, value)) = bare.split_once('=').filter(|_| !bare.starts_with('#')) else {
            continue;
        };
        let value = value.trim();
        for mark in ["\"\"\"", "'''"] {
            if value.starts_with(mark) && !value[3..].contains(mark) {
                quotes = Some(mark);
            }
        }
        if in_table {
            continue;
        }
        lines.push((n + 1, format!("{} = {}", key.trim(), scalar(value)), 0));
    }
    if let Some((_, at, times)) = repeated {
        lines[at].2 = times;
    }
    let lines = lines
        .into_iter()
        .map(|(line, text, times)| match times {
            0 | 1 => format!("{line}  {text}"),
            _ => format!("{line}  {text} {times} times"),
        })
        .collect();
    lines_of_shape(lines, 0, "tables and keys", "", room)
}

/// Headings with their lines.
pub(super) fn markdown(text: &str, room: usize) -> ContentShape {
    let mut fence: Option<&str> = None;
    let mut headings = Vec::new();
    for (n, line) in text.lines().take(MAX_LINES).enumerate() {
        let bare = line.trim_start();
        for mark in ["```", "~~~"] {
            if bare.starts_with(mark) {
                fence = match fence {
                    None => Some(mark),
                    Some(open) if open == mark => None,
                    open => open,
                };
            }
        }
        let level = line.bytes().take_while(|byte| *byte == b'#').count();
        if fence.is_none() && (1..=6).contains(&level) && line[level..].starts_with(' ') {
            headings.push((level, format!("{}  {}", n + 1, line.trim_end())));
        }
    }
    // The deepest headings go first when there are more than fit.
    let mut deepest = 6;
    let enough = room / 6;
    let up_to = |level| headings.iter().filter(|(at, _)| *at <= level).count();
    while deepest > 1 && up_to(deepest) > enough {
        deepest -= 1;
    }
    let kept: Vec<_> = headings
        .iter()
        .filter(|(level, _)| *level <= deepest)
        .map(|(_, line)| line.clone())
        .collect();
    let withheld = headings.len() - kept.len();
    lines_of_shape(kept, withheld, "headings", "", room)
}

/// `key: value` apart; a colon inside quotes or without a space after it separates nothing.
fn split_key(line: &str) -> Option<(&str, &str)> {
    let from = match line.chars().next()? {
        quote @ ('"' | '\'') => line[1..].find(quote)? + 2,
        _ => 0,
    };
    let rest = line.get(from..)?;
    let at = match rest.find(": ") {
        Some(at) => at,
        None => rest.strip_suffix(':')?.len(),
    };
    let value = rest.get(at + 1..).unwrap_or_default().trim();
    Some((&line[..from + at], value))
}

fn scalar(value: &str) -> &'static str {
    let value = value.split(" #").next().unwrap_or(value).trim();
    match value.chars().next() {
        None => "empty",
        Some('[') => "list",
        Some('{') => "map",
        Some('|' | '>') => "block of text",
        Some('&' | '*') => "reference",
        _ if matches!(value, "true" | "false" | "yes" | "no") => "boolean",
        _ if matches!(value, "null" | "~") => "null",
        _ if value.parse::<f64>().is_ok() => "number",
        _ => "string",
    }
}
