//! Which program a command line starts.

/// What kind of program a command line starts.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum KnownProgram {
    Git {
        subcommand: String,
        args: Vec<String>,
    },
    Diff,
    /// Prints lines that match.
    Grep,
    /// Prints a file, or a part of one.
    Cat,
    /// Prints paths.
    Find,
    /// Prints the entries of directories.
    Ls,
    /// Runs tests, or is mostly used for it.
    Tests(&'static str),
    Other,
}

impl KnownProgram {
    pub(super) fn of(argv: &[String]) -> Self {
        let words = command(argv);
        let Some((first, rest)) = words.split_first() else {
            return Self::Other;
        };
        let any = |words: &[&str]| rest.iter().any(|word| words.contains(&word.as_str()));
        match base(first) {
            "git" => {
                let (subcommand, args) = git_words(rest);
                match subcommand {
                    "grep" => Self::Grep,
                    _ => Self::Git {
                        subcommand: subcommand.to_owned(),
                        args: args.to_vec(),
                    },
                }
            }
            "diff" | "colordiff" => Self::Diff,
            "grep" | "egrep" | "fgrep" | "rg" | "ripgrep" | "ag" | "ack" => Self::Grep,
            "cat" | "bat" | "head" | "tail" => Self::Cat,
            "find" | "fd" | "fdfind" => Self::Find,
            "ls" | "exa" | "eza" => Self::Ls,
            "pytest" | "py.test" => Self::Tests("pytest"),
            "python" | "python3" if any(&["pytest"]) => Self::Tests("pytest"),
            "python" | "python3" if any(&["unittest"]) => Self::Tests("unittest"),
            "cargo" if any(&["test", "t", "nextest", "build", "b", "check", "c", "clippy"]) => {
                Self::Tests("cargo")
            }
            "tsc" => Self::Tests("tsc"),
            "go" if any(&["test"]) => Self::Tests("go"),
            "jest" => Self::Tests("jest"),
            "vitest" => Self::Tests("vitest"),
            "mocha" | "_mocha" => Self::Tests("mocha"),
            "node" if any(&["--test"]) => Self::Tests("node"),
            "prove" | "tape" | "bats" => Self::Tests("tap"),
            "npx" | "npm" | "yarn" | "pnpm" if any(&["jest"]) => Self::Tests("jest"),
            "npx" | "npm" | "yarn" | "pnpm" if any(&["vitest"]) => Self::Tests("vitest"),
            "npx" | "npm" | "yarn" | "pnpm" if any(&["mocha"]) => Self::Tests("mocha"),
            "npx" if any(&["tsc"]) => Self::Tests("tsc"),
            "npx" if any(&["tape", "bats"]) => Self::Tests("tap"),
            "npm" | "yarn" | "pnpm" if rest.iter().any(|word| is_test_script(word)) => {
                Self::Tests("npm")
            }
            _ => Self::Other,
        }
    }

    /// The name under which the envelope answers.
    pub(super) fn name(&self, argv: &[String]) -> Option<&'static str> {
        Some(match self {
            Self::Git { .. } => "git",
            Self::Diff => "diff",
            Self::Grep => "grep",
            Self::Cat => match command(argv).first().map(|first| base(first)) {
                Some("head") => "head",
                Some("tail") => "tail",
                _ => "cat",
            },
            Self::Find => "find",
            Self::Ls => "ls",
            Self::Tests(name) => name,
            Self::Other => return None,
        })
    }
}

/// The words of a command line that are no options, after the program's own.
///
/// Which options take a value is not known here; a value may be among them.
pub(super) fn operands(argv: &[String]) -> impl Iterator<Item = &str> {
    let words = command(argv).iter().skip(1);
    words
        .map(String::as_str)
        .filter(|word| !word.starts_with('-'))
}

/// Whether each line that this `grep` or `rg` prints is a matching line; not with counts, names of files or context.
pub(super) fn prints_matches(argv: &[String]) -> bool {
    const LONG: &[&str] = &[
        "--count",
        "--count-matches",
        "--files-with-matches",
        "--files-without-match",
        "--name-only",
        "--files",
        "--quiet",
        "--silent",
        "--context",
        "--after-context",
        "--before-context",
        "--only-matching",
        "--json",
        "--stats",
        "--heading",
        "--passthru",
        "--help",
        "--version",
        "--type-list",
        "--show-function",
        "--function-context",
    ];
    // `-c`, also in a bundle such as `-rnc`; what follows `-e`, `-f`, `-m` and their like is a value.
    let is_other = |word: &String| {
        if let Some(long) = word.strip_prefix("--") {
            let name = long.split('=').next().unwrap_or(long);
            return LONG.iter().any(|known| known[2..] == *name);
        }
        let Some(flags) = word.strip_prefix('-') else {
            return false;
        };
        let flags = flags
            .split(['e', 'f', 'm', 'd', 'D', 'g', 't', 'T', 'j', 'M', 'O'])
            .next();
        flags.is_some_and(|flags| flags.contains(['c', 'l', 'L', 'q', 'A', 'B', 'C', 'o']))
    };
    let words = command(argv).iter().skip(1);
    let mut words = words.take_while(|word| *word != "--");
    !words.any(is_other)
}

/// Whether a script of a package is called so because it runs tests: `test`, `test:unit`, `test-all`.
fn is_test_script(word: &str) -> bool {
    matches!(word, "test" | "t") || word.starts_with("test:") || word.starts_with("test-")
}

fn base(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

/// The command behind variables and launchers: `env A=1 timeout 60 git log` is `git log`.
fn command(argv: &[String]) -> &[String] {
    let mut words = argv;
    while let Some((first, rest)) = words.split_first() {
        let name = base(first);
        let takes_value = match name {
            "env" | "nohup" | "time" | "nice" | "command" | "stdbuf" | "setsid" => 0,
            "timeout" => 1,
            _ if name.contains('=') && !name.starts_with('-') => 0,
            _ => return words,
        };
        let options = rest.iter().take_while(|word| word.starts_with('-')).count();
        words = rest.get(options + takes_value..).unwrap_or_default();
    }
    words
}

/// git's subcommand and what follows it, past git's own options.
fn git_words(words: &[String]) -> (&str, &[String]) {
    let mut at = 0;
    while let Some(word) = words.get(at) {
        match word.as_str() {
            "-C" | "-c" | "--git-dir" | "--work-tree" | "--namespace" => at += 2,
            option if option.starts_with('-') => at += 1,
            subcommand => return (subcommand, &words[at + 1..]),
        }
    }
    ("", &[])
}
