//! The lines of a long question by what they are: a title says more than a template, a log or a list of versions.
//!
//! People paste whole issues, which begin with a title, follow a template and end in an environment; or only what they wrote into
//! a form, which begins with the form's first heading. One line is a plain question and has weight 1. Comments of templates and addresses of pages are no words of the question at all.

/// A line of a question and how much its words count.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Passage {
    pub(crate) text: String,
    pub(crate) weight: f32,
    /// Whether a person wrote it as a sentence.
    pub(crate) is_prose: bool,
}

const TITLE_WEIGHT: f32 = 2.0;
const ERROR_WEIGHT: f32 = 1.5;
const CODE_WEIGHT: f32 = 0.6;
const LOG_WEIGHT: f32 = 0.3;
const TEMPLATE_WEIGHT: f32 = 0.15;
/// A title is not longer than this.
const MAX_TITLE_BYTES: usize = 200;

/// Headings of issue templates, without marks, in lower case.
const TEMPLATE_STARTS: &[&str] = &[
    "actual behavio",
    "actual result",
    "additional context",
    "bug report",
    "checklist",
    "current behavio",
    "describe the bug",
    "description",
    "environment",
    "expected behavio",
    "expected result",
    "feature request",
    "how to reproduce",
    "i have searched",
    "no response",
    "os:",
    "platform",
    "please ",
    "possible solution",
    "reproduction",
    "screenshots",
    "steps to reproduce",
    "system info",
    "thank",
    "to reproduce",
    "version",
    "what happened",
    "what did you",
    "what version",
    "your environment",
];

/// What headings have whose section lists software and versions.
const ENVIRONMENT_WORDS: &[&str] = &[
    "dependencies",
    "environment",
    "extensions",
    "installed packages",
    "platform",
    "plugins",
    "system info",
    "version",
];
/// A heading that only names a section is not longer than this.
const MAX_SECTION_NAME_BYTES: usize = 40;

/// Tags that people write in issues.
const HTML_TAGS: &[&str] = &[
    "a", "b", "br", "code", "details", "div", "em", "hr", "i", "img", "kbd", "li", "p", "pre",
    "span", "strong", "sub", "summary", "sup", "table", "td", "th", "tr", "ul",
];

/// The passages of a question, in order. `is_error` tells the lines that hold an error's message.
pub(crate) fn passages(text: &str, is_error: impl Fn(&str) -> bool) -> Vec<Passage> {
    let text = without_comments(text);
    let single = text.trim().lines().count() <= 1;
    let mut found: Vec<Passage> = Vec::new();
    let mut in_code = false;
    let mut in_environment = false;
    for line in text.lines() {
        let trimmed = line.trim();
        if trimmed.starts_with("```") || trimmed.starts_with("~~~") {
            in_code = !in_code;
            continue;
        }
        if trimmed.is_empty() {
            continue;
        }
        let is_indented = line.starts_with("    ") || line.starts_with('\t');
        let is_heading = !in_code && is_heading(trimmed);
        if is_heading {
            in_environment = is_environment(trimmed);
        }
        let (weight, is_prose) = if single {
            (1.0, true)
        } else if is_error(trimmed) {
            (ERROR_WEIGHT, true)
        } else if in_environment {
            (TEMPLATE_WEIGHT, false)
        } else if is_trace(trimmed) || is_log(trimmed) {
            (LOG_WEIGHT, false)
        } else if in_code || is_indented {
            (CODE_WEIGHT, false)
        } else if is_heading && is_template(trimmed) {
            (TEMPLATE_WEIGHT, false)
        } else if found.is_empty() && trimmed.len() <= MAX_TITLE_BYTES {
            (TITLE_WEIGHT, true)
        } else if is_template(trimmed) {
            (TEMPLATE_WEIGHT, false)
        } else if is_heading {
            // It names a section; what the section says is below it.
            (LOG_WEIGHT, false)
        } else {
            (1.0, true)
        };
        let text = without_addresses(&without_tags(trimmed));
        found.push(Passage {
            text,
            weight,
            is_prose,
        });
    }
    found
}

fn is_trace(line: &str) -> bool {
    line.starts_with("Traceback (most recent")
        || line.starts_with("File \"")
        || line.starts_with("at ") && line.contains('(')
        || line.starts_with("goroutine ")
        || line.starts_with("stack backtrace:")
}

/// Whether a line begins with a time or with a level, or is a name and a version.
fn is_log(line: &str) -> bool {
    let digits = line.chars().take(20).filter(char::is_ascii_digit).count();
    let marks = line
        .chars()
        .take(20)
        .filter(|c| matches!(c, ':' | '-' | '.'))
        .count();
    let level = ["[INFO", "[DEBUG", "[WARN", "INFO ", "DEBUG ", "[TRACE"];
    digits >= 6 && marks >= 3
        || level.iter().any(|level| line.starts_with(level))
        || line.len() < 60 && line.contains("==") && !line.contains(' ')
}

fn is_template(line: &str) -> bool {
    let is_box = line.contains("- [ ]") || line.contains("- [x]") || line.contains("- [X]");
    let plain = without_marks(line);
    let listed = TEMPLATE_STARTS.iter().any(|start| plain.starts_with(start));
    is_box || listed && (is_heading(line) || plain.len() < MAX_SECTION_NAME_BYTES)
}

fn is_heading(line: &str) -> bool {
    let is_bold = line.len() > 4 && line.starts_with("**") && line.ends_with("**");
    line.starts_with('#') || is_bold
}

/// Whether a heading names a section about software and its versions.
fn is_environment(heading: &str) -> bool {
    let plain = without_marks(heading);
    plain.len() < MAX_SECTION_NAME_BYTES
        && ENVIRONMENT_WORDS.iter().any(|word| plain.contains(word))
}

/// A line in lower case, without the marks around it.
fn without_marks(line: &str) -> String {
    line.trim_matches(|c: char| !c.is_alphanumeric())
        .to_lowercase()
}

/// Removes what `<!--` and `-->` enclose.
fn without_comments(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("<!--") {
        kept.push_str(before);
        rest = behind.split_once("-->").map_or("", |(_, after)| after);
    }
    kept.push_str(rest);
    kept
}

/// Removes tags of pictures and of HTML that issues are written in, and keeps what a picture shows (`alt`).
fn without_tags(line: &str) -> String {
    let mut kept = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, behind)) = rest.split_once('<') {
        kept.push_str(before);
        let name_end = behind.find(|c: char| !(c.is_ascii_alphanumeric() || c == '/'));
        let name = behind[..name_end.unwrap_or(behind.len())].trim_matches('/');
        match behind.split_once('>') {
            // Anything else may be code: `Vec<String>`.
            Some((tag, after)) if HTML_TAGS.contains(&name.to_ascii_lowercase().as_str()) => {
                let alt = tag
                    .split_once("alt=\"")
                    .and_then(|(_, alt)| alt.split_once('"'));
                kept.push(' ');
                kept.push_str(alt.map_or("", |(alt, _)| alt));
                rest = after;
            }
            _ => {
                kept.push('<');
                rest = behind;
            }
        }
    }
    kept.push_str(rest);
    kept
}

/// Removes addresses of pages and of pictures, and keeps what a link or a picture is called.
fn without_addresses(line: &str) -> String {
    let mut kept = String::with_capacity(line.len());
    let mut rest = line;
    let starts = ["http://", "https://", "data:image/"];
    while let Some(at) = starts.iter().filter_map(|start| rest.find(start)).min() {
        kept.push_str(&rest[..at]);
        let end = |c: char| c.is_whitespace() || matches!(c, ')' | '>' | '"' | '\'' | '`');
        rest = rest[at..].find(end).map_or("", |end| &rest[at + end..]);
    }
    kept.push_str(rest);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weights(text: &str) -> Vec<(f32, String)> {
        let found = passages(text, |line| line.contains("Error: "));
        found
            .into_iter()
            .map(|one| (one.weight, one.text))
            .collect()
    }

    #[test]
    fn an_issue_has_a_title_prose_a_trace_and_a_template() {
        let issue = "Cookies are lost after a redirect\n\n<!-- do not edit\nthis -->\n### Describe the bug\n\
            The session forgets its cookies.\n- [x] I have searched the issues\n```\nclient.get('/')\n```\n\
            Traceback (most recent call last):\nKeyError: 'session'\n2024-01-02 10:11:12 INFO started\n\
            See https://example.org/issues/12 and ![the login page](https://example.org/a.png)\n\
            <img width=\"400\" alt=\"an empty jar\" src=\"https://example.org/b.png\"> of Vec<String>\n";
        let expected = [
            (TITLE_WEIGHT, "Cookies are lost after a redirect"),
            (TEMPLATE_WEIGHT, "### Describe the bug"),
            (1.0, "The session forgets its cookies."),
            (TEMPLATE_WEIGHT, "- [x] I have searched the issues"),
            (CODE_WEIGHT, "client.get('/')"),
            (LOG_WEIGHT, "Traceback (most recent call last):"),
            (ERROR_WEIGHT, "KeyError: 'session'"),
            (LOG_WEIGHT, "2024-01-02 10:11:12 INFO started"),
            (1.0, "See  and ![the login page]()"),
            (1.0, " an empty jar of Vec<String>"),
        ];
        let expected: Vec<(f32, String)> = expected
            .iter()
            .map(|(weight, text)| (*weight, (*text).to_owned()))
            .collect();
        assert_eq!(weights(issue), expected);
    }

    #[test]
    fn a_form_begins_with_its_heading_and_ends_in_an_environment() {
        let form = "### Describe the bug\nThe session forgets its cookies.\n### Where I looked\n_No response_\n\
            ### Environment Information\n```text\nplatform linux; sessions\n```\n\
            ### Additional context\nOnly after a redirect.\n";
        let expected = [
            (TEMPLATE_WEIGHT, "### Describe the bug"),
            (1.0, "The session forgets its cookies."),
            (LOG_WEIGHT, "### Where I looked"),
            (TEMPLATE_WEIGHT, "_No response_"),
            (TEMPLATE_WEIGHT, "### Environment Information"),
            (TEMPLATE_WEIGHT, "platform linux; sessions"),
            (TEMPLATE_WEIGHT, "### Additional context"),
            (1.0, "Only after a redirect."),
        ];
        let expected = expected.map(|(weight, text)| (weight, text.to_owned()));
        assert_eq!(weights(form), expected);
        let titled = "Version 2 loses cookies\nThe session forgets them.";
        assert_eq!(weights(titled)[0].0, TITLE_WEIGHT, "it is no heading");
    }

    #[test]
    fn one_line_is_a_plain_question() {
        assert_eq!(weights("where is it?"), [(1.0, "where is it?".to_owned())]);
        assert_eq!(weights("\n  version\n"), [(1.0, "version".to_owned())]);
        assert!(weights("<!-- nothing else").is_empty());
        assert!(weights("").is_empty());
    }
}
