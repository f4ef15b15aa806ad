//! Messages off a stream: one line each, of bounded length.

/// A line, or that there was one too long to keep.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    Whole(&'a [u8]),
    TooLong,
}

/// Cuts a stream into lines. What is longer than the bound is dropped as it comes, and reported once.
#[derive(Debug)]
pub(crate) struct LineSplitter {
    kept: Vec<u8>,
    dropping: bool,
    max_bytes: usize,
}

impl LineSplitter {
    pub(crate) fn new(max_bytes: usize) -> LineSplitter {
        LineSplitter {
            kept: Vec::new(),
            dropping: false,
            max_bytes,
        }
    }

    /// Takes what was read, and hands on each line that is complete.
    pub(crate) fn push(&mut self, mut bytes: &[u8], mut on_line: impl FnMut(Line<'_>)) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.keep(&bytes[..end], &mut on_line);
            bytes = &bytes[end + 1..];
            if std::mem::take(&mut self.dropping) {
                continue;
            }
            let line = std::mem::take(&mut self.kept);
            on_line(Line::Whole(&line));
        }
        self.keep(bytes, &mut on_line);
    }

    fn keep(&mut self, bytes: &[u8], on_line: &mut impl FnMut(Line<'_>)) {
        if self.dropping {
            return;
        }
        if self.kept.len() + bytes.len() > self.max_bytes {
            self.kept = Vec::new();
            self.dropping = true;
            return on_line(Line::TooLong);
        }
        self.kept.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(max: usize, pieces: &[&str]) -> Vec<String> {
        let mut splitter = LineSplitter::new(max);
        let mut lines = Vec::new();
        for piece in pieces {
            splitter.push(piece.as_bytes(), |line| {
                lines.push(match line {
                    Line::Whole(line) => String::from_utf8(line.to_vec()).unwrap(),
                    Line::TooLong => "too long".to_owned(),
                });
            });
        }
        lines
    }

    #[test]
    fn lines_are_whole_however_they_come() {
        assert_eq!(split(9, &["a\nb", "c\n", "\nd"]), ["a", "bc", ""]);
    }

    #[test]
    fn a_long_line_is_dropped_once_and_the_next_one_kept() {
        assert_eq!(split(3, &["abcd", "efgh", "i\nok\n"]), ["too long", "ok"]);
        assert_eq!(
            split(3, &["abcd\nok\nabcd\n"]),
            ["too long", "ok", "too long"]
        );
    }
}
