//! One block of code in a Python process: the messages of both sides, the limits, the end.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, StreamExt};
use llmc_exec::RunReport;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::frames::{self, CallFrame, EndFrame, ErrorFrame, Frame, SystemFrame};
use super::process::{PythonProcess, START_TIMEOUT};
use crate::host::{ScriptCall, ScriptCallError, ScriptHost, SystemCall, SystemReply};
use crate::limits::{ScriptLimit, ScriptLimits};
use crate::outcome::{ScriptEnd, ScriptError, ScriptErrorKind, ScriptOutcome};

/// For cancelled calls to end and be recorded.
const CALLS_END_TIMEOUT: Duration = Duration::from_secs(1);
/// Of one block; further calls wait.
const MAX_CONCURRENT_CALLS: usize = 8;
/// Requests that are taken before others are answered; a script that sends more waits.
const MAX_PENDING_CALLS: usize = 4096;
/// A timer has an end.
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);

/// What a script asks for.
enum Asked {
    Tool(ScriptCall),
    System(SystemCall),
}

/// Carries out one request in its turn; also its number and the bytes that it came with.
async fn carry_out<H: ScriptHost>(
    host: &H,
    permits: &Semaphore,
    id: u64,
    asked: Asked,
) -> (u64, usize, Result<SystemReply, ScriptCallError>) {
    let _permit = permits.acquire().await;
    match asked {
        Asked::Tool(call) => (id, 0, host.call(call).await.map(SystemReply::from)),
        Asked::System(call) => {
            let bytes = call.content.len();
            (id, bytes, host.system(call).await)
        }
    }
}

/// One block of code while it runs.
pub(super) struct ScriptRun<'a, H> {
    limits: &'a ScriptLimits,
    host: &'a H,
    cancel: &'a CancellationToken,
    output: Vec<u8>,
    /// See [`ScriptOutcome::output_parts`].
    parts: Vec<usize>,
    calls: u64,
    cpu: Duration,
    memory_bytes: u64,
    /// Time left to the script itself, and to its calls.
    own_left: Duration,
    calls_left: Duration,
    /// Whether the interpreter said that the block is over, and waits for the next.
    is_over: bool,
}

/// What is left of a block.
pub(super) struct BlockEnd {
    pub(super) outcome: ScriptOutcome,
    /// Memory of the process afterwards, by its own account.
    pub(super) memory_bytes: u64,
    /// Whether the process can run another block.
    pub(super) can_go_on: bool,
}

impl<'a, H: ScriptHost> ScriptRun<'a, H> {
    pub(super) fn new(
        limits: &'a ScriptLimits,
        host: &'a H,
        cancel: &'a CancellationToken,
    ) -> ScriptRun<'a, H> {
        ScriptRun {
            limits,
            host,
            cancel,
            output: Vec::new(),
            parts: Vec::new(),
            calls: 0,
            cpu: Duration::ZERO,
            memory_bytes: 0,
            own_left: limits.wall,
            calls_left: limits.calls_wall,
            is_over: false,
        }
    }

    /// Runs a block to its end.
    pub(super) async fn run(mut self, process: &mut PythonProcess) -> BlockEnd {
        let started = Instant::now();
        let ending = match self.exchange(process).await {
            Some(ending) => ending,
            None => {
                let finished = process.end().await;
                self.lost(finished)
            }
        };
        BlockEnd {
            outcome: ScriptOutcome {
                ending,
                output: String::from_utf8_lossy(&self.output).into_owned(),
                output_parts: self.output_parts(),
                calls: self.calls,
                elapsed: started.elapsed(),
                cpu: self.cpu,
            },
            memory_bytes: self.memory_bytes,
            can_go_on: self.is_over,
        }
    }

    /// Exchanges messages until the script has ended. `None` if its interpreter ended by itself.
    async fn exchange(&mut self, process: &mut PythonProcess) -> Option<ScriptEnd> {
        let calls_over = self.cancel.child_token();
        let _over = calls_over.clone().drop_guard();
        let (host, cancel) = (self.host, self.cancel);
        let permits = Semaphore::new(MAX_CONCURRENT_CALLS);
        let mut running = FuturesUnordered::new();
        let mut cancels = HashMap::new();
        // Contents of operations that are not over. The script waits while they are too many.
        let mut content_bytes = 0;
        let mut start_left = START_TIMEOUT;
        let ending = 'run: loop {
            let has_room =
                content_bytes < frames::MAX_SYSTEM_FRAME_BYTES && running.len() < MAX_PENDING_CALLS;
            let may_move = has_room || process.has_unsent();
            let waited = Instant::now();
            // The clock of the script stands still until its interpreter is ready, and while it has calls under way.
            let left = match (process.is_ready, running.is_empty()) {
                (false, _) => &mut start_left,
                (true, true) => &mut self.own_left,
                (true, false) => &mut self.calls_left,
            };
            tokio::select! {
                moved = process.advance(has_room), if may_move => if moved.is_none() {
                    break None;
                },
                Some((id, bytes, reply)) = running.next() => {
                    cancels.remove(&id);
                    content_bytes -= bytes;
                    let mut contents = Vec::new();
                    let mut reply = match reply {
                        Ok(SystemReply { value, contents: found }) => {
                            contents = found;
                            json!({"id": id, "value": value})
                        }
                        Err(ScriptCallError::Raise(exception, message)) => {
                            json!({"id": id, "raise": [exception.class(), message]})
                        }
                        Err(ScriptCallError::Stop) => break Some(ScriptEnd::Stopped),
                    };
                    process.say(&mut reply, &contents);
                }
                () = tokio::time::sleep((*left).min(LONGEST_SLEEP)) => {}
                () = cancel.cancelled() => {
                    let error = ScriptError::new(ScriptErrorKind::Cancelled, "cancelled");
                    break Some(ScriptEnd::Failed(error));
                }
            }
            *left = left.saturating_sub(waited.elapsed());
            if left.is_zero() {
                break match process.is_ready {
                    true => Some(self.limit_reached(ScriptLimit::Wall)),
                    false => Some(crashed("the interpreter does not start".to_owned())),
                };
            }
            loop {
                match process.inbox.next() {
                    Ok(None) => break,
                    Ok(Some(Frame::Hello(_))) => process.is_ready = true,
                    Ok(Some(Frame::Printed(bytes))) => {
                        if let Some(over) = self.print(&bytes) {
                            break 'run Some(over);
                        }
                    }
                    Ok(Some(Frame::Call(frame))) => {
                        let CallFrame {
                            id,
                            name,
                            args,
                            kwargs,
                        } = frame;
                        if self.calls >= self.limits.calls {
                            break 'run Some(self.limit_reached(ScriptLimit::Calls));
                        }
                        self.calls += 1;
                        let call = ScriptCall {
                            name,
                            args,
                            kwargs,
                            cancel: calls_over.clone(),
                        };
                        running.push(carry_out(host, &permits, id, Asked::Tool(call)));
                    }
                    Ok(Some(Frame::System(frame, content))) => {
                        let SystemFrame {
                            id,
                            operation,
                            args,
                        } = frame;
                        content_bytes += content.len();
                        let over = calls_over.child_token();
                        cancels.insert(id, over.clone());
                        let call = SystemCall {
                            operation,
                            args,
                            content,
                            cancel: over,
                        };
                        running.push(carry_out(host, &permits, id, Asked::System(call)));
                    }
                    Ok(Some(Frame::Cancel(id))) => {
                        if let Some(over) = cancels.get(&id) {
                            over.cancel();
                        }
                    }
                    Ok(Some(Frame::End(end))) => break 'run Some(self.end_of_script(end)),
                    Err(why) => {
                        let message = format!("the script broke its channel to the server: {why}");
                        break 'run Some(crashed(message));
                    }
                }
            }
        };
        // Calls that still run are cancelled and get time to record that.
        calls_over.cancel();
        let _ = tokio::time::timeout(CALLS_END_TIMEOUT, async {
            while running.next().await.is_some() {}
        })
        .await;
        ending
    }

    /// Adds printed text; the end of the script if it is too much.
    fn print(&mut self, bytes: &[u8]) -> Option<ScriptEnd> {
        let max = usize::try_from(self.limits.output_bytes).unwrap_or(usize::MAX);
        let kept = bytes.len().min(max - self.output.len().min(max));
        self.note_part();
        self.output.extend_from_slice(&bytes[..kept]);
        self.host.printed(&String::from_utf8_lossy(&bytes[..kept]));
        (kept < bytes.len()).then(|| self.limit_reached(ScriptLimit::Output))
    }

    /// A frame is what one `print` wrote, or a piece of it: another part starts with it, if it starts a line.
    fn note_part(&mut self) {
        let at = self.output.len();
        let last = self.parts.last().copied().unwrap_or(0);
        if self.output.ends_with(b"\n")
            && at - last >= MIN_PART_BYTES
            && self.parts.len() < MAX_PARTS
        {
            self.parts.push(at);
        }
    }

    fn output_parts(&mut self) -> Vec<usize> {
        let parts = std::mem::take(&mut self.parts);
        match parts.len() < MAX_PARTS && std::str::from_utf8(&self.output).is_ok() {
            true => parts,
            false => Vec::new(),
        }
    }

    fn end_of_script(&mut self, end: EndFrame) -> ScriptEnd {
        self.is_over = true;
        self.cpu = Duration::from_micros(end.cpu_us);
        self.memory_bytes = end.memory;
        if let Some(error) = end.error {
            return ScriptEnd::Failed(self.script_error(error));
        }
        let value = end.value.unwrap_or_default();
        let bytes = self.output.len() as u64 + value.repr.len() as u64;
        if bytes > self.limits.output_bytes {
            return self.limit_reached(ScriptLimit::Output);
        }
        ScriptEnd::Value(value)
    }

    fn script_error(&self, frame: ErrorFrame) -> ScriptError {
        let limit = match frame.kind.as_str() {
            "memory" => Some(ScriptLimit::Memory),
            "recursion" => Some(ScriptLimit::Recursion),
            _ => None,
        };
        let kind = match frame.kind.as_str() {
            "syntax" => ScriptErrorKind::Syntax,
            "reserved" => ScriptErrorKind::Reserved,
            _ => ScriptErrorKind::Exception,
        };
        let error = match limit {
            Some(limit) => ScriptError::limit(limit, self.limits),
            None => ScriptError::new(kind, frame.message),
        };
        ScriptError {
            hint: error.hint,
            exception: frame.exception,
            line: frame.line,
            traceback: frame.traceback,
            message: error.message,
            kind: error.kind,
        }
    }

    fn limit_reached(&self, limit: ScriptLimit) -> ScriptEnd {
        ScriptEnd::Failed(ScriptError::limit(limit, self.limits))
    }

    /// The end of a script whose interpreter ended without an end frame.
    fn lost(&self, finished: Option<llmc_exec::Result<RunReport>>) -> ScriptEnd {
        let finished = match finished {
            Some(Ok(finished)) => finished,
            Some(Err(error)) => {
                return crashed(format!("the interpreter cannot be started: {error}"));
            }
            None => return crashed("the interpreter is lost".to_owned()),
        };
        let xcpu = rustix::process::Signal::XCPU.as_raw();
        let message = match (finished.status.exit_code(), finished.status.signal()) {
            (_, Some(signal)) if signal == xcpu => return self.limit_reached(ScriptLimit::Cpu),
            (_, Some(signal)) => format!("signal {signal} ended the interpreter"),
            (Some(code), _) => format!("the interpreter ended itself with exit code {code}"),
            (None, None) if finished.timed_out => return self.limit_reached(ScriptLimit::Wall),
            (None, None) => "the interpreter was ended".to_owned(),
        };
        let mut error = ScriptError::new(ScriptErrorKind::Crashed, message);
        error.hint = Some(
            "a script ends by reaching its end; os._exit and replaced processes cannot answer"
                .to_owned(),
        );
        ScriptEnd::Failed(error)
    }
}

/// Bytes of a part of the output, at least.
const MIN_PART_BYTES: usize = 400;
/// With as many parts, none is worth a share of its own.
const MAX_PARTS: usize = 16;

fn crashed(message: String) -> ScriptEnd {
    ScriptEnd::Failed(ScriptError::new(ScriptErrorKind::Crashed, message))
}
