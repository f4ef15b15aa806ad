//! What fits: whole lines within a token budget, over-long lines clipped with their length.

use std::borrow::Cow;

use llmc_tokens::{count, fits, lines_within};

/// How much may be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CutLimits {
    /// Tokens in all.
    pub tokens: usize,
    /// Bytes of one line; of a longer one the start and the end are kept, with `…[+1234 bytes]…` between them.
    pub line_bytes: usize,
}

impl CutLimits {
    /// This many tokens, in lines of any length.
    pub fn tokens(tokens: usize) -> CutLimits {
        CutLimits {
            tokens,
            line_bytes: usize::MAX,
        }
    }
}

/// A number of lines and the bytes of the original text that belong to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Extent {
    /// Lines; a last one without a line end counts.
    pub lines: u64,
    /// Bytes, line ends included.
    pub bytes: u64,
}

/// A text cut to size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut<'a> {
    /// What to show.
    pub text: Cow<'a, str>,
    /// What of the original is in it.
    pub kept: Extent,
    /// What is not: the lines after it, and the ends of clipped lines, which count as bytes but not as lines.
    pub left: Extent,
    /// How many of the kept lines were clipped.
    pub clipped: u64,
    /// Where the first line that is not shown starts in the original.
    pub next: usize,
    /// How many lines are left out from there on, up to the next line that is shown.
    pub first_gap: u64,
    /// Whether lines are left out in more than one place.
    pub has_several_gaps: bool,
    /// Where, in that case: how many lines are before each gap, and how many are in it.
    pub gaps: Vec<(u64, u64)>,
}

impl Cut<'_> {
    /// Whether the text is all there.
    pub fn is_whole(&self) -> bool {
        self.left == Extent::default()
    }
}

/// Keeps as many lines from the start as the limits allow.
///
/// When not even the first line fits the budget, as much of it as does is kept; when not even that, nothing.
pub fn cut(text: &str, limits: CutLimits) -> Cut<'_> {
    let line_fits = |line: &str| content(line).0.len() <= limits.line_bytes;
    if text.split_inclusive('\n').all(line_fits) {
        let end = whole_lines(text, limits.tokens);
        if end > 0 || text.is_empty() {
            return plain(text, end);
        }
    }
    clipping(text, limits)
}

/// Keeps lines from the start and from the end, where the end of a text matters too: a line between them counts what is
/// left out. Two thirds of the tokens go to the start.
///
/// [`Cut::next`] is where the first line between them starts.
pub fn cut_ends(text: &str, limits: CutLimits) -> Cut<'_> {
    /// Tokens of the line between start and end.
    const MARK_TOKENS: usize = 12;
    let whole = cut(text, limits);
    if whole.is_whole() {
        return whole;
    }
    let Some(ends) = both_ends(text, limits, MARK_TOKENS) else {
        return whole;
    };
    let mark = match ends.head.left.lines {
        0 => String::new(),
        lines => format!("… {} left out …\n", counted_lines(lines)),
    };
    let shown = format!("{}{mark}{}", ends.head.text, ends.tail);
    if !fits(&shown, limits.tokens) {
        return whole;
    }
    Cut {
        text: Cow::Owned(shown),
        kept: ends.kept(),
        ..ends.head
    }
}

/// The start and the end of a text that is too long.
struct TextEnds<'a> {
    head: Cut<'a>,
    tail: &'a str,
}

impl TextEnds<'_> {
    fn kept(&self) -> Extent {
        let tail = extent(self.tail);
        Extent {
            lines: self.head.kept.lines + tail.lines,
            bytes: self.head.kept.bytes + tail.bytes,
        }
    }
}

/// `None` where there is no room for both.
fn both_ends(text: &str, limits: CutLimits, mark_tokens: usize) -> Option<TextEnds<'_>> {
    let room = limits.tokens.saturating_sub(mark_tokens);
    let tail_start = last_lines(text, room / 3, limits.line_bytes);
    let tail = &text[tail_start..];
    let head_limits = CutLimits {
        tokens: room - count(tail).min(room),
        ..limits
    };
    let head = cut(&text[..tail_start], head_limits);
    (!tail.is_empty() && !head.text.is_empty()).then_some(TextEnds { head, tail })
}

fn counted_lines(lines: u64) -> String {
    match lines {
        1 => "1 line".to_owned(),
        lines => format!("{lines} lines"),
    }
}

/// Keeps something of each part of a text; `starts` are where the second and the further parts start. Short parts stay whole,
/// and long ones get equal shares, of which both ends are kept. With too little for each part, both ends of the whole text are
/// kept instead, as by [`cut_ends`].
///
/// Where lines are left out in several places, each says how many lines of the text are before it.
pub fn cut_parts<'a>(text: &'a str, starts: &[usize], limits: CutLimits) -> Cut<'a> {
    /// Fewer tokens than this show little of a part.
    const MIN_SHARE: usize = 100;
    /// Tokens of a line that stands for others.
    const MARK_TOKENS: usize = 24;
    if starts.is_empty() || fits(text, limits.tokens) {
        return cut_ends(text, limits);
    }
    let mut parts = Vec::new();
    let mut rest = text;
    for start in starts.iter().rev() {
        let Some((before, part)) = rest.split_at_checked(*start) else {
            return cut_ends(text, limits);
        };
        parts.push((part, count(part)));
        rest = before;
    }
    parts.push((rest, count(rest)));
    parts.reverse();
    let sizes = parts.iter().map(|(_, tokens)| *tokens);
    let PartShares { whole, share } =
        PartShares::one_gap(sizes.clone(), limits.tokens, MARK_TOKENS)
            .unwrap_or_else(|| PartShares::of(sizes, limits.tokens));
    if share < MIN_SHARE {
        return cut_ends(text, limits);
    }
    let has_several_gaps = parts.iter().filter(|(_, tokens)| *tokens > whole).count() > 1;
    let mut sum = Cut {
        text: Cow::Owned(String::with_capacity(limits.tokens * 4)),
        kept: Extent::default(),
        left: Extent::default(),
        clipped: 0,
        next: text.len(),
        first_gap: 0,
        has_several_gaps,
        gaps: Vec::new(),
    };
    let (mut at, mut lines) = (0, 0);
    for (part, tokens) in parts {
        let part_limits = CutLimits {
            tokens: share,
            ..limits
        };
        let ends = (tokens > whole).then(|| both_ends(part, part_limits, MARK_TOKENS));
        let shown = sum.text.to_mut();
        let part_extent = extent(part);
        let kept = match ends {
            None => {
                shown.push_str(part);
                part_extent
            }
            // A line of it is too long.
            Some(None) => return cut_ends(text, limits),
            Some(Some(ends)) if ends.head.left.lines == 0 => return cut_ends(text, limits),
            Some(Some(ends)) => {
                let left = ends.head.left.lines;
                let offset = lines + ends.head.kept.lines;
                let mark = counted_lines(left);
                shown.push_str(&ends.head.text);
                shown.push_str(&match has_several_gaps {
                    true => format!("… {mark} left out (offset_lines={offset}) …\n"),
                    false => format!("… {mark} left out …\n"),
                });
                shown.push_str(ends.tail);
                if sum.next == text.len() {
                    (sum.next, sum.first_gap) = (at + ends.head.next, left);
                }
                if has_several_gaps {
                    sum.gaps.push((offset, left));
                }
                sum.clipped += ends.head.clipped;
                sum.left.lines += left;
                sum.left.bytes += ends.head.left.bytes;
                ends.kept()
            }
        };
        sum.kept.lines += kept.lines;
        sum.kept.bytes += kept.bytes;
        at += part.len();
        lines += part_extent.lines;
    }
    match fits(&sum.text, limits.tokens) {
        true => sum,
        false => cut_ends(text, limits),
    }
}

/// How a budget is shared between parts.
struct PartShares {
    /// Parts of at most this many tokens stay whole.
    whole: usize,
    /// What each other part gets.
    share: usize,
}

impl PartShares {
    /// All parts whole but the longest, if that leaves it enough to show: one gap costs its reader one call.
    fn one_gap(
        sizes: impl Iterator<Item = usize>,
        tokens: usize,
        mark_tokens: usize,
    ) -> Option<PartShares> {
        /// Of the longest part less would say little.
        const MIN_TOKENS: usize = 200;
        let mut sizes: Vec<usize> = sizes.collect();
        sizes.sort_unstable();
        let longest = sizes.pop()?;
        let second = sizes.last().copied()?;
        let share = tokens.checked_sub(sizes.iter().sum::<usize>() + mark_tokens)?;
        (second < longest && share >= MIN_TOKENS.max(tokens / 5)).then_some(PartShares {
            whole: second,
            share,
        })
    }

    fn of(sizes: impl Iterator<Item = usize>, tokens: usize) -> PartShares {
        let mut sizes: Vec<usize> = sizes.collect();
        sizes.sort_unstable();
        let largest = sizes.last().copied().unwrap_or(0);
        let mut shares = PartShares {
            whole: 0,
            share: tokens,
        };
        let mut left = tokens;
        for (done, size) in sizes.iter().enumerate() {
            shares.share = left / (sizes.len() - done);
            // Few lines are not worth a gap, if another part has many.
            let is_near = *size <= shares.share / 4 * 5 && largest > 2 * shares.share;
            if *size > shares.share && !is_near {
                break;
            }
            left -= size;
            shares.whole = *size;
        }
        shares
    }
}

/// Where the last lines start that fit the budget; none of them is longer than `line_bytes`.
pub fn last_lines(text: &str, tokens: usize, line_bytes: usize) -> usize {
    let mut start = text.len();
    let mut left = tokens;
    for line in text.split_inclusive('\n').rev() {
        // A line with this many bytes a token is not worth counting.
        if line.len() > left.saturating_mul(64) || content(line).0.len() > line_bytes {
            break;
        }
        let need = count(line);
        if need > left {
            break;
        }
        left -= need;
        start -= line.len();
    }
    start
}

/// A cut that shows the lines up to `end` as they are.
fn plain(text: &str, end: usize) -> Cut<'_> {
    let left = extent(&text[end..]);
    Cut {
        text: Cow::Borrowed(&text[..end]),
        kept: extent(&text[..end]),
        left,
        clipped: 0,
        next: end,
        first_gap: left.lines,
        has_several_gaps: false,
        gaps: Vec::new(),
    }
}

fn clipping(text: &str, limits: CutLimits) -> Cut<'_> {
    // Bytes of shown text worth preparing before it is counted; grown when all of it turns out to fit.
    let mut prepare = limits.tokens.saturating_mul(8).max(4096);
    loop {
        let mut shown = String::new();
        let mut lines = Vec::new();
        let mut at = 0;
        for line in text.split_inclusive('\n') {
            if shown.len() > prepare {
                break;
            }
            let lost = push_clipped(&mut shown, line, limits.line_bytes);
            at += line.len();
            lines.push(Shown {
                end: shown.len(),
                next: at,
                lost,
            });
        }
        let end = whole_lines(&shown, limits.tokens);
        if end == shown.len() && at < text.len() {
            prepare = prepare.saturating_mul(2);
            continue;
        }
        if end == 0 {
            return first_line(text, limits);
        }
        lines.retain(|line| line.end <= end);
        shown.truncate(end);
        return sum(text, shown, &lines);
    }
}

/// One line of the shown text.
struct Shown {
    /// Where it ends in the shown text.
    end: usize,
    /// Where it ends in the original.
    next: usize,
    /// Bytes of it that were clipped.
    lost: usize,
}

fn sum<'a>(text: &'a str, shown: String, lines: &[Shown]) -> Cut<'a> {
    let next = lines.last().map_or(0, |line| line.next);
    let lost: usize = lines.iter().map(|line| line.lost).sum();
    let rest = extent(&text[next..]);
    Cut {
        text: Cow::Owned(shown),
        kept: Extent {
            lines: lines.len() as u64,
            bytes: (next - lost) as u64,
        },
        left: Extent {
            lines: rest.lines,
            bytes: rest.bytes + lost as u64,
        },
        clipped: lines.iter().filter(|line| line.lost > 0).count() as u64,
        next,
        first_gap: rest.lines,
        has_several_gaps: false,
        gaps: Vec::new(),
    }
}

/// As much of the first line as the budget allows.
fn first_line(text: &str, limits: CutLimits) -> Cut<'_> {
    let line = text.split_inclusive('\n').next().unwrap_or_default();
    let attempt = |bytes: usize| {
        let mut shown = String::new();
        let lost = push_clipped(&mut shown, line, bytes);
        (shown, lost)
    };
    let (mut low, mut high) = (None, content(line).0.len().min(limits.line_bytes) + 1);
    let mut from = 0;
    while from < high {
        let mid = from + (high - from) / 2;
        let (shown, lost) = attempt(mid);
        if fits(&shown, limits.tokens) {
            low = Some((shown, lost));
            from = mid + 1;
        } else {
            high = mid;
        }
    }
    match low {
        Some((shown, lost)) => {
            let end = shown.len();
            let next = line.len();
            sum(text, shown, &[Shown { end, next, lost }])
        }
        None => plain(text, 0),
    }
}

/// The length of the longest start of whole lines within the budget.
fn whole_lines(text: &str, tokens: usize) -> usize {
    // No text has more tokens than bytes, so a short one need not be counted.
    if text.len() <= tokens {
        return text.len();
    }
    lines_within(text, tokens).0
}

/// Appends the line, clipped if its content is longer than `limit`, and says how many bytes that cost.
fn push_clipped(out: &mut String, line: &str, limit: usize) -> usize {
    let (content, end) = content(line);
    if content.len() <= limit {
        out.push_str(line);
        return 0;
    }
    let for_tail = limit / 4;
    let head = content.floor_char_boundary(limit - for_tail);
    let tail = content
        .ceil_char_boundary(content.len() - for_tail)
        .max(head);
    let lost = tail - head;
    out.push_str(&content[..head]);
    out.push_str(&format!("…[+{lost} bytes]…"));
    out.push_str(&content[tail..]);
    out.push_str(end);
    lost
}

/// One line of at most about `limit` bytes, clipped as [`cut`] does.
pub fn clip_line(line: &str, limit: usize) -> Cow<'_, str> {
    if content(line).0.len() <= limit {
        return Cow::Borrowed(line);
    }
    let mut clipped = String::new();
    push_clipped(&mut clipped, line, limit);
    Cow::Owned(clipped)
}

/// A line without and with only its end.
fn content(line: &str) -> (&str, &str) {
    let body = line.strip_suffix('\n').unwrap_or(line);
    let body = body.strip_suffix('\r').unwrap_or(body);
    line.split_at(body.len())
}

fn extent(text: &str) -> Extent {
    let ends = text.bytes().filter(|b| *b == b'\n').count();
    let open = !text.is_empty() && !text.ends_with('\n');
    Extent {
        lines: (ends + usize::from(open)) as u64,
        bytes: text.len() as u64,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn limits(tokens: usize, line_bytes: usize) -> CutLimits {
        CutLimits { tokens, line_bytes }
    }

    #[test]
    fn a_text_that_fits_is_untouched() {
        let whole = cut("one\ntwo", limits(100, 100));
        assert!(whole.is_whole());
        assert!(matches!(whole.text, Cow::Borrowed("one\ntwo")));
        assert_eq!(whole.kept, Extent { lines: 2, bytes: 7 });
        assert!(cut("", limits(0, 0)).is_whole());
    }

    #[test]
    fn it_is_cut_between_lines_and_says_what_is_left() {
        let text = "alpha beta gamma\n".repeat(50);
        let cut = cut(&text, limits(60, 1000));
        assert!(cut.text.ends_with('\n') && !cut.is_whole());
        assert_eq!(cut.kept.lines + cut.left.lines, 50);
        assert_eq!(cut.next as u64, cut.kept.bytes);
    }

    /// Lines that are all different, in parts of these lengths, and where the parts start.
    fn parts(lengths: &[usize]) -> (String, Vec<usize>) {
        let (mut text, mut starts) = (String::new(), Vec::new());
        for (part, length) in lengths.iter().enumerate() {
            for line in 0..*length {
                text.push_str(&format!("part {part}, line {line}\n"));
            }
            starts.push(text.len());
        }
        starts.pop();
        (text, starts)
    }

    #[test]
    fn each_part_keeps_its_share() {
        let (text, starts) = parts(&[200, 5, 300]);
        let cut = cut_parts(&text, &starts, limits(600, usize::MAX));
        let shown: Vec<&str> = cut.text.lines().collect();
        for line in [
            "part 0, line 0",
            "part 0, line 199",
            "part 1, line 0",
            "part 1, line 4",
            "part 2, line 0",
            "part 2, line 299",
        ] {
            assert!(shown.contains(&line), "{line}: {shown:#?}");
        }
        assert!((500..=600).contains(&count(&cut.text)), "{}", cut.text);
        assert_eq!(cut.kept.lines + cut.left.lines, 505);
        // Each mark says where its lines are.
        let all: Vec<&str> = text.lines().collect();
        let marks: Vec<usize> = (0..shown.len())
            .filter(|at| shown[*at].contains("left out"))
            .collect();
        assert_eq!(marks.len(), 2, "{shown:#?}");
        for at in marks {
            let words: Vec<&str> = shown[at].split([' ', '=', ')']).collect();
            let (count, offset): (usize, usize) =
                (words[1].parse().unwrap(), words[6].parse().unwrap());
            assert_eq!(all[offset - 1], shown[at - 1]);
            assert_eq!(all[offset + count], shown[at + 1]);
        }
        assert!(cut.has_several_gaps);
        assert!(
            text[cut.next..].starts_with(
                all[cut
                    .text
                    .lines()
                    .position(|line| line.contains("left out"))
                    .unwrap()]
            )
        );
    }

    #[test]
    fn a_part_that_is_little_too_long_stays_whole_at_the_cost_of_a_longer_one() {
        let (text, starts) = parts(&[38, 400]);
        let cut = cut_parts(&text, &starts, limits(600, usize::MAX));
        assert!(count(&text[..starts[0]]) > 300, "more than half");
        assert!(cut.text.starts_with(&text[..starts[0]]), "{}", cut.text);
        assert!(!cut.has_several_gaps);
    }

    #[test]
    fn one_long_part_has_one_gap_and_many_parts_have_one_too() {
        let (text, starts) = parts(&[5, 300, 5]);
        let cut = cut_parts(&text, &starts, limits(500, usize::MAX));
        assert!(!cut.has_several_gaps);
        assert_eq!(cut.first_gap, cut.left.lines);
        assert!(cut.text.contains(" lines left out …\n"));
        assert!(cut.text.ends_with("part 2, line 4\n"));
        let (text, starts) = parts(&[30; 14]);
        let tight = limits(500, usize::MAX);
        assert_eq!(cut_parts(&text, &starts, tight), cut_ends(&text, tight));
        assert_eq!(
            cut_parts(&text, &[9_999_999], tight),
            cut_ends(&text, tight)
        );
    }

    #[test]
    fn long_lines_are_clipped_with_their_length() {
        let text = format!("{}a\r\nshort\n", "é".repeat(20));
        let cut = cut(&text, limits(1000, 5));
        assert_eq!(cut.text, "éé…[+36 bytes]…a\r\nshort\n");
        assert_eq!(cut.clipped, 1);
        assert_eq!(
            cut.left,
            Extent {
                lines: 0,
                bytes: 36
            }
        );
        assert_eq!(cut.kept.bytes + cut.left.bytes, text.len() as u64);
    }

    #[test]
    fn a_first_line_over_the_budget_is_clipped_to_it() {
        let text = format!("{}\nnext\n", "ab,".repeat(2000));
        let some = cut(&text, limits(50, usize::MAX));
        assert_eq!((some.kept.lines, some.clipped, some.left.lines), (1, 1, 1));
        assert!(some.kept.bytes > 20 && fits(&some.text, 50));
        let none = cut(&text, limits(1, usize::MAX));
        assert_eq!((none.text.as_ref(), none.kept.lines, none.next), ("", 0, 0));
    }

    #[test]
    fn both_ends_are_kept_and_the_lines_between_counted() {
        let text: String = (1..=400).map(|n| format!("line number {n}\n")).collect();
        let both = cut_ends(&text, limits(200, 1000));
        let shown: Vec<&str> = both.text.lines().collect();
        assert_eq!(shown[0], "line number 1");
        assert_eq!(shown[shown.len() - 1], "line number 400");
        let mark = format!("… {} lines left out …", both.left.lines);
        assert!(shown.contains(&mark.as_str()), "{shown:?}");
        assert_eq!(both.kept.lines + 1, shown.len() as u64);
        assert_eq!(both.kept.lines + both.left.lines, 400);
        assert!(fits(&both.text, 200));
    }

    #[test]
    fn one_long_line_keeps_its_start_and_its_end() {
        let text = "ab,".repeat(2000);
        let one = cut_ends(&text, limits(50, usize::MAX));
        assert!(one.text.starts_with("ab,ab,") && one.kept.bytes > 20);
        assert!(one.text.ends_with("b,ab,"), "{}", one.text);
        assert_eq!(one.clipped, 1);
        let text = format!("{text}\ndone\n");
        let two = cut_ends(&text, limits(50, usize::MAX));
        assert!(two.text.starts_with("ab,ab,") && two.text.ends_with(",ab,\ndone\n"));
        assert_eq!((two.kept.lines, two.left.lines), (2, 0));
    }

    proptest! {
        #[test]
        fn parts_stay_within_the_budget_and_are_all_counted(
            lengths in prop::collection::vec(1_usize..120, 1..8),
            tokens in 0_usize..900,
        ) {
            let (text, starts) = parts(&lengths);
            let cut = cut_parts(&text, &starts, limits(tokens, usize::MAX));
            prop_assert!(fits(&cut.text, tokens));
            prop_assert_eq!(cut.kept.lines + cut.left.lines, lengths.iter().sum::<usize>() as u64);
            prop_assert_eq!(cut.kept.bytes + cut.left.bytes, text.len() as u64);
        }
    }

    proptest! {
        #[test]
        fn the_ends_account_for_every_byte(
            text in "([a-z é,]{0,30}\r?\n|[0-9]{50,90}|\n){0,40}",
            tokens in 0usize..200,
            line_bytes in 0usize..60,
        ) {
            let cut = cut_ends(&text, limits(tokens, line_bytes));
            prop_assert!(fits(&cut.text, tokens));
            prop_assert_eq!(cut.kept.bytes + cut.left.bytes, text.len() as u64);
            prop_assert_eq!(cut.kept.lines + cut.left.lines, extent(&text).lines);
        }

        #[test]
        fn every_byte_is_accounted_for(
            text in "([a-z é,]{0,30}\r?\n|[0-9]{50,90}|\n){0,20}",
            tokens in 0usize..200,
            line_bytes in 0usize..60,
        ) {
            let cut = cut(&text, limits(tokens, line_bytes));
            prop_assert!(fits(&cut.text, tokens));
            prop_assert_eq!(cut.kept.bytes + cut.left.bytes, text.len() as u64);
            prop_assert_eq!(cut.kept.lines + cut.left.lines, extent(&text).lines);
            prop_assert!(cut.next == 0 || cut.next == text.len() || text[..cut.next].ends_with('\n'));
            prop_assert_eq!(extent(&text[..cut.next]).lines, cut.kept.lines);
            if cut.clipped == 0 {
                prop_assert!(text.starts_with(cut.text.as_ref()));
            }
        }
    }
}
