//! What this process is doing now, for a person who watches: calls in progress, background processes, what they print, and
//! how either is ended.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use llmc_envelope::neutral::{Ansi, neutralise};
use llmc_exec::{ExitStatus, Io, OutputReader};
use llmc_observe::{CallScope, lock, mask_secrets};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::cx::Caller;
use crate::error::{Error, ErrorKind, Result};
use crate::processes::Entry;

/// Characters of arguments and commands that are shown.
const MAX_SHOWN_CHARS: usize = 400;
/// Bytes of output in one answer.
const MAX_OUTPUT_BYTES: usize = 64 << 10;
/// How long a process may take to end by itself before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);
const HUP: i32 = 1;
const TERM: i32 = 15;

/// What is stopped, or whose output is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopTarget {
    /// A background process, such as `p_1a2b3c4d`.
    Process(String),
    /// A call in progress, by its number in [`App::activity`].
    Call(u64),
}

/// Characters of the machine's name in a server's.
const MAX_MACHINE_CHARS: usize = 24;

/// Random characters in the name of a server that shares a database.
const SERVER_TAG_CHARS: usize = 6;

/// A name for this process among the servers of its workspace: no two have the same. With a shared database it is the
/// machine and a few random characters: short, since calls repeat it in the ids of processes.
pub(crate) fn server_id(is_shared: bool) -> String {
    if is_shared {
        let random = ulid::Ulid::new().to_string().to_lowercase();
        let tag = &random[random.len() - SERVER_TAG_CHARS..];
        return format!("{}-{tag}", machine_name());
    }
    let started = Timestamp::now().as_millisecond();
    format!("{}-{started:x}", std::process::id())
}

/// The machine's name without its domain.
pub(crate) fn machine_name() -> String {
    let system = rustix::system::uname();
    let machine = system.nodename().to_string_lossy();
    let plain = |c: &char| c.is_ascii_alphanumeric() || *c == '-';
    let machine: String = (machine.chars().take_while(|c| *c != '.'))
        .filter(plain)
        .take(MAX_MACHINE_CHARS)
        .collect();
    match machine.is_empty() {
        true => "server".to_owned(),
        false => machine,
    }
}

/// The calls that are being carried out.
#[derive(Debug, Default)]
pub(crate) struct RunningCalls {
    state: Mutex<RunningState>,
    /// Told when the last call in progress has ended.
    idle: Notify,
}

#[derive(Debug, Default)]
struct RunningState {
    last: u64,
    calls: BTreeMap<u64, CallInProgress>,
}

#[derive(Debug)]
struct CallInProgress {
    tool: &'static str,
    caller: Arc<Caller>,
    args: String,
    since: Instant,
    started: Timestamp,
    correlation_id: String,
    cancel: CancellationToken,
    /// Of the program that it started last.
    output: Option<OutputReader>,
}

/// A call in progress; dropped when it ends.
#[derive(Debug)]
pub(crate) struct RunningGuard<'a> {
    calls: &'a RunningCalls,
    number: u64,
}

impl Drop for RunningGuard<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.calls.state);
        state.calls.remove(&self.number);
        if state.calls.is_empty() {
            self.calls.idle.notify_one();
        }
    }
}

impl RunningCalls {
    pub(crate) fn begin(
        &self,
        tool: &'static str,
        caller: &Arc<Caller>,
        args: Option<&str>,
        correlation_id: &str,
        cancel: CancellationToken,
    ) -> RunningGuard<'_> {
        // Masked when it is shown: most calls are over before anyone looks.
        let args = args.unwrap_or_default();
        let call = CallInProgress {
            tool,
            caller: caller.clone(),
            args: args[..args.floor_char_boundary(4 * MAX_SHOWN_CHARS)].to_owned(),
            since: Instant::now(),
            started: Timestamp::now(),
            correlation_id: correlation_id.to_owned(),
            cancel,
            output: None,
        };
        let mut state = lock(&self.state);
        state.last += 1;
        let number = state.last;
        state.calls.insert(number, call);
        RunningGuard {
            calls: self,
            number,
        }
    }

    /// See [`App::rest_between_calls`](crate::App::rest_between_calls).
    pub(crate) async fn rest(&self, at_least: Duration) {
        self.idle.notified().await;
        while timeout(at_least, self.idle.notified()).await.is_ok()
            || !lock(&self.state).calls.is_empty()
        {}
    }

    /// Lets the output of a program be read with its call.
    pub(crate) fn show_output(&self, correlation_id: &str, output: OutputReader) {
        let mut state = lock(&self.state);
        let call = state.calls.values_mut().rev();
        let mut call = call.filter(|call| call.correlation_id == correlation_id);
        if let Some(call) = call.next() {
            call.output = Some(output);
        }
    }

    fn list(&self, scope: CallScope<'_>) -> Vec<Value> {
        let state = lock(&self.state);
        let seen = state.calls.iter().filter(|(_, call)| call.is_seen(scope));
        seen.map(|(number, call)| call.shown(*number)).collect()
    }

    fn with<T>(
        &self,
        scope: CallScope<'_>,
        number: u64,
        work: impl FnOnce(&CallInProgress) -> T,
    ) -> Result<T> {
        let state = lock(&self.state);
        let call = state.calls.get(&number).filter(|call| call.is_seen(scope));
        call.map(work).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("call {number} has ended"))
                .hint("the list of calls shows its answer")
        })
    }
}

impl CallInProgress {
    fn is_seen(&self, scope: CallScope<'_>) -> bool {
        match scope {
            CallScope::All => true,
            CallScope::Principal(principal) => self.caller.principal == principal,
        }
    }

    fn shown(&self, number: u64) -> Value {
        let caller = &self.caller;
        json!({
            "id": number,
            "tool": self.tool,
            "args": shortened(&mask_secrets(&self.args)),
            "agent": caller.agent,
            "client": caller.client,
            "session": caller.session,
            "principal": caller.principal,
            "started": format!("{:.3}", self.started),
            "elapsed_ms": u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX),
            "has_output": self.output.is_some(),
        })
    }
}

impl App {
    /// The calls in progress and the background processes that this scope may see.
    pub fn activity(&self, scope: CallScope<'_>) -> Value {
        let processes = self.processes().seen_by(scope);
        let processes: Vec<Value> = processes.iter().map(|entry| shown(entry)).collect();
        json!({"calls": self.running().list(scope), "processes": processes})
    }

    /// A part of what a process, or the program of a call, has printed.
    ///
    /// # Errors
    /// There is no such process or call, or it prints nothing that can be read.
    pub fn running_output(
        &self,
        scope: CallScope<'_>,
        target: &StopTarget,
        offset: u64,
    ) -> Result<Value> {
        let reader = match target {
            StopTarget::Process(id) => self.process_seen_by(scope, id)?.process.output_reader(),
            StopTarget::Call(number) => {
                let output = self
                    .running()
                    .with(scope, *number, |call| call.output.clone())?;
                output.ok_or_else(|| {
                    Error::new(ErrorKind::NotFound, "this call has started no program yet")
                })?
            }
        };
        let seen = reader.look(offset, MAX_OUTPUT_BYTES);
        let status = seen.ending.as_ref().map(|ending| ending.status);
        let whole = match status {
            Some(_) => seen.bytes.len(),
            None => whole_characters(&seen.bytes),
        };
        let text = String::from_utf8_lossy(&seen.bytes[..whole]);
        Ok(json!({
            "text": neutralise(&text, Ansi::Strip),
            "offset": seen.offset,
            "next": seen.offset + whole as u64,
            "dropped": seen.offset.saturating_sub(offset),
            "running": status.is_none(),
            "exit_code": status.and_then(ExitStatus::exit_code),
            "signal": status.and_then(ExitStatus::signal),
        }))
    }

    /// Ends a process and its children, or cancels a call. Waits for the end of a process, a few seconds at most.
    ///
    /// # Errors
    /// There is no such process or call, or it does not end.
    pub fn stop_running(&self, scope: CallScope<'_>, target: &StopTarget) -> Result<Value> {
        match target {
            StopTarget::Call(number) => {
                self.running()
                    .with(scope, *number, |call| call.cancel.cancel())?;
                Ok(json!({"ok": true}))
            }
            StopTarget::Process(id) => {
                let entry = self.process_seen_by(scope, id)?;
                let signals: &[i32] = match entry.process.io() {
                    // What a closed terminal does: shells in one do not listen to TERM.
                    Io::Terminal => &[TERM, HUP],
                    _ => &[TERM],
                };
                let ended = entry.process.stop(signals, STOP_TIMEOUT).ok_or_else(|| {
                    Error::new(
                        ErrorKind::TimedOut,
                        format!("{id}: killed, but stuck in the kernel"),
                    )
                })?;
                self.history_keeper().background().checkpoint(&entry.id);
                Ok(json!({
                    "ok": true,
                    "exit_code": ended.status.exit_code(),
                    "signal": ended.status.signal(),
                }))
            }
        }
    }

    fn process_seen_by(&self, scope: CallScope<'_>, id: &str) -> Result<Arc<Entry>> {
        let mut seen = self.processes().seen_by(scope).into_iter();
        seen.find(|entry| entry.id == id).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("{id}: no such process"))
                .hint("an ended one is forgotten after a while")
        })
    }
}

fn shown(entry: &Entry) -> Value {
    let status = entry.process.ending().map(|ending| ending.status);
    json!({
        "id": entry.id,
        "pid": entry.process.pid(),
        "command": shortened(&mask_secrets(&entry.words.text)),
        "cwd": entry.cwd,
        "session": entry.session(),
        "principal": entry.principal(),
        "started": format!("{:.3}", entry.started),
        "running": status.is_none(),
        "exit_code": status.and_then(ExitStatus::exit_code),
        "signal": status.and_then(ExitStatus::signal),
    })
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// How many of these bytes end no later than a character does that may still be completed.
fn whole_characters(bytes: &[u8]) -> usize {
    let tail = bytes.len().saturating_sub(3);
    let begun = (tail..bytes.len()).find(|at| {
        std::str::from_utf8(&bytes[*at..])
            .is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
    });
    begun.unwrap_or(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cx::{Form, Surface};

    #[tokio::test]
    async fn a_server_rests_when_its_last_call_has_ended() {
        let calls = RunningCalls::default();
        let caller = Arc::new(Caller {
            surface: Surface::Mcp,
            form: Form::Text,
            principal: "local".to_owned(),
            agent: String::new(),
            session: String::new(),
            model: String::new(),
            client: None,
            read_only: false,
            tools: None,
            remote: false,
        });
        let begin = || calls.begin("stat", &caller, None, "id", CancellationToken::new());
        let mut rest = std::pin::pin!(calls.rest(Duration::ZERO));
        let mut is_over = async || timeout(Duration::ZERO, &mut rest).await.is_ok();
        assert!(!is_over().await, "no call has come");
        let (first, second) = (begin(), begin());
        drop(first);
        assert!(!is_over().await, "one call goes on");
        drop(second);
        assert!(is_over().await);
    }

    #[test]
    fn a_character_that_has_only_begun_waits() {
        let euro = "€".as_bytes();
        for (bytes, whole) in [
            (&b"plain"[..], 5),
            (&[b"a", &euro[..2]].concat(), 1),
            (&[b"a", euro].concat(), 4),
            (b"a\xff", 2),
            (b"", 0),
        ] {
            assert_eq!(whole_characters(bytes), whole, "{bytes:?}");
        }
    }
}
