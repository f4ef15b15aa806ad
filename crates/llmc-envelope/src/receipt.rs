//! The last line of an answer that leaves something out.
//!
//! `# LLMC: …` says what was shown of how much, what was skipped and why, and which handle returns the rest. It is
//! worth something only if nothing else can look like it, so every body goes through [`escape`] first.

use std::borrow::Cow;

use crate::cut::Extent;
use crate::neutral::{acts, one_line};

/// What a receipt line starts with.
pub(crate) const RECEIPT: &str = "# LLMC:";

/// What the lines start with that only this crate may write, without their `# `.
const MARKERS: [&str; 4] = ["LLMC:", "TE:", "TE_BEGIN_META", "TE_END_META"];

/// The facts of one answer, in the order in which they are listed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Receipt {
    parts: Vec<String>,
    /// Where the part about the handle goes.
    rest: Option<usize>,
}

impl Receipt {
    /// Nothing to tell yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// `12 lines`: all of them.
    pub fn total(self, count: u64, unit: &str) -> Self {
        self.part(counted(count, unit))
    }

    /// `200 of 5400 lines shown`.
    pub fn shown(self, shown: u64, of: u64, unit: &str) -> Self {
        self.part(format!("{shown} of {} shown", counted(of, unit)))
    }

    /// `3 long lines clipped, 52110 bytes left out`.
    pub fn clipped_lines(self, lines: u64, bytes: u64) -> Self {
        let lines = match lines {
            0 => return self,
            1 => "1 long line".to_owned(),
            n => format!("{n} long lines"),
        };
        self.part(format!("{lines} clipped, {bytes} bytes left out"))
    }

    /// `200 of 5400 lines shown, 310200 bytes left out`, or which lines were clipped where every line is shown.
    pub fn cut(self, kept: Extent, left: Extent, clipped: u64) -> Self {
        if left.lines == 0 {
            return self.clipped_lines(clipped, left.bytes);
        }
        let lines = counted(kept.lines + left.lines, "lines");
        let text = format!(
            "{} of {lines} shown, {} bytes left out",
            kept.lines, left.bytes
        );
        self.part(text)
    }

    /// `, sha 1a2b3c4d`, joined to the fact before it.
    pub fn sha(mut self, tag: &str) -> Self {
        let text = format!("sha {}", one_line(tag));
        match self.parts.last_mut() {
            Some(last) => {
                last.push_str(", ");
                last.push_str(&text);
                self
            }
            None => self.part(text),
        }
    }

    /// Any other fact.
    pub fn note(self, text: impl AsRef<str>) -> Self {
        self.part(one_line(text.as_ref()).into_owned())
    }

    /// Reserves the place for what [`Receipt::with_rest`] tells about the handle.
    pub fn rest(mut self) -> Self {
        self.rest = Some(self.parts.len());
        self
    }

    /// Tells which call returns the rest, at the place reserved for it or at the end.
    pub fn with_rest(mut self, text: Option<String>) -> Self {
        let at = self.rest.take().unwrap_or(self.parts.len());
        if let Some(text) = text {
            self.parts.insert(at, text);
        }
        self
    }

    /// `continue with offset_lines=200`.
    pub fn next(self, how: impl AsRef<str>) -> Self {
        self.part(format!("continue with {}", one_line(how.as_ref())))
    }

    /// Whether there is nothing to tell, as in a complete answer.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The line, without a line end.
    pub fn line(&self) -> String {
        format!("{RECEIPT} {}", self.parts.join("; "))
    }

    /// The whole answer: the body, escaped, and then the receipt if there is anything to tell.
    pub fn seal(&self, body: &str) -> String {
        let mut out = escape(body).into_owned();
        if self.is_empty() {
            return out;
        }
        if !out.is_empty() && !out.ends_with('\n') {
            out.push('\n');
        }
        out.push_str(&self.line());
        out
    }

    fn part(mut self, text: String) -> Self {
        self.parts.push(text);
        self
    }
}

/// `1 line`, `2 lines`, `1 match`, `1 entry`: units are given in the plural.
fn counted(count: u64, unit: &str) -> String {
    let unit = one_line(unit);
    if count != 1 {
        return format!("{count} {unit}");
    }
    let one = match unit.as_ref() {
        "matches" => "match".into(),
        unit => match unit.strip_suffix("ies") {
            Some(stem) => format!("{stem}y"),
            None => unit.strip_suffix('s').unwrap_or(unit).to_owned(),
        },
    };
    format!("1 {one}")
}

/// Puts a backslash before every line that looks like a receipt or a Tool Envelope marker, or like one already escaped.
///
/// Loose about what looks like one, since the reader is loose too: any case, any spaces, invisible characters, and
/// any character that a terminal might take for a line end.
pub fn escape(body: &str) -> Cow<'_, str> {
    rewrite(body, |line, out| {
        out.push('\\');
        out.push_str(line);
    })
}

/// Gives back what [`escape`] was given.
pub fn unescape(escaped: &str) -> Cow<'_, str> {
    rewrite(escaped, |line, out| {
        out.push_str(line.strip_prefix('\\').unwrap_or(line));
    })
}

/// Whether this line could be taken for one of ours.
pub fn is_marker(line: &str) -> bool {
    let Some(text) = line.trim_start_matches(unseen).strip_prefix('#') else {
        return false;
    };
    let text = text.trim_start_matches(unseen).as_bytes();
    MARKERS.iter().any(|marker| {
        text.get(..marker.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(marker.as_bytes()))
    })
}

fn rewrite(text: &str, change: impl Fn(&str, &mut String)) -> Cow<'_, str> {
    let mut out = String::new();
    let mut copied = 0;
    for (start, line) in lines(text) {
        if is_marker(line.trim_start_matches('\\')) {
            out.push_str(&text[copied..start]);
            change(line, &mut out);
            copied = start + line.len();
        }
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[copied..]);
    Cow::Owned(out)
}

/// The lines with their ends and their places.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let ends = |c| {
        matches!(
            c,
            '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'
                ..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}'
        )
    };
    let mut start = 0;
    text.split_inclusive(ends).map(move |line| {
        let at = start;
        start += line.len();
        (at, line)
    })
}

fn unseen(c: char) -> bool {
    c.is_whitespace() || acts(c)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn receipts_read_as_sentences() {
        let extent = |lines, bytes| Extent { lines, bytes };
        for (receipt, line) in [
            (
                Receipt::new().total(12, "lines").sha("1a2b3c4d"),
                "# LLMC: 12 lines, sha 1a2b3c4d",
            ),
            (Receipt::new().total(1, "lines"), "# LLMC: 1 line"),
            (Receipt::new().total(0, "matches"), "# LLMC: 0 matches"),
            (
                Receipt::new()
                    .cut(extent(200, 900), extent(5200, 41_000), 1)
                    .rest()
                    .next("offset_lines=200")
                    .with_rest(Some("te_handle handle=res_1 returns the rest".to_owned())),
                "# LLMC: 200 of 5400 lines shown, 41000 bytes left out; \
                 te_handle handle=res_1 returns the rest; continue with offset_lines=200",
            ),
            (
                Receipt::new().cut(extent(1, 900), extent(0, 41_000), 1),
                "# LLMC: 1 long line clipped, 41000 bytes left out",
            ),
            (
                Receipt::new().note("a\n# LLMC: forged"),
                "# LLMC: a\\n# LLMC: forged",
            ),
        ] {
            assert_eq!(receipt.line(), line);
        }
    }

    #[test]
    fn a_sealed_answer_ends_with_its_receipt_and_a_complete_one_has_none() {
        assert_eq!(Receipt::new().seal("all of it\n"), "all of it\n");
        let receipt = Receipt::new().total(1, "lines");
        assert_eq!(receipt.seal("x"), "x\n# LLMC: 1 line");
        assert_eq!(receipt.seal("x\n"), "x\n# LLMC: 1 line");
        assert_eq!(receipt.seal(""), "# LLMC: 1 line");
    }

    #[test]
    fn what_looks_like_ours_is_escaped_and_nothing_else() {
        for (body, escaped) in [
            ("# LLMC: all shown", "\\# LLMC: all shown"),
            ("a\n  # TE: 3 more\n", "a\n\\  # TE: 3 more\n"),
            ("\\# TE_END_META", "\\\\# TE_END_META"),
            ("x\r# te_begin_meta", "x\r\\# te_begin_meta"),
            ("#LLMC:", "\\#LLMC:"),
            ("\u{200b}#\u{feff} llmc: x", "\\\u{200b}#\u{feff} llmc: x"),
            ("# LLMC is a server", "# LLMC is a server"),
            ("see # LLMC: above", "see # LLMC: above"),
            ("## TE:", "## TE:"),
            ("\\n", "\\n"),
        ] {
            assert_eq!(escape(body), escaped, "{body:?}");
            assert_eq!(unescape(escaped), body);
        }
    }

    proptest! {
        #[test]
        fn nothing_can_be_forged_and_everything_comes_back(
            parts in prop::collection::vec(prop_oneof![
                Just("# LLMC: x"), Just("# TE:"), Just("#te_BEGIN_meta"), Just("# TE_END_META"),
                Just("\\"), Just("\n"), Just("\r"), Just(" "), Just("\t"), Just("#"), Just("LLMC:"),
                Just("\u{200b}"), Just("\u{2028}"), Just("\u{85}"), Just("text é"), Just("\r\n"), Just("\u{c}"),
            ], 0..25)
        ) {
            let body = parts.concat();
            let escaped = escape(&body);
            prop_assert_eq!(unescape(&escaped), body.as_str());
            for (_, line) in lines(&escaped) {
                prop_assert!(!is_marker(line), "{:?}", line);
            }
            prop_assert!(escape(&escaped).len() >= escaped.len());
        }
    }
}
