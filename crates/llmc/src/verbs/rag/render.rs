//! Documents of the retrieval tools as text for a terminal.

use std::fmt::Write as _;

use indicatif::{HumanBytes, HumanCount};
use serde_json::{Value, json};

use crate::verbs::colour::Paint;

/// Snippets for a person: place, score, name, numbered lines with the words of the question in bold.
pub(super) fn found(document: &Value, query: &str) -> String {
    let bold = Paint::stdout().is_on();
    let mut out = String::new();
    let snippets = document["snippets"].as_array().cloned().unwrap_or_default();
    for snippet in &snippets {
        let text = |key: &str| snippet[key].as_str().unwrap_or_default();
        let symbol = text("symbol");
        let _ = writeln!(
            out,
            "{}  {:.2}  {}{}{symbol}",
            styled(text("src"), "1", bold),
            snippet["score"].as_f64().unwrap_or(0.0),
            text("kind"),
            if symbol.is_empty() { "" } else { " " },
        );
        let first = first_line(text("src"));
        for (nth, line) in text("text").lines().enumerate() {
            let line = if bold {
                marked(line, query)
            } else {
                line.to_owned()
            };
            let _ = writeln!(out, "{:>6}  {line}", first + nth);
        }
        out.push('\n');
    }
    // Where hits were left out, the note says how many.
    if snippets.is_empty() && document["truncated"] != true {
        out.push_str("nothing found\n");
    }
    if let Some(names) = document["clamped"].as_array() {
        let names: Vec<&str> = names.iter().filter_map(Value::as_str).collect();
        let _ = writeln!(
            out,
            "lowered to the configured maximum: {}",
            names.join(", ")
        );
    }
    if let Some(changed) = document["freshness"]["unverified"].as_array() {
        let _ = writeln!(out, "changed meanwhile: {}", json!(changed));
    }
    if let Some(note) = document["note"].as_str() {
        let _ = writeln!(out, "{note}");
    }
    if document["index"] == "none" {
        out.push_str("llmc rag index builds one\n");
    }
    out
}

/// The 10 of `path#L10-L20`.
fn first_line(src: &str) -> usize {
    let lines = src.rsplit("#L").next().unwrap_or_default();
    let first = lines.split('-').next().unwrap_or_default();
    first.parse().unwrap_or(1)
}

fn styled(text: &str, style: &str, on: bool) -> String {
    if on {
        format!("\u{1b}[{style}m{text}\u{1b}[0m")
    } else {
        text.to_owned()
    }
}

/// The line with the words of the question in bold.
fn marked(line: &str, query: &str) -> String {
    let asked: Vec<String> = query
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| word.len() > 2)
        .map(str::to_lowercase)
        .collect();
    let mut out = String::with_capacity(line.len() + 16);
    let mut rest = line;
    while !rest.is_empty() {
        let is_word = |c: char| c.is_alphanumeric();
        let starts_word = rest.starts_with(is_word);
        let end = rest
            .find(|c| is_word(c) != starts_word)
            .unwrap_or(rest.len());
        let (run, after) = rest.split_at(end);
        let lower = run.to_lowercase();
        if asked.iter().any(|word| lower.contains(word.as_str())) {
            out.push_str(&styled(run, "1;33", true));
        } else {
            // Escape sequences in a file must not reach the terminal.
            out.extend(run.chars().filter(|c| !c.is_control() || *c == '\t'));
        }
        rest = after;
    }
    out
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_default()
}

/// The other definitions of a name, if there are several.
fn others(out: &mut String, document: &Value) {
    if !document["ambiguous"].is_null() {
        out.push_str("several definitions share this name:\n");
        for id in list(&document["ambiguous"]) {
            let _ = writeln!(out, "  {}", id.as_str().unwrap_or_default());
        }
    }
}

pub(super) fn uses(document: &Value) -> String {
    let mut out = String::new();
    for site in list(&document["sites"]) {
        let _ = writeln!(
            out,
            "{}:{}: {}  [{}] {:.2}",
            text(site, "path"),
            site["line"],
            text(site, "text"),
            text(site, "symbol"),
            site["confidence"].as_f64().unwrap_or(0.0),
        );
    }
    let shown = list(&document["sites"]).count();
    totals(&mut out, document, "uses", shown);
    others(&mut out, document);
    out
}

/// How many there are, and what was not looked at.
fn totals(out: &mut String, document: &Value, what: &str, shown: usize) {
    let symbol = text(document, "symbol");
    let _ = writeln!(
        out,
        "{} {what} of {symbol}, {shown} shown",
        document["total"]
    );
    if let Some(depth) = document["depth_reached"].as_u64() {
        let _ = writeln!(out, "too many: stopped at step {depth}");
    }
    if let Some(hint) = document["hint"].as_str() {
        let _ = writeln!(out, "{hint}");
    }
    if let Some(handle) = document["handle"].as_str() {
        let _ = writeln!(out, "all of them: llmc te --handle {handle}");
    }
}

pub(super) fn lineage(document: &Value) -> String {
    let mut out = format!("{}\n", text(document, "symbol"));
    for node in list(&document["nodes"]) {
        let depth = usize::try_from(node["depth"].as_u64().unwrap_or(1)).unwrap_or(1);
        let _ = writeln!(
            out,
            "{}{}  {}  {:.2}",
            "  ".repeat(depth),
            text(node, "symbol"),
            text(node, "src"),
            node["confidence"].as_f64().unwrap_or(0.0),
        );
    }
    let shown = list(&document["nodes"]).count();
    totals(&mut out, document, text(document, "direction"), shown);
    others(&mut out, document);
    out
}

pub(super) fn inspected(document: &Value) -> String {
    let mut out = format!(
        "{} {} {}\n",
        text(document, "kind"),
        text(document, "symbol"),
        text(document, "src")
    );
    for key in ["callers", "callees", "tests", "docs"] {
        for (nth, related) in list(&document[key]).enumerate() {
            let label = if nth == 0 { key } else { "" };
            let _ = writeln!(
                out,
                "{label:>8}  {}  {}",
                text(related, "symbol"),
                text(related, "src")
            );
        }
        if let Some(total) = document[format!("{key}_total")].as_u64() {
            let more = total - list(&document[key]).count() as u64;
            let _ = writeln!(out, "          and {more} more");
        }
    }
    let _ = writeln!(out, "\n{}", text(document, "text"));
    if let Some(lines) = document["lines_total"].as_u64() {
        let _ = writeln!(out, "… of {lines} lines");
    }
    if let Some(hint) = document["hint"].as_str() {
        let _ = writeln!(out, "{hint}");
    }
    others(&mut out, document);
    out
}

pub(super) fn plan(document: &Value) -> String {
    let mut out = String::new();
    for (nth, step) in list(&document["steps"]).enumerate() {
        let _ = writeln!(
            out,
            "{:>2}. {}  {:.2}\n    {}",
            nth + 1,
            text(step, "src"),
            step["confidence"].as_f64().unwrap_or(0.0),
            text(step, "why"),
        );
    }
    let sure = document["confidence"].as_f64().unwrap_or(0.0);
    let _ = writeln!(out, "confidence {sure:.2}");
    if let Some(note) = document["note"].as_str() {
        let _ = writeln!(out, "{note}");
    }
    out
}

pub(super) fn stats(document: &Value) -> String {
    let mut out = String::new();
    let number = |key: &str| document[key].as_u64().unwrap_or(0);
    for key in ["files", "chunks", "symbols", "edges"] {
        let _ = writeln!(out, "{key:<8} {}", HumanCount(number(key)));
    }
    let _ = writeln!(out, "source   {}", HumanBytes(number("bytes")));
    let _ = writeln!(out, "index    {}", HumanBytes(number("index_bytes")));
    let _ = writeln!(out, "state    {}", text(document, "state"));
    let _ = writeln!(
        out,
        "updated  {}",
        document["updated_iso"].as_str().unwrap_or("never")
    );
    for (title, key) in [("languages", "languages"), ("not indexed", "not_indexed")] {
        if let Some(counts) = document[key]
            .as_object()
            .filter(|counts| !counts.is_empty())
        {
            let counts = counts.iter().map(|(name, count)| format!("{name} {count}"));
            let _ = writeln!(out, "{title}: {}", counts.collect::<Vec<_>>().join(", "));
        }
    }
    let crashed: Vec<&str> = list(&document["parser_crashed_on"])
        .filter_map(Value::as_str)
        .collect();
    if !crashed.is_empty() {
        let _ = writeln!(
            out,
            "not parsed, because the parser crashed: {}",
            crashed.join(", ")
        );
    }
    if let Some(why) = document["last_error"].as_str() {
        let _ = writeln!(out, "{why}");
    }
    out
}
