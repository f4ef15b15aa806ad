//! Git in a form in which a repository cannot make it run anything.
//!
//! A repository's configuration names programs: a file system monitor that plain `git status` starts, filters for
//! content, drivers for diffs and merges, hooks, pagers, signature checkers. Flags switch some of them off, but not all,
//! and names can be chosen freely. So git is first asked which keys its configuration has, which runs nothing, and each
//! that names a program is overridden for the real run. The overrides go through the environment: given as `-c
//! key=value`, a key with a `=` in it would be cut in the wrong place.
//!
//! The same questions tell where the repository lies: one whose files are outside the roots is refused.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::rule::{Refusal, Rule};
use super::{Allowed, denied};
use crate::error::{Error, Result};
use crate::{ExecRequest, GitAccess, Program, Runner, Stream};
use llmc_host::CancelToken;
use llmc_host::OpenDir;

/// How long one of the questions may take.
const GIT_TIMEOUT: Duration = Duration::from_secs(10);
/// How much may be answered.
const ANSWER: u64 = 1 << 20;
/// The shortest hash that git takes.
const MIN_HASH_DIGITS: usize = 4;
/// How many keys are overridden.
const MAX_OVERRIDES: usize = 4000;

/// Set regardless of the repository's configuration.
const NEUTRAL: &[(&str, &str)] = &[
    ("core.fsmonitor", "false"),
    ("core.hooksPath", "/dev/null"),
    ("core.pager", "cat"),
    ("core.editor", "false"),
    ("core.askPass", ""),
    ("core.sshCommand", "false"),
    ("core.gitProxy", ""),
    ("core.alternateRefsCommand", "false"),
    ("core.attributesFile", "/dev/null"),
    ("core.excludesFile", "/dev/null"),
    ("sequence.editor", "false"),
    ("interactive.diffFilter", ""),
    // Honoured from here only, never from a repository. What ownership protects from is dealt with above and below.
    ("safe.bareRepository", "explicit"),
    ("safe.directory", "*"),
    ("protocol.allow", "never"),
    ("credential.helper", ""),
    ("diff.external", ""),
    ("diff.orderFile", "/dev/null"),
    ("diff.submodule", "short"),
    ("diff.ignoreSubmodules", "dirty"),
    ("log.showSignature", "false"),
    // The others would start merge drivers.
    ("log.diffMerges", "separate"),
    ("status.submoduleSummary", "false"),
    ("submodule.recurse", "false"),
    ("blame.ignoreRevsFile", ""),
    ("mailmap.file", ""),
    ("gpg.program", "false"),
    ("gpg.openpgp.program", "false"),
    ("gpg.x509.program", "false"),
    ("gpg.ssh.program", "false"),
    ("gpg.ssh.defaultKeyCommand", "false"),
    ("uploadpack.packObjectsHook", ""),
    ("maintenance.auto", "false"),
    ("gc.auto", "0"),
];

/// Variables of every run.
const ENVIRONMENT: &[(&str, &str)] = &[
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_SYSTEM", "/dev/null"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_PAGER", "cat"),
    ("PAGER", "cat"),
    ("GIT_EDITOR", "false"),
    ("GIT_SSH_COMMAND", "false"),
    ("GIT_ASKPASS", "false"),
];

/// A harmless git command, ready to be run with [`ExecRequest::program`].
#[derive(Debug)]
pub struct GitCommand {
    /// Git itself.
    pub program: Program,
    /// Its name and arguments.
    pub argv: Vec<String>,
    /// Its variables.
    pub env: Vec<(String, String)>,
}

impl Runner {
    /// Turns the arguments of a reading git command into one that runs nothing of the repository's.
    ///
    /// # Errors
    /// [`Error::CommandDenied`] for what is not allowed, a git that is missing, or a repository outside the roots.
    pub fn git(&self, args: &[String], cwd: &OpenDir) -> Result<GitCommand> {
        let program = self.find("git")?;
        self.policy().check_denials("git", args)?;
        let Allowed { argv, env } = self.neutral_git(&program, args, cwd)?;
        Ok(GitCommand { program, argv, env })
    }

    pub(super) fn neutral_git(
        &self,
        program: &Program,
        args: &[String],
        cwd: &OpenDir,
    ) -> Result<Allowed> {
        let policy = self.policy();
        let (rule, rest) =
            rule_of(&policy.rules, args).map_err(|refusal| denied("git", refusal))?;
        let checked = policy.check(rule, &rest, cwd)?;
        let mut argv = ["git", "--no-pager", "--no-optional-locks"]
            .map(str::to_owned)
            .to_vec();
        argv.extend(rule.subcommand.clone());
        argv.extend(checked);
        let mut overrides: Vec<(String, String)> = NEUTRAL
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        let asked = Asked {
            runner: self,
            program,
            cwd,
            env: environment(&overrides),
        };
        if let Some(git_dir) = asked.repository()? {
            let keys = asked.keys()?;
            let linked = keys.iter().any(|key| key == "core.worktree");
            self.check_repository(&git_dir, linked)?;
            if policy.roots.rules().denylist_reads() {
                asked.refuse_nameless_contents(&rest)?;
            }
            overrides.extend(keys.iter().filter_map(|key| harmless(key)));
            if overrides.len() > MAX_OVERRIDES {
                return Err(refused(
                    "the repository's configuration names too many programs",
                ));
            }
        }
        Ok(Allowed {
            argv,
            env: environment(&overrides),
        })
    }

    /// Refuses a repository whose files or history lie elsewhere. A working tree of a repository outside is fine if that
    /// repository knows of it; else anything unpacked here could point at any repository of the user's.
    fn check_repository(&self, place: &Repository, linked: bool) -> Result<()> {
        let roots = &self.policy().roots;
        let inside = |path: &Path| roots.paths().any(|root| path.starts_with(root));
        if let Some(top) = &place.top
            && !inside(top)
        {
            return Err(refused(
                "the repository's working tree lies outside the roots",
            ));
        }
        let known = || {
            let top = place.top.as_ref()?;
            let back = first_line(&place.git_dir.join("gitdir"))?;
            let back = std::fs::canonicalize(place.git_dir.join(back)).ok()?;
            Some(back == std::fs::canonicalize(top.join(".git")).ok()?)
        };
        if inside(&place.git_dir) || (linked && place.top.is_some()) || known() == Some(true) {
            return Ok(());
        }
        Err(refused("the repository itself lies outside the roots"))
    }
}

/// Where a repository lies.
#[derive(Debug)]
struct Repository {
    git_dir: PathBuf,
    top: Option<PathBuf>,
}

/// Questions to git that run nothing of the repository's.
struct Asked<'a> {
    runner: &'a Runner,
    program: &'a Program,
    cwd: &'a OpenDir,
    env: Vec<(String, String)>,
}

impl Asked<'_> {
    /// Where the repository lies; `None` without one, which git itself reports.
    fn repository(&self) -> Result<Option<Repository>> {
        let text = self.ask(&["rev-parse", "--absolute-git-dir", "--show-toplevel"])?;
        let mut lines = text.lines().map(PathBuf::from);
        let Some(git_dir) = lines.next() else {
            return Ok(None);
        };
        let top = lines.next();
        match lines.next() {
            Some(_) => Err(refused("the repository's path cannot be read")),
            None => Ok(Some(Repository { git_dir, top })),
        }
    }

    /// Every key of the configuration that applies here, files it includes and those of the working tree with it.
    fn keys(&self) -> Result<Vec<String>> {
        let text = self.ask(&["config", "--null", "--name-only", "--list"])?;
        let keys = text.split('\0').filter(|key| !key.is_empty());
        Ok(keys.map(str::to_owned).collect())
    }

    /// Refuses a file's content that is named by its hash: the denylist knows files by their names.
    fn refuse_nameless_contents(&self, words: &[String]) -> Result<()> {
        let words = words.iter().take_while(|word| *word != "--");
        let words = words.filter(|word| !word.starts_with('-') && !word.contains(':'));
        for word in words.flat_map(|word| word.split("..")) {
            let name = word.trim_start_matches(['.', '^']);
            let digits = name.bytes().take_while(u8::is_ascii_hexdigit).count();
            let is_hash = digits >= MIN_HASH_DIGITS
                && name[digits..]
                    .chars()
                    .next()
                    .is_none_or(|next| "^~@".contains(next));
            if is_hash && self.ask(&["cat-file", "-t", name])?.trim() == "blob" {
                return Err(Error::CommandDenied {
                    command: "git".to_owned(),
                    why: format!(
                        "{word} is a file's content without its name, which the denylist needs"
                    ),
                    hint: "name it as REVISION:PATH".to_owned(),
                });
            }
        }
        Ok(())
    }

    fn ask(&self, args: &[&str]) -> Result<String> {
        let mut argv = vec!["git".to_owned(), "--no-pager".to_owned()];
        argv.extend(args.iter().map(|&word| word.to_owned()));
        let spec = ExecRequest {
            program: Some(self.program),
            env: &self.env,
            max_output: ANSWER,
            git: GitAccess::ReadOnly,
            ..ExecRequest::new(&argv, self.cwd, GIT_TIMEOUT)
        };
        let mut out = Vec::new();
        let mut collect = |stream, bytes: &[u8]| {
            if stream == Stream::Stdout {
                out.extend_from_slice(bytes);
            }
        };
        let finished = self
            .runner
            .run(&spec, &mut collect, &CancelToken::default())?;
        if finished.status.exit_code().is_none() {
            return Err(refused("the repository's configuration cannot be listed"));
        }
        String::from_utf8(out).map_err(|_| refused("the repository's configuration is no text"))
    }
}

/// The rule for a git command line, and the words after the subcommand.
pub(super) fn rule_of<'a>(
    rules: &'a [Rule],
    args: &[String],
) -> Result<(&'a Rule, Vec<String>), Refusal> {
    let names: Vec<&str> = rules
        .iter()
        .filter(|rule| rule.program == "git")
        .filter_map(|rule| rule.subcommand.as_deref())
        .collect();
    let no = |word: &str, why: &str| Refusal {
        word: word.to_owned(),
        why: why.to_owned(),
        hint: format!("reading commands are allowed: {}", names.join(", ")),
    };
    let mut words = args.iter().map(String::as_str);
    let subcommand = loop {
        match words.next() {
            None => return Err(no("git", "a subcommand is missing")),
            Some("--no-pager" | "-P" | "--no-optional-locks") => {}
            Some("--version" | "-v") => break "version",
            Some(flag) if flag.starts_with('-') => {
                let why = match flag {
                    "-C" => "the working directory is not the caller's to move",
                    _ if flag.starts_with("-c") || flag.starts_with("--config-env") => {
                        "configuration can start programs"
                    }
                    _ => "not among the flags that are known to be harmless",
                };
                return Err(no(flag, why));
            }
            Some(word) => break word,
        }
    };
    let mut known = rules.iter();
    let rule =
        known.find(|rule| rule.program == "git" && rule.subcommand.as_deref() == Some(subcommand));
    match rule {
        Some(rule) => Ok((rule, words.map(str::to_owned).collect())),
        None => Err(no(subcommand, "not among the commands that only read")),
    }
}

/// What a key of a repository's configuration is set to, if it could start a program or read elsewhere.
fn harmless(key: &str) -> Option<(String, String)> {
    let (section, rest) = key.split_once('.')?;
    let (_, name) = rest.rsplit_once('.')?;
    let value = match (section, name) {
        ("filter", "clean" | "smudge" | "process") => "",
        ("filter", "required") => "false",
        ("diff", "textconv") => "cat",
        ("diff", "command") | ("trailer", "command" | "cmd") | ("credential", "helper") => "",
        ("merge", "driver")
        | ("gpg", _)
        | ("remote", "uploadpack" | "receivepack" | "vcs")
        | ("difftool" | "mergetool" | "guitool" | "browser" | "man" | "tar", _) => "false",
        ("submodule", "update") => "none",
        _ => return None,
    };
    Some((key.to_owned(), value.to_owned()))
}

fn environment(overrides: &[(String, String)]) -> Vec<(String, String)> {
    let mut env: Vec<(String, String)> = ENVIRONMENT
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    env.push(("GIT_CONFIG_COUNT".to_owned(), overrides.len().to_string()));
    for (at, (key, value)) in overrides.iter().enumerate() {
        env.push((format!("GIT_CONFIG_KEY_{at}"), key.clone()));
        env.push((format!("GIT_CONFIG_VALUE_{at}"), value.clone()));
    }
    env
}

#[allow(
    clippy::disallowed_methods,
    reason = "git's own bookkeeping, outside the roots by nature; nothing of it is shown"
)]
fn first_line(file: &Path) -> Option<String> {
    let mut text = String::new();
    let file = std::fs::File::open(file).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    file.take(4096).read_to_string(&mut text).ok()?;
    text.lines().next().map(str::to_owned)
}

fn refused(why: &str) -> Error {
    Error::CommandDenied {
        command: "git".to_owned(),
        why: why.to_owned(),
        hint: "the operator adds it to mcp.tools.allowed_roots, or looks into its configuration"
            .to_owned(),
    }
}
