//! Test runs with the runner's own report: how it is asked for, where it is, and how some tests are run alone.
//!
//! Reports are asked for by options that change nothing else, in the environment where the runner reads some there, else on the
//! command line. A command whose runner is not known is left as it is, and its output is read.

use std::path::{Path, PathBuf};

use llmc_enrich::testrun::{self, Framework, TestReport, TestRun};
use llmc_exec::{BaseLayer, LayeredRun};

use super::line::{CommandWords, commands_of};

/// A larger report is not read.
const MAX_REPORT_BYTES: u64 = 64 << 20;
/// A module that cannot be imported must not keep the others from being compared.
const PYTEST_OPTIONS: &str = "--continue-on-collection-errors";
/// What pytest prints about the report.
const XML_NOTE: &str = " generated xml file: ";
/// Tests that are selected on a command line.
const MAX_SELECTED_WORDS: usize = 200;

/// A command and how its tests are reported.
#[derive(Debug, Clone)]
pub(super) struct ReportedCommand {
    /// The command as it is run.
    pub(super) words: CommandWords,
    /// The command as its caller gave it.
    given: CommandWords,
    runner: ReportingRunner,
    /// Where the report will be.
    path: PathBuf,
    /// Where the command starts.
    dir: PathBuf,
    asks: bool,
}

/// Which runner a command starts, as far as reports go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReportingRunner {
    /// pytest, or a program that may start it.
    Pytest,
    Jest,
    Vitest,
    Go,
    Cargo,
}

impl ReportedCommand {
    /// A command in `dir`, whose report is put into a file of this name there.
    pub(super) fn new(words: &CommandWords, dir: &Path, name: &str) -> ReportedCommand {
        let runner = runner_of(words);
        let path = dir.join(name);
        let mut command = ReportedCommand {
            words: words.clone(),
            given: words.clone(),
            runner,
            path,
            dir: dir.to_owned(),
            asks: true,
        };
        let file = command.path.display().to_string();
        // A caller that asks for a report gets its own.
        let asks = |option: &str| words.text.contains(option);
        match runner {
            ReportingRunner::Vitest if !asks("--reporter") && !asks("--outputFile") => {
                command.add(&format!(
                    "--reporter=default --reporter=json --outputFile.json={}",
                    quoted(&file)
                ))
            }
            ReportingRunner::Jest if !asks("--json") && !asks("--outputFile") => {
                command.add(&format!("--json --outputFile={}", quoted(&file)));
            }
            ReportingRunner::Go if !asks("-json") => {
                let json = with_word_after(&command.words, "go", "test", "-json");
                command.words = json.unwrap_or(command.words);
            }
            _ => {}
        }
        command
    }

    /// The same without a report, for a runner that does not take the options.
    pub(super) fn without_report(&self) -> ReportedCommand {
        ReportedCommand {
            asks: false,
            words: self.given.clone(),
            ..self.clone()
        }
    }

    /// Whether the runner takes all cores for itself.
    pub(super) fn runs_alone(&self) -> bool {
        matches!(self.runner, ReportingRunner::Cargo | ReportingRunner::Go)
    }

    /// Whether the runner refused the options, or a program under test tripped over them: tests may read the command line.
    pub(super) fn is_refused(&self, text: &str, has_report: bool, is_success: bool) -> bool {
        let is_lost = self.words != self.given && !has_report && !is_success;
        self.asks && (is_lost || text.contains("unrecognized arguments: --junit-xml"))
    }

    /// Variables that ask for the report.
    pub(super) fn environment(&self) -> Vec<(String, String)> {
        let mut options = PYTEST_OPTIONS.to_owned();
        if self.asks && !self.words.text.contains("junit") {
            let file = quoted(&self.path.display().to_string());
            options.push_str(&format!(" --junit-xml={file} -o junit_family=xunit1"));
        }
        vec![("PYTEST_ADDOPTS".to_owned(), options)]
    }

    /// The report that a run has left.
    pub(super) fn read(&self, run: &LayeredRun) -> Option<TestReport> {
        if !self.asks {
            return None;
        }
        let content = run.written_file(&self.path, MAX_REPORT_BYTES)?;
        let text = String::from_utf8_lossy(&content);
        let root = self.dir.display().to_string();
        match self.runner {
            ReportingRunner::Jest => TestReport::of_jest(&text, Framework::Jest, &root),
            ReportingRunner::Vitest => TestReport::of_jest(&text, Framework::Vitest, &root),
            _ => TestReport::of_pytest(&text),
        }
    }

    /// How many runs of pytest a command consisted of, of which a report has the last: runs that one of its tests made are
    /// printed within its own.
    pub(super) fn pytest_runs(&self, text: &str) -> usize {
        let is_pytest = |command: &&Vec<String>| {
            command
                .iter()
                .any(|word| word.rsplit('/').next() == Some("pytest"))
        };
        let named = commands_of(&self.given).iter().filter(is_pytest).count();
        let (mut open, mut runs) = (0_usize, 0);
        for line in text.lines().filter(|line| line.starts_with('=')) {
            if line.contains(" test session starts ") {
                runs += usize::from(open == 0);
                open += 1;
            } else if line.contains(" in ") && line.ends_with('=') {
                open = open.saturating_sub(1);
            }
        }
        runs.max(named)
    }

    /// The tests of a run whose report is its output, and what the program printed for people.
    pub(super) fn split_output(&self, text: String) -> (Option<TestRun>, String) {
        match self.runner {
            ReportingRunner::Go if self.words != self.given => {
                (testrun::parse(&text), go_output(&text))
            }
            // The one line that the option adds.
            _ if text.contains(XML_NOTE) => {
                let is_note = |line: &str| line.starts_with('-') && line.contains(XML_NOTE);
                (None, without_lines(&text, is_note))
            }
            _ => (None, text),
        }
    }

    /// The same command for these tests alone; `None` where the runner cannot select them.
    /// pytest is known by its report.
    pub(super) fn selecting(&self, tests: &[String], has_report: bool) -> Option<SelectedTests> {
        let mut command = self.clone();
        match self.runner {
            ReportingRunner::Pytest if self.asks && has_report => {
                let cache = self.dir.join(".pytest_cache");
                let failed: serde_json::Map<String, serde_json::Value> =
                    tests.iter().map(|id| (id.clone(), true.into())).collect();
                let content = serde_json::Value::Object(failed).to_string();
                return Some(SelectedTests {
                    options: format!(
                        " --lf --lfnf=none -o cache_dir={}",
                        quoted(&cache.display().to_string())
                    ),
                    shown: Some((cache.join("v/cache/lastfailed"), content)),
                    command,
                });
            }
            ReportingRunner::Cargo if tests.len() <= MAX_SELECTED_WORDS => {
                if self.words.text.contains(" -- ") || tests.iter().any(|id| id.contains(' ')) {
                    return None;
                }
                let ids: Vec<String> = tests.iter().map(|id| quoted(id)).collect();
                command.add(&format!("-- --exact {}", ids.join(" ")));
            }
            ReportingRunner::Go if tests.len() <= MAX_SELECTED_WORDS => {
                if self.words.text.contains("-run") {
                    return None;
                }
                // Subtests are selected with the test that they are part of.
                let mut names: Vec<&str> = tests
                    .iter()
                    .filter_map(|id| id.rsplit(' ').next()?.split('/').next())
                    .collect();
                names.sort_unstable();
                names.dedup();
                let pattern = format!("^({})$", names.join("|"));
                command.add(&format!("-run {}", quoted(&pattern)));
            }
            _ => return None,
        }
        (command.words != self.words).then_some(SelectedTests {
            command,
            options: String::new(),
            shown: None,
        })
    }

    /// Adds words at the end, if nothing follows the runner's own.
    fn add(&mut self, words: &str) {
        if commands_of(&self.words).len() != 1
            || self
                .words
                .text
                .contains(['|', '>', '<', '&', ';', '\n', '#'])
        {
            return;
        }
        self.words = match is_line(&self.words) {
            true => {
                let line = self.words.argv.last().map_or("", String::as_str);
                replaced(&self.words, format!("{line} {words}"))
            }
            false => {
                let mut argv = self.words.argv.clone();
                argv.extend(llmc_exec::split_words(words).unwrap_or_default());
                CommandWords {
                    argv,
                    ..self.words.clone()
                }
            }
        };
    }
}

/// A command for some tests.
#[derive(Debug)]
pub(super) struct SelectedTests {
    pub(super) command: ReportedCommand,
    options: String,
    /// A file by which the runner knows them.
    shown: Option<(PathBuf, String)>,
}

impl SelectedTests {
    pub(super) fn environment(&self) -> Vec<(String, String)> {
        let mut all = self.command.environment();
        for (_, value) in &mut all {
            value.push_str(&self.options);
        }
        all
    }

    /// Shows the runner which tests are meant.
    pub(super) fn show(&self, layer: &BaseLayer<'_>) -> std::io::Result<()> {
        match &self.shown {
            Some((path, content)) => layer.show_file(path, content.as_bytes(), false),
            None => Ok(()),
        }
    }
}

/// What `go test -json` would have printed without the option.
fn go_output(text: &str) -> String {
    let mut printed = String::new();
    for line in text.lines() {
        let event: Option<serde_json::Value> = line
            .starts_with('{')
            .then(|| serde_json::from_str(line).ok())
            .flatten();
        match event {
            Some(event) => printed.push_str(event["Output"].as_str().unwrap_or_default()),
            None => {
                printed.push_str(line);
                printed.push('\n');
            }
        }
    }
    printed
}

/// The runner of a command, if there is only one.
fn runner_of(words: &CommandWords) -> ReportingRunner {
    let runners: Vec<ReportingRunner> = commands_of(words)
        .iter()
        .filter_map(|command| {
            let has = |name: &str| {
                command
                    .iter()
                    .any(|word| word.rsplit('/').next() == Some(name))
            };
            Some(match () {
                () if has("vitest") && !has("bench") => ReportingRunner::Vitest,
                () if has("jest") => ReportingRunner::Jest,
                () if has("go") && has("test") => ReportingRunner::Go,
                () if has("cargo") && (has("test") || has("t")) => ReportingRunner::Cargo,
                () => return None,
            })
        })
        .collect();
    match runners.as_slice() {
        [only] => *only,
        _ => ReportingRunner::Pytest,
    }
}

/// Whether a shell runs it.
fn is_line(words: &CommandWords) -> bool {
    matches!(words.argv.as_slice(), [_, flag, _] if flag == "-c" || flag == "-lc")
}

fn replaced(words: &CommandWords, line: String) -> CommandWords {
    let mut changed = words.clone();
    if let Some(last) = changed.argv.last_mut() {
        *last = line;
    }
    changed
}

/// The command with a word after `program subcommand`, which must be there once.
fn with_word_after(
    words: &CommandWords,
    program: &str,
    subcommand: &str,
    word: &str,
) -> Option<CommandWords> {
    if is_line(words) {
        let pair = format!("{program} {subcommand}");
        if words.text.matches(&pair).count() != 1 {
            return None;
        }
        let line = words.text.replacen(&pair, &format!("{pair} {word}"), 1);
        return Some(replaced(words, line));
    }
    let at = words.argv.iter().position(|known| known == subcommand)?;
    let mut changed = words.clone();
    changed.argv.insert(at + 1, word.to_owned());
    Some(changed)
}

/// As one word of a shell line or of an option variable.
pub(super) fn quoted(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-:=@+".contains(&byte);
    match text.bytes().all(is_plain) && !text.is_empty() {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

fn without_lines(text: &str, is_left_out: impl Fn(&str) -> bool) -> String {
    text.split_inclusive('\n')
        .filter(|line| !is_left_out(line))
        .collect()
}

/// Whether a file holds tests, their data or what only tests use, by its path.
pub(crate) fn is_test_path(path: &[u8]) -> bool {
    const DIRS: [&str; 8] = [
        "tests",
        "test",
        "testing",
        "__tests__",
        "spec",
        "specs",
        "testdata",
        "__snapshots__",
    ];
    let Ok(path) = std::str::from_utf8(path) else {
        return false;
    };
    let (dirs, name) = path.rsplit_once('/').unwrap_or(("", path));
    let stem = name.split('.').next().unwrap_or(name);
    dirs.split('/').any(|dir| DIRS.contains(&dir))
        || name == "conftest.py"
        || stem.starts_with("test_")
        || stem.ends_with("_test")
        || stem.ends_with("Test")
        || stem.ends_with("Tests")
        || name.contains(".test.")
        || name.contains(".spec.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> CommandWords {
        let argv = ["bash", "-c", text].map(str::to_owned).to_vec();
        CommandWords {
            text: text.to_owned(),
            ..CommandWords::from_argv(argv)
        }
    }

    fn run_line(text: &str) -> String {
        let command = ReportedCommand::new(&line(text), Path::new("/w"), "r.xml");
        command.words.argv[2].clone()
    }

    #[test]
    fn reports_are_asked_for_where_that_changes_nothing_else() {
        for (given, run) in [
            (
                "npx vitest run",
                "npx vitest run --reporter=default --reporter=json --outputFile.json=/w/r.xml",
            ),
            ("npx jest src | tail", "npx jest src | tail"),
            ("cd a && go test ./...", "cd a && go test -json ./..."),
            ("go test ./a; go test ./b", "go test ./a; go test ./b"),
            ("pytest -q", "pytest -q"),
        ] {
            assert_eq!(run_line(given), run, "{given}");
        }
        let command = ReportedCommand::new(&line("pytest -q"), Path::new("/a b"), "r.xml");
        let options = &command.environment()[0].1;
        assert!(options.contains("--junit-xml='/a b/r.xml'"), "{options}");
        let own = ReportedCommand::new(&line("pytest --junit-xml=x.xml"), Path::new("/w"), "r.xml");
        assert!(!own.environment()[0].1.contains("junit-xml"));
    }

    #[test]
    fn some_tests_are_run_alone() {
        let select = |text: &str, tests: &[&str]| {
            let command = ReportedCommand::new(&line(text), Path::new("/w"), "r.xml");
            let tests: Vec<String> = tests.iter().map(|id| (*id).to_owned()).collect();
            let selected = command.selecting(&tests, true)?;
            Some((
                selected.command.words.argv[2].clone(),
                selected.environment()[0].1.clone(),
            ))
        };
        let (run, options) = select("make test", &["tests/test_a.py::test_x"]).unwrap();
        assert_eq!(run, "make test");
        assert!(
            options.contains(" --lf --lfnf=none -o cache_dir=/w/.pytest_cache"),
            "{options}"
        );
        let cargo = select("cargo test -p a", &["a::b", "c"]).unwrap().0;
        assert_eq!(cargo, "cargo test -p a -- --exact a::b c");
        let go = select("go test ./...", &["x/y TestA/one", "x/y TestA/two"])
            .unwrap()
            .0;
        assert_eq!(go, "go test -json ./... -run '^(TestA)$'");
        assert_eq!(select("npx vitest run", &["a"]), None);
    }

    #[test]
    fn runs_one_after_the_other_are_counted_and_those_inside_are_not() {
        let start = "===== test session starts =====\n";
        let end = "===== 1 failed in 0.1s =====\n";
        let command = ReportedCommand::new(&line("make test"), Path::new("/w"), "r.xml");
        let inner = format!(
            "{start}=== FAILURES ===\n{start}{end}{start}{end}=== short test summary info ===\n{end}"
        );
        assert_eq!(command.pytest_runs(&inner), 1);
        assert_eq!(command.pytest_runs(&format!("{inner}{start}{end}")), 2);
        let two = line("pytest -q a; pytest -q b");
        let two = ReportedCommand::new(&two, Path::new("/w"), "r.xml");
        assert_eq!(two.pytest_runs(""), 2);
    }

    #[test]
    fn test_files_are_known_by_their_paths() {
        for path in [
            "tests/a.rs",
            "a/test_x.py",
            "pkg/a_test.go",
            "src/a.test.ts",
            "x/conftest.py",
            "a/__tests__/b.js",
        ] {
            assert!(is_test_path(path.as_bytes()), "{path}");
        }
        for path in [
            "src/a.rs",
            "contest.py",
            "latest/x.py",
            "testimony.md",
            "src/attest.ts",
        ] {
            assert!(!is_test_path(path.as_bytes()), "{path}");
        }
    }
}
