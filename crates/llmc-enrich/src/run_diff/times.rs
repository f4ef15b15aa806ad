//! Times in an output, which differ from run to run.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;

/// Says what the mark in a diff means.
pub(super) const NOTE: &str = "(times, shown as <time>, are not compared)\n";

/// Durations with a unit, and times of day with their date.
static TIMES: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"\b(?:\d+(?:\.\d+)?(?:(?:ns|µs|us|ms|s)| (?:ms|s|secs?|seconds?))|(?:\d{4}-\d\d-\d\d[T ])?\d\d:\d\d:\d\d(?:[.,]\d+)?Z?)\b",
    )
    .ok()
});

/// A text with `<time>` for each time.
pub(super) fn left_out(text: &str) -> Cow<'_, str> {
    match &*TIMES {
        Some(times) => times.replace_all(text, "<time>"),
        None => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::left_out;

    #[test]
    fn durations_and_times_of_day_are_left_out() {
        assert_eq!(
            left_out("ok (372ms) in 5.02s, 3 seconds, 12 ms at 12:04:17.250"),
            "ok (<time>) in <time>, <time>, <time> at <time>"
        );
        assert_eq!(left_out("cast 2026-11-19T22:17:10.315Z"), "cast <time>");
        for same in ["3 tests", "v1.2.3", "5 MB", "port 8080", "x5s", "12:04"] {
            assert_eq!(left_out(same), same);
        }
    }
}
