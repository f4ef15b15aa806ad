//! `run_pytest`: the project's tests, run by the project's own interpreter.

mod arguments;

use std::time::Duration;

use llmc_config::ExecProfile;
use llmc_enrich::{Condensed, Totals, output, testrun};
use llmc_exec::{ExitStatus, Program, Runner};
use llmc_host::{CancelToken, OpenDir};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use crate::cx::Cx;
use crate::error::{Error, ErrorKind, Family, Result};
use crate::render::{AnswerRoom, Render, Rendition, Rest};
use crate::shape::te_output;
use crate::shell::{self, Capture, CommandWords};
use crate::tool::{Effect, Tool};

/// What is kept of each stream of a run that printed more than fits into memory.
const LONG_RUN_TAIL_BYTES: usize = 1 << 20;
/// Where a project's own environment is looked for.
const ENVIRONMENTS: &[&str] = &[".venv", "venv"];

pub(super) struct RunPytest;

/// Run pytest: counts and every failure.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    #[schemars(extend("x-help" = "pytest's own words"))]
    args: Option<Vec<String>>,
}

/// What pytest printed and how it ended, if it has.
#[derive(Debug)]
pub(super) struct PytestOutput {
    args: Vec<String>,
    /// Both streams in the order in which they were read; of a very long run the beginning and the end.
    printed: Vec<u8>,
    status: Option<ExitStatus>,
    notes: Vec<String>,
}

impl Tool for RunPytest {
    const NAME: &'static str = "run_pytest";
    const EFFECT: Effect = Effect::Runs;
    const FAMILY: Family = Family::Te;
    // Tests may write whatever they like inside the roots.
    const DESTRUCTIVE: bool = true;
    const IDEMPOTENT: bool = false;
    const ERRORS: &'static [ErrorKind] = &[ErrorKind::CommandDenied, ErrorKind::NotFound];
    const KEYWORDS: &'static str = "test tests unit python execute";
    type Args = Args;
    type Output = PytestOutput;

    fn time_limit(cx: &Cx) -> Duration {
        shell::call_limit(cx)
    }

    async fn run(cx: &Cx, args: Args) -> Result<PytestOutput> {
        let args = args.args.unwrap_or_default();
        cx.blocking(move |cx, cancel| {
            let roots = &cx.files().roots;
            arguments::check(&args, roots)?;
            let cwd = roots.open_dir(".")?;
            let mut ran = pytest(cx, &args, &cwd, cancel).map_err(|error| match error.kind {
                ErrorKind::TimedOut => error.hint("run fewer tests: a path, a test id or -k"),
                _ => error,
            })?;
            ran.args = args;
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
        run(cx, python, argv, cwd, cancel)
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
        return run(cx, &program, argv, cwd, cancel);
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
    let printed = String::from_utf8_lossy(&ran.printed);
    ran.status == Some(ExitStatus::Exited(1))
        && printed.lines().count() == 1
        && printed.trim_end().ends_with("No module named pytest")
}

fn run(
    cx: &Cx,
    program: &Program,
    argv: Vec<String>,
    cwd: &OpenDir,
    cancel: &CancelToken,
) -> Result<PytestOutput> {
    let words = CommandWords::from_argv(argv.clone());
    let capture = shell::run_program(cx, program, argv, cwd, cancel)?;
    let mut notes = notes(cx, &capture, &words);
    let printed = capture.spool.merged().unwrap_or_else(|| {
        let [stdout, stderr] = capture.spool.ends(LONG_RUN_TAIL_BYTES);
        notes.push(format!(
            "only the last {LONG_RUN_TAIL_BYTES} bytes are kept"
        ));
        (stdout + &stderr).into_bytes()
    });
    Ok(PytestOutput {
        args: Vec::new(),
        printed,
        status: capture.status,
        notes,
    })
}

impl PytestOutput {
    fn condense(&self, text: &str, budget: usize) -> Condensed {
        let fits = llmc_tokens::fits(text, budget);
        if !(fits && arguments::asks_for_detail(&self.args))
            && let Some(run) = testrun::parse(text)
        {
            return testrun::condense(&run, text.len() as u64, budget);
        }
        let argv = ["pytest".to_owned()];
        let code = self.status.and_then(ExitStatus::exit_code);
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

te_output!(PytestOutput);

impl Render for PytestOutput {
    fn render(&self, room: &AnswerRoom<'_>) -> Result<Rendition<'_>> {
        let text = String::from_utf8_lossy(&self.printed);
        let mut found = self.condense(&text, room.tokens);
        found.breadcrumbs.extend(self.notes.iter().cloned());
        let rest = found.truncated.then(|| {
            Rest::bytes("command", self.printed.as_slice())
                .about("command", format!("pytest {}", self.args.join(" ")))
        });
        Ok(Rendition::te("pytest", found).rest(rest))
    }
}

/// What a program gets is the text; of a run that goes on with the call that waits for it.
impl Serialize for PytestOutput {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut text = String::from_utf8_lossy(&self.printed).into_owned();
        if self.status.is_none() {
            for note in &self.notes {
                text.push_str(&format!("\n[{note}]"));
            }
        }
        serializer.serialize_str(&text)
    }
}

/// How it ended, where that says more than the counts, and what else the caller must know.
fn notes(cx: &Cx, ran: &Capture, words: &CommandWords) -> Vec<String> {
    let mut notes = ran.notes.clone();
    match ran.status {
        None | Some(ExitStatus::Exited(0 | 1) | ExitStatus::Stopped) => {}
        Some(ExitStatus::Exited(2)) => {
            notes.push("exit 2: the run was interrupted or tests could not be collected".to_owned())
        }
        Some(ExitStatus::Exited(3)) => notes.push("exit 3: an error inside pytest".to_owned()),
        Some(ExitStatus::Exited(4)) => {
            notes.push("exit 4: pytest does not take these arguments".to_owned())
        }
        Some(ExitStatus::Exited(5)) => notes.push("exit 5: no tests were found".to_owned()),
        Some(status) => notes.push(status.to_string()),
    }
    if ran.output_capped {
        notes.push("ended: it printed too much".to_owned());
    }
    notes.extend(shell::taken_away(cx, &ran.quarantined));
    notes.extend(shell::refusals::notes_of(
        cx, words, None, ran.status, &ran.spool,
    ));
    notes
}
