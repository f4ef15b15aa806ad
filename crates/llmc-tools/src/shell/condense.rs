//! What of a command's output is shown: all of it where it fits, what matters where it does not.
//!
//! A test run is condensed to its counts and failures even where it fits. Whatever is recognised, the last lines of a
//! command that failed are always shown.

use llmc_enrich::Condensed;
use llmc_enrich::output::{self, CapturedOutput, OutputStream};
use llmc_enrich::preview::TextEnds;
use llmc_enrich::sniff::ContentKind as FileKind;
use llmc_envelope::cut::{CutLimits, Extent, clip_line, cut, cut_ends, last_lines};
use llmc_envelope::neutral::{Ansi, neutralise};
use llmc_envelope::te::ContentType;
use llmc_exec::ExitStatus;

use super::spool::Spool;

/// Tokens left for the receipt.
const RECEIPT_TOKENS: usize = 100;
/// Longer lines are clipped where nothing is known about the output.
const MAX_LINE_BYTES: usize = 400;
/// A test run is condensed if that saves more than the header and the handle cost.
const ENVELOPE_BYTES: usize = 240;
/// Lines of each stream that a failed command shows at least.
const FAILURE_TAIL_LINES: usize = 5;
/// Tokens that these lines may take.
const FAILURE_TAIL_TOKENS: usize = 240;

/// In which form the caller takes the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputForm {
    /// Untouched within the budget (test runs excepted), an envelope above it.
    Fit,
    /// Always an envelope.
    Envelope,
    /// Untouched within the budget, its first and last lines above it.
    Plain,
    /// Untouched, up to what one answer can hold.
    Raw,
    /// Untouched within the budget, condensed above it; for a program, which gets no header.
    Streams,
}

/// How an output is condensed.
#[derive(Clone, Copy)]
pub(crate) struct CondenseRequest<'a> {
    /// The words of the program that printed it.
    pub(crate) argv: &'a [String],
    pub(crate) form: OutputForm,
    /// Tokens that the answer may have where something is left out, which takes a header or a receipt.
    pub(crate) budget: usize,
    /// Tokens that it may have where nothing is.
    pub(crate) whole_budget: usize,
    /// Whether the text names the exit status; not where the process exits with that status itself.
    pub(crate) show_status: bool,
}

/// What of an output is shown, before header, receipt and handle.
#[derive(Debug, PartialEq)]
pub(super) enum OutputView {
    /// All of it.
    Whole(WholeOutput),
    /// As many lines of its start and its end as there is room for.
    BothEnds {
        text: String,
        kept: Extent,
        left: Extent,
    },
    /// What a condenser made of it.
    Condensed(Condensed, Option<ContentType>),
}

/// Both streams, whole.
#[derive(Debug, PartialEq)]
pub(super) struct WholeOutput {
    pub(super) stdout: String,
    pub(super) stderr: String,
    /// Both in the order in which they were read, where both have something.
    merged: Option<String>,
}

impl WholeOutput {
    /// Both streams and the exit status as one text.
    pub(super) fn text(&self, status: Option<ExitStatus>) -> String {
        let text = match &self.merged {
            Some(merged) => merged,
            None if self.stdout.is_empty() => &self.stderr,
            None => &self.stdout,
        };
        with_status(text, status)
    }
}

/// Decides what of an output is shown. `source` reads a file that a line of it names.
pub(super) fn view(
    request: &CondenseRequest<'_>,
    spool: &mut Spool,
    status: Option<ExitStatus>,
    mut source: impl FnMut(&str) -> Option<String>,
) -> OutputView {
    if request.form == OutputForm::Streams {
        if let Some(whole) = untouched(request, spool, status) {
            return OutputView::Whole(whole);
        }
        let condensed = CondenseRequest {
            form: OutputForm::Envelope,
            ..*request
        };
        let source: &mut dyn FnMut(&str) -> Option<String> = &mut source;
        return view(&condensed, spool, status, source);
    }
    if let Some(found) = test_run(request, spool, status) {
        return OutputView::Condensed(found, None);
    }
    if let Some(whole) = untouched(request, spool, status) {
        return OutputView::Whole(whole);
    }
    spool.error_lines.finish();
    if matches!(request.form, OutputForm::Plain | OutputForm::Raw) {
        return both_ends(request, spool);
    }
    let (mut stdout, mut stderr) = (spool.stdout.parts(), spool.stderr.parts());
    match output::find_long_log(request.argv, &stdout.text(), &stderr.text()) {
        Some(OutputStream::Stdout) => stdout.survey = spool.stdout.survey(),
        Some(OutputStream::Stderr) => stderr.survey = spool.stderr.survey(),
        None => {}
    }
    let captured = CapturedOutput {
        argv: request.argv,
        stdout: stdout.text(),
        stderr: stderr.text(),
        error_lines: &spool.error_lines,
        exit_code: status.and_then(ExitStatus::exit_code),
    };
    let reserved = if has_failed(status) {
        FAILURE_TAIL_TOKENS.min(request.budget / 5)
    } else {
        0
    };
    let told = output::condense_command(&captured, source, request.budget - reserved);
    let mut found = told.found;
    if found.truncated {
        add_failure_tail(&mut found.body, spool, status, reserved);
    }
    add_status(&mut found.body, request, status);
    OutputView::Condensed(found, told.kind.map(content_type))
}

fn has_failed(status: Option<ExitStatus>) -> bool {
    status.is_some_and(|status| !status.is_success())
}

/// The counts and failures of a test run that has ended, where they are shorter than what was printed.
fn condense_test_run(
    request: &CondenseRequest<'_>,
    spool: &Spool,
    status: Option<ExitStatus>,
) -> Option<Condensed> {
    status?;
    if !matches!(request.form, OutputForm::Fit | OutputForm::Envelope) {
        return None;
    }
    let text = spool.merged()?;
    let text = String::from_utf8_lossy(&text);
    let run = output::test_run(request.argv, &text, status.and_then(ExitStatus::exit_code))?;
    let reserved = FAILURE_TAIL_TOKENS.min(request.budget / 5);
    let budget = request.budget.saturating_sub(RECEIPT_TOKENS + reserved);
    let mut found = output::condense_test_run(&run, &text, text.len() as u64, budget);
    add_failure_tail(&mut found.body, spool, status, reserved);
    found.truncated = true;
    (found.body.len() + ENVELOPE_BYTES < text.len()).then_some(found)
}

/// A test run that has ended as its reader sees it: counts, failures, and the exit status of one that failed. `None` for any
/// other output.
pub(super) fn test_run(
    request: &CondenseRequest<'_>,
    spool: &Spool,
    status: Option<ExitStatus>,
) -> Option<Condensed> {
    let mut found = condense_test_run(request, spool, status)?;
    add_status(&mut found.body, request, status);
    Some(found)
}

/// Adds the last lines of both streams of a command that failed, but for those that are shown anyway.
fn add_failure_tail(body: &mut String, spool: &Spool, status: Option<ExitStatus>, tokens: usize) {
    if !has_failed(status) {
        return;
    }
    let streams = [
        ("stdout", spool.stdout.parts()),
        ("stderr", spool.stderr.parts()),
    ];
    for (name, parts) in streams {
        let text = parts.text();
        let end = text.tail.unwrap_or(text.head);
        let lines = end.lines().rev().filter(|line| !line.trim().is_empty());
        let mut lines: Vec<&str> = lines.take(FAILURE_TAIL_LINES).collect();
        lines.reverse();
        if lines.iter().all(|line| body.contains(line.trim())) {
            continue;
        }
        let clipped = lines.iter().map(|line| clip_line(line, MAX_LINE_BYTES));
        let mut clipped: Vec<_> = clipped.collect();
        while clipped.len() > 1 && llmc_tokens::count(&clipped.join("\n")) > tokens / 2 {
            clipped.remove(0);
        }
        if !body.is_empty() && !body.ends_with('\n') {
            body.push('\n');
        }
        body.push_str(&format!("[last lines of {name}]\n{}\n", clipped.join("\n")));
    }
}

/// Ends a text with the exit status of a command that failed.
fn add_status(body: &mut String, request: &CondenseRequest<'_>, status: Option<ExitStatus>) {
    let line = status_line(status);
    if !request.show_status || line.is_empty() || body.ends_with(&line) {
        return;
    }
    if !body.is_empty() && !body.ends_with('\n') {
        body.push('\n');
    }
    body.push_str(&line);
    body.push('\n');
}

fn both_ends(request: &CondenseRequest<'_>, spool: &Spool) -> OutputView {
    let limits = CutLimits {
        tokens: request.budget.saturating_sub(RECEIPT_TOKENS),
        line_bytes: MAX_LINE_BYTES,
    };
    if let Some(text) = spool.merged() {
        let text = with_status(&String::from_utf8_lossy(&text), None);
        let shown = cut_ends(&text, limits);
        return OutputView::BothEnds {
            kept: shown.kept,
            left: shown.left,
            text: shown.text.into_owned(),
        };
    }
    // Too much to be at hand: what is between the ends has only been counted.
    let streams = [spool.stdout.parts(), spool.stderr.parts()];
    let head: String = streams.iter().map(|parts| parts.text().head).collect();
    let head = with_status(&head, None);
    let tails = streams.iter().rev().filter_map(|parts| parts.text().tail);
    let tail = with_status(tails.into_iter().next().unwrap_or_default(), None);
    let for_tail = limits.tokens / 3;
    let tail = &tail[last_lines(&tail, for_tail, MAX_LINE_BYTES)..];
    let head = cut(
        &head,
        CutLimits {
            tokens: limits.tokens - for_tail,
            ..limits
        },
    );
    let total = |of: fn(&TextEnds<'_>) -> u64| streams.iter().map(|parts| of(&parts.text())).sum();
    let total: Extent = Extent {
        lines: total(|text| text.total_lines),
        bytes: total(|text| text.total_bytes),
    };
    let kept = Extent {
        lines: head.kept.lines + tail.lines().count() as u64,
        bytes: head.kept.bytes + tail.len() as u64,
    };
    let left = Extent {
        lines: total.lines.saturating_sub(kept.lines),
        bytes: total.bytes.saturating_sub(kept.bytes),
    };
    OutputView::BothEnds {
        text: format!("{}… {} lines left out …\n{tail}", head.text, left.lines),
        kept,
        left,
    }
}

/// The output as it is, where that is what the caller gets.
fn untouched(
    request: &CondenseRequest<'_>,
    spool: &Spool,
    status: Option<ExitStatus>,
) -> Option<WholeOutput> {
    let (stdout, stderr) = spool.whole()?;
    // A token is at least one byte; far above the budget nothing need be counted.
    let is_small = stdout.len() + stderr.len() <= request.whole_budget.saturating_mul(64).max(4096);
    let is_counted = match request.form {
        OutputForm::Raw => false,
        OutputForm::Envelope => return None,
        OutputForm::Fit | OutputForm::Plain | OutputForm::Streams if !is_small => return None,
        OutputForm::Fit | OutputForm::Plain | OutputForm::Streams => true,
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let merged = (!stdout.is_empty() && !stderr.is_empty())
        .then(|| spool.merged())
        .flatten();
    let whole = WholeOutput {
        stdout: text(stdout),
        stderr: text(stderr),
        merged: merged.as_deref().map(text),
    };
    (!is_counted || llmc_tokens::fits(&whole.text(status), request.whole_budget)).then_some(whole)
}

/// The line that ends the answer of a command that failed; empty after a success and while it runs.
fn status_line(status: Option<ExitStatus>) -> String {
    match status {
        Some(status) if !status.is_success() => status.to_string(),
        _ => String::new(),
    }
}

pub(super) fn with_status(text: &str, status: Option<ExitStatus>) -> String {
    let mut text = text.to_owned();
    let line = status_line(status);
    if !text.is_empty() && !text.ends_with('\n') && !line.is_empty() {
        text.push('\n');
    }
    text.push_str(&line);
    neutralise(&text, Ansi::Strip).into_owned()
}

pub(crate) fn content_type(kind: FileKind) -> ContentType {
    match kind {
        FileKind::Code => ContentType::Code,
        FileKind::Json => ContentType::Json,
        FileKind::Yaml => ContentType::Yaml,
        FileKind::Toml => ContentType::Toml,
        FileKind::Csv => ContentType::Csv,
        FileKind::Log => ContentType::Log,
        FileKind::Markdown => ContentType::Markdown,
        FileKind::Text => ContentType::Text,
        FileKind::Binary => ContentType::Binary,
    }
}

#[cfg(test)]
mod tests {
    use llmc_exec::Stream;

    use super::*;

    /// What is shown of a command's output, and whether a condenser made it.
    fn shown(line: &str, stdout: &str, stderr: &str, code: i32) -> (bool, String) {
        let argv: Vec<String> = line.split(' ').map(str::to_owned).collect();
        shown_words(&argv, stdout, stderr, code)
    }

    fn shown_words(argv: &[String], stdout: &str, stderr: &str, code: i32) -> (bool, String) {
        let mut spool = Spool::new(None);
        spool.push(Stream::Stdout, stdout.as_bytes());
        spool.push(Stream::Stderr, stderr.as_bytes());
        let request = CondenseRequest {
            argv,
            form: OutputForm::Fit,
            budget: 1000,
            whole_budget: 1000,
            show_status: true,
        };
        let status = Some(ExitStatus::Exited(code));
        match view(&request, &mut spool, status, |_| None) {
            OutputView::Whole(whole) => (false, whole.text(status)),
            OutputView::BothEnds { text, .. } => (false, text),
            OutputView::Condensed(found, _) => (true, found.body),
        }
    }

    fn pytest_log(last: &str) -> String {
        let mut log = "============= test session starts =============\n".to_owned();
        for n in 0..12 {
            log.push_str(&format!("tests/test_{n}.py ....................  [{n}%]\n"));
        }
        log + last
    }

    #[test]
    fn a_test_run_is_condensed_although_it_fits() {
        let passed = pytest_log("============= 240 passed in 1.20s =============\n");
        let (condensed, text) = shown("python -m pytest", &passed, "", 0);
        assert!(condensed, "{text}");
        assert!(text.contains("pytest: 240 passed in 1.20s"), "{text}");
        assert!(!text.contains("test_3.py"), "{text}");
        // The same by another program whose output ends so.
        assert!(shown("make check", &passed, "", 0).0);
        // A file that holds such a log is no test run.
        assert_eq!(shown("cat log", &passed, "", 0), (false, passed));
        // Too short to be worth a header.
        assert!(!shown("pytest", "=== 1 passed in 0.01s ===\n", "", 0).0);
    }

    #[test]
    fn counts_of_one_program_are_not_the_result_of_another() {
        let mut log = pytest_log("============= 240 passed in 1.20s =============\n");
        for n in 0..9 {
            log.push_str(&format!("deploying part {n}\n"));
        }
        let (condensed, text) = shown("./deploy", &log, "deploy: no such host\n", 1);
        assert!(!condensed, "{text}");
        assert!(text.ends_with("deploy: no such host\nexit 1"), "{text}");
    }

    #[test]
    fn an_error_after_the_summary_is_never_dropped() {
        let summary = "============= 240 passed in 1.20s =============\n";
        let padding = format!("{}\n", "uploaded part ".repeat(40));
        for after in [
            "ERROR: deploy failed\n".to_owned(),
            format!("ERROR: deploy failed\n{padding}{padding}{padding}"),
        ] {
            let log = pytest_log(&format!("{summary}{after}"));
            for (line, code) in [
                ("./deploy", 0),
                ("./deploy", 1),
                ("pytest", 0),
                ("pytest", 1),
            ] {
                let (_, text) = shown(line, &log, "", code);
                assert!(
                    text.contains("ERROR: deploy failed"),
                    "{line} {code}: {text}"
                );
            }
        }
        // Counts without a failure are no account of why a command failed.
        let mut log = "ERROR: no such host\n".to_owned();
        log.push_str(&pytest_log(summary));
        let (condensed, text) = shown("./deploy", &log, "", 1);
        assert!(
            !condensed && text.starts_with("ERROR: no such host"),
            "{text}"
        );
        // A failed run keeps its counts, whatever its caller prints after them.
        let log = pytest_log(
            "FAILED tests/test_1.py::test_a - assert 1 == 2\n============= 1 failed, 239 passed in 1.20s =============\nmake: *** [check] Error 1\n",
        );
        let (condensed, text) = shown("make check", &log, "", 2);
        assert!(condensed && text.contains("1 failed, 239 passed"), "{text}");
        assert!(text.contains("make: *** [check] Error 1"), "{text}");
    }

    #[test]
    fn a_line_of_several_commands_that_fits_is_shown_whole() {
        let log = "## main\n".to_owned()
            + &pytest_log("============= 240 passed in 1.20s =============\n");
        let (condensed, text) = shown_words(&[], &log, "", 0);
        assert!(!condensed, "{text}");
        assert_eq!(text, log);
    }

    #[test]
    fn plain_output_above_the_budget_keeps_both_ends_and_counts_the_rest() {
        let view_of = |spool: &mut Spool| {
            let request = CondenseRequest {
                argv: &[],
                form: OutputForm::Plain,
                budget: 400,
                whole_budget: 400,
                show_status: true,
            };
            match view(&request, spool, Some(ExitStatus::SUCCESS), |_| None) {
                OutputView::BothEnds { text, kept, left } => (text, kept, left),
                other => panic!("{other:?}"),
            }
        };
        // What is at hand whole, and what is not.
        for lines in [5_000_u64, 1_200_000] {
            let mut spool = Spool::new(None);
            let printed: String = (1..=lines).map(|n| format!("line {n}\n")).collect();
            spool.push(Stream::Stdout, printed.as_bytes());
            assert_eq!(spool.merged().is_some(), lines == 5_000);
            let (text, kept, left) = view_of(&mut spool);
            assert!(text.starts_with("line 1\nline 2\n"), "{text}");
            assert!(text.ends_with(&format!("line {lines}\n")), "{text}");
            assert!(
                text.contains(&format!("… {} lines left out …\n", left.lines)),
                "{text}"
            );
            assert_eq!(kept.lines + left.lines, lines);
            assert_eq!(kept.bytes + left.bytes, printed.len() as u64);
        }
        let mut spool = Spool::new(None);
        spool.push(
            Stream::Stdout,
            format!("start{}end", "x ".repeat(9_000)).as_bytes(),
        );
        let (text, kept, left) = view_of(&mut spool);
        assert!(
            text.starts_with("startx") && text.ends_with("x end"),
            "{text}"
        );
        assert_eq!((kept.lines, left.lines), (1, 0));
        assert!(left.bytes > 17_000, "{left:?}");
    }

    #[test]
    fn the_last_lines_of_a_failed_command_are_always_shown() {
        let failed = pytest_log(
            "FAILED tests/test_1.py::test_a - assert 1 == 2\n============= 1 failed, 239 passed in 1.20s =============\n",
        );
        let stderr = "coverage: 71 % is below the limit of 80 %\n";
        let many: String = (0..3000)
            .map(|n| format!("src/a.rs:{n}: match {n}\n"))
            .collect();
        for (line, stdout, stderr, code, parts) in [
            (
                "pytest --cov",
                &failed,
                stderr,
                1,
                ["1 failed, 239 passed", "coverage: 71 %", "exit 1"],
            ),
            (
                "grep -rn match src",
                &many,
                "grep: src/x: denied\n",
                2,
                ["src/a.rs:2999: match 2999", "grep: src/x: denied", "exit 2"],
            ),
        ] {
            let (condensed, text) = shown(line, stdout, stderr, code);
            assert!(condensed, "{text}");
            for part in parts {
                assert!(text.contains(part), "{part}: {text}");
            }
        }
    }
}
