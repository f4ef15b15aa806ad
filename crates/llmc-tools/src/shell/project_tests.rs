//! `run_tests`: the project's tests by its own runner; all of them, some by path or name, or those that reach a change.

use std::path::Path;

use llmc_host::CancelToken;

use super::execute::{CommandRequest, answer, output_form};
use super::line::CommandWords;
use super::output::RunOutput;
use super::reported::quoted;
use crate::affected::{AffectedTests, affected_tests};
use crate::base_view::{BaseView, repository_dir};
use crate::cx::Cx;
use crate::error::{Error, ErrorKind, Result};
use crate::project::{self, TestCommand};

/// Where a project's own environment is looked for.
const ENVIRONMENTS: &[&str] = &[".venv", "venv"];
/// Paths that an answer repeats.
const MAX_TOLD_PATHS: usize = 5;

/// Tests to be run.
pub(crate) struct TestsRequest {
    /// Paths and names; all tests if empty.
    pub(crate) paths: Vec<String>,
    pub(crate) affected: bool,
    /// In place of the command that the manifests tell.
    pub(crate) command: Option<String>,
    /// Since when changes count.
    pub(crate) base: Option<String>,
    pub(crate) timeout: Option<f64>,
}

impl TestsRequest {
    pub(super) fn of(asked: AskedTests, timeout: Option<f64>) -> TestsRequest {
        TestsRequest {
            paths: asked.paths,
            affected: asked.affected,
            command: None,
            base: asked.base,
            timeout,
        }
    }
}

/// What `te test` is asked for; the `te` of a shell and that of a command line understand the same words.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct AskedTests {
    pub affected: bool,
    pub base: Option<String>,
    pub paths: Vec<String>,
}

impl AskedTests {
    /// Reads the words of a command after `te`; none if they are another command. The shell's own `test` has operators.
    ///
    /// # Errors
    /// An unknown flag.
    pub fn of(command: &[String]) -> Result<Option<AskedTests>> {
        let Some((verb, words)) = command.split_first() else {
            return Ok(None);
        };
        let is_operator = |word: &String| {
            matches!(word.as_str(), "=" | "==" | "!=" | "!" | "<" | ">" | "(")
                || (word.starts_with('-') && !word.starts_with("--"))
        };
        if verb != "test" || words.iter().any(is_operator) {
            return Ok(None);
        }
        let mut asked = AskedTests::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match (word.as_str(), word.split_once('=')) {
                ("--affected", _) => asked.affected = true,
                ("--base", _) => asked.base = words.next().cloned(),
                (_, Some(("--base", base))) => asked.base = Some(base.to_owned()),
                (flag, _) if flag.starts_with("--") => {
                    let message = format!("te test: unknown flag {flag}");
                    return Err(Error::bad_args(message)
                        .hint("te test [--affected] [--base COMMIT] [PATH OR NAME ...]"));
                }
                _ => asked.paths.push(word.clone()),
            }
        }
        Ok(Some(asked))
    }
}

/// The runner of a test command, which decides how tests are selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TestRunner {
    Pytest,
    Cargo,
    Go,
    /// A package's script, which passes on words after `--`.
    PackageScript,
    /// A JavaScript runner itself.
    Script,
    Other,
}

impl TestRunner {
    fn of(line: &str) -> TestRunner {
        let has = |word: &str| {
            line.split_whitespace()
                .any(|part| part.rsplit('/').next() == Some(word))
        };
        match () {
            () if has("pytest") || has("py.test") => TestRunner::Pytest,
            () if has("cargo") => TestRunner::Cargo,
            () if has("go") && has("test") => TestRunner::Go,
            () if has("vitest") || has("jest") || has("mocha") => TestRunner::Script,
            () if has("npm") => TestRunner::PackageScript,
            () if has("yarn") || has("pnpm") || has("bun") => TestRunner::Script,
            () => TestRunner::Other,
        }
    }
}

/// Runs them as any command runs: it goes on in the background where it takes longer than the call waits.
pub(crate) fn run_tests(cx: &Cx, request: TestsRequest, cancel: &CancelToken) -> Result<RunOutput> {
    let mut notes = Vec::new();
    let mut paths = request.paths;
    let selects = !paths.is_empty() || request.affected;
    let line = match request.command.filter(|line| !line.trim().is_empty()) {
        Some(line) => line,
        None => known_line(cx, selects, cancel)?,
    };
    let runner = TestRunner::of(&line);
    if request.affected {
        let base = request.base.as_deref().unwrap_or("HEAD");
        match affected(cx, base, cancel)? {
            AffectedTests::All(why) => notes.push(format!("all tests: {why}")),
            AffectedTests::Files(files) if files.is_empty() => {
                return Ok(RunOutput::Text(format!(
                    "no tests were run: nothing that tests can reach changed since {base}\n"
                )));
            }
            AffectedTests::Files(files) => {
                let told = AffectedTests::told(&files);
                if runner == TestRunner::Other {
                    notes.push("all tests: this command cannot select some".to_owned());
                } else {
                    paths.extend(files.into_iter().map(|file| file.path));
                }
                notes.push(format!("affected since {base}: {told}"));
            }
        }
    }
    let (line, ran) = match paths.len() {
        0 => (line.clone(), line),
        count => {
            let selected = selected(cx, &line, runner, &paths)?;
            let ran = match count > MAX_TOLD_PATHS {
                true => format!("{line} for {count} paths"),
                false => selected.clone(),
            };
            (selected, ran)
        }
    };
    notes.push(format!("ran: {ran}"));
    let command = CommandRequest {
        words: CommandWords::new(cx, Some(line), None)?,
        cwd: None,
        timeout: request.timeout,
        input: None,
        form: output_form(cx),
    };
    let mut output = answer(cx, command, cancel)?;
    if let RunOutput::Command(output) = &mut output {
        output.notes.splice(0..0, notes);
    }
    Ok(output)
}

/// The line that runs the project's tests. Where some are to be selected, a Makefile's target is no help.
fn known_line(cx: &Cx, selects: bool, cancel: &CancelToken) -> Result<String> {
    let found = project::test_command_of(cx, cancel, selects)
        .or_else(|| project::test_command_of(cx, cancel, false));
    let TestCommand { line, needs } = found.ok_or_else(|| {
        let message = "no manifest tells how this project's tests are run";
        Error::new(ErrorKind::NotFound, message).hint("give command, such as command=\"pytest -q\"")
    })?;
    if needs != "pytest" {
        return Ok(line.to_owned());
    }
    let roots = &cx.files().roots;
    let own = ENVIRONMENTS
        .iter()
        .find(|dir| roots.open_file(&format!("{dir}/pyvenv.cfg")).is_ok());
    let python = match own {
        Some(dir) => format!("{dir}/bin/python"),
        None => {
            let root = cx.app().root();
            let has_python = cx.app().commands()?.resolve("python", root).is_ok();
            if has_python { "python" } else { "python3" }.to_owned()
        }
    };
    Ok(format!("{python} -m pytest -q"))
}

fn affected(cx: &Cx, base: &str, cancel: &CancelToken) -> Result<AffectedTests> {
    let roots = &cx.files().roots;
    let cwd = roots.open_dir(".")?;
    let repository = repository_dir(roots, &cwd)?;
    let view = BaseView::of(cx, &repository, base, cancel)?;
    let changed = view.changed();
    affected_tests(cx, &repository, &changed, cancel)
}

/// The line for these paths and names alone.
fn selected(cx: &Cx, line: &str, runner: TestRunner, paths: &[String]) -> Result<String> {
    let roots = &cx.files().roots;
    let is_there = |path: &str| roots.stat(path).is_ok();
    let (files, names): (Vec<&str>, Vec<&str>) =
        paths.iter().map(String::as_str).partition(|path| {
            let file = path.split("::").next().unwrap_or(path);
            is_there(file)
        });
    let words = |list: &[&str]| -> String {
        list.iter()
            .map(|word| format!(" {}", quoted(word)))
            .collect()
    };
    Ok(match runner {
        TestRunner::Pytest => {
            let names = match names.is_empty() {
                true => String::new(),
                false => format!(" -k {}", quoted(&names.join(" or "))),
            };
            format!("{line}{}{names}", words(&files))
        }
        TestRunner::Cargo => {
            let mut options = Vec::new();
            for file in &files {
                options.extend(cargo_options(file, |path| is_there(path)));
            }
            options.dedup();
            let filters = match names.is_empty() {
                true => String::new(),
                false => format!(" --{}", words(&names)),
            };
            let options: String = options.iter().map(|option| format!(" {option}")).collect();
            format!("{line}{options}{filters}")
        }
        TestRunner::Go => {
            let mut dirs: Vec<String> = files.iter().map(|file| go_dir(file)).collect();
            dirs.sort();
            dirs.dedup();
            let line = match dirs.is_empty() {
                true => line.to_owned(),
                false => format!("{} {}", line.replace(" ./...", ""), dirs.join(" ")),
            };
            match names.is_empty() {
                true => line,
                false => format!(
                    "{line} -run {}",
                    quoted(&format!("^({})$", names.join("|")))
                ),
            }
        }
        TestRunner::PackageScript => format!("{line} --{}{}", words(&files), words(&names)),
        TestRunner::Script => format!("{line}{}{}", words(&files), words(&names)),
        TestRunner::Other => {
            return Err(
                Error::bad_args(format!("{line}: how it selects tests is not known"))
                    .hint("give the whole line as command"),
            );
        }
    })
}

/// What selects the tests of a file: its package, and the test binary that it is.
fn cargo_options(file: &str, is_there: impl Fn(&str) -> bool) -> Vec<String> {
    let path = Path::new(file);
    let package = path.ancestors().skip(1).find(|dir| {
        !dir.as_os_str().is_empty() && is_there(&format!("{}/Cargo.toml", dir.display()))
    });
    let mut options = Vec::new();
    if let Some(package) = package {
        let manifest = package.join("Cargo.toml");
        options.push(format!(
            "--manifest-path {}",
            quoted(&manifest.display().to_string())
        ));
    }
    let below = package.map_or(path, |package| path.strip_prefix(package).unwrap_or(path));
    let mut parts = below
        .components()
        .filter_map(|part| part.as_os_str().to_str());
    if let (Some("tests"), Some(name), None) = (parts.next(), parts.next(), parts.next()) {
        options.push(format!("--test {}", quoted(name.trim_end_matches(".rs"))));
    }
    options
}

fn go_dir(file: &str) -> String {
    let dir = match file.ends_with(".go") {
        true => file.rsplit_once('/').map_or("", |(dir, _)| dir),
        false => file.trim_end_matches('/'),
    };
    match dir {
        "" | "." => ".".to_owned(),
        dir => quoted(&format!("./{dir}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_after_te_test_are_told_from_the_shells_own_test() {
        let asked = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            AskedTests::of(&words)
        };
        let tests = AskedTests {
            affected: true,
            base: Some("HEAD~1".to_owned()),
            paths: vec!["tests/a.py".to_owned()],
        };
        assert_eq!(
            asked("test --affected --base HEAD~1 tests/a.py").unwrap(),
            Some(tests)
        );
        assert_eq!(asked("test").unwrap(), Some(AskedTests::default()));
        for line in ["test -f a", "test a = b", "grep test", ""] {
            assert_eq!(asked(line).unwrap(), None, "{line}");
        }
        assert!(asked("test --odd").is_err());
    }

    #[test]
    fn runners_are_known_by_their_lines() {
        for (line, runner) in [
            (".venv/bin/python -m pytest -q", TestRunner::Pytest),
            ("cargo test --workspace", TestRunner::Cargo),
            ("go test ./...", TestRunner::Go),
            ("npm test", TestRunner::PackageScript),
            ("npx vitest run", TestRunner::Script),
            ("make test", TestRunner::Other),
        ] {
            assert_eq!(TestRunner::of(line), runner, "{line}");
        }
    }

    #[test]
    fn files_select_packages_and_test_binaries() {
        let there = |path: &str| path == "crates/a/Cargo.toml";
        for (file, options) in [
            ("tests/it.rs", &["--test it"][..]),
            ("src/a.rs", &[]),
            (
                "crates/a/tests/one.rs",
                &["--manifest-path crates/a/Cargo.toml", "--test one"],
            ),
            (
                "crates/a/src/b.rs",
                &["--manifest-path crates/a/Cargo.toml"],
            ),
        ] {
            assert_eq!(cargo_options(file, there), options, "{file}");
        }
        assert_eq!(go_dir("pkg/a/x_test.go"), "./pkg/a");
        assert_eq!(go_dir("x_test.go"), ".");
    }
}
