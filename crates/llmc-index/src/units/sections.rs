//! Units of text with sections: Markdown, configuration, notebooks.

use super::{Lines, Unit, UnitKind, windows};
use crate::classify::extension;

/// Longer sections are split into windows that keep the heading.
const MAX_SECTION_LINES: u32 = 120;
/// Shorter sections of configuration files are joined.
const MIN_CONFIG_SECTION_LINES: u32 = 12;

/// A line that opens a section.
struct Heading {
    line: u32,
    level: usize,
    name: String,
}

/// The units of a file whose name determines its structure.
pub(super) fn by_file_name(path: &str, lines: &Lines<'_>) -> Option<Vec<Unit>> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let headings = match extension(path).as_str() {
        "md" | "markdown" | "mdx" => markdown(lines),
        "rst" | "adoc" | "asciidoc" | "org" | "txt" => underlined(lines),
        "toml" | "ini" | "cfg" | "conf" => config_sections(lines, bracketed),
        "yml" | "yaml" => config_sections(lines, top_key),
        "json" => config_sections(lines, json_key),
        "ipynb" => cells(lines),
        "mk" => config_sections(lines, target),
        _ if name == "Makefile" || name == "makefile" => config_sections(lines, target),
        _ => return None,
    };
    (!headings.is_empty()).then(|| units_between(&headings, lines))
}

/// Makes a unit from each heading to the next.
fn units_between(headings: &[Heading], lines: &Lines<'_>) -> Vec<Unit> {
    let mut units = windows::of(lines, 1, headings[0].line - 1);
    let mut around: Vec<(usize, &str)> = Vec::new();
    for (place, heading) in headings.iter().enumerate() {
        let next = headings
            .get(place + 1)
            .map_or(lines.len() + 1, |next| next.line);
        around.retain(|(level, _)| *level < heading.level);
        let scope: Vec<&str> = around.iter().map(|(_, name)| *name).collect();
        let scope = scope.join("::");
        let (first, last) = (heading.line, next - 1);
        let long = last - first + 1 > MAX_SECTION_LINES;
        let parts = windows::of(lines, first, last);
        if long {
            for part in parts {
                units.push(with_heading(part, heading, &scope));
            }
        } else if let (Some(start), Some(end)) = (parts.first(), parts.last()) {
            let own = parts.iter().flat_map(|part| part.own.clone()).collect();
            let whole = Unit {
                first: start.first,
                last: end.last,
                head: end.last,
                own,
                ..start.clone()
            };
            units.push(with_heading(whole, heading, &scope));
        }
        around.push((heading.level, &heading.name));
    }
    units
}

fn with_heading(unit: Unit, heading: &Heading, scope: &str) -> Unit {
    // Windows overlap; a section owns each line once.
    let mut own: Vec<(u32, u32)> = Vec::new();
    for (first, last) in unit.own {
        match own.last_mut() {
            Some((_, end)) if first <= *end => *end = last.max(*end),
            _ => own.push((first, last)),
        }
    }
    Unit {
        kind: UnitKind::Section,
        symbol: heading.name.clone(),
        scope: scope.to_owned(),
        own,
        ..unit
    }
}

/// `# Title`, and titles underlined with `===` or `---`, outside of code.
fn markdown(lines: &Lines<'_>) -> Vec<Heading> {
    let mut found = Vec::new();
    let mut fence: Option<char> = None;
    for line in 1..=lines.len() {
        let text = lines.trimmed(line);
        let mark = ["```", "~~~"].iter().find(|mark| text.starts_with(**mark));
        if let Some(mark) = mark.and_then(|mark| mark.chars().next()) {
            match fence {
                None => fence = Some(mark),
                Some(open) if open == mark => fence = None,
                Some(_) => {}
            }
            continue;
        }
        if fence.is_some() {
            continue;
        }
        let level = text.bytes().take_while(|b| *b == b'#').count();
        if (1..=6).contains(&level) && text[level..].starts_with([' ', '\t']) {
            let name = text[level..].trim().trim_end_matches('#').trim();
            found.push(heading(line, level, name));
        } else if line > 1 && is_rule(text, "=") {
            let name = lines.trimmed(line - 1);
            if !name.is_empty() {
                found.push(heading(line - 1, 1, name));
            }
        }
    }
    found
}

/// Titles with a line of one repeated character below, as in reStructuredText.
fn underlined(lines: &Lines<'_>) -> Vec<Heading> {
    let mut found: Vec<Heading> = Vec::new();
    let mut styles: Vec<char> = Vec::new();
    for line in 2..=lines.len() {
        let rule = lines.trimmed(line);
        let Some(style) = rule.chars().next().filter(|c| "=-~^\"'*+#`".contains(*c)) else {
            continue;
        };
        let name = lines.trimmed(line - 1);
        let long_enough = rule.len() >= 3 && rule.len() + 2 >= name.len();
        let is_name = name.chars().any(char::is_alphanumeric);
        if !is_rule(rule, style.encode_utf8(&mut [0; 4])) || !long_enough || !is_name {
            continue;
        }
        let level = match styles.iter().position(|known| *known == style) {
            Some(level) => level + 1,
            None => {
                styles.push(style);
                styles.len()
            }
        };
        found.push(heading(line - 1, level, name));
    }
    found
}

fn is_rule(text: &str, of: &str) -> bool {
    text.len() >= 3 && text.chars().all(|c| of.contains(c))
}

fn heading(line: u32, level: usize, name: &str) -> Heading {
    let name = name.chars().take(120).collect();
    Heading { line, level, name }
}

/// Sections by their opening lines; a small one is left to the one before it.
fn config_sections(lines: &Lines<'_>, opens: fn(&str) -> Option<&str>) -> Vec<Heading> {
    let mut found: Vec<Heading> = Vec::new();
    for line in 1..=lines.len() {
        let Some(name) = opens(lines.range(line, line)) else {
            continue;
        };
        match found.last() {
            Some(last) if line - last.line < MIN_CONFIG_SECTION_LINES => {}
            _ => found.push(heading(line, 1, name)),
        }
    }
    found
}

fn bracketed(line: &str) -> Option<&str> {
    let inner = line.trim().strip_prefix('[')?;
    let inner = inner.split(']').next()?;
    Some(inner.trim_start_matches('[').trim())
}

fn top_key(line: &str) -> Option<&str> {
    let starts_word = line.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '"');
    let (name, _) = line.split_once(':')?;
    starts_word.then(|| name.trim().trim_matches('"'))
}

/// A key one level inside a formatted JSON document.
fn json_key(line: &str) -> Option<&str> {
    let indent = line.len() - line.trim_start().len();
    let rest = line.trim_start().strip_prefix('"')?;
    let (name, rest) = rest.split_once('"')?;
    ((1..=4).contains(&indent) && rest.trim_start().starts_with(':')).then_some(name)
}

fn target(line: &str) -> Option<&str> {
    let starts_word = line.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '.');
    let (name, rest) = line.split_once(':')?;
    (starts_word && !rest.starts_with('=') && !name.contains('=')).then(|| name.trim())
}

/// The cells of a notebook, from the brace that opens each.
fn cells(lines: &Lines<'_>) -> Vec<Heading> {
    let mut found = Vec::new();
    for line in 1..=lines.len() {
        let Some(rest) = lines.trimmed(line).strip_prefix("\"cell_type\"") else {
            continue;
        };
        let kind = rest.trim_matches(|c: char| !c.is_alphanumeric());
        // Keys are sorted, so little stands between the brace and the type.
        let open = (line.saturating_sub(4).max(1)..line)
            .rev()
            .find(|above| lines.trimmed(*above) == "{");
        found.push(heading(open.unwrap_or(line), 1, kind));
    }
    found
}
