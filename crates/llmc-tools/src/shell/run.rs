//! One command, from the caller's words to its output in an envelope.

use std::time::{Duration, Instant};

use llmc_envelope::receipt::Receipt;
use llmc_exec::{Follower, Quarantined, Runner, Spec, split_words};
use llmc_host::CancelToken;
use llmc_observe::{CallFilter, EnvelopeMode as Mode};
use serde_json::json;

use super::document::{Told, document};
use super::flags::Flags;
use super::served::{Ended, Order, ROLE, Word};
use super::spool::Spool;
use super::wrap::{Ending, Shape, Wish, Wrapped, plain};
use super::{foreign, report};
use crate::answer::{Answer, Facts};
use crate::catalog::te_handle;
use crate::cx::{Cx, Form};
use crate::error::{Error, Kind, Result};
use crate::te;

/// The envelope's own name, which is always known.
const TE: &str = "te";
/// A command that prints more than this is ended: no more of it could be kept.
pub(super) const MAX_OUTPUT: u64 = 256 << 20;

/// A command as a caller asks for it.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) argv: Vec<String>,
    pub(crate) cwd: Option<String>,
    pub(crate) timeout: Option<f64>,
    pub(crate) shape: Shape,
}

/// A command that has run.
#[derive(Debug)]
pub(crate) struct Ran {
    program: String,
    pub(crate) ending: Ending,
    pub(crate) wrapped: Wrapped,
}

/// The words of a command, given one way or the other.
pub(crate) fn words(command: Option<String>, argv: Option<Vec<String>>) -> Result<Vec<String>> {
    let argv = match (argv, command) {
        (Some(argv), None) => argv,
        (None, Some(command)) => split_words(&command)?,
        _ => return Err(Error::bad_args("give either command or argv")),
    };
    match argv.is_empty() {
        true => Err(Error::bad_args("the command is empty")),
        false => Ok(argv),
    }
}

/// The command's name without its directory, for statistics.
pub(super) fn program_name(argv: &[String]) -> String {
    let first = argv.first().map_or("", String::as_str);
    let name = first.rsplit('/').next().unwrap_or(first);
    name.chars().take(40).collect()
}

/// The time a command gets, and the key that says so if it is less than was asked for.
fn time_limit(cx: &Cx, asked: Option<f64>) -> Result<(Duration, Option<&'static str>)> {
    let mcp = &cx.app().config().mcp;
    let (most, key) = match mcp.te.enabled && mcp.te.timeout() < mcp.exec.wait() {
        true => (mcp.te.timeout(), "mcp.te.timeout"),
        false => (mcp.exec.wait(), "mcp.exec.wait_s"),
    };
    match asked {
        None => Ok((most, None)),
        Some(seconds) if !(seconds.is_finite() && seconds > 0.0) => {
            Err(Error::bad_args("timeout must be above 0 seconds"))
        }
        Some(seconds) => {
            let asked = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
            Ok((asked.min(most), (asked > most).then_some(key)))
        }
    }
}

/// How long a call may take that runs a command: the command has its own limit, this one is for what comes around it.
pub(crate) fn call_limit(cx: &Cx) -> Duration {
    cx.app().config().mcp.exec.wait() + Duration::from_secs(10)
}

/// Carries out a command, or what `te` is asked for by its flags.
pub(crate) fn answer(cx: &Cx, mut asked: Asked, stop: &CancelToken) -> Result<Answer> {
    if asked.argv[0] != TE {
        return Ok(run(cx, &asked, stop)?.answer(cx));
    }
    let flags = Flags::parse(&asked.argv[1..])?;
    if let Some(handle) = &flags.handle {
        return te_handle::retrieve_finished(cx, handle, flags.chunk, stop);
    }
    let said = |text: String| Ok(Answer::text(&text, &Receipt::new(), Facts::default()));
    if flags.help || flags.version {
        return said(report::HELP.to_owned());
    }
    if flags.list_handles {
        return said(report::handles(
            &cx.app().handles()?.list(&cx.caller().principal)?,
        ));
    }
    if flags.stats {
        let session = CallFilter {
            session: Some(cx.caller().session.clone()),
            ..CallFilter::default()
        };
        let summary = cx.app().telemetry()?.summary(&session);
        return said(summary.map_err(report::unavailable)?.stats_text());
    }
    asked.argv = flags.command;
    asked.shape = match (flags.raw, asked.shape) {
        (true, Shape::Fit | Shape::Envelope) => Shape::Plain,
        (false, Shape::Fit) => Shape::Envelope,
        (_, shape) => shape,
    };
    let started = Instant::now();
    let ran = run(cx, &asked, stop)?;
    if !flags.json || cx.caller().form == Form::Data {
        return Ok(ran.answer(cx));
    }
    let told = Told {
        argv: &asked.argv,
        mode: match ran.wrapped.enriched {
            true => Mode::Enriched,
            false => Mode::Raw,
        },
        ending: ran.ending,
        wrapped: &ran.wrapped,
        latency: started.elapsed(),
        agent: &cx.caller().agent,
        budget_remaining: crate::budget::session_budget_left(cx),
    };
    let text = document(&told).to_string();
    let facts = ran.facts();
    Ok(te::served(cx, text, facts))
}

/// Runs a command inside the boundary and wraps what it prints.
pub(crate) fn run(cx: &Cx, asked: &Asked, stop: &CancelToken) -> Result<Ran> {
    let (timeout, lowered) = time_limit(cx, asked.timeout)?;
    let mut notes = Vec::new();
    if let Some(key) = lowered {
        notes.push(format!(
            "timeout lowered to {} s ({key})",
            timeout.as_secs()
        ));
    }
    let cwd = cx
        .files()
        .roots
        .open_dir(asked.cwd.as_deref().unwrap_or("."))?;
    let env = cx.caller().environment();
    let spec = Spec {
        argv: &asked.argv,
        program: None,
        cwd: &cwd,
        timeout,
        env: &env,
        max_output: MAX_OUTPUT,
    };
    let runner = cx.app().commands()?;
    let settings = &cx.app().config().mcp.te;
    let (ended, quarantined) = match cx.app().stores() {
        _ if settings.enabled && !settings.script_path.is_empty() => {
            match foreign::run(cx, asked, &spec, &notes, stop)? {
                Some(done) => done,
                None => here(cx, runner, asked, &spec, notes, stop)?,
            }
        }
        Some(state) if settings.enabled && runner.can_hand_over() => {
            let keep = &cx.app().config().mcp.handles;
            let order = Order {
                argv: asked.argv.clone(),
                shape: asked.shape,
                budget: te::budget(cx),
                principal: cx.caller().principal.clone(),
                state: state.to_owned(),
                ttl: keep.ttl(),
                max_bytes: keep.max_bytes,
                notes,
            };
            followed(runner, &spec, &order, stop)?
        }
        _ => here(cx, runner, asked, &spec, notes, stop)?,
    };
    if ended.cancelled {
        stop.check()?;
        return Err(Error::new(Kind::Cancelled, "cancelled"));
    }
    if ended.timed_out {
        return Err(timed_out(&asked.argv[0], &ended, timeout));
    }
    let mut wrapped = ended.wrapped;
    let mut late = Vec::new();
    if ended.capped {
        late.push(format!(
            "ended after {} MiB of output; no more of it is kept",
            MAX_OUTPUT >> 20
        ));
        wrapped.truncated = true;
    }
    let roots = &cx.files().roots;
    let undone = |planted: &Quarantined| {
        format!(
            "{} is protected; the change was undone",
            roots.display_absolute(&planted.path)
        )
    };
    late.extend(quarantined.iter().map(undone));
    late.extend(by_design(&asked.argv, ended.ending));
    for note in late {
        // Breadcrumbs are the last lines of an envelope, so one more can follow.
        match wrapped.enriched {
            true => wrapped.stdout.push_str(&te::crumb(&note)),
            false => wrapped.notes.push(note),
        }
    }
    Ok(Ran {
        program: program_name(&asked.argv),
        ending: ended.ending,
        wrapped,
    })
}

/// What git says when it may not write its own configuration helps nobody.
fn by_design(argv: &[String], ending: Ending) -> Option<String> {
    let (program, rest) = argv.split_first()?;
    let command = rest.iter().find(|word| !word.starts_with('-'))?;
    let configures = ["config", "remote", "init"].contains(&command.as_str());
    (program_name(std::slice::from_ref(program)) == "git" && configures && ending.code() != Some(0)).then(
        || {
            "git's configuration and hooks are protected from commands: git config, remote and init fail by design; \
             ask the user to run it"
                .to_owned()
        },
    )
}

/// By a `te` of our own.
fn followed(
    runner: &Runner,
    spec: &Spec<'_>,
    order: &Order,
    stop: &CancelToken,
) -> Result<(Ended, Vec<Quarantined>)> {
    let args = [TE, ROLE].map(str::to_owned);
    let follower = Follower {
        args: &args,
        env: spec.env,
    };
    let done = runner.run_followed(spec, &follower, order, Word::was_light, stop)?;
    match (done.word, done.stopped) {
        (_, Some(llmc_host::Error::Cancelled)) => Err(Error::new(Kind::Cancelled, "cancelled")),
        (Some(word), stopped) => {
            let mut ended = word.into_result()?;
            ended.timed_out |= stopped.is_some();
            Ok((ended, done.quarantined))
        }
        (None, Some(stopped)) => Err(stopped.into()),
        (None, None) => Err(Error::new(
            Kind::Internal,
            "te ended before the command did, and the command was ended",
        )
        .hint("try again; what the command did until then stays done")),
    }
}

/// In this process, where no other can help.
fn here(
    cx: &Cx,
    runner: &Runner,
    asked: &Asked,
    spec: &Spec<'_>,
    notes: Vec<String>,
    stop: &CancelToken,
) -> Result<(Ended, Vec<Quarantined>)> {
    let mut spool = Spool::new(cx.app().stores().map(ToOwned::to_owned));
    let finished = runner.run(spec, &mut |stream, bytes| spool.push(stream, bytes), stop)?;
    let wish = Wish {
        argv: &asked.argv,
        shape: asked.shape,
        budget: te::budget(cx),
        principal: &cx.caller().principal,
        notes,
        say_ending: true,
    };
    let store = || {
        let store = cx.app().handles().map_err(|error| error.message)?;
        Ok(store.clone())
    };
    let source = |path: &str| match &asked.cwd {
        Some(cwd) => te::source(cx, &format!("{cwd}/{path}"), stop),
        None => te::source(cx, path, stop),
    };
    let ended = Ended::of(&finished, spool, wish, &store, source);
    Ok((ended, finished.quarantined))
}

fn timed_out(name: &str, ended: &Ended, timeout: Duration) -> Error {
    let [stdout, stderr] = &ended.ends;
    Error::new(
        Kind::TimedOut,
        format!("{name}: ended after {} s", timeout.as_secs_f64()),
    )
    .hint("give a longer timeout, or a command that does less")
    .with("stdout", stdout.clone())
    .with("stderr", stderr.clone())
}

impl Ran {
    fn facts(&self) -> Facts {
        Facts {
            truncated: self.wrapped.truncated,
            handle: self.wrapped.handle,
            withheld_bytes: self.wrapped.withheld_bytes,
            program: Some(self.program.clone()),
            ..Facts::default()
        }
    }

    /// What the caller gets.
    pub(crate) fn answer(self, cx: &Cx) -> Answer {
        let facts = self.facts();
        let wrapped = self.wrapped;
        if cx.caller().form == Form::Data {
            let (out, err) = (wrapped.stdout, wrapped.stderr);
            let data = match wrapped.enriched {
                true => out.into(),
                false => json!({"stdout": out, "stderr": err, "exit_code": self.ending.code()}),
            };
            return Answer::data(data, facts);
        }
        if wrapped.enriched {
            return te::served(cx, wrapped.stdout, facts);
        }
        let mut receipt = Receipt::new();
        if let Some((shown, total)) = wrapped.cut {
            receipt = receipt.shown(shown, total, "lines");
        }
        receipt = wrapped
            .notes
            .iter()
            .fold(receipt, |receipt, note| receipt.note(note));
        if let Some(handle) = wrapped.handle {
            receipt = receipt.handle(handle);
        }
        for (sign, note) in [
            ('\u{1b}', "terminal escapes left out"),
            ('\u{fffd}', "not UTF-8, odd bytes shown as \u{fffd}"),
        ] {
            if wrapped.stdout.contains(sign) || wrapped.stderr.contains(sign) {
                receipt = receipt.note(note);
            }
        }
        let text = plain(&wrapped.stdout, &wrapped.stderr, self.ending);
        Answer::text(&text, &receipt, facts)
    }
}
