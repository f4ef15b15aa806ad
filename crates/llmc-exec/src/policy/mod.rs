//! Which arguments an allowed program may be given.
//!
//! The kernel bounds what a command can touch; the policy says what it may be asked to do. In the restricted profile every
//! program has a rule, a list of flags known to be harmless, and whatever is not in it is refused. The rules that come
//! with the server are in `rules.toml` and `git.toml`; the operator's policy file has the same form and adds to them, or
//! forbids. Every rule carries examples; a server whose rules contradict their examples does not start.
//!
//! - `rule`: a rule, and the check of a command line against it
//! - `read`: from TOML to rules
//! - `places`: paths in command lines
//! - `sed`: scripts that only print
//! - `launchers`: programs that no rule can bound
//! - `git`: git in a form in which a repository cannot make it run anything

mod git;
mod launchers;
mod places;
mod read;
mod rule;
mod sed;

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Arc, OnceLock};

pub(super) use self::launchers::is_launcher;
use self::places::Places;
use self::read::{Deny, Examples, File, Written};
use self::rule::{Refusal, Rule};
use super::programs::{Program, Programs};
use super::settings::{Profile, Settings};
use super::word_split::clipped;
use crate::error::{Error, Result};
use llmc_config::{LinkPolicy, RegularFile, read_regular_file};
use llmc_host::{CancelToken, OpenDir, PathRules, Roots};

pub use self::git::GitCommand;

/// The largest policy file that is read.
const MAX_FILE: u64 = 1 << 20;

/// What callers may ask of programs.
#[derive(Debug)]
pub(super) struct Policy {
    profile: Profile,
    rules: Vec<Rule>,
    deny: Vec<Deny>,
    roots: Arc<Roots>,
}

impl Policy {
    /// Reads the rules and tries their examples. `settings.allowlist` gets the programs that the operator's rules add.
    ///
    /// # Errors
    /// [`Error::BadPolicy`] for a file that cannot be used, an example that fails, or a list with a program in it that no
    /// rule can bound.
    pub(super) fn open(settings: &mut Settings) -> Result<Policy> {
        let mut rules: Vec<Rule> = built_in()?.iter().map(|rule| (*rule).clone()).collect();
        let mut deny = Vec::new();
        if let Some(path) = &settings.policy_file {
            let File {
                allow,
                deny: denied,
            } = read_file(path)?;
            for Written { rule, .. } in &allow {
                if settings.profile == Profile::Restricted {
                    refuse_launcher(&rule.program)?;
                    add(&mut settings.allowlist, &rule.program);
                }
                merge(&mut rules, rule);
            }
            for written in &allow {
                try_examples(&rules, &written.examples)?;
            }
            for denied in &denied {
                try_denials(denied)?;
            }
            deny = denied;
        }
        if settings.profile == Profile::Restricted {
            for name in &settings.allowlist {
                check_listed(name, &rules)?;
            }
        }
        let roots = match &settings.roots {
            Some(roots) => roots.clone(),
            None => {
                let dirs = settings.write_roots.iter().chain(&settings.read_roots);
                let dirs: Vec<_> = dirs.cloned().collect();
                Arc::new(Roots::open(
                    Path::new("/"),
                    &dirs,
                    Arc::new(PathRules::default()),
                )?)
            }
        };
        Ok(Policy {
            profile: settings.profile,
            rules,
            deny,
            roots,
        })
    }

    /// Refuses programs that turn out to be an interpreter under another name.
    pub(super) fn check_programs(&self, programs: &Programs) -> Result<()> {
        if self.profile != Profile::Restricted {
            return Ok(());
        }
        for program in &programs.found {
            let real = std::fs::canonicalize(&program.path).unwrap_or_default();
            let name = real.file_name().unwrap_or_default().to_string_lossy();
            // A multi-call binary runs the tool it is named after.
            let is_box = matches!(name.as_ref(), "busybox" | "toybox" | "coreutils");
            if !is_box && base_name(&program.name) != name {
                refuse_launcher(&name)?;
            }
        }
        Ok(())
    }

    /// What the operator forbids in every profile.
    fn check_denials(&self, program: &str, args: &[String]) -> Result<()> {
        match self.deny.iter().find(|deny| deny.hits(program, args)) {
            None => Ok(()),
            Some(deny) => Err(Error::CommandDenied {
                command: clipped(&format!("{program} {}", args.join(" "))),
                why: match deny.words.is_empty() {
                    true => "the operator's policy forbids it".to_owned(),
                    false => format!("the operator's policy forbids {}", deny.words.join(", ")),
                },
                hint: "do without it, or ask the operator (mcp.exec.policy_file)".to_owned(),
            }),
        }
    }

    /// The arguments a program is really given.
    fn check(&self, rule: &Rule, args: &[String], cwd: &OpenDir) -> Result<Vec<String>> {
        let dir = cwd.path.absolute();
        let places = Places::Real {
            roots: &self.roots,
            cwd: &dir,
        };
        rule.check(args, &places, self.roots.rules().denied_names())
            .map_err(|refusal| denied(&rule.name(), refusal))
    }

    fn rule_of(&self, program: &str) -> Option<&Rule> {
        let mut rules = self.rules.iter();
        rules.find(|rule| rule.program == program && rule.subcommand.is_none())
    }
}

/// The arguments to run, and the variables beside the usual ones.
#[derive(Debug)]
pub(super) struct Allowed {
    pub(super) argv: Vec<String>,
    pub(super) env: Vec<(String, String)>,
}

/// Who picked the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    /// By name, so the policy decides.
    Caller,
    /// The server's own choice, with arguments that it has checked.
    Server,
}

impl super::Runner {
    /// Applies the policy to one command.
    pub(super) fn allow(
        &self,
        program: &Program,
        choice: Choice,
        argv: &[String],
        cwd: &OpenDir,
    ) -> Result<Allowed> {
        let policy = self.policy();
        let name = base_name(&program.name);
        let args = argv.get(1..).unwrap_or_default();
        if choice == Choice::Caller {
            policy.check_denials(name, args)?;
        }
        if choice == Choice::Server || policy.profile == Profile::Unrestricted {
            return Ok(Allowed {
                argv: argv.to_vec(),
                env: Vec::new(),
            });
        }
        if name == "git" {
            // The kernel keeps git from reading outside the roots; this says why.
            policy
                .roots
                .check_repositories(cwd, &CancelToken::default())?;
            return self.neutral_git(program, args, cwd);
        }
        let Some(rule) = policy.rule_of(name) else {
            return Err(Error::CommandDenied {
                command: clipped(name),
                why: "no rule says which of its arguments are harmless".to_owned(),
                hint: "the operator adds a rule to mcp.exec.policy_file".to_owned(),
            });
        };
        let mut out = argv[..1].to_vec();
        out.extend(policy.check(rule, args, cwd)?);
        Ok(Allowed {
            argv: out,
            env: Vec::new(),
        })
    }
}

/// The rules that come with the server, their examples tried.
fn built_in() -> Result<&'static Vec<Rule>> {
    static RULES: OnceLock<Result<Vec<Rule>, String>> = OnceLock::new();
    let rules = RULES.get_or_init(|| {
        let mut rules = Vec::new();
        let mut written = Vec::new();
        for (file, text) in [
            ("rules.toml", include_str!("rules.toml")),
            ("git.toml", include_str!("git.toml")),
        ] {
            written.extend(read::read(file, text)?.allow);
        }
        rules.extend(written.iter().map(|written| written.rule.clone()));
        for written in &written {
            try_examples(&rules, &written.examples).map_err(|error| error.to_string())?;
        }
        Ok(rules)
    });
    rules.as_ref().map_err(|what| bad(what.clone()))
}

fn read_file(path: &Path) -> Result<File> {
    let shown = path.display();
    let unreadable = |source: std::io::Error| match source.kind() {
        ErrorKind::InvalidInput | ErrorKind::FileTooLarge => bad(format!("{shown}: {source}")),
        _ => Error::UnreadablePolicy {
            path: path.to_owned(),
            source,
        },
    };
    let text = read_regular_file(path, MAX_FILE, LinkPolicy::Follow)
        .and_then(RegularFile::into_text)
        .map_err(unreadable)?;
    read::read(&shown.to_string(), &text).map_err(bad)
}

/// Adds a rule of the operator's to those that are there: flags to a known program, or a new program.
fn merge(rules: &mut Vec<Rule>, new: &Rule) {
    let same = |rule: &&mut Rule| rule.program == new.program && rule.subcommand == new.subcommand;
    match rules.iter_mut().find(same) {
        None => rules.push(new.clone()),
        Some(rule) => {
            rule.flags.extend(new.flags.clone());
            rule.refused.retain(|flag, _| !new.flags.contains_key(flag));
            rule.refused.extend(new.refused.clone());
            rule.first.extend(new.first.iter().cloned());
        }
    }
}

/// Runs a rule's examples.
fn try_examples(rules: &[Rule], examples: &Examples) -> Result<()> {
    let allowed = |argv: &[String]| -> Result<(), Refusal> {
        let (program, args) = argv
            .split_first()
            .map_or(("", argv), |(first, rest)| (first.as_str(), rest));
        let (rule, args) = match program {
            "git" => git::rule_of(rules, args)?,
            _ => {
                let mut known = rules.iter();
                let rule = known.find(|rule| rule.program == program && rule.subcommand.is_none());
                let missing = || Refusal {
                    word: program.to_owned(),
                    why: "there is no rule for it".to_owned(),
                    hint: String::new(),
                };
                (rule.ok_or_else(missing)?, args.to_vec())
            }
        };
        rule.check(&args, &Places::Text, &[]).map(|_| ())
    };
    for argv in &examples.matching {
        if let Err(refusal) = allowed(argv) {
            return Err(bad(format!(
                "{}: match: {argv:?} is refused: {}: {}",
                examples.place, refusal.word, refusal.why
            )));
        }
    }
    for argv in &examples.not_matching {
        if allowed(argv).is_ok() {
            return Err(bad(format!(
                "{}: no_match: {argv:?} is let through",
                examples.place
            )));
        }
    }
    Ok(())
}

fn try_denials(deny: &Deny) -> Result<()> {
    let place = &deny.examples.place;
    let hits = |argv: &[String]| deny.hits(&deny.program, argv.get(1..).unwrap_or_default());
    if let Some(argv) = deny.examples.matching.iter().find(|argv| !hits(argv)) {
        return Err(bad(format!("{place}: match: {argv:?} is not forbidden")));
    }
    if let Some(argv) = deny.examples.not_matching.iter().find(|argv| hits(argv)) {
        return Err(bad(format!("{place}: no_match: {argv:?} is forbidden")));
    }
    Ok(())
}

impl Deny {
    fn hits(&self, program: &str, args: &[String]) -> bool {
        if self.program != program {
            return false;
        }
        if let Some(subcommand) = &self.subcommand
            && !args.iter().any(|word| word == subcommand)
        {
            return false;
        }
        let glued = |word: &String, flag: &String| {
            word.strip_prefix(flag.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
        };
        self.words.is_empty()
            || args
                .iter()
                .any(|word| self.words.iter().any(|flag| glued(word, flag)))
    }
}

/// Whether a restricted list may hold this name.
fn check_listed(name: &str, rules: &[Rule]) -> Result<()> {
    refuse_launcher(name)?;
    let name = base_name(name);
    if rules.iter().any(|rule| rule.program == name) {
        return Ok(());
    }
    let known: BTreeSet<&str> = rules.iter().map(|rule| rule.program.as_str()).collect();
    let known: Vec<&str> = known.into_iter().collect();
    Err(Error::BadPolicy {
        what: format!(
            "{name} in mcp.tools.run_cmd_allowlist: the restricted profile has no rule for its arguments"
        ),
        hint: format!(
            "take it off the list, or write a rule with examples in mcp.exec.policy_file; rules exist for {}",
            known.join(", ")
        ),
    })
}

fn refuse_launcher(name: &str) -> Result<()> {
    match is_launcher(name) {
        false => Ok(()),
        true => Err(Error::BadPolicy {
            what: format!(
                "{name} starts other programs, so the restricted profile cannot allow it"
            ),
            hint: "take it off mcp.tools.run_cmd_allowlist, or set mcp.exec.profile = \"unrestricted\"".to_owned(),
        }),
    }
}

fn denied(name: &str, refusal: Refusal) -> Error {
    let command = match refusal.word == name {
        true => name.to_owned(),
        false => clipped(&format!("{name} {}", refusal.word)),
    };
    Error::CommandDenied {
        command,
        why: refusal.why,
        hint: refusal.hint,
    }
}

fn add(list: &mut Vec<String>, name: &str) {
    if !list.iter().any(|known| base_name(known) == name) {
        list.push(name.to_owned());
    }
}

fn base_name(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

fn bad(what: String) -> Error {
    Error::BadPolicy {
        what,
        hint: "correct the rule; docs/policy.md describes the form".to_owned(),
    }
}

#[cfg(test)]
mod tests;
