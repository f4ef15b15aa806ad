//! A command on a copy-on-write view: it runs as any other and changes nothing.

use std::time::{Duration, Instant};

use llmc_exec::{BaseLayer, ExecRequest, ExitStatus, LayeredRun, Stream};
use llmc_host::{CancelToken, OpenDir};

use super::TE;
use super::execute::{MAX_OUTPUT_BYTES, TIMEOUT_TAIL_BYTES, program_name};
use super::flags::Flags;
use super::line::CommandWords;
use super::refusals;
use super::spool::Spool;
use crate::cx::Cx;
use crate::error::{Error, ErrorKind, Result};
use crate::processes::RunProgress;

/// Characters of the last line that a command printed before its time was over.
const MAX_LAST_LINE_CHARS: usize = 200;

/// A command that has ended, and what it wrote.
pub(crate) struct ViewedRun {
    pub(crate) status: ExitStatus,
    pub(crate) spool: Spool,
    pub(crate) layered: LayeredRun,
    pub(crate) notes: Vec<String>,
    pub(crate) output_capped: bool,
}

/// A command that is to run on a view.
pub(crate) struct ViewedCommand<'a> {
    pub(crate) words: &'a CommandWords,
    pub(crate) cwd: &'a OpenDir,
    /// Variables beside those of every command.
    pub(crate) env: &'a [(&'a str, &'a str)],
    /// When it is ended.
    pub(crate) deadline: Instant,
    /// How long that is from its start, for the message.
    pub(crate) wait: Duration,
    /// Which run it is, where there are several: `at HEAD`.
    pub(crate) run_name: Option<&'a str>,
    /// Whom to tell what it prints.
    pub(crate) progress: &'a RunProgress,
}

/// Why a command did not run on a view.
pub(crate) enum NotViewed {
    /// It could not be started, or it was ended.
    Exec(llmc_exec::Error),
    Tool(Error),
}

impl From<llmc_exec::Error> for NotViewed {
    fn from(error: llmc_exec::Error) -> NotViewed {
        NotViewed::Exec(error)
    }
}

impl From<Error> for NotViewed {
    fn from(error: Error) -> NotViewed {
        NotViewed::Tool(error)
    }
}

impl From<NotViewed> for Error {
    fn from(error: NotViewed) -> Error {
        match error {
            NotViewed::Exec(error) => error.into(),
            NotViewed::Tool(error) => error,
        }
    }
}

/// The words of a command that a tool was given. The envelope's own name before them says nothing here: output is condensed
/// anyway.
pub(crate) fn command_words(
    cx: &Cx,
    command: Option<String>,
    argv: Option<Vec<String>>,
) -> Result<CommandWords> {
    let words = CommandWords::new(cx, command, argv)?;
    if words.argv[0] != TE {
        return Ok(words);
    }
    let flags = Flags::parse(&words.argv[1..])?;
    match flags.command.is_empty() {
        true => Err(Error::bad_args("give the command that te is to run")),
        false => Ok(CommandWords::from_argv(flags.command)),
    }
}

/// Runs a command to its end on a view that `fill` has put files over.
pub(crate) fn run_on_view(
    cx: &Cx,
    command: &ViewedCommand<'_>,
    fill: impl FnOnce(&BaseLayer<'_>) -> Result<()>,
    cancel: &CancelToken,
) -> Result<ViewedRun, NotViewed> {
    let mut env = cx.caller().environment().to_vec();
    let further = command.env.iter();
    env.extend(further.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    let spec = ExecRequest {
        timeout: command.deadline.saturating_duration_since(Instant::now()),
        max_output: MAX_OUTPUT_BYTES,
        ..cx.caller()
            .exec_request(&command.words.argv, command.cwd, &env)
    };
    let mut spool = Spool::new(cx.app().stores().map(ToOwned::to_owned));
    let mut keep = |stream: Stream, bytes: &[u8]| {
        command.progress.printed(bytes);
        spool.push(stream, bytes);
    };
    let runner = cx.app().commands()?;
    let ran = cx.waiting(|| {
        let fill = |layer: &BaseLayer<'_>| fill(layer).map_err(NotViewed::from);
        runner.run_on_view(&spec, fill, &mut keep, cancel)
    });
    let layered = ran?;
    let report = &layered.report;
    if report.cancelled {
        cancel.check().map_err(Error::from)?;
    }
    if report.timed_out {
        return Err(timed_out(cx, command, &spool).into());
    }
    let mut notes = report.notes.clone();
    if report.output_capped {
        notes.push(format!(
            "ended after {} MiB of output; no more of it is kept",
            MAX_OUTPUT_BYTES >> 20
        ));
    }
    if layered.is_full() {
        notes.push(format!(
            "no space left: a view holds {} MiB, and the command wrote more (ENOSPC)",
            layered.capacity() >> 20
        ));
    }
    let cwd = command.cwd.path.absolute();
    let cwd = cwd.to_string_lossy();
    notes.extend(refusals::notes_of(
        cx,
        command.words,
        Some(&cwd),
        Some(report.status),
        &spool,
    ));
    Ok(ViewedRun {
        status: report.status,
        output_capped: report.output_capped,
        spool,
        notes,
        layered,
    })
}

fn timed_out(cx: &Cx, command: &ViewedCommand<'_>, spool: &Spool) -> Error {
    let [stdout, stderr] = spool.ends(TIMEOUT_TAIL_BYTES);
    let name = program_name(&command.words.printed_by);
    let name = if name.is_empty() {
        "the command"
    } else {
        &name
    };
    let run = command.run_name.map(|run| format!("the run {run} was "));
    let run = run.unwrap_or_default();
    let seconds = command.wait.as_secs_f64();
    let mut message = format!("{name}: {run}ended after {seconds} s and changed nothing");
    let last = [&stdout, &stderr]
        .into_iter()
        .find_map(|text| text.lines().rfind(|line| !line.trim().is_empty()));
    match last {
        Some(line) => {
            let line: String = line.trim().chars().take(MAX_LAST_LINE_CHARS).collect();
            message.push_str(&format!("; it had last printed: {line}"));
        }
        None => message.push_str("; it had printed nothing"),
    }
    let most = cx.app().config().mcp.exec.max_wait().as_secs();
    let runs = command.run_name.map_or("", |_| ", which is for both runs");
    Error::new(ErrorKind::TimedOut, message)
        .hint(format!(
            "give a longer timeout{runs} (at most {most} s), or a command without what hangs"
        ))
        .with("stdout", stdout)
        .with("stderr", stderr)
}
