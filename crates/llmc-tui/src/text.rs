//! Texts and numbers as they are shown.

use std::fmt::Write;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use llmc_envelope::neutral::one_line;
use unicode_width::UnicodeWidthChar;

/// Combining marks on one letter; more of them would run over the lines above and below.
const MAX_COMBINING_MARKS: usize = 3;

/// A text from outside on one line, of at most so many characters, with control characters escaped.
pub(crate) fn legible(text: &str, max_chars: usize) -> String {
    let mut out = String::new();
    let mut marks = 0;
    let end = text
        .char_indices()
        .nth(max_chars)
        .map_or(text.len(), |(at, _)| at);
    for c in one_line(&text[..end]).chars() {
        marks = if c.width() == Some(0) { marks + 1 } else { 0 };
        if marks > MAX_COMBINING_MARKS {
            escape(&mut out, c);
        } else {
            out.push(c);
        }
    }
    if end < text.len() {
        out.push('…');
    }
    out
}

/// The same for a name within a line, where right-to-left letters would reorder their neighbours.
pub(crate) fn label(text: &str, max_chars: usize) -> String {
    let text = legible(text, max_chars);
    if !text.chars().any(is_right_to_left) {
        return text;
    }
    let mut out = String::new();
    for c in text.chars() {
        if is_right_to_left(c) {
            escape(&mut out, c);
        } else {
            out.push(c);
        }
    }
    out
}

fn escape(out: &mut String, c: char) {
    let _ = write!(out, "\\u{{{:x}}}", c as u32);
}

/// Whether the letter is in a Unicode block written from right to left.
fn is_right_to_left(c: char) -> bool {
    matches!(c, '\u{590}'..='\u{8ff}' | '\u{fb1d}'..='\u{fdff}' | '\u{fe70}'..='\u{feff}'
        | '\u{10800}'..='\u{10fff}' | '\u{1e800}'..='\u{1efff}')
}

/// `950`, `12.3k`, `4.5M`: five places at most up to a trillion.
pub(crate) fn short(number: u64) -> String {
    let scaled = |unit: f64, sign: &str| {
        let value = number as f64 / unit;
        if value < 99.95 {
            format!("{value:.1}{sign}")
        } else {
            format!("{value:.0}{sign}")
        }
    };
    match number {
        0..=9_999 => number.to_string(),
        10_000..=999_499 => scaled(1e3, "k"),
        999_500..=999_499_999 => scaled(1e6, "M"),
        _ => scaled(1e9, "G"),
    }
}

/// `1,234,567`.
pub(crate) fn grouped(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut out = String::new();
    if number < 0 {
        out.push('-');
    }
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `0.42 ms`, `12 ms`, `3.4 s`, `2 min 5 s`.
pub(crate) fn span(ms: f64) -> String {
    if ms < 9.995 {
        format!("{ms:.2} ms")
    } else if ms < 999.5 {
        format!("{ms:.0} ms")
    } else if ms < 99_950.0 {
        format!("{:.1} s", ms / 1000.0)
    } else {
        let seconds = (ms / 1000.0).round().min(1e15) as u64;
        format!("{} min {} s", seconds / 60, seconds % 60)
    }
}

/// The time of day.
pub(crate) fn clock(time: Timestamp, zone: &TimeZone) -> String {
    time.to_zoned(zone.clone()).strftime("%H:%M:%S").to_string()
}

/// `1 call`, `2 calls`.
pub(crate) fn count(number: u64, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!(
        "{} {what}{plural}",
        grouped(number.min(i64::MAX as u64) as i64)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        for (text, shown) in [
            ("plain", "plain"),
            ("a\x1b[2Jb\r\nc\td", "a\\x1b[2Jb\\r\\nc\\td"),
            ("\u{202e}exe", "\\u{202e}exe"),
            ("日本 שלום", "日本 שלום"),
            ("e\u{301}", "e\u{301}"),
            (
                "z\u{301}\u{302}\u{303}\u{304}!",
                "z\u{301}\u{302}\u{303}\\u{304}!",
            ),
        ] {
            assert_eq!(legible(text, 100), shown);
        }
        assert_eq!(legible("日本語", 2), "日本…");
        assert_eq!(
            label("bot שלום", 100),
            "bot \\u{5e9}\\u{5dc}\\u{5d5}\\u{5dd}"
        );
    }

    #[test]
    fn numbers_stay_short() {
        for (number, shown) in [
            (0, "0"),
            (9_999, "9999"),
            (10_000, "10.0k"),
            (99_960, "100k"),
            (999_500, "1.0M"),
            (12_345_678, "12.3M"),
            (3_000_000_000, "3.0G"),
        ] {
            assert_eq!(short(number), shown);
        }
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(grouped(-1000), "-1,000");
        assert_eq!(grouped(999), "999");
        assert_eq!(
            [0.424, 12.4, 3_400.0, 125_000.0].map(span),
            ["0.42 ms", "12 ms", "3.4 s", "2 min 5 s"]
        );
        assert_eq!(count(1, "call"), "1 call");
        assert_eq!(count(1200, "call"), "1,200 calls");
    }
}
