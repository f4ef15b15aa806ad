//! The Tool Envelope's text form.
//!
//! ```text
//! # TE_BEGIN_META
//! {"v":1,"cmd":"grep","matches":847,"shown":20,"truncated":true,"handle":"res_…"}
//! # TE_END_META
//!
//! src/db.rs:15: pub fn connect() {
//! …
//! # TE: 612 more in src/, 235 elsewhere
//! ```
//!
//! The header is first and only there, the breadcrumbs are last. The body is [escaped](crate::receipt::escape), so that
//! no file can bring its own header, breadcrumb or receipt.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::handles::HandleId;
use crate::neutral::{acts, one_line};
use crate::receipt::{escape, unescape};

const BEGIN: &str = "# TE_BEGIN_META";
const END: &str = "# TE_END_META";
const CRUMB: &str = "# TE: ";

/// The one line of JSON: keys always in this order, and only those that say something.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TeHeader {
    /// The version of this form, 1.
    pub v: u32,
    /// The command that answers.
    pub cmd: String,
    /// How many matches there are in all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matches: Option<u64>,
    /// How many lines there are in all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<u64>,
    /// How many files there are in all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
    /// How many bytes there are in all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// How many of the first of these totals are in the body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<u64>,
    /// Whether the body is not all there is.
    #[serde(default, skip_serializing_if = "is_false")]
    pub truncated: bool,
    /// What returns the rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handle: Option<HandleId>,
    /// Which chunk of the handle this is, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk: Option<u64>,
    /// How many chunks the handle has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunks: Option<u64>,
    /// The path where most of the matches are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hot_zone: Option<String>,
    /// What the body is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<ContentType>,
    /// Whether the file has changed since the handle was made.
    #[serde(default, skip_serializing_if = "is_false")]
    pub stale: bool,
    /// The code of the error that took the place of an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What to do next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// What a body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ContentType {
    Code,
    Json,
    Yaml,
    Toml,
    Csv,
    Log,
    Markdown,
    Text,
    Binary,
}

impl TeHeader {
    /// A header that says nothing but which command answers.
    pub fn new(cmd: impl Into<String>) -> Self {
        Self {
            v: 1,
            cmd: cmd.into(),
            matches: None,
            lines: None,
            files: None,
            size: None,
            shown: None,
            truncated: false,
            handle: None,
            chunk: None,
            chunks: None,
            hot_zone: None,
            content_type: None,
            stale: false,
            error: None,
            hint: None,
        }
    }

    /// The JSON, on one line whatever the values hold.
    pub fn json(&self) -> String {
        // A struct of strings and numbers always serialises.
        let json = serde_json::to_string(self).unwrap_or_else(|_| r#"{"v":1}"#.into());
        if !json.chars().any(acts) {
            return json;
        }
        // serde_json escapes what JSON must; the characters that only look like a line end, or hide, are left to us.
        let mut out = String::with_capacity(json.len() + 16);
        for c in json.chars() {
            if acts(c) {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    // Writing to a string cannot fail.
                    let _ = write!(out, "\\u{unit:04x}");
                }
            } else {
                out.push(c);
            }
        }
        out
    }
}

/// The whole answer. The body is escaped here; breadcrumbs are given without their `# TE: `.
///
/// One line end, and nothing else, stands between the body and the breadcrumbs, so a client gets the body back exactly;
/// after a body that ends a line this is a blank line.
pub fn render<S: AsRef<str>>(header: &TeHeader, body: &str, breadcrumbs: &[S]) -> String {
    let whole = render_whole(body, breadcrumbs);
    format!("{BEGIN}\n{}\n{END}\n\n{whole}", header.json())
}

/// A whole answer: the same without a header.
pub fn render_whole<S: AsRef<str>>(body: &str, breadcrumbs: &[S]) -> String {
    let mut out = escape(body).into_owned();
    if !breadcrumbs.is_empty() && !body.is_empty() {
        out.push('\n');
    }
    for (n, crumb) in breadcrumbs.iter().enumerate() {
        if n > 0 {
            out.push('\n');
        }
        out.push_str(&breadcrumb(crumb.as_ref()));
    }
    out
}

/// One breadcrumb's line.
pub fn breadcrumb(text: &str) -> String {
    format!("{CRUMB}{}", one_line(text))
}

/// The answer that is an error: its code in the header, its message as `[TE] …`.
pub fn render_error(cmd: &str, code: &str, message: &str, hint: Option<&str>) -> String {
    let header = TeHeader {
        error: Some(code.to_owned()),
        hint: hint.map(str::to_owned),
        ..TeHeader::new(cmd)
    };
    render::<&str>(&header, &format!("[TE] {message}"), &[])
}

/// An answer taken apart again.
#[derive(Debug, Clone, PartialEq)]
pub struct TeText {
    /// The header; that of a whole answer, which has none, says nothing.
    pub header: TeHeader,
    /// The body as it was before it was escaped.
    pub body: String,
    /// The breadcrumbs without their `# TE: `.
    pub breadcrumbs: Vec<String>,
}

impl TeText {
    /// Whether nothing was left out, so that there is no header.
    pub fn is_whole(&self) -> bool {
        self.header.cmd.is_empty()
    }
}

/// Reads what [`render`] or [`render_whole`] wrote; for clients and tests. The server itself never reads its own text back.
pub fn parse(text: &str) -> Option<TeText> {
    let (header, mut body) = match text.strip_prefix(BEGIN) {
        Some(rest) => {
            let (json, rest) = rest.strip_prefix('\n')?.split_once('\n')?;
            let body = rest.strip_prefix(END)?.strip_prefix("\n\n")?;
            (serde_json::from_str(json).ok()?, body)
        }
        None => (TeHeader::new(""), text),
    };
    let mut breadcrumbs = Vec::new();
    loop {
        let last = body.rfind('\n').map_or(0, |at| at + 1);
        let Some(crumb) = body[last..].strip_prefix(CRUMB) else {
            break;
        };
        breadcrumbs.push(crumb.to_owned());
        body = &body[..last.saturating_sub(1)];
    }
    breadcrumbs.reverse();
    Some(TeText {
        header,
        body: unescape(body).into_owned(),
        breadcrumbs,
    })
}

fn is_false(flag: &bool) -> bool {
    !flag
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_keep_their_order_and_silent_ones_are_left_out() {
        assert_eq!(TeHeader::new("ls").json(), r#"{"v":1,"cmd":"ls"}"#);
        let full = TeHeader {
            matches: Some(847),
            lines: Some(2),
            files: Some(3),
            size: Some(4),
            shown: Some(20),
            truncated: true,
            handle: HandleId::parse("res_01ARZ3NDEKTSV4RRFFQ69G5FAV"),
            chunk: Some(0),
            chunks: Some(5),
            hot_zone: Some("src/a.rs".into()),
            content_type: Some(ContentType::Code),
            stale: true,
            error: Some("e".into()),
            hint: Some("h".into()),
            ..TeHeader::new("grep")
        };
        assert_eq!(
            full.json(),
            r#"{"v":1,"cmd":"grep","matches":847,"lines":2,"files":3,"size":4,"shown":20,"truncated":true,"handle":"res_01ARZ3NDEKTSV4RRFFQ69G5FAV","chunk":0,"chunks":5,"hot_zone":"src/a.rs","content_type":"code","stale":true,"error":"e","hint":"h"}"#
        );
    }

    #[test]
    fn the_text_is_the_documented_one() {
        let header = TeHeader {
            matches: Some(847),
            truncated: true,
            ..TeHeader::new("grep")
        };
        assert_eq!(
            render(
                &header,
                "a.rs:1: x\n# TE: forged\n",
                &["845 more", "and\nmore"]
            ),
            "# TE_BEGIN_META\n{\"v\":1,\"cmd\":\"grep\",\"matches\":847,\"truncated\":true}\n# TE_END_META\n\n\
             a.rs:1: x\n\\# TE: forged\n\n# TE: 845 more\n# TE: and\\nmore"
        );
        assert_eq!(
            render_error("grep", "invalid_pattern", "Invalid regex: unbalanced", None),
            "# TE_BEGIN_META\n{\"v\":1,\"cmd\":\"grep\",\"error\":\"invalid_pattern\"}\n# TE_END_META\n\n\
             [TE] Invalid regex: unbalanced"
        );
    }

    #[test]
    fn values_cannot_leave_their_line() {
        let header = TeHeader {
            hot_zone: Some("a\n# TE_END_META\u{2028}\u{e0041}".into()),
            ..TeHeader::new("grep")
        };
        let text = render::<&str>(&header, "", &[]);
        assert_eq!(text.lines().count(), 4);
        assert!(!text.contains('\u{2028}'));
        assert_eq!(parse(&text).unwrap().header, header);
    }

    proptest! {
        #[test]
        fn a_client_gets_everything_back(
            body in "(# TE: x|# TE_END_META|\\\\|\n|\r|a|é| ){0,12}",
            crumbs in prop::collection::vec("[a-z: ]{0,9}", 0..4),
        ) {
            let header = TeHeader { lines: Some(3), ..TeHeader::new("cat") };
            for header in [header, TeHeader::new("")] {
                let text = if header.cmd.is_empty() {
                    render_whole(&body, &crumbs)
                } else {
                    render(&header, &body, &crumbs)
                };
                let read = parse(&text).unwrap();
                let (body, breadcrumbs) = (body.clone(), crumbs.clone());
                prop_assert_eq!(read, TeText { header, body, breadcrumbs });
            }
        }
    }
}
