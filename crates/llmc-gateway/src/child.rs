//! An upstream that is a program: JSON-RPC, one message a line, over its standard input and output.
//!
//! The thread that follows the process cuts its output into messages and hands each answer to the request that waits for
//! it; another thread writes, so that neither side can block the other. Whatever the program does, a request ends: by its
//! answer, by its time limit, by cancellation, or with the process. What the program prints that is no answer is counted,
//! and a program that prints too much of it is ended.

use std::collections::HashMap;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use llmc_exec::{ExecRequest, ExitStatus, Io, OutputSink, Process, ProcessOptions, Runner, Stream};
use llmc_host::{CancelToken, lock};
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use crate::error::{Error, Result, quoted};
use crate::lines::{Line, LineSplitter};
use crate::request::{ProgressSink, Request};
use crate::user::{
    CallUser, INTERNAL_ERROR, answer_requests, error_response, not_offered, plain_response,
    several_users,
};

/// The largest message: an image of ten megabytes, as base64.
pub(crate) const MAX_MESSAGE_BYTES: usize = 16 << 20;
/// Bytes of output between two answers, on both streams: a program that prints more is ended.
const MAX_NOISE_BYTES: usize = 64 << 20;
/// Lines of output, in all, that are no JSON-RPC: a program that prints more is ended.
const MAX_BAD_LINES: usize = 1_000;
/// Messages that wait to be written.
const MAX_QUEUED_MESSAGES: usize = 256;
/// How long a program may leave a message unread.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the exit status of a program is waited for once its output has ended.
const END_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes of its standard error that are kept for messages.
const MAX_STDERR_BYTES: usize = 4 << 10;
/// How often a call that is under way resets the idle time of its program.
const TOUCH_INTERVAL: Duration = Duration::from_millis(500);

/// A program that answers requests. Dropping it ends the program.
#[derive(Debug)]
pub(crate) struct ChildProcess {
    process: Arc<Process>,
    outbox: SyncSender<Vec<u8>>,
    inbox: Arc<Inbox>,
    /// Its helpers hold the process.
    _runner: Runner,
}

impl ChildProcess {
    /// Starts the program. `secrets` are removed from what is repeated of its words.
    pub(crate) fn start(
        runner: Runner,
        spec: &ExecRequest<'_>,
        idle: Duration,
        secrets: Vec<String>,
    ) -> Result<ChildProcess> {
        let (outbox, queue) = mpsc::sync_channel(MAX_QUEUED_MESSAGES);
        let inbox = Arc::new(Inbox {
            state: Mutex::default(),
            secrets,
        });
        let mut reader = OutputReader {
            inbox: inbox.clone(),
            outbox: outbox.clone(),
            lines: LineSplitter::new(MAX_MESSAGE_BYTES),
        };
        let options = ProcessOptions {
            io: Io::Separate,
            idle,
            keep: 0,
        };
        let sink: OutputSink =
            Box::new(move |stream: Stream, bytes: &[u8]| reader.take(stream, bytes));
        let process = runner
            .spawn_with_sink(spec, options, Some(sink))
            .map_err(|error| Error::NotStarted(quoted(&error.to_string())))?;
        let process = Arc::new(process);
        let writer = Writer {
            process: process.clone(),
            queue,
            inbox: inbox.clone(),
        };
        std::thread::Builder::new()
            .name("llmc-upstream".to_owned())
            .spawn(move || writer.run())
            .map_err(|error| Error::NotStarted(error.to_string()))?;
        Ok(ChildProcess {
            process,
            outbox,
            inbox,
            _runner: runner,
        })
    }

    /// Sends a request and waits for its answer.
    pub(crate) async fn request(&self, request: Request<'_>) -> Result<Value> {
        let (sender, mut answer) = oneshot::channel();
        let (asked, questions) = unbounded_channel();
        let waiter = Waiter {
            answer: sender,
            progress: request.progress.clone(),
            user: request.user.clone().map(|user| (user, asked)),
        };
        self.inbox.expect(request.id, waiter)?;
        let waiting = Waiting {
            inbox: &self.inbox,
            id: request.id,
        };
        self.post(&request.message)?;
        let send = move |response| async move {
            let _ = self.post(&response);
        };
        let replies = answer_requests(questions, request.user.as_deref(), || true, send);
        tokio::pin!(replies);
        let began = Instant::now();
        let mut touch = tokio::time::interval(TOUCH_INTERVAL);
        let (why, error) = loop {
            tokio::select! {
                answer = &mut answer => {
                    drop(waiting);
                    return match answer {
                        Ok(answer) => answer,
                        Err(_) => Err(self.ended().await),
                    };
                }
                never = &mut replies => match never {},
                () = tokio::time::sleep_until(request.next_check(began).into()) => {
                    if request.deadline(began) <= Instant::now() {
                        break ("time limit", Error::TimedOut(request.timeout));
                    }
                }
                () = request.cancel.cancelled() => break ("cancelled", Error::Cancelled),
                // A program that works is not idle, though it prints nothing.
                _ = touch.tick() => drop(self.process.look(u64::MAX, 0)),
            }
        };
        drop(waiting);
        let params = json!({"requestId": request.id, "reason": why});
        // It may have ended meanwhile.
        let _ = self.notify("notifications/cancelled", params);
        Err(error)
    }

    pub(crate) fn notify(&self, method: &str, params: Value) -> Result<()> {
        self.post(&json!({"jsonrpc": "2.0", "method": method, "params": params}))
    }

    /// Whether the program has said that its list of tools changed, since this was last asked.
    pub(crate) fn take_list_changed(&self) -> bool {
        std::mem::take(&mut lock(&self.inbox.state).list_changed)
    }

    pub(crate) fn is_running(&self) -> bool {
        self.process.ending().is_none() && lock(&self.inbox.state).over.is_none()
    }

    fn post(&self, message: &Value) -> Result<()> {
        let mut line = message.to_string().into_bytes();
        line.push(b'\n');
        self.outbox
            .try_send(line)
            .map_err(|_| Error::Protocol("it does not read what it is sent".to_owned()))
    }

    /// Why no answer comes any more.
    async fn ended(&self) -> Error {
        if let Some(error) = lock(&self.inbox.state).over.clone() {
            return error;
        }
        let process = self.process.clone();
        let end = tokio::task::spawn_blocking(move || process.watch_end(END_TIMEOUT)).await;
        let how = match end.ok().flatten() {
            Some(end) if end.idle => "stopped for being idle".to_owned(),
            Some(end) => match end.status {
                ExitStatus::Exited(code) => format!("exit code {code}"),
                ExitStatus::Signaled(signal) => format!("signal {signal}"),
                ExitStatus::Stopped => "stopped".to_owned(),
            },
            None => "its output was closed".to_owned(),
        };
        let said = match self.inbox.last_words() {
            words if words.is_empty() => words,
            words => format!(": {words}"),
        };
        Error::Ended { how, said }
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        // The thread that writes holds the process until its queue is closed, which the end of the process does.
        self.process.end();
    }
}

/// A request that waits for its answer until this is dropped.
struct Waiting<'a> {
    inbox: &'a Inbox,
    id: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        lock(&self.inbox.state).waiters.remove(&self.id);
    }
}

/// Answers on their way to requests.
#[derive(Debug)]
struct Inbox {
    state: Mutex<InboxState>,
    secrets: Vec<String>,
}

#[derive(Debug, Default)]
struct InboxState {
    waiters: HashMap<u64, Waiter>,
    /// Why no more answers are taken.
    over: Option<Error>,
    list_changed: bool,
    noise_bytes: usize,
    bad_lines: usize,
    stderr: Vec<u8>,
}

struct Waiter {
    answer: oneshot::Sender<Result<Value>>,
    progress: Option<ProgressSink>,
    /// Whose call it is, and where questions to that user go; none for a request that is no call.
    user: Option<(Arc<CallUser>, UnboundedSender<Value>)>,
}

impl std::fmt::Debug for Waiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Waiter")
    }
}

impl Inbox {
    fn expect(&self, id: u64, waiter: Waiter) -> Result<()> {
        let mut state = lock(&self.state);
        if let Some(error) = &state.over {
            return Err(error.clone());
        }
        state.waiters.insert(id, waiter);
        Ok(())
    }

    /// Passes a question on to the user of the call that is under way; the response if that cannot be done. The message
    /// does not say which call it belongs to, so with calls of several users no user is asked.
    fn pass_on(&self, request: Value) -> Option<Value> {
        let state = lock(&self.state);
        let calls = state
            .waiters
            .values()
            .filter_map(|waiter| waiter.user.as_ref());
        let calls: Vec<&(Arc<CallUser>, UnboundedSender<Value>)> = calls.collect();
        let refused = |error: (i64, String)| Some(error_response(&request["id"], error));
        let Some((user, asked)) = calls.first() else {
            return refused((INTERNAL_ERROR, "no call is under way".to_owned()));
        };
        let Some(ask) = user.ask() else {
            return refused(not_offered("elicitation/create"));
        };
        let is_same = |(other, _): &&(Arc<CallUser>, UnboundedSender<Value>)| {
            other.ask().is_some_and(|other| other.is_same(ask))
        };
        if !calls.iter().all(is_same) {
            return refused(several_users());
        }
        // If the call has just ended, nobody needs the response.
        let _ = asked.send(request);
        None
    }

    /// Ends every request, and all that come.
    fn close(&self, error: &Error) {
        let mut state = lock(&self.state);
        state.over.get_or_insert_with(|| error.clone());
        self.fail_all(&mut state, error);
    }

    fn fail_all(&self, state: &mut InboxState, error: &Error) {
        for (_, waiter) in state.waiters.drain() {
            let _ = waiter.answer.send(Err(error.clone()));
        }
    }

    /// Text of the program without the values of its variables.
    fn masked(&self, mut text: String) -> String {
        for secret in &self.secrets {
            text = text.replace(secret.as_str(), "***");
        }
        text
    }

    /// The last line about an error that the program printed on its standard error, or its last line.
    fn last_words(&self) -> String {
        let state = lock(&self.state);
        let text = String::from_utf8_lossy(&state.stderr).into_owned();
        drop(state);
        let text = self.masked(text);
        // Node prints its version last, Python the error.
        let is_error = |line: &&str| line.to_ascii_lowercase().contains("error");
        let mut lines = text.lines().rev().filter(|line| !line.trim().is_empty());
        let last = lines.clone().find(is_error).or_else(|| lines.next());
        quoted(last.unwrap_or_default())
    }
}

/// Reads what the program prints, on the thread that follows it.
struct OutputReader {
    inbox: Arc<Inbox>,
    outbox: SyncSender<Vec<u8>>,
    lines: LineSplitter,
}

impl Drop for OutputReader {
    /// The output has ended: requests that wait find out why by the state of the process.
    fn drop(&mut self) {
        lock(&self.inbox.state).waiters.clear();
    }
}

impl OutputReader {
    fn take(&mut self, stream: Stream, bytes: &[u8]) {
        let mut state = lock(&self.inbox.state);
        if state.over.is_some() {
            return;
        }
        // Whatever the bytes are: blank lines, parts of a line without end, and standard error count, too.
        state.noise_bytes = state.noise_bytes.saturating_add(bytes.len());
        if state.noise_bytes > MAX_NOISE_BYTES {
            drop(state);
            let message = format!("{} MiB of output without an answer", MAX_NOISE_BYTES >> 20);
            return give_up(&self.inbox, &self.outbox, message);
        }
        if stream == Stream::Stderr {
            state.stderr.extend_from_slice(bytes);
            let surplus = state.stderr.len().saturating_sub(MAX_STDERR_BYTES);
            state.stderr.drain(..surplus);
            return;
        }
        drop(state);
        let OutputReader {
            inbox,
            outbox,
            lines,
        } = self;
        lines.push(bytes, |line| match line {
            Line::Whole(line) => take_line(inbox, outbox, line),
            Line::TooLong => {
                // Whose answer it is stands in the part that was dropped.
                let mut state = lock(&inbox.state);
                inbox.fail_all(&mut state, &Error::TooLarge(MAX_MESSAGE_BYTES));
            }
        });
    }
}

fn take_line(inbox: &Inbox, outbox: &SyncSender<Vec<u8>>, line: &[u8]) {
    if line.trim_ascii().is_empty() {
        return;
    }
    let Ok(message) = serde_json::from_slice::<Value>(line) else {
        return bad_line(inbox, outbox, line);
    };
    let answered = match message {
        Value::Array(messages) => {
            let mut any = false;
            for message in messages {
                any |= take_message(inbox, outbox, message);
            }
            any
        }
        message if message.is_object() => take_message(inbox, outbox, message),
        _ => return bad_line(inbox, outbox, line),
    };
    if answered {
        lock(&inbox.state).noise_bytes = 0;
    }
}

/// Ends a program whose output is of no use: the thread that writes holds it.
fn give_up(inbox: &Inbox, outbox: &SyncSender<Vec<u8>>, why: String) {
    inbox.close(&Error::Protocol(why));
    // If the queue is full, that thread is at work and looks for itself.
    let _ = outbox.try_send(Vec::new());
}

fn bad_line(inbox: &Inbox, outbox: &SyncSender<Vec<u8>>, line: &[u8]) {
    let mut state = lock(&inbox.state);
    state.bad_lines += 1;
    if state.bad_lines > MAX_BAD_LINES {
        drop(state);
        let begins = inbox.masked(String::from_utf8_lossy(line).into_owned());
        let begins: String = quoted(&begins).chars().take(80).collect();
        let message = format!("its output is no JSON, such as {begins:?}");
        give_up(inbox, outbox, message);
    }
}

/// Hands a message on; whether it was the answer to a request.
fn take_message(inbox: &Inbox, outbox: &SyncSender<Vec<u8>>, mut message: Value) -> bool {
    let id = message.get("id").filter(|id| !id.is_null()).cloned();
    let method = message.get("method").and_then(Value::as_str);
    let method = method.map(str::to_owned);
    match (method.as_deref(), id) {
        (Some(method), Some(id)) => {
            let reply = match method {
                "elicitation/create" => inbox.pass_on(message),
                method => Some(plain_response(&id, method)),
            };
            let Some(reply) = reply else {
                return false;
            };
            let mut line = reply.to_string().into_bytes();
            line.push(b'\n');
            // A server that asks faster than it reads gets no reply.
            let _ = outbox.try_send(line);
            false
        }
        (Some("notifications/progress"), None) => {
            let params = &message["params"];
            let token = params["progressToken"].as_u64();
            let state = lock(&inbox.state);
            let waiter = token.and_then(|token| state.waiters.get(&token));
            if let Some(progress) = waiter.and_then(|waiter| waiter.progress.clone()) {
                drop(state);
                progress(&crate::request::progress_words(params));
            }
            false
        }
        (Some("notifications/tools/list_changed"), None) => {
            lock(&inbox.state).list_changed = true;
            false
        }
        (Some(_), None) => false,
        (None, id) => {
            let id = id.and_then(|id| id.as_u64().or_else(|| id.as_str()?.parse().ok()));
            let Some(id) = id else {
                return false;
            };
            let Some(waiter) = lock(&inbox.state).waiters.remove(&id) else {
                return false;
            };
            let _ = waiter.answer.send(crate::request::answer(&mut message));
            true
        }
    }
}

/// Writes what is queued, on a thread of its own.
struct Writer {
    process: Arc<Process>,
    queue: Receiver<Vec<u8>>,
    inbox: Arc<Inbox>,
}

impl Writer {
    fn run(self) {
        let stop = CancelToken::default();
        while let Ok(line) = self.queue.recv() {
            let began = Instant::now();
            match self.process.send(&line, WRITE_TIMEOUT, &stop) {
                Ok(sent) if sent.bytes == line.len() => {}
                Ok(sent) if !sent.open => {}
                Ok(_) => {
                    let seconds = began.elapsed().as_secs();
                    let message = format!("it did not read a message within {seconds} s");
                    self.inbox.close(&Error::Protocol(message));
                    self.process.end();
                }
                Err(error) => {
                    self.inbox.close(&Error::Protocol(error.to_string()));
                    self.process.end();
                }
            }
            if lock(&self.inbox.state).over.is_some() {
                self.process.end();
            }
        }
    }
}
