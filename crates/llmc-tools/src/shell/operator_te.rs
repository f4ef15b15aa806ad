//! A `te` program that the operator configured (`mcp.te.script_path`).
//!
//! It is a program like any other: the command it is given passes the same allowlist first, it runs inside the boundary,
//! and the server stores handles for it. It is asked for JSON as S0 describes it, unless the operator says otherwise.

use std::time::Duration;

use llmc_exec::{ExecRequest, ExitStatus, Program, Stream};
use llmc_host::CancelToken;
use serde::Deserialize;
use serde_json::Value;

use super::execute::{Capture, MAX_OUTPUT_BYTES};
use super::spool::Spool;
use crate::cx::Cx;
use crate::error::{Error, ErrorKind, Result};

/// How much of its JSON answer is read.
const MAX_JSON_BYTES: usize = 8 << 20;

/// The part of its answer that matters.
#[derive(Debug, Deserialize)]
struct TeAnswer {
    #[serde(default)]
    stdout: String,
    #[serde(default)]
    stderr: String,
    exit_code: Option<i32>,
    #[serde(default)]
    enrichment: Option<Value>,
}

pub(super) fn is_configured(cx: &Cx) -> bool {
    let te = &cx.app().config().mcp.te;
    te.enabled && !te.script_path.is_empty()
}

/// Runs a command through the operator's `te`, which is ended after the wait; `None` if that fails and the command is to be
/// run directly instead.
pub(super) fn capture(
    cx: &Cx,
    spec: &ExecRequest<'_>,
    wait: Duration,
    cancel: &CancelToken,
) -> Result<Option<Capture>> {
    cx.app().commands()?.check(spec)?;
    let done = find_program(cx).and_then(|program| run_program(cx, &program, spec, wait, cancel));
    match done {
        Ok(capture) => Ok(Some(capture)),
        Err(error) if matches!(error.kind, ErrorKind::Cancelled | ErrorKind::TimedOut) => {
            Err(error)
        }
        Err(error) if cx.app().config().mcp.te.passthrough_on_failure => {
            tracing::warn!(error = %error, "the te program failed; the command runs directly");
            Ok(None)
        }
        Err(error) => Err(error.hint(
            "the operator corrects mcp.te.script_path, or sets mcp.te.passthrough_on_failure = true",
        )),
    }
}

fn find_program(cx: &Cx) -> Result<Program> {
    let path = cx
        .app()
        .loaded()
        .resolve(&cx.app().config().mcp.te.script_path);
    Ok(cx.app().commands()?.find_trusted(&path)?)
}

fn run_program(
    cx: &Cx,
    program: &Program,
    spec: &ExecRequest<'_>,
    wait: Duration,
    cancel: &CancelToken,
) -> Result<Capture> {
    let json = cx.app().config().mcp.te.json_mode;
    let mut argv = vec![program.name.clone()];
    argv.extend(json.then(|| "--json".to_owned()));
    argv.extend(spec.argv.iter().cloned());
    let spec = ExecRequest {
        argv: &argv,
        program: Some(program),
        cwd: spec.cwd,
        timeout: wait.min(cx.app().config().mcp.te.timeout()),
        env: spec.env,
        max_output: MAX_OUTPUT_BYTES,
        owner: spec.owner,
        git: spec.git,
    };
    let mut spool = Spool::new(cx.app().stores().map(ToOwned::to_owned));
    let mut answer = Vec::new();
    let mut on_output = |stream, bytes: &[u8]| match stream {
        Stream::Stdout if json => {
            let room = MAX_JSON_BYTES.saturating_sub(answer.len()).min(bytes.len());
            answer.extend_from_slice(&bytes[..room]);
        }
        stream => spool.push(stream, bytes),
    };
    let commands = cx.recorded_commands()?;
    let mut report = cx.waiting(|| commands.run(&spec, &mut on_output, cancel))?;
    if report.cancelled {
        cancel.check()?;
        return Err(Error::new(ErrorKind::Cancelled, "cancelled"));
    }
    if report.timed_out {
        let message = format!("te: ended after {} s", spec.timeout.as_secs_f64());
        return Err(Error::new(ErrorKind::TimedOut, message)
            .hint("give a longer timeout; the operator's limit is mcp.te.timeout"));
    }
    let mut enrichment = None;
    if json {
        let answer: TeAnswer = serde_json::from_slice(&answer).map_err(|error| {
            Error::new(
                ErrorKind::Internal,
                format!("the te program gave no JSON: {error}"),
            )
        })?;
        spool = Spool::new(cx.app().stores().map(ToOwned::to_owned));
        spool.push(Stream::Stdout, answer.stdout.as_bytes());
        spool.push(Stream::Stderr, answer.stderr.as_bytes());
        if let Some(code) = answer.exit_code {
            report.status = ExitStatus::Exited(code);
        }
        enrichment = answer.enrichment.filter(Value::is_object);
    }
    Ok(Capture {
        status: Some(report.status),
        spool,
        quarantined: report.quarantined,
        notes: report.notes,
        output_capped: report.output_capped,
        proc_id: None,
        enrichment,
    })
}
