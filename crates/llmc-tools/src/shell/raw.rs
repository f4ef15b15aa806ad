//! A command for a script's `subprocess`: its outputs byte for byte, and an end when the script no longer waits. One that runs
//! longer than any call waits goes on in the background.

use std::time::{Duration, Instant};

use llmc_exec::{ExitStatus, Io, ProcessOptions};
use llmc_host::CancelToken;

use super::condense::OutputForm;
use super::execute::{
    CommandRequest, MAX_OUTPUT_BYTES, RING_BYTES, feed, go_on, keep_left, next_calls, taken_away,
};
use super::line::CommandWords;
use super::refusals::{self, git as git_refusal};
use super::spool::SharedSpool;
use super::wait::{WaitLimit, Waited, kill, wait_for_end};
use crate::cx::Cx;
use crate::error::{Error, ErrorKind, Result};

/// The most of both outputs together that a script is given.
const MAX_CONTENT_BYTES: u64 = 64 << 20;

/// A command as a script's `subprocess` asks for it.
#[derive(Debug)]
pub(crate) struct RawRequest {
    pub(crate) words: CommandWords,
    pub(crate) cwd: Option<String>,
    /// Its standard input; closed when absent.
    pub(crate) input: Option<Vec<u8>>,
    /// Both outputs as one, as with `2>&1`.
    pub(crate) merged: bool,
}

/// How a command ended, and its outputs.
#[derive(Debug)]
pub(crate) struct RawOutput {
    pub(crate) status: ExitStatus,
    pub(crate) contents: [Vec<u8>; 2],
}

/// Runs a command to its end. A script that no longer waits for it ends it and gets what it has printed.
pub(crate) fn run_raw(cx: &Cx, request: RawRequest, cancel: &CancelToken) -> Result<RawOutput> {
    let cwd = cx
        .files()
        .roots
        .open_dir(request.cwd.as_deref().unwrap_or("."))?;
    git_refusal::check(cx, &request.words, &cwd.path.absolute())?;
    let env = cx.caller().environment();
    let spec = cx.caller().exec_request(&request.words.argv, &cwd, &env);
    let spool = SharedSpool::new(cx.app().stores().map(ToOwned::to_owned));
    let options = ProcessOptions {
        io: match request.input {
            Some(_) => Io::Separate,
            None => Io::NoInput,
        },
        idle: Duration::MAX,
        keep: RING_BYTES,
    };
    let process = cx
        .recorded_commands()?
        .spawn_with_sink(&spec, options, Some(spool.sink()))?;
    cx.show_output(&process);
    let wait = cx.app().config().mcp.exec.max_wait();
    let deadline = Instant::now() + wait;
    if let Some(input) = &request.input {
        // A program that reads only a part of its input is no failure.
        feed(&process, input, wait, cancel)?;
    }
    let waited = wait_for_end(&process, || spool.bytes(), deadline, None, cancel);
    let mut undone = String::new();
    let mut is_left = false;
    let status = match waited {
        Ok(Waited::Ended(end)) => {
            for note in taken_away(cx, &end.quarantined).iter().chain(&end.notes) {
                undone.push_str(note);
                undone.push('\n');
            }
            end.status
        }
        Ok(Waited::Left(end)) => {
            for note in taken_away(cx, &end.quarantined).iter().chain(&end.notes) {
                undone.push_str(note);
                undone.push('\n');
            }
            is_left = true;
            end.status
        }
        Ok(Waited::StillRunning) => {
            let command = CommandRequest {
                words: request.words,
                cwd: request.cwd,
                timeout: None,
                input: None,
                form: OutputForm::Raw,
            };
            let limit = WaitLimit {
                duration: wait,
                note: None,
            };
            let id = go_on(cx, &command, process, &spool, &limit)?;
            let message = format!("still running after {} s as {id}", wait.as_secs());
            return Err(Error::new(ErrorKind::TimedOut, message).hint(next_calls(cx, &id)));
        }
        Ok(Waited::OutputLimit) => {
            kill(&process);
            return Err(too_large(MAX_OUTPUT_BYTES));
        }
        Err(error) if error.kind == ErrorKind::Cancelled => {
            kill(&process);
            ExitStatus::Stopped
        }
        Err(error) => return Err(error),
    };
    let printed = spool.take();
    if is_left {
        keep_left(cx, &request.words, &request.cwd, process, &spool);
    }
    let mut spool = printed;
    let refused = refusals::notes_of(
        cx,
        &request.words,
        request.cwd.as_deref(),
        Some(status),
        &spool,
    );
    for note in refused {
        undone.push_str("# LLMC: ");
        undone.push_str(&note);
        undone.push('\n');
    }
    if spool.bytes() > MAX_CONTENT_BYTES {
        return Err(too_large(MAX_CONTENT_BYTES));
    }
    let mut contents = spool.contents(request.merged).map_err(|error| {
        let message = format!("the output was not kept: {error}");
        Error::new(ErrorKind::Internal, message)
    })?;
    contents[usize::from(!request.merged)].extend_from_slice(undone.as_bytes());
    Ok(RawOutput { status, contents })
}

fn too_large(most: u64) -> Error {
    let message = format!("the program printed more than {} MiB", most >> 20);
    Error::new(ErrorKind::TooLarge, message)
        .hint("let it write a file: subprocess.run(\"… > out.txt\", shell=True)")
}
