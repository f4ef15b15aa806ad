mod words;

use std::time::Duration;

use llmc_enrich::{Condensed, Totals, output, testrun};
use llmc_exec::{Finished, Program, Runner, Spec, Stream};
use llmc_host::{CancelToken, OpenDir};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::answer::Answer;
use crate::cx::Cx;
use crate::error::{Error, Family, Kind, Result};
use crate::te::{self, Frame};
use crate::tool::{Effect, Tool};

/// A run that prints more than this is ended.
const MAX_OUTPUT: u64 = 16 << 20;
/// Where a project's own packages are looked for.
const ENVIRONMENTS: &[&str] = &[".venv", "venv"];

pub(super) struct RunPytest;

/// Run pytest. Returns counts and every failure.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    args: Option<Vec<String>>,
}

/// What pytest printed and how it ended.
struct Ran {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    finished: Finished,
}

impl Tool for RunPytest {
    const NAME: &'static str = "run_pytest";
    const EFFECT: Effect = Effect::Runs;
    const FAMILY: Family = Family::Te;
    // Tests may write whatever they like inside the roots.
    const DESTRUCTIVE: bool = true;
    const IDEMPOTENT: bool = false;
    type Args = Args;
    type Output = Answer;

    fn time_limit(cx: &Cx) -> Duration {
        // The run has its own limit; this one is for what comes around it.
        cx.app().config().mcp.exec.wait() + Duration::from_secs(10)
    }

    async fn run(cx: &Cx, args: Args) -> Result<Answer> {
        let args = args.args.unwrap_or_default();
        cx.blocking(move |cx, stop| {
            let roots = &cx.files().roots;
            words::check(&args, roots)?;
            let cwd = roots.open_dir(".")?;
            let ran = pytest(cx, &args, &cwd, stop)?;
            if ran.finished.cancelled {
                stop.check()?;
                return Err(Error::new(Kind::Cancelled, "cancelled"));
            }
            answer(cx, &args, &ran)
        })
        .await
    }
}

/// Runs the pytest of the project's environment, of the system's Python, or the program of that name, whichever is there.
fn pytest(cx: &Cx, args: &[String], cwd: &OpenDir, stop: &CancelToken) -> Result<Ran> {
    let runner = cx.app().commands()?;
    let mut missing = "there is no python3 in the fixed search path".to_owned();
    if let Ok(python) = runner.find("python3") {
        let mut argv = vec![python_name(cx, cwd)];
        argv.extend(["-m", "pytest"].map(str::to_owned));
        argv.extend(args.iter().cloned());
        let ran = run(cx, runner, &python, &argv, cwd, stop)?;
        if !lacks_pytest(&ran) {
            return Ok(ran);
        }
        missing = format!("{} has no pytest", python.path.display());
    }
    if let Ok(program) = runner.find("pytest") {
        let mut argv = vec!["pytest".to_owned()];
        argv.extend(args.iter().cloned());
        return run(cx, runner, &program, &argv, cwd, stop);
    }
    Err(Error::new(Kind::NotFound, format!("pytest is not installed: {missing}")).hint(
        "install it for the system's python3, or into .venv of the workspace with the same Python version",
    ))
}

/// By its first word Python recognises the environment it belongs to. The program that runs stays the system's: one in
/// the workspace could have been put there by anybody.
fn python_name(cx: &Cx, cwd: &OpenDir) -> String {
    let roots = &cx.files().roots;
    let has = |dir: &&&str| roots.open_file(&format!("{dir}/pyvenv.cfg")).is_ok();
    match ENVIRONMENTS.iter().find(has) {
        Some(dir) => {
            let python = cwd.path.absolute().join(dir).join("bin/python");
            python.to_string_lossy().into_owned()
        }
        None => "python3".to_owned(),
    }
}

fn lacks_pytest(ran: &Ran) -> bool {
    ran.finished.exit_code == Some(1)
        && ran.stdout.is_empty()
        && String::from_utf8_lossy(&ran.stderr)
            .trim_end()
            .ends_with("No module named pytest")
}

fn run(
    cx: &Cx,
    runner: &Runner,
    program: &Program,
    argv: &[String],
    cwd: &OpenDir,
    stop: &CancelToken,
) -> Result<Ran> {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let spec = Spec {
        argv,
        program: Some(program),
        cwd,
        timeout: cx.app().config().mcp.exec.wait(),
        env: &[],
        max_output: MAX_OUTPUT,
    };
    let mut collect = |stream, bytes: &[u8]| match stream {
        Stream::Stdout => stdout.extend_from_slice(bytes),
        Stream::Stderr => stderr.extend_from_slice(bytes),
    };
    let finished = runner.run(&spec, &mut collect, stop)?;
    Ok(Ran {
        stdout,
        stderr,
        finished,
    })
}

fn answer(cx: &Cx, args: &[String], ran: &Ran) -> Result<Answer> {
    let mut raw = ran.stdout.clone();
    if !raw.is_empty() && !raw.ends_with(b"\n") && !ran.stderr.is_empty() {
        raw.push(b'\n');
    }
    raw.extend_from_slice(&ran.stderr);
    let keep = || {
        let command = format!("pytest {}", args.join(" "));
        cx.keep(
            |draft| draft.with("command", command),
            "command",
            raw.as_slice(),
        )
    };
    if ran.finished.timed_out {
        let limit = cx.app().config().mcp.exec.wait().as_secs();
        let mut hint = "run fewer tests: a path, a test id or -k".to_owned();
        if let Some(id) = keep().filter(|_| !raw.is_empty()) {
            hint.push_str(&format!("; te_handle {id} returns the output so far"));
        }
        let message = format!("pytest: ended after {limit} s (mcp.exec.wait_s)");
        return Err(Error::new(Kind::TimedOut, message).hint(hint));
    }
    let text = String::from_utf8_lossy(&raw);
    let mut found = condensed(cx, args, &text, ran);
    found.breadcrumbs.extend(notes(ran));
    let handle = if found.truncated { keep() } else { None };
    let frame = Frame {
        cmd: "pytest",
        handle,
        withheld_bytes: (text.len() as u64).saturating_sub(found.body.len() as u64),
        ..Frame::default()
    };
    Ok(te::seal(cx, &found, frame))
}

fn condensed(cx: &Cx, args: &[String], text: &str, ran: &Ran) -> Condensed {
    let budget = te::budget(cx);
    let fits = llmc_tokens::fits(text, budget);
    if !(fits && words::asks_for_detail(args))
        && let Some(run) = testrun::parse(text)
    {
        return testrun::condense(&run, text.len() as u64, budget);
    }
    let argv = ["pytest".to_owned()];
    let code = ran.finished.exit_code;
    output::condense(&argv, text, "", code, budget).unwrap_or_else(|| {
        let lines = text.lines().count() as u64;
        Condensed {
            body: text.to_owned(),
            totals: Totals {
                lines: Some(lines),
                ..Totals::default()
            },
            shown: lines,
            ..Condensed::default()
        }
    })
}

/// How it ended, where that says more than the counts, and what else the caller must know.
fn notes(ran: &Ran) -> Vec<String> {
    let finished = &ran.finished;
    let mut notes = Vec::new();
    match (finished.exit_code, finished.signal) {
        (Some(0 | 1), _) => {}
        (Some(2), _) => {
            notes.push("exit 2: the run was interrupted or tests could not be collected".to_owned())
        }
        (Some(3), _) => notes.push("exit 3: an error inside pytest".to_owned()),
        (Some(4), _) => notes.push("exit 4: pytest does not take these arguments".to_owned()),
        (Some(5), _) => notes.push("exit 5: no tests were found".to_owned()),
        (Some(code), _) => notes.push(format!("exit {code}")),
        (None, Some(signal)) => notes.push(format!("ended by signal {signal}")),
        (None, None) => {}
    }
    if finished.output_capped {
        notes.push(format!("ended after {} MiB of output", MAX_OUTPUT >> 20));
    }
    for planted in &finished.quarantined {
        notes.push(format!(
            "{} is protected; the change was undone",
            planted.path.display()
        ));
    }
    notes
}
