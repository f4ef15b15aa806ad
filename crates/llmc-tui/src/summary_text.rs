//! The summary as plain text, for the end of a task, a pipe or a log.

use std::fmt::Write;
use std::path::PathBuf;

use jiff::tz::TimeZone;
use llmc_envelope::HandleId;
use llmc_observe::{CallEvent, LatencyQuantiles, SessionSummary, Summary};

use crate::call::about;
use crate::rerun::RepeatCall;
use crate::text::{clock, count, grouped, legible, short, span};

/// Agent and model of a session that has named none.
const UNNAMED: &str = "unknown";
const MAX_LIST_LINES: usize = 8;
const MAX_SLOWEST_CALLS: usize = 5;
/// Characters of what a call was about.
const MAX_ABOUT_CHARS: usize = 60;

/// What the text says besides the summary.
#[derive(Debug, Clone)]
pub struct SummaryContext {
    /// The workspace, or the server's address.
    pub watched: String,
    /// Which calls these are.
    pub span: String,
    /// The token audit, when there is one.
    pub audit: Option<PathBuf>,
    /// The handle that was copied.
    pub copied: Option<HandleId>,
    pub zone: TimeZone,
}

/// Calls, tokens, savings, the slowest calls, errors, and commands for what to do next.
pub fn summary_text(summary: &Summary, context: &SummaryContext) -> String {
    let mut out = String::new();
    let watched = legible(&context.watched, 300);
    let _ = writeln!(out, "LLMC: {watched}, {}", context.span);
    let totals = &summary.totals;
    if totals.calls == 0 {
        out.push_str("\nno calls yet; point an MCP client at `llmc mcp`, or try `llmc tool list_dir --path .`\n");
        return out;
    }
    let number = |number: u64| grouped(i64::try_from(number).unwrap_or(i64::MAX));
    let percent = totals.saved_percent();
    let percent = percent
        .map(|percent| format!(" ({percent:.0} %)"))
        .unwrap_or_default();
    let latency = latency_text(&summary.latency_ms);
    let latency = if latency.is_empty() {
        latency
    } else {
        format!(", {latency}")
    };
    let _ = writeln!(
        out,
        "\n  calls    {}, {}{latency}\n  tokens   {} served, {} withheld, {} fetched back\n  saved    {} tokens{percent} that no model had to read",
        number(totals.calls),
        count(totals.errors, "error"),
        number(totals.tokens.served),
        number(totals.tokens.withheld),
        number(totals.tokens.fetched_back),
        grouped(totals.net_saved()),
    );
    let slowest = &summary.slowest[..summary.slowest.len().min(MAX_SLOWEST_CALLS)];
    section(&mut out, "slowest", slowest, |out, slow: &CallEvent| {
        let _ = write!(
            out,
            "{:>9}  {:<22} {}  {}",
            span(slow.duration_ms),
            slow.tool,
            clock(slow.time, &context.zone),
            legible(&about(slow), MAX_ABOUT_CHARS)
        );
    });
    section(&mut out, "errors", &summary.errors, |out, error| {
        let _ = write!(out, "{:>9}  {}", number(error.count), error.code);
    });
    section(&mut out, "tools", &summary.tools, |out, tool| {
        let _ = write!(
            out,
            "{:>9}  {:<22} {:>6} served, {:>6} withheld, {}",
            number(tool.totals.calls),
            tool.tool,
            short(tool.totals.tokens.served),
            short(tool.totals.tokens.withheld),
            latency_text(&tool.latency_ms),
        );
    });
    section(&mut out, "upstreams", &summary.upstreams, |out, ledger| {
        let tokens = &ledger.totals.tokens;
        let _ = write!(
            out,
            "{:>9}  {:<22} {:>6} of its list avoided, {} served, {} withheld, {} fetched back, {} read by scripts",
            number(ledger.totals.calls),
            ledger.upstream,
            short(ledger.list_avoided),
            short(tokens.served),
            short(tokens.withheld),
            short(tokens.fetched_back),
            short(ledger.read_by_scripts),
        );
    });
    let model = |model: &str| match model {
        UNNAMED => String::new(),
        model => format!(" ({model})"),
    };
    let (unnamed, named): (Vec<&SessionSummary>, Vec<&SessionSummary>) = (summary.sessions.iter())
        .partition(|session| session.agent == UNNAMED && session.model == UNNAMED);
    section(&mut out, "sessions", &named, |out, session| {
        let _ = write!(
            out,
            "{:>9}  {:<22} {}{}, last {}",
            number(session.totals.calls),
            session.agent,
            session.session,
            model(&session.model),
            clock(session.last, &context.zone)
        );
    });
    if let Some(last) = unnamed.iter().map(|session| session.last).max() {
        let calls: u64 = unnamed.iter().map(|session| session.totals.calls).sum();
        let _ = writeln!(
            out,
            "\n{:>9} calls without the name of an agent, such as those from a shell, last {}",
            number(calls),
            clock(last, &context.zone)
        );
    }
    write_next_steps(&mut out, summary, context);
    out
}

fn latency_text(latency: &LatencyQuantiles) -> String {
    match (latency.p50, latency.p95) {
        (Some(p50), Some(p95)) => format!("p50 {}, p95 {}", span(p50), span(p95)),
        _ => String::new(),
    }
}

fn section<T>(out: &mut String, title: &str, items: &[T], mut line: impl FnMut(&mut String, &T)) {
    if items.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{title}");
    for item in items.iter().take(MAX_LIST_LINES) {
        let start = out.len();
        line(out, item);
        let end = out[start..].trim_end().len();
        out.truncate(start + end);
        out.push('\n');
    }
    if items.len() > MAX_LIST_LINES {
        let _ = writeln!(
            out,
            "           … and {} more",
            items.len() - MAX_LIST_LINES
        );
    }
}

fn write_next_steps(out: &mut String, summary: &Summary, context: &SummaryContext) {
    let mut lines = Vec::new();
    if let Some(handle) = context.copied {
        lines.push(("copied handle", handle.to_string()));
    }
    if let Some(handle) = summary.last_handle {
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
    let last = summary.recent.first();
    let repeat = last.and_then(|call| RepeatCall::of(call).ok());
    if let Some(command) = repeat.and_then(|call| call.command()) {
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

    fn context() -> SummaryContext {
        SummaryContext {
            watched: "/w".to_owned(),
            span: "last 24 hours".to_owned(),
            audit: Some("/w/.llmc/audit.csv".into()),
            copied: None,
            zone: TimeZone::UTC,
        }
    }

    #[test]
    fn every_figure_is_shown() {
        let calls = state(vec![
            call(3600, "run_cmd", |call| {
                call.duration_ms = 1500.0;
                call.error_code = Some("TIMEOUT".to_owned());
            }),
            call(3601, "te_cat", |call| {
                call.tokens_served = 1000;
                call.tokens_withheld = 10_000;
                call.handle = Some(handle(HANDLE));
            }),
            call(3602, "read_file", |call| {
                call.tokens_served = 1000;
                call.tokens_fetched_back = 1000;
            }),
        ])
        .into_summary();
        let text = summary_text(&calls, &context());
        for expected in [
            "LLMC: /w, last 24 hours\n",
            "  calls    3, 1 error, p50 ",
            "  tokens   2,010 served, 10,000 withheld, 1,000 fetched back\n",
            "  saved    9,000 tokens (82 %) that no model had to read\n",
            "slowest\n    1.5 s  run_cmd                01:00:00  path=a.txt\n",
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
    fn the_ledger_of_each_upstream_is_shown() {
        let mut calls = state(vec![call(3600, "time.convert_time", |_| ())]).into_summary();
        calls.upstreams = vec![llmc_observe::UpstreamLedger {
            upstream: "time".to_owned(),
            list_tokens: 250,
            list_avoided: 2_500,
            totals: calls.totals,
            read_by_scripts: 70,
        }];
        let text = summary_text(&calls, &context());
        let line = "        1  time                     2500 of its list avoided, 10 served, 0 withheld, 0 fetched back, 70 read by scripts\n";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn an_empty_summary_is_shown() {
        let text = summary_text(&Summary::default(), &context());
        assert!(text.contains("no calls yet"), "{text}");
        assert!(!text.contains("slowest") && !text.contains("NaN"), "{text}");
    }

    #[test]
    fn a_long_list_says_that_it_goes_on() {
        let calls = (0..20)
            .map(|n| call(n, &format!("tool{n}"), |_| ()))
            .collect();
        let text = summary_text(&state(calls).into_summary(), &context());
        assert!(text.contains("… and 12 more"), "{text}");
    }
}
