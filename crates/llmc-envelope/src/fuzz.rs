//! Fuzz targets: whatever a body holds, nothing in it passes for the server's own lines, and all of it comes back.

use llmc_fuzz::{FuzzInput, check};

use crate::neutral::{Ansi, acts, finished, neutralise, one_line};
use crate::receipt::{Receipt, escape, is_marker, unescape};
use crate::te::{TeHeader, parse, render, render_whole};

/// Every character that some reader takes for a line end.
const LINE_ENDS: &str = "\n\r\u{b}\u{c}\u{1c}\u{1d}\u{1e}\u{85}\u{2028}\u{2029}";

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c| LINE_ENDS.contains(c))
}

#[test]
fn te_text() {
    check!("te_text", |bytes: &[u8]| {
        let mut input = FuzzInput::new(bytes);
        let header = TeHeader {
            matches: Some(u64::from(input.byte())),
            truncated: input.byte() % 2 == 1,
            hot_zone: Some(input.text().into_owned()),
            hint: Some(input.text().into_owned()),
            ..TeHeader::new(format!("c{}", input.text()))
        };
        let crumb = input.text();
        let crumbs = if crumb.is_empty() {
            vec![]
        } else {
            vec![crumb, input.text()]
        };
        let body = input.text();
        let text = render(&header, &body, &crumbs);
        let back = parse(&text).expect("what was rendered can be parsed");
        assert_eq!((&back.header, back.body.as_str()), (&header, &*body));
        let shown: Vec<String> = crumbs
            .iter()
            .map(|crumb| one_line(crumb).into_owned())
            .collect();
        assert_eq!(back.breadcrumbs, shown);
        // Two lines around the header, one for each breadcrumb, and no other marker, for any reading of the line ends.
        assert_eq!(
            lines(&text).filter(|line| is_marker(line)).count(),
            2 + crumbs.len()
        );
        let whole = parse(&render_whole(&body, &crumbs)).expect("a whole answer can be parsed");
        assert_eq!((whole.body.as_str(), whole.breadcrumbs), (&*body, shown));
        // Any text at all is parsed or refused.
        let _ = parse(&body);
    });
}

#[test]
fn receipt() {
    check!("receipt", |bytes: &[u8]| {
        let mut input = FuzzInput::new(bytes);
        let (note, next, sha, body) = (input.text(), input.text(), input.text(), input.text());
        let escaped = escape(&body);
        assert!(!lines(&escaped).any(is_marker), "{escaped:?}");
        assert_eq!(unescape(&escaped), body);
        let receipt = Receipt::new().note(&note).sha(&sha).next(&next);
        assert_eq!(lines(&receipt.line()).count(), 1);
        let sealed = receipt.seal(&body);
        let last = lines(&sealed).last().expect("there is a receipt");
        assert_eq!(last, receipt.line());
        assert_eq!(lines(&sealed).filter(|line| is_marker(line)).count(), 1);
    });
}

#[test]
fn neutral() {
    check!("neutral", |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        for ansi in [Ansi::Strip, Ansi::Show] {
            let safe = neutralise(&text, ansi);
            let is_selector = |c: char| ('\u{fe00}'..='\u{fe0f}').contains(&c);
            let bad = |c: char| acts(c) && !"\t\n\r".contains(c) && !is_selector(c);
            assert!(!safe.contains(bad), "{safe:?}");
            assert_eq!(safe.matches('\r').count(), safe.matches("\r\n").count());
            assert_eq!(
                neutralise(&safe, ansi),
                safe,
                "neutralising again changes nothing"
            );
        }
        let line = one_line(&text);
        assert!(
            !line.contains(|c| LINE_ENDS.contains(c) || c == '\t'),
            "{line:?}"
        );
        // What is shown of a stream early and late is what is shown of it at once.
        let at = finished(&text);
        let parts = [&text[..at], &text[at..]].map(|part| neutralise(part, Ansi::Strip));
        let joined = parts.concat();
        if !joined.contains("\\u{fe") {
            assert_eq!(joined, neutralise(&text, Ansi::Strip));
        }
    });
}
