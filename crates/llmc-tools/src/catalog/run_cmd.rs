use std::time::Duration;

use llmc_enrich::{Condensed, Totals, output};
use llmc_envelope::cut::{Limits, cut};
use llmc_envelope::neutral::{Ansi, neutralise};
use llmc_envelope::receipt::Receipt;
use llmc_host::exec::{Finished, Spec, Stream, split_words};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::answer::{Answer, Facts};
use crate::cx::{Cx, Form};
use crate::error::{Error, Kind, Result};
use crate::te::{self, Frame};
use crate::tool::{Effect, Tool};

/// A command that prints more than this is ended.
const MAX_OUTPUT: u64 = 16 << 20;
/// Lines above this many bytes are clipped where no condenser knows the output.
const LONG_LINE: usize = 400;

pub(super) struct RunCmd;

/// Run an allowed command, confined, without a shell.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    command: Option<String>,
    argv: Option<Vec<String>>,
    cwd: Option<String>,
    /// seconds
    timeout: Option<f64>,
}

/// What a command printed and how it ended.
struct Ran {
    argv: Vec<String>,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    finished: Finished,
}

impl Tool for RunCmd {
    const NAME: &'static str = "run_cmd";
    const EFFECT: Effect = Effect::Runs;
    const DESTRUCTIVE: bool = true;
    const IDEMPOTENT: bool = false;
    type Args = Args;

    fn time_limit(cx: &Cx) -> Duration {
        // The command has its own limit; this one is for what comes around it.
        cx.app().config().mcp.tools.exec_timeout() + Duration::from_secs(10)
    }

    async fn run(cx: &Cx, args: Args) -> Result<Answer> {
        let argv = match (args.argv, args.command) {
            (Some(argv), None) => argv,
            (None, Some(command)) => split_words(&command)?,
            _ => return Err(Error::bad_args("give either command or argv")),
        };
        if argv.is_empty() {
            return Err(Error::bad_args("the command is empty"));
        }
        let most = cx.app().config().mcp.tools.exec_timeout();
        let (timeout, lowered) = match args.timeout {
            None => (most, false),
            Some(seconds) if !(seconds.is_finite() && seconds > 0.0) => {
                return Err(Error::bad_args("timeout must be above 0 seconds"));
            }
            Some(seconds) => {
                let asked = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
                (asked.min(most), asked > most)
            }
        };
        cx.blocking(move |cx, stop| {
            let roots = &cx.files().roots;
            let cwd = roots.open_dir(args.cwd.as_deref().unwrap_or("."))?;
            let caller = cx.caller();
            let env = [
                ("TE_AGENT_ID".to_owned(), caller.agent.clone()),
                ("TE_SESSION_ID".to_owned(), caller.session.clone()),
                ("TE_MODEL".to_owned(), caller.model.clone()),
            ];
            let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
            let spec = Spec {
                argv: &argv,
                cwd: &cwd,
                timeout,
                env: &env,
                max_output: MAX_OUTPUT,
            };
            let mut collect = |stream, bytes: &[u8]| match stream {
                Stream::Stdout => stdout.extend_from_slice(bytes),
                Stream::Stderr => stderr.extend_from_slice(bytes),
            };
            let finished = cx.app().commands()?.run(&spec, &mut collect, stop)?;
            let ran = Ran {
                argv,
                stdout,
                stderr,
                finished,
            };
            if ran.finished.cancelled {
                stop.check()?;
                return Err(Error::new(Kind::Cancelled, "cancelled"));
            }
            if ran.finished.timed_out {
                return Err(timed_out(&ran, timeout));
            }
            Ok(answer(cx, &ran, lowered.then_some(most)))
        })
        .await
    }
}

fn timed_out(ran: &Ran, timeout: Duration) -> Error {
    let tail = |bytes: &[u8]| {
        let start = bytes.len().saturating_sub(4096);
        String::from_utf8_lossy(&bytes[start..]).into_owned()
    };
    Error::new(
        Kind::TimedOut,
        format!("{}: ended after {} s", ran.argv[0], timeout.as_secs_f64()),
    )
    .hint("give a longer timeout, or a command that does less")
    .with("stdout", tail(&ran.stdout))
    .with("stderr", tail(&ran.stderr))
}

fn answer(cx: &Cx, ran: &Ran, lowered_to: Option<Duration>) -> Answer {
    let stdout = String::from_utf8_lossy(&ran.stdout);
    let stderr = String::from_utf8_lossy(&ran.stderr);
    if cx.caller().form == Form::Data {
        let code = ran
            .finished
            .exit_code
            .or(ran.finished.signal.map(|signal| 128 + signal));
        let facts = Facts {
            truncated: ran.finished.output_capped,
            ..Facts::default()
        };
        return Answer::data(
            json!({"stdout": stdout, "stderr": stderr, "exit_code": code}),
            facts,
        );
    }
    let notes = notes(ran, lowered_to);
    let mut text = stdout.clone().into_owned();
    for part in [stderr.as_ref(), ending(&ran.finished).as_str()] {
        if !text.is_empty() && !text.ends_with('\n') && !part.is_empty() {
            text.push('\n');
        }
        text.push_str(part);
    }
    let budget = te::budget(cx);
    if llmc_tokens::fits(&text, budget) {
        let receipt = notes
            .iter()
            .fold(Receipt::new(), |receipt, note| receipt.note(note));
        let facts = Facts {
            truncated: ran.finished.output_capped,
            ..Facts::default()
        };
        return Answer::text(&neutralise(&text, Ansi::Strip), &receipt, facts);
    }
    let mut found = output::condense(&ran.argv, &stdout, &stderr, ran.finished.exit_code, budget)
        .unwrap_or_else(|| from_the_top(&text, budget));
    found.truncated = true;
    found.breadcrumbs.extend(notes);
    let ending = ending(&ran.finished);
    if !ending.is_empty() && !found.body.ends_with(&ending) {
        found.body.push_str(&ending);
        found.body.push('\n');
    }
    let handle = cx.keep(
        |draft| draft.with("command", ran.argv.join(" ")),
        "command",
        text.as_bytes(),
    );
    let frame = Frame {
        cmd: "run",
        handle,
        withheld_bytes: (text.len() as u64).saturating_sub(found.body.len() as u64),
        ..Frame::default()
    };
    te::seal(cx, &found, frame)
}

/// `exit 2` or `signal 9`; nothing after a success.
fn ending(finished: &Finished) -> String {
    match (finished.exit_code, finished.signal) {
        (Some(0), _) => String::new(),
        (Some(code), _) => format!("exit {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

/// What the caller must know besides the output.
fn notes(ran: &Ran, lowered_to: Option<Duration>) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(most) = lowered_to {
        notes.push(format!(
            "timeout lowered to {} s (mcp.tools.exec_timeout)",
            most.as_secs()
        ));
    }
    if ran.finished.output_capped {
        notes.push(format!("ended after {} MiB of output", MAX_OUTPUT >> 20));
    }
    for planted in &ran.finished.quarantined {
        notes.push(format!(
            "{} is protected; the change was undone",
            planted.path.display()
        ));
    }
    notes
}

/// Output that no condenser knows: its first lines.
fn from_the_top(text: &str, budget: usize) -> Condensed {
    let shown = cut(
        text,
        Limits {
            tokens: budget.saturating_sub(150),
            line_bytes: LONG_LINE,
        },
    );
    let lines = shown.kept.lines + shown.left.lines;
    Condensed {
        breadcrumbs: vec![format!("{} more lines", shown.left.lines)],
        totals: Totals {
            lines: Some(lines),
            size: Some(text.len() as u64),
            ..Totals::default()
        },
        shown: shown.kept.lines,
        truncated: true,
        body: shown.text.into_owned(),
        ..Condensed::default()
    }
}
