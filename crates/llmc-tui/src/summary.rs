//! The picture as plain text, for the end of a task, a pipe or a log.

use std::fmt::Write;
use std::path::PathBuf;

use jiff::tz::TimeZone;
use llmc_envelope::HandleId;

use crate::again::Again;
use crate::picture::Picture;
use crate::text::{clock, count, grouped, legible, short, span};

/// Lines of a list.
const LINES: usize = 8;
/// Characters of what a call was about.
const ABOUT: usize = 60;

/// What the summary tells besides the picture.
#[derive(Debug, Clone)]
pub struct Context {
    /// The workspace, or the server.
    pub place: String,
    /// Which calls these are.
    pub span: String,
    /// The token audit, when there is one.
    pub audit: Option<PathBuf>,
    /// The handle that was copied.
    pub copied: Option<HandleId>,
    /// Whose time it is.
    pub zone: TimeZone,
}

/// Calls, tokens, savings, the slowest, errors, and what one may want to do next.
pub fn summary(picture: &Picture, context: &Context) -> String {
    let mut out = String::new();
    let place = legible(&context.place, 300);
    let _ = writeln!(out, "LLMC: {place}, {}", context.span);
    let sums = &picture.sums;
    if sums.calls == 0 {
        out.push_str("\nno calls yet; point an MCP client at `llmc mcp`, or try `llmc tool list_dir --path .`\n");
        return out;
    }
    let number = |number: u64| grouped(i64::try_from(number).unwrap_or(i64::MAX));
    let percent = sums.saved_percent();
    let percent = percent
        .map(|percent| format!(" ({percent:.0} %)"))
        .unwrap_or_default();
    let latency = match picture.latency {
        [Some(p50), Some(p95)] => format!(", p50 {}, p95 {}", span(p50), span(p95)),
        _ => String::new(),
    };
    let _ = writeln!(
        out,
        "\n  calls    {}, {}{latency}\n  tokens   {} served, {} withheld, {} fetched back\n  saved    {} tokens{percent} that nobody had to read",
        number(sums.calls),
        count(sums.errors, "error"),
        number(sums.served),
        number(sums.withheld),
        number(sums.fetched_back),
        grouped(sums.saved()),
    );
    section(&mut out, "slowest", &picture.slowest, |out, slow| {
        let _ = write!(
            out,
            "{:>9}  {:<22} {}  {}",
            span(slow.ms),
            slow.tool,
            clock(slow.time, &context.zone),
            legible(&slow.about, ABOUT)
        );
    });
    section(&mut out, "errors", &picture.errors, |out, (code, count)| {
        let _ = write!(out, "{:>9}  {code}", number(*count));
    });
    section(&mut out, "tools", &picture.tools, |out, line| {
        let latency = match line.latency {
            [Some(p50), Some(p95)] => format!("p50 {}, p95 {}", span(p50), span(p95)),
            _ => String::new(),
        };
        let _ = write!(
            out,
            "{:>9}  {:<22} {:>6} served, {:>6} withheld, {latency}",
            number(line.sums.calls),
            line.tool,
            short(line.sums.served),
            short(line.sums.withheld),
        );
    });
    section(&mut out, "sessions", &picture.sessions, |out, line| {
        let _ = write!(
            out,
            "{:>9}  {:<22} {} ({}), last {}",
            number(line.sums.calls),
            line.agent,
            line.session,
            line.model,
            clock(line.last, &context.zone)
        );
    });
    actions(&mut out, picture, context);
    out
}

fn section<T>(out: &mut String, title: &str, items: &[T], mut line: impl FnMut(&mut String, &T)) {
    if items.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{title}");
    for item in items.iter().take(LINES) {
        let start = out.len();
        line(out, item);
        let end = out[start..].trim_end().len();
        out.truncate(start + end);
        out.push('\n');
    }
    if items.len() > LINES {
        let _ = writeln!(out, "           … and {} more", items.len() - LINES);
    }
}

/// What one may want to do next.
fn actions(out: &mut String, picture: &Picture, context: &Context) {
    let mut lines = Vec::new();
    if let Some(handle) = context.copied {
        lines.push(("copied handle", handle.to_string()));
    }
    if let Some(handle) = picture.last_handle {
        lines.push((
            "last handle",
            format!("llmc tool te_handle --handle {handle}"),
        ));
    }
    if let Some(audit) = &context.audit {
        let path = audit.display().to_string();
        if legible(&path, path.len()) == path {
            lines.push(("token audit", path));
        }
    }
    let again = picture
        .last
        .as_deref()
        .and_then(|call| Again::of(call).ok());
    if let Some(command) = again.and_then(|again| again.command()) {
        lines.push(("run the last again", command));
    }
    if lines.is_empty() {
        return;
    }
    out.push_str("\nnext\n");
    for (what, how) in lines {
        let _ = writeln!(out, "  {what:<18} {how}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tests::{HANDLE, call, handle, state};

    fn context() -> Context {
        Context {
            place: "/w".to_owned(),
            span: "last 24 hours".to_owned(),
            audit: Some("/w/.llmc/audit.csv".into()),
            copied: None,
            zone: TimeZone::UTC,
        }
    }

    #[test]
    fn everything_is_told() {
        let picture = state(vec![
            call(3600, "run_cmd", |call| {
                call.ms = 1500.0;
                call.error = Some("TIMEOUT".to_owned());
            }),
            call(3601, "te_cat", |call| {
                call.served = 1000;
                call.withheld = 10_000;
                call.handle = Some(handle(HANDLE));
            }),
            call(3602, "read_file", |call| {
                call.served = 1000;
                call.fetched_back = 1000;
            }),
        ])
        .into_picture();
        let text = summary(&picture, &context());
        for expected in [
            "LLMC: /w, last 24 hours\n",
            "  calls    3, 1 error, p50 ",
            "  tokens   2,010 served, 10,000 withheld, 1,000 fetched back\n",
            "  saved    9,000 tokens (82 %) that nobody had to read\n",
            "slowest\n    1.5 s  run_cmd                01:00:00  {\"path\":\"a.txt\"}\n",
            "errors\n        1  TIMEOUT\n",
            "tools\n",
            "        3  ann                    s1 (m), last 01:00:02\n",
            &format!("  last handle        llmc tool te_handle --handle {HANDLE}\n"),
            "  token audit        /w/.llmc/audit.csv\n",
            "  run the last again llmc tool read_file --args '{\"path\":\"a.txt\"}'\n",
        ] {
            assert!(text.contains(expected), "{expected:?} in\n{text}");
        }
    }

    #[test]
    fn nothing_seen_is_told_too() {
        let text = summary(&Picture::default(), &context());
        assert!(text.contains("no calls yet"), "{text}");
        assert!(!text.contains("slowest") && !text.contains("NaN"), "{text}");
    }

    #[test]
    fn a_long_list_says_that_it_goes_on() {
        let calls = (0..20)
            .map(|n| call(n, &format!("tool{n}"), |_| ()))
            .collect();
        let text = summary(&state(calls).into_picture(), &context());
        assert!(text.contains("… and 12 more"), "{text}");
    }
}
