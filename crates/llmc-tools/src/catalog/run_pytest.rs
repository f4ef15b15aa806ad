//! `run_pytest`: the project's tests, run by the project's own interpreter.

mod arguments;

use std::time::Duration;

use llmc_config::ExecProfile;
use llmc_enrich::{Condensed, Totals, output, testrun};
use llmc_exec::{ExecRequest, ExitStatus, Program, RunReport, Runner, Stream};
use llmc_host::{CancelToken, OpenDir};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use crate::cx::Cx;
use crate::error::{Error, ErrorKind, Family, Result};
use crate::render::{AnswerRoom, Render, Rendition, Rest};
use crate::tool::{Effect, Tool};

/// A run that prints more than this is ended.
const MAX_OUTPUT_BYTES: u64 = 16 << 20;
/// How much of the output a run that timed out shows.
const TIMEOUT_TAIL_BYTES: usize = 4096;
/// Where a project's own environment is looked for.
const ENVIRONMENTS: &[&str] = &[".venv", "venv"];

pub(super) struct RunPytest;

/// Run pytest. Returns counts and every failure.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    args: Option<Vec<String>>,
}

/// What pytest printed and how it ended.
#[derive(Debug)]
pub(super) struct PytestOutput {
    args: Vec<String>,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    report: RunReport,
}

impl Tool for RunPytest {
    const NAME: &'static str = "run_pytest";
    const EFFECT: Effect = Effect::Runs;
    const FAMILY: Family = Family::Te;
    // Tests may write whatever they like inside the roots.
    const DESTRUCTIVE: bool = true;
    const IDEMPOTENT: bool = false;
    type Args = Args;
    type Output = PytestOutput;

    fn time_limit(cx: &Cx) -> Duration {
        cx.app().config().mcp.exec.max_wait() + Duration::from_secs(10)
    }

    async fn run(cx: &Cx, args: Args) -> Result<PytestOutput> {
        let args = args.args.unwrap_or_default();
        cx.blocking(move |cx, cancel| {
            let roots = &cx.files().roots;
            arguments::check(&args, roots)?;
            let cwd = roots.open_dir(".")?;
            let mut ran = pytest(cx, &args, &cwd, cancel)?;
            ran.args = args;
            if ran.report.cancelled {
                cancel.check()?;
                return Err(Error::new(ErrorKind::Cancelled, "cancelled"));
            }
            if ran.report.timed_out {
                return Err(timed_out(cx, &ran));
            }
            Ok(ran)
        })
        .await
    }
}

/// Runs the pytest of the project's own environment; without one that of the system's Python, or the program of that
/// name.
fn pytest(cx: &Cx, args: &[String], cwd: &OpenDir, cancel: &CancelToken) -> Result<PytestOutput> {
    let runner = cx.app().commands()?;
    let module = |python: &Program, name: String| {
        let mut argv = vec![name];
        argv.extend(["-m", "pytest"].map(str::to_owned));
        argv.extend(args.iter().cloned());
        run(cx, runner, python, &argv, cwd, cancel)
    };
    if let Some((python, dir)) = project_python(cx, runner, cwd) {
        // By this path Python recognises the environment it belongs to.
        let ran = module(&python, python.path.display().to_string())?;
        if !lacks_pytest(&ran) {
            return Ok(ran);
        }
        let message = format!("{dir}/bin/python has no pytest");
        return Err(Error::new(ErrorKind::NotFound, message).hint(format!(
            "install it there: {dir}/bin/python -m pip install pytest"
        )));
    }
    let mut missing = "there is no python3 on the search path".to_owned();
    if let Ok(python) = runner.find("python3") {
        let ran = module(&python, "python3".to_owned())?;
        if !lacks_pytest(&ran) {
            return Ok(ran);
        }
        missing = format!("{} has no pytest", python.path.display());
    }
    if let Ok(program) = runner.find("pytest") {
        let mut argv = vec!["pytest".to_owned()];
        argv.extend(args.iter().cloned());
        return run(cx, runner, &program, &argv, cwd, cancel);
    }
    Err(Error::new(
        ErrorKind::NotFound,
        format!("pytest is not installed: {missing}"),
    )
    .hint("install it for the system's python3, or into .venv of the workspace"))
}

/// The interpreter of the project's own environment and that environment's directory. A broken one counts as none; the
/// restricted profile runs no program of the workspace.
fn project_python(cx: &Cx, runner: &Runner, cwd: &OpenDir) -> Option<(Program, &'static str)> {
    if cx.app().config().mcp.exec.profile == ExecProfile::Restricted {
        return None;
    }
    let roots = &cx.files().roots;
    ENVIRONMENTS
        .iter()
        .filter(|dir| roots.open_file(&format!("{dir}/pyvenv.cfg")).is_ok())
        .find_map(|dir| {
            let python = cwd.path.absolute().join(dir).join("bin/python");
            Some((runner.find_trusted(&python).ok()?, *dir))
        })
}

fn lacks_pytest(ran: &PytestOutput) -> bool {
    ran.report.status.exit_code() == Some(1)
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
    cancel: &CancelToken,
) -> Result<PytestOutput> {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let spec = ExecRequest {
        argv,
        program: Some(program),
        cwd,
        timeout: cx.app().config().mcp.exec.max_wait(),
        env: &[],
        max_output: MAX_OUTPUT_BYTES,
        owner: cx.caller().run_owner(),
    };
    let mut collect = |stream, bytes: &[u8]| match stream {
        Stream::Stdout => stdout.extend_from_slice(bytes),
        Stream::Stderr => stderr.extend_from_slice(bytes),
    };
    let report = runner.run(&spec, &mut collect, cancel)?;
    Ok(PytestOutput {
        args: Vec::new(),
        stdout,
        stderr,
        report,
    })
}

impl PytestOutput {
    /// Both streams, stderr last.
    fn printed(&self) -> Vec<u8> {
        let mut printed = self.stdout.clone();
        if !printed.is_empty() && !printed.ends_with(b"\n") && !self.stderr.is_empty() {
            printed.push(b'\n');
        }
        printed.extend_from_slice(&self.stderr);
        printed
    }

    fn condense(&self, text: &str, budget: usize) -> Condensed {
        let fits = llmc_tokens::fits(text, budget);
        if !(fits && arguments::asks_for_detail(&self.args))
            && let Some(run) = testrun::parse(text)
        {
            return testrun::condense(&run, text.len() as u64, budget);
        }
        let argv = ["pytest".to_owned()];
        let code = self.report.status.exit_code();
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
}

impl Render for PytestOutput {
    fn render(&self, room: &AnswerRoom<'_>) -> Result<Rendition<'_>> {
        let printed = self.printed();
        let text = String::from_utf8_lossy(&printed);
        let mut found = self.condense(&text, room.tokens);
        found.breadcrumbs.extend(notes(self));
        let rest = found.truncated.then(|| {
            Rest::bytes("command", self.printed())
                .about("command", format!("pytest {}", self.args.join(" ")))
        });
        Ok(Rendition::te("pytest", found).rest(rest))
    }
}

/// What a program gets is the text.
impl Serialize for PytestOutput {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(&String::from_utf8_lossy(&self.printed()))
    }
}

fn timed_out(cx: &Cx, ran: &PytestOutput) -> Error {
    let limit = cx.app().config().mcp.exec.max_wait().as_secs();
    let message = format!("pytest: ended after {limit} s (mcp.exec.max_wait_s)");
    let printed = ran.printed();
    let tail = &printed[printed.len().saturating_sub(TIMEOUT_TAIL_BYTES)..];
    Error::new(ErrorKind::TimedOut, message)
        .hint("run fewer tests: a path, a test id or -k")
        .with("stdout", String::from_utf8_lossy(tail).into_owned())
}

/// How it ended, where that says more than the counts, and what else the caller must know.
fn notes(ran: &PytestOutput) -> Vec<String> {
    let report = &ran.report;
    let mut notes = Vec::new();
    match report.status {
        ExitStatus::Exited(0 | 1) | ExitStatus::Stopped => {}
        ExitStatus::Exited(2) => {
            notes.push("exit 2: the run was interrupted or tests could not be collected".to_owned())
        }
        ExitStatus::Exited(3) => notes.push("exit 3: an error inside pytest".to_owned()),
        ExitStatus::Exited(4) => {
            notes.push("exit 4: pytest does not take these arguments".to_owned())
        }
        ExitStatus::Exited(5) => notes.push("exit 5: no tests were found".to_owned()),
        status => notes.push(status.to_string()),
    }
    if report.output_capped {
        notes.push(format!(
            "ended after {} MiB of output",
            MAX_OUTPUT_BYTES >> 20
        ));
    }
    for planted in &report.quarantined {
        notes.push(format!(
            "{} is protected; the change was undone",
            planted.path.display()
        ));
    }
    notes
}
