//! The runs of `run_compare`: on the base, unless its result is known, on the workspace as it is, and of some tests once more.
//!
//! All of them are on copy-on-write views, so that they start alike, none sees what another wrote, and nothing is changed.
//!
//! A result of a base is kept by commit, command, folder and the ignored files that a run sees. New tests run on the old sources,
//! which they have to fail on if they prove the change. Tests that differ run once more on the side where they failed: those that
//! then pass are flaky.

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use llmc_enrich::run_diff::{FinishedRun, NewTestsAtBase, RunDiff, RunDifference, UnrunSide};
use llmc_enrich::testrun::{self, TestRun};
use llmc_exec::{BaseLayer, ExitStatus, Stream};
use llmc_host::machine::snapshot;
use llmc_host::{CancelToken, OpenDir};
use ulid::Ulid;

use super::compared::RunComparison;
use super::execute::program_name;
use super::line::CommandWords;
use super::reported::{ReportedCommand, SelectedTests, is_test_path};
use super::spool::Spool;
use super::viewed::{NotViewed, ViewedCommand, run_on_view};
use crate::base_view::{BaseSources, BaseView, repository_dir};
use crate::cx::Cx;
use crate::error::{Error, ErrorKind, Result};
use crate::processes::RunProgress;

/// Bytes of the end of each stream that are compared where an output is too large to be held whole.
const TAIL_BYTES: usize = 512 << 10;
/// The exit code of a program that is not there, as shells have it.
const NOT_FOUND: i32 = 127;
/// Tests that are run once more.
const MAX_RERUN: usize = 50;
/// A suite that takes no longer is run whole where its runner cannot select tests.
const MAX_WHOLE_RERUN: Duration = Duration::from_secs(20);
/// The same for new tests on old sources.
const MAX_WHOLE_NEW: Duration = Duration::from_secs(180);
/// Memory that has to be free for two runs at the same time.
const MIN_MEMORY_FOR_TWO: u64 = 3 << 30;
/// What programs say about a port or a lock that another one has.
const IN_THE_WAY: [&str; 3] = ["ddress already in use", "EADDRINUSE", "database is locked"];
/// What the second run is called.
const NOW: &str = "on the workspace as it is";
/// Results of bases that are kept.
const MAX_KEPT: usize = 8;
/// A longer output is not kept.
const MAX_KEPT_BYTES: u64 = 8 << 20;

/// Results of bases, by all that they depend on.
#[derive(Debug, Default)]
pub(crate) struct BaseResults(Mutex<Vec<(String, ComparedRun)>>);

impl BaseResults {
    fn get(&self, key: &str) -> Option<ComparedRun> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = kept.iter().find(|(known, _)| known == key);
        found.map(|(_, run)| run.clone())
    }

    fn keep(&self, key: String, run: &ComparedRun) {
        if run.bytes() > MAX_KEPT_BYTES {
            return;
        }
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(known, _)| *known != key);
        if kept.len() >= MAX_KEPT {
            kept.remove(0);
        }
        kept.push((key, run.clone()));
    }
}

/// One of the two runs. Clones share the output.
#[derive(Debug, Clone)]
pub(crate) struct ComparedRun {
    status: ExitStatus,
    spool: Arc<Mutex<Spool>>,
    /// What was printed, or the ends of it.
    text: Arc<str>,
    is_whole: bool,
    /// The tests by the runner's own report.
    tests: Option<Arc<TestRun>>,
    took: Duration,
    notes: Vec<String>,
}

impl ComparedRun {
    fn new(status: ExitStatus, spool: Spool) -> ComparedRun {
        let (text, is_whole) = match spool.merged() {
            Some(text) => (String::from_utf8_lossy(&text).into_owned(), true),
            None => (spool.ends(TAIL_BYTES).concat(), false),
        };
        ComparedRun {
            status,
            spool: Arc::new(Mutex::new(spool)),
            text: text.into(),
            is_whole,
            tests: None,
            took: Duration::ZERO,
            notes: Vec::new(),
        }
    }

    /// The same with the report that the runner has left, in a file or in what it printed.
    fn with_report(
        mut self,
        command: &ReportedCommand,
        ran: &llmc_exec::LayeredRun,
    ) -> ComparedRun {
        let (printed_tests, text) = command.split_output(self.text.to_string());
        self.text = text.into();
        let report = command.read(ran);
        if report.is_some() && command.pytest_runs(&self.text) > 1 {
            self.notes
                .push("pytest ran several times; counts are those of its last run".to_owned());
        }
        let tests = report.map(|report| report.run(testrun::parse(&self.text)));
        self.tests = tests.or(printed_tests).map(Arc::new);
        self
    }

    pub(super) fn bytes(&self) -> u64 {
        self.spool
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .bytes()
    }

    pub(super) fn status(&self) -> ExitStatus {
        self.status
    }

    pub(super) fn write_to(&self, mut out: &mut dyn Write) -> std::io::Result<()> {
        if self.is_whole {
            return out.write_all(self.text.as_bytes());
        }
        let mut spool = self.spool.lock().unwrap_or_else(PoisonError::into_inner);
        spool.write_to(&mut out)
    }

    /// Whether the command has to be run without a report.
    fn is_refused_by(&self, command: &ReportedCommand) -> bool {
        command.is_refused(&self.text, self.tests.is_some(), self.status.is_success())
    }

    /// The last lines that say something.
    pub(super) fn last_lines(&self, count: usize) -> Vec<&str> {
        let lines: Vec<&str> = self
            .text
            .lines()
            .filter(|line| !line.trim().is_empty())
            .collect();
        lines[lines.len().saturating_sub(count)..].to_vec()
    }

    /// Whether it looks as if another run had what it needed.
    fn is_in_the_way(&self) -> bool {
        IN_THE_WAY.iter().any(|said| self.text.contains(said))
    }

    /// `exit 1`, also of a success.
    pub(super) fn ended(&self) -> String {
        match self.status.is_success() {
            true => "exit 0".to_owned(),
            false => self.status.to_string(),
        }
    }

    fn finished(&self) -> FinishedRun<'_> {
        FinishedRun {
            text: &self.text,
            exit_code: self.status.exit_code(),
            tests: self.tests.as_deref(),
        }
    }
}

/// A command that is compared.
pub(super) struct Compared {
    pub(super) words: CommandWords,
    pub(super) cwd: Option<String>,
    pub(super) base: Option<String>,
    /// How long all runs may take.
    pub(super) time: Duration,
}

/// Whose files a run sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Base,
    /// The base, with the files of tests as they are now.
    BaseWithNewTests,
    Now,
}

/// What all runs of a comparison share.
#[derive(Clone, Copy)]
struct RunPlace<'a> {
    cx: &'a Cx,
    cwd: &'a OpenDir,
    progress: &'a RunProgress,
    cancel: &'a CancelToken,
    deadline: Instant,
    time: Duration,
}

/// A comparison under way.
struct Comparing<'a> {
    place: RunPlace<'a>,
    view: &'a BaseView<'a>,
    command: ReportedCommand,
}

impl Compared {
    pub(super) fn run(
        self,
        cx: &Cx,
        progress: &RunProgress,
        cancel: &CancelToken,
    ) -> Result<RunComparison> {
        let roots = &cx.files().roots;
        let cwd = roots.open_dir(self.cwd.as_deref().unwrap_or("."))?;
        let repository = repository_dir(roots, &cwd)?;
        let base = self.base.as_deref().unwrap_or("HEAD");
        let view = BaseView::of(cx, &repository, base, cancel)?;
        // A name of its own, which no file of the workspace has.
        let report_name = format!(".llmc-report-{}", Ulid::new().to_string().to_lowercase());
        let mut comparing = Comparing {
            place: RunPlace {
                cx,
                cwd: &cwd,
                progress,
                cancel,
                deadline: Instant::now() + self.time,
                time: self.time,
            },
            view: &view,
            command: ReportedCommand::new(&self.words, &cwd.path.absolute(), &report_name),
        };
        let mut notes = view.notes.clone();
        let key = view.inputs.map(|inputs| {
            let dir = cwd.path.absolute();
            format!(
                "{} {inputs} {} {:?}",
                view.id,
                dir.display(),
                self.words.argv
            )
        });
        let kept = key
            .as_ref()
            .and_then(|key| cx.app().base_results().get(key));
        let is_base_kept = kept.is_some();
        let (before, now) = match kept {
            Some(kept) => {
                progress.step("running on the workspace as it is");
                (kept, comparing.run(Side::Now, None)?)
            }
            None => {
                let (before, now) = comparing.both()?;
                if let Some(key) = key {
                    cx.app().base_results().keep(key, &before);
                }
                (before, now)
            }
        };
        notes.extend(
            before
                .notes
                .iter()
                .map(|note| format!("at the base: {note}")),
        );
        notes.extend(now.notes.iter().map(|note| format!("now: {note}")));
        if !(before.is_whole && now.is_whole) {
            notes.push("the outputs are large: their ends were compared".to_owned());
        }
        let words = &self.words;
        let mut diff = RunDiff::of(&words.printed_by, before.finished(), now.finished());
        notes.extend(comparing.prove(&mut diff, &before, &now));
        let tests_at_base = comparing.run_changed_tests(&diff, &before, &mut notes);
        notes.extend(way_forward(&diff, &view.name, &before, &now));
        let program = match words.printed_by.is_empty() {
            true => program_name(&words.argv),
            false => program_name(&words.printed_by),
        };
        Ok(RunComparison {
            command: self.words.text,
            program,
            base_name: view.name,
            base_id: view.id,
            base: before,
            now,
            diff,
            tests_at_base,
            is_base_kept,
            notes,
        })
    }
}

impl Comparing<'_> {
    /// Both runs: at once where there is room for that, else one after the other, as also where one stood in the other's way.
    fn both(&mut self) -> Result<(ComparedRun, ComparedRun)> {
        if !self.command.runs_alone() && has_room_for_two() {
            let both = format!(
                "running on {} and on the workspace as it is",
                self.view.name
            );
            self.place.progress.step(both);
            let (place, command) = (self.place, self.command.clone());
            let (before, now) = std::thread::scope(|scope| {
                let now = scope.spawn(|| place.run(&command, None, NOW, |_| Ok(Vec::new())));
                (self.base(), now.join())
            });
            let before = before?;
            let now = match now {
                Ok(Ok(now)) if !now.is_refused_by(&command) => now,
                Ok(Err(NotViewed::Tool(error))) => return Err(error),
                _ => self.run(Side::Now, None)?,
            };
            if !(before.is_in_the_way() || now.is_in_the_way()) {
                return Ok((before, now));
            }
        }
        let at_base = format!("running on {}", self.view.name);
        self.place.progress.step(at_base);
        let before = self.base()?;
        self.place
            .progress
            .step("running on the workspace as it is");
        Ok((before, self.run(Side::Now, None)?))
    }

    /// The run on the base. A program that is not there is a result, too.
    fn base(&mut self) -> Result<ComparedRun> {
        match self.run_viewed(Side::Base, None) {
            Ok(run) => Ok(run),
            Err(NotViewed::Exec(llmc_exec::Error::NotExecutable { program, source })) => {
                let mut spool = Spool::new(None);
                let said = format!("{program}: cannot be started: {source}\n");
                spool.push(Stream::Stderr, said.as_bytes());
                Ok(ComparedRun::new(ExitStatus::Exited(NOT_FOUND), spool))
            }
            Err(NotViewed::Exec(llmc_exec::Error::NoWorkingDirectory)) => {
                let shown = self
                    .place
                    .cx
                    .files()
                    .roots
                    .display_path(&self.place.cwd.path);
                let message = format!("{shown} is not there at {}", self.view.name);
                Err(Error::new(ErrorKind::NotFound, message)
                    .hint("give a cwd that is there at the base, or another base"))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn run(&mut self, side: Side, selected: Option<&SelectedTests>) -> Result<ComparedRun> {
        Ok(self.run_viewed(side, selected)?)
    }

    /// One run. Where the runner refuses to report, once more without a report.
    fn run_viewed(
        &mut self,
        side: Side,
        selected: Option<&SelectedTests>,
    ) -> std::result::Result<ComparedRun, NotViewed> {
        let run = self.run_once(side, selected)?;
        if !run.is_refused_by(&self.command) {
            return Ok(run);
        }
        self.command = self.command.without_report();
        self.run_once(side, None)
    }

    fn run_once(
        &self,
        side: Side,
        selected: Option<&SelectedTests>,
    ) -> std::result::Result<ComparedRun, NotViewed> {
        let cancel = self.place.cancel;
        let at_base = format!("at {}", self.view.name);
        let name = match side {
            Side::Now => NOW,
            Side::Base | Side::BaseWithNewTests => &at_base,
        };
        self.place
            .run(&self.command, selected, name, |layer| match side {
                Side::Now => Ok(Vec::new()),
                Side::Base => self.view.fill(layer, BaseSources::All, cancel),
                Side::BaseWithNewTests => {
                    let roots = &self.place.cx.files().roots;
                    self.view
                        .fill(layer, BaseSources::WithTestsOf(roots), cancel)
                }
            })
    }

    /// Runs new tests on the old sources, and tests that differ once more. Returns what could not be done.
    fn prove(
        &mut self,
        diff: &mut RunDiff,
        before: &ComparedRun,
        now: &ComparedRun,
    ) -> Vec<String> {
        let RunDifference::Tests(tests) = &mut diff.found else {
            return Vec::new();
        };
        let mut notes = Vec::new();
        if tests.unrun.is_none() {
            let failing: Vec<String> = tests
                .newly_failing
                .iter()
                .map(|failure| failure.id.clone())
                .collect();
            let mut flaky = self.flaky(Side::Now, failing, now);
            flaky.extend(self.flaky(Side::Base, tests.newly_passing.clone(), before));
            tests.set_flaky(flaky);
        }
        if tests.new.is_empty() {
            return notes;
        }
        self.place
            .progress
            .step("running the new tests on the sources of the base");
        // One that fails now proves nothing by failing without the change.
        let passing = tests.new_and_not_failing();
        if passing.is_empty() {
            return notes;
        }
        match self.again(Side::BaseWithNewTests, &passing, before, MAX_WHOLE_NEW) {
            Some(Ok(run)) => tests.new_at_base = Some(NewTestsAtBase::of(&passing, &run)),
            Some(Err(error)) => notes.push(format!(
                "the new tests were not run on the old sources: {}",
                error.message
            )),
            None => notes.push(
                "the new tests were not run on the old sources: the runner cannot select them, and the whole suite takes long"
                    .to_owned(),
            ),
        }
        notes
    }

    /// Runs a command whose tests are not known by name on the sources of the base with the tests as they are now, if those
    /// differ: it has to fail there if they prove the change.
    fn run_changed_tests(
        &mut self,
        diff: &RunDiff,
        before: &ComparedRun,
        notes: &mut Vec<String>,
    ) -> Option<ComparedRun> {
        let is_unnamed = matches!(diff.found, RunDifference::Output(_));
        let changed = self.view.changed();
        let is_test = |path: &String| is_test_path(path.as_bytes());
        if !is_unnamed || !changed.iter().any(is_test) || changed.iter().all(is_test) {
            return None;
        }
        if before.took > MAX_WHOLE_NEW {
            notes.push(
                "the changed tests were not run on the old sources: the command takes long"
                    .to_owned(),
            );
            return None;
        }
        self.place
            .progress
            .step("running the changed tests on the sources of the base");
        match self.run(Side::BaseWithNewTests, None) {
            Ok(run) => Some(run),
            Err(error) => {
                notes.push(format!(
                    "the changed tests were not run on the old sources: {}",
                    error.message
                ));
                None
            }
        }
    }

    /// Which of these tests, which failed on a side, pass there when they are run once more.
    fn flaky(&mut self, side: Side, failed: Vec<String>, first: &ComparedRun) -> Vec<String> {
        if failed.is_empty() || failed.len() > MAX_RERUN {
            return Vec::new();
        }
        self.place
            .progress
            .step("running tests that differ once more");
        let Some(Ok(run)) = self.again(side, &failed, first, MAX_WHOLE_RERUN) else {
            return Vec::new();
        };
        let is_failing = |id: &String| run.failures.iter().any(|failure| failure.id == *id);
        let has_passed = |id: &String| !is_failing(id) && run.ran.contains(id);
        failed.into_iter().filter(has_passed).collect()
    }

    /// Runs these tests on a side; the whole command if the runner cannot select them and it takes no longer than `most`.
    fn again(
        &mut self,
        side: Side,
        ids: &[String],
        first: &ComparedRun,
        most: Duration,
    ) -> Option<Result<TestRun>> {
        let selected = self.command.selecting(ids, first.tests.is_some());
        if selected.is_none() && first.took > most {
            return None;
        }
        let ran = self.run(side, selected.as_ref());
        let tests = ran.map(|run| match run.tests.as_deref() {
            Some(tests) => tests.clone(),
            None => testrun::parse(&run.text)
                .unwrap_or_else(|| TestRun::empty_like(first.tests.as_deref())),
        });
        Some(tests)
    }
}

impl RunPlace<'_> {
    /// One run on a view that `fill` has put files over.
    fn run(
        self,
        command: &ReportedCommand,
        selected: Option<&SelectedTests>,
        name: &str,
        fill: impl FnOnce(&BaseLayer<'_>) -> Result<Vec<String>>,
    ) -> std::result::Result<ComparedRun, NotViewed> {
        let command = selected.map_or(command, |selected| &selected.command);
        let env = match selected {
            Some(selected) => selected.environment(),
            None => command.environment(),
        };
        let env: Vec<(&str, &str)> = env
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let viewed = ViewedCommand {
            words: &command.words,
            cwd: self.cwd,
            env: &env,
            deadline: self.deadline,
            wait: self.time,
            run_name: Some(name),
            progress: self.progress,
        };
        let mut further = Vec::new();
        let fill = |layer: &BaseLayer<'_>| {
            further = fill(layer)?;
            match selected {
                Some(selected) => selected.show(layer).map_err(|error| {
                    Error::new(
                        ErrorKind::Internal,
                        format!("tests cannot be selected: {error}"),
                    )
                }),
                None => Ok(()),
            }
        };
        let started = Instant::now();
        let ran = run_on_view(self.cx, &viewed, fill, self.cancel)?;
        let mut run = ComparedRun::new(ran.status, ran.spool).with_report(command, &ran.layered);
        run.took = started.elapsed();
        run.notes.extend(ran.notes);
        run.notes.extend(further);
        Ok(run)
    }
}

/// Whether cores and memory allow two runs at the same time.
fn has_room_for_two() -> bool {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    cores >= 2 && snapshot(std::iter::empty()).mem_available_bytes >= MIN_MEMORY_FOR_TWO
}

/// What to do where only the base could not run.
fn way_forward(
    diff: &RunDiff,
    base: &str,
    before: &ComparedRun,
    now: &ComparedRun,
) -> Option<String> {
    let is_unrun = match &diff.found {
        RunDifference::Tests(tests) => tests.unrun == Some(UnrunSide::Base),
        RunDifference::Diagnostics(_) => false,
        RunDifference::Output(_) => !before.status.is_success() && now.status.is_success(),
    };
    is_unrun.then(|| {
        format!(
            "{base} cannot run this command here; give a base that can, or a command that both sides can run, such as one \
             package or one test file"
        )
    })
}
