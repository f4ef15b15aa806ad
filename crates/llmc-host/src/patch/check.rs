//! Finds the line at which a unified diff stops being one, since the parser does not tell.

/// The first line that does not belong where it stands, counted from 1, and why.
pub(super) fn bad_line(patch: &str) -> Option<(usize, String)> {
    let mut hunk: Option<HunkLines> = None;
    let mut seen_file = false;
    let mut end = 0;
    for (at, line) in patch.lines().enumerate() {
        let number = at + 1;
        end = number;
        if let Some(open) = &mut hunk {
            if !open.is_full() {
                match line.as_bytes().first() {
                    Some(b'+') => open.new += 1,
                    Some(b'-') => open.old += 1,
                    Some(b' ') | None => {
                        open.old += 1;
                        open.new += 1;
                    }
                    Some(b'\\') => continue,
                    _ => return Some((number, open.too_short(line))),
                }
                if open.old > open.wanted_old || open.new > open.wanted_new {
                    return Some((number, open.too_long()));
                }
                continue;
            }
            let ends = |start: &str| line.starts_with(start);
            if matches!(line.as_bytes().first(), Some(b'+' | b'-' | b' '))
                && !ends("--- ")
                && !ends("+++ ")
                && line != "-- "
            {
                return Some((number, open.too_long()));
            }
        }
        if line.starts_with("@@") {
            if !seen_file {
                let why = "a hunk before the names of its file: --- a/PATH, then +++ b/PATH";
                return Some((number, why.to_owned()));
            }
            match HunkLines::parse(line, number) {
                Some(found) => hunk = Some(found),
                None => {
                    let start: String = line.chars().take(40).collect();
                    let why =
                        format!("a hunk begins with @@ -LINE,COUNT +LINE,COUNT @@, not {start:?}");
                    return Some((number, why));
                }
            }
        } else if line.starts_with("diff --git ") {
            (hunk, seen_file) = (None, true);
        } else if line.starts_with("--- ") {
            let next = patch.lines().nth(at + 1).unwrap_or_default();
            if !next.starts_with("+++ ") {
                return Some((
                    number + 1,
                    "expected +++ b/PATH after the line --- a/PATH".to_owned(),
                ));
            }
            (hunk, seen_file) = (None, true);
        }
    }
    match hunk {
        Some(open) if !open.is_full() => Some((end, open.too_short(""))),
        _ if !seen_file => Some((
            1,
            "no file is named; a unified diff begins with --- a/PATH and +++ b/PATH, the other form with *** Begin Patch"
                .to_owned(),
        )),
        _ => None,
    }
}

/// How many lines a hunk says it has, and how many were seen.
struct HunkLines {
    header: usize,
    wanted_old: u64,
    wanted_new: u64,
    old: u64,
    new: u64,
}

impl HunkLines {
    fn parse(line: &str, header: usize) -> Option<HunkLines> {
        let ranges = line.strip_prefix("@@ -")?.split(" @@").next()?;
        let (old, new) = ranges.split_once(" +")?;
        let count = |range: &str| match range.split_once(',') {
            Some((start, count)) => start.parse::<u64>().ok().and(count.parse().ok()),
            None => range.parse::<u64>().ok().map(|_| 1),
        };
        Some(HunkLines {
            header,
            wanted_old: count(old)?,
            wanted_new: count(new)?,
            old: 0,
            new: 0,
        })
    }

    fn is_full(&self) -> bool {
        self.old >= self.wanted_old && self.new >= self.wanted_new
    }

    fn counts(&self) -> String {
        format!(
            "line {} counts {} old and {} new lines",
            self.header, self.wanted_old, self.wanted_new
        )
    }

    fn too_short(&self, line: &str) -> String {
        let start: String = line.chars().take(40).collect();
        let found = match start.is_empty() {
            true => String::new(),
            false => format!(", not {start:?}"),
        };
        format!(
            "the hunk ends early: {}, and {} and {} came; its lines start with a space, + or -{found}",
            self.counts(),
            self.old,
            self.new
        )
    }

    fn too_long(&self) -> String {
        format!("the hunk has more lines than {}", self.counts())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_is_wrong_is_named() {
        let whole = "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n";
        assert_eq!(bad_line(whole), None);
        assert_eq!(
            bad_line(&format!("diff --git a/x b/x\nindex 1..2 100644\n{whole}")),
            None
        );
        for (patch, number, why) in [
            ("nonsense", 1, "no file is named"),
            ("--- a/x\n@@ -1 +1 @@\n-a\n+b\n", 2, "expected +++ b/PATH"),
            (
                "--- a/x\n+++ b/x\n@@ here @@\n-a\n+b\n",
                3,
                "a hunk begins with @@ -LINE,COUNT",
            ),
            (
                "--- a/x\n+++ b/x\n@@ -1,2 +1,1 @@\n-a\n+b\n",
                5,
                "the hunk ends early: line 3 counts 2 old and 1 new lines",
            ),
            (
                "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n+c\n",
                6,
                "more lines than line 3 counts 1 old and 1 new",
            ),
            ("--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n-a\nb\n", 5, "not \"b\""),
            (
                "@@ -1 +1 @@\n-a\n+b\n",
                1,
                "a hunk before the names of its file",
            ),
        ] {
            let (line, said) = bad_line(patch).unwrap();
            assert_eq!(line, number, "{patch}: {said}");
            assert!(said.contains(why), "{patch}: {said}");
        }
    }
}
