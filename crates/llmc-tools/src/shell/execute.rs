//! One command, from the caller's request to its condensed output.
//!
//! A command is a process from its start. The call waits for its end; where the wait is over first, the process goes on in
//! the background under an id, and later calls wait for what it prints then. Both read the same spool.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use llmc_config::OnTimeout;
use llmc_exec::{
    ExecRequest, ExitStatus, Io, Process, ProcessOptions, Program, Quarantined, Runner,
};
use llmc_host::{CancelToken, OpenDir};
use llmc_observe::{CallFilter, EnvelopeMode as Mode};
use serde_json::Value;

use super::background_jobs;
use super::condense::{CondenseRequest, OutputForm};
use super::document::{DocumentParts, document};
use super::flags::Flags;
use super::line::CommandWords;
use super::output::{CommandOutput, RunOutput};
use super::project_tests::{AskedTests, TestsRequest, run_tests};
use super::refusals::{self, git as git_refusal};
use super::spool::{SharedSpool, Spool};
use super::te_output::{OutputOwner, TeOutput};
use super::wait::{WaitLimit, Waited, wait_for_end};
use super::{TE, operator_te, report};
use crate::budget;
use crate::catalog::te_handle;
use crate::cx::{Cx, Form, Surface};
use crate::error::{Error, ErrorKind, Result};
use crate::processes::Entry;
use crate::reachable::Reach;
use crate::recording::undo_note;
use crate::te;

/// A command that prints more than this while a call waits for it is ended: no more of it could be stored.
pub(super) const MAX_OUTPUT_BYTES: u64 = 256 << 20;
/// Bytes of output that a background process keeps for `linux_proc_read`.
pub(super) const RING_BYTES: usize = 1 << 20;
/// How much of each stream a command that timed out shows.
pub(super) const TIMEOUT_TAIL_BYTES: usize = 4096;

/// A command as a caller asks for it.
#[derive(Debug)]
pub(crate) struct CommandRequest {
    pub(crate) words: CommandWords,
    pub(crate) cwd: Option<String>,
    pub(crate) timeout: Option<f64>,
    /// Its standard input; closed when absent.
    pub(crate) input: Option<String>,
    pub(crate) form: OutputForm,
}

/// A command that is over or goes on, and what it has printed.
pub(crate) struct Capture {
    /// `None` while it runs.
    pub(crate) status: Option<ExitStatus>,
    pub(crate) spool: Spool,
    pub(crate) quarantined: Vec<Quarantined>,
    pub(crate) notes: Vec<String>,
    pub(crate) output_capped: bool,
    pub(super) proc_id: Option<String>,
    /// What the operator's `te` program says about its output.
    pub(super) enrichment: Option<Value>,
}

/// The command's name without its directory, for statistics.
pub(super) fn program_name(argv: &[String]) -> String {
    let first = argv.first().map_or("", String::as_str);
    let name = first.rsplit('/').next().unwrap_or(first);
    name.chars().take(40).collect()
}

/// In which form a caller of a plain tool takes output.
pub(crate) fn output_form(cx: &Cx) -> OutputForm {
    match cx.caller().form {
        // A script asked for data; what it prints is what is cut.
        Form::Data if cx.caller().surface == Surface::Code => OutputForm::Raw,
        Form::Data => OutputForm::Streams,
        Form::Text | Form::Page if !cx.app().config().mcp.te.enabled => OutputForm::Plain,
        Form::Text | Form::Page => OutputForm::Fit,
    }
}

/// Runs a command, or does what the flags of `te` ask for.
pub(crate) fn answer(
    cx: &Cx,
    mut request: CommandRequest,
    cancel: &CancelToken,
) -> Result<RunOutput> {
    if request.words.argv[0] != TE {
        return run(cx, &request, cancel);
    }
    let flags = Flags::parse(&request.words.argv[1..])?;
    if let Some(handle) = &flags.handle {
        let chunk = te_handle::retrieve(cx, handle, flags.chunk, cancel)?;
        return Ok(RunOutput::Stored(chunk));
    }
    if flags.preview || flags.compare {
        return Err(
            Error::bad_args("te --preview and te --compare are for a user's shell")
                .hint("run_preview and run_compare take the command"),
        );
    }
    if flags.help || flags.version {
        return Ok(RunOutput::Text(report::HELP.to_owned()));
    }
    if flags.list_handles {
        let list = cx.app().handles()?.list(&cx.caller().principal)?;
        return Ok(RunOutput::Text(report::handles(&list)));
    }
    if flags.stats {
        let session = CallFilter {
            session: Some(cx.caller().session.clone()),
            ..CallFilter::default()
        };
        let summary = cx.app().telemetry()?.summary(&session);
        let summary = summary.map_err(report::unavailable)?;
        return Ok(RunOutput::Text(summary.stats_text()));
    }
    if let Some(asked) = AskedTests::of(&flags.command)? {
        return run_tests(cx, TestsRequest::of(asked, request.timeout), cancel);
    }
    request.words = CommandWords::from_argv(flags.command);
    request.form = match (flags.raw, request.form) {
        (true, OutputForm::Fit | OutputForm::Envelope) => OutputForm::Plain,
        (false, OutputForm::Fit) => OutputForm::Envelope,
        (_, form) => form,
    };
    let started = Instant::now();
    let output = run(cx, &request, cancel)?;
    match output {
        RunOutput::Command(output) if flags.json && cx.caller().form != Form::Data => {
            Ok(RunOutput::Text(te_document(cx, &output, started, cancel)))
        }
        output => Ok(output),
    }
}

/// The answer of `te --json`.
fn te_document(cx: &Cx, output: &CommandOutput, started: Instant, cancel: &CancelToken) -> String {
    let request = CondenseRequest {
        argv: &output.words.printed_by,
        form: output.form,
        budget: te::budget(cx),
        whole_budget: te::budget(cx),
        show_status: true,
    };
    let owner = OutputOwner {
        principal: &cx.caller().principal,
        command: &output.words.text,
        store: &|| Ok(cx.app().handles().map_err(|error| error.message)?.clone()),
        rules: cx.read_rules(),
    };
    let source = |path: &str| te::source(cx, path, cancel);
    let printed = TeOutput::new(&request, &mut output.spool(), output.status, &owner, source);
    let latency = started.elapsed();
    let text = |budget_remaining| {
        let parts = DocumentParts {
            argv: &output.words.argv,
            mode: if printed.enriched || output.enrichment.is_some() {
                Mode::Enriched
            } else {
                Mode::Raw
            },
            output: &printed,
            enrichment: output.enrichment.as_ref(),
            latency,
            agent: &cx.caller().agent,
            budget_remaining,
        };
        document(&parts).to_string()
    };
    let left = budget::session_budget_left(cx);
    budget::naming_what_is_left(left, text, |text| llmc_tokens::count(text) as u64)
}

/// Waits on for a process of this session and answers with what it has printed since the last answer.
pub(crate) fn resume(
    cx: &Cx,
    proc_id: &str,
    input: Option<&str>,
    timeout: Option<f64>,
    form: OutputForm,
    cancel: &CancelToken,
) -> Result<RunOutput> {
    let wait = WaitLimit::new(cx, timeout)?;
    let entry = cx.app().processes().get(cx.caller(), proc_id)?;
    let deadline = Instant::now() + wait.duration;
    let waited = cx.waiting(|| {
        let mut unanswered = None;
        if let Some(input) = input {
            // Counted before it is sent: the answer may be there before the wait begins.
            unanswered = Some(entry.output_bytes());
            entry.send_input(input, wait.duration, cancel)?;
        }
        wait_for_end(
            &entry.process,
            || entry.output_bytes(),
            deadline,
            unanswered,
            cancel,
        )
    })?;
    let (spool, dropped) = entry.take_output(cx.app().stores());
    let mut notes = Vec::from_iter(wait.note.clone());
    if dropped > 0 {
        notes.push(format!("{dropped} bytes before this were not kept"));
    }
    let mut capture = Capture {
        status: None,
        spool,
        quarantined: Vec::new(),
        notes,
        output_capped: false,
        proc_id: None,
        enrichment: None,
    };
    // An entry of what it has changed until now.
    let background = cx.app().history_keeper().background();
    let not_undoable = background.checkpoint(proc_id);
    capture.notes.extend(not_undoable.as_deref().map(undo_note));
    match waited {
        Waited::Ended(end) => {
            capture.status = Some(end.status);
            capture.quarantined = end.quarantined;
            capture.notes.extend(end.notes);
            if end.idle {
                capture
                    .notes
                    .push("ended: idle for too long (mcp.tools.proc_idle_timeout)".to_owned());
            }
        }
        Waited::Left(end) => {
            capture.status = Some(end.status);
            capture.quarantined = end.quarantined;
            capture.notes.extend(end.notes);
            capture.notes.push(left_note(cx, proc_id));
        }
        Waited::StillRunning | Waited::OutputLimit => {
            capture.notes.push(format!(
                "still running as {proc_id}; {}",
                next_calls(cx, proc_id)
            ));
            capture.proc_id = Some(proc_id.to_owned());
        }
    }
    let (words, cwd) = (entry.words.clone(), entry.cwd.clone());
    Ok(present(cx, words, cwd, form, capture))
}

/// Runs a command inside the boundary and condenses what it prints.
fn run(cx: &Cx, request: &CommandRequest, cancel: &CancelToken) -> Result<RunOutput> {
    let wait = WaitLimit::new(cx, request.timeout)?;
    let cwd = cx
        .files()
        .roots
        .open_dir(request.cwd.as_deref().unwrap_or("."))?;
    git_refusal::check(cx, &request.words, &cwd.path.absolute())?;
    let env = cx.caller().environment();
    let spec = cx.caller().exec_request(&request.words.argv, &cwd, &env);
    let through_operator = if operator_te::is_configured(cx) {
        operator_te::capture(cx, &spec, wait.duration, cancel)?
    } else {
        None
    };
    let mut capture = match through_operator {
        Some(capture) => capture,
        None => capture(cx, request, &spec, &wait, cancel)?,
    };
    capture.notes.extend(wait.note);
    let (words, cwd) = (request.words.clone(), request.cwd.clone());
    Ok(present(cx, words, cwd, request.form, capture))
}

/// Runs a program that the server chose. It goes on in the background as any command does; where commands are ended
/// instead, it gets the longest wait there is.
pub(crate) fn run_program(
    cx: &Cx,
    program: &Program,
    argv: Vec<String>,
    cwd: &OpenDir,
    cancel: &CancelToken,
) -> Result<Capture> {
    let exec = &cx.app().config().mcp.exec;
    let duration = match ends_after_wait(cx) {
        true => exec.max_wait(),
        false => exec.wait(),
    };
    let request = CommandRequest {
        words: CommandWords::from_argv(argv),
        cwd: None,
        timeout: None,
        input: None,
        form: OutputForm::Envelope,
    };
    let spec = ExecRequest {
        program: Some(program),
        ..cx.caller().exec_request(&request.words.argv, cwd, &[])
    };
    let wait = WaitLimit {
        duration,
        note: None,
    };
    capture(cx, &request, &spec, &wait, cancel)
}

/// Whether a command is ended that a call has waited for. The command line's process ends with the answer, and with it
/// everything it has started.
pub(super) fn ends_after_wait(cx: &Cx) -> bool {
    cx.app().config().mcp.exec.on_timeout == OnTimeout::Kill || cx.caller().surface == Surface::Cli
}

/// How long what a command has started may take to end with it.
const LEFT_GRACE: Duration = Duration::from_millis(150);

/// Starts the command and waits for its end, or until it goes on in the background.
fn capture(
    cx: &Cx,
    request: &CommandRequest,
    spec: &ExecRequest<'_>,
    wait: &WaitLimit,
    cancel: &CancelToken,
) -> Result<Capture> {
    let deadline = Instant::now() + wait.duration;
    let spool = SharedSpool::new(cx.app().stores().map(ToOwned::to_owned));
    let manner = ProcessOptions {
        io: if request.input.is_some() {
            Io::Separate
        } else {
            Io::NoInput
        },
        idle: cx
            .app()
            .config()
            .mcp
            .tools
            .proc_idle_timeout()
            .unwrap_or(Duration::MAX),
        keep: RING_BYTES,
    };
    let process = cx
        .recorded_commands()?
        .spawn_with_sink(spec, manner, Some(spool.sink()))?;
    cx.show_output(&process);
    let mut notes = Vec::new();
    let waited = cx.waiting(|| {
        if let Some(input) = &request.input {
            notes.extend(feed(&process, input.as_bytes(), wait.duration, cancel)?);
        }
        wait_for_end(&process, || spool.bytes(), deadline, None, cancel)
    });
    let mut capture = Capture {
        status: None,
        spool: Spool::new(None),
        quarantined: Vec::new(),
        notes,
        output_capped: false,
        proc_id: None,
        enrichment: None,
    };
    match waited? {
        Waited::Ended(end) => {
            capture.status = Some(end.status);
            capture.quarantined = end.quarantined;
            capture.notes.extend(end.notes);
        }
        Waited::Left(end) => {
            // What is about to end, such as the maintenance that git begins after a commit, is not worth a word.
            let end = process.wait_end(LEFT_GRACE).ok_or(end);
            let is_left = end.is_err();
            let end = end.unwrap_or_else(|end| end);
            capture.status = Some(end.status);
            capture.quarantined = end.quarantined;
            capture.notes.extend(end.notes);
            capture.spool = spool.take();
            if !is_left {
                return Ok(capture);
            }
            let kept = keep_left(cx, &request.words, &request.cwd, process, &spool);
            capture.notes.push(kept);
            return Ok(capture);
        }
        Waited::OutputLimit => {
            let end = super::wait::kill(&process);
            capture.status = Some(ExitStatus::Stopped);
            capture.quarantined = end.map(|end| end.quarantined).unwrap_or_default();
            capture.output_capped = true;
        }
        Waited::StillRunning => {
            let id = go_on(cx, request, process, &spool, wait)?;
            capture.spool = spool.take();
            capture.notes.push(format!(
                "still running after {} s as {id}; {}",
                wait.duration.as_secs_f64().round(),
                next_calls(cx, &id)
            ));
            capture.proc_id = Some(id);
            return Ok(capture);
        }
    }
    capture.spool = spool.take();
    Ok(capture)
}

/// The calls that go on with a command that still runs.
pub(super) fn next_calls(cx: &Cx, proc_id: &str) -> String {
    if cx.caller().surface == Surface::Code {
        return format!(
            "tools.run_cmd(proc={proc_id:?}) waits on; tools.linux_proc_stop({proc_id:?}) ends it"
        );
    }
    let calls =
        format!("run_cmd proc={proc_id} waits on; linux_proc_stop proc_id={proc_id} ends it");
    let reach = Reach::of(cx.app().config(), cx.caller().surface);
    reach.fit(&calls).unwrap_or(calls)
}

/// Writes all of the input and closes it. Returns a note if the command did not read everything.
pub(super) fn feed(
    process: &Process,
    input: &[u8],
    patience: Duration,
    cancel: &CancelToken,
) -> Result<Option<String>> {
    let sent = process.send(input, patience, cancel)?;
    process.close_input(Duration::ZERO, cancel)?;
    let unread = sent.bytes < input.len();
    Ok(unread.then(|| format!("read {} of {} bytes of input", sent.bytes, input.len())))
}

/// What is said of processes that a command has left running.
fn left_note(cx: &Cx, proc_id: &str) -> String {
    let calls = match cx.caller().surface {
        Surface::Code => format!("tools.linux_proc_stop({proc_id:?}) ends it"),
        _ => {
            let calls = format!("linux_proc_stop proc_id={proc_id} ends it");
            let reach = Reach::of(cx.app().config(), cx.caller().surface);
            reach.fit(&calls).unwrap_or(calls)
        }
    };
    format!("what it started goes on as {proc_id}; {calls}")
}

/// Keeps what a command has left running as a process of the session. Returns what is to be said about it.
pub(super) fn keep_left(
    cx: &Cx,
    words: &CommandWords,
    cwd: &Option<String>,
    process: Process,
    spool: &SharedSpool,
) -> String {
    if ends_after_wait(cx) {
        super::wait::kill(&process);
        return "what it started has ended with the call (mcp.exec.on_timeout)".to_owned();
    }
    let entry = Entry::of_command(
        cx.caller(),
        words.clone(),
        cwd.clone(),
        process,
        spool.clone(),
    );
    match cx.app().processes().adopt(entry) {
        Ok(entry) => {
            if let Some(recording) = cx.recording() {
                recording.continue_with(&entry);
            }
            left_note(cx, &entry.id)
        }
        Err(error) => format!("what it started was ended: {}", error.message),
    }
}

/// Lets a process go on in the background and returns its id, or ends it where it cannot or must not.
pub(super) fn go_on(
    cx: &Cx,
    request: &CommandRequest,
    process: Process,
    spool: &SharedSpool,
    wait: &WaitLimit,
) -> Result<String> {
    if ends_after_wait(cx) {
        super::wait::kill(&process);
        return Err(timed_out(request, &spool.take(), wait.duration));
    }
    let entry = Entry::of_command(
        cx.caller(),
        request.words.clone(),
        request.cwd.clone(),
        process,
        spool.clone(),
    );
    let entry = cx.app().processes().adopt(entry).map_err(|error| {
        let message = format!("the command was ended: {}", error.message);
        let [stdout, stderr] = spool.take().ends(TIMEOUT_TAIL_BYTES);
        Error { message, ..error }
            .with("stdout", stdout)
            .with("stderr", stderr)
    })?;
    if let Some(recording) = cx.recording() {
        recording.continue_with(&entry);
    }
    Ok(entry.id.clone())
}

fn timed_out(request: &CommandRequest, spool: &Spool, wait: Duration) -> Error {
    let [stdout, stderr] = spool.ends(TIMEOUT_TAIL_BYTES);
    let name = program_name(&request.words.printed_by);
    let name = if name.is_empty() {
        "the command"
    } else {
        &name
    };
    Error::new(
        ErrorKind::TimedOut,
        format!("{name}: ended after {} s", wait.as_secs_f64()),
    )
    .hint("give a longer timeout, or a command that does less")
    .with("stdout", stdout)
    .with("stderr", stderr)
}

/// What was captured as the output of a tool.
fn present(
    cx: &Cx,
    words: CommandWords,
    cwd: Option<String>,
    form: OutputForm,
    capture: Capture,
) -> RunOutput {
    let late = late_notes(cx, &words, &capture);
    let refused = refusals::notes_of(cx, &words, cwd.as_deref(), capture.status, &capture.spool);
    let mut notes = capture.notes;
    notes.extend(late);
    notes.extend(refused);
    RunOutput::Command(Box::new(CommandOutput {
        words,
        cwd,
        form,
        status: capture.status,
        proc_id: capture.proc_id,
        spool: Mutex::new(capture.spool),
        notes,
        output_capped: capture.output_capped,
        enrichment: capture.enrichment,
    }))
}

/// What is only known when the command is over.
fn late_notes(cx: &Cx, words: &CommandWords, capture: &Capture) -> Vec<String> {
    let mut notes = Vec::new();
    if capture.output_capped {
        notes.push(format!(
            "ended after {} MiB of output; no more of it is kept",
            MAX_OUTPUT_BYTES >> 20
        ));
    }
    notes.extend(taken_away(cx, &capture.quarantined));
    let is_shell_line = words.argv.len() > 1 && words.argv.last() == Some(&words.text);
    let keeps_processes = cx.app().commands().is_ok_and(Runner::has_sessions);
    if capture.status.is_some()
        && is_shell_line
        && !(keeps_processes && cx.caller().surface != Surface::Cli)
        && background_jobs::leaves_job(&words.text)
    {
        notes.push(background_jobs::ENDED_WITH_COMMAND.to_owned());
    }
    notes
}

/// What is to be said about protected names that a command made or changed.
pub(crate) fn taken_away(cx: &Cx, taken: &[Quarantined]) -> Vec<String> {
    llmc_exec::quarantine_notes(taken, |path| cx.files().roots.display_absolute(path))
}
