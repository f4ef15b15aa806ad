//! `te_git`: git commands that only read, in a form in which the repository cannot make git run anything.

use std::borrow::Cow;
use std::time::Duration;

use llmc_enrich::{Condensed, Totals, git};
use llmc_exec::{ExecRequest, GitAccess, RunReport, Stream};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use crate::committed::CheckedRepository;
use crate::cx::Cx;
use crate::error::{Error, ErrorKind, Family, Result};
use crate::render::{AnswerRoom, Render, Rendition, Rest, RestExtent};
use crate::shape::te_output;
use crate::tool::{Effect, Tool};

/// A git that prints more than this is ended.
const MAX_OUTPUT_BYTES: u64 = 16 << 20;

pub(super) struct TeGit;

/// Read-only git (log, diff, …).
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    #[schemars(extend("x-help" = "such as [\"log\", \"-5\"]"))]
    args: Vec<String>,
}

/// What git printed and how it ended.
#[derive(Debug)]
pub(super) struct GitOutput {
    args: Vec<String>,
    printed: Vec<u8>,
    report: RunReport,
}

impl Tool for TeGit {
    const NAME: &'static str = "te_git";
    // It starts a program, but one that can only look: nothing of the repository's runs and nothing is written.
    const EFFECT: Effect = Effect::Reads;
    const FAMILY: Family = Family::Te;
    const ERRORS: &'static [ErrorKind] = &[ErrorKind::CommandDenied, ErrorKind::InvalidPath];
    const KEYWORDS: &'static str = "history blame status commit branch show";
    type Args = Args;
    type Output = GitOutput;

    fn time_limit(cx: &Cx) -> Duration {
        cx.app().config().mcp.exec.wait() + Duration::from_secs(10)
    }

    async fn run(cx: &Cx, args: Args) -> Result<GitOutput> {
        let mut args = args.args;
        if args.first().is_some_and(|word| word == "git") {
            args.remove(0);
        }
        if args.is_empty() {
            return Err(Error::bad_args("args is empty").hint(r#"for example ["log","-5"]"#));
        }
        if args.iter().any(|word| word.contains('\0')) {
            return Err(Error::bad_args("an argument holds a NUL character"));
        }
        let timeout = cx.app().config().mcp.exec.wait();
        cx.blocking(move |cx, cancel| {
            let commands = cx.app().commands()?;
            let cwd = cx.files().roots.open_dir(".")?;
            let repository = CheckedRepository::of(cx, &cwd, cancel)?;
            let git = commands.git(&args, &cwd)?;
            let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
            let mut collect = |stream, bytes: &[u8]| match stream {
                Stream::Stdout => stdout.extend_from_slice(bytes),
                Stream::Stderr => stderr.extend_from_slice(bytes),
            };
            let spec = ExecRequest {
                argv: &git.argv,
                program: Some(&git.program),
                cwd: &cwd,
                timeout,
                env: &git.env,
                max_output: MAX_OUTPUT_BYTES,
                owner: cx.caller().run_owner(),
                git: GitAccess::ReadOnly,
            };
            let report = cx.waiting(|| commands.run(&spec, &mut collect, cancel))?;
            if report.cancelled {
                cancel.check()?;
                return Err(Error::new(ErrorKind::Cancelled, "cancelled"));
            }
            if report.timed_out {
                let message = format!("git: ended after {} s", timeout.as_secs_f64());
                return Err(Error::new(ErrorKind::TimedOut, message)
                    .hint("ask for less: a path after --, -n, a range"));
            }
            repository.refuse_changed(cancel)?;
            Ok(GitOutput {
                args,
                printed: joined(stdout, &stderr),
                report,
            })
        })
        .await
    }
}

te_output!(GitOutput);

impl Render for GitOutput {
    fn render(&self, room: &AnswerRoom<'_>) -> Result<Rendition<'_>> {
        let text = String::from_utf8_lossy(&self.printed);
        let words = self.args.iter().position(|word| !word.starts_with('-'));
        let (subcommand, rest) = match words {
            Some(at) => (self.args[at].as_str(), &self.args[at + 1..]),
            None => ("", &self.args[..]),
        };
        let mut found: Condensed = git::condense(subcommand, rest, &text, room.tokens);
        let mut extent = RestExtent::Everything;
        if self.report.output_capped {
            extent = RestExtent::UntilEnded;
            let until = format!(
                "git was ended after {} MiB of output",
                MAX_OUTPUT_BYTES >> 20
            );
            // What was counted is not all there is, and the size is that of what was kept.
            found.totals = Totals {
                size: Some(self.printed.len() as u64),
                ..Totals::default()
            };
            found.shown = found.body.len() as u64;
            found
                .body
                .insert_str(0, &format!("({until}; this is of that much)\n"));
            found.truncated = true;
            found
                .breadcrumbs
                .push(format!("{until}: ask for less, such as a path or --stat"));
        }
        if !self.report.status.is_success() {
            if !found.body.is_empty() && !found.body.ends_with('\n') {
                found.body.push('\n');
            }
            found.body.push_str(&self.report.status.to_string());
            found.body.push('\n');
        }
        let odd = matches!(text, Cow::Owned(_));
        if odd {
            found
                .breadcrumbs
                .push("not UTF-8, odd bytes shown as \u{fffd}".to_owned());
        }
        let kept = found.truncated || odd;
        let rest = kept.then(|| {
            Rest::bytes("command", self.printed.as_slice())
                .about("command", format!("git {}", self.args.join(" ")))
                .extent(extent)
        });
        Ok(Rendition::te("git", found).rest(rest))
    }
}

/// What a program gets is the text.
impl Serialize for GitOutput {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(&String::from_utf8_lossy(&self.printed))
    }
}

/// Both streams, stderr last.
fn joined(mut stdout: Vec<u8>, stderr: &[u8]) -> Vec<u8> {
    if !stdout.is_empty() && !stdout.ends_with(b"\n") && !stderr.is_empty() {
        stdout.push(b'\n');
    }
    stdout.extend_from_slice(stderr);
    stdout
}
