//! A `te` that the operator brought (`mcp.te.script_path`).
//!
//! It is a program like any other: what it starts was checked before, it runs inside the boundary, and handles are
//! stored for it by the server. It is asked for JSON as S0 describes it, unless the operator says otherwise.

use llmc_exec::{Program, Quarantined, Spec, Stream};
use llmc_host::CancelToken;
use serde::Deserialize;

use super::run::{Asked, MAX_OUTPUT};
use super::served::Ended;
use super::spool::Spool;
use super::wrap::{Ending, Wish, wrap};
use crate::cx::Cx;
use crate::error::{Error, Kind, Result};
use crate::te;

/// What is read of its answer.
const ANSWER: usize = 8 << 20;

/// The part of its answer that matters.
#[derive(Debug, Deserialize)]
struct Told {
    #[serde(default)]
    stdout: String,
    #[serde(default)]
    stderr: String,
    exit_code: Option<i32>,
}

/// Runs a command through the operator's `te`; nothing if that fails and the command is to be run directly instead.
pub(super) fn run(
    cx: &Cx,
    asked: &Asked,
    spec: &Spec<'_>,
    notes: &[String],
    stop: &CancelToken,
) -> Result<Option<(Ended, Vec<Quarantined>)>> {
    let runner = cx.app().commands()?;
    // The same gate as without it: what it is given to run must be allowed.
    runner.check(spec)?;
    let done = script(cx).and_then(|program| through(cx, &program, asked, spec, notes, stop));
    match done {
        Ok(done) => Ok(Some(done)),
        Err(error) if matches!(error.kind, Kind::Cancelled | Kind::TimedOut) => Err(error),
        Err(error) if cx.app().config().mcp.te.passthrough_on_failure => {
            tracing::warn!(error = %error, "the te program failed; the command runs directly");
            Ok(None)
        }
        Err(error) => Err(error.hint(
            "the operator mends mcp.te.script_path, or sets mcp.te.passthrough_on_failure = true",
        )),
    }
}

fn script(cx: &Cx) -> Result<Program> {
    let path = cx
        .app()
        .loaded()
        .resolve(&cx.app().config().mcp.te.script_path);
    Ok(cx.app().commands()?.find_trusted(&path)?)
}

fn through(
    cx: &Cx,
    program: &Program,
    asked: &Asked,
    spec: &Spec<'_>,
    notes: &[String],
    stop: &CancelToken,
) -> Result<(Ended, Vec<Quarantined>)> {
    let json = cx.app().config().mcp.te.json_mode;
    let mut argv = vec![program.name.clone()];
    argv.extend(json.then(|| "--json".to_owned()));
    argv.extend(asked.argv.iter().cloned());
    let spec = Spec {
        argv: &argv,
        program: Some(program),
        cwd: spec.cwd,
        timeout: spec.timeout,
        env: spec.env,
        max_output: MAX_OUTPUT,
    };
    let mut spool = Spool::new(cx.app().stores().map(ToOwned::to_owned));
    let mut answer = Vec::new();
    let mut take = |stream, bytes: &[u8]| match stream {
        Stream::Stdout if json => {
            let room = ANSWER.saturating_sub(answer.len()).min(bytes.len());
            answer.extend_from_slice(&bytes[..room]);
        }
        stream => spool.push(stream, bytes),
    };
    let mut finished = cx.app().commands()?.run(&spec, &mut take, stop)?;
    if json && !finished.timed_out && !finished.cancelled {
        let told: Told = serde_json::from_slice(&answer).map_err(|error| {
            Error::new(
                Kind::Internal,
                format!("the te program gave no JSON: {error}"),
            )
        })?;
        spool = Spool::new(cx.app().stores().map(ToOwned::to_owned));
        spool.push(Stream::Stdout, told.stdout.as_bytes());
        spool.push(Stream::Stderr, told.stderr.as_bytes());
        finished.exit_code = told.exit_code.or(finished.exit_code);
    }
    let ending = Ending {
        exit_code: finished.exit_code,
        signal: finished.signal,
    };
    let mut ended = Ended {
        ending,
        timed_out: finished.timed_out,
        capped: finished.output_capped,
        cancelled: finished.cancelled,
        ..Ended::default()
    };
    if ended.timed_out || ended.cancelled {
        ended.ends = spool.ends(4096);
        return Ok((ended, finished.quarantined));
    }
    let wish = Wish {
        argv: &asked.argv,
        shape: asked.shape,
        budget: te::budget(cx),
        principal: &cx.caller().principal,
        notes: notes.to_vec(),
        say_ending: true,
    };
    let store = || Ok(cx.app().handles().map_err(|error| error.message)?.clone());
    ended.wrapped = wrap(wish, &mut spool, ending, &store, |_| None);
    Ok((ended, finished.quarantined))
}
