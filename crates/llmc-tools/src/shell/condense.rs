//! What the caller sees of a command's output: all of it where it fits, an envelope and a handle where it does not.
//!
//! A test run is condensed to its counts and failures even where it fits. Whatever is recognised, the last lines of a
//! command that failed are always shown.

use llmc_enrich::output::{self, Captured, Printed};
use llmc_enrich::sniff::Kind as FileKind;
use llmc_enrich::{Condensed, testrun};
use llmc_envelope::HandleId;
use llmc_envelope::cut::{Limits, cut};
use llmc_envelope::handles::{Draft, HandleStore};
use llmc_envelope::neutral::{Ansi, neutralise};
use llmc_envelope::te::ContentType;
use llmc_exec::ExitStatus;

use super::execute::program_name;
use super::spool::Spool;
use crate::answer::Facts;
use crate::te::{self, Frame};

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
    /// Untouched within the budget, its first lines above it.
    Plain,
    /// Untouched, up to what one answer can hold.
    Raw,
}

/// How an output is condensed.
pub(crate) struct CondenseRequest<'a> {
    /// The words of the program that printed it.
    pub(crate) argv: &'a [String],
    /// The command as the caller wrote it, for the handle store.
    pub(crate) text: &'a str,
    pub(crate) form: OutputForm,
    pub(crate) budget: usize,
    pub(crate) principal: &'a str,
    /// Notes for the caller beside the output.
    pub(crate) notes: Vec<String>,
    /// Whether the text names the exit status; not where the process exits with that status itself.
    pub(crate) show_status: bool,
}

/// What a command printed, as the caller sees it, and how it ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CommandOutput {
    pub(crate) program: String,
    /// `None` while it runs.
    pub(crate) status: Option<ExitStatus>,
    /// The id under which it goes on.
    pub(crate) proc_id: Option<String>,
    /// Whether this is an envelope.
    pub(crate) enriched: bool,
    /// The envelope, or what the command printed.
    pub(crate) stdout: String,
    /// What it printed to stderr, unless that is in the envelope.
    pub(crate) stderr: String,
    /// Both streams in the order in which they were read, where both have something.
    pub(super) merged: Option<String>,
    pub(crate) matches: Option<u64>,
    pub(crate) truncated: bool,
    pub(crate) handle: Option<HandleId>,
    pub(crate) withheld_bytes: u64,
    /// Bytes the command printed.
    pub(crate) raw_bytes: u64,
    /// How many lines are shown, and of how many, where the rest was cut off without an envelope.
    pub(crate) cut: Option<(u64, u64)>,
    /// Notes for the caller, unless they are in the envelope.
    pub(crate) notes: Vec<String>,
}

impl CommandOutput {
    /// Nothing printed yet.
    pub(crate) fn empty(argv: &[String], status: Option<ExitStatus>) -> CommandOutput {
        CommandOutput {
            program: program_name(argv),
            status,
            proc_id: None,
            enriched: false,
            stdout: String::new(),
            stderr: String::new(),
            merged: None,
            matches: None,
            truncated: false,
            handle: None,
            withheld_bytes: 0,
            raw_bytes: 0,
            cut: None,
            notes: Vec::new(),
        }
    }

    /// Both streams and the exit status as one text.
    pub(crate) fn plain_text(&self) -> String {
        let text = match &self.merged {
            Some(merged) => merged,
            None if self.stdout.is_empty() => &self.stderr,
            None => &self.stdout,
        };
        with_status(text, self.status)
    }
}

/// Condenses an output. `store` opens the handle store when something must be kept; `source` reads a file that a line
/// names.
pub(crate) fn condense(
    request: CondenseRequest<'_>,
    spool: &mut Spool,
    status: Option<ExitStatus>,
    store: &dyn Fn() -> Result<HandleStore, String>,
    source: impl FnMut(&str) -> Option<String>,
) -> CommandOutput {
    let blank = CommandOutput {
        raw_bytes: spool.bytes(),
        ..CommandOutput::empty(request.argv, status)
    };
    if let Some(found) = condense_test_run(&request, spool, status) {
        return envelope(request, spool, blank, found, None, store);
    }
    if let Some(output) = untouched(&request, spool, &blank) {
        return CommandOutput {
            notes: request.notes,
            ..output
        };
    }
    spool.alarms.finish();
    match request.form {
        OutputForm::Raw => return first_bytes(request, spool, blank, store),
        OutputForm::Plain => return first_lines(request, spool, blank, store),
        OutputForm::Fit | OutputForm::Envelope => {}
    }
    let (mut stdout, mut stderr) = (spool.stdout.parts(), spool.stderr.parts());
    match output::long_log(request.argv, &stdout.text(), &stderr.text()) {
        Some(Printed::Stdout) => stdout.survey = spool.stdout.survey(),
        Some(Printed::Stderr) => stderr.survey = spool.stderr.survey(),
        None => {}
    }
    let captured = Captured {
        argv: request.argv,
        stdout: stdout.text(),
        stderr: stderr.text(),
        alarms: &spool.alarms,
        exit_code: status.and_then(ExitStatus::exit_code),
    };
    let reserved = if has_failed(status) {
        FAILURE_TAIL_TOKENS.min(request.budget / 5)
    } else {
        0
    };
    let told = output::tell(&captured, source, request.budget - reserved);
    let mut found = told.found;
    if found.truncated {
        add_failure_tail(&mut found.body, spool, status, reserved);
    }
    envelope(
        request,
        spool,
        blank,
        found,
        told.kind.map(content_type),
        store,
    )
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
    let run = output::test_run(request.argv, &text)?;
    let reserved = FAILURE_TAIL_TOKENS.min(request.budget / 5);
    let budget = request.budget.saturating_sub(RECEIPT_TOKENS + reserved);
    let mut found = testrun::condense(&run, text.len() as u64, budget);
    add_failure_tail(&mut found.body, spool, status, reserved);
    found.truncated = true;
    (found.body.len() + ENVELOPE_BYTES < text.len()).then_some(found)
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
        let clipped = lines.iter().map(|line| clip(line));
        let mut clipped: Vec<&str> = clipped.collect();
        while clipped.len() > 1 && llmc_tokens::count(&clipped.join("\n")) > tokens / 2 {
            clipped.remove(0);
        }
        if !body.is_empty() && !body.ends_with('\n') {
            body.push('\n');
        }
        body.push_str(&format!("[last lines of {name}]\n{}\n", clipped.join("\n")));
    }
}

fn clip(line: &str) -> &str {
    &line[..line.floor_char_boundary(MAX_LINE_BYTES)]
}

/// Puts what a condenser made into an envelope, and everything behind a handle.
fn envelope(
    request: CondenseRequest<'_>,
    spool: &mut Spool,
    blank: CommandOutput,
    mut found: Condensed,
    content_type: Option<ContentType>,
    store: &dyn Fn() -> Result<HandleStore, String>,
) -> CommandOutput {
    let mut notes = request.notes.clone();
    let line = if request.show_status {
        status_line(blank.status)
    } else {
        String::new()
    };
    if !line.is_empty() && !found.body.ends_with(&line) {
        if !found.body.is_empty() && !found.body.ends_with('\n') {
            found.body.push('\n');
        }
        found.body.push_str(&line);
        found.body.push('\n');
    }
    let handle = found
        .truncated
        .then(|| keep(&request, spool, &mut notes, store))
        .flatten();
    found.breadcrumbs.extend(notes);
    let matches = found.totals.matches;
    let frame = Frame {
        cmd: output::known(request.argv).unwrap_or("run"),
        content_type,
        handle,
        withheld_bytes: if found.truncated {
            blank.raw_bytes.saturating_sub(found.body.len() as u64)
        } else {
            0
        },
        ..Frame::default()
    };
    let (text, facts) = te::text(&found, frame);
    let Facts {
        truncated,
        withheld_bytes,
        ..
    } = facts;
    CommandOutput {
        enriched: true,
        stdout: text,
        matches,
        truncated,
        handle,
        withheld_bytes,
        ..blank
    }
}

/// As much as one answer can hold of each stream.
fn first_bytes(
    request: CondenseRequest<'_>,
    spool: &mut Spool,
    blank: CommandOutput,
    store: &dyn Fn() -> Result<HandleStore, String>,
) -> CommandOutput {
    let mut notes = request.notes.clone();
    let (stdout, stderr) = (spool.stdout.parts(), spool.stderr.parts());
    let shown = (stdout.head.len() + stderr.head.len()) as u64;
    CommandOutput {
        handle: keep(&request, spool, &mut notes, store),
        withheld_bytes: blank.raw_bytes.saturating_sub(shown),
        stdout: stdout.head,
        stderr: stderr.head,
        truncated: true,
        notes,
        ..blank
    }
}

/// As many lines as the budget has room for.
fn first_lines(
    request: CondenseRequest<'_>,
    spool: &mut Spool,
    blank: CommandOutput,
    store: &dyn Fn() -> Result<HandleStore, String>,
) -> CommandOutput {
    let mut notes = request.notes.clone();
    let text = match spool.merged() {
        Some(text) => String::from_utf8_lossy(&text).into_owned(),
        None => spool.stdout.parts().head + &spool.stderr.parts().head,
    };
    let text = with_status(&text, None);
    let limits = Limits {
        tokens: request.budget.saturating_sub(RECEIPT_TOKENS),
        line_bytes: MAX_LINE_BYTES,
    };
    let shown = cut(&text, limits);
    CommandOutput {
        handle: keep(&request, spool, &mut notes, store),
        withheld_bytes: blank.raw_bytes.saturating_sub(shown.text.len() as u64),
        cut: Some((
            shown.kept.lines,
            spool.stdout.lines() + spool.stderr.lines(),
        )),
        stdout: shown.text.into_owned(),
        truncated: true,
        notes,
        ..blank
    }
}

/// The output as it is, where that is what the caller gets.
fn untouched(
    request: &CondenseRequest<'_>,
    spool: &Spool,
    blank: &CommandOutput,
) -> Option<CommandOutput> {
    let (stdout, stderr) = spool.whole()?;
    // A token is at least one byte; far above the budget nothing need be counted.
    let is_small = stdout.len() + stderr.len() <= request.budget.saturating_mul(64).max(4096);
    let counted = match request.form {
        OutputForm::Raw => false,
        OutputForm::Envelope => return None,
        OutputForm::Fit | OutputForm::Plain if !is_small => return None,
        OutputForm::Fit | OutputForm::Plain => true,
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let merged = (!stdout.is_empty() && !stderr.is_empty())
        .then(|| spool.merged())
        .flatten();
    let output = CommandOutput {
        stdout: text(stdout),
        stderr: text(stderr),
        merged: merged.as_deref().map(text),
        ..blank.clone()
    };
    (!counted || llmc_tokens::fits(&output.plain_text(), request.budget)).then_some(output)
}

/// The line that ends the answer of a command that failed; empty after a success and while it runs.
fn status_line(status: Option<ExitStatus>) -> String {
    match status {
        Some(status) if !status.is_success() => status.to_string(),
        _ => String::new(),
    }
}

fn with_status(text: &str, status: Option<ExitStatus>) -> String {
    let mut text = text.to_owned();
    let line = status_line(status);
    if !text.is_empty() && !text.ends_with('\n') && !line.is_empty() {
        text.push('\n');
    }
    text.push_str(&line);
    neutralise(&text, Ansi::Strip).into_owned()
}

/// Stores what the command printed, byte for byte; without a handle a note says why.
fn keep(
    request: &CondenseRequest<'_>,
    spool: &mut Spool,
    notes: &mut Vec<String>,
    store: &dyn Fn() -> Result<HandleStore, String>,
) -> Option<HandleId> {
    let mut write = || -> Result<HandleId, String> {
        let draft = Draft::new(request.principal, "command").with("command", request.text);
        let in_words = |error: llmc_envelope::handles::Error| error.to_string();
        let mut writer = store()?.writer(draft).map_err(in_words)?;
        let written = spool.write_to(&mut writer);
        written.map_err(|error| error.to_string())?;
        writer.finish().map_err(in_words)
    };
    write()
        .map_err(|why| notes.push(format!("the rest is not kept: {why}")))
        .ok()
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

    fn condensed(line: &str, stdout: &str, stderr: &str, code: i32) -> CommandOutput {
        let mut spool = Spool::new(None);
        spool.push(Stream::Stdout, stdout.as_bytes());
        spool.push(Stream::Stderr, stderr.as_bytes());
        let argv: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let request = CondenseRequest {
            argv: &argv,
            text: line,
            form: OutputForm::Fit,
            budget: 1000,
            principal: "local",
            notes: Vec::new(),
            show_status: true,
        };
        let store = || Err("there is no store".to_owned());
        let status = Some(ExitStatus::Exited(code));
        condense(request, &mut spool, status, &store, |_| None)
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
        let output = condensed("python -m pytest", &passed, "", 0);
        assert!(output.enriched, "{output:?}");
        assert!(
            output.stdout.contains("pytest: 240 passed in 1.20s"),
            "{output:?}"
        );
        assert!(!output.stdout.contains("test_3.py"), "{output:?}");
        // The same by another program whose output ends so.
        assert!(condensed("make check", &passed, "", 0).enriched);
        // A file that holds such a log is no test run.
        let output = condensed("cat log", &passed, "", 0);
        assert_eq!((output.enriched, &output.stdout), (false, &passed));
        // Too short to be worth a header.
        assert!(!condensed("pytest", "=== 1 passed in 0.01s ===\n", "", 0).enriched);
    }

    #[test]
    fn counts_of_one_program_are_not_the_result_of_another() {
        let mut log = pytest_log("============= 240 passed in 1.20s =============\n");
        for n in 0..9 {
            log.push_str(&format!("deploying part {n}\n"));
        }
        let output = condensed("./deploy", &log, "deploy: no such host\n", 1);
        assert!(!output.enriched, "{output:?}");
        let text = output.plain_text();
        assert!(text.ends_with("deploy: no such host\nexit 1"), "{text}");
    }

    #[test]
    fn the_last_lines_of_a_failed_command_are_always_shown() {
        let failed = pytest_log(
            "FAILED tests/test_1.py::test_a - assert 1 == 2\n============= 1 failed, 239 passed in 1.20s =============\n",
        );
        let stderr = "coverage: 71 % is below the limit of 80 %\n";
        let output = condensed("pytest --cov", &failed, stderr, 1);
        assert!(output.enriched, "{output:?}");
        for part in ["1 failed, 239 passed", "coverage: 71 %", "exit 1"] {
            assert!(output.stdout.contains(part), "{part}: {}", output.stdout);
        }
        let many: String = (0..3000)
            .map(|n| format!("src/a.rs:{n}: match {n}\n"))
            .collect();
        let output = condensed("grep -rn match src", &many, "grep: src/x: denied\n", 2);
        for part in ["src/a.rs:2999: match 2999", "grep: src/x: denied", "exit 2"] {
            assert!(output.stdout.contains(part), "{part}: {}", output.stdout);
        }
    }
}
